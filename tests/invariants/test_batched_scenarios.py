"""What must be true of any scenario in which a device batches; only there is the time to the first token known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simnmt
from simnmt.experiment.targets import saturated_s
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import RequestLog
from tests.units import plan_of

MakeScenario = Callable[..., dict[str, Any]]
ALONE = {"kind": "top_up", "size": 1, "threshold": 0}
KINDS: dict[str, dict[str, Any]] = {
    "mini": {"kind": "mini", "size": 8},
    "maxi": {"kind": "maxi", "size": 8, "collect": 32},
    "top-up": {"kind": "top_up", "size": 8},
    "immediate": {"kind": "top_up", "size": 8, "threshold": "immediate"},
}


def log_of(scenario: dict[str, Any], policy: str = "cloud") -> RequestLog:
    return simnmt.run(scenario).cells[0].logs[policy]


def account_of(result: simnmt.Run, policy: str = "cloud") -> BatchAccount:
    account = result.cells[0].batches[policy][1]
    assert account is not None
    return account


def capacity_rps(scenario: dict[str, Any]) -> float:
    """Requests a second that the cloud of a scenario can take, its batches always full."""
    case = plan_of(scenario).cases["de-en"]
    src_len, tgt_len = case.table.sample(3, 0, "capacity", 4_000)
    decoding = case.targets[1].decoding
    assert decoding is not None
    return 4_000 / saturated_s(decoding, src_len, tgt_len)


def test_alone_in_its_batch_a_request_takes_what_the_plane_says(make_batched: MakeScenario) -> None:
    """XP-01: a batch of one without a queue is the plane; back to back every request is such a batch."""
    alone = make_batched(ALONE, rate_rps=0.05, policies={"cloud": {}}, requests=500, replications=1)
    back_to_back = make_batched(arrivals={"kind": "back_to_back"}, policies={"cloud": {}}, requests=300, replications=1)
    for scenario in (alone, back_to_back):
        log = log_of(scenario)
        assert not log["t_queue_s"].any()
        np.testing.assert_allclose(log["t_exe_s"], 0.0002 * log["src_len"] + 0.002 * log["tgt_len"] + 0.005, rtol=1e-9)
    result = simnmt.run(back_to_back)
    assert np.isnan(result.cells[0].logs["cloud"]["first_token_s"]).all() and result.document()["batches"] == []


def test_with_a_queue_batches_of_one_are_a_first_in_first_out_server(make_batched: MakeScenario) -> None:
    """The same cloud without batches and without residual: the same waits, request by request."""
    scenario = make_batched(ALONE, rate_rps=18.0, policies={"cloud": {}}, requests=800, relative_sd=0.0)
    batched = log_of(scenario)
    del scenario["devices"]["cloud"]["batching"]
    alone = log_of(scenario)
    assert (alone["t_queue_s"] > 0.0).mean() > 0.5
    for name in ("t_queue_s", "t_exe_s", "latency_s"):
        np.testing.assert_allclose(batched[name], alone[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("arrivals", [None, {"kind": "clients", "clients": 12, "think_time": {"mean_s": 0.05}}])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_and_every_part_adds_up(make_batched: MakeScenario, kind: str, arrivals: dict[str, Any] | None) -> None:
    result = simnmt.run(make_batched(KINDS[kind], arrivals=arrivals, requests=400, replications=1))
    for policy, log in result.cells[0].logs.items():
        there = log["target"] == 1
        account = account_of(result, policy)
        assert account.sentences == there.sum()
        assert account.tokens == log["tgt_len"][there].sum()
        assert account.src_tokens == log["src_len"][there].sum() <= account.padded_tokens
        assert (account.steps * np.arange(9)).sum() == account.tokens
        assert account.busy_s == pytest.approx(account.step_s.sum() + account.encode_s + account.refill_s)
        # Between two changes of the batch all those in it are executed.
        assert log["t_exe_s"][there].sum() >= (account.step_s * np.arange(9)).sum() - 1e-9
        np.testing.assert_array_equal(log["latency_s"], log["t_queue_s"] + log["t_exe_s"] + log["t_tx_s"])
        assert (log["t_queue_s"] >= 0.0).all()
        first_s, done_s = log["first_token_s"][there], (log["t_queue_s"] + log["t_exe_s"])[there]
        assert (first_s > log["t_queue_s"][there]).all()
        assert (first_s <= done_s + 1e-9).all()
        assert np.isnan(log["first_token_s"][~there]).all()
        alone_s = 0.0002 * log["src_len"][there] + 0.002 * log["tgt_len"][there] + 0.005
        assert (log["t_exe_s"][there] >= alone_s - 1e-9).all()
    (row,) = [row for row in result.summary_rows if row["policy"] == "cloud"]
    assert 0.0 < row["cloud_busy_share"] <= 1.0
    assert row["cloud_sentences_per_s"] <= row["cloud_busy_sentences_per_s"]
    assert row["cloud_mean_queue_s"] == pytest.approx(row["mean_queue_s"])


@pytest.mark.parametrize("kind", ["mini", "top-up"])
def test_above_a_load_of_one_it_is_unstable_and_below_it_is_not(make_batched: MakeScenario, kind: str) -> None:
    """The load is what came over what could be done with full batches."""
    scenario = make_batched(KINDS[kind], policies={"cloud": {}}, requests=1_500)
    capacity = capacity_rps(scenario)
    for load in (0.8, 1.3):
        scenario["workloads"]["de-en"]["arrivals"]["rate_rps"] = load * capacity
        (row,) = simnmt.run(scenario).summary_rows
        assert row["cloud_load"] == pytest.approx(load, rel=0.06)
        assert row["cloud_busiest_load"] == pytest.approx(row["cloud_load"])
        if load < 1.0:
            assert row["unstable"] is None
            assert row["mean_queue_s"] < 0.5
        else:
            assert row["unstable"] == f"cloud: load {row['cloud_load']:.2f}"
            assert row["cloud_full_share"] > 0.15
            # The wait grows by what the load is above 1, so that on average half of that is waited.
            grown_s = row["backlog_growth"] * 1_500 / row["offered_rps"]
            assert row["mean_queue_s"] == pytest.approx(grown_s / 2, rel=0.3)


@pytest.fixture
def contested(make_batched: MakeScenario) -> dict[str, Any]:
    """A cloud whose batches are so full that many a sentence were better off at its gateway."""
    policies = {"edge": {}, "cloud": {}, "oracle": {}, "cnmt": {}, "reported": {"kind": "cnmt", "batch": "reported"}}
    scenario = make_batched(rate_rps=90.0, requests=400, policies=policies, foresee_misroutes=True)
    scenario["workloads"]["de-en"]["end_nodes"] = scenario["devices"]["gateway"]["count"] = 40
    return scenario


def test_a_policy_that_sees_queues_sees_that_of_a_batch_as_one(contested: dict[str, Any]) -> None:
    """Eight places are no eight workers each as fast as if alone, which is what a queue's mirror would believe."""
    contested["policies"] = {name: {"kind": "cnmt", "sees_backlog": True, "batch": name} for name in ("plain", "reported")}
    logs = simnmt.run(contested, requests=200, replications=1).cells[0].logs
    assert 0 < logs["plain"]["target"].sum() < 200
    np.testing.assert_array_equal(logs["plain"]["latency_s"], logs["reported"]["latency_s"])


