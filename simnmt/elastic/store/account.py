"""What a store holds and costs: bytes, outliers and rounding errors, by bits and by layer (STI-03 to STI-05)."""

from __future__ import annotations

import math
from typing import Any

from simnmt.elastic.store.index_file import RESIDENT
from simnmt.elastic.store.packed import FULL
from simnmt.elastic.store.shard_store import ShardStore


def told_of(store: ShardStore) -> dict[str, Any]:
    """JSON: the model, what each fidelity takes and loses, and each layer's Gaussian and outliers.

    `rmse_over_s`: root of the mean squared rounding error in standard deviations of the layer's weights. Shares are of weights.
    """
    geometry, index = store.geometry, store.index
    outliers = [0] * geometry.layers
    for record in index.records:
        if record.bits == min(store.bits):
            outliers[record.layer] += record.outliers
    return {
        "model": index.origin,
        "random": index.random,
        "kind": store.kind,
        "fingerprint": store.fingerprint,
        "layers": geometry.layers,
        "slices": geometry.heads,
        "width": geometry.width,
        "ffn": geometry.ffn,
        "weights_per_shard": geometry.weights_per_shard,
        "records": len(index.records),
        "shards_bytes": sum(record.size for record in index.records),
        "low_bits_bytes": sum(record.size for record in index.records if record.bits != FULL),
        "resident_bytes": index.files[RESIDENT].size,
        "outlier_share": None if store.bits == (FULL,) else sum(outliers) / (geometry.layers * geometry.weights_per_layer),
        "by_bits": [_of_bits(store, bits) for bits in store.bits],
        "by_layer": [
            {
                "layer": layer,
                "mean": fit.mean,
                "deviation": fit.deviation,
                "outlier_share": None if store.bits == (FULL,) else outliers[layer] / geometry.weights_per_layer,
            }
            for layer, fit in enumerate(index.layers)
        ],
    }


def _of_bits(store: ShardStore, bits: int) -> dict[str, Any]:
    geometry, deviations = store.geometry, [fit.deviation for fit in store.index.layers]
    records = [record for record in store.index.records if record.bits == bits]
    total = sum(record.size for record in records)
    error = sum(record.squared_error / deviations[record.layer] ** 2 for record in records)
    return {
        "bits": bits,
        "bytes": total,
        "shard_bytes": total / len(records),
        "smaller": 4 * geometry.weights_per_layer * geometry.layers / total,
        "rmse_over_s": math.sqrt(error / (geometry.layers * geometry.weights_per_layer)),
    }
