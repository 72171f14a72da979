"""C-NMT that sees queues and batches: what it gains, and where there is nothing to gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simnmt

BATCHES = {"plain": {"kind": "cnmt"}, "reported": {"kind": "cnmt", "batch": "reported"}, "oracle": {}}


def logs(rate_rps: float, network: dict[str, Any], devices: dict[str, Any], policies: dict[str, Any]) -> dict[str, Any]:
    arrivals = {"kind": "poisson", "rate_rps": rate_rps}
    parts = {"devices": devices, "policies": policies, "networks": {"lan": {"rtt": {"constant_ms": 40}} | network}}
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}
    sizes = {"version": 1, "name": "seen", "requests": 2_000, "replications": 1}
    return simnmt.run({**sizes, "workloads": workloads, **parts}).cells[0].logs


def batched(rate_rps: float, batching: dict[str, Any] | None) -> dict[str, Any]:
    """A gateway of many slow workers, which never fills, and a server that may batch, which does."""
    cloud = {"profile": "@cpu1-gru"} | ({} if batching is None else {"batching": batching})
    return logs(rate_rps, {}, {"gateway": {"profile": "@tx2-gru", "workers": 64}, "cloud": cloud}, BATCHES)


@pytest.mark.parametrize(("rate_rps", "kind", "share"), [(40.0, "top_up", 0.85), (20.0, "mini", 0.8)])
def test_the_plain_plane_sends_too_much_to_a_batch_in_flight(rate_rps: float, kind: str, share: float) -> None:
    """It expects each request alone there; with reports of the batch, C-NMT gains, and comes near the oracle."""
    by_policy = batched(rate_rps, {"kind": kind, "size": 32})
    mean_s = {policy: log["latency_s"].mean() for policy, log in by_policy.items()}
    assert by_policy["reported"]["target"].mean() < by_policy["plain"]["target"].mean()
    assert mean_s["reported"] < share * mean_s["plain"]
    assert mean_s["reported"] < 1.05 * mean_s["oracle"]


def test_without_batches_there_is_nothing_to_report() -> None:
    by_policy = batched(20.0, None)
    assert (by_policy["plain"]["target"] == by_policy["reported"]["target"]).all()


def test_where_nothing_waits_seeing_queues_changes_no_decision_even_on_a_thin_uplink() -> None:
    """Most of the transfer is uplink, so half of the estimate is no time of entry; only durations may count (CNMT-11)."""
    devices = {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}}
    policies = {"cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}
    plain, aware = logs(0.01, {"uplink_mbps": 0.02, "downlink_mbps": 100}, devices, policies).values()
    assert (np.maximum(plain["t_queue_s"], aware["t_queue_s"]) == 0.0).mean() > 0.99
    assert 0.02 < plain["target"].mean() < 0.98
    # A wait at the gateway itself may still turn one or the other away.
    assert (plain["target"] != aware["target"]).mean() < 0.01