def test_a_gap_analysis_removes_unseen_batches_as_it_does_queues(contested: dict[str, Any]) -> None:
    contested |= {"gap_analysis": True, "requests": 150, "foresee_misroutes": False, "replications": 1}
    contested["policies"] = {"reported": contested["policies"]["reported"], "oracle": {}}
    result = simnmt.run(contested)
    by_source = {row["removed"]: row["total_latency_s"] for row in result.gaps}
    assert by_source["nothing"] == result.summary_rows[0]["total_latency_s"]
    assert by_source["everything"] == result.summary_rows[1]["total_latency_s"]
    assert len({round(total_s, 6) for total_s in by_source.values()}) > 3
    assert [(entry["policy"], entry["device"]) for entry in result.document()["batches"]] == [
        ("reported", "cloud"),
        ("oracle", "cloud"),
    ]
    assert {row["misrouted_share"] for row in result.summary_rows} == {None}, "later arrivals join a batch"


def test_first_tokens_are_known_where_every_device_that_a_policy_uses_batches(make_batched: MakeScenario) -> None:
    scenario = make_batched({"kind": "top_up", "size": 8}, policies={"cloud": {}, "edge": {}}, requests=600)
    result = simnmt.run(scenario | {"metrics": ["first_token_p80_ms"], "replications": 1})
    by_policy = result.rows.set_index("policy")
    log = result.cells[0].logs["cloud"]
    without_tokens = (log["tgt_len"] == 0) & np.isnan(log["first_token_s"])
    first_s = np.where(without_tokens, log["latency_s"], log["first_token_s"] + log["t_tx_s"])
    assert by_policy.mean_first_token_s["cloud"] == pytest.approx(first_s.mean())
    assert by_policy.p80_first_token_s["cloud"] == pytest.approx(np.quantile(first_s, 0.8))
    assert (first_s <= log["latency_s"] + 1e-12).all() and first_s.mean() < 0.9 * log["latency_s"].mean()
    assert np.isnan(by_policy.mean_first_token_s["edge"])
    assert result.meets("cloud: first_token_p95_ms<=1e6")
    with pytest.raises(simnmt.InputError):
        result.meets("edge: first_token_ms<=1")
    limited = scenario | {"slo": {"first_token_p95_ms": 1e6}}
    with pytest.raises(simnmt.InputError, match=r"slo\.first_token_p95_ms: "):
        simnmt.run(limited)
    alone = simnmt.run(limited | {"policies": {"cloud": {}}})
    assert alone.recommendations[0]["slo_met"]
