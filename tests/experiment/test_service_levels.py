"""What a scenario's service level, objective and metrics measure and decide, and what is refused before the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt

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
        "answered_within": {"ms": 150, "share": 0.01},
        "deadline_met_share": 0.01,
        "goodput_rps": 0.01,
        "stable": True,
    }
    result = simnmt.run(
        make_open({"deadline_ms": 200}, replications=1, slo=slo, metrics=["answered_within_90ms"], objective="p80")
    )
    (recommended,) = result.recommendations
    assert recommended["slo_met"] and recommended["objective"] == "p80"
    assert recommended["slo"] == [
        "p97.5_ms<=1000000", "answered_within_150ms>=0.01", "deadline_met_share>=0.01", "goodput_rps>=0.01", "stable"
    ]  # fmt: skip
    assessments = [placed.as_json() for text in recommended["slo"] for placed in result.assess(text)]
    assert recommended["slo_assessments"] == assessments and all(one["met"] for one in assessments)
    for row in result.summary_rows:
        log = result.cells[0].logs[row["policy"]]
        latency_s, end_s = log["latency_s"], (log["arrival_s"] + log["latency_s"]).max()
        assert row["p975_latency_s"] == pytest.approx(np.quantile(latency_s, 0.975))
        assert row["p80_latency_s"] == pytest.approx(np.quantile(latency_s, 0.8))
        assert row["answered_within_150ms_share"] == np.mean(latency_s <= 0.15)
        assert row["answered_within_90ms_share"] == np.mean(latency_s <= 0.09)
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
        ({}, {"p95_ms": 300, "answered_within": {"ms": 500, "share": 0.5}}, 0.5),
        ({"deadline_ms": 900}, {"p95_ms": 300, "answered_within_500ms": 0.5}, 0.9),
    ],
)
def test_an_answer_is_good_by_the_deadline_else_by_the_service_level(
    make_open: MakeScenario, workload: dict[str, Any], slo: dict[str, Any] | None, good_within_s: float | None
) -> None:
    scenario = simnmt.Scenario(make_open(workload, slo=slo)).source.scenario
    assert scenario.criteria_of("de-en").good_within_s == good_within_s


def test_the_policy_that_misses_a_share_in_time_is_not_recommended(make_open: MakeScenario) -> None:
    calm, policies = {"arrivals": {"kind": "poisson", "rate_rps": 0.1}}, {"edge": {}, "cloud": {}}
    scenario = make_open(calm, policies=policies, networks={"n": {"rtt": {"constant_ms": 165}}})
    rows = {row["policy"]: row for row in simnmt.run(scenario | {"metrics": ["answered_within_250ms"]}).summary_rows}
    shares = {name: row["answered_within_250ms_share"] for name, row in rows.items()}
    assert rows["edge"]["mean_latency_s"] < rows["cloud"]["mean_latency_s"] and shares["edge"] < shares["cloud"]
    limit = (shares["edge"] + shares["cloud"]) / 2
    result = simnmt.run(scenario | {"slo": {"answered_within": {"ms": 250, "share": limit}}})
    (recommended,) = result.recommendations
    assert (recommended["policy"], recommended["slo_missed_by"]) == ("cloud", ["edge"])
    assert result.meets(f"answered_within_250ms>={limit}") and not result.meets(f"edge: answered_within_250ms>={limit}")


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
        ({"slo": {"p95_sm": 1}}, "slo.p95_sm: "),
        ({"slo": {"answered_within": 5}}, "slo.answered_within: "),
        ({"slo": {"answered_within": {"ms": 500}}}, "slo.answered_within.share: "),
        ({"slo": {"answered_within_500ms": 2}}, "slo.answered_within_500ms: "),
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
