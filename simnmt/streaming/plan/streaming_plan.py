"""Streaming plan: the shards to load, their bits, and those held in the preload buffer (STI-10 to STI-15, STI-17).

Also what follows from a plan: contents of the preload buffer, memory use (STI-23) and accumulated IO budgets (STI-11).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.plan.submodel import PlanError, Submodel, allocate_bits, chosen_size, read_in_time, submodel, work_of
from simnmt.streaming.plan.timeline import ROUNDING, Column, Timeline, TimelineFunction, timeline


def longest_prefix(sizes: Iterable[tuple[Shard, int]], capacity_bytes: int) -> frozenset[Shard]:
    """Of shards and their bytes in layer order, the first that fit together; none is skipped (D)."""
    held = set[Shard]()
    for shard, size in sizes:
        capacity_bytes -= size
        if capacity_bytes < 0:
            break
        held.add(shard)
    return frozenset(held)


def held_prefix(cost: StiCost, bits: Mapping[Shard, int], capacity_bytes: int) -> frozenset[Shard]:
    """What a buffer of that capacity holds of shards with those bits, by their mean records."""
    return longest_prefix(((shard, cost.bytes_of(bits[shard], shard[0])) for shard in sorted(bits)), capacity_bytes)


def evicted(cost: StiCost, contents: Mapping[Shard, int], capacity_bytes: int) -> dict[Shard, int]:
    """What remains once shards have gone, the top layer's first and its last slice first, until the rest fits."""
    return {shard: contents[shard] for shard in sorted(held_prefix(cost, contents, capacity_bytes))}


def bytes_held(cost: StiCost, contents: Mapping[Shard, int]) -> int:
    """Of compressed shards, by their bits."""
    return sum(cost.bytes_of(bits, layer) for (layer, _), bits in contents.items())


RECORDS_DIFFER = 0.1
"""By how much a buffer's true contents may be less than their mean records, of which outliers are a twentieth."""


