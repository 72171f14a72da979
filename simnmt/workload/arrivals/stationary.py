"""Arrivals whose law never changes: Poisson, independent gaps of any law of scipy, back to back, and clients that think."""

from __future__ import annotations

import warnings
from typing import Any, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from simnmt.base.configuration import Configuration, misfit
from simnmt.base.laws import check_law, describe_law, scipy_law
from simnmt.base.random_streams import BLOCK
from simnmt.workload.arrivals.process import (
    RATE_KEYS,
    ArrivalProcess,
    ArrivalsConfiguration,
    Discipline,
    RandomStream,
    RatedArrivals,
    Times,
)


def unit_gaps(generator: np.random.Generator, count: int) -> Times:
    """Draw exponential gaps of mean 1."""
    return generator.standard_exponential(count)


class SteadyArrivals(RatedArrivals, ArrivalProcess):
    """Base of the kinds whose rate never changes, and must be stated."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": [key]} for key in RATE_KEYS]})

    @model_validator(mode="after")
    def _has_a_rate(self) -> Self:
        if not self.states_rate:
            raise misfit("", "give rate_rps, requests_per_month or characters_per_day")
        return self


class Poisson(SteadyArrivals):
    """Independent requests at a constant mean rate; the first arrives one gap after the start."""

    kind: Literal["poisson"]

    @property
    def account(self) -> str:
        return f"assumed Poisson arrivals, {self.stated_rps:g} requests/s, coefficient of variation of the gaps 1"

    def times(self, n: int, rng: RandomStream) -> Times:
        # cumsum adds one after another, so a longer run begins with the times of a shorter one, to the bit.
        return np.cumsum(rng.by_block(n, unit_gaps) / self.stated_rps)


class Law(Configuration):
    """Durations of any continuous distribution of scipy.stats that is never negative and has a mean; its location is 0."""

    distribution: str
    """Name of a distribution in scipy.stats, e.g. gamma, lognorm, weibull_min, pareto."""
    parameters: dict[str, float] = Field(default={})
    """Shape parameters of the distribution by scipy's names, e.g. {a: 0.5}; the scale follows from the mean."""

    @model_validator(mode="after")
    def _is_law_of_durations(self) -> Self:
        check_law(self.distribution, self.parameters, key="distribution")
        return self

    @property
    def _scipy(self) -> Any:
        return scipy_law(self.distribution, self.parameters)

    @property
    def cv(self) -> float:
        """Standard deviation over mean; infinite if there is no variance."""
        return float(self._scipy.std() / self._scipy.mean())

    def draw(self, mean_s: float, n: int, rng: RandomStream) -> Times:
        """Draw `n` independent durations of this mean."""
        law = self._scipy
        scale_s = mean_s / float(law.mean())

        def sample(generator: np.random.Generator, count: int) -> Times:
            # Always a whole block, cut to size: some laws draw two columns, and the second begins after the whole first.
            durations: Times = law.rvs(size=BLOCK, random_state=generator)
            return durations[:count] * scale_s

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # erlang warns of a shape that is no whole number, in every block
            return rng.by_block(n, sample)

    def __str__(self) -> str:
        return describe_law(self.distribution, self.parameters)


class Renewal(Law, SteadyArrivals):
    """Requests with independent gaps of one law, scaled to the rate; the first comes one whole gap after the start."""

    kind: Literal["renewal"]

    @property
    def account(self) -> str:
        law = f"{self}, coefficient of variation {self.cv:.3g}"
        return f"assumed arrivals with independent gaps, {law}; {self.stated_rps:.4g} requests/s"

    def times(self, n: int, rng: RandomStream) -> Times:
        return np.cumsum(self.draw(1 / self.stated_rps, n, rng))


class BackToBack(ArrivalsConfiguration, ArrivalProcess):
    """Each request is issued when the one before it is answered: the paper's protocol, without queues (CNMT-02)."""

    # The default is for a workload without arrivals; a mapping of arrivals must state the kind.
    model_config = ConfigDict(json_schema_extra={"required": ["kind"]})

    kind: Literal["back_to_back"] = "back_to_back"

    @property
    def discipline(self) -> Discipline:
        return "back_to_back"

    @property
    def account(self) -> str:
        return "requests are issued back to back, each when the one before it is answered, so that nothing waits"


class ThinkTime(Law):
    """A think time, constant or of a law: {constant_s: 1}, or {mean_s: 2, distribution: gamma, parameters: {a: 2}}."""

    distribution: str = "expon"
    """Name of a distribution in scipy.stats."""
    mean_s: float | None = Field(default=None, ge=1e-9, le=1e9)
    """Mean think time in seconds; the distribution is scaled to it."""
    constant_s: float | None = Field(default=None, ge=0, le=1e9)
    """Think time in seconds that is always the same, in place of `mean_s`; 0: the next request follows at once."""

    @model_validator(mode="after")
    def _has_one_length(self) -> Self:
        if (self.mean_s is None) == (self.constant_s is None):
            raise misfit("", "give either constant_s or mean_s")
        return self

    def think(self, n: int, rng: RandomStream) -> Times:
        """Return `n` think times in seconds."""
        return np.full(n, self.constant_s) if self.mean_s is None else self.draw(self.mean_s, n, rng)

    def __str__(self) -> str:
        return f"always {self.constant_s:g} s" if self.mean_s is None else f"{super().__str__()}, mean {self.mean_s:g} s"


class Clients(ArrivalsConfiguration, ArrivalProcess):
    """Clients that think, issue a request, wait for the answer and think again."""

    kind: Literal["clients"]
    clients: int = Field(ge=1, le=1_000_000)
    """Number of clients, over all end nodes."""
    think_time: ThinkTime
    """Time between an answer and the client's next request."""

    @property
    def discipline(self) -> Discipline:
        return "closed"

    @property
    def account(self) -> str:
        many = f"{self.clients:,} client{'s' * (self.clients != 1)}"
        return (
            f"an assumed closed loop: {many}, think time {self.think_time}; no request is issued before its client has the "
            "last answer"
        )

    def think_times(self, n: int, rng: RandomStream) -> Times:
        return self.think_time.think(self.clients + n, rng)
