"""Stationary arrival processes: Poisson, renewal (independent gaps of one distribution), and on-off bursts.

On-off bursts are a Markov-modulated Poisson process: a rate that jumps between two levels at random moments.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.workload.arrivals.durations import DistributionName, Law, Parameters, law_of
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times


def _unit_gaps(generator: np.random.Generator, count: int) -> Times:
    return generator.standard_exponential(count)


class Poisson(OpenProcess, ArrivalsConfiguration):
    """Independent requests at a constant mean rate; the first arrives one gap after the start."""

    kind: Literal["poisson"]
    rate_rps: float = Field(ge=1e-6, le=1e9)
    """Mean requests per second, over all end nodes."""

    @property
    def mean_rate_rps(self) -> float:
        """Mean requests per second."""
        return self.rate_rps

    def at_rate(self, rate_rps: float) -> Poisson:
        """Return the process with another rate: the same gaps, scaled."""
        return self.model_copy(update={"rate_rps": rate_rps})

    def with_rate(self, rate_rps: float, present_rps: float) -> Poisson:
        """Return the configuration with another rate."""
        return self.at_rate(rate_rps)

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        return f"assumed Poisson arrivals, {self.rate_rps:g} requests/s, coefficient of variation of the gaps 1"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        # cumsum adds one after another, so a longer run begins with the times of a shorter one, to the bit.
        return np.cumsum(random_streams.draw(seed, replication, stream_name, size, _unit_gaps) / self.rate_rps)


class Renewal(OpenProcess, ArrivalsConfiguration):
    """Requests with independent gaps of any distribution that is continuous, never negative and has a mean."""

    kind: Literal["renewal"]
    distribution: DistributionName
    """Name of a distribution in scipy.stats, e.g. gamma, lognorm, weibull_min, pareto."""
    parameters: Parameters = Field(default={}, validate_default=True)
    """Shape parameters of the distribution by scipy's names, e.g. {a: 0.5}; the location is 0."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Mean requests per second; the distribution is scaled to it."""
    scale_s: float | None = Field(default=None, ge=1e-9, le=1e9)
    """Scale parameter of the gaps in seconds, instead of `rate_rps`."""

    @model_validator(mode="after")
    def _one_measure(self) -> Renewal:
        if (self.rate_rps is None) == (self.scale_s is None):
            raise PydanticCustomError("rate_or_scale", "give either rate_rps or scale_s")
        return self

    @property
    def gap(self) -> Law:
        """Distribution of the gaps; the first request comes one whole gap after the start."""
        mean_s = None if self.rate_rps is None else 1 / self.rate_rps
        return law_of(self.distribution, self.parameters, mean_s=mean_s, scale_s=self.scale_s or 1.0)

    @property
    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return 1 / self.gap.mean_s

    def at_rate(self, rate_rps: float) -> Renewal:
        """Return the process with another mean rate: the same gaps, scaled."""
        if self.scale_s is None:
            return self.model_copy(update={"rate_rps": rate_rps})
        return self.model_copy(update={"scale_s": self.scale_s * self.mean_rate_rps / rate_rps})

    def with_rate(self, rate_rps: float, present_rps: float) -> Renewal:
        """Return the configuration with another `rate_rps`, or `scale_s` if that is given."""
        return self.at_rate(rate_rps)

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        finite = math.isfinite(self.gap.cv)
        infinite = "of infinite variance, so that a run's rate may stray"
        spread = f"coefficient of variation {self.gap.cv:.3g}" if finite else infinite
        return f"assumed arrivals with independent gaps, {self.gap}, {spread}; {self.mean_rate_rps:.4g} requests/s"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        gap_s = self.gap.draw(size, seed, replication, stream_name)
        return np.cumsum(gap_s, out=gap_s)


_LEAST_PER_CYCLE = 0.01
"""Least requests of an on and an off phase together; with fewer, most phases have no request and take all the time."""


