"""Options of the trace commands: choices for ambiguous files, and dates as people and logs write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Literal, cast, get_args

from simnmt.network.errors import TraceError
from simnmt.network.series import BPS_PER, SECONDS_PER

Reply = Literal["min", "mean", "first"]
Role = Literal["time", "rtt", "downlink", "uplink"]

TIMES, RATES = tuple(SECONDS_PER), tuple(BPS_PER)
SPELT: Mapping[str, str] = {
    "gbit/s": "gbps",
    "mbit/s": "mbps",
    "kbit/s": "kbps",
    "bit/s": "bps",
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
    "milliseconds": "ms",
    "µs": "us",
    "usec": "us",
}
"""Other spellings of units, in small letters."""
UNITS: Mapping[Role, tuple[str, ...]] = {"time": TIMES, "rtt": TIMES, "downlink": RATES, "uplink": RATES}


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A stated column name, unit, or both; None: take it from the file."""

    name: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Choices between several replies, probes or columns; None: take it from the file.

    Raises `TraceError` for an unknown `reply` and for a number out of range.
    """

    reply: Reply = "min"
    """Value of a round of several replies: the least, their mean, or the first."""
    probe: int | None = None
    """The RIPE Atlas probe to read, of several."""
    measurement: int | None = None
    """The RIPE Atlas measurement to read, of several."""
    columns: Mapping[Role, ColumnChoice] = field(default_factory=dict)
    """Choices of columns by role, for a CSV file whose column names are unknown."""
    idle_below_bps: float = 0.0
    """A throughput below this is a pause of the traffic, not the bandwidth: lost."""
    interval_s: float = 1.0
    """Time between requests of `ping` output that holds no times."""

    def __post_init__(self) -> None:
        if self.reply not in get_args(Reply):
            raise TraceError(f"--reply {self.reply}: no such choice", remedy=f"one of {', '.join(get_args(Reply))}")
        if not (math.isfinite(self.idle_below_bps) and self.idle_below_bps >= 0.0):
            raise TraceError(f"--idle-below {self.idle_below_bps:g}bit/s", remedy="give 0 or more")
        if not (math.isfinite(self.interval_s) and self.interval_s > 0.0):
            raise TraceError(f"--interval {self.interval_s:g}", remedy="give a positive number of seconds")

    def column(self, role: Role) -> ColumnChoice:
        """Return the choice for the column that holds `role`."""
        return self.columns.get(role, ColumnChoice())


def parse_columns(texts: Iterable[str]) -> dict[Role, ColumnChoice]:
    """Parse texts such as `rtt=latency`, `rtt=latency:s` or `rtt=:s`. Raises `TraceError` for anything else."""
    choices: dict[Role, ColumnChoice] = {}
    for text in texts:
        role, _, rest = text.partition("=")
        if role not in UNITS or not rest:
            what = f"--column {text}: is neither ROLE=NAME nor ROLE=NAME:UNIT"
            raise TraceError(what, remedy=f"roles: {', '.join(UNITS)}")
        known = cast(Role, role)
        name, colon, unit = rest.rpartition(":")
        unit = SPELT.get(unit.lower(), unit)
        if colon and unit in TIMES + RATES:
            if unit not in UNITS[known]:
                raise TraceError(f"--column {text}: {unit} is no unit of it", remedy=f"one of {', '.join(UNITS[known])}")
            choices[known] = ColumnChoice(name or None, unit)
        else:
            choices[known] = ColumnChoice(rest)
    return choices


_DATE = re.compile(
    r"(\d{4})[-./](\d\d?)[-./](\d\d?)"
    r"[T _]+(\d\d?)[:.](\d\d)(?:[:.](\d\d)(?:[.,](\d{1,9}))?)?"
    r"\s*(Z|UTC|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LARGEST_OF_UNIT = ((1e11, "s"), (1e14, "ms"), (1e17, "us"), (math.inf, "ns"))


def parse_date_s(cell: str) -> float:
    """Return the Unix time of a date, in UTC unless it names a zone; NaN for anything else."""
    match = _DATE.fullmatch(cell.strip())
    if match is None:
        return math.nan
    *fields, fraction, zone = match.groups()
    try:
        moment = datetime(*(int(field or 0) for field in fields), tzinfo=timezone.utc)  # type: ignore[misc,arg-type]
    except ValueError:
        return math.nan
    ahead = timedelta()
    if zone and zone[0] in "+-":
        ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])) * (1 if zone[0] == "+" else -1)
    return (moment - ahead - _EPOCH).total_seconds() + (float(f"0.{fraction}") if fraction else 0.0)


def epoch_unit(time: float) -> str:
    """Return the unit in which a number is a Unix time of recent decades; s for small numbers."""
    return next(unit for largest, unit in _LARGEST_OF_UNIT if abs(time) < largest)
