"""The execution plane and its fit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.cost import LognormalResidual, Plane
from simnmt.profile.execution_fit import fit_plane


def coefficients(plane: Plane) -> tuple[float, float, float]:
    return plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed


def test_seconds_are_the_plane_and_never_negative() -> None:
    plane = Plane(0.5, 2.0, -3.0)
    assert plane.seconds(2, 3).tolist() == 4.0
    assert plane.seconds([0, 1, 10], [0, 1, 0]).tolist() == [0.0, 0.0, 2.0]
    assert plane.seconds(np.arange(3)[:, None], np.arange(4)).shape == (3, 4)


@given(st.integers(0, 2**32 - 1), st.integers(4, 60))
def test_least_squares_agrees_with_the_normal_equations_and_with_scipy(seed: int, inferences: int) -> None:
    random = np.random.default_rng(seed)
    src_len, tgt_len = random.integers(1, 200, (2, inferences))
    time_s = random.lognormal(0.0, 1.0, inferences)
    design = np.column_stack([src_len, tgt_len, np.ones(inferences)])
    fit = fit_plane(src_len, tgt_len, time_s)
    if np.linalg.matrix_rank(design) < 3:
        assert fit.collinear
        return
    scipys = scipy.linalg.lstsq(design, time_s, lapack_driver="gelsy")[0]
    np.testing.assert_allclose(coefficients(fit.plane), scipys, rtol=1e-7, atol=1e-9)
    residual_s = time_s - design @ coefficients(fit.plane)
    np.testing.assert_allclose(design.T @ residual_s, 0.0, atol=1e-7 * np.abs(design).sum())
    assert not fit.collinear
    assert fit.inferences == inferences
    assert fit.mse_ms2 == pytest.approx((residual_s**2).mean() * 1e6, rel=1e-6)
    assert fit.r2 == pytest.approx(1 - residual_s.var() / time_s.var(), rel=1e-6, abs=1e-9)
    unit = design / np.linalg.norm(design, axis=0)
    assert fit.condition_number == pytest.approx(np.linalg.cond(unit), rel=1e-6)


def test_target_lengths_proportional_to_the_source_are_flagged_and_solved_with_least_norm() -> None:
    src_len = np.array([1, 2, 3, 4, 5])
    fit = fit_plane(src_len, 2 * src_len, 10.0 * src_len + 1.0)
    assert fit.collinear
    # a + 2 b = 10 has its least a^2 + b^2 at (2, 4); the fixed part is known.
    assert coefficients(fit.plane) == pytest.approx((2.0, 4.0, 1.0), abs=1e-9)
    pseudo_inverse = np.linalg.pinv(np.column_stack([src_len, 2 * src_len, np.ones(5)])) @ (10.0 * src_len + 1.0)
    assert coefficients(fit.plane) == pytest.approx(tuple(pseudo_inverse), abs=1e-9)
    assert fit.condition_number > 1e12
    assert fit.r2 == pytest.approx(1.0)


def test_one_inference_is_collinear_and_still_predicts_itself() -> None:
    fit = fit_plane([10], [5], [0.126])
    assert fit.collinear
    assert fit.r2 is None
    assert fit.plane.seconds(10, 5) == pytest.approx(0.126)
    assert fit.condition_number == np.inf


def test_lengths_that_are_all_zero_raise_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fit_plane([0, 0, 0], [1, 2, 3], [1.0, 2.0, 3.0]).collinear


def test_exact_times_leave_nothing_unexplained() -> None:
    src_len, tgt_len = np.array([1, 10, 5, 30]), np.array([1, 5, 20, 40])
    fit = fit_plane(src_len, tgt_len, (0.4 * src_len + 3.0 * tgt_len + 5.0) / 1e3)
    assert fit.r2 == pytest.approx(1.0)
    assert fit.mse_ms2 < 1e-18
    assert 1.0 < fit.condition_number < 100.0
    assert not fit.collinear


def test_10_000_noisy_inferences_find_the_plane_and_its_error() -> None:
    """CNMT-05's number of inferences; the mean squared residual is that of the noise, in ms squared."""
    random = np.random.default_rng(1)
    src_len, tgt_len = random.integers(1, 60, (2, 10_000))
    plane = Plane(0.0004, 0.003, 0.005)
    fit = fit_plane(src_len, tgt_len, plane.seconds(src_len, tgt_len) + random.normal(0.0, 0.004, 10_000))
    assert coefficients(fit.plane) == pytest.approx(coefficients(plane), rel=0.05)
    assert fit.mse_ms2 == pytest.approx(16.0, rel=0.05)


@pytest.mark.parametrize("relative_sd", [0.01, 0.1, 0.5])
def test_the_residual_factor_has_mean_one_and_the_spread_asked_for(relative_sd: float) -> None:
    factor = LognormalResidual(relative_sd).factor(np.random.default_rng(2).standard_normal(400_000))
    assert (factor > 0.0).all()
    assert factor.mean() == pytest.approx(1.0, abs=5 * relative_sd / np.sqrt(400_000))
    assert factor.std() == pytest.approx(relative_sd, rel=0.02)


def test_without_residual_every_execution_lies_on_the_plane() -> None:
    assert (LognormalResidual(0.0).factor(np.linspace(-5, 5, 11)) == 1.0).all()


def test_the_spread_grows_with_the_length() -> None:
    """CNMT-18's figure 2a: in proportion to the time."""
    factor = LognormalResidual(0.2).factor(np.random.default_rng(3).standard_normal(100_000))
    plane = Plane(0.001, 0.008, 0.0)
    short_s, long_s = (plane.seconds(length, length) * factor for length in (10, 40))
    assert long_s.std() == pytest.approx(4 * short_s.std(), rel=1e-9)
    assert long_s.std() == pytest.approx(0.2 * 0.36, rel=0.02)
