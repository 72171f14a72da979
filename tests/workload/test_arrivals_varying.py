"""Rates that change over time: counts against the integral of the rate, and gaps against the law in expected requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scipy import stats

from simnmt.workload.arrivals import ArrivalProcess, Arrivals, ArrivalsError
from simnmt.workload.arrivals.varying_rate import RateCurve, pieces

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)
HOUR_S = 3600.0


def varying(base: Path = Path(), **keys: Any) -> ArrivalProcess:
    return arrivals.validate_python({"kind": "varying", **keys}).process(base)


def expected_by_cosine(time_s: np.ndarray, mean_rps: float, swing: float, peak_s: float) -> np.ndarray:
    """Integral of mean * (1 + swing * cos(2 pi (t - peak) / day)) from 0 to t."""
    turn = 2 * np.pi / 86_400
    return mean_rps * (time_s + swing / turn * (np.sin(turn * (time_s - peak_s)) + np.sin(turn * peak_s)))


# --- a day ---


@pytest.mark.parametrize(("swing", "start_hour"), [(0.6, 0.0), (1.0, 0.0), (0.6, 9.25)])
def test_a_daily_curve_is_a_cosine(swing: float, start_hour: float) -> None:
    """In each hour of three days a Poisson number of requests with the cosine's integral for its mean."""
    process = varying(daily={"rate_rps": 2.0, "swing": swing, "peak_hour": 15, "start_hour": start_hour})
    arrival_s = process.times(600_000, 1, 0, "a")
    edges = np.arange(73) * HOUR_S
    observed = np.diff(np.searchsorted(arrival_s, edges))
    expected = np.diff(expected_by_cosine(edges, 2.0, swing, (15 - start_hour) * HOUR_S))
    squares = (observed - expected) ** 2 / expected
    assert stats.chi2(72).sf(squares.sum()) > 0.001
    assert np.argmax(expected[:24]) in (observed[:24].argsort()[-4:])


def test_gaps_in_expected_requests_are_exponential() -> None:
    """The time-change theorem, with the closed form of the integral in place of the curve's minutes."""
    arrival_s = varying(daily={"rate_rps": 1.0, "swing": 0.9, "peak_hour": 4}).times(100_000, 2, 0, "a")
    gap = np.diff(expected_by_cosine(arrival_s, 1.0, 0.9, 4 * HOUR_S), prepend=0.0)
    assert stats.kstest(gap, stats.expon.cdf).pvalue > 0.001
    assert abs(np.corrcoef(gap[1:], gap[:-1])[0, 1]) < 4 / np.sqrt(100_000)


