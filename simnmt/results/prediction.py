"""Prediction intervals: the error of the profiles' calibration together with the variation between replications.

An interval over replications covers the mean of runs of the profiles as they are. The boxes differ from their profiles, so a
prediction of a deployment needs the error of the calibration too. `with_predictions` forms it from runs with drawn profiles:

- The shift of draw n is its number over that of the calibrated profiles in the same replication (for a share, the difference).
  Both met the same requests, so the shift contains hardly any noise of replications.
- The error of the mean over replications has Student's distribution. It is independent of the shift, so the interval is that of
  all sums of a shift and of a quantile of Student's distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from simnmt.base.suggestions import format_list
from simnmt.results.number_text import format_interval
from simnmt.results.summary import Numbers, Row, RunKey, known

PREDICTED = ("mean_latency_s", "p95_latency_s", "offloaded_share", "throughput_rps")
"""Numbers with a prediction interval, as `..._predicted_low` and `..._predicted_high`."""
SHARES = ("offloaded_share",)
"""Those whose shifts are differences; the others are positive, and their shifts are ratios."""
QUANTILES = 499
"""Quantiles that stand for Student's distribution."""
Floats = NDArray[np.float64]


def with_predictions(
    rows: Sequence[Row],
    comparisons: Sequence[Row],
    runs: Mapping[RunKey, Numbers],
    drawn: Sequence[Mapping[RunKey, Numbers]],
    confidence: float,
) -> tuple[list[Row], list[Row]]:
    """Return the rows and the comparisons with prediction intervals.

    Args:
        rows, comparisons: of the summary.
        runs: numbers of the calibrated profiles, from which rows and comparisons were made.
        drawn: numbers of each run with drawn profiles; the replication of a key is the one it is compared with.
        confidence: share of intervals that are to contain the true value.
    """
    draws: dict[tuple[str, str, str], list[tuple[int, Numbers]]] = {}
    for of_unit in drawn:
        for key, numbers in of_unit.items():
            draws.setdefault((key.workload, key.network, key.policy), []).append((key.replication, numbers))
    base: dict[tuple[str, str, str], list[Numbers]] = {}
    for key in sorted(runs, key=lambda key: key.replication):
        base.setdefault((key.workload, key.network, key.policy), []).append(runs[key])
    table = []
    for row in rows:
        place = (row["workload"], row["network"], row["policy"])
        table.append(dict(row) | _of_row(row, base[place], draws[place], confidence))
    compared = []
    for pair in comparisons:
        ours, theirs = ((pair["workload"], pair["network"], pair[role]) for role in ("policy", "baseline"))
        interval = _of_change(pair["change_percent"], base[ours], base[theirs], draws[ours], draws[theirs], confidence)
        compared.append(dict(pair) | dict(zip(("predicted_low_percent", "predicted_high_percent"), interval, strict=True)))
    return table, compared


def _of_row(row: Row, base: Sequence[Numbers], draws: Sequence[tuple[int, Numbers]], confidence: float) -> Row:
    columns: Row = {}
    for name in PREDICTED:
        values = [numbers.get(name) for numbers in base]
        moved = [numbers.get(name) for _, numbers in draws]
        low = high = None
        if not row.get("unstable") and None not in values and None not in moved:
            before, after = np.array(values, np.float64), np.array(moved, np.float64)
            at = before[[replication for replication, _ in draws]]
            if name in SHARES:
                low, high = np.clip(prediction_interval(before.mean(), after - at, before, confidence), 0.0, 1.0).tolist()
            elif (at > 0.0).all() and (after > 0.0).all():
                mean = float(before.mean())
                ends = prediction_interval(0.0, np.log(after / at), before / mean - 1.0, confidence)
                low, high = (mean * np.exp(ends)).tolist()
        columns |= {f"{name}_predicted_low": low, f"{name}_predicted_high": high}
    return columns


