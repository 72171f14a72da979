"""A tier of batched servers on the clock."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

from simnmt.results.batches import BatchAccount
from simnmt.world.batch_balancers import BatchEntry
from simnmt.world.batch_pools import BatchPool
from simnmt.world.batch_server import Sentence
from simnmt.world.clock import SERVER_ACTS, Clock, Event

Done = Callable[[Any, Sentence, int, int], None]
"""`done(carried, sentence, active, waiting)`: a request is done; so many are then left in its batch, and wait there."""


class _Acts(Event):
    """A server is to act at a moment; if that is no longer when it is to, nothing happens."""

    __slots__ = ("at_s", "server")

    at_s: float
    server: int


class BatchTier:
    """Lets the servers of a pool act in time, and tells when a request is done."""

    __slots__ = ("_armed", "_callbacks", "_carried", "_clock", "_done", "_first", "pool")

    def __init__(self, clock: Clock, pool: BatchPool, first: int, done: Done) -> None:
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
            event = _Acts()
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
