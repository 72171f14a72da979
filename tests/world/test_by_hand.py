"""One gateway and one cloud, worked by hand: ties, requests alone, back to back, clients, and the delays of an oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy import Event

from simnmt.devices import Fifo
from simnmt.devices.device import ARRIVES, Clock
from simnmt.network.series import RttSeries
from simnmt.policies import CNmt, Decide, LeastTotal
from simnmt.profile.cost import Plane
from simnmt.results.requests import Requests, Trail
from simnmt.world.inputs import Clients, DecideFor, Route
from tests.worlds import (
    CLOUD,
    GATEWAY,
    believing,
    columns,
    everything_to,
    fixed,
    in_reference,
    latency_s,
    link_of,
    recording,
    run,
    two_devices,
)

PLANES = (Plane(0.001, 0.008, 0.010), Plane(0.0002, 0.002, 0.005))
REQUESTS = 4_000
OWN_CLOCK = RttSeries("peak", "synthetic", "made up", np.array([0.0, 3.0]), np.array([10.0, 1.0]))
"""10 s until 3 s, then 1 s, and again."""


def believes(block: Requests) -> Decide:
    return CNmt(PLANES, lambda src_len: src_len * 1.0).prepare(block.src_len)


def oracle(block: Requests) -> Decide:
    return LeastTotal(block.execution_s)


def back_to_back(rtt_s: float | None = None) -> Requests:
    """Requests near the planes; the RTT scatters unless it is given."""
    random = np.random.default_rng(1)
    src_len, tgt_len = random.integers(1, 60, REQUESTS), random.integers(1, 60, REQUESTS)
    gateway_s, cloud_s = (plane.seconds(src_len, tgt_len) * random.lognormal(0, 0.1, REQUESTS) for plane in PLANES)
    rtt = np.broadcast_to(0.1 * random.lognormal(0, 0.15, REQUESTS) if rtt_s is None else rtt_s, REQUESTS)
    return two_devices(src_len, gateway_s, cloud_s, rtt / 2 + src_len * 16e-6, rtt / 2 + tgt_len * 8e-6)


class TestTies:
    def test_requests_that_arrive_together_are_served_by_their_number(self) -> None:
        trail = run(columns(*[(1.0, 2.0, 9.0, 0.0, 0.0)] * 3), fixed(0, 0, 0), 0.0)
        assert trail.queue_s.tolist() == [0.0, 2.0, 4.0]

    def test_requests_that_reach_the_server_together_are_served_by_their_number(self) -> None:
        """Request 0 takes the slower way, is sent earlier and arrives in the same moment as 1 and 2."""
        requests = columns((0.0, 9.0, 4.0, 3.0, 0.0), (1.0, 9.0, 2.0, 2.0, 0.0), (2.0, 9.0, 1.0, 1.0, 0.0))
        assert run(requests, fixed(1, 1, 1), 0.0).queue_s.tolist() == [0.0, 4.0, 6.0]
        assert run(requests, fixed(1, 1, 1), 0.0, workers=2).queue_s.tolist() == [0.0, 0.0, 2.0]

    @pytest.mark.parametrize(
        ("rows", "target", "estimate_s", "measured_at_s"),
        [
            # A request that arrives in the same moment hears an answer.
            ([(0.0, 9.0, 1.0, 0.5, 0.5), (2.0, 9.0, 1.0, 0.0, 0.0)], (1, 0), [7.0, 1.0], [0.0, 2.0]),
            # Of answers in one moment that to the later request counts.
            ([(0, 9, 1, 1, 2), (1, 9, 1, 1.5, 0.5), (5, 9, 1, 0, 0)], (1, 1, 0), [7.0, 7.0, 2.0], [0.0, 0.0, 4.0]),
            # A request that takes no time at all is answered before the next of its moment.
            ([(1.0, 9.0, 0.0, 0.0, 0.0)] * 2, (1, 1), [7.0, 0.0], [0.0, 1.0]),
        ],
    )
    def test_answers_are_heard_in_their_moment(
        self, rows: list[tuple[float, ...]], target: tuple[int, ...], estimate_s: list[float], measured_at_s: list[float]
    ) -> None:
        trail = run(columns(*rows), fixed(*target), 7.0, workers=2)
        assert (trail.estimate_s.tolist(), trail.measured_at_s.tolist()) == (estimate_s, measured_at_s)

    def test_a_request_that_reaches_its_decider_goes_before_a_client_of_the_same_number_that_asks(self) -> None:
        """Client 0's request 0 is at the gateway from 1 to 4, client 1's request 1 in the cloud from 1 to 2. Client 1 thinks
        for 1 s: its request 2 is at the gateway at 4, in the moment in which client 0 asks, whose thought is number 2 too."""
        requests = two_devices(np.arange(4), np.full(4, 3.0), np.ones(4), np.zeros(4), np.zeros(4))
        trail = loop(requests, fixed(0, 1, 1, 1), [0, 0, 0, 1, 0, 0], np.array([[1.0, 0.0], [1.0, 0.0]]))
        assert trail.arrival_s.tolist() == [0.0, 0.0, 3.0, 4.0]
        assert trail.decided_s.tolist() == [1.0, 1.0, 4.0, 5.0]
        assert trail.node.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(("target", "gap_s", "workers"), [(GATEWAY, 1.1, 1), (CLOUD, 1e-4, REQUESTS)])
def test_requests_that_meet_an_idle_worker_wait_for_exactly_nothing(target: int, gap_s: float, workers: int) -> None:
    """To the bit: a wait got by subtraction left 1e-17 s here and there, and with it a share of requests that wait."""
    requests = replace(back_to_back(), arrival_s=0.1 + gap_s * np.arange(REQUESTS))
    assert not run(requests, everything_to(target), workers=workers).queue_s.any()


class TestBackToBack:
    def test_one_peak_can_lock_the_estimate_for_good(self) -> None:
        """A peak above every saving is believed for ever: all traffic stays local, so nothing measures anew (CNMT-11)."""
        requests = back_to_back(rtt_s=0.1)
        peak = REQUESTS // 2
        peak += int(np.argmax(requests.execution_s[GATEWAY][peak:]))
        requests.uplink_s[0][peak] += 5.0
        trail = run(requests, believes, 0.1)
        assert trail.target[peak] == CLOUD and trail.target[:peak].mean() > 0.4
        assert not trail.target[peak + 1 :].any()
        assert (trail.estimate_s[peak + 1 :] > 5.0).all()

    def test_on_its_own_clock_the_link_takes_its_payload_and_the_rtt_of_the_moment(self) -> None:
        """A request takes 4 s at the gateway, 2.5 s in the cloud, and 0.375 s of payload."""
        requests = two_devices(np.ones(3, np.int64), np.full(3, 4.0), np.full(3, 2.5), np.full(3, 0.125), np.full(3, 0.25))

        def moved(*target: int) -> Trail:
            decide_for = lambda block: lambda request, delay_s: target[request]  # noqa: E731
            return run(requests, decide_for, 9.0, route=link_of(requests, OWN_CLOCK.at_one))

        trail = moved(0, 1, 1)
        # Issued at 4 s, on the trace 1 s of RTT; answered at 7.875 s, one lap and 1.875 s into the trace: 10 s of RTT again.
        assert trail.arrival_s.tolist() == [0.0, 4.0, 7.875]
        assert trail.estimate_s.tolist() == [9.0, 9.0, 1.375]
        assert trail.measured_at_s.tolist() == [0.0, 0.0, 7.875]
        assert moved(1, 1, 1).estimate_s.tolist() == [9.0, 10.375, 10.375]

    def test_on_its_own_clock_a_slow_choice_can_dodge_a_peak_and_beat_the_oracle(self) -> None:
        """CNMT-02: why the default clock is one that no policy moves."""
        series = RttSeries("peak", "synthetic", "made up", np.array([0.0, 3.0, 100.0]), np.array([1.4, 0.1, 0.1]))
        requests = two_devices(np.array([1, 1]), np.array([4.0, 9.0]), np.array([1.0, 1.0]), np.zeros(2), np.zeros(2))

        def total_s(decide_for: DecideFor, clairvoyant: bool) -> float:
            trail = run(requests, decide_for, 0.1, clairvoyant=clairvoyant, route=link_of(requests, series.at_one))
            assert trail.target[1] == CLOUD
            return float(trail.arrival_s[1] + 1.0 + series.at_one(trail.arrival_s[1]))

        assert total_s(oracle, True) == pytest.approx(2.4 + 2.4)
        assert total_s(lambda block: lambda request, delay_s: request, False) == pytest.approx(4.0 + 1.1)


def loop(
    requests: Requests, decide_for: DecideFor, think_s: Sequence[float], access_s: np.ndarray, clairvoyant: bool = False
) -> Trail:
    """As many clients as there are more thoughts than requests; by end node, seconds to the decider and back."""
    (uplink_s,), (downlink_s,) = requests.uplink_s, requests.downlink_s
    route: Route = lambda request, node, moment_s: (  # noqa: E731
        (float(uplink_s[request]),),
        (float(downlink_s[request]),),
        *access_s[node].tolist(),
    )
    clients = Clients(len(think_s) - len(requests), len(access_s), np.array(think_s, np.float64))
    return in_reference(requests, decide_for, believing(0.5, clairvoyant), [Fifo()], route=route, clients=clients)


class TestClients:
    TIMES_S = np.random.default_rng(8).exponential((0.3, 0.2, 0.05, 0.05), (2_000, 4)).T
    REQUESTS = two_devices(np.arange(2_000), *TIMES_S)

    def test_each_client_asks_when_it_has_thought_since_its_last_answer(self) -> None:
        """Client c sits at node c, so nodes show which client asked; the thought after request i is number clients + i."""
        clients, random = 7, np.random.default_rng(9)
        think_s, access_s = random.exponential(0.4, clients + 2_000), random.exponential(0.02, (clients, 2))
        trail = loop(self.REQUESTS, lambda block: lambda request, delay_s: request % 2, think_s, access_s)
        assert trail.node is not None and (np.diff(trail.arrival_s) >= 0.0).all()
        there_s, back_s = access_s[trail.node].T
        np.testing.assert_allclose(trail.decided_s, trail.arrival_s + there_s, rtol=0, atol=1e-12)
        answered_s = trail.decided_s + latency_s(self.REQUESTS, trail) + back_s
        for client in range(clients):
            asked = np.flatnonzero(trail.node == client)
            assert len(asked) > 100
            assert trail.arrival_s[asked[0]] == think_s[client]
            next_s = answered_s[asked[:-1]] + think_s[clients + asked[:-1]]
            np.testing.assert_allclose(trail.arrival_s[asked[1:]], next_s, rtol=0, atol=1e-9)

    def test_a_request_that_comes_late_to_its_decider_keeps_its_number_at_the_server(self) -> None:
        """Request 0 is slow to the gateway and reaches the server with request 1, sent before: it goes first, foreseen too."""
        requests = two_devices(np.arange(2), np.full(2, 9.0), np.full(2, 4.0), np.array([1.0, 2.0]), np.zeros(2))
        delays, decide_for = recording(fixed(1, 1))
        trail = loop(requests, decide_for, [0, 1, 50, 50], np.array([[2.0, 0.0], [0.0, 0.0]]), clairvoyant=True)
        assert trail.decided_s.tolist() == [2.0, 1.0]
        assert delays == [(0.0, 2.0), (0.0, 1.0)], "of request 1, then of request 0"
        assert trail.queue_s.tolist() == [0.0, 4.0]


EIGHTHS = st.integers(0, 12).map(lambda eighths: eighths / 8)


class TestTrueDelays:
    """With queues the oracle is greedy: it sees the true delays of its own request, and no further."""

    def test_true_delays_worked_by_hand(self) -> None:
        """Requests 0 and 1 go to the cloud, 2 and 4 stay, 3 and 5 go."""
        requests = columns(
            (0, 10, 6, 2, 1),  # both devices idle: transfer 3; reaches the server at 2, holds it until 8
            (1, 10, 4, 2, 1),  # reaches it at 3, waits for 5: delay 8; holds it until 12
            (2, 10, 4, 5, 2),  # would reach it at 7 and wait until 12: delay 7 + 5
            (3, 10, 4, 1, 2),  # gateway busy until 12; would reach the server at 4 and wait for 8
            (6, 10, 4, 1, 1),  # request 3 holds the server from 12 to 16: 2 + 9; gateway as before
            (30, 10, 4, 1, 1),  # gateway busy until 22, server until 16: both idle by now
        )
        delays, decide_for = recording(fixed(1, 1, 0, 1, 0, 1))
        trail = run(requests, decide_for, 0.0, clairvoyant=True)
        assert delays == [(0, 3), (0, 8), (0, 12), (9, 11), (6, 11), (0, 2)]
        assert trail.queue_s.tolist() == [0, 5, 0, 8, 6, 0]

    @settings(derandomize=True, deadline=None, max_examples=80)
    @given(
        st.lists(st.tuples(EIGHTHS, EIGHTHS, EIGHTHS, EIGHTHS, EIGHTHS, st.integers(0, 1)), min_size=1, max_size=20),
        st.integers(1, 3),
    )
    def test_the_delays_are_those_that_the_request_meets_unless_a_later_one_overtakes_it(
        self, rows: list[tuple[float, float, float, float, float, int]], workers: int
    ) -> None:
        """Requests still on the uplink are counted in, each from the moment it reaches the server."""
        gap_s, *times_s, target = np.array(rows).T
        arrival_s = np.cumsum(gap_s)
        requests = columns(*zip(arrival_s, *times_s, strict=True))
        delays, decide_for = recording(fixed(*target.astype(int).tolist()))
        trail = run(requests, decide_for, 0.0, workers=workers, clairvoyant=True)
        entry_s = arrival_s + requests.uplink_s[0]
        foreseen_s = np.array(delays)[np.arange(len(rows)), trail.target]
        ways_s = np.where(trail.target == CLOUD, requests.uplink_s[0] + requests.downlink_s[0], 0.0)
        for request, met_s in enumerate(trail.queue_s + ways_s):
            later = (target[request + 1 :] == CLOUD) & (entry_s[request + 1 :] < entry_s[request])
            if target[request] and later.any():
                assert foreseen_s[request] <= met_s
            else:
                assert foreseen_s[request] == met_s

    def test_the_oracle_may_lose_to_a_policy_that_leaves_a_server_free_for_others(self) -> None:
        """Regret may be negative: the first request is 0.1 s better off at the gateway, and costs the second a second there."""
        requests = columns((0.0, 1.0, 0.9, 0.1, 0.1), (0.0, 1.0, 50.0, 0.1, 0.1))

        def total_s(decide_for: Callable[[Requests], Decide], clairvoyant: bool) -> float:
            return float(latency_s(requests, run(requests, decide_for, 0.2, clairvoyant=clairvoyant)).sum())

        assert total_s(oracle, True) == pytest.approx(1.0 + 2.0)
        assert total_s(fixed(1, 0), False) == pytest.approx(1.1 + 1.0)


def test_an_event_happens_at_its_moment_to_the_bit() -> None:
    """No float added to the first moment gives the second one."""
    clock = Clock()

    def process() -> Iterator[Event]:
        yield clock.moment(1.0 + 2**-52, ARRIVES, 0)
        yield clock.moment(3.0 + 2**-51, ARRIVES, 0)

    clock.process(process())
    clock.run()
    assert clock.now == 3.0 + 2**-51
