"""Recorded logs: what is read of each format, how it is played again, and how it is paired with lengths."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import ArrivalProcess, Arrivals, ArrivalsError, RandomStream
from simnmt.workload.arrivals.recording import Recording, granularity_s, read_recording
from simnmt.workload.length_table import LengthTable

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 23:59:59.6805900,374,44\r
2023-11-16 23:59:59.6805901,396,109\r
2023-11-17 00:00:01.9951690,7,55"""
MOONCAKE = "".join(
    json.dumps({"timestamp": stamp, "input_length": size, "output_length": 5, "hash_ids": [0, 1]}) + "\n"
    for stamp, size in [(0, 6758), (0, 7322), (3000, 7236), (5999, 12), (5999, 12), (12000, 900)]
)


Load = Callable[..., ArrivalProcess]
Read = Callable[..., Recording]


def rng(seed: int = 1, replication: int = 0) -> RandomStream:
    return RandomStream(seed, replication, "a")


def recorded(base: Path, **keys: Any) -> ArrivalProcess:
    return arrivals.validate_python({"kind": "recorded", "file": "trace", **keys}).process(base)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Load:
    """Writes a log and loads the arrivals that play it."""

    def load(content: str | bytes, **keys: Any) -> ArrivalProcess:
        return recorded(write(tmp_path / "trace", content).parent, **keys)

    return load


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a log and reads it."""
    return lambda content, *unit: read_recording(write(tmp_path / "trace", content), *unit)


# --- the formats ---

QWEN = """{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 500, "output_length": 130, "turn": 1}
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 2.0, "input_length": 90, "output_length": 30, "turn": 1}
{"chat_id": 2, "parent_chat_id": -1, "timestamp": 4.5, "input_length": 1000, "output_length": 300, "turn": 1}
"""


FRACTIONS = re.sub('"chat_id.*?-1, ', "", QWEN)


@pytest.mark.parametrize(
    ("content", "form", "time_s", "value", "step_s", "duration_s"),
    [
        (AZURE, "tokens", [0, 1e-7, 2.314579], [374, 396, 7], 0.0, 3.4718685),
        ("t_s,in_tokens,out_tokens\n0,374,44\n4.5,7,9\n\n", "tokens", [0, 4.5], [374, 7], 0.0, 9.0),
        # On a grid that strays, from a trace in milliseconds.
        (MOONCAKE, "tokens", [0, 0, 3, 5.999, 5.999, 12], [6758, 7322, 7236, 12, 12, 900], 3.0, 15.0),
        # Fractions or a chat_id show seconds.
        (QWEN, "tokens", [0, 1.5, 4], [500, 90, 1000], 0.0, 6.0),
        (QWEN.replace("0.5", "0.0").replace("4.5", "4"), "tokens", [0, 2, 4], [500, 90, 1000], 0.0, 6.0),
        (FRACTIONS, "tokens", [0, 1.5, 4], [500, 90, 1000], 0.0, 6.0),
        # Windows left out had none, windows written out with a zero too, and both count for the time they took.
        ("t_s,requests\n100,0\n101,2\n103,1\n107,0\n", "counts", [1, 1, 3], [], 1.0, 8.0),
        (
            "t_s,requests\n0,1\n0.333,2\n0.667,1\n1.667,3\n",
            "counts",
            [0, 0.333, 0.333, 0.667, 1.667, 1.667, 1.667],
            [],
            1 / 3,
            2,
        ),
        ("t_s,rate_rps\n1000,2\n1060,8\n1120,0\n1180,\n1240,5\n", "rates", [0, 60, 120, 180, 240], [2, 8, 0, 0, 5], 0.0, 300),
        ("t_s,rate_rps\n0,\n60,0\n120,8\n180,\n", "rates", [0, 60, 120, 180], [0, 0, 8, 8], 0.0, 240),
        ('city;arrival_s;"said;\nor meant"\nBern;10;a\nBiel;10.5;"b\n;"\nBern;13;c\n', "times", [0, 0.5, 3], [], 0.0, 4.5),
    ],
)
def test_a_format_is_known_by_its_columns(
    read: Read, content: str, form: str, time_s: list[float], value: list[float], step_s: float, duration_s: float
) -> None:
    """Whether packed or not."""
    for file in (content, gzip.compress(content.encode())):
        recording = read(file)
        assert recording.format == form
        assert recording.time_s == pytest.approx(time_s, abs=1e-10)
        assert recording.value.tolist() == value
        assert (recording.step_s, recording.duration_s) == pytest.approx((step_s, duration_s), rel=2e-3)


def test_events_of_another_program_are_rows(read: Read) -> None:
    """Of the log of a live gateway alone, lines of other events are left out."""
    rows = [{"event": event, "t_s": 2 * place} for place, event in enumerate(["begin", "end", "begin", "request", "end"])]
    assert read("".join(json.dumps(row) + "\n" for row in rows)).time_s.tolist() == [0, 2, 4, 6, 8]
    live = [{"event": "begin", "policy": "cnmt", "devices": ["gateway"]}, *rows]
    assert len(read("".join(json.dumps(row) + "\n" for row in [*live, {"event": "request", "t_s": 9}])).time_s) == 2


@pytest.mark.parametrize(
    "row",
    [
        "2024-05-10T00:00:00.009930+00:00",
        "2024-05-10 02:00:00.00993+02:00",
        "2024-05-09 19:30:00.00993-0430",
        "2024-05-10 00:00:00.00993Z",
    ],
)
def test_date_times_may_name_their_zone(read: Read, row: str) -> None:
    content = f'TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-09 23:59:58Z,1,1\n"{row}",1,1\n'
    assert read(content).time_s == pytest.approx([0, 2.00993], abs=1e-9)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f'{{"timestamp": {k // 2}, "input_length": 9}}\n' for k in range(100)),  # in ms, 2,000 requests/s
        "timestamp\n" + "".join(f"{2000 * k}\n" for k in range(100)),  # in s, one request in 33 minutes
    ],
)
def test_an_implausible_rate_asks_for_the_unit(read: Read, text: str) -> None:
    with pytest.raises(ArrivalsError) as refused:
        read(text)
    assert str(refused.value.path).endswith("trace") and "time_unit" in (refused.value.remedy or "")
    assert read(text, "s").duration_s == pytest.approx(1000 * read(text, "ms").duration_s)


@pytest.mark.parametrize(
    ("time_s", "step_s"),
    [
        ([0, 0, 3, 3, 5.999, 9, 9, 1509.002], 3.0),
        ([0, 0, 0, 1, 2, 2, 600], 1.0),
        ([0, 0.25, 0.25, 0.5], 0.25),
        ([0, 1, 2, 3, 4], 0.0),  # regular, but nobody shares a time: as exact as can be told
        ([0, 0, 1, 2.5, 3.1], 0.0),
        ([0, 0.1, 0.35, 0.9], 0.0),
        ([4, 4, 4], 0.0),
    ],
)
def test_a_grid_is_detected_by_shared_times(time_s: list[float], step_s: float) -> None:
    assert granularity_s(np.array(time_s)) == step_s


# --- played again ---


def test_replication_0_is_the_trace_itself(trace: Load) -> None:
    process = trace("t_s\n5\n6\n6\n9.5\n")
    assert process.times(4, rng(7)).tolist() == [0, 1, 1, 4.5]
    assert process.mean_rate_rps == pytest.approx(4 / 6)
    assert process.size_ranks(4, rng(7)) is None


def test_after_its_end_a_trace_begins_anew(trace: Load) -> None:
    """A mean gap after the last request, so that the rate stays what it was."""
    process = trace("t_s\n5\n6\n6\n9.5\n")
    assert process.times(10, rng(7)).tolist() == [0, 1, 1, 4.5, 6, 7, 7, 10.5, 12, 13]
    assert "after its end it begins anew" in process.account


@pytest.mark.parametrize("replication", [1, 2, 3])
def test_further_replications_start_elsewhere_on_the_trace(trace: Load, replication: int) -> None:
    process = trace("t_s\n0\n1\n3\n7\n8\n")
    arrival_s = process.times(23, rng(7, replication))
    laps = np.concatenate([np.array([0, 1, 3, 7, 8]) + lap * 10 for lap in range(8)])
    starts = [first for first in range(5) if np.allclose(np.diff(arrival_s), np.diff(laps[first : first + 23]))]
    assert len(starts) == 1
    before_s = laps[starts[0] + 5] - laps[starts[0] + 4]
    assert 0 <= arrival_s[0] <= before_s


def test_starts_are_spread_over_time_not_over_requests(trace: Load) -> None:
    """A quiet hour is as likely a start as a busy one: else bursts would be met too often."""
    process = trace("t_s\n" + "".join(f"{0.01 * n}\n" for n in range(100)) + "99\n")
    first_s = np.array([process.times(1, rng(1, replication))[0] for replication in range(1, 300)])
    assert np.mean(first_s > 1) == pytest.approx(0.97, abs=0.04)
    waits = first_s[first_s > 1]
    assert stats.kstest(waits, stats.uniform(1, waits.max() - 1).cdf).pvalue > 0.001


def test_a_rate_rescales_time(trace: Load) -> None:
    content = "t_s\n0\n1\n3\n7\n8\n"
    fast = trace(content, rate_rps=5.0)
    assert fast.mean_rate_rps == pytest.approx(5.0) and "played 10 times as fast" in fast.account
    assert np.allclose(fast.times(12, rng(1, 3)) * 10, trace(content).times(12, rng(1, 3)))


def test_rates_hold_until_the_next_and_replications_begin_elsewhere(trace: Load) -> None:
    process = trace("t_s,rate_rps\n0,0\n1000,1000\n1001,0\n2001,\n")
    assert "(1 empty cells" in process.account and "4 windows, 3 of them without arrivals" in process.account
    first_s = [process.times(1, rng(1, replication))[0] for replication in range(40)]
    assert first_s[0] == pytest.approx(1000, abs=1)
    assert stats.kstest(first_s[1:], stats.uniform(0, 3001).cdf).pvalue > 0.001
    start_s = 3001 * rng(1, 2).part("series start").random()
    within_s = (process.times(5_000, rng(1, 2)) + start_s) % 3001
    assert 1000 <= within_s.min() < within_s.max() <= 1001


# --- spreading ---

COUNTS = "t_s,requests\n" + "".join(f"{10 * n},{n % 7}\n" for n in range(1, 60))


def test_counts_stay_in_their_windows_and_are_uniform_there(trace: Load) -> None:
    process = trace(COUNTS)
    arrival_s = process.times(40_000, rng(2))
    duration_s = 590.0
    laps = int(arrival_s[-1] // duration_s)
    window = (arrival_s[arrival_s < laps * duration_s] % duration_s // 10).astype(int)
    assert np.bincount(window, minlength=59).tolist() == [laps * (n % 7) for n in range(1, 60)]
    assert stats.kstest(arrival_s % 10, stats.uniform(0, 10).cdf).pvalue > 0.001


def test_a_run_that_starts_within_a_window_starts_with_it(trace: Load) -> None:
    """None of its requests is left out, for nobody knows which of them had come."""
    process = trace("t_s,requests\n0,5\n1,5\n2,5\n3,5\n")
    for replication in range(1, 30):
        arrival_s = process.times(20, rng(1, replication))
        assert np.bincount(arrival_s.astype(int)).tolist() == [5, 5, 5, 5]


# --- pairing with lengths ---

TABLE = LengthTable.of_pairs("t", "s", "word", "word", np.repeat(np.arange(1, 51), 4), np.tile([3, 5, 8, 90], 50), 7)


def by_rank(sizes: list[int], laps: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank, src_len, tgt_len) of some laps over a trace of these sizes, a second apart."""
    with TemporaryDirectory() as folder:
        rows = "".join(f"{n},{size}\n" for n, size in enumerate(sizes))
        (Path(folder) / "trace").write_text("t_s,in_tokens\n" + rows)
        rank = recorded(Path(folder), lengths="rank").size_ranks(laps * len(sizes), rng(3))
    assert rank is not None
    return rank, *TABLE.at_quantiles(rank)


