"""Shards of a layer: how they are cut, quantised, laid out in a record, and unpacked into one buffer (STI-01, 03 to 06).

A shard is one head and its share of the feed-forward neurons. The shards of a layer are quantised together, since they share
the Gaussian that marks outliers and the centroids. A record holds codes of a few bits, one centroid per code, and outliers.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.native_library import at_once
from simnmt.kernels.unpack import PackedWeights, unpack
from simnmt.profile.streaming_cost import BITS, ShardGeometry
from simnmt.streaming.errors import StoreError

SEGMENTS = ("q", "k", "v", "o", "ffn_in", "ffn_out")
"""Matrices of a layer, and segments of a shard, in this order everywhere. A segment has rows of width d: the rows of Wq, Wk
and Wv of its head, the transposed columns of Wo, the rows of the first feed-forward matrix for its neurons, and the transposed
columns of the second."""
ALIGNMENT = 64
"""Alignment of fields and buffers in bytes, the width of the widest vector register."""
FULL = 32
"""Bits of a weight in full precision."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The six weight matrices of one layer, float32; rows are outputs, as in torch."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    """q, k, v and o: [d, d]."""
    ffn_in: Tensor
    """[F, d]"""
    ffn_out: Tensor
    """[d, F]"""

    def named(self) -> dict[str, Tensor]:
        """Return the matrices by name, in the order of `SEGMENTS`."""
        return {name: getattr(self, name) for name in SEGMENTS}


def segment_rows(geometry: ShardGeometry) -> dict[str, int]:
    """Return the number of rows of each segment of a shard."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    return {name: neurons if name.startswith("ffn") else head for name in SEGMENTS}


def check_layout(geometry: ShardGeometry) -> None:
    """Raise `StoreError` unless all segments begin at whole bytes at all bitwidths."""
    for name, rows in segment_rows(geometry).items():
        if rows * geometry.width % 8:
            what = (
                f"{rows} rows of {name} of width {geometry.width} are no multiple of 8 weights: codes would end inside a byte"
            )
            raise StoreError(what, remedy="take a width that 8 divides")


def shard_of(geometry: ShardGeometry, weights: LayerWeights, index: int) -> NDArray[np.float32]:
    """Return a flat copy of shard `index` of a layer, float32 [geometry.weights_per_shard]."""
    rows = segment_rows(geometry)
    parts = []
    for name, tensor in weights.named().items():
        matrix = np.asarray(tensor, np.float32)
        if name in ("o", "ffn_out"):
            matrix = matrix.T
        parts.append(matrix[index * rows[name] : (index + 1) * rows[name]].ravel())
    return np.concatenate(parts)


LOG_DENSITY = -4.0
"""Natural log density below which a weight is an outlier."""
DEVIATION_LIMIT = math.exp(-LOG_DENSITY) / math.sqrt(2 * math.pi)
"""Deviation of 21.78, from which even the mean is an outlier: the rule depends on the scale of the weights."""


@dataclass(frozen=True, slots=True)
class GaussianFit:
    """The Gaussian fit of the weights of a layer: a mixture with one component (STI-03)."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, weights: NDArray[np.float32], called: str = "the layer") -> GaussianFit:
        """Return the fit of the flat weights of a layer.

        Raises `StoreError`, which names the layer as in `called`, for weights that are not finite, all equal, or all outliers.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            fit = cls(float(weights.mean(dtype=np.float64)), float(weights.std(dtype=np.float64)))
        if not math.isfinite(fit.mean) or not math.isfinite(fit.deviation):
            raise StoreError(f"{called} has weights that are not finite", remedy="train the model again, or correct its file")
        if weights.min() == weights.max():
            raise StoreError(f"{called}: all weights are {weights[0]:g}, to which no Gaussian fits")
        if fit.deviation >= DEVIATION_LIMIT or bool(fit.outliers(weights).all()):
            raise StoreError(f"{called}: with a deviation of {fit.deviation:.4g} every weight is an outlier")
        return fit

    @property
    def cut(self) -> float:
        """Distance from the mean beyond which a weight is an outlier; 0 if all are."""
        room = 2 * (-LOG_DENSITY - 0.5 * math.log(2 * math.pi) - math.log(self.deviation))
        return self.deviation * math.sqrt(max(room, 0.0))

    def outliers(self, weights: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return True for each weight that is an outlier."""
        return np.abs(weights.astype(np.float64) - self.mean) > self.cut


