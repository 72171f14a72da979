"""What `warm_up_requests` leaves out of a run's numbers: the same requests for every policy, all of them counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt

MakeScenario = Callable[..., dict[str, Any]]
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


@pytest.mark.parametrize("warm_up", ["mser", 300, -1, {"requests": 5}])
def test_a_warm_up_that_cannot_be_is_refused(make_open: MakeScenario, warm_up: object) -> None:
    with pytest.raises(simnmt.InputError, match="warm_up_requests: "):
        simnmt.run(make_open(requests=300, warm_up_requests=warm_up))


def test_a_percentile_that_the_rest_does_not_know_is_refused(make_open: MakeScenario) -> None:
    with pytest.raises(simnmt.InputError, match="objective: "):
        simnmt.run(make_open(requests=15_000, warm_up_requests=7_500, objective="p99.9"))
