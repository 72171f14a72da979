"""JSON of iperf3, irtt and RIPE Atlas, made up here in the forms of their sources and descriptions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.series import TraceError
from simnmt.network.traces import read_trace
from simnmt.network.traces.trace import ReadOptions, Trace

BEGAN = 1_700_000_000


def part(begin_s: float, bits: float, *, sender: bool = True, omitted: bool = False) -> dict[str, Any]:
    span = {"start": begin_s, "end": begin_s + 1.0, "seconds": 1.0}
    return span | {"bits_per_second": bits, "omitted": omitted, "sender": sender}


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
        outcome = ("true_down" if lost else "false") if texts else lost
        stamps = {"client": {"receive": {}, "send": sent}, "server": {"receive": {}, "send": {}}}
        delay = {} if rtt_ms is None else {"rtt": round(rtt_ms * 1e6)}
        trips.append({"seqno": number, "lost": outcome, "timestamps": stamps, "delay": delay, "ipdv": {}})
    config = {"remote_address": "192.0.2.9:2112", "supplied": {"remote_address": "irtt.example"}}
    return {"version": {"irtt": "0.9.1"}, "config": config, "stats": {}, "round_trips": trips}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tool.json"


def read(file: Path, *documents: Any, indent: int | None = None, **options: Any) -> list[Trace]:
    file.write_text("".join(json.dumps(document, indent=indent) + "\n" for document in documents), encoding="utf-8")
    return read_trace(file, ReadOptions(**options))


def test_iperf3_gives_the_bandwidth_of_each_interval_and_omits_the_slow_start(file: Path) -> None:
    intervals = [{"sum": part(at, bits, omitted=at < 1)} for at, bits in enumerate((9e6, 20e6, 0.0, 30e6))]
    (trace,) = read(file, iperf3(*intervals), indent=1)
    assert (trace.quantity, trace.kind) == ("uplink", "measured")
    assert trace.value.tolist() == [20e6, 20e6, 30e6]
    assert trace.lost.tolist() == [False, True, False]
    assert (trace.began_s, trace.time_s.tolist()) == (BEGAN + 1, [0, 1, 2])
    assert trace.source == "iperf3, TCP, to iperf.example"
    assert "intervals omitted by iperf3 -O: 1" in trace.remarks
    assert any(remark.endswith("so lost: 1") for remark in trace.remarks)


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


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_rtts_that_no_network_has_are_refused(file: Path, factor: float) -> None:
    """As of a file whose nanoseconds are milliseconds."""
    with pytest.raises(TraceError) as caught:
        read(file, irtt(20 * factor, 30 * factor, 40 * factor))
    assert caught.value.path == str(file) and caught.value.remedy
    assert read(file, irtt(0.02, None, 0.03))[0].value.min() == 0.02e-3


@pytest.mark.parametrize("key", ["sum_bidir_reverse", "sum"])
@pytest.mark.parametrize("with_sender", [True, False])
def test_both_directions_of_iperf3_become_two_series(file: Path, key: str, with_sender: bool) -> None:
    """Before 3.7 both are under one key."""
    intervals = [{"sum": part(at, 2e7), "second": part(at, 9e7 + at, sender=False)} for at in range(2)]
    if not with_sender:
        for interval in intervals:
            del interval["sum"]["sender"], interval["second"]["sender"]
    file.write_text(json.dumps(iperf3(*intervals)).replace('"second"', f'"{key}"'))
    up, down = read_trace(file)
    assert (up.quantity, up.value.tolist()) == ("uplink", [2e7, 2e7])
    assert (down.quantity, down.value.tolist()) == ("downlink", [9e7, 9e7 + 1])
    assert [any("counted by the sender" in remark for remark in trace.remarks) for trace in (up, down)] == [True, False]


def test_a_stream_of_iperf3_equals_its_report_and_its_copies_and_may_end_within_an_event(file: Path) -> None:
    report = iperf3({"sum": part(0, 1e7)}, {"sum": part(1, 2e7)}, protocol="UDP")
    (whole,) = read(file, report)
    (twice,) = read(file, report, report)
    assert (twice.value.tolist(), len(twice.remarks)) == (whole.value.tolist(), 1 + len(whole.remarks)), "a copy counts once"
    events = [{"event": "start", "data": report["start"]}]
    events += [{"event": "interval", "data": interval} for interval in report["intervals"]]
    (streamed,) = read(file, *events)
    assert (streamed.value.tolist(), streamed.source) == (whole.value.tolist(), whole.source)
    assert any("lost datagrams" in remark for remark in whole.remarks)
    file.write_text(file.read_text() + '{"event": "interval", "data": {"str')
    (cut,) = read_trace(file)
    assert cut.value.tolist() == whole.value.tolist()
    assert "entries skipped, since the file ends within them: 1" in cut.remarks


def test_a_report_is_checked_against_its_own_end(file: Path) -> None:
    run, trips = iperf3({"sum": part(0, 1e7)}, {"sum": part(1, 3e7)}), irtt(5.0, None, 6.0)
    for rate, sent, received, doubts, vanished in ((2e7, 3, 2, 0, 0), (5e7, 3, 3, 1, 1), (2e7, 50, 2, 0, 1)):
        run["end"] = {"sum_sent": {"bits_per_second": rate}}
        trips["stats"] = {"packets_sent": sent, "packets_received": received}
        (bandwidth,), (rtt,) = read(file, run), read(file, trips)
        assert (len(bandwidth.remarks), len(rtt.remarks)) == (1 + doubts, vanished)


@pytest.mark.parametrize("texts", [True, False])
def test_irtt_gives_each_packet_at_the_time_it_was_sent(file: Path, texts: bool) -> None:
    (trace,) = read(file, irtt(12.5, None, 14.25, texts=texts))
    assert trace.value.tolist() == pytest.approx([0.0125, 0.0125, 0.01425])
    assert trace.lost.tolist() == [False, True, False]
    assert trace.time_s.tolist() == pytest.approx([0, 0.2, 0.4], abs=1e-6)
    assert (trace.source, trace.began_s) == ("irtt to irtt.example", pytest.approx(BEGAN))


WITHOUT = irtt(1.0, 2.0)
WITHOUT["round_trips"][1]["delay"] = {}
REFUSED: dict[str, tuple[list[Any], str]] = {
    "a number that is none": ([iperf3({"sum": part(0, float("nan"))})], "intervals[0].sum.bits_per_second"),
    "an interval without a sum": ([iperf3({"sum": part(0, 1e7)}, {"streams": []})], "intervals[1].sum"),
    "no interval": ([iperf3()], "iperf3"),
    "two runs": ([iperf3({"sum": part(0, 1e7)}), iperf3({"sum": part(0, 2e7)})], "2 different runs"),
    "no round trip": ([irtt()], "round_trips"),
    "an answer without RTT": ([WITHOUT], "round_trips[1].delay.rtt"),
    "no known tool": ([{}], "no known tool"),
    "no results": ([[]], "no results"),
    "no result": ([[3]], "no JSON object"),
    "another measurement of RIPE Atlas": ([{"type": "dns"}], "dns"),
    "a hop that is none": ([{"type": "traceroute", "timestamp": 1, "result": [3]}], "result"),
    "two kinds of results": ([{"type": "ping"}, {"type": "traceroute"}], "2 kinds"),
    "no time": ([{"type": "ping", "timestamp": -1, "result": []}], "timestamp"),
    "too large a number": ([{"type": "ping", "min": "LARGE"}], "no JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_tool_wrote_is_refused_in_one_line_with_its_place(file: Path, case: str) -> None:
    documents, part_of_message = REFUSED[case]
    file.write_text("\n".join(map(json.dumps, documents)).replace('"LARGE"', "9" * 5000))
    with pytest.raises(TraceError) as caught:
        read_trace(file)
    assert caught.value.path == str(file)
    assert part_of_message in caught.value.what and "\n" not in str(caught.value) and caught.value.remedy


@pytest.mark.parametrize("report", [iperf3({"sum": part(0, 1e7)}), irtt(5.0, 6.0)], ids=["iperf3", "irtt"])
@pytest.mark.parametrize("share", [0.2, 0.6, 0.95])
def test_a_cut_report_is_refused_with_line_and_column(file: Path, report: dict[str, Any], share: float) -> None:
    text = json.dumps(report, indent=2)
    file.write_text(text[: int(len(text) * share)])
    with pytest.raises(TraceError, match=r"tool\.json:\d+:\d+: no JSON: .*\(the file is damaged or cut off") as caught:
        read_trace(file)
    assert "\n" not in str(caught.value)


IDENTITY = {"msm_id": 5001, "prb_id": 77, "timestamp": 1_400_000_000}
NEW_IDENTITY = {**IDENTITY, "af": 4, "dst_addr": "192.0.2.9", "dst_name": "goal.example", "from": "198.51.100.4"}
SUMMARY = {"avg": 20.0, "min": 18.0, "max": 22.0, "dup": 0, "rcvd": 3, "sent": 3}
REPLIES = [{"rtt": 20.5}, {"rtt": 18.0}, {"rtt": 22.0}]


def ping(fw: int, result: list[Any] = REPLIES, **more: Any) -> dict[str, Any]:
    return NEW_IDENTITY | SUMMARY | {"fw": fw, "type": "ping", "proto": "ICMP", "result": result} | more


OLD_PING = IDENTITY | SUMMARY | {"fw": 1, "addr": "192.0.2.9", "name": "goal.example", "size": 56}
TEXTS = {"avg": "20.0", "min": "18.0", "max": "22.0", "rcvd": "3", "sent": "3"}
RICH_REPLIES = [{"rtt": 20.5, "ttl": 54}, {"rtt": 18.0, "srcaddr": "10.0.0.2"}, {"rtt": 22.0}]

PINGS: dict[str, dict[str, Any]] = {
    "0, texts and a summary alone": IDENTITY | TEXTS | {"fw": 0, "type": "ping", "dst_addr": "192.0.2.9"},
    "1, a summary alone and no type": OLD_PING,
    "4400": OLD_PING | {"fw": 4400, "type": "ping", "result": REPLIES, "ttl": 52},
    "4460": ping(4460),
    "4550, replies that say more": ping(4550, RICH_REPLIES, lts=36, step=360),
    "4610, duplicates and timeouts between": ping(4610, [{"x": "*"}, {"dup": 1, "rtt": 3.0}, *REPLIES]),
    "5080": ping(5080, mver="2.6.2", stored_timestamp=1_400_000_030),
}


def read_results(file: Path, *results: Any, **options: Any) -> Trace:
    (trace,) = read(file, list(results), **options)
    return trace


def reply(rtt: float, address: str = "192.0.2.9", **more: Any) -> dict[str, Any]:
    return {"from": address, "rtt": rtt, "size": 28, "ttl": 60} | more


def goal(hop: int = 2, **more: Any) -> dict[str, Any]:
    return {"hop": hop, "result": [reply(rtt, **more) for rtt in (20.5, 18.0, 22.0)]}


def route(fw: int, *hops: Any, **more: Any) -> dict[str, Any]:
    head = {"fw": fw, "type": "traceroute", "paris_id": 3, "proto": "UDP", "endtime": 1_400_000_004}
    return NEW_IDENTITY | head | {"result": list(hops)} | more


STARS = [{"x": "*"}] * 3
SILENCE = {"hop": 255, "result": STARS}
NEAR = {"hop": 1, "result": [reply(rtt, "10.0.0.1") for rtt in (1.2, 0.9, 1.1)]}
LATE = {"late": 2, "from": "192.0.2.9", "ttl": 60, "size": 68}
IPV6 = {"af": 6, "dst_addr": "2001:db8:0:0:0:0:0:9"}

ROUTES: dict[str, dict[str, Any]] = {
    "4460, the destination again at hop 255": route(4460, NEAR, {"hop": 2, "result": [reply(9.0)]}, goal(255)),
    "4470, a hop behind it that is silent": route(4470, NEAR, goal(), SILENCE),
    "4610, its port unreachable as UDP has it": route(4610, NEAR, goal(err="p")),
    "4620, IPv6 written in two ways": route(4620, NEAR, goal(address="2001:db8::9", dstoptsize=8), **IPV6),
    "4720, late replies between": route(4720, NEAR, {"hop": 2, "result": [LATE, *goal()["result"]]}),
    "5080": route(5080, NEAR, goal(), mver="2.6.2", destination_ip_responded=True),
}


@pytest.mark.parametrize("result", [*PINGS.values(), *ROUTES.values()], ids=[*PINGS, *ROUTES])
def test_every_firmware_form_gives_the_least_reply_of_the_destination_or_the_mean(file: Path, result: dict[str, Any]) -> None:
    trace = read_results(file, result)
    assert (trace.value.tolist(), trace.kind, trace.began_s) == ([0.018], "measured", 1.4e9)
    assert trace.source.startswith("RIPE Atlas probe 77, measurement 5001, ")
    assert trace.source.endswith("the least of each round's replies")
    mean_s = (0.0205 + 0.018 + 0.022) / 3 if "result" in result else 0.020
    assert read_results(file, result, reply="mean").value.tolist() == pytest.approx([mean_s])


NONE = {"avg": -1, "min": -1, "max": -1, "rcvd": 0}
UNREACHABLE = "connect failed: Network is unreachable"
TOO_LATE = [{"x": "*"}, {"dup": 1, "rtt": 1600.0}, {"dup": 1, "rtt": 1800.0}]
IMPOSSIBLE = [{"rtt": 0.0}, {"rtt": -3.0}, {"rtt": "soon"}]
FROM_ITSELF = {"hop": 1, "result": [reply(2998.0, "198.51.100.4", err="H")]}

LOST: dict[str, tuple[dict[str, Any], str | None]] = {
    "a negative average": (OLD_PING | NONE, None),
    "no average at all": (IDENTITY | {"fw": 1, "rcvd": 0, "sent": 3}, None),
    "no reply": (ping(4460, STARS, **NONE), None),
    "duplicates of what came too late": (ping(4610, TOO_LATE, **NONE), "duplicate replies left out: 2"),
    "an error": (ping(4610, [{"error": "sendto failed:\nno route"}], **NONE), "errors (sendto failed: no route): 1"),
    "an error of the whole": (NEW_IDENTITY | {"type": "ping", "sent": 0, "error": "no address"}, "no address"),
    "an empty result": (ping(5080, [], **NONE), None),
    "RTTs of no network": (ping(5080, IMPOSSIBLE), "impossible RTT left out: 3"),
    "a route that ends before": (route(5080, NEAR, SILENCE), "did not answer"),
    "a route of errors from elsewhere": (route(4610, FROM_ITSELF), "did not answer"),
    "a hop that failed": (route(4610, {"hop": 1, "error": UNREACHABLE}), UNREACHABLE),
    "late replies alone": (route(4720, {"hop": 255, "result": [LATE]}), "late replies left out: 1"),
    "a name that nobody knew": (IDENTITY | {"type": "traceroute", "result": [{"error": "no such name"}]}, "no such name"),
    "a route without hops": (route(5080), "did not answer"),
}


@pytest.mark.parametrize(("result", "why"), LOST.values(), ids=LOST)
def test_a_lost_round_is_held_and_its_reason_counted(file: Path, result: dict[str, Any], why: str | None) -> None:
    whole = ROUTES["5080"] if "did not answer" in (why or "") or result.get("type") == "traceroute" else ping(4460)
    before, after = (whole | {"timestamp": 1_400_000_000 + shift} for shift in (-240, 240))
    trace = read_results(file, before, result, after)
    assert trace.value.tolist() == [0.018] * 3
    assert (trace.lost.tolist(), trace.time_s.tolist()) == ([False, True, False], [0.0, 240.0, 480.0])
    if why is None:
        assert trace.remarks == ()
    else:
        assert why in "; ".join(trace.remarks)
        assert not any("\n" in message for message in trace.remarks)
    with pytest.raises(TraceError, match=r"no sample of 1 arrived.*" + re.escape(why or "")):
        read_results(file, result)


@pytest.mark.parametrize("lines", [False, True])
def test_files_come_in_several_forms_and_in_any_order(file: Path, lines: bool) -> None:
    results = [PINGS["4460"] | {"timestamp": 1_400_000_000 + at, "result": [{"rtt": 10.0 + at}]} for at in (0, 480, 240, 240)]
    text = "".join(json.dumps(result) + "\r\n" for result in results) if lines else json.dumps(results, indent=2)
    file.write_text(text, encoding="utf-8", newline="")
    (trace,) = read_trace(file)
    assert trace.time_s.tolist() == [0.0, 240.0, 480.0]
    assert trace.value == pytest.approx([0.010, 0.250, 0.490])
    assert ["sorted by time" in remark or "repeated the time" in remark for remark in trace.remarks] == [True, True]
    file.write_text(json.dumps(PINGS["5080"], indent=1))
    assert read_trace(file)[0].value.tolist() == [0.018], "a single object is a file, too"


def test_of_several_series_one_has_to_be_chosen(file: Path) -> None:
    """Two probes in one measurement, one of them in another as well."""
    pings = [PINGS["4460"] | {"prb_id": probe, "timestamp": 1_400_000_000 + at} for probe in (1, 2) for at in (0, 240)]
    mixed = [*pings, PINGS["4460"] | {"prb_id": 2, "msm_id": 6, "result": [{"rtt": 7.0}]}]
    assert len(read_results(file, *mixed, probe=1).value) == 2
    for probe, message in {
        None: "results of 2 probes: 2 (3), 1 (2)",
        2: "results of 2 measurements: 5001 (2), 6 (1)",
        3: "no probe 3 among: 2 (3), 1 (2)",
    }.items():
        with pytest.raises(TraceError, match=re.escape(message)):
            read_results(file, *mixed, probe=probe)


REMARKED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a destination with several addresses": (
        [PINGS["4460"], PINGS["4460"] | {"timestamp": 1_400_000_240, "dst_addr": "192.0.2.10"}],
        "2 destination addresses: 192.0.2.9 (1), 192.0.2.10 (1)",
    ),
    "an error of a hop without a sender": (
        [route(5080, {"hop": 1, "result": [{"error": UNREACHABLE}, *STARS[:2]]}, goal())],
        f"errors ({UNREACHABLE}): 1",
    ),
}


@pytest.mark.parametrize(("results", "remark"), REMARKED.values(), ids=REMARKED)
def test_what_is_odd_is_kept_and_remarked(file: Path, results: list[dict[str, Any]], remark: str) -> None:
    trace = read_results(file, *results)
    assert (trace.value.tolist(), trace.lost_samples) == ([0.018] * len(results), 0)
    assert remark in trace.remarks


ODD = [
    None, True, -1, 10**400, float("nan"), "", "soon", "9" * 99, [], [3], [[]], {}, {"rtt": {}},
    [{"from": []}], [{"error": [1]}],
]  # fmt: skip


def places(document: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every path of keys within a document."""
    items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path] * bool(path) + [place for key, value in items for place in places(value, (*path, key))]


BOTH_WAYS = iperf3({"sum": part(0, 1e7), "sum_bidir_reverse": part(0, 1e7)})
REPORTS = {"iperf3": BOTH_WAYS, "irtt": irtt(5.0, None), **PINGS, **ROUTES}


@given(st.sampled_from(sorted(REPORTS)), st.data(), st.sampled_from(ODD) | st.text(max_size=8) | st.floats())
def test_any_change_of_a_report_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, report_name: str, data: st.DataObject, value: Any
) -> None:
    report = json.loads(json.dumps(REPORTS[report_name]))
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
