"""The RTT clock of requests back to back: its pace, the age of estimates on it, and what a run says of it (CNMT-02)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

import simnmt
from simnmt.experiment.units import run_unit
from tests.invariants.conftest import POISSON
from tests.units import plan_of, unit_of

MakeScenario = Callable[..., dict[str, Any]]


def fluctuating_trace(folder: Path, *, hours: float = 4.0, memory_s: float = 50.0) -> str:
    """Write a trace of 1 s samples: log-normal about 80 ms, autocorrelated with a memory of so many seconds."""
    generator = np.random.default_rng(17)
    samples = round(hours * 3600)
    kept = np.exp(-1.0 / memory_s)
    score = lfilter([np.sqrt(1.0 - kept**2)], [1.0, -kept], generator.standard_normal(samples))
    rtt_ms = 80.0 * np.exp(0.5 * score)
    path = folder / "fluctuating.csv"
    path.write_text("time_s,rtt_ms\n" + "".join(f"{second},{ms:.4f}\n" for second, ms in enumerate(rtt_ms)))
    return str(path)


def by_policy(result: simnmt.Run) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in result.summary_rows}


def test_back_to_back_request_i_meets_the_trace_i_paces_after_its_start(make_scenario: MakeScenario) -> None:
    cell = simnmt.run(make_scenario(requests=300, networks={"cp1": {"rtt": "@cp1", "pace_s": 5_000.0}})).cells[0]
    lap_s = cell.series.duration_s
    assert lap_s < 300 * 5_000.0, "beyond its end the trace repeats"
    for log in cell.logs.values():
        np.testing.assert_allclose(log["rtt_time_s"], np.mod(np.arange(300) * 5_000.0, lap_s))


@pytest.mark.parametrize("access_ms", [None, 40.0])
def test_the_default_pace_is_the_mean_latency_of_everything_on_the_first_target(
    make_scenario: MakeScenario, access_ms: float | None
) -> None:
    network: dict[str, Any] = {"rtt": "@cp1"}
    if access_ms is not None:
        network["hops"] = {"gateway": {"rtt": {"constant_ms": access_ms}}}
    rows = by_policy(simnmt.run(make_scenario(requests=20_000, networks={"cp1": network}, replications=1)))
    paces_s = {row["rtt_pace_s"] for row in rows.values()}
    assert len(paces_s) == 1, "the same for every policy"
    assert paces_s.pop() == pytest.approx(rows["edge"]["mean_latency_s"], rel=0.01)


def test_the_default_pace_depends_neither_on_the_number_of_requests_nor_on_the_replication(make_scenario: MakeScenario) -> None:
    paces_s = set()
    for requests in (10, 700):
        plan = plan_of(make_scenario(requests=requests, policies={"cnmt": {}, "oracle": {}}))
        for replication in (0, 1, 2):
            numbers = run_unit(unit_of(plan, replication)).numbers
            paces_s |= {values["rtt_pace_s"] for values in numbers.values()}
    assert len(paces_s) == 1


@pytest.mark.parametrize("clock", ["pace", "spread"])
@pytest.mark.parametrize("end_nodes", [1, 6])
def test_an_estimate_is_as_old_as_the_lookup_that_it_rests_on(make_tiers: MakeScenario, clock: str, end_nodes: int) -> None:
    """By hand: of each decider, the last request before that it sent to the last target."""
    scenario = make_tiers(arrivals={"kind": "back_to_back"}, end_nodes=end_nodes, requests=800, replications=1)
    scenario["devices"]["gateway"]["count"] = min(3, end_nodes)
    scenario["networks"]["cp1"]["clock"] = clock
    cell = simnmt.run(scenario).cells[0]
    pace_s = cell.series.duration_s / 800 if clock == "spread" else None
    for policy, log in cell.logs.items():
        pace_s = pace_s or float(np.diff(log["rtt_time_s"])[0])
        moments_s = (np.arange(800) + (0.5 if clock == "spread" else 0.0)) * pace_s
        last_s = dict.fromkeys(range(3), 0.0)
        for request in range(800):
            gateway = int(log["node"][request]) % min(3, end_nodes)
            expected_s = moments_s[request] - last_s[gateway]
            assert log["rtt_estimate_age_s"][request] == pytest.approx(expected_s, abs=1e-6), (policy, request)
            if log["target"][request] == 2:
                last_s[gateway] = moments_s[request]
        assert (log["rtt_estimate_age_s"] >= 0.0).all()
    assert (cell.logs["cnmt"]["target"] == 2).any()


@pytest.mark.deep
def test_the_gap_to_the_oracle_does_not_depend_on_the_number_of_requests(make_scenario: MakeScenario, tmp_path: Path) -> None:
    """On 4 h of 1 s samples with 50 s of memory: paced 0.7 and 0.9 % with 500 and 50,000 requests, spread 9.8 % with 500."""
    path = fluctuating_trace(tmp_path)

    def gap(requests: int, clock: str) -> tuple[float, float, float]:
        networks = {"n": {"rtt": path, "clock": clock}}
        policies: dict[str, Any] = {"oracle": {}, "cnmt": {}}
        rows = by_policy(simnmt.run(make_scenario(networks=networks, requests=requests, replications=5, policies=policies)))
        mean, low, high = (rows["cnmt"][f"regret_s{end}"] / rows["oracle"]["total_latency_s"] for end in ("", "_low", "_high"))
        return 100.0 * mean, 100.0 * low, 100.0 * high

    few, many = gap(500, "pace"), gap(50_000, "pace")
    assert few[1] <= many[0] <= few[2]
    assert abs(few[0] - many[0]) < 1.0
    assert gap(500, "spread")[0] > 5.0 * few[0], "what the clock pace is for"


def test_requests_on_the_run_s_own_time_have_no_pace(make_scenario: MakeScenario) -> None:
    for keys in ({"workloads": POISSON}, {"networks": {"cp1": {"rtt": "@cp1", "clock": "own"}}}):
        result = simnmt.run(make_scenario(requests=50, **keys))
        assert {row["rtt_pace_s"] for row in result.summary_rows} == {None}
        assert [note for note in result.notes if "RTT clock" in note] == []
