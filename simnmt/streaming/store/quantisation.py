"""Quantisation of a layer's shards: outliers by a Gaussian, centroids of groups of equal population (STI-03, STI-04).

The shards of a layer are quantised together, since they share the Gaussian and the centroids.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming.encoder.encoder_configuration import LayerWeights
from simnmt.streaming.errors import StoreError
from simnmt.streaming.store.shard_format import FULL, Record, encode, encode_full, shard_of

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
            what = f"{called}: all weights are {weights[0]:g}, to which no Gaussian fits"
            raise StoreError(what, remedy="give a trained model")
        if fit.deviation >= DEVIATION_LIMIT or bool(fit.outliers(weights).all()):
            what = f"with a deviation of {fit.deviation:.4g} every weight is an outlier, whose log density is below -4"
            raise StoreError(f"{called}: {what}", remedy="give a model of smaller weights")
        return fit

    @property
    def cut(self) -> float:
        """Distance from the mean beyond which a weight is an outlier; 0 if all are."""
        room = 2 * (-LOG_DENSITY - 0.5 * math.log(2 * math.pi) - math.log(self.deviation))
        return self.deviation * math.sqrt(max(room, 0.0))

    def outliers(self, weights: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Return True for each weight that is an outlier."""
        return np.abs(weights.astype(np.float64) - self.mean) > self.cut


@dataclass(frozen=True, slots=True, eq=False)
class Ascending:
    """The weights of a layer, sorted once for all bitwidths."""

    weights: NDArray[np.float32]
    """All weights, flat."""
    order: NDArray[np.int64]
    """Positions of the weights that are no outliers, by value; equal values keep their order."""
    values: NDArray[np.float64]
    """The weights in `order`."""

    @classmethod
    def of(cls, weights: NDArray[np.float32], outliers: NDArray[np.bool_]) -> Ascending:
        """Return the sorted weights; they must be finite, and at most 2 ** 32."""
        # Value and position in one integer: sorting those is stable, and twice as fast as a stable argsort of floats.
        pattern = (weights + np.float32(0.0)).view(np.uint32)  # the sum makes -0 equal to 0
        keys = np.where(pattern >> 31, ~pattern, pattern | np.uint32(1 << 31)).astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= np.arange(len(weights), dtype=np.uint64)
        keys = keys[~outliers]
        keys.sort()
        order = (keys & np.uint64(0xFFFFFFFF)).astype(np.int64)
        return cls(weights, order, weights[order].astype(np.float64))

    def grouped(self, bits: int) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Return codes [weights], 0 for an outlier, and centroids [2 ** bits], 0 for an empty group (STI-04).

        Groups have equal populations, the larger ones first. A centroid is the mean of its group.
        """
        groups, count = 1 << bits, len(self.order)
        sizes = np.full(groups, count // groups)
        sizes[: count % groups] += 1
        codes = np.zeros(len(self.weights), np.uint8)
        codes[self.order] = np.repeat(np.arange(groups, dtype=np.uint8), sizes)
        centroids = np.zeros(groups, np.float32)
        filled = min(groups, count)  # empty groups come last
        if filled:
            begins = np.concatenate([[0], np.cumsum(sizes[: filled - 1])])
            centroids[:filled] = np.add.reduceat(self.values, begins) / sizes[:filled]
        return codes, centroids


def layer_fit(geometry: ShardGeometry, weights: LayerWeights, layer: int) -> GaussianFit:
    """Return the Gaussian of a layer. Raises `StoreError` with its name for a layer that cannot be quantised."""
    return GaussianFit.of(_shards(geometry, weights).reshape(-1), f"layer {layer}")


def layer_records(
    geometry: ShardGeometry, weights: LayerWeights, fit: GaussianFit, layer: int, bits: Sequence[int], offset: int
) -> Iterator[tuple[Record, bytes]]:
    """Yield the records of a layer with their bytes, in file order from `offset` on: by bits, then slice.

    A layer at one fidelity is therefore one contiguous part of the file. `fit`: the result of `layer_fit`.
    """
    shards = _shards(geometry, weights)
    outliers = fit.outliers(shards.reshape(-1))
    ascending = Ascending.of(shards.reshape(-1), outliers)
    places = [np.flatnonzero(is_outlier).astype(np.int32) for is_outlier in outliers.reshape(shards.shape)]
    for width in bits:
        if width == FULL:
            made = (encode_full(layer, index, shard) for index, shard in enumerate(shards))
            errors = np.zeros(len(shards))
        else:
            flat, centroids = ascending.grouped(width)
            off = centroids[flat] - shards.reshape(-1)
            off[outliers] = 0.0
            errors = np.square(off, dtype=np.float64).reshape(shards.shape).sum(1)
            made = (
                encode(layer, index, width, codes, centroids, at, shards[index, at])
                for index, (codes, at) in enumerate(zip(flat.reshape(shards.shape), places, strict=True))
            )
        for index, content in enumerate(made):
            count = 0 if width == FULL else len(places[index])
            yield Record(layer, index, width, offset, len(content), count, zlib.crc32(content), float(errors[index])), content
            offset += len(content)


def _shards(geometry: ShardGeometry, weights: LayerWeights) -> NDArray[np.float32]:
    return np.stack([shard_of(geometry, weights, index) for index in range(geometry.heads)])
