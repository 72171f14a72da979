"""Boxes that serve classes in turn: what theory says of their waits, and the order of service by hand."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from simnmt.batching import Batcher, Batching, Encode, Join
from simnmt.devices import Batched, Fifo
from simnmt.results.requests import Requests, Trail
from simnmt.world.compiled_world import simulate_compiled
from tests.world.batched_worlds import EIGHTHS
from tests.world.theory import Draw, exponential, lognormal
from tests.worlds import CLOUD, GATEWAY, believing, everything_to, inputs, needs_compiled, simulate


def served(priority: Any, arrival_s: Any, execution_s: Any, target: int = GATEWAY, **kind: Any) -> Trail:
    """Requests of some classes at one box, in both engines."""
    nothing, service = np.zeros(len(arrival_s)), np.asarray(execution_s, float)
    ranks, arrivals = np.asarray(priority, np.int8), np.asarray(arrival_s, float)
    requests = Requests(nothing.astype(int), (service, service), (nothing,), (nothing,), arrivals, priority=ranks)
    box = Fifo(**kind)
    return simulate(requests, everything_to(target), believing(0.0), [box], local=box)


@needs_compiled
@pytest.mark.parametrize("service_s", [exponential, lognormal(0.6)])
def test_classes_wait_at_m_g_1_as_cobham_says(service_s: Draw) -> None:
    """Cobham (1954): the work that is found, over the shares of time that higher classes leave, without and with this one.

    Both engines agree on the first requests, and the compiled one runs them all."""
    count, load, shares = 1_500_000, 0.75, np.array([0.3, 0.3, 0.4])
    random = np.random.default_rng(7)
    arrival_s, execution_s = np.cumsum(random.standard_exponential(count)) / load, service_s(random, count)
    priority, nothing = random.choice(3, count, p=shares).astype(np.int8), np.zeros(count)
    requests = Requests(np.ones(count, int), (execution_s, nothing), (nothing,), (nothing,), arrival_s, priority=priority)
    box = Fifo(max_wait_s=(inf, inf, inf))
    world, policy, _ = inputs(requests, everything_to(GATEWAY), believing(0.0), [box], local=box)
    trail = simulate_compiled(world, policy)
    found_s, busy = load * float((execution_s**2).mean()) / 2, load * np.cumsum([0.0, *shares])
    for rank in range(3):
        expected_s = found_s / (1 - busy[rank]) / (1 - busy[rank + 1])
        assert trail.queue_s[priority == rank].mean() == pytest.approx(expected_s, rel=0.02)
    first = slice(0, 5_000)
    again = served(priority[first], arrival_s[first], execution_s[first], max_wait_s=(inf, inf, inf))
    np.testing.assert_allclose(again.queue_s[:4_000], trail.queue_s[:4_000], 1e-9, 1e-9)


@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
def test_what_has_begun_goes_on_and_a_class_is_served_in_the_order_of_arrival(target: int) -> None:
    """Request 0 is executed when the others come; those of class 0 come last and go first."""
    trail = served([1, 1, 1, 0, 0], [0, 1, 1, 2, 2], [4, 1, 1, 1, 1], target, max_wait_s=(inf, inf))
    assert trail.queue_s.tolist() == [0, 5, 6, 2, 3]


def test_a_request_that_completes_when_another_arrives_is_followed_by_one_that_waits() -> None:
    trail = served([0, 1, 0], [0, 0.5, 1], [1, 1, 1], max_wait_s=(inf, inf))
    assert trail.queue_s.tolist() == [0, 0.5, 1]


def test_an_overdue_request_goes_before_higher_classes_and_the_oldest_of_them_first() -> None:
    """At 3 the requests 1 (of class 2) and 2 (of class 1) have both waited for the longest wait of their class."""
    trail = served([0, 2, 1, 0, 0], [0, 0.5, 1, 1, 1], [3, 1, 1, 1, 1], max_wait_s=(inf, 2.0, 2.5))
    assert trail.queue_s.tolist() == [0, 2.5, 3, 4, 5]


def test_no_request_waits_much_longer_than_its_class_may_while_the_higher_class_overloads_the_box() -> None:
    """Class 0 alone has a load of 1.2. An overdue request waits for what runs, and for those that were overdue before."""
    random, count = np.random.default_rng(3), 3_000
    priority = (random.random(count) < 0.1).astype(np.int8)
    arrival_s = np.cumsum(random.standard_exponential(count)) / 1.2 * 0.9
    trail = served(priority, arrival_s, np.ones(count), max_wait_s=(inf, 20.0))
    waits_s = trail.queue_s[priority == 1]
    assert waits_s.max() < 20.0 + 12.0
    assert trail.queue_s[priority == 0].max() > 200.0


def test_a_batch_takes_its_sentences_by_class_and_a_collection_too() -> None:
    for batching in (Batching(2, max_wait_s=(inf, 5.0)), Batching(2, collected=2, max_wait_s=(inf, 5.0))):
        batcher = Batcher(batching)
        for number, (rank, arrival_s) in enumerate([(1, 0.0), (1, 1.0), (0, 2.0), (0, 3.0)]):
            batcher.arrive(number, 3, arrival_s, rank)
        assert batcher.next(0, 4.0) == Encode((2, 3))
        assert batcher.next(0, 4.0) == Join((2, 3))
        batcher.arrive(4, 3, 4.0, 0)
        assert batcher.next(0, 5.5) == Encode((0, 4))  # 0 has waited for 5 s, and 1 has not


def test_a_running_batch_is_refilled_by_class_in_both_engines() -> None:
    """Two sentences are decoded at a time; when the first is done, those of class 0 join before those that came earlier."""
    nothing, arrivals = np.zeros(6), np.array([0, 0, 0.25, 0.25, 0.5, 0.5])
    lengths, ranks = np.array([8, 2, 1, 1, 1, 1]), np.array([1, 1, 1, 1, 0, 0], np.int8)
    requests = Requests(np.full(6, 2), (nothing,), arrival_s=arrivals, tgt_len=lengths, priority=ranks)
    kind = Batched(Batching(2, threshold=1, max_wait_s=(inf, inf)), EIGHTHS)
    trail = simulate(requests, everything_to(0), believing(0.0), [], local=kind)
    begins_s = trail.arrival_s + trail.queue_s
    assert np.argsort(begins_s, kind="stable").tolist() == [0, 1, 4, 5, 2, 3]
