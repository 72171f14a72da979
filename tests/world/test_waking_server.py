"""Boxes that wake up after idling: when they do, that it counts as execution, and that an oracle foresees it."""

from __future__ import annotations

from math import expm1
from typing import Any

import numpy as np
import pytest

from simnmt.batching import mini, top_up
from simnmt.results.requests import Requests
from simnmt.world.batch_server import BatchServer
from simnmt.world.fifo_server import FifoPool, WakingPool, WakingServer, WakingServerSpec
from simnmt.world.server import FewestTokens
from simnmt.world.simulation import simulate
from tests.world.decoding import SECONDS
from tests.worlds import believing, columns, everything_to


def half_a_second(idle_s: float) -> float:
    return 0.5


def rising(idle_s: float) -> float:
    return -0.3 * expm1(-idle_s / 0.2)


def asked(requests: int = 400) -> Requests:
    random = np.random.default_rng(3)
    execution_s, (uplink_s, downlink_s) = random.random((2, requests)), 0.05 * random.random((2, requests))
    arrival_s = np.cumsum(random.exponential(1.0, requests))
    lengths, node = np.ones(requests, np.int64), np.arange(requests) % 2
    return Requests(lengths, tuple(execution_s), (uplink_s,), (downlink_s,), arrival_s, node)


def test_a_box_wakes_up_after_a_gap_and_not_between_requests_that_follow_each_other() -> None:
    requests = columns((0.0, 2.0, 2.0, 0.0, 0.0), (1.0, 2.0, 2.0, 0.0, 0.0), (10.0, 2.0, 2.0, 0.0, 0.0))
    trail = simulate(requests, everything_to(1), believing(0.0), [WakingPool(half_a_second)])
    assert trail.queue_s.tolist() == [0.0, 1.0, 0.0]
    assert trail.execution_s.tolist() == [2.0, 2.0, 2.5], "the box starts awake"


def executed(entry_s: Any, service_s: Any) -> tuple[list[float], list[float]]:
    """Waits and executions of one box, request by request."""
    waits_s, executions_s, free_s = [], [], 0.0
    for entry, service in zip(entry_s, service_s, strict=True):
        took = service + (rising(entry - free_s) if entry > free_s else 0.0)
        waits_s.append(max(free_s - entry, 0.0))
        executions_s.append(took)
        free_s = max(free_s, entry) + took
    return waits_s, executions_s


@pytest.mark.parametrize("target", [0, 1])
def test_waits_and_executions_are_those_of_a_box_that_is_followed_by_hand(target: int) -> None:
    requests = asked()
    spec = WakingServerSpec(rising)
    servers = [spec.servers(1)] if target else [FifoPool()]
    trail = simulate(requests, everything_to(target), believing(0.0), servers, local=None if target else spec)
    entry_s = requests.arrival_s + (requests.uplink_s[0] if target else 0.0)
    order = np.argsort(entry_s, kind="stable")
    waits_s, executions_s = executed(entry_s[order], requests.execution_s[target][order])
    np.testing.assert_allclose(trail.queue_s[:][order], waits_s, atol=1e-9)
    np.testing.assert_allclose(trail.execution_s[:][order], executions_s, atol=1e-9)
    assert (trail.execution_s - requests.execution_s[target] > 0.01).mean() > 0.3, "many requests find it idle"


def test_each_decider_wakes_up_its_own_box() -> None:
    requests = asked()
    trail = simulate(requests, everything_to(0), believing(0.0), [FifoPool()], deciders=2, local=WakingServerSpec(rising))
    for node in (0, 1):
        own = requests.node == node
        waits_s, executions_s = executed(requests.arrival_s[own], requests.execution_s[0][own])
        np.testing.assert_allclose(trail.queue_s[:][own], waits_s, atol=1e-9)
        np.testing.assert_allclose(trail.execution_s[:][own], executions_s, atol=1e-9)


def test_an_oracle_foresees_the_wait_and_the_waking_up() -> None:
    requests, foreseen_s = asked(), list[float]()
    trail = simulate(
        requests,
        lambda block: lambda request, delay_s: foreseen_s.append(delay_s[1]) or 1,
        believing(0.0, clairvoyant=True),
        [WakingPool(rising, 2, balancer=FewestTokens())],
    )
    beyond_s = trail.queue_s + trail.execution_s - requests.execution_s[1]
    right = np.abs(np.array(foreseen_s) - requests.uplink_s[0] - requests.downlink_s[0] - beyond_s) < 1e-9
    assert right.mean() > 0.9, "unless a later request overtakes it on the uplink"


def test_a_box_that_wakes_up_at_once_is_a_first_in_first_out_box() -> None:
    requests = asked()
    awake = simulate(requests, everything_to(1), believing(0.0), [WakingPool(lambda idle_s: 0.0, 2)])
    plain = simulate(requests, everything_to(1), believing(0.0), [FifoPool(2)])
    assert awake.queue_s.tolist() == plain.queue_s.tolist()
    assert awake.execution_s.tolist() == requests.execution_s[1].tolist()
    assert awake.server.tolist() == plain.server.tolist()


def test_a_copy_wakes_up_as_its_original_and_apart_from_it() -> None:
    box = WakingServer(1, half_a_second)
    assert box.serve(1.0, 1.0) == 1.0
    copied = box.copy()
    assert copied.work_left(1.0) == box.work_left(1.0) == 1.5
    copied.serve(1.0, 5.0)
    assert box.work_left(1.0) == 1.5
    assert (copied.woke_s, box.woke_s) == (0.0, 0.5)


def finishes_s(server: BatchServer, *sentences: tuple[float, int]) -> list[float]:
    """Moments at which a server is done with sentences, given as (arrival, target tokens)."""
    done = {}
    for request, (arrival_s, tgt_len) in enumerate(sentences):
        while server.next_s < arrival_s:
            done |= {sentence.request: sentence.finish_s for sentence in server.act()}
        server.arrive(request, 1, tgt_len, arrival_s)
    server.close(sentences[-1][0])
    while server.holds:
        done |= {sentence.request: sentence.finish_s for sentence in server.act()}
    return [done[request] for request in range(len(sentences))]


@pytest.mark.parametrize("batching", [mini(1), top_up(2, 1)])
def test_a_batching_server_wakes_up_for_the_first_encoding_after_a_gap(batching: Any) -> None:
    sentences = (0.0, 3), (2.0, 3), (20.0, 3)
    usual_s = finishes_s(BatchServer(batching, SECONDS), *sentences)
    woken_s = finishes_s(BatchServer(batching, SECONDS, waking=half_a_second), *sentences)
    assert [woken - usual for woken, usual in zip(woken_s, usual_s, strict=True)] == [0.0, 0.0, 0.5]


def test_a_sentence_that_is_left_behind_for_company_lets_the_server_sleep() -> None:
    # Two begin at 0 and are done at 3; the third waits alone until 10 s after its arrival.
    batching = mini(2, longest_wait_s=10.0)
    server = BatchServer(batching, SECONDS, waking=half_a_second)
    assert finishes_s(server, (0.0, 3), (0.0, 3), (1.0, 2), (11.5, 2))[2] == 13.5
