"""Shards of a layer: how they are cut, quantised, laid out in a record, and unpacked into one buffer (STI-01, 03 to 06).

A shard is one head and its share of the feed-forward neurons. The shards of a layer are quantised together, since they share
the Gaussian that marks outliers and the centroids. A record holds codes of a few bits, the centroids, and the outliers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from simnmt.kernels.native_library import CACHE_LINE, aligned_bytes, at_once
from simnmt.kernels.unpack import PackedWeights, unpack
from simnmt.profile.streaming_block import ShardGeometry
from simnmt.streaming.errors import StoreError

SEGMENTS = ("q", "k", "v", "o", "ffn_in", "ffn_out")
"""Matrices of a layer, and segments of a shard, in this order everywhere. A segment has rows of width d: the rows of Wq, Wk
and Wv of its head, the transposed columns of Wo, the rows of the first feed-forward matrix for its neurons, and the transposed
columns of the second."""
FULL = 32
"""Bits of a weight in full precision."""


class LayerWeights(NamedTuple):
    """The weight matrices of one layer, float32 [outputs, inputs]: four of width d, and those of the F neurons."""

    q: Tensor
    k: Tensor
    v: Tensor
    o: Tensor
    ffn_in: Tensor
    ffn_out: Tensor


def segment_rows(geometry: ShardGeometry) -> dict[str, int]:
    """Return the number of rows of each segment of a shard."""
    head, neurons = geometry.width // geometry.heads, geometry.ffn // geometry.heads
    return {name: neurons if name.startswith("ffn") else head for name in SEGMENTS}


def layer_shards(geometry: ShardGeometry, weights: LayerWeights) -> NDArray[np.float32]:
    """Return all shards of a layer, [heads, weights of a shard]."""
    matrices = {name: np.asarray(tensor, np.float32) for name, tensor in weights._asdict().items()}
    matrices |= {name: matrices[name].T for name in ("o", "ffn_out")}
    return np.concatenate([matrix.reshape(geometry.heads, -1) for matrix in matrices.values()], axis=1)


LOG_DENSITY = -4.0
"""Natural log density below which a weight is an outlier."""
DEVIATION_LIMIT = math.exp(-LOG_DENSITY) / math.sqrt(2 * math.pi)
"""Deviation of 21.78, from which even the mean is an outlier: the rule depends on the scale of the weights."""


@dataclass(frozen=True, slots=True)
class GaussianFit:
    """The Gaussian fit of the weights of a layer: a mixture with one component (STI-03)."""

    mean: float
    deviation: Annotated[float, Field(gt=0.0)]

    @classmethod
    def of(cls, weights: NDArray[np.float32], called: str = "the layer") -> GaussianFit:
        """Return the fit of the flat weights of a layer, named as in `called`; raises `StoreError` if none can be used."""
        with np.errstate(over="ignore", invalid="ignore"):
            fit = cls(float(weights.mean(dtype=np.float64)), float(weights.std(dtype=np.float64)))
        usable = math.isfinite(fit.mean) and fit.deviation < DEVIATION_LIMIT and weights.min() < weights.max()
        if not usable or bool(fit.outliers(weights).all()):
            what = f"{called} cannot be quantised: its weights are not finite, all equal or all outliers"
            raise StoreError(f"{what} (mean {fit.mean:.4g}, deviation {fit.deviation:.4g})", remedy="train the model again")
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

    Groups have equal populations, the larger ones first. A centroid is the mean of its group. `order`: as in `ascending`.
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


def packed_bits(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Return the stream of codes below 2 ** bits: code i lies in bits [i * b, (i + 1) * b), the least significant bit first."""
    return np.packbits(np.unpackbits(codes[:, None], axis=1, count=bits, bitorder="little"), bitorder="little")


