"""Measure a study of a streamed classifier part by part, from a store, a task and profiles; each part is added to its file.

A study that was stopped continues with the parts that its file lacks. Whatever cannot be measured is refused before the first
measurement. The order of importance comes from other examples than those that accuracy is measured on (STI-09).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch
from pydantic import JsonValue

from simnmt.base.files import refuse_replacing
from simnmt.calibrate.harness import Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.streaming.measurements import check_bits
from simnmt.calibrate.streaming.profile import measure_importance
from simnmt.nmt.devices import torch_threads
from simnmt.papers.kit.study import TOOL, part_run, read_study, write_study
from simnmt.papers.sti.study import (
    METHODS,
    PARTS,
    PLANNED,
    ImportanceOrder,
    Method,
    Outcome,
    Part,
    PartRun,
    Point,
    StudiedClassifier,
    StudiedDevice,
    StudiedStore,
    StudiedTask,
    Study,
    Uniform,
    Upgraded,
    packed_correct,
)
from simnmt.profile.streaming_cost import BERT_BASE, BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.evaluation import Evaluation, Evaluator
from simnmt.streaming.plan.plan_summary import in_memory, load_and_execute, standard_pipeline
from simnmt.streaming.plan.presets import PRELOAD_BYTES, Board, board_cost
from simnmt.streaming.plan.streaming_plan import StreamingPlan, loads_s, make_plan, memory_of, plan_with_bits
from simnmt.streaming.plan.submodel import submodel
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task, read_task

Devices = Sequence[tuple[StudiedDevice, StiCost]]
Progress = Callable[[float, int, str], None]
REMEDY = "give --importance-task FILE of other examples, or --importance-on-task"


def scaled(base_bytes: float) -> float:
    """Return a preload buffer for BERT's base size as a share of all shards in float32, which any model can have."""
    return base_bytes / (BERT_BASE.layers * BERT_BASE.float32_bytes_per_layer)


