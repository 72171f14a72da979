from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simnmt.network.errors import TraceError
from simnmt.network.rtt_comparison import figures
from simnmt.network.rtt_components import DailySwing, Excursions, LevelShifts, QuantileLaw
from simnmt.network.rtt_process import RttProcess, draw_series, process_text, read_process

STEP_S = 60.0
LAP_S = 6_000 * STEP_S
BODY = QuantileLaw(shares=(0.0, 1.0), values_s=(-0.001, 0.001))


def known(**other: object) -> RttProcess:
    parts = {
        "step_s": STEP_S,
        "levels": LevelShifts(levels_s=(0.050, 0.080), samples=(4_500, 1_500), shifts=((0, 1, 10), (1, 0, 10))),
        "residuals": (BODY, BODY),
        "slow_share": 0.8,
        "persistence": 0.9,
        "spikes": Excursions(
            runs=120, samples=120, heights=QuantileLaw(shares=(0.0, 0.9, 1.0), values_s=(0.02, 0.03, 0.5)), likeness=0
        ),
        "source": "known parameters",
    }
    return RttProcess.model_validate({**parts, **other})


def plain(**other: object) -> RttProcess:
    """The levels alone, without residuals or spikes."""
    flat = QuantileLaw(shares=(0.0,), values_s=(0.0,))
    return known(residuals=(flat, flat), spikes=None, **other)


@pytest.mark.parametrize("seed", range(5))
def test_every_lap_spends_its_time_in_the_levels_and_shifts_between_them_as_often(seed: int) -> None:
    levels = LevelShifts(
        levels_s=(0.05, 0.06, 0.08), samples=(900, 80, 20), shifts=((0, 1, 4), (1, 0, 2), (1, 2, 2), (2, 0, 2))
    )
    rtt_s = draw_series(
        RttProcess.model_validate({**plain().model_dump(), "levels": levels, "residuals": (BODY,) * 3}), 60e3, seed
    ).rtt_s
    level = np.abs(rtt_s[:, None] - np.array(levels.levels_s)).argmin(axis=1)
    assert np.bincount(level).tolist() == [900, 80, 20]
    pairs = list(zip(level.tolist(), np.roll(level, -1).tolist(), strict=True))
    assert {(a, b, pairs.count((a, b))) for a, b in pairs if a != b} == set(levels.shifts)


def test_stays_are_geometric() -> None:
    """Of n parts of a whole, cut at random, each exceeds twice the mean with a chance of about exp(-2)."""
    levels = LevelShifts(levels_s=(0.05, 0.08), samples=(90_000, 30_000), shifts=((0, 1, 500), (1, 0, 500)))
    rtt_s = draw_series(plain(levels=levels), 120_000 * STEP_S, seed=1).rtt_s
    stays = np.array([len(list(run)) for value, run in groupby(rtt_s.tolist()) if value == 0.05])
    assert float(np.mean(stays > 360)) == pytest.approx(np.exp(-2), abs=0.04)


def test_a_lap_goes_on_where_the_one_before_ended() -> None:
    rtt_s = draw_series(plain(), 5 * LAP_S, seed=3).rtt_s
    assert int((np.diff(rtt_s) != 0).sum()) <= 5 * 20


def test_residuals_have_the_autocorrelation_of_their_score() -> None:
    one = LevelShifts(levels_s=(0.05,), samples=(100_000,), shifts=())
    rtt_s = draw_series(known(levels=one, residuals=(BODY,), spikes=None), 100_000 * STEP_S, seed=1).rtt_s - 0.05
    correlations = [float(np.mean(rtt_s[lag:] * rtt_s[:-lag]) / np.mean(rtt_s**2)) for lag in (1, 5)]
    # Of a uniform law drawn by normal scores of correlation r it is 6 / pi * asin(r / 2) (Pearson 1907).
    wanted = [6 / np.pi * np.arcsin(0.8 * 0.9**lag / 2) for lag in (1, 5)]
    assert correlations == pytest.approx(wanted, abs=0.02)
    assert float(rtt_s.mean()) == pytest.approx(0.0, abs=1e-4)


def test_every_lap_has_its_spikes_the_greatest_among_them() -> None:
    for seed in range(5):
        rtt_s = draw_series(known(levels=plain().levels), LAP_S, seed).rtt_s
        level_s = np.where(draw_series(plain(), LAP_S, seed).rtt_s == 0.05, 0.05, 0.08)
        spike = rtt_s - level_s > 0.01
        assert spike.sum() == 120
        assert not (spike[1:] & spike[:-1]).any()
        assert (rtt_s - level_s).max() == pytest.approx(0.5)


@pytest.mark.parametrize("likeness", [0.0, 1.0])
def test_the_heights_of_a_burst_have_the_stated_likeness(likeness: float) -> None:
    heights = QuantileLaw(shares=(0.0, 1.0), values_s=(0.1, 0.2))
    bursts = Excursions(runs=100, samples=1_000, heights=heights, likeness=likeness)
    rtt_s = draw_series(plain(bursts=bursts), LAP_S, seed=1).rtt_s
    far_s = np.where(rtt_s > 0.14, rtt_s - draw_series(plain(), LAP_S, seed=1).rtt_s, np.nan)
    both = np.isfinite(far_s[1:]) & np.isfinite(far_s[:-1])
    assert (np.isfinite(far_s).sum(), both.sum()) == (1_000, 900)
    correlation = float(np.corrcoef(far_s[1:][both], far_s[:-1][both])[0, 1])
    assert correlation == pytest.approx(likeness, abs=0.12)


