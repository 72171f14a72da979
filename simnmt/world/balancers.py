"""Balancers of batched and streaming servers: which server of a tier a request enters.

A balancer decides at the moment of entry. Balancers that compare servers know how much work each server has left: the
remaining steps of all its sentences, active or waiting, or the seconds until the processor comes free. FIFO pools choose
and serve in one call (`fifo_server.py`), because the call is most of their cost; here it is a small part.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class BatchEntry(NamedTuple):
    """A request that reaches a batched tier."""

    entry_s: float
    request: int
    src_len: int
    tgt_len: int
    node: int


class BalancedServer(Protocol):
    """A server, as far as a balancer looks at it."""

    def work_left(self, now_s: float) -> float:
        """At a moment: of one that batches the steps that its sentences still take, one by one; of one that streams its model
        the seconds until its processor comes free."""
        ...


class Balancer(Protocol):
    """Which of some servers a request enters."""

    def chosen(self, servers: Sequence[BalancedServer], entry: BatchEntry) -> int:
        """Its number; entries come in order of time."""
        ...

    def copy(self) -> Balancer:
        """A balancer in the same state, for asking what would happen."""
        ...


class ByNode:
    """Each end node has its server: number node modulo servers."""

    __slots__ = ()

    def chosen(self, servers: Sequence[BalancedServer], entry: BatchEntry) -> int:
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

    def chosen(self, servers: Sequence[BalancedServer], entry: BatchEntry) -> int:
        """The one whose turn it is."""
        server = self._next
        self._next = (server + 1) % len(servers)
        return server

    def copy(self) -> InTurn:
        """The same turn."""
        return InTurn(self._next)


class FewestTokens:
    """The server that has least left to do; of equal ones the first.

    So of idle ones too, where `LeastWork` takes the one that has been idle longest: the first servers do more at a low load.
    """

    __slots__ = ()

    def chosen(self, servers: Sequence[BalancedServer], entry: BatchEntry) -> int:
        """Looks at all of them."""
        left = [server.work_left(entry.entry_s) for server in servers]
        return left.index(min(left))

    def copy(self) -> FewestTokens:
        """There is no state."""
        return self


class LeastLoadedOfDrawn:
    """Of some servers drawn at random for each request the one that has least left to do, or the one if only one is drawn.

    `choices`: shape (requests, drawn), server numbers. They are given, not drawn here, so that every policy meets the same.
    """

    __slots__ = ("_first", "_others")

    def __init__(self, choices: NDArray[np.integer]) -> None:
        self._first, *self._others = (array("h", column.astype(np.int16).tobytes()) for column in choices.T)

    def chosen(self, servers: Sequence[BalancedServer], entry: BatchEntry) -> int:
        """The one drawn first if it does not matter."""
        best = int(self._first[entry.request])
        if not self._others:
            return best
        least = servers[best].work_left(entry.entry_s)
        for column in self._others:
            other = int(column[entry.request])
            left = servers[other].work_left(entry.entry_s)
            if left < least:
                best, least = other, left
        return best

    def copy(self) -> LeastLoadedOfDrawn:
        """The choices do not change."""
        return self
