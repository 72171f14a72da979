"""How often intervals cover the truth, in small worlds whose truth is known because 20,000 replications of them are drawn.

A world is 100 requests, a gateway, a cloud and a link whose round trip differs between replications. `population` draws totals
and 95th percentiles for every policy; each of 1,000 experiments is a handful of these replications.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from simnmt.results.statistics import over_replications, ratio_of_means
from simnmt.results.summary import RunKey, comparisons, rows

Column = NDArray[np.float64]
POPULATION, REQUESTS, EXPERIMENTS = 20_000, 100, 1_000
LEAST, MOST = 0.92, 0.98
"""Shares of 95 % intervals that are to cover the truth: 1,000 experiments leave 0.7 points of chance."""
POLICIES = ("edge", "cloud", "cnmt", "oracle")
BACK_TO_BACK = None


@cache
def population(load: float | None) -> dict[str, dict[str, Column]]:
    """Policy -> number -> one value per replication; `load`: of the gateway under C-NMT, None back to back."""
    random = np.random.default_rng(17)
    shape = (POPULATION, REQUESTS)
    src_len = np.exp(random.normal(3.0, 0.6, shape))
    tgt_len = src_len * np.exp(random.normal(0.0, 0.25, shape))
    transfer_s = 0.05 * np.exp(random.normal(0.0, 0.1, (POPULATION, 1)) + random.normal(0.0, 0.2, shape))
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
    return {
        name: {"total_latency_s": seconds.sum(axis=1), "p95_latency_s": np.quantile(seconds, 0.95, axis=1)}
        for name, seconds in latency_s.items()
    }


def queued(away: NDArray[np.bool_] | None, arrival_s: Column, gateway_s: Column, cloud_s: Column, transfer_s: Column) -> Column:
    """Latencies with one queue at the gateway and one in the cloud; `away` None: each request goes where it ends first."""
    gateway_free_s, cloud_free_s = np.zeros(POPULATION), np.zeros(POPULATION)
    latency_s = np.empty_like(arrival_s)
    for request in range(REQUESTS):
        now_s = arrival_s[:, request]
        half_s = 0.5 * transfer_s[:, request]
        here_s = np.maximum(now_s, gateway_free_s) + gateway_s[:, request]
        there_s = np.maximum(now_s + half_s, cloud_free_s) + cloud_s[:, request]
        goes = there_s + half_s < here_s if away is None else away[:, request]
        gateway_free_s = np.where(goes, gateway_free_s, here_s)
        cloud_free_s = np.where(goes, there_s, cloud_free_s)
        latency_s[:, request] = np.where(goes, there_s + half_s, here_s) - now_s
    return latency_s


def samples(replications: int) -> Iterator[NDArray[np.int64]]:
    random = np.random.default_rng(replications)
    return iter(random.integers(0, POPULATION, (EXPERIMENTS, replications)))


WORLDS = [(BACK_TO_BACK, 5), (0.4, 5), (0.6, 10)]


@pytest.mark.parametrize("number", ["total_latency_s", "p95_latency_s"])
@pytest.mark.parametrize(("load", "replications"), WORLDS)
def test_intervals_of_a_policy_cover_its_mean(load: float | None, replications: int, number: str) -> None:
    for policy in POLICIES:
        values = population(load)[policy][number]
        truth = values.mean()
        estimates = [over_replications(values[sample], positive=True) for sample in samples(replications)]
        covered = np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])
        assert LEAST <= covered <= MOST, policy


@pytest.mark.parametrize("number", ["total_latency_s", "p95_latency_s"])
@pytest.mark.parametrize(("load", "replications"), WORLDS)
def test_intervals_of_a_paired_change_cover_the_ratio_of_the_means(load: float | None, replications: int, number: str) -> None:
    world = population(load)
    for policy, baseline in (("cnmt", "oracle"), ("cnmt", "cloud"), ("edge", "cnmt")):
        ours, theirs = world[policy][number], world[baseline][number]
        truth = ours.mean() / theirs.mean()
        estimates = [ratio_of_means(ours[sample], theirs[sample]) for sample in samples(replications)]
        covered = np.mean([estimate.low <= truth <= estimate.high for estimate in estimates])
        assert LEAST <= covered <= MOST, (policy, baseline)


def test_a_change_is_what_a_reader_gets_who_divides_the_totals_of_the_table() -> None:
    """Near saturation the geometric mean of the replications' ratios was another number, and its interval missed this one."""
    runs = {
        RunKey("w", "n", policy, replication): {"total_latency_s": float(values["total_latency_s"][replication])}
        for policy, values in population(0.6).items()
        for replication in range(5)
    }
    total_s = {row["policy"]: row["total_latency_s"] for row in rows(runs, REQUESTS)}
    for pair in comparisons(runs, ["oracle"]):
        assert pair["change_percent"] == pytest.approx(100.0 * (total_s[pair["policy"]] / total_s["oracle"] - 1.0))
        assert pair["low_percent"] <= pair["change_percent"] <= pair["high_percent"]
