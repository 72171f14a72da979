"""Our Table I beside the published one."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.papers.cnmt.table_one import HEADS, TableRun, mean_absolute_difference, table_lines

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
