"""The results of a mix: rows of all requests, of sites and of workloads, of which the whole is judged by its parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.results.comparison import compare_runs
from simnmt.results.metrics import Requirement
from simnmt.results.places import ALL, CellName, Place, by_cell, by_world, wholes
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.run import Run
from simnmt.results.stability import with_stability
from simnmt.results.summary import rows
from tests.experiment import test_mixes as mixes

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
    names = [str(CellName(site, workload, "n")) for site in (ALL, "rome") for workload in (ALL, "de-en")]
    assert names == ["all requests on n", "de-en on n", "rome on n", "rome, de-en on n"]
    apart = [Place(ALL, name, "n", "edge")._asdict() for name in ("de-en", "fr-en")]
    assert [*wholes(apart)] == [*by_cell(apart)]


def test_the_policy_that_is_best_for_all_requests_is_recommended_if_every_workload_keeps_its_level() -> None:
    means = {(ALL, ALL, "edge"): 80.0, (ALL, "fr-en", "edge"): 160.0, (ALL, ALL, "cnmt"): 90.0}
    assert mixed_run(means, Goal()).best()["policy"] == "edge"
    run = mixed_run(means, Goal(requirements=level("p95_ms<=300")))
    assert run.best()["policy"] == "cnmt" and run.recommendations[0]["slo_missed_by"] == ["edge"]
    met = {(one["site"], one["workload"], one["met"]) for one in run.recommendations[0]["slo_assessments"]}
    assert met == {(ALL, "de-en", True), (ALL, "fr-en", True), ("berlin", ALL, True), ("rome", ALL, True)}
    # The sum hides a far site: it is judged by itself, as in a plan.
    far = mixed_run({**means, ("rome", ALL, "cnmt"): 310.0}, Goal(requirements=level("p95_ms<=300")))
    assert "cnmt" in far.recommendations[0]["slo_missed_by"]
    # A workload's own level is in place of that of all.
    relaxed = mixed_run(means, Goal("mean", level("p95_ms<=300"), {"fr-en": level("p95_ms<=400")}))
    assert relaxed.best()["policy"] == "edge" and relaxed.recommendations[0]["slo"] == ["p95_ms<=300", "p95_ms<=400"]
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


SCENARIO: dict[str, Any] = {
    "version": 1,
    "name": "branches",
    "requests": 600,
    "replications": 2,
    "slo": {"p95_ms": 2_000},
    "workloads": {
        "de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 4.0}},
        "fr-en": {"lengths": "@fr-en-news", "arrivals": {"kind": "poisson", "rate_rps": 2.0}, "slo": {"p95_ms": 1}},
    },
    "networks": {"today": {"rtt": {"constant_ms": 60}}},
    "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
    "sites": {"berlin": {"share": 3}, "branches": {"count": 2}, "rome": {"devices": {"gateway": None}, "workloads": ["de-en"]}},
    "policies": {"edge": {}, "cloud": {}, "cnmt": {}},
}


def test_a_mix_is_written_and_read_again_with_its_sites_and_workloads(tmp_path: Path) -> None:
    made = simnmt.run(SCENARIO, out=tmp_path / "run")
    loaded = simnmt.load(tmp_path / "run")
    (record,) = loaded.recommendations
    assert CellName.of(record) == (ALL, ALL, "today") and record["slo_met"] is False
    met = {(one["site"], one["workload"], one["met"]) for one in record["slo_assessments"]}
    assert met == {(ALL, "de-en", True), (ALL, "fr-en", False), ("rome", ALL, True)}, "other sites have two levels"
    assert loaded.rows.equals(made.rows) and len(loaded.whole_rows) == 3 and len(loaded.cells) == 1
    counts = loaded.requests.query("policy == 'cnmt'").groupby(["site", "workload"], observed=True).size()
    assert counts.sum() == 600 and ("rome", "fr-en") not in counts.index and ("branches", "fr-en") in counts.index
    for policy, log in loaded.cells[0].logs.items():
        assert log["arrival_s"].tolist() == made.cells[0].logs[policy]["arrival_s"].tolist()
    assert [one.site for one in loaded.assess("mean_ms<=1e6")] == [ALL, "berlin", "branches", "rome", ALL, ALL]
    page = (tmp_path / "run" / "report.html").read_text()
    titles = re.findall(r"<dt>((?:RTT|Devices) of [^<]*)</dt>", page)
    assert titles[:2] == ["RTT of today at berlin", "RTT of today at branches, the first of 2"]
    assert "Devices of de-en at rome" in titles and "Devices of fr-en at rome" not in titles
    assert not [row for row in loaded.fits if row["site"] == "rome"], "it has no device of its own"


def test_runs_are_unpaired_if_the_rate_of_a_workload_gives_another_one_more_requests() -> None:
    def run(**keys: Any) -> Run:
        devices = {name: {"profile": "@titan-xp-gru"} for name in ("gateway", "cloud")}
        return simnmt.run(mixes.scenario(requests=300, policies={"cloud": {}}, devices=devices, **keys))

    slow, fast = ({"a": mixes.workload(4.0), "b": mixes.workload(rate_rps)} for rate_rps in (2.0, 4.0))
    assert not any(row["paired"] for row in compare_runs([run(workloads=slow), run(workloads=fast)]).changes)
    assert all(row["paired"] for row in compare_runs([run(workloads=slow), run(workloads=slow, share_devices=True)]).changes)
    apart = [run(workloads=rates, share_devices=False) for rates in (slow, fast)]
    assert {row["workload"]: row["paired"] for row in compare_runs(apart).changes} == {"a": True, "b": False}
