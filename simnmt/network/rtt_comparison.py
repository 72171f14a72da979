"""Compare two RTT series by p50, p95, p99 and lag-1 autocorrelation: could one pass for the other?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnmt.network.rtt_components import Floats
from simnmt.network.rtt_process import MIN_FIT_SAMPLES, RttProcess, draw_series, fit_process
from simnmt.network.series import RttSeries

SHARES = (0.5, 0.95, 0.99)
QUANTILE_TOLERANCE = 0.05
"""Relative."""
LAG_1_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class SeriesFigures:
    """What a series is judged by."""

    quantiles_s: tuple[float, ...]
    """At `SHARES`."""
    lag_1: float
    """Autocorrelation of the samples; 0 where all are alike."""


@dataclass(frozen=True, slots=True)
class SeriesDifference:
    """How far one series is from another."""

    quantile_errors: tuple[float, ...]
    """Relative, at `SHARES`."""
    lag_1_error: float

    @property
    def quantiles_hold(self) -> bool:
        """Whether all are within `QUANTILE_TOLERANCE`."""
        return max(map(abs, self.quantile_errors)) <= QUANTILE_TOLERANCE

    @property
    def lag_1_holds(self) -> bool:
        """Whether it is within `LAG_1_TOLERANCE`."""
        return abs(self.lag_1_error) <= LAG_1_TOLERANCE

    @property
    def holds(self) -> bool:
        """Whether all four criteria do."""
        return self.quantiles_hold and self.lag_1_holds


def figures(rtt_s: Floats) -> SeriesFigures:
    """The figures of samples, each counted once."""
    centred = rtt_s - rtt_s.mean()
    power = float(np.dot(centred, centred))
    alike = power <= len(rtt_s) * (1e-12 * float(np.abs(rtt_s).max())) ** 2
    lag_1 = 0.0 if alike else float(np.dot(centred[:-1], centred[1:])) / power
    return SeriesFigures(tuple(np.quantile(rtt_s, SHARES).tolist()), lag_1)


def compare(candidate: SeriesFigures, wanted: SeriesFigures) -> SeriesDifference:
    """Return how far `candidate` is from `wanted`."""
    errors = (ours / theirs - 1 for ours, theirs in zip(candidate.quantiles_s, wanted.quantiles_s, strict=True))
    return SeriesDifference(tuple(errors), candidate.lag_1 - wanted.lag_1)


def drawn_figures(process: RttProcess, seeds: range) -> list[SeriesFigures]:
    """Those of one lap a seed."""
    return [figures(draw_series(process, process.lap_s, seed).rtt_s) for seed in seeds]


def halves(series: RttSeries) -> tuple[RttSeries, RttSeries]:
    """The first and the second half of the samples."""
    middle = len(series.rtt_s) // 2

    def half(part: slice, which: str) -> RttSeries:
        time_s, source = series.time_s[part], f"{which} half of {series.source}"
        return RttSeries(series.name, series.kind, source, time_s - time_s[0], series.rtt_s[part])

    return half(slice(None, middle), "first"), half(slice(middle, None), "second")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A line of a judgement: a real series, or the draws that are held against it."""

    label: str
    figures: SeriesFigures
    """Of draws, the median of each figure."""
    draws: int = 0
    """0 for a real series."""
    held: int = 0
    """Draws whose verdict against the real series above them holds."""

    def as_json(self) -> dict[str, object]:
        """Plain data, `draws` and `held` for draws alone."""
        p50_s, p95_s, p99_s = self.figures.quantiles_s
        row = {"of": self.label, "p50_s": p50_s, "p95_s": p95_s, "p99_s": p99_s, "lag_1": self.figures.lag_1}
        return row | ({"draws": self.draws, "held": self.held} if self.draws else {})


def judge(process: RttProcess, seeds: range, seen: RttSeries | None = None, unseen: RttSeries | None = None) -> list[Judgement]:
    """Compare draws with the series `seen` that the process was fitted to, and with an `unseen` one.

    Without an unseen one, a process of the first half of `seen` is held against the second half, if both are long enough
    to be fitted to; and so is the first half itself: what a process could hardly better.
    """
    if seen is None and unseen is None:
        return []
    judgements = []
    drawn = drawn_figures(process, seeds)
    if seen is not None:
        judgements += [_judge_series("the series itself", seen), _judge_draws("drawn from its fit", drawn, seen)]
    if unseen is not None:
        judgements += [_judge_series(unseen.name, unseen), _judge_draws("drawn", drawn, unseen)]
    elif seen is not None and len(seen.rtt_s) >= 2 * MIN_FIT_SAMPLES:
        first, second = halves(seen)
        judgements += [
            _judge_series("its second half", second),
            _judge_draws("drawn from a fit to the first half", drawn_figures(fit_process(first), seeds), second),
            _judge_draws("the first half as it is", [figures(first.rtt_s)], second),
        ]
    return judgements


def _judge_series(label: str, series: RttSeries) -> Judgement:
    return Judgement(label, figures(series.rtt_s))


def _judge_draws(label: str, drawn: list[SeriesFigures], against: RttSeries) -> Judgement:
    wanted = figures(against.rtt_s)
    middle = np.median([(*draw.quantiles_s, draw.lag_1) for draw in drawn], axis=0).tolist()
    held = sum(compare(draw, wanted).holds for draw in drawn)
    return Judgement(label, SeriesFigures(tuple(middle[:-1]), middle[-1]), len(drawn), held)
