"""The batched servers of a tier: the pool, the tier on the clock, what an oracle foresees, and one server by itself.

`BatchPool` holds the servers and `BatchTier` lets them act in time. `ForeseenServer` answers when a request would be done, at
a cost that does not grow with the queue. `decode_all` runs a single server without a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappush
from math import inf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.batching import Batching
from simnmt.results.device_accounts import BatchAccount
from simnmt.world.balancers import Balancer, BatchEntry, ByNode
from simnmt.world.batch_server import BatchServer, Sentence, ServerCost, StepTimes
from simnmt.world.clock import SERVER_ACTS, Clock, Event


class ForeseenServer:
    """A server, and where many wait there, as it will be when few do.

    While more wait than anybody takes at a time, who comes later changes nothing. So the server is followed once, not once a
    request, up to the moment at which `enough` wait: four batches, or two collections, or two calls of the encoder.
    """

    __slots__ = ("_enough", "_later", "server")

    def __init__(self, server: BatchServer, batching: Batching) -> None:
        self.server = server
        self._enough = max(4 * batching.size, 2 * (batching.collected or 0), 2 * (batching.encoded_together or 0))
        self._later: BatchServer | None = None
        """The server as it will be; told of all who have come to it."""

    def arrived(self, entry: BatchEntry) -> None:
        """A request has entered."""
        if self._later is not None:
            self._later.arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)

    def later(self) -> BatchServer | None:
        """The server at the moment at which enough wait; None where no more do now."""
        if self.server.queued <= self._enough:
            self._later = None
            return None
        if self._later is None:
            self._later = self.server.copy()
            self._later.foretells = True
        while self._later.queued > self._enough:
            self._later.act()
        return self._later


class _TrialServer:
    """A server that was looked at for one request's sake: those that are to come there wait to be told to it."""

    __slots__ = ("_come", "_later", "_server", "_tokens")

    def __init__(self, foreseen: ForeseenServer) -> None:
        self._later = foreseen.later()
        self._server = foreseen.server if self._later is not None else foreseen.server.copy()
        self._come: list[BatchEntry] = []
        self._tokens = 0

    def advance(self, now_s: float) -> None:
        """Up to a moment; what happens at that moment has not happened yet."""
        if self._later is None:
            while self._server.next_s < now_s:
                self._server.act()

    def work_left(self, now_s: float) -> int:
        """At a moment; where many wait, at present, with those who have come since."""
        return self._server.work_left(min(now_s, self._server.next_s)) + self._tokens

    def arrive(self, entry: BatchEntry) -> None:
        """A request would enter."""
        if self._later is None:
            self._server.arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)
        else:
            self._come.append(entry)
            self._tokens += entry.tgt_len

    def finish_s(self, last: BatchEntry) -> float:
        """Return when `last`, the last request to enter, would finish."""
        server = self._server
        if self._later is not None:
            server = self._later.copy()
            for earlier in self._come:
                server.arrive(earlier.request, earlier.src_len, earlier.tgt_len, earlier.entry_s)
        server.foretells = True
        now_s = last.entry_s
        while True:
            if server.next_s == inf:
                server.close(now_s)
            now_s = server.next_s
            for sentence in server.act():
                if sentence.request == last.request:
                    return sentence.finish_s


class ForeseenServers(Sequence[_TrialServer]):
    """Servers as they will be, of which only those are copied that are looked at."""

    __slots__ = ("_servers", "_visited", "now_s")

    def __init__(self, servers: Sequence[ForeseenServer]) -> None:
        self._servers, self._visited = servers, dict[int, _TrialServer]()
        self.now_s = 0.0

    def __len__(self) -> int:
        return len(self._servers)

    def __getitem__(self, number: int) -> _TrialServer:  # type: ignore[override]
        """As it will be at `now_s`."""
        visited = self._visited.get(number)
        if visited is None:
            visited = self._visited[number] = _TrialServer(self._servers[number])
        visited.advance(self.now_s)
        return visited


@dataclass(frozen=True, slots=True)
class BatchServerSpec:
    """How the servers of a tier batch, and what their work takes."""

    batching: Batching
    cost: ServerCost


class BatchPool:
    """The servers of one tier, idle at first. Entries come in order of time; between them the servers are to be let act."""

    __slots__ = ("_balancer", "_foreseen", "servers")

    def __init__(self, batched: BatchServerSpec, servers: int = 1, balancer: Balancer | None = None) -> None:
        """`balancer`: None: as the nodes are attached."""
        times = StepTimes(batched.cost)
        self.servers: Sequence[BatchServer] = [BatchServer(batched.batching, batched.cost, times) for _ in range(servers)]
        self._foreseen = [ForeseenServer(server, batched.batching) for server in self.servers]
        self._balancer = ByNode() if balancer is None else balancer

    def enter(self, entry: BatchEntry) -> int:
        """Let a request enter; returns the number of its server, whose `next_s` may have changed."""
        chosen = self._balancer.chosen(self.servers, entry)
        self.servers[chosen].arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)
        self._foreseen[chosen].arrived(entry)
        return chosen

    def finish_s(self, entry: BatchEntry, ahead: Iterable[BatchEntry]) -> float:
        """Return when `entry` would finish if it entered after the requests in `ahead`. Has no side effects.

        A batch that waits for company waits until it is due, or full with those who are known to come; one that would wait
        for ever does not. Where more wait than `ForeseenServer` says, a balancer that compares servers is taken to compare
        what they have to do at present, and not at the moment of entry.
        """
        servers = ForeseenServers(self._foreseen)
        balancer = self._balancer.copy()
        for arriving in (*ahead, entry):
            servers.now_s = arriving.entry_s
            chosen = balancer.chosen(servers, arriving)
            servers[chosen].arrive(arriving)
        return servers[chosen].finish_s(entry)

    def account(self) -> BatchAccount:
        """Of all servers together."""
        first, *others = (server.account.finished() for server in self.servers)
        return first.merged(others)


