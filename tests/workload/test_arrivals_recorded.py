"""Recorded traces: what is read of each form, how it is played again, and how it is paired with lengths."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import ArrivalProcess, Arrivals, ArrivalsError
from simnmt.workload.arrivals.recording import granularity_s, read_recording
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


def recorded(base: Path, **keys: Any) -> ArrivalProcess:
    return arrivals.validate_python({"kind": "recorded", "file": "trace", **keys}).process(base)


@pytest.fixture
def trace(tmp_path: Path) -> Any:
    """Writes a trace and loads the arrivals that play it."""

    def load(content: str | bytes, **keys: Any) -> ArrivalProcess:
        (tmp_path / "trace").write_bytes(content if isinstance(content, bytes) else content.encode())
        return recorded(tmp_path, **keys)

    return load


# --- the forms ---


def test_azure_date_times_keep_their_tenths_of_a_microsecond(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(AZURE.encode())
    read = read_recording(tmp_path / "a.csv")
    assert (read.form, read.step_s, read.kind, read.source) == ("azure", 0.0, "unstated", "file a.csv")
    assert read.time_s == pytest.approx([0, 1e-7, 2.314579], abs=1e-10)
    assert read.size_tokens.tolist() == [374, 396, 7]


@pytest.mark.parametrize(
    "row",
    [
        "2024-05-10T00:00:00.009930+00:00",
        "2024-05-10 02:00:00.00993+02:00",
        "2024-05-09 19:30:00.00993-0430",
        "2024-05-10 00:00:00.00993Z",
    ],
)
def test_date_times_may_name_their_zone(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(f'TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-09 23:59:58Z,1,1\n"{row}",1,1\n')
    assert read_recording(tmp_path / "a.csv").time_s == pytest.approx([0, 2.00993], abs=1e-9)


def test_a_table_of_seconds_and_tokens(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "# source: a service, CC0\n# kind: synthetic\n\nt_s,in_tokens,out_tokens\n0,374,44\n4.5,7,9\n\n"
    )
    read = read_recording(tmp_path / "a.csv")
    assert (read.form, read.kind, read.source) == ("azure", "synthetic", "a service, CC0")
    assert (read.time_s.tolist(), read.size_tokens.tolist(), read.duration_s) == ([0, 4.5], [374, 7], 9.0)


def test_mooncake_lines_come_on_a_grid_that_strays(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(MOONCAKE)
    read = read_recording(tmp_path / "m.jsonl")
    assert (read.form, read.step_s, read.duration_s) == ("mooncake", 3.0, 15.0)
    assert read.time_s.tolist() == [0, 0, 3, 5.999, 5.999, 12]
    assert read.size_tokens.tolist() == [6758, 7322, 7236, 12, 12, 900]


QWEN = """{"chat_id": 0, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 500, "output_length": 130, "turn": 1}
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 2.0, "input_length": 90, "output_length": 30, "turn": 1}
{"chat_id": 2, "parent_chat_id": -1, "timestamp": 4.5, "input_length": 1000, "output_length": 300, "turn": 1}
"""


@pytest.mark.parametrize("text", [QWEN, QWEN.replace("0.5", "0.0").replace("4.5", "4"), re.sub('"chat_id.*?-1, ', "", QWEN)])
def test_fractions_or_the_keys_of_qwen_show_seconds(tmp_path: Path, text: str) -> None:
    (tmp_path / "qwen.jsonl").write_text(text)
    assert read_recording(tmp_path / "qwen.jsonl").time_s[-1] == 4.0


@pytest.mark.parametrize(
    "text",
    [
        "".join(f'{{"timestamp": {k // 2}, "input_length": 9}}\n' for k in range(100)),  # in ms, 2,000 requests/s
        "timestamp\n" + "".join(f"{2000 * k}\n" for k in range(100)),  # in s, one request in 33 minutes
    ],
)
def test_an_implausible_rate_asks_for_the_unit(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_text(text)
    with pytest.raises(ArrivalsError) as refused:
        read_recording(path)
    assert refused.value.path == str(path) and "time_unit" in (refused.value.remedy or "")
    in_s, in_ms = read_recording(path, time_unit="s"), read_recording(path, time_unit="ms")
    assert in_s.duration_s == pytest.approx(1000 * in_ms.duration_s)


def test_counts_last_from_one_window_to_the_end_of_the_last(tmp_path: Path) -> None:
    """Windows left out had none, windows written out with a zero too, and both count for the time they took."""
    (tmp_path / "c.csv").write_text("t_s,requests\n100,0\n101,2\n103,1\n107,0\n")
    read = read_recording(tmp_path / "c.csv")
    assert (read.form, read.step_s, read.duration_s, read.size_tokens) == ("counts", 1.0, 8.0, None)
    assert read.time_s.tolist() == [1, 1, 3]


def test_plain_times_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("city;arrival_s\nBern;10\nBiel;10.5\nBern;13\n")
    read = read_recording(tmp_path / "t.csv")
    assert (read.form, read.time_s.tolist(), read.size_tokens, read.duration_s) == ("times", [0, 0.5, 3], None, 4.5)


def test_the_form_may_be_stated(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("t_s,in_tokens,requests\n0,3,5\n1,4,6\n")
    assert {form: len(read_recording(tmp_path / "a.csv", form).time_s) for form in ("auto", "counts", "azure", "times")} == {
        "auto": 11,
        "counts": 11,
        "azure": 2,
        "times": 2,
    }


@pytest.mark.parametrize("content", [AZURE, MOONCAKE, "t_s,requests\n0,3\n2,4\n", "t_s\n0\n2\n"])
def test_a_packed_file_reads_the_same(tmp_path: Path, content: str) -> None:
    (tmp_path / "trace").write_text(content)
    (tmp_path / "packed").write_bytes(gzip.compress(content.encode()))
    plain, packed = read_recording(tmp_path / "trace"), read_recording(tmp_path / "packed")
    assert np.array_equal(plain.time_s, packed.time_s) and (plain.form, plain.step_s) == (packed.form, packed.step_s)


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


def test_counts_on_a_grid_that_strays_by_rounding_are_on_it(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("t_s,requests\n0,1\n0.333,2\n0.667,1\n1.667,3\n")
    read = read_recording(tmp_path / "c.csv")
    assert (read.step_s, read.duration_s) == (pytest.approx(1 / 3, rel=2e-3), pytest.approx(2, rel=1e-3))


# --- played again ---


def test_replication_0_is_the_trace_itself(trace: Any) -> None:
    process = trace("t_s\n5\n6\n6\n9.5\n")
    assert process.times(4, 7, 0, "a").tolist() == [0, 1, 1, 4.5]
    assert process.mean_rate_rps == pytest.approx(4 / 6)
    assert process.size_ranks(4, 7, 0, "a") is None


def test_after_its_end_a_trace_begins_anew(trace: Any) -> None:
    """A mean gap after the last request, so that the rate stays what it was."""
    process = trace("t_s\n5\n6\n6\n9.5\n")
    assert process.times(10, 7, 0, "a").tolist() == [0, 1, 1, 4.5, 6, 7, 7, 10.5, 12, 13]
    assert "after its end it begins anew" in process.account


@pytest.mark.parametrize("replication", [1, 2, 3, 4, 5])
def test_further_replications_start_elsewhere_on_the_trace(trace: Any, replication: int) -> None:
    process = trace("t_s\n0\n1\n3\n7\n8\n")
    arrival_s = process.times(23, 7, replication, "a")
    laps = np.concatenate([np.array([0, 1, 3, 7, 8]) + lap * 10 for lap in range(8)])
    starts = [first for first in range(5) if np.allclose(np.diff(arrival_s), np.diff(laps[first : first + 23]))]
    assert len(starts) == 1
    before_s = laps[starts[0] + 5] - laps[starts[0] + 4]
    assert 0 <= arrival_s[0] <= before_s


def test_starts_are_spread_over_time_not_over_requests(trace: Any) -> None:
    """A quiet hour is as likely a start as a busy one: else bursts would be met too often."""
    process = trace("t_s\n" + "".join(f"{0.01 * n}\n" for n in range(100)) + "99\n")
    first_s = np.array([process.times(1, 1, replication, "a")[0] for replication in range(1, 300)])
    assert np.mean(first_s > 1) == pytest.approx(0.97, abs=0.04)
    waits = first_s[first_s > 1]
    assert stats.kstest(waits, stats.uniform(1, waits.max() - 1).cdf).pvalue > 0.001


def test_speed_and_rate_rescale_time(trace: Any) -> None:
    content = "t_s\n0\n1\n3\n7\n8\n"
    slow = trace(content).times(12, 1, 3, "a")
    assert np.allclose(trace(content, speed=4.0).times(12, 1, 3, "a") * 4, slow)
    fast = trace(content, rate_rps=5.0)
    assert fast.mean_rate_rps == pytest.approx(5.0) and "played 10 times as fast" in fast.account
    assert np.allclose(fast.times(12, 1, 3, "a") * 10, slow)


# --- spreading ---

COUNTS = "t_s,requests\n" + "".join(f"{10 * n},{n % 7}\n" for n in range(1, 60))


def test_counts_stay_in_their_windows_and_are_uniform_there(trace: Any) -> None:
    process = trace(COUNTS)
    arrival_s = process.times(40_000, 2, 0, "a")
    duration_s = 590.0
    laps = int(arrival_s[-1] // duration_s)
    window = (arrival_s[arrival_s < laps * duration_s] % duration_s // 10).astype(int)
    assert np.bincount(window, minlength=59).tolist() == [laps * (n % 7) for n in range(1, 60)]
    assert stats.kstest(arrival_s % 10, stats.uniform(0, 10).cdf).pvalue > 0.001


def test_the_spread_may_be_stated_or_none(trace: Any) -> None:
    assert set(trace(COUNTS, spread_s=0).times(500, 2, 0, "a") % 10) == {0.0}
    assert 1.9 < (trace(COUNTS, spread_s=2).times(500, 2, 0, "a") % 10).max() < 2.0
    assert (trace(COUNTS, spread_s=99).times(5_000, 2, 0, "a") % 10).max() > 9.9
    assert "spread" not in trace(COUNTS, spread_s=0).account and "over 2 s" in trace(COUNTS, spread_s=2).account


def test_replications_spread_otherwise(trace: Any) -> None:
    process = trace(MOONCAKE)
    one, two = process.times(6, 1, 0, "a"), process.times(6, 2, 0, "a")
    assert not np.any(one == two)
    least_s = np.array([0, 0, 3, 5.999, 5.999, 12])
    most_s = np.array([3, 3, 5.999, 8.999, 8.999, 15])
    for arrival_s in (one, two):
        assert np.all((arrival_s >= least_s) & (arrival_s <= most_s))


def test_a_run_that_starts_within_a_window_starts_with_it(trace: Any) -> None:
    """None of its requests is left out, for nobody knows which of them had come."""
    process = trace("t_s,requests\n0,5\n1,5\n2,5\n3,5\n")
    for replication in range(1, 30):
        arrival_s = process.times(20, 1, replication, "a")
        assert np.bincount(arrival_s.astype(int)).tolist() == [5, 5, 5, 5]


# --- pairing with lengths ---

TABLE = LengthTable.of_pairs("t", "s", "word", "word", np.repeat(np.arange(1, 51), 4), np.tile([3, 5, 8, 90], 50), 7)


def by_rank(sizes: list[int], replication: int = 0, laps: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rank, src_len, tgt_len) of some laps over a trace of these sizes, a second apart."""
    with TemporaryDirectory() as folder:
        rows = "".join(f"{n},{size}\n" for n, size in enumerate(sizes))
        (Path(folder) / "trace").write_text("t_s,in_tokens\n" + rows)
        rank = recorded(Path(folder), lengths="rank").size_ranks(laps * len(sizes), 3, replication, "a")
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


