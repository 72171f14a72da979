"""Energy and money as objective, service level and assertion of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.cli.run_text import format_result
from simnmt.report.page import render
from simnmt.results.metrics import SPENDINGS, objective_metric
from simnmt.results.service_level import Requirement
from simnmt.results.summary import format_objective

MakeScenario = Callable[..., dict[str, Any]]
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
    assert format_objective("energy_j", record["objective_value"]) in result.verdicts[0]["sentence"]
    assert f"{least} <" in format_result(result) and "mean energy" in render(result)


@pytest.mark.parametrize("name", SPENDINGS)
def test_every_spending_may_be_limited_and_asserted(make_scenario: MakeScenario, name: str) -> None:
    result = simnmt.run(priced(make_scenario, objective=name, slo={name: 1e6}))
    column = objective_metric(name).column
    record = result.recommendations[0]
    assert record["slo_met"] and record["slo"] == [f"{name}<=1000000"]
    row = result.best()
    assert row[f"{column}_low"] < row[column] < row[f"{column}_high"]
    assert result.meets(f"{name}<={row[column] * 1.01:.9g}") and not result.meets(f"{name}<={row[column] * 0.99:.9g}")
    assessment = str(result.assess(f"{name}<={row[column] * 1.01:.9g}")[0])
    assert "[0.00," not in assessment and "[0," not in assessment, "small prices keep their digits"
    assert Requirement.parse(f"{name}<=2.5").describe().startswith("mean ")


def test_a_run_directory_keeps_what_each_replication_spent(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = simnmt.run(priced(make_scenario), out=tmp_path / "run")
    loaded = simnmt.load(tmp_path / "run")
    row = result.best()
    assert loaded.meets(f"cost_per_thousand_tokens<={row['cost_per_thousand_tokens'] * 1.01:.9g}")
    assert loaded.summary_rows == result.summary_rows


@pytest.mark.parametrize(
    ("missing", "name", "complaint"),
    [
        ("power", "energy_j", "the power of gateway and cloud is unknown (give devices.gateway.power, such as {idle_w: 5"),
        ("price_per_hour", "cost_per_request", "the scenario has no price (give devices.cloud.price_per_hour)"),
    ],
)
def test_a_spending_that_the_run_would_not_know_is_refused_before_it(
    make_scenario: MakeScenario, missing: str, name: str, complaint: str
) -> None:
    scenario = priced(make_scenario)
    for part in (scenario, *scenario["devices"].values(), *scenario["workloads"].values()):
        part.pop(missing, None)
    places: dict[str, Any] = {"objective": name, f"slo.{name}": {name: 3}, "metrics.0": [name]}
    for key, value in places.items():
        with pytest.raises(simnmt.InputError) as caught:
            simnmt.run(scenario | {key.partition(".")[0]: value})
        message = str(caught.value)
        assert f"{key}: {name} is not known: {complaint}" in message and "\n" not in message
    with pytest.raises(simnmt.InputError, match=f"{name} is not known"):
        simnmt.run(scenario, assertions=[f"{name}<=3"])


def test_an_unknown_spending_is_answered_with_the_nearest_name(make_scenario: MakeScenario) -> None:
    with pytest.raises(simnmt.InputError, match=r"unknown objective energy \(did you mean energy_j\?\)"):
        simnmt.run(priced(make_scenario, objective="energy"))
