"""Servers behind balancers: each balancer's rule, a copy that foretells, and balancers that must agree to the bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.results.columns import recorder
from simnmt.world.clock import Clock
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import InTurn, LeastLoadedOfDrawn, RowLayout, Server, Site

EIGHTHS = st.integers(0, 40).map(lambda eighths: eighths / 8)
ENTRIES = st.lists(st.tuples(EIGHTHS, EIGHTHS, st.integers(0, 5)), min_size=1, max_size=40)
CHOICES = np.random.default_rng(3).permuted(np.tile(np.arange(3), (41, 1)), axis=1)[:, :2]

POOLS: dict[str, Callable[[int], Server]] = {
    "one server": FifoPool,
    "attached": lambda workers: FifoPool(3, workers),
    "round robin": lambda workers: FifoPool(3, workers, balancer=InTurn()),
    "least work": lambda workers: LeastWork(3, workers),
    "two choices": lambda workers: FifoPool(3, workers, balancer=LeastLoadedOfDrawn(CHOICES)),
    "random": lambda workers: FifoPool(3, workers, balancer=LeastLoadedOfDrawn(CHOICES[:, :1])),
}


def entries(rows: list[tuple[float, float, int]]) -> list[tuple[float, float, int, int]]:
    """From gaps, services and end nodes."""
    times_s = np.cumsum([gap_s for gap_s, _, _ in rows]).tolist()
    return [
        (at_s, service_s, number, node) for number, (at_s, (_, service_s, node)) in enumerate(zip(times_s, rows, strict=True))
    ]


def foretold(pool: FifoPool, last: tuple[float, float, int, int], ahead: list[tuple[float, float, int, int]]) -> float:
    """What the pool foresees in a world where a row holds the service where that of a remote target stands."""
    pool.open(Site(1, RowLayout(2), 6, 0, Clock(), recorder(99), None))
    arrivals = [(at_s, request, (0.0, node, 0.0, service_s, 0.0, 0.0)) for at_s, service_s, request, node in (*ahead, last)]
    return pool.wait_s(arrivals[-1], arrivals[:-1])


@pytest.mark.parametrize("pool", POOLS)
@settings(max_examples=25)
@given(workers=st.integers(1, 3), rows=ENTRIES, known=st.integers(0, 40))
def test_a_wait_foretold_is_the_wait_met_and_foretelling_changes_nothing(
    pool: str, workers: int, rows: list[tuple[float, float, int]], known: int
) -> None:
    """Some requests are in the pool already, the others are foretold to enter before the last."""
    servers, (*before, last) = POOLS[pool](workers), entries(rows)
    for entry in before[:known]:
        servers.enter(*entry)
    foretold_s = foretold(servers, last, before[known:])
    assert foretold_s == foretold(servers, last, before[known:])
    for entry in before[known:]:
        servers.enter(*entry)
    assert servers.enter(*last)[0] - last[0] == foretold_s


@pytest.mark.parametrize("pool", POOLS)
@settings(max_examples=25)
@given(workers=st.integers(1, 3), rows=ENTRIES)
def test_what_is_tried_on_a_copy_leaves_the_pool_as_it_was(
    pool: str, workers: int, rows: list[tuple[float, float, int]]
) -> None:
    tried, untouched = POOLS[pool](workers), POOLS[pool](workers)
    for entry in entries(rows):
        copy = tried.copy()
        expected = [copy.enter(*later) for later in entries(rows)[entry[2] :]]
        assert tried.enter(*entry) == untouched.enter(*entry) == expected[0]


@pytest.mark.parametrize("pool", POOLS)
@settings(max_examples=25)
@given(workers=st.integers(1, 3), rows=ENTRIES)
def test_every_server_is_first_in_first_out_and_never_runs_more_than_its_workers(
    pool: str, workers: int, rows: list[tuple[float, float, int]]
) -> None:
    servers = POOLS[pool](workers)
    spans: dict[int, list[tuple[float, float]]] = {}
    for entry_s, service_s, request, node in entries(rows):
        start_s, server = servers.enter(entry_s, service_s, request, node)
        assert start_s >= entry_s
        own = spans.setdefault(server, [])
        if own:
            assert start_s >= own[-1][0]
        assert sum(end_s > start_s for _, end_s in own) < workers
        own.append((start_s, start_s + service_s))


def starts_s(pool: Server, rows: list[tuple[float, float, int]]) -> list[float]:
    return [pool.enter(*entry)[0] for entry in entries(rows)]


@given(st.integers(1, 4), ENTRIES)
def test_least_work_over_servers_of_one_worker_is_one_queue_before_all_workers(
    servers: int, rows: list[tuple[float, float, int]]
) -> None:
    assert starts_s(LeastWork(servers), rows) == starts_s(FifoPool(workers=servers), rows)


@given(st.integers(1, 3), st.integers(1, 3), ENTRIES)
def test_least_work_takes_the_server_on_which_the_request_starts_soonest(
    servers: int, workers: int, rows: list[tuple[float, float, int]]
) -> None:
    """So do choices drawn among all servers, whoever gets it of those that are idle."""
    orders = np.array([np.random.default_rng(number).permutation(servers) for number in range(len(rows))])
    assert starts_s(LeastWork(servers, workers), rows) == starts_s(
        FifoPool(servers, workers, balancer=LeastLoadedOfDrawn(orders)), rows
    )


@given(st.integers(1, 4), ENTRIES)
def test_with_services_all_alike_taking_turns_is_as_good_as_least_work(
    servers: int, rows: list[tuple[float, float, int]]
) -> None:
    """Who came first is done first, so the server whose turn it is comes free next."""
    alike = [(gap_s, 2.5, node) for gap_s, _, node in rows]
    assert starts_s(FifoPool(servers, balancer=InTurn()), alike) == starts_s(LeastWork(servers), alike)


@pytest.mark.parametrize(
    "pool",
    [
        FifoPool(1),
        FifoPool(1, balancer=InTurn()),
        LeastWork(1),
        FifoPool(1, balancer=LeastLoadedOfDrawn(np.zeros((41, 1), np.int64))),
    ],
)
@given(rows=ENTRIES)
def test_of_one_server_every_balancer_makes_the_same(pool: Server, rows: list[tuple[float, float, int]]) -> None:
    assert starts_s(pool.copy(), rows) == starts_s(FifoPool(), rows)


def servers_of(pool: Server, *rows: tuple[float, float, int]) -> list[int]:
    """Where requests go, from rows of (entry, service, node)."""
    return [pool.enter(entry_s, service_s, request, node)[1] for request, (entry_s, service_s, node) in enumerate(rows)]


class TestWhoGetsIt:
    def test_attached_goes_by_the_end_node_however_long_the_queue(self) -> None:
        rows = [(0.0, 9.0, node) for node in (0, 3, 4, 3, 5)]
        assert servers_of(FifoPool(3), *rows) == [0, 0, 1, 0, 2]

    def test_round_robin_takes_turns_whatever_there_is_to_do(self) -> None:
        rows = [(0.0, 9.0, 0), (0.0, 1.0, 0), (5.0, 1.0, 0), (5.0, 1.0, 0)]
        assert servers_of(FifoPool(2, balancer=InTurn()), *rows) == [0, 1, 0, 1]

    def test_least_work_takes_who_is_free_first_and_of_the_idle_who_has_been_idle_longest(self) -> None:
        rows = [(0.0, 4.0, 0), (0.0, 2.0, 0), (0.0, 1.0, 0), (0.0, 1.0, 0), (10.0, 1.0, 0), (10.0, 1.0, 0)]
        # They come free at 4, 2 and 1; the fourth request waits at server 2 until 1. At 10 all are idle, 1 and 2 since 2.
        assert servers_of(LeastWork(3), *rows) == [0, 1, 2, 2, 1, 2]

    def test_of_two_drawn_the_one_drawn_first_is_taken_unless_the_other_starts_sooner(self) -> None:
        choices = np.array([[2, 0], [2, 0], [0, 2], [1, 0], [2, 0], [0, 1]])
        rows = [(0.0, 5.0, 0), (0.0, 5.0, 0), (0.0, 1.0, 0), (0.0, 3.0, 0), (9.0, 1.0, 0), (9.0, 1.0, 0)]
        # Request 2 finds 0 and 2 busy until 5, a tie; request 4 finds both idle, 2 for longer by a second.
        assert servers_of(FifoPool(3, balancer=LeastLoadedOfDrawn(choices)), *rows) == [2, 0, 0, 1, 2, 0]

    def test_a_second_worker_makes_a_server_the_better_choice(self) -> None:
        choices = np.array([[0, 1], [0, 1], [0, 1], [0, 1]])
        rows = [(0.0, 5.0, 0), (0.0, 5.0, 0), (1.0, 5.0, 0), (1.0, 5.0, 0)]
        assert servers_of(FifoPool(2, workers=2, balancer=LeastLoadedOfDrawn(choices)), *rows) == [0, 0, 1, 1]

    def test_numbers_of_very_many_servers_fit(self) -> None:
        choices = np.array([[9_999, 1], [2, 9_998]])
        assert servers_of(FifoPool(10_000, balancer=LeastLoadedOfDrawn(choices)), (0.0, 1.0, 0), (0.0, 1.0, 0)) == [9_999, 2]
