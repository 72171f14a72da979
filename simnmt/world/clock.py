"""SimPy's clock, driven by slotted events instead of processes.

SimPy keeps its heap in `Environment._queue` as (time, priority, sequence, event) and on each step sets `event.callbacks` to
None, calls each callback, then looks at `event._ok`. simnmt puts entries there itself: the kind of event stands in the
priority's place and the request id in the sequence's, so that events order by (time, kind, request id) and insertion order
decides nothing. `tests/world/test_clock.py` is the canary for what this relies on; pyproject.toml pins SimPy's minor version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush
from typing import Any

import simpy

REACHES_SERVER, ARRIVAL, ASKS, SERVER_ACTS = range(4)
"""Kinds of event, in the order in which those of one moment happen. Each kind has numbers of its own.

A server that batches acts when all who come to it in that moment are there, whether over a link or none.
"""


class Event:
    """What SimPy's `step` needs of an event; derived classes add what happens then. May be put on the clock again.

    It has no constructor, whose call would cost as much as all the rest: whoever makes one sets its `callbacks`.
    """

    __slots__ = ("callbacks",)

    _ok = True
    callbacks: tuple[Callable[[Any], None], ...] | None


class Clock:
    """Lets events happen in the order of (time, kind, request id)."""

    __slots__ = ("_environment", "heap")

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self.heap: list[Any] = self._environment._queue
        """Entries (time in seconds, kind, request id, event)."""

    def follow(self, moments: Iterator[float], kind: int, request: int = -1) -> None:
        """Run a generator as a process: it yields the time of its next event, seconds, and goes on when that has come.

        One re-armed event serves it all its life (0.18 us a time; a SimPy process with a timeout each costs 1.75), and a
        moment before all that is on the clock needs none: nothing could happen in between.
        """
        heap, environment = self.heap, self._environment
        event = Event()

        def proceed(_: Event | None) -> None:
            for at_s in moments:
                if not heap or at_s < heap[0][0]:
                    environment._now = at_s
                else:
                    event.callbacks = callbacks
                    heappush(heap, (at_s, kind, request, event))
                    return

        callbacks = (proceed,)
        begin_s = next(moments, None)
        if begin_s is not None:
            event.callbacks = callbacks
            heappush(heap, (begin_s, kind, request, event))

    def passes(self, at_s: float) -> bool:
        """Let time pass to a moment, if that is before all that is on the clock; not from within a process's own turn."""
        heap = self.heap
        if heap and heap[0][0] <= at_s:
            return False
        self._environment._now = at_s
        return True

    @property
    def now_s(self) -> float:
        """When the last event was."""
        return float(self._environment.now)

    def run(self) -> float:
        """Run until nothing is left to happen; returns the time of the last event, seconds."""
        self._environment.run()
        return float(self._environment.now)