@dataclass(frozen=True, slots=True)
class StudySettings:
    """How much of a study is measured."""

    deadline_shares: tuple[float, ...] = (0.1, 0.13, 0.175, 0.25, 0.35, 0.5, 0.7, 1.0)
    """Of the whole model's computation: 0.13, 0.175 and 0.35 are the paper's 150, 200 and 400 ms where a layer takes 95 ms."""
    size_shares: tuple[float, ...] = tuple(scaled(1e6 * mb) for mb in (0.0, 0.2, 0.4, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
    """Preload buffers of the part `sizes`."""
    size_deadlines: tuple[float, ...] = (0.13, 0.25, 0.5)
    """Deadlines of the part `sizes`, as shares of the whole model's computation."""
    depths: tuple[float, ...] = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
    """Shares of the layers, and of the slices, that uniform submodels have beside the whole."""
    upgrades: tuple[tuple[float, float, float], ...] = (
        (5 / 12, 1 / 4, 1 / 5),
        (5 / 12, 1 / 4, 1 / 3),
        (5 / 12, 1 / 4, 8 / 15),
        (8 / 12, 1 / 2, 1 / 4),
        (1.0, 1.0, 1 / 4),
    )
    """Layers, slices, and shards raised, each as a share; the paper's case is 5 x 3 (Table 7's text)."""
    raised_to: int = 6
    """Bits."""
    random_orders: int = 20
    seed: int = 1


HEAD_WIDTH = 64
"""Width of a head of BERT; a shard of BERT has as many rows of each matrix."""
LENGTH = 32
"""Padded tokens that the boards' costs are labelled with; the costs depend on none."""
_RATE = "Shards of BERT’s size; a whole layer in 32 bits is read in 339 ms."
_ARM = f"{_RATE} A whole layer computes for 95 ms, in proportion to its slices but for 1/31, as on Odroid."
_GPU = f"{_RATE} A whole layer computes for 57 ms, so that 7 fit into 400 ms, a quarter of it for 0.7 % less, as on Jetson."
_BOARDS: tuple[tuple[str, Board, Board, str], ...] = (
    ("processor, 1 MB", "odroid", "odroid", _ARM),
    ("processor, 5 MB", "odroid", "jetson", f"{_ARM} With Jetson’s buffer, as 1 MB does not hold twelve slices of 2 bits."),
    ("GPU, 5 MB", "jetson", "jetson", _GPU),
)
"""Names, boards whose times count, boards whose preload buffers count, and sources."""


def paper_boards(layers: int, slices: int, order: tuple[Shard, ...]) -> list[tuple[StudiedDevice, StiCost]]:
    """Return the paper's boards: shards of BERT's size, and the paper's own times of a layer.

    The evaluated classifier may be smaller; it represents one with shards of that size. The preload buffer in a device's name
    is that of 12 layers of 12 shards; a smaller model has the same share of it.
    """
    geometry, devices = ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices), []
    for name, board, buffer, source in _BOARDS:
        cost = board_cost(board, geometry, LENGTH, order)
        device = StudiedDevice(
            name=name,
            kind="inferred",
            source=source,
            io_s=dict(cost.io_s),
            comp_s=tuple(cost.t_comp(LENGTH, count) for count in range(1, slices + 1)),
            preload_share=scaled(PRELOAD_BYTES[buffer]),
        )
        devices.append((device, cost))
    return devices


class Judge:
    """Outcomes by the shards of a submodel and their bits; each submodel is evaluated once."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._known: dict[frozenset[tuple[Shard, int]], Outcome] = {}

    @cached_property
    def _whole(self) -> Evaluation:
        """The evaluation of the whole model in 32 bits, which all others are compared with."""
        layers, slices = self._evaluator.geometry.layers, self._evaluator.geometry.heads
        return self._evaluator.evaluate(dict.fromkeys(product(range(layers), range(slices)), 32))

    @property
    def evaluations(self) -> int:
        """Number of submodels that were run over all examples."""
        return len(self._known)

    def __call__(self, bits: Mapping[Shard, int]) -> Outcome:
        """Return the outcome of the submodel that has these shards at these bits."""
        key = frozenset(bits.items())
        if key not in self._known:
            whole, evaluation = self._whole, self._evaluator.evaluate(bits)
            self._known[key] = Outcome(
                accuracy=evaluation.accuracy,
                log_likelihood=evaluation.mean_log_likelihood,
                agreement=evaluation.agreement(whole),
                correct=packed_correct(evaluation.correct),
            )
        return self._known[key]


def plan_method(method: Method, cost: StiCost, deadline_s: float, preload_share: float | None, length: int) -> StreamingPlan:
    """Return the plan that the method chooses; if none ends in time, one shard of one layer, which is late.

    `preload_share`: for `PLANNED` alone.
    """
    if method in PLANNED:
        preload_bytes = round((preload_share or 0.0) * cost.geometry.layers * cost.geometry.float32_bytes_per_layer)
        return make_plan(cost, deadline_s, preload_bytes, length=length, fills_deadline=method != "STI")
    if method == "Load&Exec":
        return load_and_execute(cost, deadline_s, length=length)
    bits = int(method.rpartition("-")[2])
    if method.startswith("PreloadModel"):
        return in_memory(cost, deadline_s, bits, length=length)
    pipeline = standard_pipeline(cost, deadline_s, bits, length=length)
    if pipeline is not None:
        return pipeline
    least = submodel(cost, 1, 1, length=length)
    return plan_with_bits(cost, least, dict.fromkeys(least.shards, bits), frozenset(), deadline_s, 0)


LOW_BITS = 2
"""Bits of the shards that are not raised."""


@dataclass(frozen=True, slots=True)
class StudyBench:
    """Everything that parts are measured with."""

    devices: Devices
    order: tuple[Shard, ...]
    """By importance, best first."""
    judge: Judge
    settings: StudySettings

    @property
    def geometry(self) -> ShardGeometry:
        """The whole model's."""
        return self.devices[0][1].geometry

    def measured(self, part: Part) -> tuple[object, ...]:
        """Return the entries of one part."""
        parts: dict[Part, Callable[[], Iterator[object]]] = {
            "uniform": self._uniform,
            "grid": self._grid,
            "sizes": self._sizes,
            "upgrades": self._upgrades,
        }
        return tuple(parts[part]())

    def point(self, device: StudiedDevice, cost: StiCost, method: Method, share: float, preload: float | None) -> Point:
        """Plan with one method for a deadline of that `share` of the whole computation, and evaluate the plan's submodel."""
        plan = plan_method(method, cost, share * device.whole_s(self.geometry.layers), preload, LENGTH)
        memory = memory_of(cost, plan, whole=method.startswith("PreloadModel"), in_turn=method == "Load&Exec")
        return Point(
            device=device.name,
            method=method,
            deadline_share=share,
            deadline_s=plan.deadline_s,
            preload_share=preload,
            preload_bytes=plan.preload_bytes if method in PLANNED else 0,
            layers=plan.layers,
            slices=plan.slices_per_layer,
            bits={bits: count for bits in BITS if (count := list(plan.bits.values()).count(bits))},
            held_bytes=memory.preload_bytes,
            # Parameters that lie in float32 already are computed where they lie.
            working_bytes=0 if method == "PreloadModel-32" else memory.working_bytes,
            load_s=tuple(loads_s(cost, plan.bits, plan.preloaded)),
            comp_s=cost.t_comp(LENGTH, plan.slices_per_layer),
            latency_s=plan.latency_s,
            stall_s=plan.stall_s,
            misses=plan.misses_deadline,
            flagged=plan.short_of_io,
            outcome=self.judge(plan.bits),
        )

    def _uniform(self) -> Iterator[Uniform]:
        """Evaluate the whole model at each bitwidth, and in full precision with fewer layers or fewer slices."""
        layers, slices = self.geometry.layers, self.geometry.heads
        sizes = [(layers, slices, bits) for bits in BITS]
        sizes += [(fewer, slices, 32) for fewer in self._fewer_than(layers)]
        sizes += [(layers, fewer, 32) for fewer in self._fewer_than(slices)]
        for depth, width, bits in sizes:
            outcome = self.judge(dict.fromkeys(self._submodel(depth, width), bits))
            yield Uniform(layers=depth, slices=width, bits=bits, outcome=outcome)

    def _fewer_than(self, whole: int) -> list[int]:
        return sorted({_part_of(whole, share) for share in self.settings.depths} - {whole})

    def _grid(self) -> Iterator[Point]:
        for device, cost in self.devices:
            for share in self.settings.deadline_shares:
                for method in METHODS:
                    for preload in sorted({0.0, device.preload_share}) if method in PLANNED else (None,):
                        yield self.point(device, cost, method, share, preload)

    def _sizes(self) -> Iterator[Point]:
        # One device of those that differ by their preload buffer alone, which this part varies anyway.
        named = {"name", "kind", "source", "preload_share"}
        distinct: dict[str, tuple[StudiedDevice, StiCost]] = {}
        for device, cost in self.devices:
            distinct.setdefault(device.model_dump_json(exclude=named), (device, cost))
        for device, cost in distinct.values():
            for share in self.settings.size_deadlines:
                for preload in self.settings.size_shares:
                    yield self.point(device, cost, "STI", share, preload)

    def _upgrades(self) -> Iterator[Upgraded]:
        settings, to_bits = self.settings, self.settings.raised_to
        for at, (depth, width, part) in enumerate(settings.upgrades):
            layers, slices = _part_of(self.geometry.layers, depth), _part_of(self.geometry.heads, width)
            shards = self._submodel(layers, slices)
            raised = _part_of(len(shards), part)
            base = dict.fromkeys(shards, LOW_BITS)
            important = [shard for shard in self.order if shard in base][:raised]
            generator = np.random.default_rng((settings.seed, at))
            orders = [
                [shards[place] for place in generator.permutation(len(shards))[:raised]] for _ in range(settings.random_orders)
            ]
            yield Upgraded(
                layers=layers,
                slices=slices,
                raised=raised,
                to_bits=to_bits,
                base=self.judge(base),
                best=self.judge(base | dict.fromkeys(important, to_bits)),
                random=tuple(self.judge(base | dict.fromkeys(order, to_bits)) for order in orders),
                same=sum(set(order) == set(important) for order in orders),
            )

    def _submodel(self, layers: int, slices: int) -> list[Shard]:
        """Return the most important slices of each of the bottom layers."""
        by_layer = ([shard for shard in self.order if shard[0] == layer] for layer in range(layers))
        return [shard for shards in by_layer for shard in sorted(shards[:slices])]


def _part_of(whole: int, share: float) -> int:
    """Return this share of `whole`, at least 1."""
    return max(1, round(share * whole))


def measure(
    study: Study,
    bench: StudyBench,
    *,
    parts: Sequence[Part] = PARTS,
    out: Path | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Study:
    """Measure those of the parts that the study lacks, or has with other settings.

    `study`: without parts, or the content of the file `out`, which is written anew after each part.
    """
    settings: dict[str, JsonValue] = json.loads(json.dumps(asdict(bench.settings)))
    known = {run.part for run in study.runs if run.settings == settings}
    for part in (part for part in parts if part not in known):
        if progress is not None:
            progress(PARTS.index(part), len(PARTS), f"part {part}")
        before, entries = bench.judge.evaluations, bench.measured(part)
        run = part_run(
            PartRun,
            threads,
            ("torch", "numpy", "scipy"),
            part=part,
            evaluations=bench.judge.evaluations - before,
            seed=bench.settings.seed,
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
    for name in ("model", "task", "store", "importance.order", "devices", "length"):
        if attrgetter(name)(begun) != attrgetter(name)(kept):
            what = f"a study of {kept.name} with another {name}"
            raise CalibrationError(what, path=out, remedy="choose another file, or give the options of that study")
    return kept


def study_classifier(
    store_path: Path,
    task_path: Path,
    *,
    importance_task: Path | None = None,
    importance_on_task: bool = False,
    settings: StudySettings = StudySettings(),
    out: Path | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Study:
    """Study a classifier part by part.

    Args:
        store_path: shards of the classifier.
        task_path: labelled examples that it was not trained on, to judge by.
        importance_task: other examples, by which shards are ranked.
        importance_on_task: rank the shards on the task itself, which flatters the order.
        out: the file that the study is kept in and continued from.

    Raises `InputError` of several rooms, before anything is measured.
    """
    refuse_replacing(out, task_path, importance_task)
    if importance_task is not None and importance_on_task:
        raise CalibrationError("--importance-on-task beside --importance-task", remedy="give one of them")
    with ShardStore.open(store_path) as store, torch_threads(threads), torch.inference_mode():
        check_bits(store)
        if store.index.random:
            raise CalibrationError("shards of an untrained model", path=store_path, remedy="shard a trained one")
        labels = store.label_names or None
        task = read_task(task_path, label_names=labels)
        apart = None if importance_task is None else read_task(importance_task, label_names=labels)
        if apart is not None and apart.sha256 == task.sha256:
            raise CalibrationError("--importance-task: the examples of --task", path=apart.path, remedy=REMEDY)
        ranking = task if importance_on_task else apart
        kept = None if out is None or not out.exists() else read_study(out, Study)
        order = None if kept is None else kept.importance
        if ranking is None and order is None:
            what = "no option names the examples that rank the shards, and those that judge must not"
            raise CalibrationError(what, path=task.path, remedy=REMEDY)
        evaluator = _evaluator(store, task, threads)
        journal = None if out is None else out.with_name(f"{out.stem}.importance")  # until the study has the order
        if ranking is not None and (order is None or order.task_sha256 != ranking.sha256):
            ranks = evaluator if ranking is task else _evaluator(store, ranking, threads)
            importance = measure_importance(ranks, ranking, store.fingerprint, journal, Silent)
            names = ("order", "evaluations", "task", "task_sha256", "examples")
            measured = {name: getattr(importance, name) for name in names}
            order = ImportanceOrder(**measured, shared=ranking.shared_texts(task))
            del ranks  # frees its examples
        assert order is not None
        devices = paper_boards(store.geometry.layers, store.geometry.heads, order.order)
        begun = _begun_study(store, store_path, task, devices, order)
        bench = StudyBench(devices, order.order, Judge(evaluator), settings)
        study = measure(continued_study(begun, out), bench, out=out, threads=threads, progress=progress)
    if journal is not None:
        journal.unlink(missing_ok=True)
    return study


def _evaluator(store: ShardStore, task: Task, threads: int) -> Evaluator:
    tokens = store.tokenizer().encode(task.texts, store.configuration.positions)
    encoder = ElasticEncoder(store.configuration, store.resident())
    return Evaluator(encoder, store, tokens, task.labels.tolist(), threads=threads)


def _begun_study(store: ShardStore, path: Path, task: Task, devices: Devices, order: ImportanceOrder) -> Study:
    """Return the study without parts."""
    geometry, folder = store.geometry, Path(os.path.realpath(path)).name
    outliers = sum(record.outliers for record in store.records if record.bits == BITS[0])
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
            examples=len(task),
            classes=len(task.label_names),
            largest_class=float(np.bincount(task.labels).max() / len(task)),
        ),
        store=StudiedStore(
            name=folder,
            shard_bytes={bits: round(store.mean_size(bits)) for bits in BITS},
            outlier_share=outliers / (geometry.layers * geometry.weights_per_layer),
        ),
        devices=tuple(device for device, _ in devices),
        length=LENGTH,
        importance=order,
    )
