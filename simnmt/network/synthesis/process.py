"""A synthetic RTT process: levels that shift, an autocorrelated residual around them, lone spikes, bursts, a daily swing.

One smooth process cannot have both the quantiles and the autocorrelation of a real RTT: routes change and stay changed,
queues come and go slowly, and single packets are late for no lasting reason. Each has its part here.

A process knows a lap, as long as what it was fitted to. Every lap spends the same time in each level, shifts and spikes as
often, and differs in when: chance alone would need far more shifts than a series has to get the quantiles right. So laps
are more alike than months of a real network, which no fit to one of them could know of. `simnmt.network.synthesis.fit` makes
one of a series, `simnmt.network.synthesis.judgement` says how good it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, ValidationError, model_validator

from simnmt.configuration import NO_TRUTH_VALUE, Configuration
from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named
from simnmt.network.rtt_series import RttSeries
from simnmt.network.synthesis.daily_swing import DailySwing
from simnmt.network.synthesis.excursions import Excursions, draw_excursions
from simnmt.network.synthesis.level_shifts import MOST_SAMPLES, LevelShifts
from simnmt.network.synthesis.quantile_law import Floats, QuantileLaw
from simnmt.network.text_files import read_text, write_texts
from simnmt.streams import stream

SCHEMA_VERSION: Literal[1] = 1
"""Of the parameters' file; a reader refuses any other."""

_FLOOR_S = 1e-4
"""No RTT is drawn below this."""


class RttProcess(Configuration):
    """Parameters of the process; what is counted is counted per lap."""

    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE] = SCHEMA_VERSION
    """Form of the file."""
    source: str = ""
    """The series it was fitted to."""
    step_s: float = Field(ge=1e-6, le=1e6)
    """Time between samples."""
    levels: LevelShifts
    residuals: tuple[QuantileLaw, ...]
    """One law a level: what its ordinary samples add to it."""
    slow_share: float = Field(ge=0, le=1)
    """Part of the variance of a residual's normal score that lasts beyond one sample; the rest is new in each."""
    persistence: float = Field(ge=0, lt=1)
    """Correlation of that part with itself one sample before."""
    spikes: Excursions | None = None
    """Lone samples far from their level."""
    bursts: Excursions | None = None
    """Runs of such samples."""
    daily: DailySwing | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> RttProcess:
        if len(self.residuals) != len(self.levels.levels_s):
            raise ValueError("needs one law of residuals a level")
        runs, samples = (sum(getattr(each, name) for each in self.excursions) for name in ("runs", "samples"))
        if runs + samples > self.lap_samples:
            raise ValueError("spikes and bursts leave too few other samples between them")
        return self

    @property
    def excursions(self) -> tuple[Excursions, ...]:
        """Spikes and bursts, as far as there are any."""
        return tuple(each for each in (self.spikes, self.bursts) if each is not None)

    @property
    def lap_samples(self) -> int:
        """Samples of a lap: as many as the fitted series had."""
        return self.levels.lap_samples

    @property
    def lap_s(self) -> float:
        """Length of a lap."""
        return self.lap_samples * self.step_s

    @property
    def parameters(self) -> int:
        """How many numbers it keeps of the series; where laws are kept, `shares`, is no knowledge of it."""
        return _numbers(self.model_dump(exclude={"schema_version"}))


def draw(process: RttProcess, duration_s: float, seed: int, name: str = "synthetic") -> RttSeries:
    """Draw a series of kind "synthetic" with a sample each `step_s`, none of them lost.

    The same seed draws the same series, and a longer one begins with the shorter. Raises `TraceError` for more than
    `MOST_SAMPLES`.
    """
    from scipy.special import ndtr  # here, since it takes a third of the start of a process

    check_duration(process, duration_s)
    count = max(1, round(duration_s / process.step_s))
    time_s: Floats = np.arange(count, dtype=np.float64) * float(process.step_s)
    laps, first = [], None
    for lap in range(-(-count // process.lap_samples)):
        # A lap is a circle: that it begins where it ends lets the next go on from there without a shift of its own.
        level = process.levels.draw(stream(seed, 0, "rtt level", lap), first)
        first = int(level[0])
        share = ndtr(_score(process, len(level), stream(seed, 0, "rtt residual", lap)))
        rtt_s: Floats = np.array(process.levels.levels_s)[level]
        added_s = np.empty(len(level))
        for k, law in enumerate(process.residuals):
            added_s[level == k] = law.at(share[level == k])
        if process.excursions:
            at, height_s = draw_excursions(process.excursions, len(level), stream(seed, 0, "rtt excursion", lap))
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
    """Read a process that `write_process` wrote; raises `TraceError` naming the key where the file holds anything else."""
    try:
        return RttProcess.model_validate_json(read_text(Path(path)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = named(".".join(str(part) for part in first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        remedy = "give a file that `simnmt trace synth --params-out` wrote"
        raise TraceError(f"{key}: {said}" if key else said, path=path, remedy=remedy) from None


def write_process(path: str | os.PathLike[str], process: RttProcess) -> None:
    """Write the parameters as JSON, whole or not at all; raises `TraceError` where the file cannot be written."""
    write_texts({Path(path): process_text(process)})


def process_text(process: RttProcess) -> str:
    """What the file of a process holds."""
    return process.model_dump_json(exclude_none=True, indent=1) + "\n"


def _score(process: RttProcess, count: int, random: np.random.Generator) -> Floats:
    """Normal scores: an AR(1) of `slow_share` of the variance, and noise."""
    from scipy.signal import lfilter

    shock, fresh = random.standard_normal((2, count))
    shock[1:] *= (1 - process.persistence**2) ** 0.5
    slow: Floats = lfilter([1.0], [1.0, -process.persistence], shock)
    score: Floats = process.slow_share**0.5 * slow + (1 - process.slow_share) ** 0.5 * fresh
    return score


def _numbers(value: object) -> int:
    if isinstance(value, dict):
        return sum(_numbers(each) for key, each in value.items() if key != "shares")
    if isinstance(value, tuple):
        return sum(map(_numbers, value))
    return int(isinstance(value, (int, float)))
