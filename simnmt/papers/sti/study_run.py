"""Measure a study of a streamed classifier from a store and a task, part by part; each part is added to its file at once.

A study that was stopped goes on with the parts that its file lacks. Whatever cannot be measured is refused before the first
measurement. The order of importance comes from other examples than those that accuracy is measured on (STI-09).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from simnmt.base.files import refuse_replacing
from simnmt.calibrate.harness import Silent
from simnmt.calibrate.settings import CalibrationError
from simnmt.calibrate.streaming.measurements import check_bits
from simnmt.calibrate.streaming.profile import measure_importance
from simnmt.nmt.devices import torch_threads
from simnmt.papers.kit.study import TOOL, part_run, read_study, write_study
from simnmt.papers.sti.study import (
    DEVICES,
    GPU,
    PARTS,
    PLANNED,
    PROCESSOR,
    Device,
    ImportanceOrder,
    Order,
    PartRun,
    Point,
    Raised,
    StudiedClassifier,
    StudiedTask,
    Study,
    Uniform,
    packed,
    scaled,
)
from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.encoder import ElasticEncoder
from simnmt.streaming.evaluation import Evaluation, Evaluator
from simnmt.streaming.plan.plan_summary import contestants
from simnmt.streaming.plan.presets import board_cost
from simnmt.streaming.plan.streaming_plan import Memory, StreamingPlan, loads_s, make_plan, memory_of, plan_with_bits
from simnmt.streaming.plan.submodel import submodel
from simnmt.streaming.store import ShardStore
from simnmt.streaming.texts import Task, read_task

Progress = Callable[[float, int, str], None]


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
    random_orders: int = 20
    seed: int = 1


HEAD_WIDTH = 64
"""Width of a head of BERT; a shard of BERT has as many rows of each matrix."""
LENGTH = 32
"""Padded tokens that the boards' costs are labelled with; the costs depend on none."""
LOW_BITS, RAISED_BITS = 2, 6
"""Bits of the part `upgrades`."""


def device_cost(device: Device, layers: int, slices: int, order: tuple[Shard, ...]) -> StiCost:
    """Return the costs of a board for a model of as many layers and slices, with shards of BERT's size."""
    return board_cost(device.times, ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices), LENGTH, order)


