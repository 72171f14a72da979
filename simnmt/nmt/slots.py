"""Rows that are decoded together and change one by one: what top-up batching needs of a model (FNI-08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor


class Slots(Protocol):
    """Sentences in the decoder of one model, each as a block of `beam` rows side by side; slot i is block i.

    All joins and leaves of one object name the same beam. Joining and leaving copy what belongs to the rows concerned, and a
    sentence's outputs do not depend on who else is there. Each method is run in torch's inference mode.
    """

    def join(self, memory: Any, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """Append a slot for each of these sentences of what `encode` left, in this order, before its first step.

        `src_lens`: tokens of each of their sources, which the device need then not be asked for. The memory stays as it is,
        for others of its sentences.
        """

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """Remove these slots by moving the last ones into the holes; returns `order`: slot i was slot `order[i]`."""

    def body(self, tokens: Tensor) -> Tensor:
        """Feed each active row its last token, int64 [rows]; returns what the model's output layer projects, [rows, width].

        Raises `NmtError` where a row has been fed as many tokens as the model has positions.
        """

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was, int64 [rows]; both of the same sentence, as in a beam."""
