"""The likeliest token at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from simnmt.nmt.banned import Banned
from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.output_layer import Projected
from simnmt.nmt.slot_search import Limit
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.output_choice import output_layer
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary


@dataclass(slots=True)
class _Sentence:
    limit: Limit
    path: list[int] = field(default_factory=list)
    score: float = 0.0


class GreedySearch:
    """See `SlotSearch`. Not `scored`, no softmax is taken: the likeliest token has the largest logit (FNI-06)."""

    beam = 1
    parents = None

    def __init__(
        self,
        model: StepModel,
        *,
        scored: bool = False,
        fused: bool = False,
        vocabulary: RestrictedVocabulary | None = None,
    ) -> None:
        self._start, self._eos, self._device = model.start_token, model.eos_token, model.device
        self._scored = scored
        self._banned = Banned.of(model)
        self._output, self._subset = output_layer(model, self._banned, fused, vocabulary)
        self._sentences: list[_Sentence] = []
        self.tokens = torch.empty(0, dtype=torch.int64, device=self._device)

    def join(self, limits: Sequence[Limit]) -> None:
        """See `SlotSearch`."""
        if self._subset is not None:
            self._subset.join([limit.source for limit in limits], 1)
        self._sentences += [_Sentence(limit) for limit in limits]
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
            done.append((slot, self._found(sentence, word == self._eos)))
        return done

    def leave(self, order: Sequence[int]) -> None:
        """See `SlotSearch`."""
        if self._subset is not None:
            self._subset.leave(order)
        self._sentences = [self._sentences[slot] for slot in order]
        self.tokens = self.tokens.index_select(0, torch.tensor(order, dtype=torch.int64, device=self._device))
        self._banned.see([sentence.limit for sentence in self._sentences], 1)

    def _found(self, sentence: _Sentence, ended: bool) -> Hypothesis:
        score = sentence.score / (len(sentence.path) + ended) if self._scored else None
        return Hypothesis(tuple(sentence.path), score, len(sentence.path) + ended)
