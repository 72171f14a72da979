"""What becomes of readings, against a plain walk through them."""

from __future__ import annotations

import itertools
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.series_csv import read_bandwidth_csv, read_notes, read_rtt_csv
from simnmt.network.traces.readings import Readings, Trace, align_starts, mended
from simnmt.network.traces.trace_file import output_paths, read_trace, write_traces


def readings(samples: list[tuple[float, float | None]], quantity="rtt", **more) -> Readings:
    times, values = zip(*samples, strict=True) if samples else ((), ())
    value = np.array([math.nan if sample is None else sample for sample in values], dtype=float)
    return Readings(quantity, np.array(times, dtype=float), value, "measured", "by hand", **more)


samples = st.lists(st.tuples(st.integers(-50, 50).map(float), st.none() | st.floats(0.001, 5)), min_size=1, max_size=30)


@given(samples.filter(lambda given: any(value is not None for _, value in given)))
def test_mending_is_what_a_walk_in_order_finds(given) -> None:
    first: dict[float, float | None] = {}
    for time, value in given:
        if first.get(time) is None:
            first[time] = value
    walked, held = [], None
    for time in sorted(first):
        lost = first[time] is None
        held = held if lost else first[time]
        if held is not None:
            walked.append((time, held, lost))
    trace = mended(readings(given))
    began = walked[0][0]
    assert list(zip(trace.time_s.tolist(), trace.value.tolist(), trace.lost.tolist(), strict=True)) == [
        (time - began, value, lost) for time, value, lost in walked
    ]
    assert trace.began_s == began
    assert trace.lost_before == sum(1 for time in first if time < began)
    assert trace.lost_samples == sum(value is None for value in first.values())
    times = [time for time, _ in given]
    back = sum(later < earlier for earlier, later in itertools.pairwise(times))
    assert any(f"{back} sample" in remark and "sorted by time" in remark for remark in trace.remarks) is (back > 0)
    assert any("repeated the time" in remark for remark in trace.remarks) is (len(first) < len(given))


def test_a_clock_that_was_set_back_is_suspected() -> None:
    steady = [(float(second), 0.05) for second in range(1000)]
    back = [(float(second), 0.06) for second in range(400, 1400)]
    remark = "; ".join(mended(readings(steady + back)).remarks)
    assert "1 sample stood behind a later one, by 599 s at most" in remark
    assert "the clock seems to have been set back" in remark
    assert "set back" not in "; ".join(mended(readings([*steady, (997.5, 0.05)])).remarks)


def test_a_single_sample_is_accepted_with_a_remark() -> None:
    trace = mended(readings([(7.0, 0.05)]))
    assert trace.series("x").at_one(123.4) == 0.05
    assert trace.remarks == ("one sample alone: the same value at all times",)


def test_no_sample_is_refused_with_what_is_known() -> None:
    with pytest.raises(TraceError, match=r"RTT: no sample of 2 arrived: it rained"):
        mended(readings([(0, None), (1, None)], mended=("it rained",)))
    with pytest.raises(TraceError, match="downlink: no samples"):
        mended(readings([], quantity="downlink"))


def test_traces_of_one_clock_begin_together_with_what_holds_then() -> None:
    rtt = mended(readings([(100, 0.05), (110, None), (120, 0.07)]))
    rate = mended(readings([(95, 1e6), (105, 2e6), (115, None), (125, 4e6)], quantity="downlink"))
    rtt, rate = align_starts([rtt, rate])
    assert (rtt.began_s, rate.began_s) == (100, 100)
    assert (rate.time_s.tolist(), rate.value.tolist()) == ([0, 5, 15, 25], [1e6, 2e6, 2e6, 4e6])
    assert (rate.lost.tolist(), rate.lost_samples) == ([False, False, True, False], 1)
    late = mended(readings([(116, 5.0)]))
    rtt, rate, late = align_starts([rtt, rate, late])
    assert (rate.time_s.tolist(), rate.value.tolist(), rate.lost_samples) == ([0, 9], [2e6, 4e6], 1)
    assert (rtt.time_s.tolist(), rtt.lost.tolist(), rtt.lost_samples) == ([0, 4], [False, False], 1)


@given(samples.filter(lambda given: any(value is not None for _, value in given)), st.sampled_from(["rtt", "downlink"]))
def test_what_is_written_is_read_again_by_a_scenario_and_by_inspect(given, quantity) -> None:
    scale = 1 if quantity == "rtt" else 1e6
    scaled = [(time, None if value is None else value * scale) for time, value in given]
    trace = mended(readings(scaled, quantity=quantity, lost_before=3))
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_traces([trace], Path(folder) / "x.csv")
        (again,) = read_trace(path)
        if quantity == "rtt":
            series = read_rtt_csv(path)
            assert series.rtt_s == pytest.approx(trace.value, abs=1e-9)
        else:
            series = read_bandwidth_csv(path)
            assert series.rate_bps == pytest.approx(trace.value)
    assert series.time_s.tolist() == again.time_s.tolist() == trace.time_s.tolist()
    assert (series.lost, series.kind, series.source) == (trace.lost_samples, "measured", "by hand")
    assert (again.lost.tolist(), again.lost_samples) == (trace.lost.tolist(), trace.lost_samples)
    assert not any("column" in remark for remark in again.remarks), "simnmt knows its own columns"


def trace_of(quantity: str, began_s: float = 0.0) -> Trace:
    return mended(readings([(began_s, 0.05 if quantity == "rtt" else 1e6)], quantity=quantity))


def test_several_series_take_a_word_into_their_names(tmp_path: Path) -> None:
    traces = [trace_of("rtt", 1.7e9), trace_of("downlink", 1.7e9)]
    assert [path.name for path in output_paths(traces, tmp_path / "x.csv")] == ["x.rtt.csv", "x.downlink.csv"]
    assert [path.name for path in output_paths(traces, tmp_path / "x")] == ["x.rtt.csv", "x.downlink.csv"]
    assert [path.name for path in output_paths(traces[:1], tmp_path / "x")] == ["x"]
    notes = read_notes(write_traces(traces, tmp_path / "x.csv")[0])
    assert (notes["began"], notes["made"]) == ("2023-11-14 22:13:20+00:00", "simnmt trace import")
    assert "one sample alone" in notes["taken for granted"]


def test_tenths_of_a_unix_clock_stay_tenths() -> None:
    """A Unix time is known to a quarter of a microsecond only, and differences of such would show it."""
    clock = [1_700_000_603.0 + tenth / 10 for tenth in range(30)]
    rtt = mended(readings([(time, 0.05) for time in clock[11:]]))
    downlink = mended(readings([(time, 1e6 + time) for time in clock], quantity="downlink"))
    traces = align_starts([rtt, downlink])
    assert len(traces) == 2
    for trace in traces:
        assert trace.time_s.tolist() == [tenth / 10 for tenth in range(19)]
        assert trace.value[0] in (0.05, 1e6 + clock[11])
