"""Reads from a disk, a slower disk imitated, and energy."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.profile.blocks import EnergyBlock
from simnmt.profile.streaming_cost import TokenBucket

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
