"""Shares of the gap are those of the changes that stand beside them."""

from __future__ import annotations

import pytest

from simnmt.experiment.comparisons import gap_rows


def test_a_share_is_the_change_over_that_of_everything_even_where_one_replication_outweighs_all_others() -> None:
    """Changes and shares follow from the totals shown: the long replication decides both."""
    totals_s = {"nothing": [10.0, 10.0, 1_000.0], "length regression": [5.0, 5.0, 1_100.0], "everything": [4.0, 4.0, 900.0]}
    rows = {row["removed"]: row for row in gap_rows("w", "n", "p", totals_s)}
    alone, everything = rows["length regression"], rows["everything"]
    assert alone["change_percent"] == pytest.approx(
        100.0 * (alone["total_latency_s"] / rows["nothing"]["total_latency_s"] - 1.0)
    )
    assert alone["share_of_gap_percent"] == pytest.approx(100.0 * alone["change_percent"] / everything["change_percent"])
    assert str(rows["nothing"]["share_of_gap_percent"]) == "0.0"
    assert everything["share_of_gap_percent"] == 100.0
