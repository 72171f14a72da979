"""Clients with think time: a closed loop, in which nobody asks before having the last answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Discriminator, Field, Tag

from simnmt.configuration import Configuration
from simnmt.workload.arrivals.law import DistributionName, Law, Parameters, law_of
from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Times, Undrawn


class ConstantThinkTime(Configuration):
    """A think time that is always the same."""

    constant_s: float = Field(ge=0, le=1e9)
    """Seconds; 0 lets a client ask again at once."""


class RandomThinkTime(Configuration):
    """Independent think times of any distribution that is continuous, never negative and has a mean."""

    mean_s: float = Field(ge=1e-9, le=1e9)
    """Mean seconds; the distribution is scaled to it."""
    distribution: DistributionName = "expon"
    """Name of a distribution in scipy.stats."""
    parameters: Parameters = Field(default={}, validate_default=True)
    """Its shape parameters by scipy's names; the location stays 0."""


def _form(value: Any) -> str | None:
    constant = isinstance(value, ConstantThinkTime) or (isinstance(value, dict) and "constant_s" in value)
    random = isinstance(value, RandomThinkTime) or (isinstance(value, dict) and not constant)
    return "constant" if constant else "random" if random else None


class Clients(ArrivalsConfiguration):
    """A number of clients, each of which thinks, asks, waits for the answer and thinks again."""

    kind: Literal["clients"]
    clients: int = Field(ge=1, le=1_000_000)
    """How many there are, over all end nodes."""
    think_time: Annotated[
        Annotated[ConstantThinkTime, Tag("constant")] | Annotated[RandomThinkTime, Tag("random")],
        Discriminator(
            _form,
            custom_error_type="no_think_time",
            custom_error_message="expected a mapping: {constant_s: 1} or {mean_s: 2, distribution: expon}",
        ),
    ]
    """How long a client thinks between an answer and its next request."""

    def process(self, base: Path) -> ClientsProcess:
        """The process; nothing is read."""
        think = self.think_time
        if isinstance(think, ConstantThinkTime):
            return ClientsProcess(self.clients, think.constant_s)
        return ClientsProcess(self.clients, law_of(think.distribution, think.parameters, mean_s=think.mean_s))


@dataclass(frozen=True, slots=True)
class ClientsProcess(Undrawn):
    """A closed loop of so many clients; each begins by thinking."""

    clients: int
    think: Law | float
    """A law, or always the same seconds."""
    discipline: Discipline = "closed"
    mean_rate_rps: float | None = None
    """None: the answers set the pace, at most `clients` over the mean think time."""

    @property
    def mean_think_s(self) -> float:
        """Mean think time, seconds."""
        return self.think.mean_s if isinstance(self.think, Law) else self.think

    @property
    def account(self) -> str:
        """One sentence for a reader."""
        how = f"{self.think}, mean {self.mean_think_s:g} s" if isinstance(self.think, Law) else f"always {self.think:g} s"
        many = f"{self.clients:,} client{'s' * (self.clients != 1)}"
        return f"an assumed closed loop: {many}, think time {how}; no request is issued before its client has the last answer"

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Seconds that pass before request i is issued, once its client has its last answer, shape (size,)."""
        if isinstance(self.think, Law):
            return self.think.draw(size, seed, replication, stream_name)
        return np.full(size, self.think)
