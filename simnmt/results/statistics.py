"""Estimate intervals over replications, never over requests, and predictions that contain the error of the calibration.

A total is the mean over the replications, and a change is the ratio of two such means: what a reader gets who divides the
numbers of a table. Formulas, their reasons and their coverage stand in docs/background/statistics.md;
`tests/results/test_coverage.py` counts how often each interval covers the truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simnmt.base.arrays import Floats
from simnmt.base.suggestions import format_list
from simnmt.results.number_text import format_interval
from simnmt.results.places import Place

CONFIDENCE = 0.95
SKEW_UNSEEN = 1.5
"""Skew of a distribution over that of a few draws: of exponential numbers 5 draws show 60 % on average, 10 draws 72 %."""
TAIL_WEIGHT = 38.0
"""Excess kurtosis over the square of the relative spread: of log-normal draws that spread by as much as their mean."""
LEAST_FREEDOM = 2 / 3
"""Share of the degrees of freedom of normal draws that always counts: fewer widen intervals near saturation by factors, and do
not make them cover the truth more often."""
TIE = 0.001
"""Relative difference of a number below which two policies or deployments are equally good."""


def is_tie(value: float, best: float) -> bool:
    """Return whether a number is as good as the best one: they differ by less than `TIE` of the best."""
    return value == best or abs(value - best) < TIE * abs(best)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over replications, or a ratio of two means, with its 95 % interval."""

    mean: float
    low: float | None
    """None with one replication, whose spread is unknown."""
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        """True if the interval leaves no doubt about the sign."""
        return self.low is not None and self.high is not None and (self.low > 0.0 or self.high < 0.0)


def interval_columns(name: str, estimate: Estimate | None, divisor: float = 1.0) -> dict[str, float | None]:
    """Return an estimate as the columns `name`, `name_low` and `name_high`; None for unknown numbers."""
    ends = (None, None, None) if estimate is None else (estimate.mean, estimate.low, estimate.high)
    names = (name, f"{name}_low", f"{name}_high")
    return {column: None if value is None else value / divisor for column, value in zip(names, ends, strict=True)}


def change_columns(change: Estimate) -> dict[str, float | None]:
    """Return a change in percent as the columns of a comparison."""
    return {"change_percent": change.mean, "low_percent": change.low, "high_percent": change.high}


def over_replications(values: Sequence[float], *, positive: bool = False) -> Estimate:
    """Return the mean of one number per replication and its 95 % interval (`mean_intervals`).

    `positive`: the quantity cannot be below zero, such as a latency; the interval is then formed on the logarithmic scale and
    stays above zero.
    """
    return mean_intervals(values, positive=positive).single()


