"""Planned once, executed often, planned anew on change alone; a buffer of its own for each model (STI-17, STI-18)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.sti.buffer import bytes_held
from simnmt.sti.errors import PlanError
from simnmt.sti.planner import Planner
from tests.sti.made_cost import LENGTH, round_cost

COST = round_cost(first=[(1, 0)])
CHANGES = st.lists(
    st.tuples(st.booleans(), st.sampled_from([None, 1.0, 2.0, 3.0]), st.sampled_from([None, 0, 6000, 10_000, 40_000])),
    max_size=8,
)


@settings(max_examples=40)
@given(CHANGES)
def test_plans_are_one_and_the_number_of_changes_and_no_buffer_overflows(
    changes: list[tuple[bool, float | None, int | None]],
) -> None:
    planner = Planner()
    planner.declare("a", COST, 2.0, 6000, length=LENGTH)
    planner.declare("b", COST, 2.0, 6000, length=LENGTH)
    now, made = (2.0, 6000), 1
    for executed, deadline_s, capacity in changes:
        call = planner.executed if executed else planner.change
        plan = call("a", deadline_s=deadline_s, preload_bytes=capacity)
        wanted = (deadline_s or now[0], now[1] if capacity is None else capacity)
        made, now = made + (wanted != now), wanted
        assert planner.plans_made("a") == made
        assert (plan.deadline_s, plan.preload_bytes) == now
        assert planner.plan("a") == plan
        assert bytes_held(COST, planner.contents("a")) <= now[1]
    assert planner.plans_made("b") == 1
    assert planner.plan("b") == Planner().declare("b", COST, 2.0, 6000, length=LENGTH)


def test_an_enlarged_buffer_keeps_what_the_turn_read_and_the_next_plan_reads_better() -> None:
    planner = Planner()
    first = planner.declare("a", COST, 2.0, 6000, length=LENGTH)
    assert planner.contents("a") == dict.fromkeys(first.preloaded, 2)
    second = planner.executed("a", preload_bytes=12_000)
    assert planner.contents("a") == {(0, 0): 2, (0, 1): 2, (0, 2): 2, (1, 0): 6}
    assert second.preloaded == first.preloaded | {(1, 0)}
    assert [second.bits[(1, piece)] for piece in range(3)] == [6, 5, 5]
    third = planner.executed("a", preload_bytes=6000)
    assert (planner.contents("a"), planner.plans_made("a")) == (dict.fromkeys(first.preloaded, 2), 3)
    assert third.preloaded == first.preloaded


def test_executions_without_a_change_leave_plan_and_buffer_alone() -> None:
    planner = Planner()
    first = planner.declare("a", COST, 2.0, 6000, length=LENGTH)
    held = planner.contents("a")
    for _ in range(3):
        assert planner.executed("a") is first
    assert (planner.contents("a"), planner.held_bytes(), planner.plans_made("a")) == (held, 6000, 1)


def test_unknown_and_repeated_models_are_refused_and_a_refused_change_changes_nothing() -> None:
    planner = Planner()
    with pytest.raises(PlanError, match="no model a"):
        planner.plan("a")
    first = planner.declare("a", COST, 2.0, 6000, length=LENGTH)
    with pytest.raises(PlanError, match="declared already"):
        planner.declare("a", COST, 2.0, 6000, length=LENGTH)
    with pytest.raises(PlanError):
        planner.executed("a", deadline_s=-1.0)
    assert (planner.plan("a"), planner.contents("a")) == (first, dict.fromkeys(first.preloaded, 2))
