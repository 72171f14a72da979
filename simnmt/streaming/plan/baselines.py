"""Plans that STI is compared with: the paper's baselines (STI-19), and the exact optimum of the bits.

The baselines load before running, use one bitwidth for all shards, or hold the whole model in memory. The exact optimum goes
beyond the paper, whose passes are greedy (STI-13, STI-14): integer programming maximises the fidelity of the planned shards,
weighted by their rank. The fidelity is a definition, not a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

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
from simnmt.streaming.plan.submodel import PlanError, Submodel, chosen_size, sizes, submodel
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, TimelineFunction, load_then_run, timeline

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint

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


FIDELITY = {2: 1 - 0.374**2, 3: 1 - 0.235**2, 4: 1 - 0.150**2, 5: 1 - 0.097**2, 6: 1 - 0.063**2, 32: 1.0}
"""Fidelity by bits: 1 minus the squared error of Gaussian weights over their variance (STI-04)."""
MOST_SHARDS = 144


@dataclass(frozen=True, slots=True)
class ExactPlan:
    """The best plan that the search found, and a proven bound."""

    plan: StreamingPlan
    fidelity: float
    """Fidelity of the plan, between 0 and 1."""
    bound: float
    """No plan of this submodel has a greater fidelity; equals `fidelity`, but for rounding, if the search ended."""
    greedy_fidelity: float

    @property
    def gap(self) -> float:
        """Share of the best fidelity that the greedy plan lacks; below 0 if the greedy plan is better because it waits."""
        return 1.0 - self.greedy_fidelity / self.fidelity

    @property
    def gap_at_most(self) -> float:
        """Share of the bound that the greedy plan lacks."""
        return 1.0 - self.greedy_fidelity / self.bound

    def as_json(self) -> dict[str, Any]:
        """Return the plan and its fidelities as plain numbers."""
        fidelities = {name: getattr(self, name) for name in ("fidelity", "bound", "greedy_fidelity", "gap")}
        return {"plan": self.plan.as_json(), **fidelities}


def fidelity(bits: Mapping[Shard, int], importance: Sequence[Shard] | None) -> float:
    """Return the mean of `FIDELITY` over shards, with weights from 1 for the best rank to 1/n for the last of n.

    Without a ranking all weights are 1.
    """
    weights = _weights(list(bits), importance)
    return sum(weights[shard] * FIDELITY[width] for shard, width in bits.items()) / sum(weights.values())


def find_exact_plan(
    cost: StiCost, greedy: StreamingPlan, *, may_wait_s: float = 0.0, limit_s: float = 20.0
) -> ExactPlan | None:
    """Return the best bits and the best number of preloaded shards for the submodel, deadline and buffer of the greedy plan.

    The buffer is filled in layer order, as for a first plan. Where reads slow computing, the execution ends by the deadline or
    no later than the greedy plan. Returns None if even 2 bits everywhere are loaded too late.

    Args:
        may_wait_s: seconds that the processor may wait for loads, over all layers.
        limit_s: seconds after which the search returns its best plan.

    Raises:
        PlanError: for more than 144 shards, and if the search had no plan after `limit_s`.
    """
    from scipy.optimize import Bounds, milp

    if len(greedy.bits) > MOST_SHARDS:
        raise PlanError(f"{len(greedy.bits)} shards are too many to plan exactly", remedy="leave out --exact")
    chosen = submodel(cost, greedy.layers, greedy.slices_per_layer, length=greedy.length, steps=greedy.steps)
    weights = _weights(chosen.shards, cost.importance)
    gain = np.outer([weights[shard] for shard in chosen.shards], [FIDELITY[width] for width in BITS])
    solution = milp(
        -np.tile(gain.ravel(), 2) / sum(weights.values()),
        integrality=np.ones(2 * gain.size, np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=_constraints(cost, greedy, chosen, may_wait_s),
        options={"time_limit": limit_s, "mip_rel_gap": 0.0},
    )
    if solution.x is None:
        if solution.status == 2:
            return None
        raise PlanError(f"no exact plan within {limit_s:g} s", remedy="plan fewer shards")
    taken = solution.x.reshape(2, *gain.shape) > 0.5
    widths = taken.any(axis=0).argmax(axis=1).tolist()
    bits = {shard: BITS[width] for shard, width in zip(chosen.shards, widths, strict=True)}
    preloaded = frozenset(shard for shard, held in zip(chosen.shards, taken[0].any(axis=1), strict=True) if held)
    plan = plan_with_bits(cost, chosen, bits, preloaded, greedy.deadline_s, greedy.preload_bytes)
    bound, greedy_fidelity = float(-solution.mip_dual_bound), fidelity(greedy.bits, cost.importance)
    return ExactPlan(plan, fidelity(bits, cost.importance), bound, greedy_fidelity)


def _constraints(cost: StiCost, greedy: StreamingPlan, chosen: Submodel, may_wait_s: float) -> list[LinearConstraint]:
    """Return the constraints of the integer program.

    There is a column for each shard and bitwidth, first for preloading, then for loading. Times are in units of the computing
    time of a layer, which suits the tolerance of the solver.
    """
    from scipy.optimize import LinearConstraint

    work, unit_s = chosen.work, chosen.work.comp_s[0]
    reads = np.array([cost.t_io(width, layer) / unit_s for layer, _ in chosen.shards for width in BITS])
    sizes_bytes = np.array([cost.bytes_of(width, layer) for layer, _ in chosen.shards for width in BITS])
    room = sizes_bytes / max(greedy.preload_bytes, 1)
    one = np.kron(np.eye(len(chosen.shards)), np.ones(len(BITS)))
    loaded_before = np.array([[layer <= at for layer, _ in chosen.shards for _ in BITS] for at in chosen.layer_indices]) * reads
    before_s = work.before_s + np.concatenate([[0.0], np.cumsum(work.comp_s)[:-1]])

    def at_most(held: NDArray[np.float64], loaded: NDArray[np.float64], limit: float | Sequence[float]) -> LinearConstraint:
        return LinearConstraint(np.hstack([held, loaded]), -np.inf, limit)

    constraints = [
        LinearConstraint(np.hstack([one, one]), 1.0, 1.0),
        at_most(room[None], np.zeros((1, len(room))), 1.0 if greedy.preload_bytes else 0.0),
        at_most(np.zeros_like(loaded_before), loaded_before, ((work.slowed * before_s + may_wait_s) / unit_s).tolist()),
    ]
    if len(one) > 1:  # the preloaded shards are a prefix
        constraints.append(at_most(np.diff(one, axis=0), np.zeros_like(one[1:]), 0.0))
    slowing = 1.0 - 1.0 / work.slowed
    if slowing:  # the pipeline ends later by the reads' share of it, and has to end by the deadline nevertheless
        ends = np.vstack([loaded_before / work.slowed, np.zeros_like(reads)]) + slowing * reads
        # From each layer's last load on, and from the beginning on, to the end of the greedy plan's time.
        left_s = max(greedy.deadline_s, greedy.latency_s) - work.total_s + np.append(before_s, 0.0)
        constraints.append(at_most(np.zeros_like(ends), ends, (left_s / unit_s).tolist()))
    return constraints


def _weights(shards: Sequence[Shard], importance: Sequence[Shard] | None) -> dict[Shard, float]:
    if importance is None:
        return dict.fromkeys(shards, 1.0)
    planned = set(shards)
    ranked = [shard for shard in importance if shard in planned]
    return {shard: (len(ranked) - rank) / len(ranked) for rank, shard in enumerate(ranked)}
