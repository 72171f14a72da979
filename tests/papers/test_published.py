"""The transcription of Table I, and the ratios CNMT-16 derives from it."""

from __future__ import annotations

import pytest

from simnmt.papers.cnmt import published

IMPLIED = {
    # CNMT-16: Server twice, Oracle twice, Naive, C-NMT
    ("de-en", "cp1"): (1.1735, 1.1706, 0.8651, 0.8636, 1.1174, 0.8645),
    ("de-en", "cp2"): (0.8851, 0.9188, 0.7403, 0.7555, 0.8384, 0.7566),
    ("fr-en", "cp1"): (1.5922, 1.5753, 0.8725, 0.8664, 0.9426, 0.8771),
    ("fr-en", "cp2"): (1.3681, 1.3912, 0.8042, 0.8108, 0.9285, 0.8200),
    ("en-zh", "cp1"): (0.9018, 0.9005, 0.7177, 0.7177, 0.8289, 0.7883),
    ("en-zh", "cp2"): (0.7109, 0.7195, 0.5870, 0.5915, 0.6369, 0.6434),
}


def test_table_one_has_36_cells_and_sums_to_the_printed_digits() -> None:
    cells = [value for networks in published.TABLE_ONE.values() for columns in networks for value in columns]
    assert len(cells) == 36
    assert sum(cells) == pytest.approx(-338.30, abs=1e-9)


def test_cells_are_found_by_name() -> None:
    assert published.variation_percent("de-en", "cp1", "naive", "oracle") == 29.17
    assert published.variation_percent("en-zh", "cp2", "cnmt", "edge") == -35.66
    with pytest.raises(KeyError):
        published.variation_percent("de-en", "cp1", "edge", "edge")


def test_worked_example_of_cnmt_16() -> None:
    assert len(list(published.all_implied_ratios())) == len(IMPLIED)
    for ratios in published.all_implied_ratios():
        ours = (*ratios.server, *ratios.oracle, ratios.naive, ratios.cnmt)
        assert tuple(round(value, 4) for value in ours) == IMPLIED[ratios.workload, ratios.network]


def test_eleven_of_twelve_double_derivations_disagree_by_more_than_the_rounding() -> None:
    pairs = [pair for ratios in published.all_implied_ratios() for pair in (ratios.server, ratios.oracle)]
    assert sum(abs(one - other) > 2e-4 for one, other in pairs) == 11


def test_targets_take_the_mean_of_both_derivations() -> None:
    targets = published.implied_ratios("de-en", "cp2").targets
    assert targets["cloud"] == pytest.approx((0.8851 + 0.9188) / 2, abs=1e-4)
    assert targets["naive"] == pytest.approx(0.8384)


def test_the_reference_has_the_papers_doi() -> None:
    assert "10.1109/ISCAS48785.2022.9937603" in published.REFERENCE
