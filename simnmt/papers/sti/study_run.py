"""Measure a study of a streamed classifier part by part, from a store, a task and profiles; each part is added to its file.

A study that was stopped continues with the parts that its file lacks. Whatever cannot be measured is refused before the first
measurement. The order of importance comes from other examples than those that accuracy is measured on (STI-09).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import cast

import numpy as np
import torch

from simnmt.base import VERSION
from simnmt.base.files import refuse_replacing
from simnmt.calibrate import processor_use
from simnmt.calibrate.box.describe import describe_machine
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.study import read_study, write_study
from simnmt.nmt.devices import installed_versions, torch_threads
from simnmt.papers.sti.study import (
    PARTS,
    ImportanceOrder,
    Part,
    PartRun,
    StudiedClassifier,
    StudiedDevice,
    StudiedStore,
    StudiedTask,
    Study,
)
from simnmt.papers.sti.study_parts import Judge, StudyBench
from simnmt.papers.sti.study_settings import LENGTH, StudySettings, paper_boards, profile_device, quick_settings
from simnmt.profile.profile_file import read_profile
from simnmt.profile.streaming_block import StiBlock, StiImportance
from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
from simnmt.streaming.encoder.evaluation import Evaluator, measure_importance
from simnmt.streaming.encoder.task import Task, read_task, shared_texts
from simnmt.streaming.encoder.tokenizer import tokenizer_from
from simnmt.streaming.store.shard_store import ShardStore

Say = Callable[[str], None]
REMEDY = "give --importance-task FILE of other examples, or say --importance-on-task"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Where the order comes from.

    Shards that are ranked on the examples that judge them look better than they are, and random orders worse: this
    needs `on_judged`.
    """

    judged: Task
    apart: Task | None = None
    """Examples to rank by, other than the judged ones."""
    on_judged: bool = False
    """Rank on the judged examples themselves."""

    def __post_init__(self) -> None:
        if self.apart is not None and self.on_judged:
            raise CalibrationError("--importance-on-task beside --importance-task", remedy="give one of them")
        if self.apart is not None and self.apart.sha256 == self.judged.sha256:
            what = "--importance-task: the same examples as those of --task"
            raise CalibrationError(what, path=self.apart.path, remedy=f"{REMEDY} in its place")

    @property
    def task(self) -> Task | None:
        """To measure the order on; None: nothing says so."""
        return self.judged if self.on_judged else self.apart

    def known(self, blocks: Sequence[StiBlock], held: Study | None) -> ImportanceOrder | None:
        """The order of the first profile that has one which fits, or of a study that was begun; None: it has to be measured.

        One fits that was found on the examples asked for or, where none are named, on any but the judged ones. Raises
        `CalibrationError` where none fits and none can be measured.
        """
        orders = [importance_order(block.importance, None) for block in blocks if block.importance is not None]
        orders += [] if held is None else [held.importance]
        fitting = next(filter(self._fits, orders), None)
        if fitting is not None:
            return self._counted(fitting)
        if self.task is not None:
            return None
        if orders:
            what = "shards were ranked on the very examples that are to judge them"
            raise CalibrationError(what, path=self.judged.path, remedy=REMEDY)
        raise CalibrationError("nothing says on which examples shards are to be ranked", remedy=REMEDY)

    def _fits(self, order: ImportanceOrder) -> bool:
        if self.task is None:
            return order.task_sha256 != self.judged.sha256
        return order.task_sha256 == self.task.sha256

    def _counted(self, order: ImportanceOrder) -> ImportanceOrder:
        """Return the order with the number of shared texts, if the texts are known."""
        if self.task is None or order.shared is not None:
            return order
        return order.model_copy(update={"shared": self._shared(order.examples)})

    def _shared(self, examples: int | None) -> int:
        """Return how many of the first `examples` of `task` (None: of all) are judged too."""
        assert self.task is not None
        first = replace(self.task, texts=self.task.texts[:examples], labels=self.task.labels[:examples])
        return shared_texts(first, self.judged)

    def measured(self, evaluator: Evaluator, fingerprint: str, journal: Path | None, say: Say) -> ImportanceOrder:
        """Measure the order by one evaluation per shard and one more; the examples of `evaluator` must be those of `task`."""
        assert self.task is not None
        slices = evaluator.geometry.heads
        importance = measure_importance(
            evaluator,
            task=Path(self.task.path).name,
            task_sha256=self.task.sha256,
            fingerprint=fingerprint,
            journal=journal,
            progress=lambda done, total: say(f"importance: {done} of {total}") if done % slices == 0 else None,
        )
        return importance_order(importance, self._shared(importance.examples))


def importance_order(importance: StiImportance, shared: int | None) -> ImportanceOrder:
    """Convert a profile's importance to the form that a study keeps."""
    return ImportanceOrder(
        order=importance.order,
        evaluations=importance.evaluations,
        task=importance.task,
        task_sha256=importance.task_sha256,
        examples=importance.examples,
        shared=shared,
    )


