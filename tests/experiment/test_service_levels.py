"""What a scenario's service level, objective and metrics measure and decide, and what is refused before the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.results.metrics import SPENDINGS, objective_metric

MakeScenario = Callable[..., dict[str, Any]]


@pytest.fixture
def make_open(make_scenario: MakeScenario) -> MakeScenario:
    """Builds an open loop; `workload` replaces keys of the workload, other keywords top-level keys."""

    def make(workload: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        lengths = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 2.0}}
        defaults = {"requests": 500, "policies": {"edge": {}, "cloud": {}, "oracle": {}}}
        return make_scenario(workloads={"de-en": lengths | (workload or {})}, **defaults | keys)

    return make


def test_every_kind_of_limit_is_measured_on_the_requests_and_judged(make_open: MakeScenario) -> None:
    slo = {
        "p97.5_ms": 1e6,
        "deadline_met_share": 0.01,
        "goodput_rps": 0.01,
        "stable": True,
    }
    result = simnmt.run(make_open({"deadline_ms": 200}, replications=1, slo=slo, objective="p80"))
    (recommended,) = result.recommendations
    assert recommended["slo_met"] and recommended["objective"] == "p80"
    assert recommended["slo"] == [
        "p97.5_ms<=1000000", "deadline_met_share>=0.01", "goodput_rps>=0.01", "stable"
    ]  # fmt: skip
    assessments = [placed.as_json() for text in recommended["slo"] for placed in result.assess(text)]
    assert recommended["slo_assessments"] == assessments and all(one["met"] for one in assessments)
    for row in result.summary_rows:
        log = result.cells[0].logs[row["policy"]]
        latency_s, end_s = log["latency_s"], (log["arrival_s"] + log["latency_s"]).max()
        assert row["p975_latency_s"] == pytest.approx(np.quantile(latency_s, 0.975))
        assert row["p80_latency_s"] == pytest.approx(np.quantile(latency_s, 0.8))
        assert row["deadline_met_share"] == np.mean(latency_s <= 0.2)
        assert row["goodput_rps"] == pytest.approx((latency_s <= 0.2).sum() / end_s) and row["good_within_s"] == 0.2
    least = min(("edge", "cloud"), key=lambda name: result.rows.set_index("policy").p80_latency_s[name])
    assert recommended["policy"] == least


@pytest.mark.parametrize(
    ("workload", "slo", "good_within_s"),
    [
        ({}, None, None),
        ({}, {"mean_ms": 100, "first_token_ms": 50}, None),
        ({}, {"p95_ms": 300, "p99_ms": 250, "mean_ms": 100}, 0.25),
        ({"deadline_ms": 900}, {"p95_ms": 300}, 0.9),
    ],
)
def test_an_answer_is_good_by_the_deadline_else_by_the_service_level(
    make_open: MakeScenario, workload: dict[str, Any], slo: dict[str, Any] | None, good_within_s: float | None
) -> None:
    scenario = simnmt.Scenario(make_open(workload, slo=slo)).source.scenario
    assert scenario.criteria_of("de-en").good_within_s == good_within_s


def test_an_asserted_metric_is_measured_recorded_and_repeated(make_open: MakeScenario, tmp_path: Path) -> None:
    scenario = make_open(requests=200)
    first = simnmt.run(scenario, assertions=["p97.5_ms<=300", "p95_ms<=300"], out=tmp_path / "first")
    assert first.scenario["metrics"] == ["p97.5_ms"] and "p975_latency_s_high" in first.rows
    simnmt.run(tmp_path / "first", out=tmp_path / "second")
    for name in ("summary.json", "summary.csv", "scenario.resolved.yaml"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    loaded = simnmt.load(tmp_path / "second")
    assert loaded.assess("p97.5_ms<=300") == first.assess("p97.5_ms<=300")
    with pytest.raises(simnmt.InputError, match="p98_ms"):
        loaded.meets("p98_ms<=300")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"slo": {}}, "slo: "),
        ({"slo": {"p95_ms": 0}}, "slo.p95_ms: "),
        ({"slo": {"p95_sm": 1}}, "slo.p95_sm: "),
        ({"slo": {"answered_within": 5}}, "slo.answered_within: "),
        ({"slo": {"stable": False}}, "slo.stable: "),
        ({"slo": {"goodput_rps": True}}, "slo.goodput_rps: "),
        ({"slo": {"deadline_met_share": 0.9}}, "slo.deadline_met_share: "),
        ({"slo": {"first_token_ms": 9}}, "slo.first_token_ms: "),
        ({"slo": {"p99.9_ms": 9}}, r'slo."p99.9_ms": '),
        ({"objective": "p100"}, "objective: "),
        ({"objective": "first_token"}, "objective: "),
        ({"metrics": ["p95"]}, "metrics.0: "),
    ],
)
def test_a_limit_that_cannot_be_judged_is_refused_before_the_run(
    make_open: MakeScenario, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(simnmt.InputError, match=message):
        simnmt.run(make_open(**changed))


@pytest.mark.parametrize("assertion", ["first_token_ms<=5", "deadline_met_share>=0.5", "p99.9_ms<=5"])
def test_an_assertion_that_no_policy_of_the_run_can_answer_is_refused_before_it(
    make_open: MakeScenario, tmp_path: Path, assertion: str
) -> None:
    with pytest.raises(simnmt.InputError, match="is not known"):
        simnmt.run(make_open(), assertions=[assertion], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_scenarios_objective_and_service_level_reach_the_recommendation(make_scenario: MakeScenario) -> None:
    """A nearby slow gateway against a cloud with an even transfer time: the mean and the tail have different winners."""
    policies: dict[str, Any] = {"edge": {}, "cloud": {}, "oracle": {}}
    scenario = make_scenario(policies=policies, networks={"n": {"rtt": {"constant_ms": 165}}}, requests=1_000)
    rows = {row["policy"]: row for row in simnmt.run(scenario).summary_rows}
    best = {goal: min(("edge", "cloud"), key=lambda name: rows[name][f"{goal}_latency_s"]) for goal in ("mean", "p95")}
    assert best == {"mean": "edge", "p95": "cloud"}
    for goal, policy in best.items():
        (recommended,) = simnmt.run(scenario | {"objective": goal}).recommendations
        assert (recommended["objective"], recommended["policy"]) == (goal, policy)
    limit_ms = 1e3 * (rows["edge"]["p95_latency_s"] + rows["cloud"]["p95_latency_s"]) / 2
    (recommended,) = simnmt.run(scenario | {"slo": {"p95_ms": limit_ms}}).recommendations
    assert (recommended["policy"], recommended["slo_met"], recommended["slo_missed_by"]) == ("cloud", True, ["edge"])


@pytest.mark.parametrize(("requests", "marked"), [(100, True), (2_000, False)])
def test_the_verdict_of_few_requests_beyond_the_objective_has_a_caution(
    make_scenario: MakeScenario, requests: int, marked: bool
) -> None:
    result = simnmt.run(make_scenario(policies={"edge": {}, "cloud": {}}, requests=requests, objective="p99"))
    (caution,) = [record["caution"] for record in result.recommendations]
    assert bool(caution) == marked and result.document()["notes"].count(caution) == int(marked)


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
    (recommended,) = result.recommendations
    assert (recommended["policy"], recommended["runner_up"], recommended["margin"]) == ("edge", None, None)
    assert recommended["as_good"] == ["cloud", "naive", "cnmt"]


POLICIES: dict[str, dict[str, Any]] = {"edge": {}, "cloud": {}, "cnmt": {}}


def priced(make_scenario: MakeScenario, **keys: Any) -> dict[str, Any]:
    """A scenario with powers and a price; the cloud takes the least energy of a request."""
    scenario = make_scenario(policies=dict(POLICIES))
    scenario["devices"]["gateway"]["power"] = {"idle_w": 1, "busy_w": 30}
    scenario["devices"]["cloud"] |= {"power": {"idle_w": 2, "busy_w": 40}, "price_per_hour": 3.0}
    return scenario | {"requests": 300, "replications": 3} | keys


def test_the_policy_that_spends_least_is_recommended(make_scenario: MakeScenario) -> None:
    by_objective = {objective: simnmt.run(priced(make_scenario, objective=objective)) for objective in ("mean", "energy_j")}
    chosen = {objective: result.recommendations[0]["policy"] for objective, result in by_objective.items()}
    assert chosen["mean"] == "cnmt" and chosen["energy_j"] != "cnmt"
    result = by_objective["energy_j"]
    rows = {row["policy"]: row for row in result.summary_rows}
    least = min(rows, key=lambda policy: rows[policy]["mean_energy_j"])
    assert chosen["energy_j"] == least
    record = result.recommendations[0]
    assert record["objective_value"] == pytest.approx(rows[least]["mean_energy_j"])
    assert record["objective_value_low"] == pytest.approx(rows[least]["mean_energy_j_low"])


@pytest.mark.parametrize("name", SPENDINGS)
def test_every_spending_may_be_limited_and_asserted(make_scenario: MakeScenario, tmp_path: Path, name: str) -> None:
    """And a run directory keeps what each replication spent."""
    scenario = priced(make_scenario, objective=name, slo={name: 1e6})
    scenario["workloads"] = {key: part | {"characters_per_request": 80.0} for key, part in scenario["workloads"].items()}
    simnmt.run(scenario, out=tmp_path / "run")
    result = simnmt.load(tmp_path / "run")
    column = objective_metric(name).column
    record = result.recommendations[0]
    assert record["slo_met"] and record["slo"] == [f"{name}<=1000000"]
    row = result.best()
    assert row[f"{column}_low"] < row[column] < row[f"{column}_high"]
    assert result.meets(f"{name}<={row[column] * 1.01:.9g}") and not result.meets(f"{name}<={row[column] * 0.99:.9g}")


@pytest.mark.parametrize(("missing", "name"), [("power", "energy_j"), ("price_per_hour", "cost_per_request")])
def test_a_spending_that_the_run_would_not_know_is_refused_before_it(
    make_scenario: MakeScenario, missing: str, name: str
) -> None:
    scenario = priced(make_scenario)
    for part in (scenario, *scenario["devices"].values(), *scenario["workloads"].values()):
        part.pop(missing, None)
    places: dict[str, Any] = {"objective": name, f"slo.{name}": {name: 3}, "metrics.0": [name]}
    for key, value in places.items():
        with pytest.raises(simnmt.InputError) as caught:
            simnmt.run(scenario | {key.partition(".")[0]: value})
        assert f"{key}: {name}" in str(caught.value)
    with pytest.raises(simnmt.InputError, match=name):
        simnmt.run(scenario, assertions=[f"{name}<=3"])


def test_each_workload_is_judged_by_its_service_level(make_open: MakeScenario) -> None:
    scenario = make_open({"deadline_ms": 200, "slo": {"deadline_met_share": 0.999, "p95_ms": 1e-3}}, replications=1)
    lengths = {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 2.0}}
    scenario["workloads"]["fr-en"] = lengths | {"slo": {"p90_ms": 1e6}}
    scenario["workloads"]["it-en"] = lengths
    result = simnmt.run(scenario | {"slo": {"mean_ms": 1e6}, "share_devices": False})
    judged = {record["workload"]: (record["slo"], record["slo_met"]) for record in result.recommendations}
    assert judged == {
        "de-en": (["deadline_met_share>=0.999", "p95_ms<=0.001"], False),
        "fr-en": (["p90_ms<=1000000"], True),
        "it-en": (["mean_ms<=1000000"], True),
    }
    with pytest.raises(simnmt.InputError) as caught:
        simnmt.run(scenario | {"slo": {"deadline_met_share": 0.5}})
    assert caught.value.what.startswith("slo.deadline_met_share: ")
    del scenario["workloads"]["de-en"]["deadline_ms"]
    with pytest.raises(simnmt.InputError) as caught:
        simnmt.run(scenario)
    assert caught.value.what.startswith("workloads.de-en.slo.deadline_met_share: ")
