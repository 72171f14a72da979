"""The batched servers of one tier, and which of them a request enters.

As in `pools.py` a balancer decides at the moment of entry, and those that compare servers know how much each has left to do:
here the steps that all its sentences still take, one by one, those under way and those that wait.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import Batching
from simnmt.results.batches import BatchAccount
from simnmt.world.batch_server import BatchServer
from simnmt.world.server_cost import ServerCost, StepTimes


@dataclass(frozen=True, slots=True)
class Batched:
    """How the servers of a tier batch, and what their work takes."""

    batching: Batching
    cost: ServerCost


class BatchEntry(NamedTuple):
    """A request that reaches a batched tier."""

    entry_s: float
    request: int
    src_len: int
    tgt_len: int
    node: int


class Balancer(Protocol):
    """Which of some servers a request enters."""

    def chosen(self, servers: Sequence[BatchServer], entry: BatchEntry) -> int:
        """Its number; entries come in order of time."""
        ...

    def copy(self) -> Balancer:
        """A balancer in the same state, for asking what would happen."""
        ...


class ByNode:
    """Each end node has its server: number node modulo servers."""

    __slots__ = ()

    def chosen(self, servers: Sequence[BatchServer], entry: BatchEntry) -> int:
        """The node's, however much it has to do."""
        return entry.node % len(servers)

    def copy(self) -> ByNode:
        """There is no state."""
        return self


class InTurn:
    """One server after another, whatever they have to do."""

    __slots__ = ("_next",)

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def chosen(self, servers: Sequence[BatchServer], entry: BatchEntry) -> int:
        """The one whose turn it is."""
        server = self._next
        self._next = (server + 1) % len(servers)
        return server

    def copy(self) -> InTurn:
        """The same turn."""
        return InTurn(self._next)


class FewestTokens:
    """The server that has least left to do; of equal ones the first."""

    __slots__ = ()

    def chosen(self, servers: Sequence[BatchServer], entry: BatchEntry) -> int:
        """Looks at all of them."""
        left = [server.tokens_left(entry.entry_s) for server in servers]
        return left.index(min(left))

    def copy(self) -> FewestTokens:
        """There is no state."""
        return self


class OfDrawn:
    """Of some servers drawn at random for each request the one that has least left to do, or the one if only one is drawn.

    `choices`: shape (requests, drawn), server numbers. They are given, not drawn here, so that every policy meets the same.
    """

    __slots__ = ("_first", "_others")

    def __init__(self, choices: NDArray[np.integer]) -> None:
        self._first, *self._others = (array("h", column.astype(np.int16).tobytes()) for column in choices.T)

    def chosen(self, servers: Sequence[BatchServer], entry: BatchEntry) -> int:
        """The one drawn first if it does not matter."""
        best = int(self._first[entry.request])
        if not self._others:
            return best
        least = servers[best].tokens_left(entry.entry_s)
        for column in self._others:
            other = int(column[entry.request])
            left = servers[other].tokens_left(entry.entry_s)
            if left < least:
                best, least = other, left
        return best

    def copy(self) -> OfDrawn:
        """The choices do not change."""
        return self


class BatchPool:
    """The servers of one tier, idle at first. Entries come in order of time; between them the servers are to be let act."""

    __slots__ = ("_balancer", "servers")

    def __init__(self, batched: Batched, servers: int = 1, balancer: Balancer | None = None) -> None:
        """`balancer`: None: as the nodes are attached."""
        times = StepTimes(batched.cost)
        self.servers: Sequence[BatchServer] = [BatchServer(batched.batching, batched.cost, times) for _ in range(servers)]
        self._balancer = ByNode() if balancer is None else balancer

    def enter(self, entry: BatchEntry) -> int:
        """Let a request enter; returns the number of its server, whose `next_s` may have changed."""
        chosen = self._balancer.chosen(self.servers, entry)
        self.servers[chosen].arrive(entry.request, entry.src_len, entry.tgt_len, entry.entry_s)
        return chosen

    def finish_s(self, entry: BatchEntry, ahead: Iterable[BatchEntry]) -> float:
        """When a request would be done that enters after those `ahead` of it, in their order, as the last; nothing changes.

        A batch that would wait for company for ever does not: it is known that nobody comes.
        """
        servers = _Foreseen(self.servers)
        balancer = self._balancer.copy()
        for each in (*ahead, entry):
            servers.now_s = each.entry_s
            chosen = balancer.chosen(servers, each)
            servers[chosen].arrive(each.request, each.src_len, each.tgt_len, each.entry_s)
        server, now_s = servers[chosen], entry.entry_s
        server.foretells = True
        while True:
            if server.next_s == inf:
                server.close(now_s)
            now_s = server.next_s
            for sentence in server.act():
                if sentence.request == entry.request:
                    return sentence.finish_s

    def account(self) -> BatchAccount:
        """Of all servers together."""
        first, *others = (server.account.finished() for server in self.servers)
        return first.merged(others)


class _Foreseen(Sequence[BatchServer]):
    """Servers as they will be, of which only those are copied that are looked at."""

    __slots__ = ("_copies", "_originals", "now_s")

    def __init__(self, originals: Sequence[BatchServer]) -> None:
        self._originals, self._copies = originals, dict[int, BatchServer]()
        self.now_s = 0.0

    def __len__(self) -> int:
        return len(self._originals)

    def __getitem__(self, number: int) -> BatchServer:  # type: ignore[override]
        """As it will be at `now_s`, when what happens there at that moment has not happened yet."""
        server = self._copies.get(number)
        if server is None:
            server = self._copies[number] = self._originals[number].copy()
        while server.next_s < self.now_s:
            server.act()
        return server
