"""Greedy and beam search over any step model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import State, StepModel

Mark = Callable[[], object]
"""Called when the encoder is done, then right before and right after each step of the model: a stopwatch's button."""

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    score: float | None
    """Sum of log-probabilities (natural), the end token's included, divided by how many they are to the power of the
    length penalty, which is 1 in greedy search; None where none was asked for."""


@torch.inference_mode()
def greedy(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    max_len: int = 200,
    forced_len: int | None = None,
    scored: bool = True,
    mark: Mark | None = None,
) -> list[Hypothesis]:
    """The likeliest token at each step, for every sentence of the batch; stops when all have ended or at `max_len` tokens.

    With `forced_len` every sentence gets just that many tokens, none of them the end token. Not `scored`, no softmax is taken:
    the likeliest token has the largest logit (FNI-06). Raises `NmtError` for lengths beyond the model's positions.
    """
    steps = _steps(model, src, max_len, forced_len)
    banned = _banned(model, forced_len, src.device)
    state = model.start(model.encode(src, src_lengths), 1)
    if mark is not None:
        mark()
    tokens = torch.full((src.shape[0],), model.start_token, device=src.device)
    open_ = torch.ones(src.shape[0], dtype=torch.bool, device=src.device)
    score, length = torch.zeros_like(tokens, dtype=torch.float32), torch.zeros_like(tokens)
    chosen = []
    for _ in range(steps):
        logits, state = _step(model, state, tokens, mark)
        logits.index_fill_(1, banned, _NEVER)
        best, tokens = logits.max(dim=1)
        chosen.append(tokens)
        if scored:
            score += torch.where(open_, best - logits.logsumexp(dim=1), 0.0)
        length += open_
        open_ &= tokens != model.eos_token
        # Asked for a forced length too, where it is known: else a GPU, which waits for this answer, would seem faster.
        if not bool(open_.any()) and forced_len is None:
            break
    rows = torch.stack(chosen, dim=1).tolist()
    scores = (score / length).tolist() if scored else [None] * len(rows)
    return [Hypothesis(_until(row, model.eos_token), value) for row, value in zip(rows, scores, strict=True)]


