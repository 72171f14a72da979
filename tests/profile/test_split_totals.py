"""Steps told from the times of whole translations alone."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.calibrate.fits import split_totals

LENGTHS = np.array([1, 2, 8, 32, 128])


def totals(fixed: float, first: float, per_position: float, tgt_len: np.ndarray) -> np.ndarray:
    """Step after step, as a device takes them."""
    return np.array([fixed + sum(first + per_position * at for at in range(length)) for length in tgt_len.tolist()])


@pytest.mark.parametrize("parts", [(0.002, 0.003, 1e-5), (0.0, 0.003, 1e-5), (0.002, 0.003, 0.0), (0.002, 0.0, 1e-5)])
def test_the_parts_of_a_whole_translation_are_found(parts: tuple[float, float, float]) -> None:
    assert split_totals(LENGTHS, totals(*parts, LENGTHS)) == pytest.approx(parts, rel=1e-9, abs=1e-12)


def test_noise_moves_the_parts_little_and_never_below_nothing() -> None:
    tgt_len = np.repeat(LENGTHS, 20)
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(1.0, 0.03, tgt_len.size)
        fixed, first, per_position = split_totals(tgt_len, totals(0.004, 0.003, 1e-5, tgt_len) * noise)
        assert (fixed, first, per_position) == pytest.approx((0.004, 0.003, 1e-5), rel=0.15)
        assert min(split_totals(tgt_len, totals(0.0, 0.003, 0.0, tgt_len) * noise)) >= 0.0


def test_two_lengths_give_equal_steps() -> None:
    assert split_totals([2, 10], [0.012, 0.036]) == pytest.approx((0.006, 0.003, 0.0))


@pytest.mark.parametrize(
    ("tgt_len", "total_s", "says"),
    [
        ([4, 4], [0.1, 0.2], "two target lengths"),
        ([0, 4], [0.1, 0.2], "target lengths from 1"),
        ([2, 4], [0.0, 0.2], "positive times"),
        ([2, 4], [0.1], "two columns"),
        ([], [], "two target lengths"),
    ],
)
def test_what_cannot_be_split_is_refused(tgt_len: list[int], total_s: list[float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        split_totals(tgt_len, total_s)
