"""Three tiers, two gateways, balancers and clients, against idiomatic SimPy: a process for each request, `Resource` servers."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import pytest
import simpy
from numpy.typing import NDArray

from simnmt.devices import Fifo
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import Decide, TransferEstimate, least_total
from simnmt.results.requests import Requests
from simnmt.world.deciders import Beliefs
from simnmt.world.reference import Clients, simulate
from tests.worlds import latency_s

REQUESTS, CLIENTS = 3_000, 20


class Deployment:
    """Three tiers with several boxes each, in SimPy as its users write it: a process for each request or client.

    Six end nodes; two gateways that decide by what they measured and reckon; two regional servers in turn; three cloud servers,
    the less busy of two drawn ones or the least busy of all.
    """

    NODES, GATEWAYS, REGIONS, CLOUDS = 6, 2, 2, 3

    def __init__(self, cloud: str, load: float, requests: int = REQUESTS) -> None:
        random = np.random.default_rng(23)
        self.n, self.cloud = requests, cloud
        self.reckoned_s = random.gamma(2.0, (0.5, 0.3, 0.2), (requests, 3)).T.copy()
        self.execution_s = self.reckoned_s * random.lognormal(0, 0.3, (3, requests))
        self.up_s, self.down_s = random.exponential(((0.05,), (0.15,)), (2, 2, requests)) + 0.05
        self.node = random.integers(0, self.NODES, requests).astype(np.int32)
        self.choices = np.array([random.permutation(self.CLOUDS)[:2] for _ in range(requests)])
        self.access_s = random.uniform(0.01, 0.1, (self.NODES, 2))
        self.arrival_s = np.cumsum(random.exponential(1 / load, requests))
        self.think_s = random.exponential(CLIENTS / load, requests + CLIENTS)

    def requests(self, arrival_s: NDArray[np.float64] | None) -> Requests:
        """What our world is handed."""
        return Requests(np.arange(self.n), tuple(self.execution_s), tuple(self.up_s), tuple(self.down_s), arrival_s, self.node)

    def ours(self, clients: bool) -> tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.float64]]:
        """When each request's answer is back at its decider, its target, and what was believed of the cloud's link."""

        def decide_for(block: Requests) -> Decide:
            return least_total([column[block.src_len] for column in self.reckoned_s])

        def route(request: int, node: int, moment_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
            there_s, back_s = self.access_s[node].tolist()
            return tuple(self.up_s[:, request].tolist()), tuple(self.down_s[:, request].tolist()), there_s, back_s

        balancer = (
            Fifo(self.CLOUDS, balancer=LeastWork())
            if self.cloud == "least work"
            else Fifo(self.CLOUDS, balancer=LeastLoadedOfDrawn(self.choices))
        )
        requests = self.requests(None if clients else self.arrival_s)
        trail = simulate(
            requests,
            decide_for,
            Beliefs(lambda decider, target: TransferEstimate(0.2)),
            [Fifo(self.REGIONS, balancer=InTurn()), balancer],
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
            totals = [self.reckoned_s[k, i] + known[k] for k in range(3)]
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
    found, expected = deployment.ours(clients), deployment.in_simpy(clients)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(found[2], expected[2], rtol=0, atol=1e-9)
    shares = np.bincount(found[1], minlength=3) / REQUESTS
    assert (shares > 0.1).all()