def test_the_order_of_sizes_is_the_trace_s() -> None:
    """Autocorrelated sizes stay so; drawn from the corpus alone they would be independent."""
    random = np.random.default_rng(5)
    level = np.cumsum(random.standard_normal(2_000))
    sizes = np.exp(3 + level / level.std()).astype(int).tolist()
    _, src_len, _ = by_rank(sizes, laps=1)
    assert np.corrcoef(src_len[1:], src_len[:-1])[0, 1] > 0.95
    assert stats.spearmanr(src_len, sizes).statistic > 0.99


def test_ranks_begin_where_the_times_begin(trace: Any) -> None:
    """Else a replication would pair one request's time with another's size."""
    rows = "".join(f"{n * n},{n}\n" for n in range(1, 40))
    process = trace("t_s,in_tokens\n" + rows, lengths="rank")
    for replication in range(6):
        gap_s = np.diff(process.times(200, 1, replication, "a"))
        size = np.ceil(process.size_ranks(200, 1, replication, "a") * 39)
        inside = size[1:] > size[:-1]  # a lap's end aside, the gap before request n is n^2 - (n - 1)^2
        assert np.allclose(gap_s[inside], 2 * size[1:][inside] - 1)


def test_sizes_are_ignored_unless_requested(trace: Any) -> None:
    assert trace(AZURE).size_ranks(5, 1, 0, "a") is None
    with pytest.raises(
        ArrivalsError, match=r"trace: lengths: rank needs the tokens of each request.*\(give a column in_tokens"
    ):
        trace("t_s,requests\n0,3\n1,4\n", lengths="rank")


