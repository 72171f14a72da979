"""A recorded rate over time, as CSV: `t_s,rate_rps`, a row for each window."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt.workload.arrivals.errors import ArrivalsError
from simnmt.workload.arrivals.process import Times
from simnmt.workload.arrivals.rate_curve import RateCurve
from simnmt.workload.arrivals.trace_rows import TraceTable, shown, trace_lines

Zeros = Literal["quiet", "hold"]

MAX_RATE_RPS = 1e9
_LEAST_WINDOW_S = 1e-6
_LEAST_RATE_RPS = 1e-9
"""Of the busiest window: with less, no run sees a request."""


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
    lines = trace_lines(path, kept="all")
    rows = iter(lines)
    table = TraceTable(lines, rows, next(rows, b""))
    time_at, rate_at = table.require(time_column), table.require(rate_column)
    times: list[float] = []
    rates: list[float] = []
    for cells in table:
        time_s = table.seconds(time_at)
        if times and time_s <= times[-1]:
            raise table.wrong(
                f"{time_column} {time_s:g} is not after the row before", time_at, "sort the rows, one for each time"
            )
        if times and time_s - times[-1] < _LEAST_WINDOW_S:
            what = f"{time_column} {time_s:g} is less than a microsecond after the row before"
            raise table.wrong(what, time_at, "give seconds")
        rate = table.number(rate_at) if cells[rate_at].strip() else np.nan
        if rate > MAX_RATE_RPS:
            what = f"{rate_column} is {shown(cells[rate_at])}"
            raise table.wrong(what, rate_at, "give requests per second, at most 1e9")
        times.append(time_s)
        rates.append(rate)
    if len(times) < 2:
        raise ArrivalsError("fewer than two rows", path=path, remedy="give a row for each window, or use kind poisson")
    edge_s = np.array([*times, 2 * times[-1] - times[-2]]) - times[0]
    rate_rps, silent = _held(np.array(rates), zeros)
    if not np.any(rate_rps > 0):
        raise ArrivalsError(f"{rate_column} is nowhere above 0", path=path, remedy="give a series in which something arrives")
    if (most_rps := rate_rps.max()) < _LEAST_RATE_RPS:
        what = f"{rate_column} is {most_rps:g} at most, a request in more than 30 years"
        raise ArrivalsError(what, path=path, remedy="give requests per second")
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
