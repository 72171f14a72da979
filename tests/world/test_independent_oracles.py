"""Ciw and an idiomatic SimPy model, which share no code with the world, complete every request at the same moment.

Ciw draws a service time when a service begins, so it cannot know how much work waits: it judges least work where that is one
queue before all workers, and two choices are judged by `test_conservation`.
"""

from __future__ import annotations

from dataclasses import replace

import ciw
import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from simnmt.devices import Fifo
from simnmt.devices.device import ByNode, InTurn, LeastWork
from simnmt.policies import Decide, LeastTotal
from simnmt.results.requests import Requests
from tests.worlds import believing, everything_to, latency_s, run, simulate, two_devices

Outcome = tuple[NDArray[np.float64], NDArray[np.int8]]
"""When each request's answer is received, and its target."""
REQUESTS, FEWER = 3_000, 1_200


def ours(inputs: WorldInputs, workers: int = 1, back_to_back: bool = False) -> Outcome:
    """Completion times and targets; `src_len` holds the request's number, by which the rule finds its predictions."""

    def decide_for(block: Requests) -> Decide:
        return LeastTotal((inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]))

    arrival_s, numbers = None if back_to_back else inputs.arrival_s, np.arange(inputs.requests)
    requests = two_devices(numbers, inputs.gateway_s, inputs.cloud_s, inputs.uplink_s, inputs.downlink_s, arrival_s)
    trail = run(requests, decide_for, inputs.initial_transfer_s, workers=workers)
    return trail.arrival_s + latency_s(requests, trail), trail.target


def agree(outcome: Outcome, expected: Outcome) -> None:
    np.testing.assert_array_equal(outcome[1], expected[1])
    np.testing.assert_allclose(outcome[0], expected[0], rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("load", [0.3, 0.95, 1.9])
def test_ciw_and_idiomatic_simpy_complete_every_request_at_the_same_moment(load: float, workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load)
    agree(ours(inputs, workers), idiomatic.simulate(inputs, workers))
    if load < 1.0:
        agree(ours(inputs, workers), ciw_model.simulate(inputs, workers))


@pytest.mark.parametrize("workers", [1, 3])
def test_ciw_does_so_where_requests_overtake_each_other_on_the_link(workers: int) -> None:
    inputs = cnmt_inputs(REQUESTS, load=0.9)
    up_s, down_s = np.random.default_rng(5).exponential(0.5, (2, REQUESTS))
    overtaking = replace(inputs, uplink_s=inputs.uplink_s + up_s, downlink_s=inputs.downlink_s + down_s, initial_transfer_s=0.9)
    # A policy that expects a second on the link must save more than that to send anything.
    overtaking = replace(overtaking, local_predicted_s=overtaking.local_predicted_s + 1.0)
    outcome = ours(overtaking, workers)
    agree(outcome, ciw_model.simulate(overtaking, workers))
    assert 0.2 < outcome[1].mean() < 0.8


def test_idiomatic_simpy_does_so_back_to_back() -> None:
    inputs = cnmt_inputs(REQUESTS)
    agree(ours(inputs, back_to_back=True), idiomatic.simulate_back_to_back(inputs))


class _ByNode(ciw.routing.NodeRouting):
    """To the server of the request's end node."""

    def __init__(self, node: NDArray[np.int32], servers: int) -> None:
        self.to = (2 + node % servers).tolist()

    def next_node(self, ind: ciw.Individual) -> ciw.Node:
        return self.simulation.nodes[self.to[ind.id_number - 1]]


def ciw_servers(
    routing: ciw.routing.NodeRouting, servers: int, workers: int, arrival_s: NDArray[np.float64], service_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """When each request leaves one of several nodes, which the first node, that takes no time, sends it to."""
    moments, service = ciw_model._Moments(arrival_s), ciw_model._PerRequest(service_s)
    network = ciw.create_network(
        arrival_distributions=[moments, *[None] * servers],
        service_distributions=[ciw.dists.Deterministic(0.0), *[service] * servers],
        number_of_servers=[float("inf"), *[workers] * servers],
        routing=ciw.routing.NetworkRouting([routing, *[ciw.routing.Leave()] * servers]),
    )

    class Door(ciw.ArrivalNode):
        def increment_time(self, original: float, increment: float) -> float:
            return increment

    simulation = ciw.Simulation(network, arrival_node_class=Door)
    simulation.simulate_until_max_customers(len(service_s), method="Complete")
    done_s = np.empty(len(service_s))
    for individual in simulation.nodes[-1].all_individuals:
        done_s[individual.id_number - 1] = individual.data_records[-1].exit_date
    return done_s


@pytest.mark.parametrize("load", [0.6, 0.95])
@pytest.mark.parametrize(
    ("pool", "servers", "workers"),
    [
        (Fifo(3, balancer=InTurn()), 3, 1),
        (Fifo(2, workers=2, balancer=InTurn()), 2, 2),
        (Fifo(3), 3, 1),
        (Fifo(3, 1, LeastWork()), 1, 3),
        (Fifo(workers=3), 1, 3),
    ],
    ids=["in turn", "two workers in turn", "by node", "least work", "three workers"],
)
def test_ciw_does_so_behind_a_balancer(load: float, pool: Fifo, servers: int, workers: int) -> None:
    """All requests go to the cloud over a link that takes no time. Least work is one queue before servers of one worker."""
    random, nothing = np.random.default_rng(17), np.zeros(FEWER)
    arrival_s, service_s = np.cumsum(random.exponential(1 / (3 * load), FEWER)), random.gamma(2.0, 0.5, FEWER)
    node = random.integers(0, 12, FEWER).astype(np.int32)
    requests = Requests(np.arange(FEWER), (nothing, service_s), (nothing,), (nothing,), arrival_s, node)
    trail = simulate(requests, everything_to(1), believing(0.0), [pool])
    in_turn = ciw.routing.Cycle([2 + server for server in range(servers)])
    routing = _ByNode(node, servers) if pool.balancer == ByNode() and servers > 1 else in_turn
    expected_s = ciw_servers(routing, servers, workers, arrival_s, service_s)
    np.testing.assert_allclose(arrival_s + trail.queue_s + service_s, expected_s, rtol=0, atol=1e-9)
