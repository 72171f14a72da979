"""Clients that think, ask and wait: who asks when, and what each answer sets off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.devices import Fifo
from simnmt.policies import CLOUD, Decide
from simnmt.results.requests import Requests, Trail
from simnmt.world.reference import Clients, DecideFor, Route, simulate
from tests.worlds import believing, fixed, latency_s, run, two_devices


def route_of(requests: Requests, access_s: NDArray[np.float64] | None = None) -> Route:
    """The requests' own links, and per end node what it takes to the decider and back."""
    (uplink_s,), (downlink_s,) = requests.uplink_s, requests.downlink_s

    def route(request: int, node: int, moment_s: float) -> tuple[tuple[float], tuple[float], float, float]:
        there_s, back_s = (0.0, 0.0) if access_s is None else access_s[node].tolist()
        return (float(uplink_s[request]),), (float(downlink_s[request]),), there_s, back_s

    return route


def loop(
    requests: Requests,
    decide_for: DecideFor,
    think_s: Sequence[float] | NDArray[np.float64],
    nodes: int = 1,
    access_s: NDArray[np.float64] | None = None,
    told: bool = False,
) -> Trail:
    """As many clients as there are more thoughts than requests."""
    clients = Clients(len(think_s) - len(requests), nodes, np.array(think_s, np.float64))
    route = route_of(requests, access_s)
    return simulate(requests, decide_for, believing(0.5, clairvoyant=told), [Fifo()], route=route, clients=clients)


def random_world(requests: int = 2_000) -> Requests:
    random = np.random.default_rng(8)
    times_s = random.exponential((0.3, 0.2, 0.05, 0.05), (requests, 4)).T
    return two_devices(np.arange(requests), *times_s)


def test_each_client_asks_when_it_has_thought_since_it_had_its_last_answer() -> None:
    """Client c sits at node c here, so the nodes tell who asked; the thought after request i is number clients + i."""
    requests, clients = random_world(), 7
    random = np.random.default_rng(9)
    think_s, access_s = random.exponential(0.4, clients + len(requests)), random.exponential(0.02, (clients, 2))
    trail = loop(requests, lambda block: lambda request, delay_s: request % 2, think_s, clients, access_s)
    assert trail.node is not None
    there_s, back_s = access_s[trail.node].T
    np.testing.assert_allclose(trail.decided_s, trail.arrival_s + there_s, rtol=0, atol=1e-12)
    answered_s = trail.decided_s + latency_s(requests, trail) + back_s
    for client in range(clients):
        own = np.flatnonzero(trail.node == client)
        assert len(own) > 100
        assert trail.arrival_s[own[0]] == think_s[client]
        thought_s = think_s[clients + own[:-1]]
        np.testing.assert_allclose(trail.arrival_s[own[1:]], answered_s[own[:-1]] + thought_s, rtol=0, atol=1e-9)


def test_one_client_that_never_thinks_is_back_to_back() -> None:
    requests = random_world()
    decide_for: DecideFor = lambda block: lambda request, delay_s: int(delay_s[1] < 0.1 or request % 3 == 0)  # noqa: E731
    alone = loop(requests, decide_for, np.zeros(len(requests) + 1))
    in_turn = run(requests, decide_for, 0.5)
    np.testing.assert_array_equal(alone.target, in_turn.target)
    assert 0.2 < alone.target.mean() < 0.9
    for name in ("arrival_s", "estimate_s", "measured_at_s", "queue_s"):
        np.testing.assert_allclose(getattr(alone, name), getattr(in_turn, name), rtol=0, atol=1e-9, err_msg=name)


def test_a_request_that_reaches_its_decider_while_a_client_of_the_same_number_asks_goes_first() -> None:
    """Requests and thoughts are numbered apart; the clock once held both as one kind, and could not order them."""
    requests = two_devices(np.arange(4), np.full(4, 3.0), np.ones(4), np.zeros(4), np.zeros(4))
    access_s = np.array([[1.0, 0.0], [1.0, 0.0]])
    # Client 0's request 0 is at the gateway from 1 to 4, client 1's request 1 in the cloud from 1 to 2. Client 1 thinks for
    # 1 s: its request 2 is at the gateway at 4, in the moment in which client 0 asks, whose thought is number 2 too.
    trail = loop(requests, fixed(0, 1, 1, 1), [0, 0, 0, 1, 0, 0], nodes=2, access_s=access_s)
    assert trail.arrival_s.tolist() == [0.0, 0.0, 3.0, 4.0]
    assert trail.decided_s.tolist() == [1.0, 1.0, 4.0, 5.0]
    assert trail.node.tolist() == [0, 1, 1, 0]


def test_who_comes_late_to_its_decider_keeps_its_number_at_the_server() -> None:
    """Request 0 is slow to the gateway and reaches the server with request 1, sent before: it goes first, and is told so."""
    requests = two_devices(np.arange(2), np.full(2, 9.0), np.full(2, 4.0), np.array([1.0, 2.0]), np.zeros(2))
    handed = []

    def decide_for(block: Requests) -> Decide:
        def decide(request: int, delay_s: Sequence[float]) -> int:
            handed.append((request, tuple(delay_s)))
            return CLOUD

        return decide

    access_s = np.array([[2.0, 0.0], [0.0, 0.0]])
    trail = loop(requests, decide_for, [0, 1, 50, 50], nodes=2, access_s=access_s, told=True)
    assert trail.decided_s.tolist() == [2.0, 1.0]
    assert handed == [(1, (0.0, 2.0)), (0, (0.0, 1.0))]
    assert trail.queue_s.tolist() == [0.0, 4.0]
