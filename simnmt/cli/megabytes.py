"""Megabytes as a user gives them."""

from __future__ import annotations

import math

from simnmt.errors import InputError


def in_bytes(option: str, megabytes: float) -> int:
    """That many bytes, a megabyte being 10^6 of them; raises `InputError` for less than 0 and for what is no finite number."""
    if not 0.0 <= megabytes < math.inf:
        raise InputError(f"{option} {megabytes:g}: no size of a buffer", remedy="give 0 or more MB")
    return round(1e6 * megabytes)
