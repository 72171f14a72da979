"""Greedy search and beam search over the slots of a decoder; see `SlotSearch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simnmt.nmt.output_layer import Projected, make_output_layer
from simnmt.nmt.step_model import BannedTokens, Hypothesis, Limit, StepModel
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary


@dataclass(slots=True)
class _GreedySentence:
    limit: Limit
    path: list[int] = field(default_factory=list)
    score: float = 0.0


class _Search:
    """What both searches share: the output layer, the banned tokens, and the columns that the sentences' sources ask for."""

    def __init__(self, model: StepModel, beam: int, fused: bool, vocabulary: RestrictedVocabulary | None) -> None:
        self.beam = beam
        self._start, self._eos, self._device = model.start_token, model.eos_token, model.device
        self._banned = BannedTokens.of(model)
        self._output, self._subset = make_output_layer(model, self._banned, fused, vocabulary)

    def _join_subset(self, limits: Sequence[Limit]) -> None:
        if self._subset is not None:
            self._subset.join([limit.source for limit in limits], self.beam)

    def _leave_subset(self, order: Sequence[int]) -> Tensor:
        if self._subset is not None:
            self._subset.leave(order)
        return torch.tensor(order, dtype=torch.int64, device=self._device)


class GreedySearch(_Search):
    """See `SlotSearch`. Not `scored`, no softmax is taken: the likeliest token has the largest logit (FNI-06)."""

    parents = None

    def __init__(
        self,
        model: StepModel,
        *,
        scored: bool = False,
        fused: bool = False,
        vocabulary: RestrictedVocabulary | None = None,
    ) -> None:
        super().__init__(model, 1, fused, vocabulary)
        self._scored = scored
        self._sentences: list[_GreedySentence] = []
        self.tokens = torch.empty(0, dtype=torch.int64, device=self._device)

    def join(self, limits: Sequence[Limit]) -> None:
        """See `SlotSearch`."""
        self._join_subset(limits)
        self._sentences += [_GreedySentence(limit) for limit in limits]
        self.tokens = torch.cat((self.tokens, self.tokens.new_full((len(limits),), self._start)))
        self._banned.see([sentence.limit for sentence in self._sentences], 1)

    def project(self, hidden: Tensor) -> Projected:
        """See `SlotSearch`."""
        return self._output.project(hidden, int(self._scored))

    def choose(self, projected: Projected) -> list[tuple[int, Hypothesis]]:
        """See `SlotSearch`."""
        words: Sequence[int]
        if self._scored:
            self.tokens, log_probs = self._output.likeliest_scored(projected)
            # One transfer: a token is exact in float64.
            pairs = torch.stack((self.tokens.double(), log_probs.double()), dim=1).tolist()
            for sentence, (_, log_prob) in zip(self._sentences, pairs, strict=True):
                sentence.score += log_prob
            words = [int(word) for word, _ in pairs]
        else:
            self.tokens = self._output.likeliest(projected)
            words = self.tokens.tolist()
        done = []
        for slot, (word, sentence) in enumerate(zip(words, self._sentences, strict=True)):
            if word != self._eos:
                sentence.path.append(word)
                if len(sentence.path) < sentence.limit.steps:
                    continue
            done.append((slot, self._hypothesis(sentence, word == self._eos)))
        return done

    def leave(self, order: Sequence[int]) -> None:
        """See `SlotSearch`."""
        self.tokens = self.tokens.index_select(0, self._leave_subset(order))
        self._sentences = [self._sentences[slot] for slot in order]
        self._banned.see([sentence.limit for sentence in self._sentences], 1)

    def _hypothesis(self, sentence: _GreedySentence, ended: bool) -> Hypothesis:
        score = sentence.score / (len(sentence.path) + ended) if self._scored else None
        return Hypothesis(tuple(sentence.path), score, len(sentence.path) + ended)


_NEVER = float("-inf")


@dataclass(slots=True)
class _BeamSentence:
    limit: Limit
    path: list[list[float]] = field(default_factory=list)
    """Of each step the words of the beam, then the rows that they grew from."""


