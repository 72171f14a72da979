"""Measure a streamed model, and write its profile: reads by bits, layers by length and width, decoder steps, importance.

A classifier's shards are read from its store, and a task gives their importance (STI-07 to STI-09). For a translator with
random weights, reads of the size of its records are timed on the same disk. Layers have their shards in memory, and one text is
computed at a time. Times depend on sizes, not on weights.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch

from simnmt.base import VERSION
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import describe, pinned
from simnmt.calibrate.calibration import check_threads, kept_journal
from simnmt.calibrate.harness import Case, Listener, Silent, by_round, counted, rounds
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.kernels.unpack import PackedWeights
from simnmt.nmt.architecture import ARCHITECTURES, TransformerArchitecture, read_architecture
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.engine import EngineAccount
from simnmt.nmt.models import build_model
from simnmt.nmt.torch_engine import stage_timer
from simnmt.profile.blocks import MOST_RELATIVE_SD, Execution
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.execution_fit import nonnegative_line, r_squared
from simnmt.profile.origin import LengthUnit, Provenance, ValidRange
from simnmt.profile.streaming_block import (
    BITS,
    LayerTimes,
    Shard,
    ShardGeometry,
    ShardReads,
    StiBlock,
    StiCompute,
    StiDecoder,
    StiImportance,
    StiIo,
)
from simnmt.streaming.encoder import ElasticEncoder, EncoderConfiguration
from simnmt.streaming.encoder_folder import random_weights
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.pipeline import ShardReader
from simnmt.streaming.shards import LayerBuffer, unpack_into
from simnmt.streaming.store import ShardStore, write_store
from simnmt.streaming.texts import PIECES_FILE, Task
from simnmt.workload.length_units import unit_of_content

TOOL = f"simnmt sti profile, simnmt {VERSION}"
UNIT = "subword"
"""Unit of models without a sentencepiece model that could name it, as in `simnmt calibrate`."""
LOW, HIGH = 2, 32
"""Bits of all shards, and of the one that is raised; no bitwidth between them is measured (STI-28)."""
DECODER_NOTES = (
    "reads of the decoder's larger shards follow from those of the encoder by the line over their bytes",
    "steps of fewer shards, and keys and values of the source, follow from the layers of the encoder",
)
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
    with torch_threads(settings.threads), torch.inference_mode():
        return rounds(cases, settings.repeats, name=name, shuffle=settings.seed, clock=clock, listener=listener)


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
    rows: dict[Any, pd.DataFrame] = dict(list(counted(frame, every=True).groupby("case", sort=False)))
    times = by_round(frame)

    def quantile(length: int, column: str, at: float = 0.5) -> tuple[float, ...]:
        return tuple(float(np.quantile(np.concatenate(rows[length, width][column].tolist()), at)) for width in widths)

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
    frame = _measured({"step": Case(timer)}, settings, "decoder steps", listener, perf_counter)
    stages_s = counted(frame).median(numeric_only=True)
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


def profile_store(
    store: ShardStore, settings: StiSettings, out: Path, *, unit: str | None, task: Task | None, listener: Listener
) -> tuple[DeviceProfile, list[str]]:
    """Measure a sharded classifier on this box; return the profile and its warnings.

    `out`: the file of the profile, whose journal keeps evaluations. `unit`: that of lengths; None: a piece of the store's
    sentencepiece model, named by its content, else `UNIT`. `task`: measure importance too. Raises `CalibrationError`,
    `StreamingError`, `StoreError`.
    """
    configuration, resident = store.configuration, store.resident()
    settings.within(configuration.positions)
    if task is not None:
        store.tokenizer()  # raises
    pieces = store.beside().get(PIECES_FILE)
    unit = unit or (UNIT if pieces is None else unit_of_content(pieces))

    def measure() -> tuple[StiBlock, Execution]:
        encoder = ElasticEncoder(configuration, resident)
        block = encoder_block(store, encoder, settings, listener)
        block = block.model_copy(update={"resident_bytes": sum(tensor.nbytes for tensor in resident.values())})
        if task is not None:
            header = {"importance": 1, "fingerprint": store.fingerprint, "task_sha256": task.sha256, "examples": len(task)}
            journal = kept_journal(out, header, listener, replaces=False)
            with torch_threads(settings.threads), journal as kept:
                token_ids = store.tokenizer().encode(task.texts, configuration.positions)
                evaluator = Evaluator(encoder, store, token_ids, task.labels.tolist(), threads=settings.threads)
                importance = measure_importance(evaluator, task, listener, kept)
                full = evaluator.evaluate(dict.fromkeys(importance.order, max(BITS)))
            importance = importance.model_copy(update={"majority": task.majority, "full_accuracy": full.accuracy})
            block = block.model_copy(update={"importance": importance})
        return block, inferred_execution(block)

    ranges = ValidRange(src_len=(1, configuration.positions), tgt_len=(0, 10**6))  # of a classifier, which costs no time
    model: dict[str, Any] = {"model": store.name, "architecture": asdict(configuration)}
    model |= {"vocab": max(2, configuration.classes), "weights": "random" if store.index.random else "checkpoint"}
    return _profiled(measure, settings, model, out.stem, ranges, LengthUnit(src=unit, tgt=unit))


def encoder_block(store: ShardStore, encoder: ElasticEncoder, settings: StiSettings, listener: Listener) -> StiBlock:
    """Measure the block `sti` of a store on this box, without importance. Raises `CalibrationError`, `StoreError`."""
    check_bits(store)
    geometry = store.geometry
    every = product(range(geometry.layers), range(geometry.heads))
    shards = {shard: store.read(store.record(*shard, UNPACKED_BITS)) for shard in every}
    reader = ShardReader(store, settings.pace_bytes_per_s)
    return StiBlock(
        kind="measured",
        model=store.name,
        fingerprint=store.fingerprint,
        geometry=geometry,
        io=measure_reads(reader, settings, listener),
        compute=measure_layers(encoder, shards, reader, settings, listener),
        threads=settings.threads,
    )


def measure_importance(
    evaluator: Evaluator, task: Task, listener: Listener = Silent, journal: Journal | None = None
) -> StiImportance:
    """Measure the scores of the task with each single shard raised from 2 to 32 bits, and with none raised.

    The journal keeps every evaluation at once, and an interrupted measurement resumes from it.
    """
    layers, slices = range(evaluator.geometry.layers), range(evaluator.geometry.heads)
    # The top layer first: the layers below it equal the base's, and are not computed again.
    low = dict.fromkeys(product(reversed(layers), slices), LOW)
    submodels = {"base": low} | {f"{layer}.{piece}": low | {(layer, piece): HIGH} for layer, piece in low}
    scores: dict[str, list[float]] = {} if journal is None else dict(journal.findings)
    for done, (name, bits) in enumerate(submodels.items()):
        listener.measured("raising shards one by one", done, len(submodels) - done)
        if name not in scores:
            result = evaluator.evaluate(bits)
            scores[name] = [result.accuracy, float(result.log_likelihood.mean())]
            if journal is not None:
                journal.finding(name, scores[name])
    accuracy, likelihood = (
        tuple(tuple(scores[f"{layer}.{piece}"][part] for piece in slices) for layer in layers) for part in (0, 1)
    )
    return StiImportance(
        task=Path(task.path).name,
        task_sha256=task.sha256,
        examples=len(evaluator),
        base_accuracy=scores["base"][0],
        base_log_likelihood=scores["base"][1],
        accuracy=accuracy,
        log_likelihood=likelihood,
    )


def profile_model(
    model: str, settings: StiSettings, out: Path, *, unit: str | None, listener: Listener
) -> tuple[DeviceProfile, list[str]]:
    """Measure a translating Transformer, by name or file, with random weights, streamed from the disk of the profile.

    Returns the profile and its warnings. Raises `NmtError` for an unknown model, `CalibrationError`, `StoreError`.
    """
    architecture = ARCHITECTURES[model] if model in ARCHITECTURES else read_architecture(model)
    if not isinstance(architecture, TransformerArchitecture):
        raise CalibrationError(f"--model: {model} is no Transformer: it has no heads to cut it by", remedy="name marian")
    settings.within(architecture.max_positions)
    if len(settings.lengths) < 2:
        raise CalibrationError("--lengths: one length does not determine a plane", remedy="give two or more, as in 8,16,32")
    ranges = ValidRange(src_len=(1, architecture.max_positions), tgt_len=(1, architecture.max_positions))
    measure = partial(translator_blocks, architecture, out.absolute().parent, settings, listener)
    about = {"model": model, "architecture": architecture.model_dump(mode="json"), "vocab": architecture.vocab}
    units = LengthUnit(src=unit or UNIT, tgt=unit or UNIT, end_of_sentence="both")
    return _profiled(measure, settings, about | {"weights": "random"}, out.stem, ranges, units)


def translator_blocks(
    model: TransformerArchitecture, folder: str | os.PathLike[str], settings: StiSettings, listener: Listener
) -> tuple[StiBlock, Execution]:
    """Measure the blocks `sti` and `execution` of a profile, with the encoder in a temporary store in `folder`."""
    try:
        geometry = ShardGeometry(model.encoder_layers, model.heads, model.d_model, model.ffn)
    except ValueError as error:
        raise CalibrationError(f"--model: {error}", remedy="name a model whose heads divide it") from None
    activation: Literal["gelu", "relu"] = "relu" if model.activation == "relu" else "gelu"  # in place of Swish, at equal cost
    sizes = (model.encoder_layers, model.heads, model.d_model, model.ffn, model.vocab, model.max_positions)
    configuration = EncoderConfiguration("elastic", *sizes, classes=2, activation=activation, head=False)
    weights = random_weights(configuration, f"random weights, {model.encoder_layers} + {model.decoder_layers} layers")
    with TemporaryDirectory(dir=folder) as place:
        write_store(weights, Path(place, "store"))
        with ShardStore(Path(place, "store")) as store:
            block = encoder_block(store, ElasticEncoder(weights.configuration, weights.resident), settings, listener)
    crossed = replace(geometry, layers=model.decoder_layers, cross_attention=True)
    larger = crossed.weights_per_shard / geometry.weights_per_shard - 1.0
    sizes_s = [(read, read.median_s + larger * read.bytes / block.io.bytes_per_s) for read in block.io.reads]
    reads = tuple(ShardReads.of([s], bits=read.bits, bytes=round((1.0 + larger) * read.bytes)) for read, s in sizes_s)
    decoder, source_token_s = measure_decoder(model, block, crossed, reads, settings, listener)
    in_decoder = 4 * model.decoder_layers * (15 * model.d_model + model.ffn)  # biases and norms
    resident_bytes = sum(tensor.nbytes for tensor in weights.resident.values()) + in_decoder
    more = {"fingerprint": None, "decoder": decoder, "resident_bytes": resident_bytes, "notes": DECODER_NOTES}
    block = block.model_copy(update=more)
    return block, inferred_execution(block, source_token_s)


def inferred_execution(block: StiBlock, source_token_s: float = 0.0) -> Execution:
    """Return the plane of the whole model in memory, inferred from the measured times of its layers.

    `source_token_s`: seconds in which a decoder layer computes keys and values of one source token.
    """
    times, layers, decoder = block.compute.lengths, block.geometry.layers, block.decoder
    lengths = np.array([at.length for at in times], np.float64)
    encoder_s = np.array([at.embed_s + layers * (at.seconds[-1] - (at.unpack_s or at.seconds)[-1]) for at in times])
    fixed, slope = nonnegative_line(lengths, encoder_s, 1.0 / encoder_s)
    if decoder is None:
        plane = Plane(slope, 0.0, fixed + sum(at.head_s for at in times) / len(times))
    else:
        plane = Plane(slope + decoder.layers * source_token_s, decoder.layers * decoder.step_s[-1] + decoder.output_s, fixed)
    longest = times[-1]
    quartiles_s = (longest.p75_s or longest.seconds)[-1] - (longest.p25_s or longest.seconds)[-1]
    spread = quartiles_s / 1.349 / longest.seconds[-1]
    return Execution(kind="inferred", plane=plane, residual_relative_sd=min(spread, MOST_RELATIVE_SD))


def _profiled(
    measure: Callable[[], tuple[StiBlock, Execution]],
    settings: StiSettings,
    model: dict[str, Any],
    name: str,
    ranges: ValidRange,
    units: LengthUnit,
) -> tuple[DeviceProfile, list[str]]:
    box = describe()
    check_threads(settings.threads, box)
    before = profile_assembly.state(box)
    with pinned(settings.threads) as cpus:
        sti, execution = measure()
    conditions = profile_assembly.conditions_block(before, profile_assembly.state(describe()), None, cpus)
    account = EngineAccount(
        **model,
        backend="simnmt",
        compute_type="float32",
        device="cpu",
        device_name=box.board or box.cpu_model or box.machine,
        threads=settings.threads,
        versions={"torch": version("torch")},
    )
    source = f"measured on the box itself: {account.model}, {account.weights} weights, streamed in shards"
    blocks = {
        "length_unit": units,
        "provenance": Provenance(source=source, date=profile_assembly.now(), tool=TOOL),
        "conditions": conditions,
        "valid_range": ranges,
        "execution": execution,
        "sti": sti,
    }
    profile = profile_assembly.new_profile(name, account, box, blocks)
    remarks = profile_assembly.remarks(conditions.governor, on_cpu=True)
    return profile, [*(doubt.message for doubt in profile_doubts(profile)), *remarks]
