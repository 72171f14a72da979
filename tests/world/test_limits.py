"""Limits of devices in the world: who is refused, tries again or gives up; blocking as theory has it; nothing is uncounted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo, Kind
from simnmt.devices.device import InTurn
from simnmt.network.outages import DownTimes
from simnmt.policies.views import BacklogView
from simnmt.results.requests import DONE, FALLBACK, LOST, REFUSED, Requests, Trail
from simnmt.world.faults import Faults
from simnmt.world.inputs import Clients
from tests.world.batched_worlds import SECONDS
from tests.world.test_faults import RTT_S, ends_s, failing, requests_at, route
from tests.world.theory import CONFIDENCE, half_width
from tests.worlds import CLOUD, GATEWAY, believing, everything_to, in_reference, simulate, simulate_replication

REPLICATIONS = 8


def run(requests: Requests, kind: Kind, target: int = CLOUD, **keys: Any) -> Trail:
    return simulate(requests, everything_to(target), believing(0.1), [kind], **keys)


def answered_s(requests: Requests, trail: Trail) -> list[float]:
    transfer_s = np.where(trail.target == CLOUD, RTT_S, 0.0)
    return ends_s(requests, trail.with_columns(transfer_s=transfer_s + trail.retry_s)).tolist()


FULL = [0.0, 0.25, 0.5, 0.75]
"""Of these, a box with a place to wait executes the first from 0.1 to 1.1, lets the second wait, and refuses two."""


def test_a_full_box_refuses_and_the_gateway_translates_once_it_has_heard_of_it() -> None:
    requests = requests_at(FULL, 1.0, here_s=0.125)
    trail = run(requests, Fifo(max_waiting=1))
    assert trail.outcome.tolist() == [DONE, DONE, FALLBACK, FALLBACK]
    assert trail.target.tolist() == [1, 1, 0, 0]
    assert trail.retry_s.tolist() == pytest.approx([0.0, 0.0, RTT_S, RTT_S])
    assert answered_s(requests, trail) == pytest.approx([1.2, 2.2, 0.5 + RTT_S + 0.125, 0.75 + RTT_S + 0.125])


def test_a_refusal_is_passed_on_and_has_no_times() -> None:
    trail = run(requests_at(FULL, 1.0), Fifo(max_waiting=1), passes_on=True, judged_share=1.0)
    assert trail.outcome.tolist() == [DONE, DONE, REFUSED, REFUSED]
    assert trail.target.tolist() == [1, 1, -1, -1]
    for column in (trail.queue_s, trail.decision_regret_s):
        assert np.isnan(column).tolist() == [False, False, True, True]


def test_a_full_decider_refuses_what_it_would_execute_for_a_full_target() -> None:
    """The gateway executes the third request, from 0.7 on, lets the fourth wait, and is full for the fifth."""
    requests = requests_at([*FULL, 0.8], 10.0, here_s=1.0)
    trail = run(requests, Fifo(max_waiting=1), local=Fifo(max_waiting=1))
    assert trail.outcome.tolist() == [DONE, DONE, FALLBACK, FALLBACK, REFUSED]
    at_once = run(requests_at(FULL, 1.0), Fifo(), GATEWAY, local=Fifo(max_waiting=2))
    assert at_once.outcome.tolist() == [DONE, DONE, DONE, REFUSED]


def test_a_refused_client_comes_back_after_its_pauses_until_it_gives_up() -> None:
    """Of two refused at 0.7 and 0.95, each comes back 0.5 s later; the third time the box has room for one."""
    requests = requests_at(FULL, 1.0)
    pauses_s = tuple(np.full(4, pause_s) for pause_s in (0.25, 0.25, 4.0))
    keys = {"passes_on": True}
    trail = run(replace(requests, retry_after_s=pauses_s[:2]), Fifo(max_waiting=1), **keys)
    # Sent at 0.5, refused at 0.7; sent at 0.95, there at 1.05, refused at 1.15; sent at 1.4: one waits since 1.1.
    # Sent at 0.75, refused at 0.95; sent at 1.2, there at 1.3: the second one runs, and nobody waits.
    assert trail.outcome.tolist() == [DONE, DONE, REFUSED, DONE]
    assert trail.tries.tolist() == [1, 1, 3, 2]
    assert trail.retry_s.tolist() == pytest.approx([0.0, 0.0, 0.9, 0.45])
    assert answered_s(requests, trail)[3] == pytest.approx(3.2)
    longer = run(replace(requests, retry_after_s=pauses_s), Fifo(max_waiting=1), **keys)
    assert (longer.tries[2], longer.outcome[2]) == (4, DONE)
    hurried = run(replace(requests, retry_after_s=pauses_s, patience_s=np.full(4, 5.0)), Fifo(max_waiting=1), **keys)
    assert (hurried.tries[2], hurried.outcome[2]) == (3, REFUSED)


def test_sentences_wait_until_they_are_encoded() -> None:
    """Two are encoded at 0.1; the next two wait meanwhile, although they join the same batch, and the last is refused."""
    requests = requests_at([0.0, 0.0, 0.5, 0.5, 0.5], 1.0)
    trail = run(requests, Batched(Batching(2), SECONDS, max_waiting=2), passes_on=True)
    assert trail.outcome.tolist() == [DONE] * 4 + [REFUSED]
    assert np.isnan(trail.execution_s).tolist() == [False] * 4 + [True]


def test_each_box_has_its_own_limit_and_a_balancer_does_not_look_at_it() -> None:
    """In turn, requests of 10 s and of 1 s enter two boxes; the first one alone is full, and its turn comes all the same."""
    requests = requests_at(np.arange(8.0), np.tile([10.0, 0.5], 4))
    trail = run(requests, Fifo(2, balancer=InTurn(), max_waiting=1), passes_on=True)
    assert trail.outcome.tolist() == [DONE, DONE, DONE, DONE, REFUSED, DONE, REFUSED, DONE]


def blocking(servers: int, load: float, places: int) -> float:
    """Share of the requests that M/M/c/K refuses, with K = servers + places."""
    weights = [1.0]
    for inside in range(1, servers + places + 1):
        weights.append(weights[-1] * servers * load / min(inside, servers))
    return weights[-1] / sum(weights)


@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
@pytest.mark.parametrize(("servers", "load", "places"), [(1, 0.9, 3), (1, 1.5, 2), (3, 1.0, 4)])
def test_m_m_c_k_refuses_as_theory_says(target: int, servers: int, load: float, places: int) -> None:
    shares, count = [], 50_000
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([46, replication])
        arrival_s = np.cumsum(random.standard_exponential(count)) / (load * servers)
        service_s, nothing_s = random.standard_exponential(count), np.zeros(count)
        requests = Requests(np.ones(count, np.int64), (service_s, service_s), (nothing_s,), (nothing_s,), arrival_s)
        box = Fifo(workers=servers, max_waiting=places)
        keys = {"local": box, "passes_on": True}
        trail = simulate_replication(replication, requests, everything_to(target), believing(0.0), [box], **keys)
        assert set(trail.outcome) == {DONE, REFUSED}
        shares.append(float((trail.outcome == REFUSED).mean()))
    expected = blocking(servers, load, places)
    assert np.mean(shares) == pytest.approx(expected, rel=0.02)
    assert abs(np.mean(shares) - expected) <= half_width(shares), CONFIDENCE


@settings(max_examples=150, deadline=None)
@given(
    arrivals=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=25),
    places=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    tries=st.integers(0, 3),
    timeout_s=st.none() | st.floats(0.05, 3.0),
    late_s=st.none() | st.floats(0.05, 3.0),
    faulty=st.booleans(),
    batches=st.booleans(),
    closed=st.booleans(),
    passes_on=st.booleans(),
    seed=st.integers(0, 1_000),
)
def test_every_request_is_answered_once_refused_or_lost_and_no_try_begins_after_the_timeout(
    arrivals: list[float],
    places: tuple[int, int],
    tries: int,
    timeout_s: float | None,
    late_s: float | None,
    faulty: bool,
    batches: bool,
    closed: bool,
    passes_on: bool,
    seed: int,
) -> None:
    """With limits and faults together, in an open loop and in a closed one."""
    random, count = np.random.default_rng(seed), len(arrivals)
    requests = requests_at(np.cumsum(arrivals), random.exponential(0.5, count), random.exponential(0.5, count))
    pauses_s = tuple(random.exponential(0.3, count) for _ in range(tries))
    requests = replace(requests, retry_after_s=pauses_s, patience_s=None if timeout_s is None else np.full(count, timeout_s))
    keys: dict[str, Any] = {"passes_on": passes_on, "local": Fifo(max_waiting=places[0])}
    kind: Any = Batched(Batching(2), SECONDS) if batches else Fifo()
    kind = replace(kind, max_waiting=places[1])
    if faulty:
        kind = replace(kind, failures=failing([(1.0, 1.5)]).failures)
        keys["faults"] = Faults([[DownTimes([(2.0, 2.5)])]], late_s)
    if closed:
        requests = replace(requests, arrival_s=None)
        keys |= {"route": route, "clients": Clients(3, 3, np.full(count + 3, 0.2))}
    trail = in_reference(
        requests,
        lambda block: lambda request, delay_s: int(request % 5 > 0),
        believing(0.1, views=(lambda: BacklogView(1), lambda: BacklogView(1))),
        [kind],
        expected_for=lambda block: [np.full(len(block), 0.5)] * 2,
        **keys,
    )
    refused, lost = trail.outcome == REFUSED, trail.outcome == LOST
    assert set(trail.outcome) <= {DONE, FALLBACK, REFUSED, LOST} and (faulty or not lost.any())
    np.testing.assert_array_equal(trail.target == -1, refused | lost)
    np.testing.assert_array_equal(np.isnan(trail.queue_s), refused | lost)
    assert trail.tries.max() <= 1 + tries and (trail.retry_s >= 0.0).all()
    came_back = trail.tries > 1
    if timeout_s is not None and passes_on:
        assert (trail.retry_s[came_back] < timeout_s).all()
    assert (trail.retry_s[~came_back & (trail.outcome == DONE)] == 0.0).all()


def test_a_client_of_a_closed_loop_that_gives_up_thinks_and_asks_again_while_its_request_is_executed() -> None:
    requests = replace(requests_at(np.zeros(3), 2.0), arrival_s=None, patience_s=np.full(3, 1.0))
    clients = {"route": route, "clients": Clients(1, 1, np.full(4, 0.5))}
    trail = in_reference(requests, everything_to(1), believing(0.1), [Fifo()], **clients)
    # Asked at 0.5, given up at 1.5, asked at 2.0; the box is busy until 2.6.
    assert trail.arrival_s.tolist() == pytest.approx([0.5, 2.0, 3.5])
    assert trail.queue_s.tolist() == pytest.approx([0.0, 0.5, 1.0])
