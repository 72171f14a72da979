"""Amdahl's prediction and its inverse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.papers.kit.claim import end_to_end, share_needed


def test_half_of_the_time_made_twice_as_fast() -> None:
    assert end_to_end(0.5, 2.0) == pytest.approx(4 / 3)
    assert end_to_end(0.0, 9.0) == 1.0 and end_to_end(1.0, 9.0) == pytest.approx(9.0)


@given(st.floats(0.01, 1.0), st.floats(1.01, 100.0))
def test_the_share_that_a_gain_needs_is_the_one_it_came_from(share: float, part: float) -> None:
    assert share_needed(end_to_end(share, part), part) == pytest.approx(share, rel=1e-6)


@given(st.floats(0.0, 1.0), st.floats(1.0, 1e6))
def test_no_part_makes_the_whole_faster_than_itself_or_than_what_remains(share: float, part: float) -> None:
    whole = end_to_end(share, part)
    assert whole * (1 + 1e-12) >= 1.0 and whole <= part * (1 + 1e-12) and whole * (1 - share) <= 1 + 1e-12
