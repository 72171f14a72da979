"""Arrivals that wait for answers: requests back to back (CNMT-02), and clients that think between answer and request."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from simnmt.workload.arrivals import durations as thoughts
from simnmt.workload.arrivals.durations import Thinking, ThinkTime
from simnmt.workload.arrivals.process import ArrivalsConfiguration, Discipline, Times, Undrawn


class BackToBack(ArrivalsConfiguration):
    """Each request begins when the one before it ends: the paper's protocol, without queues (CNMT-02)."""

    # It has a default for a workload that names no arrivals; whoever names some has to say the kind.
    model_config = ConfigDict(json_schema_extra={"required": ["kind"]})

    kind: Literal["back_to_back"] = "back_to_back"

    def process(self, base: Path) -> BackToBackProcess:
        """The process; nothing is read."""
        return BackToBackProcess()


@dataclass(frozen=True, slots=True)
class BackToBackProcess(Undrawn):
    """The world sets the pace; nothing is drawn."""

    discipline: Discipline = "back_to_back"
    clients: int = 1
    mean_rate_rps: float | None = None
    account: str = "requests are issued back to back, each when the one before it is answered, so that nothing waits"


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
