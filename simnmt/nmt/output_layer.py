"""What a search asks of the output layer, and the plain one: logits first, then softmax, then search (FNI-01)."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from simnmt.nmt.banned import Banned
from simnmt.nmt.selection import largest, largest_sums, log_softmax_
from simnmt.nmt.step_model import StepModel

Projected = Any
"""What the model's part of the output layer leaves for the search; known to the layer that made it alone, which uses it up."""


class OutputLayer(Protocol):
    """From what the decoder's body leaves to the best tokens; banned ones are never among them."""

    def project(self, hidden: Tensor, best: int) -> Projected:
        """The model's part, of [rows, width].

        `best`: the tokens of each row that will be asked for, their log-probabilities too; 0: the likeliest alone, without.
        """

    def likeliest(self, projected: Projected) -> Tensor:
        """The token of each row with the largest logit, the first where several have it: int64 [rows] (FNI-06)."""

    def likeliest_scored(self, projected: Projected) -> tuple[Tensor, Tensor]:
        """As `likeliest`, with their log-probabilities, float32 [rows]."""

    def largest_sums(self, projected: Projected, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of each sentence's rows, the best sums of the row's score and a token's log-probability, in descending order.

        `scores`: [sentences, beam]. Returns sums, their rows within the sentence and their tokens, each [sentences, count].
        Where less than `count` tokens of each row were asked for, the sums are the best of these.
        """


class PlainOutput:
    """See `OutputLayer`: torch's own operations over all logits, one after the other; what is fused is measured against it."""

    def __init__(self, model: StepModel, banned: Banned) -> None:
        self._model, self._banned = model, banned

    def project(self, hidden: Tensor, best: int) -> Tensor:
        """See `OutputLayer`."""
        return self._model.project(hidden)

    def likeliest(self, projected: Tensor) -> Tensor:
        """See `OutputLayer`."""
        self._banned.ban(projected)
        return largest(projected)

    def likeliest_scored(self, projected: Tensor) -> tuple[Tensor, Tensor]:
        """See `OutputLayer`."""
        tokens = self.likeliest(projected)
        return tokens, log_softmax_(projected).gather(1, tokens[:, None])[:, 0]

    def largest_sums(self, projected: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `OutputLayer`."""
        self._banned.ban(projected)
        return largest_sums(log_softmax_(projected), scores, count)
