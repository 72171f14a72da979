"""Measure a study of a streamed classifier part by part, from a store, a task and profiles; each part is added to its file.

A study that was stopped continues with the parts that its file lacks. Whatever cannot be measured is refused before the first
measurement. The order of importance comes from other examples than those that accuracy is measured on (STI-09).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from simnmt.base.files import refuse_replacing
from simnmt.calibrate.harness import Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.streaming.profile import measure_importance
from simnmt.nmt.devices import torch_threads
from simnmt.papers.kit.study import TOOL, PartClock, read_study, write_study
from simnmt.papers.sti.study import (
    PARTS,
    ImportanceOrder,
    PartRun,
    StudiedClassifier,
    StudiedDevice,
    StudiedStore,
    StudiedTask,
    Study,
    StudySource,
)
from simnmt.papers.sti.study_bench import LENGTH, QUICK, Devices, Judge, StudyBench, StudySettings, paper_boards, profile_device
from simnmt.profile.profile_file import read_profile
from simnmt.profile.streaming_block import StiBlock, StiImportance
from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.evaluation import Evaluator
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task, read_task, tokenizer_from

Say = Callable[[str], None]
REMEDY = "give --importance-task FILE of other examples, or --importance-on-task"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The examples that rank the shards.

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
        """The examples to measure the order on; None if no option names any."""
        return self.judged if self.on_judged else self.apart

    def known(self, blocks: Sequence[StiBlock], begun: Study | None) -> ImportanceOrder | None:
        """Return the order of the first profile whose examples fit, or of a begun study; None if it has to be measured.

        Examples fit that the options name or, if they name none, any but the judged ones. Raises `CalibrationError` if no
        order fits and none can be measured.
        """
        orders = [importance_order(block.importance, None) for block in blocks if block.importance is not None]
        orders += [] if begun is None else [begun.importance]
        for order in orders:
            if self.task is None and order.task_sha256 != self.judged.sha256:
                return order
            if self.task is not None and order.task_sha256 == self.task.sha256:
                shared = self._shared(self.task, order.examples) if order.shared is None else order.shared
                return order.model_copy(update={"shared": shared})
        if self.task is not None:
            return None
        if orders:
            what = "shards were ranked on the very examples that are to judge them"
            raise CalibrationError(what, path=self.judged.path, remedy=REMEDY)
        raise CalibrationError("no option names the examples that rank the shards", remedy=REMEDY)

    def _shared(self, task: Task, examples: int | None) -> int:
        """Return how many of the first `examples` of `task` (None: of all) are judged too."""
        return replace(task, texts=task.texts[:examples], labels=task.labels[:examples]).shared_texts(self.judged)

    def measured(self, evaluator: Evaluator, fingerprint: str, journal: Path | None, say: Say) -> ImportanceOrder:
        """Measure the order by one evaluation per shard and one more; the examples of `evaluator` must be those of `task`."""
        assert self.task is not None
        importance = measure_importance(evaluator, self.task, fingerprint, journal, Silent)
        return importance_order(importance, self._shared(self.task, importance.examples))


def importance_order(importance: StiImportance, shared: int | None) -> ImportanceOrder:
    """Convert a profile's importance to the form that a study keeps."""
    names = ("order", "evaluations", "task", "task_sha256", "examples")
    return ImportanceOrder(shared=shared, **{name: getattr(importance, name) for name in names})


def measure(study: Study, bench: StudyBench, *, parts: Sequence[str] = (), out: Path | None = None, threads: int = 1) -> Study:
    """Measure these parts, again if they were measured before; by default all that the study lacks or has with other settings.

    `study`: without parts, or the content of the file `out`, which is written anew after each part.
    """
    settings = bench.settings.record()
    measured_so = {run.part for run in study.runs if run.settings == settings}
    for part in PARTS:
        if part not in parts if parts else part in measured_so:
            continue
        clock, before = PartClock(threads), bench.judge.evaluations
        entries = tuple(bench.measured(part))
        run = clock.run(
            PartRun,
            ("torch", "numpy", "scipy"),
            part=part,
            evaluations=bench.judge.evaluations - before,
            seed=bench.settings.seed,
            quick=bench.settings.quick,
            settings=settings,
        )
        runs = (*(past_run for past_run in study.runs if past_run.part != part), run)
        study = study.model_copy(update={part: entries, "runs": runs, "tool": TOOL})
        if out is not None:
            write_study(out, study)
    return study


