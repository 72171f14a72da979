"""The gateway's decisions replay to the same targets, and answer to what was measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simnmt
from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.live.decider import LiveDecider, live_unit
from simnmt.live.deployment import served_target
from simnmt.policies.health import UNREACHABLE_S
from simnmt.results.live_log import DeciderRecord, DecisionRecord, HandshakeRecord, HeardRecord, LostRecord
from tests.live.live_services import plan_of, replayed_targets, unit_of

POLICIES = {
    "plain": "{kind: cnmt}",
    "smoothed": "{kind: cnmt, transfer_estimate: smoothed}",
    "backlog": "{kind: cnmt, sees_backlog: true}",
}


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    return plan_of("@open-loop", *(f"policies.{name}={value}" for name, value in POLICIES.items()), "requests=10")


@pytest.fixture(scope="module")
def unit(plan: RunPlan) -> Unit:
    return live_unit(plan)


def play(unit: Unit, policy: str, steps: list[tuple[int, float, float, int]]) -> tuple[list[int], list[DeciderRecord]]:
    """Let a gateway serve requests; each step is (source length, gap, transfer, what becomes of it)."""
    decider, now_s = LiveDecider(unit, policy, {1: 0.05}), 0.0
    events: list[DeciderRecord] = []
    targets, under_way = [], []
    for request, (src_len, gap_s, transfer_s, fate) in enumerate(steps):
        now_s += gap_s
        unreachable = (1,) if fate == 3 else ()
        decision = decider.decide(request, src_len, now_s, unreachable)
        events.append(DecisionRecord(request, now_s, src_len, unreachable, decision.delay_s, decision.target))
        targets.append(decision.target)
        under_way.append((request, decision))
        if fate == 2:
            decider.shook_hands(1, transfer_s, now_s)
            events.append(HandshakeRecord(1, now_s, transfer_s))
        while under_way and fate:
            number, earlier = under_way.pop(0)
            now_s += 1e-3
            if fate == 1 or not earlier.target:
                measured_s = transfer_s if earlier.target else 0.0
                decider.heard(earlier, now_s, transfer_s=measured_s, wait_s=0.01, report=())
                events.append(HeardRecord(number, now_s, measured_s, 0.01, ()))
            else:
                decider.lost(earlier)
                events.append(LostRecord(number, now_s))
    return targets, events


STEPS = st.lists(
    st.tuples(st.integers(1, 80), st.floats(0.0, 1.0), st.floats(1e-3, 0.5), st.integers(0, 3)), min_size=1, max_size=40
)


@pytest.mark.parametrize("policy", POLICIES)
@given(steps=STEPS)
def test_a_log_replays_to_the_same_decisions(unit: Unit, policy: str, steps: list[tuple[int, float, float, int]]) -> None:
    targets, events = play(unit, policy, steps)
    assert replayed_targets(unit, policy, {1: 0.05}, events) == targets


def test_a_log_of_another_policy_replays_to_other_decisions(unit: Unit) -> None:
    steps = [(5 + 3 * number, 0.01, 0.02, 1) for number in range(25)]
    targets, events = play(unit, "plain", steps)
    assert replayed_targets(unit, "edge", {1: 0.05}, events) != targets


@pytest.mark.parametrize(("profile", "src_len"), [("@tx2-gru", 12), ("@cpu1-gru", 13)])
def test_the_policy_predicts_from_the_length_as_the_profiles_count_it(profile: str, src_len: int) -> None:
    """A gateway counts the end of the sentence, as `@cpu1-gru` does and `@tx2-gru` does not."""
    devices = [
        f"devices.{device}.{key}" for device in ("gateway", "cloud") for key in (f"profile={profile}", "outside_range_share=1")
    ]
    unit = unit_of("@open-loop", "policies.same={kind: cnmt, len_slope: 1.0, len_offset: 0.0}", *devices)
    assert LiveDecider(unit, "same", {1: 0.05}).decide(0, 13, 0.0).tgt_len_predicted == src_len


def test_a_slow_answer_keeps_the_next_requests_here(unit: Unit) -> None:
    decider = LiveDecider(unit, "plain", {1: 0.05})
    first = decider.decide(0, 40, 0.0)
    assert first.target == 1
    decider.heard(first, 0.9, transfer_s=30.0, wait_s=0.0)
    after = decider.decide(1, 40, 1.0)
    assert (after.target, after.delay_s[1]) == (0, 30.0)


def test_an_unreachable_server_gets_nothing_even_from_the_policy_cloud(unit: Unit) -> None:
    decision = LiveDecider(unit, "cloud", {1: 0.05}).decide(0, 40, 0.0, unreachable=[1])
    assert (decision.target, decision.delay_s[1]) == (0, UNREACHABLE_S)


def test_a_policy_that_sees_its_backlog_offloads_when_requests_pile_up_here(unit: Unit) -> None:
    decider, plain = (LiveDecider(unit, name, {1: 0.3}) for name in ("backlog", "plain"))
    kept = [decider.decide(request, 6, 0.0).target for request in range(30)]
    assert kept[0] == 0 and 1 in kept
    assert {plain.decide(request, 6, 0.0).target for request in range(30)} == {0}


def test_the_oracle_and_unknown_policies_are_refused(unit: Unit, plan: RunPlan) -> None:
    with pytest.raises(InputError, match="knows the truth and cannot be deployed"):
        LiveDecider(unit, "oracle", {1: 0.05})
    with pytest.raises(InputError, match="no policy fastest"):
        LiveDecider(unit, "fastest", {1: 0.05})
    with pytest.raises(InputError, match="no workload fr-en"):
        live_unit(plan, "fr-en")


def test_the_gateway_of_a_site_has_its_lines_and_its_workloads() -> None:
    plan = plan_of("@three-offices")
    for site in plan.sites:
        for workload in site.cases if site.has_device else ():
            unit = live_unit(plan, workload, site.name)
            assert (unit.case.name, unit.scenario, unit.links) == (workload, site.scenario, site.networks[unit.network][0])


@pytest.mark.parametrize(
    "overrides",
    [["sites.berlin.workloads=[de-en]"], [f"sites.{site}.devices={{gateway: null}}" for site in ("berlin", "porto")]],
)
def test_a_server_needs_no_gateway_at_the_sites_that_request_its_workload(overrides: list[str]) -> None:
    plan = plan_of("@three-offices", *overrides)
    for workload in plan.cases:
        target = served_target(plan, "server", workload)
        assert target in plan.cases[workload].targets and target.device == "server"
    with pytest.raises(InputError):
        served_target(plan, "sever")


class WhenSlow:
    """Stays at the gateway while the last transfer took longer than the limit, or queues were reported."""

    def prepare(self, src_len: Any) -> None:
        pass

    def decide_with_view(self, request: int, view: simnmt.DecisionView) -> int:
        return 0 if view.rtt_s[1] > 0.1 or (view.reports[1] or 0.0) > 1.0 else 1


def test_a_policy_with_a_view_decides_live_by_what_was_measured(make_scenario: Callable[..., dict[str, Any]]) -> None:
    decider = LiveDecider(unit_of(make_scenario(policies={"mine": WhenSlow()})), "mine", {1: 0.05})
    decision = decider.decide(0, 12, 1.0)
    assert decision.target == 1
    decider.heard(decision, 1.5, transfer_s=0.3, wait_s=0.0)
    assert decider.decide(1, 12, 2.0).target == 0
    decider.heard(decision, 2.5, transfer_s=0.05, wait_s=3.0)
    assert decider.decide(2, 12, 3.0).target == 0
    decider.heard(decision, 3.5, transfer_s=0.05, wait_s=0.1)
    assert decider.decide(3, 12, 4.0).target == 1
