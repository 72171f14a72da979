"""T_comp: unpacking m shards at 6 bits and the forward pass of their layer, by padded length and m (STI-08)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from simnmt.costs.sti_block import LayerTimes, StiCompute
from simnmt.elastic.pipeline.pipeline import torch_threads
from simnmt.elastic.pipeline.unpacking import unpack_into
from simnmt.elastic.shard_layout import LayerBuffer

if TYPE_CHECKING:
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import Packed

BITS = 6
"""As many as a compressed shard has at most: the upper bound of unpacking."""
JUDGED = 8
"""Whole submodels that are timed only to judge, each `JUDGED_REPEATS` times."""
JUDGED_REPEATS = 3
LEAST_REPEATS = 3
Shard = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Timing:
    total_s: float
    unpack_s: float


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

    `shards`: all of the model's at 6 bits, in memory. Every round visits all cells in an order of its own, and each cell takes
    another layer than before: weights must come from memory, as they do where one layer follows another. `progress(done,
    total)` in timings.
    """
    drawn = random.Random(seed)
    bench = _Bench(encoder, shards, threads, clock)
    slices = encoder.geometry.heads
    cells = [(length, width) for length in lengths for width in range(1, slices + 1)]
    found: dict[tuple[int, int], list[_Timing]] = {cell: [] for cell in cells}
    ends_s: dict[int, list[tuple[float, float]]] = {length: [] for length in lengths}
    deep = range(1 + encoder.geometry.layers // 2, encoder.geometry.layers + 1)
    submodels = [(*cell, layers) for cell in cells for layers in deep]
    judged = drawn.sample(submodels, min(JUDGED, len(submodels)))
    total, done = repeats * len(cells) + len(judged) * JUDGED_REPEATS, 0
    with torch_threads(threads), torch.inference_mode():
        bench.warm_up(lengths)
        for _ in range(repeats):
            drawn.shuffle(cells)
            for length, width in cells:
                found[length, width].append(bench.layer(length, width, drawn.randrange(encoder.geometry.layers)))
                done += 1
                if progress is not None:
                    progress(done, total)
            for length in lengths:
                ends_s[length].append(bench.ends_s(length))
        runs: dict[tuple[int, int, int], list[float]] = {submodel: [] for submodel in judged}
        for submodel in judged * JUDGED_REPEATS:
            runs[submodel].append(bench.submodel_s(*submodel))
            done += 1
            if progress is not None:
                progress(done, total)
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
        heldout_how=f"{len(off)} whole submodels in memory, timed {JUDGED_REPEATS} times each after the table",
    )


def _times(length: int, by_width: Sequence[Sequence[_Timing]], ends_s: Sequence[tuple[float, float]]) -> LayerTimes:
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


class _Bench:
    """An encoder with its shards in memory and one working buffer for each width."""

    def __init__(
        self, encoder: ElasticEncoder, shards: Mapping[Shard, Packed], threads: int, clock: Callable[[], float]
    ) -> None:
        self._encoder, self._shards, self._threads, self._clock = encoder, shards, threads, clock
        self._buffers: dict[int, LayerBuffer] = {}
        self._texts: dict[int, tuple[Tensor, Tensor, Tensor]] = {}

    def warm_up(self, lengths: Sequence[int]) -> None:
        """Libraries load and pages appear at the first call of each kind."""
        for length in lengths:
            self.ends_s(length)
            for width in range(1, self._encoder.geometry.heads + 1):
                self.layer(length, width, 0)

    def layer(self, length: int, width: int, layer: int) -> _Timing:
        """One layer of one text, all of it tokens."""
        _, mask, hidden = self._text(length)
        return self._run(hidden, mask, width, layer)[1]

    def submodel_s(self, length: int, width: int, layers: int) -> float:
        """The bottom layers one after the other."""
        _, mask, hidden = self._text(length)
        begin_s = self._clock()
        for layer in range(layers):
            hidden, _ = self._run(hidden, mask, width, layer)
        return self._clock() - begin_s

    def ends_s(self, length: int) -> tuple[float, float]:
        """Embedding, and classifying."""
        token_ids, mask, hidden = self._text(length)
        begin_s = self._clock()
        self._encoder.embed(token_ids, mask)
        embedded_s = self._clock()
        self._encoder.logits(hidden, mask)
        return embedded_s - begin_s, self._clock() - embedded_s

    def _run(self, hidden: Tensor, mask: Tensor, width: int, layer: int) -> tuple[Tensor, _Timing]:
        buffer = self._buffers.get(width)
        if buffer is None:
            buffer = self._buffers[width] = LayerBuffer(self._encoder.geometry, width)
        slices = tuple(range(width))
        begin_s = self._clock()
        unpack_into(buffer, [self._shards[layer, slice_] for slice_ in slices], threads=self._threads)
        unpacked_s = self._clock()
        hidden = self._encoder.layer(hidden, mask, layer, slices, buffer)
        end_s = self._clock()
        return hidden, _Timing(end_s - begin_s, unpacked_s - begin_s)

    def _text(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        if length not in self._texts:
            vocabulary = self._encoder.configuration.vocabulary
            generator = torch.Generator().manual_seed(length)
            token_ids = torch.randint(vocabulary, (1, length), generator=generator)
            mask = torch.ones((1, length), dtype=torch.bool)
            self._texts[length] = (token_ids, mask, self._encoder.embed(token_ids, mask))
        return self._texts[length]
