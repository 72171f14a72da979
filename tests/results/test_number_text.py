"""Numbers for sentences: in the unit that a person would choose, with the digits that their intervals allow."""

from __future__ import annotations

import pytest

from simnmt.results.number_text import digits, duration, format_interval, percent, percent_interval


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0682, "68.2 ms"),
        (1.0, "1 s"),
        (120.0, "2 min"),
        (5_400.0, "90 min"),
        (1e7, "2,778 h"),
        (0.9996, "1 s"),
        (5e-8, "0.00005 ms"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
    assert (duration(0.0682, 0.051, 0.089), duration(0.0682, 0.051, 0.089, interval=True)) == ("68 ms", "68 ms [51, 89]")
    assert [digits(value) for value in (999.6, 0.0, -999.6, -0.25, 9.999)] == ["1,000", "0", "-1,000", "-0.25", "10"]


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (100.54, 90.92, 110.63, "+101 % [+91, +111]"),
        (-12.34, -15.1, -9.6, "-12.3 % [-15.1, -9.6]"),
        (9.0, 0.31, 24.8, "+9.0 % [+0.3, +24.8]"),
        (0.0, 0.0, 0.0, "0.00 % [0.00, 0.00]"),
        (-0.03, -0.9, 0.8, "less than 0.1 % [-0.9, +0.8]"),
        (0.003, 0.001, 0.004, "less than 0.01 % [0.00, 0.00]"),
        (1.5, None, None, "+1.50 %"),
    ],
)
def test_digits_follow_the_interval(value: float, low: float | None, high: float | None, text: str) -> None:
    """Two digits of the interval's width; a number that is not zero is not shown as zero, and zero has no sign."""
    assert percent_interval(value, low, high) == text


def test_a_number_has_the_digits_of_its_interval_and_the_signs_asked_for() -> None:
    assert format_interval(1234.567, 1100.0, 1350.0, signs="minus") == ("1,235", "[1,100, 1,350]")
    assert format_interval(-0.5, -0.75, 0.25, signs="minus", most=1) == ("-0.5", "[-0.8, 0.2]")
    assert format_interval(0.1234, None, None, most=3) == ("+0.123", "")


@pytest.mark.parametrize(
    ("share", "text", "signed"),
    [
        (1.0, "100 %", "+100 %"),
        (0.999999, "more than 99.99 %", "+99.99 %"),
        (-0.999999, "more than 99.99 %", "-99.99 %"),
        (0.9996, "99.96 %", "+99.96 %"),
        (-0.00003, "less than 0.01 %", "less than 0.01 %"),
        (0.0, "0.00 %", "+0.00 %"),
        (0.129, "13 %", "+13 %"),
    ],
)
def test_a_share_is_rounded_neither_to_nothing_nor_to_all(share: float, text: str, signed: str) -> None:
    assert (percent(share), percent(share, signed=True)) == (text, signed)
