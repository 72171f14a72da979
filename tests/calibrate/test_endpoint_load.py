"""A service under load: its executions follow from when requests were sent and answered, and its factors from those."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.calibrate.endpoint_load import (
    Executions,
    LoadTimes,
    choose_workers,
    knee_rps,
    reconstruct,
    replay,
    replay_error,
    varied,
)
from simnmt.devices import Fifo
from simnmt.results.requests import Requests
from tests.worlds import believing, everything_to, in_engine

FACTORS = (1.0, 1.3, 1.5, 1.6)


def simulated(workers: int, load: float, count: int = 4_000, seed: int = 1) -> tuple[LoadTimes, Any]:
    """What a service of known workers and factors does with Poisson arrivals, and the trail of its simulation."""
    random = np.random.default_rng(seed)
    alone_s = random.lognormal(0.0, 0.4, count)
    arrival_s = np.cumsum(random.standard_exponential(count)) / (load * workers / 1.3)
    box = Fifo(workers=workers, occupancy_factors=FACTORS)
    trail = in_engine(
        Requests(np.ones(count, int), (alone_s,), arrival_s=arrival_s),
        everything_to(0),
        believing(0.0),
        [],
        local=box,
        engine=None,
    )
    return LoadTimes(arrival_s, arrival_s + trail.queue_s + trail.execution_s, alone_s), trail


def test_begins_and_occupancies_follow_from_arrivals_and_departures_by_hand() -> None:
    """Two workers: request 2 begins when 1 leaves, with 0 there; 3 arrives when 0 has left, and begins at once beside 2."""
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0, 6.0]), np.array([5.0, 4.0, 8.0, 7.0]), 2)
    assert begin_s.tolist() == [0, 1, 4, 6]
    assert occupancy.tolist() == [1, 2, 2, 2]
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0]), np.array([3.0, 5.0, 9.0]), 1)
    assert begin_s.tolist() == [0, 3, 5]
    assert occupancy.tolist() == [1, 2, 1]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("load", [0.3, 0.7])
def test_executions_are_reconstructed_exactly(workers: int, load: float) -> None:
    times, trail = simulated(workers, load)
    begin_s, occupancy = reconstruct(times.arrival_s, times.departure_s, workers)
    np.testing.assert_allclose(begin_s, times.arrival_s + trail.queue_s, 1e-9)
    executions = Executions([times], workers)
    np.testing.assert_allclose(executions.ratio, np.array(FACTORS)[np.minimum(occupancy, 4) - 1], 1e-6)
    points = executions.points()
    exact = {point.occupancy: point.factor for point in points if point.occupancy <= 3.0}
    assert [exact[level] for level in (1.0, 2.0, 3.0)] == pytest.approx(FACTORS[:3])


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_workers_are_those_with_which_executions_of_one_occupancy_differ_least(workers: int) -> None:
    """From three short loops, with a spread of single executions of 20 %, as a calibration has them."""
    random = np.random.default_rng(2)
    blocks = [simulated(workers, load, 150, seed)[0] for seed, load in enumerate((0.3, 0.5, 0.7, 1.2))]
    noisy = [LoadTimes(one.arrival_s, one.departure_s, one.plane_s * random.lognormal(0.0, 0.2, 150)) for one in blocks]
    assert choose_workers(noisy, range(1, 5)) == workers


def test_one_worker_may_serve_requests_in_another_order_than_they_came() -> None:
    """Request 2 overtakes request 1."""
    begin_s, occupancy = reconstruct(np.array([0.0, 1.0, 2.0]), np.array([3.0, 9.0, 5.0]), 1)
    assert begin_s.tolist() == [0, 5, 3]
    assert occupancy.tolist() == [1, 1, 2]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_replay_is_what_the_world_simulates(workers: int) -> None:
    times, _ = simulated(workers, 0.7)
    np.testing.assert_allclose(replay(times, workers, FACTORS), times.departure_s, 1e-9)
    assert replay_error([times], workers, FACTORS) == pytest.approx(0.0, abs=1e-9)
    assert replay_error([times], workers, (1.3,)) > 0.05


def test_points_have_enough_executions_and_sparse_occupancies_join_their_neighbours() -> None:
    """A box of many workers: requests begin when they come, in groups, and take half a second for each that is there."""
    groups = [1] * 12 + [2] * 4 + [3] * 8 + [4] * 20 + [7] * 3
    executions = Executions([LoadTimes(np.zeros(1), np.ones(1), np.ones(1))], 1)
    executions.occupancy = np.array(groups)
    executions.ratio, executions.plane_s = 0.5 * executions.occupancy, np.ones(len(groups))
    points = executions.points()
    assert [point.executions for point in points] == [12, 12, 23]
    assert [point.occupancy for point in points] == pytest.approx([1.0, 32 / 12, 101 / 23])
    assert [point.factor for point in points] == pytest.approx([0.5, 16 / 12, 50.5 / 23])
    assert [point.executions for point in executions.points(40)] == [47]


def test_the_knee_leaves_out_the_begin_and_the_end_of_a_closed_loop() -> None:
    departure_s = np.concatenate([[9.0, 9.5], 10.0 + np.arange(21) / 4, [30.0, 50.0]])
    assert knee_rps(departure_s, 2) == pytest.approx(4.0)


@pytest.mark.parametrize("count", [2, 7, 40])
def test_a_text_comes_again_after_half_of_the_others_at_the_earliest(count: int) -> None:
    texts = varied([str(number) for number in range(count)], np.random.default_rng(5))
    drawn = [next(texts) for _ in range(10 * count)]
    assert set(drawn[:count]) == {str(number) for number in range(count)}
    for place, text in enumerate(drawn):
        assert text not in drawn[place + 1 : place + 1 + (count - 1) // 2]
