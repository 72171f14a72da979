"""Format of a shard: its segments, its record in a store's file, and the working buffer of a layer (STI-01, STI-05, STI-06).

A record holds codes of a few bits, one centroid per code, and outliers. Code i lies in bits
[i * b, (i + 1) * b) of a byte stream, the least significant bit first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.native_library import at_once
from simnmt.kernels.unpack import PackedWeights, unpack
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.errors import StoreError

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import ShardGeometry
    from simnmt.streaming.encoder.encoder_configuration import LayerWeights

SEGMENTS = ("q", "k", "v", "o", "ffn_in", "ffn_out")
"""Segments of a shard in order, each with rows of width d: the rows of Wq, Wk and Wv of its head, the transposed columns of Wo,
the rows of the first feed-forward matrix for its neurons, and the transposed columns of the second."""
ALIGNMENT = 64
"""Alignment of fields and buffers in bytes, the width of the widest vector register."""


class Place(NamedTuple):
    """The place of one segment of a shard in a layer buffer, counted in weights."""

    shard_offset: int
    buffer_offset: int
    length: int


def segment_rows(geometry: ShardGeometry) -> tuple[int, ...]:
    """Return the number of rows of each segment of a shard."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    return (head, head, head, head, neurons, neurons)


def check_layout(geometry: ShardGeometry) -> None:
    """Raise `StoreError` unless all segments begin at whole bytes at all bitwidths."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    for rows, what in ((head, "rows of a head"), (neurons, "neurons of a slice")):
        if rows * geometry.width % 8:
            reason = "are no multiple of 8 weights, so their codes end inside a byte"
            raise StoreError(f"{rows} {what} of width {geometry.width} {reason}", remedy="take a width that 8 divides")


def shard_of(geometry: ShardGeometry, weights: LayerWeights, index: int) -> NDArray[np.float32]:
    """Return a flat copy of shard `index` of a layer, float32 [geometry.weights_per_shard]."""
    if not 0 <= index < geometry.heads:
        raise IndexError(index)
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    heads, feed = slice(index * head, (index + 1) * head), slice(index * neurons, (index + 1) * neurons)
    q, k, v, o, ffn_in, ffn_out = (np.asarray(getattr(weights, name), np.float32) for name in SEGMENTS)
    parts = (q[heads], k[heads], v[heads], o[:, heads].T, ffn_in[feed], ffn_out[:, feed].T)
    return np.concatenate([part.ravel() for part in parts])


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Return `count` uninitialised bytes that begin at a multiple of `ALIGNMENT`."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + count]


class LayerBuffer:
    """Working buffer for m shards of one layer in float32; each segment of all shards is one block [m * rows, d] (STI-16).

    The forward pass of a layer is therefore a sequence of products on contiguous blocks. A pipeline needs one buffer.
    """

    def __init__(self, geometry: ShardGeometry, slices: int) -> None:
        """Allocate room for `slices` shards, 1 to `geometry.heads`."""
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
        """Return a view of the block of one segment, [slices * rows, d]; rows are in the order of the shards' positions."""
        begin, length = self.slices * self._begins[name], self.slices * self._lengths[name]
        return self.array[begin : begin + length].reshape(-1, self.geometry.width)

    def places(self, position: int) -> tuple[Place, ...]:
        """Return the places of the segments of the shard at `position`, 0 to `slices` - 1."""
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


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of the index: a shard at one bitwidth, and its place in the file."""

    layer: int
    slice: int
    bits: int
    offset: int
    """Bytes from the beginning of the file, a multiple of 64."""
    size: int
    """Bytes of the record with its header, a multiple of 64."""
    outliers: int
    crc32: int
    """Checksum of all bytes of the record."""
    squared_error: float
    """Sum of the squared rounding errors of all weights."""


def packed_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the stream of codes below 2 ** bits; zeros fill its last byte."""
    return np.packbits(np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little"), bitorder="little")


_HEADER = struct.Struct("<8sHHHHII")
"""Magic, version, layer, slice, bits, weights, outliers."""
_MAGIC, _VERSION = b"simnmtSh", 1
FULL = 32
"""Bits of a weight in full precision."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed(PackedWeights):
    """One shard at one fidelity; all arrays are views of the record's bytes, aligned to 64 if the record is."""

    layer: int
    slice: int


def record_size(weights: int, bits: int, outliers: int) -> int:
    """Return the bytes of a record, a multiple of 64."""
    return sum(_field_sizes(weights, bits, outliers))


def encode(
    layer: int,
    index: int,
    bits: int,
    codes: NDArray[np.uint8],
    centroids: NDArray[np.float32],
    outlier_at: NDArray[np.int32],
    outlier_values: NDArray[np.float32],
) -> bytes:
    """Return the record of a quantised shard; `codes` [weights] has one byte per weight."""
    return _joined(
        _HEADER.pack(_MAGIC, _VERSION, layer, index, bits, len(codes), len(outlier_at)),
        packed_bits(codes, bits),
        centroids.astype("<f4", copy=False),
        outlier_at.astype("<i4", copy=False),
        outlier_values.astype("<f4", copy=False),
    )


def encode_full(layer: int, index: int, shard: NDArray[np.float32]) -> bytes:
    """Return the record of a shard in full precision."""
    return _joined(_HEADER.pack(_MAGIC, _VERSION, layer, index, FULL, len(shard), 0), shard.astype("<f4", copy=False))


class Header(NamedTuple):
    """Header of a record."""

    layer: int
    slice: int
    bits: int
    weights: int
    outliers: int


def header(record: NDArray[np.uint8] | bytes | bytearray | memoryview) -> Header:
    """Return the header of a record; raises `StoreError` for bytes that are no record."""
    raw = np.frombuffer(record, np.uint8)
    if len(raw) < ALIGNMENT:
        raise StoreError("no record of a shard: too short", remedy="shard the model again")
    magic, version, *rest = _HEADER.unpack(raw[: _HEADER.size].tobytes())
    parsed = Header(*rest)
    if (magic, version) != (_MAGIC, _VERSION) or parsed.bits not in BITS:
        raise StoreError("no record of a shard", remedy="shard the model again")
    return parsed


def decode(record: NDArray[np.uint8] | bytes | bytearray | memoryview) -> Packed:
    """Return views of the fields of a record, without a copy.

    Raises `StoreError` for bytes that are no record or only a part of one. `ShardStore.verify` checks the checksum.
    """
    raw = np.frombuffer(record, np.uint8)
    layer, index, bits, weights, outliers = header(raw)
    sizes = _field_sizes(weights, bits, outliers)
    if len(raw) < sum(sizes):
        raise StoreError(f"a record of {sum(sizes):,} bytes cut short at {len(raw):,}", remedy="shard the model again")
    at = np.cumsum(sizes).tolist()
    groups = 0 if bits == FULL else 1 << bits
    return Packed(
        bits,
        weights,
        raw[at[0] : at[0] + -(-weights * bits // 8)],
        raw[at[1] : at[1] + 4 * groups].view("<f4"),
        raw[at[2] : at[2] + 4 * outliers].view("<i4"),
        raw[at[3] : at[3] + 4 * outliers].view("<f4"),
        layer,
        index,
    )


def _field_sizes(weights: int, bits: int, outliers: int) -> tuple[int, ...]:
    groups = 0 if bits == FULL else 1 << bits
    fields = (_HEADER.size, -(-weights * bits // 8), 4 * groups, 4 * outliers, 4 * outliers)
    return tuple(-(-size // ALIGNMENT) * ALIGNMENT for size in fields)


def _joined(header: bytes, *fields: NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.int32]) -> bytes:
    parts = []
    for part in (header, *(field.tobytes() for field in fields)):
        parts += [part, bytes(-len(part) % ALIGNMENT)]
    return b"".join(parts)


def unpack_into(buffer: LayerBuffer, shards: Sequence[Packed], *, threads: int = 1) -> None:
    """Write each shard to its places in the buffer; whole shards are divided among `threads`.

    Raises `KernelError` for records with inconsistent fields, and `ValueError` for more shards than the buffer has room for.
    """
    if len(shards) > buffer.slices:
        raise ValueError(f"{len(shards)} shards for a buffer of {buffer.slices}")

    def work(first: int, step: int) -> None:
        for position in range(first, len(shards), step):
            unpack(shards[position], buffer.array, buffer.places(position))

    parts = max(1, min(threads, len(shards)))
    at_once([partial(work, part, parts) for part in range(parts)])
