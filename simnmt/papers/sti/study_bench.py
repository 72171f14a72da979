"""The settings, devices and parts of a study: each part is measured as entries of the study's file (STI-10 to 15, 20 to 27)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, product

import numpy as np
from pydantic import JsonValue

from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.sti.study import (
    METHODS,
    PLANNED,
    Kind,
    Method,
    Outcome,
    Part,
    Point,
    StudiedDevice,
    Uniform,
    Upgraded,
    packed_correct,
)
from simnmt.profile.streaming_block import StiBlock
from simnmt.profile.streaming_cost import BERT_BASE, BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.evaluation import Evaluation, Evaluator
from simnmt.streaming.plan.plan_summary import in_memory, load_and_execute, standard_pipeline
from simnmt.streaming.plan.presets import PRELOAD_BYTES, Board, board_cost
from simnmt.streaming.plan.streaming_plan import StreamingPlan, loads_s, make_plan, memory_of, plan_with_bits
from simnmt.streaming.plan.submodel import submodel

Devices = Sequence[tuple[StudiedDevice, StiCost]]


def scaled(base_bytes: float) -> float:
    """Return a preload buffer for BERT's base size as a share of all shards in float32, which any model can have."""
    return base_bytes / (BERT_BASE.layers * BERT_BASE.float32_bytes_per_layer)


@dataclass(frozen=True, slots=True)
class StudySettings:
    """How much of a study is measured. Raises `CalibrationError` for settings that leave nothing to measure."""

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
    examples: int | None = None
    """Number of examples, from the first; None: all."""
    seed: int = 1
    quick: bool = False
    """Recorded with each part: too little is measured for a verdict."""

    def record(self) -> dict[str, JsonValue]:
        """Return the settings as JSON values."""
        settings: dict[str, JsonValue] = json.loads(json.dumps(asdict(self)))
        return settings

    def __post_init__(self) -> None:
        shares = [*self.deadline_shares, *self.size_deadlines, *self.depths, *chain.from_iterable(self.upgrades)]
        if not self.deadline_shares or min(shares) <= 0.0 or min(self.size_shares, default=0.0) < 0.0:
            raise CalibrationError("a study needs a deadline, and no share may be 0 or less", remedy="give shares above 0")
        if self.random_orders < 1 or (self.examples is not None and self.examples < 1):
            raise CalibrationError("random_orders and examples must be at least 1", remedy="give 1 or more of each")


QUICK = StudySettings(
    deadline_shares=(0.13, 0.35, 0.7),
    size_shares=tuple(scaled(1e6 * mb) for mb in (0.0, 0.4, 4.0)),
    size_deadlines=(0.25,),
    depths=(1 / 3, 2 / 3),
    upgrades=((5 / 12, 1 / 4, 1 / 3),),
    random_orders=5,
    examples=200,
    quick=True,
)
"""A minute: few deadlines, sizes, orders and examples."""

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


def paper_boards(
    layers: int, slices: int, order: tuple[Shard, ...], length: int = LENGTH
) -> list[tuple[StudiedDevice, StiCost]]:
    """Return the paper's boards: shards of BERT's size, and the paper's own times of a layer.

    The evaluated classifier may be smaller; it represents one with shards of that size. The preload buffer in a device's name
    is that of 12 layers of 12 shards; a smaller model has the same share of it.
    """
    geometry = ShardGeometry(layers, slices, HEAD_WIDTH * slices, 4 * HEAD_WIDTH * slices)
    costs = [(entry, board_cost(entry[1], geometry, length, order)) for entry in _BOARDS]
    return [
        (_device(name, "inferred", source, cost, length, PRELOAD_BYTES[buffer]), cost)
        for (name, _, buffer, source), cost in costs
    ]


def profile_device(
    block: StiBlock, device: str, length: int, geometry: ShardGeometry, order: tuple[Shard, ...]
) -> tuple[StudiedDevice, StiCost]:
    """Return a measured device with its cost. Raises `CalibrationError` if its profile is of a model of other sizes."""
    measured_cost = block.cost()
    if measured_cost.geometry != geometry:
        what = f"the profile of {device} is of {block.model}, whose layers have other sizes than the store's"
        raise CalibrationError(what, remedy="profile this store: `simnmt sti profile STORE`")
    cost, pace = replace(measured_cost, importance=order), block.io.paced_bytes_per_s
    source = "Read as measured" if pace is None else f"Read at an imitated {pace / 1e6:g} MB/s"
    source += f", a whole layer of {length} tokens computed as measured."
    if cost.slowed:
        source += f" While the disk reads, computing takes {min(cost.slowed):.2f} to {max(cost.slowed):.2f} times as long."
    return _device(device, block.kind, source, cost, length, PRELOAD_BYTES["jetson"]), cost


