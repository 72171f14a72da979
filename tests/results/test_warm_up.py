"""MSER-5: which requests it leaves out, against its definition, and what that does to the mean of a queue that starts empty."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simnmt.results.warm_up import mser5_cut


def by_definition(latency_s: NDArray[np.float64]) -> int:
    """The cut of White (1997) with batches of five: least sum of squares over the squared number of batches left."""
    batches = len(latency_s) // 5
    means = latency_s[: 5 * batches].reshape(batches, 5).mean(axis=1)
    rests = [means[cut:] for cut in range(batches // 2 + 1)]
    errors = [float(((rest - rest.mean()) ** 2).sum()) / len(rest) ** 2 for rest in rests]
    return 5 * int(np.argmin(errors))


def test_a_worked_example() -> None:
    """Means of five: 2, 6, 9, 11, 10, 10, 9, 11, by hand.

    The statistic is the sum of squares over the squared number left. All: 66 / 64 = 1.031; without the first: 17.714 / 49 =
    0.362; without two: 4 / 36 = 0.111; without three: 2.8 / 25 = 0.112; without four: 2 / 16 = 0.125.
    """
    means = [2.0, 6.0, 9.0, 11.0, 10.0, 10.0, 9.0, 11.0]
    assert [round(float(np.var(means[cut:]) / (8 - cut)), 3) for cut in range(5)] == [1.031, 0.362, 0.111, 0.112, 0.125]
    spread = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    series = np.concatenate([mean + spread for mean in means])
    assert mser5_cut(series) == 10
    assert mser5_cut(np.append(series, [500.0, 500.0])) == 10


@given(st.lists(st.floats(0.0, 100.0).map(lambda value: round(value, 3)), max_size=80))
def test_the_cut_is_that_of_the_definition(latencies: list[float]) -> None:
    series = np.array(latencies)
    if len(series) < 10:
        assert mser5_cut(series) == 0
        return
    cut, expected = mser5_cut(series), by_definition(series)
    means = series[: len(series) // 5 * 5].reshape(-1, 5).mean(axis=1)
    error, least = (float(np.var(means[at // 5 :]) / (len(means) - at // 5)) for at in (cut, expected))
    assert error == pytest.approx(least, rel=1e-9, abs=1e-9)
    assert cut % 5 == 0 and cut <= len(series) / 2


def test_a_constant_series_loses_nothing_and_a_far_level_costs_no_digits() -> None:
    assert mser5_cut(np.full(1_000, 0.3)) == 0
    series = np.concatenate([np.zeros(50), np.random.default_rng(3).normal(1.0, 0.1, 950)])
    assert mser5_cut(series) == mser5_cut(1e6 + series) == 50


def test_requests_without_an_answer_count_in_the_cut_but_in_no_mean() -> None:
    series = np.concatenate([np.zeros(50), np.random.default_rng(3).normal(1.0, 0.1, 950)])
    lost = series.copy()
    lost[[3, 60, 61, 62, 63, 64, 700]] = np.nan
    assert mser5_cut(lost) == mser5_cut(series) == 50
    assert mser5_cut(np.full(100, np.nan)) == 0


def sojourns_s(load: float, requests: int, runs: int) -> NDArray[np.float64]:
    """Of M/M/1 queues that start empty, service times of mean 1; shape (requests, runs). Lindley's recursion."""
    random = np.random.default_rng(7)
    gaps_s, services_s = random.exponential(1.0 / load, (requests, runs)), random.exponential(1.0, (requests, runs))
    sojourn_s, sojourns = np.zeros(runs), np.empty((requests, runs))
    for request in range(requests):
        sojourn_s = np.maximum(sojourn_s - gaps_s[request], 0.0) + services_s[request]
        sojourns[request] = sojourn_s
    return sojourns


def biases(load: float, requests: int, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Relative deviations of each run's mean from the theory's 1 / (1 - load): of all requests, and after the cut."""
    sojourns = sojourns_s(load, requests, runs)
    after = [sojourns[mser5_cut(sojourns[:, run]) :, run].mean() for run in range(runs)]
    return (1.0 - load) * sojourns.mean(axis=0) - 1.0, (1.0 - load) * np.array(after) - 1.0


def test_at_high_load_the_cut_brings_the_mean_of_a_short_run_nearer_to_theory() -> None:
    """Short and nearly saturated, so that the empty start is most of the run."""
    everything, after = biases(0.98, 1_000, 1_500)
    assert everything.mean() < -0.5
    gain = after - everything
    assert gain.mean() > 5.0 * gain.std() / np.sqrt(len(gain))
    assert abs(after.mean()) < abs(everything.mean()) - 0.03


def test_at_moderate_load_the_cut_itself_biases_the_mean_which_is_why_it_is_no_default() -> None:
    """The rule prefers a quiet rest, and quiet is fast; the empty start is forgotten soon."""
    everything, after = biases(0.7, 1_000, 1_500)
    assert abs(everything.mean()) < 0.025
    assert -0.08 < after.mean() < -0.04
