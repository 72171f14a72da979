"""What STI is compared with, as plans: loading before running, a pipeline of one bitwidth, the whole in memory (STI-19)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.memory import Memory, memory_of, model_bytes
from simnmt.sti.plan import Plan, check, made, timeline_of
from simnmt.sti.submodel import chosen_size, sizes, submodel
from simnmt.sti.timeline import ROUNDING, Run, Timeline, load_then_run, timeline

UNIFORM = (32, 2, 6)
"""The pipelines' bitwidths in the paper: all, the lowest, and the highest of the quantised."""
IN_MEMORY = (32, 6)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way of running a model under a deadline."""

    name: str
    plan: Plan | None
    """None: no submodel ends in time this way."""
    timeline: Timeline | None
    memory: Memory | None


def load_and_execute(
    cost: StiCost, deadline_s: float, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> Plan:
    """Load&Exec: full precision, loaded before anything is computed; the latency nearest to the deadline, above it or below.

    Of submodels alike in that, the one with the most shards, then the deepest.
    """
    plans = _uniform(cost, deadline_s, 32, length=length, importance=importance, steps=steps, run=load_then_run)
    away_s, chosen = float("inf"), None
    for plan in plans:
        away = abs(plan.latency_s - deadline_s)
        if away < away_s - ROUNDING * deadline_s:
            away_s, chosen = away, plan
    assert chosen is not None
    return chosen


def standard_pipeline(
    cost: StiCost, deadline_s: float, bits: int, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> Plan | None:
    """StdPL-X: a pipeline without preloading, all shards of `bits`; the most shards, then the deepest, that end in time.

    None where not even one shard does.
    """
    plans = _uniform(cost, deadline_s, bits, length=length, importance=importance, steps=steps, run=timeline)
    return next((plan for plan in plans if not plan.misses_deadline), None)


def in_memory(
    cost: StiCost, deadline_s: float, bits: int, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> Plan:
    """PreloadModel-X: the whole model is in memory; the largest submodel computed in time, 1 x 1 where there is none."""
    check(deadline_s, 0)
    size = chosen_size(cost, deadline_s, length=length, steps=steps)
    chosen = submodel(cost, *size, length=length, importance=_order(cost, importance), steps=steps)
    every = dict.fromkeys(chosen.shards, bits)
    holds = model_bytes(cost, bits)
    return made(cost, chosen, every, frozenset(every), deadline_s, holds, length=length, steps=steps)


def contestants(
    cost: StiCost, deadline_s: float, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> Iterator[Contestant]:
    """Load&Exec, StdPL-full, -2 and -6, PreloadModel-full and -6."""
    plan: Plan | None = load_and_execute(cost, deadline_s, importance=importance, length=length, steps=steps)
    yield _contestant("Load&Exec", cost, plan, in_turn=True)
    for bits in UNIFORM:
        plan = standard_pipeline(cost, deadline_s, bits, importance=importance, length=length, steps=steps)
        yield _contestant(f"StdPL-{_shown(bits)}", cost, plan)
    for bits in IN_MEMORY:
        plan = in_memory(cost, deadline_s, bits, importance=importance, length=length, steps=steps)
        yield _contestant(f"PreloadModel-{_shown(bits)}", cost, plan, whole=True)


def _uniform(
    cost: StiCost,
    deadline_s: float,
    bits: int,
    *,
    length: int,
    importance: Sequence[Shard] | None,
    steps: float,
    run: Run,
) -> Iterator[Plan]:
    """All submodels, the one with the most shards first, the deeper of two alike first."""
    check(deadline_s, 0)
    order = _order(cost, importance)
    for size in sizes(cost):
        chosen = submodel(cost, *size, length=length, importance=order, steps=steps)
        every = dict.fromkeys(chosen.shards, bits)
        yield made(cost, chosen, every, frozenset(), deadline_s, 0, length=length, steps=steps, run=run)


def _contestant(name: str, cost: StiCost, plan: Plan | None, *, in_turn: bool = False, whole: bool = False) -> Contestant:
    if plan is None:
        return Contestant(name, None, None, None)
    run = load_then_run if in_turn else timeline
    return Contestant(name, plan, timeline_of(plan, cost, run=run), memory_of(cost, plan, whole=whole, in_turn=in_turn))


def _order(cost: StiCost, importance: Sequence[Shard] | None) -> Sequence[Shard] | None:
    return cost.importance if importance is None else importance


def _shown(bits: int) -> str:
    return "full" if bits == 32 else str(bits)
