"""Measure what streaming costs: cold reads by bits (T_io), layers by length and width (T_comp), decoder steps (STI-07, STI-08).

Layers have their shards in memory, and one text is computed at a time. Times depend on sizes, not on weights.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle, product
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch

from simnmt.calibrate.harness import Case, Listener, Silent, by_round, counted, rounds
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.kernels.unpack import PackedWeights
from simnmt.nmt.architecture import TransformerArchitecture
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.models import build_model
from simnmt.nmt.torch_engine import stage_timer
from simnmt.profile.execution_fit import nonnegative_line, r_squared
from simnmt.profile.streaming_block import LayerTimes, ShardReads, StiBlock, StiCompute, StiDecoder, StiIo
from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.shards import LayerBuffer, unpack_into
from simnmt.streaming.store import ShardStore

READS = 3
"""Reads of a row of shards at each bitwidth per repeat of a layer: reads vary more, and take a hundredth of the time."""
UNPACKED_BITS = 6
"""Most bits of a compressed shard: the upper bound of unpacking."""
JUDGED = 8
"""Number of whole submodels that are timed only to judge."""
SRC_LEN = 20
"""Source tokens of the timed decoder steps."""
LEAST_S = 1e-9
"""Least seconds of a layer, if noise leaves none."""
THREAD = "simnmt-reads"
MOST_BYTES_PER_S = 1e12
Clock = Callable[[], float]


def check_bits(store: ShardStore) -> None:
    """Raise `CalibrationError` if the store lacks a bitwidth that a planner could choose."""
    if lacking := [bits for bits in BITS if bits not in store.bits]:
        what = f"no shards of {', '.join(map(str, lacking))} bits"
        raise CalibrationError(what, path=store.path, remedy="shard the model again with all bitwidths")


def _measured(cases: Mapping[Any, Case], settings: StiSettings, name: str, listener: Listener, clock: Clock) -> pd.DataFrame:
    """Return the rows of the rounds, without gradients and with the threads of the settings."""
    with torch_threads(settings.threads), torch.inference_mode():
        return rounds(cases, settings.repeats, name=name, shuffle=settings.seed, clock=clock, listener=listener)


def _by_case(frame: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    return dict(list(counted(frame, every=True).groupby("case", sort=False)))


def measure_reads(reader: ShardReader, settings: StiSettings, listener: Listener = Silent) -> StiIo:
    """Read all shards of random layers, one layer after the other, from a cold file.

    A sample is the mean time of a layer's shards. As in the executor, it includes checksums, and a thread that wakes late after
    one paced read does not delay the next. Raises `StoreError` for a damaged store.
    """
    drawn, store, cold = random.Random(settings.seed), reader.store, list[bool]()
    geometry = store.geometry

    def read_layer(bits: int) -> dict[str, float]:
        layer, begin_s = drawn.randrange(geometry.layers), perf_counter()
        for piece in range(geometry.heads):
            reader.read((layer, piece), bits)
        return {"seconds": (perf_counter() - begin_s) / geometry.heads}

    def empty_cache() -> None:
        cold.append(reader.drop_cache())
        reader.begin()

    cases = {bits: Case(partial(read_layer, bits), before=empty_cache) for bits in BITS}
    times = by_round(rounds(cases, READS * settings.repeats, name="reads", shuffle=settings.seed, listener=listener))
    reads = tuple(ShardReads.of(times[bits], bits=bits, bytes=round(store.mean_size(bits))) for bits in BITS)
    return reads_block(reads, cold=all(cold), pace=settings.pace_bytes_per_s)


def reads_block(reads: tuple[ShardReads, ...], *, cold: bool, pace: float | None) -> StiIo:
    """Return the block of shard reads, with a line over the medians by relative error."""
    sizes, medians_s = np.array([read.bytes for read in reads], float), np.array([read.median_s for read in reads])
    fixed_s, s_per_byte = nonnegative_line(sizes, medians_s, 1.0 / medians_s)
    bytes_per_s = 1.0 / max(s_per_byte, 1.0 / MOST_BYTES_PER_S)
    r2 = r_squared(fixed_s + s_per_byte * sizes, medians_s)
    return StiIo(reads=reads, s_fixed=fixed_s, bytes_per_s=bytes_per_s, r2=r2, cold=cold, paced_bytes_per_s=pace)


def layer_bench(
    encoder: ElasticEncoder, shards: Mapping[Shard, PackedWeights], lengths: Sequence[int], threads: int, clock: Clock
) -> Callable[[int, int, int], dict[str, Any]]:
    """Return a function of length, width and layers that computes the bottom layers on one text, each with unpacking.

    It returns the seconds of all layers, of each layer and of its unpacking, of embedding and of classifying.
    """
    buffers = {width: LayerBuffer(encoder.geometry, width) for width in range(1, encoder.geometry.heads + 1)}
    generator = torch.Generator().manual_seed(0)
    texts = {length: torch.randint(encoder.configuration.vocabulary, (1, length), generator=generator) for length in lengths}

    def run(length: int, width: int, layers: int) -> dict[str, Any]:
        mask, slices, buffer = torch.ones((1, length), dtype=torch.bool), list(range(width)), buffers[width]
        begin_s = clock()
        hidden = encoder.embed(texts[length], mask)
        embedded_s, layer_s, unpack_s = clock(), list[float](), list[float]()
        for layer in range(layers):
            begun_s = clock()
            unpack_into(buffer, [shards[layer, piece] for piece in slices], threads=threads)
            unpack_s.append(clock() - begun_s)
            hidden = encoder.layer(hidden, mask, layer, slices, buffer)
            layer_s.append(clock() - begun_s)
        computed_s = clock()
        encoder.logits(hidden, mask)
        ends = {"embed_s": embedded_s - begin_s, "head_s": clock() - computed_s}
        return {"seconds": computed_s - embedded_s, "layer_s": layer_s, "unpack_s": unpack_s, **ends}

    return run


def measure_layers(
    encoder: ElasticEncoder,
    shards: Mapping[Shard, PackedWeights],
    reader: ShardReader,
    settings: StiSettings,
    listener: Listener = Silent,
    clock: Clock = perf_counter,
) -> StiCompute:
    """Time every width at every padded length, alone and beside reads, and whole submodels to judge the table.

    The reads (STI-16) are of random compressed shards from a cold file, and use the same processor and memory. `shards`: the
    model's at 6 bits. Raises `StoreError` for a damaged store.
    """
    run = layer_bench(encoder, shards, settings.lengths, settings.threads, clock)
    layers, widths = encoder.geometry.layers, range(1, encoder.geometry.heads + 1)
    drawn, records = random.Random(settings.seed), list(product(shards, BITS[:-1]))
    drawn.shuffle(records)

    def beside(length: int, width: int) -> dict[str, Any]:
        with _reading(reader, records):
            return run(length, width, layers)

    cells = list(product(settings.lengths, widths))
    submodels = list(product(settings.lengths, widths, range(1 + layers // 2, layers + 1)))
    judged = drawn.sample(submodels, min(JUDGED, len(submodels)))
    cases: dict[Any, Case] = {cell: Case(partial(run, *cell, layers)) for cell in cells}
    cases |= {("beside", *cell): Case(partial(beside, *cell)) for cell in cells}
    cases |= {submodel: Case(partial(run, *submodel)) for submodel in judged}
    frame = _measured(cases, settings, "layers", listener, clock)
    rows, times = _by_case(frame), by_round(frame)

    def quantile(length: int, column: str, at: float = 0.5) -> tuple[float, ...]:
        of_widths = (np.concatenate(rows[length, width][column].tolist()) for width in widths)
        return tuple(float(np.quantile(times_s, at)) for times_s in of_widths)

    table = {
        length: LayerTimes(
            length=length,
            seconds=quantile(length, "layer_s"),
            p25_s=quantile(length, "layer_s", 0.25),
            p75_s=quantile(length, "layer_s", 0.75),
            unpack_s=quantile(length, "unpack_s"),
            embed_s=float(rows[length, widths[-1]]["embed_s"].median()),
            head_s=float(rows[length, widths[-1]]["head_s"].median()),
        )
        for length in settings.lengths
    }
    off = [
        abs(depth * table[length].seconds[width - 1] / np.median(times[length, width, depth]) - 1)
        for length, width, depth in judged
    ]
    slowed = [
        np.median([times["beside", length, width] / times[length, width] for length in settings.lengths]) for width in widths
    ]
    return StiCompute(
        lengths=tuple(table.values()),
        heldout_error=float(np.mean(off)),
        slowed_by_reads=tuple(max(1.0, float(factor)) for factor in slowed),
    )


@contextmanager
def _reading(reader: ShardReader, records: Sequence[tuple[Shard, int]]) -> Iterator[None]:
    """Read in another thread while the block runs; raise the exception of a read at its end."""
    stopped = threading.Event()

    def read() -> None:
        for shard, bits in cycle(records):
            reader.read(shard, bits)
            if stopped.is_set():
                return

    reader.drop_cache()
    reader.begin()
    with ThreadPoolExecutor(1, THREAD) as pool:
        job = pool.submit(read)
        try:
            yield
        finally:
            stopped.set()
        job.result()


def measure_decoder(
    model: TransformerArchitecture,
    block: StiBlock,
    crossed: ShardGeometry,
    reads: tuple[ShardReads, ...],
    settings: StiSettings,
    listener: Listener = Silent,
) -> tuple[StiDecoder, float]:
    """Time a whole decoder step with random weights, and choosing a token; infer the rest from the layers of the encoder.

    A step of fewer shards takes the share of a whole step that an encoder layer of so many shards takes of a whole layer; keys
    and values of the source take the share of their weights. Also returns the seconds in which one layer computes them for one
    source token. `reads`: of a shard of the decoder, whose geometry is `crossed`.
    """
    timer = stage_timer(build_model(model, seed=settings.seed).eval(), 1, 1, src_len=SRC_LEN)
    stages_s = counted(_measured({"step": Case(timer)}, settings, "decoder steps", listener, perf_counter)).median(
        numeric_only=True
    )
    shortest, geometry = block.compute.lengths[0], block.geometry
    unpack_s = np.array(shortest.unpack_s or [0.0])
    layer_s = np.maximum(np.array(shortest.seconds) - unpack_s, LEAST_S)
    step_s = stages_s["body"] / crossed.layers * layer_s / layer_s[-1]
    source_s = layer_s / shortest.length * geometry.width / (2 * geometry.width + geometry.ffn)
    once_s = SRC_LEN * source_s + unpack_s * crossed.weights_per_shard / geometry.weights_per_shard
    decoder = StiDecoder(
        layers=crossed.layers,
        reads=reads,
        step_s=tuple(step_s.tolist()),
        once_s=tuple(once_s.tolist()),
        output_s=float(stages_s["product"] + max(stages_s["bias"], 0.0) + stages_s["search"]),
    )
    return decoder, float(source_s[-1])