class Judge:
    """Answers by the shards of a submodel and their bits; each submodel is evaluated once."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._known: dict[frozenset[tuple[Shard, int]], Evaluation] = {}
        geometry = evaluator.geometry
        self.whole = self._evaluation(dict.fromkeys(product(range(geometry.layers), range(geometry.heads)), 32))
        """The evaluation of the whole model in 32 bits, which all others are compared with."""

    def _evaluation(self, bits: Mapping[Shard, int]) -> Evaluation:
        key = frozenset(bits.items())
        if key not in self._known:
            self._known[key] = self._evaluator.evaluate(bits)
        return self._known[key]

    def __call__(self, layers: int, slices: int, bits: Mapping[Shard, int]) -> dict[str, Any]:
        """Return the fields of `Answers` of the submodel that has these shards at these bits."""
        evaluation = self._evaluation(bits)
        size = {"layers": layers, "slices": slices}
        answers = {"agreement": evaluation.agreement(self.whole), "correct": packed(evaluation.correct)}
        return {**size, **answers, "accuracy": evaluation.accuracy}


class Contender(NamedTuple):
    """A method with its plan for one deadline."""

    method: str
    preload_share: float | None
    plan: StreamingPlan
    memory: Memory


def planned(cost: StiCost, deadline_s: float, preload_share: float, method: str = "STI") -> Contender:
    """Return STI with a preload buffer of this share of all shards in float32."""
    preload_bytes = round(preload_share * cost.geometry.layers * cost.geometry.float32_bytes_per_layer)
    plan = make_plan(cost, deadline_s, preload_bytes, length=LENGTH, fills_deadline=method != "STI")
    return Contender(method, preload_share, plan, memory_of(cost, plan))


def baselines(cost: StiCost, deadline_s: float) -> Iterator[Contender]:
    """Yield the methods that STI is compared with; where no submodel ends in time, one shard of one layer runs late."""
    for rival in contestants(cost, deadline_s, length=LENGTH):
        plan, method = rival.plan, rival.name.replace("full", "32")
        if plan is None:
            least = submodel(cost, 1, 1, length=LENGTH)
            bits = dict.fromkeys(least.shards, int(method.rpartition("-")[2]))
            plan = plan_with_bits(cost, least, bits, frozenset(), deadline_s, 0)
        memory = rival.memory or memory_of(cost, plan)
        if method == "PreloadModel-32":  # computed where it lies
            memory = replace(memory, working_bytes=0)
        yield Contender(method, None, plan, memory)


@dataclass(frozen=True, slots=True)
class StudyBench:
    """Everything that parts are measured with."""

    order: tuple[Shard, ...]
    """By importance, best first."""
    judge: Judge
    layers: int
    slices: int
    settings: StudySettings = StudySettings()

    def uniform(self) -> Iterator[Uniform]:
        """Evaluate the whole model at each bitwidth, and in full precision with fewer layers or fewer slices."""
        fewer_layers, fewer_slices = (
            sorted({_part_of(whole, share) for share in self.settings.depths} - {whole}) for whole in (self.layers, self.slices)
        )
        sizes = [(self.layers, self.slices, bits) for bits in BITS]
        sizes += [(fewer, self.slices, 32) for fewer in fewer_layers] + [(self.layers, fewer, 32) for fewer in fewer_slices]
        for layers, slices, bits in sizes:
            yield Uniform(bits=bits, **self.judge(layers, slices, dict.fromkeys(self._submodel(layers, slices), bits)))

    def grid(self) -> Iterator[Point]:
        """Plan with every method for every deadline and device, and evaluate the plans' submodels."""
        for device in DEVICES:
            cost = device_cost(device, self.layers, self.slices, self.order)
            for share in self.settings.deadline_shares:
                deadline_s = share * (self.layers * cost.t_comp(LENGTH, self.slices))
                buffers = product(PLANNED, (0.0, device.preload_share))
                ours = [planned(cost, deadline_s, preload_share, method) for method, preload_share in buffers]
                for contender in (*ours, *baselines(cost, deadline_s)):
                    yield self._point(device, cost, share, contender)

    def sizes(self) -> Iterator[Point]:
        """Plan with preload buffers of many sizes, on one of the devices that differ by their buffer alone."""
        for device in (PROCESSOR, GPU):
            cost = device_cost(device, self.layers, self.slices, self.order)
            for share, preload_share in product(self.settings.size_deadlines, self.settings.size_shares):
                deadline_s = share * (self.layers * cost.t_comp(LENGTH, self.slices))
                yield self._point(device, cost, share, planned(cost, deadline_s, preload_share))

    def upgrades(self) -> Iterator[Raised]:
        """Raise as many shards by importance and at random."""
        for at, (depth, width, part) in enumerate(self.settings.upgrades):
            layers, slices = _part_of(self.layers, depth), _part_of(self.slices, width)
            shards = self._submodel(layers, slices)
            raised, base = _part_of(len(shards), part), dict.fromkeys(shards, LOW_BITS)
            generator = np.random.default_rng((self.settings.seed, at))
            draws = [generator.permutation(len(shards))[:raised] for _ in range(self.settings.random_orders)]
            orders: list[tuple[Order, list[Shard]]] = [("none", [])]
            orders += [("importance", [shard for shard in self.order if shard in base][:raised])]
            orders += [("random", [shards[place] for place in draw]) for draw in draws]
            for order, chosen in orders:
                answers = self.judge(layers, slices, base | dict.fromkeys(chosen, RAISED_BITS))
                yield Raised(raised=raised, to_bits=RAISED_BITS, order=order, **answers)

    def _point(self, device: Device, cost: StiCost, deadline_share: float, contender: Contender) -> Point:
        plan, memory = contender.plan, contender.memory
        return Point(
            device=device.name,
            method=contender.method,  # type: ignore[arg-type]
            deadline_share=deadline_share,
            deadline_s=plan.deadline_s,
            preload_share=contender.preload_share,
            mean_bits=sum(plan.bits.values()) / len(plan.bits),
            held_bytes=memory.preload_bytes,
            working_bytes=memory.working_bytes,
            load_s=tuple(loads_s(cost, plan.bits, plan.preloaded)),
            comp_s=cost.t_comp(LENGTH, plan.slices_per_layer),
            latency_s=plan.latency_s,
            stall_s=plan.stall_s,
            misses=plan.misses_deadline,
            **self.judge(plan.layers, plan.slices_per_layer, plan.bits),
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
    out: Path | None = None,
    threads: int = 1,
    progress: Progress = lambda done, total, title: None,
) -> Study:
    """Measure the parts that the study lacks, and write it to the file `out` after each."""
    for number, part in enumerate(PARTS):
        if getattr(study, part):
            continue
        progress(number, len(PARTS), f"part {part}")
        rows = tuple(getattr(bench, part)())
        run = part_run(PartRun, threads, ("torch", "numpy", "scipy"), part=part)
        study = study.model_copy(update={part: rows, "runs": (*study.runs, run), "tool": TOOL})
        if out is not None:
            write_study(out, study)
    return study


