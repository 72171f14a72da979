"""The profile of a classifier in a shard store: reads, layers, whole texts and, on a task, importance (STI-07 to STI-09)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simnmt.calibrate.sti.layer_times import BITS, measure_layers
from simnmt.calibrate.sti.settings import StiSettings
from simnmt.calibrate.sti.shard_reads import check_bits, measure_reads
from simnmt.calibrate.sti.whole_runs import WholeEncoder, encoder_execution
from simnmt.costs.sti_block import StiBlock, StiGeometry, StiImportance
from simnmt.elastic.elastic_encoder import ElasticEncoder
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.evaluation import Evaluator
from simnmt.elastic.importance import measure_importance
from simnmt.elastic.pipeline.pipeline import torch_threads
from simnmt.elastic.store import decode

if TYPE_CHECKING:
    from simnmt.elastic.store import ShardStore
    from simnmt.elastic.task import Task

READS = 3
"""Reads of each bitwidth for each repeat of a layer: they vary more, and take a hundredth of the time."""
Progress = Callable[[int, int, str], None]
"""Called with what is done, what there is in all, and what is at work."""


def check_classifier(store: ShardStore, settings: StiSettings, task: Task | None) -> None:
    """Raise what would be found out only after minutes: `CalibrationError`, `StoreError`, `ElasticError`."""
    check_bits(store)
    settings.within(store.configuration.positions)
    if task is not None:
        _token_ids(store, task, 1)


def classifier_blocks(store: ShardStore, settings: StiSettings, progress: Progress) -> dict[str, Any]:
    """Blocks `sti`, without importance, and `execution` of a profile; on `settings.threads` threads."""
    encoder = ElasticEncoder(store.configuration, store.resident())
    reads = measure_reads(
        store,
        pace_bytes_per_s=settings.pace_bytes_per_s,
        repeats=READS * settings.repeats,
        seed=settings.seed,
        progress=lambda done, total: progress(done, total, "reading shards"),
    )
    geometry = store.geometry
    shards = {
        (layer, slice_): decode(store.read(store.record(layer, slice_, BITS)))
        for layer in range(geometry.layers)
        for slice_ in range(geometry.heads)
    }
    compute = measure_layers(
        encoder,
        shards,
        settings.lengths,
        repeats=settings.repeats,
        threads=settings.threads,
        seed=settings.seed,
        progress=lambda done, total: progress(done, total, "computing layers"),
    )
    progress(0, 1, "whole texts")
    execution = encoder_execution(
        WholeEncoder(encoder, shards), settings.lengths, repeats=settings.repeats, threads=settings.threads, seed=settings.seed
    )
    block = StiBlock(
        kind="measured",
        model=store.index.origin or store.kind,
        fingerprint=store.fingerprint,
        geometry=StiGeometry(layers=geometry.layers, heads=geometry.heads, width=geometry.width, ffn=geometry.ffn),
        io=reads,
        compute=compute,
        threads=settings.threads,
        store_bytes=sum(record.size for record in store.index.records),
    )
    return {"sti": block, "execution": execution}


def classifier_importance(
    store: ShardStore, task: Task, journal: str | os.PathLike[str], progress: Progress, *, threads: int
) -> StiImportance:
    """On all examples of the task, gone on with from the journal if it is there.

    Raises `ElasticError` for a task of another model, and a journal of another store or task.
    """
    encoder = ElasticEncoder(store.configuration, store.resident())
    with torch_threads(threads):
        token_ids = _token_ids(store, task)
        evaluator = Evaluator(encoder, store, token_ids, task.labels.tolist(), threads=threads)
        return measure_importance(
            evaluator,
            task=os.path.basename(task.path),  # noqa: PTH119 - a name, whatever system wrote it
            task_sha256=task.sha256,
            fingerprint=store.fingerprint,
            journal=journal,
            progress=lambda done, total: progress(done, total, "raising shards one by one"),
        )


def _token_ids(store: ShardStore, task: Task, first: int | None = None) -> list[list[int]]:
    """The task's texts, or the first so many, as the store's model reads them."""
    classes = store.configuration.classes
    if len(task.label_names) > classes:
        what = f"{len(task.label_names)} classes where the model tells {classes} apart"
        raise ElasticError(what, path=task.path, remedy="name the task that the model was trained on")
    return store.tokenizer().encode(task.texts[:first], store.configuration.positions)
