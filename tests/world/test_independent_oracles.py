"""Ciw and idiomatic SimPy models, which share no code with the world, complete every request at the same moment.

Ciw draws a service time when a service begins, so it cannot know how much work waits: two choices are judged by SimPy
alone, least work by Ciw where it is one queue before all workers.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import ciw
import numpy as np
import pytest
import simpy
from numpy.typing import NDArray

from benchmarks import ciw_model, idiomatic
from benchmarks.inputs import WorldInputs, cnmt_inputs
from simnmt.devices import Fifo, Kind
from simnmt.devices.device import ByNode, InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import Decide, LeastTotal
from simnmt.results.requests import Requests
from simnmt.world.inputs import Clients
from tests.world.engines import simulate
from tests.worlds import believing, everything_to, in_reference, latency_s, run, two_devices

Outcome = tuple[NDArray[np.float64], NDArray[np.int8]]
"""When each request's answer is received, and its target."""
REQUESTS, FEWER, CLIENTS = 3_000, 1_200, 20


def ours(inputs: WorldInputs, workers: int = 1, back_to_back: bool = False) -> Outcome:
    """Completion times and targets; `src_len` holds the request's number, by which the rule finds its predictions."""

    def decide_for(block: Requests) -> Decide:
        return LeastTotal((inputs.local_predicted_s[block.src_len], inputs.remote_predicted_s[block.src_len]))

    arrival_s, numbers = None if back_to_back else inputs.arrival_s, np.arange(inputs.requests)
    requests = two_devices(numbers, inputs.gateway_s, inputs.cloud_s, inputs.uplink_s, inputs.downlink_s, arrival_s)
    trail = run(requests, decide_for, inputs.initial_transfer_s, workers=workers)
    return trail.arrival_s + latency_s(requests, trail), trail.target


def agree(
    outcome: tuple[NDArray[np.float64], NDArray[np.int8]], expected: tuple[NDArray[np.float64], NDArray[np.int8]]
) -> None:
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


def ciw_servers(routing: ciw.routing.NodeRouting, servers: int, workers: int, times: Times) -> NDArray[np.float64]:
    """When each request leaves one of several nodes, which the first node, that takes no time, sends it to."""
    moments, service = ciw_model._Moments(times.arrival_s), ciw_model._PerRequest(times.service_s)
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
    simulation.simulate_until_max_customers(len(times.service_s), method="Complete")
    done_s = np.empty(len(times.service_s))
    for individual in simulation.nodes[-1].all_individuals:
        done_s[individual.id_number - 1] = individual.data_records[-1].exit_date
    return done_s


@dataclass(frozen=True)
class Times:
    """Requests that all go to one tier, over a link that takes no time."""

    arrival_s: NDArray[np.float64]
    service_s: NDArray[np.float64]
    node: NDArray[np.int32]

    def done_s(self, pool: Kind) -> NDArray[np.float64]:
        """When they are done in our world."""
        nothing = np.zeros(len(self.service_s))
        requests = Requests(
            np.arange(len(nothing)), (nothing, self.service_s), (nothing,), (nothing,), self.arrival_s, self.node
        )
        trail = simulate(requests, everything_to(1), believing(0.0), [pool])
        return self.arrival_s + trail.queue_s + self.service_s


@pytest.fixture(params=[0.6, 0.95], ids=["load 0.6", "load 0.95"])
def times(request: pytest.FixtureRequest) -> Times:
    """For three workers."""
    random = np.random.default_rng(17)
    arrival_s = np.cumsum(random.exponential(1 / (3 * request.param), FEWER))
    return Times(arrival_s, random.gamma(2.0, 0.5, FEWER), random.integers(0, 12, FEWER).astype(np.int32))


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
def test_ciw_does_so_behind_a_balancer(times: Times, pool: Fifo, servers: int, workers: int) -> None:
    """Least work over servers of one worker is one queue before all workers."""
    in_turn = ciw.routing.Cycle([2 + server for server in range(servers)])
    routing = _ByNode(times.node, servers) if pool.balancer == ByNode() and servers > 1 else in_turn
    np.testing.assert_allclose(times.done_s(pool), ciw_servers(routing, servers, workers, times), rtol=0, atol=1e-9)


