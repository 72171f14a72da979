"""Products of a few rows with packed weights: the same integers at every level, and float32 packed alike (SHARP-05)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.kernels.arrays import HUGE_PAGE, huge_pages
from simnmt.kernels.errors import KernelError
from simnmt.kernels.packed_products import PackedFloat32, PackedInt16, Scales
from tests.kernels.each_level import each_level


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def extreme(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """As far as clipping lets them go, both signs, and beyond."""
    return rng.choice(np.array([-3, -1, 1, 3], np.float32), shape)


def aligned_signs(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Sums as large as they can be."""
    return np.full(shape, 3.0, np.float32)


KINDS: tuple[Callable[..., np.ndarray], ...] = (normal, extreme, aligned_signs)


@each_level
def test_the_error_bound_includes_clipped_weights(level: str) -> None:
    """Of [1.5, -3, 0.5] clipping takes 2.5 off, and inputs reach 10."""
    weight = np.array([[1.5, -3.0, 0.5], [1.0, -1.0, 0.0]], np.float32)
    x = np.array([[10.0, -10.0, 1.0], [0.5, 0.25, 20.0]], np.float32)
    packed = PackedInt16.of(weight, 10.0, level=level)
    assert packed.clipped == 2
    off = np.abs(packed.multiply(x) - np.clip(x, -10, 10).astype(np.float64) @ weight.T)
    assert off[0, 0] > 24.9
    assert (off <= packed.error_bound(x)).all()
    assert packed.error_bound(x)[:, 1].max() < 0.01


@each_level
def test_worked_examples_of_sharp_05(level: str) -> None:
    weight = np.array([[0.3, -0.7, 0.9]], np.float32)
    x = np.array([[1.1, 2.2, 0.4]], np.float32)
    scales = Scales(2.0**10, 2.0**10, 10.0)
    assert scales.quantise_weight(weight).tolist() == [[307, -717, 922]]
    assert scales.quantise_input(x).tolist() == [[1126, 2253, 410]]
    packed = PackedInt16.of(weight, 10.0, scales=scales, level=level)
    product = packed.multiply(x)
    assert product[0, 0] == np.float32(-891_699 / 2**20)
    assert round(float(product[0, 0]), 6) == -0.850390
    assert abs(float(product[0, 0]) + 0.85) == pytest.approx(3.9e-4, rel=0.01)
    assert packed.error_bound(x)[0, 0] == pytest.approx(2.74e-3, abs=5e-6)
    exact = PackedInt16.of(np.array([[0.5, -0.25, 0.125, 1]], np.float32), 10.0, scales=scales, level=level)
    assert exact.multiply(np.array([[1, 2, 3, 10]], np.float32)).tolist() == [[10.375]]


