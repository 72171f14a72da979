"""The least total over targets, ties, and estimates of the transfer time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.policies import QuantileEstimate, TransferEstimate, least_total

# A grid of sixteenths adds without rounding, so that ties are ties; the others are whatever floats are.
SECONDS = st.integers(0, 64).map(lambda sixteenths: sixteenths / 16) | st.floats(0.0, 1e3)


@given(
    st.integers(1, 6).flatmap(
        lambda targets: st.lists(st.lists(SECONDS, min_size=2 * targets, max_size=2 * targets), min_size=1)
    )
)
def test_the_least_total_is_taken_and_of_equal_ones_the_first(rows: list[list[float]]) -> None:
    """For one to six targets: execution in the first half of a row, delays in the second."""
    execution_s, delay_s = np.split(np.array(rows), 2, axis=1)
    decide = least_total(list(execution_s.T))
    for request, delays in enumerate(delay_s.tolist()):
        assert decide(request, delays) == np.argmin(execution_s[request] + delays)


@pytest.mark.parametrize("targets", [2, 3, 4, 5])
def test_a_tie_goes_to_the_target_named_first(targets: int) -> None:
    decide = least_total([np.array([1.0 - k / 8]) for k in range(targets)])
    assert decide(0, [k / 8 for k in range(targets)]) == 0
    dearer_first = [k / 8 for k in range(targets)]
    dearer_first[0] += 1 / 8
    assert decide(0, dearer_first) == 1


TRANSFERS = st.floats(0.0, 1e4)


@given(st.lists(TRANSFERS, min_size=1), TRANSFERS)
def test_with_weight_1_the_last_measurement_wins_to_the_bit(measured: list[float], initial_s: float) -> None:
    """CNMT-11."""
    estimate = TransferEstimate(initial_s)
    assert (estimate.value_s, estimate.measured_at_s) == (initial_s, 0.0)
    for at_s, transfer_s in enumerate(measured):
        estimate.learn(transfer_s, float(at_s))
        assert (estimate.value_s, estimate.measured_at_s) == (transfer_s, at_s)


@given(st.floats(0.01, 0.99), st.lists(TRANSFERS, min_size=1, max_size=30), TRANSFERS)
def test_a_smoothed_estimate_weighs_each_measurement_by_its_age(weight: float, measured: list[float], initial_s: float) -> None:
    estimate = TransferEstimate(initial_s, weight)
    for transfer_s in measured:
        estimate.learn(transfer_s, 1.0)
    count = len(measured)
    expected = (1 - weight) ** count * initial_s
    expected += sum(weight * (1 - weight) ** (count - 1 - k) * transfer_s for k, transfer_s in enumerate(measured))
    assert estimate.value_s == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert min(initial_s, *measured) * (1 - 1e-9) <= estimate.value_s <= max(initial_s, *measured) * (1 + 1e-9)


@given(st.lists(TRANSFERS, min_size=1, max_size=60), st.floats(0.0, 1.0), st.integers(1, 40), TRANSFERS)
def test_a_quantile_is_that_of_the_last_measurements(
    measured: list[float], quantile: float, window: int, initial_s: float
) -> None:
    """The initial value is forgotten at the first measurement."""
    estimate = QuantileEstimate(initial_s, quantile, window)
    assert (estimate.value_s, estimate.measured_at_s) == (initial_s, 0.0)
    for count, transfer_s in enumerate(measured, start=1):
        estimate.learn(transfer_s, float(count))
        expected_s = np.quantile(measured[max(count - window, 0) : count], quantile)
        assert estimate.value_s == pytest.approx(expected_s, rel=1e-12, abs=1e-12)
        assert estimate.measured_at_s == count
