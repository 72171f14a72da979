"""Series of carbon intensity from CSV files, and what is refused in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simnmt.network.carbon_intensity import CarbonFile, IntensitySeries, read_carbon_csv
from simnmt.network.errors import TraceError


def read(tmp_path: Path, text: str, **how: str) -> IntensitySeries:
    (tmp_path / "grid.csv").write_text(text, encoding="utf-8")
    return read_carbon_csv(tmp_path / "grid.csv", **how)


def test_the_first_two_columns_are_time_and_grams_whatever_their_names(tmp_path: Path) -> None:
    series = read(tmp_path, "# source: the grid\ntime;gCO2/kWh\n10;120\n40;0\n70;80.5\n")
    assert (series.time_s.tolist(), series.value.tolist()) == ([0.0, 30.0, 60.0], [120.0, 0.0, 80.5])
    assert (series.name, series.kind, series.source, series.duration_s) == ("grid", "unstated", "the grid", 90.0)
    named = read(tmp_path, "zone,g,hour\nDE,5,0\nDE,7,2\n", time_column="hour", column="g", time_unit="h")
    assert (named.time_s.tolist(), named.value.tolist()) == ([0.0, 7200.0], [5.0, 7.0])


def test_times_may_be_dates_of_any_zone(tmp_path: Path) -> None:
    series = read(tmp_path, "from,g\n2026-03-29T00:30Z,1\n2026-03-29T02:00+01:00,2\n2026-03-29 02:00:30,3\n")
    assert series.time_s.tolist() == [0.0, 1800.0, 5430.0]


def test_a_run_begins_where_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "grid.csv").write_text("min,g\n0,100\n1,300\n", encoding="utf-8")
    grid = CarbonFile(csv="grid.csv", time_unit="min", begin_s=90.0).intensity(tmp_path)
    assert grid.at(np.array([0.0, 29.0, 31.0, 91.0])).tolist() == [300.0, 300.0, 100.0, 300.0]
    assert grid.integral(60.0) == pytest.approx(30 * 300.0 + 30 * 100.0)
    assert grid.integral(1200.0) == pytest.approx(1200.0 * 200.0)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("t,g\n0,100\n3600,200\n1800,300\n", "grid.csv:4:1: time 1800 is earlier than the row before (sort the rows"),
        ("t,g\n0,100\n0,200\n", "grid.csv:3:1: time 0 appears twice"),
        ("t,g\n0,-1\n", "grid.csv:2:3: g is -1 (give grams of CO2 per kWh, 0 to 100,000)"),
        ("t,g\n0,nan\n", "grid.csv:2:3: g is nan (give grams"),
        ("t,g\n0,\n", "grid.csv:2:3: g is '', not a number"),
        ("t,g\n0,250000\n", "grid.csv:2:3: g is 250000 (give grams"),
        (
            "t,g\n0,20000\n1,20000\n",
            "the median of g would be 2e+04 g/kWh; these look like grams per MWh (give grams",
        ),
        ("t,g\n2026-13-01T00:00Z,5\n", "grid.csv:2:1: t is '2026-13-01T00:00Z', not a number (write numbers, or dates"),
        ("t,g\ninf,5\n", "grid.csv:2:1: t is inf (give every row a finite time)"),
        ("0,100\n3600,200\n", "grid.csv:1:1: the first row holds numbers, not column names"),
        ("t\n0\n", "grid.csv:1:1: one column, where times and g/kWh are two"),
        ("t,g\n", "grid.csv: no rows below the column names"),
        ("", "grid.csv: empty file"),
    ],
)
def test_a_file_that_holds_no_series_is_refused_in_one_line(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message and complaint in message
