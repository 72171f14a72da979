"""Compare two translations of the same sentences, and distinguish near ties from disagreements (FNI-11).

Batched products round differently, so that two candidates with nearly equal scores may change places. To distinguish this case
from a fault, the sentence is decoded once more, alone and by the simplest search, which gives the gap between the candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from simnmt.nmt.engine import Hypothesis
from simnmt.nmt.step_model import State, StepModel

Tokens = tuple[int, ...]

NEAR_TIE = 1e-4
"""Two scores closer than this may change their order with the rounding of batched products (FNI-11)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence that two decoders translate differently."""

    sentence: int
    gap: float
    """The score gap between the two translations, in natural log-probability. In greedy search: by how much the lower of the
    first two tokens that differ lies below the best. With a beam: see `LoneDecoding.gap`; infinity if the sentence decoded
    alone has neither translation."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """A comparison of two translations of the same sentences."""

    equal: int
    """Sentences with equal translations."""
    near_ties: tuple[Difference, ...]
    """Differences with a gap below `NEAR_TIE`, which are allowed."""
    disagreements: tuple[Difference, ...]
    """All other differences."""
    equal_tokens: float
    """Share of the tokens of the longer translation that are equal at the same place; 1 without tokens."""


class LoneDecoding(NamedTuple):
    """A sentence decoded alone."""

    hypothesis: Hypothesis
    gap: float
    """The smallest gap between two scores whose order had an effect, over all steps: on which hypotheses stay open, which ended
    ones are kept, when the search stops, and which is best at the end. For a rival, over the steps up to the one that drops it:
    later ties do not concern it. In natural log-probability, divided by the length if ended hypotheses are compared; infinity
    without any choice.
    """


def agreement(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    ones: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    *,
    beam: int = 1,
    max_len: int | Sequence[int] = 200,
) -> Agreement:
    """Compare two translations of `sources`, token by token; `max_len`: most tokens, of all or of each."""
    most = [max_len] * len(sources) if isinstance(max_len, int) else max_len
    pairs = [(one.tokens, other.tokens) for one, other in zip(ones, others, strict=True)]
    near, disagreements = list[Difference](), list[Difference]()
    for sentence, (pair, source, limit) in enumerate(zip(pairs, sources, most, strict=True)):
        if pair[0] != pair[1]:
            gap = _gap_of_greedy(model, source, *pair) if beam == 1 else _gap_of_beam(model, source, *pair, beam, limit)
            (near if gap < NEAR_TIE else disagreements).append(Difference(sentence, gap))
    same = sum(one == other for pair in pairs for one, other in zip(*pair, strict=False))
    tokens = sum(max(map(len, pair)) for pair in pairs)
    equal = len(pairs) - len(near) - len(disagreements)
    return Agreement(equal, tuple(near), tuple(disagreements), same / tokens if tokens else 1.0)


@torch.inference_mode()
def _gap_of_greedy(model: StepModel, source: Sequence[int], one: Tokens, other: Tokens) -> float:
    """See `Difference.gap`."""
    differing = (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    shared = next(differing, min(len(one), len(other)))
    state = _start_state(model, source, 1)
    for word in (model.start_token, *one[:shared]):
        logits, state = model.step(state, torch.tensor([word], device=model.device))
    scores = _log_probs(model, logits)[0]
    words = [tokens[shared] if len(tokens) > shared else model.eos_token for tokens in (one, other)]
    return float(scores.max() - scores[words].min())


def _gap_of_beam(model: StepModel, source: Sequence[int], one: Tokens, other: Tokens, beam: int, max_len: int) -> float:
    """See `Difference.gap`."""
    alone = decode_alone(model, source, beam, max_len).hypothesis.tokens
    if alone not in (one, other):
        return inf
    return decode_alone(model, source, beam, max_len, rival=other if alone == one else one).gap


class _Path(NamedTuple):
    score: float
    tokens: Tokens


class _Candidate(NamedTuple):
    score: float
    row: int
    word: int


@torch.inference_mode()
def decode_alone(
    model: StepModel, source: Sequence[int], beam: int = 1, max_len: int = 200, *, rival: Tokens | None = None
) -> LoneDecoding:
    """Decode one sentence by a simple search over plain lists: slow, and independent of `SlotDecoder`, which it checks.

    `rival`: another translation by a beam; the gap is then that of the choices that dropped it.
    """
    state = _start_state(model, source, beam)
    steps = max_len if model.max_positions is None else min(max_len, model.max_positions)
    return _decode_greedily(model, state, steps) if beam == 1 else _decode_with_beam(model, state, steps, beam, rival)


def _start_state(model: StepModel, source: Sequence[int], beam: int) -> State:
    src = torch.tensor([list(source)], device=model.device)
    return model.start(model.encode(src, torch.tensor([len(source)], device=model.device)), beam)


def _decode_greedily(model: StepModel, state: State, steps: int) -> LoneDecoding:
    path, gap = _Path(0.0, ()), inf
    word = model.start_token
    for length in range(1, steps + 1):
        (best, *others), state = _rank_candidates(model, state, [path], [word], 2)
        gap = min([gap, *(best.score - other.score for other in others)])
        word = best.word
        if word == model.eos_token:
            return LoneDecoding(Hypothesis(path.tokens, best.score / length), gap)
        path = _Path(best.score, (*path.tokens, word))
    return LoneDecoding(Hypothesis(path.tokens, path.score / steps), gap)


def _decode_with_beam(model: StepModel, state: State, steps: int, beam: int, rival: Tokens | None) -> LoneDecoding:
    going = [_Path(0.0, ())] + [_Path(-inf, ())] * (beam - 1)
    fed = [model.start_token] * beam
    kept: list[_Path] = []
    gaps: list[float] = []
    lost = False
    for length in range(1, steps + 1):
        ranked, state = _rank_candidates(model, state, going, fed, 2 * beam + 1)
        calls: list[float] = []
        ending = [(rank, candidate) for rank, candidate in enumerate(ranked) if candidate.word == model.eos_token]
        for rank, candidate in ending:
            # The one across the edge of the beam.
            across = ranked[beam:][:1] if rank < beam else ranked[beam - 1 : beam]
            calls += [abs(candidate.score - other.score) for other in across]
        kept += [_Path(candidate.score / length, going[candidate.row].tokens) for rank, candidate in ending if rank < beam]
        kept.sort(key=lambda path: -path.score)
        calls.append(_gap_after(kept, beam))
        del kept[beam:]
        staying = [candidate for candidate in ranked if candidate.word != model.eos_token]
        calls.append(_gap_after(staying, beam))
        staying = (staying + [_Candidate(-inf, 0, model.start_token)] * beam)[:beam]
        going = [_Path(candidate.score, (*going[candidate.row].tokens, candidate.word)) for candidate in staying]
        if len(kept) == beam:
            calls.append(abs(going[0].score / length - kept[-1].score))
        if not lost:
            gaps += calls
        if len(kept) == beam and going[0].score / length <= kept[-1].score:
            break
        if rival is not None:
            lost = lost or rival not in [path.tokens for path in kept] + [(*path.tokens, *rival[length:]) for path in going]
        fed = [candidate.word for candidate in staying]
        state = model.reorder(state, torch.tensor([candidate.row for candidate in staying], device=model.device))
    else:
        kept += [_Path(path.score / steps, path.tokens) for path in going]
        kept.sort(key=lambda path: -path.score)
    beaten = [kept[0].score - path.score for path in kept[1:] if rival in (None, path.tokens)][:1]
    return LoneDecoding(Hypothesis(kept[0].tokens, kept[0].score), min(gaps + beaten, default=inf))


def _rank_candidates(
    model: StepModel, state: State, going: Sequence[_Path], fed: Sequence[int], count: int
) -> tuple[list[_Candidate], State]:
    """Return the best continuations, best first."""
    logits, state = model.step(state, torch.tensor(fed, device=model.device))
    scores = torch.tensor([[path.score] for path in going], dtype=torch.float64, device=model.device)
    sums = (_log_probs(model, logits) + scores).view(-1)
    best = sums.topk(min(count, len(sums)))
    ranked = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [_Candidate(score, *divmod(at, model.vocab)) for score, at in ranked if score > -inf], state


def _log_probs(model: StepModel, logits: Tensor) -> Tensor:
    """Return log-probabilities in float64, minus infinity for padding; uses up the logits."""
    if model.pad_token != model.eos_token:
        logits[:, model.pad_token] = -inf
    return logits.double().log_softmax(dim=1)


def _gap_after(ranked: Sequence[_Path] | Sequence[_Candidate], count: int) -> float:
    """Return the gap between the last of the first `count` scores and the next one; infinity without a next one."""
    return ranked[count - 1].score - ranked[count].score if len(ranked) > count else inf