class OnOff(OpenProcess, ArrivalsConfiguration):
    """Poisson arrivals at a rate that alternates between on and off, each for exponentially distributed times.

    The process starts in its steady state: on with the probability of the share of time that it is on.
    """

    kind: Literal["on_off"]
    on_rate_rps: float = Field(ge=1e-6, le=1e9)
    """Requests per second while on."""
    off_rate_rps: float = Field(default=0.0, ge=0, le=1e9)
    """Requests per second while off, below `on_rate_rps`."""
    mean_on_s: float = Field(ge=1e-6, le=1e9)
    """Mean length of a burst, seconds."""
    mean_off_s: float = Field(ge=1e-6, le=1e9)
    """Mean time between two bursts, seconds."""

    @model_validator(mode="after")
    def _bursts(self) -> OnOff:
        if self.off_rate_rps >= self.on_rate_rps:
            raise PydanticCustomError("no_burst", "off_rate_rps must be below on_rate_rps")
        per_cycle = self.on_rate_rps * self.mean_on_s + self.off_rate_rps * self.mean_off_s
        if per_cycle < _LEAST_PER_CYCLE:
            what = "{per_cycle} requests per burst and pause: use longer ones, or kind poisson, which this nearly is"
            raise PydanticCustomError("no_burst", what, {"per_cycle": f"{per_cycle:.2g}"})
        return self

    @property
    def on_share(self) -> float:
        """Share of the time that the process is on."""
        return self.mean_on_s / (self.mean_on_s + self.mean_off_s)

    @property
    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return self.on_share * self.on_rate_rps + (1 - self.on_share) * self.off_rate_rps

    def at_rate(self, rate_rps: float) -> OnOff:
        """Return the process with both rates scaled; bursts and pauses last as long as before."""
        factor = rate_rps / self.mean_rate_rps
        rates = {"on_rate_rps": factor * self.on_rate_rps, "off_rate_rps": factor * self.off_rate_rps}
        return self.model_copy(update=rates)

    def with_rate(self, rate_rps: float, present_rps: float) -> OnOff:
        """Return the configuration with both rates scaled."""
        return self.at_rate(rate_rps)

    @property
    def dispersion(self) -> float:
        """Variance over mean of the requests in a long time; 1 for Poisson.

        Source: Fischer and Meier-Hellstern 1993, the Markov-modulated Poisson process cookbook, for two states.
        """
        changes_per_s = 1 / self.mean_on_s + 1 / self.mean_off_s
        spread = self.on_share * (1 - self.on_share) * (self.on_rate_rps - self.off_rate_rps) ** 2
        return 1 + 2 * spread / (self.mean_rate_rps * changes_per_s)

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        return (
            f"assumed bursts: {self.on_rate_rps:g} requests/s for {self.mean_on_s:g} s, then {self.off_rate_rps:g} for "
            f"{self.mean_off_s:g} s (exponential times of these means), {self.mean_rate_rps:.4g} requests/s on average; "
            f"variance over mean of the counts in a long time {self.dispersion:.3g}, where Poisson has 1"
        )

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        gap = random_streams.draw(seed, replication, stream_name, size, _unit_gaps)
        expected = np.cumsum(gap, out=gap)
        done = 0
        for end_s, end, rate_rps in self._phases(seed, replication, stream_name):
            reach = done + int(np.searchsorted(expected[done:], end[-1]))
            for start in range(done, reach, random_streams.BLOCK):  # one block of phases may hold millions of requests
                here = expected[start : min(start + random_streams.BLOCK, reach)]
                phase = np.searchsorted(end, here, side="right")
                here[:] = end_s[phase] - (end[phase] - here) / rate_rps[phase]
            done = reach
            if done == size:
                break
        # Rounding must not let a request come before the one it follows.
        return np.maximum.accumulate(expected, out=expected)

    def _phases(self, seed: int, replication: int, stream_name: str) -> Iterator[tuple[Times, Times, Times]]:
        """Yield endless blocks of phases: (end of each phase, requests expected until then, rate in the phase)."""
        is_on = random_streams.stream(seed, replication, f"{stream_name}/on at the start").random() < self.on_share
        order = [0, 1] if is_on else [1, 0]
        # A block holds whole pairs of phases, so that each block begins with the same one.
        rate_rps = np.tile(np.array([self.on_rate_rps, self.off_rate_rps])[order], random_streams.BLOCK // 2)
        mean_s = np.tile(np.array([self.mean_on_s, self.mean_off_s])[order], random_streams.BLOCK // 2)
        begun_s = begun = 0.0
        for block in itertools.count():
            generator = random_streams.stream(seed, replication, f"{stream_name}/phases", block)
            phase_s = generator.standard_exponential(random_streams.BLOCK) * mean_s
            end_s, end = begun_s + np.cumsum(phase_s), begun + np.cumsum(phase_s * rate_rps)
            yield end_s, end, rate_rps
            begun_s, begun = float(end_s[-1]), float(end[-1])
