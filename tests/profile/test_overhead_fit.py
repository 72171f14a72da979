"""A fixed part and one by sentence, told apart by relative error."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.calibrate.fits import fit_overhead

SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128])


def test_both_parts_are_found() -> None:
    found = fit_overhead(SIZES, 0.0003 + 2e-5 * SIZES)
    assert (found.s_fixed, found.s_per_sentence) == (pytest.approx(0.0003), pytest.approx(2e-5))
    assert found.error == pytest.approx(0.0, abs=1e-9)


def test_neither_part_is_negative() -> None:
    """A cost that falls with the size is a fixed one, one from the origin grows alone."""
    falling = fit_overhead(SIZES, 0.001 / SIZES**0.1)
    assert falling.s_per_sentence == 0.0 < falling.s_fixed
    steep = fit_overhead(SIZES, 1e-5 * (SIZES - 0.5))
    assert steep.s_fixed == 0.0 < steep.s_per_sentence


def test_small_sizes_count_as_much_as_large_ones() -> None:
    """Noise of 5 % of the largest is four times the smallest: it must not decide over that."""
    noisy = 0.0003 + 2e-5 * SIZES
    noisy[-1] *= 1.05
    assert fit_overhead(SIZES, noisy).s_fixed == pytest.approx(0.0003, rel=0.05)


def test_sizes_that_judge_do_not_fit() -> None:
    straight = 0.0003 + 2e-5 * SIZES
    bent = np.where(SIZES == 8, 2 * straight, straight)
    found = fit_overhead(SIZES, bent, judged=(8,))
    assert found.s_fixed == pytest.approx(0.0003)
    assert (found.error, found.how) == (pytest.approx(0.5), "batch sizes 8, never fitted")


def test_what_drowns_in_the_clocks_noise_costs_nothing() -> None:
    found = fit_overhead([1, 2, 4], [-1e-7, 0.0, 1e-7])
    assert (found.s_fixed, found.s_per_sentence, found.error) == (0.0, 0.0, None)


def test_one_size_alone_does_not_determine_growth() -> None:
    found = fit_overhead([1], [0.0004])
    assert (found.s_fixed, found.s_per_sentence) == (pytest.approx(0.0004), 0.0)


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to fit"):
        fit_overhead([7], [1.0], judged=(7,))
