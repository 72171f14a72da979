"""The distribution of target lengths per source length: held out, beyond the table, and in its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.base import shipped_files
from simnmt.workload.length_regression import LEVELS, LengthDistribution, fit_lengths
from simnmt.workload.length_table import LengthTable, read_table

NAMES = ["de-en-news", "de-en-tatoeba", "en-zh-docs", "en-zh-flores", "fr-en-docs", "fr-en-mixed", "fr-en-news"]
SPLITS = 4


def table_of(src_len: object, tgt_len: object, count: object = 1) -> LengthTable:
    return LengthTable.of_pairs("made", "made up", "word", "word", src_len, tgt_len, count)


def held_out(name: str, share: float = 0.1) -> list[tuple[LengthTable, LengthTable, LengthDistribution]]:
    """(fitted on, not fitted on, fit) of several ways to deal a shipped table out."""
    shipped_table = read_table(shipped_files.find("traces/lengths", name))
    dealt = [shipped_table.split(share, 1, replication) for replication in range(SPLITS)]
    return [(fitted, other, LengthDistribution.of(fitted)) for fitted, other in dealt]


def share_below(other: LengthTable, bound: object) -> float:
    """Share of pairs below the bound, those upon it by half: lengths are whole, the bound is not."""
    below = 0.5 * (other.tgt_len < bound) + 0.5 * (other.tgt_len <= bound)
    return float(np.average(below, weights=other.count))


@pytest.mark.parametrize("name", NAMES)
def test_on_pairs_it_never_saw_95_of_100_lie_below_the_95th_percentile(name: str) -> None:
    shares = [share_below(other, fit.quantile(other.src_len, 0.95)) for _, other, fit in held_out(name)]
    assert 0.93 < np.mean(shares) < 0.97
    shares = [share_below(other, fit.quantile(other.src_len, 0.05)) for _, other, fit in held_out(name)]
    assert 0.03 < np.mean(shares) < 0.07


@pytest.mark.parametrize("name", ["de-en-news", "en-zh-docs", "fr-en-mixed"])
def test_it_does_so_for_short_and_for_long_sources_alike(name: str) -> None:
    """A percentile of all pairs about the line would hold too many of the short ones and too few of the long."""
    shares = []
    for _, other, fit in held_out(name):
        inside = np.array_split(np.argsort(other.src_len, kind="stable"), 3)
        for third in inside:
            below = other.tgt_len[third] <= fit.quantile(other.src_len[third], 0.95)
            shares.append(np.average(below, weights=other.count[third]))
    assert (np.abs(np.array(shares).reshape(SPLITS, 3).mean(axis=0) - 0.95) < 0.035).all()


@pytest.mark.parametrize("name", NAMES)
def test_its_mean_errs_no_more_than_the_line(name: str) -> None:
    ratios = []
    for fitted, other, fit in held_out(name):
        errors = (
            other.tgt_len - fit.mean(other.src_len),
            other.tgt_len - fit_lengths(fitted).regression.predict(other.src_len),
        )
        mse, line_mse = (np.average(error**2, weights=other.count) for error in errors)
        ratios.append(mse / line_mse)
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


def test_beyond_the_table_the_nearest_distribution_grows_with_the_line() -> None:
    random = np.random.default_rng(6)
    src_len = random.integers(20, 40, 5_000)
    fit = LengthDistribution.of(table_of(src_len, src_len + random.integers(0, 10, len(src_len))))
    for q in (0.1, 0.9):
        ratio = fit.line.predict(np.array([400])) / fit.line.predict(np.array([39]))
        assert fit.quantile(np.array([400]), q) == pytest.approx(ratio * fit.quantile(np.array([39]), q))


def test_a_table_of_one_pair_knows_that_pair() -> None:
    fit = LengthDistribution.of(table_of([7], [9]))
    asked = np.array([1, 7, 70])
    assert fit.mean(asked).tolist() == fit.quantile(asked, 0.95).tolist() == [9.0] * 3


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
