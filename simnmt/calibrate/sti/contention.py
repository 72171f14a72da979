"""How much longer computing takes while shards are read: processor and memory are shared with the disk's reads (STI-16)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from simnmt.calibrate.sti.layer_bench import LayerBench
from simnmt.costs.shard_geometry import BITS
from simnmt.elastic.pipeline import ShardReader
from simnmt.elastic.pipeline.pipeline import torch_threads

if TYPE_CHECKING:
    from simnmt.costs.sti_cost import Shard
    from simnmt.elastic.elastic_encoder import ElasticEncoder
    from simnmt.elastic.store import Packed, ShardStore

THREAD = "simnmt-reads"
COMPRESSED = BITS[:-1]
LEAST_WORK_S = 0.02
"""Of a timing: long enough for several reads."""


def slowed_by_reads(
    encoder: ElasticEncoder,
    store: ShardStore,
    shards: Mapping[Shard, Packed],
    lengths: Sequence[int],
    *,
    pace_bytes_per_s: float | None = None,
    repeats: int = 9,
    threads: int = 1,
    seed: int = 0,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, ...]:
    """Times as long as without reads, 1 or more, with 1, 2, ... shards a layer: models in memory, each timed twice; medians.

    `shards`: all of the model's at 6 bits. The reads are of compressed shards drawn at random from a cold file, at the pace if
    there is one. Narrow layers may lose more, whose buffer fits into the processor's cache. Raises `StoreError` for a damaged
    store.
    """
    drawn = random.Random(seed)
    bench, reader = LayerBench(encoder, shards, threads, clock), ShardReader(store, pace_bytes_per_s)
    records = [(shard, bits) for shard in shards for bits in COMPRESSED]
    ratios: dict[int, list[float]] = {width: [] for width in range(1, encoder.geometry.heads + 1)}
    with torch_threads(threads), torch.inference_mode():
        bench.warm_up(lengths)
        for _ in range(repeats):
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
    """Reads go on in another thread for as long as the block lasts; what they raised is raised at its end."""
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
