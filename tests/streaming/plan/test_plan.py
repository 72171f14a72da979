"""Plans to the digits of STI-10, 13, 14, 15, 17, and what has to hold of every plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.streaming_block import BERT_BASE, BITS, Shard, StiCost
from simnmt.streaming.plan.plan_summary import standard_pipeline
from simnmt.streaming.plan.streaming_plan import StreamingPlan, budgets_of, bytes_held, evicted, make_plan, timeline_of
from simnmt.streaming.plan.submodel import allocate_bits, chosen_size, submodel, work_of
from simnmt.streaming.plan.timeline import ROUNDING, Timeline, Work, timeline
from tests.streaming.plan.made_cost import LENGTH, costs, round_cost

FIRST_LAYER = {(0, piece): 2 for piece in range(3)}
DEADLINES, CAPACITIES = st.floats(0.05, 5.0), st.integers(0, 60_000)


def size_of(plan: StreamingPlan) -> tuple[int, int]:
    return plan.layers, plan.slices_per_layer


def bits_of(plan: StreamingPlan, layer: int) -> list[int]:
    return [plan.bits[shard] for shard in plan.shards_of(layer)]


@pytest.mark.parametrize(
    ("layer_s", "deadline_s", "similar", "size"),
    [
        (lambda m: 0.001 + 0.0025 * m, 0.2, 0.0, (7, 11)),
        (lambda m: 0.001 + 0.0025 * m, 0.2, 0.1, (12, 6)),
        (lambda m: 0.001 + 0.0025 * m, 0.15, 0.0, (8, 7)),
        (lambda m: 0.001 + 0.0025 * m, 0.4, 0.0, (12, 12)),
        (lambda m: 0.04 * (1 + 0.007 * (m - 3) / 9), 0.15, 0.0, (3, 12)),
        (lambda m: 0.04 * (1 + 0.007 * (m - 3) / 9), 0.2, 0.0, (4, 12)),
        (lambda m: 0.04 * (1 + 0.007 * (m - 3) / 9), 0.4, 0.0, (9, 12)),
    ],
)
def test_worked_examples_of_sti_10(
    layer_s: Callable[[int], float], deadline_s: float, similar: float, size: tuple[int, int]
) -> None:
    reads = {bits: 1e-4 * bits for bits in BITS}
    cost = StiCost(BERT_BASE, reads, {16: tuple(layer_s(m) for m in range(1, 13))}, {bits: 1000 * bits for bits in BITS})
    assert chosen_size(cost, deadline_s, length=16, similar=similar) == size


def test_nothing_computed_in_time_is_1_x_1_and_flagged() -> None:
    plan = make_plan(round_cost(), 0.1, 60_000, length=LENGTH)
    assert (plan.layers, plan.slices_per_layer, plan.misses_deadline, plan.stalls) == (1, 1, True, False)


def test_worked_example_of_sti_13_with_a_buffer_and_without() -> None:
    cost = round_cost()
    chosen = submodel(cost, 2, 3, length=LENGTH)
    bits, short = allocate_bits(cost, chosen, 6000, cached=FIRST_LAYER)
    assert (min(bits[(1, piece)] for piece in range(3)), short) == (3, False)
    cold = make_plan(cost, 2.0, 0, length=LENGTH)
    assert set(cold.bits.values()) == {2}
    assert cold.short_of_io
    assert (cold.latency_s, cold.stall_s) == pytest.approx((2.6, 0.6))
    assert budgets_of(cold, cost)[1] == pytest.approx([-0.6, -0.2])


@pytest.mark.parametrize(("first", "bits"), [((1, 0), [4, 3, 3]), ((1, 2), [3, 3, 4])])
def test_worked_example_of_sti_14(first: Shard, bits: list[int]) -> None:
    plan = make_plan(round_cost(first=[first]), 2.0, 6000, length=LENGTH, cached=FIRST_LAYER)
    assert (bits_of(plan, 0), bits_of(plan, 1)) == ([2, 2, 2], bits)
    assert (plan.latency_s, plan.stall_s, plan.misses_deadline) == (pytest.approx(2.0), 0.0, False)


def test_worked_example_of_sti_15() -> None:
    cost = round_cost(first=[(1, 0), (0, 1)])
    plan = make_plan(cost, 2.0, 7000, length=LENGTH)
    assert (bits_of(plan, 0), bits_of(plan, 1)) == ([2, 3, 2], [6, 2, 2])
    assert plan.preloaded == {(0, 0), (0, 1), (0, 2)}
    assert not plan.stalls


def test_worked_example_of_sti_17() -> None:
    cost = round_cost(first=[(1, 0)])
    before = make_plan(cost, 2.0, 6000, length=LENGTH, cached=FIRST_LAYER)
    held = evicted(cost, before.bits, 10_000)
    assert held == FIRST_LAYER | {(1, 0): 4}
    after = make_plan(cost, 2.0, 10_000, length=LENGTH, cached=held)
    assert bits_of(after, 1) == [4, 5, 5]
    assert budgets_of(after, cost)[1] == pytest.approx([0.4, 0.0])
    assert evicted(cost, before.bits, 6000) == FIRST_LAYER  # one shot: the buffer is as it was


@given(costs(beside=True), DEADLINES, CAPACITIES)
def test_a_first_plan_stalls_only_where_not_even_2_bits_arrive(cost: StiCost, deadline_s: float, capacity: int) -> None:
    plan = make_plan(cost, deadline_s, capacity, length=LENGTH)
    predicted = timeline_of(plan, cost)
    assert (plan.latency_s, plan.stall_s) == (predicted.latency_s, predicted.stall_s)
    assert plan.short_of_io == plan.stalls == bool(budgets_of(plan, cost)[1].min() < -1e-7)
    assert not plan.short_of_io or set(plan.bits.values()) == {2}
    assert list(plan.bits) == sorted(plan.bits)
    assert bytes_held(cost, {shard: plan.bits[shard] for shard in plan.preloaded}) <= capacity
    assert plan.preloaded == set(list(plan.bits)[: len(plan.preloaded)])
    computed_s = work_of(cost, plan.layers, plan.slices_per_layer, length=LENGTH).total_s
    assert computed_s <= deadline_s * (1 + 1e-9) or (plan.layers, plan.slices_per_layer) == (1, 1)


@given(costs(beside=True), DEADLINES, st.data())
def test_no_single_further_upgrade_is_possible(cost: StiCost, deadline_s: float, data: st.DataObject) -> None:
    """Brute force over upgrades, on what the buffer holds, a prefix or not; and what it holds keeps its bits."""
    held = data.draw(st.dictionaries(st.sampled_from(cost.all_shards()), st.sampled_from(BITS)))
    plan = make_plan(cost, deadline_s, 10**6, length=LENGTH, cached=held)
    assert all(plan.bits[shard] == held[shard] for shard in plan.preloaded)
    assert plan.preloaded == set(held) & set(plan.bits)
    comp_s = [cost.t_comp(LENGTH, plan.slices_per_layer)] * plan.layers

    def run(bits: Mapping[Shard, int]) -> Timeline:
        loads = [
            sum(cost.t_io(bits[shard]) for shard in plan.shards_of(layer) if shard not in held) for layer in plan.layer_indices
        ]
        return timeline(loads, Work(comp_s, cost.head_s, cost.slowing(plan.slices_per_layer), cost.t_embed(LENGTH)))

    latest_s = max(deadline_s, run({shard: held.get(shard, 2) for shard in plan.bits}).latency_s) * (1 + 1e-9)

    def late(bits: Mapping[Shard, int]) -> bool:
        predicted = run(bits)
        slowed_late = cost.slowing(plan.slices_per_layer) > 1.0 and predicted.latency_s > latest_s
        return slowed_late or predicted.stall_s > ROUNDING * predicted.latency_s

    assert plan.short_of_io == late(plan.bits)
    if not plan.short_of_io:
        for shard in plan.bits.keys() - plan.preloaded:
            for bits in BITS:
                assert bits <= plan.bits[shard] or late(dict(plan.bits) | {shard: bits})


@given(costs(beside=True), DEADLINES, CAPACITIES, st.booleans())
def test_a_filled_deadline_is_met_wherever_it_can_be(cost: StiCost, deadline_s: float, capacity: int, cold: bool) -> None:
    cached: dict[Shard, int] | None = {} if cold else None
    plain = make_plan(cost, deadline_s, capacity, length=LENGTH, cached=cached)
    filled = make_plan(cost, deadline_s, capacity, length=LENGTH, cached=cached, fills_deadline=True)
    assert filled.latency_s <= max(plain.latency_s, deadline_s) * (1 + 1e-9)
    other = standard_pipeline(cost, deadline_s, 2, length=LENGTH)
    if other is not None:
        assert not filled.misses_deadline
        assert len(other.bits) <= len(filled.bits) <= len(plain.bits)
    if plain.bits.keys() == filled.bits.keys() and cold:
        assert sum(filled.bits.values()) >= sum(plain.bits.values())


@given(costs(beside=True), DEADLINES, CAPACITIES, st.booleans())
def test_a_plan_that_waits_for_nothing_meets_its_deadline_however_reads_slow_it(
    cost: StiCost, deadline_s: float, capacity: int, cold: bool
) -> None:
    plan = make_plan(cost, deadline_s, capacity, length=LENGTH, cached={} if cold else None)
    smallest = (plan.layers, plan.slices_per_layer) == (1, 1)
    assert smallest or plan.latency_s - plan.stall_s <= deadline_s * (1 + 1e-9)
    assert smallest or plan.stalls or not plan.misses_deadline
    undisturbed = make_plan(replace(cost, slowed=()), deadline_s, capacity, length=LENGTH, cached={} if cold else None)
    assert len(plan.bits) <= len(undisturbed.bits)


def test_worked_example_of_computing_that_reads_slow() -> None:
    """2 x 3 compute 2 s; behind the first layer in the buffer, 1 s of reading would cost 0.5 s more."""
    cost = replace(round_cost(first=[(1, 0)]), slowed=(2.0,) * 3)
    plans = {deadline_s: make_plan(cost, deadline_s, 6000, length=LENGTH) for deadline_s in (2.0, 2.3, 2.4, 2.5)}
    size = {deadline_s: (plan.layers, plan.slices_per_layer) for deadline_s, plan in plans.items()}
    assert size == {2.0: (2, 2), 2.3: (2, 3), 2.4: (2, 3), 2.5: (2, 3)}
    assert [bits_of(plans[deadline_s], 1) for deadline_s in (2.3, 2.4, 2.5)] == [[2, 2, 2], [4, 2, 2], [6, 2, 2]]
    assert [plans[deadline_s].latency_s for deadline_s in (2.3, 2.4, 2.5)] == pytest.approx([2.3, 2.4, 2.5])
    assert timeline_of(plans[2.5], cost).compute_end == pytest.approx([1.5, 2.5])


@given(costs(), DEADLINES, st.sampled_from([0.1, 0.4]), st.sampled_from([0.0, 0.3]))
def test_embedding_and_head_leave_the_layers_less_of_the_deadline(
    cost: StiCost, deadline_s: float, embed_s: float, head_s: float
) -> None:
    whole = replace(cost, embed_s={LENGTH: embed_s}, head_s=head_s)
    plan = make_plan(whole, deadline_s + embed_s + head_s, 0, length=LENGTH)
    bare = make_plan(cost, deadline_s, 0, length=LENGTH)
    assert plan.bits.keys() == bare.bits.keys()
    assert sum(plan.bits.values()) >= sum(bare.bits.values())  # the disk reads while words are embedded
    predicted = timeline_of(plan, whole)
    assert predicted.latency_s == pytest.approx(
        plan.stall_s + work_of(cost, *size_of(plan), length=LENGTH).total_s + embed_s + head_s
    )
    assert budgets_of(plan, whole)[0][0] == pytest.approx(embed_s)


def test_what_a_decoder_does_once_a_request_waits_for_its_loads_and_counts_in_the_deadline() -> None:
    """12 loads of 10 ms; each decoder layer unpacks for 3 ms once it is read, which nothing hides in the last one."""
    cost = round_cost(6, (0.001,), a_bit_s=0.005, decoder_layers=6, step_s=0.0008)
    assert cost.decoder is not None
    once = replace(cost, decoder=replace(cost.decoder, once_s=(0.003,)))
    plain, plan = (make_plan(costs, 1.0, 0, length=LENGTH, cached={}) for costs in (cost, once))
    assert (set(plan.bits.values()), len(plan.bits)) == ({2}, 12)
    assert (plain.latency_s, plan.latency_s) == pytest.approx((0.1208, 0.1238))
    least_s = work_of(once, 6, 1, length=LENGTH).total_s
    assert least_s == pytest.approx(6 * (0.001 + 0.003 + 0.0008))
    assert make_plan(once, least_s, 0, length=LENGTH).layers == 6
    assert make_plan(once, least_s - 1e-4, 0, length=LENGTH).layers == 5


def test_a_decoder_takes_its_share_of_layers_and_its_first_step_alone_waits() -> None:
    cost = round_cost(2, decoder_layers=4, step_s=0.1)
    plan = make_plan(cost, 6.0, 0, length=LENGTH, cached={}, steps=5)
    assert plan.layer_indices == (0, 1, 2, 3, 4, 5)
    assert (plan.layers, plan.slices_per_layer) == (2, 3)
    predicted = timeline_of(plan, cost)
    assert predicted.after_s == pytest.approx(4 * 4 * 0.1)
    assert plan.latency_s == pytest.approx(6 * 0.6 + 0.1 + predicted.after_s)  # the disk is what the first step waits for
    assert make_plan(cost, 1.5, 0, length=LENGTH, cached={}).layer_indices == (0, 2, 3)
