"""Clients with think time: a closed loop, in which nobody asks before having the last answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from simnmt.workload.arrivals import think_time as thoughts
from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Times, Undrawn
from simnmt.workload.arrivals.think_time import Thinking, ThinkTime


class Clients(ArrivalsConfiguration):
    """A number of clients, each of which thinks, asks, waits for the answer and thinks again."""

    kind: Literal["clients"]
    clients: int = Field(ge=1, le=1_000_000)
    """How many there are, over all end nodes."""
    think_time: ThinkTime
    """How long a client thinks between an answer and its next request."""

    def process(self, base: Path) -> ClientsProcess:
        """The process; nothing is read."""
        return ClientsProcess(self.clients, thoughts.thinking_of(self.think_time))


@dataclass(frozen=True, slots=True)
class ClientsProcess(Undrawn):
    """A closed loop of so many clients; each begins by thinking."""

    clients: int
    think: Thinking
    discipline: Discipline = "closed"
    mean_rate_rps: float | None = None
    """None: the answers set the pace, at most `clients` over the mean think time."""

    @property
    def mean_think_s(self) -> float:
        """Mean think time, seconds."""
        return thoughts.mean_s(self.think)

    @property
    def account(self) -> str:
        """One sentence for a reader."""
        how = thoughts.words(self.think)
        many = f"{self.clients:,} client{'s' * (self.clients != 1)}"
        return f"an assumed closed loop: {many}, think time {how}; no request is issued before its client has the last answer"

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Seconds that pass before request i is issued, once its client has its last answer, shape (size,)."""
        return thoughts.drawn(self.think, size, seed, replication, stream_name)
