"""Classes of requests in a scenario: who waits for whom, the rows by class, their service levels, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import simnmt
from simnmt.cli.run_text import format_result
from simnmt.scenario.errors import ScenarioError
from simnmt.scenario.source import open_source
from simnmt.world.structures import library
from tests.experiment.test_mixes import scenario, workload

CLASSES = {"interactive": {"priority": 0, "slo": {"p95_ms": 2_000}}, "files": {"priority": 1, "max_wait_s": 30}}


def classed(batching: Any = None, **keys: Any) -> dict[str, Any]:
    """Chats and pages that are served before files, on boxes that are rather busy."""
    workloads = {"chat": workload(2.0), "page": workload(1.0, "@fr-en-news"), "job": workload(1.5)}
    for name, of_class in (("chat", "interactive"), ("page", "interactive"), ("job", "files")):
        workloads[name]["class"] = of_class
    cloud = {"profile": "@titan-xp-gru"} if batching is None else {"profile": "@cpu1-gru", "batching": batching}
    devices = {"gateway": {"profile": "@tx2-gru"}, "cloud": cloud}
    made = {"workloads": workloads, "devices": devices, "classes": CLASSES, "policies": {"edge": {}, "cnmt": {}, "oracle": {}}}
    return scenario(requests=2_000, **made) | keys


def rows_by_class(result: simnmt.Run, policy: str) -> dict[str, dict[str, Any]]:
    return {row["class"]: row for row in result.summary_rows if row["policy"] == policy and row["workload"] not in WORKLOADS}


WORKLOADS = ("chat", "page", "job")


def test_a_class_has_a_row_and_waits_for_those_of_higher_classes_alone() -> None:
    result, without = simnmt.run(classed()), simnmt.run(unclassed())
    assert all("class" not in row for row in without.summary_rows)
    for policy in ("edge", "cnmt", "oracle"):
        rows = rows_by_class(result, policy)
        assert list(rows) == ["all", "interactive", "files"]
        parts = [row for row in result.summary_rows if row["policy"] == policy and row["workload"] in ("chat", "page")]
        assert all(part["class"] == "all" for part in parts)
        assert rows["interactive"]["requests"] == sum(part["requests"] for part in parts)
        total_s = sum(part["requests"] * part["mean_queue_s"] for part in parts)
        assert rows["interactive"]["mean_queue_s"] == pytest.approx(total_s / rows["interactive"]["requests"])
        if policy == "edge":
            (fifo,) = (row for row in without.summary_rows if (row["workload"], row["policy"]) == ("all", policy))
            assert rows["interactive"]["mean_queue_s"] < fifo["mean_queue_s"] < rows["files"]["mean_queue_s"]
    assert library() is None or {*result.engines.values()} == {"compiled"}
    assert result.recommendations[0]["slo"] == ["p95_ms<=2000"]
    (assessed,) = result.assess("p95_ms<=2000", workload="class interactive")
    assert (assessed.met, "class interactive" in str(assessed)) == (result.recommendations[0]["slo_met"], True)
    assert any("may overtake" in note for note in result.notes)
    text = format_result(result)
    assert "By class" in text and "files" in text


def test_a_bound_that_lets_many_files_overtake_is_a_warning_and_one_class_can_be_asserted() -> None:
    files = {"priority": 1, "max_wait_s": 0.05}
    hurried = simnmt.run(classed(classes=CLASSES | {"files": files}, replications=1, policies={"edge": {}}))
    rows, log = rows_by_class(hurried, "edge"), hurried.requests
    share = (log.loc[log["workload"] == "job", "t_queue_s"] > 0.05).mean()
    assert rows["files"]["overdue_share"] == pytest.approx(share) and share > 0.1
    assert rows["interactive"]["overdue_share"] is None and rows["all"]["overdue_share"] < share
    (warning,) = (text for text in hurried.warnings if "max_wait_s" in text)
    assert "max_wait_s (0.05 s) and then went before those of interactive (edge " in warning
    calm = simnmt.run(
        classed(replications=1), assertions=["class interactive: p95_ms<=2000", "job: mean_ms<=1", "cnmt: p95_ms<=1"]
    )
    assert not [text for text in calm.warnings if "max_wait_s" in text]
    for named in ("class interactive", "job"):
        (assessed,) = calm.assess(f"{named}: p95_ms<=2000")
        assert assessed.workload == named
    assert "Misroutes are not shown: with classes, " in format_result(calm)
    with pytest.raises(simnmt.InputError, match=r"did you mean class interactive"):
        simnmt.run(classed(), assertions=["class interactiv: p95_ms<=2000"])


def unclassed() -> dict[str, Any]:
    made = classed()
    del made["classes"]
    for part in made["workloads"].values():
        del part["class"]
    return made


def test_both_engines_serve_classes_in_batches_alike_and_a_run_is_read_again(tmp_path: Path) -> None:
    made = classed({"kind": "top_up", "size": 4, "refill": "free"}, requests=600, policies={"cloud": {}, "cnmt": {}})
    ours, theirs = (simnmt.run(made, engine=engine) for engine in ("reference", None))
    for one, other in zip(ours.summary_rows, theirs.summary_rows, strict=True):
        assert one.keys() == other.keys() and one["mean_latency_s"] == pytest.approx(other["mean_latency_s"], rel=1e-9)
    rows = rows_by_class(theirs, "cloud")
    assert rows["interactive"]["mean_queue_s"] <= rows["files"]["mean_queue_s"]
    simnmt.run(made, out=tmp_path / "run")
    assert simnmt.load(tmp_path / "run").summary_rows == theirs.summary_rows


def test_a_plan_keeps_the_service_level_of_each_class() -> None:
    best = simnmt.plan(classed(policies={"cloud": {}}, replications=1), requests=500, precision=0.2).best
    assert set(map(str, best.outcome.values)) == {"p95_ms<=2000 for class interactive"}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"classes": CLASSES | {"bulk": {"priority": 2}}}, "classes.bulk: no workload"),
        ({"classes": {"interactive": {"priority": 0}}}, "workloads.job.class: unknown class"),
        ({"classes": {}}, "workloads.chat.class: unknown class"),
        ({"classes": {name: {"priority": 3} for name in CLASSES}}, "classes.files.priority: interactive has the same"),
        ({"classes": CLASSES | {"files": {"priority": 1, "max_wait_s": 0}}}, "classes.files.max_wait_s: must be"),
        ({"share_devices": False}, "classes: requests of several classes"),
        ({"workloads": {**classed()["workloads"], "more": workload(1.0)}}, "workloads.more: of no class"),
        ({"devices": {"gateway": {"profile": "@tx2-gru", "sti": {"deadline_ms": 9, "preload_mb": 0}}}}, "devices.gateway.sti:"),
    ],
)
def test_classes_that_cannot_be_served_are_refused_at_their_key(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        simnmt.Scenario(classed() | changes)
    assert str(refused.value).startswith(key) and "\n" not in str(refused.value)


def test_a_scenario_file_names_the_class_of_a_workload(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "version: 1\nname: x\nclasses: {a: {priority: 0}, b: {priority: 1}}\nworkloads:\n"
        '  v: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 1}, class: a}\n'
        '  w: {lengths: "@de-en-news", arrivals: {kind: poisson, rate_rps: 1}, class: c}\n'
        'networks: {n: {rtt: "@cp1"}}\ndevices: {gateway: {profile: "@tx2-gru"}}\npolicies: {edge: {}}\n'
    )
    with pytest.raises(ScenarioError, match="unknown class"):
        open_source(tmp_path / "s.yaml", [])
    source = open_source(tmp_path / "s.yaml", ["workloads.w.class=b"])
    assert source.scenario.document()["workloads"]["w"]["class"] == "b"
