from __future__ import annotations

import copy
import pickle
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simnmt.network.configuration import NetworkConfiguration, load_network
from simnmt.network.outages import ALWAYS_UP, DownTimes, ListedOutages, drawn_spans, outage_spans
from simnmt.network.series import RttSeries, TraceError


def series(times: list[float], rtts: list[float]) -> RttSeries:
    return RttSeries("test", "measured", "by hand", np.array(times, float), np.array(rtts, float))


THREE = series([0, 10, 20], [0.1, 0.2, 0.3])


def naive(times: list[int], rtts: list[float], lap: float, when: int) -> float:
    """Walk through the samples one by one, laps subtracted one by one."""
    while when < 0:
        when += lap
    while when >= lap:
        when -= lap
    held = rtts[0]
    for time, rtt in zip(times, rtts, strict=True):
        if time <= when:
            held = rtt
    return held


def test_lookup_at_between_and_after_sample_times_holds_the_last_sample() -> None:
    when = np.array([0, 9.999, 10, 15, 20, 29.999])
    assert THREE.at(when).tolist() == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]


def test_laps_follow_each_other_before_and_after_time_0() -> None:
    assert THREE.duration_s == 30.0
    assert THREE.at(np.array([30.0, 40.0, 59.0, 3e9 + 10])).tolist() == [0.1, 0.2, 0.3, 0.2]
    assert THREE.at(np.array([-1.0, -10.0, -10.001, -30.0])).tolist() == [0.3, 0.3, 0.2, 0.1]
    # The remainder of a tiny negative time rounds to the full lap.
    assert THREE.at(np.array([-1e-20]))[0] == THREE.at_one(-1e-20) == 0.3
    assert THREE.at(np.zeros((2, 3))).shape == (2, 3)


@st.composite
def columns(draw: st.DrawFn) -> tuple[list[int], list[float]]:
    gaps = draw(st.lists(st.integers(1, 50).map(lambda half: 2 * half), max_size=12))
    times = [0, *np.cumsum(gaps).tolist()]
    rtts = draw(st.lists(st.floats(1e-4, 5), min_size=len(times), max_size=len(times)))
    return times, rtts


@given(columns(), st.lists(st.integers(-5000, 5000), min_size=1))
def test_lookup_is_what_walking_through_the_samples_finds(given_columns, when) -> None:
    times, rtts = given_columns
    subject = series(times, rtts)
    expected = [naive(times, rtts, subject.duration_s, moment) for moment in when]
    assert subject.at(np.array(when, float)).tolist() == expected
    assert [subject.at_one(float(moment)) for moment in when] == expected


def test_the_mean_weighs_each_sample_by_how_long_it_holds() -> None:
    uneven = series([0, 10, 40], [0.1, 0.2, 0.4])
    assert uneven.duration_s == 60.0
    assert uneven.mean_s == pytest.approx((10 * 0.1 + 30 * 0.2 + 20 * 0.4) / 60)
    evenly = (np.arange(6000) + 0.5) / 6000 * uneven.duration_s
    assert uneven.at(evenly).mean() == pytest.approx(uneven.mean_s)


@given(columns(), st.floats(1e-3, 2))
def test_scaling_reaches_the_mean_and_keeps_the_shape(given_columns, mean_s: float) -> None:
    subject = series(*given_columns)
    scaled = subject.scaled_to_mean(mean_s)
    assert scaled.mean_s == pytest.approx(mean_s)
    assert scaled.rtt_s / scaled.rtt_s[0] == pytest.approx(subject.rtt_s / subject.rtt_s[0])
    assert scaled.source.startswith("by hand; every RTT times")
    assert (scaled.kind, scaled.lost, scaled.duration_s) == (subject.kind, subject.lost, subject.duration_s)


def test_a_series_survives_pickling_and_cannot_be_written_to() -> None:
    again = pickle.loads(pickle.dumps(THREE))
    assert again.at(np.array([12.0])).tolist() == [0.2]
    assert copy.copy(THREE).at_one(25.0) == 0.3
    with pytest.raises(ValueError, match="read-only"):
        THREE.rtt_s[0] = 9.0


@pytest.mark.parametrize(("times", "rtts"), [([], []), ([0, 1, 1], [0.1, 0.1, 0.1]), ([0, 1], [0.1, np.inf]), ([0], [0])])
def test_columns_that_make_no_function_of_time_are_refused(times, rtts) -> None:
    with pytest.raises(TraceError, match="RTT series test"):
        series(times, rtts)