def change_percent(ours: Sequence[float], theirs: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Return by how many percent mean(ours) differs from mean(theirs), with its interval (`ratio_intervals`).

    Paired by replication; 0 or more. Not the geometric mean of the replications' ratios: near saturation, at 100 requests, its
    interval covered the ratio of the means 74 to 87 times of 100.
    """
    return Intervals(*(100.0 * (values - 1.0) for values in ratio_intervals(ours, theirs, confidence))).single()


def unpaired_change_percent(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return by how many percent the mean of ours differs from that of theirs, drawn independently, with its interval.

    It is formed on the logarithmic scale, with the degrees of freedom of Welch and Satterthwaite, fewer where the replications
    spread. Of 4,000 intervals each, 94.6 to 97.8 % cover the change; 92 % in the worst tested world with queues.
    """
    values = [np.asarray(one, np.float64) for one in (ours, theirs)]
    ratio = float(values[0].mean() / values[1].mean())
    counts = [len(one) for one in values]
    if min(counts) < 2:
        return Estimate(100.0 * (ratio - 1.0), None, None)
    spreads = [float(one.std(ddof=1) / one.mean()) for one in values]
    variances = [spread**2 / count for spread, count in zip(spreads, counts, strict=True)]
    weights = sum(variance**2 / (count - 1) for variance, count in zip(variances, counts, strict=True))
    freedom = sum(variances) ** 2 / weights if weights > 0.0 else min(counts) - 1
    reach = float(student_quantile(1.0 + freedom, max(spreads))) * sqrt(sum(variances))
    return Estimate(*(100.0 * (ratio * factor - 1.0) for factor in (1.0, exp(-reach), exp(reach))))


def difference_of_changes(
    first: tuple[Sequence[float], Sequence[float]],
    second: tuple[Sequence[float], Sequence[float]],
    confidence: float = CONFIDENCE,
) -> Estimate:
    """Return by how many points the first of two changes in percent exceeds the second, with its interval.

    `first`, `second`: (ours, theirs) as in `change_percent`; all four paired by replication.
    """
    first_ratio, first_deviations = _ratio(*first)
    second_ratio, second_deviations = _ratio(*second)
    deviations = 100.0 * (first_deviations - second_deviations)
    mean = 100.0 * (first_ratio - second_ratio)
    return _intervals(mean, deviations, positive=False, confidence=confidence).single()


class Intervals(NamedTuple):
    """Estimates with the ends of their intervals, many at a time; NaN ends with one replication."""

    mean: Floats
    low: Floats
    high: Floats

    def single(self) -> Estimate:
        """Return the only estimate."""
        return Estimate(float(self.mean), *(None if np.isnan(end) else float(end) for end in (self.low, self.high)))


def mean_intervals(values: ArrayLike, *, positive: bool = False) -> Intervals:
    """Return the means over replications and their 95 % intervals.

    `values`: of shape (..., replications). `positive`: as in `over_replications`.
    """
    sample = np.asarray(values, np.float64)
    mean = sample.mean(axis=-1)
    return _intervals(mean, sample - mean[..., None], positive=positive)


def ratio_intervals(ours: ArrayLike, theirs: ArrayLike, confidence: float = CONFIDENCE) -> Intervals:
    """Return ratios of means over replications and their intervals; of shape (..., replications), paired, 0 or more.

    The interval is formed on the logarithms of the replications' ratios, about that of the ratio of the means. They count
    once alike, and once by their weights in that ratio: replications of different sizes need the second, few large ratios the
    first, and each side of the interval is the wider of both. On the side of the skew Student's quantile grows (Johnson, J. Am.
    Stat. Assoc. 73, 1978, 536-544); Hall's transformation (`_reach`) has a pole near five ratios that differ by factors. If a
    number is 0, it has no logarithm: the error is then that of the ratio's linear expansion (delta method).
    """
    our_values, their_values = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    ratio, deviations = _ratio(our_values, their_values)
    count = deviations.shape[-1]
    if count < 2 or not (our_values.min() > 0.0 and their_values.min() > 0.0):
        return _intervals(ratio, deviations, positive=False, confidence=confidence)
    logarithms = np.log(our_values / (their_values * ratio[..., None]))
    parts = [values / values.mean(axis=-1, keepdims=True) for values in (our_values, their_values)]
    errors = np.stack([logarithms, logarithms * (parts[0] + parts[1]) / 2.0])
    student, normal = student_quantile(count, 0.0, confidence), NormalDist().inv_cdf(0.5 + confidence / 2.0)
    aside = 2.0 * _skewness(errors) * (1.0 + 2.0 * normal**2) / (6.0 * sqrt(count))
    standard_error = errors.std(axis=-1, ddof=1) / sqrt(count)
    low, high = ((standard_error * (student + np.maximum(side, 0.0))).max(axis=0) for side in (-aside, aside))
    return Intervals(ratio, ratio * np.exp(-low), ratio * np.exp(high))


def _ratio(ours: ArrayLike, theirs: ArrayLike) -> tuple[Floats, Floats]:
    """Return ratios of means, and the replications' deviations in their linear expansion; two zeros are equal."""
    our_values, their_values = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    our_mean, their_mean = our_values.mean(axis=-1), their_values.mean(axis=-1)
    both_zero = (our_mean == 0.0) & (their_mean == 0.0)
    their_mean = np.where(both_zero, 1.0, their_mean)
    ratio = np.where(both_zero, 1.0, our_mean / their_mean)
    return ratio, (our_values - ratio[..., None] * their_values) / their_mean[..., None]


def student_quantile(replications: ArrayLike, relative_spread: ArrayLike, confidence: float = CONFIDENCE) -> Floats:
    """Return how many standard errors half of an interval is wide, by the degrees of freedom that its variance has.

    The fewer, the more the draws spread relative to their mean (`TAIL_WEIGHT`). `replications`: 2 or more. `relative_spread`:
    standard deviation over mean.
    """
    from scipy.special import stdtrit  # scipy.stats would add half a second to the start

    count, spread = np.asarray(replications, np.float64), np.asarray(relative_spread, np.float64)
    share = 1.0 / (1.0 + 0.5 * TAIL_WEIGHT * spread**2 * (count - 1.0) / count)
    freedom = np.maximum((count - 1.0) * np.maximum(share, LEAST_FREEDOM), 1.0)
    quantile: Floats = np.asarray(stdtrit(freedom, 0.5 + confidence / 2), np.float64)
    return quantile


def _intervals(mean: Floats, deviations: Floats, *, positive: bool, confidence: float = CONFIDENCE) -> Intervals:
    """Return the intervals of estimates whose errors are about the means of the replications' deviations."""
    count = deviations.shape[-1]
    if count < 2:
        return Intervals(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
    spread = deviations.std(axis=-1, ddof=1)
    # Nothing that is positive and 0 on average has a spread.
    scale = np.where(mean > 0.0, mean, 1.0) if positive else np.ones_like(mean)
    below, above = _reach(deviations, student_quantile(count, spread / scale if positive else 0.0, confidence))
    error = spread / sqrt(count)
    if not positive:
        return Intervals(mean, mean - below * error, mean + above * error)
    return Intervals(mean, mean * np.exp(-below * error / scale), mean * np.exp(above * error / scale))


def _reach(deviations: Floats, student: Floats) -> tuple[Floats, Floats]:
    """Return how many standard errors intervals reach below and above their estimates.

    Student's quantile on both sides; on the side of the skew that of Hall's monotone transformation of the t statistic if it is
    greater (J. R. Statist. Soc. B 54, 1992, 221-228). Never narrower, since the skew of few replications is itself uncertain.
    """
    count = deviations.shape[-1]
    if count < 3:
        return student, student
    skewness = _skewness(deviations)
    shifted = student + np.abs(skewness) / (6.0 * sqrt(count))
    slope = np.maximum(np.abs(skewness) / (3.0 * sqrt(count)), 1e-9)
    hall = (1.0 - np.cbrt(1.0 - 3.0 * slope * shifted)) / slope
    long_side: Floats = np.maximum(student, hall)
    return np.where(skewness > 0.0, student, long_side), np.where(skewness > 0.0, long_side, student)


def _skewness(values: Floats) -> Floats:
    """Return the skew of the distribution of which these are draws, times `SKEW_UNSEEN`; 0 of fewer than 3."""
    count = values.shape[-1]
    if count < 3:
        return np.zeros(values.shape[:-1])
    spread = values.std(axis=-1)
    aside = values - values.mean(axis=-1, keepdims=True)
    third_moment = (aside * aside * aside).mean(axis=-1)
    scale = np.where(spread > 0.0, spread, 1.0)
    skewness: Floats = third_moment / (scale * scale * scale) * sqrt(count * (count - 1)) / (count - 2)
    return SKEW_UNSEEN * skewness


PREDICTED = {
    "mean_latency_s": ("mean", 1e3, "ms"),
    "p95_latency_s": ("p95", 1e3, "ms"),
    "offloaded_share": ("offloaded", 100.0, "%"),
    "throughput_rps": ("throughput", 1.0, "requests/s"),
}
"""Numbers with a prediction interval, as `..._predicted_low` and `..._predicted_high`: name, factor and unit in sentences."""
QUANTILES = 499
"""Quantiles that stand for Student's distribution."""
_Row = Mapping[str, Any]
_Numbers = Mapping[str, float | None]


def with_predictions(
    rows: Sequence[_Row],
    comparisons: Sequence[_Row],
    runs: Mapping[Place, Sequence[_Numbers]],
    drawn: Sequence[tuple[int, Mapping[Place, _Numbers]]],
    confidence: float,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows and the comparisons with prediction intervals, of which a share of `confidence` is to hold the truth.

    The shift of a draw is its number over that of the calibrated profiles in the same replication; for a share, the difference.
    `runs`: numbers of the calibrated profiles, from which rows and comparisons were made. `drawn`: the replication of each unit
    with drawn profiles, with which it is compared, and its numbers.
    """

    def values(row: _Row, policy: str, name: str) -> tuple[Floats, Floats, Floats]:
        """Return a number by replication, by draw, and in each draw's replication; NaN for unknown ones."""
        place = Place.of(row, policy)
        base = np.array([numbers.get(name) for numbers in runs[place]], np.float64)
        draws = [(replication, of_unit[place].get(name)) for replication, of_unit in drawn if place in of_unit]
        return base, np.array([value for _, value in draws], np.float64), base[[replication for replication, _ in draws]]

    def ends(row: _Row, name: str) -> Sequence[float | None]:
        base, moved, before = values(row, row["policy"], name)
        is_share = name.endswith("_share")
        known = not row.get("unstable") and not np.isnan([*base, *moved]).any()
        if not known or not (is_share or ((before > 0.0).all() and (moved > 0.0).all())):
            return None, None
        if is_share:
            interval = np.clip(prediction_interval(base.mean(), moved - before, base, confidence), 0.0, 1.0)
        else:
            relative = prediction_interval(0.0, np.log(moved / before), base / base.mean() - 1.0, confidence)
            interval = base.mean() * np.exp(relative)
        return float(interval[0]), float(interval[1])

    table = []
    for row in rows:
        columns = {}
        for name in PREDICTED:
            columns[f"{name}_predicted_low"], columns[f"{name}_predicted_high"] = ends(row, name)
        table.append({**row, **columns})
    compared = []
    for pair in comparisons:
        # Both policies of a draw met the same profiles.
        (ours, our_draws, our_before), (theirs, their_draws, their_before) = (
            values(pair, pair[role], "total_latency_s") for role in ("policy", "baseline")
        )
        shifts = np.log(our_draws / their_draws) - np.log(our_before / their_before)
        ratio = float(ours.mean() / theirs.mean())
        deviations = (ours - ratio * theirs) / (ratio * theirs.mean())
        change = np.log(1.0 + pair["change_percent"] / 100.0)
        low, high = 100.0 * (np.exp(prediction_interval(change, shifts, deviations, confidence)) - 1.0)
        compared.append({**pair, "predicted_low_percent": float(low), "predicted_high_percent": float(high)})
    return table, compared


def prediction_interval(estimate: float, shifts: Floats, values: Floats, confidence: float) -> Floats:
    """Return the ends of the interval of `estimate` plus a shift plus the error of the mean of `values`, shape (2,).

    `shifts`: effect of each drawn profile. `values`: one number per replication, whose mean errs; one replication has no known
    error, and counts as exact.
    """
    from scipy.special import stdtrit  # scipy.stats would add half a second to the start

    error, count = np.zeros(1), len(values)
    if count > 1:
        shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
        error = float(values.std(ddof=1)) / sqrt(count) * np.asarray(stdtrit(count - 1, shares))
    sums = (shifts[:, None] + error).ravel()
    # The n-th of N draws is the quantile n / (N + 1) of what is drawn, not n / N: the ends lie further out.
    rank = (1.0 - confidence) / 2.0 * (len(shifts) + 1)
    tail = max((rank - 0.5) * error.size - 0.5, 0.0) / max(sums.size - 1, 1)
    ends: Floats = estimate + np.quantile(sums, [tail, 1.0 - tail])
    return ends


def describe_predictions(profiles: int, confidence: float, exact: Mapping[str, str]) -> list[str]:
    """Describe the prediction intervals of a run. `exact`: devices without a known error of calibration, with the reason."""
    return [
        f"Prediction intervals of {100 * confidence:g} % contain the error of the calibration, by {profiles} drawn profiles of "
        "each device, and the variation between replications; not a box that is slower in service than during the "
        "calibration, nor errors of links and lengths.",
        *([f"{describe_exact(exact).capitalize()}."] if exact else []),
    ]


def describe_exact(exact: Mapping[str, str]) -> str:
    """Describe which devices' profiles are taken as exact."""
    reasons = format_list(f"{device} ({reason})" for device, reason in exact.items())
    return f"prediction intervals lack the calibration error of {reasons}"


def prediction_sentences(row: _Row) -> list[str]:
    """Return each number of a row with its prediction interval, such as `mean 21.3 ms, 19.8 to 23.0`, if that has a width."""
    sentences = []
    for key, (name, factor, unit) in PREDICTED.items():
        low, high = row.get(f"{key}_predicted_low"), row.get(f"{key}_predicted_high")
        if low is not None and high is not None and low < high:
            text, interval = format_interval(factor * row[key], factor * low, factor * high, signs="minus")
            sentences.append(f"{name} {text} {unit}, {interval.strip('[]').replace(', ', ' to ')}")
    return sentences
