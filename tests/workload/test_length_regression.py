from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from simnmt.base import shipped_files
from simnmt.workload.length_diagnostics import UPPER_EDGES, binned_means, fit_pair_error, means_by_source_length
from simnmt.workload.length_regression import LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable, read_table

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


LINE = LengthRegression(slope=0.9, offset=1.0)
tables = st.dictionaries(st.tuples(st.integers(1, 1500), st.integers(1, 300)), st.integers(1, 9), min_size=1, max_size=30).map(
    lambda pairs: LengthTable.of_pairs("t", "s", "word", "word", *zip(*pairs, strict=True), list(pairs.values()))
)


def written_out(table: LengthTable) -> tuple[np.ndarray, np.ndarray]:
    """Every pair as often as it occurs."""
    return np.repeat(table.src_len, table.count), np.repeat(table.tgt_len, table.count)


@given(tables)
def test_each_source_length_has_the_mean_and_deviation_of_its_pairs(table: LengthTable) -> None:
    src_len, tgt_len = written_out(table)
    means = means_by_source_length(table, LINE)
    assert [mean.src_len_from for mean in means] == sorted(set(src_len.tolist()))
    for mean in means:
        here = tgt_len[src_len == mean.src_len_from]
        assert (mean.src_len_to, mean.pairs, mean.mean_src_len) == (mean.src_len_from, len(here), mean.src_len_from)
        assert mean.mean_tgt_len == pytest.approx(here.mean())
        assert mean.line_tgt_len == pytest.approx(0.9 * mean.src_len_from + 1.0)
        assert mean.rmse_tgt_len == pytest.approx(np.sqrt(np.mean((here - mean.line_tgt_len) ** 2)))
        if len(here) == 1:
            assert mean.sd_tgt_len is None
        else:
            assert mean.sd_tgt_len == pytest.approx(here.std(ddof=1), abs=1e-9)


@given(tables)
def test_bins_hold_every_pair_once_and_their_squared_errors_add_up(table: LengthTable) -> None:
    bins, means = binned_means(table, LINE), means_by_source_length(table, LINE)
    assert sum(one.pairs for one in bins) == table.pairs
    total = sum(one.pairs * one.rmse_tgt_len**2 for one in bins)
    assert total == pytest.approx(sum(mean.pairs * mean.rmse_tgt_len**2 for mean in means))
    assert sum(one.pairs * one.mean_tgt_len for one in bins) == pytest.approx(table.tgt_len @ table.count)
    for one, following in pairwise(bins):
        assert one.src_len_to < following.src_len_from
    for one in bins:
        assert sum(one.src_len_from > edge for edge in UPPER_EDGES) == sum(one.src_len_to > edge for edge in UPPER_EDGES)


def test_a_bin_of_several_lengths_has_the_deviation_about_each_ones_mean() -> None:
    """Else the slope itself would pass for scatter."""
    table = LengthTable.of_pairs("t", "s", "word", "word", [12, 12, 14, 14], [10, 12, 110, 112])
    (one,) = binned_means(table, LINE)
    assert (one.src_len_from, one.src_len_to, one.pairs, one.mean_tgt_len) == (12, 14, 4, 61.0)
    assert one.sd_tgt_len == pytest.approx(np.sqrt(2.0))


def test_the_means_of_a_fit_lie_about_its_line() -> None:
    """Least squares leaves no mean error."""
    generator = np.random.default_rng(1)
    src_len = generator.integers(1, 40, 5000)
    table = LengthTable.of_pairs("t", "s", "word", "word", src_len, src_len + generator.integers(1, 9, 5000))
    means = means_by_source_length(table, fit_lengths(table).regression)
    assert sum(mean.pairs * (mean.mean_tgt_len - mean.line_tgt_len) for mean in means) == pytest.approx(0.0, abs=1e-6)


GROWTH_LINE = LengthRegression(slope=1.0, offset=200.0)
"""So high above 1 that no length is cut off."""


def with_error(sd, pairs: int = 60_000, longest: int = 60, seed: int = 3) -> LengthTable:
    """Pairs about GROWTH_LINE, whose errors have the deviation `sd(src_len)`; rounding adds 1/12 to their variance."""
    generator = np.random.default_rng(seed)
    src_len = generator.integers(1, longest + 1, pairs)
    tgt_len = np.rint(GROWTH_LINE.predict(src_len) + sd(src_len) * generator.standard_normal(pairs)).astype(int)
    return LengthTable.of_pairs("t", "made up", "word", "word", src_len, tgt_len)


def test_a_linear_growth_is_found_again() -> None:
    growth = fit_pair_error(with_error(lambda n: 2.0 + 0.15 * n), GROWTH_LINE)
    assert growth is not None and growth.better == "linear"
    assert (growth.linear_sd_at_0, growth.linear_sd_per_src_token) == (
        pytest.approx(2.0, abs=0.1),
        pytest.approx(0.15, abs=0.005),
    )
    assert str(growth).startswith(f"deviation of a pair from the line: {growth.linear_sd_at_0:.2f} + 0.15")
    assert (growth.pairs, growth.src_lengths) == (60_000, 60)


