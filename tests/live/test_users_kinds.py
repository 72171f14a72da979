"""What users bring in a live deployment: their policies decide there, their batchers are for the simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.batching import top_up
from simnmt.experiment.inputs import RunPlan, read_inputs
from simnmt.live.decider import LiveDecider, live_unit
from simnmt.live.deployment import batching_of
from simnmt.scenario.source import open_source


def plan_of(scenario: dict[str, Any]) -> RunPlan:
    source = open_source(scenario)
    return read_inputs(source.scenario, Path(), source.document)


class WhenSlow:
    """Stays at the gateway while the last transfer took longer than the limit, or queues were reported."""

    def prepare(self, src_len: Any) -> None:
        pass

    def decide_with_view(self, request: int, view: simnmt.DecisionView) -> int:
        return 0 if view.rtt_s[1] > 0.1 or (view.reports[1] or 0.0) > 1.0 else 1


def test_a_policy_with_a_view_decides_live_by_what_was_measured(make_scenario: Callable[..., dict[str, Any]]) -> None:
    decider = LiveDecider(live_unit(plan_of(make_scenario(policies={"mine": WhenSlow()}))), "mine", {1: 0.05})
    decision = decider.decide(0, 12, 1.0)
    assert decision.target == 1
    decider.heard(decision, 0, 1.5, transfer_s=0.3, wait_s=0.0)
    assert decider.decide(1, 12, 2.0).target == 0
    decider.heard(decision, 1, 2.5, transfer_s=0.05, wait_s=3.0)
    assert decider.decide(2, 12, 3.0).target == 0
    decider.heard(decision, 2, 3.5, transfer_s=0.05, wait_s=0.1)
    assert decider.decide(3, 12, 4.0).target == 1


def test_a_slip_of_a_policy_is_one_line_live_as_well(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Wrong(WhenSlow):
        def decide_with_view(self, request: int, view: simnmt.DecisionView) -> int:
            return 7

    decider = LiveDecider(live_unit(plan_of(make_scenario(policies={"mine": Wrong()}))), "mine", {1: 0.05})
    with pytest.raises(simnmt.InputError, match=r"policy mine .*decide returned the target 7 of 2"):
        decider.decide(0, 12, 1.0)


def test_a_batcher_of_ones_own_is_refused_live(make_scenario: Callable[..., dict[str, Any]]) -> None:
    class Mine(simnmt.Batcher):
        def __init__(self) -> None:
            super().__init__(top_up(4, 2))

    scenario = make_scenario()
    scenario["devices"]["cloud"] = {"profile": "@cpu1-gru", "batching": Mine()}
    scenario["devices"]["gateway"] = {"profile": "@cpu1-gru"}
    (case,) = plan_of(scenario).cases.values()
    with pytest.raises(simnmt.InputError, match=r"the batcher .*Mine of device cloud is simulated alone"):
        batching_of(case.targets[1])
