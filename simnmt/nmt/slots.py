"""Slots: decoder rows of sentences that join and leave one by one, as top-up batching needs them (FNI-08).

`Slots` is the interface that each model implements; the rest keeps its rows compact and lets its tensors grow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
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


class SlotCompaction:
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
        self.rows = _rows_of_slots(self.order, beam)
        """Row i was row `rows[i]`."""
        self.holes = torch.tensor(_rows_of_slots(holes, beam), dtype=torch.int64, device=device)
        """Rows that others move to."""
        self.movers = torch.tensor(_rows_of_slots(movers, beam), dtype=torch.int64, device=device)
        """Rows that move, one to each hole."""

    def move(self, kept: Tensor, dim: int) -> None:
        """Copy the rows that move, along a dimension, to their new places."""
        if len(self.holes):
            kept.index_copy_(dim, self.holes, kept.index_select(dim, self.movers))


def _rows_of_slots(slots: Sequence[int], beam: int) -> list[int]:
    """The rows of these slots, in this order."""
    return [slot * beam + row for slot in slots for row in range(beam)]


def with_room(
    kept: Tensor, sizes: Mapping[int, int], used: tuple[slice, ...], most: Mapping[int, int | None] | None = None
) -> Tensor:
    """The tensor itself where it is as large along these dimensions; else its used part at the beginning of a larger one.

    A dimension that is too short is doubled, so that growing step by step copies little, but not beyond its `most` unless its
    size is; what is not used is 0.
    """
    if all(kept.shape[dim] >= size for dim, size in sizes.items()):
        return kept
    shape = list(kept.shape)
    for dim, size in sizes.items():
        if shape[dim] < size:
            doubled, bound = 2 * shape[dim], None if most is None else most.get(dim)
            shape[dim] = max(size, doubled if bound is None else min(doubled, bound))
    grown = kept.new_zeros(shape)
    part = kept[used]
    grown[tuple(slice(size) for size in part.shape)] = part
    return grown


class SourceRows:
    """Keys and values of each active row's source, with room for more rows and longer sources."""

    def __init__(self, kept: Tensor, row_dim: int, most_rows: int | None = None) -> None:
        """Begin with the room of `kept`: rows along `row_dim`, source tokens along the last but one dimension.

        `most_rows`: as in `StepModel.slots`.
        """
        self._kept, self._row_dim, self._length_dim = kept, row_dim, kept.dim() - 2
        self._most = {row_dim: most_rows}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, joining: Tensor, lengths: Sequence[int]) -> None:
        """Add rows of `joining`, as wide as the longest of them is long; numbers behind a source's end change nothing."""
        rows, longest = len(self) + len(lengths), max(lengths)
        self._kept = with_room(self._kept, {self._row_dim: rows, self._length_dim: longest}, self._used(), self._most)
        new = self._kept.narrow(self._row_dim, len(self), len(lengths))
        new[..., :longest, :] = joining
        # What no row looks at must be a number all the same: not-a-number times a weight of 0 is none.
        new[..., longest:, :] = 0
        self._lengths += lengths

    def drop(self, leaving: SlotCompaction) -> None:
        """Go on with the rows that stay."""
        leaving.move(self.seen(), self._row_dim)
        self._lengths = [self._lengths[row] for row in leaving.rows]

    def seen(self) -> Tensor:
        """The active rows, as far as the longest of their sources goes: a view."""
        return self._kept[self._used()]

    def within(self) -> Tensor | None:
        """True up to each source's end, [rows, src_len]; None where all are equally long."""
        longest = max(self._lengths)
        if min(self._lengths) == longest:
            return None
        device = self._kept.device
        return torch.arange(longest, device=device) < torch.tensor(self._lengths, device=device)[:, None]

    def _used(self) -> tuple[slice, ...]:
        used = [slice(None)] * self._kept.dim()
        used[self._row_dim], used[self._length_dim] = slice(len(self)), slice(max(self._lengths, default=0))
        return tuple(used)
