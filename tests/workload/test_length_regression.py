"""The line of target over source lengths, its means by source length, and the distribution of target lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simnmt.base import shipped_files
from simnmt.workload.length_regression import (
    LEVELS,
    LengthDistribution,
    LengthRegression,
    fit_lengths,
    means_by_source_length,
)
from simnmt.workload.length_table import LengthTable, read_table


def table_of(src_len: object, tgt_len: object, count: object = 1) -> LengthTable:
    return LengthTable.of_pairs("made", "made up", "word", "word", src_len, tgt_len, count)


tables = st.dictionaries(st.tuples(st.integers(1, 1500), st.integers(1, 300)), st.integers(1, 40), min_size=1, max_size=30).map(
    lambda pairs: table_of(*zip(*pairs, strict=True), list(pairs.values()))
)


def written_out(table: LengthTable) -> tuple[np.ndarray, np.ndarray]:
    """Every pair as often as it occurs."""
    return np.repeat(table.src_len, table.count), np.repeat(table.tgt_len, table.count)


def test_worked_example_of_cnmt_07() -> None:
    fit = fit_lengths(table_of([4, 8, 12, 20], [5, 7, 12, 17]))
    assert [f"{figure:.6f}" for figure in (fit.len_slope, fit.len_offset)] == ["0.778571", "1.685714"]
    assert [f"{figure:.5f}" for figure in (fit.pairs_r2, fit.pairs_mse)] == ["0.97826", "0.47143"]
    assert (fit.pairs, fit.remark) == (4, None)
    # One pair per source length: the means are the pairs.
    assert (fit.means_r2, fit.means_mse) == pytest.approx((fit.pairs_r2, fit.pairs_mse), rel=1e-12)


@given(tables.filter(lambda table: len(set(table.src_len.tolist())) > 1))
def test_the_fit_is_that_of_the_pairs_written_out(table: LengthTable) -> None:
    """scipy knows no counts, so it is given every pair as often as it occurs, and every mean as often as its pairs."""
    fit = fit_lengths(table)
    src, tgt = written_out(table)
    line = stats.linregress(src, tgt)
    assert fit.len_slope == pytest.approx(line.slope, rel=1e-7, abs=1e-9)
    assert fit.len_offset == pytest.approx(line.intercept, rel=1e-7, abs=1e-7)
    predicted = line.slope * src + line.intercept
    means = np.array([tgt[src == length].mean() for length in src])
    for value, r2, mse in ((tgt, fit.pairs_r2, fit.pairs_mse), (means, fit.means_r2, fit.means_mse)):
        assert mse == pytest.approx(np.mean((value - predicted) ** 2), rel=1e-6, abs=1e-8)
        if np.var(value) > 1e-9:
            assert r2 == pytest.approx(1 - np.mean((value - predicted) ** 2) / np.var(value), rel=1e-6, abs=1e-6)
    # Why a published R2 of means says little about a single sentence.
    assert fit.means_mse <= fit.pairs_mse + 1e-9


def test_lengths_that_do_not_vary_have_no_r2() -> None:
    level = fit_lengths(table_of([7, 7], [5, 9], [3, 1]))
    assert (level.len_slope, level.len_offset, level.pairs_r2, level.means_r2) == (0.0, 6.0, None, None)
    assert (level.pairs_mse, level.means_mse) == (3.0, 0.0) and level.remark is not None
    constant = fit_lengths(table_of([3, 5, 9], [6, 6, 6], [2, 7, 1]))
    assert (constant.len_slope, constant.len_offset) == pytest.approx((0.0, 6.0), abs=1e-12)
    assert (constant.pairs_r2, constant.means_r2) == (None, None)


def test_no_prediction_is_below_one_token() -> None:
    predicted = LengthRegression(slope=0.5, offset=-3.0).predict(np.array([1, 6, 8, 10]))
    assert predicted.tolist() == [1.0, 1.0, 1.0, 2.0] and predicted.dtype == np.float64


LINE = LengthRegression(slope=0.9, offset=1.0)


@given(tables)
def test_each_source_length_has_the_mean_and_deviation_of_its_pairs(table: LengthTable) -> None:
    src_len, tgt_len = written_out(table)
    means = means_by_source_length(table, LINE)
    assert [row["src_len"] for row in means] == sorted(set(src_len.tolist()))
    for row in means:
        here = tgt_len[src_len == row["src_len"]]
        assert (row["pairs"], row["mean_tgt_len"]) == (len(here), pytest.approx(here.mean()))
        assert row["line_tgt_len"] == pytest.approx(0.9 * row["src_len"] + 1.0)
        assert row["rmse_tgt_len"] == pytest.approx(np.sqrt(np.mean((here - row["line_tgt_len"]) ** 2)))
        assert row["sd_tgt_len"] == (None if len(here) == 1 else pytest.approx(here.std(ddof=1), abs=1e-9))


# --- the distribution: held out, beyond the table, and in its edges ---

NAMES = ["de-en-news", "de-en-tatoeba", "en-zh-docs", "en-zh-flores", "fr-en-docs", "fr-en-mixed", "fr-en-news"]
SPLITS = 4


def share_below(other: LengthTable, bound: np.ndarray, rows: object = slice(None)) -> float:
    """Share of pairs below the bound, those upon it by half: lengths are whole, the bound is not."""
    below = 0.5 * (other.tgt_len < bound) + 0.5 * (other.tgt_len <= bound)
    return float(np.average(below[rows], weights=other.count[rows]))


@pytest.mark.parametrize("name", NAMES)
def test_on_pairs_it_never_saw_95_of_100_lie_below_the_95th_percentile(name: str) -> None:
    """For short and for long sources alike; and the mean errs no more than the line."""
    table = read_table(shipped_files.find("traces/lengths", name))
    low, high, thirds, ratios = [], [], [], []
    for replication in range(SPLITS):
        fitted, other = table.split(0.1, 1, replication)
        fit = LengthDistribution.of(fitted)
        bound = fit.quantile(other.src_len, 0.95)
        low.append(share_below(other, fit.quantile(other.src_len, 0.05)))
        high.append(share_below(other, bound))
        thirds.append([share_below(other, bound, rows) for rows in np.array_split(np.argsort(other.src_len), 3)])
        predictions = fit.mean(other.src_len), fit_lengths(fitted).regression.predict(other.src_len)
        mse, line_mse = (np.average((other.tgt_len - tgt_len) ** 2, weights=other.count) for tgt_len in predictions)
        ratios.append(mse / line_mse)
    assert 0.03 < np.mean(low) < 0.07 and 0.93 < np.mean(high) < 0.97
    assert (np.abs(np.mean(thirds, axis=0) - 0.95) < 0.035).all()
    assert np.mean(ratios) < 1.005


def test_scaling_the_neighbours_keeps_the_slope_out_of_the_spread() -> None:
    """One target length for each source length: whatever is pooled, nothing spreads."""
    src_len = np.arange(10, 100)
    fit = LengthDistribution.of(table_of(src_len, 3 * src_len))
    for q in (0.0, 0.05, 0.5, 0.95, 1.0):
        assert fit.quantile(src_len, q) == pytest.approx(3.0 * src_len)
    assert fit.mean(np.array([5, 1_000])) == pytest.approx([15.0, 3_000.0])


def test_a_known_distribution_comes_back() -> None:
    """Target lengths uniform on 1 to 2 times the source's: the quantile q is (1 + q) times."""
    random = np.random.default_rng(5)
    src_len = random.integers(40, 80, 40_000)
    fit = LengthDistribution.of(table_of(src_len, np.rint(src_len * random.uniform(1.0, 2.0, len(src_len)))))
    asked = np.arange(40, 80)
    assert fit.mean(asked) == pytest.approx(1.5 * asked, rel=0.02)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert fit.quantile(asked, q) == pytest.approx((1.0 + q) * asked, rel=0.06)
        assert np.mean(fit.quantile(asked, q) / asked) == pytest.approx(1.0 + q, abs=0.006)
        # Beyond the table, the nearest distribution grows with the line.
        ratio = fit.line.predict(np.array([400])) / fit.line.predict(np.array([79]))
        assert fit.quantile(np.array([400]), q) == pytest.approx(ratio * fit.quantile(np.array([79]), q))


PAIRS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(1, 99)), min_size=1, max_size=40)


@given(PAIRS, st.integers(1, 500), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6))
def test_quantiles_rise_with_their_level_and_stay_at_a_token_or_more(
    pairs: list[tuple[int, int, int]], pooled: int, levels: list[float]
) -> None:
    fit = LengthDistribution.of(table_of(*(list(column) for column in zip(*pairs, strict=True))), pooled)
    asked = np.array([1, 2, 17, 60, 61, 5_000])
    shares = np.array([fit.quantile(asked, q) for q in sorted(levels)])
    assert (shares >= 1.0).all()
    assert (np.diff(shares, axis=0) >= -1e-12 * shares[1:]).all()
    assert (fit.mean(asked) >= 1.0).all()
    assert (fit.mean(asked) <= np.maximum(fit.quantile(asked, 1.0), 1.0) * (1 + 1e-9)).all()
    assert fit.quantiles.shape == (len(fit.src_len), len(LEVELS))
