"""First-in first-out servers: one server, and the pools of a tier with their balancers.

Service times are known on entry, so no queue is kept: a server remembers when each of its workers comes free. A pool decides
at the moment of entry which server a request enters. Pools that compare servers know how much work each server has left.
This is an ideal: a real balancer would have to estimate how long a translation takes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from heapq import heappush, heapreplace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray


class FifoServer:
    """`workers` parallel workers before one queue, analytically.

    Entries must come in order of time. Measured: SimPy's `Resource` costs 2.8 us a use and grows with the backlog; this
    costs 0.2 us and does not.
    """

    __slots__ = ("free_at_s",)

    def __init__(self, workers: int) -> None:
        self.free_at_s = [0.0] * workers
        """When each worker comes free, as a heap: all equal at first."""

    @property
    def next_free_s(self) -> float:
        """When the first worker comes free; in the past while one is idle."""
        return self.free_at_s[0]

    def serve(self, entry_s: float, service_s: float) -> float:
        """When a request that enters now starts to execute: at once, or when the worker comes free that does so first.

        It completes `service_s` later.
        """
        free_at_s = self.free_at_s
        start_s = free_at_s[0]
        if start_s < entry_s:
            start_s = entry_s
        heapreplace(free_at_s, start_s + service_s)
        return start_s

    def copy(self) -> FifoServer:
        """A server in the same state, for asking what would happen."""
        other = FifoServer(0)
        other.free_at_s = self.free_at_s.copy()
        return other


EAGER_WORKERS = 64
"""Most workers of a server whose heap holds all of them from the beginning."""


class WideFifoServer(FifoServer):
    """A server of so many workers that most may never work: its heap holds those that have, and one that has not.

    Starts are those of `FifoServer`, to the bit: which of several idle workers takes a request makes no difference.
    """

    __slots__ = ("_unused",)

    def __init__(self, workers: int) -> None:
        super().__init__(min(workers, 1))
        self._unused = workers - 1
        """Workers that have never worked, without the one in the heap."""

    def serve(self, entry_s: float, service_s: float) -> float:
        """As `FifoServer.serve`; a worker that was idle so far is replaced in the heap by another such one."""
        start_s = super().serve(entry_s, service_s)
        if self._unused and self.free_at_s[0] > 0.0:
            heappush(self.free_at_s, 0.0)
            self._unused -= 1
        return start_s

    def copy(self) -> FifoServer:
        """A server in the same state."""
        other = WideFifoServer(0)
        other.free_at_s, other._unused = self.free_at_s.copy(), self._unused
        return other


def create_fifo_server(workers: int) -> FifoServer:
    """Return an idle server of so many workers."""
    return FifoServer(workers) if workers <= EAGER_WORKERS else WideFifoServer(workers)


Entry = tuple[float, float, int, int]
"""Entry time and service time in seconds, request, end node."""


class Pool(Protocol):
    """Parallel servers of one tier; entries come in order of time."""

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """When the request that enters now starts to execute, and on which server."""
        ...

    def copy(self) -> Pool:
        """A pool in the same state, for asking what would happen."""
        ...


def wait_s(pool: Pool, entry: Entry, ahead: Iterable[Entry]) -> float:
    """How long a request would wait that enters after those `ahead` of it have entered, in their order; nothing changes."""
    trial = pool.copy()
    for earlier in ahead:
        trial.enter(*earlier)
    return trial.enter(*entry)[0] - entry[0]


class _Copyable(Protocol):
    def copy(self: ServerT) -> ServerT: ...


ServerT = TypeVar("ServerT", bound=_Copyable)


class CopiedOnUse(Sequence[ServerT]):
    """Servers in the same state as others, of which only those are copied that are looked at: a guess looks at a few."""

    __slots__ = ("_copies", "_originals")

    def __init__(self, originals: Sequence[ServerT]) -> None:
        self._originals, self._copies = originals, dict[int, ServerT]()

    def __len__(self) -> int:
        return len(self._originals)

    def __getitem__(self, server: int) -> ServerT:  # type: ignore[override]
        copy = self._copies.get(server)
        if copy is None:
            copy = self._copies[server] = self._originals[server].copy()
        return copy


class OneServer:
    """A tier of one server."""

    __slots__ = ("_server",)

    def __init__(self, workers: int = 1) -> None:
        self._server = create_fifo_server(workers)

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """There is nothing to choose."""
        return self._server.serve(entry_s, service_s), 0

    def copy(self) -> OneServer:
        """The same state."""
        other = OneServer(0)
        other._server = self._server.copy()
        return other


class Attached:
    """Each end node has its server: number node modulo servers."""

    __slots__ = ("_servers",)

    def __init__(self, servers: int, workers: int = 1) -> None:
        self._servers: Sequence[FifoServer] = [create_fifo_server(workers) for _ in range(servers)]

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """The node's server, however long its queue."""
        server = node % len(self._servers)
        return self._servers[server].serve(entry_s, service_s), server

    def copy(self) -> Attached:
        """The same state."""
        other = Attached(0)
        other._servers = CopiedOnUse(self._servers)
        return other


