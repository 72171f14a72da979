"""Open loop, one gateway and one cloud: invariants one by one, and ties worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import simpy
from numpy.typing import NDArray

from simnmt.policies import CLOUD, GATEWAY, CNmt, Decide
from simnmt.results import requests as requests_module
from simnmt.results.requests import Requests, Trail
from simnmt.world.clock import ARRIVAL, REACHES_SERVER
from tests import worlds
from tests.worlds import columns, everything_to, fixed, two_devices

COLUMNS = ("arrival_s", "target", "server", "queue_s", "estimate_s")


def random_world(seed: int = 1, requests: int = 3_000, rate_rps: float = 12.0) -> Requests:
    """A busy world whose uplinks let requests overtake each other."""
    random = np.random.default_rng(seed)
    src_len = random.integers(1, 60, requests)
    gateway_s, cloud_s = (src_len * token_s * random.lognormal(0, 0.2, requests) for token_s in (0.008, 0.004))
    uplink_s, downlink_s = 0.02 * random.lognormal(0, 1.0, (2, requests))
    arrival_s = np.cumsum(random.exponential(1 / rate_rps, requests))
    return two_devices(src_len, gateway_s, cloud_s, uplink_s, downlink_s, arrival_s)


class _Plane:
    def __init__(self, s_per_src_token: float) -> None:
        self.s_per_src_token = s_per_src_token

    def seconds(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.s_per_src_token * src_len


def believes(block: Requests) -> Decide:
    """C-NMT that knows the planes of `random_world`."""
    return CNmt((_Plane(0.008), _Plane(0.004)), lambda src_len: src_len * 1.0).prepare(block.src_len)


def run(requests: Requests, workers: int = 1) -> Trail:
    return worlds.run(requests, believes, 0.05, workers=workers)


def spans(requests: Requests, trail: Trail) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """When each request joined its device's queue, began to execute, and was done there."""
    joined_s = trail.arrival_s + np.where(trail.target == CLOUD, requests.uplink_s[0], 0.0)
    begun_s = joined_s + trail.queue_s
    return joined_s, begun_s, begun_s + np.choose(trail.target, requests.execution_s)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_request_ends_once_on_one_device(workers: int) -> None:
    requests = random_world()
    trail = run(requests, workers)
    for name in COLUMNS:
        assert len(getattr(trail, name)) == len(requests), name
    assert set(np.unique(trail.target)) == {GATEWAY, CLOUD}
    assert np.isfinite(np.concatenate([trail.queue_s, trail.estimate_s, trail.measured_at_s])).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_waits_less_than_no_time_or_hears_of_the_future(workers: int) -> None:
    requests = random_world()
    trail = run(requests, workers)
    assert (trail.queue_s >= 0.0).all()
    assert (trail.queue_s > 0.0).mean() > 0.2
    assert (trail.measured_at_s <= trail.arrival_s).all()
    assert (np.diff(trail.measured_at_s) >= 0.0).all()
    assert (np.diff(trail.arrival_s) >= 0.0).all()


