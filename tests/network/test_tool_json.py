"""JSON of iperf3 and irtt, in the forms of their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Trace
from simnmt.network.traces.trace_file import read_trace, write_traces

BEGAN = 1_700_000_000


def part(begin_s: float, bits: float, *, sender: bool = True, omitted: bool = False) -> dict[str, Any]:
    return {
        "start": begin_s,
        "end": begin_s + 1.0,
        "seconds": 1.0,
        "bits_per_second": bits,
        "omitted": omitted,
        "sender": sender,
    }


def iperf3(*intervals: dict[str, Any], reverse: int = 0, protocol: str = "TCP", server: bool = False) -> dict[str, Any]:
    end = "accepted_connection" if server else "connecting_to"
    return {
        "start": {
            "version": "iperf 3.16",
            "timestamp": {"time": "Tue, 14 Nov 2023 22:13:20 GMT", "timesecs": BEGAN},
            end: {"host": "iperf.example", "port": 5201},
            "test_start": {"protocol": protocol, "num_streams": 1, "reverse": reverse, "duration": len(intervals)},
        },
        "intervals": [{"streams": [], **interval} for interval in intervals],
        "end": {},
    }


def irtt(*rtts_ms: float | None, texts: bool = True) -> dict[str, Any]:
    trips = []
    for number, rtt_ms in enumerate(rtts_ms):
        sent = {"wall": BEGAN * 10**9 + number * 200_000_000, "monotonic": 5 + number * 200_000_000}
        lost = rtt_ms is None
        trips.append(
            {
                "seqno": number,
                "lost": ("true_down" if lost else "false") if texts else lost,
                "timestamps": {"client": {"receive": {}, "send": sent}, "server": {"receive": {}, "send": {}}},
                "delay": {} if rtt_ms is None else {"rtt": round(rtt_ms * 1e6)},
                "ipdv": {},
            }
        )
    config = {"remote_address": "192.0.2.9:2112", "supplied": {"remote_address": "irtt.example"}}
    return {"version": {"irtt": "0.9.1"}, "config": config, "stats": {}, "round_trips": trips}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tool.json"


def read(file: Path, *documents: Any, indent: int | None = None, **how: Any) -> list[Trace]:
    file.write_text("".join(json.dumps(document, indent=indent) + "\n" for document in documents), encoding="utf-8")
    return read_trace(file, ReadOptions(**how))


def test_iperf3_gives_the_bandwidth_of_each_interval_and_omits_the_slow_start(file: Path) -> None:
    intervals = [{"sum": part(at, bits, omitted=at < 1)} for at, bits in enumerate((9e6, 20e6, 0.0, 30e6))]
    (trace,) = read(file, iperf3(*intervals), indent=1)
    assert (trace.quantity, trace.kind) == ("uplink", "measured")
    assert trace.value.tolist() == [20e6, 20e6, 30e6]
    assert trace.lost.tolist() == [False, True, False]
    assert (trace.began_s, trace.time_s.tolist()) == (BEGAN + 1, [0, 1, 2])
    assert trace.source == "iperf3, TCP, to iperf.example"
    assert "intervals omitted by iperf3 -O: 1" in trace.remarks
    assert "zero values, so lost: 1" in trace.remarks


@pytest.mark.parametrize(
    ("report", "quantity"),
    [
        (iperf3({"sum": part(0, 1e7)}), "uplink"),
        (iperf3({"sum": part(0, 1e7, sender=False)}, reverse=1), "downlink"),
        (iperf3({"sum": part(0, 1e7, sender=False)}, server=True), "uplink"),
        (iperf3({"sum": part(0, 1e7)}, server=True, reverse=1), "downlink"),
    ],
    ids=["client", "client -R", "server", "server of -R"],
)
def test_iperf3_knows_the_direction_at_both_ends_with_and_without_the_newer_key(
    file: Path, report: dict[str, Any], quantity: str
) -> None:
    (trace,) = read(file, report)
    assert trace.quantity == quantity
    del report["intervals"][0]["sum"]["sender"]  # as iperf3 before 3.7 writes it
    (older,) = read(file, report)
    assert older.quantity == quantity
    assert older.remarks == trace.remarks


def test_both_directions_of_iperf3_become_two_series(file: Path) -> None:
    intervals = [{"sum": part(at, 1e7), "sum_bidir_reverse": part(at, 5e7 + at, sender=False)} for at in range(3)]
    up, down = read(file, iperf3(*intervals))
    assert (up.quantity, down.quantity) == ("uplink", "downlink")
    assert down.value.tolist() == [5e7, 5e7 + 1, 5e7 + 2]
    assert any("counted by the sender" in remark for remark in up.remarks)
    assert not any("counted by the sender" in remark for remark in down.remarks)


@pytest.mark.parametrize("with_sender", [True, False])
def test_both_directions_of_an_older_iperf3_are_under_one_key(file: Path, with_sender: bool) -> None:
    intervals = [{"sum": part(at, 2e7), "second": part(at, 9e7, sender=False)} for at in range(2)]
    if not with_sender:
        for interval in intervals:
            del interval["sum"]["sender"], interval["second"]["sender"]
    file.write_text(json.dumps(iperf3(*intervals)).replace('"second"', '"sum"'))
    up, down = read_trace(file)
    assert (up.quantity, up.value.tolist()) == ("uplink", [2e7, 2e7])
    assert (down.quantity, down.value.tolist()) == ("downlink", [9e7, 9e7])


def test_a_run_of_iperf3_that_was_written_twice_counts_once(file: Path) -> None:
    (trace,) = read(file, *[iperf3({"sum": part(0, 1e7)}, {"sum": part(1, 2e7)})] * 2)
    assert trace.value.tolist() == [1e7, 2e7]
    assert any("copies" in remark for remark in trace.remarks)


def test_a_stream_of_iperf3_equals_its_report_and_may_end_within_an_event(file: Path) -> None:
    report = iperf3({"sum": part(0, 1e7)}, {"sum": part(1, 2e7)}, protocol="UDP")
    (whole,) = read(file, report)
    events = [{"event": "start", "data": report["start"]}]
    events += [{"event": "interval", "data": interval} for interval in report["intervals"]]
    (streamed,) = read(file, *events)
    assert (streamed.value.tolist(), streamed.source) == (whole.value.tolist(), whole.source)
    assert any("lost datagrams included" in remark for remark in whole.remarks)
    file.write_text(file.read_text() + '{"event": "interval", "data": {"str')
    (cut,) = read_trace(file)
    assert cut.value.tolist() == whole.value.tolist()
    assert "entries skipped, since the file ends within them: 1" in cut.remarks


@pytest.mark.parametrize("texts", [True, False])
def test_irtt_gives_each_packet_at_the_time_it_was_sent(file: Path, texts: bool) -> None:
    (trace,) = read(file, irtt(12.5, None, 14.25, texts=texts))
    assert trace.value.tolist() == pytest.approx([0.0125, 0.0125, 0.01425])
    assert trace.lost.tolist() == [False, True, False]
    assert trace.time_s.tolist() == pytest.approx([0, 0.2, 0.4], abs=1e-6)
    assert (trace.source, trace.began_s) == ("irtt to irtt.example", pytest.approx(BEGAN))


NAN = iperf3({"sum": part(0, float("nan"))})
WITHOUT = iperf3({"sum": part(0, 1e7)}, {"streams": []})
NO_RTT = irtt(1.0, 2.0)
NO_RTT["round_trips"][1]["delay"] = {}


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([NAN], ": result 1 has intervals[0].sum.bits_per_second nan, which is no number from 0"),
        ([iperf3()], ": result 1 has no interval of iperf3 (run iperf3 -J with -i 1"),
        ([irtt()], ": result 1 has no round_trips of irtt"),
        ([{}], ": result 1 is of no known tool, keys: none"),
    ],
)
def test_what_no_tool_wrote_is_refused_in_one_line_with_its_path(file: Path, documents: list[Any], message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(file, *documents)
    assert str(caught.value).startswith(f"{file}{message}")
    assert "\n" not in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("report", [iperf3({"sum": part(0, 1e7)}), irtt(5.0, 6.0)], ids=["iperf3", "irtt"])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_cut_report_is_refused_with_line_and_column(file: Path, report: dict[str, Any], share: float) -> None:
    text = json.dumps(report, indent=2)
    file.write_text(text[: int(len(text) * share)])
    with pytest.raises(TraceError, match=r"tool\.json:\d+:\d+: no JSON: .*\(the file is damaged or cut off") as caught:
        read_trace(file)
    assert "\n" not in str(caught.value)


rtts = st.lists(st.none() | st.floats(0.01, 5e3), min_size=1, max_size=30).filter(lambda values: values[0] is not None)


@given(rtts)
def test_round_trips_of_irtt_survive_writing_and_reading(
    tmp_path_factory: pytest.TempPathFactory, rtts_ms: list[float | None]
) -> None:
    file = tmp_path_factory.getbasetemp() / "trips.json"
    out = file.with_suffix(".csv")
    lost = [rtt_ms is None for rtt_ms in rtts_ms]
    (trace,) = read(file, irtt(*rtts_ms))
    assert trace.lost.tolist() == lost
    kept = [rtt_ms for rtt_ms in rtts_ms if rtt_ms is not None]
    assert trace.value[~trace.lost] * 1e3 == pytest.approx(kept, abs=1e-6)
    write_traces([trace], out)
    (again,) = read_trace(out)
    assert again.lost.tolist() == lost
    np.testing.assert_allclose(again.value, trace.value, atol=1e-9)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def places(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path of keys within a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path] * bool(path) + [place for key, value in items for place in places(value, (*path, key))]


REPORTS = {
    "iperf3": iperf3({"sum": part(0, 1e7), "sum_bidir_reverse": part(0, 1e7)}),
    "irtt": irtt(5.0, None),
}


@given(st.sampled_from(sorted(REPORTS)), st.data(), json_values)
def test_any_change_of_a_report_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, tool: str, data: st.DataObject, value: Any
) -> None:
    report = json.loads(json.dumps(REPORTS[tool]))
    path = data.draw(st.sampled_from(places(report)))
    inner = report
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    try:
        traces = read(tmp_path_factory.getbasetemp() / "changed.json", report)
    except TraceError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
    else:
        assert all((trace.value > 0).all() for trace in traces)
