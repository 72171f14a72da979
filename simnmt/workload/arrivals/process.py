"""What the world asks of an arrival process, whatever its kind."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import Configuration

Times = NDArray[np.float64]
Discipline = Literal["back_to_back", "open", "closed"]


class ArrivalProcess(Protocol):
    """When requests are issued: immutable, picklable, drawn anew for each key.

    Everything drawn is keyed by (seed, replication, stream name, request), so that a longer run begins with exactly the
    shorter one. `stream_name`: one for each workload, else two workloads would meet the same gaps.
    """

    @property
    def discipline(self) -> Discipline:
        """`open`: requests come at `times`, whatever happens to them. `closed`: each client thinks, asks and waits for the
        answer. `back_to_back`: one client that never thinks; nothing is drawn."""

    @property
    def clients(self) -> int:
        """How many take turns in a closed loop; 0 where the loop is open."""

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests per second in the long run; None where the answers set the pace."""

    @property
    def account(self) -> str:
        """What, from where, of what kind, how fast and how bursty: a sentence that begins small, without its full stop."""

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Arrival times in seconds from the run's start, shape (size,), sorted; `open` alone."""

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Seconds that pass before request i is issued, once its client has its last answer, shape (size,); `closed` alone."""

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """The share of requests, in [0, 1), that are shorter than request i, shape (size,), where a recorded trace says so.

        Then request i takes its lengths at that share of the corpus; None where the corpus draws alone.
        """

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64] | None:
        """Which engagement request i is a turn of, numbered as they begin, shape (size,): all of its turns are asked at one end
        node. None where every request stands for itself.
        """


class Undrawn:
    """What a process does not draw; each overrides what it does."""

    __slots__ = ()

    discipline: ClassVar[Discipline]

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Nobody knows before the run: raises `TypeError`."""
        raise TypeError(f"{self.discipline} arrivals: the answers set the pace")

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Nobody thinks: raises `TypeError`."""
        raise TypeError(f"{self.discipline} arrivals: nobody thinks")

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """None: the corpus draws the lengths alone."""
        return None

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64] | None:
        """None: every request stands for itself."""
        return None


class OpenProcess(Undrawn):
    """What all processes have in common that set the pace themselves, whatever the answers; they add `times`."""

    __slots__ = ()

    discipline: ClassVar[Discipline] = "open"
    clients: ClassVar[int] = 0


class ArrivalsConfiguration(Configuration):
    """What a scenario may say of one kind of arrivals; each kind derives its own."""

    @abstractmethod
    def process(self, base: Path) -> ArrivalProcess:
        """Return the process, with the files read that it names; relative paths start at `base`. Raises `ArrivalsError`."""

    def input_paths(self, base: Path) -> list[Path]:
        """The files that `process` reads."""
        return []

    def resolved(self, base: Path) -> ArrivalsConfiguration:
        """The same with absolute paths."""
        return self
