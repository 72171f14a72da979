"""Bandwidth series as CSV files, of the same form as RTT series."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.network.bandwidth_series import BandwidthSeries
from simnmt.network.csv_rows import SECONDS_PER, Rows, read_samples, series_text
from simnmt.network.text_files import write_texts
from simnmt.network.units import MOST_BANDWIDTH_BPS, check_rate_unit

RateUnit = Literal["mbps", "kbps", "bps"]

BPS_PER: Mapping[str, float] = {"mbps": 1e6, "kbps": 1e3, "bps": 1.0}


def read_bandwidth_csv(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    time_column: str = "time_s",
    column: str = "mbps",
    time_unit: Literal["s", "ms"] = "s",
    unit: RateUnit | None = None,
) -> BandwidthSeries:
    """Read a series whose first row names the columns; time 0 becomes the first sample with any bandwidth.

    Without a `unit`, a column called `dl_kbps` is in kbit/s, and one that names no unit in Mbit/s. An empty cell, `nan`
    or 0 is a lost sample: the value before it holds on, and it is counted; those before the first that is none are
    counted and dropped.

    Raises `TraceError` with line and column where the file says anything else.
    """
    rows = Rows(Path(path))
    taken = unit or unit_of(column) or "mbps"
    most = MOST_BANDWIDTH_BPS / BPS_PER[taken]
    samples = read_samples(rows, time_column, column, means="a bandwidth", most=most, zero_is_lost=True)
    time_s = (np.array(samples.time) - samples.time[0]) * SECONDS_PER[time_unit]
    rate_bps = np.array(samples.value) * BPS_PER[taken]
    remedy = "set unit: bps" if taken == "kbps" else "set unit: kbps or unit: bps"
    check_rate_unit(rate_bps, taken, f"of {column}", path, remedy)
    return BandwidthSeries(name or Path(path).stem, rows.kind, rows.source, time_s, rate_bps, samples.lost)


def write_bandwidth_csv(
    path: str | os.PathLike[str],
    series: BandwidthSeries,
    *,
    notes: Mapping[str, str] | None = None,
    lost: NDArray[np.bool_] | None = None,
) -> None:
    """Write a series as `write_rtt_csv` does."""
    write_texts({Path(path): bandwidth_csv_text(series, notes=notes, lost=lost)})


def bandwidth_csv_text(
    series: BandwidthSeries, *, notes: Mapping[str, str] | None = None, lost: NDArray[np.bool_] | None = None
) -> str:
    """What the file of a series holds, as `rtt_csv_text` has it."""
    return series_text("bandwidth", series, "time_s,mbps", series.rate_bps / 1e6, notes, lost)


def unit_of(column: str) -> str | None:
    """The unit that a column's name ends with; None where it names none."""
    return next((unit for unit in BPS_PER if column.lower().endswith(unit)), None)