def test_a_swing_returns_every_day() -> None:
    swing = DailySwing(hours_s=tuple(0.010 * (hour == 6) for hour in range(24)))
    day = round(86_400 / STEP_S)
    rtt_s = draw_series(plain(daily=swing), 3 * 86_400.0, seed=1).rtt_s - draw_series(plain(), 3 * 86_400.0, seed=1).rtt_s
    assert rtt_s[:day] == pytest.approx(rtt_s[day : 2 * day])
    assert int(rtt_s.argmax()) % day * STEP_S == pytest.approx(6.5 * 3600)
    assert rtt_s.max() == pytest.approx(0.010)


@given(st.integers(0, 2**31), st.integers(1, 300))
def test_the_same_seed_draws_the_same_and_a_longer_series_begins_with_the_shorter(seed: int, count: int) -> None:
    small = LevelShifts(levels_s=(0.050, 0.080), samples=(60, 40), shifts=((0, 1, 3), (1, 0, 3)))
    process = known(levels=small, spikes=None)
    long, short = draw_series(process, STEP_S * 300, seed), draw_series(process, STEP_S * count, seed)
    assert short.rtt_s.tolist() == long.rtt_s[:count].tolist()
    assert draw_series(process, STEP_S * count, seed).rtt_s.tolist() == short.rtt_s.tolist()


def test_another_seed_draws_another_series_alike() -> None:
    one, two = draw_series(known(), LAP_S, 1).rtt_s, draw_series(known(), LAP_S, 2).rtt_s
    assert one.tolist() != two.tolist()
    assert figures(one).quantiles_s == pytest.approx(figures(two).quantiles_s, rel=0.02)


def test_what_is_drawn_is_labelled_synthetic_with_its_seed_and_source() -> None:
    series = draw_series(known(), 6000.0, 7, name="cp9")
    assert (series.name, series.kind, series.duration_s, len(series.rtt_s)) == ("cp9", "synthetic", 6000.0, 100)
    assert series.source == "drawn with seed 7 from a process fitted to known parameters"


def test_no_draw_falls_below_zero() -> None:
    deep = QuantileLaw(shares=(0.0, 1.0), values_s=(-0.2, 0.0))
    assert draw_series(known(residuals=(deep, deep)), LAP_S, 1).rtt_s.min() > 0


def test_parameters_survive_their_file_to_the_last_bit(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(process_text(known()))
    assert read_process(tmp_path / "p.json") == known()


@pytest.mark.parametrize(
    ("part", "wrong", "message"),
    [
        ('"schema_version": 1', '"schema_version": 2', "schema_version: input should be 1"),
        ('"step_s": 60.0', '"step_s": 0.0', "step_s: input should be greater than or equal to 0.000001"),
        ('"step_s": 60.0', '"steps_s": 60.0', "step_s: field required"),
        ('"persistence": 0.9', '"persistence": 1.0', "persistence: input should be less than 1"),
        ("4500", "4500.5", "levels.samples.0"),
        ("4500", "9", "levels: every level must be visited, and have a sample for each visit"),
        ("0.08", "-0.08", "levels.levels_s.1: input should be greater than 0"),
        ("[[0,1,10],[1,0,10]]", "[[0,1,10],[1,0,9]]", "levels: shifts must leave each level as often as they enter it"),
        ("[[0,1,10],[1,0,10]]", "[]", "levels: every level must be visited"),
        ("[[0,1,10],[1,0,10]]", "[[0,1,10],[1,2,10]]", "levels: shifts must name levels"),
        ('"runs": 120', '"runs": 121', "spikes: a run has at least one sample"),
        ('"samples": 120', '"samples": 5990', "spikes and bursts leave too few other samples"),
        ("0.5\n", "0.01\n", "spikes.heights: values_s must not decrease"),
        ("0.9,\n    1.0", "0.9,\n    0.95", "spikes.heights: shares must run from 0 to 1"),
    ],
)
def test_parameters_that_make_no_process_are_refused_by_name(tmp_path: Path, part: str, wrong: str, message: str) -> None:
    path = tmp_path / "p.json"
    text = process_text(known())
    if part.startswith("[["):  # the file has a number a line
        text = "".join(text.split()) if "".join(part.split()) in "".join(text.split()) else text
    assert part in text
    path.write_text(text.replace(part, wrong, 1))
    with pytest.raises(TraceError) as complaint:
        read_process(path)
    assert complaint.value.path == str(path) and message in complaint.value.what


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense"])
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.json").write_text(text)
    with pytest.raises(TraceError, match="params-out"):
        read_process(tmp_path / "p.json")
    with pytest.raises(TraceError, match="cannot be read"):
        read_process(tmp_path / "none.json")


@pytest.mark.parametrize(
    "other",
    [
        {"step_s": 1e7},
        {"levels": {"levels_s": (1e308, 0.08), "samples": (4_500, 1_500), "shifts": ((0, 1, 10), (1, 0, 10))}},
        {"levels": {"levels_s": (0.05, 0.08), "samples": (10**12, 1_500), "shifts": ((0, 1, 10), (1, 0, 10))}},
        {"levels": {"levels_s": (0.05, 0.08), "samples": (4_500, 1_500), "shifts": ((0, 1, 10**12), (1, 0, 10**12))}},
        {"residuals": (QuantileLaw(shares=(0.0,), values_s=(0.0,)), {"shares": (0.0,), "values_s": (1e308,)})},
        {"daily": {"hours_s": (1e308,) * 24}},
    ],
    ids=["step", "level", "samples", "shifts", "law", "daily"],
)
def test_parameters_of_no_network_are_refused_at_once(other: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        known(**other)


def test_no_more_is_drawn_than_memory_holds() -> None:
    with pytest.raises(TraceError, match=r"at most .* 20,000,000 samples"):
        draw_series(plain(), 1e12, 1)
