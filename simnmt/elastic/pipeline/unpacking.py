"""Shards of a layer unpacked into its working buffer (STI-06, STI-16)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simnmt.elastic.shard_layout import LayerBuffer
from simnmt.elastic.store.packed import Packed
from simnmt.kernels.unpack import at_once, unpack


def unpack_into(buffer: LayerBuffer, shards: Sequence[Packed], *, threads: int = 1, level: str | None = None) -> None:
    """Write the shard at each position of `shards` to its places in the buffer; whole shards are divided among `threads`.

    Raises `KernelError` for records whose fields do not fit each other, `ValueError` for more shards than the buffer has room.
    """
    if len(shards) > buffer.slices:
        raise ValueError(f"{len(shards)} shards for a buffer of {buffer.slices}")

    def work(first: int, step: int) -> None:
        for position in range(first, len(shards), step):
            packed = shards[position]
            unpack(
                packed.codes,
                packed.bits,
                packed.centroids,
                packed.outlier_at,
                packed.outlier_values,
                buffer.array,
                buffer.places(position),
                level=level,
            )

    parts = max(1, min(threads, len(shards)))
    at_once([partial(work, part, parts) for part in range(parts)])
