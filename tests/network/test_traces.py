"""What becomes of samples, against a plain walk through them; figures of a trace by hand; longer traces by resampling."""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network import traces
from simnmt.network.series import BandwidthSeries, RttSeries, TraceError
from simnmt.network.series_csv import SeriesTable, read_series
from simnmt.network.traces import read_trace
from simnmt.network.traces.summary import autocorrelation, format_facts, summarise
from simnmt.network.traces.trace import Trace, align_starts, mend, output_paths, resample, write_traces

Samples = list[tuple[float, float | None]]


def trace_of(samples: Samples, quantity: Any = "rtt", **more: Any) -> Trace:
    times, values = zip(*samples, strict=True)
    value = np.array([math.nan if sample is None else sample for sample in values], dtype=float)
    return mend(quantity, np.array(times, dtype=float), value, "measured", "by hand", **more)


def evenly(values: Any, quantity: Any = "rtt") -> Trace:
    return trace_of([(float(second), value) for second, value in enumerate(values)], quantity)


some_samples = st.lists(
    st.tuples(st.integers(-50, 50).map(float), st.none() | st.floats(0.001, 5)), min_size=1, max_size=30
).filter(lambda samples: any(value is not None for _, value in samples))


@given(some_samples)
def test_mending_is_what_a_walk_in_order_finds(samples: Samples) -> None:
    first: dict[float, float | None] = {}
    for time, value in samples:
        if first.get(time) is None:
            first[time] = value
    walked, held = [], None
    for time in sorted(first):
        lost = first[time] is None
        held = held if lost else first[time]
        if held is not None:
            walked.append((time, held, lost))
    trace = trace_of(samples)
    began = walked[0][0]
    assert list(zip(trace.time_s.tolist(), trace.value.tolist(), trace.lost.tolist(), strict=True)) == [
        (time - began, value, lost) for time, value, lost in walked
    ]
    assert trace.began_s == began
    assert trace.lost_before == sum(1 for time in first if time < began)
    assert trace.lost_samples == sum(value is None for value in first.values())
    back = sum(later < earlier for (earlier, _), (later, _) in itertools.pairwise(samples))
    assert any(f"{back} sample" in remark and "sorted by time" in remark for remark in trace.remarks) is (back > 0)
    assert any("repeated the time" in remark for remark in trace.remarks) is (len(first) < len(samples))


def test_values_that_no_network_has_are_lost_and_counted() -> None:
    trace = evenly([0.05, 1e300, 0.0, -1.0, 0.06])
    assert (trace.value.tolist(), trace.lost_samples) == ([0.05, 0.05, 0.05, 0.05, 0.06], 3)
    assert any(remark.endswith("so lost: 3") for remark in trace.remarks)


def test_a_single_sample_is_accepted_and_none_refused_with_what_is_known() -> None:
    trace = trace_of([(7.0, 0.05)])
    assert (trace.series("x").at_one(123.4), trace.series("x").duration_s) == (0.05, 1.0)
    assert trace.remarks == ("one sample alone: the same value at all times",)
    with pytest.raises(TraceError, match=r"RTT: no sample of 2 arrived: it rained"):
        trace_of([(0, None), (1, None)], remarks=("it rained",))


def test_traces_of_one_clock_begin_together_with_what_holds_then() -> None:
    rtt = trace_of([(100, 0.05), (110, None), (120, 0.07)])
    rate = trace_of([(95, 1e6), (105, 2e6), (115, None), (125, 4e6)], "downlink")
    rtt, rate = align_starts([rtt, rate])
    assert (rtt.began_s, rate.began_s) == (100, 100)
    assert (rate.time_s.tolist(), rate.value.tolist()) == ([0, 5, 15, 25], [1e6, 2e6, 2e6, 4e6])
    assert (rate.lost.tolist(), rate.lost_samples) == ([False, False, True, False], 1)
    rtt, rate, _ = align_starts([rtt, rate, trace_of([(116, 5.0)])])
    assert (rate.time_s.tolist(), rate.value.tolist(), rate.lost_samples) == ([0, 9], [2e6, 4e6], 1)
    assert (rtt.time_s.tolist(), rtt.lost.tolist(), rtt.lost_samples) == ([0, 4], [False, False], 1)