class RoundRobin:
    """One server after another in turn, whatever they have to do."""

    __slots__ = ("_next", "_servers")

    def __init__(self, servers: int, workers: int = 1) -> None:
        self._servers: Sequence[FifoServer] = [create_fifo_server(workers) for _ in range(servers)]
        self._next = 0

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """The server whose turn it is."""
        server = self._next
        self._next = (server + 1) % len(self._servers)
        return self._servers[server].serve(entry_s, service_s), server

    def copy(self) -> RoundRobin:
        """The same state, the turn included."""
        other = RoundRobin(0)
        other._servers, other._next = CopiedOnUse(self._servers), self._next
        return other


class LeastWork:
    """The server on which the request starts soonest; among idle ones, that which has been idle longest.

    With one worker a server that is the one with the least work left, and the tier behaves as one queue before all workers.
    One heap of (time at which a worker comes free, its server) serves any number of servers in logarithmic time.
    """

    __slots__ = ("_free_at_s", "_unused")

    def __init__(self, servers: int, workers: int = 1) -> None:
        held = workers if workers <= EAGER_WORKERS else 1
        self._free_at_s = [(0.0, server) for server in range(servers) for _ in range(held)]
        self._unused = [workers - held] * servers if workers > held else []
        """By server, workers that have never worked beside those in the heap; empty where all are there."""

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """The first worker to come free, of all servers."""
        free_s, server = self._free_at_s[0]
        start_s = free_s if free_s > entry_s else entry_s
        heapreplace(self._free_at_s, (start_s + service_s, server))
        if self._unused and free_s == 0.0 and self._unused[server]:
            heappush(self._free_at_s, (0.0, server))
            self._unused[server] -= 1
        return start_s, server

    def copy(self) -> LeastWork:
        """The same state."""
        other = LeastWork(0)
        other._free_at_s, other._unused = self._free_at_s.copy(), self._unused.copy()
        return other


class DrawnChoices:
    """The better of some servers drawn at random for each request: of two, or the one if only one is drawn.

    `choices`: shape (requests, drawn), server numbers. They are given, not drawn here, so that every policy meets the same.
    """

    __slots__ = ("_first", "_others", "_servers")

    def __init__(self, choices: NDArray[np.integer], servers: int, workers: int = 1) -> None:
        self._first, *self._others = (array("h", column.astype(np.int16).tobytes()) for column in choices.T)
        self._servers: Sequence[FifoServer] = [create_fifo_server(workers) for _ in range(servers)]

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """Where it starts sooner; the one drawn first if it does not matter."""
        servers = self._servers
        best = self._first[request]
        server = servers[best]
        for column in self._others:
            soonest_s = server.free_at_s[0]
            if soonest_s <= entry_s:
                break
            other = column[request]
            if servers[other].free_at_s[0] < soonest_s:
                best, server = other, servers[other]
        return server.serve(entry_s, service_s), best

    def copy(self) -> DrawnChoices:
        """The same state and the same choices."""
        other = DrawnChoices(np.empty((0, 1), np.int16), 0)
        other._first, other._others = self._first, self._others
        other._servers = CopiedOnUse(self._servers)
        return other