OnCompletion = Callable[[Any, Sentence, int, int], None]
"""`done(carried, sentence, active, waiting)`: a request is done; so many are then left in its batch, and wait there."""


class _ServerEvent(Event):
    """A server is to act at a moment; if that is no longer when it is to, nothing happens."""

    __slots__ = ("at_s", "server")

    at_s: float
    server: int


class BatchTier:
    """Lets the servers of a pool act in time, and tells when a request is done."""

    __slots__ = ("_armed", "_callbacks", "_carried", "_clock", "_done", "_first", "pool")

    def __init__(self, clock: Clock, pool: BatchPool, first: int, done: OnCompletion) -> None:
        """`first`: the number of the first server among all that are on the clock."""
        self.pool = pool
        self._clock = clock
        self._first = first
        self._done = done
        self._armed: list[set[float]] = [set() for _ in pool.servers]
        """Per server, the moments at which it is on the clock."""
        self._carried: dict[int, Any] = {}
        """By request, what is handed back when it is done."""
        self._callbacks = (self._acts,)

    def enter(self, entry: BatchEntry, carried: Any) -> int:
        """A request reaches the tier; returns the number of its server."""
        self._carried[entry.request] = carried
        number = self.pool.enter(entry)
        self._arm(number)
        return number

    def close(self) -> bool:
        """Nothing is left to happen, so nobody comes: who waits for company is let go; whether there was anyone."""
        waits = False
        for number, server in enumerate(self.pool.servers):
            if server.holds:
                waits = True
                server.close(self._clock.now_s)
                self._arm(number)
        return waits

    def account(self) -> BatchAccount:
        """Of all servers together."""
        return self.pool.account()

    def _arm(self, number: int) -> None:
        at_s, armed = self.pool.servers[number].next_s, self._armed[number]
        if at_s not in armed and at_s < _NEVER_S:
            armed.add(at_s)
            event = _ServerEvent()
            event.at_s, event.server = at_s, number
            event.callbacks = self._callbacks
            heappush(self._clock.heap, (at_s, SERVER_ACTS, self._first + number, event))

    def _acts(self, event: Any) -> None:
        number, now_s = event.server, event.at_s
        self._armed[number].discard(now_s)
        server = self.pool.servers[number]
        if server.next_s != now_s:
            return
        carried, done, passes = self._carried, self._done, self._clock.passes
        while True:
            for sentence in server.act():
                done(carried.pop(sentence.request), sentence, *server.left)
            now_s = server.next_s
            if not (now_s < _NEVER_S and passes(now_s)):
                break
        self._arm(number)


_NEVER_S = float("inf")


Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of the sentences; columns in the order in which they were given, shape (sentences,), seconds."""

    finish_s: Column
    """When each was done."""
    first_token_s: Column
    """From its arrival to the end of its first step; NaN without one."""
    begin_s: Column
    """When its encoding began."""
    account: BatchAccount
    total_s: float
    """When the last was done; 0 without a sentence."""


def decode_all(
    batching: Batching, cost: ServerCost, src_len: ArrayLike, tgt_len: ArrayLike, arrival_s: ArrayLike | None = None
) -> Decoded:
    """Let one server decode sentences, which are all at hand at 0, or arrive at `arrival_s`, in order of time.

    The server knows when no more will come. Lengths in tokens; `tgt_len`: the steps that each takes, 0 or more. Raises
    `ValueError` for columns of different lengths and for arrivals out of order.
    """
    sources, targets = np.asarray(src_len, np.int64).tolist(), np.asarray(tgt_len, np.int64).tolist()
    arrivals = np.zeros(len(sources)) if arrival_s is None else np.asarray(arrival_s, np.float64)
    if not len(sources) == len(targets) == len(arrivals):
        raise ValueError(f"{len(sources)} sources, {len(targets)} targets, {len(arrivals)} arrivals")
    if (np.diff(arrivals) < 0.0).any():
        raise ValueError("arrivals out of order")
    server = BatchServer(batching, cost, foretells=True)
    begin_s, finish_s, first_s = (np.full(len(sources), np.nan).tolist() for _ in range(3))

    def act() -> None:
        for sentence in server.act():
            request = sentence.request
            begin_s[request], finish_s[request], first_s[request] = sentence.begin_s, sentence.finish_s, sentence.first_s

    arrive = server.arrive
    for request, now_s in enumerate(arrivals.tolist()):
        while server.next_s < now_s:
            act()
        arrive(request, sources[request], targets[request], now_s)
    if sources:
        server.close(float(arrivals[-1]))
    while server.holds:
        act()
    return Decoded(
        np.asarray(finish_s, np.float64),
        np.asarray(first_s, np.float64) - arrivals,
        np.asarray(begin_s, np.float64),
        server.account.finished(),
        max(finish_s, default=0.0),
    )
