"""A shard store as a person reads it."""

from __future__ import annotations

from typing import Any

from simnmt.cli.tables import aligned


def store_tables(said: dict[str, Any], *, layers: bool = False) -> str:
    """What `told_of` gave, as tables; with one of layers where asked for."""
    kind = "untrained " * said["random"] + said["kind"]
    lines = [
        f"{said['model'] or 'a model'}: {kind}, {said['layers']} layers of {said['slices']} shards, width {said['width']}, "
        f"{said['ffn']} neurons; {said['weights_per_shard']:,} weights a shard",
        f"fingerprint {said['fingerprint'][:16]}",
        f"{said['records']} records, {_mb(said['shards_bytes'])} MB; always in memory {_mb(said['resident_bytes'])} MB",
    ]
    if said["outlier_share"] is not None:
        lines += [
            f"outliers {100 * said['outlier_share']:.3f} % of all weights; all below 32 bits {_mb(said['low_bits_bytes'])} MB"
        ]
    rows = [
        [
            str(each["bits"]),
            _mb(each["bytes"]),
            f"{each['shard_bytes'] / 1e3:,.1f}",
            f"{each['smaller']:.1f}",
            f"{each['rmse_over_s']:.3f}",
        ]
        for each in said["by_bits"]
    ]
    lines += ["", aligned(["bits", "MB", "kB a shard", "times smaller", "error / s"], rows, 0)]
    if layers:
        rows = [
            [
                str(each["layer"]),
                f"{each['mean']:.5f}",
                f"{each['deviation']:.5f}",
                "" if each["outlier_share"] is None else f"{100 * each['outlier_share']:.3f}",
            ]
            for each in said["by_layer"]
        ]
        lines += ["", aligned(["layer", "mean", "s", "outliers %"], rows, 0)]
    lines += [
        "",
        "error / s: root mean square of what rounding changes, in standard deviations s of a layer's weights; measured",
    ]
    return "\n".join(lines)


def _mb(count: float) -> str:
    return f"{count / 1e6:,.{1 if count >= 1e7 else 3}f}"