def ascending(weights: NDArray[np.float32], outliers: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the positions of the weights that are no outliers, by value; equal values keep their order.

    Weights must be finite, and at most 2 ** 32.
    """
    # Value and position in one integer: sorting those is stable, and twice as fast as a stable argsort of floats.
    pattern = (weights + np.float32(0.0)).view(np.uint32)  # the sum makes -0 equal to 0
    keys = np.where(pattern >> 31, ~pattern, pattern | np.uint32(1 << 31)).astype(np.uint64)
    keys = (keys << np.uint64(32) | np.arange(len(weights), dtype=np.uint64))[~outliers]
    keys.sort()
    return (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)


def grouped(weights: NDArray[np.float32], order: NDArray[np.int64], bits: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return codes [weights], 0 for an outlier, and centroids [2 ** bits], 0 for an empty group (STI-04).

    Groups have equal populations, the larger ones first. A centroid is the mean of its group. `order`: as of `ascending`.
    """
    groups, count = 1 << bits, len(order)
    sizes = np.full(groups, count // groups)
    sizes[: count % groups] += 1
    codes = np.zeros(len(weights), np.uint8)
    codes[order] = np.repeat(np.arange(groups, dtype=np.uint8), sizes)
    centroids = np.zeros(groups, np.float32)
    filled = min(groups, count)  # empty groups come last
    if filled:
        begins = np.concatenate([[0], np.cumsum(sizes[: filled - 1])])
        centroids[:filled] = np.add.reduceat(weights[order].astype(np.float64), begins) / sizes[:filled]
    return codes, centroids


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


def layer_shards(geometry: ShardGeometry, weights: LayerWeights) -> NDArray[np.float32]:
    """Return all shards of a layer, [heads, weights]."""
    return np.stack([shard_of(geometry, weights, index) for index in range(geometry.heads)])


def layer_records(
    shards: NDArray[np.float32], fit: GaussianFit, layer: int, bits: Sequence[int], offset: int
) -> Iterator[tuple[Record, bytes]]:
    """Yield the records of a layer with their bytes, in file order from `offset` on: by bits, then slice.

    A layer at one fidelity is therefore one contiguous part of the file. `fit`: of all weights of the layer.
    """
    flat = shards.reshape(-1)
    outliers = fit.outliers(flat)
    order = ascending(flat, outliers)
    places = [np.flatnonzero(is_outlier).astype(np.int32) for is_outlier in outliers.reshape(shards.shape)]
    for width in bits:
        errors = np.zeros(len(shards))
        if width != FULL:
            codes, centroids = grouped(flat, order, width)
            off = np.where(outliers, 0.0, centroids[codes] - flat)
            errors = np.square(off, dtype=np.float64).reshape(shards.shape).sum(1)
        for index, (shard, at) in enumerate(zip(shards, places, strict=True)):
            if width == FULL:
                count, content = 0, encode_full(layer, index, shard)
            else:
                of_shard = codes.reshape(shards.shape)[index]
                count, content = len(at), encode(layer, index, width, of_shard, centroids, at, shard[at])
            yield Record(layer, index, width, offset, len(content), count, zlib.crc32(content), float(errors[index])), content
            offset += len(content)


_HEADER = struct.Struct("<8sHHHHII")
"""Magic, version, layer, slice, bits, weights, outliers."""
_MAGIC, _VERSION = b"simnmtSh", 1


@dataclass(frozen=True, slots=True, eq=False)
class Packed(PackedWeights):
    """One shard at one fidelity; all arrays are views of the record's bytes, aligned to 64 if the record is."""

    layer: int
    slice: int

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return record_size(self.weights, self.bits, len(self.outlier_at))


def record_size(weights: int, bits: int, outliers: int) -> int:
    """Return the bytes of a record, a multiple of 64."""
    return sum(_field_sizes(weights, bits, outliers))


def packed_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the stream of codes below 2 ** bits: code i lies in bits [i * b, (i + 1) * b), the least significant bit first."""
    return np.packbits(np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little"), bitorder="little")


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
        packed_bits(codes, bits).tobytes(),
        centroids.astype("<f4", copy=False).tobytes(),
        outlier_at.astype("<i4", copy=False).tobytes(),
        outlier_values.astype("<f4", copy=False).tobytes(),
    )


def encode_full(layer: int, index: int, shard: NDArray[np.float32]) -> bytes:
    """Return the record of a shard in full precision."""
    header = _HEADER.pack(_MAGIC, _VERSION, layer, index, FULL, len(shard), 0)
    return _joined(header, shard.astype("<f4", copy=False).tobytes())


def decode(record: NDArray[np.uint8] | bytes) -> Packed:
    """Return views of the fields of a record, without a copy.

    Raises `StoreError` for bytes that are no record or only a part of one. `ShardStore.read` compares the checksum.
    """
    raw = np.frombuffer(record, np.uint8)
    if len(raw) < ALIGNMENT:
        raise StoreError("no record of a shard: too short")
    magic, version, layer, index, bits, weights, outliers = _HEADER.unpack(raw[: _HEADER.size].tobytes())
    if (magic, version) != (_MAGIC, _VERSION) or bits not in BITS:
        raise StoreError("no record of a shard")
    sizes = _field_sizes(weights, bits, outliers)
    if len(raw) < sum(sizes):
        raise StoreError(f"a record of {sum(sizes):,} bytes cut short at {len(raw):,}")
    at = np.cumsum(sizes).tolist()
    return Packed(
        bits,
        weights,
        raw[at[0] : at[0] + -(-weights * bits // 8)],
        raw[at[1] : at[1] + (0 if bits == FULL else 4 << bits)].view("<f4"),
        raw[at[2] : at[2] + 4 * outliers].view("<i4"),
        raw[at[3] : at[3] + 4 * outliers].view("<f4"),
        layer,
        index,
    )


def _field_sizes(weights: int, bits: int, outliers: int) -> tuple[int, ...]:
    fields = (_HEADER.size, -(-weights * bits // 8), 0 if bits == FULL else 4 << bits, 4 * outliers, 4 * outliers)
    return tuple(-(-size // ALIGNMENT) * ALIGNMENT for size in fields)


def _joined(*fields: bytes) -> bytes:
    return b"".join(field + bytes(-len(field) % ALIGNMENT) for field in fields)


def aligned_bytes(count: int) -> NDArray[np.uint8]:
    """Return `count` uninitialised bytes that begin at a multiple of `ALIGNMENT`."""
    raw = np.empty(count + ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % ALIGNMENT
    return raw[begin : begin + count]


class Place(NamedTuple):
    """The place of one segment of a shard in a layer buffer, counted in weights."""

    shard_offset: int
    buffer_offset: int
    length: int


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
        self._lengths = {name: rows * geometry.width for name, rows in segment_rows(geometry).items()}
        ends = np.cumsum(list(self._lengths.values())).tolist()
        self._begins = {name: end - length for (name, length), end in zip(self._lengths.items(), ends, strict=True)}

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
