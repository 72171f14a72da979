"""Arrivals at a rate that changes over time and is known in advance: a daily curve, steps, or a recorded series of rates.

A recorded series is a CSV file, `t_s,rate_rps`, with a row for each window.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, InputFile, form_by_key
from simnmt.base.random_streams import BLOCK
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.trace_table import TraceLines, TraceTable, cell_text
from simnmt.workload.errors import ArrivalsError

DAY_S = 86_400.0
_MINUTES = 1440


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """A periodic rate in pieces: piece k lasts from `edge_s[k]` to `edge_s[k + 1]` and has `rate_rps[k]`."""

    edge_s: Times
    """Shape (pieces + 1,), ascending from 0."""
    rate_rps: Times
    """Shape (pieces,), none negative, at least one positive."""

    def __post_init__(self) -> None:
        self.edge_s.setflags(write=False)
        self.rate_rps.setflags(write=False)

    @property
    def duration_s(self) -> float:
        """Length of a period."""
        return float(self.edge_s[-1])

    @property
    def mean_rps(self) -> float:
        """Mean rate over time."""
        return float((self.rate_rps * np.diff(self.edge_s)).sum()) / self.duration_s

    def scaled_to(self, mean_rps: float) -> RateCurve:
        """Return the curve scaled to another mean."""
        return RateCurve(self.edge_s, self.rate_rps * (mean_rps / self.mean_rps))

    def begun_at(self, start_s: float) -> RateCurve:
        """Return the curve that begins at `start_s`, in [0, duration_s)."""
        if start_s == 0.0:
            return self
        first = int(np.searchsorted(self.edge_s, start_s, side="right")) - 1
        edge_s = np.concatenate(([start_s], self.edge_s[first + 1 :], self.edge_s[1 : first + 1] + self.duration_s, [start_s]))
        edge_s[-1] += self.duration_s
        return RateCurve(edge_s - start_s, np.concatenate((self.rate_rps[first:], self.rate_rps[: first + 1])))

    def moments_s(self, expected: Times) -> Times:
        """Return the moments at which the expected number of requests since the start reaches `expected`, in place.

        `expected`: shape (n,), sorted, from 0. The moments are exact; none lies where the rate is zero.
        """
        # Cumulated counts of one period, inverted by piece: a piece of rate zero has no counts, and side "right" skips it.
        counts = np.concatenate(([0.0], np.cumsum(self.rate_rps * np.diff(self.edge_s))))
        for start in range(0, len(expected), BLOCK):
            block = expected[start : start + BLOCK]
            laps = np.floor(block / counts[-1])
            # Rounding may put a period's last count at its end or slightly below its start.
            rest = np.clip(block - laps * counts[-1], 0.0, np.nextafter(counts[-1], 0.0))
            piece = np.searchsorted(counts, rest, side="right") - 1
            block[:] = laps * self.duration_s + (self.edge_s[piece] + (rest - counts[piece]) / self.rate_rps[piece])
        # Sums of floats may be slightly too low at a piece's end, but no request may precede the one before it.
        return np.maximum.accumulate(expected, out=expected)


def daily(mean_rps: float, swing: float, peak_hour: float) -> RateCurve:
    """Return a day whose rate follows a cosine of relative amplitude `swing`; each minute has the mean of the cosine."""
    edge = np.linspace(0.0, 2 * math.pi, _MINUTES + 1)
    area = np.diff(np.sin(edge - 2 * math.pi * peak_hour / 24)) / np.diff(edge)
    return RateCurve(np.linspace(0.0, DAY_S, _MINUTES + 1), np.maximum(mean_rps * (1 + swing * area), 0.0))


def pieces(piece_s: Sequence[float], rate_rps: Sequence[float]) -> RateCurve:
    """Return the curve of pieces with these lengths and rates."""
    return RateCurve(np.concatenate(([0.0], np.cumsum(piece_s))), np.asarray(rate_rps, dtype=np.float64))


Zeros = Literal["quiet", "hold"]

MAX_RATE_RPS = 1e9
_LEAST_WINDOW_S = 1e-6
_LEAST_RATE_RPS = 1e-9
"""Least rate of the busiest window; with less, no run has a request."""


@dataclass(frozen=True, slots=True, eq=False)
class RateSeries:
    """The rate of each window, and its origin."""

    curve: RateCurve
    kind: str
    """`measured` or `synthetic` as stated in the file; `unstated` without a statement."""
    source: str
    silent: int
    """Number of windows whose rate is zero or missing in the file."""


def read_rate_series(path: str | os.PathLike[str], *, time_column: str, rate_column: str, zeros: Zeros) -> RateSeries:
    """Read a series whose first row names its columns; the time of the first row becomes 0.

    Each rate holds until the time of the next row, the last rate as long as the one before it. An empty cell is a window
    without data; it has the rate of the last window with data (leading ones that of the first). A zero means that nothing
    arrived or, if `zeros` is `hold`, a window without data. Raises `ArrivalsError` with line and column.
    """
    lines = TraceLines(path, kept=True)
    rows = iter(lines)
    table = TraceTable(lines, rows, next(rows, b""))
    time_at, rate_at = table.require(time_column), table.require(rate_column)
    times: list[float] = []
    rates: list[float] = []
    for cells in table:
        time_s = table.seconds(time_at)
        if times and time_s <= times[-1]:
            what = f"{time_column} {time_s:g} is not after the row before"
            raise table.wrong(what, time_at, "sort the rows, one for each time")
        if times and time_s - times[-1] < _LEAST_WINDOW_S:
            what = f"{time_column} {time_s:g} is less than a microsecond after the row before"
            raise table.wrong(what, time_at, "give seconds")
        rate = table.number(rate_at) if cells[rate_at].strip() else np.nan
        if rate > MAX_RATE_RPS:
            what = f"{rate_column} is {cell_text(cells[rate_at])}"
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
    """Return the rates with a value for every window, and the number of windows whose rate was zero or missing."""
    silent = ~(rate_rps > 0)
    missing = silent if zeros == "hold" else np.isnan(rate_rps)
    if missing.all():
        return np.zeros(len(rate_rps)), int(silent.sum())
    window = np.arange(len(rate_rps))
    last = np.maximum.accumulate(np.where(missing, -1, window))
    last[last < 0] = np.argmin(missing)
    return rate_rps[last], int(silent.sum())


Rate = Annotated[float, Field(ge=0, le=1e9)]


class DailyCurve(Configuration):
    """A day whose rate swings as a cosine around its mean."""

    rate_rps: float = Field(ge=1e-6, le=1e9)
    """Mean requests per second over the day."""
    swing: float = Field(ge=0, le=1)
    """How far the peak lies above the mean, and the trough below, as a share of it."""
    peak_hour: float = Field(ge=0, lt=24)
    """Hour of the day of the highest rate."""
    start_hour: float = Field(default=0.0, ge=0, lt=24)
    """Hour of the day at which a run begins."""

    def curve(self) -> RateCurve:
        """Return the rate from midnight on."""
        return daily(self.rate_rps, self.swing, self.peak_hour)

    def __str__(self) -> str:
        return f"daily curve, swing {self.swing:g}, peak at hour {self.peak_hour:g}"


class HourlyRates(Configuration):
    """A day given by the rates of its hours."""

    hourly_rps: list[Rate] = Field(min_length=24, max_length=24)
    """Requests per second in each of the 24 hours from midnight on."""
    start_hour: float = Field(default=0.0, ge=0, lt=24)
    """Hour of the day at which a run begins."""

    def curve(self) -> RateCurve:
        """Return the rate from midnight on."""
        return pieces([DAY_S / 24] * 24, self.hourly_rps)

    def __str__(self) -> str:
        return "day by its hours"


class Step(Configuration):
    """A time of constant rate."""

    for_s: float = Field(ge=1e-6, le=1e9)
    """Length of the step, seconds."""
    rate_rps: Rate
    """Mean requests per second during the step; 0 for none."""


class SeriesFile(Configuration):
    """A recorded rate, from a CSV file whose first row names its columns; each rate holds until the next row's time."""

    csv: Annotated[str, InputFile(), Field(min_length=1)]
    """Path, relative to the scenario file."""
    time_column: str = "t_s"
    """Name of the column of times in seconds."""
    rate_column: str = "rate_rps"
    """Name of the column of rates in requests per second."""
    zeros: Zeros = "quiet"
    """Meaning of a zero: nothing arrived (`quiet`), or nothing was recorded and the rate before it holds (`hold`)."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Multiply the series so that its mean over time is this; left out, the series is unchanged."""


