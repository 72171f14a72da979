"""Prediction intervals: the error of the profiles' calibration together with the variation between replications.

An interval over replications covers the mean of runs of the profiles as they are. The boxes differ from their profiles, so a
prediction of a deployment needs the error of the calibration too. `with_predictions` forms it from runs with drawn profiles:

- The shift of draw n is its number over that of the calibrated profiles in the same replication; for a share, the difference.
  Both met the same requests, so the shift contains hardly any noise of replications.
- The error of the mean over replications has Student's distribution. It is independent of the shift, so the interval is that of
  all sums of a shift and of a quantile of Student's distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np

from simnmt.base.arrays import Floats
from simnmt.base.suggestions import format_list
from simnmt.results.number_text import format_interval
from simnmt.results.summary import Numbers, Place, Row, Runs

PREDICTED = {
    "mean_latency_s": ("mean", 1e3, "ms"),
    "p95_latency_s": ("p95", 1e3, "ms"),
    "offloaded_share": ("offloaded", 100.0, "%"),
    "throughput_rps": ("throughput", 1.0, "requests/s"),
}
"""Numbers with a prediction interval, as `..._predicted_low` and `..._predicted_high`: name, factor and unit in sentences."""
QUANTILES = 499
"""Quantiles that stand for Student's distribution."""


def with_predictions(
    rows: Sequence[Row],
    comparisons: Sequence[Row],
    runs: Runs,
    drawn: Sequence[tuple[int, Mapping[Place, Numbers]]],
    confidence: float,
) -> tuple[list[Row], list[Row]]:
    """Return the rows and the comparisons with prediction intervals.

    Args:
        rows, comparisons: of the summary.
        runs: numbers of the calibrated profiles, from which rows and comparisons were made.
        drawn: the replication of each unit with drawn profiles, with which it is compared, and its numbers.
        confidence: share of intervals that are to contain the true value.
    """

    def values(row: Row, policy: str, name: str) -> tuple[Floats, Floats, Floats]:
        """Return a number by replication, by draw, and in each draw's replication; NaN for unknown ones."""
        place = row["workload"], row["network"], policy
        base = np.array([numbers.get(name) for numbers in runs[place]], np.float64)
        draws = [(replication, of_unit[place].get(name)) for replication, of_unit in drawn if place in of_unit]
        moved = np.array([value for _, value in draws], np.float64)
        return base, moved, base[[replication for replication, _ in draws]]

    table = []
    for row in rows:
        columns: Row = {}
        for name in PREDICTED:
            base, moved, before = values(row, row["policy"], name)
            low = high = None
            if not row.get("unstable") and not np.isnan([*base, *moved]).any():
                if name.endswith("_share"):
                    ends = prediction_interval(base.mean(), moved - before, base, confidence)
                    low, high = np.clip(ends, 0.0, 1.0).tolist()
                elif (before > 0.0).all() and (moved > 0.0).all():
                    ends = prediction_interval(0.0, np.log(moved / before), base / base.mean() - 1.0, confidence)
                    low, high = (base.mean() * np.exp(ends)).tolist()
            columns |= {f"{name}_predicted_low": low, f"{name}_predicted_high": high}
        table.append(row | columns)
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
        compared.append(pair | {"predicted_low_percent": float(low), "predicted_high_percent": float(high)})
    return table, compared


def prediction_interval(estimate: float, shifts: Floats, values: Floats, confidence: float) -> Floats:
    """Return the ends of the interval of `estimate` plus a shift plus the error of the mean of `values`, shape (2,).

    Args:
        estimate: mean over replications.
        shifts: effect of each drawn profile, shape (draws,).
        values: one number per replication, whose mean errs; one replication has no known error, and counts as exact.
        confidence: share of intervals that are to contain the true value.
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


def prediction_sentences(row: Row) -> list[str]:
    """Return each number of a row with its prediction interval, such as `mean 21.3 ms, 19.8 to 23.0`, if that has a width."""
    sentences = []
    for key, (name, factor, unit) in PREDICTED.items():
        low, high = row.get(f"{key}_predicted_low"), row.get(f"{key}_predicted_high")
        if low is not None and high is not None and low < high:
            text, interval = format_interval(factor * row[key], factor * low, factor * high, signs="minus")
            sentences.append(f"{name} {text} {unit}, {interval.strip('[]').replace(', ', ' to ')}")
    return sentences
