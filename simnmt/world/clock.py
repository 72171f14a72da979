"""SimPy's clock, driven by slotted events instead of processes.

SimPy keeps its heap in `Environment._queue` as (time, priority, sequence, event) and on each step sets `event.callbacks` to
None, calls each callback, then looks at `event._ok`. simnmt puts entries there itself, with the kind of event as the priority
and the request id as the sequence, so that events order by (time, kind, request id) and insertion order decides nothing.
`tests/world/test_clock.py` is the canary for this; pyproject.toml pins SimPy's minor version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush
from typing import Any

import simpy

REACHES_SERVER, ARRIVAL, ASKS, SERVER_ACTS, LINE_ACTS, MESSAGE_MOVES, CONNECTION_BREAKS, TIMER, BOX_FAILS = range(9)
"""Kinds of event, in the order in which those of one moment happen. Each kind numbers its own events.

A server that batches acts after all requests of that moment have arrived, over a link or not. The kinds after that exist only
where messages cross shared lines or meet faults.
"""


class Event:
    """The attributes of an event that SimPy's `step` needs; derived classes add data. An event may be put on the clock again.

    It has no constructor, whose call would cost as much as all the rest: the code that creates one sets its `callbacks`.
    """

    __slots__ = ("callbacks",)

    _ok = True
    callbacks: tuple[Callable[[Any], None], ...] | None


class Clock:
    """Runs events in the order of (time, kind, request id)."""

    __slots__ = ("_environment", "heap")

    def __init__(self) -> None:
        self._environment = simpy.Environment()
        self.heap: list[Any] = self._environment._queue
        """Entries (time in seconds, kind, request id, event)."""

    def follow(self, moments: Iterator[float], kind: int, request: int = -1) -> None:
        """Run a generator as a process: it yields the time of its next event, seconds, and continues at that time.

        One re-armed event serves the whole process (0.18 us a time; a SimPy process with a timeout each costs 1.75). A moment
        before everything on the clock needs no event, since nothing could happen in between.
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
        """Advance to a moment if nothing is on the clock up to then, and return whether it was so; not from within a
        process."""
        heap = self.heap
        if heap and heap[0][0] <= at_s:
            return False
        self._environment._now = at_s
        return True

    @property
    def now_s(self) -> float:
        """Time of the last event."""
        return float(self._environment.now)

    def run(self) -> float:
        """Run until no event is left; return the time of the last one, seconds."""
        self._environment.run()
        return float(self._environment.now)
