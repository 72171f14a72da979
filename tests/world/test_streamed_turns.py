"""The turns of an engagement as planned, and what a request takes in each, by hand (STI-12, STI-17, STI-18, XP-04)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.profile.streaming_block import StiCost
from simnmt.streaming.plan.engagement import engagement
from simnmt.streaming.plan.streaming_plan import make_plan, timeline_of
from tests.streaming.plan.made_cost import LENGTH, costs, round_cost


def test_an_enlarged_buffer_keeps_what_was_read_and_a_cold_start_reads_all() -> None:
    """The model of STI-11: layer 0 in 6,000 bytes at 2 bits; all that is left of 2 s goes to the shard that ranks first."""
    engaged = engagement(round_cost(first=[(1, 0)]), 2.0, 6_000, 20_000, length=LENGTH)
    cold, first, second = engaged.states
    assert [sorted(plan.bits.values()) for plan in engaged.plans] == [[2, 2, 2, 2, 2, 6]] * 2
    assert (
        cold.load_s == pytest.approx((0.6, 1.0)) and first.load_s == pytest.approx((0.0, 1.0)) and second.load_s == (0.0, 0.0)
    )
    assert (cold.held_bytes, first.held_bytes, second.held_bytes) == (0, 6_000, 16_000)
    assert (cold.kept_bytes, first.kept_bytes, second.kept_bytes) == (16_000, 16_000, 16_000)
    assert (cold.streamed_bytes, first.streamed_bytes, second.streamed_bytes) == (16_000, 10_000, 0)
    latency_s = [float(state.alone_s(engaged.compute, LENGTH)) for state in engaged.states]
    assert latency_s == pytest.approx([2.6, 2.0, 2.0])


def test_plans_that_wait_within_the_deadline_keep_it_where_the_papers_are_late() -> None:
    """Two layers whose first 2 bits take 0.6 s to read, by 2 s: computing fills it, so waiting makes the paper's plan late."""
    ours, papers = (engagement(round_cost(), 2.0, 0, length=LENGTH, fills_deadline=fills) for fills in (True, False))
    assert all(float(state.alone_s(ours.compute, LENGTH)) <= 2.0 for state in ours.states)
    assert float(papers.states[1].alone_s(papers.compute, LENGTH)) == pytest.approx(2.6)
    assert len(ours.plans[0].bits) < len(papers.plans[0].bits)


def test_what_else_a_cold_start_reads_comes_before_everything() -> None:
    """3 s, embeddings among them, then embedding for 0.9 s, which hides 0.1 s of the first layer's reads, and 2 s of layers."""
    cost = replace(round_cost(a_bit_s=0.001), embed_s={LENGTH: 0.9})
    engaged = engagement(cost, 2.9, 0, length=LENGTH, cold_read_s=3.0)
    plain = engagement(cost, 2.9, 0, length=LENGTH)
    assert engaged.states[0].load_s[0] == plain.states[0].load_s[0] + 3.0
    assert engaged.states[1] == plain.states[1]
    cold_s = [float(turns.states[0].alone_s(turns.compute, LENGTH)) for turns in (engaged, plain)]
    assert cold_s == pytest.approx([5.9, 2.9])
    drawn = engaged.states[0].pipeline(engaged.compute, LENGTH)
    assert (drawn.before_s, drawn.latency_s) == pytest.approx((3.9, 5.9))


@settings(max_examples=40)
@given(costs(beside=True), st.floats(0.05, 5.0), st.integers(0, 60_000), st.integers(0, 60_000), st.integers(1, 4))
def test_every_turn_takes_what_its_plan_predicts_and_later_ones_are_no_worse(
    cost: StiCost, deadline_s: float, preload_bytes: int, more_bytes: int, steps: int
) -> None:
    engaged = engagement(cost, deadline_s, preload_bytes, preload_bytes + more_bytes, length=LENGTH, steps=steps)
    cold, *turns = engaged.states
    assert engaged.plans[0] == make_plan(cost, deadline_s, preload_bytes, length=LENGTH, steps=steps)
    latency_s = [float(state.alone_s(engaged.compute, LENGTH, steps)) for state in engaged.states]
    for plan, taken_s in zip(engaged.plans, latency_s[1:], strict=True):
        assert taken_s == pytest.approx(plan.latency_s) == pytest.approx(timeline_of(plan, cost).latency_s)
    assert latency_s[0] >= latency_s[1] - 1e-9
    assert cold.streamed_bytes == turns[0].streamed_bytes + turns[0].held_bytes
    for before, after in pairwise(turns):
        assert before.kept_bytes == after.held_bytes > before.held_bytes, "a turn with the same buffer is not planned again"
    for state in turns:
        assert state.held_bytes <= state.kept_bytes <= preload_bytes + more_bytes
    for before, after in pairwise(engaged.plans):
        assert all(after.bits[shard] == before.bits[shard] for shard in after.preloaded)
    assert turns[-1].kept_bytes == turns[-1].held_bytes


def test_all_turns_compute_the_same_submodel_although_later_ones_are_slowed_less() -> None:
    """2 x 3 would end in time in the second turn alone, which reads less; what a box computes is one thing all along."""
    cost = replace(round_cost(first=[(1, 0)]), slowed=(2.0,) * 3)
    engaged = engagement(cost, 2.25, 6_000, 40_000, length=LENGTH)
    assert len(engaged.plans) > 1
    assert {(plan.layers, plan.slices_per_layer) for plan in engaged.plans} == {(2, 2)}
    for plan, state in zip(engaged.plans, engaged.states[1:], strict=True):
        assert plan.latency_s == pytest.approx(float(state.alone_s(engaged.compute, LENGTH)))
