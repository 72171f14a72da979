"""A synthetic RTT process: fit it to a series, draw series from it, read and write its parameters.

One smooth process cannot have both the quantiles and the autocorrelation of a real RTT: routes change and stay changed,
queues grow and shrink slowly, and single packets are late. Each effect has its component: levels that shift, autocorrelated
residuals around the levels, lone spikes, bursts, and a daily swing (`rtt_components.py`).

A process describes one lap, as long as the fitted series. Every lap spends the same time in each level and has the same
number of shifts and spikes, at other moments: with free numbers, a series would need far more shifts to have the right
quantiles. So laps are more alike than months of a real network. `rtt_comparison.py` measures the quality of a fit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from simnmt.base.configuration import NO_TRUTH_VALUE, Configuration, describe_validation_error
from simnmt.base.errors import shorten
from simnmt.base.random_streams import stream
from simnmt.network import rtt_components
from simnmt.network.errors import TraceError
from simnmt.network.rtt_components import MOST_SAMPLES, DailySwing, Excursions, Floats, LevelShifts, QuantileLaw
from simnmt.network.series import RttSeries
from simnmt.network.text_files import read_text

SCHEMA_VERSION: Literal[1] = 1
"""Version of the file of parameters; a reader refuses any other."""

_FLOOR_S = 1e-4
"""No RTT is drawn below this."""


class RttProcess(Configuration):
    """Parameters of the process; counts are counts per lap."""

    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE] = SCHEMA_VERSION
    """Version of the file's format."""
    source: str = ""
    """The fitted series."""
    step_s: float = Field(ge=1e-6, le=1e6)
    """Time between samples."""
    levels: LevelShifts
    residuals: tuple[QuantileLaw, ...]
    """Law of the differences of ordinary samples from their level, one per level."""
    slow_share: float = Field(ge=0, le=1)
    """Share of the variance of a residual's normal score that lasts beyond one sample; the rest is new in each sample."""
    persistence: float = Field(ge=0, lt=1)
    """Correlation of that part with its value one sample before."""
    spikes: Excursions | None = None
    """Lone samples far from their level."""
    bursts: Excursions | None = None
    """Runs of samples far from their level."""
    daily: DailySwing | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> RttProcess:
        if len(self.residuals) != len(self.levels.levels_s):
            raise ValueError("needs one law of residuals a level")
        runs, samples = (sum(getattr(excursions, name) for excursions in self.excursions) for name in ("runs", "samples"))
        if runs + samples > self.lap_samples:
            raise ValueError("spikes and bursts leave too few other samples between them")
        return self

    @property
    def excursions(self) -> tuple[Excursions, ...]:
        """Spikes and bursts, as far as the process has them."""
        return tuple(excursions for excursions in (self.spikes, self.bursts) if excursions is not None)

    @property
    def lap_samples(self) -> int:
        """Number of samples of a lap, as of the fitted series."""
        return self.levels.lap_samples

    @property
    def lap_s(self) -> float:
        """Length of a lap, seconds."""
        return self.lap_samples * self.step_s

    @property
    def parameters(self) -> int:
        """Number of the numbers that the process keeps of the series; the `shares` of laws are not counted."""
        return _numbers(self.model_dump(exclude={"schema_version"}))


