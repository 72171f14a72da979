"""Numbers as the sentences of results say them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Three digits in the unit that a person would choose.

    >>> duration(0.0682), duration(8.0), duration(5400.0)
    ('68.2 ms', '8 s', '1.5 h')
    """
    for unit, length_s, below_s in (("ms", 1e-3, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0)):
        if seconds < below_s:
            return f"{digits(seconds / length_s)} {unit}"
    return f"{digits(seconds / 3600.0)} h"


def digits(value: float) -> str:
    """Three digits, but never fewer than those before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"