def _of_change(
    change_percent: float,
    ours: Sequence[Numbers],
    theirs: Sequence[Numbers],
    our_draws: Sequence[tuple[int, Numbers]],
    their_draws: Sequence[tuple[int, Numbers]],
    confidence: float,
) -> tuple[float, float]:
    """Return the prediction interval of a change of the total latency in percent; both policies met the same profiles."""
    total = "total_latency_s"
    our_s, their_s = (np.array([known(numbers[total]) for numbers in those]) for those in (ours, theirs))
    our_drawn_s, their_drawn_s = (
        np.array([known(numbers[total]) for _, numbers in those]) for those in (our_draws, their_draws)
    )
    at = [replication for replication, _ in our_draws]
    shifts = np.log(our_drawn_s / their_drawn_s) - np.log(our_s[at] / their_s[at])
    ratio = float(our_s.mean() / their_s.mean())
    deviations = (our_s - ratio * their_s) / (ratio * their_s.mean())
    low, high = np.exp(prediction_interval(np.log(1.0 + change_percent / 100.0), shifts, deviations, confidence))
    return 100.0 * (float(low) - 1.0), 100.0 * (float(high) - 1.0)


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


def describe_predictions(profiles: int, confidence: float, exact: Mapping[str, str]) -> str:
    """Describe what the prediction intervals of a run contain. `exact`: devices without a known error, with the reason."""
    without = f" The {describe_exact(exact)}." if exact else ""
    return (
        f"Prediction intervals of {100 * confidence:g} % contain the error of the calibration, by {profiles} drawn profiles of "
        "each device, and the variation between replications. Policies keep to the profiles as calibrated. Not contained: a "
        f"box that is slower in service than during the calibration, and errors of links and lengths.{without}"
    )


def excluding_side(row: Row, key: str) -> str | None:
    """Return on which side of the number of a row its prediction interval lies, "above" or "below"; None if it contains it."""
    low, high = row.get(f"{key}_predicted_low"), row.get(f"{key}_predicted_high")
    if low is None or high is None or low <= row[key] <= high:
        return None
    return "above" if low > row[key] else "below"


def describe_exclusions(rows: Sequence[Row]) -> list[str]:
    """Describe prediction intervals of means that exclude the mean; empty without any."""
    key = "mean_latency_s"
    sentences = []
    causes = {
        "above": "so it is where a calibration has disturbed repeats, which half of the draws count, or cells above its plane",
        "below": "so it is where the cells of the calibration lie below its plane",
    }
    for side, cause in causes.items():
        if places := [f"{row['policy']} ({row['network']})" for row in rows if excluding_side(row, key) == side]:
            where = format_list(places, "and")
            sentences.append(f"The prediction interval lies {side} the mean for {where}: {cause}. Measure the profile again.")
    return sentences


def describe_exact(exact: Mapping[str, str]) -> str:
    """Describe which devices' profiles are taken as exact."""
    reasons = format_list(f"{device} ({reason})" for device, reason in exact.items())
    return f"prediction intervals lack the calibration error of {reasons}"


def describe_prediction(row: Row, key: str, name: str, factor: float, unit: str) -> str:
    """Return a number of a row with its prediction interval, such as `mean 21.3 ms, 19.8 to 23.0`.

    Empty without such an interval, and if it has no width.
    """
    low, high = row.get(f"{key}_predicted_low"), row.get(f"{key}_predicted_high")
    if low is None or high is None or low == high:
        return ""
    text, interval = format_interval(factor * row[key], factor * low, factor * high, signs="minus")
    return f"{name} {text} {unit}, {interval.strip('[]').replace(', ', ' to ')}"


def prediction_sentences(row: Row) -> list[str]:
    """Return each number of a row with its prediction interval; empty without prediction intervals."""
    parts = (
        ("mean_latency_s", "mean", 1e3, "ms"),
        ("p95_latency_s", "p95", 1e3, "ms"),
        ("offloaded_share", "offloaded", 100.0, "%"),
        ("throughput_rps", "throughput", 1.0, "requests/s"),
    )
    return [text for part in parts if (text := describe_prediction(row, *part))]
