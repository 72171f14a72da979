"""Prediction intervals from shifts by drawn profiles and the variation between replications."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.results.statistics import PREDICTED, prediction_interval, with_predictions
from simnmt.results.summary import comparisons, rows

RANDOM = np.random.default_rng(3)


def test_without_shifts_it_is_students_interval() -> None:
    from scipy.stats import t

    values = np.array([3.0, 4.0, 5.5, 4.5, 3.5])
    low, high = prediction_interval(values.mean(), np.zeros(500), values, 0.9)
    expected = t.interval(0.9, 4, values.mean(), values.std(ddof=1) / np.sqrt(5))
    assert (low, high) == pytest.approx(expected, rel=3e-3)


def test_of_normal_shifts_and_replications_it_is_the_interval_of_their_sum() -> None:
    values = RANDOM.normal(0.0, 1.0, 2_000)
    values = (values - values.mean()) / values.std(ddof=1) * np.sqrt(2_000)  # standard error 1
    low, high = prediction_interval(10.0, RANDOM.normal(0.0, 2.0, 4_000), values, 0.9)
    assert (low, high) == pytest.approx((10.0 - 1.645 * 5**0.5, 10.0 + 1.645 * 5**0.5), rel=0.02)


def test_the_ends_of_few_draws_leave_as_much_outside_as_of_many() -> None:
    inside = 0.0
    for _ in range(400):
        low, high = prediction_interval(0.0, RANDOM.normal(size=20), np.zeros(1), 0.9)
        inside += np.mean((low <= NORMAL) & (high >= NORMAL)) / 400
    assert inside == pytest.approx(0.9, abs=0.02)


NORMAL = RANDOM.normal(size=2_000)


@pytest.mark.parametrize(("size", "wider"), [(0.0, False), (0.2, True)])
def test_larger_shifts_make_wider_intervals_and_equal_shifts_leave_a_change_alone(size: float, wider: bool) -> None:
    runs: dict[tuple[str, str, str], list[Any]] = {}
    drawn = []
    for replication in range(3):
        for policy, mean_s in (("edge", 2.0), ("cloud", 1.0)):
            runs.setdefault(("w", "n", policy), []).append(numbers(mean_s * (1.0 + 0.05 * replication)))
    for number in range(40):
        factor = float(np.exp(size * RANDOM.normal()))
        at = number % 3
        drawn.append((at, {place: numbers(factor * of[at]["mean_latency_s"]) for place, of in runs.items()}))
    table, compared = with_predictions(rows(runs, 10), comparisons(runs, ["cloud"]), runs, drawn, 0.9)
    row, (change,) = table[0], compared
    width = np.log(row["mean_latency_s_predicted_high"] / row["mean_latency_s_predicted_low"])
    assert (width > 0.5) == wider
    assert row["mean_latency_s_predicted_low"] < row["mean_latency_s"] < row["mean_latency_s_predicted_high"]
    # Both policies run on the same boxes, and their ratio is the same in each replication.
    assert change["predicted_low_percent"] == pytest.approx(100.0)
    assert change["predicted_high_percent"] == pytest.approx(100.0)
    assert {f"{name}_predicted_{end}" for name in PREDICTED for end in ("low", "high")} <= row.keys()


def numbers(mean_s: float) -> dict[str, float | None]:
    latencies = {f"{name}_latency_s": mean_s for name in ("mean", "p50", "p95", "p99")}
    return latencies | {
        "total_latency_s": 10 * mean_s, "offloaded_share": 0.5, "throughput_rps": 1 / mean_s, "regret_s": None,
    }  # fmt: skip
