"""Reads from a disk, a slower disk imitated, and energy."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.fits import fit_disk, fit_energy
from simnmt.profile.blocks import EnergyBlock
from simnmt.profile.disk_block import DiskBlock, ReadSample, TokenBucket

SIZE = np.repeat(2 ** np.arange(18, 25), 5)


def fitted(size: np.ndarray, time_s: np.ndarray) -> DiskBlock:
    return fit_disk({int(each): time_s[size == each].tolist() for each in np.unique(size)}, cold=True)


def test_a_disk_is_found_again_in_noisy_reads() -> None:
    noise = np.random.default_rng(1).lognormal(0.0, 0.02, SIZE.size)
    fit = fitted(SIZE, (0.0008 + SIZE / 450e6) * noise)
    assert fit.s_fixed == pytest.approx(0.0008, rel=0.1)
    assert fit.bytes_per_s == pytest.approx(450e6, rel=0.03)
    assert fit.r2 is not None and fit.r2 > 0.999
    assert fit.heldout_error is not None and 0.0 < fit.heldout_error < 0.03


def test_an_exact_disk_misses_no_size_left_out() -> None:
    fit = fitted(SIZE, 0.001 + SIZE / 1e8)
    assert fit.heldout_error == pytest.approx(0.0, abs=1e-9)
    assert fitted(SIZE[:15], 0.001 + SIZE[:15] / 1e8).heldout_error is None


def test_a_linear_disk_needs_no_samples() -> None:
    block = DiskBlock(kind="synthetic", s_fixed=0.001, bytes_per_s=1e8, cold=True)
    assert block.seconds(np.array([1e8])).tolist() == [pytest.approx(1.001)]


def test_a_disk_whose_rate_rises_with_the_size_becomes_a_table() -> None:
    """Read ahead, large reads go three times as fast: no line does so, the held-out sizes say by how much."""
    size = np.repeat(2 ** np.arange(18, 26), 5)
    time_s = 0.0002 + size / (0.6e9 * (size / 2**18) ** 0.2)
    fit = fitted(size, time_s)
    assert fit.heldout_error_linear is not None and fit.heldout_error_table is not None
    assert fit.form == "table" and fit.heldout_error_table < 0.02 < 0.08 < fit.heldout_error_linear
    assert fit.heldout_error == fit.heldout_error_table
    assert [(sample.bytes, sample.repeats) for sample in fit.samples] == [(2**power, 5) for power in range(18, 26)]
    assert fitted(SIZE, (0.0008 + SIZE / 450e6) * np.random.default_rng(1).lognormal(0.0, 0.02, SIZE.size)).form == "linear"


def test_a_table_of_reads_goes_through_its_sizes_and_on_without_falling() -> None:
    times_s = {1_000_000: 0.002, 4_000_000: 0.004, 16_000_000: 0.003}
    samples = tuple(ReadSample(bytes=size, min_s=second, median_s=second) for size, second in times_s.items())
    cost = DiskBlock(kind="measured", form="table", s_fixed=9.0, bytes_per_s=1.0, samples=samples, cold=True)
    assert cost.seconds([1e6, 2e6, 4e6, 16e6]) == pytest.approx([0.002, 0.002 * 2**0.5, 0.004, 0.004])
    assert cost.seconds([0.0, 32e6]) == pytest.approx([0.002, 0.008])
    assert (np.diff(cost.seconds(np.linspace(0.0, 1e9, 500))) >= 0.0).all()
    assert cost.model_copy(update={"paced_bytes_per_s": 1e9}).seconds(16e6) == pytest.approx(0.016), "paced"


@given(st.integers(0, 2**32 - 1))
def test_no_disk_reads_more_in_less_time(seed: int) -> None:
    """STI-07: non-decreasing, however noisy the reads were; or it is said that no bandwidth can be told."""
    time_s = np.random.default_rng(seed).lognormal(0.0, 1.0, SIZE.size)
    try:
        block = fitted(SIZE, time_s)
    except ValueError as error:
        assert "larger reads take no longer" in str(error)
        return
    line, table = (block.model_copy(update={"form": form}) for form in ("linear", "table"))
    assert (np.diff(line.seconds(np.linspace(0, 1e9, 50))) > 0.0).all()
    assert (np.diff(table.seconds(np.linspace(0, 1e9, 50))) >= 0.0).all()
    assert line.seconds(0) >= 0.0


def test_a_paced_disk_is_no_faster_than_its_pace() -> None:
    cost = DiskBlock(kind="measured", s_fixed=0.001, bytes_per_s=500e6, paced_bytes_per_s=100e6, cold=True)
    assert cost.seconds([0, 1e5, 1e8]).tolist() == pytest.approx([0.001, 0.0012, 1.0])


READS = st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 5_000)), min_size=1, max_size=30)


@given(READS, st.floats(10.0, 5_000.0), st.floats(0.0, 10_000.0))
def test_no_window_holds_more_than_the_rate_and_one_burst(reads: list[tuple[float, int]], rate: float, burst: float) -> None:
    bucket = TokenBucket(rate, burst)
    begins = list(accumulate(gap for gap, _ in reads))
    ends = [bucket.end_s(begin, size) for begin, (_, size) in zip(begins, reads, strict=True)]
    assert all(end >= begin for begin, end in zip(begins, ends, strict=True))
    assert ends == sorted(ends)
    for first, begin in enumerate(begins):
        total = 0.0
        for (_, size), end in zip(reads[first:], ends[first:], strict=True):
            total += size
            assert total <= (rate * (end - begin) + burst) * (1.0 + 1e-9) + 1e-6


@given(READS, st.floats(10.0, 5_000.0), st.floats(0.0, 10_000.0))
def test_no_read_waits_longer_than_it_must(reads: list[tuple[float, int]], rate: float, burst: float) -> None:
    """Against a bucket that is filled and drained step by step: the same ends."""
    bucket = TokenBucket(rate, burst)
    level, now, begin = burst, 0.0, 0.0
    for gap, size in reads:
        begin += gap
        if begin > now:
            level, now = min(burst, level + rate * (begin - now)), begin
        wait = max(size - level, 0.0) / rate
        level, now = max(level - size, 0.0), now + wait
        assert bucket.end_s(begin, size) == pytest.approx(now, rel=1e-6, abs=1e-5)


def test_energy_is_measured_per_cell_or_by_power_or_unknown_but_never_zero() -> None:
    idle = EnergyBlock(kind="measured", source="rapl", idle_w=10.0)
    by_power = idle.model_copy(update={"active_w": 50.0})
    by_cell = by_power.model_copy(update={"j_per_src_token": 0.1, "j_per_tgt_token": 0.5, "j_fixed": 1.0})
    assert by_cell.joules([10, 20], [4, 0], [9.0, 9.0]).tolist() == pytest.approx([4.0, 3.0])  # type: ignore[union-attr]
    assert by_power.joules(10, 4, [0.1, 2.0]).tolist() == [5.0, 100.0]  # type: ignore[union-attr]
    assert idle.joules(10, 4, 0.1) is None


def test_energies_per_cell_make_a_plane() -> None:
    src, tgt = (each.ravel() for each in np.meshgrid([5, 20, 80], [5, 20, 80]))
    block = fit_energy(src, tgt, 0.01 * src + 0.2 * tgt + 0.5, source="rapl", idle_w=5.0, active_w=20.0)
    assert (block.kind, block.source, block.idle_w, block.active_w) == ("measured", "rapl", 5.0, 20.0)
    plane = (block.j_per_src_token, block.j_per_tgt_token, block.j_fixed, block.heldout_error)
    assert plane == pytest.approx((0.01, 0.2, 0.5, 0.0), abs=1e-9)
    with pytest.raises(ValueError, match="positive"):
        fit_energy(src, tgt, np.zeros(9), source="rapl", idle_w=5.0, active_w=20.0)
