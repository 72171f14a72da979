"""Renewal arrivals: independent gaps of one distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.workload.arrivals.law import DistributionName, Law, Parameters, law_of
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times


class Renewal(ArrivalsConfiguration):
    """Requests with independent gaps of any distribution that is continuous, never negative and has a mean."""

    kind: Literal["renewal"]
    distribution: DistributionName
    """Name of a distribution in scipy.stats, e.g. gamma, lognorm, weibull_min, pareto."""
    parameters: Parameters = Field(default={}, validate_default=True)
    """Its shape parameters by scipy's names, e.g. {a: 0.5}; the location stays 0."""
    rate_rps: float | None = Field(default=None, ge=1e-6, le=1e9)
    """Mean requests per second; the distribution is scaled to it."""
    scale_s: float | None = Field(default=None, ge=1e-9, le=1e9)
    """Scale parameter of the gaps in seconds, instead of `rate_rps`."""

    @model_validator(mode="after")
    def _one_measure(self) -> Renewal:
        if (self.rate_rps is None) == (self.scale_s is None):
            raise PydanticCustomError("rate_or_scale", "give either rate_rps or scale_s")
        return self

    def process(self, base: Path) -> RenewalProcess:
        """The process; nothing is read."""
        if self.rate_rps is not None:
            return RenewalProcess(law_of(self.distribution, self.parameters, mean_s=1 / self.rate_rps))
        return RenewalProcess(law_of(self.distribution, self.parameters, scale_s=self.scale_s or 1.0))


@dataclass(frozen=True, slots=True)
class RenewalProcess(OpenProcess):
    """Independent gaps; the first request comes one whole gap after the start."""

    gap: Law

    @property
    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return 1 / self.gap.mean_s

    @property
    def account(self) -> str:
        """One sentence for a reader."""
        spread = (
            f"coefficient of variation {self.gap.cv:.3g}"
            if math.isfinite(self.gap.cv)
            else "of infinite variance, so that a run's rate may stray"
        )
        return f"assumed arrivals with independent gaps, {self.gap}, {spread}; {self.mean_rate_rps:.4g} requests/s"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds, shape (size,), sorted."""
        gap_s = self.gap.draw(size, seed, replication, stream_name)
        return np.cumsum(gap_s, out=gap_s)
