"""The parts of a study: uniform submodels, deadlines, buffers, raised shards, exact plans (STI-10 to 15, 22, 24, 27)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from simnmt.papers.sti.study import (
    METHODS,
    Method,
    Outcome,
    Part,
    Point,
    SmallCase,
    StudiedDevice,
    Uniform,
    Upgraded,
    packed_correct,
)
from simnmt.papers.sti.study_settings import StudySettings
from simnmt.profile.streaming_cost import BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.encoder.evaluation import Evaluation
from simnmt.streaming.plan.baselines import find_exact_plan, in_memory, load_and_execute, standard_pipeline
from simnmt.streaming.plan.streaming_plan import StreamingPlan, loads_s, make_plan, memory_of, plan_with_bits
from simnmt.streaming.plan.submodel import submodel


class Evaluates(Protocol):
    """What of `simnmt.streaming.encoder.evaluation.Evaluator` is needed here."""

    geometry: ShardGeometry

    def evaluate(self, bits: Mapping[Shard, int]) -> Evaluation:
        """Of the submodel that has these shards at these bits."""
        ...


class Judge:
    """Outcomes by the shards of a submodel and their bits."""

    def __init__(self, evaluator: Evaluates) -> None:
        self._evaluator = evaluator
        self._known: dict[frozenset[tuple[Shard, int]], Outcome] = {}
        self._whole: Evaluation | None = None

    @property
    def evaluations(self) -> int:
        """Submodels that were run over all examples."""
        return len(self._known)

    def __call__(self, bits: Mapping[Shard, int]) -> Outcome:
        """Return the outcome of the submodel that has these shards at these bits."""
        key = frozenset(bits.items())
        if key not in self._known:
            whole = self._in_full()
            evaluation = self._evaluator.evaluate(bits)
            self._known[key] = Outcome(
                accuracy=evaluation.accuracy,
                log_likelihood=evaluation.mean_log_likelihood,
                agreement=evaluation.agreement(whole),
                correct=packed_correct(evaluation.correct),
            )
        return self._known[key]

    def _in_full(self) -> Evaluation:
        """Return the evaluation of the whole model in 32 bits, which all others are compared with."""
        if self._whole is None:
            geometry = self._evaluator.geometry
            every = {(layer, piece): 32 for layer in range(geometry.layers) for piece in range(geometry.heads)}
            self._whole = self._evaluator.evaluate(every)
        return self._whole


PLANNED: tuple[Method, ...] = ("STI", "STI, waiting")
"""Methods with a preload buffer."""


@dataclass(frozen=True, slots=True)
class MethodPlan:
    """The submodel of a method, with its memory and the times of its layers."""

    method: Method
    plan: StreamingPlan
    preload_share: float | None
    """|S|, of all shards in float32; None: the method has none."""
    held_bytes: int
    working_bytes: int
    load_s: tuple[float, ...]
    comp_s: float
    """Of each layer."""

    @property
    def bits(self) -> Mapping[Shard, int]:
        """Of every planned shard."""
        return self.plan.bits


def layers_bytes(cost: StiCost) -> int:
    """Of all shards in float32."""
    return cost.geometry.layers * cost.geometry.float32_bytes_per_layer


def plan_method(method: Method, cost: StiCost, deadline_s: float, preload_share: float | None, length: int) -> MethodPlan:
    """Return the plan that the method chooses; if none ends in time, one shard of one layer, which is late.

    `preload_share`: for `PLANNED` alone.
    """
    plan = _plan(method, cost, deadline_s, preload_share, length)
    memory = memory_of(cost, plan, whole=method.startswith("PreloadModel"), in_turn=method == "Load&Exec")
    # What lies in float32 already is computed where it lies.
    working = 0 if method == "PreloadModel-32" else memory.working_bytes
    return MethodPlan(
        method,
        plan,
        preload_share if method in PLANNED else None,
        memory.preload_bytes,
        working,
        tuple(loads_s(cost, plan.bits, plan.preloaded)),
        cost.t_comp(length, plan.slices_per_layer),
    )


def _plan(method: Method, cost: StiCost, deadline_s: float, preload_share: float | None, length: int) -> StreamingPlan:
    if method in PLANNED:
        preload_bytes = round((preload_share or 0.0) * layers_bytes(cost))
        return make_plan(cost, deadline_s, preload_bytes, length=length, fills_deadline=method != "STI")
    if method == "Load&Exec":
        return load_and_execute(cost, deadline_s, length=length)
    bits = int(method.rpartition("-")[2])
    if method.startswith("PreloadModel"):
        return in_memory(cost, deadline_s, bits, length=length)
    pipeline = standard_pipeline(cost, deadline_s, bits, length=length)
    if pipeline is not None:
        return pipeline
    least = submodel(cost, 1, 1, length=length, importance=cost.importance)
    return plan_with_bits(cost, least, dict.fromkeys(least.shards, bits), frozenset(), deadline_s, 0, length=length)


LAYERS, SLICES = 4, 4
"""Of the small model, where the whole has as many: its bottom layers and first slices."""
LIMIT_S = 5.0
"""Of one exact plan."""


def small_cases(device: StudiedDevice, cost: StiCost, length: int, settings: StudySettings) -> Iterator[SmallCase]:
    """Yield the cases whose submodel can be loaded in time at all."""
    small = beginning(cost, min(LAYERS, cost.geometry.layers), min(SLICES, cost.geometry.heads))
    geometry = small.geometry
    for share in settings.small_deadlines:
        for buffer in settings.small_buffers:
            whole_s = small.t_embed(length) + geometry.layers * small.t_comp(length, geometry.heads) + small.head_s
            deadline_s = share * whole_s
            greedy = make_plan(small, deadline_s, round(buffer * geometry.heads * small.bytes_of(2)), length=length)
            best = find_exact_plan(small, greedy, limit_s=LIMIT_S)
            if best is not None:
                yield SmallCase(
                    device=device.name,
                    layers=geometry.layers,
                    slices=geometry.heads,
                    deadline_s=deadline_s,
                    preload_bytes=greedy.preload_bytes,
                    greedy=best.greedy_fidelity,
                    exact=best.fidelity,
                    gap=best.gap,
                    greedy_stalls=greedy.stalls,
                )


def beginning(cost: StiCost, layers: int, slices: int) -> StiCost:
    """The cost of a model of the bottom layers and first slices alone."""
    whole = cost.geometry
    geometry = ShardGeometry(layers, slices, whole.width // whole.heads * slices, whole.ffn // whole.heads * slices)
    kept = cost.importance and tuple(shard for shard in cost.importance if shard[0] < layers and shard[1] < slices)
    comp_s = {length: seconds[:slices] for length, seconds in cost.comp_s.items()}
    return replace(cost, geometry=geometry, comp_s=comp_s, importance=kept)


LOW = 2
"""Bits of what is not raised."""


@dataclass(frozen=True, slots=True)
class StudyBench:
    """All that parts are measured with."""

    devices: Sequence[tuple[StudiedDevice, StiCost]]
    length: int
    order: tuple[Shard, ...]
    """By importance, best first."""
    judge: Judge
    settings: StudySettings
    say: Callable[[str], None]

    @property
    def layers(self) -> int:
        """Of the whole model."""
        return self.devices[0][1].geometry.layers

    @property
    def slices(self) -> int:
        """Of a whole layer."""
        return self.devices[0][1].geometry.heads

    def measured(self, part: Part) -> Iterator[object]:
        """The entries of one part."""
        measure = {
            "uniform": self._uniform,
            "grid": self._grid,
            "sizes": self._sizes,
            "upgrades": self._upgrades,
            "greedy": self._greedy,
        }[part]
        yield from measure()

    def _uniform(self) -> Iterator[Uniform]:
        """The whole model at each bitwidth; in full with fewer layers, and with fewer slices."""
        depths = sorted({_part_of(self.layers, share) for share in self.settings.depths})
        widths = sorted({_part_of(self.slices, share) for share in self.settings.depths})
        sizes = [(self.layers, self.slices, bits) for bits in BITS]
        sizes += [(depth, self.slices, 32) for depth in depths if depth < self.layers]
        sizes += [(self.layers, width, 32) for width in widths if width < self.slices]
        for layers, slices, bits in sizes:
            self.say(f"uniform: {layers} x {slices}, {bits} bits")
            shards = self._submodel(layers, slices)
            yield Uniform(layers=layers, slices=slices, bits=bits, outcome=self.judge(dict.fromkeys(shards, bits)))

    def _grid(self) -> Iterator[Point]:
        for device, cost in self.devices:
            preloads = sorted({0.0, device.preload_share})
            for share in self.settings.deadline_shares:
                for method in METHODS:
                    for preload in preloads if method in PLANNED else (None,):
                        self.say(f"grid: {device.name}, {100 * share:g} % of the whole computation, {method}")
                        yield self._point(
                            device, plan_method(method, cost, self._deadline_s(device, share), preload, self.length), share
                        )

    def _sizes(self) -> Iterator[Point]:
        for device, cost in self._apart():
            for share in self.settings.size_deadlines:
                for preload in self.settings.size_shares:
                    self.say(
                        f"sizes: {device.name}, {100 * share:g} % of the whole computation, buffer of {100 * preload:.2f} %"
                    )
                    yield self._point(
                        device, plan_method("STI", cost, self._deadline_s(device, share), preload, self.length), share
                    )

    def _upgrades(self) -> Iterator[Upgraded]:
        settings, to_bits = self.settings, self.settings.raised_to
        for at, (depth, width, part) in enumerate(settings.upgrades):
            layers, slices = _part_of(self.layers, depth), _part_of(self.slices, width)
            shards = self._submodel(layers, slices)
            raised = _part_of(len(shards), part)
            self.say(f"upgrades: {layers} x {slices}, {raised} shards to {to_bits} bits")
            base = dict.fromkeys(shards, LOW)
            by_importance = [shard for shard in self.order if shard in base][:raised]
            drawn = np.random.default_rng((settings.seed, at))
            random = [
                [shards[place] for place in drawn.permutation(len(shards))[:raised]] for _ in range(settings.random_orders)
            ]
            yield Upgraded(
                layers=layers,
                slices=slices,
                raised=raised,
                to_bits=to_bits,
                base=self.judge(base),
                best=self.judge(base | dict.fromkeys(by_importance, to_bits)),
                random=tuple(self.judge(base | dict.fromkeys(random_shards, to_bits)) for random_shards in random),
                same=sum(set(random_shards) == set(by_importance) for random_shards in random),
            )

    def _greedy(self) -> Iterator[object]:
        for device, cost in self._apart():
            self.say(f"greedy: {device.name}")
            yield from small_cases(device, cost, self.length, self.settings)

    def _apart(self) -> list[tuple[StudiedDevice, StiCost]]:
        """Return the devices whose times differ; of devices that differ only by the buffer, which varies anyway, the first."""
        distinct: list[tuple[StudiedDevice, StiCost]] = []
        for device, cost in self.devices:
            if all(_times(device) != _times(other) for other, _ in distinct):
                distinct.append((device, cost))
        return distinct

    def _deadline_s(self, device: StudiedDevice, share: float) -> float:
        return share * device.whole_s(self.layers)

    def _submodel(self, layers: int, slices: int) -> list[Shard]:
        """Return the most important slices of each of the bottom layers."""
        shards: list[Shard] = []
        for layer in range(layers):
            most_important = [shard for shard in self.order if shard[0] == layer][:slices]
            shards += sorted(most_important)
        return shards

    def _point(self, device: StudiedDevice, method_plan: MethodPlan, share: float) -> Point:
        plan = method_plan.plan
        return Point(
            device=device.name,
            method=method_plan.method,
            deadline_share=share,
            deadline_s=plan.deadline_s,
            preload_share=method_plan.preload_share,
            preload_bytes=plan.preload_bytes if method_plan.method in PLANNED else 0,
            layers=plan.layers,
            slices=plan.slices_per_layer,
            bits={bits: count for bits in BITS if (count := sum(shard_bits == bits for shard_bits in plan.bits.values()))},
            held_bytes=method_plan.held_bytes,
            working_bytes=method_plan.working_bytes,
            load_s=method_plan.load_s,
            comp_s=method_plan.comp_s,
            latency_s=plan.latency_s,
            stall_s=plan.stall_s,
            misses=plan.misses_deadline,
            flagged=plan.short_of_io,
            outcome=self.judge(plan.bits),
        )


def _times(device: StudiedDevice) -> tuple[object, ...]:
    """All that plans depend on but the buffer."""
    return device.io_s, device.comp_s, device.embed_s, device.head_s, device.slowed


def _part_of(whole: int, share: float) -> int:
    """Return this share of `whole`, at least 1."""
    return max(1, round(share * whole))
