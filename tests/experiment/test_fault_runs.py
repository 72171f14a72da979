"""Faults in whole scenarios: what the summary counts, and that all policies meet the same faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.results.requests import LOST


def scenario(**keys: Any) -> dict[str, Any]:
    """A gateway before a box that fails, over a link that is down at times."""
    base: dict[str, Any] = {
        "version": 1,
        "name": "faults",
        "requests": 800,
        "replications": 2,
        "fit": {"inferences": 500},
        "workloads": {
            "w": {
                "lengths": "@de-en-news",
                "arrivals": {"kind": "poisson", "rate_rps": 15.0},
                "end_nodes": 20,
                "deadline_ms": 60_000.0,
            }
        },
        "networks": {"n": {"rtt": {"constant_ms": 20}, "outages": {"mean_between_s": 20.0, "mean_duration_s": 2.0}}},
        "devices": {
            "gateway": {"profile": "@tx2-bilstm", "count": 20},
            "cloud": {"profile": "@titan-xp-bilstm", "failures": {"mttf_s": 5.0, "mttr_s": 2.5}},
        },
        "policies": {"cloud": {}, "cnmt": {}, "edge": {}},
    }
    return base | keys


@pytest.fixture(scope="module")
def result() -> Any:
    return simnmt.run(scenario())


@pytest.fixture(scope="module")
def falling_back() -> Any:
    return simnmt.run(scenario(late_answers={"timeout_ms": 400.0, "leave_out": False}))


def test_lost_requests_have_no_times_and_stand_beside_the_latencies_of_the_others(result: Any) -> None:
    cloud = result.requests.query("policy == 'cloud'")
    lost = cloud["outcome"] == LOST
    assert 0.02 < lost.mean() < 0.9
    assert cloud.loc[lost, ["t_queue_s", "t_exe_s", "t_tx_s", "latency_s"]].isna().all(axis=None)
    assert cloud.loc[~lost, "latency_s"].notna().all()
    row = result.rows.set_index("policy").loc["cloud"]
    assert row["answered_share"] + row["lost_share"] == pytest.approx(1.0)
    assert row["total_latency_s"] == pytest.approx(row["mean_latency_s"] * 800, rel=0.02)
    assert row["mean_latency_s"] > 0.0


def test_a_lost_request_meets_no_deadline_and_is_no_goodput(result: Any) -> None:
    """However late the deadline is."""
    row = result.rows.set_index("policy").loc["cloud"]
    assert row["deadline_met_share"] == pytest.approx(row["answered_share"])
    assert row["goodput_rps"] == pytest.approx(row["throughput_rps"])
    assert [warning for warning in result.warnings if "requests are lost" in warning]
    assert set(result.engines.values()) == {"reference"} and all(result.engine_reasons.values())
    edge = result.rows.set_index("policy").loc["edge"]
    assert (edge["lost_share"], edge["failed_executions_per_request"]) == (0.0, 0.0)


def test_all_policies_meet_the_same_faults(result: Any) -> None:
    again = simnmt.run(scenario(policies={"cloud": {}}))
    assert again.rows["cloud_availability"].item() == result.rows.set_index("policy").loc["cloud", "cloud_availability"]
    ours, alone = result.requests.query("policy == 'cloud'"), again.requests
    np.testing.assert_array_equal(ours["outcome"], alone["outcome"])
    np.testing.assert_array_equal(ours["latency_s"], alone["latency_s"])


def test_boxes_are_up_for_their_mttf_over_mttf_and_mttr() -> None:
    long = scenario(requests=10_000, replications=1, policies={"edge": {}})
    long["workloads"]["w"]["arrivals"]["rate_rps"] = 1.0
    long["devices"]["cloud"]["count"] = 8
    row = simnmt.run(long).rows.iloc[0]
    assert row["cloud_availability"] == pytest.approx(20 / 30, abs=0.01)


def test_nothing_is_lost_with_a_timeout(falling_back: Any, result: Any) -> None:
    rows = falling_back.rows.set_index("policy")
    assert rows.loc["cloud", "answered_share"] == 1.0
    assert rows.loc["cloud", "fallback_share"] > 0.05
    assert rows.loc["cloud", "gateway_share"] == pytest.approx(rows.loc["cloud", "fallback_share"])
    assert not any("requests are lost" in warning for warning in falling_back.warnings)
    cloud = falling_back.requests.query("policy == 'cloud'")
    fell_back = cloud["outcome"] == 1
    assert (cloud.loc[fell_back, "target"] == 0).all()
    assert cloud.loc[fell_back, "t_tx_s"].max() <= 0.4 + 1e-9


def test_a_cloud_that_is_left_out_loses_fewer_requests_and_the_page_says_for_how_long(falling_back: Any) -> None:
    result = simnmt.run(scenario(late_answers={"timeout_ms": 400.0}, policies={"cloud": {}, "oracle": {}}))
    rows, unaware = result.rows.set_index("policy"), falling_back.rows.set_index("policy")
    assert rows.loc["cloud", "fallback_share"] < 0.5 * unaware.loc["cloud", "fallback_share"]
    assert rows.loc["cloud", "gateway_share"] > unaware.loc["cloud", "gateway_share"]
    assert 0.0 < rows.loc["cloud", "cloud_left_out_s"] < rows.loc["cloud", "makespan_s"]
    assert rows.loc["cloud", "cloud_left_out_times"] > 1.0
    assert (rows.loc["oracle", ["cloud_left_out_times", "cloud_left_out_s"]] == 0.0).all(), "it knows the truth"
    assert "gateway_left_out_s" not in rows and "cloud_left_out_s" not in unaware
    (note,) = [note for note in result.notes if "cloud was left out" in note]
    assert "oracle" not in note


def test_the_mean_transfer_time_behind_a_verdict_does_not_depend_on_which_requests_policies_offload(result: Any) -> None:
    alone = simnmt.run(scenario(policies={"cloud": {}}))
    of_all, of_one = (run.recommendations[0]["reason"]["transfer_s"] for run in (result, alone))
    assert of_all == of_one == pytest.approx(0.020, rel=0.01)


@pytest.mark.parametrize(("begin_s", "warm_up"), [(0.0, 0), (5.0, 200)])
def test_a_run_without_any_answer_after_its_warm_up_is_refused(begin_s: float, warm_up: Any) -> None:
    dead = scenario(policies={"cloud": {}}, warm_up_requests=warm_up)
    dead["devices"]["cloud"]["failures"] = {"intervals_s": [[begin_s, 1e9]]}
    with pytest.raises(simnmt.InputError):
        simnmt.run(dead)
