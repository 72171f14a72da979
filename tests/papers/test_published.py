"""The transcription of Table I, and the ratios CNMT-16 derives from it."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.papers.cnmt import published
from simnmt.papers.cnmt.table_one import HEADS, TableRun, mean_absolute_difference, table_lines

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


Rows = list[dict[str, Any]]


def test_the_implied_totals_give_36_cells_close_to_the_published_ones(published_rows: Rows) -> None:
    changes = TableRun.of(published_rows).changes()
    assert len(changes) == 36
    # the GW column follows exactly; the others by half of what the paper's two derivations differ (at most 2 %)
    assert all(abs(change.difference_points) < 1e-9 for change in changes if change.baseline == "edge")
    assert all(abs(change.difference_points) < 2.3 for change in changes)
    mean = mean_absolute_difference(changes)
    assert mean is not None and 0 < mean < 0.5


def test_a_cell_is_the_variation_of_total_time_in_per_cent() -> None:
    rows = [
        {"workload": "de-en", "network": "cp2", "policy": "edge", "total_latency_s": 200.0},
        {"workload": "de-en", "network": "cp2", "policy": "cnmt", "total_latency_s": 150.0},
    ]
    (change,) = TableRun.of(rows).changes()
    assert (change.published_percent, change.ours_percent) == (-24.34, -25.0)
    assert change.difference_points == pytest.approx(-0.66)


def test_a_run_of_one_data_set_gives_its_part_of_the_table_and_another_run_nothing(published_rows: Rows) -> None:
    changes = TableRun.of(row for row in published_rows if row["workload"] == "de-en").changes()
    assert len(changes) == 12 and {change.workload for change in changes} == {"de-en"}
    other = TableRun.of([{"workload": "mine", "network": "cp1", "policy": "edge", "total_latency_s": 1.0}])
    assert other.changes() == [] and mean_absolute_difference([]) is None


def test_the_wide_table_has_a_line_for_each_origin_under_the_papers_names(published_rows: Rows) -> None:
    lines = table_lines({"ours": TableRun.of(published_rows)})
    assert len(lines) == 12 and HEADS == ["CP1 GW", "CP1 Server", "CP1 Oracle", "CP2 GW", "CP2 Server", "CP2 Oracle"]
    assert (lines[0].workload, lines[0].policy, lines[0].origin) == ("de-en", "naive", "published")
    assert lines[0].changes == [11.74, -4.78, 29.17, -16.16, -5.28, 13.25]
    assert lines[1].origin == "ours" and lines[1].changes[0] == pytest.approx(11.74)
