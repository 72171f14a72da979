"""Megabytes and milliseconds as a user gives them."""

from __future__ import annotations

import math

from simnmt.errors import InputError


def in_bytes(option: str, megabytes: float) -> int:
    """That many bytes, a megabyte being 10^6 of them; raises `InputError` for less than 0 and for what is no finite number."""
    if not 0.0 <= megabytes < math.inf:
        raise InputError(f"{option} {megabytes:g}: no size of a buffer", remedy="give 0 or more MB")
    return round(1e6 * megabytes)


def in_seconds(option: str, milliseconds: float) -> float:
    """That many seconds; raises `InputError` for 0, for less, and for what is no finite number."""
    if not 0.0 < milliseconds < math.inf:
        raise InputError(f"{option} {milliseconds:g}: no time to keep to", remedy="give a positive number of ms")
    return milliseconds / 1e3