class Deployment:
    """Three tiers with several boxes each, in SimPy as its users write it: a process for each request or client.

    Six end nodes; two gateways that decide by measured and predicted times; two regional servers in turn; three cloud servers,
    the less busy of two drawn ones or the least busy of all.
    """

    NODES, GATEWAYS, REGIONS, CLOUDS = 6, 2, 2, 3

    def __init__(self, cloud: str, load: float, requests: int = REQUESTS) -> None:
        random = np.random.default_rng(23)
        self.n, self.cloud = requests, cloud
        self.predicted_s = random.gamma(2.0, (0.5, 0.3, 0.2), (requests, 3)).T.copy()
        self.execution_s = self.predicted_s * random.lognormal(0, 0.3, (3, requests))
        self.up_s, self.down_s = random.exponential(((0.05,), (0.15,)), (2, 2, requests)) + 0.05
        self.node = random.integers(0, self.NODES, requests).astype(np.int32)
        self.choices = np.array([random.permutation(self.CLOUDS)[:2] for _ in range(requests)])
        self.access_s = random.uniform(0.01, 0.1, (self.NODES, 2))
        self.arrival_s = np.cumsum(random.exponential(1 / load, requests))
        self.think_s = random.exponential(CLIENTS / load, requests + CLIENTS)

    def ours(self, clients: bool) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.float64]]:
        """When each request's answer is back at its decider, its target, and what was believed of the cloud's link."""

        def route(request: int, node: int, moment_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
            there_s, back_s = self.access_s[node].tolist()
            return tuple(self.up_s[:, request].tolist()), tuple(self.down_s[:, request].tolist()), there_s, back_s

        balancer = LeastWork() if self.cloud == "least work" else LeastLoadedOfDrawn(self.choices)
        arrival_s, ways_s = None if clients else self.arrival_s, (tuple(self.up_s), tuple(self.down_s))
        requests = Requests(np.arange(self.n), tuple(self.execution_s), *ways_s, arrival_s, self.node)
        trail = (in_reference if clients else simulate)(
            requests,
            lambda block: LeastTotal([column[block.src_len] for column in self.predicted_s]),
            believing(0.2),
            [Fifo(self.REGIONS, balancer=InTurn()), Fifo(self.CLOUDS, balancer=balancer)],
            deciders=self.GATEWAYS,
            route=route if clients else None,
            clients=Clients(CLIENTS, self.NODES, self.think_s) if clients else None,
        )
        return trail.decided_s + latency_s(requests, trail), trail.target, trail.estimate_s

    def in_simpy(self, clients: bool) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.float64]]:
        """The same."""
        env = simpy.Environment()
        boxes = [[simpy.Resource(env) for _ in range(count)] for count in (self.GATEWAYS, self.REGIONS, self.CLOUDS)]
        ends_s = [0.0] * self.CLOUDS
        """When each cloud server will have done what it has."""
        estimates = [[0.0, 0.2, 0.2] for _ in range(self.GATEWAYS)]
        done_s, target, believed_s = np.zeros(self.n), np.zeros(self.n, np.int8), np.zeros(self.n)
        turn = 0
        issued = 0

        def request(i: int, node: int) -> Generator[simpy.Event, None, None]:
            nonlocal turn
            known = estimates[node % self.GATEWAYS]
            totals = [self.predicted_s[k, i] + known[k] for k in range(3)]
            k = target[i] = totals.index(min(totals))
            believed_s[i] = known[2]
            sent_s = env.now
            if k == 0:
                box = node % self.GATEWAYS
            else:
                yield env.timeout(self.up_s[k - 1, i])
                if k == 1:
                    box, turn = turn, 1 - turn
                else:
                    open_to = self.choices[i].tolist() if self.cloud == "two choices" else range(self.CLOUDS)
                    box = min(open_to, key=lambda server: max(ends_s[server] - env.now, 0.0))
                    ends_s[box] = max(ends_s[box], env.now) + self.execution_s[k, i]
            reached_s = env.now
            with boxes[k][box].request() as turn_at_box:
                yield turn_at_box
                yield env.timeout(self.execution_s[k, i])
            finished_s = env.now
            if k > 0:
                yield env.timeout(self.down_s[k - 1, i])
                known[k] = (env.now - sent_s) - (finished_s - reached_s)
            done_s[i] = env.now

        def source() -> Generator[simpy.Event, None, None]:
            for i, at_s in enumerate(self.arrival_s.tolist()):
                yield env.timeout(at_s - env.now)
                env.process(request(i, int(self.node[i])))

        def client(number: int) -> Generator[simpy.Event, None, None]:
            nonlocal issued
            node = number % self.NODES
            yield env.timeout(self.think_s[number])
            while issued < self.n:
                i, issued = issued, issued + 1
                yield env.timeout(self.access_s[node, 0])
                yield env.process(request(i, node))
                yield env.timeout(self.access_s[node, 1])
                yield env.timeout(self.think_s[CLIENTS + i])

        if clients:
            for number in range(CLIENTS):
                env.process(client(number))
        else:
            env.process(source())
        env.run()
        return done_s, target, believed_s


@pytest.mark.parametrize("cloud", ["two choices", "least work"])
@pytest.mark.parametrize("load", [2.0, 6.0])
@pytest.mark.parametrize("clients", [False, True], ids=["open loop", "closed loop"])
def test_idiomatic_simpy_agrees_on_three_tiers(cloud: str, load: float, clients: bool) -> None:
    deployment = Deployment(cloud, load)
    outcome, expected = deployment.ours(clients), deployment.in_simpy(clients)
    np.testing.assert_array_equal(outcome[1], expected[1])
    np.testing.assert_allclose(outcome[0], expected[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(outcome[2], expected[2], rtol=0, atol=1e-9)
    shares = np.bincount(outcome[1], minlength=3) / REQUESTS
    assert (shares > 0.1).all()
