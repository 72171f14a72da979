"""Single executions after idle gaps: where the box idles, and that every repeat counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import measurement
from simnmt.profile.profile_file import read_profile
from tests.calibrate.engines import FakeEngine
from tests.calibrate.whole_box import QUICK

GAP_S = 0.05


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each idle gap, which takes no time here."""
    gaps = list[float]()
    monkeypatch.setattr(measurement.time, "sleep", gaps.append)
    return gaps


def test_the_box_idles_before_each_single_execution_and_every_repeat_counts(
    measured: Callable[..., Any], tmp_path: Path, slept: list[float]
) -> None:
    """One call in five takes twice as long: without gaps such repeats are left out, with gaps they belong to the mean."""

    def box() -> FakeEngine:
        return FakeEngine(disturbance=lambda call: 2.0 if call % 5 == 4 else 1.0)

    execution = replace(QUICK, parts=("execution",))
    bench = measured(execution, box()).profile
    assert slept == [] and bench.conditions.gap_s is None
    (tmp_path / "box.json").unlink()
    profile = measured(replace(execution, gap_s=GAP_S), box()).profile
    assert profile == read_profile(tmp_path / "box.json")
    assert profile.conditions.gap_s == GAP_S
    fit = profile.execution.fit
    assert slept == [GAP_S] * fit.inferences
    assert (fit.mode, fit.disturbed_share) == ("every_repeat", 0.0)
    assert fit.inferences == sum(sample.repeats for sample in profile.execution.samples)
    mean_s = [sample.mean_s for sample in profile.execution.samples]
    plane_s = [float(profile.plane.seconds(sample.src_len, sample.tgt_len)) for sample in profile.execution.samples]
    assert sum(plane_s) == pytest.approx(sum(mean_s), rel=0.15)
    assert float(profile.plane.seconds(20, 20)) > 1.1 * float(bench.plane.seconds(20, 20))
    residual = profile.execution.residual_quantiles
    assert residual is not None and residual.factors[-1] > 1.3, "the tail is kept"


def test_steps_are_measured_without_gaps(measured: Callable[..., Any], slept: list[float]) -> None:
    profile = measured(replace(QUICK, parts=("execution", "step"), gap_s=GAP_S), FakeEngine()).profile
    assert profile.step is not None and len(slept) == profile.execution.fit.inferences
