"""Greedy search and beam search over the slots of a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from simnmt.nmt.output_layer import NEVER, BannedTokens, Limit, Output, Projected
from simnmt.nmt.sentence_decoder import Hypothesis
from simnmt.nmt.step_model import StepModel


@dataclass(frozen=True, slots=True)
class Search:
    """How the tokens of a translation are chosen."""

    beam: int = 1
    """Hypotheses per sentence; 1 is greedy search."""
    scored: bool = False
    """Whether a greedy search computes scores, which take a softmax (FNI-06); a beam always does."""
    length_penalty: float = 1.0
    """The power of the number of tokens by which a score is divided."""


@dataclass(slots=True)
class _Sentence:
    limit: Limit
    path: list[Any] = field(default_factory=list)
    """What each step chose: a token in greedy search; in a beam its tokens, then the rows that they continue."""
    score: float = 0.0


class SlotSearch(ABC):
    """A search that chooses the tokens of all slots of a decoder; slot i is rows i x beam to (i + 1) x beam."""

    def __init__(self, model: StepModel, search: Search, output: Output) -> None:
        self.beam, self._scored, self._length_penalty = search.beam, search.scored, search.length_penalty
        self._start, self._eos, self._device = model.start_token, model.eos_token, model.device
        self._banned = BannedTokens(model)
        self._output = output.layer(model, self._banned)
        self._sentences: list[_Sentence] = []
        self.tokens = self._filled(0, 0).view(-1)
        """The tokens that the next step is fed, int64 [rows]."""

    @property
    def parents(self) -> Tensor | None:
        """The row that each row continues, int64 [rows]; None if each row continues itself."""
        return None

    def join(self, keys: Sequence[int], limits: Sequence[Limit]) -> None:
        self._output.join(keys, [limit.source for limit in limits])
        self._sentences += [_Sentence(limit) for limit in limits]
        self.tokens = torch.cat((self.tokens, self._filled(len(limits), self._start).view(-1)))
        self._update_banned()

    @abstractmethod
    def project(self, hidden: Tensor) -> Projected:
        """Compute the model's part of the output layer, from the body's output [rows, width]."""

    @abstractmethod
    def choose(self, projected: Projected) -> list[tuple[int, Hypothesis]]:
        """Choose the tokens of a step, using up its projection; return the finished slots, ascending, with their result."""

    def leave(self, order: Sequence[int]) -> None:
        """Keep the slots `order`: new slot i is old slot `order[i]`."""
        self._output.leave(order)
        self._sentences = [self._sentences[slot] for slot in order]
        self.tokens = self.tokens.view(-1, self.beam)[self._slots(order)].view(-1)
        self._update_banned()

    def _slots(self, order: Sequence[int]) -> Tensor:
        return torch.tensor(order, dtype=torch.int64, device=self._device)

    def _update_banned(self) -> None:
        self._banned.update([sentence.limit for sentence in self._sentences], self.beam)

    def _filled(self, slots: int, value: int) -> Tensor:
        return torch.full((slots, self.beam), value, dtype=torch.int64, device=self._device)


class GreedySearch(SlotSearch):
    """Choose the likeliest token at each step.

    Without `scored` no softmax is computed: the likeliest token has the largest logit (FNI-06).
    """

    def project(self, hidden: Tensor) -> Projected:
        return self._output.project(hidden, int(self._scored))

    def choose(self, projected: Projected) -> list[tuple[int, Hypothesis]]:
        self.tokens, log_probs = self._output.likeliest(projected, self._scored)
        rows: Iterable[tuple[float, float]]
        if log_probs is None:
            rows = zip(self.tokens.tolist(), repeat(0.0), strict=False)
        else:
            # One transfer: a token is exact in float64.
            rows = torch.stack((self.tokens.double(), log_probs.double()), dim=1).tolist()
        done = []
        for slot, ((word, log_prob), sentence) in enumerate(zip(rows, self._sentences, strict=True)):
            sentence.score += log_prob
            if word != self._eos:
                sentence.path.append(int(word))
                if len(sentence.path) < sentence.limit.steps:
                    continue
            steps = len(sentence.path) + (word == self._eos)
            score = sentence.score / steps**self._length_penalty if self._scored else None
            done.append((slot, Hypothesis(tuple(sentence.path), score, steps)))
        return done


class _BeamRows(NamedTuple):
    """The state of a beam's rows, a row per slot."""

    scores: Tensor
    """Sums of log-probabilities of the open hypotheses, [slots, beam]."""
    parents: Tensor
    """The row within the slot that each row continues, int64 [slots, beam]."""
    kept_scores: Tensor
    """Scores of the ended hypotheses, [slots, beam], descending; minus infinity until `beam` of them have ended."""
    kept_ends: Tensor
    """Where each ended: its length x beam + the row that its end continues, int64 [slots, beam]."""
    steps: Tensor
    """Steps taken by each sentence, float32 [slots, 1]."""


