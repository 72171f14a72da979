"""In any deployment every request is executed once, on one server, not before it arrived, in turn, by a free worker."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import LeastTotal
from simnmt.results.requests import Requests, Trail
from simnmt.world.inputs import Clients
from tests.world.theory import Floats
from tests.worlds import believing, in_reference, simulate

REQUESTS, NODES, DECIDERS, SERVERS = 8_000, 12, 3, 4
CHOICES = np.random.default_rng(6).permuted(np.tile(np.arange(SERVERS), (REQUESTS, 1)), axis=1)[:, :2].astype(np.int16)
BALANCERS: dict[str, Kind] = {
    "attached": Fifo(SERVERS),
    "round robin": Fifo(SERVERS, balancer=InTurn()),
    "least work": Fifo(SERVERS, 1, LeastWork()),
    "two choices": Fifo(SERVERS, balancer=LeastLoadedOfDrawn(CHOICES)),
}


class World:
    """Three gateways of two workers, one regional server of three, four cloud servers of one; links let requests overtake."""

    def __init__(self, balancer: str, is_closed: bool) -> None:
        random = np.random.default_rng(12)
        predicted_s = random.gamma(1.0, (0.6, 0.5, 0.45), (REQUESTS, 3)).T.copy()
        self.execution_s = predicted_s * random.lognormal(0, 0.4, (3, REQUESTS))
        self.up_s, self.down_s = random.exponential(((0.05,), (0.06,)), (2, 2, REQUESTS))
        node, arrival_s = random.integers(0, NODES, REQUESTS).astype(np.int32), np.cumsum(random.exponential(1 / 28, REQUESTS))
        self.workers, self.predicted_s, self.balancer = [2, 3, 1], predicted_s, balancer
        columns = tuple(self.execution_s), tuple(self.up_s), tuple(self.down_s), None if is_closed else arrival_s, node
        clients = {"route": self.route, "clients": Clients(60, NODES, random.exponential(0.3, 60 + REQUESTS))}
        self.trail: Trail = (in_reference if is_closed else simulate)(
            Requests(np.arange(REQUESTS), *columns),
            lambda block: LeastTotal([column[block.src_len] for column in predicted_s]),
            believing(0.3),
            [Fifo(1, 3, LeastWork()), BALANCERS[balancer]],
            deciders=DECIDERS,
            workers=2,
            **clients if is_closed else {},
        )
        self.node = node if self.trail.node is None else self.trail.node

    def route(self, request: int, node: int, moment_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
        return tuple(self.up_s[:, request].tolist()), tuple(self.down_s[:, request].tolist()), 0.02, 0.02

    def spans(self, target: int) -> tuple[Floats, Floats, Floats]:
        """When each request enters its server's queue, starts, and ends, were it executed on that target."""
        way_s = 0.0 if target == 0 else self.up_s[target - 1]
        entry_s = self.trail.decided_s + way_s
        start_s = entry_s + self.trail.queue_s
        return entry_s, start_s, start_s + self.execution_s[target]

    def servers(self) -> list[tuple[int, np.ndarray]]:
        """Target and requests of each server."""
        server = np.where(self.trail.target == 0, self.node % DECIDERS, self.trail.server)
        keys = np.stack([self.trail.target, server])
        return [(int(key[0]), np.flatnonzero((keys == key[:, None]).all(axis=0))) for key in np.unique(keys, axis=1).T]


@pytest.fixture(params=[(name, is_closed) for name in BALANCERS for is_closed in (False, True)], ids=str, scope="module")
def world(request: pytest.FixtureRequest) -> World:
    return World(*request.param)


def test_every_request_is_executed_once_on_one_server_that_exists_after_it_arrived(world: World) -> None:
    servers, trail = world.servers(), world.trail
    assert sum(len(executed) for _, executed in servers) == REQUESTS
    assert len(servers) == DECIDERS + 1 + SERVERS
    assert (trail.decided_s >= trail.arrival_s).all()
    assert (trail.queue_s >= 0.0).all() and 0.1 < (trail.queue_s > 0.0).mean() < 0.9
    assert (trail.measured_at_s <= trail.decided_s).all()


def test_every_server_is_first_in_first_out_and_never_runs_more_than_its_workers_or_fewer_while_one_waits(world: World) -> None:
    waited_at, overtaken = set[int](), False
    for target, executed in world.servers():
        entry_s, start_s, end_s = (column[executed] for column in world.spans(target))
        order = np.argsort(entry_s, kind="stable")
        assert (np.diff(start_s[order]) >= -1e-9).all()
        overtaken |= bool((np.diff(order) < 0).any())
        starts_s, ends_s = np.sort(start_s), np.sort(end_s)

        def running(at_s: Floats, starts_s: Floats = starts_s, ends_s: Floats = ends_s) -> np.ndarray:
            return np.searchsorted(starts_s, at_s, side="right") - np.searchsorted(ends_s, at_s, side="right")

        assert running(start_s + 1e-9).max() <= world.workers[target]
        waited = start_s > entry_s + 1e-6
        assert (running(start_s[waited] - 1e-7) == world.workers[target]).all()
        waited_at |= {target} if waited.any() else set()
    assert waited_at == {0, 1, 2} and overtaken


def test_a_request_goes_where_predicted_and_measured_times_are_least(world: World) -> None:
    """Beliefs are those of its own decider; that of the cloud's link is in the trail."""
    trail = world.trail
    assert (np.bincount(trail.target, minlength=3) > REQUESTS / 10).all()
    cloud_s, here_s = world.predicted_s[2] + trail.estimate_s, world.predicted_s[0]
    assert (cloud_s <= here_s)[trail.target == 2].all() and (here_s <= cloud_s)[trail.target == 0].all()


def test_a_balancer_takes_the_server_that_it_names(world: World) -> None:
    """The next in turn, that of the end node, or the one with the least work left among all or two drawn ones."""
    away = np.flatnonzero(world.trail.target == 2)
    entry_s, _, end_s = world.spans(2)
    away, free_s = away[np.argsort(entry_s[away], kind="stable")], np.zeros(SERVERS)
    for turn, request in enumerate(away.tolist()):
        left_s, server = np.maximum(free_s - entry_s[request], 0.0), world.trail.server[request]
        open_to = CHOICES[request] if world.balancer == "two choices" else np.arange(SERVERS)
        if world.balancer in ("attached", "round robin"):
            assert server == (turn if world.balancer == "round robin" else world.node[request]) % SERVERS
        else:
            assert server in open_to and left_s[server] == pytest.approx(left_s[open_to].min(), abs=1e-9)
        free_s[server] = end_s[request]


def test_a_decider_keeps_the_requests_of_its_own_end_nodes_alone(world: World) -> None:
    """Node n's decider is n modulo their number; what one of them believes comes from answers to its own."""
    decider = world.node % DECIDERS
    for number in range(DECIDERS):
        executed = np.flatnonzero(decider == number)
        away = executed[world.trail.target[executed] == 2]
        answered_s = world.spans(2)[2][away] + world.down_s[1][away]
        order = np.argsort(answered_s)
        transfer_s = (world.up_s[1] + world.down_s[1])[away][order]
        last = np.searchsorted(answered_s[order], world.trail.decided_s[executed] + 1e-12, side="right") - 1
        known = last >= 0
        np.testing.assert_allclose(world.trail.estimate_s[executed][known], transfer_s[last[known]], rtol=0, atol=1e-9)
        assert (world.trail.estimate_s[executed][~known] == 0.3).all()
