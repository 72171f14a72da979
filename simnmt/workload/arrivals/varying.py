"""Arrivals whose rate changes over time: known in advance (a daily curve, steps), recorded, or in bursts at random moments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from simnmt.base import random_streams
from simnmt.base.configuration import Configuration, misfit
from simnmt.base.random_streams import BLOCK
from simnmt.workload.arrivals.process import (
    DAY_S,
    ArrivalProcess,
    ArrivalsConfiguration,
    RandomStream,
    RatedArrivals,
    Times,
)
from simnmt.workload.arrivals.stationary import unit_gaps

_MINUTES = 1440


@dataclass(frozen=True, slots=True, eq=False)
class VaryingProcess(ArrivalProcess):
    """A rate in pieces, repeated for ever.

    Gaps have mean one in the expected number of requests, so that a change of the rate needs no approximation.
    """

    edge_s: Times
    """Piece k lasts from `edge_s[k]` to `edge_s[k + 1]`; shape (pieces + 1,), ascending from 0."""
    rate_rps: Times
    """Rate in each piece, shape (pieces,); none negative, at least one positive."""
    what: str
    """Description of the rate."""
    moves: bool = False
    """Whether replications other than 0 begin elsewhere on the curve."""

    @property
    def duration_s(self) -> float:
        """Length of a period."""
        return float(self.edge_s[-1])

    @property
    def period_s(self) -> float | None:
        return None if self.moves else self.duration_s

    @property
    def mean_rate_rps(self) -> float:
        return float(self._counts[-1]) / self.duration_s

    @property
    def account(self) -> str:
        low, high = self.rate_rps.min(), self.rate_rps.max()
        return (
            f"arrivals at a rate that changes over time: {self.what}; {self.mean_rate_rps:.4g} requests/s on average over "
            f"{self.duration_s:,.0f} s, from {low:.4g} to {high:.4g}; Poisson around it"
        )

    def at_rate(self, rate_rps: float) -> Self:
        """Return the process with all rates scaled; its times of day stay."""
        return replace(self, rate_rps=self.rate_rps * (rate_rps / self.mean_rate_rps))

    def times(self, n: int, rng: RandomStream) -> Times:
        start_s = 0.0
        if self.moves and rng.replication:
            start_s = float(rng.part("series start").random()) * self.duration_s
        before = np.interp(start_s, self.edge_s, self._counts)
        moments_s = self.moments_s(before + np.cumsum(rng.by_block(n, unit_gaps))) - start_s
        return np.maximum(moments_s, 0.0, out=moments_s)

    def moments_s(self, expected: Times) -> Times:
        """Return the moments at which the expected number of requests since the start reaches `expected`, sorted from 0.

        The moments are exact; none lies where the rate is zero.
        """
        counts = self._counts
        laps, rest = np.divmod(expected, counts[-1])
        # A piece of rate zero repeats a count, and of equal ones np.interp takes the last: the end of the silence.
        moments_s = laps * self.duration_s + np.interp(rest, counts, self.edge_s)
        # Sums of floats may be slightly too low at a piece's end, but no request may precede the one before it.
        return np.maximum.accumulate(moments_s, out=moments_s)

    @property
    def _counts(self) -> Times:
        """Expected requests from 0 to each edge."""
        return np.concatenate(([0.0], np.cumsum(self.rate_rps * np.diff(self.edge_s))))


class Day(Configuration):
    """A day whose rate swings as a cosine around its mean, `rate_rps`."""

    swing: float = Field(ge=0, le=1)
    """How far the peak lies above the mean, and the trough below, as a share of it."""
    peak_hour: float = Field(ge=0, lt=24)
    """Hour of the day of the highest rate."""
    start_hour: float = Field(default=0.0, ge=0, lt=24)
    """Hour of the day at which a run begins."""

    def curve(self) -> tuple[Times, Times]:
        """Return the edges and the rates of the minutes of a day of mean rate 1; each has the mean of the cosine."""
        edge = np.linspace(0.0, 2 * math.pi, _MINUTES + 1)
        peak = (self.peak_hour - self.start_hour) / 24 * 2 * math.pi
        return edge / (2 * math.pi) * DAY_S, np.maximum(1 + self.swing * np.diff(np.sin(edge - peak)) / np.diff(edge), 0.0)


class Step(Configuration):
    """A time of constant rate."""

    for_s: float = Field(ge=1e-6, le=1e9)
    """Length of the step, seconds."""
    rate_rps: float = Field(ge=0, le=1e9)
    """Mean requests per second during the step; 0 for none."""


class Varying(RatedArrivals):
    """Arrivals at a rate that changes over time and is known in advance: a daily curve, or steps, repeated for ever."""

    kind: Literal["varying"]
    daily: Day | None = None
    """A day of the stated mean rate: {swing: 0.5, peak_hour: 14}."""
    steps: list[Step] | None = Field(default=None, min_length=1, max_length=100_000)
    """Times of constant rate, one after another; after the last comes the first again."""

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if (self.daily is None) == (self.steps is None):
            raise misfit("", "give either daily or steps")
        if self.daily is not None and not self.states_rate:
            raise misfit("", "daily needs rate_rps, requests_per_month or characters_per_day, the mean over the day")
        if self.steps is not None and not any(step.rate_rps for step in self.steps):
            raise misfit("steps", "the rate is nowhere above 0")
        return self

    def process(self, base: Path) -> VaryingProcess:
        if self.daily is not None:
            what = f"an assumed day, begun at hour {self.daily.start_hour:g}"
            process = VaryingProcess(*self.daily.curve(), what)
        else:
            steps = self.steps or []
            edge_s = np.cumsum([0.0, *(step.for_s for step in steps)])
            what = f"{len(steps)} assumed step{'s' * (len(steps) != 1)}, repeated"
            process = VaryingProcess(edge_s, np.array([step.rate_rps for step in steps]), what)
        return process if self.rate_rps is None else process.at_rate(self.rate_rps)


class OnOff(ArrivalsConfiguration, ArrivalProcess):
    """Poisson arrivals at a rate that alternates between on and off, each for exponentially distributed times.

    The process starts in its steady state: on with the probability of the share of time that it is on.
    """

    kind: Literal["on_off"]
    on_rate_rps: float = Field(ge=1e-6, le=1e9)
    """Requests per second while on."""
    off_rate_rps: float = Field(default=0.0, ge=0, le=1e9)
    """Requests per second while off."""
    mean_on_s: float = Field(ge=1e-6, le=1e9)
    """Mean length of a burst, seconds."""
    mean_off_s: float = Field(ge=1e-6, le=1e9)
    """Mean time between two bursts, seconds."""

    @model_validator(mode="after")
    def _has_requests(self) -> Self:
        if self.on_rate_rps * self.mean_on_s + self.off_rate_rps * self.mean_off_s < 0.01:
            # Most phases would have no request, and take all the time.
            raise misfit(
                "", "less than 0.01 requests per burst and pause: use longer ones, or kind poisson, which this nearly is"
            )
        return self

    @property
    def on_share(self) -> float:
        """Share of the time that the process is on."""
        return self.mean_on_s / (self.mean_on_s + self.mean_off_s)

    @property
    def mean_rate_rps(self) -> float:
        return self.on_share * self.on_rate_rps + (1 - self.on_share) * self.off_rate_rps

    @property
    def account(self) -> str:
        return (
            f"assumed bursts: {self.on_rate_rps:g} requests/s for {self.mean_on_s:g} s, then {self.off_rate_rps:g} for "
            f"{self.mean_off_s:g} s (exponential times of these means), {self.mean_rate_rps:.4g} requests/s on average"
        )

    def at_rate(self, rate_rps: float) -> Self:
        factor = rate_rps / self.mean_rate_rps
        rates = {"on_rate_rps": factor * self.on_rate_rps, "off_rate_rps": factor * self.off_rate_rps}
        return self.model_copy(update=rates)

    def times(self, n: int, rng: RandomStream) -> Times:
        times = np.cumsum(rng.by_block(n, unit_gaps))  # in expected requests; one block of phases after another is inverted
        done = 0
        for edge_s, counts in self._phases(rng):
            reach = done + int(np.searchsorted(times[done:], counts[-1]))
            times[done:reach] = np.interp(times[done:reach], counts, edge_s)
            done = reach
            if done == n:
                break
        # Rounding must not let a request come before the one it follows.
        return np.maximum.accumulate(times, out=times)

    def _phases(self, rng: RandomStream) -> Iterator[tuple[Times, Times]]:
        """Yield endless blocks of phases: (edges of the phases, requests expected until then)."""
        is_on = rng.part("on at the start").random() < self.on_share
        order = [0, 1] if is_on else [1, 0]
        # A block holds whole pairs of phases, so that each block begins with the same one.
        rate_rps = np.tile(np.array([self.on_rate_rps, self.off_rate_rps])[order], BLOCK // 2)
        mean_s = np.tile(np.array([self.mean_on_s, self.mean_off_s])[order], BLOCK // 2)
        edge_s = counts = np.zeros(1)
        for block in itertools.count():
            phase_s = random_streams.stream(*rng.part("phases").key, block).standard_exponential(BLOCK) * mean_s
            edge_s = edge_s[-1] + np.concatenate(([0.0], np.cumsum(phase_s)))
            counts = counts[-1] + np.concatenate(([0.0], np.cumsum(phase_s * rate_rps)))
            yield edge_s, counts