Daily = Annotated[
    Annotated[DailyCurve, Tag("DailyCurve")] | Annotated[HourlyRates, Tag("HourlyRates")],
    Discriminator(
        form_by_key(DailyCurve, hourly_rps=HourlyRates),
        custom_error_type="no_day",
        custom_error_message="expected a mapping: {rate_rps: 5, swing: 0.5, peak_hour: 14} or {hourly_rps: [24 rates]}",
    ),
]


class Varying(ArrivalsConfiguration):
    """Arrivals whose rate changes over time: one of a daily curve, steps, or a series from a file, repeated for ever."""

    kind: Literal["varying"]
    daily: Daily | None = None
    """A day: {rate_rps: 5, swing: 0.5, peak_hour: 14} or {hourly_rps: [24 rates]}."""
    steps: list[Step] | None = Field(default=None, min_length=1, max_length=100_000)
    """Times of constant rate, one after another; after the last comes the first again."""
    series: SeriesFile | None = None
    """A recorded rate over time."""
    gap_cv: float = Field(default=1.0, ge=0.01, le=100)
    """Coefficient of variation of the gaps, measured in expected requests: 1 is Poisson, above is burstier (gamma gaps)."""

    @model_validator(mode="after")
    def _one_rate(self) -> Varying:
        if sum(form is not None for form in (self.daily, self.steps, self.series)) != 1:
            raise PydanticCustomError("one_rate", "give one of daily, steps, series")
        silent = self.steps is not None and not any(step.rate_rps for step in self.steps)
        if silent or (isinstance(self.daily, HourlyRates) and not any(self.daily.hourly_rps)):
            raise PydanticCustomError("no_rate", "the rate is nowhere above 0")
        return self

    def process(self, base: Path) -> VaryingProcess:
        """Return the process after reading its series, if any. Raises `ArrivalsError`."""
        if self.daily is not None:
            what = f"an assumed {self.daily}, begun at hour {self.daily.start_hour:g}"
            return VaryingProcess(self.daily.curve().begun_at(self.daily.start_hour * 3600), self.gap_cv, what)
        if self.steps is not None:
            curve = pieces([step.for_s for step in self.steps], [step.rate_rps for step in self.steps])
            count = len(self.steps)
            return VaryingProcess(curve, self.gap_cv, f"{count} assumed step{'s' * (count != 1)}, repeated")
        assert self.series is not None
        return self._recorded(self.series, base)

    def _recorded(self, config: SeriesFile, base: Path) -> VaryingProcess:
        series = read_rate_series(
            base / config.csv, time_column=config.time_column, rate_column=config.rate_column, zeros=config.zeros
        )
        what = f"a rate series ({series.kind}) of {series.source}, {len(series.curve.rate_rps):,} windows"
        if series.silent:
            meaning = "taken as without arrivals" if config.zeros == "quiet" else "for which the rate before them is held"
            what += f", {series.silent:,} of them zero or missing, {meaning}"
        curve = series.curve
        if config.rate_rps is not None:
            what += f", multiplied by {config.rate_rps / curve.mean_rps:.3g}"
            curve = curve.scaled_to(config.rate_rps)
        return VaryingProcess(curve, self.gap_cv, f"{what}; each further replication begins elsewhere on it", moves=True)

    def with_rate(self, rate_rps: float, present_rps: float) -> Varying:
        """Return the configuration with all rates of the curve scaled alike."""
        factor = rate_rps / present_rps
        changed: dict[str, object] = {}
        if isinstance(self.daily, DailyCurve):
            changed["daily"] = self.daily.model_copy(update={"rate_rps": factor * self.daily.rate_rps})
        elif isinstance(self.daily, HourlyRates):
            hours = [factor * hour_rps for hour_rps in self.daily.hourly_rps]
            changed["daily"] = self.daily.model_copy(update={"hourly_rps": hours})
        elif self.steps is not None:
            changed["steps"] = [step.model_copy(update={"rate_rps": factor * step.rate_rps}) for step in self.steps]
        elif self.series is not None:
            changed["series"] = self.series.model_copy(update={"rate_rps": rate_rps})
        return self.model_copy(update=changed)