def test_tenths_of_a_unix_clock_stay_tenths() -> None:
    """A Unix time is known to a quarter of a microsecond only, and differences of such would show it."""
    clock = [1_700_000_603.0 + tenth / 10 for tenth in range(30)]
    rtt = trace_of([(time, 0.05) for time in clock[11:]])
    for trace in align_starts([rtt, trace_of([(time, 1e6 + time) for time in clock], "downlink")]):
        assert trace.time_s.tolist() == [tenth / 10 for tenth in range(19)]
        assert trace.value[0] in (0.05, 1e6 + clock[11])


@given(some_samples, st.sampled_from(["rtt", "downlink"]))
def test_what_is_written_is_read_again_by_a_scenario_and_by_inspect(samples: Samples, quantity: str) -> None:
    scale = 1 if quantity == "rtt" else 1e6
    trace = trace_of([(time, None if value is None else value * scale) for time, value in samples], quantity, lost_before=3)
    with tempfile.TemporaryDirectory() as folder:
        (path,) = write_traces([trace], Path(folder) / "x.csv")
        (again,) = read_trace(path)
        series = read_series(RttSeries if quantity == "rtt" else BandwidthSeries, path)
    assert series.value == pytest.approx(trace.value, abs=1e-9)
    assert series.time_s.tolist() == again.time_s.tolist() == trace.time_s.tolist()
    assert (series.lost, series.kind, series.source) == (trace.lost_samples, "measured", "by hand")
    assert (again.lost.tolist(), again.lost_samples) == (trace.lost.tolist(), trace.lost_samples)
    assert not any("column" in remark for remark in again.remarks), "simnmt knows its own columns"


def test_several_series_take_a_word_into_their_names(tmp_path: Path) -> None:
    both = [trace_of([(1.7e9, 0.05)]), trace_of([(1.7e9, 1e6)], "downlink")]
    for name in ("x.csv", "x"):
        assert [path.name for path in output_paths(both, tmp_path / name)] == ["x.rtt.csv", "x.downlink.csv"]
        assert output_paths(both[:1], tmp_path / name) == [tmp_path / name]
    notes = SeriesTable(write_traces(both, tmp_path / "x.csv")[0]).notes
    assert (notes["began"], notes["made"]) == ("2023-11-14 22:13:20+00:00", "simnmt trace import")
    assert "one sample alone" in notes["remarks"]


def test_a_new_format_is_a_reader_and_a_line_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy").write_text("toy 50 60")

    def read(source: Any, options: Any) -> list[Trace]:
        return [evenly([float(word) / 1e3 for word in source.text.split()[1:]])]

    monkeypatch.setattr(traces, "FORMATS", (traces.Format("toy", lambda source: source.text.startswith("toy"), read),))
    assert read_trace(tmp_path / "toy")[0].value.tolist() == [0.05, 0.06]


def test_the_clock_the_losses_and_the_mean_are_counted_by_hand() -> None:
    values = [None, 0.05, None, None, 0.09, 0.05, None]
    summary = summarise(trace_of([*zip([0, 10, 20, 30, 40, 90, 100], values, strict=True)]))
    assert (summary["samples"], summary["duration_s"]) == (6, 100.0)
    assert (summary["spacing_s"], summary["gaps"]) == ([10.0, 10.0, 50.0], 1)
    assert (summary["lost"], summary["lost_share"]) == (4, 4 / 7)
    # From 20 to 40 s after the beginning, and from the last sample to the end of the lap.
    assert [summary[key] for key in ("outages", "outage_most_samples", "outage_most_s", "outage_s")] == [2, 2, 20.0, 30.0]
    assert summary["mean"] == pytest.approx((30 * 0.05 + 50 * 0.09 + 20 * 0.05) / 100)
    assert summary["quantiles"]["p50"] == pytest.approx(0.05)