def test_a_power_is_found_again() -> None:
    growth = fit_pair_error(with_error(lambda n: 1.5 * n**0.6), GROWTH_LINE)
    assert growth is not None and growth.better == "power"
    assert (growth.power_sd_at_1, growth.power_exponent) == (pytest.approx(1.5, rel=0.05), pytest.approx(0.6, abs=0.015))
    assert growth.power_sd_at_1 * 30**growth.power_exponent == pytest.approx(1.5 * 30**0.6, rel=0.02)


def test_where_nothing_grows_none_is_claimed() -> None:
    gains = []
    for seed in range(20):
        growth = fit_pair_error(with_error(lambda n: 4.0 + 0 * n, pairs=2000, seed=seed), GROWTH_LINE)
        assert growth is not None and abs(growth.power_exponent) < 0.15
        gains.append(growth.log_likelihood_gain)
    # Twice the gain is chi-squared with one degree of freedom (somewhat more, the better of two forms being taken).
    assert sum(gain > 2.0 for gain in gains) <= 4 and min(gains) > -1e-6


def test_few_pairs_of_each_length_do_not_pull_it_down() -> None:
    """The deviation of one pair about its own mean is 0; about the line it still tells, on average."""
    src_len = np.arange(1, 2001)
    generator = np.random.default_rng(5)
    tgt_len = np.rint(GROWTH_LINE.predict(src_len) + (3.0 + 0.02 * src_len) * generator.standard_normal(2000)).astype(int)
    growth = fit_pair_error(LengthTable.of_pairs("t", "s", "word", "word", src_len, tgt_len), GROWTH_LINE)
    assert growth is not None and growth.linear_sd_per_src_token == pytest.approx(0.02, rel=0.1)


def test_the_optimum_is_that_of_a_plain_search_over_the_pairs_written_out() -> None:
    table = read_table(shipped_files.find("traces/lengths", "fr-en-news")).split(0.1, 1)[0]
    line = fit_lengths(table).regression
    src_len, tgt_len = np.repeat(table.src_len, table.count), np.repeat(table.tgt_len, table.count)
    residual = tgt_len - (line.slope * src_len + line.offset)

    def unlikelihood(sd: np.ndarray) -> float:
        return float(np.sum(np.log(sd) + 0.5 * (residual / sd) ** 2)) if np.all(sd > 0) else 1e9

    linear = optimize.minimize(lambda p: unlikelihood(p[0] + p[1] * src_len), [3.0, 0.05], method="Nelder-Mead")
    power = optimize.minimize(lambda p: unlikelihood(p[0] * src_len ** p[1]), [1.0, 0.5], method="Nelder-Mead")
    growth = fit_pair_error(table, line)
    assert growth is not None
    assert (growth.linear_sd_at_0, growth.linear_sd_per_src_token) == pytest.approx(tuple(linear.x), rel=5e-3)
    assert (growth.power_sd_at_1, growth.power_exponent) == pytest.approx(tuple(power.x), rel=5e-3)
    assert growth.better == ("linear" if linear.fun <= power.fun else "power")
    constant = unlikelihood(np.full(len(residual), np.sqrt(np.mean(residual**2))))
    assert growth.log_likelihood_gain == pytest.approx(constant - min(linear.fun, power.fun), abs=0.01)


@pytest.mark.parametrize("name", ["de-en-news", "fr-en-docs", "en-zh-docs", "de-en-tatoeba"])
def test_on_real_text_the_error_grows_about_as_the_root_of_the_length(name: str) -> None:
    table = read_table(shipped_files.find("traces/lengths", name))
    growth = fit_pair_error(table, fit_lengths(table).regression)
    assert growth is not None and growth.log_likelihood_gain > 1000
    assert 0.5 < growth.power_exponent < 0.7


@pytest.mark.parametrize(
    "pairs",
    [
        {(5, 4): 3, (5, 9): 1},  # one source length
        {(1, 201): 1, (9, 209): 4, (20, 220): 1},  # no error at all
    ],
)
def test_where_there_is_no_growth_to_speak_of_there_is_none(pairs: dict[tuple[int, int], int]) -> None:
    table = LengthTable.of_pairs("t", "s", "word", "word", *zip(*pairs, strict=True), list(pairs.values()))
    assert fit_pair_error(table, fit_lengths(table).regression) is None


def test_pairs_that_lie_on_the_line_at_one_end_leave_the_fit_finite() -> None:
    table = LengthTable.of_pairs("t", "s", "word", "word", [1, 1, 50, 60, 60], [201, 201, 253, 270, 250])
    growth = fit_pair_error(table, GROWTH_LINE)
    assert growth is not None
    linear = growth.linear_sd_at_0 + growth.linear_sd_per_src_token * np.array([1.0, 60.0])
    power = growth.power_sd_at_1 * np.array([1.0, 60.0]) ** growth.power_exponent
    assert np.all(np.isfinite([linear, power])) and min(linear.min(), power.min()) > 0
