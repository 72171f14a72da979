from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.errors import TraceError
from simnmt.network.rtt_comparison import compare, figures, halves
from simnmt.network.rtt_components import DAY_S, Excursions, LevelShifts, QuantileLaw, fit_daily_swing, score_correlation
from simnmt.network.rtt_process import RttProcess, draw_series, fit_process
from simnmt.network.series import RttSeries

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "rtt" / "ripe_atlas_ping"


def known() -> RttProcess:
    body = QuantileLaw(shares=(0.0, 0.5, 1.0), values_s=(-0.001, 0.0, 0.002))
    return RttProcess(
        source="known parameters",
        step_s=60.0,
        levels=LevelShifts(
            levels_s=(0.050, 0.080, 0.095),
            samples=(12_000, 5_000, 3_000),
            shifts=((0, 1, 20), (1, 0, 10), (1, 2, 10), (2, 0, 10)),
        ),
        residuals=(body, body, body),
        slow_share=0.5,
        persistence=0.8,
        spikes=Excursions(
            runs=300, samples=300, heights=QuantileLaw(shares=(0.0, 0.9, 1.0), values_s=(0.03, 0.06, 0.4)), likeness=0
        ),
        bursts=Excursions(runs=240, samples=600, heights=QuantileLaw(shares=(0.0, 1.0), values_s=(0.11, 0.3)), likeness=0.5),
    )


SEEN = draw_series(known(), known().lap_s, seed=1)


@pytest.fixture(scope="module")
def refitted() -> RttProcess:
    return fit_process(SEEN)


def measured(rtt_s: np.ndarray, step_s: float = 5.0) -> RttSeries:
    return RttSeries("mine", "measured", "", np.arange(len(rtt_s)) * step_s, rtt_s)


def test_a_fit_to_a_series_of_known_parameters_finds_them_again() -> None:
    without_bursts = known().model_copy(update={"bursts": None})
    process = fit_process(draw_series(without_bursts, known().lap_s, seed=1))
    assert (process.step_s, process.lap_samples, process.daily) == (60.0, 20_000, None)
    assert process.levels.levels_s == pytest.approx((0.050, 0.080, 0.095), abs=3e-4)
    # The shortest of the geometric stays are taken for bursts, and a burst now and then for a stay.
    assert process.levels.samples == pytest.approx((12_000, 5_000, 3_000), rel=0.05)
    assert {(a, b) for a, b, _ in process.levels.shifts} >= {(0, 1), (1, 0), (1, 2), (2, 0)}
    assert sum(count for *_, count in process.levels.shifts) == pytest.approx(50, abs=15)
    assert process.slow_share * process.persistence == pytest.approx(0.4, abs=0.03)
    assert process.persistence == pytest.approx(0.8, abs=0.04)
    assert process.spikes is not None and process.spikes.samples == pytest.approx(300, rel=0.1)
    assert process.spikes.heights.values_s[-1] == pytest.approx(0.4, abs=0.003)


def test_bursts_are_distinguished_from_lone_spikes_with_the_likeness_of_their_heights() -> None:
    levels = LevelShifts(levels_s=(0.05,), samples=(20_000,), shifts=())
    rough = Excursions(runs=200, samples=500, heights=QuantileLaw(shares=(0.0, 1.0), values_s=(0.01, 0.2)), likeness=0.5)
    parts = {"levels": levels, "residuals": known().residuals[:1], "bursts": rough}
    process = fit_process(draw_series(known().model_copy(update=parts), known().lap_s, seed=1))
    assert process.spikes is not None and process.bursts is not None
    # Stays of a burst are geometric, so some 80 of the 200 are of one sample; some that keep a height are taken for levels.
    assert process.spikes.runs == pytest.approx(380, rel=0.05)
    assert process.bursts.runs == pytest.approx(120, rel=0.1)
    assert process.bursts.samples == pytest.approx(420, rel=0.1)
    assert process.bursts.likeness == pytest.approx(0.5, abs=0.1)


def test_what_a_fit_draws_looks_like_what_it_was_fitted_to(refitted: RttProcess) -> None:
    for seed in range(3):
        verdict = compare(figures(draw_series(refitted, refitted.lap_s, seed).rtt_s), figures(SEEN.rtt_s))
        assert verdict.holds and verdict.quantile_errors == pytest.approx((0, 0, 0), abs=0.02)
        assert verdict.lag_1_error == pytest.approx(0, abs=0.03)


def test_one_spike_that_carries_most_of_the_variance_is_in_every_draw() -> None:
    """Else the autocorrelation of a draw would be that of another series."""
    rtt_s = draw_series(known().model_copy(update={"spikes": None, "bursts": None}), known().lap_s, seed=2).rtt_s.copy()
    rtt_s[7_777] = 9.0
    seen, process = figures(rtt_s), fit_process(measured(rtt_s))
    assert seen.lag_1 < 0.3
    for seed in range(3):
        assert figures(draw_series(process, process.lap_s, seed).rtt_s).lag_1 == pytest.approx(seen.lag_1, abs=0.02)


