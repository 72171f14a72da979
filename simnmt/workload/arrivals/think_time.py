"""How long somebody thinks between two requests: always as long, or as a law of random durations says."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import Discriminator, Field, Tag

from simnmt.configuration import Configuration
from simnmt.workload.arrivals.law import DistributionName, Law, Parameters, law_of
from simnmt.workload.arrivals.process import Times


class ConstantThinkTime(Configuration):
    """A think time that is always the same."""

    constant_s: float = Field(ge=0, le=1e9)
    """Seconds; 0 lets the next request follow at once."""


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


ThinkTime = Annotated[
    Annotated[ConstantThinkTime, Tag("constant")] | Annotated[RandomThinkTime, Tag("random")],
    Discriminator(
        _form,
        custom_error_type="no_think_time",
        custom_error_message="expected a mapping: {constant_s: 1} or {mean_s: 2, distribution: expon}",
    ),
]
"""What a scenario may say under `think_time`."""
Thinking = Law | float
"""A law, or always the same seconds."""


def thinking_of(think_time: ConstantThinkTime | RandomThinkTime) -> Thinking:
    """The law that a configuration describes."""
    if isinstance(think_time, ConstantThinkTime):
        return think_time.constant_s
    return law_of(think_time.distribution, think_time.parameters, mean_s=think_time.mean_s)


def mean_s(thinking: Thinking) -> float:
    """Mean seconds."""
    return thinking.mean_s if isinstance(thinking, Law) else thinking


def words(thinking: Thinking) -> str:
    """For a reader, behind `think time`."""
    return f"{thinking}, mean {thinking.mean_s:g} s" if isinstance(thinking, Law) else f"always {thinking:g} s"


def drawn(thinking: Thinking, size: int, seed: int, replication: int, stream_name: str) -> Times:
    """Independent think times in seconds, shape (size,)."""
    if isinstance(thinking, Law):
        return thinking.draw(size, seed, replication, stream_name)
    return np.full(size, thinking)
