"""Baselines that STI is compared with (STI-19), and the summary of a plan: budgets, timeline, memory and baselines.

Baselines load before running, use one bitwidth for all shards, or hold the whole model in memory.

Also the costs of the paper's two boards, inferred from its text (STI-10, STI-20, STI-21, STI-24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from simnmt.profile.streaming_block import BITS, Shard, ShardGeometry, StiCost
from simnmt.streaming.plan.streaming_plan import (
    Memory,
    StreamingPlan,
    budgets_of,
    loads_s,
    make_plan,
    memory_of,
    model_bytes,
    plan_with_bits,
    timeline_of,
)
from simnmt.streaming.plan.submodel import PlanError, chosen_size, sizes, submodel, work_of
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, TimelineFunction, load_then_run, timeline


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A plan with its predicted timeline and memory use."""

    plan: StreamingPlan
    timeline: Timeline
    memory: Memory

    def as_json(self) -> dict[str, Any]:
        return {"plan": self.plan.as_json(), "timeline": self.timeline.as_json(), "memory": asdict(self.memory)}


def load_and_execute(cost: StiCost, deadline_s: float, *, length: int, steps: float = 1.0) -> StreamingPlan:
    """Return the plan of Load&Exec: full precision, all loads before all computing, the latency nearest to the deadline.

    Among submodels with equal distance from the deadline, the one with the most shards is chosen, then the deepest.
    """
    plans = list(_uniform(cost, deadline_s, 32, length, steps, load_then_run))
    chosen = plans[0]
    for plan in plans[1:]:
        if abs(plan.latency_s - deadline_s) < abs(chosen.latency_s - deadline_s) - ROUNDING * deadline_s:
            chosen = plan
    return chosen


def standard_pipeline(cost: StiCost, deadline_s: float, bits: int, *, length: int, steps: float = 1.0) -> StreamingPlan | None:
    """Return the plan of StdPL-X, a pipeline without preloading: the most shards of `bits` that end in time, then the deepest.

    None if not even one shard ends in time.
    """
    plans = _uniform(cost, deadline_s, bits, length, steps, timeline)
    return next((plan for plan in plans if not plan.misses_deadline), None)


def in_memory(cost: StiCost, deadline_s: float, bits: int, *, length: int, steps: float = 1.0) -> StreamingPlan:
    """Return the plan of PreloadModel-X, with the whole model in memory: the largest submodel computed in time, else 1 x 1."""
    chosen = submodel(cost, *chosen_size(cost, deadline_s, length=length, steps=steps), length=length, steps=steps)
    every = dict.fromkeys(chosen.shards, bits)
    return plan_with_bits(cost, chosen, every, frozenset(every), deadline_s, model_bytes(cost, bits))


def contestants(cost: StiCost, deadline_s: float, *, length: int, steps: float = 1.0) -> dict[str, PlannedRun | None]:
    """Return Load&Exec, StdPL-full, -2 and -6, PreloadModel-full and -6; None if no submodel ends in time."""
    first = load_and_execute(cost, deadline_s, length=length, steps=steps)
    memory = memory_of(cost, first, in_turn=True)
    by_name: dict[str, PlannedRun | None] = {
        "Load&Exec": PlannedRun(first, timeline_of(first, cost, run=load_then_run), memory)
    }
    for bits, shown in ((32, "full"), (2, "2"), (6, "6")):
        plan = standard_pipeline(cost, deadline_s, bits, length=length, steps=steps)
        by_name[f"StdPL-{shown}"] = PlannedRun(plan, timeline_of(plan, cost), memory_of(cost, plan)) if plan else None
    for bits, shown in ((32, "full"), (6, "6")):
        plan = in_memory(cost, deadline_s, bits, length=length, steps=steps)
        by_name[f"PreloadModel-{shown}"] = PlannedRun(plan, timeline_of(plan, cost), memory_of(cost, plan, whole=True))
    return by_name


