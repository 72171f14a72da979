"""Streaming plan: the shards to load, their bits, and those held in the preload buffer (STI-10 to STI-15, STI-17).

Also what follows from a plan: contents of the preload buffer, memory use (STI-23) and accumulated IO budgets (STI-11).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.profile.streaming_block import BITS, Shard, StiCost
from simnmt.streaming.plan.submodel import PlanError, Submodel, allocate_bits, chosen_size, read_in_time, submodel, work_of
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, TimelineFunction, timeline


def longest_prefix(sizes: Sequence[tuple[Shard, int]], capacity_bytes: int) -> frozenset[Shard]:
    """Return the first shards that fit together; `sizes`: shards in layer order with their bytes. None is skipped (D)."""
    ends = accumulate(size for _, size in sizes)
    return frozenset(shard for (shard, _), end in zip(sizes, ends, strict=True) if end <= capacity_bytes)


def evicted(cost: StiCost, contents: Mapping[Shard, int], capacity_bytes: int) -> dict[Shard, int]:
    """Return the contents of a buffer after eviction: the top layer goes first, its last slice first, until the rest fits."""
    sizes = [(shard, cost.bytes_of(contents[shard], shard[0])) for shard in sorted(contents)]
    return {shard: contents[shard] for shard in sorted(longest_prefix(sizes, capacity_bytes))}


def bytes_held(cost: StiCost, contents: Mapping[Shard, int]) -> int:
    """Return the bytes of compressed shards; `contents`: bits by shard."""
    return sum(cost.bytes_of(bits, layer) for (layer, _), bits in contents.items())


@dataclass(frozen=True, slots=True)
class StreamingPlan:
    """A submodel with the bits of each shard, the conditions it was planned for, and its predicted latency."""

    layers: int
    slices_per_layer: int
    bits: Mapping[Shard, int]
    preloaded: frozenset[Shard]
    deadline_s: float
    preload_bytes: int
    length: int
    latency_s: float
    stall_s: float
    """Both predicted; the latter: seconds that the processor waits for loads."""
    steps: float = 1.0
    """Decoder steps within the deadline; 1 without a decoder."""
    short_of_io: bool = False
    """True if even 2 bits everywhere are loaded too late; the plan of the paper then loads 2 bits (STI-13)."""

    @property
    def misses_deadline(self) -> bool:
        """True if the predicted latency exceeds the deadline: 1 x 1 is too large, or loads make the processor wait."""
        return self.latency_s > self.deadline_s * (1.0 + ROUNDING)

    @property
    def stalls(self) -> bool:
        """True if the processor waits for longer than rounding errors explain."""
        return self.stall_s > ROUNDING * self.latency_s

    @property
    def layer_indices(self) -> tuple[int, ...]:
        """The executed layers in order; numbers of decoder layers follow those of all encoder layers."""
        return tuple(dict.fromkeys(layer for layer, _ in self.bits))

    def shards_of(self, layer: int) -> tuple[Shard, ...]:
        """Return the planned shards of a layer in slice order."""
        return tuple(shard for shard in self.bits if shard[0] == layer)

    def as_json(self) -> dict[str, Any]:
        shards = [
            {"layer": layer, "slice": piece, "bits": bits, "preloaded": (layer, piece) in self.preloaded}
            for (layer, piece), bits in self.bits.items()
        ]
        names = ["layers", "slices_per_layer", "deadline_s", "preload_bytes", "length", "steps", "latency_s", "stall_s"]
        names += ["short_of_io", "misses_deadline", "stalls"]
        return {name: getattr(self, name) for name in names} | {"shards": shards}


def make_plan(
    cost: StiCost,
    deadline_s: float,
    preload_bytes: int,
    *,
    length: int,
    cached: Mapping[Shard, int] | None = None,
    similar: float = 0.0,
    steps: float = 1.0,
    fills_deadline: bool = False,
    size: tuple[int, int] | None = None,
) -> StreamingPlan:
    """Return the two-stage plan of the paper: the largest submodel that is computed in time, then bits in two passes.

    Embedding and head count towards the deadline, and computing before a layer gives time for its loads. Where reads slow
    computing, the submodel ends in time with 2 bits everywhere, and upgrades keep it so.

    A first plan that stalls because a part of a shard counted as preloaded is made again with whole shards only; the plans
    of the paper then stall for less than one read. Raises `PlanError` for an invalid deadline, buffer, length or steps.

    Args:
        length: padded source tokens.
        cached: bits by shard in the buffer; empty for a cold start. None for a first plan, whose buffer is filled as planned.
        similar: share of the most shards that a deeper submodel may lack.
        steps: decoder steps within the deadline.
        fills_deadline: let the pipeline wait for loads until the deadline; if none meets it, as long as with 2 bits
            everywhere. The paper never waits.
        size: layers and slices per layer, as for later turns of an engagement. None to choose them.
    """
    if not 0.0 < deadline_s < math.inf:
        raise PlanError(f"a deadline of {deadline_s:g} s", remedy="give a positive one")
    if preload_bytes < 0:
        raise PlanError(f"a preload buffer of {preload_bytes:,} bytes", remedy="give 0 or more")
    if length < 1 or not 0.0 < steps < math.inf:
        raise PlanError(f"a plan for {length} tokens and {steps:g} decoder steps", remedy="give one or more of each")

    def held(bits: Mapping[Shard, int]) -> frozenset[Shard]:
        return frozenset(evicted(cost, bits, preload_bytes) if cached is None else cached.keys() & bits.keys())

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
        waits = {"may_wait_s": may_wait_s, "deadline_s": deadline_s}
        bits, short = allocate_bits(cost, chosen, preload_bytes, cached=cached, whole_shards=whole_shards, **waits)
        return plan_with_bits(cost, chosen, bits, held(bits), deadline_s, preload_bytes, short_of_io=short)

    plan = attempt(False)
    late = plan.stalls or (chosen.work.slowed > 1.0 and plan.misses_deadline)
    if cached is None and late and not plan.short_of_io:
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
    """Return the plan with bits for each shard of the submodel; `run` predicts its latency."""
    predicted = run(loads_s(cost, bits, preloaded), chosen.work)
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
    """Return the seconds to read the shards of each planned layer that are not preloaded, in layer order."""
    by_layer: dict[int, float] = {}
    for shard, width in bits.items():
        read_s = 0.0 if shard in preloaded else cost.t_io(width, shard[0])
        by_layer[shard[0]] = by_layer.get(shard[0], 0.0) + read_s
    return list(by_layer.values())


def timeline_of(plan: StreamingPlan, cost: StiCost, length: int | None = None, *, run: TimelineFunction = timeline) -> Timeline:
    """Return the timeline of a plan for `length` tokens, by default the planned length."""
    tokens = plan.length if length is None else length
    work = work_of(cost, plan.layers, plan.slices_per_layer, length=tokens, steps=plan.steps)
    return run(loads_s(cost, plan.bits, plan.preloaded), work)


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory use of a plan, in bytes."""

    preload_bytes: int
    """Preloaded shards, held between executions too."""
    working_bytes: int
    """One unpacked layer in float32; all layers if nothing overlaps."""
    streamed_bytes: int
    """Compressed shards that an execution reads and holds until eviction; 0 if nothing overlaps."""