LOST = "time_s,rtt_ms\n0,50\n1,\n2,\n3,60\n4,\n5,55\n6,\n"
"""Samples are lost from 1 to 3, from 4 to 5 and from 6 to the end of the lap at 7."""


def outages_of(folder: Path, *, begin_s: float = 0.0, replication: int = 0, **keys: Any) -> DownTimes:
    (folder / "lost.csv").write_text(LOST)
    config = NetworkConfiguration.model_validate({"rtt": "lost.csv", **keys})
    link = load_network(config, folder, "n").link
    assert link.outages is not None
    return DownTimes(outage_spans(link.outages, (1, replication, "n"), link.rtt, begin_s))


def test_lost_samples_of_a_trace_are_outages_lap_after_lap(tmp_path: Path) -> None:
    of_trace = outages_of(tmp_path, outages="trace")
    down = [at_s for at_s in range(14) if of_trace.is_down(at_s + 0.5)]
    assert down == [1, 2, 4, 6, 8, 9, 11, 13]
    shifted = outages_of(tmp_path, outages="trace", begin_s=3.0)
    assert [at_s for at_s in range(7) if shifted.is_down(at_s + 0.5)] == [1, 3, 5, 6]


def test_listed_outages_are_at_their_times(tmp_path: Path) -> None:
    listed = outages_of(tmp_path, outages={"intervals_s": [[1, 2], [5, 5.5]]})
    assert [listed.is_down(at_s) for at_s in (0.9, 1.0, 1.9, 2.0, 5.2, 5.5)] == [False, True, True, False, True, False]


def test_a_trace_without_lost_samples_has_no_outages() -> None:
    config = NetworkConfiguration.model_validate({"rtt": {"constant_ms": 50}, "outages": "trace"})
    with pytest.raises(TraceError, match="RTT series n:"):
        load_network(config, Path(), "n")


SPANS = [(1.0, 2.0), (4.0, 4.5), (4.5, 6.0)]


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=20, unique=True), st.floats(0.0, 120.0))
def test_every_question_agrees_with_the_list_of_intervals(bounds: list[float], at_s: float) -> None:
    ends = sorted(bounds)[: len(bounds) // 2 * 2]
    spans = list(zip(ends[::2], ends[1::2], strict=True))
    down = DownTimes(iter(spans))
    assert (ALWAYS_UP.is_down(at_s), ALWAYS_UP.next_begin(at_s), ALWAYS_UP.down_s(at_s)) == (False, inf, 0.0)
    holding = [end_s for begin_s, end_s in spans if begin_s <= at_s < end_s]
    assert down.is_down(at_s) == bool(holding)
    assert down.up_from(at_s) == (holding or [at_s])[0]
    assert down.next_begin(at_s) == min((begin_s for begin_s, _ in spans if begin_s > at_s), default=inf)
    assert down.down_s(at_s) == pytest.approx(sum(min(end_s, at_s) - begin_s for begin_s, end_s in spans if begin_s < at_s))


def test_a_drawn_process_is_down_at_its_begin_as_often_as_later() -> None:
    processes = [DownTimes(drawn_spans(1, number, "x", 30.0, 10.0)) for number in range(2_000)]
    for at_s in (0.0, 5.0, 100.0):
        assert np.mean([process.is_down(at_s) for process in processes]) == pytest.approx(0.25, abs=0.03)
    left_s = [process.up_from(0.0) for process in processes if process.is_down(0.0)]
    assert np.mean(left_s) == pytest.approx(10.0, rel=0.15)


def test_a_drawn_process_is_the_same_however_it_is_read_and_different_in_each_replication(tmp_path: Path) -> None:
    outages = {"mean_between_s": 3.0, "mean_duration_s": 1.0}
    late, early, other = (outages_of(tmp_path, outages=outages, replication=number) for number in (0, 0, 1))
    asked = [early.is_down(float(at_s)) for at_s in range(0, 5_000, 7)]
    assert late.down_s(5_000.0) == early.down_s(5_000.0) != other.down_s(5_000.0)
    assert [late.is_down(float(at_s)) for at_s in range(0, 5_000, 7)] == asked


@pytest.mark.parametrize("spans", [[[3.0, 1.0]], [[1.0]], [[-1.0, 1.0]], [[1.0, 3.0], [2.0, 4.0]]])
def test_numbers_that_are_no_intervals_in_order_are_refused(spans: list[list[float]]) -> None:
    with pytest.raises(ValidationError) as caught:
        ListedOutages(intervals_s=spans)
    assert caught.value.errors()[0]["loc"][0] == "intervals_s"
    assert ListedOutages(intervals_s=[list(span) for span in SPANS]).intervals_s == tuple(SPANS)
