"""Clients with think time obey the interactive response-time law, and wait as the machine repairman's model says."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.network.link import Hop, Link, MovingRoute
from simnmt.network.series import constant_rtt
from simnmt.policies import LeastTotal
from simnmt.results.requests import Requests
from simnmt.world.inputs import Clients
from tests.campaigns.harness import deep
from tests.world.theory import REPLICATIONS, Draw, assert_mean, constant, exponential, lognormal, machine_repair
from tests.worlds import believing, everything_to, latency_s, simulate, simulate_replication

REQUESTS = 4_000


def still_links(access_s: float, hop_s: float, targets: int) -> MovingRoute:
    """Links that take the same time at any moment, each way: to the decider, and from each target to the next."""
    access, hop = (Hop((Link(constant_rtt(2 * max(one_way_s, 1e-9)), 1e9, 1e9),), (0.0,)) for one_way_s in (access_s, hop_s))
    lengths = np.zeros(REQUESTS, np.int64)
    return MovingRoute(access, (hop,) * (targets - 1), (0,) * targets, lengths, lengths, None, (None,) * targets)


def repairs(
    clients: int, think: float, think_s: Draw, target: int, workers: int, link_s: float = 0.0
) -> tuple[list[float], list[float]]:
    """(throughputs, mean responses beside the links) of replications with services of mean 1 s."""
    throughputs, responses = [], []
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([31, replication])
        service_s, nothing = random.standard_exponential(REQUESTS), np.zeros(REQUESTS)
        trail = simulate_replication(
            replication,
            Requests(nothing.astype(np.int64), (service_s, service_s), (nothing,), (nothing,)),
            everything_to(target),
            believing(0.0),
            [Fifo(workers=workers)],
            workers=workers,
            route=still_links(link_s / 4, link_s / 4, 2),
            clients=Clients(clients, 1, think * think_s(random, REQUESTS + clients)),
        )
        warm = slice(REQUESTS // 10, REQUESTS - clients)
        issued_s = trail.arrival_s[warm]
        throughputs.append(len(issued_s) / (issued_s[-1] - issued_s[0]))
        responses.append(float((trail.queue_s + service_s)[warm].mean()))
    return throughputs, responses


@pytest.mark.parametrize("think_s", [exponential, constant, lognormal(1.5)], ids=["exponential", "constant", "lognormal"])
@pytest.mark.parametrize(
    ("clients", "workers", "target", "link_s"), [deep(4, 1, 0, 0.0), (12, 1, 0, 0.0), (12, 2, 1, 4.0), deep(30, 4, 0, 0.0)]
)
def test_clients_wait_as_machines_for_their_repair_whatever_the_law_of_their_thinking(
    think_s: Draw, clients: int, workers: int, target: int, link_s: float
) -> None:
    """M/M/c//k; only the mean think time counts, and the time on links to the gateway and to the cloud is part of it."""
    throughputs, responses = repairs(clients, 8.0 - link_s, think_s, target, workers, link_s)
    throughput, response = machine_repair(clients, 8.0, workers)
    assert_mean(throughputs, throughput, within=0.06)
    assert_mean(responses, response, within=0.15)


CHOICES = np.random.default_rng(2).permuted(np.tile(np.arange(3), (REQUESTS, 1)), axis=1)[:, :2].astype(np.int16)
POOLS: dict[str, list[Kind]] = {
    "turns, then least work": [Fifo(2, balancer=InTurn()), Fifo(2, 2, LeastWork())],
    "two choices, then turns": [Fifo(3, balancer=LeastLoadedOfDrawn(CHOICES)), Fifo(3, balancer=InTurn())],
}


@pytest.mark.parametrize("pools", POOLS)
@pytest.mark.parametrize("clients", [1, 8, 40])
def test_clients_are_throughput_times_response_and_thinking(pools: str, clients: int) -> None:
    """The interactive response-time law, X = k / (R + Z), in three tiers with three gateways and an access link.

    But for the ends of the run, in which clients are at different stages, the law is an identity.
    """
    random = np.random.default_rng(41)
    predicted_s = random.gamma(2.0, (0.5, 0.35, 0.25), (REQUESTS, 3)).T.copy()
    execution_s = predicted_s * random.lognormal(0, 0.3, (3, REQUESTS))
    ways_s = np.full(REQUESTS, 0.1), np.full(REQUESTS, 0.2)
    requests = Requests(np.arange(REQUESTS), tuple(execution_s), ways_s, ways_s)
    think_s = random.gamma(0.5, 4.0, REQUESTS + clients)
    trail = simulate(
        requests,
        lambda block: LeastTotal([column[block.src_len] for column in predicted_s]),
        believing(0.2),
        POOLS[pools],
        deciders=3,
        route=still_links(0.03, 0.1, 3),
        clients=Clients(clients, 9, think_s),
    )
    assert (np.bincount(trail.target, minlength=3) > REQUESTS / 20).all()
    response_s = trail.decided_s - trail.arrival_s + latency_s(requests, trail) + 0.03
    throughput = REQUESTS / trail.arrival_s[-1]
    assert throughput * (response_s.mean() + think_s.mean()) == pytest.approx(clients, rel=0.01)
    assert trail.queue_s.any() == (clients > 1)
