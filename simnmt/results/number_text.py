"""Format numbers for the sentences and tables of results: durations, shares, and estimates with their intervals."""

from __future__ import annotations

from math import floor, inf, log10
from typing import Literal

Signs = Literal["both", "minus"]
"""Signs that a number shows: plus and minus, as of a change; or minus alone."""


def duration(seconds: float, low_s: float | None = None, high_s: float | None = None, *, interval: bool = False) -> str:
    """Return a duration in a convenient unit, with as many digits as its interval allows, or three without one.

    `interval`: True to show the interval too.
    """
    units = (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, inf))
    unit, length_s = next((unit, length_s) for unit, length_s, below_s in units if float(f"{seconds:.3g}") < below_s)
    if low_s is None or high_s is None:
        return f"{digits(seconds / length_s)} {unit}"
    text, ends = format_interval(seconds / length_s, low_s / length_s, high_s / length_s, signs="minus")
    return f"{text} {unit} {ends if interval else ''}".rstrip()


def digits(value: float) -> str:
    """Return a number with three digits, but never fewer than those before the point."""
    shown = float(f"{value:.3g}")
    if abs(shown) >= 1000.0:
        return f"{value:,.0f}"
    decimals = 2 - floor(log10(abs(shown))) if shown else 0
    text = f"{shown:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, *, signed: bool = False) -> str:
    """Return a share or relative change in percent with two decimals at most, whole from 10 % on; never rounded to 0 or 100."""
    value = 100.0 * share
    size = abs(value)
    if 0.0 < size < 0.01:
        return "less than 0.01 %"
    if 99.99 < size < 100.0:
        return f"{'+' if value > 0.0 else '-'}99.99 %" if signed else "more than 99.99 %"
    decimals = 2 if size < 1.0 or 99.0 < size < 100.0 else 1 if size < 10.0 else 0
    return f"{value:{'+' if signed else ''}.{decimals}f} %"


def format_interval(
    value: float, low: float | None, high: float | None, *, signs: Signs = "both", most: int = 2
) -> tuple[str, str]:
    """Return a number and its interval as texts, with so many decimals that the interval's width has two digits.

    There are more if the bound next to zero would otherwise be rounded to zero. Zero has no sign. Without an interval its text
    is empty. `most`: decimals at most, and those of a number without an interval.

    >>> format_interval(100.54, 90.92, 110.63), format_interval(9.0, 0.31, 24.8)
    (('+101', '[+91, +111]'), ('+9.0', '[+0.3, +24.8]'))
    """
    if low is None or high is None:
        return _fixed(value, most, signs), ""
    width = abs(high - low)
    decimals = min(max(1 - floor(log10(width)), 0), most) if width > 0.0 else most
    nearest = min(abs(low), abs(high)) if low * high > 0.0 else 1.0
    while decimals < most and round(nearest, decimals) == 0.0:
        decimals += 1
    return _fixed(value, decimals, signs), f"[{_fixed(low, decimals, signs)}, {_fixed(high, decimals, signs)}]"


def percent_interval(value: float, low: float | None, high: float | None, *, unit: str = "%") -> str:
    """Return a change in percent with its interval for a sentence; a number other than 0 is not shown as 0.

    `unit`: text after the number, such as `points` for a difference of percentages.
    """
    text, interval = format_interval(value, low, high)
    if value != 0.0 and not text.strip("0."):
        text = f"less than {text[:-1]}1"
    return f"{text} {unit} {interval}".rstrip()


def _fixed(value: float, decimals: int, signs: Signs) -> str:
    text = f"{value:{'+' if signs == 'both' else ''},.{decimals}f}"
    return text if text.strip("+-0.") else text.lstrip("+-")
