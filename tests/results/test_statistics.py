"""Intervals that cover what they promise to cover, over replications and with the error of the calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simnmt.results.places import ALL, Place
from simnmt.results.statistics import (
    CONFIDENCE,
    PREDICTED,
    Estimate,
    change_percent,
    difference_of_changes,
    over_replications,
    prediction_interval,
    student_quantile,
    with_predictions,
)
from simnmt.results.summary import comparisons, rows


def test_without_skew_the_interval_is_students() -> None:
    sample = [3.0, 5.0, 4.0, 8.0, 10.0, 6.0, 7.0, 9.0]
    estimate = over_replications(sample)
    assert estimate.mean == 6.5
    low, high = stats.t.interval(0.95, 7, loc=6.5, scale=stats.sem(sample))
    assert (estimate.low, estimate.high) == (pytest.approx(low), pytest.approx(high))
    assert CONFIDENCE == 0.95


def test_the_interval_reaches_further_on_the_side_of_the_skew_and_never_less_far_than_students() -> None:
    sample = [3.0, 3.1, 3.3, 4.0, 9.0]
    low, high = stats.t.interval(0.95, 4, loc=np.mean(sample), scale=stats.sem(sample))
    estimate = over_replications(sample)
    assert estimate.low == pytest.approx(low)
    assert estimate.high is not None and estimate.high > 1.2 * high
    mirrored = over_replications([-value for value in sample])
    assert (mirrored.low, mirrored.high) == (pytest.approx(-estimate.high), pytest.approx(-estimate.low))


def test_a_positive_quantity_has_no_negative_bound() -> None:
    sample = [0.1, 0.1, 0.2, 9.0, 0.1]
    plain, positive = over_replications(sample), over_replications(sample, positive=True)
    assert plain.low is not None and plain.low < 0.0
    assert positive.low is not None and positive.high is not None
    assert 0.0 < positive.low < positive.mean == plain.mean < positive.high
    assert over_replications([0.0, 0.0, 0.0], positive=True) == Estimate(0.0, 0.0, 0.0)


def covered(sample: np.ndarray, truth: float) -> bool:
    estimate = over_replications(sample)
    assert estimate.low is not None and estimate.high is not None
    return bool(estimate.low <= truth <= estimate.high)


def m_m_1_waits_s(random: np.random.Generator, load: float, customers: int) -> np.ndarray:
    """Waits by Lindley's recursion, begun in the steady state; mean service 1 s."""
    step_s = random.standard_exponential(customers) - random.standard_exponential(customers) / load
    first_s = random.standard_exponential() / (1 - load) if random.random() < load else 0.0
    walk_s = first_s + np.concatenate([[0.0], np.cumsum(step_s)])
    return walk_s - np.minimum(np.minimum.accumulate(walk_s), 0.0)


def test_intervals_over_runs_of_a_queue_cover_the_mean_and_intervals_over_requests_do_not() -> None:
    """M/M/1 at load 0.8: means of ten replications are fair draws; the requests of one replication are not."""
    random = np.random.default_rng(8)
    truth_s, experiments = 0.8 / 0.2, 400
    over_runs = over_requests = 0
    for _ in range(experiments):
        waits_s = [m_m_1_waits_s(random, 0.8, 1_000) for _ in range(10)]
        over_runs += covered(np.array([wait_s.mean() for wait_s in waits_s]), truth_s)
        over_requests += covered(np.concatenate(waits_s), truth_s)
    # Means of 1,000 customers are a little skewed, which costs a t interval some coverage.
    assert over_runs >= 0.9 * experiments
    assert over_requests < 0.5 * experiments


