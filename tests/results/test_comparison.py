"""Comparisons of runs: known changes, how often intervals cover them, when runs are paired, and what is not compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import simnmt
from simnmt.results.comparison import compare_runs
from simnmt.results.places import ALL, Place
from simnmt.results.run import LiveMeasurement, Run

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
    assert (paired["effect"], paired["paired"], unpaired["paired"]) == ("slower", True, False)
    long = simnmt.run(scenario, requests=50_000, replications=1, seed=99).summary_rows
    truth = 100.0 * 0.030 / next(row["mean_latency_s"] for row in long if row["policy"] == "cloud")
    widths = {}
    for name, row in (("paired", paired), ("unpaired", unpaired)):
        assert row["low_percent"] < truth < row["high_percent"], name
        widths[name] = row["high_percent"] - row["low_percent"]
    assert widths["paired"] < widths["unpaired"] / 3


def made_run(means_s: NDArray[np.float64], seed: int) -> Run:
    """A run of one policy with these means of its replications."""
    place = Place(ALL, "w", "n", "p")
    scenario = {"seed": seed, "requests": 1, "replications": len(means_s), "workloads": {"w": {}}}
    row = {**place._asdict(), "mean_latency_s": float(means_s.mean()), "replications": len(means_s)}
    columns = dict.fromkeys(("total_latency_s", "mean_latency_s"), means_s.tolist())
    return Run("made", seed, [row], scenario=scenario, replicated={place: columns})


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
        (row,) = compare_runs([made_run(first, 1), made_run(1.2 * second, 1 if paired else 2)]).changes
        assert row["paired"] == paired
        covered += row["low_percent"] < 20.0 < row["high_percent"]
        width += row["high_percent"] - row["low_percent"]
    assert covered >= 0.92 * EXPERIMENTS
    most = 2.5 if paired else 1.7  # times the width with known variances
    usual = 0.02 / np.sqrt(counts[0]) if paired else spread * np.sqrt(sum(1.0 / count for count in counts))
    assert width / EXPERIMENTS < most * 120.0 * 2.0 * 1.96 * usual, "an interval of everything would cover it too"


def test_changes_of_the_requests_unpair_runs_and_others_do_not(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=100, policies=POLICIES)
    first = simnmt.run(scenario)
    cases = {
        ("requests=1200",): 1,
        ("fit.share=0.2",): 1,
        ("workloads.de-en.lengths=@fr-en-news",): 1,
        ("seed=8", "replications=3"): 2,
        ("fit.inferences=400", "networks.cp1.rtt_mean_ms=50", "devices.cloud.count=2"): 0,
    }
    for overrides, reasons in cases.items():
        comparison = simnmt.compare(first, simnmt.run(scenario, overrides=overrides))
        assert {len(row["unpaired_because"]) for row in comparison.changes} == {reasons}
        assert {row["key"] for row in comparison.scenario_differences} == {text.partition("=")[0] for text in overrides}


def test_policies_and_networks_of_some_runs_alone_are_listed(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(requests=50, policies=POLICIES)
    first = simnmt.run(scenario)
    more = simnmt.run(scenario | {"policies": POLICIES | {"oracle": {}}, "name": "more"})
    elsewhere = simnmt.run(scenario | {"networks": {"cp2": {"rtt": "@cp2"}}, "name": "elsewhere"})
    comparison = simnmt.compare(first, more, elsewhere)
    assert comparison.names == ["small", "more", "elsewhere"]
    assert {(row["run"], row["policy"]) for row in comparison.changes} == {("more", "edge"), ("more", "cloud")}
    assert [note for part in ("network cp1", "network cp2", "policy oracle") for note in comparison.notes if part in note] == [
        "network cp1: in small and more, not in elsewhere.",
        "network cp2: in elsewhere, not in small and more.",
        "policy oracle: in more, not in small and elsewhere.",
    ]
    (oracle,) = (row for row in comparison.scenario_differences if row["key"] == "policies.oracle")
    assert oracle["small"] is None and oracle["more"]["kind"] == "oracle"
    assert [(row["run"], row["network"]) for row in comparison.best][1:] == [("more", "cp1"), ("elsewhere", "cp2")]
    assert simnmt.compare(first, elsewhere).changes == []


def test_an_input_that_changed_under_its_name_unpairs_the_workload_that_reads_it(
    make_scenario: MakeScenario, tmp_path: Path
) -> None:
    """A changed profile leaves the requests as they are."""
    lengths = {"source": str(tmp_path / "news.de"), "target": str(tmp_path / "news.en"), "src_unit": "word", "tgt_unit": "word"}
    workloads = {"news": {"lengths": lengths}, "shipped": {"lengths": "@de-en-news"}}
    scenario = make_scenario(requests=50, policies=POLICIES, workloads=workloads)
    profile = tmp_path / "cloud.json"
    results = []
    for name, longer in (("a", 0), ("b", 1)):
        for side in ("de", "en"):
            (tmp_path / f"news.{side}").write_text("".join("w " * (1 + longer + line % 20) + "\n" for line in range(60)))
        profile.write_text(profile.read_text() + "\n")
        results.append(simnmt.run(scenario, out=tmp_path / name))
    for one, other in (results, (tmp_path / "a", tmp_path / "b"), (tmp_path / "a", results[1])):
        comparison = simnmt.compare(one, other)
        assert comparison.names == ["a", "b"]
        assert {(row["workload"], row["paired"]) for row in comparison.changes} == {("news", False), ("shipped", True)}
        assert any(str(profile) in note for note in comparison.notes)


def test_runs_of_which_one_alone_shares_its_devices_are_unpaired(make_scenario: MakeScenario) -> None:
    rates = {"kind": "poisson", "rate_rps": 3.0}
    workloads = {name: {"lengths": "@de-en-news", "arrivals": rates} for name in ("de-en", "fr-en")}
    scenario = make_scenario(requests=100, workloads=workloads)
    apart, shared = (simnmt.run(scenario, overrides=[f"share_devices={shares}"]) for shares in ("false", "true"))
    for row in simnmt.compare(apart, shared).changes:
        assert row["unpaired_because"] == ["another share_devices"]


def test_runs_with_arrays_of_lengths_are_never_paired(make_scenario: MakeScenario) -> None:
    arrays = np.full((400, 2), 5), np.full((400, 2), 30)
    runs = [simnmt.run(make_scenario(requests=50, policies=POLICIES, workloads={"w": {"lengths": array}})) for array in arrays]
    assert runs[0].scenario == runs[1].scenario
    assert {row["paired"] for row in simnmt.compare(*runs).changes} == {False}


LIVE = LiveMeasurement("http://127.0.0.1", "", "", {}, {})


def test_a_live_run_counts_the_answered_requests_and_a_late_load_generator_is_doubted(small_run: simnmt.Run) -> None:
    result = replace(small_run, directory=None)
    replicated = {
        place: columns | {"total_latency_s": [0.75 * total_s for total_s in columns["total_latency_s"]]}
        for place, columns in result.replicated.items()
    }
    measured = replace(result, name="measured", live=LIVE, replicated=replicated, recommendations=[])
    comparison = simnmt.compare(result, measured)
    assert comparison.changes[0]["change_percent"] == pytest.approx(0.0, abs=1e-9)
    assert [run["live"] for run in comparison.runs] == [False, True]
    late = replace(measured, name="late", live=replace(LIVE, lateness_ms={"p99": 27.4}))
    assert [note for note in simnmt.compare(result, measured, late).notes if "load generator of late" in note]


def test_a_live_run_of_other_texts_is_not_paired(small_run: simnmt.Run) -> None:
    drawn, text, other_text = (
        replace(small_run, name=name, directory=None, live=replace(LIVE, texts_digest=digest))
        for name, digest in (("drawn", None), ("text", "a"), ("other", "b"))
    )
    comparison = simnmt.compare(small_run, drawn, text)
    assert {(row["run"], row["paired"]) for row in comparison.changes} == {("drawn", True), ("text", False)}
    assert not simnmt.compare(text, other_text).changes[0]["paired"]
    assert simnmt.compare(text, replace(text, name="again")).changes[0]["paired"]


def test_an_overloaded_policy_is_marked_with_the_run_that_overloads_it(make_scenario: MakeScenario) -> None:
    workloads = {"busy": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 3.0}}}
    scenario = make_scenario(requests=400, policies={"edge": {}}, workloads=workloads)
    fast = simnmt.run(scenario, overrides=["workloads.busy.arrivals.rate_rps=30", "name=overloaded"])
    assert simnmt.compare(simnmt.run(scenario), fast).changes[0]["unstable_in"] == ["overloaded"]


def test_a_run_that_was_replaced_by_another_is_compared_with_it(make_scenario: MakeScenario, tmp_path: Path) -> None:
    """Labels of runs differ, though names look like numbered ones."""
    first = simnmt.run(make_scenario(requests=50), out=tmp_path / "run")
    second = simnmt.run(make_scenario(requests=50), out=tmp_path / "run", overrides=["seed=9"], force=True)
    assert simnmt.compare(first, second).scenario_differences == [{"key": "seed", "run (1)": 7, "run (2)": 9}]
    compared = simnmt.compare(*(replace(first, name=name, directory=None) for name in ("a", "a", "a (2)")))
    assert len({*compared.names}) == 3
