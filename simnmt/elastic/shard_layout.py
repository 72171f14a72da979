"""How a shard's weights lie in memory, and how the shards of a layer lie beside each other in the working buffer (STI-01)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.elastic.errors import StoreError

if TYPE_CHECKING:
    from simnmt.costs.shard_geometry import ShardGeometry
    from simnmt.elastic.encoder_weights import LayerWeights

SEGMENTS = ("q", "k", "v", "o", "ffn_in", "ffn_out")
"""The parts of a shard, in this order, each of rows of width d: those of Wq, Wk and Wv of its head, Wo's columns transposed,
its neurons' rows of the first feed-forward matrix, and their columns of the second transposed."""
ALIGNMENT = 64
"""Bytes: where a record's fields and the buffers begin, as wide as the widest vector register."""


class Place(NamedTuple):
    """Where one segment of a shard goes; all three count weights."""

    shard_offset: int
    buffer_offset: int
    length: int


def segment_rows(geometry: ShardGeometry) -> tuple[int, ...]:
    """Rows of width d of each of a shard's segments."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    return (head, head, head, head, neurons, neurons)


def check_layout(geometry: ShardGeometry) -> None:
    """Raise `StoreError` for sizes whose segments would not begin at whole bytes at every number of bits."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    for rows, what in ((head, "rows of a head"), (neurons, "neurons of a slice")):
        if rows * geometry.width % 8:
            raise StoreError(
                f"{rows} {what} of width {geometry.width} are no multiple of 8 weights, so that their codes end amid a byte",
                remedy="take a width that 8 divides",
            )


def shard_of(geometry: ShardGeometry, weights: LayerWeights, index: int) -> NDArray[np.float32]:
    """A shard of a layer's matrices: slice `index` of `geometry.heads`, flat, float32 [geometry.weights_per_shard], a copy."""
    if not 0 <= index < geometry.heads:
        raise IndexError(index)
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    heads, feed = slice(index * head, (index + 1) * head), slice(index * neurons, (index + 1) * neurons)
    q, k, v, o, ffn_in, ffn_out = (np.asarray(getattr(weights, name), np.float32) for name in SEGMENTS)
    parts = (q[heads], k[heads], v[heads], o[:, heads].T, ffn_in[feed], ffn_out[:, feed].T)
    return np.concatenate([part.ravel() for part in parts])


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Memory for `count` bytes that begins at a multiple of `ALIGNMENT`, not cleared."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + count]


class LayerBuffer:
    """Room for m shards of one layer in float32, each segment of all of them one block [m * rows, d].

    So a layer's forward pass is plain products on contiguous blocks, of whatever width. The working buffer of STI-16: one is
    enough for a pipeline.
    """

    def __init__(self, geometry: ShardGeometry, slices: int) -> None:
        """For `slices` shards, 1 to `geometry.heads`."""
        if not 1 <= slices <= geometry.heads:
            raise ValueError(f"{slices} slices of {geometry.heads}")
        self.geometry, self.slices = geometry, slices
        self.array: NDArray[np.float32] = aligned_bytes(4 * slices * geometry.weights_per_shard).view(np.float32)
        """Flat, [slices * geometry.weights_per_shard]."""
        lengths = [rows * geometry.width for rows in segment_rows(geometry)]
        self._lengths = dict(zip(SEGMENTS, lengths, strict=True))
        ends = np.cumsum(lengths).tolist()
        self._begins = {name: end - length for name, end, length in zip(SEGMENTS, ends, lengths, strict=True)}

    def segment(self, name: str) -> NDArray[np.float32]:
        """The block of one of `SEGMENTS`, [slices * rows, d]: a view, the shards' rows in the order of their positions."""
        begin, length = self.slices * self._begins[name], self.slices * self._lengths[name]
        return self.array[begin : begin + length].reshape(-1, self.geometry.width)

    def places(self, position: int) -> tuple[Place, ...]:
        """Where the segments of the shard at `position`, from 0 to below `slices`, begin in it and in `array`."""
        if not 0 <= position < self.slices:
            raise IndexError(position)
        return tuple(
            Place(begin, self.slices * begin + position * length, length)
            for begin, length in zip(self._begins.values(), self._lengths.values(), strict=True)
        )

    def put(self, position: int, shard: NDArray[np.float32]) -> None:
        """Copy a flat shard to its places."""
        for place in self.places(position):
            part = shard[place.shard_offset : place.shard_offset + place.length]
            self.array[place.buffer_offset : place.buffer_offset + place.length] = part
