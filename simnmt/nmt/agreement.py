"""Whether two ways of decoding say the same, and where they do not, how close the call was (FNI-11).

Batched products round differently, so that two candidates whose scores nearly tie may change places. To tell such a case from
a fault the sentence is decoded once more, alone and by the plainest of searches, and the closest decision is looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import torch

from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.step_model import State, StepModel

NEAR_TIE = 1e-4
"""Scores closer than this may change their order with the rounding of batched products (FNI-11)."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A sentence that two ways of decoding translate differently."""

    sentence: int
    gap: float
    """See `closest_call`."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two translations of the same sentences, compared."""

    equal: int
    near_ties: tuple[Difference, ...]
    """Different, where a call was closer than the tolerance: allowed."""
    disagreements: tuple[Difference, ...]
    """Different without such an excuse."""


class Alone(NamedTuple):
    """A sentence decoded alone."""

    found: Hypothesis
    gap: float
    """See `closest_call`."""


def agreement(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    ones: Sequence[Hypothesis],
    others: Sequence[Hypothesis],
    *,
    beam: int = 1,
    max_len: int | Sequence[int] = 200,
    tolerance: float = NEAR_TIE,
) -> Agreement:
    """Compare two translations of `sources`, token by token; `max_len`: of all, or of each."""
    most = [max_len] * len(sources) if isinstance(max_len, int) else max_len
    different = [
        Difference(sentence, closest_call(model, sources[sentence], beam, most[sentence]))
        for sentence, (one, other) in enumerate(zip(ones, others, strict=True))
        if one.tokens != other.tokens
    ]
    near = tuple(each for each in different if each.gap < tolerance)
    return Agreement(len(sources) - len(different), near, tuple(each for each in different if not each.gap < tolerance))


def closest_call(model: StepModel, source: Sequence[int], beam: int = 1, max_len: int = 200) -> float:
    """The smallest gap between two scores whose order decided something, over all steps of the sentence alone.

    That is: who stays open, who is kept as ended, when to stop, who is best at last. In natural log-probability, divided by the
    length where hypotheses that have ended are compared; infinity where there was no choice.
    """
    return decode_alone(model, source, beam, max_len).gap


class _Path(NamedTuple):
    score: float
    tokens: tuple[int, ...]


class _Candidate(NamedTuple):
    score: float
    row: int
    word: int


@torch.inference_mode()
def decode_alone(model: StepModel, source: Sequence[int], beam: int = 1, max_len: int = 200) -> Alone:
    """What `SlotDecoder` should find, by a search written out for one sentence in plain lists: slow, and independent of it."""
    src = torch.tensor([list(source)], device=model.device)
    state = model.start(model.encode(src, torch.tensor([len(source)], device=model.device)), beam)
    steps = max_len if model.max_positions is None else min(max_len, model.max_positions)
    return _greedily(model, state, steps) if beam == 1 else _with_beam(model, state, steps, beam)


def _greedily(model: StepModel, state: State, steps: int) -> Alone:
    path, gap = _Path(0.0, ()), inf
    word = model.start_token
    for length in range(1, steps + 1):
        (best, *others), state = _ranked(model, state, [path], [word], 2)
        gap = min([gap, *(best.score - other.score for other in others)])
        word = best.word
        if word == model.eos_token:
            return Alone(Hypothesis(path.tokens, best.score / length), gap)
        path = _Path(best.score, (*path.tokens, word))
    return Alone(Hypothesis(path.tokens, path.score / steps), gap)


def _with_beam(model: StepModel, state: State, steps: int, beam: int) -> Alone:
    going = [_Path(0.0, ())] + [_Path(-inf, ())] * (beam - 1)
    fed = [model.start_token] * beam
    kept: list[_Path] = []
    gaps: list[float] = []
    for length in range(1, steps + 1):
        ranked, state = _ranked(model, state, going, fed, 2 * beam + 1)
        ending = [(rank, each) for rank, each in enumerate(ranked) if each.word == model.eos_token]
        for rank, each in ending:
            # The one across the edge of the beam.
            rival = ranked[beam:][:1] if rank < beam else ranked[beam - 1 : beam]
            gaps += [abs(each.score - other.score) for other in rival]
        kept += [_Path(each.score / length, going[each.row].tokens) for rank, each in ending if rank < beam]
        kept.sort(key=lambda path: -path.score)
        gaps.append(_behind(kept, beam))
        del kept[beam:]
        staying = [each for each in ranked if each.word != model.eos_token]
        gaps.append(_behind(staying, beam))
        staying = (staying + [_Candidate(-inf, 0, model.start_token)] * beam)[:beam]
        going = [_Path(each.score, (*going[each.row].tokens, each.word)) for each in staying]
        if len(kept) == beam:
            gaps.append(abs(going[0].score / length - kept[-1].score))
            if going[0].score / length <= kept[-1].score:
                break
        fed = [each.word for each in staying]
        state = model.reorder(state, torch.tensor([each.row for each in staying], device=model.device))
    else:
        kept += [_Path(path.score / steps, path.tokens) for path in going]
        kept.sort(key=lambda path: -path.score)
    return Alone(Hypothesis(kept[0].tokens, kept[0].score), min([*gaps, _behind(kept, 1)]))


def _ranked(
    model: StepModel, state: State, going: Sequence[_Path], fed: Sequence[int], count: int
) -> tuple[list[_Candidate], State]:
    """The best ways to go on, the best first."""
    logits, state = model.step(state, torch.tensor(fed, device=model.device))
    if model.pad_token != model.eos_token:
        logits[:, model.pad_token] = -inf
    scores = torch.tensor([[path.score] for path in going], dtype=torch.float64, device=model.device)
    sums = (logits.double().log_softmax(dim=1) + scores).view(-1)
    best = sums.topk(min(count, len(sums)))
    found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return [_Candidate(score, *divmod(at, model.vocab)) for score, at in found if score > -inf], state


def _behind(ranked: Sequence[_Path] | Sequence[_Candidate], count: int) -> float:
    """The gap behind the first so many."""
    return ranked[count - 1].score - ranked[count].score if len(ranked) > count else inf
