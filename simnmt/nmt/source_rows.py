"""What the decoder looks at of each active row's source, in a tensor with room for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from simnmt.nmt.leaving import Leaving


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

    def drop(self, leaving: Leaving) -> None:
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
