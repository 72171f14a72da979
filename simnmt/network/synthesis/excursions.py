"""Samples far from their level: lone spikes, late for no lasting reason, and bursts that last for a few samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.configuration import Configuration
from simnmt.network.synthesis.level_shifts import Ints, parted
from simnmt.network.synthesis.quantile_law import Floats, QuantileLaw, score_correlation

_FAR = 10.0
"""Beyond this many times the distance from a level's median to its quartile on that side; 6 and 20 do as well."""
_TENTHS = 11
_TOP = 6


class Excursions(Configuration):
    """Runs of samples far from their level, at random times."""

    runs: int = Field(ge=1)
    """Of a lap."""
    samples: int = Field(ge=1)
    """Of a lap, in all runs together."""
    heights: QuantileLaw
    """What is added to the level, negative in a dip; the greatest few are kept one by one, as they make the tail."""
    likeness: float = Field(ge=0, le=1)
    """Correlation of the normal scores of two heights of one run: 0 as if of different runs, 1 the same height."""

    @model_validator(mode="after")
    def _has_a_sample_a_run(self) -> Excursions:
        if self.samples < self.runs:
            raise ValueError("a run has at least one sample")
        return self


def far_from_level(residual_s: Floats, level: Ints, noise_s: float) -> NDArray[np.bool_]:
    """Which samples lie far outside the middle half of what their level adds; at most half of each level's."""
    far = np.zeros(len(level), dtype=bool)
    for k in range(level.max() + 1):
        low_s, middle_s, high_s = np.quantile(residual_s[level == k], [0.25, 0.5, 0.75])
        above = residual_s > middle_s + _FAR * max(high_s - middle_s, noise_s)
        below = residual_s < middle_s - _FAR * max(middle_s - low_s, noise_s)
        far |= (level == k) & (above | below)
    return far


def fit_excursions(residual_s: Floats, far: NDArray[np.bool_]) -> tuple[Excursions | None, Excursions | None]:
    """The lone spikes, and the bursts of two samples or more; None where there are none."""
    edges = np.flatnonzero(np.diff(far, prepend=False, append=False))
    start, stop = edges[::2], edges[1::2]
    lone = stop - start == 1
    return _fit(residual_s, start[lone], stop[lone]), _fit(residual_s, start[~lone], stop[~lone])


def draw_excursions(kinds: Sequence[Excursions], lap_samples: int, random: np.random.Generator) -> tuple[Ints, Floats]:
    """Positions in a lap and what is added to the level there; between two runs lies at least one other sample.

    A lap has all runs of the fit, and its heights are the law's quantiles at evenly spaced shares: a single great spike
    may carry most of the variance, and to have none or two of it would be another series.
    """
    length = np.concatenate([parted(each.samples, each.runs, random) for each in kinds])
    place = np.argsort(random.random(len(length)))
    before = np.sort(random.choice(lap_samples - int(length.sum()), len(length), replace=False)) + 1
    start = np.empty(len(length), dtype=np.int64)
    start[place] = before + np.cumsum(length[place]) - length[place]
    run = np.repeat(np.arange(len(length)), length)
    within = np.arange(len(run)) - np.repeat(np.cumsum(length) - length, length)
    of_run, own = random.standard_normal(len(length))[run], random.standard_normal(len(run))
    height_s, done = np.empty(len(run)), 0
    for kind in kinds:
        here = slice(done, done := done + kind.samples)
        score = kind.likeness**0.5 * of_run[here] + (1 - kind.likeness) ** 0.5 * own[here]
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
