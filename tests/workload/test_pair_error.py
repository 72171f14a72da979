"""How the error about the length line grows with the source length."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from simnmt.base import shipped_files
from simnmt.workload.length_diagnostics import fit_pair_error
from simnmt.workload.length_regression import LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable, read_table

LINE = LengthRegression(slope=1.0, offset=200.0)
"""So high above 1 that no length is cut off."""


def with_error(sd, pairs: int = 60_000, longest: int = 60, seed: int = 3) -> LengthTable:
    """Pairs about LINE, whose errors have the deviation `sd(src_len)`; rounding adds 1/12 to their variance."""
    generator = np.random.default_rng(seed)
    src_len = generator.integers(1, longest + 1, pairs)
    tgt_len = np.rint(LINE.predict(src_len) + sd(src_len) * generator.standard_normal(pairs)).astype(int)
    return LengthTable.of_pairs("t", "made up", "word", "word", src_len, tgt_len)


def test_a_linear_growth_is_found_again() -> None:
    growth = fit_pair_error(with_error(lambda n: 2.0 + 0.15 * n), LINE)
    assert growth is not None and growth.better == "linear"
    assert (growth.linear_sd_at_0, growth.linear_sd_per_src_token) == (
        pytest.approx(2.0, abs=0.1),
        pytest.approx(0.15, abs=0.005),
    )
    assert str(growth).startswith(f"deviation of a pair from the line: {growth.linear_sd_at_0:.2f} + 0.15")
    assert (growth.pairs, growth.src_lengths) == (60_000, 60)


def test_a_power_is_found_again() -> None:
    growth = fit_pair_error(with_error(lambda n: 1.5 * n**0.6), LINE)
    assert growth is not None and growth.better == "power"
    assert (growth.power_sd_at_1, growth.power_exponent) == (pytest.approx(1.5, rel=0.05), pytest.approx(0.6, abs=0.015))
    assert growth.power_sd_at_1 * 30**growth.power_exponent == pytest.approx(1.5 * 30**0.6, rel=0.02)


def test_where_nothing_grows_none_is_claimed() -> None:
    gains = []
    for seed in range(20):
        growth = fit_pair_error(with_error(lambda n: 4.0 + 0 * n, pairs=2000, seed=seed), LINE)
        assert growth is not None and abs(growth.power_exponent) < 0.15
        gains.append(growth.log_likelihood_gain)
    # Twice the gain is chi-squared with one degree of freedom (somewhat more, the better of two forms being taken).
    assert sum(gain > 2.0 for gain in gains) <= 4 and min(gains) > -1e-6


def test_few_pairs_of_each_length_do_not_pull_it_down() -> None:
    """The deviation of one pair about its own mean is 0; about the line it still tells, on average."""
    src_len = np.arange(1, 2001)
    generator = np.random.default_rng(5)
    tgt_len = np.rint(LINE.predict(src_len) + (3.0 + 0.02 * src_len) * generator.standard_normal(2000)).astype(int)
    growth = fit_pair_error(LengthTable.of_pairs("t", "s", "word", "word", src_len, tgt_len), LINE)
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
    growth = fit_pair_error(table, LINE)
    assert growth is not None
    linear = growth.linear_sd_at_0 + growth.linear_sd_per_src_token * np.array([1.0, 60.0])
    power = growth.power_sd_at_1 * np.array([1.0, 60.0]) ** growth.power_exponent
    assert np.all(np.isfinite([linear, power])) and min(linear.min(), power.min()) > 0
