"""Clients with think time obey the interactive response-time law, and wait as the machine repairman's model says."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import Decide, TransferEstimate, least_total
from simnmt.results.requests import Requests, Trail
from simnmt.world.deciders import Beliefs
from simnmt.world.reference import Clients, Route, simulate
from tests.campaigns.harness import deep
from tests.world.theory import REPLICATIONS, Column, Draw, assert_mean, constant, exponential, lognormal, machine_repair
from tests.worlds import believing, everything_to, latency_s

REQUESTS = 4_000


def still_links(access_s: float, way_s: float, tiers: int) -> Route:
    """Links that take the same time at any moment, each way."""
    there = (way_s,) * tiers
    return lambda request, node, moment_s: (there, there, access_s, access_s)


def repairs(
    clients: int, think: float, think_s: Draw, target: int, workers: int, link_s: float = 0.0
) -> tuple[list[float], list[float]]:
    """(throughputs, mean responses beside the links) of replications with services of mean 1 s."""
    throughputs, responses = [], []
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([31, replication])
        service_s, nothing = random.standard_exponential(REQUESTS), np.zeros(REQUESTS)
        requests = Requests(np.arange(REQUESTS), (service_s, service_s), (nothing,), (nothing,))
        trail = simulate(
            requests,
            everything_to(target),
            believing(0.0),
            [Fifo(workers=workers)],
            workers=workers,
            route=still_links(link_s / 4, link_s / 4, 1),
            clients=Clients(clients, 1, think * think_s(random, REQUESTS + clients)),
        )
        warm = slice(REQUESTS // 10, REQUESTS - clients)
        issued_s = trail.arrival_s[warm]
        throughputs.append(len(issued_s) / (issued_s[-1] - issued_s[0]))
        responses.append(float((trail.queue_s + service_s)[warm].mean()))
    return throughputs, responses


@pytest.mark.parametrize("think_s", [exponential, constant, lognormal(1.5)], ids=["exponential", "constant", "lognormal"])
@pytest.mark.parametrize(("clients", "workers"), [deep(4, 1), (12, 1), deep(30, 4)])
def test_clients_wait_as_machines_for_their_repair_whatever_the_law_of_their_thinking(
    think_s: Draw, clients: int, workers: int
) -> None:
    """M/M/c//k; only the mean think time counts."""
    throughputs, responses = repairs(clients, 8.0, think_s, target=0, workers=workers)
    throughput, response = machine_repair(clients, 8.0, workers)
    assert_mean(throughputs, throughput, within=0.06)
    assert_mean(responses, response, within=0.15)


def test_time_on_the_way_counts_as_thinking() -> None:
    """To the gateway and back, to the cloud and back: 4 s on links, 4 s of thought."""
    throughputs, responses = repairs(12, 4.0, exponential, target=1, workers=2, link_s=4.0)
    throughput, response = machine_repair(12, 8.0, 2)
    assert_mean(throughputs, throughput, within=0.06)
    assert_mean(responses, response, within=0.15)


CHOICES = np.random.default_rng(2).permuted(np.tile(np.arange(3), (REQUESTS, 1)), axis=1)[:, :2]
POOLS: dict[str, list[Kind]] = {
    "turns, then least work": [Fifo(2, balancer=InTurn()), Fifo(2, 2, LeastWork())],
    "two choices, then turns": [Fifo(3, balancer=LeastLoadedOfDrawn(CHOICES)), Fifo(3, balancer=InTurn())],
}


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("clients", [1, 8, 40])
def test_clients_are_throughput_times_response_and_thinking(pools: str, clients: int) -> None:
    """The interactive response-time law, X = k / (R + Z), in three tiers with three gateways and an access link."""
    random = np.random.default_rng(41)
    reckoned_s = random.gamma(2.0, (0.5, 0.35, 0.25), (REQUESTS, 3)).T.copy()
    execution_s: Sequence[Column] = list(reckoned_s * random.lognormal(0, 0.3, (3, REQUESTS)))
    link_s = tuple(np.full(REQUESTS, 0.1) for _ in range(2))
    requests = Requests(np.arange(REQUESTS), tuple(execution_s), link_s, link_s)
    think_s = random.gamma(0.5, 4.0, REQUESTS + clients)

    def decide_for(block: Requests) -> Decide:
        return least_total([column[block.src_len] for column in reckoned_s])

    trail = simulate(
        requests,
        decide_for,
        Beliefs(lambda decider, target: TransferEstimate(0.2)),
        POOLS[pools],
        deciders=3,
        route=still_links(0.03, 0.1, 2),
        clients=Clients(clients, 9, think_s),
    )
    assert (np.bincount(trail.target, minlength=3) > REQUESTS / 20).all()
    assert_law(trail, requests, think_s, clients)
    if clients == 1:
        assert not trail.queue_s.any()
    elif clients == 40:
        assert trail.queue_s.mean() > 0.15


def assert_law(trail: Trail, requests: Requests, think_s: Column, clients: int) -> None:
    """But for the ends of the run, in which clients are at different stages, the law is an identity."""
    response_s = trail.decided_s - trail.arrival_s + latency_s(requests, trail) + 0.03
    throughput = len(requests) / trail.arrival_s[-1]
    assert throughput * (response_s.mean() + think_s.mean()) == pytest.approx(clients, rel=0.01)
