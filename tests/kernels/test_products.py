"""Products of a few rows with packed weights, in 16 bits and in float32 (SHARP-05)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from simnmt.kernels.packed_products import PackedMatrix, Scales
from tests.kernels.implementations import needs_compiled

pytestmark = needs_compiled


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def extreme(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """As far as clipping lets them go, both signs, and beyond."""
    return rng.choice(np.array([-3, -1, 1, 3], np.float32), shape)


def aligned_signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Sums as large as they can be."""
    return np.full(shape, 3.0, np.float32)


KINDS: tuple[Callable[..., np.ndarray], ...] = (normal, extreme, aligned_signs)


def product_error_bound(scales: Scales, weight: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The largest error of each element of a 16-bit product, [rows, out], of inputs after clipping (SHARP-05).

    It includes the clipping of weights, times the largest input of the row, and one rounding of the sum to float32.
    """
    weight_l1 = np.minimum(np.abs(weight), 1.0).sum(axis=1, dtype=np.float64)
    magnitudes = np.minimum(np.abs(x), scales.input_limit)
    input_l1, largest = magnitudes.sum(axis=1, dtype=np.float64), magnitudes.max(axis=1, initial=0.0).astype(np.float64)
    fixed_point = scales.error_bound(weight_l1, input_l1[:, None], weight.shape[1])
    most = np.minimum(weight_l1 * scales.input_limit, input_l1[:, None]) + fixed_point
    beyond_l1 = np.maximum(np.abs(weight) - np.float32(1.0), 0.0).sum(axis=1, dtype=np.float64)
    return fixed_point + most * 2.0**-24 + largest[:, None] * beyond_l1


def integers_of(x: np.ndarray, scales: Scales) -> np.ndarray:
    held = np.clip(x.astype(np.float32), np.float32(-scales.input_limit), np.float32(scales.input_limit))
    return np.rint(held * np.float32(scales.input)).astype(np.int64)


def test_worked_examples_of_sharp_05() -> None:
    weight = np.array([[0.3, -0.7, 0.9]], np.float32)
    x = np.array([[1.1, 2.2, 0.4]], np.float32)
    scales = Scales(2.0**10, 2.0**10, 10.0)
    assert scales.quantise_weight(weight).tolist() == [[307, -717, 922]]
    assert integers_of(x, scales).tolist() == [[1126, 2253, 410]]
    packed = PackedMatrix(weight, 10.0, scales=scales)
    product = packed.multiply(x)
    assert product[0, 0] == np.float32(-891_699 / 2**20)
    assert round(float(product[0, 0]), 6) == -0.850390
    assert abs(float(product[0, 0]) + 0.85) == pytest.approx(3.9e-4, rel=0.01)
    assert product_error_bound(packed.scales, weight, x)[0, 0] == pytest.approx(2.74e-3, abs=5e-6)
    exact = PackedMatrix(np.array([[0.5, -0.25, 0.125, 1]], np.float32), 10.0, scales=scales)
    assert exact.multiply(np.array([[1, 2, 3, 10]], np.float32)).tolist() == [[10.375]]


@given(
    st.integers(0, 17),
    st.integers(1, 150),
    st.integers(1, 300),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.integers(0, 99),
)
def test_the_integers_are_those_of_the_oracle(
    rows: int,
    outputs: int,
    inner: int,
    draw_weight: Callable[..., np.ndarray],
    draw_x: Callable[..., np.ndarray],
    limit: float,
    seed: int,
) -> None:
    """int64 has room to spare, so a sum that overflowed would differ; what is left is one rounding to float32."""
    rng = np.random.default_rng(seed)
    weight, x = draw_weight(rng, outputs, inner), (draw_x(rng, rows, inner) * limit).astype(np.float32)
    packed = PackedMatrix(weight, limit)
    scales = packed.scales
    sums = integers_of(x, scales) @ scales.quantise_weight(weight).astype(np.int64).T
    product = packed.multiply(x)
    assert np.array_equal(product, sums.astype(np.float32) * np.float32(scales.rescale))
    held = np.clip(x, -np.float32(limit), np.float32(limit)).astype(np.float64)
    exact = held @ np.clip(weight, -1, 1).astype(np.float64).T
    assert (np.abs(product - exact) <= product_error_bound(packed.scales, weight, x) * (1 + 1e-9)).all()


def test_the_largest_allowed_sum_does_not_overflow() -> None:
    """65,536 weights of 1 and inputs at the limit: a sum of 2^31 - 2^16, where one more octave would overflow."""
    inner = 2**16
    weight, x = np.ones((3, inner), np.float32), np.ones((2, inner), np.float32)
    for scales, total in ((Scales(1.0, 2.0**14, 1.0), 2**30), (Scales(1.0, 2.0**14, 1.99993896484375), 2**31 - 2**16)):
        packed = PackedMatrix(weight, scales.input_limit, scales=scales)
        assert packed.multiply(x * np.float32(scales.input_limit)).tolist() == [[total / 2**14] * 3] * 2
        assert packed.multiply(-x * np.float32(scales.input_limit)).tolist() == [[-total / 2**14] * 3] * 2


@given(st.integers(0, 17), st.integers(1, 150), st.integers(1, 300), st.integers(0, 99))
def test_packed_float32_differs_from_the_oracle_only_by_rounding(rows: int, outputs: int, inner: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, x = normal(rng, outputs, inner), normal(rng, rows, inner)
    product = PackedMatrix(weight).multiply(x)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    assert (np.abs(product - exact) <= magnitudes * inner * 2.0**-24).all()


@pytest.mark.parametrize("rows", [0, 1, 6, 13])
def test_a_product_is_written_to_out_and_no_other_memory_changes(rows: int) -> None:
    rng = np.random.default_rng(rows)
    weight, x = normal(rng, 37, 21), normal(rng, rows, 21)
    for packed in (PackedMatrix(weight, 4.0), PackedMatrix(weight)):
        memory = np.full(rows * 37 + 64, 7.0, np.float32)
        out = memory[: rows * 37].reshape(rows, 37)
        assert packed.multiply(x, out) is out
        assert (out == packed.multiply(x)).all()
        assert (memory[rows * 37 :] == 7.0).all()


WEIGHTS = arrays.arrays(
    np.float32,
    arrays.array_shapes(min_dims=2, max_dims=2, max_side=40),
    elements=st.floats(-2, 2, width=32) | st.sampled_from([-1.0, 0.0, 1.0, float(np.float32(1e-30))]),
)
LIMITS = st.floats(1e-3, 1e4)
