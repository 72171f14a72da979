"""What queueing theory says of waiting before one tier in an open loop, within intervals over replications."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.devices.device import LeastWork
from simnmt.policies import CLOUD, GATEWAY
from simnmt.results.requests import Requests, Trail
from tests.campaigns.harness import deep, thinned
from tests.world.theory import (
    REPLICATIONS,
    Draw,
    assert_mean,
    constant,
    erlang_c,
    exponential,
    half_width,
    lognormal,
    m_g_1_wait,
    m_m_c_wait,
    mean_waits,
    runs,
)


def one_queue(requests: int, load: float, service_s: Draw, target: int, workers: int = 1) -> Iterator[tuple[Requests, Trail]]:
    """At the gateway or in the cloud, before so many workers."""
    return runs(requests, load, service_s, target, lambda _: Fifo(workers=workers), workers)


REQUESTS = {0.5: 15_000, 0.8: 30_000, 0.95: 50_000}
"""Per replication: the closer to saturation, the longer a queue remembers, and the fewer are rare waits before many workers."""


@pytest.mark.parametrize("workers", [1, 4, deep(16)])
@pytest.mark.parametrize("load", thinned(REQUESTS, (0.8,)))
def test_m_m_c_waits_as_erlang_c_says(load: float, workers: int) -> None:
    requests = 50_000 if workers == 16 else REQUESTS[load]
    waits, waiting = [], []
    for _, trail in one_queue(requests, load, exponential, GATEWAY, workers):
        warm_s = trail.queue_s[requests // 10 :]
        waits.append(float(warm_s.mean()))
        waiting.append(float((warm_s > 0).mean()))
    assert_mean(waits, m_m_c_wait(workers, load), within=0.3)
    assert_mean(waiting, erlang_c(workers, load), within=0.2)


@pytest.mark.parametrize("workers", [1, 4, 16])
def test_the_cloud_and_least_work_over_servers_of_one_worker_wait_like_the_gateway_to_the_bit(workers: int) -> None:
    """Behind a link that takes no time; so what holds of one queue holds of all three."""
    _, gateway = next(one_queue(8_000, 0.95, exponential, GATEWAY, workers))
    _, cloud = next(one_queue(8_000, 0.95, exponential, CLOUD, workers))
    _, spread = next(runs(8_000, 0.95, exponential, CLOUD, lambda _: Fifo(workers, 1, LeastWork()), workers))
    assert gateway.queue_s.any()
    np.testing.assert_array_equal(cloud.queue_s, gateway.queue_s)
    np.testing.assert_array_equal(spread.queue_s, gateway.queue_s)
    assert set(spread.server) == set(range(workers))


@pytest.mark.parametrize(("service_s", "cv"), [(constant, 0.0), (lognormal(0.6), 0.6), (lognormal(1.5), 1.5)])
@pytest.mark.parametrize("load", thinned(REQUESTS, (0.8,)))
def test_m_g_1_waits_as_pollaczek_and_khinchine_say(service_s: Draw, cv: float, load: float) -> None:
    requests = max(30_000, REQUESTS[load]) if cv > 1 else REQUESTS[load]
    waits = mean_waits(one_queue(requests, load, service_s, GATEWAY))
    assert_mean(waits, m_g_1_wait(load, cv), within=0.4 if load > 0.9 else 0.2)


def test_waits_of_m_m_1_have_their_distribution_too() -> None:
    """A wait exceeds t with probability load times exp(-(1 - load) t)."""
    found = list(one_queue(15_000, 0.7, exponential, GATEWAY))
    for beyond_s in (0.0, 2.0, 5.0):
        shares = [float((trail.queue_s > beyond_s).mean()) for _, trail in found]
        assert_mean(shares, 0.7 * np.exp(-0.3 * beyond_s), within=0.15)


@pytest.mark.parametrize(("target", "workers"), [deep(GATEWAY, 1), (GATEWAY, 4), deep(CLOUD, 3)])
def test_littles_law_the_number_found_inside_is_the_rate_times_the_time_spent_there(target: int, workers: int) -> None:
    """The number is counted at moments that have nothing to do with the requests; the first tenth of each run is left out."""
    load, requests = 0.7, 10_000
    differences, counts = [], []
    for columns, trail in one_queue(requests, load, exponential, target, workers):
        service_s = columns.execution_s[target]
        left_s = trail.arrival_s + trail.queue_s + service_s
        begin_s, end_s = trail.arrival_s[requests // 10], trail.arrival_s[-1]
        moments_s = np.linspace(begin_s, end_s, 30_000)
        come, gone = (np.searchsorted(np.sort(edge_s), moments_s, side="right") for edge_s in (trail.arrival_s, left_s))
        inside = come - gone
        within = trail.arrival_s >= begin_s
        rate_rps = within.sum() / (end_s - begin_s)
        spent_s = (trail.queue_s + service_s)[within].mean()
        counts.append(float(inside.mean()))
        differences.append(float(inside.mean() - rate_rps * spent_s))
    half = half_width(differences)
    assert len(differences) == REPLICATIONS
    assert half < 0.02 * np.mean(counts)
    assert abs(np.mean(differences)) <= half + 1e-3
    assert_mean(counts, workers * load + erlang_c(workers, load) * load / (1 - load), within=0.15)
