"""Energy and money as objective, service level and assertion of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.results.metrics import SPENDINGS, objective_metric

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


@pytest.mark.parametrize("name", SPENDINGS)
def test_every_spending_may_be_limited_and_asserted(make_scenario: MakeScenario, tmp_path: Path, name: str) -> None:
    """And a run directory keeps what each replication spent."""
    simnmt.run(priced(make_scenario, objective=name, slo={name: 1e6}), out=tmp_path / "run")
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
