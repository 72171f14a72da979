"""Measure T_comp, the time to unpack and compute a layer by padded length and width, alone and during reads (STI-08, STI-16).

All shards are in memory, and one text is computed at a time. Disk reads use the same processor and memory as computing, so
layers take longer while shards are read.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from simnmt.calibrate.settings import StiSettings
from simnmt.nmt.devices import torch_threads
from simnmt.profile.streaming_block import LayerTimes, StiCompute
from simnmt.profile.streaming_cost import BITS
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.shards import LayerBuffer, unpack_into

if TYPE_CHECKING:
    from simnmt.profile.streaming_cost import Shard
    from simnmt.streaming.encoder import ElasticEncoder
    from simnmt.streaming.shards import Packed
    from simnmt.streaming.store import ShardStore


Progress = Callable[[int, int, str], None]
"""Receives the number of finished items, of all items, and the present activity."""


def no_progress(done: int, total: int, activity: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class LayerTiming:
    """Seconds of one layer for one text."""

    total_s: float
    unpack_s: float


@dataclass
class LayerBench:
    """An encoder with its shards in memory and one working buffer for each width."""

    _encoder: ElasticEncoder
    _shards: Mapping[Shard, Packed]
    _threads: int
    _clock: Callable[[], float]
    _buffers: dict[int, LayerBuffer] = field(default_factory=dict)
    _texts: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)

    def warm_up(self, lengths: Sequence[int]) -> None:
        """Run everything once: the first call of each kind loads libraries and maps pages."""
        for length in lengths:
            self.ends_s(length)
            for width in range(1, self._encoder.geometry.heads + 1):
                self.layers(length, width, 1)

    def layers(self, length: int, width: int, layers: int) -> list[LayerTiming]:
        """Time each of the bottom layers, one after the other, on one text without padding."""
        _, mask, hidden = self._text(length)
        timings = []
        for layer in range(layers):
            hidden, timing = self._run(hidden, mask, width, layer)
            timings.append(timing)
        return timings

    def submodel_s(self, length: int, width: int, layers: int) -> float:
        """Return the seconds of the bottom layers as a whole."""
        begin_s = self._clock()
        self.layers(length, width, layers)
        return self._clock() - begin_s

    def submodels_s(self, length: int, width: int, least_s: float) -> float:
        """Return the mean seconds of a pass through all layers, repeated for at least `least_s`."""
        begin_s, passes = self._clock(), 0
        while (taken_s := self._clock() - begin_s) < least_s or not passes:
            self.submodel_s(length, width, self._encoder.geometry.layers)
            passes += 1
        return taken_s / passes

    def ends_s(self, length: int) -> tuple[float, float]:
        """Return the seconds of embedding and of classifying."""
        token_ids, mask, hidden = self._text(length)
        begin_s = self._clock()
        self._encoder.embed(token_ids, mask)
        embedded_s = self._clock()
        self._encoder.logits(hidden, mask)
        return embedded_s - begin_s, self._clock() - embedded_s

    def _run(self, hidden: Tensor, mask: Tensor, width: int, layer: int) -> tuple[Tensor, LayerTiming]:
        buffer = self._buffers.get(width)
        if buffer is None:
            buffer = self._buffers[width] = LayerBuffer(self._encoder.geometry, width)
        slices = tuple(range(width))
        begin_s = self._clock()
        unpack_into(buffer, [self._shards[layer, slice_] for slice_ in slices], threads=self._threads)
        unpacked_s = self._clock()
        hidden = self._encoder.layer(hidden, mask, layer, slices, buffer)
        end_s = self._clock()
        return hidden, LayerTiming(end_s - begin_s, unpacked_s - begin_s)

    def _text(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        if length not in self._texts:
            vocabulary = self._encoder.configuration.vocabulary
            generator = torch.Generator().manual_seed(length)
            token_ids = torch.randint(vocabulary, (1, length), generator=generator)
            mask = torch.ones((1, length), dtype=torch.bool)
            self._texts[length] = (token_ids, mask, self._encoder.embed(token_ids, mask))
        return self._texts[length]


UNPACKED_BITS = 6
"""Most bits of a compressed shard: the upper bound of unpacking."""
JUDGED = 8
"""Number of whole submodels that are timed only to judge."""


def measure_layers(
    encoder: ElasticEncoder,
    shards: Mapping[Shard, Packed],
    settings: StiSettings,
    progress: Progress = no_progress,
    clock: Callable[[], float] = perf_counter,
) -> StiCompute:
    """Time every width at every padded length, one text at a time, and whole submodels to judge the table.

    `shards`: all shards of the model at 6 bits, in memory. Each round visits all widths and lengths in a new random order, and
    times each layer of a whole model: as in a pipeline, shards come from memory and the buffer from the layer before.
    `progress` counts models.
    """
    drawn, lengths, repeats = random.Random(settings.seed), settings.lengths, settings.repeats
    bench = LayerBench(encoder, shards, settings.threads, clock)
    slices = encoder.geometry.heads
    cells = [(length, width) for length in lengths for width in range(1, slices + 1)]
    timings: dict[tuple[int, int], list[LayerTiming]] = {cell: [] for cell in cells}
    ends_s: dict[int, list[tuple[float, float]]] = {length: [] for length in lengths}
    deep = range(1 + encoder.geometry.layers // 2, encoder.geometry.layers + 1)
    submodels = [(*cell, layers) for cell in cells for layers in deep]
    judged = drawn.sample(submodels, min(JUDGED, len(submodels)))
    runs: dict[tuple[int, int, int], list[float]] = {submodel: [] for submodel in judged}
    total, done = repeats * (len(cells) + len(judged)), 0
    with torch_threads(settings.threads), torch.inference_mode():
        bench.warm_up(lengths)
        for _ in range(repeats):
            work = [*((length, width, None) for length, width in cells), *judged]
            drawn.shuffle(work)
            for length, width, layers in work:
                if layers is None:
                    timings[length, width] += bench.layers(length, width, encoder.geometry.layers)
                else:
                    runs[length, width, layers].append(bench.submodel_s(length, width, layers))
                done += 1
                progress(done, total, "computing layers")
            for length in lengths:
                ends_s[length].append(bench.ends_s(length))
    table = tuple(
        _times(length, [timings[length, width] for width in range(1, slices + 1)], ends_s[length]) for length in lengths
    )
    by_length = {row.length: row.seconds for row in table}
    off = [
        abs(layers * by_length[length][width - 1] / float(np.median(measured_s)) - 1)
        for (length, width, layers), measured_s in runs.items()
    ]
    return StiCompute(
        lengths=table,
        repeats=repeats,
        heldout_error=float(np.mean(off)),
        heldout_how=f"{len(off)} whole submodels in memory, timed in the same rounds only for this",
    )


def _times(length: int, by_width: Sequence[Sequence[LayerTiming]], ends_s: Sequence[tuple[float, float]]) -> LayerTimes:
    totals = [[timing.total_s for timing in timings] for timings in by_width]

    def quantile(share: float) -> tuple[float, ...]:
        return tuple(float(np.quantile(totals_s, share)) for totals_s in totals)

    return LayerTimes(
        length=length,
        seconds=quantile(0.5),
        p25_s=quantile(0.25),
        p75_s=quantile(0.75),
        p95_s=quantile(0.95),
        unpack_s=tuple(float(np.median([timing.unpack_s for timing in timings])) for timings in by_width),
        embed_s=float(np.median([embed_s for embed_s, _ in ends_s])),
        head_s=float(np.median([head_s for _, head_s in ends_s])),
    )


THREAD = "simnmt-reads"
COMPRESSED = BITS[:-1]
LEAST_WORK_S = 0.02
"""Least seconds of a timing: long enough for several reads."""


def slowed_by_reads(
    encoder: ElasticEncoder,
    store: ShardStore,
    shards: Mapping[Shard, Packed],
    settings: StiSettings,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, ...]:
    """Return the factors by which reads slow layers of 1, 2, ... shards, at least 1; medians over models timed twice.

    `shards`: all shards of the model at 6 bits, in memory. The reads are of random compressed shards from a cold file, at the
    pace if there is one. Narrow layers, whose buffer fits into the processor's cache, may lose more. Raises `StoreError` for
    a damaged store.
    """
    drawn, lengths = random.Random(settings.seed), settings.lengths
    bench, reader = LayerBench(encoder, shards, settings.threads, clock), ShardReader(store, settings.pace_bytes_per_s)
    records = [(shard, bits) for shard in shards for bits in COMPRESSED]
    ratios: dict[int, list[float]] = {width: [] for width in range(1, encoder.geometry.heads + 1)}
    with torch_threads(settings.threads), torch.inference_mode():
        bench.warm_up(lengths)
        for _ in range(settings.repeats):
            cells = [(length, width) for length in lengths for width in ratios]
            drawn.shuffle(cells)
            for length, width in cells:
                drawn.shuffle(records)
                alone_s = bench.submodels_s(length, width, LEAST_WORK_S)
                with _reading(reader, records):
                    beside_s = bench.submodels_s(length, width, LEAST_WORK_S)
                ratios[width].append(beside_s / alone_s)
    return tuple(max(1.0, median(ratios[width])) for width in ratios)


@contextmanager
def _reading(reader: ShardReader, records: Sequence[tuple[Shard, int]]) -> Iterator[None]:
    """Read in another thread while the block runs; raise the exception of a read at its end."""
    begun, stopped = threading.Event(), threading.Event()

    def read() -> None:
        try:
            while not stopped.is_set():
                reader.drop_cache()
                reader.begin()
                begun.set()
                for shard, bits in records:
                    reader.read(shard, bits)
                    if stopped.is_set():
                        break
        finally:
            begun.set()

    with ThreadPoolExecutor(1, THREAD) as pool:
        job = pool.submit(read)
        begun.wait()
        try:
            yield
        finally:
            stopped.set()
        job.result()
