from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.series import RttSeries, constant_rtt


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


def test_after_one_lap_the_series_begins_again() -> None:
    assert THREE.duration_s == 30.0
    assert THREE.at(np.array([30.0, 40.0, 59.0, 3e9 + 10])).tolist() == [0.1, 0.2, 0.3, 0.2]


def test_before_time_0_the_lap_before_runs() -> None:
    assert THREE.at(np.array([-1.0, -10.0, -10.001, -30.0])).tolist() == [0.3, 0.3, 0.2, 0.1]
    # The remainder of a tiny negative time rounds to the full lap.
    assert THREE.at(np.array([-1e-20]))[0] == THREE.at_one(-1e-20) == 0.3


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


@given(columns(), st.lists(st.floats(-1e9, 1e9), min_size=1))
def test_one_time_and_many_agree(given_columns, when) -> None:
    subject = series(*given_columns)
    assert subject.at(np.array(when)).tolist() == [subject.at_one(moment) for moment in when]


def test_lookup_keeps_the_shape_of_its_argument() -> None:
    assert THREE.at(np.zeros((2, 3))).shape == (2, 3)
    assert THREE.at(np.empty(0)).shape == (0,)


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


def test_a_constant_network_is_the_same_at_all_times() -> None:
    always = constant_rtt(0.05)
    assert (always.kind, always.duration_s, always.mean_s) == ("constant", 1.0, 0.05)
    assert always.at(np.array([-7.3, 0.0, 0.99, 1e6])).tolist() == [0.05] * 4


def test_a_series_survives_pickling_and_cannot_be_written_to() -> None:
    again = pickle.loads(pickle.dumps(THREE))
    assert again.at(np.array([12.0])).tolist() == [0.2]
    assert copy.copy(THREE).at_one(25.0) == 0.3
    with pytest.raises(ValueError, match="read-only"):
        THREE.rtt_s[0] = 9.0


@pytest.mark.parametrize(
    ("times", "rtts"),
    [
        ([], []),
        ([0, 1], [0.1]),
        ([1, 2], [0.1, 0.1]),
        ([0, 2, 1], [0.1, 0.1, 0.1]),
        ([0, 1, 1], [0.1, 0.1, 0.1]),
        ([0, np.nan], [0.1, 0.1]),
        ([0, 1], [0.1, np.nan]),
        ([0, 1], [0.1, 0.0]),
        ([0, 1], [0.1, -1.0]),
        ([0, 1], [0.1, np.inf]),
    ],
)
def test_columns_that_make_no_function_of_time_are_refused(times, rtts) -> None:
    with pytest.raises(TraceError, match="RTT series test"):
        series(times, rtts)


@pytest.mark.parametrize("when", [np.nan, np.inf, -np.inf])
def test_a_lookup_at_no_time_is_refused(when: float) -> None:
    with pytest.raises(TraceError, match="not finite"):
        THREE.at(np.array([0.0, when]))
