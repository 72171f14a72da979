"""Servers whose boxes are down at times: first in, first out, or batching.

When each box is down is known to the world, not to policies. A first-in first-out box therefore still knows on entry when a
request starts, and when it ends or is dropped, so that no queue is kept. A box that batches is replaced by an empty one when it
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from heapq import heappush, heapreplace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.down_times import DownTimes
from simnmt.world.batch_pool import BatchPool, BatchServerSpec, ForeseenServer
from simnmt.world.batch_server import BatchServer
from simnmt.world.clock import BOX_FAILS, Event
from simnmt.world.fifo_server import FifoPool
from simnmt.world.server import Arrival, BalancedBox, Balancer, ByNode, RequestEvent, Row, Serve, Site

MOST_RESTARTS = 10_000
"""Times that a request starts over before it is dropped: one longer than every up time would never end."""


class AvailableBoxes:
    """A balancer that passes over boxes that are down, except for the box of an end node."""

    __slots__ = ("_balancer", "_down")

    def __init__(self, balancer: Balancer, down: Sequence[DownTimes]) -> None:
        self._balancer, self._down = balancer, down

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the number of the box; the balancer's own if all are down."""
        first = self._balancer.choose(boxes, now_s, request, node)
        if type(self._balancer) is ByNode:
            return first
        in_turn = ((first + step) % len(boxes) for step in range(len(boxes)))
        return next((box for box in in_turn if not self._down[box].is_down(now_s)), first)

    def copy(self) -> AvailableBoxes:
        """Return a balancer in the same state, to foresee choices."""
        return AvailableBoxes(self._balancer.copy(), self._down)


class FailingBox:
    """One first-in first-out box of some workers that is down at times."""

    __slots__ = (
        "_drops",
        "_entry_s",
        "_free_at_s",
        "_resumes",
        "_since_s",
        "_unused",
        "down",
        "wasted_s",
        "workers",
    )

    def __init__(self, down: DownTimes, workers: int, fate: str) -> None:
        self.down, self.workers = down, workers
        self._drops, self._resumes = fate == "lost", fate == "resumed"
        self._idle_since(0.0)
        self._entry_s = 0.0
        """When a request entered last."""
        self.wasted_s = 0.0
        """Seconds of executions that started over."""

    def _idle_since(self, since_s: float) -> None:
        # As in `FifoServer`: the workers that have worked, and one that has not if there is one.
        self._since_s, self._free_at_s, self._unused = since_s, [since_s], self.workers - 1

    def start_s(self, entry_s: float) -> float:
        """Return when a request that enters now starts, if the box does not fail before."""
        forgotten = self._drops and self.down.last_begin(entry_s) > self._entry_s
        start_s = entry_s if forgotten else max(self._free_at_s[0], entry_s)
        return self.down.up_from(start_s) if start_s == entry_s or not self._drops else start_s

    def work_left(self, now_s: float) -> float:
        """Return the seconds until a request could start."""
        return self.start_s(now_s) - now_s

    def execute(self, entry_s: float, service_s: float) -> tuple[float, float, bool]:
        """Let a request enter; return when it begins, when it ends, and whether it is done then or dropped.

        If it is interrupted and resumed, or starts over, the time before counts as waiting.
        """
        if self._drops and self.down.is_down(entry_s):
            return entry_s, entry_s, False
        if self._drops and self.down.last_begin(entry_s) > self._entry_s:
            self._idle_since(self.down.up_from(self.down.last_begin(entry_s)))
        self._entry_s = entry_s
        start_s = max(self._free_at_s[0], entry_s)
        if self._drops:
            begin_s, end_s = start_s, start_s + service_s
            failed_s = self.down.next_begin(entry_s)
            outcome = (begin_s, end_s, True) if end_s <= failed_s else (min(begin_s, failed_s), failed_s, False)
        else:
            begin_s, end_s, is_done = self._through_failures(start_s, service_s)
            outcome = begin_s, end_s, is_done
        heapreplace(self._free_at_s, end_s)
        if self._unused and self._free_at_s[0] > self._since_s:
            heappush(self._free_at_s, self._since_s)
            self._unused -= 1
        return outcome

    def _through_failures(self, start_s: float, service_s: float) -> tuple[float, float, bool]:
        """Return when a request that is kept through failures begins and ends, and whether it ends."""
        down, left_s = self.down, service_s
        for _ in range(MOST_RESTARTS):
            start_s = down.up_from(start_s)
            failed_s = down.next_begin(start_s)
            if start_s + left_s <= failed_s:
                end_s = start_s + left_s
                return end_s - service_s, end_s, True
            if self._resumes:
                left_s -= failed_s - start_s
            else:
                self.wasted_s += failed_s - start_s
            start_s = failed_s
        return start_s, start_s, False

    def copy(self) -> FailingBox:
        """Return a box in the same state, to foresee waits."""
        other = copy(self)
        other._free_at_s = self._free_at_s.copy()
        return other