TOOL = f"simnmt {VERSION}"
_LIBRARIES = ("torch", "numpy", "scipy")


def measure(
    study: Study,
    bench: StudyBench,
    *,
    parts: Sequence[Part] | None = None,
    out: Path | None = None,
    threads: int = 1,
) -> Study:
    """Measure these parts, again where they have been, or all that the study lacks or has with other settings.

    `study`: without parts, or what the file `out` held; written anew after each part.
    """
    settings = bench.settings
    wanted = [part for part in PARTS if (part in parts if parts else not settings.measured_by(study.run_of(part)))]
    for part in wanted:
        others, begin_s, before = processor_use.others_cpus(), time.perf_counter(), bench.judge.evaluations
        entries = tuple(bench.measured(part))
        run = PartRun(
            part=part,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - begin_s,
            threads=threads,
            machine=describe_machine(),
            others_cpus=others,
            versions={"python": platform.python_version(), **installed_versions(_LIBRARIES)},
            evaluations=bench.judge.evaluations - before,
            seed=settings.seed,
            quick=settings.quick,
            settings=settings.told(),
        )
        study = merge_part(study, part, entries, run)
        if out is not None:
            write_study(out, study)
    return study


def merge_part(study: Study, part: Part, entries: Sequence[object], run: PartRun) -> Study:
    """Return the study with one part replaced by these entries."""
    stay = [past_run for past_run in study.runs if past_run.part != part]
    return study.model_copy(update={part: tuple(entries), "runs": (*stay, run), "tool": TOOL})


def continued_study(begun: Study, out: Path | None) -> Study:
    """What the file holds, or the study as begun where there is none.

    Raises `CalibrationError` where the file is a study of another model, store, task, device or order of importance.
    """
    if out is None or not out.exists():
        return begun
    held = read_study(out, Study)
    held, begun = _counted(held, begun), _counted(begun, held)
    for name in ("model", "task", "store", "importance", "devices", "length"):
        if getattr(held, name) != getattr(begun, name):
            what = f"a study of {held.name} with another {name}"
            raise CalibrationError(what, path=out, remedy="choose another file, or give what it was begun with")
    return held


def _counted(study: Study, other: Study) -> Study:
    """The study with the number of shared texts, where it is the other one alone that knows them."""
    if study.importance.shared is not None:
        return study
    counted = study.importance.model_copy(update={"shared": other.importance.shared})
    return study.model_copy(update={"importance": counted})


def study_classifier(
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
    with ShardStore.open(store) as opened, torch_threads(threads), torch.inference_mode():
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
            ranking_evaluator = evaluator if apart is None else _evaluator(opened, apart, settings.examples, threads, store)
            order = ranking.measured(ranking_evaluator, opened.fingerprint, None if out is None else _journal_of(out), say)
            del ranking_evaluator  # frees the examples that it keeps
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
        study = continued_study(begun, out)
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
    block = read_profile(path).sti
    if block is None:
        raise CalibrationError("the profile has no block sti", path=path, remedy="make one: simnmt sti profile STORE")
    if block.fingerprint is not None and block.fingerprint != store.fingerprint:
        raise CalibrationError("the profile is of another model's shards", path=path, remedy="profile this store")
    return block


def _held(out: Path | None, store: ShardStore, task: Task) -> Study | None:
    """Return the study to continue, if it is of this model and task."""
    if out is None or not out.exists():
        return None
    study = read_study(out, Study)
    return study if (study.model.sha256, study.task.sha256) == (store.fingerprint, task.sha256) else None


def _journal_of(out: Path) -> Path:
    """Where the order of importance is kept shard by shard, until the study holds it."""
    return out.with_name(f"{out.stem}.importance")


def _devices(
    store: ShardStore, blocks: Sequence[StiBlock], paths: Sequence[Path], order: Sequence[Shard], length: int
) -> list[tuple[StudiedDevice, StiCost]]:
    devices = paper_boards(store.geometry.layers, store.geometry.heads, tuple(order), length)
    for block, path in zip(blocks, paths, strict=True):
        devices.append(profile_device(block, block.device_name or path.stem, length, store.geometry, tuple(order)))
    names = [device.name for device, _ in devices]
    if len(set(names)) < len(names):
        raise CalibrationError("two profiles of one device", remedy="give one of each")
    return devices


def _classifier(store: ShardStore, path: Path) -> StudiedClassifier:
    geometry = store.geometry
    return StudiedClassifier(
        name=Path(store.index.origin).name or Path(os.path.realpath(path)).name,
        kind=store.kind,
        sha256=store.fingerprint,
        layers=geometry.layers,
        heads=geometry.heads,
        width=geometry.width,
        ffn=geometry.ffn,
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
