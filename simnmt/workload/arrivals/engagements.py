"""Engagements: a user takes up a device, issues one request or a few in a row, and leaves the device (STI-17)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from simnmt.base import random_streams
from simnmt.workload.arrivals.durations import ThinkTime
from simnmt.workload.arrivals.process import ArrivalProcess, ArrivalsConfiguration, OpenProcess, Times
from simnmt.workload.arrivals.recording import Recorded
from simnmt.workload.arrivals.stationary_arrivals import OnOff, Poisson, Renewal
from simnmt.workload.arrivals.varying_rate import Varying

Begin = Annotated[Poisson | Renewal | Varying | OnOff | Recorded, Field(discriminator="kind")]
"""Every kind of arrivals that sets the pace itself."""
_MOST_TURNS = 20


class Engagements(ArrivalsConfiguration):
    """Engagements of one turn or more, each turn a request of the same end node."""

    kind: Literal["engagements"]
    begin: Begin
    """Beginnings of the engagements: arrivals of any open kind, whose rates are then engagements per second."""
    turns: list[Annotated[float, Field(ge=0.0, le=1.0)]] = Field(
        default=[0.4, 0.3, 0.3], min_length=1, max_length=_MOST_TURNS, validate_default=True
    )
    """Shares of the engagements that have 1 turn, 2 turns, 3 turns and so on; the paper's have 1 to 3."""
    think_time: ThinkTime
    """From one turn to the next of the same engagement, issue to issue: an open loop does not wait for answers."""

    @field_validator("turns")
    @classmethod
    def _whole(cls, turns: list[float]) -> list[float]:
        if abs(sum(turns) - 1.0) > 1e-6:
            what = "the shares of engagements by their turns sum to {sum}, not 1"
            raise PydanticCustomError("no_whole", what, {"sum": f"{sum(turns):g}"})
        return turns

    @field_validator("begin")
    @classmethod
    def _of_independent_lengths(cls, begin: Begin) -> Begin:
        if isinstance(begin, Recorded) and begin.lengths == "rank":
            what = "lengths: rank orders requests, but the recording lists engagements (write independent)"
            raise PydanticCustomError("rank_of_engagements", what)
        return begin

    def process(self, base: Path) -> EngagementsProcess:
        """Return the process after reading the file of `begin`, if any. Raises `ArrivalsError`."""
        return EngagementsProcess(self.begin.process(base), tuple(self.turns), self.think_time)

    def with_rate(self, rate_rps: float, present_rps: float) -> Engagements | None:
        """Return the configuration with more or fewer engagements, each with as many turns as before."""
        mean_turns = math.fsum(share * turns for turns, share in enumerate(self.turns, start=1))
        begin = self.begin.with_rate(rate_rps / mean_turns, present_rps / mean_turns)
        return None if begin is None else self.model_copy(update={"begin": begin})


@dataclass(frozen=True, slots=True)
class EngagementsProcess(OpenProcess):
    """Turns of all engagements, in the order in which they are issued; those of several engagements interleave."""

    begin: ArrivalProcess
    turns: tuple[float, ...]
    """Shares of the engagements with 1 turn, 2 turns and so on."""
    think_time: ThinkTime

    @property
    def mean_turns(self) -> float:
        """Mean number of turns of an engagement."""
        return math.fsum(share * turns for turns, share in enumerate(self.turns, start=1))

    @property
    def mean_rate_rps(self) -> float | None:
        """Turns per second in the long run."""
        return None if self.begin.mean_rate_rps is None else self.begin.mean_rate_rps * self.mean_turns

    def at_rate(self, rate_rps: float) -> EngagementsProcess:
        """Return the process with more or fewer engagements; their turns and think times stay."""
        return replace(self, begin=self.begin.at_rate(rate_rps / self.mean_turns))

    @property
    def account(self) -> str:
        """Description of the process in one sentence."""
        most = len(self.turns)
        shares = ", ".join(f"{100 * share:.3g}" for share in self.turns)
        how_many = f"1 to {most} turns ({shares} % of them)" if most > 1 else "1 turn"
        rate = "" if self.mean_rate_rps is None else f", {self.mean_rate_rps:.4g} requests/s in all"
        return (
            f"engagements of {how_many}, think time from turn to turn {self.think_time}{rate}; an engagement begins "
            f"where a request would of: {self.begin.account}"
        )

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds, shape (size,), sorted."""
        return np.concatenate([np.empty(0), *(part_s for part_s, _ in self._in_order(size, seed, replication, stream_name))])

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64]:
        """Return the number of each request's engagement, in the order of their beginnings, shape (size,)."""
        parts = (engagement for _, engagement in self._in_order(size, seed, replication, stream_name))
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _in_order(self, size: int, seed: int, replication: int, stream_name: str) -> Iterator[tuple[Times, NDArray[np.int64]]]:
        """Yield blocks of the first `size` turns: (time, number of the engagement) of each."""
        # The first `size` turns belong to the first `size` engagements, since each begins with a turn: a longer run has them.
        begin_s = self.begin.times(size, seed, replication, f"{stream_name}/begin")
        later_s, later = np.empty(0), np.empty(0, np.int64)
        left = size
        for block, rows in random_streams.blocks(size):
            block_s, block_of = self._turns(begin_s[rows], seed, replication, f"{stream_name}/engagements {block}")
            turn_s, of = np.concatenate([later_s, block_s]), np.concatenate([later, block_of + rows.start])
            order = np.argsort(turn_s, kind="stable")
            turn_s, of = turn_s[order], of[order]
            # No turn of a later engagement is issued before that engagement begins.
            known = len(turn_s) if rows.stop == size else int(np.searchsorted(turn_s, begin_s[rows.stop], side="right"))
            known = min(known, left)
            yield turn_s[:known], of[:known]
            left -= known
            if left == 0:
                return
            later_s, later = turn_s[known:], of[known:]

    def _turns(self, begin_s: Times, seed: int, replication: int, stream_name: str) -> tuple[Times, NDArray[np.int64]]:
        """Return (time, index of the engagement) of each turn of the engagements that begin at `begin_s`, turn by turn."""
        count = len(begin_s)
        edges = np.cumsum(self.turns)
        uniform = random_streams.stream(seed, replication, f"{stream_name} turns").random(count)
        turns = 1 + np.searchsorted(edges / edges[-1], uniform, side="right")
        issued_s, of, turn_s = [begin_s], [np.arange(count)], begin_s
        for turn in range(2, len(self.turns) + 1):
            turn_s = turn_s + self.think_time.draw(count, seed, replication, f"{stream_name} think time {turn}")
            issued_s.append(turn_s[turns >= turn])
            of.append(np.flatnonzero(turns >= turn))
        return np.concatenate(issued_s), np.concatenate(of)
