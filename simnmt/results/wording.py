"""Numbers and lists as the sentences of results write them."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10


def duration(seconds: float) -> str:
    """Three digits in the unit that a person would choose.

    >>> duration(0.0682), duration(8.0), duration(5400.0)
    ('68.2 ms', '8 s', '1.5 h')
    """
    shown_s = _rounded(seconds)
    for unit, length_s, below_s in (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if shown_s < below_s:
            return f"{digits(seconds / length_s)} {unit}"
    return f"{digits(seconds / 3600.0)} h"


def digits(value: float) -> str:
    """Three digits, but never fewer than those before the point.

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
    """A share or relative change in percent with two decimals at most, whole from 10 % on; never rounded to 0 or 100.

    >>> percent(0.0043), percent(0.129), percent(0.9996), percent(-0.0814, signed=True)
    ('0.43 %', '13 %', '99.96 %', '-8.1 %')
    """
    value = 100.0 * share
    if 0.0 < abs(value) < 0.01:
        return f"{'-' * (value < 0.0)}less than 0.01 %"
    decimals = 2 if abs(value) < 1.0 or 99.0 < value < 100.0 else 1 if abs(value) < 10.0 else 0
    return f"{value:{'+' if signed else ''}.{decimals}f} %"


def listed(names: Sequence[str]) -> str:
    """Names as a sentence lists them.

    >>> listed(["edge"]), listed(["edge", "cloud", "naive"])
    ('edge', 'edge, cloud and naive')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def interval_decimals(low: float, high: float, most: int = 2) -> int:
    """Return how many decimals a number and its interval deserve: those that show the interval's width with two digits.

    At most `most`. More than the width asks for where the bound next to zero would otherwise be rounded to zero.

    >>> interval_decimals(90.92, 110.63), interval_decimals(-1.93, -1.71), interval_decimals(0.31, 24.8)
    (0, 2, 1)
    """
    width = abs(high - low)
    decimals = min(max(1 - floor(log10(width)), 0), most) if width > 0.0 else most
    nearest = min(abs(low), abs(high)) if low * high > 0.0 else 1.0
    while decimals < most and round(nearest, decimals) == 0.0:
        decimals += 1
    return decimals


def signed_interval(value: float, low: float, high: float) -> str:
    """Return a percentage with its interval, digits as the interval allows.

    >>> signed_interval(100.54, 90.92, 110.63)
    '+101 % [+91, +111]'
    """
    decimals = interval_decimals(low, high)
    return f"{value:+.{decimals}f} % [{low:+.{decimals}f}, {high:+.{decimals}f}]"


def unsigned_interval(value: float, low: float, high: float) -> str:
    """Return the same without signs, the smaller bound first, for sentences that give the direction in words.

    >>> unsigned_interval(-12.34, -15.1, -9.6)
    '12.3 % [9.6, 15.1]'
    """
    decimals = interval_decimals(low, high)
    smaller, larger = sorted((abs(low), abs(high)))
    return f"{abs(value):.{decimals}f} % [{smaller:.{decimals}f}, {larger:.{decimals}f}]"


def _rounded(value: float) -> float:
    """To three digits."""
    return float(f"{value:.3g}")