def test_a_swing_that_the_days_agree_on_is_found_and_one_of_chance_is_not() -> None:
    hours = np.arange(14 * 24 * 12) / 12
    evening_s = 0.02 * np.exp(-(((hours % 24) - 20.5) ** 2) / 8)
    noise_s = np.random.default_rng(1).exponential(0.001, len(hours))
    route_s = np.where(hours < 150, 0.05, 0.09)
    seen = measured(route_s + noise_s + evening_s, 300.0)
    daily = fit_process(seen).daily
    assert daily is not None
    assert int(np.argmax(daily.hours_s)) == 20
    assert np.ptp(daily.hours_s) == pytest.approx(0.02, rel=0.1)
    assert fit_daily_swing(seen.time_s, route_s + noise_s) is None
    six = seen.time_s < 6.5 * DAY_S
    assert fit_daily_swing(seen.time_s[six], seen.rtt_s[six]) is None


def test_a_swing_survives_days_that_were_not_recorded() -> None:
    hours = np.arange(20 * 24 * 4) / 4
    rtt_s = 0.05 + 0.01 * np.sin(2 * np.pi * hours / 24) + np.random.default_rng(1).exponential(0.001, len(hours))
    there = (hours < 100) | (hours > 160)
    daily = fit_daily_swing(3600 * hours[there], rtt_s[there])
    assert daily is not None and int(np.argmax(daily.hours_s)) in (5, 6)


def test_scores_are_solved_for_such_that_values_have_their_mean_product() -> None:
    """Of lognormal values of sigma 1/2, scores of correlation r give the product a mean of exp((1 + r) / 4)."""
    shares = np.concatenate([np.linspace(0, 0.99, 400), np.linspace(0.99, 1, 400)[1:]])
    draws = np.exp(0.5 * np.random.default_rng(1).standard_normal(200_000))
    law = QuantileLaw.of(draws, shares)
    assert score_correlation(law, float(np.exp(0.25 + 0.125))) == pytest.approx(0.5, abs=0.03)
    assert score_correlation(law, 0.0) == 0.0
    assert score_correlation(law, 1e9) == 1.0


def test_a_process_keeps_far_fewer_numbers_than_the_series_has(refitted: RttProcess) -> None:
    assert refitted.parameters < 0.02 * len(SEEN.rtt_s)


def test_a_flat_series_gives_a_flat_draw() -> None:
    flat = fit_process(measured(np.full(60, 0.04)))
    assert draw_series(flat, 1000.0, 1).rtt_s == pytest.approx(np.full(200, 0.04))


def test_a_short_series_keeps_its_median_though_its_tail_is_long() -> None:
    rtt_s = 0.05 + 0.05 * np.random.default_rng(1).exponential(size=150)
    process = fit_process(measured(rtt_s))
    median_s = np.median([figures(draw_series(process, process.lap_s, seed).rtt_s).quantiles_s[0] for seed in range(20)])
    assert float(median_s) == pytest.approx(np.median(rtt_s), rel=0.04)


def test_a_series_too_short_to_fit_is_refused() -> None:
    with pytest.raises(TraceError, match="has 49 samples"):
        fit_process(measured(np.full(49, 0.04)))


@given(st.lists(st.floats(1e-4, 10), min_size=50, max_size=80))
def test_any_series_long_enough_is_fitted_and_drawn_from(rtts: list[float]) -> None:
    series = draw_series(fit_process(measured(np.array(rtts), 1.0)), 200.0, 1)
    assert len(series.rtt_s) == 200 and series.rtt_s.max() <= 2 * max(rtts)


@given(st.lists(st.sampled_from([0.01, 0.02, 0.5]), min_size=50, max_size=80), st.integers(0, 5))
def test_a_coarse_clock_is_no_obstacle(rtts: list[float], seed: int) -> None:
    process = fit_process(measured(np.array(rtts), 1.0))
    assert len(draw_series(process, process.lap_s, seed).rtt_s) == len(rtts)


def test_halves_are_the_samples_in_their_order() -> None:
    first, second = halves(SEEN)
    assert [*first.rtt_s, *second.rtt_s] == SEEN.rtt_s.tolist()
    assert second.time_s[0] == 0.0 and second.source == f"second half of {SEEN.source}"


def test_a_verdict_needs_all_four() -> None:
    one = figures(np.array([0.1, 0.1, 0.1, 0.2] * 50))
    assert compare(one, one).holds
    slower = figures(np.array([0.1, 0.1, 0.1, 0.22] * 50))
    assert not compare(slower, one).quantiles_hold and compare(slower, one).lag_1_holds
    sorted_ = figures(np.sort(np.array([0.1, 0.1, 0.1, 0.2] * 50)))
    assert compare(sorted_, one).quantiles_hold and not compare(sorted_, one).lag_1_holds
    assert figures(np.full(10, 0.1)).lag_1 == 0.0


@pytest.mark.skipif(not REAL.is_dir(), reason=f"the RIPE Atlas series are not in {REAL}")
def test_draws_from_a_fit_to_real_series_hold() -> None:
    """Every fourth series, to be quick."""
    held = []
    for path in sorted(REAL.glob("*.csv"))[::4]:
        with path.open() as file:
            rows = [(float(row["epoch_s"]), float(row["rtt_ms"]) / 1e3) for row in csv.DictReader(file) if row["rtt_ms"]]
        time_s, rtt_s = np.array(sorted(dict(rows).items())).T
        process = fit_process(RttSeries(path.stem, "measured", "", time_s - time_s[0], rtt_s))
        assert process.parameters <= 0.12 * len(rtt_s)
        held.append(compare(figures(draw_series(process, process.lap_s, 1).rtt_s), figures(rtt_s)).holds)
    assert np.mean(held) >= 0.7
