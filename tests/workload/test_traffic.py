"""The traffic of a log: indices against processes with known ones, peaks by hand, and what a log's columns say."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.results.live_log import BeginRecord, HeardRecord, RequestRecord, format_record
from simnmt.workload.arrivals import ArrivalsError
from simnmt.workload.arrivals.traffic import CountingProcess, Dispersion, read_peak, read_traffic

REQUESTS = 100_000


def counting(moment_s: np.ndarray, duration_s: float | None = None) -> CountingProcess:
    last_s = float(moment_s[-1])
    return CountingProcess(moment_s, last_s * (1 + 1 / len(moment_s)) if duration_s is None else duration_s, 1.0, False)


def poisson(rate_rps: float, seed: int, requests: int = REQUESTS) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate_rps, requests))


def by_window(rows: Sequence[Dispersion]) -> dict[float, Dispersion]:
    return {row.window_s: row for row in rows}


def write(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# --- theory ---


def test_poisson_arrivals_have_indices_within_the_intervals_as_often_as_they_say() -> None:
    logs = [counting(poisson(20.0, seed, 3_000)).dispersions() for seed in range(200)]
    assert 0.93 < np.mean([all(row.verdict == "as Poisson" for row in rows) for rows in logs]) < 0.99
    assert np.mean([row.index for rows in logs for row in rows]) == pytest.approx(1.0, abs=0.01)


def test_batches_at_poisson_moments_have_the_index_of_their_sizes() -> None:
    """E[B^2] / E[B], in windows of any width."""
    random = np.random.default_rng(2)
    size = random.geometric(0.25, REQUESTS)
    rows = counting(np.repeat(poisson(5.0, 3), size)).dispersions()
    expected = float((size**2).mean() / size.mean())
    assert expected == pytest.approx(7.0, rel=0.02)
    for row in rows:
        if row.windows > 2_000:
            assert row.index == pytest.approx(expected, rel=5 * np.sqrt(2 / row.windows))
            assert row.verdict == "burstier"


def test_periodic_arrivals_have_an_index_near_0() -> None:
    process = counting(np.arange(20_000) * 0.025 + 0.001, 500.0)
    rows = process.dispersions()
    assert max(row.index for row in rows) < 1e-3
    assert {row.index for row in counting(np.arange(3_000) / 10.0, 300.0).dispersions()} == {0.0}, "moments on the edges"
    assert {row.verdict for row in rows} == {"more regular"}


def test_bursts_have_the_index_of_a_markov_modulated_poisson_process() -> None:
    """The closed form of the switched process, over four decades of windows."""
    random = np.random.default_rng(4)
    high, low, end_high, end_low = 50.0, 5.0, 0.5, 0.25  # rates, and how often a state of each ends, all a second
    phase_s = random.exponential(1.0, 20_000) / np.tile([end_high, end_low], 10_000)
    count = random.poisson(phase_s * np.tile([high, low], 10_000))
    begin_s = np.cumsum(phase_s) - phase_s
    moment_s = np.sort(np.repeat(begin_s, count) + random.random(count.sum()) * np.repeat(phase_s, count))
    switching = end_high + end_low
    mean = (high * end_low + low * end_high) / switching
    for row in counting(moment_s, float(phase_s.sum())).dispersions():
        if row.windows > 1_000:
            decay = switching * row.window_s
            excess = 2 * (high - low) ** 2 * end_high * end_low / (switching**3 * mean)
            expected = 1 + excess * (1 - (1 - np.exp(-decay)) / decay)
            assert row.index == pytest.approx(expected, rel=0.02 + 4 * np.sqrt(2 / row.windows)), row.window_s


# --- rates ---


@given(st.lists(st.integers(0, 400), min_size=3, max_size=40), st.integers(1, 90))
def test_the_peak_is_the_most_requests_in_any_window(ticks: list[int], width: int) -> None:
    tick = np.sort(np.array(ticks, np.float64))
    tick -= tick[0]
    process = CountingProcess(tick, float(tick[-1]) + 1, 1.0, True)
    most, begin = process.peak(float(width))
    assert most == max(((tick >= first) & (tick < first + width)).sum() for first in range(402))
    assert ((tick >= begin) & (tick < begin + width)).sum() == most
    windows, index, count = process.counts(float(width))
    dense = np.zeros(windows)
    dense[index] = count
    assert dense.tolist() == [((tick >= k * width) & (tick < (k + 1) * width)).sum() for k in range(windows)]


def test_rates_of_windows_are_those_of_numpy(tmp_path: Path) -> None:
    moment_s = poisson(3.0, 5, 3_000)
    traffic = read_traffic(write(tmp_path, "t_s\n" + "".join(f"{moment:.6f}\n" for moment in moment_s)))
    second, minute = traffic.rates
    dense = np.bincount((np.round(moment_s - moment_s[0], 6)).astype(int))[: second.windows]
    assert second.p95_rps == np.quantile(dense, 0.95, method="inverted_cdf")
    assert second.p50_rps == np.quantile(dense, 0.5, method="inverted_cdf")
    assert second.peak_rps >= dense.max() and minute.p99_rps is None, "of 16 windows"
    assert traffic.rate_rps == pytest.approx(3.0, rel=0.1)


def test_counts_by_second_are_counted_in_seconds_and_more(tmp_path: Path) -> None:
    rows = "".join(f"{second},{1 + 3 * (second == 130)}\n" for second in range(600) if not 300 <= second < 480)
    traffic = read_traffic(write(tmp_path, f"t_s,requests\n{rows}"))
    second, minute = traffic.rates
    assert (second.peak_rps, second.peak_s, minute.peak_rps) == (4.0, 130.0, 63 / 60)
    assert [row.window_s for row in traffic.dispersions][:2] == [1.0, 2.0]


def test_the_moments_are_those_of_the_log_s_clock(tmp_path: Path) -> None:
    begin = np.datetime64("2024-03-01T22:30:00")
    rows = [str(begin + np.timedelta64(60 * k, "s")) for k in range(60 * 49)]
    rows += [f"2024-03-03T00:00:{k % 60:02d}" for k in range(60)]
    traffic = read_traffic(write(tmp_path, "timestamp\n" + "\n".join(sorted(rows)) + "\n"))
    assert traffic.recording.moment(traffic.rates[1].peak_s) == "2024-03-03 00:00:00"
    assert read_traffic(write(tmp_path, "t_s\n1700000000\n1700000009.5\n")).recording.moment(0.0) == "2023-11-14 22:13:20 UTC"


# --- columns ---


def test_texts_lengths_and_pairs_are_those_of_the_columns(tmp_path: Path) -> None:
    rows = [("hallo", "de", "en", 3), ("welt", "de", "en", 5), ("hallo", "de", "en", ""), ("chat", "fr", "en", 10)]
    lines = "".join(f"{place},{text},{src},{tgt},{size}\n" for place, (text, src, tgt, size) in enumerate(rows))
    traffic = read_traffic(write(tmp_path, f"t_s,text,source_lang,target_lang,tgt_len\n{lines}"))
    hit_rates = [{"entries": size, "share": share} for size, share in ((1, 0.0), (2, 0.25), (3, 0.25))]
    repeats = {"column": "text", "distinct": 3, "repeated_share": 0.25, "most_frequent": 2, "hit_rates": hit_rates}
    assert traffic.repeats == repeats
    target, characters = traffic.lengths
    assert [target[key] for key in ("name", "requests", "mean", "most")] == ["target tokens", 3, 6.0, 10.0]
    assert (characters["name"], characters["mean"]) == ("source characters", 4.5)
    assert traffic.pairs == [
        {"pair": "de-en", "requests": 3, "share": 0.75, "rate_rps": 0.75},
        {"pair": "fr-en", "requests": 1, "share": 0.25, "rate_rps": 0.25},
    ]


def test_a_log_of_a_live_gateway_counts_its_requests_by_their_arrival(tmp_path: Path) -> None:
    """Its lines are in the order in which requests end; a refused one has no length."""
    arrived = [(3.0, 12, 9), (1.0, 4, 5), (2.0, None, None), (9.5, 8, 7)]
    records: list[Any] = [BeginRecord("cnmt", ("gateway", "cloud")), HeardRecord(0, 0.5, 0.1, 0.0, ())]
    for request, (ingress_s, src, tgt) in enumerate(arrived):
        timing = {"queue_s": 0.0, "execution_s": 0.1, "transfer_s": 0.0, "egress_s": ingress_s + 5}
        ended: Any = {"target": 0, "device": "gateway", "outcome": "done" if src else "refused"}
        records.append(RequestRecord(request, ingress_s, ingress_s, src, tgt, **ended, **timing))
    traffic = read_traffic(write(tmp_path, "".join(map(format_record, records)), "gateway.jsonl"))
    assert traffic.process.tick.tolist() == [0.0, 1.0, 2.0, 8.5]
    assert [(row["name"], row["requests"], row["mean"]) for row in traffic.lengths] == [
        ("source tokens", 3, 8.0), ("target tokens", 3, 7.0),
    ]  # fmt: skip


def test_identities_may_be_lists_as_mooncake_s(tmp_path: Path) -> None:
    blocks = [[0, 1], [0, 2], [0, 1], [0, 1]]
    lines = [{"timestamp": 1500 * k, "input_length": 9, "hash_ids": ids} for k, ids in enumerate(blocks)]
    traffic = read_traffic(write(tmp_path, "".join(json.dumps(line) + "\n" for line in lines), "log.jsonl"))
    assert traffic.repeats is not None and traffic.repeats["repeated_share"] == 0.5


# --- the peak of a plan ---


def test_a_peak_of_poisson_arrivals_has_no_burst_but_one_of_batches_has(tmp_path: Path) -> None:
    def peak(moment_s: np.ndarray) -> Any:
        return read_peak(write(tmp_path, "t_s\n" + "".join(f"{moment:.4f}\n" for moment in moment_s)), 60.0)

    assert sum(bool(peak(poisson(10.0, seed, 6_000)).doubt) for seed in range(12)) <= 1
    bursty = peak(np.sort(np.repeat(poisson(2.0, 1, 1_200), 5) + np.tile(np.arange(5) * 1e-3, 1_200)))
    assert bursty.doubt and bursty.rate_rps > 10.0


# --- bad input ---


@pytest.mark.parametrize(
    ("text", "line", "read"),
    [
        ("city,tokens\nBern,3\n", 1, read_traffic),
        ("t_s\n5\n", None, read_traffic),
        ("t_s\n5\n3\n", 3, read_traffic),
        ("", None, read_traffic),
        ("t_s\n0\n1\n2\n", None, lambda path: read_peak(path, 60.0)),
        ("t_s,rate_rps\n0,1\n600,2\n", None, read_traffic),
        ("t_s,requests\n0,1\n60,2\n", None, lambda path: read_peak(path, 1.0)),
    ],
)
def test_what_is_no_log_is_refused_with_its_place(
    tmp_path: Path, text: str, line: int | None, read: Callable[[Path], Any]
) -> None:
    with pytest.raises(ArrivalsError) as refused:
        read(write(tmp_path, text))
    assert refused.value.path == str(tmp_path / "log.csv") and refused.value.line == line and refused.value.remedy
