from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from simnmt.network.errors import TraceError
from simnmt.network.series import BandwidthSeries
from simnmt.network.series_csv import read_bandwidth_csv, write_series


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rate.csv"


def test_a_moment_without_bandwidth_holds_the_last_and_is_counted(file: Path) -> None:
    """A request would otherwise wait for ever."""
    file.write_text("time_s,mbps\n100,0\n101,\n102,8\n103,0.0\n104,nan\n105,4\n")
    series = read_bandwidth_csv(file)
    assert (series.lost, series.time_s.tolist()) == (4, [0, 1, 2, 3])
    assert series.rate_bps.tolist() == [8e6, 8e6, 8e6, 4e6]


@pytest.mark.parametrize(
    ("column", "unit", "expected_bps"),
    [("mbps", None, 5e6), ("dl_kbps", None, 5e3), ("UL_BPS", None, 5.0), ("speed", None, 5e6), ("dl_kbps", "bps", 5.0)],
)
def test_the_unit_is_the_stated_one_or_that_of_the_column_name(file: Path, column: str, unit, expected_bps: float) -> None:
    file.write_text(f"time_s,{column}\n0,5\n")
    assert read_bandwidth_csv(file, column=column, unit=unit).at_one(0.0) == expected_bps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,5\n1,-1\n", ":3:3: mbps is -1, but a bandwidth is positive and finite (leave the cell empty"),
        ("0,0\n1,\n", ": mbps is zero or empty in every row (give at least one sample)"),
        ("0,5\n0,6\n", ":3:1: time 0 appears twice (keep one row per time; `simnmt trace import` mends the file)"),
        ("0,5e7\n1,6e7\n", ": the median of mbps would be 5.5e+04 Gbit/s; these look like a smaller unit read as mbps"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(file: Path, text: str, message: str) -> None:
    file.write_text("time_s,mbps\n" + text)
    with pytest.raises(TraceError, match=re.escape(f"{file}{message}")):
        read_bandwidth_csv(file)


def test_a_written_series_reads_back_the_same(file: Path) -> None:
    wrote = BandwidthSeries("x", "measured", "a phone", np.array([0.0, 0.1, 7.0]), np.array([1e6, 1e8 / 3, 12.5]), 3)
    write_series(file, wrote, notes={"made": "by a test"})
    back = read_bandwidth_csv(file)
    assert back.time_s.tolist() == wrote.time_s.tolist()
    assert back.rate_bps == pytest.approx(wrote.rate_bps, rel=1e-15)
    assert (back.kind, back.source, back.lost) == ("measured", "a phone", 3)
    assert file.read_text().startswith("# simnmt bandwidth series, version 1\n# kind: measured\n")


def test_columns_that_make_no_function_of_time_are_refused() -> None:
    with pytest.raises(TraceError, match="bandwidth series x: every value must be positive"):
        BandwidthSeries("x", "measured", "", np.array([0.0, 1.0]), np.array([1.0, 0.0]))