def test_a_change_is_the_ratio_of_the_means_and_never_below_minus_a_hundred_percent() -> None:
    assert change_percent([1.0, 4.0], [2.0, 2.0]).mean == pytest.approx(25.0)
    wild = change_percent([1.0, 1.0, 1.0], [1.2, 2.0, 40.0])
    turned = change_percent([1.2, 2.0, 40.0], [1.0, 1.0, 1.0])
    assert wild.low is not None and wild.high is not None and turned.high is not None
    assert -100.0 < wild.low < wild.mean < 0.0 < wild.high
    # The other way round it is the inverse, which plain percentages are not.
    assert (1 + turned.mean / 100) * (1 + wild.mean / 100) == pytest.approx(1.0)
    assert (1 + turned.high / 100) * (1 + wild.low / 100) == pytest.approx(1.0)
    assert change_percent([3.0], [2.0]) == Estimate(50.0, None, None)
    assert change_percent([2.0, 3.0], [2.0, 3.0]) == Estimate(0.0, 0.0, 0.0)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=12))
def test_the_interval_of_a_change_contains_the_change_and_stays_above_minus_a_hundred(pairs: list[tuple[float, float]]) -> None:
    ours, theirs = zip(*pairs, strict=True)
    change = change_percent(ours, theirs)
    assert change.low is not None and change.high is not None
    assert -100.0 <= change.low <= change.mean <= change.high


def test_a_change_of_numbers_that_may_be_zero_has_the_interval_of_the_linear_expansion() -> None:
    change = change_percent([0.0, 1.0, 2.0], [4.0, 4.0, 4.0])
    plain = over_replications([-100.0, -75.0, -50.0])
    assert (change.mean, change.low, change.high) == pytest.approx((plain.mean, plain.low, plain.high))
    assert change_percent([0.0, 0.0], [0.0, 0.0]) == Estimate(0.0, 0.0, 0.0)


def test_the_difference_of_two_changes_is_paired_by_replication() -> None:
    baseline = [100.0, 100.0, 100.0, 100.0]
    first, second = [80.0, 83.0, 78.0, 86.0], [70.0, 74.0, 67.0, 76.0]
    paired = over_replications([a - b for a, b in zip(first, second, strict=True)])
    assert difference_of_changes((first, baseline), (second, baseline)) == Estimate(
        pytest.approx(paired.mean), pytest.approx(paired.low), pytest.approx(paired.high)
    )
    assert difference_of_changes(([3.0], [2.0]), ([2.0], [2.0])) == Estimate(50.0, None, None)


def test_an_interval_of_greater_confidence_is_wider_by_the_ratio_of_students_quantiles() -> None:
    ours, theirs = [101.0, 99.0, 100.0, 102.0, 98.0], [100.0] * 5
    plain, wide = (change_percent(ours, theirs, confidence) for confidence in (0.95, 0.99))
    assert plain.high is not None and wide.high is not None
    ratio = np.log1p(wide.high / 100.0) / np.log1p(plain.high / 100.0)
    assert ratio == pytest.approx(stats.t.ppf(0.995, 4) / stats.t.ppf(0.975, 4), rel=0.01)


def test_replications_that_differ_by_factors_have_fewer_degrees_of_freedom() -> None:
    """Student's quantile by tables: 2.776 with four degrees of freedom."""
    assert student_quantile(5, 0.0) == pytest.approx(2.7764, abs=1e-4)
    quantiles = student_quantile(5, [0.0, 0.05, 0.2, 0.5, 2.0])
    assert (np.diff(quantiles) >= 0.0).all() and quantiles[1] < 1.02 * quantiles[0]
    assert quantiles[-1] == quantiles[-2] == pytest.approx(stats.t.ppf(0.975, 8 / 3)), "never fewer than two thirds"
    assert student_quantile(2, 3.0) == student_quantile(2, 0.0) == pytest.approx(12.7062, abs=1e-4)
    assert student_quantile(100, 0.1) == pytest.approx(1.98, abs=0.01)


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
    runs: dict[Place, list[Any]] = {}
    drawn = []
    for replication in range(3):
        for policy, mean_s in (("edge", 2.0), ("cloud", 1.0)):
            runs.setdefault(Place(ALL, "w", "n", policy), []).append(numbers(mean_s * (1.0 + 0.05 * replication)))
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
