"""From a store, a task and profiles to a study: what is opened, and what is refused before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import torch

from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.devices import LENGTH, boards, of_profile
from simnmt.calibrate.sti_study.document import (
    Part,
    StudiedClassifier,
    StudiedDevice,
    StudiedStore,
    StudiedTask,
    Study,
)
from simnmt.calibrate.sti_study.judging import Judge
from simnmt.calibrate.sti_study.parts import StudyBench
from simnmt.calibrate.sti_study.ranking import Ranking, Say
from simnmt.calibrate.sti_study.run import TOOL, gone_on_with, measure
from simnmt.calibrate.sti_study.settings import StudySettings, quick_settings
from simnmt.calibrate.study_file import read_study
from simnmt.costs import read_profile
from simnmt.costs.shard_geometry import BITS
from simnmt.costs.sti_block import StiBlock
from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.elastic.elastic_encoder import ElasticEncoder
from simnmt.elastic.evaluation import Evaluator
from simnmt.elastic.store import ShardStore
from simnmt.elastic.task import Task, read_task
from simnmt.elastic.tokenizer import tokenizer_from
from simnmt.files import refuse_replacing


def study_of(
    store: Path,
    task: Path,
    *,
    importance_task: Path | None = None,
    importance_on_task: bool = False,
    profiles: Sequence[Path] = (),
    parts: Sequence[str] = (),
    quick: bool = False,
    settings: StudySettings | None = None,
    out: Path | None = None,
    threads: int = 1,
    say: Say = lambda _: None,
) -> Study:
    """Study the classifier whose shards are in `store` on the examples of `task`; see `measure` for `parts` and `out`.

    `importance_task`: other examples, to rank the shards by; `importance_on_task`: rank them on the judged ones. `profiles`: of
    `simnmt sti profile`, of this store: each a device beside the paper's boards, and the first one with an importance on the
    examples that are asked for (where none are: on any but the judged) gives the order, else it is measured here. Raises
    `InputError` of several rooms, all of them before anything is measured.
    """
    settings = settings or (quick_settings() if quick else StudySettings())
    refuse_replacing(out, task, *profiles, *([] if importance_task is None else [importance_task]))
    if out is not None and not out.parent.is_dir():
        raise CalibrationError("no such folder", path=out.parent, remedy="make it first")
    with ShardStore.open(store) as opened, _threads(threads), torch.inference_mode():
        lacking = [bits for bits in BITS if bits not in opened.bits]
        if lacking:
            what = f"no shards of {', '.join(map(str, lacking))} bits"
            raise CalibrationError(what, path=store, remedy="shard it with all bits: simnmt sti shard")
        if opened.index.random:
            raise CalibrationError("shards of a model that nobody has trained", path=store, remedy="shard a trained one")
        names = opened.label_names or None
        examples = read_task(task, label_names=names)
        apart = None if importance_task is None else read_task(importance_task, label_names=names)
        ranking = Ranking(examples, apart, importance_on_task)
        blocks = [_block(path, opened) for path in profiles]
        evaluator = _evaluator(opened, examples, settings.examples, threads, store)
        judge = Judge(evaluator)
        order = ranking.known(blocks, _held(out, opened, examples))
        if order is None:
            own = evaluator if apart is None else _evaluator(opened, apart, settings.examples, threads, store)
            order = ranking.measured(own, opened.fingerprint, None if out is None else _journal_of(out), say)
            del own  # what it keeps of its examples is not needed any more
        length = blocks[0].compute.lengths[-1].length if blocks else LENGTH
        devices = _devices(opened, blocks, profiles, order.order, length)
        begun = Study(
            tool=TOOL,
            model=_classifier(opened, store),
            task=_studied(examples, len(evaluator)),
            store=_stored(opened, store),
            devices=tuple(device for device, _ in devices),
            length=length,
            importance=order,
        )
        study = gone_on_with(begun, out)
        bench = StudyBench(devices, length, order.order, judge, settings, say)
        wanted = cast("tuple[Part, ...]", tuple(parts)) or None
        study = measure(study, bench, parts=wanted, out=out, threads=threads)
    if out is not None:
        _journal_of(out).unlink(missing_ok=True)  # the study holds the order now
    return study


def _evaluator(store: ShardStore, task: Task, first: int | None, threads: int, path: Path) -> Evaluator:
    tokenizer = tokenizer_from(store.beside())
    if tokenizer is None:
        raise CalibrationError("no tokenizer lies in the store", path=path, remedy="shard a model that has one beside it")
    count = len(task) if first is None else min(first, len(task))
    tokens = tokenizer.encode(task.texts[:count], store.configuration.positions)
    encoder = ElasticEncoder(store.configuration, store.resident())
    return Evaluator(encoder, store, tokens, task.labels[:count].tolist(), threads=threads)


def _block(path: Path, store: ShardStore) -> StiBlock:
    found = read_profile(path).sti
    if found is None:
        raise CalibrationError("the profile has no block sti", path=path, remedy="make one: simnmt sti profile STORE")
    if found.fingerprint is not None and found.fingerprint != store.fingerprint:
        raise CalibrationError("the profile is of another model's shards", path=path, remedy="profile this store")
    return found


def _held(out: Path | None, store: ShardStore, task: Task) -> Study | None:
    """The study that is gone on with, if it is of this model and task."""
    if out is None or not out.exists():
        return None
    found = read_study(out, Study)
    return found if (found.model.sha256, found.task.sha256) == (store.fingerprint, task.sha256) else None


def _journal_of(out: Path) -> Path:
    """Where the order of importance is kept shard by shard, until the study holds it."""
    return out.with_name(f"{out.stem}.importance")


def _devices(
    store: ShardStore, blocks: Sequence[StiBlock], paths: Sequence[Path], order: Sequence[Shard], length: int
) -> list[tuple[StudiedDevice, StiCost]]:
    found = boards(store.geometry.layers, store.geometry.heads, tuple(order), length)
    for block, path in zip(blocks, paths, strict=True):
        found.append(of_profile(block, block.device_name or path.stem, length, store.geometry, tuple(order)))
    names = [device.name for device, _ in found]
    if len(set(names)) < len(names):
        raise CalibrationError("two profiles of one device", remedy="give one of each")
    return found


def _classifier(store: ShardStore, path: Path) -> StudiedClassifier:
    own = store.geometry
    return StudiedClassifier(
        name=Path(store.index.origin).name or Path(os.path.realpath(path)).name,
        kind=store.kind,
        sha256=store.fingerprint,
        layers=own.layers,
        heads=own.heads,
        width=own.width,
        ffn=own.ffn,
    )


def _studied(task: Task, examples: int) -> StudiedTask:
    return StudiedTask(
        name=Path(task.path).name,
        sha256=task.sha256,
        examples=examples,
        classes=len(task.label_names),
        largest_class=float(np.bincount(task.labels[:examples]).max() / examples),
    )


def _stored(store: ShardStore, path: Path) -> StudiedStore:
    weights = sum(record.outliers for record in store.index.records if record.bits == BITS[0])
    whole = store.geometry.layers * store.geometry.weights_per_layer
    return StudiedStore(
        name=Path(os.path.realpath(path)).name,
        shard_bytes={bits: round(store.mean_size(bits)) for bits in BITS},
        outlier_share=weights / whole,
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
