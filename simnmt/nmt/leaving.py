"""Who is where once some slots have left: what leaving costs is copies of the rows that move."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