@each_level
@settings(max_examples=40)
@given(
    st.integers(0, 17),
    st.integers(1, 150),
    st.integers(1, 300),
    st.sampled_from(KINDS),
    st.sampled_from(KINDS),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.integers(0, 99),
)
def test_every_level_returns_the_integers_of_the_oracle(
    level: str,
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
    packed = PackedInt16.of(weight, limit, level=level)
    assert packed.level == (None if level == "none" else level)
    scales = packed.scales
    sums = scales.quantise_input(x).astype(np.int64) @ scales.quantise_weight(weight).astype(np.int64).T
    product = packed.multiply(x)
    assert np.array_equal(product, sums.astype(np.float32) * np.float32(scales.rescale))
    held = np.clip(x, -np.float32(limit), np.float32(limit)).astype(np.float64)
    exact = held @ np.clip(weight, -1, 1).astype(np.float64).T
    assert (np.abs(product - exact) <= packed.error_bound(x) * (1 + 1e-9)).all()


@each_level
def test_the_largest_allowed_sum_does_not_overflow(level: str) -> None:
    """65,536 weights of 1 and inputs at the limit: a sum of 2^31 - 2^16, where one more octave would overflow."""
    inner = 2**16
    weight, x = np.ones((3, inner), np.float32), np.ones((2, inner), np.float32)
    for scales, total in ((Scales(1.0, 2.0**14, 1.0), 2**30), (Scales(1.0, 2.0**14, 1.99993896484375), 2**31 - 2**16)):
        packed = PackedInt16.of(weight, scales.input_limit, scales=scales, level=level)
        assert packed.multiply(x * np.float32(scales.input_limit)).tolist() == [[total / 2**14] * 3] * 2
        assert packed.multiply(-x * np.float32(scales.input_limit)).tolist() == [[-total / 2**14] * 3] * 2
    with pytest.raises(KernelError, match=r"the scales are for inputs up to 1.0, not 2.0"):
        PackedInt16.of(weight, 2.0, scales=Scales(1.0, 2.0**14, 1.0), level=level)
    with pytest.raises(KernelError, match="a sum could reach 2147483648, which leaves 32 bits"):
        PackedInt16.of(weight, 1.0, scales=Scales(2.0, 2.0**14, 1.0), level=level)


@each_level
@settings(max_examples=40)
@given(st.integers(0, 17), st.integers(1, 150), st.integers(1, 300), st.integers(0, 99))
def test_packed_float32_differs_from_the_oracle_only_by_rounding(
    level: str, rows: int, outputs: int, inner: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight, x = normal(rng, outputs, inner), normal(rng, rows, inner)
    product = PackedFloat32.of(weight, level=level).multiply(x)
    exact = x.astype(np.float64) @ weight.astype(np.float64).T
    magnitudes = np.abs(x).astype(np.float64) @ np.abs(weight).astype(np.float64).T
    assert (np.abs(product - exact) <= magnitudes * inner * 2.0**-24).all()


@each_level
@pytest.mark.parametrize("rows", [0, 1, 6, 13])
def test_a_product_is_added_to_out_and_no_other_memory_changes(level: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    weight, x, before = normal(rng, 37, 21), normal(rng, rows, 21), normal(rng, rows, 37)
    for packed in (PackedInt16.of(weight, 4.0, level=level), PackedFloat32.of(weight, level=level)):
        product = packed.multiply(x)
        memory = np.full(rows * 37 + 64, 7.0, np.float32)
        out = memory[: rows * 37].reshape(rows, 37)
        out[...] = before
        assert packed.multiply(x, out, add=True) is out
        np.testing.assert_allclose(out, before + product, rtol=1e-6, atol=1e-6)
        assert (packed.multiply(x, out) == product).all()
        assert (memory[rows * 37 :] == 7.0).all()


@each_level
def test_a_row_gives_the_same_result_alone_and_among_others(level: str) -> None:
    rng = np.random.default_rng(3)
    weight, x = normal(rng, 50, 33), normal(rng, 17, 33)
    for packed in (PackedInt16.of(weight, 1.0, level=level), PackedFloat32.of(weight, level=level)):
        alone = np.concatenate([packed.multiply(x[row : row + 1]) for row in range(17)])
        np.testing.assert_allclose(packed.multiply(x), alone, rtol=1e-5, atol=1e-6)


@each_level
def test_infinite_inputs_are_clipped_and_nan_is_refused_by_its_row(level: str) -> None:
    packed = PackedInt16.of(np.ones((2, 5), np.float32), 10.0, level=level)
    x = np.zeros((3, 5), np.float32)
    x[0, 1], x[2, 4] = np.inf, -np.inf
    assert packed.multiply(x).tolist() == [[10.0, 10.0], [0.0, 0.0], [-10.0, -10.0]]
    x[1, 3] = np.nan
    with pytest.raises(KernelError, match="x holds NaN in row 1"):
        packed.multiply(x)


@each_level
def test_wrong_arrays_are_refused(level: str) -> None:
    weight, x = np.ones((4, 6), np.float32), np.ones((3, 6), np.float32)
    locked = np.empty((3, 4), np.float32)
    locked.flags.writeable = False
    for packed in (PackedInt16.of(weight, 1.0, level=level), PackedFloat32.of(weight, level=level)):
        for wrong, message in (
            (x.astype(np.float64), "x is float64, not float32"),
            (np.ones((3, 7), np.float32), r"x has the shape \[3, 7\], not \[any, 6\]"),
            (np.ones(6, np.float32), r"x has the shape \[6\], not \[any, 6\]"),
            (np.ones((6, 6), np.float32)[::2], "x is not contiguous"),
            (x.tolist(), "x is a list, not a numpy array"),
        ):
            with pytest.raises(KernelError, match=message):
                packed.multiply(wrong)
        for out, message in (
            (np.empty((3, 5), np.float32), r"out has the shape \[3, 5\], not \[3, 4\]"),
            (np.empty((3, 4)), "out is float64"),
            (np.empty((3, 8), np.float32)[:, ::2], "out is not contiguous"),
            (locked, "out cannot be written to"),
        ):
            with pytest.raises(KernelError, match=message):
                packed.multiply(x, out)
        with pytest.raises(KernelError, match="no out to add"):
            packed.multiply(x, add=True)


def test_packed_weights_are_on_huge_pages_if_the_system_has_them() -> None:
    """Shared memory, which mmap gives unless told, has small ones alone: 16 bits were no faster than 32 beyond the caches."""
    smaps, enabled = Path("/proc/self/smaps"), Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text() or not smaps.exists():
        pytest.skip("the system offers no huge pages")
    memory = huge_pages(HUGE_PAGE, np.int16)
    memory[:] = 1
    assert memory.ctypes.data % HUGE_PAGE == 0
    assert advised(smaps.read_text(), memory.ctypes.data)


@each_level
def test_packed_weights_report_the_level_that_packed_them(level: str) -> None:
    weight = np.ones((2, 3), np.float32)
    packed = PackedInt16.of(weight, 1.0, level=level), PackedFloat32.of(weight, level=level)
    assert [weights.level for weights in packed] == [None if level == "none" else level] * 2


def advised(smaps: str, address: int) -> bool:
    """Whether the kernel may put the mapping that holds an address on huge pages: it says so, even where none is free now."""
    inside = False
    for line in smaps.splitlines():
        head = line.split(maxsplit=1)[0]
        if "-" in head and not head.endswith(":"):
            start, end = (int(part, 16) for part in head.split("-"))
            inside = start <= address < end
        elif inside and line.startswith("THPeligible:"):
            return line.split()[1] == "1"
    return False