def quantise(
    shards: NDArray[np.float32], outliers: NDArray[np.bool_], bits: Sequence[int]
) -> Iterator[list[tuple[bytes, float]]]:
    """Yield for each of `bits` the records of all shards of a layer, each with its sum of squared rounding errors.

    `outliers`: of all weights, in the shape of `shards`.
    """
    flat, none, nowhere = shards.reshape(-1), np.zeros(0, np.float32), np.zeros(0, np.int32)
    order = ascending(flat, outliers.reshape(-1))
    places = [np.flatnonzero(of_shard).astype(np.int32) for of_shard in outliers]
    for width in bits:
        if width == FULL:
            packed = [PackedWeights(FULL, len(shard), shard.view(np.uint8), none, nowhere, none) for shard in shards]
            yield [(encode(shard), 0.0) for shard in packed]
            continue
        codes, centroids = grouped(flat, order, width)
        off = np.where(outliers, 0.0, (centroids[codes] - flat).reshape(shards.shape))
        packed = [
            PackedWeights(width, len(shard), packed_bits(of_shard, width), centroids, at, shard[at])
            for of_shard, shard, at in zip(codes.reshape(shards.shape), shards, places, strict=True)
        ]
        yield list(zip(map(encode, packed), np.square(off, dtype=np.float64).sum(1).tolist(), strict=True))


def _field_sizes(weights: int, bits: int, outliers: int) -> NDArray[np.int64]:
    """Return the bytes of codes, centroids, indices and values of the outliers, without padding."""
    return np.array([-(-weights * bits // 8), 0 if bits == FULL else 4 << bits, 4 * outliers, 4 * outliers])


def record_size(weights: int, bits: int, outliers: int) -> int:
    """Return the bytes of a record, a multiple of 64."""
    return int((-(-_field_sizes(weights, bits, outliers) // CACHE_LINE) * CACHE_LINE).sum())


def size_of(packed: PackedWeights) -> int:
    """Return the bytes of the record of a shard."""
    return record_size(packed.weights, packed.bits, len(packed.outlier_at))


def encode(packed: PackedWeights) -> bytes:
    """Return the record of a shard: its four arrays, little-endian, each padded to 64 bytes."""
    arrays = (
        packed.codes,
        packed.centroids.astype("<f4"),
        packed.outlier_at.astype("<i4"),
        packed.outlier_values.astype("<f4"),
    )
    return b"".join(array.tobytes() + bytes(-array.nbytes % CACHE_LINE) for array in arrays)


def decode(record: NDArray[np.uint8], weights: int, bits: int, outliers: int) -> PackedWeights:
    """Return views of the arrays of a record, without a copy."""
    sizes = _field_sizes(weights, bits, outliers).tolist()
    fields, begin = [], 0
    for size in sizes:
        fields.append(record[begin : begin + size])
        begin += -(-size // CACHE_LINE) * CACHE_LINE
    codes, centroids, at, values = fields
    return PackedWeights(bits, weights, codes, centroids.view("<f4"), at.view("<i4"), values.view("<f4"))


class LayerBuffer:
    """Working buffer for m shards of one layer in float32; each segment of all shards is one block [m * rows, d] (STI-16).

    The forward pass of a layer is therefore a sequence of products on contiguous blocks. A pipeline needs one buffer.
    """

    def __init__(self, geometry: ShardGeometry, slices: int) -> None:
        """Allocate room for `slices` shards, 1 to `geometry.heads`."""
        self.geometry, self.slices = geometry, slices
        self.array: NDArray[np.float32] = aligned_bytes(4 * slices * geometry.weights_per_shard).view(np.float32)
        """Flat, [slices * geometry.weights_per_shard]."""
        lengths = geometry.width * np.array(list(segment_rows(geometry).values()))
        begins = np.cumsum(lengths) - lengths
        blocks = slices * begins + np.arange(slices)[:, None] * lengths
        self.places = np.stack(np.broadcast_arrays(begins, blocks, lengths), axis=2)
        """Int64 [slices, segments, 3]: begin in a shard, begin in `array` and number of weights, by the shard's position."""
        cut = np.split(self.array, slices * begins[1:])
        self.segments = {name: part.reshape(-1, geometry.width) for name, part in zip(SEGMENTS, cut, strict=True)}
        """Views of the block of each segment, [slices * rows, d]; rows are in the order of the shards' positions."""


def unpack_into(buffer: LayerBuffer, shards: Sequence[PackedWeights], *, threads: int = 1) -> None:
    """Write each shard to its places in the buffer; whole shards are divided among `threads`.

    Raises `KernelError` for records with inconsistent fields.
    """

    def work(first: int, step: int) -> None:
        for position in range(first, len(shards), step):
            unpack(shards[position], buffer.array, buffer.places[position])

    parts = max(1, min(threads, len(shards)))
    at_once([partial(work, part, parts) for part in range(parts)])
