"""Clients with think time wait as the machine repairman's model says, and obey the interactive response-time law."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.devices import Fifo
from simnmt.network.link import Hop, Link, MovingRoute
from simnmt.network.series import constant_rtt
from simnmt.results.requests import Requests
from simnmt.world.inputs import Clients
from tests.campaigns.harness import deep
from tests.world.theory import REPLICATIONS, Draw, assert_mean, constant, exponential, lognormal, machine_repair
from tests.worlds import believing, everything_to, simulate_replication

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
    # The interactive response-time law: for each run, clients are throughput times the time of a round.
    assert np.multiply(throughputs, np.add(responses, 8.0)) == pytest.approx(clients, rel=0.06)
