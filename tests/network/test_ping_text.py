from __future__ import annotations

from pathlib import Path

import pytest

from simnmt.network.errors import TraceError
from simnmt.network.trace_options import ReadOptions
from simnmt.network.traces.readings import Trace
from simnmt.network.traces.trace_file import read_trace

LINUX = """\
PING goal.example (192.0.2.9) 56(84) bytes of data.
64 bytes from goal.example (192.0.2.9): icmp_seq=1 ttl=57 time=12.5 ms
64 bytes from goal.example (192.0.2.9): icmp_seq=2 ttl=57 time=11.0 ms
64 bytes from goal.example (192.0.2.9): icmp_seq=2 ttl=57 time=15.0 ms (DUP!)
no answer yet for icmp_seq=3
From 10.0.0.1 icmp_seq=4 Destination Host Unreachable
64 bytes from goal.example (192.0.2.9): icmp_seq=5 ttl=57 time=13 ms

--- goal.example ping statistics ---
5 packets transmitted, 3 received, +1 duplicates, 40% packet loss, time 4005ms
rtt min/avg/max/mdev = 11.000/12.166/13.000/0.849 ms
"""
STAMPED = """\
PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.
[1700000000.250000] 64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time=12.5 ms
[1700000000.750000] 64 bytes from 192.0.2.9: icmp_seq=2 ttl=57 time=11.0 ms
[1700000002.250000] 64 bytes from 192.0.2.9: icmp_seq=5 ttl=57 time=13.0 ms
[1700000003.100000] no answer yet for icmp_seq=6
"""
MACOS = """\
PING goal.example (192.0.2.9): 56 data bytes
64 bytes from 192.0.2.9: icmp_seq=0 ttl=57 time=12.500 ms
64 bytes from 192.0.2.9: icmp_seq=1 ttl=57 time=11.000 ms
Request timeout for icmp_seq 2
Request timeout for icmp_seq 3
64 bytes from 192.0.2.9: icmp_seq=4 ttl=57 time=13.000 ms
"""
WINDOWS = """\

Pinging goal.example [192.0.2.9] with 32 bytes of data:
Reply from 192.0.2.9: bytes=32 time=12ms TTL=57
Reply from 192.0.2.9: bytes=32 time<1ms TTL=57
Request timed out.
Reply from 192.0.2.1: Destination host unreachable.
Reply from 192.0.2.9: bytes=32 time=13ms TTL=57

Ping statistics for 192.0.2.9:
    Packets: Sent = 5, Received = 4, Lost = 1 (20% loss),
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ping.txt"


def read(file: Path, text: str, **how: float) -> Trace:
    file.write_text(text, encoding="utf-8")
    (trace,) = read_trace(file, ReadOptions(**how))  # type: ignore[arg-type]
    return trace


@pytest.mark.parametrize(
    ("text", "rtts_ms"),
    [(LINUX, [12.5, 11, 11, 11, 13]), (MACOS, [12.5, 11, 11, 11, 13]), (WINDOWS, [12, 1, 1, 1, 13])],
    ids=["linux", "macos", "windows"],
)
def test_requests_without_a_reply_are_lost_on_every_system(file: Path, text: str, rtts_ms: list[float]) -> None:
    trace = read(file, text)
    assert (trace.value * 1e3).tolist() == pytest.approx(rtts_ms)
    assert trace.lost.tolist() == [False, False, True, True, False]
    assert trace.time_s.tolist() == [0, 1, 2, 3, 4]
    assert (trace.kind, trace.source) == ("measured", "ping to goal.example")
    assert "a request each 1 s taken for granted" in "; ".join(trace.remarks)


def test_a_duplicate_is_left_out(file: Path) -> None:
    assert "duplicate replies left out: 1" in read(file, LINUX).remarks


def test_times_are_those_that_ping_printed(file: Path) -> None:
    trace = read(file, STAMPED)
    assert trace.time_s == pytest.approx([0, 0.5, 1.0, 1.5, 2.0, 2.5])
    assert trace.lost.tolist() == [False, False, True, True, False, True]
    assert trace.began_s == 1_700_000_000.25
    assert trace.remarks == ()


def test_the_interval_can_be_stated(file: Path) -> None:
    assert read(file, LINUX, interval_s=0.2).time_s == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_numbers_that_begin_anew_go_on(file: Path) -> None:
    head = "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\n"

    def replies(*numbers: int) -> str:
        return "".join(f"64 bytes from 192.0.2.9: icmp_seq={number} ttl=57 time={1 + number % 7} ms\n" for number in numbers)

    wrapped = read(file, head + replies(65_534, 65_535, 0, 2))
    assert wrapped.lost.tolist() == [False, False, False, True, False]
    overtaken = read(file, head + replies(65_534, 0, 65_535, 1))
    assert overtaken.lost.tolist() == [False] * 4
    assert (overtaken.value * 1e3).tolist() == pytest.approx([1, 2, 1, 2])
    again = read(file, head + replies(1, 2, 3) + "\n" + head + replies(1, 2))
    assert not again.lost.any()
    assert (again.value * 1e3).tolist() == pytest.approx([2, 3, 4, 2, 3])


def test_a_run_without_any_reply_is_refused(file: Path) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt: ping had no reply"):
        read(file, "PING 192.0.2.9 (192.0.2.9) 56(84) bytes of data.\nno answer yet for icmp_seq=1\n")


def test_a_number_that_no_ping_prints_is_refused(file: Path) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt:12: request 4000000000 follows request 5"):
        read(file, LINUX + "64 bytes from 192.0.2.9: icmp_seq=4000000000 ttl=57 time=1 ms\n")


REPLY = "64 bytes from 192.0.2.9: icmp_seq={} ttl=57 time=1 ms\n"


@pytest.mark.parametrize(
    "line",
    [REPLY.format("9" * 5000), f"[{'9' * 400}] {REPLY.format(6)}", f"Request timeout for icmp_seq {'9' * 5000}\n"],
    ids=["sequence", "stamp", "lost"],
)
def test_a_number_longer_than_any_is_one_short_line(file: Path, line: str) -> None:
    with pytest.raises(TraceError, match=r"ping\.txt:12: ") as caught:
        read(file, LINUX + line)
    assert len(caught.value.what) < 200


def test_a_failed_request_on_windows_is_a_loss(file: Path) -> None:
    failed = "Reply from 10.0.0.1: TTL expired in transit.\nGeneral failure.\nPING: transmit failed. General failure.\n"
    trace = read(file, WINDOWS.replace("Request timed out.\n", failed))
    assert trace.lost.tolist() == [False, False, True, True, True, True, False]


def test_a_reply_of_less_than_a_millisecond_counts_as_one_with_a_remark(file: Path) -> None:
    assert "replies in less than 1 ms, taken for 1 ms: 1" in read(file, WINDOWS).remarks
    assert not any("less than" in message for message in read(file, LINUX).remarks)


def test_a_destination_that_no_terminal_should_see_is_printable(file: Path) -> None:
    trace = read(file, LINUX.replace("PING goal.example", "PING \x1b[31m" + "x" * 5000))
    assert trace.source.isprintable() and len(trace.source) < 200
