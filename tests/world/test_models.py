"""Boxes of several models: who waits for a load, and which models are loaded and evicted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.batching import Batching
from simnmt.devices import Batched, Fifo
from simnmt.devices.device import InTurn
from simnmt.devices.models import Models
from simnmt.results.requests import DONE, FALLBACK, Requests, Trail
from simnmt.world.faults import Faults
from tests.model_cache import misses
from tests.world.batched_worlds import EIGHTHS
from tests.worlds import believing, everything_to, in_reference, simulate


def asked(
    arrival_s: list[float] | NDArray[np.float64], model: list[int] | NDArray[np.int64], service_s: float = 1.0
) -> Requests:
    """Requests that reach the cloud at these moments."""
    count = len(arrival_s)
    zeros, ones = np.zeros(count), np.full(count, service_s)
    return Requests(
        np.ones(count, np.int64), (ones, ones), (zeros,), (zeros,), np.asarray(arrival_s, float), model=np.asarray(model)
    )


def run(requests: Requests, models: Models, workers: int = 1, boxes: int = 1) -> Trail:
    """All requests at the cloud, in both engines."""
    return simulate(requests, everything_to(1), believing(0.1), [Fifo(boxes, workers, InTurn(), models=models)])


@pytest.mark.parametrize(
    ("load_s", "arrival_s", "model", "service_s", "begin_s", "waits_s"),
    [
        # a is loaded until 2 and b until 4, is ready after the second and the third a, and ends at 6; then c evicts it.
        ((2, 2, 2), [0.0, 0.5, 2.0, 3.0, 3.5], [0, 1, 0, 0, 2], 1.0, [2.0, 5.0, 3.0, 4.0, 8.0], [2.0, 3.5, 0.0, 0.0, 4.5]),
        # b is loaded until 1 and a until 5. The last request reaches the box then, after the two that waited.
        ((4, 1), [0.0, 0.0, 1.0, 4.5, 5.0], [1, 0, 0, 1, 0], 2.0, [1.0, 6.5, 8.5, 4.5, 10.5], [1.0, 5.0, 4.0, 0.0, 0.0]),
    ],
)
def test_a_request_waits_for_the_load_of_its_model_and_others_do_not(
    load_s: tuple[float, ...],
    arrival_s: list[float],
    model: list[int],
    service_s: float,
    begin_s: list[float],
    waits_s: list[float],
) -> None:
    count = len(load_s)
    trail = run(asked(arrival_s, model, service_s), Models(tuple(range(count)), (1,) * count, load_s, 2))
    np.testing.assert_array_equal(trail.arrival_s + trail.queue_s, begin_s)
    np.testing.assert_array_equal(trail.load_wait_s, waits_s)
    assert trail.model_load.tolist() == [request == model.index(name) for request, name in enumerate(model)]


def test_a_request_that_pivots_waits_for_both_of_its_models_and_keeps_them_in_memory() -> None:
    """Workload 2 takes models 0 and 1, and there is memory for two of the three models."""
    models = Models((0, 1, 0, 2), (1, 1, 1), (2.0, 3.0, 1.0), 2, second_of_workload=(-1, -1, 1, -1))
    # 0 is loaded until 2 and 1 until 5. Model 2 evicts 0, which the last request that pivots releases at 7.
    requests = asked([0.0, 0.5, 1.0, 5.5], [2, 1, 2, 3])
    trail = run(requests, models)
    np.testing.assert_array_equal(trail.arrival_s + trail.queue_s, [5.0, 6.0, 7.0, 9.0])
    np.testing.assert_array_equal(trail.load_wait_s, [5.0, 4.5, 4.0, 3.5])
    assert trail.model_load.tolist() == [3, 0, 0, 1]


def test_the_load_of_one_model_of_a_pivot_does_not_evict_the_other_one() -> None:
    """Memory holds models 1 and 2, and 1 is the least recently used one, when a request of 0 and 1 enters."""
    models = Models((1, 2, 0), (1, 1, 1), (2.0, 3.0, 1.0), 2, second_of_workload=(-1, -1, 1))
    trail = run(asked([0.0, 5.0, 10.0, 15.0], [0, 1, 2, 0]), models)
    np.testing.assert_array_equal(trail.load_wait_s, [3.0, 1.0, 2.0, 0.0])
    assert trail.model_load.tolist() == [1, 1, 1, 0]


def test_boxes_that_keep_all_models_are_first_in_first_out_boxes() -> None:
    random = np.random.default_rng(3)
    requests = asked(np.sort(random.uniform(0.0, 300.0, 400)), random.integers(0, 2, 400))
    trail = run(requests, Models((0, 1), (3, 4), (9.0, 9.0), 7, "never"), workers=2)
    plain = simulate(requests, everything_to(1), believing(0.1), [Fifo(1, 2)])
    np.testing.assert_array_equal(trail.queue_s, plain.queue_s)
    assert trail.queue_s.any() and trail.model_load is None and trail.load_wait_s is None


@pytest.mark.parametrize("law", ["uniform", "zipf"])
@pytest.mark.parametrize("boxes", [1, 3])
def test_the_share_of_misses_is_that_of_an_independent_cache(law: str, boxes: int) -> None:
    """Twenty languages of three sizes, two of which share a model, with memory for about a third of them."""
    random, count, languages = np.random.default_rng(5), 5_000, 20
    weights = np.ones(languages) if law == "uniform" else 1.0 / np.arange(1, languages + 1)
    model = random.choice(languages, count, p=weights / weights.sum())
    of_workload = (*range(languages - 1), 0)
    size = [1 + number % 3 for number in range(languages - 1)]
    capacity = 12
    load_s = tuple(0.05 * size[number] for number in range(languages - 1))
    requests = asked(np.cumsum(random.exponential(0.1, count)), model, 0.05)
    trail = run(requests, Models(of_workload, tuple(size), load_s, capacity), boxes=boxes)
    numbers, missed = np.array(of_workload)[model], np.zeros(count, bool)
    for box in range(boxes):
        there = trail.server == box
        missed[there] = misses(dict(enumerate(size)), capacity, numbers[there].tolist())
    np.testing.assert_array_equal(trail.model_load, missed)
    assert 0.1 < missed.mean() < 0.9
    assert (trail.load_wait_s <= trail.queue_s + 1e-9).all()
    assert (trail.load_wait_s[missed] >= 0.05 - 1e-9).all()


def test_a_batch_holds_sentences_of_one_model_and_decodes_them_at_its_costs() -> None:
    slow = replace(EIGHTHS, mean_over_usual=2.0)
    requests = replace(asked([0.0, 0.0, 0.0, 0.0, 0.125], [0, 1, 0, 1, 0]), tgt_len=np.full(5, 4))
    for models, waits_s in (
        (Models((0, 1), (1, 1), (0.0, 0.0), 2, "never"), 0.0),
        (Models((0, 1), (1, 1), (8.0, 8.0), 2), 8.0),
    ):
        kind = Batched(Batching(4, 3), EIGHTHS, models=models, costs=(EIGHTHS, slow))
        trail = simulate(requests, everything_to(1), believing(0.1), [kind])
        begin_s = trail.arrival_s + trail.queue_s
        end_s = begin_s + trail.execution_s
        assert begin_s[0] == begin_s[2] == waits_s
        assert begin_s[1] == begin_s[3] >= end_s[0] == end_s[2]
        assert trail.execution_s[1] > trail.execution_s[0], "at the costs of its model"
        # If its model is there at 0, the second sentence has waited longer than the last one, which could join the first batch.
        assert (begin_s[4] >= end_s[1]) == (waits_s == 0.0)


def test_a_box_that_batches_may_have_any_number_of_models() -> None:
    models, count = Models(tuple(range(70)), (1,) * 70, (1.0,) * 70, 2), 3
    slow = replace(EIGHTHS, mean_over_usual=2.0)
    requests = replace(asked([0.0, 10.0, 20.0], [0, 68, 69]), tgt_len=np.full(count, 4))
    kind = Batched(Batching(4), EIGHTHS, varies=True, models=models, costs=(*(EIGHTHS,) * 69, slow))
    factors = kind.factors(requests.src_len, np.full(count, 4), np.ones(count), requests.model)
    assert factors is not None and factors[0] == factors[1] != factors[2]
    simulate(requests, everything_to(1), believing(0.1), [kind])


def test_loads_for_requests_that_are_answered_too_late_are_counted() -> None:
    requests = asked([0.0, 0.5, 10.0, 13.0], [0, 1, 0, 0], 0.5)
    kind, faults = Fifo(models=Models((0, 1), (1, 1), (2.0, 3.0), 1)), Faults(timeout_s=1.0)
    trail = in_reference(requests, everything_to(1), believing(0.1), [kind], faults=faults)
    assert trail.faults is not None and trail.outcome.tolist() == [FALLBACK, FALLBACK, FALLBACK, DONE]
    assert trail.faults.loads == ((0, 1, 0, 2.0), (1, 1, 0, 3.0), (2, 1, 0, 2.0))
    assert not trail.model_load.any()
