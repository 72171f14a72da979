"""What must be true of any scenario's result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simnmt
from simnmt.profile.device_profile import write_profile
from tests.invariants.conftest import POISSON
from tests.units import plan_of, unit_of, watched

MakeScenario = Callable[..., dict[str, Any]]


def rows_by_policy(result: simnmt.Run) -> dict[str, dict[str, Any]]:
    return {row["policy"]: row for row in result.summary_rows}


def test_back_to_back_nothing_waits_and_latencies_add_up_to_the_makespan(paper: simnmt.Run) -> None:
    for policy, log in paper.cells[0].logs.items():
        assert not log["t_queue_s"].any()
        np.testing.assert_array_equal(log["latency_s"], log["t_exe_s"] + log["t_tx_s"])
        end_s = log["arrival_s"][-1] + log["latency_s"][-1]
        assert end_s == pytest.approx(log["latency_s"].sum(), rel=1e-9), policy
        np.testing.assert_allclose(np.diff(log["arrival_s"]), log["latency_s"][:-1], rtol=0, atol=1e-9)
        assert not log["outcome"].any()
    for row in paper.summary_rows:
        assert row["makespan_s"] == pytest.approx(row["total_latency_s"], rel=1e-9)


def test_each_request_is_executed_whole_by_the_device_that_its_row_names(paper: simnmt.Run) -> None:
    """CNMT-01: no part of an inference runs elsewhere, and only a request that leaves the gateway crosses the link."""
    logs = paper.cells[0].logs
    alone_s = np.stack([logs["edge"]["t_exe_s"], logs["cloud"]["t_exe_s"]])
    for policy, log in logs.items():
        np.testing.assert_array_equal(log["t_exe_s"], alone_s[log["target"], np.arange(len(log["target"]))], err_msg=policy)
        np.testing.assert_array_equal(log["t_tx_s"] > 0, log["target"] == 1, err_msg=policy)


def test_back_to_back_no_policy_beats_the_oracle(paper: simnmt.Run) -> None:
    rows = rows_by_policy(paper)
    assert all(row["regret_s"] >= 0.0 for row in paper.summary_rows)
    assert rows["oracle"]["regret_s"] == 0.0
    assert rows["oracle"]["misrouted_share"] == 0.0
    best_s = paper.cells[0].logs["oracle"]["latency_s"]
    for log in paper.cells[0].logs.values():
        assert (best_s <= log["latency_s"]).all()


def test_the_choice_is_worth_making_here(paper: simnmt.Run) -> None:
    """Or the tests of this folder would prove little."""
    rows = rows_by_policy(paper)
    assert 0.2 < rows["oracle"]["offloaded_share"] < 0.8
    assert rows["oracle"]["total_latency_s"] < 0.97 * min(rows["edge"]["total_latency_s"], rows["cloud"]["total_latency_s"])
    assert 0.0 < rows["cnmt"]["misrouted_share"] < 0.3


def test_without_noise_on_a_still_network_with_planes_known_cnmt_errs_by_lengths_alone(make_scenario: MakeScenario) -> None:
    """No other error is left: every wrong choice is a length predicted on the wrong side of the border."""
    still = {"still": {"rtt": {"constant_ms": 90}, "uplink_mbps": 1e6, "downlink_mbps": 1e6}}
    result = simnmt.run(make_scenario(relative_sd=0.0, networks=still, fit={"inferences": 0}))
    log, oracle = (result.cells[0].logs[policy] for policy in ("cnmt", "oracle"))
    wrong = log["target"] != oracle["target"]
    assert 0 < wrong.mean() < 0.2
    gateway, cloud = result.cells[0].planes
    advantage_s = np.array(gateway) - np.array(cloud)

    def saved_s(tgt_len: np.ndarray) -> np.ndarray:
        return advantage_s[0] * log["src_len"] + advantage_s[1] * tgt_len + advantage_s[2] - 0.090

    assert ((saved_s(log["tgt_len_predicted"]) > 0) != (saved_s(log["tgt_len"]) > 0))[wrong].all()


def test_cnmt_reckons_with_the_regression_and_naive_with_the_mean(paper: simnmt.Run) -> None:
    cell = paper.cells[0]
    log = cell.logs["cnmt"]
    line = np.maximum(cell.regression_slope * log["src_len"] + cell.regression_offset, 1.0)
    np.testing.assert_allclose(log["tgt_len_predicted"], line)
    assert len(np.unique(cell.logs["naive"]["tgt_len_predicted"])) == 1
    for policy in ("edge", "cloud", "oracle"):
        assert np.isnan(cell.logs[policy]["tgt_len_predicted"]).all()


def test_an_overridden_slope_changes_the_decisions_of_cnmt_alone(paper: simnmt.Run, make_scenario: MakeScenario) -> None:
    steep = simnmt.run(make_scenario(), overrides=["policies.cnmt.len_slope=0.3", "policies.cnmt.len_offset=1.0"])
    targets = [result.cells[0].logs["cnmt"]["target"] for result in (paper, steep)]
    assert targets[1].mean() < targets[0].mean() - 0.05
    assert (steep.cells[0].regression_slope, steep.cells[0].regression_offset) == (0.3, 1.0)
    for policy in ("edge", "cloud", "oracle", "naive"):
        assert rows_by_policy(paper)[policy] == rows_by_policy(steep)[policy]


def test_on_a_constant_network_the_estimate_is_right_but_for_the_payload(make_scenario: MakeScenario) -> None:
    network = {"rtt": {"constant_ms": 80}, "uplink_mbps": 1.0, "downlink_mbps": 1.0}
    result = simnmt.run(make_scenario(networks={"still": network}))
    log, truth = result.cells[0].logs["cnmt"], result.cells[0].logs["cloud"]["t_tx_s"]
    first = int(np.flatnonzero(log["target"])[0])
    error_s = np.abs(log["rtt_estimate_s"] - truth)[first + 1 :]
    assert 0.0 < error_s.max() <= truth.max() - truth.min() + 1e-12
    # On the clock by which RTT is looked up the request before lies one pace back.
    assert log["rtt_estimate_age_s"][first + 1] == pytest.approx(result.summary_rows[0]["rtt_pace_s"], abs=1e-9)
    assert (log["rtt_estimate_age_s"] >= 0.0).all()
    age_s = {policy: row["mean_estimate_age_s"] for policy, row in rows_by_policy(result).items()}
    assert age_s["cnmt"] > 0.0
    assert (age_s["edge"], age_s["cloud"], age_s["oracle"]) == (None, None, None), "who estimates nothing has no estimate"


@pytest.mark.parametrize("workloads", [None, POISSON], ids=["back to back", "open loop"])
def test_rows_hold_sums_and_quantiles_of_the_requests(make_scenario: MakeScenario, workloads: dict[str, Any] | None) -> None:
    keys = {} if workloads is None else {"workloads": workloads}
    result = simnmt.run(make_scenario(replications=1, **keys))
    assert len(result.summary_rows) == 5
    for row in result.summary_rows:
        log = result.cells[0].logs[row["policy"]]
        np.testing.assert_array_equal(log["latency_s"], log["t_queue_s"] + log["t_exe_s"] + log["t_tx_s"])
        if workloads is not None:
            np.testing.assert_array_equal(log["rtt_time_s"], np.mod(log["arrival_s"], result.cells[0].series.duration_s))
            assert row["mean_queue_s"] > 0.0 and (log["t_queue_s"] >= 0.0).all()
        assert row["total_latency_s"] == log["latency_s"].sum()
        assert row["mean_latency_s"] == log["latency_s"].mean()
        assert row["p95_latency_s"] == np.quantile(log["latency_s"], 0.95)
        assert row["offloaded_share"] == log["target"].mean()
        assert row["mean_queue_s"] == log["t_queue_s"].mean()
        if row["policy"] in ("naive", "cnmt"):
            assert row["mean_estimate_age_s"] == log["rtt_estimate_age_s"].mean()
        truth = [result.cells[0].logs[name] for name in ("edge", "cloud")]
        best = truth[0]["t_exe_s"] > truth[1]["t_exe_s"] + truth[1]["t_tx_s"]
        if row["offered_rps"] is None:
            assert row["misrouted_share"] == pytest.approx((log["target"] != best).mean())
        assert row["p999_latency_s"] is None
        assert row["total_latency_s_low"] is None


def test_summary_json_comparisons_and_recommendation_agree(paper: simnmt.Run) -> None:
    assert paper.directory is not None
    document = json.loads((paper.directory / "summary.json").read_text(encoding="utf-8"))
    assert document == json.loads(json.dumps(paper.document()))
    totals = {row["policy"]: row["total_latency_s"] for row in document["rows"]}
    best, runner_up = sorted((name for name in totals if name != "oracle"), key=totals.__getitem__)[:2]
    (recommended,) = document["recommendations"]
    assert (recommended["policy"], recommended["runner_up"], recommended["objective"]) == (best, runner_up, "mean")
    (pair,) = [pair for pair in document["comparisons"] if (pair["policy"], pair["baseline"]) == (best, runner_up)]
    assert [100 * recommended[key] for key in ("margin", "margin_low", "margin_high")] == pytest.approx(
        [pair[f"{key}_percent"] for key in ("change", "low", "high")]
    )
    assert recommended["margin"] == pytest.approx(totals[best] / totals[runner_up] - 1, abs=5e-3)
    table = pd.read_csv(paper.directory / "summary.csv")
    assert table["policy"].tolist() == list(totals)
    np.testing.assert_allclose(table["total_latency_s"], list(totals.values()))
    assert paper.rows["total_latency_s"].tolist() == list(totals.values())
    for policy, log in paper.cells[0].logs.items():
        np.testing.assert_array_equal(paper.requests[paper.requests.policy == policy]["latency_s"], log["latency_s"])


def test_an_interrupt_in_the_middle_leaves_nothing(tmp_path: Path, make_scenario: MakeScenario) -> None:
    def interrupt(done: int, units: int) -> None:
        raise KeyboardInterrupt

    scenario = make_scenario()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        simnmt.run(scenario, out=tmp_path / "deep" / "run", progress=interrupt)
    assert sorted(tmp_path.iterdir()) == before


def test_the_payload_is_counted_by_the_vocabulary_of_the_server(
    tmp_path: Path, make_scenario: MakeScenario, make_profile: Callable[..., Any]
) -> None:
    """CNMT-03: three bytes a token for 250,000 words, two for 50,000."""
    networks = {"slow": {"rtt": {"constant_ms": 50}, "uplink_mbps": 0.1, "downlink_mbps": 0.1}}
    transfer_s, notes = {}, {}
    for vocab in (50_000, 250_000):
        scenario = make_scenario(networks=networks, requests=50)
        cloud = make_profile((0.0002, 0.002, 0.005), name="cloud", model={"name": f"of {vocab} words", "vocab": vocab})
        write_profile(tmp_path / "cloud.json", cloud)
        result = simnmt.run(scenario)
        log = result.cells[0].logs["cloud"]
        transfer_s[vocab] = log["t_tx_s"]
        tokens = log["src_len"] + log["tgt_len"]
        notes[vocab] = [note for note in result.notes if "different models" in note]
    np.testing.assert_allclose(transfer_s[50_000], 0.05 + 8 * 2 * tokens / 1e5)
    np.testing.assert_allclose(transfer_s[250_000], 0.05 + 8 * 3 * tokens / 1e5)
    assert len(notes[250_000]) == 1


def test_the_first_estimate_is_the_rtt_where_the_replication_begins(
    tmp_path: Path, make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not where the trace begins: the other replications begin elsewhere on it."""
    (tmp_path / "rtt.csv").write_text("time_s,rtt_ms\n" + "".join(f"{second},{10 + second}\n" for second in range(100)))
    networks = {"ramp": {"rtt": str(tmp_path / "rtt.csv")}}

    def begun(policies: dict[str, Any], replications: int) -> list[float]:
        plan = plan_of(make_scenario(networks=networks, requests=20, policies=policies))
        units = [unit_of(plan, replication) for replication in range(replications)]
        return [watched(monkeypatch, unit)[0][0].policy.beliefs[0].estimate(0, 1).value_s for unit in units]

    estimates_s = begun({"cnmt": {}}, 4)
    assert estimates_s[0] == 0.010
    assert len(set(estimates_s)) == 4
    assert begun({"cnmt": {"initial_transfer_ms": 33}}, 2) == [0.033, 0.033]


def test_lengths_that_do_not_determine_a_plane_are_noted(tmp_path: Path, make_scenario: MakeScenario) -> None:
    """CNMT-05: target lengths that follow from source lengths warn, and the run goes on."""
    (tmp_path / "src.txt").write_text("".join("w " * n + "\n" for n in range(1, 31)) * 10)
    (tmp_path / "tgt.txt").write_text("".join("w " * 2 * n + "\n" for n in range(1, 31)) * 10)
    files = {"source": str(tmp_path / "src.txt"), "target": str(tmp_path / "tgt.txt"), "src_unit": "word", "tgt_unit": "word"}
    result = simnmt.run(make_scenario(workloads={"twice": {"lengths": files}}, requests=50))
    assert [note for note in result.notes if "do not determine" in note] != []
    assert {fit["collinear"] for fit in result.fits if "collinear" in fit} == {True}