@dataclass(frozen=True, slots=True, eq=False)
class VaryingProcess(OpenProcess):
    """Gaps of mean one in the expected number of requests, so that a change of the rate needs no approximation."""

    curve: RateCurve
    gap_cv: float
    what: str
    """Description of the curve."""
    moves: bool = False
    """Whether replications other than 0 begin elsewhere on the curve."""

    @property
    def mean_rate_rps(self) -> float:
        """Mean rate over a period."""
        return self.curve.mean_rps

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        low, high = self.curve.rate_rps.min(), self.curve.rate_rps.max()
        gaps = "Poisson" if self.gap_cv == 1 else f"gamma gaps of coefficient of variation {self.gap_cv:g}"
        return (
            f"arrivals at a rate that changes over time: {self.what}; {self.mean_rate_rps:.4g} requests/s on average over "
            f"{self.curve.duration_s:,.0f} s, from {low:.4g} to {high:.4g}; {gaps} around it"
        )

    def at_rate(self, rate_rps: float) -> VaryingProcess:
        """Return the process with all rates of the curve scaled; its times of day stay."""
        return replace(self, curve=self.curve.scaled_to(rate_rps))

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        curve = self.curve
        if self.moves and replication:
            share = random_streams.stream(seed, replication, f"{stream_name}/series start").random()
            curve = curve.begun_at(float(share) * curve.duration_s)
        gap = random_streams.draw(seed, replication, stream_name, size, self._gaps)
        return curve.moments_s(np.cumsum(gap, out=gap))

    def _gaps(self, generator: np.random.Generator, count: int) -> Times:
        if self.gap_cv == 1.0:
            return generator.standard_exponential(count)
        shape = self.gap_cv**-2
        return generator.standard_gamma(shape, count) / shape
