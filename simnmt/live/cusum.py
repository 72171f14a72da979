"""Sequential test for a lasting change of the level of a noisy, autocorrelated series: a two-sided CUSUM with robust scores.

The series are log ratios of measured to predicted execution times. Three properties of theirs decide the form of the test:

- *Outliers.* A score beyond `OUTLIER_SDS` robust standard deviations and a whole shift counts as a shift of exactly `SHIFT`: a
  few stalls do not add up to an alarm, and a large lasting change is still flagged.
- *Wander.* The speed of a box wanders, so that neighbouring scores are alike and their sum varies more than that of independent
  scores. The test is designed for the long-run variance of the scores: their own variance plus `WANDER`, which covers a wander
  of 3 % with a time constant of about 40 requests. A reference stretch of `REFERENCE` values that clearly wanders more (batch
  means) raises it.
- *Length of a log.* The threshold h follows from the average run length of a CUSUM without a change, that of a Brownian motion
  with drift -k and variance s2 per request: ARL = s2 / (2 k^2) (exp(u) - u - 1) with u = 2 k h / s2 (Siegmund 1985, Sequential
  Analysis, II). `RUN_LENGTH` is the ARL of one side: in 2,000 values, false alarms of that side then have a probability of
  2,000 / `RUN_LENGTH`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import ceil, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHIFT = log(1.1)
"""The change that must be found: 10 % slower."""
SLOWER, FASTER = 0.5 * SHIFT, 0.065
"""Reference value k of each side. Half of the shift is best for the shift; the greater one for faster executions tolerates a
profile that is up to 2 % slow, because slower service is what costs."""
RUN_LENGTH = 250_000
"""Average number of values between two false alarms of one side: 0.8 % in 2,000."""
REFERENCE = 240
"""Values from which noise, and if need be the level, are estimated; the test judges them too, once they are complete."""
BLOCK = 30
"""Values of a batch mean."""
WANDER = 0.06
"""Long-run variance per value that a wandering box may add: s^2 (1 + r) / (1 - r) for an AR(1) of deviation s and correlation r
of neighbours, 0.03 and exp(-1 / 33) for example."""
BATCH_MEANS_EXCESS = 2.0
"""Batch means raise the long-run variance only if they show more than that many times as much: the 95 % quantile of a variance
estimated from eight of them is 2.0 times its mean, and a change within the reference stretch must not hide itself."""
OUTLIER_SDS = 2.5
_NORMAL_MAD = 1.4826


def robust_sd(values: Floats) -> float:
    """Return the standard deviation by the median absolute deviation."""
    return _NORMAL_MAD * float(np.median(np.abs(values - np.median(values))))


def capped(scores: Floats, sd: float) -> Floats:
    """Return the scores with those beyond the limit of outliers counted as one shift."""
    return np.where(np.abs(scores) > SHIFT + OUTLIER_SDS * sd, np.sign(scores) * SHIFT, scores)


def location(values: Floats, sd: float) -> float:
    """Return the mean of the values with outliers capped about their median."""
    middle = float(np.median(values))
    return middle + float(capped(values - middle, sd).mean())


@dataclass(frozen=True, slots=True)
class Noise:
    """Spread of the values while nothing changes."""

    sd: float
    """Robust standard deviation of single values."""
    long_run_variance: float
    """n times the variance of a mean of n values, for large n."""
    neighbours: float
    """Correlation of neighbouring values."""

    @classmethod
    def of(cls, values: Floats) -> Noise:
        """Estimate the noise of a reference stretch, shape (values,); at least 2 `BLOCK` values."""
        sd = robust_sd(values)
        scores = capped(values - np.median(values), sd)
        blocks = scores[: scores.size // BLOCK * BLOCK].reshape(-1, BLOCK).mean(axis=1)
        of_blocks = BLOCK * float(blocks.var(ddof=1)) / BATCH_MEANS_EXCESS
        aside, variance = scores - scores.mean(), float(scores.var())
        neighbours = float((aside[1:] * aside[:-1]).mean()) / variance if variance > 0.0 else 0.0
        return cls(sd, max(variance + WANDER, of_blocks), neighbours)

    def threshold(self, k: float) -> float:
        """Return the threshold of a CUSUM with reference value k, in the unit of the values."""
        u = 1.0
        for _ in range(50):
            u = log1p(u + RUN_LENGTH * 2.0 * k * k / self.long_run_variance)
        return u * self.long_run_variance / (2.0 * k)

    def delay(self, k: float = SLOWER) -> int:
        """Return the expected number of values from a change of `SHIFT` to its alarm."""
        return ceil(self.threshold(k) / (SHIFT - k))


@dataclass(frozen=True, slots=True)
class Change:
    """A lasting change of the level."""

    start: int
    """Index of the first value after the estimated moment of the change, from 0 for the first value of the series."""
    alarm: int
    """Index of the value at which the test was sure."""
    sign: int
    """1 for greater values, -1 for smaller ones."""
    level: float
    """Level before the change."""
    noise: Noise
    """Noise of the reference stretch before the change."""


@dataclass(slots=True)
class _Side:
    """One side of the test: its sum above the last minimum, and where that was."""

    sign: int
    k: float
    threshold: float
    sum: float = 0.0
    start: int = 0

    def advance(self, scores: Floats, first: int) -> int | None:
        """Add scores, the first of which has index `first`; return the index of the alarm, if there is one."""
        walk = self.sum + np.cumsum(self.sign * scores - self.k)
        least = np.minimum(np.minimum.accumulate(walk), 0.0)
        above = walk - least
        alarms = above > self.threshold
        last = int(np.argmax(alarms)) if alarms.any() else scores.size - 1
        resets = np.flatnonzero(above[: last + 1] <= 0.0)
        if resets.size:
            self.start = first + int(resets[-1]) + 1
        self.sum = float(above[last])
        return first + last if alarms.any() else None


@dataclass(slots=True)
class LevelTest:
    """The test of one series, value by value or in pieces of any size, with the same result.

    After an alarm it begins anew, with the next `REFERENCE` values as the level that must not change.
    """

    level: float | None = 0.0
    """Level of the series without a change; None: that of the first `REFERENCE` values."""
    noise: Noise | None = field(default=None, init=False)
    """None until `REFERENCE` values have come."""
    _size: int = field(default=0, init=False)
    _waiting: Floats = field(default_factory=lambda: np.empty(0), init=False)
    """Values of the reference stretch until it is complete."""
    _sides: tuple[_Side, ...] = field(default=(), init=False)
    _correction: float = field(default=0.0, init=False)
    """Difference of a given level, which is of means, from that of the logarithms."""

    def feed(self, values: Floats) -> Iterator[Change]:
        """Test further values, shape (values,); yield the changes that they show."""
        self._size += values.size
        values = np.concatenate([self._waiting, values])
        self._waiting = np.empty(0)
        while values.size:
            first = self._size - values.size
            if not self._sides and not self._prepare(values, first):
                self._waiting = values
                return
            alarms = [(side.advance(self._scores(values), first), side) for side in self._sides]
            sure = [(alarm, side) for alarm, side in alarms if alarm is not None]
            if not sure:
                return
            alarm, side = min(sure, key=lambda pair: pair[0])
            if self.noise is None or self.level is None:
                raise AssertionError("an alarm before the reference stretch was complete")
            yield Change(side.start, alarm, side.sign, self.level - self._correction, self.noise)
            values = values[alarm + 1 - first :]
            self._sides, self.level = (), None

    def _prepare(self, values: Floats, first: int) -> bool:
        """Estimate noise and level once the stretch that begins at index `first` is complete; return whether it is."""
        if values.size < REFERENCE:
            return False
        reference = values[:REFERENCE]
        noise = self.noise = Noise.of(reference)
        # The level of a stretch is uncertain by its own error, which the test must tolerate.
        tolerance = 0.0
        if self.level is None:
            self.level, tolerance = location(reference, noise.sd), sqrt(noise.long_run_variance / REFERENCE)
            self._correction = 0.0
        else:
            self._correction = log_mean(noise.sd)
        self._sides = tuple(
            _Side(sign, k + tolerance, noise.threshold(k + tolerance), start=first) for sign, k in ((1, SLOWER), (-1, FASTER))
        )
        return True

    def _scores(self, values: Floats) -> Floats:
        if self.noise is None or self.level is None:
            raise ValueError("the reference stretch is not complete")
        return capped(values - self.level + self._correction, self.noise.sd)


def log_mean(sd: float) -> float:
    """Return the logarithm of the mean of a lognormal factor over its median; a plane predicts the mean."""
    return 0.5 * sd * sd
