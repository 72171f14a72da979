"""Measure blocks `sti` and `execution` of a profile, for a sharded classifier or a translator with random weights.

A classifier's shards are read from its store, and a task gives their importance (STI-07 to STI-09). For a translator, of
which only the sizes are known, reads of the size of its records are timed on the same disk (STI-07, STI-08).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from simnmt.calibrate.disk import measure_disk
from simnmt.calibrate.journal import Journal
from simnmt.calibrate.settings import CalibrationError, StiSettings
from simnmt.calibrate.streaming.decoder_times import DecoderLayers, measure_decoder, random_shards, record_bytes
from simnmt.calibrate.streaming.encoder_block import (
    READS,
    check_bits,
    encoder_block,
    packed_shards,
    reads_block,
    shard_reads,
)
from simnmt.calibrate.streaming.layer_times import UNPACKED_BITS, Progress, measure_layers
from simnmt.calibrate.streaming.whole_models import (
    TGT_LENGTHS,
    WholeEncoder,
    WholeTranslator,
    encoder_execution,
    translator_execution,
)
from simnmt.nmt.architecture import TransformerArchitecture
from simnmt.nmt.devices import torch_threads
from simnmt.profile.blocks import Execution
from simnmt.profile.streaming_block import StiBlock, StiGeometry, StiImportance
from simnmt.profile.streaming_cost import BITS, ShardGeometry
from simnmt.streaming.encoder import ElasticEncoder, EncoderConfiguration, random_resident
from simnmt.streaming.errors import StreamingError
from simnmt.streaming.evaluation import Evaluator

if TYPE_CHECKING:
    from simnmt.streaming.store import ShardStore
    from simnmt.streaming.texts import Task


def check_classifier(store: ShardStore, settings: StiSettings, task: Task | None) -> None:
    """Raise the errors of a later measurement at once: `CalibrationError`, `StoreError`, `StreamingError`."""
    check_bits(store)
    settings.within(store.configuration.positions)
    if task is not None:
        _token_ids(store, task, 1)


def classifier_blocks(store: ShardStore, settings: StiSettings, progress: Progress) -> tuple[StiBlock, Execution]:
    """Measure blocks `sti`, without importance, and `execution` of a profile on `settings.threads` threads."""
    resident = store.resident()
    encoder, shards = ElasticEncoder(store.configuration, resident), packed_shards(store)
    block = encoder_block(store, encoder, shards, settings, progress)
    progress(0, 1, "whole texts")
    execution = encoder_execution(WholeEncoder(encoder, shards), settings)
    resident_bytes = sum(tensor.nbytes for tensor in resident.values())
    return block.model_copy(update={"resident_bytes": resident_bytes}), execution


def classifier_importance(
    store: ShardStore, task: Task, journal: str | os.PathLike[str], progress: Progress, *, threads: int
) -> StiImportance:
    """Return the importance of the shards on all examples of the task, with the accuracy of the whole model.

    Resumes from the journal if it exists. Raises `StreamingError` for a task of another model, and `CalibrationError` for a
    journal of another store or task.
    """
    encoder = ElasticEncoder(store.configuration, store.resident())
    with torch_threads(threads):
        token_ids = _token_ids(store, task)
        evaluator = Evaluator(encoder, store, token_ids, task.labels.tolist(), threads=threads)
        importance = measure_importance(
            evaluator, task, store.fingerprint, journal, lambda done, total: progress(done, total, "raising shards one by one")
        )
        full = evaluator.evaluate({shard: max(BITS) for shard in importance.order})
    return importance.model_copy(update={"majority": task.majority, "full_accuracy": full.accuracy})


LOW, HIGH = 2, 32
"""Bits of all shards, and of the one that is raised; no bitwidth between them is measured (STI-28)."""


def measure_importance(
    evaluator: Evaluator,
    task: Task,
    fingerprint: str,
    journal_path: str | os.PathLike[str] | None,
    progress: Callable[[int, int], None],
) -> StiImportance:
    """Measure the scores of the task with each single shard raised from 2 to 32 bits, and with none raised.

    The journal keeps every evaluation at once, and an interrupted measurement resumes from it. `progress(done, total)` counts
    evaluations. Raises `CalibrationError` for a journal of another store, task or set of examples, one that is in use, and
    one that cannot be written.
    """
    layers, slices = evaluator.geometry.layers, evaluator.geometry.heads
    # The top layer first: the layers below it equal the base's, and are not computed again.
    shards = [(layer, slice_) for layer in reversed(range(layers)) for slice_ in range(slices)]
    low = dict.fromkeys(shards, LOW)
    submodels = {"base": low} | {f"{layer}.{slice_}": low | {(layer, slice_): HIGH} for layer, slice_ in shards}
    header = {"importance": 1, "fingerprint": fingerprint, "task_sha256": task.sha256, "examples": len(evaluator)}
    sizes = {"layers": layers, "slices": slices}
    with nullcontext() if journal_path is None else closing(Journal(journal_path, header | sizes)) as journal:
        scores: dict[str, list[float]] = {} if journal is None else dict(journal.findings)
        for done, (name, bits) in enumerate(submodels.items()):
            progress(done, len(submodels))
            if name not in scores:
                result = evaluator.evaluate(bits)
                scores[name] = [result.accuracy, result.mean_log_likelihood]
                if journal is not None:
                    journal.finding(name, scores[name])
        progress(len(submodels), len(submodels))
    table = [[scores[f"{layer}.{slice_}"] for slice_ in range(slices)] for layer in range(layers)]
    accuracy, likelihood = (tuple(tuple(score[part] for score in row) for row in table) for part in (0, 1))
    return StiImportance(
        task=Path(task.path).name,
        task_sha256=task.sha256,
        examples=len(evaluator),
        base_accuracy=scores["base"][0],
        base_log_likelihood=scores["base"][1],
        accuracy=accuracy,
        log_likelihood=likelihood,
    )


def _token_ids(store: ShardStore, task: Task, first: int | None = None) -> list[list[int]]:
    """Return the token ids of the task's texts, or of the `first` texts."""
    classes = store.configuration.classes
    if len(task.label_names) > classes:
        what = f"{len(task.label_names)} classes where the model has {classes}"
        raise StreamingError(what, path=task.path, remedy="name the task that the model was trained on")
    return store.tokenizer().encode(task.texts[:first], store.configuration.positions)


