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

from simnmt.workload.arrivals import Arrivals, RandomStream
from simnmt.workload.arrivals.varying import VaryingProcess

arrivals: TypeAdapter[Any] = TypeAdapter(Arrivals)
HOUR_S = 3600.0


def varying(**keys: Any) -> VaryingProcess:
    return arrivals.validate_python({"kind": "varying", **keys}).process(Path())


def rng(seed: int = 1, replication: int = 0) -> RandomStream:
    return RandomStream(seed, replication, "a")


def expected_by_cosine(time_s: np.ndarray, mean_rps: float, swing: float, peak_s: float) -> np.ndarray:
    """Integral of mean * (1 + swing * cos(2 pi (t - peak) / day)) from 0 to t."""
    turn = 2 * np.pi / 86_400
    return mean_rps * (time_s + swing / turn * (np.sin(turn * (time_s - peak_s)) + np.sin(turn * peak_s)))


# --- a day ---


@pytest.mark.parametrize(("swing", "start_hour"), [(0.6, 0.0), (1.0, 0.0), (0.6, 9.25)])
def test_a_daily_curve_is_a_cosine(swing: float, start_hour: float) -> None:
    """In each hour of three days a Poisson number of requests with the cosine's integral for its mean."""
    process = varying(daily={"swing": swing, "peak_hour": 15, "start_hour": start_hour}, rate_rps=2.0)
    arrival_s = process.times(600_000, rng(1))
    edges = np.arange(73) * HOUR_S
    observed = np.diff(np.searchsorted(arrival_s, edges))
    expected = np.diff(expected_by_cosine(edges, 2.0, swing, (15 - start_hour) * HOUR_S))
    squares = (observed - expected) ** 2 / expected
    assert stats.chi2(72).sf(squares.sum()) > 0.001
    assert np.argmax(expected[:24]) in (observed[:24].argsort()[-4:])


def test_gaps_in_expected_requests_are_exponential() -> None:
    """The time-change theorem, with the closed form of the integral in place of the curve's minutes."""
    arrival_s = varying(daily={"swing": 0.9, "peak_hour": 4}, rate_rps=1.0).times(100_000, rng(2))
    gap = np.diff(expected_by_cosine(arrival_s, 1.0, 0.9, 4 * HOUR_S), prepend=0.0)
    assert stats.kstest(gap, stats.expon.cdf).pvalue > 0.001
    assert abs(np.corrcoef(gap[1:], gap[:-1])[0, 1]) < 4 / np.sqrt(100_000)


# --- steps ---


def test_steps_follow_one_another_and_begin_anew() -> None:
    steps = [{"for_s": 100, "rate_rps": 1.0}, {"for_s": 50, "rate_rps": 0.0}, {"for_s": 10, "rate_rps": 40.0}]
    process = varying(steps=steps)
    assert process.mean_rate_rps == pytest.approx(500 / 160)
    arrival_s = process.times(200_000, rng(4))
    laps = int(arrival_s[-1] // 160)
    within = arrival_s[arrival_s < laps * 160] % 160
    observed = np.histogram(within, [0, 100, 150, 160])[0]
    assert observed[1] == 0
    assert abs(observed[0] - 100 * laps) < 4 * np.sqrt(100 * laps)
    assert abs(observed[2] - 400 * laps) < 4 * np.sqrt(400 * laps)
    assert stats.kstest(within[within >= 150], stats.uniform(150, 10).cdf).pvalue > 0.001


def test_one_step_is_plain_poisson() -> None:
    poisson = arrivals.validate_python({"kind": "poisson", "rate_rps": 4.0}).process(Path())
    stepped = varying(steps=[{"for_s": 10, "rate_rps": 4.0}])
    assert np.allclose(stepped.times(70_000, rng(1)), poisson.times(70_000, rng(1)), rtol=1e-12)


# --- the change of time ---

curves = st.lists(st.tuples(st.floats(0.1, 100), st.sampled_from((0.0, 0.5, 3.0, 1e-3, 700.0))), min_size=1, max_size=8).filter(
    lambda steps: any(rate for _, rate in steps)
)


def curve_of(steps: list[tuple[float, float]]) -> VaryingProcess:
    return varying(steps=[{"for_s": for_s, "rate_rps": rate_rps} for for_s, rate_rps in steps])


def expected_by(curve: VaryingProcess, time_s: np.ndarray) -> np.ndarray:
    """Expected requests up to each time, by linear interpolation of the integral at the edges."""
    counts = np.concatenate(([0.0], np.cumsum(curve.rate_rps * np.diff(curve.edge_s))))
    laps, within = np.divmod(time_s, curve.duration_s)
    return laps * counts[-1] + np.interp(within, curve.edge_s, counts)


@given(curves, st.floats(1e-3, 500))
def test_moments_invert_the_integral_of_the_rate(steps: list[tuple[float, float]], scale: float) -> None:
    curve = curve_of(steps)
    expected = np.sort(np.random.default_rng(1).random(200)) * scale
    moment_s = curve.moments_s(expected)
    assert np.all(np.diff(moment_s) >= 0) and moment_s[0] >= 0
    rounding = 2.0 * np.spacing(moment_s[-1]) * max(max(step) for step in steps)  # of a moment, times the rate there
    assert np.allclose(expected_by(curve, moment_s), expected, rtol=1e-9, atol=1e-9 * scale + rounding)


@given(curves)
def test_counts_on_the_very_edges_lie_where_something_arrives(steps: list[tuple[float, float]]) -> None:
    """Where a rounded sum falls on the end of a lap or of a silence, or a hair beside it."""
    curve = curve_of(steps)
    counts = np.concatenate(([0.0], np.cumsum(curve.rate_rps * np.diff(curve.edge_s))))
    edges = np.unique(np.concatenate([counts + lap * counts[-1] for lap in (0, 1, 2, 3, 1001)]))
    expected = np.sort(np.concatenate((edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf))))
    moment_s = curve.moments_s(expected)
    assert np.all(np.isfinite(moment_s)) and np.all(np.diff(moment_s) >= 0)
    assert np.allclose(expected_by(curve, moment_s), expected, rtol=1e-9, atol=1e-9)


def test_a_silence_at_the_start_is_waited_out() -> None:
    moment_s = curve_of([(10.0, 0.0), (10.0, 1.0), (5.0, 0.0)]).moments_s(np.array([0.0, 4.0, 10.0, 12.0]))
    assert moment_s.tolist() == [10, 14, 35, 37]
