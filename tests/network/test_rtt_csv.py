from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.series import RttSeries
from simnmt.network.series_csv import read_notes, read_rtt_csv, write_series


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "series.csv"


def test_columns_are_found_by_name_and_time_starts_at_0(file: Path) -> None:
    file.write_text("epoch_s,rtt_ms,cp\n1476479820,178.925,0\n1476480060,178.706,1\n")
    series = read_rtt_csv(file, time_column="epoch_s")
    assert series.time_s.tolist() == [0.0, 240.0]
    assert series.rtt_s == pytest.approx([0.178925, 0.178706])
    assert (series.name, series.kind, series.source, series.lost) == (
        "series",
        "unstated",
        "file series.csv",
        0,
    )


def test_stated_units_are_used(file: Path) -> None:
    file.write_text("t,r\n1700000000000,0.05\n1700000000500,0.07\n")
    series = read_rtt_csv(file, time_column="t", rtt_column="r", time_unit="ms", rtt_unit="s")
    assert (series.time_s.tolist(), series.rtt_s.tolist()) == ([0.0, 0.5], [0.05, 0.07])


SECONDS = "time_s,rtt_ms\n0,0.051\n1,0.048\n2,0.2\n"


def test_seconds_that_would_be_read_as_milliseconds_ask_for_their_unit(file: Path) -> None:
    file.write_text(SECONDS)
    with pytest.raises(TraceError) as caught:
        read_rtt_csv(file)
    assert str(caught.value) == (
        f"{file}:1:8: rtt_ms: the median would be 0.051 ms, as across a room: these look like seconds read as milliseconds "
        "(state the unit: {csv: series.csv, rtt_unit: s} if they are seconds, rtt_unit: ms if not)"
    )


def test_a_unit_that_is_stated_or_a_file_of_our_own_is_believed(file: Path) -> None:
    file.write_text(SECONDS)
    assert read_rtt_csv(file, rtt_unit="s").rtt_s[0] == pytest.approx(0.051)
    assert read_rtt_csv(file, rtt_unit="ms").rtt_s[0] == pytest.approx(0.051e-3)
    file.write_text("# simnmt rtt series, version 1\n" + SECONDS)
    assert read_rtt_csv(file).rtt_s[0] == pytest.approx(0.051e-3)


def test_kind_and_source_are_read_from_the_header(file: Path) -> None:
    file.write_text("# Kind: synthetic\n# source: drawn: by hand\n# anything else\n\ntime_s,rtt_ms\n0,50\n1,60\n")
    series = read_rtt_csv(file)
    assert (series.kind, series.source) == ("synthetic", "drawn: by hand")


def test_a_lost_sample_holds_the_last_value_and_is_counted(file: Path) -> None:
    file.write_text("time_s,rtt_ms\n100,\n110,NaN\n120,50\n130,\n140,nan\n150,70\n")
    series = read_rtt_csv(file)
    assert series.lost == 4
    assert series.time_s.tolist() == [0, 10, 20, 30]
    assert series.rtt_s == pytest.approx([0.05, 0.05, 0.05, 0.07])


def test_one_sample_makes_a_series_of_one_value(file: Path) -> None:
    file.write_text("time_s,rtt_ms\n500,50\n")
    series = read_rtt_csv(file)
    assert (series.duration_s, series.at_one(12.3)) == (1.0, 0.05)


@pytest.mark.parametrize(
    "text",
    [
        "time_s,rtt_ms\r\n0,50\r\n1,60\r\n",
        "\ufefftime_s,rtt_ms\n0,50\n1,60",
        "time_s; rtt_ms\n0; 50\n\n1; 60\n\n\n",
        "rtt_ms\ttime_s\n50\t0\n60\t1\n",
        '"time_s","rtt_ms","note"\n"0","50","a, b"\n1,60,\n',
    ],
)
def test_forms_that_other_tools_write_are_read(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8", newline="")
    series = read_rtt_csv(file)
    assert (series.time_s.tolist(), series.rtt_s.tolist()) == ([0.0, 1.0], [0.05, 0.06])


HEAD = "time_s,rtt_ms\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD + "0,50\n20,50\n10,50\n",
            ":4:1: time 10 is earlier than the row before (sort the rows by time; `simnmt trace import` mends",
        ),
        (HEAD + "0,inf\n", ":2:3: rtt_ms is inf, but"),
        (HEAD + "1_000,50\n", ":2:1: time_s is '1_000', not a number"),
        ("", ": empty file (give column names"),
        ("# hi\nwhen,how\n0,50\n", ":2:1: no column time_s (columns: when, how)"),
        (
            HEAD + "0,50000\n1,60000\n2,50000\n",
            ": the median of rtt_ms would be 50 s; these look like microseconds",
        ),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_place(file: Path, text: str, message: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=re.escape(f"{file}{message}")) as caught:
        read_rtt_csv(file)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


def test_milliseconds_read_as_seconds_are_refused_with_the_likely_cause(file: Path) -> None:
    file.write_text(HEAD + "0,50\n1,60\n")
    with pytest.raises(TraceError, match=r"55 s; these look like milliseconds read as seconds \(set rtt_unit: ms\)"):
        read_rtt_csv(file, rtt_unit="s")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, tail: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.csv"
    file.write_bytes(HEAD.encode() + tail)
    try:
        series = read_rtt_csv(file)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert (series.rtt_s > 0).all()


def test_a_written_series_reads_back_the_same(file: Path) -> None:
    wrote = RttSeries("x", "synthetic", "drawn\nfrom  here", np.array([0, 0.1, 1e6]), np.array([0.05, 1 / 3, 0.07]), 7)
    write_series(file, wrote, notes={"made": "by a test: twice"})
    back = read_rtt_csv(file)
    assert back.time_s.tolist() == wrote.time_s.tolist()
    assert back.rtt_s == pytest.approx(wrote.rtt_s, rel=1e-15)
    assert (back.kind, back.source, back.lost) == ("synthetic", "drawn from here", 7)
    assert read_notes(file)["made"] == "by a test: twice"
    assert file.read_text().startswith("# simnmt rtt series, version 1\n# kind: synthetic\n")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    series = RttSeries("x", "measured", "", np.zeros(1), np.ones(1))
    (tmp_path / "taken").mkdir()
    for target in (tmp_path / "taken", tmp_path / "no" / "such" / "folder.csv"):
        with pytest.raises(TraceError, match="cannot be written"):
            write_series(target, series)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.skipif(not Path("/dev/zero").is_char_device(), reason="the system has no /dev/zero")
def test_a_device_is_refused_unread() -> None:
    with pytest.raises(TraceError, match="/dev/zero: cannot be read: a device, not a file"):
        read_rtt_csv("/dev/zero")