def test_hours_are_as_listed() -> None:
    hourly = [0.0] * 6 + [1.0, 2.0, 5.0, 8.0] + [4.0] * 8 + [3.0] * 5 + [0.5]
    arrival_s = varying(daily={"hourly_rps": hourly}).times(500_000, 3, 0, "a")
    days = int(arrival_s[-1] // 86_400)
    hour = (arrival_s[arrival_s < days * 86_400] % 86_400 // HOUR_S).astype(int)
    observed = np.bincount(hour, minlength=24)
    expected = np.array(hourly) * days * HOUR_S
    assert observed[:6].tolist() == [0] * 6
    assert stats.chi2(18).sf(((observed[6:] - expected[6:]) ** 2 / expected[6:]).sum()) > 0.001


def test_a_run_begins_at_its_hour() -> None:
    hourly = [1.0] * 12 + [0.0] * 12
    assert varying(daily={"hourly_rps": hourly, "start_hour": 13.5}).times(1, 1, 0, "a")[0] >= 10.5 * HOUR_S
    assert varying(daily={"hourly_rps": hourly, "start_hour": 11.5}).times(1, 1, 0, "a")[0] < 0.5 * HOUR_S


# --- steps ---


def test_steps_follow_one_another_and_begin_anew() -> None:
    steps = [{"for_s": 100, "rate_rps": 1.0}, {"for_s": 50, "rate_rps": 0.0}, {"for_s": 10, "rate_rps": 40.0}]
    process = varying(steps=steps)
    assert process.mean_rate_rps == pytest.approx(500 / 160)
    arrival_s = process.times(200_000, 4, 0, "a")
    laps = int(arrival_s[-1] // 160)
    within = arrival_s[arrival_s < laps * 160] % 160
    observed = np.histogram(within, [0, 100, 150, 160])[0]
    assert observed[1] == 0
    assert abs(observed[0] - 100 * laps) < 4 * np.sqrt(100 * laps)
    assert abs(observed[2] - 400 * laps) < 4 * np.sqrt(400 * laps)
    assert stats.kstest(within[within >= 150], stats.uniform(150, 10).cdf).pvalue > 0.001


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_burstiness_is_the_spread_of_gaps_in_expected_requests(cv: float) -> None:
    arrival_s = varying(steps=[{"for_s": 7, "rate_rps": 2.0}, {"for_s": 3, "rate_rps": 12.0}], gap_cv=cv).times(
        100_000, 5, 0, "a"
    )
    lap, within = np.divmod(arrival_s, 10)
    gap = np.diff(lap * 50 + np.where(within < 7, 2 * within, 14 + 12 * (within - 7)))
    assert gap.mean() == pytest.approx(1.0, rel=5 * cv / np.sqrt(100_000))
    assert gap.std() == pytest.approx(cv, rel=0.03)
    for most in (0.01, 0.1, 0.5, 1.0, 3.0):  # no test of the least gaps, which times of thousands of seconds cannot tell apart
        share = stats.gamma(cv**-2, scale=cv**2).cdf(most)
        assert np.mean(gap <= most) == pytest.approx(share, abs=5 * np.sqrt(share * (1 - share) / 100_000) + 1e-9)


def test_one_step_is_plain_poisson() -> None:
    poisson = arrivals.validate_python({"kind": "poisson", "rate_rps": 4.0}).process(Path())
    stepped = varying(steps=[{"for_s": 10, "rate_rps": 4.0}])
    assert np.allclose(stepped.times(70_000, 1, 0, "a"), poisson.times(70_000, 1, 0, "a"), rtol=1e-12)


# --- the change of time ---

curves = st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from((0.0, 0.5, 3.0, 1e-3, 700.0))), min_size=1, max_size=8).filter(
    lambda steps: any(rate for _, rate in steps)
)


def expected_by(curve: RateCurve, time_s: np.ndarray) -> np.ndarray:
    """Expected requests up to each time, by linear interpolation of the integral at the edges."""
    counts = np.concatenate(([0.0], np.cumsum(curve.rate_rps * np.diff(curve.edge_s))))
    laps, within = np.divmod(time_s, curve.duration_s)
    return laps * counts[-1] + np.interp(within, curve.edge_s, counts)


@given(curves, st.floats(1e-3, 500))
def test_moments_invert_the_integral_of_the_rate(steps: list[tuple[float, float]], scale: float) -> None:
    curve = pieces(*map(list, zip(*steps, strict=True)))
    expected = np.sort(np.random.default_rng(1).random(200)) * scale
    moment_s = curve.moments_s(expected.copy())
    assert np.all(np.diff(moment_s) >= 0) and moment_s[0] >= 0
    rounding = 2.0 * np.spacing(moment_s[-1]) * max(max(step) for step in steps)  # of a moment, times the rate there
    assert np.allclose(expected_by(curve, moment_s), expected, rtol=1e-9, atol=1e-9 * scale + rounding)


@given(curves)
def test_counts_on_the_very_edges_lie_where_something_arrives(steps: list[tuple[float, float]]) -> None:
    """Where a rounded sum falls on the end of a lap or of a silence, or a hair beside it."""
    curve = pieces(*map(list, zip(*steps, strict=True)))
    counts = np.concatenate(([0.0], np.cumsum(curve.rate_rps * np.diff(curve.edge_s))))
    edges = np.unique(np.concatenate([counts + lap * counts[-1] for lap in (0, 1, 2, 3, 1001)]))
    expected = np.sort(np.concatenate((edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf))))
    moment_s = curve.moments_s(expected.copy())
    assert np.all(np.isfinite(moment_s)) and np.all(np.diff(moment_s) >= 0)
    assert np.allclose(expected_by(curve, moment_s), expected, rtol=1e-9, atol=1e-9)


def test_a_silence_at_the_start_is_waited_out() -> None:
    assert pieces([10.0, 10.0, 5.0], [0.0, 1.0, 0.0]).moments_s(np.array([0.0, 4.0, 10.0, 12.0])).tolist() == [10, 14, 35, 37]


@given(curves, st.floats(0, 0.999), st.floats(0.01, 300))
def test_a_curve_begun_elsewhere_is_the_same_curve_later(
    steps: list[tuple[float, float]], share: float, after_s: float
) -> None:
    curve = pieces(*map(list, zip(*steps, strict=True)))
    start_s = share * curve.duration_s
    begun = curve.begun_at(start_s)
    assert begun.duration_s == pytest.approx(curve.duration_s) and begun.mean_rps == pytest.approx(curve.mean_rps)
    times_s = np.array([start_s, start_s + after_s])
    here, there = expected_by(curve, times_s), expected_by(begun, times_s - start_s)
    assert here[1] - here[0] == pytest.approx(there[1], rel=1e-6, abs=1e-6)


