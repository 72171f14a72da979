"""Boxes whose executions take longer the more requests are there: by hand, and what queueing theory says of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.devices import Fifo
from simnmt.network.link import MovingRoute
from simnmt.network.outages import DownTimes
from simnmt.results.requests import Requests, Trail
from simnmt.world.compiled_world import simulate_compiled
from simnmt.world.faults import Faults
from simnmt.world.inputs import Clients
from tests.world.theory import exponential, lognormal
from tests.worlds import CLOUD, GATEWAY, believing, everything_to, in_reference, inputs, needs_compiled, simulate


def requests_of(arrival_s: Any, execution_s: Any) -> Requests:
    """Requests at a gateway with a cloud behind a link that takes no time."""
    nothing, service = np.zeros(len(arrival_s)), np.asarray(execution_s, float)
    return Requests(nothing.astype(int), (service, service), (nothing,), (nothing,), np.asarray(arrival_s, float))


def served(box: Fifo, arrival_s: Any, execution_s: Any, target: int = GATEWAY, **settings: Any) -> Trail:
    """Requests at one box, in both engines."""
    requests = requests_of(arrival_s, execution_s)
    return simulate(requests, everything_to(target), believing(0.0), [box], local=box, **settings)


def long_run(box: Fifo, arrival_s: Floats, execution_s: Floats) -> Trail:
    """Many requests at one box, in the compiled engine; both engines agree on the first ones."""
    first = slice(0, 3_000)
    again = served(box, arrival_s[first], execution_s[first])
    requests = requests_of(arrival_s, execution_s)
    trail = simulate_compiled(*inputs(requests, everything_to(GATEWAY), believing(0.0), [box], local=box))
    np.testing.assert_allclose(again.queue_s[:2_000], trail.queue_s[:2_000], 1e-9, 1e-9)
    return trail


@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
def test_the_requests_in_the_box_when_an_execution_begins_decide_its_seconds(target: int) -> None:
    """One worker. Request 0 begins alone and takes 4 s, whoever comes then. Request 1 begins at 4 s with 2 and 3 behind it
    and takes three times as long, to 10 s; then two are there, and then one again."""
    trail = served(Fifo(occupancy_factors=(1.0, 1.5, 3.0)), [0, 1, 2, 3], [4, 2, 2, 2], target)
    assert trail.queue_s.tolist() == [0, 3, 8, 10]
    assert trail.execution_s.tolist() == [4, 6, 3, 2]


def test_executing_requests_count_and_more_than_the_table_holds_take_its_last_factor() -> None:
    """Two workers: 0 begins alone, 1 beside it; 2 begins at 1.5 s, when 1 ends, with 0 and 3 there: 3 of a table of 2."""
    trail = served(Fifo(workers=2, occupancy_factors=(1.0, 1.5)), [0, 0, 0.5, 0.5], [2, 1, 2, 4])
    assert trail.queue_s.tolist() == [0, 0, 1, 1.5]
    assert trail.execution_s.tolist() == [2, 1.5, 3, 6]


def test_each_box_counts_its_own_requests() -> None:
    box = Fifo(2, occupancy_factors=(1.0, 2.0))
    requests = replace(requests_of([0, 0, 0.5], [2, 2, 2]), node=np.array([0, 1, 1], np.int32))
    trail = simulate(requests, everything_to(CLOUD), believing(0.0), [box])
    assert trail.execution_s.tolist() == [2, 2, 2]


def test_a_request_that_a_failing_box_drops_is_charged_where_it_is_executed() -> None:
    """The box fails at 1 s with requests 0 and 1 in it: both are executed by the gateway, which has no factors."""
    box = Fifo(occupancy_factors=(1.0, 2.0), failures=[DownTimes([(1.0, 2.0)])])
    requests = requests_of([0, 0.5, 3, 3], [2, 2, 2, 2])
    trail = in_reference(requests, everything_to(CLOUD), believing(0.0), [box], local=Fifo(), faults=Faults(timeout_s=50.0))
    assert trail.target.tolist() == [0, 0, 1, 1]
    assert np.isnan(trail.execution_s).tolist() == [True, True, False, False]
    assert trail.execution_s[2:].tolist() == [2, 2]


@needs_compiled
@pytest.mark.parametrize("factor", [1.0, 1.25])
def test_a_constant_factor_is_m_g_1_with_longer_services(factor: float) -> None:
    """Pollaczek and Khinchine; and the queue of the longer services without any table, request by request."""
    count, cv, load = 400_000, 0.6, 0.6
    random = np.random.default_rng(4)
    arrival_s, execution_s = np.cumsum(random.standard_exponential(count)) / (load / factor), lognormal(cv)(random, count)
    trail = long_run(Fifo(occupancy_factors=(factor,)), arrival_s, execution_s)
    assert trail.queue_s.mean() == pytest.approx(factor * load * (1 + cv**2) / 2 / (1 - load), rel=0.03)
    plain = simulate_compiled(*inputs(requests_of(arrival_s, factor * execution_s), everything_to(GATEWAY), believing(0.0), []))
    np.testing.assert_allclose(trail.queue_s, plain.queue_s, 1e-9, 1e-6)


@needs_compiled
def test_executions_that_begin_behind_a_queue_take_longer_as_an_embedded_chain_says() -> None:
    """Poisson arrivals, exponential executions of mean 1 that begin alone, and of mean f where others are there.

    The number left behind by each departure is a Markov chain: of arrivals within an execution of mean m, j come with
    probability (1 / (1 + rate m)) (rate m / (1 + rate m))^j."""
    rate, slower, most, count = 0.5, 1.5, 400, 1_000_000
    random = np.random.default_rng(9)
    arrival_s, execution_s = np.cumsum(random.standard_exponential(count)) / rate, exponential(random, count)
    trail = long_run(Fifo(occupancy_factors=(1.0, slower)), arrival_s, execution_s)

    def coming(mean_s: float) -> Floats:
        share = rate * mean_s / (1 + rate * mean_s)
        return (1 - share) * share ** np.arange(most)

    chain = np.zeros((most, most))
    for left in range(most):
        present = max(left, 1)
        come = coming(slower if present > 1 else 1.0)
        chain[left, present - 1 :] = come[: most - present + 1]
    shares = np.linalg.solve(np.vstack([(chain.T - np.eye(most))[:-1], np.ones(most)]), np.eye(most)[-1])
    mean_s = float(shares[:2].sum() + slower * shares[2:].sum())
    # Little's law: departures leave behind as many as arrivals find, and these the mean over time (PASTA).
    latency_s = float(shares @ np.arange(most)) / rate
    assert trail.execution_s.mean() == pytest.approx(mean_s, rel=0.01)
    assert (trail.queue_s + trail.execution_s).mean() == pytest.approx(latency_s, rel=0.03)


def test_clients_without_thinking_time_wait_for_the_slower_executions_of_all() -> None:
    """Three clients, one worker: when an execution begins, one client waits, and the one just answered asks only then."""
    count, lengths = 41, np.zeros(41, np.int64)
    requests, clients = Requests(lengths, (np.ones(count),)), Clients(3, 1, np.zeros(3 + count))
    box, route = Fifo(occupancy_factors=(1.0, 1.5)), MovingRoute(None, (), (0,), lengths, lengths, None, (None,))
    trail = simulate(requests, everything_to(0), believing(0.0), [], local=box, route=route, clients=clients)
    assert trail.execution_s.tolist()[:-1] == [1.0] + [1.5] * (count - 2)
    assert (trail.queue_s + trail.execution_s)[3:-1] == pytest.approx(3 * 1.5)


def test_waits_rise_with_the_factors() -> None:
    random = np.random.default_rng(2)
    arrival_s, execution_s = np.cumsum(random.standard_exponential(2_000)) / 0.5, random.standard_exponential(2_000)
    tables = [(1.0,), (1.0, 1.1), (1.0, 1.1, 1.2), (1.0, 1.3, 1.4)]
    ends_s = [
        arrival_s + trail.queue_s + trail.execution_s
        for trail in (served(Fifo(occupancy_factors=table), arrival_s, execution_s) for table in tables)
    ]
    for sooner_s, later_s in pairwise(ends_s):
        assert (later_s >= sooner_s - 1e-9).all()
        assert later_s.mean() > sooner_s.mean()
