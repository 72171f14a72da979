from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simnmt.workload.length_regression import LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable

rows = st.dictionaries(st.tuples(st.integers(1, 80), st.integers(1, 80)), st.integers(1, 40), min_size=2, max_size=25)


def table_of(pairs: dict[tuple[int, int], int]) -> LengthTable:
    src_len, tgt_len = zip(*pairs, strict=True)
    return LengthTable.of_pairs("test", "made up", "word", "word", src_len, tgt_len, list(pairs.values()))


def test_worked_example_of_cnmt_07() -> None:
    fit = fit_lengths(table_of({(4, 5): 1, (8, 7): 1, (12, 12): 1, (20, 17): 1}))
    figures = (fit.len_slope, fit.len_offset, fit.pairs_r2, fit.pairs_mse)
    assert [f"{figure:.6f}" for figure in figures[:2]] == ["0.778571", "1.685714"]
    assert [f"{figure:.5f}" for figure in figures[2:]] == ["0.97826", "0.47143"]
    assert (fit.pairs, fit.src_lengths, fit.remark) == (4, 4, None)
    # One pair per source length: the means are the pairs.
    for r2, mse in ((fit.means_r2, fit.means_mse), (fit.means_r2_unweighted, fit.means_mse_unweighted)):
        assert (r2, mse) == pytest.approx((fit.pairs_r2, fit.pairs_mse), rel=1e-12)


@given(rows.filter(lambda pairs: len({n for n, _ in pairs}) > 1))
def test_the_fit_is_that_of_the_pairs_written_out(pairs: dict[tuple[int, int], int]) -> None:
    """scipy knows no counts, so it is given every pair as often as it occurs."""
    fit = fit_lengths(table_of(pairs))
    src = np.array([n for (n, _), count in pairs.items() for _ in range(count)], dtype=float)
    tgt = np.array([m for (_, m), count in pairs.items() for _ in range(count)], dtype=float)
    line = stats.linregress(src, tgt)
    assert fit.len_slope == pytest.approx(line.slope, rel=1e-7, abs=1e-9)
    assert fit.len_offset == pytest.approx(line.intercept, rel=1e-7, abs=1e-7)
    assert fit.pairs_mse == pytest.approx(np.mean((tgt - line.slope * src - line.intercept) ** 2), rel=1e-7, abs=1e-9)
    if np.ptp(tgt) > 0:
        assert fit.pairs_r2 == pytest.approx(line.rvalue**2, rel=1e-6, abs=1e-9)
    else:
        assert fit.pairs_r2 is None

    mean_at = {n: tgt[src == n].mean() for n in set(src)}
    means = np.array([[n, mean, line.slope * n + line.intercept] for n, mean in mean_at.items()])
    written_out = np.array([[n, mean_at[n], line.slope * n + line.intercept] for n in src])
    for (_, mean, predicted), r2, mse in (
        (written_out.T, fit.means_r2, fit.means_mse),
        (means.T, fit.means_r2_unweighted, fit.means_mse_unweighted),
    ):
        assert mse == pytest.approx(np.mean((mean - predicted) ** 2), rel=1e-6, abs=1e-8)
        if np.var(mean) > 1e-9:
            expected = 1 - np.mean((mean - predicted) ** 2) / np.var(mean)
            assert r2 == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(rows)
def test_means_scatter_less_than_the_pairs_they_average(pairs: dict[tuple[int, int], int]) -> None:
    """Why a published R2 of means says little about a single sentence."""
    fit = fit_lengths(table_of(pairs))
    assert fit.means_mse <= fit.pairs_mse + 1e-9
    if fit.pairs_r2 is not None and fit.means_r2 is not None:
        assert fit.means_r2 >= fit.pairs_r2 - 1e-9


def test_one_source_length_gives_a_level_line_with_a_remark() -> None:
    fit = fit_lengths(table_of({(7, 5): 3, (7, 9): 1}))
    assert (fit.len_slope, fit.len_offset) == (0.0, 6.0)
    assert (fit.pairs_r2, fit.means_r2, fit.means_r2_unweighted) == (None, None, None)
    assert (fit.pairs_mse, fit.means_mse) == (3.0, 0.0)
    assert fit.remark is not None and "one length" in fit.remark


def test_a_target_length_that_never_varies_has_no_r2() -> None:
    fit = fit_lengths(table_of({(3, 6): 2, (5, 6): 7, (9, 6): 1}))
    assert (fit.len_slope, fit.len_offset) == pytest.approx((0.0, 6.0), abs=1e-12)
    assert (fit.pairs_r2, fit.means_r2) == (None, None)


def test_no_prediction_is_below_one_token() -> None:
    regression = LengthRegression(slope=0.5, offset=-3.0)
    predicted = regression.predict(np.array([1, 6, 8, 10]))
    assert predicted.tolist() == [1.0, 1.0, 1.0, 2.0] and predicted.dtype == np.float64
    fit = fit_lengths(table_of({(4, 5): 1, (8, 7): 1, (12, 12): 1, (20, 17): 1}))
    assert fit.regression.predict(np.array([20])) == pytest.approx(0.7785714 * 20 + 1.6857142)