@dataclass(frozen=True, slots=True)
class StreamingPlan:
    """A submodel with a fidelity for each of its shards, what it was planned for, and what that predicts."""

    layers: int
    """Of the encoder: the bottom ones."""
    slices_per_layer: int
    bits: Mapping[Shard, int]
    """Of every planned shard, in layer order."""
    preloaded: frozenset[Shard]
    """In memory before the execution begins."""
    deadline_s: float
    preload_bytes: int
    """What the preload buffer may hold."""
    length: int
    """Padded source tokens that it was planned for."""
    latency_s: float
    """Predicted, with the preloaded shards in memory and `steps` decoder steps."""
    stall_s: float
    """Predicted: how long the processor waits for loads."""
    steps: float = 1.0
    """Decoder steps within the deadline; 1 means little without a decoder."""
    short_of_io: bool = False
    """Not even 2 bits everywhere come before they are computed; the paper's plan then loads 2 bits and no more (STI-13)."""

    @property
    def misses_deadline(self) -> bool:
        """The predicted latency is beyond it: nothing smaller than 1 x 1 can be computed, or the loads make it wait."""
        return self.latency_s > self.deadline_s * (1.0 + ROUNDING)

    @property
    def stalls(self) -> bool:
        """By more than rounding."""
        return self.stall_s > ROUNDING * self.latency_s

    @property
    def layer_indices(self) -> tuple[int, ...]:
        """Those that are executed, in order; a decoder's follow on after all of the encoder's, planned or not."""
        return tuple(dict.fromkeys(layer for layer, _ in self.bits))

    @property
    def loaded(self) -> tuple[Shard, ...]:
        """What is read during the execution, in layer order."""
        return tuple(shard for shard in self.bits if shard not in self.preloaded)

    def shards_of(self, layer: int) -> tuple[Shard, ...]:
        """In slice order; none of a layer that is not planned."""
        return tuple(shard for shard in self.bits if shard[0] == layer)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain numbers, with what follows from it."""
        return {
            "layers": self.layers,
            "slices_per_layer": self.slices_per_layer,
            "shards": [
                {"layer": layer, "slice": piece, "bits": bits, "preloaded": (layer, piece) in self.preloaded}
                for (layer, piece), bits in self.bits.items()
            ],
            "deadline_s": self.deadline_s,
            "preload_bytes": self.preload_bytes,
            "length": self.length,
            "steps": self.steps,
            "latency_s": self.latency_s,
            "stall_s": self.stall_s,
            "short_of_io": self.short_of_io,
            "misses_deadline": self.misses_deadline,
            "stalls": self.stalls,
        }


def make_plan(
    cost: StiCost,
    deadline_s: float,
    preload_bytes: int,
    *,
    length: int,
    cached: Mapping[Shard, int] | None = None,
    similar: float = 0.0,
    steps: float = 1.0,
    repaired: bool = True,
    fills_deadline: bool = False,
    size: tuple[int, int] | None = None,
) -> StreamingPlan:
    """The paper's two-stage plan: the largest submodel that can be computed in time, then bits by two passes over its shards.

    `cached`: what the buffer truly holds, shard to bits; None for a model's first plan ever, whose buffer is filled as planned
    (an empty mapping is a cold start). Without importance in `cost`, shards are ranked in layer order.
    `similar`: share of the most shards that a deeper submodel may lack. `steps`: decoder steps within the deadline.
    `repaired`: a first plan that would stall because part of a shard was counted as preloaded is made anew, counting whole ones
    alone; the paper's stalls then, for less than one read. `fills_deadline`: beyond the paper, whose pipeline is late where a
    first layer comes late and else never waits: the submodel is the largest that 2 bits everywhere bring in time, waits
    included, and the pipeline may wait until the deadline, or where nothing meets it as long as 2 bits make it wait.

    Embedding and head count in the deadline, and what is computed ahead of a layer gives time for its loads. Where reads slow
    computing, the submodel is one that ends in time with 2 bits read meanwhile, and upgrades keep it so; the longer computing
    hides more reads. `size`: layers and slices a layer that are given, as in the later turns of an engagement, which are slowed
    less.

    Raises `PlanError` for a deadline, buffer, length or size that makes no sense, and for cached shards of unknown bits, of
    another model or beyond the buffer.
    """
    check_deadline_and_buffer(deadline_s, preload_bytes)
    check_cached(cost, cached or {}, preload_bytes)
    if length < 1 or not 0.0 < steps < math.inf:
        raise PlanError(f"a plan for {length} tokens and {steps:g} decoder steps", remedy="give one or more of each")

    def held(bits: Mapping[Shard, int]) -> frozenset[Shard]:
        return held_prefix(cost, bits, preload_bytes) if cached is None else frozenset(cached).intersection(bits)

    def fits(layers: int, slices: int) -> bool:
        if not fills_deadline and not cost.slowed:
            return True
        small = submodel(cost, layers, slices, length=length, steps=steps)
        bits = {shard: (cached or {}).get(shard, BITS[0]) for shard in small.shards}
        if fills_deadline:
            return not plan_with_bits(cost, small, bits, held(bits), deadline_s, preload_bytes).misses_deadline
        return read_in_time(cost, small, bits, held(bits), deadline_s)

    if size is None:
        size = chosen_size(cost, deadline_s, length=length, similar=similar, steps=steps, fits=fits)
    chosen = submodel(cost, *size, length=length, steps=steps)

    def attempt(whole_shards: bool, may_wait_s: float = 0.0) -> StreamingPlan:
        bits, short = allocate_bits(
            cost,
            chosen,
            preload_bytes,
            cached=cached,
            whole_shards=whole_shards,
            may_wait_s=may_wait_s,
            deadline_s=deadline_s,
        )
        return plan_with_bits(cost, chosen, bits, held(bits), deadline_s, preload_bytes, short_of_io=short)

    plan = attempt(False)
    late = plan.stalls or (chosen.work.slowed > 1.0 and plan.misses_deadline)
    if cached is None and repaired and late and not plan.short_of_io:
        plan = attempt(True)
    if fills_deadline:
        least = plan.stall_s if plan.short_of_io else 0.0
        waiting = attempt(True, max(least, deadline_s - chosen.work.total_s))
        plan = replace(waiting, short_of_io=plan.short_of_io)
    return plan


def plan_with_bits(
    cost: StiCost,
    chosen: Submodel,
    bits: Mapping[Shard, int],
    preloaded: frozenset[Shard],
    deadline_s: float,
    preload_bytes: int,
    *,
    short_of_io: bool = False,
    run: TimelineFunction = timeline,
) -> StreamingPlan:
    """Return the plan of those bits, with what `run`, `timeline` or `load_then_run`, predicts.

    Raises `PlanError` for unknown bits, and for bits of other shards than the submodel's.
    """
    check_bits(bits)
    if set(bits) != set(chosen.shards):
        raise PlanError("bits of other shards than the submodel's", remedy="give bits for each of its shards")
    load_s = loads_s(cost, bits, preloaded)
    predicted = run(load_s, chosen.work.comp_s, chosen.work.after_s, chosen.work.slowed, before_s=chosen.work.before_s)
    return StreamingPlan(
        layers=chosen.layers,
        slices_per_layer=chosen.slices_per_layer,
        bits=bits,
        preloaded=preloaded,
        deadline_s=deadline_s,
        preload_bytes=preload_bytes,
        length=chosen.length,
        latency_s=predicted.latency_s,
        stall_s=predicted.stall_s,
        steps=chosen.steps,
        short_of_io=short_of_io,
    )


def loads_s(cost: StiCost, bits: Mapping[Shard, int], preloaded: frozenset[Shard]) -> list[float]:
    """Seconds to read what is not preloaded of each planned layer, in order."""
    by_layer: dict[int, float] = {}
    for shard, width in bits.items():
        read_s = 0.0 if shard in preloaded else cost.t_io(width, shard[0])
        by_layer[shard[0]] = by_layer.get(shard[0], 0.0) + read_s
    return list(by_layer.values())


def timeline_of(plan: StreamingPlan, cost: StiCost, length: int | None = None, *, run: TimelineFunction = timeline) -> Timeline:
    """Return the plan's execution over `length` tokens, by default those that it was planned for.

    `run`: `timeline`, a pipeline, or `load_then_run`.
    """
    tokens = plan.length if length is None else length
    work = work_of(cost, plan.layers, plan.slices_per_layer, length=tokens, steps=plan.steps)
    load_s = loads_s(cost, plan.bits, plan.preloaded)
    return run(load_s, work.comp_s, work.after_s, work.slowed, before_s=work.before_s)


def check_bits(bits: Mapping[Shard, int]) -> None:
    """Raise `PlanError` for a fidelity that no shard has."""
    for (layer, piece), width in bits.items():
        if width not in BITS:
            known = ", ".join(map(str, BITS))
            raise PlanError(f"{width} bits for shard {piece} of layer {layer}", remedy=f"give one of {known}")


def check_cached(cost: StiCost, cached: Mapping[Shard, int], capacity_bytes: int) -> None:
    """Raise `PlanError` for cached shards of unknown bits, of another model, or beyond what the buffer holds."""
    check_bits(cached)
    if unknown := set(cached).difference(cost.all_shards()):
        layer, piece = min(unknown)
        raise PlanError(f"cached: the model has no shard {piece} of layer {layer}", remedy="give the buffer's true contents")
    size = bytes_held(cost, cached)
    if size > (1.0 + RECORDS_DIFFER) * capacity_bytes:
        what = f"cached: {size:,} bytes in a buffer of {capacity_bytes:,}"
        raise PlanError(what, remedy="give the buffer's true contents, or the size that it had")


def check_deadline_and_buffer(deadline_s: float, preload_bytes: int) -> None:
    """Raise `PlanError` for a deadline that is not positive, and for a buffer of less than 0 bytes."""
    if not 0.0 < deadline_s < math.inf:
        raise PlanError(f"a deadline of {deadline_s:g} s", remedy="give a positive one")
    if preload_bytes < 0:
        raise PlanError(f"a preload buffer of {preload_bytes:,} bytes", remedy="give 0 or more")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    preload_bytes: int
    """Between executions as well."""
    working_bytes: int
    """One unpacked layer in float32, whatever the depth; where nothing overlaps, all, computed where they were loaded."""
    streamed_bytes: int
    """Compressed shards that an execution reads and holds besides until it evicts; 0 where nothing overlaps."""


def memory_of(cost: StiCost, plan: StreamingPlan, *, whole: bool = False, in_turn: bool = False) -> Memory:
    """`whole`: the model is kept as a whole, not only what is executed; `in_turn`: everything is loaded before it is run."""
    loaded = {shard: plan.bits[shard] for shard in plan.loaded}
    held = plan.preload_bytes if whole else bytes_held(cost, plan.bits) - bytes_held(cost, loaded)
    layers_bytes = [4 * plan.slices_per_layer * weights_of(cost, layer) for layer in plan.layer_indices]
    return Memory(held, sum(layers_bytes) if in_turn else max(layers_bytes), 0 if in_turn else bytes_held(cost, loaded))


def weights_of(cost: StiCost, layer: int) -> int:
    """Of one shard of that layer."""
    half = cost.geometry if cost.decoder is None or layer < cost.geometry.layers else cost.decoder.geometry
    return half.weights_per_shard


def model_bytes(cost: StiCost, bits: int) -> int:
    """All shards of the model at so many bits."""
    return bytes_held(cost, dict.fromkeys(cost.all_shards(), bits))


def accumulated_budgets(bonus_s: float, comp_s: ArrayLike, spent_s: ArrayLike) -> Column:
    """AIB of each layer: the bonus and all computing before it, less the reading of it and of all layers before it (STI-11).

    `comp_s`, `spent_s`: of shape (layers,); what is preloaded is spent as well, which cancels the bonus. Never below zero: the
    plan is valid.
    """
    comp, spent = np.asarray(comp_s, np.float64), np.asarray(spent_s, np.float64)
    return bonus_s + np.concatenate([[0.0], np.cumsum(comp)[:-1]]) - np.cumsum(spent)


def budgets_of(plan: StreamingPlan, cost: StiCost) -> tuple[Column, Column]:
    """Accumulated IO budgets of each executed layer: what the preloaded shards and the computing grant, and what is left of it.

    Below zero: the layer's loads are late (STI-11). Where reads slow computing, it grants what it takes beside them.
    """
    work = work_of(cost, plan.layers, plan.slices_per_layer, length=plan.length)
    bonus_s = sum(cost.t_io(plan.bits[shard], shard[0]) for shard in plan.preloaded)
    comp_s = work.slowed * np.asarray(work.comp_s)
    granted = accumulated_budgets(work.slowed * work.before_s + bonus_s, comp_s, np.zeros(len(comp_s)))
    return granted, granted - np.cumsum(loads_s(cost, plan.bits, frozenset()))
