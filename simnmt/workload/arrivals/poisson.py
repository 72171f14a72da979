"""Poisson arrivals: independent of each other, at a constant mean rate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from simnmt import streams
from simnmt.workload.arrivals.process import ArrivalsConfiguration, OpenProcess, Times


class Poisson(ArrivalsConfiguration):
    """Requests arrive independently of each other at a constant mean rate."""

    kind: Literal["poisson"]
    rate_rps: float = Field(ge=1e-6, le=1e9)
    """Mean requests per second, over all end nodes."""

    def process(self, base: Path) -> PoissonProcess:
        """The process; nothing is read."""
        return PoissonProcess(self.rate_rps)


@dataclass(frozen=True, slots=True)
class PoissonProcess(OpenProcess):
    """Exponential gaps; the first request comes one gap after the start."""

    mean_rate_rps: float

    @property
    def account(self) -> str:
        """One sentence for a reader."""
        return f"assumed Poisson arrivals, {self.mean_rate_rps:g} requests/s, coefficient of variation of the gaps 1"

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds, shape (size,), sorted."""
        gap_s = streams.draw(
            seed,
            replication,
            stream_name,
            size,
            lambda generator, count: generator.standard_exponential(count) / self.mean_rate_rps,
        )
        # cumsum adds one after another, so that the times of a prefix are the prefix of the times, to the bit.
        return np.cumsum(gap_s, out=gap_s)
