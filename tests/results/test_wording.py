"""Durations stand in the unit that a person would choose."""

from __future__ import annotations

import pytest

from simnmt.results.wording import digits, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0682, "68.2 ms"),
        (1.0, "1 s"),
        (119.0, "119 s"),
        (120.0, "2 min"),
        (5_400.0, "90 min"),
        (9_000.0, "2.5 h"),
        (1e7, "2,778 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_no_digit_before_the_point_is_lost() -> None:
    assert [digits(value) for value in (0.05291, 12.345, 999.4, 123_456.7)] == ["0.0529", "12.3", "999", "123,457"]
