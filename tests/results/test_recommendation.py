"""The recommendation: the best policy that can be deployed, how sure that is, and what the choice is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.results.metrics import Requirement
from simnmt.results.recommendation import Goal, Roles, recommend
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
    runs: dict[tuple[str, str, str], list[dict[str, float | None]]] = {}
    for policy, values in means_s.items():
        by_key = values if isinstance(values, dict) else {"mean": values, "p95": values}
        for number, mean_s in enumerate(by_key["mean"]):
            runs.setdefault(("w", "n", policy), []).append({
                "total_latency_s": 1_000 * mean_s, "mean_latency_s": mean_s, "p95_latency_s": by_key["p95"][number],
                "p99_latency_s": 2 * mean_s, "offered_rps": 20.0, "gateway_share": 0.5,
                "lost_share": (lost or {}).get(policy, 0.0),
                "gateway_load": (loads or {}).get(policy, 0.3), "gateway_busiest_load": (loads or {}).get(policy, 0.3),
            })  # fmt: skip
    roles = replace(roles, oracle=roles.oracle if "oracle" in means_s else None)
    table = with_stability(rows(runs, 6_000), runs, {"w": [Device("gateway", 1, 1)]})
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


def test_policies_within_the_paired_interval_are_not_distinguishable() -> None:
    record = recommended(edge=[1.3, 1.3, 1.3], cloud=[1.0, 1.0, 1.0], cnmt=[0.95, 1.06, 0.98])
    assert record["policy"] == "cnmt" and record["indistinguishable"] == ["cloud"]
    assert record["margin_low"] < 0.0 < record["margin_high"]


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
    recommendation = recommended(lost={"cnmt": 0.01, "cloud": 0.02}, **means_s)
    assert (
        recommendation["policy"],
        recommendation["runner_up"],
        recommendation["lost_shares"],
    ) == ("edge", None, {"cloud": 0.02, "cnmt": 0.01})
    goal = Goal("mean", [Requirement.parse("p95_ms<=1100")])
    assert recommended(goal=goal, lost={"cnmt": 0.01, "cloud": 0.02}, **means_s)["policy"] == "edge"
    assert recommended(lost={"edge": 0.01, "cloud": 0.03, "cnmt": 0.02}, **means_s)["policy"] == "edge"
    assert recommended(lost={"cnmt": 0.01}, loads={"edge": 1.4, "cloud": 1.2}, **means_s)["policy"] == "cnmt", "the only stable"


def test_the_objective_decides() -> None:
    policies = {"edge": {"mean": [1.0, 1.01], "p95": [3.0, 3.1]}, "cloud": {"mean": [1.2, 1.21], "p95": [1.4, 1.41]}}
    roles = Roles(["edge", "cloud"], ["edge", "cloud"])
    assert recommended(roles, Goal("mean"), **policies)["policy"] == "edge"
    by_tail = recommended(roles, Goal("p95"), **policies)
    assert by_tail["policy"] == "cloud" and by_tail["objective"] == "p95"
    assert by_tail["margin"] == pytest.approx(1.4 / 3.0 - 1, rel=0.05)


def test_a_policy_that_misses_the_service_level_is_recommended_only_if_all_do() -> None:
    policies = {"edge": {"mean": [1.0, 1.01], "p95": [3.0, 3.1]}, "cloud": {"mean": [1.2, 1.21], "p95": [1.4, 1.41]}}
    roles = Roles(["edge", "cloud"], ["edge", "cloud"])
    met = recommended(roles, Goal("mean", [Requirement.parse("p95_ms<=2000")]), **policies)
    assert (met["policy"], met["runner_up"], met["slo_met"], met["slo_missed_by"]) == ("cloud", None, True, ["edge"])
    assert met["slo"] == ["p95_ms<=2000"]
    missed = recommended(roles, Goal("mean", [Requirement.parse("p95_ms<=1000")]), **policies)
    assert (missed["policy"], missed["slo_met"]) == ("cloud", False)
    assert recommended(roles, Goal("mean", [Requirement.parse("p95_ms<=1405")]), **policies)["slo_uncertain"] == ["cloud"]
    assert recommended(roles, **policies)["slo_met"] is None


def test_a_p95_with_few_lost_requests_is_judged_by_the_p99_of_the_answered_ones() -> None:
    policies = {"edge": [1.0, 1.01], "cloud": [0.6, 0.61]}
    roles, lost = Roles(["edge", "cloud"], ["edge", "cloud"]), {"edge": 0.001, "cloud": 0.001}
    recommendation = recommended(roles, Goal("mean", [Requirement.parse("p95_ms<=1500")]), lost=lost, **policies)
    assert (recommendation["policy"], recommendation["slo_met"], recommendation["slo_missed_by"]) == ("cloud", True, ["edge"])
    (assessment,) = recommendation["slo_assessments"]
    assert assessment["value"] == pytest.approx(2 * 605.0)


def test_an_unstable_policy_is_no_choice_while_another_is_stable() -> None:
    """Even if it has the smaller mean, as in a short run."""
    record = recommended(loads={"edge": 1.4}, edge=[0.5], cloud=[1.0], cnmt=[0.9])
    assert (record["policy"], record["runner_up"], record["unstable"]) == ("cnmt", "cloud", None)
    none = recommended(loads={"edge": 1.4, "cloud": 1.2, "cnmt": 1.3}, edge=[0.5], cloud=[1.0], cnmt=[0.9])
    assert none["policy"] == "cloud" and none["unstable"] == "gateway: load 1.20" and none["margin"] is None


def test_one_replication_has_a_margin_without_interval() -> None:
    record = recommended(edge=[1.3], cloud=[1.0], cnmt=[0.9])
    assert record["margin"] == pytest.approx(-0.1)
    assert (record["margin_low"], record["margin_high"], record["indistinguishable"]) == (None, None, [])


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


def test_few_replications_that_differ_much_do_not_show_that_a_fixed_policy_suffices() -> None:
    record = recommended(edge=[1.0, 1.2], cloud=[2.0, 2.0], cnmt=[1.1, 0.8])
    assert record["policy"] == "cnmt" and record["margin_low"] < -0.05 and record["margin_high"] > 0.0
    assert record["fixed_suffices"] is False and record["trivial"] is False


def test_nothing_is_trivial_while_a_policy_is_unstable() -> None:
    record = recommended(loads={"edge": 1.4}, edge=[1.0], cloud=[1.0], cnmt=[1.01])
    assert record["trivial"] is False and record["spread"] is None


def test_a_fixed_policy_that_misses_the_service_level_neither_suffices_nor_makes_the_choice_trivial() -> None:
    """Edge is faster in the mean, but its p95 is beyond the limit, so that only cnmt is left."""
    edge = {"mean": [0.80, 0.81, 0.80], "p95": [2.0, 2.0, 2.0]}
    cnmt = {"mean": [1.00, 1.01, 1.00], "p95": [1.2, 1.2, 1.2]}
    roles = Roles(["edge", "cnmt"], ["edge"], None)
    result = recommended(roles, Goal("mean", [Requirement.parse("p95_ms<=1500")]), edge=edge, cnmt=cnmt)
    assert (result["policy"], result["slo_missed_by"], result["runner_up"]) == ("cnmt", ["edge"], None)
    assert not result["fixed_suffices"] and not result["trivial"] and result["best_fixed"] is None


def test_a_service_level_does_not_make_the_choice_trivial_by_ruling_out_the_worst_policy() -> None:
    """Those that meet it are alike, and still the choice matters."""
    edge = {"mean": [7.0, 7.1, 7.0], "p95": [9.0, 9.0, 9.0]}
    cloud = {"mean": [1.00, 1.01, 1.00], "p95": [1.2, 1.2, 1.2]}
    cnmt = {"mean": [0.99, 1.00, 0.99], "p95": [1.2, 1.2, 1.2]}
    goal = Goal("mean", [Requirement.parse("p95_ms<=1500")])
    result = recommended(Roles(["edge", "cloud", "cnmt"], ["edge", "cloud"], None), goal, edge=edge, cloud=cloud, cnmt=cnmt)
    assert (result["policy"], result["slo_missed_by"]) == ("cnmt", ["edge"])
    assert not result["trivial"] and result["worst"] == "edge" and result["spread"] == pytest.approx(6.08, abs=0.01)


def test_a_fixed_winner_suffices_only_if_no_routing_policy_might_be_much_better() -> None:
    cloud = [1.0, 1.0, 1.0]
    uncertain = recommended(edge=[1.3, 1.3, 1.3], cloud=cloud, cnmt=[0.85, 1.18, 1.0])
    close = recommended(edge=[1.3, 1.3, 1.3], cloud=cloud, cnmt=[1.001, 1.002, 1.003])
    alone = recommended(edge=[1.3], cloud=[1.0], cnmt=[1.001])
    assert {record["policy"] for record in (uncertain, close, alone)} == {"cloud"}
    assert [record["fixed_suffices"] for record in (uncertain, close, alone)] == [False, True, False]


def test_a_choice_is_not_trivial_if_another_policy_is_much_better_in_the_mean() -> None:
    """All miss the service level, and the one that misses it by least is the slowest in the mean."""
    edge = {"mean": [0.80, 0.81, 0.80], "p95": [9.0, 9.0, 9.0]}
    cloud = {"mean": [1.00, 1.01, 1.00], "p95": [5.0, 5.0, 5.0]}
    goal = Goal("mean", [Requirement.parse("p95_ms<=1500")])
    result = recommended(Roles(["edge", "cloud"], ["edge", "cloud"], None), goal, edge=edge, cloud=cloud)
    assert (result["policy"], result["worst"], result["trivial"]) == ("cloud", "edge", False)
