"""RTT and bandwidth series that users bring: arrays and tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.extension import Extended, Extension, ExtensionError
from simnmt.network.series import BPS_PER, SECONDS_PER, BandwidthSeries, RttSeries, Series

_Series = TypeVar("_Series", bound=Series)
_ARRAY = {RttSeries: "s", BandwidthSeries: "mbps"}
"""Unit of the values of an array."""
_COLUMNS = {
    RttSeries: {f"rtt_{unit}": SECONDS_PER[unit] for unit in ("s", "ms")},
    BandwidthSeries: {unit: BPS_PER[unit] for unit in ("bps", "kbps", "mbps", "gbps")},
}
"""Names of the column of values in a table, and their units."""


class CustomRtt(Extended):
    """The configuration of an RTT series that a user brings."""

    def series(self, base: Path, name: str) -> RttSeries:
        """Return the series. Raises `ExtensionError`, or `TraceError` for values that make no series."""
        return _series(RttSeries, self.extension, name)


class CustomBandwidth(Extended):
    """The configuration of a bandwidth series that a user brings."""

    def series(self, base: Path, name: str) -> BandwidthSeries:
        """Return the series. Raises `ExtensionError`, or `TraceError` for values that make no series."""
        return _series(BandwidthSeries, self.extension, name)


def _series(kind: type[_Series], extension: Extension, name: str) -> _Series:
    value, label = extension.value, extension.label
    if isinstance(value, kind):
        return value
    times_s, values, unit = _columns(kind, value, label)
    lost = np.isnan(values) | ((values == 0.0) if kind is BandwidthSeries else False)
    if lost.all():
        raise ExtensionError(f"{label} holds no sample that arrived", remedy="give at least one")
    kind.check_unit(values, unit, f"value of {label}", None, "give the unit that is meant")
    first = int(np.argmin(lost))
    # The value before a lost sample holds on.
    latest = np.maximum.accumulate(np.where(lost, -1, np.arange(len(values))))[first:]
    begun_s = times_s[first:] - times_s[first]
    return kind(name, "unstated", f"given in Python as {label}", begun_s, values[latest], int(lost.sum()), lost[first:])


def _pair_of_columns(value: Any) -> tuple[Any, Any]:
    """Return (times, values) of a tuple of two columns, or of samples of shape (samples, 2). Raises `ValueError`."""
    if isinstance(value, tuple) and len(value) == 2 and all(np.ndim(column) == 1 for column in value):
        times, values = value
        if len(times) != len(values):
            raise ValueError("columns of different lengths")
        return times, values
    samples = np.asarray(value)
    if samples.ndim != 2 or samples.shape[1] != 2:
        raise ValueError("no pairs")
    return samples[:, 0], samples[:, 1]


def _columns(kind: type[Series], value: Any, label: str) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Return the times and the values in seconds or bit/s, and the unit in which they were given."""
    units = _COLUMNS[kind]
    try:
        if hasattr(value, "columns"):
            column = next((name for name in units if name in value.columns), None)
            if column is None or "time_s" not in value.columns:
                what = f"a table of {kind.quantity}s has the columns time_s and {' or '.join(units)}"
                raise ExtensionError(f"{label}: {what}", remedy=f"it has {', '.join(map(str, value.columns))}")
            times, values = value["time_s"], value[column]
            factor, unit = units[column], column.removeprefix("rtt_")
        else:
            times, values = _pair_of_columns(value)
            unit = _ARRAY[kind]
            factor = 1.0 if kind is RttSeries else BPS_PER[unit]
        return np.asarray(times, dtype=np.float64), np.asarray(values, dtype=np.float64) * factor, unit
    except (TypeError, ValueError):
        shape = f"(times in seconds, values in {_ARRAY[kind]})"
        remedy = f"give {shape}, an array of shape (samples, 2), or a table with time_s and {' or '.join(units)}"
        raise ExtensionError(f"{label} is no series of {kind.quantity}s", remedy=remedy) from None
