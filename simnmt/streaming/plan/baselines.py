"""Plans that STI is compared with: the paper's baselines (STI-19), and the exact optimum of the bits.

The baselines load before running, use one bitwidth for all shards, or hold the whole model in memory. The exact optimum goes
beyond the paper, whose passes are greedy (STI-13, STI-14): integer programming maximises the fidelity of the planned shards,
weighted by their rank. That fidelity is defined here, not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.plan.streaming_plan import (
    Memory,
    StreamingPlan,
    check_deadline_and_buffer,
    memory_of,
    model_bytes,
    plan_with_bits,
    timeline_of,
)
from simnmt.streaming.plan.submodel import PlanError, chosen_size, sizes, submodel
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, TimelineFunction, load_then_run, timeline

UNIFORM = (32, 2, 6)
"""The pipelines' bitwidths in the paper: all, the lowest, and the highest of the quantised."""
IN_MEMORY = (32, 6)


@dataclass(frozen=True, slots=True)
class Contestant:
    """A way of running a model under a deadline."""

    name: str
    plan: StreamingPlan | None
    """None: no submodel ends in time this way."""
    timeline: Timeline | None
    memory: Memory | None


def load_and_execute(
    cost: StiCost, deadline_s: float, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> StreamingPlan:
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
) -> StreamingPlan | None:
    """StdPL-X: a pipeline without preloading, all shards of `bits`; the most shards, then the deepest, that end in time.

    None where not even one shard does.
    """
    plans = _uniform(cost, deadline_s, bits, length=length, importance=importance, steps=steps, run=timeline)
    return next((plan for plan in plans if not plan.misses_deadline), None)


def in_memory(
    cost: StiCost, deadline_s: float, bits: int, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> StreamingPlan:
    """PreloadModel-X: the whole model is in memory; the largest submodel computed in time, 1 x 1 where there is none."""
    check_deadline_and_buffer(deadline_s, 0)
    size = chosen_size(cost, deadline_s, length=length, steps=steps)
    chosen = submodel(cost, *size, length=length, importance=_order(cost, importance), steps=steps)
    every = dict.fromkeys(chosen.shards, bits)
    holds = model_bytes(cost, bits)
    return plan_with_bits(cost, chosen, every, frozenset(every), deadline_s, holds, length=length, steps=steps)


def contestants(
    cost: StiCost, deadline_s: float, *, length: int, importance: Sequence[Shard] | None = None, steps: float = 1.0
) -> Iterator[Contestant]:
    """Load&Exec, StdPL-full, -2 and -6, PreloadModel-full and -6."""
    plan: StreamingPlan | None = load_and_execute(cost, deadline_s, importance=importance, length=length, steps=steps)
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
    run: TimelineFunction,
) -> Iterator[StreamingPlan]:
    """All submodels, the one with the most shards first, the deeper of two alike first."""
    check_deadline_and_buffer(deadline_s, 0)
    order = _order(cost, importance)
    for size in sizes(cost):
        chosen = submodel(cost, *size, length=length, importance=order, steps=steps)
        every = dict.fromkeys(chosen.shards, bits)
        yield plan_with_bits(cost, chosen, every, frozenset(), deadline_s, 0, length=length, steps=steps, run=run)


def _contestant(
    name: str, cost: StiCost, plan: StreamingPlan | None, *, in_turn: bool = False, whole: bool = False
) -> Contestant:
    if plan is None:
        return Contestant(name, None, None, None)
    run = load_then_run if in_turn else timeline
    return Contestant(name, plan, timeline_of(plan, cost, run=run), memory_of(cost, plan, whole=whole, in_turn=in_turn))


def _order(cost: StiCost, importance: Sequence[Shard] | None) -> Sequence[Shard] | None:
    return cost.importance if importance is None else importance


def _shown(bits: int) -> str:
    return "full" if bits == 32 else str(bits)


FIDELITY = {2: 1 - 0.374**2, 3: 1 - 0.235**2, 4: 1 - 0.150**2, 5: 1 - 0.097**2, 6: 1 - 0.063**2, 32: 1.0}
"""1 less the squared error of Gaussian weights over their variance, by bits: STI-04's figures."""
MOST_SHARDS = 144


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """The best plan found, and what is proven of it."""

    plan: StreamingPlan
    fidelity: float
    """Of the plan, between 0 and 1."""
    bound: float
    """No plan of this submodel is above; equal to `fidelity`, but for rounding, where the search came to its end."""
    greedy_fidelity: float

    @property
    def gap(self) -> float:
        """Share of the best fidelity that the greedy plan lacks.

        Below 0 where that one is better because it waits.
        """
        return 1.0 - self.greedy_fidelity / self.fidelity

    @property
    def gap_at_most(self) -> float:
        """The same against the bound."""
        return 1.0 - self.greedy_fidelity / self.bound


def fidelity(bits: Mapping[Shard, int], importance: Sequence[Shard] | None) -> float:
    """Mean of `FIDELITY` over shards, the best ranked weighted 1, the last of n weighted 1/n; all alike without a ranking."""
    weights = _weights(list(bits), importance)
    return sum(weights[shard] * FIDELITY[width] for shard, width in bits.items()) / sum(weights.values())