@torch.inference_mode()
def beam(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    beam: int,
    max_len: int = 200,
    forced_len: int | None = None,
    length_penalty: float = 1.0,
    mark: Mark | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each sentence that a beam of that width finds.

    A hypothesis that ends among the `beam` best candidates of its step is kept; a sentence is done when `beam` are kept
    and none still open scores better than the worst of them, at its present length. Raises `NmtError` as `greedy` does.
    """
    steps = _steps(model, src, max_len, forced_len)
    batch, device, vocab = src.shape[0], src.device, model.vocab
    banned = _banned(model, forced_len, src.device)
    state = model.start(model.encode(src, src_lengths), beam)
    if mark is not None:
        mark()
    first_row = torch.arange(0, batch * beam, beam, device=device)[:, None]
    tokens = torch.full((batch * beam,), model.start_token, device=device)
    scores = torch.full((batch, beam), _NEVER, device=device)
    scores[:, 0] = 0.0
    kept = _Kept(batch, beam, device)
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    paths: list[tuple[Tensor, Tensor]] = []
    wanted = min(2 * beam, beam * vocab)
    for step in range(steps):
        logits, state = _step(model, state, tokens, mark)
        logits.index_fill_(1, banned, _NEVER)
        total = scores.view(-1, 1) + logits.float().log_softmax(dim=1)
        candidates, flat = total.view(batch, beam * vocab).topk(wanted, dim=1)
        parents, words = flat.div(vocab, rounding_mode="floor"), flat.remainder(vocab)
        if forced_len is None:
            ending = words == model.eos_token
            ended = candidates.masked_fill(~ending | done[:, None], _NEVER)[:, :beam]
            kept.take(ended / (step + 1) ** length_penalty, parents, step)
            candidates = candidates.masked_fill(ending, _NEVER)
        scores, order = candidates.topk(beam, dim=1)
        parents, words = parents.gather(1, order), words.gather(1, order)
        paths.append((words, parents))
        tokens = words.view(-1)
        if step + 1 < steps:
            state = model.reorder(state, (first_row + parents).view(-1))
        if forced_len is None:
            done |= scores[:, 0] / (step + 1) ** length_penalty <= kept.worst
        if bool(done.all()):
            break
    ran = len(paths)
    # What is open at the end competes as it stands; its row is its own parent one step later.
    scores = scores.masked_fill(done[:, None], _NEVER)
    kept.take(scores / ran**length_penalty, torch.arange(beam, device=device).expand(batch, beam), ran)
    return kept.best(paths)


class _Kept:
    """The best ended hypotheses of each sentence, each as the row and step that its end grew from."""

    def __init__(self, batch: int, beam: int, device: torch.device) -> None:
        self.scores = torch.full((batch, beam), _NEVER, device=device)
        self.rows = torch.zeros((batch, beam), dtype=torch.int64, device=device)
        self.lengths = torch.zeros((batch, beam), dtype=torch.int64, device=device)

    @property
    def worst(self) -> Tensor:
        """Minus infinity until as many are kept as the beam is wide, [batch]."""
        return self.scores[:, -1]

    def take(self, scores: Tensor, rows: Tensor, length: int) -> None:
        """Offer candidates, at most beam a sentence, of so many tokens without their end."""
        lengths = torch.cat((self.lengths, torch.full_like(self.lengths[:, : scores.shape[1]], length)), dim=1)
        rows = torch.cat((self.rows, rows[:, : scores.shape[1]]), dim=1)
        self.scores, order = torch.cat((self.scores, scores), dim=1).topk(self.scores.shape[1], dim=1)
        self.rows, self.lengths = rows.gather(1, order), lengths.gather(1, order)

    def best(self, paths: Sequence[tuple[Tensor, Tensor]]) -> list[Hypothesis]:
        """Each sentence's first, walked back along the paths."""
        words = torch.stack([step for step, _ in paths]).tolist()
        parents = torch.stack([step for _, step in paths]).tolist()
        found = []
        firsts = zip(self.scores[:, 0].tolist(), self.rows[:, 0].tolist(), self.lengths[:, 0].tolist(), strict=True)
        for sentence, (score, row, length) in enumerate(firsts):
            tokens = []
            for step in range(length - 1, -1, -1):
                tokens.append(words[step][sentence][row])
                row = parents[step][sentence][row]
            found.append(Hypothesis(tuple(reversed(tokens)), score))
        return found


def pad(sources: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """Sources of different lengths as one batch: int64 [batch, longest] and their lengths [batch], on the CPU."""
    lengths = torch.tensor([len(source) for source in sources])
    batch = torch.full((len(sources), int(lengths.max())), pad_token)
    for row, source in zip(batch, sources, strict=True):
        row[: len(source)] = torch.tensor(source)
    return batch, lengths


def check_lengths(longest: int | None, src_len: int, steps: int) -> None:
    """Raise `NmtError` where a source or a target is longer than a model of `longest` positions takes."""
    if longest is not None and max(src_len, steps) > longest:
        side, length = ("source", src_len) if src_len > longest else ("target", steps)
        raise NmtError(f"a {side} of {length} tokens where the model has {longest} positions", remedy="shorten it")


def _step(model: StepModel, state: State, tokens: Tensor, mark: Mark | None) -> tuple[Tensor, State]:
    """The model alone between two marks: what it costs, apart from what the search does with its answer."""
    if mark is None:
        return model.step(state, tokens)
    mark()
    answer = model.step(state, tokens)
    mark()
    return answer


def _steps(model: StepModel, src: Tensor, max_len: int, forced_len: int | None) -> int:
    if forced_len is None and model.max_positions is not None:
        max_len = min(max_len, model.max_positions)
    steps = max_len if forced_len is None else forced_len
    if steps < 1:
        raise NmtError(f"a target of {steps} tokens where 1 is the least")
    check_lengths(model.max_positions, src.shape[1], steps)
    return steps


def _banned(model: StepModel, forced_len: int | None, device: torch.device) -> Tensor:
    """Tokens never chosen: padding, which is no output, and with a forced length the end."""
    banned = {model.pad_token} - {model.eos_token} | (set() if forced_len is None else {model.eos_token})
    return torch.tensor(sorted(banned), dtype=torch.int64, device=device)


def _until(tokens: list[int], eos: int) -> tuple[int, ...]:
    return tuple(tokens[: tokens.index(eos)] if eos in tokens else tokens)
