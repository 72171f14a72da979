"""The chart of changes: a point with whiskers for each run in the row of each policy."""

from __future__ import annotations

from typing import Any

from simnmt.report.charts import series_colour
from simnmt.report.comparison_chart import change_chart


def change(policy: str, run: str, percent: float, low: float | None, high: float | None, paired: bool = True) -> dict[str, Any]:
    interval = {"change_percent": percent, "low_percent": low, "high_percent": high}
    return {"policy": policy, "run": run, "baseline": "first", "paired": paired, **interval}


ROWS = [
    change("edge", "far", 0.0, 0.0, 0.0),
    change("cloud", "far", 30.0, 25.0, 35.0),
    change("edge", "near", 1.0, -4.0, 6.0, paired=False),
    change("cloud", "near", -20.0, None, None, paired=False),
]


def test_each_run_has_its_points_with_whiskers_near_the_rows_of_the_policies() -> None:
    chart = change_chart(ROWS)
    far, near = (mark.trace() for mark in chart.marks)
    assert (far["name"], far["x"], far["error_x"]["array"]) == ("far", [0.0, 30.0], [0.0, 5.0])
    assert near["error_x"]["arrayminus"] == [5.0, 0.0], "one replication has no interval"
    assert near["text"] == ["edge: +1 [\u22124, +6] %", "cloud: \u221220.00 %"]
    for trace in (far, near):
        assert [round(height) for height in trace["y"]] == [0, 1]
    assert chart.y.ticks == {0.0: "edge", 1.0: "cloud"}
    assert chart.reading == "Unpaired, with the noise of both runs: near."


def test_a_run_keeps_its_colour_where_another_has_no_changes() -> None:
    (far, near) = change_chart(ROWS[2:], ["far", "near"]).marks
    assert not far.x and near.colour == series_colour(1)


def test_nothing_in_common_is_said_in_an_empty_chart() -> None:
    assert change_chart([]).message == "no workload, network and policy in common"
