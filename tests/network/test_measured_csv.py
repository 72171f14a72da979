from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simnmt.network.series import RttSeries, TraceError
from simnmt.network.series_csv import read_series
from simnmt.network.traces import read_trace
from simnmt.network.traces.measured_csv import parse_columns, parse_dates_s
from simnmt.network.traces.trace import ReadOptions, Trace, write_traces

CELL = """\
epoch_s,dl_kbps,ul_kbps,mode,ping_avg_ms,ping_min_ms,ping_loss_pct
1000,500,5000,5G,,,
1001,0,0,5G,90.0,70.0,20.0
1001,0,0,5G,,,
1002,8000,6000,LTE,,,
1003,9000,,LTE,,,100.0
1004,16000,8000,5G,,,
1005,16000,8000,5G,60.0,50.0,0.0
"""
G_NETTRACK = """\
Timestamp,Longitude,Speed,NetworkMode,DL_bitrate,UL_bitrate,State,PINGAVG,PINGMIN,PINGMAX,PINGSTDEV,PINGLOSS
2019.12.16_13.40.04,-8.5,1,5G,2000,30,D,-,-,-,-,-
2019.12.16_13.40.05,-8.5,1,5G,4000,40,D,95,81,135,23,0
2019.12.16_13.40.06,-8.5,1,5G,0,0,D,-,-,-,-,100
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


def read(file: Path, text: str, *columns: str, **options) -> list[Trace]:
    file.write_text(text, encoding="utf-8")
    return read_trace(file, ReadOptions(columns=parse_columns(columns), **options))


@pytest.mark.parametrize(
    ("header", "rows", "expected_ms"),
    [
        ("time_s,rtt_ms", "0,50\n2,60", [50, 60]),
        ("epoch,rtt", "1500000000,50\n1500000002,60", [50, 60]),
        ("timestamp,ping", "1500000000000,50\n1500000002000,60", [50, 60]),
        ("t_us,latency_s", "0,0.05\n2000000,0.06", [50, 60]),
        ("Time (ms);RTT (us)", "0;50000\n2000;60000", [50, 60]),
        ("seq\tdate\tround_trip_time_ms", "1\t2024-02-29 23:59:59\t50\n2\t2024-03-01T00:00:01Z\t60", [50, 60]),
        ("when,unixtime,Latency [ms]", "a,1500000000000000000,50\nb,1500000002000000000,60", [50, 60]),
        ("ts,min,avg,max", "0,50,70,90\n2,60,80,100", [50, 60]),
    ],
)
def test_usual_names_and_units_are_understood(file: Path, header: str, rows: str, expected_ms: list[float]) -> None:
    (trace,) = read(file, f"{header}\n{rows}\n")
    assert (trace.quantity, trace.kind) == ("rtt", "unstated")
    assert trace.time_s.tolist() == [0.0, 2.0]
    assert (trace.value * 1e3).tolist() == pytest.approx(expected_ms)
    unnamed = [name for name in ("epoch", "rtt", "timestamp", "ping", "unixtime", "ts", "min") if name in header.split(",")]
    assert [remark.split(",")[0] for remark in trace.remarks] == [f"column {name}" for name in unnamed], "guesses of units"


def test_columns_units_and_the_mean_of_a_round_may_be_named(file: Path) -> None:
    text = "time,when,a,b\n9,0,0.05,70\n9,2000,0.06,80\n"
    (trace,) = read(file, text, "time=when:ms", "rtt=a:s")
    assert (trace.time_s.tolist(), trace.value.tolist()) == ([0.0, 2.0], [0.05, 0.06])
    assert read(file, "ts,min,avg,max\n0,50,70,90\n", reply="mean")[0].value.tolist() == [0.070]
    (rate,) = read(file, text, "time=when:ms", "downlink=b:kbps")
    assert (rate.quantity, rate.value.tolist()) == ("downlink", [70e3, 80e3])


def test_a_cellular_log_gives_each_quantity_with_its_times_from_one_common_start(file: Path) -> None:
    rtt, down, up = read(file, CELL)
    assert [trace.quantity for trace in (rtt, down, up)] == ["rtt", "downlink", "uplink"]
    assert {trace.began_s for trace in (rtt, down, up)} == {1001.0}
    assert (rtt.time_s.tolist(), (rtt.value * 1e3).tolist()) == ([0, 2, 4], pytest.approx([70, 70, 50]))
    assert rtt.lost.tolist() == [False, True, False]
    # 500 kbit/s of before hold at the beginning, where 0 is no bandwidth; of the two rows of 1001 one is left.
    assert (down.time_s.tolist(), down.value.tolist()) == ([0, 1, 2, 3, 4], [0.5e6, 8e6, 9e6, 16e6, 16e6])
    assert (down.lost_samples, up.lost_samples) == (1, 2)
    assert all(part in str(down.remarks) for part in ("so lost: 2", "repeated the time of another"))


def test_g_nettracks_own_names_times_and_blanks_are_understood(file: Path) -> None:
    rtt, down, up = read(file, G_NETTRACK)
    assert ((rtt.value * 1e3).tolist(), rtt.lost.tolist()) == (pytest.approx([81, 81]), [False, True])
    assert rtt.began_s == 1576503605.0
    assert (down.value.tolist(), down.lost.tolist()) == ([4e6, 4e6], [False, True])
    assert "column DL_bitrate, read in kbps, as it names no unit" in down.remarks
    assert any("acknowledgements of a download" in message for message in up.remarks)


def test_of_two_columns_of_one_quantity_the_one_that_is_left_out_is_remarked(file: Path) -> None:
    (trace,) = read(file, "time_s,latency_ms,rtt_ms\n0,70,50\n")
    assert (trace.value.tolist(), trace.remarks[0]) == ([0.05], "column rtt_ms is read, and not latency_ms")


def test_pauses_of_the_traffic_are_suspected(file: Path) -> None:
    text = "time_s,dl_kbps\n" + "".join(f"{second},{5 if second % 5 == 4 else 9000}\n" for second in range(20))
    (trace,) = read(file, text)
    assert any("20 % of the values are below 1 % of their p90" in message for message in trace.remarks)


@pytest.mark.parametrize("blank", ["", "-", "nan", "N/A", "timeout", "*", "inf", "-1", "0"])
def test_every_way_to_write_a_lost_sample_is_held(file: Path, blank: str) -> None:
    (trace,) = read(file, f"time_s,rtt_ms\n0,50\n1,{blank}\n2,60\n")
    assert (trace.value.tolist(), trace.lost.tolist()) == ([0.05, 0.05, 0.06], [False, True, False])
    assert any(f"{blank} (1)" in remark for remark in trace.remarks) is (blank in ("-", "N/A", "timeout", "*"))


HEAD = "time_s,rtt_ms\n"


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a,b\n0,1\n", 1, 1),
        ("time_s,ping_mbps\n0,1\n", 1, 8),
        ("time_s,down\n0,1\n", 1, 8),
        ("time_s,time,rtt\n0,0,1\n", 1, 1),
        ("0,50\n1,60\n", 1, 1),
        (HEAD + "0,50\n1e19,50\n", 3, 1),
        (HEAD + "0,50\n2024-01-01 00:00:00,50\n", 3, 1),
        ("[  5]   0.00-1.00   sec  2.5 MBytes  20.0 Mbits/sec\n" * 2, None, None),
        (HEAD, None, None),
        ("", None, None),
    ],
)
def test_an_ambiguous_file_is_refused_in_one_line_with_its_place(file: Path, text: str, line: Any, column: Any) -> None:
    with pytest.raises(TraceError) as caught:
        read(file, text)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(file), line, column)
    assert caught.value.remedy and "\n" not in str(caught.value)


def test_seconds_that_would_be_read_as_milliseconds_ask_for_their_unit(file: Path) -> None:
    text = "time_s,rtt\n" + "".join(f"{second},0.0{50 + second}\n" for second in range(20)) + "20,200\n"
    with pytest.raises(TraceError) as caught:
        read(file, text)
    assert (caught.value.line, caught.value.column) == (1, 8)
    for unit, first_s in (("s", 0.050), ("ms", 0.050e-3)):
        assert read(file, text, f"rtt=rtt:{unit}")[0].value[0] == pytest.approx(first_s)


def test_the_remedies_of_a_wrong_unit_and_of_two_equal_columns_help(file: Path) -> None:
    text = "time_s,rtt_ms\n0,20000\n1,30000\n"
    for columns in ((), ("rtt=rtt_ms:s",), ("rtt=rtt_ms:ms",)):
        with pytest.raises(TraceError) as caught:
            read(file, text, *columns)
        assert caught.value.remedy == "state it by --column rtt=rtt_ms:us"
    assert read(file, text, "rtt=rtt_ms:us")[0].value.tolist() == pytest.approx([0.02, 0.03])
    with pytest.raises(TraceError, match="two columns are named rtt_ms") as caught:
        read(file, "time_s,rtt_ms,rtt_ms\n0,50,60\n")
    assert (caught.value.line, caught.value.column, caught.value.remedy) == (1, 8, "rename one")


@pytest.mark.parametrize(("rate", "unit"), [(50_000_000, "bps"), (20_000_000_000, "bps"), (2_000_000, "bps")])
def test_of_several_units_the_most_plausible_is_the_remedy(file: Path, rate: int, unit: str) -> None:
    """Read in kbps, 50,000,000 would be 50 Gbit/s."""
    with pytest.raises(TraceError) as caught:
        read(file, f"time_s,download_mbps\n0,{rate}\n1,{rate}\n")
    assert (caught.value.line, caught.value.column) == (1, 8)
    assert caught.value.remedy == f"state it by --column downlink=download_mbps:{unit}"


def test_an_unambiguous_unit_need_not_be_stated(file: Path) -> None:
    local = "# simnmt rtt series, version 1\n# kind: measured\ntime_s,rtt_ms\n0,0.05\n"
    for text in ("time_s,rtt_us\n0,300\n", "time_s,rtt_ms\n0,0.6\n", "time_s,rtt_s\n0,0.0003\n", local):
        (trace,) = read(file, text)
        assert trace.value[0] < 1e-3


def test_the_header_of_an_imported_series_counts_all_lost_samples(file: Path, tmp_path: Path) -> None:
    """Those before the first that arrived, which have no row, and those whose cells stay empty; none counts twice."""
    traces = read(file, "time_s,rtt_ms\n0,\n1,\n2,50\n3,\n4,60\n5,\n6,\n7,70\n")
    for name in ("out.csv", "again.csv"):
        (path,) = write_traces(traces, tmp_path / name)
        assert "# lost: 5\n" in path.read_text(encoding="utf-8")
        assert read_series(RttSeries, path).lost == 5
        traces = read_trace(path)


def test_a_stated_unit_that_no_network_has_is_refused(file: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(file, "time_s,rtt\n0,20\n1,30\n", "rtt=rtt:ns")
    assert caught.value.path == str(file)


@pytest.mark.parametrize(
    "text",
    [
        "192.0.2.1 : [0], 64 bytes, 12.5 ms (12.5 avg, 0% loss)\n192.0.2.1 : [1], 64 bytes, 12.9 ms (12.7 avg, 0% loss)\n",
        "connected to 192.0.2.1:80 (284 bytes), seq=0 time= 24 ms\nconnected to 192.0.2.1:80 (284 bytes), seq=1 time= 25 ms\n",
    ],
    ids=["fping", "httping"],
)
def test_a_log_that_no_reader_knows_is_refused_as_such(file: Path, text: str) -> None:
    with pytest.raises(TraceError, match="no reader knows") as caught:
        read(file, text)
    assert caught.value.path == str(file) and "ping" in (caught.value.remedy or "")


def test_units_may_be_spelt_as_in_the_names_of_columns(file: Path) -> None:
    """Once `down:kbit/s` was taken for the name of a column."""
    (trace,) = read(file, "time_s,down\n0,50\n1,60\n", "downlink=down:kbit/s")
    assert trace.value.tolist() == [50_000, 60_000]
    for column in ("downlink=down:furlong", "time=time_s:parsec", "downlink=down:ms", "sideways=down", "downlink="):
        with pytest.raises(TraceError):
            read(file, "time_s,down\n0,50\n", column)


def test_dates_are_years_first_and_utc_unless_they_say_otherwise() -> None:
    dates = ["1970-01-01T00:00:10Z", "1970.01.01_00.00.10", "1970/01/01 00:00:10,00", "1970-01-01T02:00:10+02:00"]
    assert parse_dates_s([*dates, "1969-12-31T19:00:10-0500", "1970-01-01T00:00:10.0 UTC"]).tolist() == [10.0] * 6
    assert parse_dates_s(["2024-02-29 00:00:00.5"]).tolist() == [1709164800.5]
    assert parse_dates_s(["0001-01-01T00:00:00", "9999-01-01T00:00:00"]).tolist() == [-62135596800.0, 253370764800.0]
    no_dates = ["2023-02-29T00:00:00", "2024-01-01T00:00:00+99:99", "soon", "31.12.2024 10:00:00", ""]
    assert np.isnan(parse_dates_s(no_dates)).all()