# --- a series of rates ---

SERIES = "# kind: measured\n# source: a service, CC0\nt_s,rate_rps\n1000,2\n1060,8\n1120,0\n1180,\n1240,5\n"


def test_windows_hold_until_the_next(tmp_path: Path) -> None:
    """The last as long as the one before it; a cell without data holds what came before it, a zero means none."""
    (tmp_path / "r.csv").write_text(SERIES)
    process = varying(tmp_path, series={"csv": "r.csv"})
    assert process.mean_rate_rps == pytest.approx((2 + 8 + 0 + 0 + 5) / 5)
    arrival_s = process.times(300_000, 6, 0, "a")
    laps = int(arrival_s[-1] // 300)
    observed = np.histogram(arrival_s[arrival_s < laps * 300] % 300, np.arange(6) * 60)[0]
    expected = np.array([2, 8, 0, 0, 5]) * 60 * laps
    assert observed[2:4].tolist() == [0, 0]
    assert np.all(np.abs(observed - expected) <= 4 * np.sqrt(expected))
    assert "(measured) of a service, CC0, 5 windows, 2 of them zero or missing, taken as without arrivals" in process.account


def test_zeros_may_mean_that_nothing_was_recorded(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SERIES)
    process = varying(tmp_path, series={"csv": "r.csv", "zeros": "hold"})
    assert process.mean_rate_rps == pytest.approx((2 + 8 + 8 + 8 + 5) / 5)
    assert "2 of them zero or missing, for which the rate before them is held" in process.account
    (tmp_path / "r.csv").write_text("t_s,rate_rps\n0,\n60,0\n120,8\n180,0\n")
    assert varying(tmp_path, series={"csv": "r.csv", "zeros": "hold"}).mean_rate_rps == 8


def test_a_series_can_be_given_another_mean(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(SERIES)
    process = varying(tmp_path, series={"csv": "r.csv", "rate_rps": 30})
    assert process.mean_rate_rps == pytest.approx(30) and "multiplied by 10" in process.account
    thrice = varying(tmp_path, series={"csv": "r.csv"})
    assert np.searchsorted(process.times(100_000, 1, 0, "a"), 60) == pytest.approx(1_200, abs=150)
    assert np.searchsorted(thrice.times(100_000, 1, 0, "a"), 60) == pytest.approx(120, abs=45)


def test_replications_begin_elsewhere_on_a_series_but_not_on_a_day(tmp_path: Path) -> None:
    """A series is a sample of what may happen; a day's curve is what is assumed to happen."""
    (tmp_path / "r.csv").write_text("t_s,rate_rps\n0,0\n1000,1000\n1001,0\n2001,0\n")
    series = varying(tmp_path, series={"csv": "r.csv"})
    first_s = [series.times(1, 1, replication, "a")[0] for replication in range(40)]
    assert first_s[0] == pytest.approx(1000, abs=1)
    assert stats.kstest(first_s[1:], stats.uniform(0, 3001).cdf).pvalue > 0.001
    hours = varying(daily={"hourly_rps": [0.0] * 23 + [1.0]})
    assert all(hours.times(1, 1, replication, "a")[0] == pytest.approx(23 * HOUR_S, abs=20) for replication in range(5))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("t_s,rate\n0,1\n9,1\n", r"r\.csv:1:1: no column rate_rps \(did you mean rate\?\)"),
        ("t_s,rate_rps\n0,1\n0,1\n", r"r\.csv:3:1: t_s 0 is not after the row before \(sort the rows"),
        ("t_s,rate_rps\n0,1\n1e300,1\n", r"r\.csv:3:1: t_s is '1e300' \(give seconds: no epoch has so many\)"),
        ("# only a note\n", r"r\.csv:1: no rows \("),
    ],
)
@pytest.mark.parametrize("zeros", ["quiet", "hold"])
def test_a_bad_series_is_named_with_its_place(tmp_path: Path, zeros: str, content: str | bytes, message: str) -> None:
    (tmp_path / "r.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ArrivalsError, match=message):
        varying(tmp_path, series={"csv": "r.csv", "zeros": zeros})


def test_other_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("when;who;load\r\n0;a;3\r\n60;b;5\r\n")
    process = varying(tmp_path, series={"csv": "r.csv", "time_column": "when", "rate_column": "load"})
    assert process.mean_rate_rps == pytest.approx(4)