class BeamSearch(_Search):
    """See `SlotSearch`.

    A hypothesis that ends among the `beam` best candidates of its step is kept. A sentence is done when `beam` are kept and
    none still open scores better than the worst of them, at its present length; or at its limit, where what is open
    competes as it stands.
    """

    def __init__(
        self,
        model: StepModel,
        beam: int,
        *,
        length_penalty: float = 1.0,
        fused: bool = False,
        vocabulary: RestrictedVocabulary | None = None,
    ) -> None:
        super().__init__(model, beam, fused, vocabulary)
        self._length_penalty = length_penalty
        self._candidates = min(2 * beam, beam * model.vocab)
        self._sentences: list[_BeamSentence] = []
        self._words, self._parents = self._whole(0, 0), self._whole(0, 0)
        self._scores, self._kept_scores = self._never(0), self._never(0)
        """[slots, beam]; the kept ones in descending order, minus infinity until as many are kept as the beam is wide."""
        self._kept_ends = self._whole(0, 0)
        """Where each kept one ended: its length x beam + the row that its end grew from."""
        self._steps = torch.zeros((0, 1), device=self._device)
        """Taken by each sentence."""
        self._rows = torch.arange(beam, device=self._device)

    @property
    def tokens(self) -> Tensor:
        """See `SlotSearch`."""
        return self._words.view(-1)

    @property
    def parents(self) -> Tensor:
        """See `SlotSearch`."""
        firsts = torch.arange(0, self._parents.numel(), self.beam, device=self._device)
        return (self._parents + firsts[:, None]).view(-1)

    def join(self, limits: Sequence[Limit]) -> None:
        """See `SlotSearch`."""
        self._join_subset(limits)
        count = len(limits)
        self._sentences += [_BeamSentence(limit) for limit in limits]
        scores = self._never(count)
        scores[:, 0] = 0.0
        self._words = torch.cat((self._words, self._whole(count, self._start)))
        self._parents = torch.cat((self._parents, self._rows.expand(count, self.beam)))
        self._scores = torch.cat((self._scores, scores))
        self._kept_scores = torch.cat((self._kept_scores, self._never(count)))
        self._kept_ends = torch.cat((self._kept_ends, self._whole(count, 0)))
        self._steps = torch.cat((self._steps, self._steps.new_zeros((count, 1))))
        self._see()

    def project(self, hidden: Tensor) -> Projected:
        """See `SlotSearch`.

        Of a row, beam candidates stay open at most, and one more may end: the best beam + 1 hold all that can be chosen.
        """
        return self._output.project(hidden, self.beam + (not self._banned.all_forced))

    def choose(self, projected: Projected) -> list[tuple[int, Hypothesis]]:
        """See `SlotSearch`."""
        candidates, parents, words = self._output.largest_sums(projected, self._scores, self._candidates)
        length = self._steps + 1.0
        penalty = length if self._length_penalty == 1.0 else (length.double() ** self._length_penalty).float()
        if not self._banned.all_forced:
            ending = words == self._eos
            ended = candidates.masked_fill(~ending, _NEVER)[:, : self.beam]
            self._keep(ended / penalty, parents[:, : self.beam], self._steps)
            candidates = candidates.masked_fill_(ending, _NEVER)
        self._scores, order = candidates.topk(self.beam, dim=1)
        self._words, self._parents = words.gather(1, order), parents.gather(1, order)
        self._steps = length
        done = self._scores[:, :1] / penalty <= self._kept_scores[:, -1:]
        at_limit = [len(sentence.path) + 1 == sentence.limit.steps for sentence in self._sentences]
        if any(at_limit):
            closed = done | ~torch.tensor(at_limit, device=self._device)[:, None]
            # What is open then is its own parent one step later.
            rows = self._rows.expand_as(self._scores)
            self._keep(self._scores.masked_fill(closed, _NEVER) / penalty, rows, length)
        # One transfer: float64 holds each of these exactly.
        parts = (self._words, self._parents, self._kept_scores[:, :1], self._kept_ends[:, :1], done)
        rows_of = torch.cat([part.double() for part in parts], dim=1).tolist()
        finished = []
        for slot, (row, sentence, last) in enumerate(zip(rows_of, self._sentences, at_limit, strict=True)):
            sentence.path.append(row)
            if last or row[-1]:
                finished.append((slot, self._hypothesis(sentence)))
        return finished

    def leave(self, order: Sequence[int]) -> None:
        """See `SlotSearch`."""
        slots = self._leave_subset(order)
        self._sentences = [self._sentences[slot] for slot in order]
        self._words, self._parents = self._words[slots], self._parents[slots]
        self._scores, self._steps = self._scores[slots], self._steps[slots]
        self._kept_scores, self._kept_ends = self._kept_scores[slots], self._kept_ends[slots]
        self._see()

    def _keep(self, scores: Tensor, rows: Tensor, lengths: Tensor) -> None:
        """Offer candidates, at most beam a sentence, of so many tokens without their end."""
        ends = torch.cat((self._kept_ends, (lengths * self.beam + rows).long()), dim=1)
        self._kept_scores, order = torch.cat((self._kept_scores, scores), dim=1).topk(self.beam, dim=1)
        self._kept_ends = ends.gather(1, order)

    def _hypothesis(self, sentence: _BeamSentence) -> Hypothesis:
        """Return the best kept hypothesis, traced back along the path."""
        *_, score, end, _ = sentence.path[-1]
        length, row = divmod(int(end), self.beam)
        tokens = []
        for step in reversed(sentence.path[:length]):
            tokens.append(int(step[row]))
            row = int(step[self.beam + row])
        return Hypothesis(tuple(reversed(tokens)), score, len(sentence.path))

    def _see(self) -> None:
        self._banned.see([sentence.limit for sentence in self._sentences], self.beam)

    def _whole(self, slots: int, value: int) -> Tensor:
        return torch.full((slots, self.beam), value, dtype=torch.int64, device=self._device)

    def _never(self, slots: int) -> Tensor:
        return torch.full((slots, self.beam), _NEVER, device=self._device)


def make_search(
    model: StepModel,
    beam: int,
    *,
    scored: bool = False,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
) -> GreedySearch | BeamSearch:
    """The usual search of that width; `scored`: a greedy one gives scores, as a beam does."""
    if beam == 1:
        return GreedySearch(model, scored=scored, fused=fused, vocabulary=vocabulary)
    return BeamSearch(model, beam, fused=fused, vocabulary=vocabulary)