@given(st.lists(st.integers(0, 9), min_size=2, max_size=40))
def test_a_longer_request_never_gets_a_shorter_sentence(sizes: list[int]) -> None:
    rank, src_len, _ = by_rank(sizes, laps=3)
    size = np.tile(sizes, 3)
    for least in set(sizes):
        shorter, longer = size < least, size >= least
        if shorter.any():
            assert rank[shorter].max() <= rank[longer].min()
            assert src_len[shorter].max() <= src_len[longer].min()
    assert rank.min() >= 0 and rank.max() < 1


@pytest.mark.parametrize("sizes", [[5] * 30, [1, 2] * 15, [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9], [0, 10**6]])
def test_the_lengths_that_come_out_are_the_corpus_s(sizes: list[int]) -> None:
    """However the trace's sizes are distributed, ties included."""
    rank, src_len, _ = by_rank(sizes, laps=30_000 // len(sizes))
    assert stats.kstest(rank, stats.uniform.cdf).pvalue > 0.001
    assert stats.chisquare(np.bincount(src_len, minlength=51)[1:]).pvalue > 0.001


def test_ranks_begin_where_the_times_begin(trace: Load) -> None:
    """Else a replication would pair one request's time with another's size."""
    rows = "".join(f"{n * n},{n}\n" for n in range(1, 40))
    process = trace("t_s,in_tokens\n" + rows, lengths="rank")
    for replication in range(6):
        gap_s = np.diff(process.times(200, rng(1, replication)))
        size = np.ceil(process.size_ranks(200, rng(1, replication)) * 39)
        inside = size[1:] > size[:-1]  # a lap's end aside, the gap before request n is n^2 - (n - 1)^2
        assert np.allclose(gap_s[inside], 2 * size[1:][inside] - 1)


def test_sizes_are_ignored_unless_requested(trace: Load) -> None:
    assert trace(AZURE).size_ranks(5, rng()) is None
    with pytest.raises(
        ArrivalsError, match=r"trace: lengths: rank needs the tokens of each request.*\(give a column in_tokens"
    ):
        trace("t_s,requests\n0,3\n1,4\n", lengths="rank")


@pytest.mark.parametrize(
    ("content", "unread"),
    [
        ("t_s,requests,rate_rps\n0,5,1\n60,2,2\n", " rate_rps"),
        ("t_s,arrival_s\n0,5\n60,2\n", " arrival_s"),
        ("t_s,City,word_count\n0,Bern,3\n60,Biel,4\n", "s city and word_count"),
    ],
)
def test_the_account_names_the_origin_and_the_columns_that_were_not_read(trace: Load, content: str, unread: str) -> None:
    account = trace("# Kind: Measured\n# source: the town hall, CC BY 4.0\n" + content).account
    assert "(measured), the town hall, CC BY 4.0" in account and f"(not read: column{unread})" in account


ACCESS = '10.0.0.8 - - [14/Nov/2023:22:13:{} +0100] "GET /translate?q=[a] HTTP/1.1" 200 512 "-" "curl/8"\n'


def test_an_access_log_has_a_request_a_line_in_the_order_of_their_ends(read: Read) -> None:
    recording = read("".join(map(ACCESS.format, (20, 22, 21, 29))))
    assert (recording.format, recording.time_s.tolist(), recording.clock) == ("times", [0, 1, 2, 9], "UTC")
    assert recording.moment(0.0) == "2023-11-14 21:13:20 UTC" and "access log" in recording.source


@pytest.mark.parametrize(
    "content",
    [
        "timestamp,count\n1700000000,300\n1700000010,400\n",
        "timestamp,rps\n1700000000,300\n1700000010,400\n",
        "timestamp,Total Count\n1700000000,300\n1700000010,400\n",
        "Timestamp,User Count,Type,Name,Requests/s,Failures/s,50%,Total Request Count\n17,2,,A,3,0,9,3\n18,2,,A,3,0,9,6\n",
        '{"timestamp": 17, "input_length": 4, "request_rate": 3}\n{"timestamp": 18, "input_length": 4, "request_rate": 4}\n',
    ],
)
def test_counts_and_rates_under_another_name_are_not_taken_for_requests(read: Read, content: str) -> None:
    with pytest.raises(ArrivalsError) as caught:
        read(content)
    head = content.partition("\n")[0]
    name = next(name for name in ("count", "rps", "Total Count", "Requests/s", "request_rate") if name in head)
    assert (caught.value.line, caught.value.column) == (1, head.index(name) + 1)
    assert "rate_rps" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    "content",
    [
        "10.0.0.8 GET /translate 200\n10.0.0.9 GET /translate 200\n",
        '{"date": "20231114", "start_times": [1.0, 2.0], "request_rate": 3}\n',
        "response-time,DNS+dialup,status-code,offset\n0.2,0.1,200,0.3\n0.2,0.1,200,0.4\n",
    ],
)
def test_a_log_of_another_tool_is_sent_to_the_recipes(read: Read, content: str) -> None:
    with pytest.raises(ArrivalsError) as caught:
        read(content)
    assert (caught.value.line, caught.value.column) == (1, 1)
    assert "docs/reference/arrivals.md" in (caught.value.remedy or "")


