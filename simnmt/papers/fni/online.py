"""Sentences arrive one by one: how much load each batching strategy carries within a p95 latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

import numpy as np

from simnmt.base.random_streams import stream
from simnmt.batching import Batching
from simnmt.papers.fni.devices import Decoder
from simnmt.papers.fni.offline import ONLINE, lengths_of
from simnmt.papers.fni.published import SETS
from simnmt.results.statistics import Estimate, over_replications
from simnmt.world.batch_pool import decode_all

BATCHES, LEAST_SENTENCES = 45, 1_500
"""Of one run: so many batches' sentences, and never fewer than so many."""
WARM_UP = 0.10
"""Share of a run's sentences, the first to arrive, that no p95 counts: they find the server empty. Over 40 batches remain."""
SEEDS = (1, 2, 3, 4, 5)
TIGHT, RELAXED = 3.0, 8.0
"""The p95s that are asked for where none is given, in times of the mean sentence alone on the device: one that leaves hardly
room for company, as the longest twentieth of sentences take more than twice the mean's time alone, and one that does."""
LEAST_LOAD = 0.15
"""Lowest load looked at, as a share of what one sentence at a time can do."""
STEP = 1.5
"""Factor between the rates that are looked at."""
CAPACITY_RUNS = 4
HALVINGS = 4
"""Of the gap between the last rate that holds and the next: at the end it is 2.6 %."""
SHOWN = 1.5
"""A curve ends where its p95 is so many times the highest that is asked for."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The p95 of one strategy over the load on one device."""

    device: str
    beam: int
    test_set: str
    strategy: str
    capacity_rps: float
    """Sentences a second with all of them at hand: at any higher rate those that wait grow without end."""
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
    """Sentences a second, one a seed; 0 if not even the lowest rate looked at holds."""
    saturated: bool = False
    """With some seed it holds at the highest rate looked at, which is the capacity of the device."""
    dips: bool = False
    """With some seed it is missed at a lower rate too: whoever waits for company waits longest when little arrives."""

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds and its interval."""
        return over_replications(self.up_to_rps, positive=True)


def solo_s(decoder: Decoder, test_set: str) -> float:
    """The mean sentence alone on the device."""
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
        runs = [_Run(decoder, batching, test_set, seed, count) for seed in seeds]
        most = capacity(decoder, batching, test_set, seeds[0], count)
        rates, p95s = rising_rates([run.p95_s for run in runs], LEAST_LOAD / alone_s, SHOWN * max(asked_s), most)
        curves.append(Curve(*case, strategy.key, most, tuple(rates), tuple(1e3 * p95_s for p95_s in p95s)))
        for p95_s in asked_s:
            by_seed = [rate_limit(run.p95_s, rates, p95_s) for run in runs]
            up_to = tuple(limit.rate for limit in by_seed)
            marks = any(limit.saturated for limit in by_seed), any(limit.dips for limit in by_seed)
            limits.append(LoadLimit(*case, strategy.key, strategy.name, 1e3 * p95_s, p95_s / alone_s, up_to, *marks))
    return curves, limits


def run_sentences(batch: int, most: int | None = None) -> int:
    """Return the number of sentences of an online run, at most `most`."""
    sentences = max(BATCHES * batch, LEAST_SENTENCES)
    return sentences if most is None else min(most, sentences)


def capacity(decoder: Decoder, batching: Batching, test_set: str, seed: int, sentences: int) -> float:
    """Sentences a second with `CAPACITY_RUNS` runs' sentences at hand, so that the last ones, when none are left to follow,
    hardly count."""
    count = CAPACITY_RUNS * sentences
    return count / decode_all(batching, decoder.cost, *lengths_of(test_set, seed, count)).total_s


def rising_rates(
    p95_of: Sequence[Callable[[float], float]], begin: float, most_s: float, most: float
) -> tuple[list[float], list[float]]:
    """Rates rising by `STEP` until the p95, mean over `p95_of`, is beyond `most_s`, or `most` is reached; (rates, p95s).

    Beyond what can be done at all a run of any length may hold a p95, only because it ends.
    """
    rates: list[float] = []
    p95s: list[float] = []
    while not rates or (rates[-1] < most and p95s[-1] <= most_s):
        rates.append(min(begin * STEP ** len(rates), most))
        p95s.append(float(np.mean([p95(rates[-1]) for p95 in p95_of])))
    return rates, p95s


class RateLimit(NamedTuple):
    """Up to which rate a p95 holds."""

    rate: float
    """0: at none."""
    saturated: bool
    """It holds at the highest that was looked at."""
    dips: bool
    """It is missed at a lower one."""


def rate_limit(p95_of: Callable[[float], float], rates: Sequence[float], p95_s: float) -> RateLimit:
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


class _Run:
    """One seed's sentences under one batching: the same gaps between arrivals at every rate, stretched."""

    def __init__(self, decoder: Decoder, batching: Batching, test_set: str, seed: int, sentences: int) -> None:
        self._cost, self._batching = decoder.cost, batching
        self._src_len, self._tgt_len = lengths_of(test_set, seed, sentences)
        generator = stream(seed, 0, f"topup arrivals {test_set}")
        self._arrival = np.cumsum(generator.standard_exponential(sentences))
        self._known: dict[float, float] = {}

    def p95_s(self, rate: float) -> float:
        """Of the latency at so many sentences a second, without the warm-up."""
        if rate not in self._known:
            arrival_s = self._arrival / rate
            done = decode_all(self._batching, self._cost, self._src_len, self._tgt_len, arrival_s)
            judged = slice(round(WARM_UP * len(arrival_s)), None)
            self._known[rate] = float(np.quantile((done.finish_s - arrival_s)[judged], 0.95))
        return self._known[rate]
