"""Times as logs write them: numbers of some unit, or dates in the order year, month, day."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone

_DATE = re.compile(
    r"(\d{4})[-./](\d\d?)[-./](\d\d?)"
    r"[T _]+(\d\d?)[:.](\d\d)(?:[:.](\d\d)(?:[.,](\d{1,9}))?)?"
    r"\s*(Z|UTC|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LARGEST_OF_UNIT = ((1e11, "s"), (1e14, "ms"), (1e17, "us"), (math.inf, "ns"))


def date_s(cell: str) -> float:
    """Unix time of a date, taken for UTC where it names no zone; NaN for anything else."""
    found = _DATE.fullmatch(cell.strip())
    if found is None:
        return math.nan
    *fields, fraction, zone = found.groups()
    try:
        moment = datetime(*(int(field or 0) for field in fields), tzinfo=timezone.utc)  # type: ignore[misc,arg-type]
    except ValueError:
        return math.nan
    ahead = timedelta()
    if zone and zone[0] in "+-":
        ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (1 if zone[0] == "+" else -1)
    return (moment - ahead - _EPOCH).total_seconds() + (float(f"0.{fraction}") if fraction else 0.0)


def unit_of_epoch(time: float) -> str:
    """The unit that makes a number the Unix time of a moment within living memory; s for small ones."""
    return next(unit for largest, unit in _LARGEST_OF_UNIT if abs(time) < largest)
