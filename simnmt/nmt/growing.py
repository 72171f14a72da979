"""Preallocated tensors for rows that come and go."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def with_room(kept: Tensor, sizes: Mapping[int, int], used: tuple[slice, ...]) -> Tensor:
    """The tensor itself where it is as large along these dimensions; else its used part at the beginning of a larger one.

    A dimension that is too short is at least doubled, so that growing step by step copies little; what is not used is 0.
    """
    if all(kept.shape[dim] >= size for dim, size in sizes.items()):
        return kept
    shape = list(kept.shape)
    for dim, size in sizes.items():
        if shape[dim] < size:
            shape[dim] = max(size, 2 * shape[dim])
    grown = kept.new_zeros(shape)
    part = kept[used]
    grown[tuple(slice(size) for size in part.shape)] = part
    return grown


def move_rows(kept: Tensor, dim: int, sources: Tensor, holes: Tensor) -> None:
    """Copy these rows of a dimension over those; no row is both."""
    kept.index_copy_(dim, holes, kept.index_select(dim, sources))