class FailingPool(FifoPool):
    """First-in first-out boxes of one target that are down at times."""

    def __init__(self, down: Sequence[DownTimes], workers: int, fate: str, balancer: Balancer) -> None:
        """Create idle boxes; `fate`: of the requests in a box that fails."""
        super().__init__(0, workers, balancer)
        self._failing = [FailingBox(box, workers, fate) for box in down]
        self.boxes = self._failing  # type: ignore[assignment]

    @property
    def wasted_s(self) -> NDArray[np.float64]:
        """Seconds of executions that started over, by box."""
        return np.array([box.wasted_s for box in self._failing])

    def open(self, site: Site) -> Serve:
        """Register the boxes in the world."""
        self._execution = execution = site.layout.execution(site.target)
        fail: Callable[..., None] = site.fail  # type: ignore[attr-defined]

        def reaches(event: Any) -> None:
            entry_s, request = event.entry_s, event.request
            box = self.balancer.choose(self._failing, entry_s, request, event.row[1])
            begin_s, end_s, is_done = self._failing[box].execute(entry_s, event.row[execution])
            if not is_done:
                fail(event, begin_s, end_s, box)
                return
            # Ordered by entry: a request that was interrupted may begin after the next one on another worker.
            site.answer(event, begin_s, end_s, box, entry_s)

        return reaches

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return the wait of `arrival` if it entered after the requests in `ahead` and no box failed. Has no side effects."""
        boxes, balancer = [box.copy() for box in self._failing], self.balancer.copy()
        start_s = arrival[0]
        for entry_s, request, row in (*ahead, arrival):
            box = boxes[balancer.choose(boxes, entry_s, request, row[1])]
            start_s = box.start_s(entry_s)
            box.execute(entry_s, row[self._execution])
        return start_s - arrival[0]


class _BoxEvent(Event):
    """A failure of a box that batches, or its repair."""

    __slots__ = ("at_s", "box")

    at_s: float
    box: int


class FailingBatchPool(BatchPool):
    """The batching servers of one target, which are down at times.

    A failure is on the clock only while its box holds sentences: an empty box loses nothing.
    """

    def __init__(self, batched: BatchServerSpec, down: Sequence[DownTimes], fate: str, balancer: Balancer) -> None:
        """Create idle servers; `fate`: of the requests in a box that fails, which are not resumed."""
        super().__init__(batched, len(down), balancer)
        self._down, self._requeues = down, fate == "requeued"
        self._servers: list[BatchServer] = list(self.boxes)
        self.boxes = self._servers
        self._due = [inf] * len(down)
        """By box, the next failure that is on the clock."""
        self._queued: list[list[RequestEvent]] = [[] for _ in down]
        """By box, the requests that wait for its repair."""
        self._fails, self._repaired = (self._box_fails,), (self._box_is_repaired,)

    def _reaches(self, event: Any) -> None:
        now_s = event.entry_s
        box = self.balancer.choose(self.boxes, now_s, event.request, event.row[1])
        if not self._down[box].is_down(now_s):
            self._enter(event, box, now_s)
        elif self._requeues:
            self._queue(box, [event], now_s)
        else:
            self._site.fail(event, now_s, now_s, box)  # type: ignore[attr-defined]

    def _enter(self, event: RequestEvent, box: int, now_s: float) -> None:
        self._events[event.request] = event
        sentence = self._arriving(event.request, event.row, now_s)
        self._servers[box].arrive(*sentence)
        self._foreseen[box].arrived(sentence)
        self._arm(box)
        failed_s = self._down[box].next_begin(now_s)
        if failed_s < inf and failed_s != self._due[box]:
            self._due[box] = failed_s
            self._put(failed_s, box, self._fails)

    def _queue(self, box: int, events: list[RequestEvent], now_s: float) -> None:
        if events and not self._queued[box]:
            self._put(self._down[box].up_from(now_s), box, self._repaired)
        self._queued[box] += events

    def _put(self, at_s: float, box: int, callbacks: tuple[Callable[[Any], None]]) -> None:
        event = _BoxEvent()
        event.at_s, event.box, event.callbacks = at_s, box, callbacks
        is_repair = callbacks is self._repaired
        heappush(self._site.clock.heap, (at_s, BOX_FAILS, 2 * (self._site.first_box + box) + is_repair, event))

    def _box_fails(self, failure: _BoxEvent) -> None:
        """Drop or queue the sentences of a box, and put an empty one in its place."""
        box, now_s = failure.box, failure.at_s
        self._due[box] = inf
        server, batched = self._servers[box], self.batched
        dropped = [(self._events.pop(request), begin_s) for request, begin_s in server.unfinished(now_s)]
        self._servers[box] = server.replaced(batched.batching)
        self._foreseen[box] = ForeseenServer(self._servers[box], batched.batching)
        if self._requeues:
            self._queue(box, [event for event, _ in dropped], now_s)
            return
        for event, begin_s in dropped:
            self._site.fail(event, begin_s, now_s, box)  # type: ignore[attr-defined]

    def _box_is_repaired(self, repair: _BoxEvent) -> None:
        queued, self._queued[repair.box] = self._queued[repair.box], []
        for event in queued:
            self._enter(event, repair.box, repair.at_s)

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return what `arrival` would take beyond execution alone, without failures to come. Has no side effects."""
        entry_s, request, row = arrival
        box = self.balancer.copy().choose(self.boxes, entry_s, request, row[1])
        up_s = self._down[box].up_from(entry_s)
        later: Row = row
        return up_s - entry_s + super().wait_s((up_s, request, later), [come for come in ahead if come[0] <= up_s])
