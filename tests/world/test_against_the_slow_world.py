"""The fast world agrees with the slow one to the bit: in whatever tiers, under whatever balancers, in open and closed loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.policies import BacklogView, Decide, TransferEstimate, least_total
from simnmt.results import requests as requests_module
from simnmt.results.requests import Requests, Trail
from simnmt.world.deciders import Answers, Beliefs
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import InTurn, LeastLoadedOfDrawn, Server
from simnmt.world.simulation import Clients, simulate
from tests.campaigns.harness import SCALE
from tests.world.slow_world import SlowWorld, Tier, tier

COLUMNS = ("arrival_s", "decided_s", "target", "server", "queue_s", "estimate_s", "measured_at_s")
BALANCERS: dict[str, Callable[[int, int], Server]] = {
    "attached": FifoPool,
    "round_robin": lambda servers, workers: FifoPool(servers, workers, InTurn()),
    "least_work": LeastWork,
}
KNOWING = ["measured", "smoothed", "sees backlog", "told transfers", "told backlogs", "told all"]


@dataclass(frozen=True)
class Shape:
    """How a world is built; the numbers in it follow from the seed."""

    requests: int
    tiers: tuple[tuple[str, int, int], ...]
    """Balancer, servers and workers of each, behind the first."""
    deciders: int
    workers: int
    nodes: int
    knowing: str
    clients: int
    """0 in an open loop."""
    access: bool
    """Whether it takes time from end node to decider and back."""
    seed: int


TIERS = st.tuples(st.sampled_from([*BALANCERS, "one drawn", "two drawn"]), st.integers(1, 4), st.integers(1, 2))
SHAPES = st.builds(
    Shape,
    requests=st.integers(1, 40),
    tiers=st.lists(TIERS, min_size=1, max_size=3).map(tuple),
    deciders=st.integers(1, 3),
    workers=st.integers(1, 2),
    nodes=st.integers(1, 6),
    knowing=st.sampled_from(KNOWING),
    clients=st.just(0) | st.integers(1, 7),
    access=st.booleans(),
    seed=st.integers(0, 2**32),
)


class World:
    """Everything that both worlds are handed.

    Times are eighths, which add and subtract without rounding: equal moments are equal, there are many of them, and both worlds
    must agree to the bit. Each goes by a decision that is handed on as it was made, so `handed` tells the first difference.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, n = shape, shape.requests
        self.random = np.random.default_rng(shape.seed)
        targets = 1 + len(shape.tiers)
        busy = int(self.random.integers(1, 25))
        self.requests = Requests(
            np.arange(n),
            tuple(self.eighths(busy, n) for _ in range(targets)),
            tuple(self.eighths(12, n) for _ in shape.tiers),
            tuple(self.eighths(12, n) for _ in shape.tiers),
            None if shape.clients else np.cumsum(self.eighths(8, n)),
            self.random.integers(0, shape.nodes, n).astype(np.int32),
        )
        self.choices = [self.choices_among(servers, 1 + (balancer == "two drawn")) for balancer, servers, _ in shape.tiers]
        self.reckoned_s = [self.eighths(30, n) for _ in range(targets)]
        self.initial_s = self.eighths(12, (shape.deciders, targets))
        self.links_s = self.eighths(12, (8, 2 * len(shape.tiers)))
        self.access_s = self.eighths(8, (shape.nodes, 2)) * (self.random.random((shape.nodes, 1)) < 0.8)
        self.think_s = self.eighths(10, shape.clients + n)

    def eighths(self, largest: int, size: Any) -> np.ndarray:
        return self.random.integers(0, largest + 1, size) / 8

    def choices_among(self, servers: int, drawn: int) -> np.ndarray:
        orders = [self.random.permutation(servers)[:drawn] for _ in range(self.shape.requests)]
        return np.array(orders, np.int64)

    @property
    def parallel(self) -> tuple[int, ...]:
        """Workers of each target, over all its servers."""
        return (self.shape.workers, *(servers * workers for _, servers, workers in self.shape.tiers))

    def beliefs(self) -> Beliefs:
        knowing = self.shape.knowing

        def estimate(decider: int, target: int) -> TransferEstimate:
            initial_s = float(self.initial_s[decider, target])
            return TransferEstimate(initial_s, 0.5 if knowing == "smoothed" else 1.0)

        return Beliefs(
            estimate,
            views=tuple(partial(BacklogView, parallel) for parallel in self.parallel) if knowing == "sees backlog" else (),
            true_transfer=knowing in ("told transfers", "told all"),
            true_backlog=knowing in ("told backlogs", "told all"),
        )

    def route(self, request: int, node: int, moment_s: float) -> tuple[tuple[float, ...], tuple[float, ...], float, float]:
        """Links that change with every half second, and differ by end node."""
        links_s = self.links_s[(int(2 * moment_s) + 3 * node) % len(self.links_s)].tolist()
        there_s, back_s = self.access_s[node].tolist() if self.shape.access else (0.0, 0.0)
        half = len(links_s) // 2
        return tuple(links_s[:half]), tuple(links_s[half:]), there_s, back_s

    @property
    def clients(self) -> Clients | None:
        return Clients(self.shape.clients, self.shape.nodes, self.think_s) if self.shape.clients else None

    def pools(self) -> list[Server]:
        pools: list[Server] = []
        for (balancer, servers, workers), choices in zip(self.shape.tiers, self.choices, strict=True):
            if servers == 1:
                pools.append(FifoPool(workers=workers))
            elif balancer in BALANCERS:
                pools.append(BALANCERS[balancer](servers, workers))
            else:
                pools.append(FifoPool(servers, workers, balancer=LeastLoadedOfDrawn(choices)))
        return pools

    def slow_tiers(self) -> list[Tier]:
        named = zip(self.shape.tiers, self.choices, strict=True)
        return [tier(balancer, servers, workers, choices.tolist()) for (balancer, servers, workers), choices in named]

    def fast(self) -> tuple[Trail, list[tuple[float, ...]]]:
        """What the fast world says, and the delays that it handed to each decision."""
        handed: list[tuple[float, ...]] = [()] * self.shape.requests

        def decide_for(block: Requests) -> Decide:
            decide = least_total([column[block.src_len] for column in self.reckoned_s])

            def noted(request: int, delay_s: Sequence[float]) -> int:
                handed[block.src_len[request]] = tuple(delay_s)
                return decide(request, delay_s)

            return noted

        trail = simulate(
            self.requests,
            decide_for,
            self.beliefs(),
            self.pools(),
            deciders=self.shape.deciders,
            workers=self.shape.workers,
            expected_for=lambda block: [column[block.src_len].tolist() for column in self.reckoned_s],
            route=self.route if self.shape.clients else None,
            clients=self.clients,
        )
        return trail, handed

    def slow(self) -> SlowWorld:
        return SlowWorld(
            self.requests,
            least_total(self.reckoned_s),
            self.beliefs(),
            self.slow_tiers(),
            deciders=self.shape.deciders,
            workers=self.shape.workers,
            predicted=[column.tolist() for column in self.reckoned_s],
            route=self.route,
            clients=self.clients,
        )


