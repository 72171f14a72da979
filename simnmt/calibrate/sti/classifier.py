"""The profile of a classifier in a shard store: reads, layers, whole texts and, on a task, importance (STI-07 to STI-09)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from simnmt.calibrate.sti.encoder_block import Progress, encoder_block, packed_shards
from simnmt.calibrate.sti.settings import StiSettings
from simnmt.calibrate.sti.shard_reads import check_bits
from simnmt.calibrate.sti.whole_runs import WholeEncoder, encoder_execution
from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_block import StiImportance
from simnmt.elastic.elastic_encoder import ElasticEncoder
from simnmt.elastic.errors import ElasticError
from simnmt.elastic.evaluation import Evaluator
from simnmt.elastic.importance import measure_importance
from simnmt.elastic.pipeline.pipeline import torch_threads

if TYPE_CHECKING:
    from simnmt.elastic.store import ShardStore
    from simnmt.elastic.task import Task


def check_classifier(store: ShardStore, settings: StiSettings, task: Task | None) -> None:
    """Raise what would be found out only after minutes: `CalibrationError`, `StoreError`, `ElasticError`."""
    check_bits(store)
    settings.within(store.configuration.positions)
    if task is not None:
        _token_ids(store, task, 1)


def classifier_blocks(store: ShardStore, settings: StiSettings, progress: Progress) -> dict[str, Any]:
    """Blocks `sti`, without importance, and `execution` of a profile; on `settings.threads` threads."""
    resident = store.resident()
    encoder, shards = ElasticEncoder(store.configuration, resident), packed_shards(store)
    block = encoder_block(store, encoder, shards, settings, progress)
    progress(0, 1, "whole texts")
    execution = encoder_execution(
        WholeEncoder(encoder, shards), settings.lengths, repeats=settings.repeats, threads=settings.threads, seed=settings.seed
    )
    resident_bytes = sum(tensor.nbytes for tensor in resident.values())
    return {"sti": block.model_copy(update={"resident_bytes": resident_bytes}), "execution": execution}


def classifier_importance(
    store: ShardStore, task: Task, journal: str | os.PathLike[str], progress: Progress, *, threads: int
) -> StiImportance:
    """Return the importance of the shards on all examples of the task, with the accuracy of the whole model.

    Goes on from the journal if it is there.

    Raises `ElasticError` for a task of another model, and a journal of another store or task.
    """
    encoder = ElasticEncoder(store.configuration, store.resident())
    with torch_threads(threads):
        token_ids = _token_ids(store, task)
        evaluator = Evaluator(encoder, store, token_ids, task.labels.tolist(), threads=threads)
        importance = measure_importance(
            evaluator,
            task=os.path.basename(task.path),  # noqa: PTH119 - a name, whatever system wrote it
            task_sha256=task.sha256,
            fingerprint=store.fingerprint,
            journal=journal,
            progress=lambda done, total: progress(done, total, "raising shards one by one"),
        )
        full = evaluator.evaluate({shard: max(BITS) for shard in importance.order})
    return importance.model_copy(update={"majority": task.majority, "full_accuracy": full.accuracy})


def _token_ids(store: ShardStore, task: Task, first: int | None = None) -> list[list[int]]:
    """The task's texts, or the first so many, as the store's model reads them."""
    classes = store.configuration.classes
    if len(task.label_names) > classes:
        what = f"{len(task.label_names)} classes where the model tells {classes} apart"
        raise ElasticError(what, path=task.path, remedy="name the task that the model was trained on")
    return store.tokenizer().encode(task.texts[:first], store.configuration.positions)
