"""The results of a mix: rows of all requests, of sites and of workloads, of which the whole is judged by its parts."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.results.comparison import compare_runs
from simnmt.results.metrics import Requirement
from simnmt.results.places import ALL, CellName, Place, by_cell, by_world, wholes
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.run import Run
from simnmt.results.stability import with_stability
from simnmt.results.summary import rows

GROUPS = ((ALL, ALL), ("berlin", ALL), ("rome", ALL), (ALL, "de-en"), (ALL, "fr-en"))
POLICIES = ("edge", "cloud", "cnmt")
ROLES = Roles(POLICIES, ("edge", "cloud"))


def mixed_run(mean_ms: dict[tuple[str, str, str], float], goal: Goal, sites: tuple[str, ...] = ("berlin", "rome")) -> Run:
    """A run of means by group and policy, 100 ms where none is given, over three replications; p95 is twice the mean."""
    runs: dict[Place, list[dict[str, float | None]]] = {}
    for site, workload in GROUPS:
        for policy in POLICIES:
            mean_s = 1e-3 * mean_ms.get((site, workload, policy), 100.0)
            runs[Place(site, workload, "n", policy)] = [
                {
                    "total_latency_s": 1e3 * mean_s * factor,
                    "mean_latency_s": mean_s * factor,
                    "p95_latency_s": 2 * mean_s * factor,
                }
                for factor in (0.99, 1.0, 1.01)
            ]
    table = with_stability(rows(runs, 1_000), runs, {})
    (cells,) = by_world(table).values()
    whole, *parts = cells.values()
    columns = {place: {key: [one[key] for one in of_place] for key in of_place[0]} for place, of_place in runs.items()}
    scenario: dict[str, Any] = {"seed": 1, "requests": 1_000, "replications": 3, "workloads": {"de-en": {}, "fr-en": {}}}
    scenario["sites"] = {site: {"share": 1.0} for site in sites}
    recommended = recommend(whole, runs, ROLES, goal, parts=parts)
    return Run("mixed", 1, table, recommendations=[recommended], replicated=columns, scenario=scenario)  # type: ignore[arg-type]


def level(text: str) -> list[Requirement]:
    return [Requirement.parse(text)]


def test_the_parts_of_a_mix_belong_to_the_cell_of_all_its_requests() -> None:
    places = [Place(*group, "n", "edge")._asdict() for group in GROUPS]
    assert [*by_world(places)] == [CellName(ALL, ALL, "n")] and len(by_world(places)[ALL, ALL, "n"]) == 5
    one_workload = [Place(site, "de-en", "n", "edge")._asdict() for site in (ALL, "berlin", "rome")]
    assert [*wholes(one_workload)] == [CellName(ALL, "de-en", "n")]
    apart = [Place(ALL, name, "n", "edge")._asdict() for name in ("de-en", "fr-en")]
    assert [*wholes(apart)] == [*by_cell(apart)]


def test_the_policy_that_is_best_for_all_requests_is_recommended_if_every_workload_keeps_its_level() -> None:
    means = {(ALL, ALL, "edge"): 80.0, (ALL, "fr-en", "edge"): 160.0, (ALL, ALL, "cnmt"): 90.0}
    assert mixed_run(means, Goal()).best()["policy"] == "edge"
    run = mixed_run(means, Goal(requirements=level("p95_ms<=300")))
    assert run.best()["policy"] == "cnmt" and run.recommendations[0]["slo_missed_by"] == ["edge"]
    assert {(one["workload"], one["met"]) for one in run.recommendations[0]["slo_assessments"]} == {
        ("de-en", True),
        ("fr-en", True),
    }
    # A workload's own level is in place of that of all.
    own = mixed_run(means, Goal("mean", level("p95_ms<=300"), {"fr-en": level("p95_ms<=400")}))
    assert own.best()["policy"] == "edge" and own.recommendations[0]["slo"] == ["p95_ms<=300", "p95_ms<=400"]
    kept = {(part["site"], part["workload"], part["policy"]): part["slo_met"] for part in run.recommendations[0]["parts"]}
    assert (kept[ALL, "fr-en", "edge"], kept[ALL, "de-en", "edge"], kept["rome", ALL, "edge"]) == (False, True, True)


def test_an_assertion_holds_if_it_holds_in_all_rows_of_the_recommended_policy() -> None:
    run = mixed_run({(ALL, ALL, "cnmt"): 90.0, ("rome", ALL, "cnmt"): 140.0}, Goal())
    assert run.best()["policy"] == "cnmt" and len(run.assess("mean_ms<=120")) == len(GROUPS)
    assert not run.meets("mean_ms<=120") and run.meets("mean_ms<=150")
    assert [one.site for one in run.assess("mean_ms<=120") if not one.met] == ["rome"]
    assert run.meets("mean_ms<=120", site="berlin") and not run.meets("mean_ms<=120", site="rome")


@pytest.mark.parametrize(("sites", "paired"), [(("berlin", "rome"), True), (("berlin", "paris"), False)])
def test_runs_are_paired_if_the_same_sites_send_the_requests(sites: tuple[str, ...], paired: bool) -> None:
    first, second = mixed_run({}, Goal()), mixed_run({("rome", ALL, "edge"): 120.0}, Goal(), sites)
    changes = compare_runs([first, second]).changes
    assert len(changes) == len(GROUPS) * len(POLICIES)
    assert {row["paired"] for row in changes} == {paired}
    change = next(row for row in changes if Place.of(row) == Place("rome", ALL, "n", "edge"))
    assert change["change_percent"] == pytest.approx(20.0)