def assert_agreement(world: World) -> Trail:
    trail, handed = world.fast()
    slow = world.slow()
    assert handed == slow.handed
    for name in COLUMNS:
        assert getattr(trail, name).tolist() == getattr(slow, name), name
    assert (world.requests.node if trail.node is None else trail.node).tolist() == slow.node
    return trail


@settings(max_examples=round(80 * SCALE))
@given(SHAPES, st.sampled_from([1, 3, 4096]))
def test_the_world_agrees_with_the_slow_one_to_the_bit(shape: Shape, block: int) -> None:
    """Ties included: arrivals of one moment, an answer and an arrival, requests at a server's door, clients at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests_module, "BLOCK", block)
        assert_agreement(World(shape))


def a_shape(seed: int) -> Shape:
    """A large world of any kind."""
    random = np.random.default_rng(seed)
    kinds = [*BALANCERS, "one drawn", "two drawn"]
    return Shape(
        requests=300,
        tiers=tuple(
            (kinds[random.integers(len(kinds))], int(random.integers(1, 5)), int(random.integers(1, 3)))
            for _ in range(random.integers(1, 4))
        ),
        deciders=int(random.integers(1, 4)),
        workers=int(random.integers(1, 3)),
        nodes=int(random.integers(1, 7)),
        knowing=KNOWING[seed % len(KNOWING)],
        clients=int(random.integers(50, 150)) if seed % 3 == 0 else 0,
        access=bool(random.integers(2)),
        seed=seed,
    )


@pytest.mark.deep
def test_so_it_does_under_backlogs_of_hundreds() -> None:
    """Deeper than what is kept at hand of answers on their way; not all of what is told of backlogs, which takes long."""
    deepest = 0
    for seed in range(84):
        shape = a_shape(seed)
        if shape.knowing in ("told backlogs", "told all"):
            shape = replace(shape, requests=120)
        trail = assert_agreement(World(shape))
        entered_s, started_s = trail.decided_s, trail.decided_s + trail.queue_s
        deepest = max(deepest, int((np.searchsorted(np.sort(entered_s), started_s) - np.arange(len(entered_s))).max()))
    assert deepest > 3 * Answers.NEAR
