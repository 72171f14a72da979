"""What queueing theory says of waiting, within intervals over replications."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, sqrt

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import t as student

from simnmt.policies import CLOUD, GATEWAY, Fixed
from simnmt.world.requests import Requests
from simnmt.world.simulate import Trail, simulate

REPLICATIONS, REQUESTS = 20, 15_000
CONFIDENCE = 0.999

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]


def exponential(generator: np.random.Generator, size: int) -> NDArray[np.float64]:
    return generator.standard_exponential(size)


def constant(generator: np.random.Generator, size: int) -> NDArray[np.float64]:
    return np.ones(size)


def runs(load: float, service_s: Draw, target: int, workers: int = 1) -> list[tuple[Requests, Trail]]:
    """Replications of a queue with Poisson arrivals and mean service 1 s, on one device and without a link."""
    found = []
    for replication in range(REPLICATIONS):
        random = np.random.default_rng([11, replication])
        arrival_s = np.cumsum(random.standard_exponential(REQUESTS)) / (load * workers)
        service = service_s(random, REQUESTS)
        never, nothing = np.full(REQUESTS, np.nan), np.zeros(REQUESTS)
        times_s = (service, never) if target == GATEWAY else (never, service)
        requests = Requests(np.ones(REQUESTS, np.int64), *times_s, nothing, nothing, arrival_s)
        decide_for = lambda block: Fixed(target).prepare(block.src_len)  # noqa: E731
        found.append((requests, simulate(requests, decide_for, initial_transfer_s=0.0, workers=workers)))
    return found


def assert_mean(values: list[float], expected: float, within: float) -> None:
    """The expectation lies in the 99.9 % interval of the mean, and that interval is narrow enough to mean something."""
    sample = np.array(values)
    half = student.ppf(0.5 + CONFIDENCE / 2, len(sample) - 1) * sample.std(ddof=1) / sqrt(len(sample))
    assert half < within * expected, f"an interval of {half:.3g} about {sample.mean():.3g} proves nothing"
    assert abs(sample.mean() - expected) <= half, f"{sample.mean():.4g} +- {half:.2g} where theory says {expected:.4g}"


def erlang_c(workers: int, load: float) -> float:
    """Probability that a request of M/M/c has to wait."""
    offered = workers * load
    last = offered**workers / factorial(workers) / (1 - load)
    return last / (sum(offered**k / factorial(k) for k in range(workers)) + last)


def mean_waits_s(found: list[tuple[Requests, Trail]]) -> list[float]:
    return [float(trail.queue_s.mean()) for _, trail in found]


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize("target", [GATEWAY, CLOUD])
def test_m_m_1_waits_load_over_one_minus_load_services(load: float, target: int) -> None:
    assert_mean(mean_waits_s(runs(load, exponential, target)), load / (1 - load), within=0.08)


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_m_d_1_waits_half_as_long(load: float) -> None:
    assert_mean(mean_waits_s(runs(load, constant, GATEWAY)), load / (1 - load) / 2, within=0.08)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_m_m_3_waits_as_erlang_c_says(load: float) -> None:
    found = runs(load, exponential, CLOUD, workers=3)
    assert_mean(mean_waits_s(found), erlang_c(3, load) / (3 * (1 - load)), within=0.12)
    assert_mean([float((trail.queue_s > 0).mean()) for _, trail in found], erlang_c(3, load), within=0.05)


def test_waits_of_m_m_1_have_their_distribution_too() -> None:
    """A wait exceeds t with probability load times exp(-(1 - load) t)."""
    found = runs(0.7, exponential, GATEWAY)
    for beyond_s in (0.0, 2.0, 5.0):
        shares = [float((trail.queue_s > beyond_s).mean()) for _, trail in found]
        assert_mean(shares, 0.7 * np.exp(-0.3 * beyond_s), within=0.15)


@pytest.mark.parametrize(("target", "workers"), [(GATEWAY, 1), (CLOUD, 3)])
def test_littles_law_the_number_found_inside_is_the_rate_times_the_time_spent_there(target: int, workers: int) -> None:
    """The number is counted at moments that have nothing to do with the requests; the first tenth of each run is left out."""
    load = 0.7
    differences, counts = [], []
    for requests, trail in runs(load, exponential, target, workers):
        service_s = requests.gateway_s if target == GATEWAY else requests.cloud_s
        left_s = trail.arrival_s + trail.queue_s + service_s
        begin_s, end_s = trail.arrival_s[REQUESTS // 10], trail.arrival_s[-1]
        moments_s = np.linspace(begin_s, end_s, 40_000)
        come, gone = (np.searchsorted(np.sort(edge_s), moments_s, side="right") for edge_s in (trail.arrival_s, left_s))
        inside = come - gone
        within = trail.arrival_s >= begin_s
        rate_rps = within.sum() / (end_s - begin_s)
        spent_s = (trail.queue_s + service_s)[within].mean()
        counts.append(float(inside.mean()))
        differences.append(float(inside.mean() - rate_rps * spent_s))
    half = student.ppf(0.5 + CONFIDENCE / 2, REPLICATIONS - 1) * np.std(differences, ddof=1) / sqrt(REPLICATIONS)
    assert half < 0.02 * np.mean(counts)
    assert abs(np.mean(differences)) <= half + 1e-3
    expected = load / (1 - load) if workers == 1 else 3 * load + erlang_c(3, load) * load / (1 - load)
    assert_mean(counts, expected, within=0.12)
