"""What waits, by class: first in, first out within a class; `world/compiled/classes.h` has the same order in C."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Generic, TypeVar

Item = TypeVar("Item")
ONE_CLASS = (inf,)
"""The longest waits of a single class: first in, first out."""


class ClassQueue(Generic[Item]):
    """A queue of several classes, each of which is served before those that follow it.

    An item that has waited for the longest wait of its class goes before all others that have not; of several such items the
    one that has waited longest is first. Of items that came at one moment, that of the first class is first.
    """

    __slots__ = ("_max_wait_s", "_queues")

    def __init__(self, max_wait_s: Sequence[float] = ONE_CLASS) -> None:
        """`max_wait_s`: by class, the first served first; infinity for a class that may wait for ever."""
        self._max_wait_s = max_wait_s
        self._queues: list[deque[tuple[float, Item]]] = [deque() for _ in max_wait_s]
        """By class, since when each item waits, and the item."""

    def __len__(self) -> int:
        return len(self._queues[0]) if len(self._queues) == 1 else sum(map(len, self._queues))

    def __iter__(self) -> Iterator[Item]:
        return (item for _, item in chain(*self._queues))

    def add(self, item: Item, now_s: float, rank: int = 0) -> None:
        """Let an item of a class wait from now on; `now_s` never falls."""
        self._queues[rank].append((now_s, item))

    def first(self, now_s: float) -> Item:
        """Return the item that is served next."""
        return self._queues[self.first_class(now_s)][0][1]

    def take(self, now_s: float) -> Item:
        """Remove the item that is served next, and return it."""
        return self._queues[self.first_class(now_s)].popleft()[1]

    def first_class(self, now_s: float) -> int:
        """Return the class of the item that is served next."""
        if len(self._queues) == 1:
            return 0
        waiting = [rank for rank, queue in enumerate(self._queues) if queue]
        return min(waiting, key=lambda rank: self._turn(self._queues[rank][0][0], rank, now_s))

    def turn(self, now_s: float) -> tuple[float, ...]:
        """Return the turn of the item that is served next: the lower, the sooner."""
        rank = self.first_class(now_s)
        return self._turn(self._queues[rank][0][0], rank, now_s)

    def _turn(self, since_s: float, rank: int, now_s: float) -> tuple[float, ...]:
        return (0, since_s, rank) if now_s >= since_s + self._max_wait_s[rank] else (1, rank, since_s)

    def before(self, now_s: float, rank: int | None = None) -> list[Item]:
        """Return the items that would be served before one of a class that came now, in their order; None: all items."""
        turns = [
            (self._turn(since_s, of_class, now_s), item)
            for of_class, queue in enumerate(self._queues)
            for since_s, item in queue
        ]
        last = (1, len(self._queues) if rank is None else rank, inf)
        return [item for turn, item in sorted(turns, key=itemgetter(0)) if turn <= last]

    @property
    def oldest_s(self) -> float:
        """Since when the item waits that has waited longest; infinity if none waits."""
        return min((queue[0][0] for queue in self._queues if queue), default=inf)

    def remove(self, item: Item) -> None:
        """Remove an item, wherever it stands."""
        for queue in self._queues:
            for place, (_, waiting) in enumerate(queue):
                if waiting is item:
                    del queue[place]
                    return
