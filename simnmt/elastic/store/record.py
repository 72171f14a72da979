"""Where in a store's file a shard lies at one fidelity, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the index: (layer, slice, bits)."""

    layer: int
    slice: int
    bits: int
    offset: int
    """Bytes from the beginning of the file, a multiple of 64."""
    size: int
    """Bytes, a multiple of 64: what is read, header and all."""
    outliers: int
    crc32: int
    """Over all its bytes."""
    squared_error: float
    """Sum over its weights of (as read - as they were) ** 2."""
