"""T_comp: unpacking m shards at 6 bits and the forward pass of their layer, by padded length and m (STI-08)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch

from simnmt.calibrate.sti.layer_bench import LayerBench, LayerTiming
from simnmt.costs.sti_block import LayerTimes, StiCompute
from simnmt.elastic.pipeline.pipeline import torch_threads

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import Shard
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import Packed

UNPACKED_BITS = 6
"""As many as a compressed shard has at most: the upper bound of unpacking."""
JUDGED = 8
"""Whole submodels that are timed only to judge."""


def measure_layers(
    encoder: ElasticEncoder,
    shards: Mapping[Shard, Packed],
    lengths: Sequence[int],
    *,
    repeats: int = 9,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> StiCompute:
    """Time every width at every padded length, one text at a time, and whole submodels to judge the table by.

    `shards`: all of the model's at 6 bits, in memory. Every round visits all of them in an order of its own, and times each
    layer of a whole model of a width: as in a pipeline, shards come from memory and their buffer from the layer before.
    `progress(done, total)` in models.
    """
    drawn = random.Random(seed)
    bench = LayerBench(encoder, shards, threads, clock)
    slices = encoder.geometry.heads
    cells = [(length, width) for length in lengths for width in range(1, slices + 1)]
    found: dict[tuple[int, int], list[LayerTiming]] = {cell: [] for cell in cells}
    ends_s: dict[int, list[tuple[float, float]]] = {length: [] for length in lengths}
    deep = range(1 + encoder.geometry.layers // 2, encoder.geometry.layers + 1)
    submodels = [(*cell, layers) for cell in cells for layers in deep]
    judged = drawn.sample(submodels, min(JUDGED, len(submodels)))
    runs: dict[tuple[int, int, int], list[float]] = {submodel: [] for submodel in judged}
    total, done = repeats * (len(cells) + len(judged)), 0
    with torch_threads(threads), torch.inference_mode():
        bench.warm_up(lengths)
        for _ in range(repeats):
            work = [*((length, width, None) for length, width in cells), *judged]
            drawn.shuffle(work)
            for length, width, layers in work:
                if layers is None:
                    found[length, width] += bench.layers(length, width, encoder.geometry.layers)
                else:
                    runs[length, width, layers].append(bench.submodel_s(length, width, layers))
                done += 1
                if progress is not None:
                    progress(done, total)
            for length in lengths:
                ends_s[length].append(bench.ends_s(length))
    table = tuple(
        _times(length, [found[length, width] for width in range(1, slices + 1)], ends_s[length]) for length in lengths
    )
    by_length = {each.length: each.seconds for each in table}
    off = [
        abs(layers * by_length[length][width - 1] / float(np.median(own)) - 1) for (length, width, layers), own in runs.items()
    ]
    return StiCompute(
        lengths=table,
        repeats=repeats,
        heldout_error=float(np.mean(off)),
        heldout_how=f"{len(off)} whole submodels in memory, timed in the same rounds for this alone",
    )


def _times(length: int, by_width: Sequence[Sequence[LayerTiming]], ends_s: Sequence[tuple[float, float]]) -> LayerTimes:
    totals = [[each.total_s for each in timings] for timings in by_width]

    def quantile(share: float) -> tuple[float, ...]:
        return tuple(float(np.quantile(own, share)) for own in totals)

    return LayerTimes(
        length=length,
        seconds=quantile(0.5),
        p25_s=quantile(0.25),
        p75_s=quantile(0.75),
        p95_s=quantile(0.95),
        unpack_s=tuple(float(np.median([each.unpack_s for each in timings])) for timings in by_width),
        embed_s=float(np.median([embed_s for embed_s, _ in ends_s])),
        head_s=float(np.median([head_s for _, head_s in ends_s])),
    )
