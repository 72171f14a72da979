"""Fewer points, the same picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.report.charts import extremes, numbers, quantile_shares, quantiles


def test_500_quantiles_hold_the_distribution_of_100_000_latencies_within_a_thousandth() -> None:
    values = np.random.default_rng(1).gamma(2.0, 0.1, 100_000)
    shares = quantile_shares(values.size)
    drawn = quantiles(values, shares)
    assert 400 <= shares.size <= 560
    everywhere = np.sort(values)
    error = np.abs(np.interp(everywhere, drawn, shares) - np.arange(values.size) / (values.size - 1))
    assert error.max() < 4e-4
    assert drawn[0] == values.min()
    assert drawn[-1] == values.max()


def test_quantiles_are_those_of_numpy() -> None:
    values = np.random.default_rng(2).normal(size=999)
    at = quantile_shares(values.size)
    np.testing.assert_allclose(quantiles(values, at), np.quantile(values, at), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 10, 1_000])
def test_shares_rise_from_0_to_1_and_cut_no_request_in_two(count: int) -> None:
    shares = quantile_shares(count)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert (np.diff(shares) > 0).all()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(4, 60))
def test_a_thinned_series_keeps_its_ends_its_peak_and_its_trough(values: list[float], most: int) -> None:
    column = np.array(values)
    kept = extremes(column, most)
    assert kept.size <= most
    assert (np.diff(kept) > 0).all()
    assert (kept[0], kept[-1]) == (0, column.size - 1)
    assert (column[kept].min(), column[kept].max()) == (column.min(), column.max())


def test_what_is_no_number_becomes_none() -> None:
    assert numbers(np.array([1.23456789, np.nan, np.inf, -0.00012345678])) == [1.2346, None, None, -0.00012346]
