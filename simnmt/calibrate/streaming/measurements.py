"""Measure what streaming costs: cold reads by bits (T_io), layers by length and width (T_comp), decoder steps (STI-07, STI-08).

Layers have their shards in memory, and one text is computed at a time. Disk reads use the same processor and memory as
computing, so layers take longer while shards are read (STI-16). Times depend on sizes, not on weights.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from simnmt.calibrate.disk import mount_of
from simnmt.calibrate.fits import fit_disk
from simnmt.calibrate.harness import Case, Listener, Silent, by_round, counted, rounds
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.kernels.unpack import OUTLIER_SHARE, PackedWeights, unpack
from simnmt.nmt.devices import torch_threads
from simnmt.profile.streaming_block import LayerTimes, ShardReads, StiCompute, StiDecoder, StiIo
from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.shards import LayerBuffer, aligned_bytes, record_size, unpack_into
from simnmt.streaming.store import ShardStore

READS = 3
"""Reads of a row of shards at each bitwidth per repeat of a layer: reads vary more, and take a hundredth of the time."""
UNPACKED_BITS = 6
"""Most bits of a compressed shard: the upper bound of unpacking."""
JUDGED = 8
"""Number of whole submodels that are timed only to judge."""
LEAST_WORK_S = 0.02
"""Least seconds of a timing beside reads: long enough for several reads."""
SRC_LEN, TGT_LEN = 20, 20
"""Source tokens of the timed decoder steps, and target tokens before them."""
THREAD = "simnmt-reads"
Clock = Callable[[], float]


def check_bits(store: ShardStore) -> None:
    """Raise `CalibrationError` if the store lacks a bitwidth that a planner could choose."""
    if lacking := [bits for bits in BITS if bits not in store.bits]:
        what = f"no shards of {', '.join(map(str, lacking))} bits"
        raise CalibrationError(what, path=store.path, remedy="shard the model again with all bitwidths")


def _rows(frame: pd.DataFrame) -> dict[Any, pd.DataFrame]:
    """Return the rows that count by case."""
    return dict(list(counted(frame, every=True).groupby("case", sort=False)))


def measure_reads(store: ShardStore, settings: StiSettings, listener: Listener = Silent) -> StiIo:
    """Read all shards of random layers, one layer after the other, from a cold file.

    A sample is the mean time of a layer's shards. As in the executor, it includes checksums, and a thread that wakes late after
    one paced read does not delay the next. Raises `StoreError` for a damaged store.
    """
    drawn, reader = random.Random(settings.seed), ShardReader(store, settings.pace_bytes_per_s)
    geometry, cold = store.geometry, list[bool]()

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
    sizes = {bits: round(store.mean_size(bits)) for bits in BITS}
    read_s = {bits: times[bits].tolist() for bits in BITS}
    pace = settings.pace_bytes_per_s
    return reads_block(sizes, read_s, cold=all(cold) and not in_memory, pace=pace)


def shard_reads(sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]]) -> tuple[ShardReads, ...]:
    """Return the reads of a profile, by bits; `sizes`: bytes by bits."""
    return tuple(ShardReads.of(read_s[bits], bits=bits, bytes=sizes[bits]) for bits in BITS)


def reads_block(sizes: Mapping[int, int], read_s: Mapping[int, Sequence[float]], *, cold: bool, pace: float | None) -> StiIo:
    """Return the block of shard reads, with a line over the medians; R2 is None where larger shards took no longer."""
    try:
        line = fit_disk({sizes[bits]: read_s[bits] for bits in BITS}, cold=cold)
        fixed_s, bytes_per_s, r2 = line.s_fixed, line.bytes_per_s, line.r2
    except ValueError:
        times_s = np.concatenate([read_s[bits] for bits in BITS])
        total_bytes = sum(sizes[bits] * len(read_s[bits]) for bits in BITS)
        fixed_s, bytes_per_s, r2 = float(times_s.mean()), total_bytes / float(times_s.sum()), None
    return StiIo(
        reads=shard_reads(sizes, read_s),
        s_fixed=fixed_s,
        bytes_per_s=bytes_per_s,
        r2=r2,
        cold=cold,
        paced_bytes_per_s=pace,
    )


class LayerBench:
    """An encoder with all its shards at 6 bits in memory, and one working buffer for each width."""

    def __init__(self, encoder: ElasticEncoder, shards: Mapping[Shard, PackedWeights], threads: int, clock: Clock) -> None:
        self.geometry, self._encoder, self._shards, self._threads, self._clock = (
            encoder.geometry,
            encoder,
            shards,
            threads,
            clock,
        )
        self._buffers = {width: LayerBuffer(encoder.geometry, width) for width in range(1, encoder.geometry.heads + 1)}

    def run(self, length: int, width: int, layers: int) -> dict[str, Any]:
        """Time the bottom layers one after the other on one text, each with unpacking: shards come from memory."""
        _, mask, hidden = self._text(length)
        begun_s, slices = self._clock(), list(range(width))
        layer_s, unpack_s = list[float](), list[float]()
        for layer in range(layers):
            begin_s = self._clock()
            unpack_into(self._buffers[width], [self._shards[layer, piece] for piece in slices], threads=self._threads)
            unpack_s.append(self._clock() - begin_s)
            hidden = self._encoder.layer(hidden, mask, layer, slices, self._buffers[width])
            layer_s.append(self._clock() - begin_s)
        return {"seconds": self._clock() - begun_s, "layer_s": layer_s, "unpack_s": unpack_s}

    def repeated(self, length: int, width: int) -> dict[str, float]:
        """Return the mean seconds of a pass through all layers, repeated for at least `LEAST_WORK_S`."""
        begin_s, passes = self._clock(), 0
        while (taken_s := self._clock() - begin_s) < LEAST_WORK_S or not passes:
            self.run(length, width, self.geometry.layers)
            passes += 1
        return {"seconds": taken_s / passes}

    def ends(self, length: int) -> dict[str, float]:
        """Time embedding and classifying."""
        token_ids, mask, hidden = self._text(length)
        begin_s = self._clock()
        self._encoder.embed(token_ids, mask)
        embedded_s = self._clock()
        self._encoder.logits(hidden, mask)
        return {"embed_s": embedded_s - begin_s, "head_s": self._clock() - embedded_s}

    def _text(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(length)
        token_ids = torch.randint(self._encoder.configuration.vocabulary, (1, length), generator=generator)
        mask = torch.ones((1, length), dtype=torch.bool)
        return token_ids, mask, self._encoder.embed(token_ids, mask)


def measure_layers(
    encoder: ElasticEncoder,
    shards: Mapping[Shard, PackedWeights],
    settings: StiSettings,
    listener: Listener = Silent,
    clock: Clock = perf_counter,
) -> StiCompute:
    """Time every width at every padded length, and whole submodels to judge the table.

    `shards`: all shards of the model at 6 bits, in memory.
    """
    bench, geometry = LayerBench(encoder, shards, settings.threads, clock), encoder.geometry
    cells = [(length, width) for length in settings.lengths for width in range(1, geometry.heads + 1)]
    deep = range(1 + geometry.layers // 2, geometry.layers + 1)
    submodels = [("submodel", *cell, layers) for cell in cells for layers in deep]
    judged = random.Random(settings.seed).sample(submodels, min(JUDGED, len(submodels)))
    cases: dict[Any, Case] = {cell: Case(partial(bench.run, *cell, geometry.layers)) for cell in cells}
    cases |= {("ends", length): Case(partial(bench.ends, length)) for length in settings.lengths}
    cases |= {submodel: Case(partial(bench.run, *submodel[1:])) for submodel in judged}
    with torch_threads(settings.threads), torch.inference_mode():
        options: dict[str, Any] = {"shuffle": settings.seed, "clock": clock, "listener": listener}
        rows = _rows(rounds(cases, settings.repeats, name="layers", **options))
    table = []
    for length in settings.lengths:
        layer_s, unpack_s = (
            [np.concatenate(rows[length, width][column].tolist()) for width in range(1, geometry.heads + 1)]
            for column in ("layer_s", "unpack_s")
        )
        quantiles: dict[str, Any] = {
            name: tuple(float(np.quantile(times_s, at)) for times_s in layer_s)
            for name, at in (("p25_s", 0.25), ("seconds", 0.5), ("p75_s", 0.75))
        }
        quantiles["unpack_s"] = tuple(float(np.median(times_s)) for times_s in unpack_s)
        ends: dict[str, Any] = {name: float(rows["ends", length][name].median()) for name in ("embed_s", "head_s")}
        table.append(LayerTimes(length=length, **quantiles, **ends))
    by_length = {times.length: times.seconds for times in table}
    off = [
        abs(layers * by_length[length][width - 1] / rows[name, length, width, layers]["seconds"].median() - 1)
        for name, length, width, layers in judged
    ]
    return StiCompute(
        lengths=tuple(table),
        repeats=settings.repeats,
        heldout_error=float(np.mean(off)),
    )


def slowed_by_reads(
    encoder: ElasticEncoder,
    store: ShardStore,
    shards: Mapping[Shard, PackedWeights],
    settings: StiSettings,
    listener: Listener = Silent,
    clock: Clock = perf_counter,
) -> tuple[float, ...]:
    """Return the factors by which reads slow layers of 1, 2, ... shards, at least 1; medians over lengths and rounds.

    `shards`: all shards of the model at 6 bits, in memory. The reads are of random compressed shards from a cold file, at the
    pace if there is one. Narrow layers, whose buffer fits into the processor's cache, may lose more. Raises `StoreError` for
    a damaged store.
    """
    bench, reader = LayerBench(encoder, shards, settings.threads, clock), ShardReader(store, settings.pace_bytes_per_s)
    records = [(shard, bits) for shard in shards for bits in BITS[:-1]]
    random.Random(settings.seed).shuffle(records)

    def beside(length: int, width: int) -> dict[str, float]:
        with _reading(reader, records):
            return bench.repeated(length, width)

    widths, lengths = range(1, encoder.geometry.heads + 1), settings.lengths
    cells = [(length, width) for length in lengths for width in widths]
    cases: dict[Any, Case] = {("alone", *cell): Case(partial(bench.repeated, *cell)) for cell in cells}
    cases |= {("beside", *cell): Case(partial(beside, *cell)) for cell in cells}
    with torch_threads(settings.threads), torch.inference_mode():
        options: dict[str, Any] = {"shuffle": settings.seed, "clock": clock, "listener": listener}
        frame = rounds(cases, settings.repeats, name="layers beside reads", **options)
    times = by_round(frame)
    factors = []
    for width in widths:
        ratios = [times["beside", length, width] / times["alone", length, width] for length in lengths]
        factors.append(max(1.0, float(np.median(ratios))))
    return tuple(factors)


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


def random_shards(geometry: ShardGeometry, bits: int, seed: int = 0) -> dict[Shard, PackedWeights]:
    """Draw all shards of a model, by layer and slice."""
    shards = [(layer, piece) for layer in range(geometry.layers) for piece in range(geometry.heads)]
    return {
        (layer, piece): PackedWeights.random(bits, geometry.weights_per_shard, seed=seed + number)
        for number, (layer, piece) in enumerate(shards)
    }


def record_bytes(geometry: ShardGeometry, bits: int) -> int:
    """Return the bytes of the record of a random shard."""
    weights = geometry.weights_per_shard
    return record_size(weights, bits, 0 if bits == 32 else round(OUTLIER_SHARE * weights))


class DecoderLayers:
    """All layers of a decoder at one width, with the cache of one sentence.

    A slice is a head of self-attention and of attention to the source, with its share of the feed-forward neurons.
    """

    def __init__(self, geometry: ShardGeometry, slices: int, positions: int, *, seed: int = 0) -> None:
        """Draw the layers, with a cache for up to `positions` tokens; every matrix is [rows, width]."""
        self.geometry, self.slices = geometry, slices
        self._head = geometry.width // geometry.heads
        drawn, width = torch.Generator().manual_seed(seed), geometry.width
        attention, neurons = slices * self._head, slices * geometry.ffn // geometry.heads
        rows = {"qkv": 3 * attention, "o": attention, "source_q": attention, "source_kv": 2 * attention}
        rows |= {"source_o": attention, "ffn_in": neurons, "ffn_out": neurons}
        self.layers = [
            {name: torch.randn((count, width), generator=drawn).mul_(width**-0.5) for name, count in rows.items()}
            for _ in range(geometry.layers)
        ]
        self._bias = {name: torch.zeros(count) for name, count in rows.items()}
        self._out_bias, self._norm_weight = torch.zeros(width), torch.ones(width)
        self._cache = torch.randn((geometry.layers, 2, slices, positions, self._head), generator=drawn)
        self._source: list[tuple[Tensor, Tensor]] = []

    def read_source(self, source: Tensor) -> None:
        """Compute keys and values of an encoded source [1, l, d], once per sentence."""
        self._source = []
        for layer in self.layers:
            both = functional.linear(source[0], layer["source_kv"], self._bias["source_kv"])
            key, value = both.view(len(both), 2, self.slices, self._head).permute(1, 2, 0, 3)
            self._source.append((key, value))

    def step(self, hidden: Tensor, position: int) -> Tensor:
        """Compute all layers for one token's vector [1, d] after `position` tokens; return the vector."""
        for layer, cache, source in zip(self.layers, self._cache, self._source, strict=True):

            def linear(read: Tensor, name: str, layer: dict[str, Tensor] = layer) -> Tensor:
                return functional.linear(read, layer[name], self._bias[name])

            query, cache[0, :, position], cache[1, :, position] = linear(hidden, "qkv").view(3, self.slices, self._head)
            mixed = self._mixed(query, cache[0, :, : position + 1], cache[1, :, : position + 1])
            hidden = self._added(hidden, mixed, layer["o"])
            mixed = self._mixed(linear(hidden, "source_q").view(self.slices, self._head), *source)
            hidden = self._added(hidden, mixed, layer["source_o"])
            hidden = self._added(hidden, functional.relu(linear(hidden, "ffn_in")), layer["ffn_out"])
        return hidden

    def _mixed(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention's result, [1, slices x head size]."""
        score = torch.bmm(keys, query[:, :, None])[:, :, 0] * self._head**-0.5
        return torch.bmm(score.softmax(1)[:, None, :], values).view(1, -1)

    def _added(self, hidden: Tensor, mixed: Tensor, out: Tensor) -> Tensor:
        hidden = hidden + torch.addmm(self._out_bias, mixed, out)
        return functional.layer_norm(hidden, hidden.shape[1:], self._norm_weight, self._out_bias)


def measure_decoder(
    geometry: ShardGeometry, reads: Sequence[ShardReads], vocabulary: int, settings: StiSettings, listener: Listener = Silent
) -> tuple[StiDecoder, float]:
    """Time a decoder step at each width, and choosing one of `vocabulary` tokens.

    The time of all layers, with weights from memory, is divided by their number. Also returns the seconds in which one layer
    computes keys and values of one source token.
    """
    seed, widths = settings.seed, range(1, geometry.heads + 1)
    shard = PackedWeights.random(UNPACKED_BITS, geometry.weights_per_shard, seed=seed)
    room = aligned_bytes(geometry.float32_bytes_per_layer).view(np.float32)
    layers = {width: DecoderLayers(geometry, width, TGT_LEN + 1, seed=seed) for width in widths}
    hidden, source = torch.randn((1, geometry.width)), torch.randn((1, SRC_LEN, geometry.width))
    embedding = torch.randn((vocabulary, geometry.width)) * geometry.width**-0.5

    def sentence(width: int) -> dict[str, float]:
        begin_s = perf_counter()
        layers[width].read_source(source)
        source_s = perf_counter()
        layers[width].step(hidden, TGT_LEN)
        step_s = perf_counter()
        for position in range(width):
            unpack(shard, room, [(0, position * geometry.weights_per_shard, geometry.weights_per_shard)])
        of_source_s, unpack_s = (source_s - begin_s) / geometry.layers, perf_counter() - step_s
        return {"step_s": (step_s - source_s) / geometry.layers, "source_s": of_source_s, "once_s": of_source_s + unpack_s}

    def output() -> object:
        return functional.embedding((hidden @ embedding.T).argmax(1), embedding)

    cases: dict[Any, Case] = {width: Case(partial(sentence, width)) for width in widths}
    with torch_threads(settings.threads), torch.inference_mode():
        options: dict[str, Any] = {"shuffle": seed, "listener": listener}
        rows = _rows(rounds(cases | {"output": Case(output)}, settings.repeats, name="decoder steps", **options))

    def quantile(at: float, column: str) -> tuple[float, ...]:
        return tuple(float(rows[width][column].quantile(at)) for width in widths)

    block = StiDecoder(
        layers=geometry.layers,
        reads=tuple(reads),
        step_s=quantile(0.5, "step_s"),
        p25_s=quantile(0.25, "step_s"),
        p75_s=quantile(0.75, "step_s"),
        once_s=quantile(0.5, "once_s"),
        output_s=float(rows["output"]["seconds"].median()),
        src_len=SRC_LEN,
        tgt_len=TGT_LEN,
    )
    return block, quantile(0.5, "source_s")[-1] / SRC_LEN