def test_quantiles_are_of_what_arrived_and_the_far_tail_needs_enough_of_it() -> None:
    values = np.random.default_rng(1).exponential(5e4, 10_000) + 1e4
    quantiles = summarise(evenly(values, "uplink"))["quantiles"]
    exact = {f"p{100 * share:g}": 1e4 - 5e4 * math.log(1 - share) for share in (0.5, 0.9, 0.99, 0.999)}
    assert {name: quantiles[name] for name in exact} == pytest.approx(exact, rel=0.12)
    assert summarise(evenly(values[1:], "uplink"))["quantiles"]["p99.9"] is None


def test_autocorrelation_is_that_of_the_process() -> None:
    random = np.random.default_rng(2)
    values = np.zeros(20_000)
    for i, shock in enumerate(random.normal(size=len(values) - 1)):
        values[i + 1] = 0.8 * values[i] + shock
    trace = evenly(5 + values / 10)
    assert (autocorrelation(trace, 1), autocorrelation(trace, 10)) == pytest.approx((0.8, 0.8**10), abs=0.03)
    lossy = [None if lost else value for lost, value in zip(random.random(len(values)) < 0.3, 5 + values / 10, strict=True)]
    assert autocorrelation(evenly([5.0, *lossy]), 1) == pytest.approx(0.8, abs=0.03)


def test_what_never_changes_or_is_short_has_no_autocorrelation() -> None:
    assert autocorrelation(evenly([0.3] * 60), 1) is None
    summary = summarise(evenly([0.05]))
    assert (summary["samples"], summary["spacing_s"], summary["gaps"], summary["mean"]) == (1, None, 0, 0.05)
    assert json.loads(json.dumps(summary, allow_nan=False))["autocorrelation"] == {"lag_1": None, "lag_10": None}
    assert ("autocorrelation, lag 1", "not defined") in format_facts(evenly([0.05]))


def made_trace(samples: int = 2_000) -> Trace:
    """An autocorrelated RTT each two seconds, of which runs of ten are lost."""
    steps = np.random.default_rng(3).normal(size=samples)
    wander = np.convolve(steps, 0.9 ** np.arange(60))[:samples]
    rtt_s = np.where(np.arange(samples) % 200 < 10, np.nan, 0.05 + 0.002 * np.exp(0.3 * wander))
    return mend("rtt", 2.0 * np.arange(samples), rtt_s, "measured", "a test")


def test_quantiles_losses_and_autocorrelation_are_those_of_the_trace() -> None:
    measured = made_trace()
    drawn = resample(measured, 200_000.0, seed=1)
    assert (len(drawn.value), drawn.kind, drawn.time_s[1]) == (100_000, "synthetic", pytest.approx(2.0, rel=0.01))
    quantiles = [np.quantile(series.value[~series.lost], [0.1, 0.5, 0.9, 0.99]) for series in (measured, drawn)]
    np.testing.assert_allclose(quantiles[1], quantiles[0], rtol=0.01)
    assert drawn.lost.mean() == pytest.approx(measured.lost.mean(), abs=0.01)
    assert autocorrelation(drawn, 1) == pytest.approx(autocorrelation(measured, 1), abs=0.05)


def test_one_seed_gives_one_trace_and_a_block_of_one_sample_forgets_its_neighbours() -> None:
    measured = made_trace()
    first = [resample(measured, 600.0, seed) for seed in range(30)]
    assert not any(drawn.lost[0] for drawn in first)
    assert resample(measured, 600.0, 7).value.tolist() == first[7].value.tolist() != first[8].value.tolist()
    alone = resample(measured, 100_000.0, seed=1, block_s=0.001)
    assert autocorrelation(alone, 1) == pytest.approx(0.0, abs=0.03)
