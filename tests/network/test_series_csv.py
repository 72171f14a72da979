from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.network.series import BandwidthSeries, RttSeries, Series, TraceError
from simnmt.network.series_csv import SeriesTable, read_series, series_text, write_texts


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "series.csv"


def test_columns_are_found_by_name_and_time_starts_at_0(file: Path) -> None:
    text = "epoch_s,rtt_ms,cp\n1476479820,178.925,0\n1476480060,178.706,1\n"
    file.write_text("# Kind: synthetic\n# source: drawn: by hand\n# anything else\n\n" + text)
    series = read_series(RttSeries, file, time_column="epoch_s")
    assert (series.kind, series.source) == ("synthetic", "drawn: by hand")
    file.write_text(text)
    series = read_series(RttSeries, file, time_column="epoch_s")
    assert series.time_s.tolist() == [0.0, 240.0]
    assert series.rtt_s == pytest.approx([0.178925, 0.178706])
    assert (series.name, series.kind, series.source, series.lost) == ("series", "unstated", "file series.csv", 0)


@pytest.mark.parametrize(
    ("column", "unit", "expected_bps"),
    [("mbps", None, 5e6), ("dl_kbps", None, 5e3), ("UL_BPS", None, 5.0), ("speed", None, 5e6), ("dl_kbps", "bps", 5.0)],
)
def test_the_unit_of_a_bandwidth_is_the_stated_one_or_that_of_its_column(
    file: Path, column: str, unit: Any, expected_bps: float
):
    file.write_text(f"time_s,{column}\n0,5\n")
    assert read_series(BandwidthSeries, file, column=column, unit=unit).at_one(0.0) == expected_bps


SECONDS = "time_s,rtt_ms\n0,0.051\n1,0.048\n2,0.2\n"


def test_seconds_that_would_be_read_as_milliseconds_ask_for_their_unit(file: Path) -> None:
    file.write_text(SECONDS)
    with pytest.raises(TraceError) as caught:
        read_series(RttSeries, file)
    assert (caught.value.line, caught.value.column) == (1, 8)
    assert read_series(RttSeries, file, unit="s", time_unit="ms").rtt_s[0] == pytest.approx(0.051)
    assert read_series(RttSeries, file, unit="ms").rtt_s[0] == pytest.approx(0.051e-3)
    file.write_text("# simnmt rtt series, version 1\n" + SECONDS)
    assert read_series(RttSeries, file).rtt_s[0] == pytest.approx(0.051e-3), "a file of simnmt is believed"


@pytest.mark.parametrize(
    ("value", "unit", "remedy"),
    [
        ("30000", None, "convert the column to ms"),
        ("20", "s", "state rtt_unit: ms"),
        ("0.02", None, "state rtt_unit: s, or rtt_unit: ms if it is right"),
    ],
)
def test_the_remedy_of_a_doubtful_unit_names_the_likely_one(file: Path, value: str, unit: Any, remedy: str) -> None:
    """Once it was the unit that makes the doubt greater, or the one that was given."""
    file.write_text(f"time_s,rtt_ms\n0,{value}\n")
    with pytest.raises(TraceError) as caught:
        read_series(RttSeries, file, unit=unit)
    assert (caught.value.line, caught.value.column, caught.value.remedy) == (1, 8, remedy)


def test_a_lost_sample_holds_the_last_value_and_is_counted(file: Path) -> None:
    """A moment without bandwidth is one, since a request would otherwise wait for ever."""
    file.write_text("time_s,rtt_ms,mbps\n100,,0\n110,NaN,\n120,50,8\n130,,0.0\n140,nan,nan\n150,70,4\n")
    for series, unit in ((read_series(RttSeries, file), 1e-3), (read_series(BandwidthSeries, file), 1e6)):
        first, last = (50, 70) if unit == 1e-3 else (8, 4)
        assert (series.lost, series.time_s.tolist()) == (4, [0, 10, 20, 30])
        assert series.value == pytest.approx(np.array([first, first, first, last]) * unit)
    file.write_text("time_s,rtt_ms\n1700000000000,\n1700000000001,50\n1700000000004,50\n")
    assert read_series(RttSeries, file, time_unit="ms").time_s.tolist() == [0.0, 0.003], "not to a quarter of a microsecond"


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
    series = read_series(RttSeries, file)
    assert (series.time_s.tolist(), series.rtt_s.tolist()) == ([0.0, 1.0], [0.05, 0.06])


HEAD = "time_s,rtt_ms,mbps\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (HEAD + "0,50,1\n20,50,1\n10,50,1\n", (4, 1)),
        (HEAD + "0,50,1\n\n0,60,1\n", (4, 1)),
        (HEAD + "0,inf,-1\n", (2, 3)),
        (HEAD + "1_000,50,1\n", (2, 1)),
        (HEAD + "0,50,1\n1,50\n", (3, 1)),
        (HEAD + "0,,0\n1,,\n", (None, None)),
        ("", (None, None)),
        ("# hi\nwhen,how\n0,50\n", (None, None)),
        (HEAD + "0,50000,5e7\n1,60000,6e7\n", (1, 8)),
    ],
)
def test_a_bad_file_is_refused_in_one_line_with_its_place(file: Path, text: str, place: tuple[int | None, int | None]) -> None:
    file.write_text(text, encoding="utf-8")
    for kind in (RttSeries, BandwidthSeries):
        with pytest.raises(TraceError) as caught:
            read_series(kind, file)
        assert (caught.value.path, caught.value.line) == (str(file), place[0])
        assert caught.value.remedy and "\n" not in str(caught.value)
        if kind is RttSeries:
            assert caught.value.column == place[1]


TIMES = np.array([0, 0.1, 1e6])


@pytest.mark.parametrize(
    "wrote",
    [
        RttSeries("x", "synthetic", "drawn\nfrom  here", TIMES, np.array([0.05, 1 / 3, 0.07]), 7),
        BandwidthSeries("x", "measured", "a phone", TIMES, np.array([1e6, 1e8 / 3, 12.5]), 3),
    ],
)
def test_a_written_series_reads_back_the_same(file: Path, wrote: Series) -> None:
    write_texts({file: series_text(wrote, notes={"made": "by a test: twice"})})
    back = read_series(type(wrote), file)
    assert back.time_s.tolist() == wrote.time_s.tolist()
    assert back.value == pytest.approx(wrote.value, rel=1e-15)
    assert (back.kind, back.source, back.lost) == (wrote.kind, " ".join(wrote.source.split()), wrote.lost)
    assert SeriesTable(file).notes["made"] == "by a test: twice"
    assert file.read_text().startswith(f"# simnmt {wrote.quantity.lower()} series, version 1\n# kind: {wrote.kind}\n")


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    for target in (tmp_path / "taken", tmp_path / "no" / "such" / "folder.csv"):
        with pytest.raises(TraceError) as caught:
            write_texts({tmp_path / "first.csv": "a", target: "b"})
        assert caught.value.path == str(target)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize("raw", [b"%PDF-1.4\n'\xd0\xff", b"PAR1\xaaf\x80", b"\xd4\xc3\xb2\xa1\x02\x00\x04\x00"])
def test_a_binary_file_is_called_so(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "x").write_bytes(raw)
    with pytest.raises(TraceError, match="is binary, not text") as caught:
        read_series(RttSeries, tmp_path / "x")
    assert (caught.value.path, caught.value.line) == (str(tmp_path / "x"), None)