# --- files that are none ---


def json_row(timestamp: str) -> str:
    return f'{{"timestamp": {timestamp}, "input_length": 3}}\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", None),
        ("# only a note\n", 1),
        ("# kind: guessed\nt_s\n0\n1\n", 1),
        ("city;when\nBern;1\nBiel;2\n", 1),
        ("0\n1.5\n2\n", 1),
        ("t_s\n5\n", None),
        ("t_s\n5\n5\n", None),
        ("t_s\n0\n\nnan\n", 4),
        ("t_s,in_tokens\n0,1\n1\n", 3),
        ("t_s,in_tokens\n0,1\n1,-4\n", 3),
        ("t_s\n0\n5\n3\n", 4),
        ("t_s\n1700000000000\n1700000000001\n", 2),
        ('t_s,said\n0,"a\n1,b\n', 3),
        ("timestamp\n2024-05-10 00:00:00\n2024-05-10 25:00:00\n", 3),
        ("timestamp\n1701-05-10 00:00:00\n2024-05-10 00:00:00\n", 2),
        ("t_s,requests\n0,1\n0,2\n", 3),
        ("t_s,requests\n0,1\n1,1.5\n", 3),
        ("t_s,requests\n0,1\n1,2\n2.5,2\n", 4),
        ("t_s,requests\n0,5\n60,7\n180,1\n250,2\n", 5),
        ("timestamp\n2023-01-01 00:00:00\n2023-01-01T00:00:05Z\n", 3),
        ("timestamp\n2023-01-01 00:00:00-0430\n2023-01-01T00:00:05\n", 3),
        ("t_s,requests\n0,1\n1,49999999\n2,2\n", None),
        ("t_s,rate_rps\n0,1\n1,1e10\n", 3),
        ("t_s,rate_rps\n0,0\n1,\n", None),
        (json_row("0") + json_row("1e299"), 2),
        (json_row("0") + '{"timestamp": 3}\n', 2),
        (json_row("0") + json_row("[1]"), 2),
        (json_row("0") + "[3]\n", 2),
        ('{"t_s": 0}\n{"t_s": 1, "t_s": 2}\n', 2),
        ("t_s,in_tokens,in_tokens\n0,1,2\n1,3,4\n", 1),
        ('[{"timestamp": 1}, {"timestamp": 2}]\n', 1),
        (ACCESS.format(20) + "\n10.0.0.8 - -\n", 3),
        (ACCESS.format(20) + ACCESS.format(99), 2),
        (json_row("0") + '{"timestamp": 3, "input_', 2),
        (b"\x9c\xff\xd3\x81\n\x90\xee\n", 1),
        (b"\x1f\x8bnot at all", None),
    ],
)
def test_what_is_no_log_is_refused_at_its_line(trace: Load, content: str | bytes, line: int | None) -> None:
    with pytest.raises(ArrivalsError) as caught:
        trace(content)
    assert caught.value.line == line and str(caught.value.path).endswith("trace") and caught.value.remedy
    assert "\n" not in str(caught.value)
