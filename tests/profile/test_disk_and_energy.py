"""Reads from a disk, a slower disk imitated, and energy."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.fits import fit_disk
from simnmt.profile.blocks import DiskBlock, EnergyBlock
from simnmt.profile.streaming_cost import TokenBucket

SIZE = np.repeat(2 ** np.arange(18, 25), 5)


def fitted(size: np.ndarray, time_s: np.ndarray) -> DiskBlock:
    return fit_disk({int(each): time_s[size == each].tolist() for each in np.unique(size)}, cold=True)


def test_noisy_reads_give_the_line_of_their_disk() -> None:
    noise = np.random.default_rng(1).lognormal(0.0, 0.02, SIZE.size)
    fit = fitted(SIZE, (0.0008 + SIZE / 450e6) * noise)
    assert fit.s_fixed == pytest.approx(0.0008, rel=0.1)
    assert fit.bytes_per_s == pytest.approx(450e6, rel=0.03)
    assert fit.r2 is not None and fit.r2 > 0.999
    assert fit.heldout_error is not None and 0.0 < fit.heldout_error < 0.03


def test_sizes_are_left_out_in_turn_if_there_are_enough() -> None:
    assert fitted(SIZE, 0.001 + SIZE / 1e8).heldout_error == pytest.approx(0.0, abs=1e-9)
    assert fitted(SIZE[:15], 0.001 + SIZE[:15] / 1e8).heldout_error is None
    rising = fitted(SIZE, 0.0002 + SIZE / (0.6e9 * (SIZE / 2**18) ** 0.2))
    assert rising.heldout_error is not None and rising.heldout_error > 0.05, "no line follows a rate that rises"


@given(st.integers(0, 2**32 - 1))
def test_no_disk_reads_more_in_less_time(seed: int) -> None:
    """STI-07: the line rises, however noisy the reads were; or no bandwidth can be told."""
    try:
        block = fitted(SIZE, np.random.default_rng(seed).lognormal(0.0, 1.0, SIZE.size))
    except ValueError as error:
        assert "larger reads take no longer" in str(error)
        return
    assert block.s_fixed >= 0.0 and block.bytes_per_s > 0.0


READS = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 5_000)), min_size=1, max_size=30)


@given(READS, st.floats(10.0, 5_000.0))
def test_no_window_holds_more_than_the_rate_and_no_read_waits_longer_than_it_must(
    reads: list[tuple[float, int]], rate: float
) -> None:
    bucket, free_s = TokenBucket(rate), 0.0
    begins = list(accumulate(gap for gap, _ in reads))
    ends = [bucket.end_s(begin, size) for begin, (_, size) in zip(begins, reads, strict=True)]
    for first, begin in enumerate(begins):
        free_s = max(free_s, begin) + reads[first][1] / rate
        assert ends[first] == pytest.approx(free_s)
        total = 0.0
        for (_, size), end in zip(reads[first:], ends[first:], strict=True):
            total += size
            assert total <= rate * (end - begin) * (1.0 + 1e-9) + 1e-6


def test_energy_is_measured_per_cell_or_by_power_or_unknown_but_never_zero() -> None:
    idle = EnergyBlock(kind="measured", source="rapl", idle_w=10.0)
    by_power = idle.model_copy(update={"active_w": 50.0})
    by_cell = by_power.model_copy(update={"j_per_src_token": 0.1, "j_per_tgt_token": 0.5, "j_fixed": 1.0})
    assert by_cell.joules([10, 20], [4, 0], [9.0, 9.0]).tolist() == pytest.approx([4.0, 3.0])  # type: ignore[union-attr]
    assert by_power.joules(10, 4, [0.1, 2.0]).tolist() == [5.0, 100.0]  # type: ignore[union-attr]
    assert idle.joules(10, 4, 0.1) is None