def study_classifier(
    store_path: Path,
    task_path: Path,
    *,
    importance_task: Path | None = None,
    settings: StudySettings = StudySettings(),
    out: Path | None = None,
    threads: int = 1,
    progress: Progress | None = None,
) -> Study:
    """Study a classifier part by part.

    Args:
        store_path: shards of the classifier.
        task_path: labelled examples that it was not trained on, to judge by.
        importance_task: examples by which shards are ranked; those of the task itself flatter the order.
        out: the file that the study is kept in and continued from.

    Raises `InputError` of several rooms, before anything is measured.
    """
    refuse_replacing(out, task_path, importance_task)
    with ShardStore.open(store_path) as store, torch_threads(threads), torch.inference_mode():
        check_bits(store)
        if store.index.random:
            raise CalibrationError("shards of an untrained model", path=store_path, remedy="shard a trained one")
        geometry, task = store.geometry, read_task(task_path, label_names=store.label_names or None)
        model = StudiedClassifier(
            name=Path(store.index.origin).name or store_path.resolve().name,
            sha256=store.fingerprint,
            layers=geometry.layers,
            heads=geometry.heads,
            width=geometry.width,
        )
        judged = StudiedTask(name=Path(task.path).name, sha256=task.sha256, examples=len(task), largest_class=task.majority)
        study = None if out is None or not out.exists() else read_study(out, Study)
        if study is not None and (study.model, study.task) != (model, judged):
            raise CalibrationError(f"a study of {study.name}, of another model or task", path=out, remedy="choose another file")
        if study is None:
            if importance_task is None:
                raise CalibrationError(
                    "no examples to rank the shards by", path=task.path, remedy="give --importance-task FILE"
                )
            ranking = read_task(importance_task, label_names=store.label_names or None)
            study = Study(tool=TOOL, model=model, task=judged, importance=_ranked(store, ranking, task, threads))
        judge, order = Judge(_evaluator(store, task, threads)), study.importance.order
        bench = StudyBench(order, judge, geometry.layers, geometry.heads, settings)
        return measure(study, bench, out=out, threads=threads, **({} if progress is None else {"progress": progress}))


def _ranked(store: ShardStore, ranking: Task, judged: Task, threads: int) -> ImportanceOrder:
    importance = measure_importance(_evaluator(store, ranking, threads), ranking, store.fingerprint, None, Silent)
    return ImportanceOrder(
        order=importance.order,
        task=importance.task,
        task_sha256=importance.task_sha256,
        examples=importance.examples,
        shared=ranking.shared_texts(judged),
    )


def _evaluator(store: ShardStore, task: Task, threads: int) -> Evaluator:
    tokens = store.tokenizer().encode(task.texts, store.configuration.positions)
    encoder = ElasticEncoder(store.configuration, store.resident())
    return Evaluator(encoder, store, tokens, task.labels.tolist(), threads=threads)
