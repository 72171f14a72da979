"""Unpacking by the kernel, by torch, and by numba where it is installed (STI-06): `python -m benchmarks.sti_unpack`."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from simnmt.kernels.bench_cases import SHARD_WEIGHTS, torch_unpack_runs, unpack_run
from simnmt.kernels.measurement import Run, Times, interleaved, library_threads
from simnmt.kernels.native_library import level_name
from simnmt.kernels.unpack import PACKED_BITS, PackedWeights
from simnmt.profile.streaming_cost import BERT_BASE
from simnmt.streaming.shards import LayerBuffer, Packed, unpack_into

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
        runs |= {f"{bits} {name}": run for name, run in torch_unpack_runs(drawn, torch.from_numpy(out)).items()}
        if loop is not None:
            runs[f"{bits} numba"] = _bound(loop, drawn, out)
    with library_threads(1):
        times = interleaved(runs, rounds, warm=True)
    for bits in PACKED_BITS:
        others = [name for name in runs if name.startswith(f"{bits} ") and "ours" not in name]
        best = min(others, key=times.median_s)
        rows.append(_row(times, bits, best, others))
    return {
        "level": level_name(),
        "numba": loop is not None,
        "weights": weights,
        "by_bits": rows,
        "least_ratio": min(row["ratio"] for row in rows),
        "six_over_two": times.ratio("2 ours", "6 ours"),
        "two_threads": _two_threads(rounds),
    }


def _two_threads(rounds: int) -> float:
    """Times as fast as one, on a layer of BERT's base size at 6 bits."""
    buffer = LayerBuffer(BERT_BASE, BERT_BASE.heads)
    weights = BERT_BASE.weights_per_shard
    shards = [Packed.random(6, weights, layer=0, slice=index) for index in range(BERT_BASE.heads)]
    times = interleaved({str(n): partial(unpack_into, buffer, shards, threads=n) for n in (1, 2)}, rounds, warm=True)
    return times.ratio("1", "2")


def _bound(loop: Callable[..., None], drawn: PackedWeights, out: Any) -> Run:
    return lambda: loop(drawn.codes, drawn.bits, drawn.centroids, drawn.outlier_at, drawn.outlier_values, out)


def _row(times: Times, bits: int, best: str, others: list[str]) -> dict[str, Any]:
    ours = f"{bits} ours"
    return {
        "bits": bits,
        "ours_us": 1e6 * times.median_s(ours),
        "others_us": {name.split(" ", 1)[1]: 1e6 * times.median_s(name) for name in others},
        "best": best.split(" ", 1)[1],
        "ratio": times.ratio(best, ours),
    }


if __name__ == "__main__":
    print(json.dumps(unpacking(), indent=1))