def find_exact_plan(
    cost: StiCost,
    greedy: StreamingPlan,
    *,
    importance: Sequence[Shard] | None = None,
    may_wait_s: float = 0.0,
    limit_s: float = 20.0,
) -> ExactPlan | None:
    """The best bits and the best number of preloaded shards for the greedy plan's submodel, deadline and buffer.

    The buffer is filled in layer order, as a first plan's is; whatever a layer still reads has to be there in time, or for
    `may_wait_s` in all too late; where reads slow computing, the whole by the deadline or as soon as the greedy plan. None
    where that cannot be, at 2 bits neither. The search ends after `limit_s` with what it has. Raises `PlanError` for more than
    144 shards, and where the time was not enough to find anything.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    if len(greedy.bits) > MOST_SHARDS:
        raise PlanError(f"{len(greedy.bits)} shards are too many to plan exactly", remedy="leave out --exact")
    order = cost.importance if importance is None else importance
    chosen = submodel(cost, greedy.layers, greedy.slices_per_layer, length=greedy.length, importance=order, steps=greedy.steps)
    shards, widths = chosen.shards, len(BITS)
    at_layer = {layer: k for k, layer in enumerate(chosen.layer_indices)}
    comp_s = chosen.work.comp_s
    slowing = 1.0 - 1.0 / chosen.work.slowed
    before_s = chosen.work.before_s + np.concatenate([[0.0], np.cumsum(comp_s)[:-1]])
    # From each layer's last load on, and from the beginning on, to the end of the greedy plan's time.
    left_s = max(greedy.deadline_s, greedy.latency_s) - chosen.work.total_s + np.append(before_s, 0.0)
    # A column for each shard and bitwidth: first those that are preloaded, then those that are loaded.
    columns = len(shards) * widths
    one = lil_array((len(shards), 2 * columns))
    prefix = lil_array((max(len(shards) - 1, 1), 2 * columns))
    room = lil_array((1, 2 * columns))
    in_time = lil_array((len(at_layer), 2 * columns))
    # Where reads slow computing, the pipeline ends later by their share of it, and has to end by the deadline nevertheless.
    ends = np.zeros((len(at_layer) + 1, 2 * columns))
    weights = _weights(shards, order)
    gain = np.zeros(2 * columns)
    for number, shard in enumerate(shards):
        for place, width in enumerate(BITS):
            held, loaded = number * widths + place, columns + number * widths + place
            gain[[held, loaded]] = weights[shard] * FIDELITY[width]
            one[number, held] = one[number, loaded] = 1.0
            room[0, held] = cost.bytes_of(width, shard[0]) / max(greedy.preload_bytes, 1)
            if number:
                prefix[number - 1, held] = 1.0
            if number < len(shards) - 1:
                prefix[number, held] = -1.0
            for k in range(at_layer[shard[0]], len(at_layer)):
                # In units of a layer's computation, so that the solver's tolerance means something.
                in_time[k, loaded] = cost.t_io(width, shard[0]) / comp_s[0]
                ends[k, loaded] = cost.t_io(width, shard[0]) / chosen.work.slowed / comp_s[0]
            ends[:, loaded] += slowing * cost.t_io(width, shard[0]) / comp_s[0]
    solution = milp(
        -gain / sum(weights.values()),
        integrality=np.ones(2 * columns, np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=[
            LinearConstraint(one.tocsr(), 1.0, 1.0),
            LinearConstraint(prefix.tocsr(), -np.inf, 0.0),
            LinearConstraint(room.tocsr(), -np.inf, 1.0 if greedy.preload_bytes else 0.0),
            LinearConstraint(in_time.tocsr(), -np.inf, (chosen.work.slowed * before_s + may_wait_s) / comp_s[0]),
            *([LinearConstraint(ends, -np.inf, left_s / comp_s[0])] if slowing else []),
        ],
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        if solution.status == 2:
            return None
        raise PlanError(f"no exact plan within {limit_s:g} s", remedy="plan fewer shards")
    taken = solution.x.reshape(2, len(shards), widths) > 0.5
    bits = {shard: BITS[int(taken[:, number].any(axis=0).argmax())] for number, shard in enumerate(shards)}
    preloaded = frozenset(shard for number, shard in enumerate(shards) if taken[0, number].any())
    plan = plan_with_bits(
        cost,
        chosen,
        bits,
        preloaded,
        greedy.deadline_s,
        greedy.preload_bytes,
        length=greedy.length,
        steps=greedy.steps,
    )
    return ExactPlan(plan, fidelity(bits, order), float(-solution.mip_dual_bound), fidelity(greedy.bits, order))


def _weights(shards: Sequence[Shard], importance: Sequence[Shard] | None) -> dict[Shard, float]:
    if importance is None:
        return dict.fromkeys(shards, 1.0)
    planned = set(shards)
    ranked = [shard for shard in importance if shard in planned]
    return {shard: (len(ranked) - rank) / len(ranked) for rank, shard in enumerate(ranked)}
