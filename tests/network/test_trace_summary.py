from __future__ import annotations

import json
import math

import numpy as np
import pytest

from simnmt.network.traces.readings import Readings, Trace, mended
from simnmt.network.traces.resampling import resample
from simnmt.network.traces.summary import autocorrelation, format_duration, format_facts, format_title, summarise


def trace(values, times=None, quantity="rtt") -> Trace:
    value = np.array([math.nan if sample is None else sample for sample in values], dtype=float)
    time_s = np.arange(float(len(value))) if times is None else np.array(times, float)
    return mended(Readings(quantity, time_s, value, "measured", "by hand"))


def test_the_clock_the_losses_and_the_mean_are_counted_by_hand() -> None:
    summary = summarise(trace([None, 0.05, None, None, 0.09, 0.05, None], [0, 10, 20, 30, 40, 90, 100]))
    assert (summary.samples, summary.duration_s) == (6, 100.0)
    assert (summary.spacing_s, summary.spacing_least_s, summary.spacing_most_s, summary.gaps) == (10.0, 10.0, 50.0, 1)
    assert (summary.lost, summary.lost_share) == (4, 4 / 7)
    # From 20 to 40 s after the beginning, and from the last sample to the end of the lap.
    assert (summary.outages, summary.outage_most_samples, summary.outage_most_s, summary.outage_s) == (2, 2, 20.0, 30.0)
    assert summary.mean == pytest.approx((30 * 0.05 + 50 * 0.09 + 20 * 0.05) / 100)
    assert summary.quantiles[0.5] == pytest.approx(0.05)


def test_quantiles_are_of_what_arrived_and_the_far_tail_needs_enough_of_it() -> None:
    values = np.random.default_rng(1).exponential(5e4, 10_000) + 1e4
    summary = summarise(trace(values, quantity="uplink"))
    exact = {share: 1e4 - 5e4 * math.log(1 - share) for share in (0.5, 0.9, 0.99, 0.999)}
    assert {share: summary.quantiles[share] for share in exact} == pytest.approx(exact, rel=0.12)
    assert summarise(trace(values[1:], quantity="uplink")).quantiles[0.999] is None


def test_autocorrelation_is_that_of_the_process() -> None:
    random = np.random.default_rng(2)
    values = np.empty(20_000)
    values[0] = 0.0
    for i, shock in enumerate(random.normal(size=len(values) - 1)):
        values[i + 1] = 0.8 * values[i] + shock
    summary = summarise(trace(5 + values / 10, quantity="uplink"))
    assert (summary.autocorrelation[1], summary.autocorrelation[10]) == pytest.approx((0.8, 0.8**10), abs=0.03)
    lossy = [None if lost else value for lost, value in zip(random.random(len(values)) < 0.3, 5 + values / 10, strict=True)]
    assert summarise(trace([5.0, *lossy], quantity="uplink")).autocorrelation[1] == pytest.approx(0.8, abs=0.03)


def test_what_never_changes_has_no_autocorrelation() -> None:
    assert summarise(trace([0.3] * 60)).autocorrelation == {1: None, 10: None}
    assert autocorrelation(trace([0.1, 0.2]), 10) is None
    assert summarise(trace([0.3] * 60)).level_shifts == 0


def test_level_shifts_of_an_rtt_are_counted() -> None:
    noise = np.random.default_rng(3).normal(0, 0.0005, 300)
    levels = np.repeat([0.05, 0.08, 0.05], 100)
    summary = summarise(trace(levels + noise))
    assert (summary.levels, summary.level_shifts) == (2, 2)
    assert summarise(trace((levels + noise) * 1e9, quantity="uplink")).levels is None
    assert summarise(trace(levels[:40])).levels is None


def test_one_sample_is_summarised_too() -> None:
    summary = summarise(trace([0.05]))
    assert (summary.samples, summary.spacing_s, summary.gaps, summary.mean, summary.quantiles[0.99]) == (1, None, 0, 0.05, 0.05)
    assert json.loads(json.dumps(summary.as_json(), allow_nan=False))["autocorrelation"] == {"lag_1": None, "lag_10": None}
    assert ("autocorrelation, lag 1", "not defined") in format_facts(summary)


def test_a_person_reads_milliseconds_and_megabits() -> None:
    rtt, rate = summarise(trace([0.0501, None, 0.0999])), summarise(trace([5e6, 7e6], quantity="downlink"))
    assert format_title(rtt) == "RTT, measured"
    assert dict(format_facts(rtt))["p50"] == "75 ms"
    assert dict(format_facts(rtt))["lost"] == "1 (33.3 %) in 1 run, the longest of 1, 1 s; held at the value before"
    assert dict(format_facts(rate))["mean"] == "6 Mbit/s over time"
    assert dict(format_facts(rate))["lost"] == "0 (0 %)"
    assert rate.as_json()["unit"] == "bit/s"
    assert [format_duration(seconds) for seconds in (0.25, 120, 121, 7201, 200_000)] == [
        "0.25 s",
        "120 s",
        "2.017 min",
        "2 h",
        "2.315 days",
    ]


def made_trace(samples: int = 2_000) -> Trace:
    """An autocorrelated RTT each two seconds, of which runs of ten are lost."""
    steps = np.random.default_rng(3).normal(size=samples)
    wander = np.convolve(steps, 0.9 ** np.arange(60))[:samples]
    rtt_s = np.where(np.arange(samples) % 200 < 10, np.nan, 0.05 + 0.002 * np.exp(0.3 * wander))
    return mended(Readings("rtt", 2.0 * np.arange(samples), rtt_s, "measured", "a test"))


def test_quantiles_losses_and_autocorrelation_are_those_of_the_trace() -> None:
    measured = made_trace()
    drawn = resample(measured, 200_000.0, seed=1)
    assert (len(drawn.value), drawn.kind, drawn.time_s[1]) == (100_000, "synthetic", pytest.approx(2.0, rel=0.01))
    quantiles = [np.quantile(series.value[~series.lost], [0.1, 0.5, 0.9, 0.99]) for series in (measured, drawn)]
    np.testing.assert_allclose(quantiles[1], quantiles[0], rtol=0.01)
    assert drawn.lost.mean() == pytest.approx(measured.lost.mean(), abs=0.01)
    assert autocorrelation(drawn, 1) == pytest.approx(autocorrelation(measured, 1), abs=0.05)


def test_one_seed_gives_one_trace_and_no_trace_begins_with_a_loss() -> None:
    measured = made_trace()
    first = [resample(measured, 600.0, seed) for seed in range(30)]
    assert not any(drawn.lost[0] for drawn in first)
    assert resample(measured, 600.0, 7).value.tolist() == first[7].value.tolist()
    assert first[7].value.tolist() != first[8].value.tolist()


def test_a_block_of_one_sample_forgets_its_neighbours() -> None:
    alone = resample(made_trace(), 100_000.0, seed=1, block_s=0.001)
    assert autocorrelation(alone, 1) == pytest.approx(0.0, abs=0.03)