NOTE = "reads of the records' sizes in a file of their own, which the system may read ahead; 0.15 % outliers assumed"


def translator_blocks(
    model: TransformerArchitecture, folder: str | os.PathLike[str], settings: StiSettings, progress: Progress
) -> tuple[StiBlock, Execution]:
    """Measure the blocks `sti` and `execution` of a profile.

    `folder`: folder on the disk of the shards. Reads have the sizes of records, in a temporary file: no model is sharded.
    Raises `CalibrationError` for sizes that cannot be cut, `DiskError` for a folder without a disk.
    """
    encoder, shards = _random_encoder(model), random_shards(_geometry(model), UNPACKED_BITS, settings.seed)
    geometry, crossed = _geometry(model), _geometry(model, decoder=True)
    sizes = [{bits: record_bytes(shards_cut, bits) for bits in BITS} for shards_cut in (geometry, crossed)]
    disk = measure_disk(
        folder,
        [size for sizes_by_bits in sizes for size in sizes_by_bits.values()],
        READS * settings.repeats,
        None,
        lambda done, total: progress(done, total, "reading shards"),
        seed=settings.seed,
    )
    pace = settings.pace_bytes_per_s
    # As in the executor, a paced read ends when a disk of that rate would have ended it, or later.
    read_s = {
        size: [max(second, 0.0 if pace is None else size / pace) for second in times_s] for size, times_s in disk.read_s.items()
    }
    encoder_reads, decoder_reads = ({bits: read_s[size] for bits, size in sizes_by_bits.items()} for sizes_by_bits in sizes)
    compute = measure_layers(encoder, shards, settings, progress)
    layers = DecoderLayers(crossed, crossed.heads, max(TGT_LENGTHS), seed=settings.seed)
    translator = WholeTranslator(WholeEncoder(encoder, shards), layers, model.vocab)
    with torch_threads(settings.threads), torch.inference_mode():
        output_s = float(np.median(translator.output_s(settings.repeats + 1)[1:]))
    decoder = measure_decoder(crossed, shard_reads(sizes[1], decoder_reads), output_s, settings, progress)
    execution = translator_execution(translator, settings, progress)
    block = StiBlock(
        kind="measured",
        model=f"random weights, {geometry.layers} + {crossed.layers} layers",
        geometry=StiGeometry(layers=geometry.layers, heads=geometry.heads, width=geometry.width, ffn=geometry.ffn),
        io=reads_block(sizes[0], encoder_reads, cold=disk.cold, pace=pace, file_system=disk.file_system),
        compute=compute,
        decoder=decoder,
        threads=settings.threads,
        resident_bytes=resident_bytes(model),
        notes=(NOTE, *([] if pace is None else ["no read is counted faster than the pace"])),
    )
    return block, execution


def resident_bytes(model: TransformerArchitecture) -> int:
    """Return the float32 bytes in no shard: shared embeddings, the output's biases, and biases and norms of all layers.

    Static positions are computed, not stored.
    """
    width = model.d_model
    encoder = 4 * width + model.ffn + width + 2 * 2 * width
    decoder = 8 * width + model.ffn + width + 3 * 2 * width
    return 4 * (model.vocab * (width + 1) + model.encoder_layers * encoder + model.decoder_layers * decoder)


def check_translator(model: TransformerArchitecture, settings: StiSettings) -> None:
    """Raise `CalibrationError` for lengths beyond the model's, and sizes that cannot be cut into shards."""
    settings.within(model.max_positions)
    if len(settings.lengths) < 2:
        raise CalibrationError("--lengths: one length does not determine a plane", remedy="give two or more, as in 8,16,32")
    _geometry(model)


def _geometry(model: TransformerArchitecture, *, decoder: bool = False) -> ShardGeometry:
    layers = model.decoder_layers if decoder else model.encoder_layers
    try:
        geometry = ShardGeometry(layers, model.heads, model.d_model, model.ffn, cross_attention=decoder)
    except ValueError as error:
        raise CalibrationError(f"--model: {error}", remedy="name a model whose heads divide it") from None
    if geometry.width // geometry.heads * geometry.width % 8 or geometry.ffn // geometry.heads * geometry.width % 8:
        raise CalibrationError("--model: shards would begin within a byte", remedy="take a width that 8 divides")
    return geometry


def _random_encoder(model: TransformerArchitecture) -> ElasticEncoder:
    """Return an encoder with random resident tensors, whose matrices come in shards. GELU replaces Swish, at equal cost."""
    configuration = EncoderConfiguration(
        kind="elastic",
        layers=model.encoder_layers,
        heads=model.heads,
        width=model.d_model,
        ffn=model.ffn,
        vocabulary=model.vocab,
        positions=model.max_positions,
        classes=2,
        activation="relu" if model.activation == "relu" else "gelu",
        head_activation=None,
    )
    return ElasticEncoder(configuration, random_resident(configuration, torch.Generator().manual_seed(0)))
