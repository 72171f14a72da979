"""What `warm_up` leaves out of a run's numbers: the same requests for every policy, all of them counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.results.warm_up import mser5_cut

MakeScenario = Callable[..., dict[str, Any]]
POLICIES: dict[str, Any] = {"edge": {}, "cloud": {}, "cnmt": {}}


@pytest.fixture
def make_open(make_scenario: MakeScenario) -> MakeScenario:
    """Builds a busy open loop; keywords replace top-level keys, `arrivals` those of the workload."""

    def make(arrivals: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        arrivals = arrivals or {"kind": "poisson", "rate_rps": 4.5}
        workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}
        defaults = {"requests": 1_200, "policies": POLICIES, "warm_up": "mser5"}
        return make_scenario(workloads=workloads, **defaults | keys)

    return make


def cuts(result: simnmt.Run) -> dict[str, list[float]]:
    return {row["policy"]: row["warm_up_requests"] for row in result.summary_rows}


def test_all_policies_of_a_replication_lose_the_longest_warm_up_of_any(make_open: MakeScenario) -> None:
    result = simnmt.run(make_open(replications=1))
    logs = result.cells[0].logs
    longest = max(mser5_cut(log["latency_s"]) for log in logs.values())
    assert longest > 0 and cuts(result) == dict.fromkeys(POLICIES, longest)
    for row in result.summary_rows:
        log = {name: column[longest:] for name, column in logs[row["policy"]].items()}
        start_s = log["arrival_s"][0]
        end_s = (log["arrival_s"] + log["latency_s"]).max()
        assert row["requests"] == 1_200 == longest + len(log["latency_s"])
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


def test_finite_series_keep_every_request_unless_a_number_is_given(make_open: MakeScenario, tmp_path: Path) -> None:
    moments_s = np.cumsum(np.random.default_rng(1).exponential(0.25, 400))
    (tmp_path / "trace.csv").write_text("time_s\n" + "\n".join(f"{moment_s:.3f}" for moment_s in moments_s) + "\n")
    recorded = {"kind": "recorded", "file": str(tmp_path / "trace.csv")}
    for arrivals in (recorded, {"kind": "back_to_back"}):
        scenario = make_open(arrivals=arrivals, requests=300)
        assert set(cuts(simnmt.run(scenario)).values()) == {0.0}
        assert set(cuts(simnmt.run(scenario | {"warm_up": {"requests": 20}})).values()) == {20.0}


def test_runs_with_different_cuts_are_compared_by_their_means(make_open: MakeScenario) -> None:
    whole, cut = (simnmt.run(make_open(warm_up=warm_up)) for warm_up in ("none", {"requests": 600}))
    changes = {row["policy"]: row["change_percent"] for row in simnmt.compare(whole, cut).changes}
    for before, after in zip(whole.summary_rows, cut.summary_rows, strict=True):
        expected = 100.0 * (after["mean_latency_s"] / before["mean_latency_s"] - 1.0)
        assert changes[before["policy"]] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("warm_up", "complaint"),
    [
        ("mser", "warm_up"),
        (5, "warm_up"),
        ({"requests": 300}, "warm_up: "),
        ({"requests": -1}, "warm_up.requests: "),
        ({"request": 5}, "warm_up.request: "),
    ],
)
def test_a_warm_up_that_cannot_be_is_refused(make_open: MakeScenario, warm_up: object, complaint: str) -> None:
    with pytest.raises(simnmt.InputError, match=complaint):
        simnmt.run(make_open(requests=300, warm_up=warm_up))


def test_a_percentile_that_the_rest_may_not_know_is_refused(make_open: MakeScenario) -> None:
    with pytest.raises(simnmt.InputError, match="objective: "):
        simnmt.run(make_open(requests=15_000, objective="p99.9"))
