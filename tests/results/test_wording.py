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
        (0.9996, "1 s"),
        (119.96, "2 min"),
        (7_199.0, "2 h"),
        (5e-8, "0.00005 ms"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_no_digit_before_the_point_is_lost() -> None:
    assert [digits(value) for value in (0.05291, 12.345, 999.4, 123_456.7)] == ["0.0529", "12.3", "999", "123,457"]


def test_what_rounds_up_to_another_unit_or_digit_is_written_out() -> None:
    values = (999.6, 5e-5, 0.0, -999.6, -0.25, 9.999, 100.0, 1234.5678e-9)
    assert [digits(value) for value in values] == ["1,000", "0.00005", "0", "-1,000", "-0.25", "10", "100", "0.00000123"]
