"""C-NMT: its border between lengths, its rule for a distribution of them, and what it gains by seeing queues and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import simnmt
from simnmt.base import shipped_files
from simnmt.policies import CNmt, kept_lengths
from simnmt.profile.cost import Plane
from simnmt.workload.length_regression import LengthDistribution, LengthRegression
from simnmt.workload.length_table import read_table
from tests.worlds import GATEWAY

PER_TOKEN = st.floats(0.0, 0.02)
PLANES = st.builds(Plane, PER_TOKEN, PER_TOKEN, st.floats(0.0, 0.1))
SRC_LEN = np.arange(1, 401)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(PLANES, PLANES, st.floats(-0.5, 2.0), st.floats(-20.0, 20.0), st.floats(0.0, 0.5))
def test_the_border_parts_lengths_as_the_rule_does(
    gateway: Plane, cloud: Plane, slope: float, offset: float, transfer_s: float
) -> None:
    intervals = kept_lengths(gateway, cloud, LengthRegression(slope, offset), transfer_s)
    decide = CNmt((gateway, cloud), LengthRegression(slope, offset).predict).prepare(SRC_LEN)
    kept = np.array([decide(request, (0.0, transfer_s)) == GATEWAY for request in range(len(SRC_LEN))])
    assert len(intervals) <= 2
    expected = np.zeros(len(SRC_LEN), bool)
    for first, last in intervals:
        expected |= (first <= SRC_LEN) & (last >= SRC_LEN)
    # Where both sides differ by less than rounding, either answer is right.
    tgt_len = np.maximum(slope * SRC_LEN + offset, 1.0)
    margin_s = gateway.seconds(SRC_LEN, tgt_len) - cloud.seconds(SRC_LEN, tgt_len) - transfer_s
    clear = np.abs(margin_s) > 1e-12
    assume(clear.any())
    assert (kept == expected)[clear].all()


TABLE = read_table(shipped_files.find("traces/lengths", "fr-en-mixed"))
DISTRIBUTION = LengthDistribution.of(TABLE)
PERCENTILES = (lambda n: DISTRIBUTION.quantile(n, 0.05), lambda n: DISTRIBUTION.quantile(n, 0.95))
SECONDS = st.floats(-0.02, 0.02)
PLANE = st.builds(Plane, st.floats(0.0, 0.01), SECONDS, st.floats(0.0, 0.5))


def border_s(policy: CNmt, src_len: int) -> float:
    """The transfer time at which the policy is indifferent between two targets; by halving."""
    decide = policy.prepare(np.array([src_len]))
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if decide(0, (0.0, middle)) == 0 else (middle, high)
    return high


@settings(max_examples=40)
@given(PLANE, st.integers(1, 60))
def test_the_p95_rule_takes_the_95th_percentile_of_the_time_rising_or_falling_with_the_length(
    plane: Plane, src_len: int
) -> None:
    """The oracle: lengths drawn evenly from the whole distribution, put through the plane, and sorted."""
    local = Plane(0.0, 0.0, 5.0)
    halved_s = 5.0 - border_s(CNmt((local, plane), DISTRIBUTION.mean, PERCENTILES), src_len)
    drawn = np.array([DISTRIBUTION.quantile(np.array([src_len]), q)[0] for q in (np.arange(300) + 0.5) / 300])
    assert halved_s == pytest.approx(np.quantile(plane.seconds(src_len, drawn), 0.95), abs=0.01 + 0.02 * abs(halved_s))


def logs(rate_rps: float, network: dict[str, Any], devices: dict[str, Any], policies: dict[str, Any]) -> dict[str, Any]:
    arrivals = {"kind": "poisson", "rate_rps": rate_rps}
    parts = {"devices": devices, "policies": policies, "networks": {"lan": {"rtt": {"constant_ms": 40}} | network}}
    workloads = {"de-en": {"lengths": "@de-en-news", "arrivals": arrivals}}
    sizes = {"version": 1, "name": "seen", "requests": 2_000, "replications": 1}
    return simnmt.run({**sizes, "workloads": workloads, **parts}).cells[0].logs


@pytest.mark.parametrize(("rate_rps", "kind", "share"), [(40.0, "top_up", 0.85), (20.0, "mini", 0.8)])
def test_the_plain_plane_sends_too_much_to_a_batch_in_flight(rate_rps: float, kind: str, share: float) -> None:
    """It expects each request alone there; with reports of the batch, C-NMT gains, and comes near the oracle.

    The gateway has many slow workers, and never fills.
    """
    cloud = {"profile": "@cpu1-gru", "batching": {"kind": kind, "size": 32}}
    policies = {"plain": {"kind": "cnmt"}, "reported": {"kind": "cnmt", "batch": "reported"}, "oracle": {}}
    by_policy = logs(rate_rps, {}, {"gateway": {"profile": "@tx2-gru", "workers": 64}, "cloud": cloud}, policies)
    mean_s = {policy: log["latency_s"].mean() for policy, log in by_policy.items()}
    assert by_policy["reported"]["target"].mean() < by_policy["plain"]["target"].mean()
    assert mean_s["reported"] < share * mean_s["plain"]
    assert mean_s["reported"] < 1.05 * mean_s["oracle"]


def test_where_nothing_waits_seeing_queues_changes_no_decision_even_on_a_thin_uplink() -> None:
    """Most of the transfer is uplink, so half of the estimate is no time of entry; only durations may count (CNMT-11)."""
    devices = {"gateway": {"profile": "@tx2-bilstm"}, "cloud": {"profile": "@titan-xp-bilstm"}}
    policies = {"cnmt": {}, "queue-aware": {"kind": "cnmt", "sees_backlog": True}}
    plain, aware = logs(0.01, {"uplink_mbps": 0.02, "downlink_mbps": 100}, devices, policies).values()
    assert (np.maximum(plain["t_queue_s"], aware["t_queue_s"]) == 0.0).mean() > 0.99
    assert 0.02 < plain["target"].mean() < 0.98
    # A wait at the gateway itself may still turn one or the other away.
    assert (plain["target"] != aware["target"]).mean() < 0.01
