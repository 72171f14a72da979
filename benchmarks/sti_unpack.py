"""Unpacking by the kernel, by torch, and by numba where it is installed (STI-06): `python -m benchmarks.sti_unpack`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from pandas import DataFrame

from simnmt.calibrate import harness
from simnmt.kernels.native_library import processor
from simnmt.kernels.registry import Run
from simnmt.kernels.unpack import PACKED_BITS, SHARD_WEIGHTS, PackedWeights, torch_unpack_run, unpack_run
from simnmt.nmt.devices import library_threads
from simnmt.profile.streaming_cost import BERT_BASE
from simnmt.streaming.shards import LayerBuffer, unpack_into

ROUNDS = 15


def numbas() -> Callable[..., None] | None:
    """A plain loop, compiled; None where numba is not installed."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(fastmath=True)  # type: ignore[untyped-decorator]
    def loop(codes: Any, bits: int, centroids: Any, outlier_at: Any, outlier_values: Any, out: Any) -> None:
        mask = (1 << bits) - 1
        for eight in range(out.size // 8):
            word = np.uint64(0)
            for byte in range(bits):
                word |= np.uint64(codes[eight * bits + byte]) << np.uint64(8 * byte)
            for i in range(8):
                out[8 * eight + i] = centroids[(word >> np.uint64(bits * i)) & np.uint64(mask)]
        for i in range(outlier_at.size):
            out[outlier_at[i]] = outlier_values[i]

    return loop  # type: ignore[no-any-return]


def unpacking(rounds: int = ROUNDS, weights: int = SHARD_WEIGHTS) -> dict[str, Any]:
    """Times and ratios of a shard by bits, one thread; and what two threads gain on a layer."""
    loop, out = numbas(), np.zeros(weights, np.float32)
    rows = []
    runs: dict[str, Run] = {}
    for bits in PACKED_BITS:
        drawn = PackedWeights.random(bits, weights)
        runs[f"{bits} ours"] = unpack_run(drawn, out)
        runs[f"{bits} torch"] = torch_unpack_run(drawn, torch.from_numpy(out))
        if loop is not None:
            runs[f"{bits} numba"] = _bound(loop, drawn, out)
    with library_threads(1):
        frame = _timed(runs, rounds)
    median_s = {name: float(np.median(times_s)) for name, times_s in harness.by_round(frame).items()}
    for bits in PACKED_BITS:
        ours, others = f"{bits} ours", [name for name in runs if name.startswith(f"{bits} ") and "ours" not in name]
        best = min(others, key=median_s.__getitem__)
        rows.append(
            {
                "bits": bits,
                "ours_us": 1e6 * median_s[ours],
                "others_us": {name.split(" ", 1)[1]: 1e6 * median_s[name] for name in others},
                "best": best.split(" ", 1)[1],
                "ratio": harness.ratio(frame, best, ours).value,
            }
        )
    return {
        "processor": processor(),
        "numba": loop is not None,
        "weights": weights,
        "by_bits": rows,
        "least_ratio": min(row["ratio"] for row in rows),
        "six_over_two": harness.ratio(frame, "2 ours", "6 ours").value,
        "two_threads": _two_threads(rounds),
    }


def _two_threads(rounds: int) -> float:
    """Times as fast as one, on a layer of BERT's base size at 6 bits."""
    buffer = LayerBuffer(BERT_BASE, BERT_BASE.heads)
    weights = BERT_BASE.weights_per_shard
    shards = [PackedWeights.random(6, weights, seed=1 + index) for index in range(BERT_BASE.heads)]
    frame = _timed({str(n): partial(unpack_into, buffer, shards, threads=n) for n in (1, 2)}, rounds)
    return harness.ratio(frame, "1", "2").value


def _timed(runs: dict[str, Run], rounds: int) -> DataFrame:
    return harness.rounds({name: harness.Case(run, warm=True) for name, run in runs.items()}, rounds, least_s=0.1)


def _bound(loop: Callable[..., None], drawn: PackedWeights, out: Any) -> Run:
    return lambda: loop(drawn.codes, drawn.bits, drawn.centroids, drawn.outlier_at, drawn.outlier_values, out)


if __name__ == "__main__":
    print(json.dumps(unpacking(), indent=1))
