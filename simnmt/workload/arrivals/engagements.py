"""Engagements: a user takes up a device, issues one request or a few in a row, and leaves the device (STI-17)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from typing_extensions import Self

from simnmt.base import random_streams
from simnmt.base.configuration import misfit
from simnmt.workload.arrivals.process import ArrivalProcess, ArrivalsConfiguration, RandomStream, RatedArrivals, Times
from simnmt.workload.arrivals.recording import Recorded
from simnmt.workload.arrivals.stationary import Poisson, Renewal, ThinkTime
from simnmt.workload.arrivals.varying import OnOff, Varying

Begin = Annotated[Poisson | Renewal | Varying | OnOff | Recorded, Field(discriminator="kind")]
"""Every kind of arrivals that sets the pace itself."""


class Engagements(ArrivalsConfiguration):
    """Engagements of one turn or more, each turn a request of the same end node."""

    kind: Literal["engagements"]
    begin: Begin
    """Beginnings of the engagements: arrivals of any open kind, whose rates are then engagements per second."""
    turns: list[Annotated[float, Field(ge=0.0, le=1.0)]] = Field(default=[0.4, 0.3, 0.3], min_length=1, max_length=20)
    """Shares of the engagements that have 1 turn, 2 turns, 3 turns and so on; the paper's have 1 to 3."""
    think_time: ThinkTime
    """From one turn to the next of the same engagement, issue to issue: an open loop does not wait for answers."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if abs(sum(self.turns) - 1.0) > 1e-6:
            raise misfit("turns", f"the shares of engagements by their turns sum to {sum(self.turns):g}, not 1")
        if isinstance(self.begin, Recorded) and self.begin.lengths == "rank":
            raise misfit("begin", "lengths: rank orders requests, but the recording lists engagements (write independent)")
        return self

    @property
    def mean_turns(self) -> float:
        """Mean number of turns of an engagement."""
        return float(np.arange(1, len(self.turns) + 1) @ self.turns)

    def process(self, base: Path) -> EngagementsProcess:
        """Return the process after reading the file of `begin`, if any. Raises `ArrivalsError`."""
        return EngagementsProcess(self.begin.process(base), self)

    def at_rate(self, rate_rps: float) -> Self:
        """Return the configuration with more or fewer engagements, each with as many turns as before."""
        return self.model_copy(update={"begin": self.begin.at_rate(rate_rps / self.mean_turns)})

    def in_requests(self, characters_per_request: float | None) -> Self:
        """Return the configuration with the rate of `begin` in engagements per second; other units count their requests."""
        begin = self.begin.in_requests(characters_per_request)
        if begin is self.begin or not isinstance(begin, RatedArrivals):
            return self
        return self.at_rate(begin.stated_rps)


@dataclass(frozen=True, slots=True)
class EngagementsProcess(ArrivalProcess):
    """Turns of all engagements, in the order in which they are issued; those of several engagements interleave."""

    begin: ArrivalProcess
    configuration: Engagements

    @property
    def mean_rate_rps(self) -> float | None:
        return None if self.begin.mean_rate_rps is None else self.begin.mean_rate_rps * self.configuration.mean_turns

    def at_rate(self, rate_rps: float) -> Self:
        return replace(self, begin=self.begin.at_rate(rate_rps / self.configuration.mean_turns))

    @property
    def account(self) -> str:
        turns = self.configuration.turns
        shares = ", ".join(f"{100 * share:.3g}" for share in turns)
        how_many = f"1 to {len(turns)} turns ({shares} % of them)" if len(turns) > 1 else "1 turn"
        return (
            f"engagements of {how_many}, think time from turn to turn {self.configuration.think_time}, "
            f"{self.mean_rate_rps:.4g} requests/s in all; an engagement begins where a request would of: {self.begin.account}"
        )

    def times(self, n: int, rng: RandomStream) -> Times:
        return self._turns(n, rng)[0]

    def engagements(self, n: int, rng: RandomStream) -> NDArray[np.int64]:
        return self._turns(n, rng)[1]

    def _turns(self, n: int, rng: RandomStream) -> tuple[Times, NDArray[np.int64]]:
        """Return (time, number of the engagement) of each of the first `n` turns."""
        # The first n turns belong to the first n engagements, since each begins with a turn: a longer run has them.
        begin_s = self.begin.times(n, rng.part("begin"))
        turn_s, numbers = [begin_s], [np.arange(n)]
        edges = np.cumsum(self.configuration.turns)
        for block, rows in random_streams.blocks(n):
            at_s, count = begin_s[rows], rows.stop - rows.start
            uniform = rng.part(f"engagements {block} turns").random(count)
            turns = 1 + np.searchsorted(edges / edges[-1], uniform, side="right")
            for turn in range(2, len(edges) + 1):
                at_s = at_s + self.configuration.think_time.think(count, rng.part(f"engagements {block} think time {turn}"))
                turn_s.append(at_s[turns >= turn])
                numbers.append(rows.start + np.flatnonzero(turns >= turn))
        all_s = np.concatenate(turn_s)
        order = np.argsort(all_s, kind="stable")[:n]
        return all_s[order], np.concatenate(numbers)[order]
