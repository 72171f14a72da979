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
from torch import Tensor
from torch.nn import functional

from simnmt.calibrate.disk import mount_of
from simnmt.calibrate.harness import Case, Listener, Silent, by_round, counted, rounds
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.kernels.unpack import PackedWeights, unpack
from simnmt.nmt.devices import torch_threads
from simnmt.profile.execution_fit import nonnegative_line, r_squared
from simnmt.profile.streaming_block import LayerTimes, ShardReads, StiCompute, StiDecoder, StiIo
from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.shards import LayerBuffer, aligned_bytes, unpack_into
from simnmt.streaming.store import ShardStore

READS = 3
"""Reads of a row of shards at each bitwidth per repeat of a layer: reads vary more, and take a hundredth of the time."""
UNPACKED_BITS = 6
"""Most bits of a compressed shard: the upper bound of unpacking."""
JUDGED = 8
"""Number of whole submodels that are timed only to judge."""
SRC_LEN, TGT_LEN = 20, 20
"""Source tokens of the timed decoder steps, and target tokens before them."""
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
    mount = mount_of(store.path)
    in_memory = mount is not None and (mount.is_memory or mount.has_own_cache)
    reads = tuple(ShardReads.of(times[bits], bits=bits, bytes=round(store.mean_size(bits))) for bits in BITS)
    return reads_block(reads, cold=all(cold) and not in_memory, pace=settings.pace_bytes_per_s)


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


class DecoderLayers:
    """All layers of a decoder at one width with random weights, and the cache of one sentence.

    A slice is a head of self-attention and of attention to the source, with its share of the feed-forward neurons.
    """

    def __init__(self, geometry: ShardGeometry, slices: int, positions: int, *, seed: int = 0) -> None:
        """Draw the layers, with a cache for up to `positions` tokens; every matrix is [rows, width]."""
        self._slices, self._head = slices, geometry.width // geometry.heads
        drawn, width = torch.Generator().manual_seed(seed), geometry.width
        attention, neurons = slices * self._head, slices * geometry.ffn // geometry.heads
        rows = {"qkv": 3 * attention, "o": attention, "source_q": attention, "source_kv": 2 * attention}
        rows |= {"source_o": attention, "ffn_in": neurons, "ffn_out": neurons}
        self.layers = [
            {name: torch.randn((count, width), generator=drawn).mul_(width**-0.5) for name, count in rows.items()}
            for _ in range(geometry.layers)
        ]
        self._biases = torch.zeros(width + max(rows.values()))
        self._cache = torch.randn((geometry.layers, 2, slices, positions, self._head), generator=drawn)
        self._source: list[Tensor] = []

    def read_source(self, source: Tensor) -> None:
        """Compute keys and values of an encoded source [1, l, d], once per sentence."""
        both = (self._linear(source[0], layer["source_kv"]) for layer in self.layers)
        self._source = [rows.view(len(rows), 2, self._slices, self._head).permute(1, 2, 0, 3) for rows in both]

    def step(self, hidden: Tensor, position: int) -> Tensor:
        """Compute all layers for one token's vector [1, d] after `position` tokens; return the vector."""
        for layer, cache, source in zip(self.layers, self._cache, self._source, strict=True):
            heads = self._linear(hidden, layer["qkv"]).view(3, self._slices, self._head)
            query, cache[0, :, position], cache[1, :, position] = heads
            hidden = self._added(hidden, self._mixed(query, *cache[:, :, : position + 1]), layer["o"])
            query = self._linear(hidden, layer["source_q"]).view(self._slices, self._head)
            hidden = self._added(hidden, self._mixed(query, *source), layer["source_o"])
            hidden = self._added(hidden, functional.relu(self._linear(hidden, layer["ffn_in"])), layer["ffn_out"])
        return hidden

    def _linear(self, read: Tensor, weight: Tensor) -> Tensor:
        return functional.linear(read, weight, self._biases[: len(weight)])

    def _mixed(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention's result, [1, slices x head size]."""
        score = torch.bmm(keys, query[:, :, None])[:, :, 0] * self._head**-0.5
        return torch.bmm(score.softmax(1)[:, None, :], values).view(1, -1)

    def _added(self, hidden: Tensor, mixed: Tensor, out: Tensor) -> Tensor:
        hidden = hidden + torch.addmm(self._biases[: hidden.shape[1]], mixed, out)
        return functional.layer_norm(hidden, hidden.shape[1:])


def measure_decoder(
    geometry: ShardGeometry, reads: tuple[ShardReads, ...], vocabulary: int, settings: StiSettings, listener: Listener = Silent
) -> tuple[StiDecoder, float]:
    """Time a decoder step at each width, and choosing one of `vocabulary` tokens.

    The time of all layers, with weights from memory, is divided by their number. Also returns the seconds in which one layer
    computes keys and values of one source token. `reads`: of a shard.
    """
    widths, size = range(1, geometry.heads + 1), geometry.weights_per_shard
    shard = PackedWeights.random(UNPACKED_BITS, size, seed=settings.seed)
    room = aligned_bytes(geometry.float32_bytes_per_layer).view(np.float32)
    layers = {width: DecoderLayers(geometry, width, TGT_LEN + 1, seed=settings.seed) for width in widths}
    hidden, source = torch.randn((1, geometry.width)), torch.randn((1, SRC_LEN, geometry.width))
    embedding = torch.randn((vocabulary, geometry.width)) * geometry.width**-0.5

    def sentence(width: int) -> dict[str, float]:
        begin_s = perf_counter()
        layers[width].read_source(source)
        source_s = perf_counter()
        layers[width].step(hidden, TGT_LEN)
        step_s = perf_counter()
        for place in range(width):
            unpack(shard, room, [(0, place * size, size)])
        of_source_s, unpack_s = (source_s - begin_s) / geometry.layers, perf_counter() - step_s
        return {"step_s": (step_s - source_s) / geometry.layers, "source_s": of_source_s, "once_s": of_source_s + unpack_s}

    def output() -> object:
        return functional.embedding((hidden @ embedding.T).argmax(1), embedding)

    cases: dict[Any, Case] = {width: Case(partial(sentence, width)) for width in widths}
    rows = _by_case(_measured(cases | {"output": Case(output)}, settings, "decoder steps", listener, perf_counter))

    def median(column: str) -> tuple[float, ...]:
        return tuple(float(rows[width][column].median()) for width in widths)

    output_s = float(rows["output"]["seconds"].median())
    block = StiDecoder(layers=geometry.layers, reads=reads, step_s=median("step_s"), once_s=median("once_s"), output_s=output_s)
    return block, median("source_s")[-1] / SRC_LEN