def _device(name: str, kind: Kind, source: str, cost: StiCost, length: int, base_preload_bytes: int) -> StudiedDevice:
    return StudiedDevice(
        name=name,
        kind=kind,
        source=source,
        io_s=dict(cost.io_s),
        comp_s=tuple(cost.t_comp(length, count) for count in range(1, cost.geometry.heads + 1)),
        embed_s=cost.t_embed(length),
        head_s=cost.head_s,
        slowed=cost.slowed,
        preload_share=scaled(base_preload_bytes),
    )


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
    length: int
    order: tuple[Shard, ...]
    """By importance, best first."""
    judge: Judge
    settings: StudySettings
    say: Callable[[str], None]

    @property
    def geometry(self) -> ShardGeometry:
        """The whole model's."""
        return self.devices[0][1].geometry

    def measured(self, part: Part) -> Iterator[object]:
        """Yield the entries of one part."""
        entries: Iterator[object] = getattr(self, f"_{part}")()
        return entries

    def point(self, device: StudiedDevice, cost: StiCost, method: Method, share: float, preload: float | None) -> Point:
        """Plan with one method for a deadline of that `share` of the whole computation, and evaluate the plan's submodel."""
        plan = plan_method(method, cost, share * device.whole_s(self.geometry.layers), preload, self.length)
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
            comp_s=cost.t_comp(self.length, plan.slices_per_layer),
            latency_s=plan.latency_s,
            stall_s=plan.stall_s,
            misses=plan.misses_deadline,
            flagged=plan.short_of_io,
            outcome=self.judge(plan.bits),
        )

    def _uniform(self) -> Iterator[Uniform]:
        """Evaluate the whole model at each bitwidth, and in full precision with fewer layers or fewer slices."""
        all_layers, all_slices = self.geometry.layers, self.geometry.heads
        sizes = [(all_layers, all_slices, bits) for bits in BITS]
        sizes += [(layers, all_slices, 32) for layers in self._fewer_than(all_layers)]
        sizes += [(all_layers, slices, 32) for slices in self._fewer_than(all_slices)]
        for layers, slices, bits in sizes:
            self.say(f"uniform: {layers} x {slices}, {bits} bits")
            outcome = self.judge(dict.fromkeys(self._submodel(layers, slices), bits))
            yield Uniform(layers=layers, slices=slices, bits=bits, outcome=outcome)

    def _fewer_than(self, whole: int) -> list[int]:
        return sorted({_part_of(whole, share) for share in self.settings.depths} - {whole})

    def _grid(self) -> Iterator[Point]:
        for device, cost in self.devices:
            for share in self.settings.deadline_shares:
                for method in METHODS:
                    for preload in sorted({0.0, device.preload_share}) if method in PLANNED else (None,):
                        self.say(f"grid: {device.name}, {100 * share:g} % of the whole computation, {method}")
                        yield self.point(device, cost, method, share, preload)

    def _sizes(self) -> Iterator[Point]:
        for device, cost in self._distinct_devices():
            for share in self.settings.size_deadlines:
                for preload in self.settings.size_shares:
                    text = f"{100 * share:g} % of the whole computation, buffer of {100 * preload:.2f} %"
                    self.say(f"sizes: {device.name}, {text}")
                    yield self.point(device, cost, "STI", share, preload)

    def _upgrades(self) -> Iterator[Upgraded]:
        settings, to_bits = self.settings, self.settings.raised_to
        for at, (depth, width, part) in enumerate(settings.upgrades):
            layers, slices = _part_of(self.geometry.layers, depth), _part_of(self.geometry.heads, width)
            shards = self._submodel(layers, slices)
            raised = _part_of(len(shards), part)
            self.say(f"upgrades: {layers} x {slices}, {raised} shards to {to_bits} bits")
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

    def _distinct_devices(self) -> Devices:
        """Return one device of those that differ by their preload buffer alone, which these parts vary anyway."""
        distinct: dict[str, tuple[StudiedDevice, StiCost]] = {}
        for device, cost in self.devices:
            distinct.setdefault(device.model_dump_json(exclude={"name", "kind", "source", "preload_share"}), (device, cost))
        return list(distinct.values())

    def _submodel(self, layers: int, slices: int) -> list[Shard]:
        """Return the most important slices of each of the bottom layers."""
        by_layer = ([shard for shard in self.order if shard[0] == layer] for layer in range(layers))
        return [shard for shards in by_layer for shard in sorted(shards[:slices])]


def _part_of(whole: int, share: float) -> int:
    """Return this share of `whole`, at least 1."""
    return max(1, round(share * whole))
