"""The turns of an engagement as plans, and what each makes a device read and compute (STI-17, XP-04)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simnmt.costs.sti_cost import Shard, StiCost
from simnmt.sti.buffer import bytes_held, evicted
from simnmt.sti.memory import memory_of
from simnmt.sti.plan import Plan, loads_s, planned
from simnmt.sti.streamed_latency import PlannedCompute, StreamedState


@dataclass(frozen=True, slots=True)
class Engagement:
    """What a streamed model does in the turns of an engagement, begun cold or not."""

    plans: tuple[Plan, ...]
    """Of the first turn, the second and so on; the last one repeats."""
    compute: PlannedCompute
    """The same in every turn: the first plan's submodel."""
    states: tuple[StreamedState, ...]
    """Cold, then one per plan."""
    working_bytes: int
    """One layer of float32 weights at the plan's width, beside the preload buffer (STI-16)."""


def engagement(
    cost: StiCost,
    deadline_s: float,
    preload_bytes: int,
    cache_bytes: int | None = None,
    *,
    length: int,
    importance: Sequence[Shard] | None = None,
    similar: float = 0.0,
    steps: float = 1.0,
    fills_deadline: bool = False,
    cold_read_s: float = 0.0,
) -> Engagement:
    """Plan every turn of an engagement, in which the buffer may hold `cache_bytes`; left out: no more than before it.

    The first plan is made for a buffer filled as planned, and a cold start, which finds it empty, executes the same: plans are
    made beforehand (STI-18). Later turns are planned on what the buffer truly holds, until it holds the same again.
    `cold_read_s`: what a cold start has to read besides, before anything is computed: embeddings are among it. The other
    arguments are those of `planned`. Raises `PlanError`.
    """
    capacity_bytes = max(preload_bytes, cache_bytes or 0)
    first = planned(
        cost,
        deadline_s,
        preload_bytes,
        length=length,
        importance=importance,
        similar=similar,
        steps=steps,
        fills_deadline=fills_deadline,
    )
    contents = {shard: bits for shard, bits in first.bits.items() if shard in first.preloaded}
    plans, held = [first], [contents]
    kept = evicted(cost, first.bits, capacity_bytes)
    while kept != held[-1]:
        plan = planned(
            cost,
            deadline_s,
            capacity_bytes,
            length=length,
            cached=kept,
            importance=importance,
            steps=steps,
            fills_deadline=fills_deadline,
            size=(first.layers, first.slices_per_layer),
        )
        plans.append(plan)
        held.append(kept)
        kept = evicted(cost, plan.bits, capacity_bytes)
    after = [*held[1:], kept]
    cold = _state(cost, "cold", first, {}, after[0], cold_read_s)
    turns = (
        _state(cost, f"turn {number}", plan, before, later)
        for number, (plan, before, later) in enumerate(zip(plans, held, after, strict=True), start=1)
    )
    return Engagement(tuple(plans), computing(cost, first), (cold, *turns), memory_of(cost, first).working_bytes)


def computing(cost: StiCost, plan: Plan) -> PlannedCompute:
    """What a plan's submodel computes, for requests of any length."""
    slices, lengths = plan.slices_per_layer, tuple(sorted(cost.comp_s))
    return PlannedCompute(
        layers=plan.layers,
        lengths=lengths,
        layer_s=tuple(cost.comp_s[length][slices - 1] for length in lengths),
        decoder_layers=len(plan.layer_indices) - plan.layers,
        step_s=cost.step_s(slices),
        once_s=cost.once_s(slices),
        embed_s=tuple(cost.t_embed(length) for length in lengths),
        head_s=cost.head_s,
        slowed=cost.slowing(slices),
    )


def _state(
    cost: StiCost, name: str, plan: Plan, held: dict[Shard, int], kept: dict[Shard, int], ahead_s: float = 0.0
) -> StreamedState:
    first_s, *others_s = loads_s(cost, plan.bits, frozenset(held))
    streamed = {shard: bits for shard, bits in plan.bits.items() if shard not in held}
    return StreamedState(
        name=name,
        load_s=(ahead_s + first_s, *others_s),
        held_bytes=bytes_held(cost, held),
        kept_bytes=bytes_held(cost, kept),
        streamed_bytes=bytes_held(cost, streamed),
        ahead_s=ahead_s,
    )
