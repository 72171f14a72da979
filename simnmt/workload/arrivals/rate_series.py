"""A recorded rate over time, as CSV: `t_s,rate_rps`, a row for each window."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt.workload.arrivals.errors import ArrivalsError
from simnmt.workload.arrivals.process import Times
from simnmt.workload.arrivals.rate_curve import RateCurve
from simnmt.workload.arrivals.trace_rows import TraceLines, TraceTable

Zeros = Literal["quiet", "hold"]


@dataclass(frozen=True, slots=True, eq=False)
class RateSeries:
    """The rate of each window, and where it comes from."""

    curve: RateCurve
    kind: str
    """`measured` or `synthetic` as the file says; `unstated` where it says nothing."""
    source: str
    silent: int
    """Windows whose rate is zero or missing in the file."""


def read_rate_series(path: str | os.PathLike[str], *, time_column: str, rate_column: str, zeros: Zeros) -> RateSeries:
    """Read a series whose first row names its columns; each rate holds until the next row's time, the last as long as the
    one before it, and time 0 becomes the first row's.

    An empty cell is a window without data; it holds the rate of the last window that has some (the leading ones that of
    the first), and so does a zero where `zeros` is `hold`; else a zero says that nothing arrived. Raises `ArrivalsError`
    with line and column.
    """
    lines = TraceLines(path)
    rows = iter(lines)
    table = TraceTable(lines, rows, next(rows, b""))
    time_at, rate_at = table.require(time_column), table.require(rate_column)
    times: list[float] = []
    rates: list[float] = []
    for cells in table:
        time_s = table.number(time_at)
        if times and time_s <= times[-1]:
            raise table.wrong(
                f"{time_column} {time_s:g} is not after the row before", time_at, "sort the rows, one for each time"
            )
        times.append(time_s)
        rates.append(table.number(rate_at) if cells[rate_at].strip() else np.nan)
    if len(times) < 2:
        raise ArrivalsError("fewer than two rows", path=path, remedy="give a row for each window, or use kind poisson")
    edge_s = np.array([*times, 2 * times[-1] - times[-2]]) - times[0]
    rate_rps, silent = _held(np.array(rates), zeros)
    if not np.any(rate_rps > 0):
        raise ArrivalsError(f"{rate_column} is nowhere above 0", path=path, remedy="give a series in which something arrives")
    source = table.notes.get("source") or f"file {lines.path.name}"
    return RateSeries(RateCurve(edge_s, rate_rps), table.notes.get("kind") or "unstated", source, silent)


def _held(rate_rps: Times, zeros: Zeros) -> tuple[Times, int]:
    """The rates with no window left without data, and how many were zero or missing."""
    silent = ~(rate_rps > 0)
    missing = silent if zeros == "hold" else np.isnan(rate_rps)
    if missing.all():
        return np.zeros(len(rate_rps)), int(silent.sum())
    window = np.arange(len(rate_rps))
    last = np.maximum.accumulate(np.where(missing, -1, window))
    last[last < 0] = np.argmin(missing)
    return rate_rps[last], int(silent.sum())
