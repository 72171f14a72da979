"""Durations stand in the unit that a person would choose."""

from __future__ import annotations

import pytest

from simnmt.results.wording import digits, duration, interval_decimals, signed_interval, unsigned_interval


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


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (100.54, 90.92, 110.63, "+101 % [+91, +111]"),
        (-12.34, -15.1, -9.6, "-12.3 % [-15.1, -9.6]"),
        (1.234, 1.11, 1.36, "+1.23 % [+1.11, +1.36]"),
        (9.0, 0.31, 24.8, "+9.0 % [+0.3, +24.8]"),
        (9.0, 0.02, 44.8, "+9.00 % [+0.02, +44.80]"),
        (0.0, 0.0, 0.0, "+0.00 % [+0.00, +0.00]"),
    ],
)
def test_digits_follow_the_interval(value: float, low: float, high: float, text: str) -> None:
    """Two digits of the interval's width; a bound that is not zero is not shown as zero."""
    assert signed_interval(value, low, high) == text


def test_an_interval_without_signs_begins_with_the_smaller_bound() -> None:
    assert unsigned_interval(-12.34, -15.1, -9.6) == "12.3 % [9.6, 15.1]"
    assert interval_decimals(90.92, 110.63, most=0) == 0
