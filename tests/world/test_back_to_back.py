"""The paper's discipline: a request is issued when the one before is answered."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.network.series import RttSeries
from simnmt.policies import CLOUD, GATEWAY, CNmt, Decide, Oracle
from simnmt.profile.execution_plane import ExecutionPlane
from simnmt.results.requests import Requests, Trail
from tests.worlds import latency_s, link_of, run, two_devices

PLANES = (ExecutionPlane(0.001, 0.008, 0.010), ExecutionPlane(0.0002, 0.002, 0.005))
REQUESTS = 4_000


def world(seed: int = 1, rtt_s: NDArray[np.float64] | float | None = None) -> Requests:
    random = np.random.default_rng(seed)
    src_len, tgt_len = random.integers(1, 60, REQUESTS), random.integers(1, 60, REQUESTS)
    gateway_s, cloud_s = (plane.seconds(src_len, tgt_len) * random.lognormal(0, 0.1, REQUESTS) for plane in PLANES)
    rtt = np.broadcast_to(0.1 * random.lognormal(0, 0.15, REQUESTS) if rtt_s is None else rtt_s, REQUESTS)
    return two_devices(src_len, gateway_s, cloud_s, rtt / 2 + src_len * 16e-6, rtt / 2 + tgt_len * 8e-6)


def believes(block: Requests) -> Decide:
    return CNmt(PLANES, lambda src_len: src_len * 1.0).prepare(block.src_len)


def test_the_sum_of_the_latencies_is_the_makespan() -> None:
    requests = world()
    trail = run(requests, believes, 0.1)
    total_s = latency_s(requests, trail)
    assert trail.arrival_s[-1] + total_s[-1] == pytest.approx(total_s.sum(), rel=1e-9)
    np.testing.assert_allclose(np.diff(trail.arrival_s), total_s[:-1], rtol=0, atol=1e-9)
    assert trail.arrival_s[0] == 0.0
    assert not trail.queue_s.any()
    assert 0.2 < trail.target.mean() < 0.8


def test_one_peak_can_lock_the_estimate_for_good() -> None:
    """A peak above every saving is believed for ever: all traffic stays local, so nothing measures anew (CNMT-11)."""
    requests = world(rtt_s=0.1)
    peak = REQUESTS // 2
    peak += int(np.argmax(requests.execution_s[GATEWAY][peak:]))
    requests.uplink_s[0][peak] += 5.0
    trail = run(requests, believes, 0.1)
    assert trail.target[peak] == CLOUD
    assert trail.target[:peak].mean() > 0.4
    assert not trail.target[peak + 1 :].any()
    assert (trail.estimate_s[peak + 1 :] > 5.0).all()


class TestOwnClock:
    """The RTT looked up at the moment of each decision, which the policy itself moves."""

    SERIES = RttSeries("peak", "synthetic", "made up", np.array([0.0, 3.0]), np.array([10.0, 1.0]))
    # 10 s of RTT until 3 s, then 1 s. Here a request takes 4 s at the gateway, 2.5 s and the transfer in the cloud.
    REQUESTS = two_devices(np.array([1, 1, 1]), np.full(3, 4.0), np.full(3, 2.5), np.full(3, 0.125), np.full(3, 0.25))

    def run(self, target: list[int]) -> Trail:
        decide_for = lambda block: lambda request, delay_s: target[request]  # noqa: E731
        return run(self.REQUESTS, decide_for, 9.0, route=link_of(self.REQUESTS, self.SERIES.at_one))

    def test_the_link_takes_its_payload_and_the_rtt_of_the_moment(self) -> None:
        trail = self.run([0, 1, 1])
        # Issued at 4 s, on the trace 1 s of RTT; answered at 7.875 s, one lap and 1.875 s into the trace: 10 s of RTT again.
        assert trail.arrival_s.tolist() == [0.0, 4.0, 7.875]
        assert trail.estimate_s.tolist() == [9.0, 9.0, 1.375]
        assert trail.measured_at_s.tolist() == [0.0, 0.0, 7.875]
        assert self.run([1, 1, 1]).estimate_s.tolist() == [9.0, 10.375, 10.375]

    def test_there_a_slow_choice_can_dodge_a_peak_and_beat_the_oracle(self) -> None:
        """CNMT-02: why the default clock is one that no policy moves."""
        series = RttSeries("peak", "synthetic", "made up", np.array([0.0, 3.0, 100.0]), np.array([1.4, 0.1, 0.1]))
        requests = two_devices(np.array([1, 1]), np.array([4.0, 9.0]), np.array([1.0, 1.0]), np.zeros(2), np.zeros(2))

        def total_s(decide_for: object, clairvoyant: bool) -> float:
            route = link_of(requests, series.at_one)
            trail = run(requests, decide_for, 0.1, clairvoyant=clairvoyant, route=route)  # type: ignore[arg-type]
            here_s, there_s = (column[1] for column in requests.execution_s)
            last_s = there_s + series.at_one(trail.arrival_s[1])
            return float(trail.arrival_s[1] + (last_s if trail.target[1] == CLOUD else here_s))

        oracle_s = total_s(lambda block: Oracle(block.execution_s).prepare(block.src_len), True)
        assert oracle_s == pytest.approx(2.4 + 2.4)
        dodging_s = total_s(lambda block: lambda request, delay_s: request, False)
        assert dodging_s == pytest.approx(4.0 + 1.1)
