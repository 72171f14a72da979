"""Carbon intensity of electricity: one number, or a series over time from a CSV file, in grams of CO2 per kWh.

Grid operators and their aggregators publish such series, for example the Carbon Intensity API of Great Britain, ENTSO-E and
Electricity Maps. As in an RTT series, each sample holds until the next one, and the series repeats after its last sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from simnmt.base.configuration import Configuration
from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError
from simnmt.network.series import Column, Series
from simnmt.network.series_csv import Rows

SECONDS_PER: Mapping[str, float] = {"s": 1.0, "min": 60.0, "h": 3600.0}


class IntensitySeries(Series):
    """Grams of CO2 per kWh over one lap; 0 is an intensity like any other."""

    __slots__ = ()
    quantity = "carbon intensity"
    csv_column = "g_per_kwh"
    most = 1e5
    plausible_median = 5e3
    may_be_zero = True

    @property
    def csv_values(self) -> Column:
        """Grams per kWh."""
        return self.value

    @staticmethod
    def wrong_unit(median: float, unit: str) -> str:
        """Describe an implausible median and the slip that explains it."""
        return f"{median:.4g} g/kWh; these look like grams per MWh"


@dataclass(frozen=True, slots=True, eq=False)
class CarbonIntensity:
    """The intensity over the time of a run.

    Example:
        >>> series = IntensitySeries("grid", "unstated", "made up", [0.0, 3600.0], [100.0, 300.0])
        >>> grid = CarbonIntensity(series, begin_s=1800.0)
        >>> grid.at([0.0, 2000.0]).tolist(), grid.integral(3600.0) / 3600.0
        ([100.0, 300.0], 200.0)
    """

    series: IntensitySeries
    begin_s: float = 0.0
    """Moment of the series at which the run begins."""

    @property
    def constant(self) -> float | None:
        """Grams per kWh at all times; None if they change."""
        return float(self.series.value[0]) if len(self.series.value) == 1 else None

    def at(self, time_s: Column) -> Column:
        """Return the grams per kWh at moments of the run."""
        return self.series.at(np.asarray(time_s, np.float64) + self.begin_s)

    def integral(self, end_s: float) -> float:
        """Return the integral from the begin of the run to a moment, grams per kWh times seconds."""
        return self._until(self.begin_s + end_s) - self._until(self.begin_s)

    def _until(self, moment_s: float) -> float:
        series = self.series
        edges_s = np.append(series.time_s, series.duration_s)
        passed = np.concatenate([[0.0], np.cumsum(series.value * np.diff(edges_s))])
        laps, rest_s = divmod(moment_s, series.duration_s)
        return float(laps * passed[-1] + np.interp(rest_s, edges_s, passed))


class CarbonFile(Configuration):
    """A CSV file whose first row names its columns: a time and an intensity in each row."""

    csv: str = Field(min_length=1)
    """Path of the file, relative to the scenario file."""
    time_column: str | None = None
    """Name of the column of times, which are numbers or dates such as 2026-01-31T13:00Z; left out: the first column."""
    time_unit: Literal["s", "min", "h"] = "s"
    """Unit of times that are numbers."""
    column: str | None = None
    """Name of the column of intensities, g/kWh; left out: the second column."""
    begin_s: Annotated[float, Field(ge=0.0, le=1e9)] = 0.0
    """Moment of the series, from its first row, at which every run begins."""

    def path(self, base: Path) -> Path:
        """Return the path of the file; a relative one starts at `base`."""
        return (base / self.csv).absolute()

    def intensity(self, base: Path) -> CarbonIntensity:
        """Read the series. Raises `TraceError`."""
        return CarbonIntensity(read_carbon_csv(self.path(base), self.time_column, self.column, self.time_unit), self.begin_s)

    def resolved(self, base: Path) -> CarbonFile:
        """Return the configuration with an absolute path."""
        return self.model_copy(update={"csv": str(self.path(base))})


class ConstantCarbon(Configuration):
    """An intensity that never changes; in a scenario also a plain number."""

    g_per_kwh: Annotated[float, Field(ge=0.0, le=1e5)]
    """Grams of CO2 per kWh."""

    def intensity(self, base: Path) -> CarbonIntensity:
        """Return a series of one value."""
        grams = self.g_per_kwh
        return CarbonIntensity(
            IntensitySeries("constant", "constant", f"{grams:g} g/kWh at all times", np.zeros(1), np.array([grams]))
        )

    def resolved(self, base: Path) -> ConstantCarbon:
        """Return the configuration itself, which names no file."""
        return self


_GRAMS: TypeAdapter[float] = TypeAdapter(Annotated[float, Field(ge=0.0, le=1e5, strict=True, allow_inf_nan=False)])


def _one_carbon(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    # A plain union reports an error for each form; here only those of the form that was meant.
    if isinstance(value, CarbonFile | ConstantCarbon):
        return value
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("name a CSV file of times and g/kWh")
        return CarbonFile(csv=value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ConstantCarbon(g_per_kwh=_GRAMS.validate_python(value))
    if isinstance(value, Mapping):
        return (ConstantCarbon if "g_per_kwh" in value else CarbonFile).model_validate(value)
    raise ValueError("give a number of g/kWh, the path of a CSV file of times and g/kWh, or {csv: path}")


CarbonConfiguration = Annotated[
    CarbonFile | ConstantCarbon,
    WrapValidator(
        _one_carbon,
        json_schema_input_type=Annotated[float, Field(ge=0.0, le=1e5)]
        | Annotated[str, Field(json_schema_extra={"pattern": r"\S"})]
        | CarbonFile
        | ConstantCarbon,
    ),
]
"""`380` (g/kWh), `grid.csv` or `{csv: grid.csv, time_unit: h}`."""


def read_carbon_csv(
    path: Path, time_column: str | None = None, column: str | None = None, time_unit: str = "s"
) -> IntensitySeries:
    """Read a series of carbon intensities, g/kWh, whose first row names the columns; time 0 becomes the first row.

    Columns that are not named are the first and the second one. Raises `TraceError` with line and column for a cell that cannot
    be used, and for times that do not increase.
    """
    rows = Rows(path)
    rows.refuse_numbers("time,g_per_kwh")
    if len(rows.names) < 2 and None in (time_column, column):
        raise rows.wrong_column("one column, where times and g/kWh are two", 0, "separate the cells by commas")
    time_at = 0 if time_column is None else rows.index(time_column)
    value_at = 1 if column is None else rows.index(column)
    times, values = list[float](), list[float]()
    for cells in rows:
        time_s = _seconds(rows, time_at, cells[time_at], SECONDS_PER[time_unit])
        if times and time_s <= times[-1]:
            what = "appears twice" if time_s == times[-1] else "is earlier than the row before"
            raise rows.wrong(f"time {shorten(cells[time_at])} {what}", time_at, "sort the rows by time, one for each moment")
        grams = rows.number(value_at)
        if not 0.0 <= grams <= IntensitySeries.most:
            what = f"{shorten(rows.names[value_at])} is {shorten(cells[value_at])}"
            remedy = f"give grams of CO2 per kWh, 0 to {IntensitySeries.most:,.0f}"
            raise rows.wrong(what, value_at, remedy)
        times.append(time_s)
        values.append(grams)
    if not values:
        raise TraceError("no rows below the column names", path=path, remedy="give at least one time and intensity")
    series = np.array(values)
    IntensitySeries.check_unit(series, "g/kWh", f"of {rows.names[value_at]}", path, "give grams of CO2 per kWh")
    return IntensitySeries(path.stem, rows.kind, rows.source, np.array(times) - times[0], series)


def _seconds(rows: Rows, index: int, cell: str, per_unit: float) -> float:
    """Return a time in seconds: of a number in its unit, or of a date, which is UTC unless it has another zone."""
    try:
        moment = datetime.fromisoformat(cell.strip().replace("Z", "+00:00")) if "-" in cell[1:] and ":" in cell else None
    except ValueError:
        moment = None
    if moment is not None:
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    number = rows.number(index, "write numbers, or dates such as 2026-01-31T13:00Z")
    if not math.isfinite(number) or abs(number) > 1e15:
        raise rows.wrong(f"{shorten(rows.names[index])} is {shorten(cell)}", index, "give every row a finite time")
    return number * per_unit
