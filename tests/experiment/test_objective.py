"""What a scenario says of its goal, and a scenario with one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import simnmt

MakeScenario = Callable[..., dict[str, Any]]


def test_the_scenarios_objective_and_service_level_reach_the_recommendation(make_scenario: MakeScenario) -> None:
    """A nearby slow gateway against a cloud with an even transfer time: the mean and the tail have different winners."""
    policies: dict[str, Any] = {"edge": {}, "cloud": {}, "oracle": {}}
    scenario = make_scenario(policies=policies, networks={"n": {"rtt": {"constant_ms": 165}}}, requests=1_000)
    rows = {row["policy"]: row for row in simnmt.run(scenario).summary_rows}
    best = {goal: min(("edge", "cloud"), key=lambda name: rows[name][f"{goal}_latency_s"]) for goal in ("mean", "p95")}
    assert best == {"mean": "edge", "p95": "cloud"}
    for goal, policy in best.items():
        (found,) = simnmt.run(scenario | {"objective": goal}).recommendations
        assert (found["objective"], found["policy"]) == (goal, policy)
    limit_ms = 1e3 * (rows["edge"]["p95_latency_s"] + rows["cloud"]["p95_latency_s"]) / 2
    (found,) = simnmt.run(scenario | {"slo": {"p95_ms": limit_ms}}).recommendations
    assert (found["policy"], found["slo_met"], found["slo_missed_by"]) == ("cloud", True, ["edge"])


@pytest.mark.parametrize(("requests", "marked"), [(100, True), (2_000, False)])
def test_the_verdict_of_few_requests_beyond_the_objective_has_a_caution(
    make_scenario: MakeScenario, requests: int, marked: bool
) -> None:
    result = simnmt.run(make_scenario(policies={"edge": {}, "cloud": {}}, requests=requests, objective="p99"))
    (caution,) = [record["caution"] for record in result.recommendations]
    assert bool(caution) == marked and result.document()["notes"].count(caution) == int(marked)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"objective": "median"}, "objective"),
        ({"slo": {}}, "slo"),
        ({"slo": {"p95_ms": 0}}, r"slo\.p95_ms"),
        ({"slo": {"p09_ms": 100}}, r"slo\.p09_ms"),
    ],
)
def test_a_goal_that_cannot_be_is_refused(make_scenario: MakeScenario, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(simnmt.InputError, match=message):
        simnmt.run(make_scenario(**changed))


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "back_to_back"},
        {"kind": "poisson", "rate_rps": 2.0},
        {"kind": "clients", "clients": 2, "think_time": {"mean_s": 1.0}},
    ],
)
@pytest.mark.parametrize("name", ["gateway", "end_node"])
def test_a_scenario_of_one_device_runs(make_scenario: MakeScenario, arrivals: dict[str, Any], name: str) -> None:
    """The network is the way from the end nodes to the only device, and unused where that is theirs."""
    scenario = make_scenario(networks={"n": {"rtt": {"constant_ms": 40}}}, requests=300)
    scenario["devices"] = {name: scenario["devices"]["gateway"]}
    scenario["workloads"] = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}
    result = simnmt.run(scenario)
    rows = {row["policy"]: row for row in result.summary_rows}
    assert all(row["offloaded_share"] == 0.0 and row["misrouted_share"] == 0.0 for row in rows.values())
    assert rows["edge"]["mean_transfer_s"] == pytest.approx(0.040 if name == "gateway" else 0.0, abs=2e-3)
    (found,) = result.recommendations
    assert (found["policy"], found["runner_up"], found["margin"]) == ("edge", None, None)
    assert found["as_good"] == ["cloud", "naive", "cnmt"]
