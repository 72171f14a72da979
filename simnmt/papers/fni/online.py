"""Sentences arrive one by one: the load that each batching strategy carries within a p95 latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import NamedTuple

import numpy as np

from simnmt.base.random_streams import stream
from simnmt.batching import Batching
from simnmt.devices.batch import decode_all
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.offline import ONLINE, lengths_of
from simnmt.papers.fni.published import SETS
from simnmt.results.statistics import Estimate, over_replications

BATCHES, LEAST_SENTENCES = 45, 1_500
"""Length of one run in batches, and its least number of sentences."""
WARM_UP = 0.10
"""Share of a run's first sentences that no p95 counts, since they find the server empty. Over 40 batches remain."""
SEEDS = (1, 2, 3, 4, 5)
TIGHT, RELAXED = 3.0, 8.0
"""Default p95s to hold, in times of the mean sentence alone on the device. The tight one hardly allows batches, as the longest
twentieth of the sentences take more than twice the mean's time alone; the relaxed one does."""
LEAST_LOAD = 0.15
"""Lowest load simulated, as a share of the capacity of one sentence at a time."""
STEP = 1.5
"""Factor between the rates that are simulated."""
CAPACITY_RUNS = 4
"""Runs' sentences that measure a capacity: the last ones, which no others follow, hardly count then."""
HALVINGS = 4
"""Bisections between the last rate that holds and the next rate: 2.6 % of uncertainty remain."""
SHOWN = 1.5
"""A curve ends where its p95 is this many times the highest p95 to hold."""

P95OfRate = Callable[[float], float]
"""Return the p95 of latency in seconds at a rate in sentences a second."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The p95 of one strategy over the load on one device."""

    device: str
    beam: int
    test_set: str
    strategy: str
    capacity_rps: float
    """Sentences a second with all of them at hand: at any higher rate the queue grows without end."""
    rate_rps: tuple[float, ...]
    """Sentences a second, rising."""
    p95_ms: tuple[float, ...]
    """At each rate, mean over seeds."""


@dataclass(frozen=True, slots=True)
class LoadLimit:
    """The load up to which one strategy holds a p95."""

    device: str
    beam: int
    test_set: str
    strategy: str
    name: str
    p95_ms: float
    """The p95 to hold."""
    over_solo: float
    """The same in times of the mean sentence alone."""
    up_to_rps: tuple[float, ...]
    """Sentences a second, one per seed; 0 if not even the lowest simulated rate holds."""
    saturated: bool = False
    """True if with some seed the p95 holds at the highest simulated rate, which is the capacity of the device."""
    dips: bool = False
    """True if with some seed the p95 is missed at a lower rate too: where little arrives, sentences wait longest for others."""

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds and its interval."""
        return over_replications(self.up_to_rps, positive=True)


def solo_s(decoder: Decoder, test_set: str) -> float:
    """Return the seconds of the mean sentence alone on the device."""
    mean = round(SETS[test_set].mean)
    return float(decoder.cost.solo_s(mean, mean + 1))


def load_limits(
    decoder: Decoder, test_set: str, asked_s: Sequence[float] | None, seeds: Sequence[int], sentences: int | None = None
) -> tuple[list[Curve], list[LoadLimit]]:
    """Simulate every online strategy on one device and set, with the same sentences and, at one rate, the same arrivals.

    Args:
        decoder: the device with its beam.
        test_set: key of the set.
        asked_s: the p95s to hold; None: `TIGHT` and `RELAXED` times the mean sentence alone.
        seeds: one run each.
        sentences: most sentences of a run.
    """
    alone_s = solo_s(decoder, test_set)
    case = decoder.device, decoder.beam, test_set
    asked_s = [TIGHT * alone_s, RELAXED * alone_s] if asked_s is None else asked_s
    count = run_sentences(decoder.batch, sentences)
    curves, limits = [], []
    for strategy in ONLINE:
        batching = strategy.batching(decoder.batch, alone_s)
        runs = [p95_of_rate(decoder, batching, test_set, seed, count) for seed in seeds]
        # More sentences than a run has, so that the last ones, which no others follow, hardly count.
        at_hand = lengths_of(test_set, seeds[0], CAPACITY_RUNS * count)
        capacity_rps = CAPACITY_RUNS * count / decode_all(batching, decoder.cost, *at_hand).total_s
        rates, p95s = rising_rates(runs, LEAST_LOAD / alone_s, SHOWN * max(asked_s), capacity_rps)
        curves.append(Curve(*case, strategy.key, capacity_rps, tuple(rates), tuple(1e3 * p95_s for p95_s in p95s)))
        for p95_s in asked_s:
            up_to, saturated, dips = zip(*(rate_limit(run, rates, p95_s) for run in runs), strict=True)
            names = strategy.key, strategy.name
            limits.append(LoadLimit(*case, *names, 1e3 * p95_s, p95_s / alone_s, up_to, any(saturated), any(dips)))
    return curves, limits


def run_sentences(batch: int, most: int | None = None) -> int:
    """Return the number of sentences of an online run, at most `most`."""
    sentences = max(BATCHES * batch, LEAST_SENTENCES)
    return sentences if most is None else min(most, sentences)


def rising_rates(runs: Sequence[P95OfRate], begin: float, most_s: float, most: float) -> tuple[list[float], list[float]]:
    """Return rates rising by `STEP` from `begin`, and at each rate the mean p95 of the runs.

    The rates end where the p95 exceeds `most_s`, or at the capacity `most`: beyond it a run may hold a p95 only because the
    run ends.
    """
    rates: list[float] = []
    p95s: list[float] = []
    while not rates or (rates[-1] < most and p95s[-1] <= most_s):
        rates.append(min(begin * STEP ** len(rates), most))
        p95s.append(float(np.mean([p95(rates[-1]) for p95 in runs])))
    return rates, p95s


class RateLimit(NamedTuple):
    """The rate up to which a p95 holds."""

    rate: float
    """0: it holds at no rate."""
    saturated: bool
    """True if it holds at the highest simulated rate."""
    dips: bool
    """True if it is missed at a lower rate."""


def rate_limit(p95_of: P95OfRate, rates: Sequence[float], p95_s: float) -> RateLimit:
    """Return the rate from which on the p95 is missed, as far as the rising `rates` show.

    A p95 over the load may dip before it rises, so the last rate that holds counts, not the first that does not.
    """
    holds = [rate for rate in rates if p95_of(rate) <= p95_s]
    if not holds:
        return RateLimit(0.0, False, False)
    low = holds[-1]
    dips = len(holds) <= rates.index(low)
    if low == rates[-1]:
        return RateLimit(low, True, dips)
    high = rates[rates.index(low) + 1]
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if p95_of(middle) <= p95_s else (low, middle)
    return RateLimit(low, False, dips)


def p95_of_rate(decoder: Decoder, batching: Batching, test_set: str, seed: int, sentences: int) -> P95OfRate:
    """Return the p95 of one seed's sentences after the warm-up, as a function of the rate that simulates each rate once.

    The gaps between arrivals are the same at every rate, stretched.
    """
    lengths = lengths_of(test_set, seed, sentences)
    arrival = np.cumsum(stream(seed, 0, f"topup arrivals {test_set}").standard_exponential(sentences))

    @cache
    def p95_s(rate: float) -> float:
        arrival_s = arrival / rate
        latency_s = decode_all(batching, decoder.cost, *lengths, arrival_s).finish_s - arrival_s
        return float(np.quantile(latency_s[round(WARM_UP * sentences) :], 0.95))

    return p95_s
