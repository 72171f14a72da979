"""The recommendation: the best policy that can be deployed, how sure that is, and what the choice is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.results.metrics import Assessment, Requirement
from simnmt.results.places import ALL, Place
from simnmt.results.recommendation import (
    Goal,
    Roles,
    describe_short_tail,
    recommend,
    reliable_requests,
)
from simnmt.results.stability import with_stability
from simnmt.results.summary import Device, rows

ROLES = Roles(["edge", "cloud", "cnmt"], ["edge", "cloud"], "oracle")


def recommended(
    roles: Roles = ROLES,
    goal: Goal | None = None,
    loads: dict[str, float] | None = None,
    lost: dict[str, float] | None = None,
    **means_s: list[float] | dict[str, list[float]],
) -> dict[str, Any]:
    """The recommendation for made-up latencies per policy and replication: the mean, or a mapping with p95 as well.

    `loads`: of the gateway, by policy; 20 requests arrive per second. `lost`: shares of the requests, by policy.
    """
    runs: dict[Place, list[dict[str, float | None]]] = {}
    for policy, values in means_s.items():
        by_key = values if isinstance(values, dict) else {"mean": values, "p95": values}
        for number, mean_s in enumerate(by_key["mean"]):
            runs.setdefault(Place(ALL, "w", "n", policy), []).append({
                "total_latency_s": 1_000 * mean_s, "mean_latency_s": mean_s, "p95_latency_s": by_key["p95"][number],
                "p99_latency_s": 2 * mean_s, "offered_rps": 20.0, "gateway_share": 0.5,
                "lost_share": (lost or {}).get(policy, 0.0),
                "gateway_load": (loads or {}).get(policy, 0.3), "gateway_busiest_load": (loads or {}).get(policy, 0.3),
            })  # fmt: skip
    roles = replace(roles, oracle=roles.oracle if "oracle" in means_s else None)
    table = with_stability(rows(runs, 6_000), runs, {("all", "w"): [Device("gateway", 1, 1)]})
    return recommend(table, runs, roles, goal or Goal())


def test_the_recommendation_is_the_best_deployable_policy_with_its_margin_over_the_runner_up() -> None:
    record = recommended(edge=[1.30, 1.31, 1.32], cloud=[1.00, 1.005, 0.995], cnmt=[0.80, 0.82, 0.81], oracle=[0.7, 0.7, 0.7])
    assert (record["workload"], record["network"], record["objective"]) == ("w", "n", "mean")
    assert (record["policy"], record["runner_up"], record["indistinguishable"]) == ("cnmt", "cloud", [])
    assert record["margin"] == pytest.approx(0.81 / 1.0 - 1, abs=1e-3)
    assert record["margin_low"] < record["margin"] < record["margin_high"] < 0.0


def test_the_oracle_is_a_bound_and_never_recommended() -> None:
    record = recommended(edge=[1.3, 1.3], cloud=[1.0, 1.0], cnmt=[0.8, 0.8], oracle=[0.7, 0.7])
    assert record["policy"] == "cnmt" and record["runner_up"] == "cloud"
    assert record["above_oracle"] == pytest.approx(0.8 / 0.7 - 1)
    assert record["gap_left"] == pytest.approx((0.8 - 0.7) / (1.0 - 0.7))
    alone = recommended(Roles([], [], "oracle"), oracle=[0.7, 0.7])
    assert alone["policy"] is None and alone["margin"] is None


def test_policies_within_the_paired_interval_are_not_distinguishable_and_one_replication_has_none() -> None:
    record = recommended(edge=[1.3, 1.3, 1.3], cloud=[1.0, 1.0, 1.0], cnmt=[0.95, 1.06, 0.98])
    assert record["policy"] == "cnmt" and record["indistinguishable"] == ["cloud"]
    assert record["margin_low"] < 0.0 < record["margin_high"]
    record = recommended(edge=[1.3], cloud=[1.0], cnmt=[0.9])
    assert record["margin"] == pytest.approx(-0.1)
    assert (record["margin_low"], record["margin_high"], record["indistinguishable"]) == (None, None, [])


def test_a_tie_goes_to_a_fixed_policy_and_then_to_the_first() -> None:
    """Better by less than 0.1 % is no reason."""
    same, hardly_better = [1.0, 1.01, 0.99], [0.9995, 1.0095, 0.9895]
    recommendation = recommended(edge=[1.3] * 3, cnmt=hardly_better, cloud=same)
    assert (recommendation["policy"], recommendation["as_good"], recommendation["runner_up"]) == ("cloud", ["cnmt"], "edge")
    assert recommendation["indistinguishable"] == ["cnmt"]
    routing = recommended(Roles(["cnmt", "aware", "other"]), cnmt=same, aware=hardly_better, other=same)
    assert (routing["policy"], routing["as_good"]) == ("cnmt", ["aware", "other"])


def test_a_policy_that_loses_requests_is_recommended_only_if_all_do_and_then_the_one_that_loses_least() -> None:
    means_s = {"edge": [1.3, 1.3], "cloud": [1.0, 1.0], "cnmt": [0.8, 0.8]}
    record = recommended(lost={"cnmt": 0.01, "cloud": 0.02}, **means_s)
    assert (record["policy"], record["runner_up"], record["lost_shares"]) == ("edge", None, {"cloud": 0.02, "cnmt": 0.01})
    assert recommended(goal=goal("p95_ms<=1100"), lost={"cnmt": 0.01, "cloud": 0.02}, **means_s)["policy"] == "edge"
    assert recommended(lost={"edge": 0.01, "cloud": 0.03, "cnmt": 0.02}, **means_s)["policy"] == "edge"
    assert recommended(lost={"cnmt": 0.01}, loads={"edge": 1.4, "cloud": 1.2}, **means_s)["policy"] == "cnmt", "the only stable"


POLICIES = {"edge": {"mean": [1.0, 1.01], "p95": [3.0, 3.1]}, "cloud": {"mean": [1.2, 1.21], "p95": [1.4, 1.41]}}
FIXED = Roles(["edge", "cloud"], ["edge", "cloud"])


def goal(text: str) -> Goal:
    return Goal("mean", [Requirement.parse(text)])


def test_the_objective_decides_among_those_that_meet_the_service_level_unless_all_miss_it() -> None:
    assert recommended(FIXED, Goal("mean"), **POLICIES)["policy"] == "edge"
    by_tail = recommended(FIXED, Goal("p95"), **POLICIES)
    assert by_tail["policy"] == "cloud" and by_tail["margin"] == pytest.approx(1.4 / 3.0 - 1, rel=0.05)
    met = recommended(FIXED, goal("p95_ms<=2000"), **POLICIES)
    assert (met["policy"], met["runner_up"], met["slo_met"], met["slo_missed_by"]) == ("cloud", None, True, ["edge"])
    missed = recommended(FIXED, goal("p95_ms<=1000"), **POLICIES)
    assert (missed["policy"], missed["slo_met"]) == ("cloud", False)
    assert recommended(FIXED, goal("p95_ms<=1405"), **POLICIES)["slo_uncertain"] == ["cloud"]
    assert recommended(FIXED, **POLICIES)["slo_met"] is None


def test_a_p95_with_few_lost_requests_is_judged_by_the_p99_of_the_answered_ones() -> None:
    lost = {"edge": 0.001, "cloud": 0.001}
    record = recommended(FIXED, goal("p95_ms<=1500"), lost=lost, edge=[1.0, 1.01], cloud=[0.6, 0.61])
    assert (record["policy"], record["slo_met"], record["slo_missed_by"]) == ("cloud", True, ["edge"])
    assert record["slo_assessments"][0]["value"] == pytest.approx(2 * 605.0)
    text = str(Assessment.of_json(record["slo_assessments"][0]))
    assert "1,210 [" in text and text.endswith("; the value is the p99_ms of the answered requests, 0.10 % are not answered)")


def test_an_unstable_policy_is_no_choice_while_another_is_stable() -> None:
    """Even if it has the smaller mean, as in a short run."""
    record = recommended(loads={"edge": 1.4}, edge=[0.5], cloud=[1.0], cnmt=[0.9])
    assert (record["policy"], record["runner_up"], record["unstable"]) == ("cnmt", "cloud", None)
    none = recommended(loads={"edge": 1.4, "cloud": 1.2, "cnmt": 1.3}, edge=[0.5], cloud=[1.0], cnmt=[0.9])
    assert none["policy"] == "cloud" and none["unstable"] == "gateway: load 1.20" and none["margin"] is None


@pytest.mark.parametrize(
    ("edge", "cloud", "cnmt", "trivial", "suffices"),
    [
        (1.000, 4.000, 0.999, False, True),  # four-fold apart: the choice matters, and a fixed policy suffices
        (1.000, 1.020, 0.980, True, False),
        (1.300, 1.000, 0.800, False, False),
        (1.000, 1.020, 1.000, True, True),
    ],
)
def test_triviality_is_what_the_choice_costs(edge: float, cloud: float, cnmt: float, trivial: bool, suffices: bool) -> None:
    """Whatever share the oracle sends away."""
    noise = np.array([1.0, 1.02, 0.99])
    record = recommended(edge=list(edge * noise), cloud=list(cloud * noise), cnmt=list(cnmt * noise), oracle=list(0.97 * noise))
    assert (record["trivial"], record["fixed_suffices"]) == (trivial, suffices)
    best, worst = min(edge, cloud, cnmt), max(edge, cloud, cnmt)
    assert record["spread"] == pytest.approx(worst / best - 1)


def test_a_service_level_does_not_make_the_choice_trivial_by_ruling_out_the_worst_policy() -> None:
    """Those that meet it are alike, and still the choice matters."""
    edge = {"mean": [7.0, 7.1, 7.0], "p95": [9.0, 9.0, 9.0]}
    cloud = {"mean": [1.00, 1.01, 1.00], "p95": [1.2, 1.2, 1.2]}
    cnmt = {"mean": [0.99, 1.00, 0.99], "p95": [1.2, 1.2, 1.2]}
    result = recommended(goal=goal("p95_ms<=1500"), edge=edge, cloud=cloud, cnmt=cnmt)
    assert (result["policy"], result["slo_missed_by"]) == ("cnmt", ["edge"])
    assert not result["trivial"] and result["worst"] == "edge" and result["spread"] == pytest.approx(6.08, abs=0.01)


def test_a_fixed_winner_suffices_only_if_no_routing_policy_might_be_much_better() -> None:
    cloud = [1.0, 1.0, 1.0]
    uncertain = recommended(edge=[1.3, 1.3, 1.3], cloud=cloud, cnmt=[0.85, 1.18, 1.0])
    close = recommended(edge=[1.3, 1.3, 1.3], cloud=cloud, cnmt=[1.001, 1.002, 1.003])
    alone = recommended(edge=[1.3], cloud=[1.0], cnmt=[1.001])
    assert {record["policy"] for record in (uncertain, close, alone)} == {"cloud"}
    assert [record["fixed_suffices"] for record in (uncertain, close, alone)] == [False, True, False]
    few = recommended(edge=[1.0, 1.2], cloud=[2.0, 2.0], cnmt=[1.1, 0.8])
    assert few["policy"] == "cnmt" and few["margin_low"] < -0.05 and few["margin_high"] > 0.0
    assert few["fixed_suffices"] is False and few["trivial"] is False


def test_a_quantile_needs_twenty_requests_beyond_it_for_its_changes_to_be_believed() -> None:
    """The coverage of that many, and of fewer, is counted in test_coverage.py."""
    assert (reliable_requests("mean"), reliable_requests("p95"), reliable_requests("p99")) == (1, 400, 2_000)
    assert describe_short_tail("p99", 2_000) == describe_short_tail("mean", 1) == ""
    assert describe_short_tail("p99", 1_999) and describe_short_tail("p95", 60)
