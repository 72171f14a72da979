"""Sentences arrive one by one: how much load each way to form batches carries before its p95 of latency is missed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from simnmt.batching import Batching
from simnmt.reproduce.topup.devices import Decoder
from simnmt.reproduce.topup.occupancies import lengths_of
from simnmt.reproduce.topup.published import SETS
from simnmt.reproduce.topup.strategies import ONLINE
from simnmt.results.statistics import Estimate, over_replications
from simnmt.streams import stream
from simnmt.world.decode_all import decode_all

SENTENCES = 1_500
"""Of one run; its p95 rests on the 75 slowest."""
SEEDS = (1, 2, 3, 4, 5)
TIGHT, RELAXED = 3.0, 8.0
"""The p95s that are asked for where none is given, in times of the mean sentence alone on the device: one that leaves hardly
room for company, as the longest twentieth of sentences take more than twice the mean's time alone, and one that does."""
LEAST_LOAD = 0.15
"""Lowest load looked at, as a share of what one sentence at a time can do."""
STEP = 1.5
"""Factor between the rates that are looked at."""
MOST_RATES = 30
HALVINGS = 4
"""Of the gap between the last rate that holds and the next: at the end it is 2.6 %."""
SHOWN = 1.5
"""A curve ends where its p95 is so many times the highest that is asked for."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The p95 of one strategy over the load on one device."""

    device: str
    test_set: str
    strategy: str
    rate: tuple[float, ...]
    """Sentences a second, rising."""
    p95_s: tuple[float, ...]
    """At each rate, mean over seeds."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Up to which load one strategy holds a p95."""

    device: str
    test_set: str
    strategy: str
    name: str
    p95_s: float
    """Asked for."""
    over_solo: float
    """The same in times of the mean sentence alone."""
    up_to: tuple[float, ...]
    """Sentences a second, one a seed; 0 where not even the lowest rate looked at holds."""

    @property
    def estimate(self) -> Estimate:
        """Mean over seeds and its interval."""
        return over_replications(self.up_to)


def solo_s(decoder: Decoder, test_set: str) -> float:
    """The mean sentence alone on the device."""
    mean = round(SETS[test_set].mean)
    return float(decoder.cost.solo_s(mean, mean + 1))


def holding(
    decoder: Decoder,
    test_set: str,
    asked_s: Sequence[float] | None,
    seeds: Sequence[int],
    sentences: int,
) -> tuple[list[Curve], list[Holding]]:
    """Every online strategy on one device and set. All meet the same sentences and, at one rate, the same arrivals.

    `asked_s`: the p95s to be held; None: `TIGHT` and `RELAXED` times the mean sentence alone.
    """
    alone_s = solo_s(decoder, test_set)
    asked_s = [TIGHT * alone_s, RELAXED * alone_s] if asked_s is None else asked_s
    curves, found = [], []
    for each in ONLINE:
        batching = each.of_size(decoder.batch, alone_s)
        runs = [_Run(decoder, batching, test_set, seed, sentences) for seed in seeds]
        rates, p95s = rising_until([run.p95_s for run in runs], LEAST_LOAD / alone_s, SHOWN * max(asked_s))
        curves.append(Curve(decoder.device, test_set, each.key, tuple(rates), tuple(p95s)))
        for p95_s in asked_s:
            held = tuple(last_that_holds(run.p95_s, rates, p95_s) for run in runs)
            found.append(Holding(decoder.device, test_set, each.key, each.name, p95_s, p95_s / alone_s, held))
    return curves, found


def rising_until(p95_of: Sequence[Callable[[float], float]], begin: float, most_s: float) -> tuple[list[float], list[float]]:
    """Rates rising by `STEP` until the p95, mean over `p95_of`, is beyond `most_s`; (rates, p95s)."""
    rates: list[float] = []
    p95s: list[float] = []
    while len(rates) < MOST_RATES and (not p95s or p95s[-1] <= most_s):
        rates.append(begin * STEP ** len(rates))
        p95s.append(float(np.mean([p95(rates[-1]) for p95 in p95_of])))
    return rates, p95s


def last_that_holds(p95_of: Callable[[float], float], rates: Sequence[float], p95_s: float) -> float:
    """The rate from which on the p95 is missed, as far as `rates`, rising, tell; 0: it holds at none of them.

    A p95 over the load may dip before it rises, so the last rate that holds counts, not the first that does not.
    """
    holds = [rate for rate in rates if p95_of(rate) <= p95_s]
    if not holds:
        return 0.0
    low = holds[-1]
    if low == rates[-1]:
        return low
    high = rates[rates.index(low) + 1]
    for _ in range(HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if p95_of(middle) <= p95_s else (low, middle)
    return low


class _Run:
    """One seed's sentences under one batching: the same gaps between arrivals at every rate, stretched."""

    def __init__(self, decoder: Decoder, batching: Batching, test_set: str, seed: int, sentences: int) -> None:
        self._cost, self._batching = decoder.cost, batching
        self._src_len, self._tgt_len = lengths_of(test_set, seed, sentences)
        generator = stream(seed, 0, f"topup arrivals {test_set}")
        self._arrival = np.cumsum(generator.standard_exponential(sentences))
        self._known: dict[float, float] = {}

    def p95_s(self, rate: float) -> float:
        """Of the latency at so many sentences a second."""
        if rate not in self._known:
            arrival_s = self._arrival / rate
            done = decode_all(self._batching, self._cost, self._src_len, self._tgt_len, arrival_s)
            self._known[rate] = float(np.quantile(done.finish_s - arrival_s, 0.95))
        return self._known[rate]
