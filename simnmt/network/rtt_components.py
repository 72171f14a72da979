"""Components of the synthetic RTT process: quantile laws, the daily swing, level shifts, spikes and bursts.

Each component is a configuration model, with a function that fits it to a series and a function that draws from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration

Floats = NDArray[np.float64]

Seconds = Annotated[float, Field(ge=-3600, le=3600)]
"""An RTT or an addition to one; no network is slower than an hour."""

_GRID = 300


class QuantileLaw(Configuration):
    """A distribution given by its quantiles, linear between them."""

    shares: tuple[float, ...]
    """Shares of the quantiles, increasing from 0 to 1; a single share means a law of one value."""
    values_s: tuple[Seconds, ...]
    """The quantile at each share, seconds; never decreasing."""

    @model_validator(mode="after")
    def _is_a_law(self) -> QuantileLaw:
        if not self.shares or len(self.shares) != len(self.values_s):
            raise ValueError("needs as many shares as values, and at least one")
        if len(self.shares) > 1 and (self.shares[0], self.shares[-1]) != (0.0, 1.0):
            raise ValueError("shares must run from 0 to 1")
        if any(later <= before for before, later in pairwise(self.shares)):
            raise ValueError("shares must increase")
        if any(later < before for before, later in pairwise(self.values_s)):
            raise ValueError("values_s must not decrease")
        return self

    @classmethod
    def of(cls, values_s: Floats, shares: Floats) -> QuantileLaw:
        """Return the law of a sample, with its quantiles at `shares`, rounded to nanoseconds."""
        kept_s = np.round(np.quantile(values_s, shares), 9)
        return cls(shares=tuple(shares.tolist()), values_s=tuple(np.maximum.accumulate(kept_s).tolist()))

    def at(self, share: Floats) -> Floats:
        """Return the quantile at each share; same shape."""
        return np.interp(share, self.shares, self.values_s)


def score_correlation(law: QuantileLaw, mean_product_s2: float) -> float:
    """Return the correlation, from 0 to 1, of two normal scores whose values have a product of the given mean.

    The value of a score is the law's quantile at the score's probability: a Gaussian copula. Values with heavy tails are less
    correlated than their scores, so the correlation is found by inverting the mean product.
    """
    from scipy.special import ndtr, ndtri  # here, since it takes a third of the start of a process

    score = ndtri((np.arange(_GRID) + 0.5) / _GRID)
    value_s = law.at(ndtr(score))
    correlations = np.linspace(0.0, 1.0, 26)
    means = []
    for correlation in correlations:
        neighbour = correlation * score[:, None] + np.sqrt(1 - correlation**2) * score
        means.append(float(value_s @ law.at(ndtr(neighbour)).mean(axis=1)) / _GRID)
    # The mean is a power series of the correlation without negative terms (Mehler's formula), so it increases.
    return float(np.interp(mean_product_s2, np.maximum.accumulate(means), correlations))


DAY_S = 86_400.0
_HOURS = 24

_LEAST_DAYS = 7
"""Fewest full days for which the test of `fit_daily_swing` can succeed."""
_CHANCE = 1e-3
_MATTERS = 0.01
"""A swing below this share of the median RTT is left to levels and residuals."""


class DailySwing(Configuration):
    """An addition to the RTT by the hour of the day, linear between the middles of the hours."""

    hours_s: tuple[Seconds, ...] = Field(min_length=_HOURS, max_length=_HOURS)
    """Seconds added in each hour after the start of the series."""

    def at(self, time_s: Floats) -> Floats:
        """Return the seconds added at each time after the start; same shape."""
        return np.interp(time_s / 3600 - 0.5, np.arange(_HOURS), self.hours_s, period=_HOURS)


def fit_daily_swing(time_s: Floats, rtt_s: Floats) -> DailySwing | None:
    """Fit the median day; None for fewer than seven full days, or days that do not peak at the same time.

    A day is its hourly medians less their median. Days peak together if the phases of their first harmonics pass Rayleigh's
    test at a level of one in a thousand. So one day of unusual routes has the weight of one day only.
    """
    hour = (time_s // 3600).astype(np.int64)
    days = int((hour[-1] + 1) // _HOURS)
    if days < _LEAST_DAYS:
        return None
    first, end = (np.searchsorted(hour, np.arange(days * _HOURS), side=side) for side in ("left", "right"))
    seen = first < end
    medians = np.array([np.median(rtt_s[a:b]) if a < b else 0.0 for a, b in zip(first.tolist(), end.tolist(), strict=True)])
    full = seen.reshape(days, _HOURS).all(axis=1)
    if full.sum() < _LEAST_DAYS:
        return None
    day_s = medians.reshape(days, _HOURS)[full]
    day_s -= np.median(day_s, axis=1, keepdims=True)
    swing_s = np.median(day_s, axis=0)
    harmonic = day_s @ np.exp(2j * np.pi * np.arange(_HOURS) / _HOURS)
    phase = harmonic / np.maximum(np.abs(harmonic), np.finfo(float).tiny)
    agree = float(abs(phase.sum()) ** 2 / len(phase))
    if np.exp(-agree) > _CHANCE or np.ptp(swing_s) < _MATTERS * np.median(rtt_s):
        return None
    return DailySwing(hours_s=tuple(np.round(swing_s, 9).tolist()))


Ints = NDArray[np.int64]

MOST_SAMPLES = 20_000_000
"""Most samples of a lap and of a drawn series; more would not fit into memory."""

# Costs of the segmentation, in units of the noise between neighbouring samples. A stay costs at most _FAR per sample, so a
# single outlier never pays for the two shifts of _SHIFT that it needs; three equal samples do.
_SHIFT = 12.0
_FAR = 9.0
_START_SHARES = (*np.linspace(0.01, 0.97, 17).tolist(), 0.98, 0.985, 0.99, 0.993, 0.996, 0.998)


class LevelShifts(Configuration):
    """Samples of a lap in each level, and counts of its shifts between levels; a lap ends in the level in which it began."""

    levels_s: tuple[Annotated[Seconds, Field(gt=0)], ...]
    """RTT of each level, seconds: the median of its samples."""
    samples: tuple[Annotated[int, Field(ge=1)], ...]
    """Number of samples of a lap in each level."""
    shifts: tuple[tuple[int, int, int], ...]
    """(level left, level entered, count) of each kind of shift in a lap."""

    @model_validator(mode="after")
    def _is_one_lap(self) -> LevelShifts:
        levels = len(self.levels_s)
        if not levels or levels != len(self.samples):
            raise ValueError("needs as many samples as levels_s, and at least one")
        if self.lap_samples > MOST_SAMPLES:
            raise ValueError(f"a lap has {self.lap_samples:,} samples, and at most {MOST_SAMPLES:,} can be drawn")
        if sum(count for *_, count in self.shifts) > self.lap_samples:
            raise ValueError("a lap has a sample for each shift")
        if any(not (0 <= left < levels and 0 <= right < levels and count > 0) for left, right, count in self.shifts):
            raise ValueError("shifts must name levels by their position from 0, and happen at least once")
        visits = np.bincount(self._episodes(None), minlength=levels)
        balance = [0] * levels
        for left, right, count in self.shifts:
            balance[left] += count
            balance[right] -= count
        if any(balance) or visits.sum() != max(1, sum(count for *_, count in self.shifts)):
            raise ValueError("shifts must leave each level as often as they enter it, and reach all that they name")
        if min(visits) < 1 or any(time < count for time, count in zip(self.samples, visits, strict=True)):
            raise ValueError("every level must be visited, and have a sample for each visit")
        return self

    @property
    def lap_samples(self) -> int:
        """Number of samples of a lap."""
        return sum(self.samples)

    def draw(self, random: np.random.Generator, first: int | None = None) -> Ints:
        """Draw the level of each sample of one lap: the same shifts in random order, with stays of random length.

        So every lap has the long-run shares of time, which the few shifts of a series would not reach by chance. The length
        of a stay is geometric, within what the other stays leave. `first`: the level to start in; None: a random one.
        """
        order = self._episodes(random)
        stay = np.empty(len(order), dtype=np.int64)
        for k, samples in enumerate(self.samples):
            here = order == k
            stay[here] = random_parts(samples, int(here.sum()), random)
        level = np.repeat(order, stay)
        starts = np.arange(len(level)) if first is None else np.flatnonzero(level == first)
        return np.roll(level, -int(random.choice(starts)))

    def _episodes(self, random: np.random.Generator | None) -> Ints:
        """Return the levels in the order of their visits: a circuit that takes each shift once (Hierholzer's algorithm)."""
        ahead: list[list[int]] = [[] for _ in self.levels_s]
        for left, right, count in self.shifts:
            ahead[left] += [right] * count
        if random is not None:
            ahead = [random.permutation(np.array(successors, dtype=np.int64)).tolist() for successors in ahead]
        trail, circuit = [self.shifts[0][0] if self.shifts else 0], []
        while trail:
            if onward := ahead[trail[-1]]:
                trail.append(onward.pop())
            else:
                circuit.append(trail.pop())
        return np.array(circuit[:0:-1] or circuit, dtype=np.int64)


def random_parts(total: int, parts: int, random: np.random.Generator) -> Ints:
    """Draw a partition of `total` into `parts` positive parts; every partition is equally likely."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) + 1 if parts > 1 else np.empty(0, dtype=np.int64)
    return np.diff(cuts, prepend=0, append=total)


def count_shifts(levels_s: Floats, level: Ints) -> LevelShifts:
    """Count the shifts of a series whose end is followed by its start, so that each level is left as often as entered."""
    pairs, counts = np.unique(np.stack([level, np.roll(level, -1)], axis=1), axis=0, return_counts=True)
    moved = pairs[:, 0] != pairs[:, 1]
    shifts = np.column_stack([pairs[moved], counts[moved]]).tolist()
    return LevelShifts(
        levels_s=tuple(np.round(levels_s, 9).tolist()),
        samples=tuple(np.bincount(level, minlength=len(levels_s)).tolist()),
        shifts=tuple((left, right, count) for left, right, count in shifts),
    )


def noise_of(rtt_s: Floats) -> float:
    """Return the median step between neighbouring samples, seconds, or a small value if most steps are 0."""
    return max(float(np.median(np.abs(np.diff(rtt_s)))), 1.4e-4 * float(np.median(rtt_s)))


def segment(rtt_s: Floats) -> tuple[Floats, Ints]:
    """Return the levels in ascending order, and the level of each sample, by dynamic programming.

    Minimises the sum of |distance| / noise and of the costs of the shifts.
    """
    noise_s = 1.5 * noise_of(rtt_s)
    levels_s = _apart(np.quantile(rtt_s, _START_SHARES), 3 * noise_s)
    for _ in range(5):
        level = _cheapest_path(rtt_s, levels_s, noise_s)
        levels_s = _apart([np.median(rtt_s[level == k]) for k in np.unique(level)], 2 * noise_s)
    used, level = np.unique(_cheapest_path(rtt_s, levels_s, noise_s), return_inverse=True)
    return levels_s[used], level


def _apart(levels_s: Floats | Sequence[np.floating], gap_s: float) -> Floats:
    kept: list[float] = []
    for level_s in np.sort(levels_s).tolist():
        if not kept or level_s - kept[-1] > gap_s:
            kept.append(level_s)
    return np.array(kept)


def _cheapest_path(rtt_s: Floats, levels_s: Floats, noise_s: float) -> Ints:
    """Return the level of each sample at the least total cost; a shift costs `_SHIFT`."""
    totals = np.minimum(np.abs(rtt_s[:, None] - levels_s) / noise_s, _FAR)
    total = np.zeros(len(levels_s))
    best, shift = [], []
    for cost in totals:  # each cost is replaced by the total up to its sample
        best.append(total.argmin())
        shift.append(total[best[-1]] + _SHIFT)
        total = np.add(np.minimum(total, shift[-1]), cost, out=cost)
    stay, moved = np.arange(len(levels_s), dtype=np.int8), np.array(best[1:], dtype=np.int8)
    came = np.where(totals[:-1] <= np.array(shift[1:])[:, None], stay, moved[:, None])
    path = [int(total.argmin())]
    for origin in reversed(came.tolist()):
        path.append(origin[path[-1]])
    return np.array(path[::-1], dtype=np.int64)


_FAR_SPREADS = 10.0
"""A sample is far from its level beyond this many distances from the median to the quartile; 6 and 20 work as well."""
_TENTHS = 11
_TOP = 6


class Excursions(Configuration):
    """Runs of samples far from their level, at random times."""

    runs: int = Field(ge=1)
    """Number of runs of a lap."""
    samples: int = Field(ge=1)
    """Number of samples of a lap in all runs together."""
    heights: QuantileLaw
    """Law of the additions to the level, negative in a dip; the greatest few are kept one by one, since they make the tail."""
    likeness: float = Field(ge=0, le=1)
    """Correlation of the normal scores of two heights of one run: 0 as of different runs, 1 for equal heights."""

    @model_validator(mode="after")
    def _has_a_sample_a_run(self) -> Excursions:
        if self.samples < self.runs:
            raise ValueError("a run has at least one sample")
        return self


def far_from_level(residual_s: Floats, level: Ints, noise_s: float) -> NDArray[np.bool_]:
    """Return True for samples far outside the middle half of the residuals of their level; at most half of a level."""
    far = np.zeros(len(level), dtype=bool)
    for k in range(level.max() + 1):
        low_s, middle_s, high_s = np.quantile(residual_s[level == k], [0.25, 0.5, 0.75])
        above = residual_s > middle_s + _FAR_SPREADS * max(high_s - middle_s, noise_s)
        below = residual_s < middle_s - _FAR_SPREADS * max(middle_s - low_s, noise_s)
        far |= (level == k) & (above | below)
    return far


def fit_excursions(residual_s: Floats, far: NDArray[np.bool_]) -> tuple[Excursions | None, Excursions | None]:
    """Fit the lone spikes, and the bursts of two samples or more; None for either if there are none."""
    edges = np.flatnonzero(np.diff(far, prepend=False, append=False))
    start, stop = edges[::2], edges[1::2]
    lone = stop - start == 1
    return _fit(residual_s, start[lone], stop[lone]), _fit(residual_s, start[~lone], stop[~lone])


def draw_excursions(kinds: Sequence[Excursions], lap_samples: int, random: np.random.Generator) -> tuple[Ints, Floats]:
    """Draw the positions of excursions in a lap and the heights there; at least one other sample separates two runs.

    A lap has all runs of the fit, and its heights are the law's quantiles at evenly spaced shares: a single great spike may
    carry most of the variance, so that no spike or two of them would change the series.
    """
    length = np.concatenate([random_parts(kind.samples, kind.runs, random) for kind in kinds])
    place = np.argsort(random.random(len(length)))
    before = np.sort(random.choice(lap_samples - int(length.sum()), len(length), replace=False)) + 1
    start = np.empty(len(length), dtype=np.int64)
    start[place] = before + np.cumsum(length[place]) - length[place]
    run = np.repeat(np.arange(len(length)), length)
    within = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length)
    of_run, of_sample = random.standard_normal(len(length))[run], random.standard_normal(len(run))
    height_s, done = np.empty(len(run)), 0
    for kind in kinds:
        here = slice(done, done := done + kind.samples)
        score = kind.likeness**0.5 * of_run[here] + (1 - kind.likeness) ** 0.5 * of_sample[here]
        height_s[here] = kind.heights.at(np.argsort(np.argsort(score)) / max(kind.samples - 1, 1))
    return start[run] + within, height_s


def _fit(residual_s: Floats, start: Ints, stop: Ints) -> Excursions | None:
    if not len(start):
        return None
    runs = [residual_s[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    heights_s = np.concatenate(runs)
    law = QuantileLaw.of(heights_s, _shares(len(heights_s)))
    likeness = 0.0
    if len(heights_s) > len(runs):
        products = np.concatenate([run[1:] * run[:-1] for run in runs])
        likeness = round(score_correlation(law, float(products.mean())), 4)
    return Excursions(runs=len(runs), samples=len(heights_s), heights=law, likeness=likeness)


def _shares(count: int) -> Floats:
    if count == 1:
        return np.zeros(1)
    top = 1 - np.arange(min(count, _TOP)) / (count - 1)
    return np.unique(np.concatenate([np.linspace(0, 1, min(count, _TENTHS)), top]))
