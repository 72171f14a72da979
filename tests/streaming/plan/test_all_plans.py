"""The planner, whose passes are greedy (STI-13, STI-14), against all plans of small submodels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, product

from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.profile.streaming_cost import BITS, Shard, StiCost
from simnmt.streaming.plan.streaming_plan import StreamingPlan, make_plan
from simnmt.streaming.plan.timeline import Work, timeline
from tests.streaming.plan.made_cost import LENGTH, costs

FIDELITY = {2: 1 - 0.374**2, 3: 1 - 0.235**2, 4: 1 - 0.150**2, 5: 1 - 0.097**2, 6: 1 - 0.063**2, 32: 1.0}
"""Fidelity by bits: 1 minus the squared error of Gaussian weights over their variance (STI-04)."""


def fidelity(bits: Mapping[Shard, int], importance: Sequence[Shard] | None) -> float:
    """Return the mean of `FIDELITY`, with weights from 1 for the best rank to 1/n for the last of n."""
    ranked = [shard for shard in importance or () if shard in bits]
    weights = {shard: 1.0 - rank / len(ranked) for rank, shard in enumerate(ranked)} or dict.fromkeys(bits, 1.0)
    return sum(weights[shard] * FIDELITY[width] for shard, width in bits.items()) / sum(weights.values())


def best_by_trying(cost: StiCost, plan: StreamingPlan) -> float | None:
    """Of all bits and all preloaded prefixes that fit the buffer and never wait, nor end late where reads slow computing."""
    shards, best = list(plan.bits), None
    latest_s = max(plan.deadline_s, plan.latency_s) * (1 + 1e-9)
    comp_s = [cost.t_comp(LENGTH, plan.slices_per_layer)] * plan.layers
    for widths in product(BITS, repeat=len(shards)):
        bits = dict(zip(shards, widths, strict=True))
        sizes = accumulate(cost.bytes_of(width) for width in widths)
        held = sum(size <= plan.preload_bytes for size in sizes)
        loads = [0.0] * plan.layers
        for at, (shard, width) in enumerate(bits.items()):
            loads[shard[0]] += 0.0 if at < held else cost.t_io(width)
        result = timeline(loads, Work(comp_s, cost.head_s, cost.slowing(plan.slices_per_layer), cost.t_embed(LENGTH)))
        if not result.stalls and (cost.slowing(plan.slices_per_layer) == 1.0 or result.latency_s <= latest_s):
            best = max(best or 0.0, fidelity(bits, cost.importance))
    return best


@settings(max_examples=16)
@given(
    costs(beside=True).filter(lambda cost: cost.geometry.layers * cost.geometry.heads <= 3),
    st.integers(0, 40),
    st.floats(0.3, 4.0),
)
def test_a_plan_that_never_waits_is_no_better_than_the_best_of_all(
    cost: StiCost, shards_of_1000: int, deadline_s: float
) -> None:
    plan = make_plan(cost, deadline_s, 1000 * shards_of_1000, length=LENGTH)
    best = best_by_trying(cost, plan)
    if best is None:
        assert plan.short_of_io
    elif not plan.stalls:
        assert fidelity(plan.bits, cost.importance) <= best + 1e-9
