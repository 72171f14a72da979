"""Typography of numbers and texts on pages."""

from __future__ import annotations

import math
import re
from typing import TypeGuard

MINUS, THIN, DASH = "\u2212", "\u202f", "\u2013"
_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether there is a finite number to show."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(value: float, decimals: int) -> str:
    """Return a number with fixed decimals as the page sets it; never a negative zero."""
    text = f"{value:,.{decimals}f}"
    return typeset(text if text.strip("-0.,") else text.lstrip("-"))


def significant(value: float, digits: int = 4) -> str:
    """Return a number with at most `digits` significant digits; a power of ten where a value is tiny."""
    value = float(f"{value:.{digits - 1}e}")
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if exponent < -4:
        mantissa = float(f"{value:e}".partition("e")[0]) if exponent < -300 else value / 10.0**exponent  # 10**-324 is 0
        return f"{significant(mantissa, digits)}\u202f\u00b7\u202f10{str(exponent).translate(_RAISED)}"
    text = number(value, max(digits - 1 - exponent, 0))
    return text.rstrip("0").rstrip(".") if "." in text else text


def typeset(text: str) -> str:
    """Return a text with its numbers set as on the page: thousands by thin spaces, true minus signs, dashes.

    >>> typeset("1,873 of 18,730, moved by -24.5 ms")
    '1\u202f873 of 18\u202f730, moved by \u221224.5 ms'
    """
    if text == "-":
        return DASH
    return re.sub(r"(?<![^\s(\[])-(?=\.?\d)|(?<=\d )-(?= \d)", MINUS, re.sub(r"(?<=\d),(?=\d{3}(?!\d))", THIN, text))
