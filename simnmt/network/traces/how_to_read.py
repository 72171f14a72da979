"""What a user may say about a file of measurements where the file leaves it open."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from simnmt.network.errors import TraceError

Reply = Literal["min", "mean", "first"]
Role = Literal["time", "rtt", "downlink", "uplink"]

TIMES = ("s", "ms", "us", "ns")
RATES = ("gbps", "mbps", "kbps", "bps")
UNITS: Mapping[Role, tuple[str, ...]] = {"time": TIMES, "rtt": TIMES, "downlink": RATES, "uplink": RATES}


@dataclass(frozen=True, slots=True)
class Choice:
    """The column that holds something, its unit, or both; None leaves it to what the file says."""

    name: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class HowToRead:
    """Which of several replies, probes or columns is meant; None leaves it to what the file says.

    Raises `TraceError` for a reply of no such name, or a number that makes no sense.
    """

    reply: Reply = "min"
    """What a round of several replies is worth: the least of those that count, their mean, or the first."""
    probe: int | None = None
    """Of several RIPE Atlas probes, this one."""
    measurement: int | None = None
    """Of several RIPE Atlas measurements, this one."""
    columns: Mapping[Role, Choice] = field(default_factory=dict)
    """Where the names of a CSV file's columns do not tell."""
    idle_below_bps: float = 0.0
    """A throughput below this is a pause, not the bandwidth: lost."""
    interval_s: float = 1.0
    """Time between requests of `ping` output that holds no times."""

    def __post_init__(self) -> None:
        if self.reply not in get_args(Reply):
            raise TraceError(f"--reply {self.reply}: no such choice", remedy=f"one of {', '.join(get_args(Reply))}")
        if not (math.isfinite(self.idle_below_bps) and self.idle_below_bps >= 0.0):
            raise TraceError(f"--idle-below-kbps {self.idle_below_bps / 1e3:g}", remedy="give 0 or more")
        if not (math.isfinite(self.interval_s) and self.interval_s > 0.0):
            raise TraceError(f"--interval {self.interval_s:g}", remedy="give a positive number of seconds")

    def column(self, role: Role) -> Choice:
        """What was said about the column that holds `role`."""
        return self.columns.get(role, Choice())


def column_choices(said: Iterable[str]) -> dict[Role, Choice]:
    """Read `rtt=latency`, `rtt=latency:s` or `rtt=:s`, one a column. Raises `TraceError` for anything else."""
    found: dict[Role, Choice] = {}
    for text in said:
        role, _, rest = text.partition("=")
        if role not in UNITS or not rest:
            what = f"--column {text}: is neither ROLE=NAME nor ROLE=NAME:UNIT"
            raise TraceError(what, remedy=f"roles: {', '.join(UNITS)}")
        known = cast(Role, role)
        name, colon, unit = rest.rpartition(":")
        if colon and unit in TIMES + RATES:
            if unit not in UNITS[known]:
                raise TraceError(f"--column {text}: {unit} is no unit of it", remedy=f"one of {', '.join(UNITS[known])}")
            found[known] = Choice(name or None, unit)
        else:
            found[known] = Choice(rest)
    return found
