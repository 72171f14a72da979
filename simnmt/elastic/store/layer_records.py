"""The records of one layer: its shards quantised together, since they share a Gaussian and centroids."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.elastic.encoder_weights import LayerWeights
from simnmt.elastic.quantisation import Ascending, GaussianFit
from simnmt.elastic.shard_layout import shard_of
from simnmt.elastic.store.packed import FULL, encode, encode_full
from simnmt.elastic.store.record import Record


def layer_fit(geometry: ShardGeometry, weights: LayerWeights, layer: int) -> GaussianFit:
    """A layer's Gaussian. Raises `StoreError`, which names the layer, for one that cannot be quantised."""
    return GaussianFit.of(_shards(geometry, weights).reshape(-1), f"layer {layer}")


def layer_records(
    geometry: ShardGeometry, weights: LayerWeights, fit: GaussianFit, layer: int, bits: Sequence[int], offset: int
) -> Iterator[tuple[Record, bytes]]:
    """A layer's records with their bytes in the order of the file, from `offset` on: by bits, then slice.

    So a layer at one fidelity is one piece of the file. `fit`: what `layer_fit` gives.
    """
    shards = _shards(geometry, weights)
    outliers = fit.outliers(shards.reshape(-1))
    ascending = Ascending.of(shards.reshape(-1), outliers)
    places = [np.flatnonzero(each).astype(np.int32) for each in outliers.reshape(shards.shape)]
    for each in bits:
        if each == FULL:
            made = (encode_full(layer, index, shard) for index, shard in enumerate(shards))
            errors = np.zeros(len(shards))
        else:
            flat, centroids = ascending.grouped(each)
            off = centroids[flat] - shards.reshape(-1)
            off[outliers] = 0.0
            errors = np.square(off, dtype=np.float64).reshape(shards.shape).sum(1)
            made = (
                encode(layer, index, each, codes, centroids, at, shards[index, at])
                for index, (codes, at) in enumerate(zip(flat.reshape(shards.shape), places, strict=True))
            )
        for index, content in enumerate(made):
            count = 0 if each == FULL else len(places[index])
            yield Record(layer, index, each, offset, len(content), count, zlib.crc32(content), float(errors[index])), content
            offset += len(content)


def _shards(geometry: ShardGeometry, weights: LayerWeights) -> NDArray[np.float32]:
    return np.stack([shard_of(geometry, weights, index) for index in range(geometry.heads)])