def draw_series(process: RttProcess, duration_s: float, seed: int, name: str = "synthetic") -> RttSeries:
    """Draw a series of kind "synthetic" with a sample every `step_s` and no lost samples.

    The same seed draws the same series, and a longer series begins with a shorter one. Raises `TraceError` for more than
    `MOST_SAMPLES`.
    """
    from scipy.special import ndtr  # here, since it takes a third of the start of a process

    check_duration(process, duration_s)
    count = max(1, round(duration_s / process.step_s))
    time_s: Floats = np.arange(count, dtype=np.float64) * float(process.step_s)
    laps, first = [], None
    for lap in range(-(-count // process.lap_samples)):
        # A lap is a circle: since it begins in the level in which it ends, the next lap needs no shift at its start.
        level = process.levels.draw(stream(seed, 0, "rtt level", lap), first)
        first = int(level[0])
        share = ndtr(_score(process, len(level), stream(seed, 0, "rtt residual", lap)))
        rtt_s: Floats = np.array(process.levels.levels_s)[level]
        added_s = np.empty(len(level))
        for k, law in enumerate(process.residuals):
            added_s[level == k] = law.at(share[level == k])
        if process.excursions:
            at, height_s = rtt_components.draw_excursions(process.excursions, len(level), stream(seed, 0, "rtt excursion", lap))
            added_s[at] = height_s
        laps.append(rtt_s + added_s)
    rtt_s = np.concatenate(laps)[:count]
    if process.daily:
        rtt_s += process.daily.at(time_s)
    source = f"drawn with seed {seed} from a process" + (f" fitted to {process.source}" if process.source else "")
    return RttSeries(name, "synthetic", source, time_s, np.maximum(rtt_s, _FLOOR_S))


def check_duration(process: RttProcess, duration_s: float) -> None:
    """Raise `TraceError` for a length that cannot be drawn."""
    if not 0 < duration_s <= MOST_SAMPLES * process.step_s:
        most = f"{MOST_SAMPLES * process.step_s / 3600:,.0f} h, {MOST_SAMPLES:,} samples {process.step_s:g} s apart"
        raise TraceError(f"cannot draw {duration_s / 3600:g} h", remedy=f"give more than 0 and at most {most}")


def read_process(path: str | os.PathLike[str]) -> RttProcess:
    """Read a process that was written as `process_text`; raises `TraceError` with the key for any other content."""
    try:
        return RttProcess.model_validate_json(read_text(Path(path)))
    except ValidationError as error:
        remedy = "give a file that `simnmt trace synth --params-out` wrote"
        raise TraceError(shorten(describe_validation_error(error), 200), path=path, remedy=remedy) from None


def process_text(process: RttProcess) -> str:
    """Return the text of the file of a process."""
    return process.model_dump_json(exclude_none=True, indent=1) + "\n"


def _score(process: RttProcess, count: int, random: np.random.Generator) -> Floats:
    """Draw normal scores: an AR(1) process with `slow_share` of the variance, plus noise."""
    from scipy.signal import lfilter

    shock, fresh = random.standard_normal((2, count))
    shock[1:] *= (1 - process.persistence**2) ** 0.5
    slow: Floats = lfilter([1.0], [1.0, -process.persistence], shock)
    score: Floats = process.slow_share**0.5 * slow + (1 - process.slow_share) ** 0.5 * fresh
    return score


def _numbers(value: object) -> int:
    if isinstance(value, dict):
        return sum(_numbers(nested) for key, nested in value.items() if key != "shares")
    if isinstance(value, tuple):
        return sum(map(_numbers, value))
    return int(isinstance(value, (int, float)))


def describe_process(process: RttProcess) -> str:
    """Return a description: the count of parameters, the length of a lap, and the parts of the process."""
    shifts = sum(count for *_, count in process.levels.shifts)
    spikes, bursts = (excursions.runs if excursions else 0 for excursions in (process.spikes, process.bursts))
    swing = (
        f"a daily swing of {1e3 * (max(process.daily.hours_s) - min(process.daily.hours_s)):.3g} ms" if process.daily else ""
    )
    parts = [f"{len(process.levels.levels_s)} levels", f"{shifts} shifts", f"{spikes} lone spikes", f"{bursts} bursts", swing]
    lap = f"{process.lap_samples:,} samples {process.step_s:g} s apart"
    return f"a process of {process.parameters} numbers for {lap}: {', '.join(part for part in parts if part)}"


MIN_FIT_SAMPLES = 50

SHARES = (0.0, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999, 1.0)
"""Shares of the quantiles of a level's residuals, if the level has enough samples."""
_SHARES_OF_FEW = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
_SAMPLES_A_QUANTILE = 30

_FAR_LAG = 4
_LEAST_MEMORY = 0.02
_MOST_PERSISTENT = 0.999


def fit_process(series: RttSeries) -> RttProcess:
    """Fit the process to a series as if it were sampled at its median spacing.

    The end of the series counts as followed by its start. Raises `TraceError` for fewer than `MIN_FIT_SAMPLES` samples.
    """
    if len(series.rtt_s) < MIN_FIT_SAMPLES:
        what = f"RTT series {series.name} has {len(series.rtt_s)} samples"
        raise TraceError(what, remedy=f"a process needs at least {MIN_FIT_SAMPLES} to be fitted to")
    if len(series.rtt_s) > rtt_components.MOST_SAMPLES:
        what = f"RTT series {series.name} has {len(series.rtt_s):,} samples"
        raise TraceError(what, remedy=f"a process can be fitted to at most {rtt_components.MOST_SAMPLES:,}; cut it")
    daily = rtt_components.fit_daily_swing(series.time_s, series.rtt_s)
    rtt_s = series.rtt_s - daily.at(series.time_s) if daily else series.rtt_s
    levels_s, level = rtt_components.segment(rtt_s)
    residual_s = rtt_s - levels_s[level]
    far = rtt_components.far_from_level(residual_s, level, rtt_components.noise_of(rtt_s) / 2)
    spikes, bursts = rtt_components.fit_excursions(residual_s, far)
    ordinary = [(level == k) & ~far for k in range(len(levels_s))]
    slow_share, persistence = _memory(residual_s, ordinary)
    return RttProcess(
        source=series.source,
        step_s=float(np.median(np.diff(series.time_s))),
        levels=rtt_components.count_shifts(levels_s, level),
        residuals=tuple(_law(residual_s[here]) for here in ordinary),
        slow_share=slow_share,
        persistence=persistence,
        spikes=spikes,
        bursts=bursts,
        daily=daily,
    )


def _law(residual_s: Floats) -> QuantileLaw:
    enough = len(residual_s) >= _SAMPLES_A_QUANTILE * len(SHARES)
    return QuantileLaw.of(residual_s, np.array(SHARES if enough else _SHARES_OF_FEW))


def _memory(residual_s: Floats, ordinary: list[NDArray[np.bool_]]) -> tuple[float, float]:
    """Return (share, persistence) of the slow part of the score, from its autocorrelation at lag 1 and at `_FAR_LAG`.

    The score of a residual is that of its rank within its level, so that all tails and levels have the same weight.
    """
    from scipy.special import ndtri  # here, since scipy takes a third of the start of a process
    from scipy.stats import rankdata

    score = np.full(len(residual_s), np.nan)
    for here in ordinary:
        score[here] = ndtri((rankdata(residual_s[here]) - 0.5) / here.sum())
    near, far = (_mean_product(score, lag) for lag in (1, _FAR_LAG))
    if near < _LEAST_MEMORY:
        return 0.0, 0.0
    persistence = min((max(far, 0.0) / near) ** (1 / (_FAR_LAG - 1)), _MOST_PERSISTENT)
    persistence = round(min(max(persistence, near), _MOST_PERSISTENT), 4)
    return round(min(near / persistence, 1.0), 4), persistence


def _mean_product(score: Floats, lag: int) -> float:
    product = score[lag:] * score[:-lag]
    known = np.isfinite(product)
    return float(product[known].mean()) if known.any() else 0.0
