"""Plans that STI is compared with (STI-19).

These baselines load before running, use one bitwidth for all shards, or hold the whole model in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simnmt.profile.streaming_cost import StiCost
from simnmt.streaming.plan.streaming_plan import (
    Memory,
    StreamingPlan,
    check_deadline_and_buffer,
    memory_of,
    model_bytes,
    plan_with_bits,
    timeline_of,
)
from simnmt.streaming.plan.submodel import chosen_size, sizes, submodel
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, TimelineFunction, load_then_run, timeline

UNIFORM = (32, 2, 6)
"""Bits of the pipelines in the paper: full precision, the lowest, and the highest of the quantised fidelities."""
IN_MEMORY = (32, 6)
LOAD_FIRST = "Load&Exec"
"""Name of the contestant that overlaps nothing."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A method of running a model under a deadline, with its plan."""

    name: str
    plan: StreamingPlan | None
    """None if no submodel ends in time with this method; then `timeline` and `memory` are None too."""
    timeline: Timeline | None
    memory: Memory | None


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
    check_deadline_and_buffer(deadline_s, 0)
    chosen = submodel(cost, *chosen_size(cost, deadline_s, length=length, steps=steps), length=length, steps=steps)
    every = dict.fromkeys(chosen.shards, bits)
    return plan_with_bits(cost, chosen, every, frozenset(every), deadline_s, model_bytes(cost, bits))


def contestants(cost: StiCost, deadline_s: float, *, length: int, steps: float = 1.0) -> Iterator[Contestant]:
    """Yield Load&Exec, StdPL-full, -2 and -6, PreloadModel-full and -6."""
    loaded_first = load_and_execute(cost, deadline_s, length=length, steps=steps)
    memory = memory_of(cost, loaded_first, in_turn=True)
    yield Contestant(LOAD_FIRST, loaded_first, timeline_of(loaded_first, cost, run=load_then_run), memory)
    for bits in UNIFORM:
        plan = standard_pipeline(cost, deadline_s, bits, length=length, steps=steps)
        predicted, memory_use = (None, None) if plan is None else (timeline_of(plan, cost), memory_of(cost, plan))
        yield Contestant(f"StdPL-{_shown(bits)}", plan, predicted, memory_use)
    for bits in IN_MEMORY:
        plan = in_memory(cost, deadline_s, bits, length=length, steps=steps)
        yield Contestant(f"PreloadModel-{_shown(bits)}", plan, timeline_of(plan, cost), memory_of(cost, plan, whole=True))


def _uniform(
    cost: StiCost, deadline_s: float, bits: int, length: int, steps: float, run: TimelineFunction
) -> Iterator[StreamingPlan]:
    """Yield a plan of every submodel, in the order of `sizes`."""
    check_deadline_and_buffer(deadline_s, 0)
    for size in sizes(cost):
        chosen = submodel(cost, *size, length=length, steps=steps)
        yield plan_with_bits(cost, chosen, dict.fromkeys(chosen.shards, bits), frozenset(), deadline_s, 0, run=run)


def _shown(bits: int) -> str:
    return "full" if bits == 32 else str(bits)
