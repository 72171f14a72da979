"""Whole runs: what their numbers rest on, what a warm-up leaves out, and by what decisions are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.base.random_streams import BLOCK
from simnmt.experiment import units as unit_module
from simnmt.experiment.units import run_unit
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]
REQUESTS = BLOCK + 1_000
"""More than one block of draws."""


def workload(**arrivals: Any) -> dict[str, Any]:
    return {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}


OPEN = workload(kind="poisson", rate_rps=6.0)


DISCIPLINES: dict[str, dict[str, Any]] = {
    "back to back": {"workloads": workload(kind="back_to_back")},
    "back to back, own clock": {
        "workloads": workload(kind="back_to_back"),
        "networks": {"cp1": {"rtt": "@cp1", "clock": "own"}},
        "requests": 3_000,
    },
    "open": {"workloads": OPEN},
    "open, over access links": {
        "workloads": {"de-en": {**OPEN["de-en"], "end_nodes": 5}},
        "networks": {"cp1": {"rtt": "@cp1", "hops": {"gateway": {"rtt": {"constant_ms": 400}}}}},
    },
    "closed": {"workloads": workload(kind="clients", clients=9, think_time={"mean_s": 0.5}), "requests": 3_000},
}


@pytest.mark.parametrize("discipline", DISCIPLINES)
def test_a_longer_run_begins_with_the_shorter_one(make_scenario: MakeScenario, discipline: str) -> None:
    """Drawn block by block: all that is drawn of a request is the same, however many follow it."""
    keys = {"requests": REQUESTS, "policies": {"edge": {}}} | DISCIPLINES[discipline]
    fewer = keys | {"requests": keys["requests"] * 9 // 10}
    longer, shorter = (run_unit(unit_of(plan_of(make_scenario(**scenario)))) for scenario in (keys, fewer))
    assert longer.truth is not None and shorter.truth is not None
    same = [(longer.truth.src_len, shorter.truth.src_len), (longer.truth.tgt_len, shorter.truth.tgt_len)]
    same += [*zip(longer.truth.execution_s, shorter.truth.execution_s, strict=True), (longer.truth.node, shorter.truth.node)]
    if "poisson" in str(keys["workloads"]):
        same.append((longer.trails["edge"].arrival_s, shorter.trails["edge"].arrival_s))
        same += zip(longer.truth.transfer_s, shorter.truth.transfer_s, strict=True)
    for ours, theirs in same:
        np.testing.assert_array_equal(ours[: fewer["requests"]], theirs[:])


def plain_scenario(**keys: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "accounted",
        "requests": 200,
        "replications": 1,
        "workloads": {"fr-en": {"lengths": "@fr-en-news"}},
        "networks": {"n": {"rtt": {"constant_ms": 50}}},
        "devices": {"gateway": {"profile": "@tx2-gru"}, "cloud": {"profile": "@titan-xp-gru"}},
        "policies": {"edge": {}, "cnmt": {}},
    } | keys


def test_notes_and_fits_name_the_box_of_each_profile_and_the_kind_of_its_numbers() -> None:
    result = simnmt.run(plain_scenario())
    assert any("tx2-gru" in note and "(inferred)" in note for note in result.notes)
    boxes = {row["of"]: row["box"] for row in result.fits if "box" in row}
    assert boxes["execution time on the gateway"] == "NVIDIA Jetson TX2"


POLICIES: dict[str, Any] = {"edge": {}, "cloud": {}, "cnmt": {}}


@pytest.fixture
def make_open(make_scenario: MakeScenario) -> MakeScenario:
    """Builds a busy open loop; keywords replace top-level keys, `arrivals` those of the workload."""

    def make(arrivals: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        arrivals = arrivals or {"kind": "poisson", "rate_rps": 4.5}
        workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}
        defaults = {"requests": 1_200, "policies": POLICIES, "warm_up_requests": 200}
        return make_scenario(workloads=workloads, **defaults | keys)

    return make


def test_no_number_counts_the_warm_up(make_open: MakeScenario) -> None:
    result = simnmt.run(make_open(replications=1))
    logs = result.cells[0].logs
    cut = 200
    assert {row["warm_up_requests"] for row in result.summary_rows} == {cut}
    for row in result.summary_rows:
        log = {name: column[cut:] for name, column in logs[row["policy"]].items()}
        start_s = log["arrival_s"][0]
        end_s = (log["arrival_s"] + log["latency_s"]).max()
        assert row["requests"] == 1_200 == cut + len(log["latency_s"])
        assert row["mean_latency_s"] == pytest.approx(log["latency_s"].mean())
        assert row["total_latency_s"] == pytest.approx(1_200 * log["latency_s"].mean())
        assert row["p95_latency_s"] == pytest.approx(np.quantile(log["latency_s"], 0.95))
        assert row["goodput_rps"] == row["throughput_rps"] == pytest.approx(len(log["latency_s"]) / (end_s - start_s))
        assert row["offloaded_share"] == pytest.approx((log["target"] > 0).mean())
        work_s = log["t_exe_s"][log["target"] == 0].sum()
        assert row["gateway_load"] == pytest.approx(work_s / (log["arrival_s"].max() - start_s))
    assert len(result.requests) == 3 * 1_200


def test_the_gap_analysis_is_over_the_same_requests(make_open: MakeScenario) -> None:
    result = simnmt.run(make_open(gap_analysis=True))
    totals_s = {row["policy"]: row["total_latency_s"] for row in result.summary_rows}
    assert {row["removed"]: row["total_latency_s"] for row in result.gaps}["nothing"] == totals_s["cnmt"]


def test_runs_with_different_cuts_are_compared_by_their_means(make_open: MakeScenario) -> None:
    whole, cut = (simnmt.run(make_open(warm_up_requests=warm_up)) for warm_up in (0, 600))
    changes = {row["policy"]: row["change_percent"] for row in simnmt.compare(whole, cut).changes}
    for before, after in zip(whole.summary_rows, cut.summary_rows, strict=True):
        expected = 100.0 * (after["mean_latency_s"] / before["mean_latency_s"] - 1.0)
        assert changes[before["policy"]] == pytest.approx(expected)


def test_a_percentile_that_the_rest_does_not_know_is_refused(make_open: MakeScenario) -> None:
    with pytest.raises(simnmt.InputError, match="objective: "):
        simnmt.run(make_open(requests=15_000, warm_up_requests=7_500, objective="p99.9"))


def crowded(make_scenario: MakeScenario, **keys: Any) -> dict[str, Any]:
    """Poisson arrivals at 1.4 times what the gateway can take; the cloud takes all of them."""
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": {"kind": "poisson", "rate_rps": 20.0}}}
    return make_scenario(workloads=workloads, replications=1, **keys)


def test_under_queues_the_oracle_misroutes_nothing_and_the_overloaded_gateway_nearly_everything(
    make_scenario: MakeScenario,
) -> None:
    """By what each device takes alone, edge would have misrouted a half and the oracle as much as it avoids queues."""
    rows = {row["policy"]: row for row in simnmt.run(crowded(make_scenario)).summary_rows}
    assert rows["edge"]["gateway_load"] > 1.3
    assert rows["oracle"]["misrouted_share"] == rows["oracle"]["mean_decision_regret_s"] == 0.0
    assert rows["edge"]["misrouted_share"] > 0.95
    assert rows["edge"]["mean_decision_regret_s"] > 1.0
    assert 0.0 < rows["cnmt"]["misrouted_share"] < rows["edge"]["misrouted_share"]


def test_a_sample_of_the_decisions_has_the_share_of_all(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = crowded(make_scenario, requests=8_000)
    sampled = simnmt.run(scenario)
    monkeypatch.setattr(unit_module, "JUDGED", 8_000)
    full = simnmt.run(scenario)
    for some, whole in zip(sampled.summary_rows, full.summary_rows, strict=True):
        assert some["misrouted_share"] == pytest.approx(whole["misrouted_share"], abs=0.04)
        assert some["total_latency_s"] == whole["total_latency_s"]


def test_a_regret_under_queues_is_the_wait_that_another_device_would_have_saved(make_scenario: MakeScenario) -> None:
    """Of edge: its own wait and execution, less what the idle cloud would have taken."""
    scenario = crowded(make_scenario, policies={"edge": {}}, requests=500)
    scenario["devices"]["cloud"]["count"] = 50
    result = unit_module.run_unit(unit_of(plan_of(scenario)))
    truth, passage = result.truth, result.trails["edge"]
    assert truth is not None and passage.decision_regret_s is not None
    here_s = passage.queue_s[:] + truth.total_s(0, truth.all)
    there_s = truth.total_s(1, truth.all)
    np.testing.assert_allclose(passage.decision_regret_s[:], np.maximum(here_s - there_s, 0.0), atol=1e-9)