class BeamSearch(SlotSearch):
    """Keep the `beam` best hypotheses of each sentence.

    A hypothesis that ends among the `beam` best candidates of its step is kept. A sentence is done when `beam` are kept and
    no open one scores better than the worst of them, at its present length; or at its limit, where the open hypotheses
    compete at their present length. `kernels.beam_search` says the same in numpy for one sentence.
    """

    def __init__(self, model: StepModel, search: Search, output: Output) -> None:
        super().__init__(model, search, output)
        self._candidates = min(2 * self.beam, self.beam * model.vocab)
        self._row_numbers = torch.arange(self.beam, device=self._device)
        self._rows = self._new_rows(0)

    @property
    def parents(self) -> Tensor:
        firsts = torch.arange(0, self._rows.parents.numel(), self.beam, device=self._device)
        return (self._rows.parents + firsts[:, None]).view(-1)

    def join(self, keys: Sequence[int], limits: Sequence[Limit]) -> None:
        super().join(keys, limits)
        new = self._new_rows(len(limits))
        new.scores[:, 0] = 0.0
        self._rows = _BeamRows(*map(torch.cat, zip(self._rows, new, strict=True)))

    def project(self, hidden: Tensor) -> Projected:
        # Of one row at most `beam` candidates stay open and one ends: the best beam + 1 hold all that can be chosen.
        return self._output.project(hidden, self.beam + (not self._banned.all_forced))

    def choose(self, projected: Projected) -> list[tuple[int, Hypothesis]]:
        before = self._rows
        candidates, parents, words = self._output.largest_sums(projected, before.scores, self._candidates)
        kept, length = (before.kept_scores, before.kept_ends), before.steps + 1.0
        penalty = length if self._length_penalty == 1.0 else (length.double() ** self._length_penalty).float()
        if not self._banned.all_forced:
            ending = words == self._eos
            ended = candidates.masked_fill(~ending, NEVER)[:, : self.beam]
            kept = _best_kept(*kept, ended / penalty, before.steps * self.beam + parents[:, : self.beam])
            candidates = candidates.masked_fill_(ending, NEVER)
        scores, order = candidates.topk(self.beam, dim=1)
        words, parents = words.gather(1, order), parents.gather(1, order)
        done = scores[:, :1] / penalty <= kept[0][:, -1:]
        at_limit = [len(sentence.path) + 1 == sentence.limit.steps for sentence in self._sentences]
        if any(at_limit):
            closed = done | ~torch.tensor(at_limit, device=self._device)[:, None]
            # An open hypothesis is its own parent one step later.
            kept = _best_kept(*kept, scores.masked_fill(closed, NEVER) / penalty, length * self.beam + self._row_numbers)
        self.tokens, self._rows = words.view(-1), _BeamRows(scores, parents, *kept, length)
        # One transfer: float64 holds each of these exactly.
        parts = (words, parents, kept[0][:, :1], kept[1][:, :1], done)
        rows_of = torch.cat([part.double() for part in parts], dim=1).tolist()
        finished = []
        for slot, (row, sentence, last) in enumerate(zip(rows_of, self._sentences, at_limit, strict=True)):
            sentence.path.append(row)
            if last or row[-1]:
                finished.append((slot, self._hypothesis(sentence)))
        return finished

    def leave(self, order: Sequence[int]) -> None:
        super().leave(order)
        slots = self._slots(order)
        self._rows = _BeamRows(*(part[slots] for part in self._rows))

    def _hypothesis(self, sentence: _Sentence) -> Hypothesis:
        *_, score, end, _ = sentence.path[-1]
        length, row = divmod(int(end), self.beam)
        tokens = []
        for step in reversed(sentence.path[:length]):
            tokens.append(int(step[row]))
            row = int(step[self.beam + row])
        return Hypothesis(tuple(reversed(tokens)), score, len(sentence.path))

    def _new_rows(self, slots: int) -> _BeamRows:
        never, zero = torch.full((slots, self.beam), NEVER, device=self._device), self._filled(slots, 0)
        own_rows = self._row_numbers.expand(slots, self.beam)
        return _BeamRows(never.clone(), own_rows, never, zero, torch.zeros((slots, 1), device=self._device))


def _best_kept(kept_scores: Tensor, kept_ends: Tensor, scores: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best ended hypotheses, as many as before, of those kept and new ones; see `_BeamRows`."""
    best, order = torch.cat((kept_scores, scores), dim=1).topk(kept_scores.shape[1], dim=1)
    return best, torch.cat((kept_ends, ends.long()), dim=1).gather(1, order)
