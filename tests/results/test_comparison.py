"""Comparisons of runs: known changes, how often intervals cover them, when runs are paired, and what is not compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import simnmt
from simnmt.results.comparison import compare_runs
from simnmt.results.result import LiveMeasurement

MakeScenario = Callable[..., dict[str, Any]]
EXPERIMENTS = 400
POLICIES = {"edge": {}, "cloud": {}}


def constant_rtt(rtt_ms: float) -> dict[str, Any]:
    return {"office": {"rtt": {"constant_ms": rtt_ms}}}


def by_policy(comparison: simnmt.Comparison) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in comparison.changes}


def test_a_paired_comparison_recovers_30_ms_of_round_trip_and_an_unpaired_one_covers_them(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=300, replications=5, policies=POLICIES, networks=constant_rtt(60.0))
    far = scenario | {"networks": constant_rtt(90.0)}
    near = simnmt.run(scenario)
    paired = by_policy(simnmt.compare(near, simnmt.run(far)))["cloud"]
    unpaired = by_policy(simnmt.compare(near, simnmt.run(far, seed=8)))["cloud"]
    assert paired["mean_latency_s"] - paired["baseline_latency_s"] == pytest.approx(0.030, abs=1e-9)
    assert (paired["verdict"], paired["paired"], unpaired["paired"]) == ("slower", True, False)
    long = simnmt.run(scenario, requests=50_000, replications=1, seed=99).summary_rows
    truth = 100.0 * 0.030 / next(row["mean_latency_s"] for row in long if row["policy"] == "cloud")
    widths = {}
    for name, row in (("paired", paired), ("unpaired", unpaired)):
        assert row["low_percent"] < truth < row["high_percent"], name
        widths[name] = row["high_percent"] - row["low_percent"]
    assert widths["paired"] < widths["unpaired"] / 3


def test_a_scaled_round_trip_has_the_sign_of_the_scale(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=300, replications=4, policies=POLICIES)
    of_rtt = {
        mean_ms: simnmt.run(scenario | {"networks": {"cp1": {"rtt": "@cp1", "rtt_mean_ms": mean_ms}}})
        for mean_ms in (40, 80, 160)
    }
    nearer, farther = (by_policy(simnmt.compare(of_rtt[80], of_rtt[mean_ms])) for mean_ms in (40, 160))
    assert nearer["cloud"]["verdict"] == "faster" and nearer["cloud"]["high_percent"] < 0.0
    assert farther["cloud"]["verdict"] == "slower" and farther["cloud"]["low_percent"] > 0.0
    assert nearer["edge"]["verdict"] == farther["edge"]["verdict"] == "same"


def made_run(totals_s: NDArray[np.float64], seed: int) -> Any:
    """A run of one policy with these totals of its replications."""
    place = {"workload": "w", "network": "n", "policy": "p"}
    scenario = {"seed": seed, "requests": 1, "replications": len(totals_s), "workloads": {"w": {}}}
    row = {**place, "mean_latency_s": float(totals_s.mean()), "replications": len(totals_s)}
    return SimpleNamespace(
        name="made", directory=None, seed=seed, summary_rows=[row], live=None, input_digests={},
        scenario=scenario, recommendations=[],
        totals_s={("w", "n", "p"): totals_s.tolist()},
        replicated={("w", "n", "p"): {"mean_latency_s": totals_s.tolist()}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("paired", "counts", "spread"),
    [(False, (5, 5), 0.1), (False, (5, 20), 0.4), (False, (10, 10), 0.4), (True, (5, 5), 0.4)],
    ids=["few", "unequal", "spread", "paired"],
)
def test_intervals_of_a_change_of_a_fifth_cover_it(paired: bool, counts: tuple[int, int], spread: float) -> None:
    random = np.random.default_rng(5)
    covered, width = 0, 0.0
    for _ in range(EXPERIMENTS):
        first, second = (np.exp(random.normal(-0.5 * spread**2, spread, count)) for count in counts)
        if paired:
            second = first * np.exp(random.normal(-0.5 * 0.02**2, 0.02, counts[0]))
        (row,) = compare_runs(made_run(first, 1), made_run(1.2 * second, 1 if paired else 2)).changes
        assert row["paired"] == paired
        covered += row["low_percent"] < 20.0 < row["high_percent"]
        width += row["high_percent"] - row["low_percent"]
    assert covered >= 0.92 * EXPERIMENTS
    most = 2.5 if paired else 1.7  # times the width with known variances
    usual = 0.02 / np.sqrt(counts[0]) if paired else spread * np.sqrt(sum(1.0 / count for count in counts))
    assert width / EXPERIMENTS < most * 120.0 * 2.0 * 1.96 * usual, "an interval of everything would cover it too"


def test_the_reasons_of_an_unpaired_comparison_are_named(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=100, policies=POLICIES)
    first = simnmt.run(scenario)
    cases = {
        ("seed=8",): "seed 8 instead of 7",
        ("replications=3",): "3 instead of 2 replications",
        ("requests=1200",): "1,200 instead of 100 requests",
        ("fit.share=0.2",): "another fit.share",
        ("workloads.de-en.lengths=@fr-en-news",): "another workloads.de-en.lengths",
        ("seed=8", "replications=3"): "seed 8 instead of 7; 3 instead of 2 replications",
        ("fit.inferences=400", "networks.cp1.rtt_mean_ms=50", "devices.cloud.count=2"): "",
    }
    for overrides, reason in cases.items():
        comparison = simnmt.compare(first, simnmt.run(scenario, overrides=overrides))
        assert {"; ".join(row["unpaired_because"]) for row in comparison.changes} == {reason}
        assert comparison.notes[0].startswith("small (2) against small (1)") and reason in comparison.notes[0]
        assert {row["key"] for row in comparison.scenario_differences} == {text.partition("=")[0] for text in overrides}


def test_only_the_workload_that_changed_is_unpaired(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(
        requests=50, policies=POLICIES, workloads={"a": {"lengths": "@de-en-news"}, "b": {"lengths": "@de-en-news"}}
    )
    changed = simnmt.run(scenario, overrides=["workloads.b.lengths=@fr-en-news"])
    comparison = simnmt.compare(simnmt.run(scenario), changed)
    assert {(row["workload"], row["paired"]) for row in comparison.changes} == {("a", True), ("b", False)}
    assert [note.partition(", workload ")[2][0] for note in comparison.notes] == ["a", "b"]


def test_what_only_some_runs_have_is_named(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=50, policies=POLICIES)
    first = simnmt.run(scenario)
    more = simnmt.run(scenario | {"policies": POLICIES | {"oracle": {}}, "name": "more"})
    elsewhere = simnmt.run(scenario | {"networks": {"cp2": {"rtt": "@cp2"}}, "name": "elsewhere"})
    less = simnmt.run(scenario | {"policies": {"cloud": {}}, "name": "less"})
    comparison = simnmt.compare(first, more, elsewhere)
    assert comparison.names == ["small", "more", "elsewhere"]
    assert {(row["run"], row["policy"]) for row in comparison.changes} == {("more", "edge"), ("more", "cloud")}
    assert comparison.not_in_all == [
        {"part": "network", "name": "cp1", "runs": ["small", "more"], "missing_in": ["elsewhere"]},
        {"part": "network", "name": "cp2", "runs": ["elsewhere"], "missing_in": ["small", "more"]},
        {"part": "policy", "name": "oracle", "runs": ["more"], "missing_in": ["small", "elsewhere"]},
    ]
    assert any("policy oracle" in note and "not in small and elsewhere" in note for note in comparison.notes)
    assert any("policy edge, oracle" in note for note in simnmt.compare(less, more).notes)
    by_key = {row["key"]: row for row in comparison.scenario_differences}
    assert by_key["policies.oracle"]["small"] is None and by_key["policies.oracle"]["more"]["kind"] == "oracle"
    assert [(row["run"], row["network"]) for row in comparison.best] == [
        ("small", "cp1"), ("more", "cp1"), ("elsewhere", "cp2"),
    ]  # fmt: skip
    alone = simnmt.compare(first, elsewhere)
    assert alone.changes == [] and "no workload, network and policy in common" in repr(alone)


def test_objects_of_python_are_no_evidence_of_the_same_requests(make_scenario: MakeScenario) -> None:
    short, long = np.full((400, 2), 5), np.full((400, 2), 30)
    runs = [
        simnmt.run(make_scenario(requests=50, policies=POLICIES, workloads={"mine": {"lengths": lengths}}))
        for lengths in (short, long)
    ]
    comparison = simnmt.compare(*runs)
    assert comparison.scenario_differences == []
    assert {tuple(row["unpaired_because"]) for row in comparison.changes} == {
        ("workloads.mine.lengths is an object of Python",)
    }
    assert sum("workloads.mine.lengths is an object of Python" in note for note in comparison.notes) == 3


def test_an_input_that_changed_under_its_name_unpairs_the_workload_that_reads_it(
    make_scenario: MakeScenario, tmp_path: Path
) -> None:
    """A changed profile leaves the requests as they are."""
    lengths = {"source": str(tmp_path / "news.de"), "target": str(tmp_path / "news.en"), "src_unit": "word", "tgt_unit": "word"}
    workloads = {"news": {"lengths": lengths}, "shipped": {"lengths": "@de-en-news"}}
    scenario = make_scenario(requests=50, policies=POLICIES, workloads=workloads)
    profile = tmp_path / "cloud.json"
    for name, longer in (("a", 0), ("b", 1)):
        for side in ("de", "en"):
            (tmp_path / f"news.{side}").write_text("".join("w " * (1 + longer + line % 20) + "\n" for line in range(60)))
        profile.write_text(profile.read_text() + "\n")
        simnmt.run(scenario, out=tmp_path / name)
    comparison = simnmt.compare(tmp_path / "a", tmp_path / "b")
    assert comparison.names == ["a", "b"]
    assert {(row["workload"], row["paired"]) for row in comparison.changes} == {("news", False), ("shipped", True)}
    because = f"another content of {tmp_path / 'news.de'}; another content of {tmp_path / 'news.en'}"
    assert any(because in note for note in comparison.notes)
    assert f"{profile} has another content in b than in a." in comparison.notes


def test_a_live_run_is_named_and_counts_what_was_answered(make_scenario: MakeScenario) -> None:
    result = simnmt.run(make_scenario(requests=100, policies={"edge": {}}))
    live = LiveMeasurement("http://127.0.0.1", "server", "", "", {}, {}, 1)
    replicated = {
        place: columns | {"total_latency_s": [0.75 * total_s for total_s in columns["total_latency_s"]]}
        for place, columns in result.replicated.items()
    }
    rows = [row | {"answered_share": 0.75} for row in result.summary_rows]
    measured = replace(result, name="measured", live=live, replicated=replicated, summary_rows=rows, recommendations=[])
    comparison = simnmt.compare(result, measured)
    assert comparison.changes[0]["change_percent"] == pytest.approx(0.0, abs=1e-9)
    assert comparison.notes[-1].startswith("measured is measured live")
    assert [run["live"] for run in comparison.runs] == [False, True]
    with pytest.raises(simnmt.InputError, match="run measured has no latencies"):
        simnmt.compare(result, replace(measured, replicated={}))


def test_a_live_run_whose_load_generator_was_late_is_doubted(make_scenario: MakeScenario) -> None:
    result = simnmt.run(make_scenario(requests=100, policies={"edge": {}}))
    on_time, late = (
        replace(result, name=name, live=LiveMeasurement("http://127.0.0.1", "server", "", "", {}, {"p99": late_ms}, 1))
        for name, late_ms in (("on-time", 0.4), ("late", 27.4))
    )
    doubts = [note for note in simnmt.compare(result, on_time, late).notes if "load generator" in note]
    assert [doubt.split(",")[0] for doubt in doubts] == ["the load generator of late was 27.4 ms late at p99"]


def test_a_live_run_of_other_texts_is_not_paired_and_the_reason_is_given(make_scenario: MakeScenario) -> None:
    result = simnmt.run(make_scenario(requests=100, policies={"edge": {}}))
    live = LiveMeasurement("http://127.0.0.1", "server", "", "", {}, {}, 1)
    drawn, text, other_text = (
        replace(result, name=name, live=replace(live, texts_digest=digest))
        for name, digest in (("drawn", None), ("text", "a"), ("other", "b"))
    )
    comparison = simnmt.compare(result, drawn, text)
    assert [row["paired"] for row in comparison.changes] == [True, False]
    reason = "one of them sent a text in place of the workload's lengths, so that their sentences differ"
    assert reason in comparison.notes[1]
    assert simnmt.compare(text, other_text).changes[0]["unpaired_because"] == ["another text that was sent live"]
    assert simnmt.compare(text, replace(text, name="again")).changes[0]["paired"]


def test_an_overloaded_policy_is_marked_with_the_run_that_overloads_it(make_scenario: MakeScenario) -> None:
    arrivals = {"kind": "poisson", "rate_rps": 3.0}
    workloads = {"busy": {"lengths": "@de-en-news", "arrivals": arrivals}}
    scenario = make_scenario(requests=400, policies={"edge": {}}, workloads=workloads)
    fast = simnmt.run(scenario, overrides=["workloads.busy.arrivals.rate_rps=30", "name=overloaded"])
    (row,) = simnmt.compare(simnmt.run(scenario), fast).changes
    assert row["unstable_in"] == ["overloaded"]


def test_a_run_that_was_replaced_by_another_is_compared_with_it(make_scenario: MakeScenario, tmp_path: Path) -> None:
    first = simnmt.run(make_scenario(requests=50), out=tmp_path / "run")
    second = simnmt.run(make_scenario(requests=50), out=tmp_path / "run", overrides=["seed=9"], force=True)
    assert simnmt.compare(first, second).scenario_differences == [{"key": "seed", "run (1)": 7, "run (2)": 9}]


def test_labels_of_runs_differ_though_names_look_like_numbered_ones(make_scenario: MakeScenario) -> None:
    names = ("a", "a", "a (2)")
    compared = simnmt.compare(*(simnmt.run(make_scenario(requests=50), overrides=[f"name={name}"]) for name in names))
    assert compared.names == ["a (1)", "a (3)", "a (2)"]


def test_the_same_run_twice_is_refused(make_scenario: MakeScenario, tmp_path: Path) -> None:
    result = simnmt.run(make_scenario(requests=50), out=tmp_path / "run")
    for twice in ((result, result), (result, tmp_path / "run"), (tmp_path / "run", tmp_path / "." / "run")):
        with pytest.raises(simnmt.InputError, match="the same run is given twice"):
            simnmt.compare(*twice)
