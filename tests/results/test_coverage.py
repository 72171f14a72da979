"""How often intervals cover the truth, in small worlds whose truth is known because 20,000 replications of each are drawn.

A world is 100 requests, a gateway, a cloud and a link whose round trip differs between replications. `population` draws totals,
medians, 95th and 99th percentiles for every policy; each of 20,000 experiments is a handful of these replications.
Changes against the oracle have the longest tails, and the lowest counts. Those of a quantile that few requests lie beyond are
outside of the promise, and marked wherever they are shown (`recommendation.describe_short_tail`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.results.metrics import Objective, objective_metric
from simnmt.results.recommendation import describe_short_tail, reliable_requests
from simnmt.results.statistics import Intervals, mean_intervals, ratio_intervals
from tests.campaigns.harness import deep, thinned

POPULATION, REQUESTS, EXPERIMENTS = 20_000, 100, 20_000
LEAST, MOST = 0.92, 0.98
LEAST_RELIABLE, LEAST_OF_FEW = 0.915, 0.90
"""Shares of 95 % intervals that are to cover the truth; 20,000 experiments leave 0.2 points of chance.

`LEAST_RELIABLE`: of changes of a quantile that are not called unreliable (`recommendation.LEAST_TAIL`); `LEAST_OF_FEW`: of p95
of 100 requests. Both were higher with Hall's transformation, which reaches too far (docs/background/statistics.md).
"""
POLICIES = ("edge", "cloud", "cnmt", "oracle")
BACK_TO_BACK = None


@cache
def population(load: float | None, requests: int = REQUESTS) -> dict[str, dict[str, Floats]]:
    """Policy -> number -> one value per replication; `load`: of the gateway under C-NMT, None back to back."""
    random = np.random.default_rng(17)
    shape = (POPULATION * REQUESTS // requests, requests)
    src_len = np.exp(random.normal(3.0, 0.6, shape))
    tgt_len = src_len * np.exp(random.normal(0.0, 0.25, shape))
    transfer_s = 0.05 * np.exp(random.normal(0.0, 0.1, (len(src_len), 1)) + random.normal(0.0, 0.2, shape))
    gateway_s, cloud_s = 0.004 * tgt_len, 0.0005 * tgt_len + 0.005
    away_s = cloud_s + transfer_s
    believed_away = 0.004 * src_len > 0.0005 * src_len + 0.055
    policies = {
        "edge": np.zeros(shape, bool),
        "cloud": np.ones(shape, bool),
        "cnmt": believed_away,
        "oracle": None if load is not None else away_s < gateway_s,
    }
    if load is None:
        latency_s = {name: np.where(choice, away_s, gateway_s) for name, choice in policies.items()}
    else:
        kept_s = float((gateway_s * ~believed_away).mean())
        arrival_s = np.cumsum(random.exponential(kept_s / load, shape), axis=1)
        latency_s = {name: queued(choice, arrival_s, gateway_s, cloud_s, transfer_s) for name, choice in policies.items()}
    return {name: {"total_latency_s": seconds.sum(axis=1), **_quantiles(seconds)} for name, seconds in latency_s.items()}


def _quantiles(seconds: Floats) -> dict[str, Floats]:
    """The median and both tails of each replication; one sort serves all."""
    p50, p95, p99 = np.quantile(seconds, [0.5, 0.95, 0.99], axis=1)
    return {"p50_latency_s": p50, "p95_latency_s": p95, "p99_latency_s": p99}


def queued(away: NDArray[np.bool_] | None, arrival_s: Floats, gateway_s: Floats, cloud_s: Floats, transfer_s: Floats) -> Floats:
    """Latencies with one queue at the gateway and one in the cloud; `away` None: each request goes where it ends first."""
    gateway_free_s, cloud_free_s = np.zeros(len(arrival_s)), np.zeros(len(arrival_s))
    latency_s = np.empty_like(arrival_s)
    for request in range(arrival_s.shape[1]):
        now_s = arrival_s[:, request]
        half_s = 0.5 * transfer_s[:, request]
        here_s = np.maximum(now_s, gateway_free_s) + gateway_s[:, request]
        there_s = np.maximum(now_s + half_s, cloud_free_s) + cloud_s[:, request]
        goes = there_s + half_s < here_s if away is None else away[:, request]
        gateway_free_s = np.where(goes, gateway_free_s, here_s)
        cloud_free_s = np.where(goes, there_s, cloud_free_s)
        latency_s[:, request] = np.where(goes, there_s + half_s, here_s) - now_s
    return latency_s


def samples(replications: int, size: int = POPULATION) -> NDArray[np.int64]:
    """Which replications each experiment holds, shape (experiments, replications)."""
    return np.random.default_rng([17, replications]).integers(0, size, (EXPERIMENTS, replications))


WORLDS = thinned([(BACK_TO_BACK, 5), (0.4, 5), (0.6, 10), (0.8, 5), (0.8, 10)], [(BACK_TO_BACK, 5), (0.6, 10)])
NUMBERS = ["total_latency_s", "p95_latency_s", "p99_latency_s", "p50_latency_s"]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("load", "replications"), WORLDS)
def test_intervals_of_a_policy_cover_its_mean(load: float | None, replications: int, number: str) -> None:
    for policy in POLICIES:
        values = population(load)[policy][number]
        intervals = mean_intervals(values[samples(replications)], positive=True)
        assert LEAST <= covered(intervals, values.mean()) <= MOST, policy


PAIRS = (("cnmt", "oracle"), ("cnmt", "cloud"), ("edge", "cnmt"))


@pytest.mark.parametrize(("number", "least"), [("total_latency_s", LEAST), ("p95_latency_s", LEAST_OF_FEW)])
@pytest.mark.parametrize(("load", "replications"), WORLDS)
def test_intervals_of_a_paired_change_cover_the_ratio_of_the_means(
    load: float | None, replications: int, number: str, least: float
) -> None:
    for pair in PAIRS:
        assert least <= covered_change(population(load), pair, number, replications) <= MOST, pair


@pytest.mark.parametrize("objective", ["p95", deep("p99")])
@pytest.mark.parametrize("load", [deep(BACK_TO_BACK), 0.6, deep(0.8)])
def test_intervals_of_a_change_of_a_quantile_cover_it_in_runs_of_as_many_requests_as_are_called_reliable(
    load: float | None, objective: Objective
) -> None:
    world = population(load, reliable_requests(objective))
    for pair in PAIRS:
        assert LEAST_RELIABLE <= covered_change(world, pair, objective_metric(objective).column, 5) <= MOST, pair


@pytest.mark.parametrize(("objective", "load"), [("p95", 0.6), ("p99", BACK_TO_BACK)])
def test_intervals_of_a_change_of_a_quantile_from_few_requests_do_not_cover_it_so_they_are_called_unreliable(
    objective: Objective, load: float | None
) -> None:
    """In 100 requests p99 is one request, the same under two policies in most replications: 59 to 98 intervals of 100 cover."""
    covering = [covered_change(population(load), pair, objective_metric(objective).column, 5) for pair in PAIRS]
    assert min(covering) < LEAST
    assert describe_short_tail(objective, REQUESTS)


def covered_change(world: dict[str, dict[str, Floats]], pair: tuple[str, str], number: str, replications: int) -> float:
    ours, theirs = (world[policy][number] for policy in pair)
    chosen = samples(replications, len(ours))
    return covered(ratio_intervals(ours[chosen], theirs[chosen]), ours.mean() / theirs.mean())


def covered(intervals: Intervals, truth: float) -> float:
    """The share of the intervals that hold the truth."""
    return float(((intervals.low <= truth) & (truth <= intervals.high)).mean())


Draws = Callable[[np.random.Generator, tuple[int, int]], Floats]


def log_normal(spread: float) -> Draws:
    return lambda random, shape: np.exp(spread * random.standard_normal(shape) - spread**2 / 2.0)


@pytest.mark.parametrize("replications", [5, 10])
@pytest.mark.parametrize(
    ("size_spread", "ratios"),
    [
        *((size, log_normal(spread)) for size, spread in ((0.1, 0.05), (0.5, 0.5), (1.0, 0.1), (1.0, 0.5))),
        (0.2, lambda random, shape: 1.0 + 0.1 * random.standard_normal(shape)),
        (0.2, lambda random, shape: random.gamma(4.0, 0.25, shape)),
        (0.2, lambda random, shape: 0.2 + 0.8 * random.exponential(size=shape)),
    ],
    ids=["tight", "wide", "uneven", "uneven and wide", "normal", "gamma", "exponential"],
)
def test_intervals_of_a_change_cover_it_whatever_the_distribution_of_the_ratios(
    size_spread: float, ratios: Draws, replications: int
) -> None:
    random = np.random.default_rng([17, replications])
    theirs = np.exp(size_spread * random.standard_normal((EXPERIMENTS, replications)))
    assert 0.93 <= covered(ratio_intervals(theirs * ratios(random, theirs.shape), theirs), 1.0) <= MOST
