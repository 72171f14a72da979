"""Shards of random weights: times of unpacking depend on sizes and bits alone."""

from __future__ import annotations

import numpy as np

from simnmt.costs.shard_geometry import ShardGeometry
from simnmt.elastic.store.packed import Packed, record_size

OUTLIERS = 0.0015
"""Share of weights: what the paper tells of trained models (STI-05)."""


def random_shard(weights: int, bits: int, seed: int = 0, *, layer: int = 0, slice_: int = 0) -> Packed:
    """A shard of so many weights at 2 to 6 bits."""
    drawn = np.random.default_rng(seed)
    outliers = round(OUTLIERS * weights)
    return Packed(
        layer=layer,
        slice=slice_,
        bits=bits,
        weights=weights,
        codes=drawn.integers(0, 256, -(-weights * bits // 8), dtype=np.uint8),
        centroids=np.sort(drawn.normal(0.0, 0.04, 1 << bits)).astype(np.float32),
        outlier_at=np.sort(drawn.choice(weights, outliers, replace=False)).astype(np.int32),
        outlier_values=drawn.normal(0.0, 0.2, outliers).astype(np.float32),
    )


def random_shards(geometry: ShardGeometry, bits: int, seed: int = 0) -> dict[tuple[int, int], Packed]:
    """All of a model's, by layer and slice."""
    return {
        (layer, slice_): random_shard(
            geometry.weights_per_shard, bits, seed + layer * geometry.heads + slice_, layer=layer, slice_=slice_
        )
        for layer in range(geometry.layers)
        for slice_ in range(geometry.heads)
    }


def record_bytes(geometry: ShardGeometry, bits: int) -> int:
    """Of the record of such a shard."""
    weights = geometry.weights_per_shard
    return record_size(weights, bits, 0 if bits == 32 else round(OUTLIERS * weights))
