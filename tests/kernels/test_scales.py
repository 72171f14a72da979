"""Scales of 16-bit products: fine, and proved by the weights against overflow (SHARP-05)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from simnmt.kernels.errors import KernelError
from simnmt.kernels.packed_products import MOST_INTEGER, MOST_SUM, Scales, choose_scales

WEIGHTS = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.floats(-2, 2, width=32) | st.sampled_from([-1.0, 0.0, 1.0, float(np.float32(1e-30))]),
)
LIMITS = st.floats(1e-3, 1e4)


def worst_sum(weight: np.ndarray, scales: Scales) -> int:
    """Of the inputs that make a sum largest: each at its limit, with its weight's sign."""
    integers = scales.quantise_weight(weight).astype(np.int64)
    inputs = np.sign(integers) * scales.input_limit
    return int((integers * scales.quantise_input(inputs.astype(np.float32)).astype(np.int64)).sum(axis=1).max())


@settings(max_examples=60)
@given(WEIGHTS, LIMITS)
def test_no_input_within_the_limit_overflows_a_sum(weight: np.ndarray, limit: float) -> None:
    scales = choose_scales(weight, limit)
    assert worst_sum(weight, scales) <= MOST_SUM
    assert np.abs(np.rint(np.clip(weight, -1, 1).astype(np.float64) * scales.weight)).max() <= MOST_INTEGER
    assert scales.most_input <= MOST_INTEGER
    scales.check(weight)


@settings(max_examples=60)
@given(WEIGHTS, LIMITS)
def test_no_pair_of_finer_scales_has_a_lower_error_bound(weight: np.ndarray, limit: float) -> None:
    chosen = choose_scales(weight, limit)
    weight_l1 = np.minimum(np.abs(weight), 1).sum(axis=1, dtype=np.float64).max()
    inner = weight.shape[1]

    def bound(scales: Scales) -> float:
        return float(scales.error_bound(weight_l1, inner * limit / 2, inner))

    for up_weight, up_input in ((2, 1), (1, 2), (2, 0.5), (0.5, 2), (4, 0.5), (0.5, 4)):
        try:
            other = Scales(chosen.weight * up_weight, chosen.input * up_input, limit)
            other.check(weight)
        except KernelError:
            continue
        assert bound(other) >= bound(chosen)


@pytest.mark.parametrize(("inner", "safe"), [(1024, 2**17), (512, 2**18)])
def test_scales_that_the_limits_make_safe_pass_for_any_weights(inner: int, safe: int) -> None:
    """SHARP-05: inner size x 1 x 10 x both scales below 2^31; the next power of two is refused for these weights."""
    weight = np.ones((2, inner), np.float32)
    Scales(safe / 2**10, 2**10, 10.0).check(weight)
    with pytest.raises(KernelError, match=r"a sum could reach .* leaves 32 bits"):
        Scales(safe / 2**9, 2**10, 10.0).check(weight)


def test_usual_weights_get_finer_scales_than_the_limits_allow() -> None:
    """SHARP-05 names 2^20 as safe where the sum of |w x| stays below 2048."""
    weight = np.random.default_rng(0).normal(0, 0.05, (1024, 1024)).astype(np.float32)
    scales = choose_scales(weight, 10.0)
    assert scales.weight * scales.input > 2**20


def test_zero_weights_have_scales() -> None:
    assert worst_sum(np.zeros((3, 5), np.float32), choose_scales(np.zeros((3, 5), np.float32), 1.0)) == 0


@pytest.mark.parametrize(
    ("scales", "wrong"),
    [
        ((1000.0, 1024.0, 1.0), "the scale of the weights is 1000.0, not a power of two"),
        ((1024.0, -2.0, 1.0), "the scale of the inputs is -2.0"),
        ((1024.0, float("inf"), 1.0), "the scale of the inputs is inf"),
        ((1024.0, 1024.0, 0.0), "the limit of the inputs is 0.0"),
        ((1024.0, 1024.0, float("nan")), "the limit of the inputs is nan"),
        ((1024.0, 4096.0, 10.0), "inputs up to 10.0 times 4096.0 leave 16 bits"),
    ],
)
def test_wrong_scales_are_refused(scales: tuple[float, float, float], wrong: str) -> None:
    with pytest.raises(KernelError, match=wrong):
        Scales(*scales)


def test_weights_that_leave_16_bits_are_refused() -> None:
    with pytest.raises(KernelError, match=r"weights times 32768.0 reach 32768, which leaves 16 bits"):
        Scales(2.0**15, 1.0, 1.0).check(np.ones((1, 1), np.float32))


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan"), float("inf")])
def test_a_limit_that_is_no_positive_number_is_refused(limit: float) -> None:
    with pytest.raises(KernelError, match="the limit of the inputs"):
        choose_scales(np.ones((1, 1), np.float32), limit)


@pytest.mark.parametrize(
    ("weight", "wrong"),
    [
        (np.full((2, 2), np.nan, np.float32), "weight holds NaN or infinity"),
        (np.full((2, 2), np.inf, np.float32), "weight holds NaN or infinity"),
        (np.ones((2, 2)), "weight is float64, not float32"),
        (np.ones(2, np.float32), r"weight has the shape \[2\], not \[any, any\]"),
        (np.ones((0, 2), np.float32), r"weight has the shape \[0, 2\], without an output"),
        (np.ones((4, 4), np.float32).T[:, ::2], "weight is not contiguous"),
        ([[1.0]], "weight is a list, not a numpy array"),
    ],
)
def test_wrong_weights_are_refused(weight: np.ndarray, wrong: str) -> None:
    with pytest.raises(KernelError, match=wrong):
        choose_scales(weight, 1.0)
