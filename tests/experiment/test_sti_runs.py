"""Whole runs of a gateway that streams its model: what its columns say, who foresees what, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.results.columns import STREAMED_COLUMNS
from tests.experiment.streamed_profile import STI, TEXT, streamed_profile, written

OTHER_DISCIPLINES = {
    "back to back": "{kind: back_to_back}",
    "clients": "{kind: clients, clients: 3, think_time: {mean_s: 20}}",
    "poisson": "{kind: poisson, rate_rps: 0.05}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("streamed runs")
    written(made, streamed_profile())
    (made / "s.yaml").write_text(TEXT, encoding="utf-8")
    return made


def run(folder: Path, *overrides: str, **options: Any) -> simnmt.Run:
    return simnmt.run(folder / "s.yaml", overrides=overrides, **options)


@pytest.fixture(scope="module")
def result(folder: Path) -> simnmt.Run:
    return run(folder, "policies.half={kind: naive}", "networks.n.rtt={constant_ms: 300}", requests=3000)


def log_of(result: simnmt.Run, policy: str) -> pd.DataFrame:
    return result.requests.query("policy == @policy")


def test_the_log_holds_the_state_of_the_model_and_the_stall_of_each_request(result: simnmt.Run) -> None:
    edge = log_of(result, "edge")
    assert list(STREAMED_COLUMNS) == ["state", "stall_s", "deadline_missed"]
    assert set(edge.state) == {0, 1, 2}
    assert edge.iloc[0].state == 0, "the first ever finds nothing in memory"
    assert (edge.stall_s[edge.state == 2] == 0.0).all(), "everything is held by then"
    assert (edge.stall_s[edge.state == 0] > 0.0).all()
    assert edge.deadline_missed.equals((edge.t_queue_s + edge.t_exe_s > 0.9) & edge.deadline_missed)
    cloud = log_of(result, "cloud")
    assert (cloud.state == -1).all() and (cloud.stall_s == 0.0).all() and not cloud.deadline_missed.any()


def test_a_tighter_deadline_from_the_middle_of_a_run_on_holds_for_later_requests(folder: Path) -> None:
    """STI-18: requests after the change compute less, and are late by the new deadline."""
    changed = run(folder, "devices.gateway.sti.changes=[{at_s: 5000, deadline_ms: 500}]", requests=400)
    before, after = (log_of(result, "edge") for result in (run(folder, requests=400), changed))
    early = (before.arrival_s < 5000.0).to_numpy()
    assert early.sum() > 50 and (~early).sum() > 50
    pd.testing.assert_frame_equal(before[early], after[early], check_dtype=False)
    computed_s = [frame.t_exe_s[~early] - frame.stall_s[~early] for frame in (before, after)]
    assert (computed_s[1] < computed_s[0]).all()
    first = after[~early].iloc[0]
    assert first.state in (0, 1), "a change ends the engagement"
    [planned] = [device for device in changed.cells[0].planned if device is not None]
    assert planned.as_json()["plannings"] == 2
    assert changed.document()["plans"][0]["plannings"] == 2


def test_states_follow_from_the_times_between_requests(result: simnmt.Run) -> None:
    """By hand: reclaimed after 300 s idle, a new engagement after 30 s."""
    edge = log_of(result, "edge")
    end_s = edge.arrival_s + edge.t_queue_s + edge.t_exe_s
    begin_s = edge.arrival_s + edge.t_queue_s
    idle_s = (begin_s - end_s.shift()).to_numpy()[1:]
    state = edge.state.to_numpy()
    expected = np.where(idle_s > 300.0, 0, np.where(idle_s > 30.0, 1, 2))
    assert np.array_equal(state[1:], expected)


def test_the_summary_of_streaming_adds_up_the_requests(result: simnmt.Run) -> None:
    edge, account = log_of(result, "edge"), result.cells[0].streams["edge"][0]
    assert account is not None
    by_state = edge.groupby("state")
    assert account.requests.tolist() == by_state.size().tolist()
    assert account.execution_s == pytest.approx(by_state.t_exe_s.sum().to_numpy())
    assert account.stall_s == pytest.approx(by_state.stall_s.sum().to_numpy())
    assert account.missed.tolist() == by_state.deadline_missed.sum().tolist()
    row = run_row(result, "edge")
    assert 0.0 < row["gateway_cold_share"] < 0.5 and 0.0 < row["gateway_stall_share"] < 1.0
    assert row["gateway_cold_mean_s"] > row["gateway_first_turn_mean_s"] > row["gateway_later_turn_mean_s"]
    assert row["gateway_peak_buffer_bytes"] <= 20e6
    assert row["gateway_mean_buffer_bytes"] < row["gateway_peak_buffer_bytes"]
    assert row["gateway_compute_busy_share"] + row["gateway_disk_busy_share"] < 1.0, "an idle box"
    assert run_row(result, "cloud")["gateway_cold_share"] is None


def run_row(result: simnmt.Run, policy: str) -> dict[str, Any]:
    return next(row for row in result.summary_rows if row["policy"] == policy)


def test_the_content_of_buffers_counts_until_the_last_answer(folder: Path) -> None:
    """Of two gateways one is idle when the other ends the run; by hand from the executions, all shards being kept."""
    devices = ("devices.gateway.count=2", "devices.gateway.sti={deadline_ms: 900, preload_mb: 1000}", "workloads.w.end_nodes=2")
    outcome = run(folder, *devices, requests=300, replications=1)
    log, planned = log_of(outcome, "edge"), outcome.cells[0].planned[0]
    assert planned is not None
    first = planned.states[1]
    assert first.read_bytes == 0, "everything is held, in an engagement and after it"
    end_s = float((log.arrival_s + log.latency_s).max())
    held_s, idle_s = 0.0, []
    for _, box in log.groupby("server"):
        begin_s = (box.arrival_s + box.t_queue_s).to_numpy()
        pauses_s = np.r_[begin_s[1:], end_s] - begin_s - box.t_exe_s.to_numpy()
        held_s += np.minimum(pauses_s, 300.0).sum() + box.t_exe_s[box.state > 0].sum()
        idle_s.append(pauses_s[-1])
    assert min(idle_s) == pytest.approx(0.0, abs=1e-6) and 1.0 < max(idle_s) < 300.0
    held_bytes = run_row(outcome, "edge")["gateway_mean_buffer_bytes"]
    assert held_bytes == pytest.approx(first.held_bytes * held_s / (2 * end_s), rel=1e-9)


def test_a_plane_of_the_warm_model_loses_on_cold_requests(folder: Path) -> None:
    """XP-04: what a cold request loses is foreseen by an oracle of that moment; engagements of one turn, so that nobody profits
    of a box that others have warmed."""
    one_turn = ("workloads.w.arrivals.turns=[1.0]", "networks.n.rtt={constant_ms: 120}", "foresee_misroutes=true")
    cheap = ("devices.gateway.sti={deadline_ms: 500, preload_mb: 0, keeps_preload: false}",)
    outcome = run(folder, *one_turn, *cheap, requests=2500, replications=3)
    regret_s = {policy: run_row(outcome, policy)["gateway_cold_decision_regret_s"] for policy in ("oracle", "cnmt", "knowing")}
    assert regret_s["cnmt"] > 0.03, "30 ms and more of each"
    assert regret_s["knowing"] is None or regret_s["knowing"] < regret_s["cnmt"] / 5
    total = {row["policy"]: row["total_latency_s"] for row in outcome.summary_rows}
    assert total["oracle"] <= total["knowing"] < total["cnmt"]
    comparison = next(c for c in outcome.comparisons if (c["policy"], c["baseline"]) == ("knowing", "cnmt"))
    assert comparison["effect"] == "faster"


@pytest.mark.parametrize("arrivals", OTHER_DISCIPLINES.values(), ids=OTHER_DISCIPLINES.keys())
def test_every_discipline_meets_states_and_an_oracle_that_sees_them(folder: Path, arrivals: str) -> None:
    outcome = run(folder, f"workloads.w.arrivals={arrivals}", requests=300, replications=1)
    for row in outcome.summary_rows:
        assert run_row(outcome, "oracle")["total_latency_s"] <= row["total_latency_s"] * (1 + 1e-9)
    assert log_of(outcome, "edge").state.iloc[0] == 0


def test_any_tier_may_stream_behind_any_balancer(folder: Path) -> None:
    """End nodes and a cloud of three boxes, each with a memory of its own."""
    outcome = run(
        folder,
        f"devices={{end_node: {{profile: phone.json, {STI}}}, cloud: {{profile: phone.json, {STI}}}}}",
        "devices.cloud.count=3",
        "devices.cloud.balancer=two_choices",
        "workloads.w.end_nodes=4",
        requests=300,
        replications=1,
    )
    for policy, target in (("edge", 0), ("cloud", 1)):
        log = log_of(outcome, policy)
        first = log.groupby("server").state.first()
        assert (first == 0).all() and len(first) == (4 if target == 0 else 3)
    assert run_row(outcome, "cloud")["cloud_cold_share"] > 0.0


def test_the_gap_analysis_and_foreseen_misroutes_run_with_states(folder: Path) -> None:
    outcome = run(
        folder, "gap_analysis=true", "foresee_misroutes=true", "networks.n.rtt={constant_ms: 300}", requests=400, replications=2
    )
    assert run_row(outcome, "oracle")["misrouted_share"] == 0.0
    assert run_row(outcome, "cnmt")["misrouted_share"] > 0.0
    assert {"nothing", "unseen queues and states", "everything"} <= {gap["removed"] for gap in outcome.gaps}
    back_to_back = ("workloads.w.arrivals={kind: back_to_back}", "networks.n.rtt={constant_ms: 300}")
    back = run(folder, "gap_analysis=true", *back_to_back, requests=100, replications=1)
    assert "unseen states" in {gap["removed"] for gap in back.gaps}
    assert {row["misrouted_share"] for row in back.summary_rows} == {None}, "what a request takes depends on the state"
    judged = run(folder, *back_to_back, "foresee_misroutes=true", requests=100, replications=1)
    assert run_row(judged, "oracle")["misrouted_share"] == 0.0
