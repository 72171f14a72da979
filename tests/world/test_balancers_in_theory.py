"""What is known of balancers: closed forms where there are some, else their order, within intervals over replications.

For Poisson arrivals and exponential services. Drawing a server at random parts the arrivals into Poisson processes. Turns part
them more evenly, which is the best there is without looking (Ephremides, Varaiya and Walrand 1980); looking at two drawn
servers removes most of the wait under load (Mitzenmacher 2001), and looking at all of them is one queue before all servers.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simnmt.devices import Fifo, Kind
from simnmt.devices.device import InTurn, LeastLoadedOfDrawn, LeastWork
from simnmt.policies import CLOUD, GATEWAY
from tests.world.theory import (
    assert_mean,
    erlang_m_1_wait,
    exponential,
    half_width,
    m_g_1_wait,
    m_m_c_wait,
    mean_waits,
    runs,
)

REQUESTS = 9_000


def drawn(requests: int, servers: int, choices: int, replication: int) -> Kind:
    """The better of so many different servers drawn for each request."""
    random = np.random.default_rng([5, replication])
    first = random.integers(0, servers, requests)
    others = (first[:, None] + random.permuted(np.tile(np.arange(1, servers), (requests, 1)), axis=1)) % servers
    return Fifo(servers, balancer=LeastLoadedOfDrawn(np.column_stack([first, others[:, : choices - 1]])))


def waits(balancer: str, load: float, servers: int, service_s=exponential, requests: int = REQUESTS) -> list[float]:  # type: ignore[no-untyped-def]
    """Mean waits by replication; arrivals, services and end nodes are the same for every balancer."""

    def pool(replication: int) -> Kind:
        if balancer == "attached":
            return Fifo(servers)
        if balancer == "round robin":
            return Fifo(servers, balancer=InTurn())
        if balancer == "least work":
            return Fifo(servers, 1, LeastWork())
        return drawn(requests, servers, 2 if balancer == "two choices" else 1, replication)

    return mean_waits(runs(requests, load, service_s, CLOUD, pool, servers, nodes=60))


@pytest.fixture(scope="module")
def under_load() -> dict[str, list[float]]:
    """Four servers at load 0.8."""
    return {name: waits(name, 0.8, 4) for name in ("random", "attached", "round robin", "two choices", "least work")}


def test_a_random_server_is_m_m_1(under_load: dict[str, list[float]]) -> None:
    assert_mean(under_load["random"], m_g_1_wait(0.8, 1.0), within=0.2)


def test_so_is_the_end_nodes_own(under_load: dict[str, list[float]]) -> None:
    assert_mean(under_load["attached"], m_g_1_wait(0.8, 1.0), within=0.2)


def test_taking_turns_is_erlang_arrivals_at_each_server(under_load: dict[str, list[float]]) -> None:
    assert_mean(under_load["round robin"], erlang_m_1_wait(4, 0.8), within=0.2)


def test_least_work_is_m_m_c(under_load: dict[str, list[float]]) -> None:
    assert_mean(under_load["least work"], m_m_c_wait(4, 0.8), within=0.2)


def assert_order(*from_worst_to_best: list[float]) -> None:
    """Each waits longer than the next, beyond the 99.9 % interval of the paired difference."""
    for worse, better in pairwise(from_worst_to_best):
        difference = np.subtract(worse, better)
        assert difference.mean() > half_width(difference.tolist())


def test_under_load_random_waits_longer_than_turns_those_than_two_choices_and_those_than_least_work(
    under_load: dict[str, list[float]],
) -> None:
    assert_order(*(under_load[name] for name in ("random", "round robin", "two choices", "least work")))


def test_at_a_low_load_turns_over_many_servers_beat_two_choices() -> None:
    """Two drawn servers are both busy now and then; a server whose turn comes again has long been idle."""
    turns, two = (waits(name, 0.2, 16) for name in ("round robin", "two choices"))
    assert_order(two, turns)
    assert_mean(turns, erlang_m_1_wait(16, 0.2), within=0.2)


def test_many_gateways_of_many_workers_are_m_m_c_each() -> None:
    found = runs(REQUESTS, 0.7, exponential, GATEWAY, lambda _: Fifo(), workers=6, nodes=60, deciders=2)
    assert_mean(mean_waits(found), m_m_c_wait(3, 0.7), within=0.2)