def memory_of(cost: StiCost, plan: StreamingPlan, *, whole: bool = False, in_turn: bool = False) -> Memory:
    """Return the memory use of a plan.

    `whole`: the whole model stays in memory, not only the executed shards; `in_turn`: all shards are loaded before the first
    layer is computed.
    """
    loaded = bytes_held(cost, {shard: bits for shard, bits in plan.bits.items() if shard not in plan.preloaded})
    held = plan.preload_bytes if whole else bytes_held(cost, plan.bits) - loaded
    decoder = cost.geometry if cost.decoder is None else cost.decoder.geometry
    halves = [cost.geometry if layer < cost.geometry.layers else decoder for layer in plan.layer_indices]
    layers_bytes = [4 * plan.slices_per_layer * half.weights_per_shard for half in halves]
    return Memory(held, sum(layers_bytes) if in_turn else max(layers_bytes), 0 if in_turn else loaded)


def model_bytes(cost: StiCost, bits: int) -> int:
    """Return the bytes of all shards of the model at `bits` bits."""
    return bytes_held(cost, dict.fromkeys(cost.all_shards(), bits))


def accumulated_budgets(bonus_s: float, comp_s: ArrayLike, spent_s: ArrayLike) -> Floats:
    """Return the accumulated IO budget of each layer, in seconds (STI-11); a plan is valid if none is below 0.

    The budget is the bonus plus all computing before the layer, minus the reads of this and all earlier layers. `comp_s`,
    `spent_s`: computing and read time of each layer, shape (layers,); reads of preloaded shards count, and cancel the bonus.
    """
    comp, spent = np.asarray(comp_s, np.float64), np.asarray(spent_s, np.float64)
    return bonus_s + np.concatenate([[0.0], np.cumsum(comp)[:-1]]) - np.cumsum(spent)


def budgets_of(plan: StreamingPlan, cost: StiCost) -> tuple[Floats, Floats]:
    """Return the IO budgets of each executed layer, in seconds: granted, and left after all reads (STI-11).

    Preloaded shards and computing grant time; computing that reads slow grants its slowed time. Loads come late if the rest is
    below 0.
    """
    work = work_of(cost, plan.layers, plan.slices_per_layer, length=plan.length)
    bonus_s = sum(cost.t_io(plan.bits[shard], shard[0]) for shard in plan.preloaded)
    comp_s = work.slowed * np.asarray(work.comp_s)
    granted = accumulated_budgets(work.slowed * work.before_s + bonus_s, comp_s, np.zeros(len(comp_s)))
    return granted, granted - np.cumsum(loads_s(cost, plan.bits, frozenset()))
