"""Lengths of time, sizes and moments as a person writes them on a command line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named
from simnmt.network.traces.time_cells import date_s

_SECONDS: Mapping[str, float] = {"ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES: Mapping[str, float] = {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "kib": 1 << 10, "mib": 1 << 20}
_QUANTITY = re.compile(r" *(\d{1,12}(?:\.\d{1,9})?) *([A-Za-z]*) *", re.ASCII)
_DAY = re.compile(r"\d{4}[-./]\d\d?[-./]\d\d?")
_UNIX_S = re.compile(r"\d{9,10}", re.ASCII)


def seconds(text: str, option: str) -> float:
    """Seconds of `600`, `600s`, `10m`, `2h`, `1d` or `500ms`. Raises `TraceError` that names `option`."""
    return _quantity(text, option, _SECONDS, "write it as 600s, 10m, 2h, 1d or 500ms")


def size_bytes(text: str, option: str) -> int:
    """Bytes of `256kB`, `1MB`, `64KiB` or a bare number. Raises `TraceError` that names `option`."""
    return round(_quantity(text, option, _BYTES, "write it as 256kB, 1MB or 64KiB"))


def moment_s(text: str, option: str) -> int:
    """Unix time of `2026-01-01`, `2026-01-01T12:30`, a date with a zone, or Unix seconds; UTC unless it says otherwise.

    Raises `TraceError` that names `option`.
    """
    if _UNIX_S.fullmatch(text.strip()):
        return int(text)
    whole = f"{text.strip()} 00:00" if _DAY.fullmatch(text.strip()) else text
    time_s = date_s(whole)
    if math.isnan(time_s) or time_s < 0.0:
        raise TraceError(f"{option} {named(text)}: is no date", remedy="write it as 2026-01-01 or 2026-01-01T12:30, in UTC")
    return int(time_s)


def _quantity(text: str, option: str, units: Mapping[str, float], remedy: str) -> float:
    found = _QUANTITY.fullmatch(text)
    per_unit = None if found is None else units.get(found[2].lower())
    if found is None or per_unit is None:
        raise TraceError(f"{option} {named(text)}: is no such quantity", remedy=remedy)
    return float(found[1]) * per_unit
