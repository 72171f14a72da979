"""Figure 3: mean and deviation of the target length per source length."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.workload.length_diagnostics import UPPER_EDGES, binned_means, means_by_source_length
from simnmt.workload.length_regression import LengthRegression, fit_lengths
from simnmt.workload.length_table import LengthTable

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
