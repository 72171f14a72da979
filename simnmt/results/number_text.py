"""Format numbers for the sentences and tables of results: durations, shares, and estimates with their intervals."""

from __future__ import annotations

from math import floor, inf, log10
from typing import Literal


def duration(seconds: float, low_s: float | None = None, high_s: float | None = None, *, interval: bool = False) -> str:
    """Return a duration in a convenient unit, with as many digits as its interval allows, or three without one.

    `interval`: True to show the interval too.

    >>> duration(0.0682), duration(8.0), duration(9000.0), duration(0.0682, 0.051, 0.089)
    ('68.2 ms', '8 s', '2.5 h', '68 ms')
    >>> duration(0.0682, 0.051, 0.089, interval=True)
    '68 ms [51, 89]'
    """
    shown_s = _rounded(seconds)
    units = (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, inf))
    unit, length_s = next((unit, length_s) for unit, length_s, below_s in units if shown_s < below_s)
    low, high = (None if end is None else end / length_s for end in (low_s, high_s))
    ends = format_interval(seconds / length_s, low, high, signs="minus")[1] if interval else ""
    return f"{format_estimate(seconds / length_s, low, high)} {unit} {ends}".rstrip()


def digits(value: float) -> str:
    """Return a number with three digits, but never fewer than those before the point.

    >>> digits(999.6), digits(5e-5)
    ('1,000', '0.00005')
    """
    shown = _rounded(value)
    if abs(shown) >= 1000.0:
        return f"{value:,.0f}"
    decimals = 2 - floor(log10(abs(shown))) if shown else 0
    text = f"{shown:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, *, signed: bool = False) -> str:
    """Return a share or relative change in percent with two decimals at most, whole from 10 % on; never rounded to 0 or 100.

    >>> percent(0.0043), percent(0.129), percent(0.9996), percent(-0.0814, signed=True)
    ('0.43 %', '13 %', '99.96 %', '-8.1 %')
    >>> percent(-0.00003), percent(0.999999)
    ('less than 0.01 %', 'more than 99.99 %')
    """
    value = 100.0 * share
    size = abs(value)
    if 0.0 < size < 0.01:
        return "less than 0.01 %"
    if 99.99 < size < 100.0:
        return f"{'+' if value > 0.0 else '-'}99.99 %" if signed else "more than 99.99 %"
    decimals = 2 if size < 1.0 or 99.0 < size < 100.0 else 1 if size < 10.0 else 0
    return f"{value:{'+' if signed else ''}.{decimals}f} %"


def interval_decimals(low: float, high: float, most: int = 2) -> int:
    """Return how many decimals a number and its interval need to show the interval's width with two digits.

    At most `most`. There are more than the width needs if the bound next to zero would otherwise be rounded to zero.

    >>> interval_decimals(90.92, 110.63), interval_decimals(-1.93, -1.71), interval_decimals(0.31, 24.8)
    (0, 2, 1)
    """
    width = abs(high - low)
    decimals = min(max(1 - floor(log10(width)), 0), most) if width > 0.0 else most
    nearest = min(abs(low), abs(high)) if low * high > 0.0 else 1.0
    while decimals < most and round(nearest, decimals) == 0.0:
        decimals += 1
    return decimals


Signs = Literal["both", "minus", "none"]
"""Signs that a number shows: plus and minus, as of a change; minus alone; or none, if a sentence gives the direction."""


def format_interval(
    value: float, low: float | None, high: float | None, *, signs: Signs = "both", most: int = 2
) -> tuple[str, str]:
    """Return a number and its interval as texts, with as many decimals as the interval allows (`interval_decimals`).

    Args:
        value: the number.
        low, high: the ends of its interval, in the same unit; None for no interval, whose text is then empty.
        signs: signs to show; without signs the smaller bound comes first. Zero has no sign.
        most: decimals at most, and those of a number without an interval.

    >>> format_interval(100.54, 90.92, 110.63)
    ('+101', '[+91, +111]')
    >>> format_interval(-12.34, -15.1, -9.6, signs="none")
    ('12.3', '[9.6, 15.1]')
    """
    if low is None or high is None:
        return _fixed(value, most, signs), ""
    decimals = interval_decimals(low, high, most)
    first, second = sorted((low, high), key=abs) if signs == "none" else (low, high)
    return _fixed(value, decimals, signs), f"[{_fixed(first, decimals, signs)}, {_fixed(second, decimals, signs)}]"


def format_estimate(value: float, low: float | None = None, high: float | None = None) -> str:
    """Return a number without its interval, but with as many digits as that allows; three digits without an interval.

    >>> format_estimate(7850.46, 7830.1, 7865.5), format_estimate(68.42, 66.9, 70.0), format_estimate(68.4231)
    ('7,850', '68.4', '68.4')
    """
    return digits(value) if low is None or high is None else format_interval(value, low, high, signs="minus")[0]


def percent_interval(value: float, low: float | None, high: float | None, *, signs: Signs = "both", unit: str = "%") -> str:
    """Return a percentage with its interval for a sentence; a number other than 0 is not shown as 0.

    `unit`: text after the number, such as `points` for a difference of percentages.

    >>> percent_interval(1.234, 1.11, 1.36), percent_interval(0.04, -0.9, 0.9), percent_interval(2.5, None, None)
    ('+1.23 % [+1.11, +1.36]', 'less than 0.1 % [-0.9, +0.9]', '+2.50 %')
    """
    text, interval = format_interval(value, low, high, signs=signs)
    if value != 0.0 and not text.strip("0."):
        text = f"less than {text[:-1]}1"
    return f"{text} {unit} {interval}".rstrip()


def _fixed(value: float, decimals: int, signs: Signs) -> str:
    """Return a number with `decimals` decimals and its signs; zero has no sign."""
    text = f"{abs(value) if signs == 'none' else value:{'+' if signs == 'both' else ''},.{decimals}f}"
    return text if text.strip("+-0.") else text.lstrip("+-")


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
