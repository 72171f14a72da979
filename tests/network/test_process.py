from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from simnmt.network.errors import TraceError
from simnmt.network.process import SHARES, RttProcess, draw, fit
from simnmt.network.rtt_csv import read_rtt_csv
from simnmt.network.rtt_series import RttSeries

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "rtt" / "ripe_atlas_ping"


def lag_1_autocorrelation(values: NDArray[np.float64]) -> float | None:
    """Correlation of each value with the next; None where the values are too few or all alike."""
    centred = values - values.mean()
    power = float(np.dot(centred, centred))
    alike = power <= len(values) * (1e-12 * float(np.abs(values).max())) ** 2
    return None if len(values) < 3 or alike else float(np.dot(centred[:-1], centred[1:])) / power


def known() -> RttProcess:
    residuals_s = tuple(0.002 * (share - 0.5) for share in SHARES)
    return RttProcess(
        step_s=60.0,
        levels_s=(0.050, 0.080),
        mean_dwell_steps=(300.0, 100.0),
        shares=(0.75, 0.25),
        next_level=((0.0, 1.0), (1.0, 0.0)),
        residuals_s=(residuals_s, residuals_s),
        residual_lag_1=0.7,
        spike_share=0.03,
        spike_scale_s=0.010,
        spike_shape=0.3,
        spike_min_s=0.020,
        spike_max_s=0.500,
        source="known parameters",
    )


def quantiles(series: RttSeries) -> np.ndarray:
    return np.quantile(series.rtt_s, [0.5, 0.95, 0.99])


def test_a_fit_to_a_series_of_known_parameters_finds_them_again() -> None:
    found = fit(draw(known(), 60.0 * 20_000, seed=1))
    assert found.step_s == 60.0
    assert found.levels_s == pytest.approx((0.050, 0.080), abs=2e-4)
    assert found.shares == pytest.approx((0.75, 0.25), abs=0.1)
    assert found.mean_dwell_steps == pytest.approx((300, 100), rel=0.3)
    assert found.next_level == ((0.0, 1.0), (1.0, 0.0))
    # A stay of one or two samples is taken for a spike, which blurs the chain a little.
    assert found.residual_lag_1 == pytest.approx(0.7, abs=0.02)
    assert found.spike_share == pytest.approx(0.03, rel=0.1)
    assert found.spike_scale_s == pytest.approx(0.010, rel=0.3)
    assert found.spike_shape == pytest.approx(0.3, abs=0.2)


def test_what_a_fit_draws_looks_like_what_it_was_fitted_to() -> None:
    seen = draw(known(), 60.0 * 20_000, seed=2)
    again = draw(fit(seen), 60.0 * 20_000, seed=3)
    assert quantiles(again) == pytest.approx(quantiles(seen), rel=0.1)
    assert lag_1_autocorrelation(again.rtt_s) == pytest.approx(lag_1_autocorrelation(seen.rtt_s), abs=0.1)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 300))
def test_the_same_seed_draws_the_same_and_a_longer_series_begins_with_the_shorter(seed: int, count: int) -> None:
    long, short = draw(known(), 60.0 * 300, seed), draw(known(), 60.0 * count, seed)
    assert short.rtt_s.tolist() == long.rtt_s[:count].tolist()
    assert draw(known(), 60.0 * count, seed).rtt_s.tolist() == short.rtt_s.tolist()


def test_another_seed_draws_another_series() -> None:
    assert draw(known(), 6000.0, 1).rtt_s.tolist() != draw(known(), 6000.0, 2).rtt_s.tolist()


def test_what_is_drawn_is_labelled_synthetic_with_its_seed_and_source() -> None:
    series = draw(known(), 6000.0, 7, name="cp9")
    assert (series.name, series.kind, series.duration_s, len(series.rtt_s)) == ("cp9", "synthetic", 6000.0, 100)
    assert series.source == "drawn with seed 7 from a process fitted to known parameters"


def test_parameters_survive_json_to_the_last_bit() -> None:
    process = fit(draw(known(), 60.0 * 500, seed=4))
    assert RttProcess.from_json(process.to_json()) == process


def test_another_base_keeps_the_fluctuations() -> None:
    near, far = draw(known().with_base(0.030), 6000.0, 5), draw(known(), 6000.0, 5)
    assert far.rtt_s - near.rtt_s == pytest.approx(0.020)
    with pytest.raises(TraceError, match="base RTT of 0 ms"):
        known().with_base(0.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"levels_s": 3}', known().to_json().replace("0.75", "0.85")])
def test_parameters_that_make_no_process_are_refused(text: str) -> None:
    with pytest.raises(TraceError, match="parameters"):
        RttProcess.from_json(text)


def test_a_flat_series_gives_a_flat_draw() -> None:
    flat = RttSeries("flat", "measured", "", np.arange(60) * 5.0, np.full(60, 0.04))
    assert draw(fit(flat), 1000.0, 1).rtt_s == pytest.approx(np.full(200, 0.04))


def test_a_series_too_short_to_fit_is_refused() -> None:
    with pytest.raises(TraceError, match="has 49 samples"):
        fit(RttSeries("short", "measured", "", np.arange(49.0), np.full(49, 0.04)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-4, 10), min_size=50, max_size=80))
def test_any_series_long_enough_is_fitted_and_drawn_from(rtts: list[float]) -> None:
    series = draw(fit(RttSeries("any", "measured", "", np.arange(float(len(rtts))), np.array(rtts))), 200.0, 1)
    assert series.rtt_s.max() <= 2 * max(rtts)


def test_no_draw_falls_below_zero() -> None:
    deep = replace(known(), residuals_s=tuple(tuple(np.linspace(-0.2, 0, len(SHARES)).tolist()) for _ in range(2)))
    assert draw(deep, 6000.0, 1).rtt_s.min() > 0


@pytest.mark.skipif(not REAL.is_dir(), reason="the RIPE Atlas series are not beside this checkout")
def test_a_fit_to_the_first_half_of_a_real_series_foretells_the_second() -> None:
    """Every third series that is in order of time. What fails are routes that the first half never saw."""
    quantiles_hold, memory_holds, count = 0, 0, 0
    for path in sorted(REAL.glob("*.csv"))[::3]:
        try:
            series = read_rtt_csv(path, time_column="epoch_s")
        except TraceError as error:
            assert "earlier than the row before" in str(error)
            continue
        half = len(series.rtt_s) // 2
        first = RttSeries("first", "measured", "", series.time_s[:half], series.rtt_s[:half])
        second = series.rtt_s[half:]
        drawn = draw(fit(first), first.duration_s, seed=1)
        error = np.abs(quantiles(drawn) / np.quantile(second, [0.5, 0.95, 0.99]) - 1).max()
        memory = abs((lag_1_autocorrelation(drawn.rtt_s) or 0.0) - (lag_1_autocorrelation(second) or 0.0))
        quantiles_hold, memory_holds, count = quantiles_hold + (error < 0.05), memory_holds + (memory < 0.2), count + 1
    assert quantiles_hold >= 0.6 * count
    assert memory_holds >= 0.6 * count
