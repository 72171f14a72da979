"""What queueing theory says of waiting and of balancers in an open loop, within intervals over replications.

For Poisson arrivals and exponential services. Drawing a server at random parts the arrivals into Poisson processes. Turns part
them more evenly, which is the best there is without looking (Ephremides, Varaiya and Walrand 1980); looking at two drawn
servers removes most of the wait under load (Mitzenmacher 2001), and looking at all of them is one queue before all servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.devices import Fifo, Kind
from simnmt.devices.device import Balancer, ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.results.requests import Requests, Trail
from simnmt.workload.arrivals import Poisson, RandomStream
from simnmt.workload.documents import DocumentArrivals, DrawnDocuments
from tests.campaigns.harness import deep, thinned
from tests.world.theory import (
    Draw,
    assert_mean,
    constant,
    erlang_c,
    erlang_m_1_wait,
    exponential,
    half_width,
    lognormal,
    m_g_1_wait,
    m_m_c_wait,
    mean_waits,
    runs,
)
from tests.worlds import CLOUD, GATEWAY, believing, everything_to, in_engine, simulate

REQUESTS = {0.5: 15_000, 0.8: 30_000, 0.95: 50_000}
"""Per replication: the closer to saturation, the longer a queue remembers, and the fewer are rare waits before many workers."""


def one_queue(requests: int, load: float, service_s: Draw, target: int, workers: int = 1) -> Iterator[tuple[Requests, Trail]]:
    """At the gateway or in the cloud, before so many workers."""
    return runs(requests, load, service_s, target, lambda _: Fifo(workers=workers), workers)


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


@pytest.mark.parametrize(("service_s", "cv"), [(constant, 0.0), (lognormal(0.6), 0.6), (lognormal(1.5), 1.5)])
@pytest.mark.parametrize("load", thinned(REQUESTS, (0.8,)))
def test_m_g_1_waits_as_pollaczek_and_khinchine_say(service_s: Draw, cv: float, load: float) -> None:
    requests = max(30_000, REQUESTS[load]) if cv > 1 else REQUESTS[load]
    waits = mean_waits(one_queue(requests, load, service_s, GATEWAY))
    assert_mean(waits, m_g_1_wait(load, cv), within=0.4 if load > 0.9 else 0.2)


def test_documents_wait_as_m_x_g_1_says() -> None:
    """A sentence waits until its document begins, as in M/G/1 with whole documents (Pollaczek and Khinchine), and then for the
    sentences before it, E[X(X-1)] / 2E[X] of them (Burke 1975); of geometric documents that is their mean less 1."""
    mean, load, cv = 3.0, 0.5, 0.6
    sizes = DrawnDocuments.model_validate({"sentences": {"dist": "geometric", "mean": mean}}).read(Path(), "")
    arrivals = DocumentArrivals(Poisson(kind="poisson", rate_rps=load / mean), sizes)
    of_document = mean * cv**2 + mean * (mean - 1.0) + mean**2  # second moment of its work
    expected = load / mean * of_document / 2.0 / (1.0 - load) + mean - 1.0

    def waits(replication: int, requests: int) -> Floats:
        at_s = arrivals.times(requests, RandomStream(3, replication, "documents"))
        random = np.random.default_rng([12, replication])
        columns = Requests(np.ones(requests, np.int64), (lognormal(cv)(random, requests),), arrival_s=at_s)
        simulated = simulate if requests < 50_000 else in_engine
        options = {} if requests < 50_000 else {"engine": None}
        return simulated(columns, everything_to(GATEWAY), believing(0.0), [], **options).queue_s[requests // 10 :]

    assert waits(0, 10_000).any()  # the same in both engines
    assert_mean([float(waits(replication, 200_000).mean()) for replication in range(16)], expected, within=0.02)


def test_waits_of_m_m_1_have_their_distribution_too() -> None:
    """A wait exceeds t with probability load times exp(-(1 - load) t)."""
    trails = [trail for _, trail in one_queue(15_000, 0.7, exponential, GATEWAY)]
    for beyond_s in (0.0, 2.0, 5.0):
        shares = [float((trail.queue_s > beyond_s).mean()) for trail in trails]
        assert_mean(shares, 0.7 * np.exp(-0.3 * beyond_s), within=0.15)


@pytest.mark.parametrize(("target", "workers"), [deep(GATEWAY, 1), (GATEWAY, 4), deep(CLOUD, 3)])
def test_littles_law_the_number_inside_is_the_rate_times_the_time_spent_there(target: int, workers: int) -> None:
    """The number is counted at moments that have nothing to do with the requests; the first tenth of each run is left out."""
    load, requests = 0.7, 10_000
    differences, counts = [], []
    for columns, trail in one_queue(requests, load, exponential, target, workers):
        spent_s = trail.queue_s + columns.execution_s[target]
        begin_s, end_s = trail.arrival_s[requests // 10], trail.arrival_s[-1]
        moments_s = np.linspace(begin_s, end_s, 30_000)
        edges_s = trail.arrival_s, trail.arrival_s + spent_s
        come, gone = (np.searchsorted(np.sort(edge_s), moments_s, side="right") for edge_s in edges_s)
        within = trail.arrival_s >= begin_s
        rate_rps = within.sum() / (end_s - begin_s)
        counts.append(float((come - gone).mean()))
        differences.append(counts[-1] - float(rate_rps * spent_s[within].mean()))
    half = half_width(differences)
    assert half < 0.02 * np.mean(counts)
    assert abs(np.mean(differences)) <= half + 1e-3
    assert_mean(counts, workers * load + erlang_c(workers, load) * load / (1 - load), within=0.15)


def balanced_waits(name: str, load: float, servers: int, requests: int = 9_000) -> list[float]:
    """Mean waits by replication; arrivals, services and end nodes are the same for every balancer."""

    def pool(replication: int) -> Kind:
        random = np.random.default_rng([5, replication])
        first = random.integers(0, servers, requests)
        others = (first + random.integers(1, servers, requests)) % servers
        balancers: dict[str, Balancer] = {
            "random": LeastLoadedOfDrawn(first[:, None]),
            "attached": ByNode(),
            "in turn": InTurn(),
            "two choices": LeastLoadedOfDrawn(np.column_stack([first, others])),
            "least work": LeastWork(),
        }
        return Fifo(servers, balancer=balancers[name])

    return mean_waits(runs(requests, load, exponential, CLOUD, pool, servers, nodes=60))


def assert_order(*from_worst_to_best: list[float]) -> None:
    """Each waits longer than the next, beyond the 99.9 % interval of the paired difference."""
    for worse, better in pairwise(from_worst_to_best):
        difference = np.subtract(worse, better)
        assert difference.mean() > half_width(difference.tolist())


def test_balancers_wait_as_theory_says() -> None:
    """Four servers at load 0.8."""
    waits = {name: balanced_waits(name, 0.8, 4) for name in ("random", "attached", "in turn", "two choices", "least work")}
    for name in ("random", "attached"):
        assert_mean(waits[name], m_g_1_wait(0.8, 1.0), within=0.2)
    assert_mean(waits["in turn"], erlang_m_1_wait(4, 0.8), within=0.2)
    assert_mean(waits["least work"], m_m_c_wait(4, 0.8), within=0.2)
    assert_order(*(waits[name] for name in ("random", "in turn", "two choices", "least work")))


def test_at_a_low_load_turns_over_many_servers_beat_two_choices() -> None:
    """Two drawn servers are both busy now and then; a server whose turn comes again has long been idle."""
    turns, two = (balanced_waits(name, 0.2, 16) for name in ("in turn", "two choices"))
    assert_order(two, turns)
    assert_mean(turns, erlang_m_1_wait(16, 0.2), within=0.2)


def test_many_gateways_of_many_workers_are_m_m_c_each() -> None:
    """End nodes are dealt to them, so each has its share of the arrivals."""
    trails = runs(9_000, 0.7, exponential, GATEWAY, lambda _: Fifo(), workers=6, nodes=60, deciders=2)
    assert_mean(mean_waits(trails), m_m_c_wait(3, 0.7), within=0.2)