def _uniform(
    cost: StiCost, deadline_s: float, bits: int, length: int, steps: float, run: TimelineFunction
) -> Iterator[StreamingPlan]:
    """Yield a plan of every submodel, in the order of `sizes`."""
    for size in sizes(cost):
        chosen = submodel(cost, *size, length=length, steps=steps)
        yield plan_with_bits(cost, chosen, dict.fromkeys(chosen.shards, bits), frozenset(), deadline_s, 0, run=run)


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A planned run with its budgets and contestants."""

    cost: StiCost
    run: PlannedRun
    layers: list[dict[str, Any]]
    """By executed layer: bits, slice and place of each shard, and seconds of its reads and of the IO budget around them."""
    contestants: dict[str, PlannedRun | None]
    """By name, STI itself first; empty without a comparison."""
    remarks: list[str]

    def as_json(self) -> dict[str, Any]:
        nothing = dict.fromkeys(("plan", "timeline", "memory"))
        rivals = [{"name": name, **(run.as_json() if run else nothing)} for name, run in self.contestants.items()]
        return {**self.run.as_json(), "layers": self.layers, "comparison": rivals, "remarks": self.remarks}


def summarise_plan(
    cost: StiCost,
    deadline_s: float,
    preload_bytes: int,
    *,
    length: int | None = None,
    steps: int | None = None,
    cold: bool = False,
    similar: float = 0.0,
    fills_deadline: bool = False,
    compares: bool = False,
) -> PlanSummary:
    """Return a plan with its summary; raises `PlanError`.

    `length`: padded source tokens, by default the greatest measured length; `steps`: decoder steps, by default 1; `cold`: plan
    for an empty buffer; `compares`: also plan the contestants; the others as in `make_plan`.
    """
    if steps is not None and cost.decoder is None:
        raise PlanError("steps: the model has no decoder", remedy="leave out --steps")
    given: dict[str, Any] = {"length": max(cost.comp_s) if length is None else length, "steps": float(steps or 1)}
    cached: dict[Shard, int] | None = {} if cold else None
    plan = make_plan(cost, deadline_s, preload_bytes, cached=cached, similar=similar, fills_deadline=fills_deadline, **given)
    run = PlannedRun(plan, timeline_of(plan, cost), memory_of(cost, plan))
    others = {"STI": run, **contestants(cost, deadline_s, **given)} if compares else {}
    remarks = _remarks(cost, plan, cold=cold, fills_deadline=fills_deadline)
    return PlanSummary(cost, run, _layers(cost, plan), others, list(remarks))


def _layers(cost: StiCost, plan: StreamingPlan) -> list[dict[str, Any]]:
    granted_s, left_s = budgets_of(plan, cost)
    columns = zip(loads_s(cost, plan.bits, plan.preloaded), granted_s.tolist(), left_s.tolist(), strict=True)
    return [
        {
            "layer": layer,
            "bits": [plan.bits[shard] for shard in plan.shards_of(layer)],
            "slices": [piece for _, piece in plan.shards_of(layer)],
            "preloaded": [shard in plan.preloaded for shard in plan.shards_of(layer)],
            "load_s": load,
            "granted_s": granted,
            "left_s": left,
        }
        for layer, (load, granted, left) in zip(plan.layer_indices, columns, strict=True)
    ]


def _remarks(cost: StiCost, plan: StreamingPlan, *, cold: bool, fills_deadline: bool) -> Iterator[str]:
    least_s = work_of(cost, 1, 1, length=plan.length, steps=plan.steps).total_s
    wait = f"the processor waits {1e3 * plan.stall_s:.4g} ms for reads"
    if least_s > plan.deadline_s:
        yield f"One layer of one shard takes {1e3 * least_s:.4g} ms already: nothing meets the deadline."
    elif plan.misses_deadline:
        why = wait if plan.stalls else "reads slow the processor"
        yield f"The deadline is missed by {1e3 * (plan.latency_s - plan.deadline_s):.4g} ms: {why}."
        if plan.stalls and not fills_deadline:
            yield "Planned to wait within the deadline (--fill), a smaller submodel may keep it."
    elif plan.stalls:
        yield f"Within the deadline {wait}."
    if plan.short_of_io:
        buffer = "the empty buffer" if cold else f"a buffer of {plan.preload_bytes / 1e6:g} MB"
        yield f"The disk is too slow for {buffer}: not even shards of 2 bits all arrive in time."
    least = min(cost.bytes_of(BITS[0], layer) for layer in plan.layer_indices[:1])
    if not cold and plan.preload_bytes < least:
        yield f"The buffer is smaller than one shard of 2 bits ({least / 1e6:.3g} MB): nothing is preloaded."
    if plan.length > max(cost.comp_s):
        yield f"No more than {max(cost.comp_s)} tokens were measured: {plan.length} are taken to cost in proportion."
    if cost.importance is None:
        yield "Importance was not measured: slices and upgrades go in layer order."


Board = Literal["odroid", "jetson"]
LAYER_LOAD_S, LAYER_COMP_S = 0.339, 0.095
"""Seconds to load and to compute a whole layer in 32 bits on the Arm board of the paper (STI-21)."""
GPU_LAYER_S, GPU_FLAT = 0.400 / 7, 0.007
"""Seconds of a whole layer on the GPU, where fewer than 7 layers fit into 400 ms; excess of 12 slices over 3 (STI-24)."""
FIXED_PART = 1 / 31
"""Share of the computing time of a whole layer that does not grow with slices, from 1 + 2.5 m (STI-10)."""
PRELOAD_BYTES: dict[Board, int] = {"odroid": 1_000_000, "jetson": 5_000_000}
"""The paper's preload buffers (section 7.2)."""
OUTLIERS = 0.0015
"""Published share of weights that are outliers."""
LENGTH = 128
"""Nominal padded tokens of the presets, whose costs depend on no length."""


