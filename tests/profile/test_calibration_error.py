"""Draws of a profile within the error of its calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.base import shipped_files
from simnmt.profile.blocks import CellSample
from simnmt.profile.calibration_error import CalibrationDraws, lacking_samples, sample_times
from simnmt.profile.cost import Plane
from simnmt.profile.device_profile import DeviceProfile, checked_profile, read_profile
from simnmt.profile.execution_fit import cell_samples, fit_execution
from tests.profile.made_profile import whole_profile

LENGTHS = (2, 5, 10, 20, 40, 80)
SRC, TGT = (axis.ravel().astype(float) for axis in np.meshgrid(LENGTHS[1:-1], LENGTHS[1:-1]))


def calibrated(noise: float, repeats: int = 7, curvature: float = 0.0, seed: int = 5, **blocks: Any) -> DeviceProfile:
    """The profile of a box with lognormal noise; `curvature`: of the cost of a target token over the target length."""
    random = np.random.default_rng(seed)
    src, tgt, _ = (axis.ravel() for axis in np.meshgrid(LENGTHS, LENGTHS, range(repeats)))
    time_s = 0.0004 * src + 0.003 * tgt * (1.0 + curvature * tgt / 80) + 0.005
    time_s = time_s * random.lognormal(-0.5 * noise**2, noise, src.size)
    execution = fit_execution(src, tgt, time_s, mode="full_grid")
    execution = execution.model_copy(update={"samples": cell_samples(src, tgt, time_s)})
    return checked_profile(whole_profile() | {"execution": execution.model_dump(mode="json")} | blocks)


def means(profile: DeviceProfile, draws: int = 60) -> np.ndarray:
    """Mean seconds of drawn profiles over those of the profile."""
    error, generator = CalibrationDraws(profile, SRC, TGT), np.random.default_rng(1)
    usual_s = profile.plane.seconds(SRC, TGT).mean()
    return np.array([error.draw(generator).plane.seconds(SRC, TGT).mean() / usual_s for _ in range(draws)])


def test_without_noise_the_draws_of_a_curved_box_lie_on_its_true_times_and_not_on_the_plane() -> None:
    profile = calibrated(0.0, curvature=0.1)
    truth = (0.0004 * SRC + 0.003 * TGT * (1.0 + 0.1 * TGT / 80) + 0.005).mean() / profile.plane.seconds(SRC, TGT).mean()
    assert abs(truth - 1.0) > 0.005
    assert means(profile, 10) == pytest.approx(truth, abs=0.003)


def test_the_recorded_error_over_stretches_is_part_of_the_draws() -> None:
    profile = calibrated(0.01)
    fit = profile.execution.fit.model_copy(update={"level_error": 0.05})
    wandering = profile.model_copy(update={"execution": profile.execution.model_copy(update={"fit": fit})})
    assert means(profile).std() < 0.02 < 0.035 < means(wandering).std() < 0.07


def test_half_of_the_draws_count_disturbed_repeats() -> None:
    content = calibrated(0.01, repeats=9).execution
    samples = tuple(
        CellSample.of(
            np.append(np.sort(sample_times(sample))[:-1], 2.0 * sample.mean_s), src_len=sample.src_len, tgt_len=sample.tgt_len
        )
        for sample in content.samples
    )
    profile = calibrated(0.01)
    profile = profile.model_copy(update={"execution": content.model_copy(update={"samples": samples})})
    drawn = means(profile, 80)
    # One of nine repeats takes twice as long.
    assert np.mean(drawn > 1.05) == pytest.approx(0.5, abs=0.18)
    assert np.median(drawn[drawn > 1.05]) == pytest.approx(1.0 + 1 / 9, abs=0.03)


def test_costs_of_batches_move_with_the_plane_and_by_the_error_on_judged_sizes() -> None:
    profile = calibrated(0.02)
    error, generator = CalibrationDraws(profile, SRC, TGT), np.random.default_rng(1)
    steps = np.array([float(error.draw(generator).decoding_cost.step.seconds(8, 16)) for _ in range(40)])
    usual = float(profile.decoding_cost.step.seconds(8, 16))
    assert 0.001 < (steps / usual).std() < 0.1
    assert np.median(steps) == pytest.approx(usual, rel=0.05)


def test_inferred_profiles_and_those_without_samples_have_no_known_error() -> None:
    profile = calibrated(0.01)
    bare = profile.model_copy(update={"execution": profile.execution.model_copy(update={"samples": ()})})
    inferred = read_profile(shipped_files.find("calibration", "@tx2-gru"))
    assert lacking_samples(bare) == "it holds no samples"
    assert lacking_samples(inferred) == "its execution plane is inferred"
    with pytest.raises(ValueError, match="holds no samples"):
        CalibrationDraws(bare, SRC, TGT)
    assert lacking_samples(profile) == ""


def test_a_draw_refits_every_repeat_within_the_error_of_the_cells() -> None:
    """Sixteen cells of 25 repeats with a spread of 20 %: the mean of all is known to 1 %."""
    random = np.random.default_rng(3)
    truth = Plane(0.0004, 0.003, 0.01)
    src, tgt = np.repeat([(src, tgt) for src in (2, 8, 30, 80) for tgt in (1, 5, 20, 80)], 25, axis=0).astype(float).T
    time_s = truth.seconds(src, tgt) * random.lognormal(0.0, 0.2, src.size)
    execution = fit_execution(src, tgt, time_s, mode="every_repeat")
    execution = execution.model_copy(update={"samples": cell_samples(src, tgt, time_s)})
    error = CalibrationDraws(calibrated(0.02).model_copy(update={"execution": execution}), src, tgt)
    drawn = [error.draw(np.random.default_rng(seed)).plane for seed in range(30)]
    drawn_s = np.array([float(plane.seconds(src, tgt).mean()) for plane in drawn])
    assert drawn_s.mean() == pytest.approx(float(truth.seconds(src, tgt).mean()) * np.exp(0.02), rel=0.02)
    assert 0.003 < drawn_s.std() / drawn_s.mean() < 0.03
