"""Compare two RTT series by p50, p95, p99 and lag-1 autocorrelation: could one pass for the other?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simnmt.network.rtt_components import Floats
from simnmt.network.rtt_process import MIN_FIT_SAMPLES, RttProcess, draw_series, fit_process
from simnmt.network.series import RttSeries

SHARES = (0.5, 0.95, 0.99)
QUANTILE_TOLERANCE = 0.05
"""Greatest relative difference of alike quantiles."""
LAG_1_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class SeriesFigures:
    """Figures by which two series are compared."""

    quantiles_s: tuple[float, ...]
    """Quantiles at `SHARES`, seconds."""
    lag_1: float
    """Autocorrelation of neighbouring samples; 0 if all are equal."""


@dataclass(frozen=True, slots=True)
class SeriesDifference:
    """Differences of the figures of two series."""

    quantile_errors: tuple[float, ...]
    """Relative differences of the quantiles at `SHARES`."""
    lag_1_error: float

    @property
    def quantiles_hold(self) -> bool:
        """Whether all quantiles agree within `QUANTILE_TOLERANCE`."""
        return max(map(abs, self.quantile_errors)) <= QUANTILE_TOLERANCE

    @property
    def lag_1_holds(self) -> bool:
        """Whether the autocorrelations agree within `LAG_1_TOLERANCE`."""
        return abs(self.lag_1_error) <= LAG_1_TOLERANCE

    @property
    def holds(self) -> bool:
        """Whether all four figures agree."""
        return self.quantiles_hold and self.lag_1_holds


def figures(rtt_s: Floats) -> SeriesFigures:
    """Return the figures of samples, each with the same weight."""
    centred = rtt_s - rtt_s.mean()
    power = float(np.dot(centred, centred))
    alike = power <= len(rtt_s) * (1e-12 * float(np.abs(rtt_s).max())) ** 2
    lag_1 = 0.0 if alike else float(np.dot(centred[:-1], centred[1:])) / power
    return SeriesFigures(tuple(np.quantile(rtt_s, SHARES).tolist()), lag_1)


def compare(candidate: SeriesFigures, wanted: SeriesFigures) -> SeriesDifference:
    """Return the differences of `candidate` from `wanted`."""
    errors = (ours / theirs - 1 for ours, theirs in zip(candidate.quantiles_s, wanted.quantiles_s, strict=True))
    return SeriesDifference(tuple(errors), candidate.lag_1 - wanted.lag_1)


def drawn_figures(process: RttProcess, seeds: range) -> list[SeriesFigures]:
    """Return the figures of one drawn lap per seed."""
    return [figures(draw_series(process, process.lap_s, seed).rtt_s) for seed in seeds]


def halves(series: RttSeries) -> tuple[RttSeries, RttSeries]:
    """Return the first and the second half of the samples."""
    middle = len(series.rtt_s) // 2

    def half(part: slice, which: str) -> RttSeries:
        time_s, source = series.time_s[part], f"{which} half of {series.source}"
        return RttSeries(series.name, series.kind, source, time_s - time_s[0], series.rtt_s[part])

    return half(slice(None, middle), "first"), half(slice(middle, None), "second")


@dataclass(frozen=True, slots=True)
class Judgement:
    """A line of a judgement: a real series, or the draws that are compared with it."""

    label: str
    figures: SeriesFigures
    """Figures of the series, or the median of each figure over the draws."""
    draws: int = 0
    """Number of draws; 0 for a real series."""
    held: int = 0
    """Number of draws that are like the real series of the line above."""

    def as_json(self) -> dict[str, object]:
        """Return plain data, with `draws` and `held` only for draws."""
        p50_s, p95_s, p99_s = self.figures.quantiles_s
        row = {"of": self.label, "p50_s": p50_s, "p95_s": p95_s, "p99_s": p99_s, "lag_1": self.figures.lag_1}
        return row | ({"draws": self.draws, "held": self.held} if self.draws else {})


def judge(process: RttProcess, seeds: range, seen: RttSeries | None = None, unseen: RttSeries | None = None) -> list[Judgement]:
    """Compare draws with the series `seen` that the process was fitted to, and with an `unseen` one.

    Without an unseen one, the second half of `seen`, if it is long enough, is compared with draws from a fit to the first half,
    and with the first half itself, since a process can hardly do better.
    """
    judgements = []
    drawn = [] if seen is None and unseen is None else drawn_figures(process, seeds)
    if seen is not None:
        judgements += _judge("the series itself", seen, {"drawn from its fit": drawn})
    if unseen is not None:
        judgements += _judge(unseen.name, unseen, {"drawn": drawn})
    elif seen is not None and len(seen.rtt_s) >= 2 * MIN_FIT_SAMPLES:
        first, second = halves(seen)
        from_first = drawn_figures(fit_process(first), seeds)
        candidates = {"drawn from a fit to the first half": from_first, "the first half as it is": [figures(first.rtt_s)]}
        judgements += _judge("its second half", second, candidates)
    return judgements


def _judge(name: str, series: RttSeries, candidates: dict[str, list[SeriesFigures]]) -> list[Judgement]:
    wanted = figures(series.rtt_s)
    judgements = [Judgement(name, wanted)]
    for label, drawn in candidates.items():
        *quantiles_s, lag_1 = np.median([(*draw.quantiles_s, draw.lag_1) for draw in drawn], axis=0).tolist()
        held = sum(compare(draw, wanted).holds for draw in drawn)
        judgements.append(Judgement(label, SeriesFigures(tuple(quantiles_s), lag_1), len(drawn), held))
    return judgements