def continued_study(begun: Study, out: Path | None) -> Study:
    """Return the study in the file `out`, or `begun` if there is no file.

    Raises `CalibrationError` if the file is a study of another model, store, task, device or order of importance.
    """
    if out is None or not out.exists():
        return begun
    kept = read_study(out, Study)
    kept, begun = _with_shared(kept, begun), _with_shared(begun, kept)
    for name in ("model", "task", "store", "importance", "devices", "length"):
        if getattr(kept, name) != getattr(begun, name):
            what = f"a study of {kept.name} with another {name}"
            raise CalibrationError(what, path=out, remedy="choose another file, or give the options of that study")
    return kept


def _with_shared(study: Study, other: Study) -> Study:
    """Return the study with the number of shared texts, if the other study alone has it."""
    if study.importance.shared is not None:
        return study
    importance = study.importance.model_copy(update={"shared": other.importance.shared})
    return study.model_copy(update={"importance": importance})


def study_classifier(
    source: StudySource,
    *,
    settings: StudySettings | None = None,
    out: Path | None = None,
    threads: int = 1,
    say: Say = lambda _: None,
) -> Study:
    """Study a classifier part by part; `out` is the file that the study is kept in and continued from.

    The first profile whose importance was found on the requested examples (by default on any but the judged ones) gives the
    order of importance; else it is measured. Raises `InputError` of several rooms, before anything is measured.
    """
    settings = settings or (QUICK if source.quick else StudySettings())
    refuse_replacing(out, *filter(None, (source.task, *source.profiles, source.importance_task)))
    if out is not None and not out.parent.is_dir():
        raise CalibrationError("no such folder", path=out.parent, remedy="make it first")
    with ShardStore.open(source.store) as store, torch_threads(threads), torch.inference_mode():
        if lacking := [bits for bits in BITS if bits not in store.bits]:
            what = f"no shards of {', '.join(map(str, lacking))} bits"
            raise CalibrationError(what, path=source.store, remedy="shard it with all bits: simnmt sti shard")
        if store.index.random:
            raise CalibrationError("shards of an untrained model", path=source.store, remedy="shard a trained one")
        names, ranks = store.label_names or None, source.importance_task
        task = read_task(source.task, label_names=names)
        apart = None if ranks is None else read_task(ranks, label_names=names)
        ranking = Ranking(task, apart, source.importance_on_task)
        blocks = [_block(path, store) for path in source.profiles]
        evaluator = _evaluator(store, task, settings.examples, threads, source.store)
        kept = None if out is None or not out.exists() else read_study(out, Study)
        continues = kept is not None and (kept.model.sha256, kept.task.sha256) == (store.fingerprint, task.sha256)
        order = ranking.known(blocks, kept if continues else None)
        journal = None if out is None else out.with_name(f"{out.stem}.importance")  # until the study has the order
        if order is None:
            ranking_evaluator = (
                evaluator if apart is None else _evaluator(store, apart, settings.examples, threads, source.store)
            )
            order = ranking.measured(ranking_evaluator, store.fingerprint, journal, say)
            del ranking_evaluator  # frees its examples
        length = blocks[0].compute.lengths[-1].length if blocks else LENGTH
        devices = _devices(store, blocks, source.profiles, order.order, length)
        begun = _begun_study(store, source.store, task, len(evaluator), devices, length, order)
        bench = StudyBench(devices, length, order.order, Judge(evaluator), settings, say)
        study = measure(continued_study(begun, out), bench, parts=source.parts, out=out, threads=threads)
    if journal is not None:
        journal.unlink(missing_ok=True)
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


def _begun_study(
    store: ShardStore, path: Path, task: Task, examples: int, devices: Devices, length: int, order: ImportanceOrder
) -> Study:
    """Return the study without parts."""
    geometry, folder = store.geometry, Path(os.path.realpath(path)).name
    outliers = sum(record.outliers for record in store.index.records if record.bits == BITS[0])
    return Study(
        tool=TOOL,
        model=StudiedClassifier(
            name=Path(store.index.origin).name or folder,
            kind=store.kind,
            sha256=store.fingerprint,
            layers=geometry.layers,
            heads=geometry.heads,
            width=geometry.width,
            ffn=geometry.ffn,
        ),
        task=StudiedTask(
            name=Path(task.path).name,
            sha256=task.sha256,
            examples=examples,
            classes=len(task.label_names),
            largest_class=float(np.bincount(task.labels[:examples]).max() / examples),
        ),
        store=StudiedStore(
            name=folder,
            shard_bytes={bits: round(store.mean_size(bits)) for bits in BITS},
            outlier_share=outliers / (geometry.layers * geometry.weights_per_layer),
        ),
        devices=tuple(device for device, _ in devices),
        length=length,
        importance=order,
    )