# --- accounts ---


def test_the_account_of_exact_times(trace: Any) -> None:
    content = "# kind: measured\n# source: the town hall, CC BY 4.0\nt_s,in_tokens\n0,3\n1,4\n2,1\n5,6\n"
    assert trace(content, lengths="rank").account == (
        "arrivals of a recorded trace (measured), the town hall, CC BY 4.0: 4 requests in 7 s, 0.6 requests/s; coefficient of "
        "variation of the gaps 0.566; lengths by the rank of the input tokens; after its end it begins anew"
    )


def test_the_account_of_counts(trace: Any) -> None:
    """Variance over mean of 3, 0, 0, 1, its windows without a row among them, by hand."""
    account = trace("t_s,requests\n0,3\n1,0\n3,1\n").account
    assert "4 requests in 4 s, 1 requests/s; variance over mean of the counts per 1 s 1.5, where Poisson has 1" in account
    assert "requests of one time spread evenly over 1 s; lengths drawn independently" in account


# --- files that are none ---

BAD = {
    "empty": ("", r"trace: no rows \(give column names"),
    "nan": ("t_s\n0\nnan\n", r"trace:3:1: t_s is 'nan' \("),
    "a window twice": ("t_s,requests\n0,1\n0,2\n", r"trace:3:1: t_s '0' appears twice \(add the counts up"),
    "JSON times beyond all time": (
        '{"timestamp": 0, "input_length": 3}\n{"timestamp": 1e299, "input_length": 3}\n',
        r"trace:2: timestamp is '1e\+299' \(give milliseconds: no epoch has so many\)",
    ),
    "no length": ('{"timestamp": 3}\n', r"trace:1: no input_length \("),
    "gzip in name alone": (b"\x1f\x8bnot at all", r"trace: broken gzip data: "),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_trace_is_named_with_its_place(trace: Any, name: str) -> None:
    content, message = BAD[name]
    with pytest.raises(ArrivalsError, match=message) as caught:
        trace(content)
    assert "\n" not in str(caught.value)


def test_a_packed_line_without_end_is_not_unpacked_whole(trace: Any) -> None:
    """60 MB of one line in 60 kB of gzip are refused after the first of them."""
    bomb = gzip.compress(b"t_s\n" + b"0" * 60_000_000, compresslevel=1)
    tracemalloc.start()
    with pytest.raises(ArrivalsError, match=r"trace:2: a line of more than 1,048,576 bytes"):
        trace(bomb)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "arrivals"
needs_traces = pytest.mark.skipif(not REAL.is_dir(), reason=f"the recorded arrivals are not in {REAL}")


def load(**config: Any) -> ArrivalProcess:
    return arrivals.validate_python(config).process(REAL)


@needs_traces
def test_azure_conversations() -> None:
    trace = read_recording(REAL / "azure_llm_conv_2023.csv")
    assert (trace.form, len(trace.time_s), trace.step_s, trace.size_tokens.max()) == ("azure", 19_366, 0.0, 14_050)
    process = load(kind="recorded", file="azure_llm_conv_2023.csv", lengths="rank")
    assert np.array_equal(process.times(19_366, 1, 0, "a"), trace.time_s)
    rank = process.size_ranks(19_366, 1, 0, "a")
    assert stats.spearmanr(rank, trace.size_tokens).statistic > 0.999
    assert stats.kstest(rank, stats.uniform.cdf).pvalue > 0.001


@needs_traces
def test_mooncake_conversations_are_spread_over_their_three_seconds() -> None:
    trace = read_recording(REAL / "mooncake_conversation.csv")
    assert (len(trace.time_s), trace.step_s, round(trace.duration_s)) == (12_031, 3.0, 3_540)
    arrival_s = load(kind="recorded", file="mooncake_conversation.csv").times(12_031, 1, 0, "a")
    assert np.all(np.abs(arrival_s - trace.time_s - 1.5) <= 1.51)
    assert len(np.unique(arrival_s)) == 12_031


@needs_traces
def test_nasa_s_three_days_keep_their_outage() -> None:
    process = load(kind="recorded", file="nasa_http_3days_persecond.csv")
    arrival_s = process.times(307_145, 1, 0, "a")
    counts = np.loadtxt(REAL / "nasa_http_3days_persecond.csv", delimiter=",", skiprows=1)
    assert counts[:, 1].sum() == 307_145
    seconds = np.bincount((counts[:, 0] - counts[0, 0]).astype(int), counts[:, 1])
    assert np.bincount(arrival_s.astype(int), minlength=len(seconds)).tolist() == seconds.tolist()
    assert 1_325 <= np.diff(arrival_s).max() <= 1_328
    assert process.times(307_146, 1, 0, "a")[-1] == pytest.approx(arrival_s[0] + 259_191, abs=1)


@needs_traces
def test_servegen_s_fortnight_of_rates() -> None:
    process = load(kind="varying", series={"csv": "servegen_m-mid_rate.csv"})
    rates = np.loadtxt(REAL / "servegen_m-mid_rate.csv", delimiter=",", skiprows=1)[:, 1]
    assert "2,016 windows, 84 of them zero or missing, taken as without arrivals" in process.account
    assert process.mean_rate_rps == pytest.approx(rates.mean())
    assert load(kind="varying", series={"csv": "servegen_m-mid_rate.csv", "zeros": "hold"}).mean_rate_rps > 1.02 * rates.mean()
    thinned = load(kind="varying", series={"csv": "servegen_m-mid_rate.csv", "rate_rps": 0.5})
    arrival_s = thinned.times(600_000, 1, 0, "a")
    day = 86_400.0
    observed = np.diff(np.searchsorted(arrival_s, np.arange(15) * day))[:13]
    expected = rates.reshape(14, 144).sum(axis=1)[:13] * 600 * 0.5 / rates.mean()
    assert np.all(np.abs(observed - expected) < 4 * np.sqrt(expected))
