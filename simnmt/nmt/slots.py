"""Rows that are decoded together and change one by one: what top-up batching needs of a model (FNI-08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Slots(Protocol):
    """Sentences in the decoder of one model, each as a block of `beam` rows side by side; slot i is block i.

    All joins and leaves of one object name the same beam. Joining and leaving copy what belongs to the rows concerned, and a
    sentence's logits do not depend on who else is there. Each method is run in torch's inference mode.
    """

    @property
    def rows(self) -> int:
        """Active rows: slots x beam."""

    def join(self, memory: Any, sentences: Sequence[int], beam: int) -> None:
        """Append a slot for each of these sentences of what `encode` left, in this order, before its first step.

        The memory stays as it is, for others of its sentences.
        """

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """Remove these slots by moving the last ones into the holes; returns `order`: slot i was slot `order[i]`."""

    def step(self, tokens: Tensor) -> Tensor:
        """Feed each active row its last token, int64 [rows]; returns logits [rows, vocab], the caller's to change.

        Raises `NmtError` where a row has been fed as many tokens as the model has positions.
        """

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was, int64 [rows]; both of the same sentence, as in a beam."""


class Leaving:
    """Who is where once some slots have left and the last ones fill their holes."""

    def __init__(self, rows: int, slots: Sequence[int], beam: int, device: torch.device) -> None:
        """Of so many active rows."""
        gone, before = set(slots), rows // beam
        after = before - len(gone)
        self.order = list(range(after))
        """Slot i was slot `order[i]`."""
        holes = sorted(slot for slot in gone if slot < after)
        movers = [slot for slot in range(after, before) if slot not in gone]
        for hole, mover in zip(holes, movers, strict=True):
            self.order[hole] = mover
        self.rows = _blocks(self.order, beam)
        """Row i was row `rows[i]`."""
        self.holes = torch.tensor(_blocks(holes, beam), dtype=torch.int64, device=device)
        """Rows that others move to."""
        self.movers = torch.tensor(_blocks(movers, beam), dtype=torch.int64, device=device)
        """Rows that move, one to each hole."""

    def move(self, kept: Tensor, dim: int) -> None:
        """Copy the rows that move, along a dimension, to their new places."""
        if len(self.holes):
            kept.index_copy_(dim, self.holes, kept.index_select(dim, self.movers))


def _blocks(slots: Sequence[int], beam: int) -> list[int]:
    """The rows of these slots, in this order."""
    return [slot * beam + row for slot in slots for row in range(beam)]
