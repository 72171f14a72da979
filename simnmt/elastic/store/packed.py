"""A shard as it is read: codes, the centroids that they stand for, and outliers (STI-05), and its weights again (STI-06)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.shard_geometry import BITS
from simnmt.elastic.errors import StoreError
from simnmt.elastic.shard_layout import ALIGNMENT
from simnmt.elastic.store.bit_stream import packed_bits, unpacked_bits

_HEADER = struct.Struct("<8sHHHHII")
"""Magic, version, layer, slice, bits, weights, outliers."""
_MAGIC, _VERSION = b"simnmtSh", 1
FULL = 32
"""Bits of a weight that is kept as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One shard at one fidelity; all arrays are views of the record's bytes, aligned to 64 where the record is."""

    layer: int
    slice: int
    bits: int
    """2 to 6, or 32: then `codes` are the float32 weights themselves and the other arrays empty."""
    weights: int
    """How many."""
    codes: NDArray[np.uint8]
    """The little-endian stream of `bits` a weight, [weights * bits / 8]."""
    centroids: NDArray[np.float32]
    """[2 ** bits]"""
    outlier_at: NDArray[np.int32]
    """Ascending positions in the shard of weights that stand for themselves; their code is 0."""
    outlier_values: NDArray[np.float32]
    """Beside `outlier_at`."""


def record_size(weights: int, bits: int, outliers: int) -> int:
    """Bytes of a record, up to the next multiple of 64."""
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
    """The record of a quantised shard; `codes` [weights], a byte each."""
    return _joined(
        _HEADER.pack(_MAGIC, _VERSION, layer, index, bits, len(codes), len(outlier_at)),
        packed_bits(codes, bits),
        centroids.astype("<f4", copy=False),
        outlier_at.astype("<i4", copy=False),
        outlier_values.astype("<f4", copy=False),
    )


def encode_full(layer: int, index: int, shard: NDArray[np.float32]) -> bytes:
    """The record of a shard in full precision."""
    return _joined(_HEADER.pack(_MAGIC, _VERSION, layer, index, FULL, len(shard), 0), shard.astype("<f4", copy=False))


class Header(NamedTuple):
    """What a record says of itself."""

    layer: int
    slice: int
    bits: int
    weights: int
    outliers: int


def header(record: NDArray[np.uint8] | bytes | bytearray | memoryview) -> Header:
    """The beginning of a record; raises `StoreError` for bytes that are none."""
    raw = np.frombuffer(record, np.uint8)
    if len(raw) < ALIGNMENT:
        raise StoreError("no record of a shard: too short", remedy="shard the model again")
    magic, version, *rest = _HEADER.unpack(raw[: _HEADER.size].tobytes())
    found = Header(*rest)
    if (magic, version) != (_MAGIC, _VERSION) or found.bits not in BITS:
        raise StoreError("no record of a shard", remedy="shard the model again")
    return found


def decode(record: NDArray[np.uint8] | bytes | bytearray | memoryview) -> Packed:
    """Views of a record's fields; nothing is copied.

    Raises `StoreError` for bytes that are no record, or not all of one. Whether a bit of it has flipped the checksum tells, not
    this: `ShardStore.verify`.
    """
    raw = np.frombuffer(record, np.uint8)
    layer, index, bits, weights, outliers = header(raw)
    sizes = _field_sizes(weights, bits, outliers)
    if len(raw) < sum(sizes):
        raise StoreError(f"a record of {sum(sizes):,} bytes cut short at {len(raw):,}", remedy="shard the model again")
    at = np.cumsum(sizes).tolist()
    groups = 0 if bits == FULL else 1 << bits
    return Packed(
        layer,
        index,
        bits,
        weights,
        raw[at[0] : at[0] + -(-weights * bits // 8)],
        raw[at[1] : at[1] + 4 * groups].view("<f4"),
        raw[at[2] : at[2] + 4 * outliers].view("<i4"),
        raw[at[3] : at[3] + 4 * outliers].view("<f4"),
    )


def dequantised(packed: Packed) -> NDArray[np.float32]:
    """The shard's weights, float32 [weights]: centroids in place of codes, then outliers (STI-06); the kernel's reference."""
    if packed.bits == FULL:
        return packed.codes.view("<f4").astype(np.float32)
    values = packed.centroids[unpacked_bits(packed.codes, packed.bits, packed.weights)]
    values[packed.outlier_at] = packed.outlier_values
    return values.astype(np.float32, copy=False)


def _field_sizes(weights: int, bits: int, outliers: int) -> tuple[int, ...]:
    groups = 0 if bits == FULL else 1 << bits
    fields = (_HEADER.size, -(-weights * bits // 8), 4 * groups, 4 * outliers, 4 * outliers)
    return tuple(-(-size // ALIGNMENT) * ALIGNMENT for size in fields)


def _joined(header: bytes, *fields: NDArray[np.uint8] | NDArray[np.float32] | NDArray[np.int32]) -> bytes:
    parts = []
    for part in (header, *(field.tobytes() for field in fields)):
        parts += [part, bytes(-len(part) % ALIGNMENT)]
    return b"".join(parts)
