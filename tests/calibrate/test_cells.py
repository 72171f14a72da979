"""Which works are measured, and single executions after idle gaps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.parts import (
    FITTED,
    JUDGING,
    QUICK_FITTED,
    QUICK_JUDGING,
    STEP_SRC_LEN,
    batches,
    corner_cells,
    encoder_cells,
    execution,
    execution_cells,
    step_cells,
)
from simnmt.calibrate.settings import Settings
from tests.calibrate.engines import QUICK, FakeEngine


def settings(**keys: Any) -> Settings:
    return Settings(**({"model": "gru"} | keys))


LONGEST = st.integers(8, 2_000)


@given(LONGEST, LONGEST)
def test_six_corners_span_the_lengths_and_the_grid_holds_them(max_src_len: int, max_tgt_len: int) -> None:
    asked = settings(max_src_len=max_src_len, max_tgt_len=max_tgt_len, beam=3)
    corners, grid = corner_cells(asked), execution_cells(asked)
    assert len(set(corners)) == 6
    assert {work.src_len for work in corners} == {2, max_src_len}
    assert {min(work.tgt_len for work in corners), max(work.tgt_len for work in corners)} == {2, max_tgt_len}
    assert set(corners) <= set(grid)
    assert len(set(grid)) == len(grid) > 6
    assert {(work.batch, work.beam) for work in grid} == {(1, 3)}


@pytest.mark.parametrize(
    ("mode", "most", "fitted", "judging"),
    [
        ("quick", None, QUICK_FITTED[:6], QUICK_JUDGING[:2]),
        ("full", None, FITTED[:13], JUDGING[:4]),
        ("full", 128, FITTED[:15], (7, 10, 20, 40, 112)),
        ("full", 8, (1, 2, 3, 4, 5, 6, 8), (7,)),
        ("full", 1_024, FITTED, JUDGING),
    ],
)
def test_batch_sizes_that_judge_lie_inside_and_are_in_no_mode_fitted(
    mode: str, most: int | None, fitted: tuple[int, ...], judging: tuple[int, ...]
) -> None:
    asked = settings(mode=mode, max_batch=most)
    for cells in (step_cells(asked, tells_steps=True), encoder_cells(asked, tells_steps=True)):
        assert {work.batch for work in cells} == {*batches(asked)} == {*fitted, *judging}
    assert not set(JUDGING) & {*FITTED, *QUICK_FITTED}
    assert set(QUICK_JUDGING) <= set(JUDGING), "what judges is told by its batch size alone"
    assert all(min(fitted) < batch < max(fitted) for batch in judging)


def test_runs_of_large_batches_are_short_and_hypotheses_count_as_rows() -> None:
    alone = step_cells(settings(max_batch=128), tells_steps=True)
    assert {work.tgt_len for work in alone if work.src_len == STEP_SRC_LEN} == {64}
    wide = step_cells(settings(max_batch=128, beam=5), tells_steps=True)
    steps = {work.batch: work.tgt_len for work in wide if work.src_len == STEP_SRC_LEN}
    assert (steps[1], steps[24], steps[32], steps[64], steps[96], steps[128]) == (64, 64, 36, 36, 18, 18)


def test_the_box_idles_before_each_single_execution_and_every_repeat_counts(
    measured: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call in five takes twice as long: without gaps such repeats are left out, with gaps they belong to the mean."""
    slept, alone = list[float](), replace(QUICK, parts=("execution",))
    monkeypatch.setattr(execution.time, "sleep", slept.append)

    def box() -> FakeEngine:
        return FakeEngine(disturbance=lambda call: 2.0 if call % 5 == 4 else 1.0)

    bench = measured(alone, box()).profile
    assert slept == [] and bench.conditions.gap_s is None
    (tmp_path / "box.json").unlink()
    profile = measured(replace(alone, gap_s=0.05), box()).profile
    fit, samples = profile.execution.fit, profile.execution.samples
    assert profile.conditions.gap_s == 0.05 and slept == [0.05] * fit.inferences
    assert (fit.mode, fit.disturbed_share) == ("every_repeat", 0.0)
    assert fit.inferences == sum(sample.repeats for sample in samples)
    plane_s = sum(float(profile.plane.seconds(sample.src_len, sample.tgt_len)) for sample in samples)
    assert plane_s == pytest.approx(sum(sample.mean_s for sample in samples), rel=0.15)
    assert float(profile.plane.seconds(20, 20)) > 1.1 * float(bench.plane.seconds(20, 20))
    assert profile.execution.residual_quantiles.factors[-1] > 1.3, "the tail is kept"
