"""A rate that changes over time, known in advance: a daily curve, steps, or a recorded series of rates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from simnmt import streams
from simnmt.configuration import Configuration
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.rate_curve import DAY_S, RateCurve, daily, pieces
from simnmt.workload.arrivals.rate_series import Zeros, read_rate_series

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


class HourlyRates(Configuration):
    """A day by its hours."""

    hourly_rps: list[Rate] = Field(min_length=24, max_length=24)
    """Requests per second in each of the 24 hours from midnight on."""
    start_hour: float = Field(default=0.0, ge=0, lt=24)
    """Hour of the day at which a run begins."""


class Step(Configuration):
    """A time of constant rate."""

    for_s: float = Field(ge=1e-6, le=1e9)
    """How long it lasts, seconds."""
    rate_rps: Rate
    """Mean requests per second meanwhile; 0 for none."""


class SeriesFile(Configuration):
    """A recorded rate, from a CSV file whose first row names its columns; each rate holds until the next row's time."""

    csv: str = Field(min_length=1)
    """Path, relative to the scenario file."""
    time_column: str = "t_s"
    """Name of the column of times in seconds."""
    rate_column: str = "rate_rps"
    """Name of the column of rates in requests per second."""
    zeros: Zeros = "quiet"
    """What a zero means: that nothing arrived (`quiet`), or that nothing was recorded and the rate before it holds (`hold`)."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Multiply the series so that its mean over time is this; as it is when left out."""


def _daily_form(value: Any) -> str | None:
    hourly = isinstance(value, HourlyRates) or (isinstance(value, dict) and "hourly_rps" in value)
    curve = isinstance(value, DailyCurve) or (isinstance(value, dict) and not hourly)
    return "hourly" if hourly else "curve" if curve else None


Daily = Annotated[
    Annotated[DailyCurve, Tag("curve")] | Annotated[HourlyRates, Tag("hourly")],
    Discriminator(
        _daily_form,
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
        """The process, its series read. Raises `ArrivalsError`."""
        if isinstance(self.daily, DailyCurve):
            day = self.daily
            curve = daily(day.rate_rps, day.swing, day.peak_hour).begun_at(day.start_hour * 3600)
            what = (
                f"an assumed daily curve, swing {day.swing:g}, peak at hour {day.peak_hour:g}, begun at hour {day.start_hour:g}"
            )
            return VaryingProcess(curve, self.gap_cv, what)
        if isinstance(self.daily, HourlyRates):
            curve = pieces([DAY_S / 24] * 24, self.daily.hourly_rps).begun_at(self.daily.start_hour * 3600)
            return VaryingProcess(curve, self.gap_cv, f"an assumed day by its hours, begun at hour {self.daily.start_hour:g}")
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

    def input_paths(self, base: Path) -> list[Path]:
        """The series, if it is one."""
        return [] if self.series is None else [base / self.series.csv]

    def resolved(self, base: Path) -> Varying:
        """The same with an absolute path."""
        if self.series is None:
            return self
        return self.model_copy(
            update={"series": self.series.model_copy(update={"csv": str((base / self.series.csv).absolute())})}
        )


@dataclass(frozen=True, slots=True, eq=False)
class VaryingProcess(OpenProcess):
    """Gaps of mean one, laid along the expected number of requests, so that a change of the rate needs no approximation."""

    curve: RateCurve
    gap_cv: float
    what: str
    """For the account."""
    moves: bool = False
    """Whether replications other than 0 begin elsewhere on the curve."""

    @property
    def mean_rate_rps(self) -> float:
        """Over time, through a whole lap."""
        return self.curve.mean_rps

    @property
    def account(self) -> str:
        """One sentence for a reader."""
        low, high = self.curve.rate_rps.min(), self.curve.rate_rps.max()
        around = (
            "Poisson around it" if self.gap_cv == 1 else f"gamma gaps of coefficient of variation {self.gap_cv:g} around it"
        )
        return (
            f"arrivals at a rate that changes over time: {self.what}; {self.mean_rate_rps:.4g} requests/s on average over "
            f"{self.curve.duration_s:,.0f} s, from {low:.4g} to {high:.4g}; {around}"
        )

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds, shape (size,), sorted."""
        curve = self.curve
        if self.moves and replication:
            share = streams.stream(seed, replication, f"{stream_name}/series start").random()
            curve = curve.begun_at(float(share) * curve.duration_s)
        gap = streams.draw(seed, replication, stream_name, size, self._gaps)
        return curve.moments_s(np.cumsum(gap, out=gap))

    def _gaps(self, generator: np.random.Generator, count: int) -> Times:
        if self.gap_cv == 1.0:
            return generator.standard_exponential(count)
        shape = self.gap_cv**-2
        return generator.standard_gamma(shape, count) / shape
