"""Profile of a streamed model: a sharded classifier, or a translator of which only the sizes are known.

A classifier's shards are read from its store, and a task gives their importance (STI-07 to STI-09). For a translator with
random weights, reads of the size of its records are timed on the same disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from simnmt.base import VERSION
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import describe
from simnmt.calibrate.calibration import check_threads, kept_journal
from simnmt.calibrate.harness import Listener, Silent
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.processor_use import pinned
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.calibrate.streamed_times import UNPACKED_BITS, check_bits, measure_decoder, measure_layers, measure_reads
from simnmt.nmt.architecture import ARCHITECTURES, TransformerArchitecture, read_architecture
from simnmt.nmt.devices import torch_threads
from simnmt.nmt.engine import EngineAccount
from simnmt.profile.blocks import MOST_RELATIVE_SD, Execution
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import profile_doubts
from simnmt.profile.execution_fit import nonnegative_line
from simnmt.profile.origin import LengthUnit, Provenance, ValidRange
from simnmt.profile.streaming_block import ShardReads, StiBlock, StiImportance
from simnmt.profile.streaming_cost import BITS, ShardGeometry
from simnmt.streaming.encoder import ElasticEncoder, EncoderConfiguration
from simnmt.streaming.encoder_folder import random_weights
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.pipeline import ShardReader
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
    """Measure the blocks `sti` and `execution` of a profile, with the encoder in a temporary store in `folder`.

    Raises `CalibrationError` or `StoreError` for sizes that cannot be cut, and `StoreError` for a full disk.
    """
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
    reads = tuple(
        ShardReads.of(
            [read.median_s + larger * read.bytes / block.io.bytes_per_s],
            bits=read.bits,
            bytes=round((1.0 + larger) * read.bytes),
        )
        for read in block.io.reads
    )
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
    of_token_s = 0.0
    if decoder is None:
        fixed += sum(at.head_s for at in times) / len(times)
    else:
        slope += decoder.layers * source_token_s
        of_token_s = decoder.layers * decoder.step_s[-1] + decoder.output_s
    longest = times[-1]
    quartiles_s = (longest.p75_s or longest.seconds)[-1] - (longest.p25_s or longest.seconds)[-1]
    plane = Plane(s_per_src_token=slope, s_per_tgt_token=of_token_s, s_fixed=fixed)
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
    """Measure the blocks on this box; return the profile with its conditions, and its warnings."""
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
