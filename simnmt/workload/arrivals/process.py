"""The protocol of arrival processes, and the base classes of their kinds."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import Configuration

Times = NDArray[np.float64]
Discipline = Literal["back_to_back", "open", "closed"]


class ArrivalProcess(Protocol):
    """The times at which requests are issued; immutable and picklable.

    Every draw is keyed by (seed, replication, stream name, request), so that a longer run begins with exactly the shorter one.
    `stream_name`: one for each workload, else two workloads would have the same gaps.
    """

    @property
    def discipline(self) -> Discipline:
        """`open`: requests arrive at `times`, independent of the answers. `closed`: each client thinks, asks and waits for the
        answer. `back_to_back`: one client that never thinks; nothing is drawn."""

    @property
    def clients(self) -> int:
        """Number of clients in a closed loop; 0 for an open loop."""

    @property
    def mean_rate_rps(self) -> float | None:
        """Requests per second in the long run; None if the answers set the pace."""

    @property
    def account(self) -> str:
        """Kind, origin, rate and burstiness: a sentence that begins in lower case, without a full stop."""

    def at_rate(self, rate_rps: float) -> ArrivalProcess:
        """Return the process with this mean rate and the same random numbers; only if it has a `mean_rate_rps`."""

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return arrival times in seconds from the run's start, shape (size,), sorted; only for `open`."""

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Return the seconds from its client's last answer to request i, shape (size,); only for `closed`."""

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """Return the share of requests, in [0, 1), that are shorter than request i, shape (size,), from a recorded trace.

        Request i then takes its lengths at that share of the corpus. None: the lengths are drawn from the corpus independently.
        """

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64] | None:
        """Return the number of request i's engagement, in the order of their beginnings, shape (size,).

        All turns of an engagement are issued at one end node. None: requests belong to no engagements.
        """


class Undrawn:
    """Base of all processes, which draws nothing; a process overrides what it draws."""

    __slots__ = ()

    discipline: ClassVar[Discipline]

    def at_rate(self, rate_rps: float) -> ArrivalProcess:
        """Raise `TypeError`: the process has no rate."""
        raise TypeError(f"{self.discipline} arrivals have no rate")

    def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Raise `TypeError`: the times depend on the answers."""
        raise TypeError(f"{self.discipline} arrivals: the answers set the pace")

    def think_times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        """Raise `TypeError`: there are no clients that think."""
        raise TypeError(f"{self.discipline} arrivals: no client thinks")

    def size_ranks(self, size: int, seed: int, replication: int, stream_name: str) -> Times | None:
        """Return None: the lengths are drawn from the corpus independently."""
        return None

    def engagements(self, size: int, seed: int, replication: int, stream_name: str) -> NDArray[np.int64] | None:
        """Return None: requests belong to no engagements."""
        return None


class OpenProcess(Undrawn):
    """Base of processes whose `times` do not depend on the answers.

    Example:
        >>> class Every(simnmt.OpenProcess):
        ...     def times(self, size: int, seed: int, replication: int, stream_name: str) -> Times:
        ...         return 0.3 * np.arange(1, size + 1)
        >>> Every().times(2, seed=1, replication=0, stream_name="arrivals").tolist()
        [0.3, 0.6]
    """

    __slots__ = ()

    discipline: ClassVar[Discipline] = "open"
    clients: ClassVar[int] = 0


class ArrivalsConfiguration(Configuration):
    """Base of the configurations of all kinds of arrivals; a kind that reads no file is its own process."""

    def process(self, base: Path) -> ArrivalProcess:
        """Return the process after reading its files; relative paths start at `base`. Raises `ArrivalsError`."""
        return cast(ArrivalProcess, self)

    def with_rate(self, rate_rps: float, present_rps: float) -> ArrivalsConfiguration | None:
        """Return the configuration of the process `at_rate(rate_rps)`; None if no key sets the rate.

        `present_rps`: `mean_rate_rps` of the process of this configuration.
        """
        return None