@pytest.mark.parametrize("workers", [1, 3])
def test_every_estimate_is_the_transfer_time_of_the_request_answered_last(workers: int) -> None:
    requests = random_world()
    trail = run(requests, workers)
    away = np.flatnonzero(trail.target == CLOUD)
    answered_s = (spans(requests, trail)[2] + requests.downlink_s[0])[away]
    transfer_s = (requests.uplink_s[0] + requests.downlink_s[0])[away]
    order = np.argsort(answered_s)
    last = np.searchsorted(answered_s[order], trail.arrival_s, side="right") - 1
    known = last >= 0
    assert (trail.estimate_s[~known] == 0.05).all()
    np.testing.assert_allclose(trail.estimate_s[known], transfer_s[order][last[known]], rtol=0, atol=1e-9)
    np.testing.assert_allclose(trail.measured_at_s[known], answered_s[order][last[known]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
def test_both_devices_are_first_in_first_out_and_never_idle_while_somebody_waits(workers: int) -> None:
    requests = random_world(rate_rps=16.0)
    trail = run(requests, workers)
    overtook = False
    for device, places in ((GATEWAY, 1), (CLOUD, workers)):
        own = trail.target == device
        joined_s, begun_s, done_s = (column[own] for column in spans(requests, trail))
        order = np.argsort(joined_s, kind="stable")
        overtook |= bool((np.diff(order) < 0).any())
        joined_s, begun_s, done_s = joined_s[order], begun_s[order], done_s[order]
        assert (np.diff(begun_s) >= -1e-9).all()
        for i in range(1, len(begun_s)):
            # Of those that entered before, fewer than there are workers still run; if it waited, that many did until then.
            earlier = done_s[max(0, i - 400) : i]
            assert (earlier > begun_s[i] + 1e-9).sum() < places
            if begun_s[i] > joined_s[i] + 1e-9:
                assert (earlier > begun_s[i] - 1e-9).sum() >= places
    assert overtook


def test_events_happen_in_the_order_of_time_kind_and_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock stands at each of them when it happens, whether it needed an entry in the heap or not."""
    happened: list[tuple[float, int, int]] = []
    environments: list[simpy.Environment] = []
    step = simpy.Environment.step

    def watched(environment: simpy.Environment) -> None:
        environments[:] = [environment]
        if environment._queue and environment._queue[0][1] == REACHES_SERVER:
            happened.append(environment._queue[0][:3])
        step(environment)

    def noting(block: Requests) -> Decide:
        decide = believes(block)

        def noted(request: int, delay_s: Sequence[float]) -> int:
            happened.append((environments[0].now, ARRIVAL, block.first + request))
            return decide(request, delay_s)

        return noted

    monkeypatch.setattr(simpy.Environment, "step", watched)
    requests = random_world(requests=500)
    trail = worlds.run(requests, noting, 0.05)
    assert happened == sorted(happened)
    decided = {request: time_s for time_s, kind, request in happened if kind == ARRIVAL}
    assert [decided[request] for request in range(500)] == trail.arrival_s.tolist()
    reached = [request for _, kind, request in happened if kind == REACHES_SERVER]
    assert sorted(reached) == np.flatnonzero(trail.target == CLOUD).tolist()


@pytest.mark.parametrize("back_to_back", [False, True])
def test_how_many_requests_are_handled_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch, back_to_back: bool) -> None:
    requests = random_world(requests=200)
    if back_to_back:
        requests = replace(requests, arrival_s=None)
    whole = run(requests)
    for block in (1, 7, 199, 200):
        monkeypatch.setattr(requests_module, "BLOCK", block)
        parts = run(requests)
        for name in COLUMNS:
            assert getattr(parts, name).tolist() == getattr(whole, name).tolist(), name


class TestTies:
    def test_requests_that_arrive_together_are_served_by_their_number(self) -> None:
        trail = worlds.run(columns(*[(1.0, 2.0, 9.0, 0.0, 0.0)] * 3), fixed(0, 0, 0), 0.0)
        assert trail.queue_s.tolist() == [0.0, 2.0, 4.0]

    def test_requests_that_reach_the_server_together_are_served_by_their_number(self) -> None:
        """Request 0 takes the slower way, is sent earlier and arrives in the same moment as 1 and 2."""
        requests = columns((0.0, 9.0, 4.0, 3.0, 0.0), (1.0, 9.0, 2.0, 2.0, 0.0), (2.0, 9.0, 1.0, 1.0, 0.0))
        assert worlds.run(requests, fixed(1, 1, 1), 0.0).queue_s.tolist() == [0.0, 4.0, 6.0]
        assert worlds.run(requests, fixed(1, 1, 1), 0.0, workers=2).queue_s.tolist() == [0.0, 0.0, 2.0]

    def test_an_answer_is_heard_by_a_request_that_arrives_in_the_same_moment(self) -> None:
        requests = columns((0.0, 9.0, 1.0, 0.5, 0.5), (2.0, 9.0, 1.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 0), 7.0)
        assert trail.estimate_s.tolist() == [7.0, 1.0]
        assert trail.measured_at_s.tolist() == [0.0, 2.0]

    def test_of_answers_in_one_moment_that_to_the_later_request_counts(self) -> None:
        requests = columns((0.0, 9.0, 1.0, 1.0, 2.0), (1.0, 9.0, 1.0, 1.5, 0.5), (5.0, 9.0, 1.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 1, 0), 7.0, workers=2)
        assert trail.estimate_s.tolist() == [7.0, 7.0, 2.0]

    def test_a_request_that_takes_no_time_at_all_is_answered_before_the_next_of_its_moment(self) -> None:
        requests = columns((1.0, 9.0, 0.0, 0.0, 0.0), (1.0, 9.0, 0.0, 0.0, 0.0))
        trail = worlds.run(requests, fixed(1, 1), 7.0)
        assert trail.estimate_s.tolist() == [7.0, 0.0]
        assert trail.measured_at_s.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
def test_one_request_alone_takes_its_own_time(target: int) -> None:
    requests = columns((3.0, 2.0, 1.0, 0.25, 0.5))
    trail = worlds.run(requests, everything_to(target), 0.1)
    assert trail.arrival_s.tolist() == [3.0]
    assert trail.queue_s.tolist() == [0.0]
    assert trail.target.tolist() == [target]
    assert trail.estimate_s.tolist() == [0.1]


def test_who_finds_a_free_worker_waits_for_exactly_nothing() -> None:
    """To the bit: a wait got by subtraction left 1e-17 s here and there, and with it a share of requests that wait."""
    requests = random_world(rate_rps=12_000.0)
    trail = worlds.run(requests, everything_to(CLOUD), 0.1, workers=len(requests))
    assert not trail.queue_s.any()


def test_who_finds_the_gateway_idle_waits_for_exactly_nothing() -> None:
    requests = replace(random_world(), arrival_s=0.1 + 5.0 * np.arange(3_000))
    trail = worlds.run(requests, everything_to(GATEWAY), 0.1)
    assert not trail.queue_s.any()