def board_cost(board: Board, geometry: ShardGeometry, length: int = LENGTH, order: tuple[Shard, ...] | None = None) -> StiCost:
    """Return the costs of a board for shards of any geometry; `order`: of importance, best first.

    A whole layer takes the times of the paper. On the Arm processor the computing time grows in proportion to the slices but
    for a fixed part; on the GPU it hardly depends on them.
    """
    slices = geometry.heads
    outlier_bytes = 8 * round(OUTLIERS * geometry.weights_per_shard)
    shard_bytes = {bits: geometry.index_bytes(bits) + geometry.dictionary_bytes(bits) for bits in BITS}
    shard_bytes |= {bits: size + outlier_bytes for bits, size in shard_bytes.items() if bits < 32}
    per_byte = LAYER_LOAD_S / (slices * shard_bytes[32])
    io_s = {bits: size * per_byte for bits, size in shard_bytes.items()}
    if board == "odroid":
        fixed = FIXED_PART * LAYER_COMP_S
        comp_s = tuple(fixed + (LAYER_COMP_S - fixed) * count / slices for count in range(1, slices + 1))
    else:
        comp_s = tuple(GPU_LAYER_S * (1.0 - GPU_FLAT * (slices - count) / (slices * 3 / 4)) for count in range(1, slices + 1))
    return StiCost(geometry, io_s, {length: comp_s}, shard_bytes, None, order)


_SIZE = "12 x 12 of BERT-base's size; a layer of 28.3 MB read in 339 ms"
PRESETS: dict[str, tuple[Board, str]] = {
    "@odroid-sti": ("odroid", f"{_SIZE}; a whole layer computed in 95 ms, in proportion to its shards but for 1/31"),
    "@jetson-sti": (
        "jetson",
        f"{_SIZE}, as on the other board; a whole layer computed in 57 ms, with a quarter of its shards 0.7 % faster",
    ),
}
"""By name: the board, and a description of the model and its costs, which are inferred."""
