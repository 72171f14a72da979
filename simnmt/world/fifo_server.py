"""First-in first-out servers: one box, and the boxes of a target behind their balancer.

Service times are known on entry, so no queue is kept: a box stores when each of its workers comes free.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from heapq import heappush, heapreplace
from typing import Any

from typing_extensions import Self

from simnmt.world.server import Arrival, Balancer, ByNode, CopiedOnUse, Serve, Server, Site


class FifoServer:
    """`workers` parallel workers behind one queue, computed analytically.

    Entries must be in order of time. The heap holds the workers that have worked, and one that has not if there is one: of
    10,000 workers most may never work. Measured: SimPy's `Resource` costs 2.8 us a use and grows with the backlog; this costs
    0.2 us and does not.
    """

    __slots__ = ("_unused", "free_at_s")

    def __init__(self, workers: int) -> None:
        self.free_at_s = [0.0]
        """When each worker comes free, as a heap."""
        self._unused = workers - 1
        """Workers that have never worked, without the one in the heap."""

    def serve(self, entry_s: float, service_s: float) -> float:
        """Return when a request that enters now starts: at once, or when the first worker comes free.

        It completes `service_s` later.
        """
        free_at_s = self.free_at_s
        start_s = free_at_s[0]
        if start_s < entry_s:
            start_s = entry_s
        heapreplace(free_at_s, start_s + service_s)
        if self._unused and free_at_s[0] > 0.0:
            heappush(free_at_s, 0.0)
            self._unused -= 1
        return start_s

    def work_left(self, now_s: float) -> float:
        """Return the seconds until a worker comes free."""
        free_s = self.free_at_s[0]
        return free_s - now_s if free_s > now_s else 0.0

    def copy(self) -> FifoServer:
        """Return a server in the same state, to foresee waits."""
        other = FifoServer(self._unused + 1)
        other.free_at_s = self.free_at_s.copy()
        return other


class FifoPool(Server):
    """First-in first-out boxes of one target, of `workers` each. The start is known on entry, so no queue is kept."""

    def __init__(self, boxes: int = 1, workers: int = 1, balancer: Balancer | None = None) -> None:
        """Create idle boxes; without a `balancer` each end node has its box."""
        self.boxes: Sequence[FifoServer] = [FifoServer(workers) for _ in range(boxes)]
        self.workers = workers
        self.balancer = ByNode() if balancer is None else balancer

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """Let a request enter; return when it starts to execute, and the number of its box."""
        box = self.balancer.choose(self.boxes, entry_s, request, node)
        return self.boxes[box].serve(entry_s, service_s), box

    def copy(self) -> Self:
        """Return a pool in the same state, to foresee waits."""
        other = copy(self)
        other.boxes, other.balancer = CopiedOnUse(self.boxes), self.balancer.copy()
        return other

    def open(self, site: Site) -> Serve:
        """Register the boxes in the world. The answer's time is known on entry, and a single box or a balancer is called
        directly."""
        if not site.knows_downlinks:
            return self._open_on_messages(site)
        self._execution, downlink, target = site.layout.execution(site.target), site.layout.downlink(site.target), site.target
        execution, queue_s, servers, answered = self._execution, site.trail["queue_s"], site.trail["server"], site.answered
        boxes, choose, enter = self.boxes, self.balancer.choose, None if self.boxes else self.enter
        only = boxes[0].serve if len(boxes) == 1 else None

        def reaches(event: Any) -> None:
            row, request = event.row, event.request
            entry_s, service_s = event.entry_s, row[execution]
            box = 0
            if only is not None:
                start_s = only(entry_s, service_s)
            elif enter is not None:
                start_s, box = enter(entry_s, service_s, request, row[1])
            else:
                box = choose(boxes, entry_s, request, row[1])
                start_s = boxes[box].serve(entry_s, service_s)
            finish_s = start_s + service_s
            if start_s > entry_s:
                queue_s[request] = start_s - entry_s
            if box:
                servers[request] = box
            received_s = finish_s + row[downlink]
            transfer_s = (received_s - event.sent_s) - (finish_s - entry_s)
            event.decider.answers.add((received_s, request, target, transfer_s, event.sent_as, start_s), box)
            if answered is not None:
                answered(request, received_s)

        return reaches

    def _open_on_messages(self, site: Site) -> Serve:
        """Register the boxes in a world in which answers are messages."""
        self._execution = execution = site.layout.execution(site.target)

        def reaches(event: Any) -> None:
            service_s = event.row[execution]
            start_s, box = self.enter(event.entry_s, service_s, event.request, event.row[1])
            site.answer(event, start_s, start_s + service_s, box, start_s)

        return reaches

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return the wait of `arrival` if it entered after the requests in `ahead`. Has no side effects."""
        trial = self.copy()
        for entry_s, request, row in (*ahead, arrival):
            start_s, _ = trial.enter(entry_s, row[self._execution], request, row[1])
        return start_s - arrival[0]


class LeastWork(FifoPool):
    """A pool that takes the box on which the request starts soonest; among idle ones, the one that has been idle longest.

    With one worker a box that is the one with the least work left, and the tier behaves as one queue before all workers. One
    heap of (time at which a worker comes free, its box) serves any number of boxes in logarithmic time.
    """

    def __init__(self, boxes: int = 1, workers: int = 1) -> None:
        super().__init__(0, workers)
        self.count = boxes
        self._free_at_s = [(0.0, box) for box in range(boxes)]
        self._unused = [workers - 1] * boxes if workers > 1 else []
        """By box, workers that have never worked beside the one in the heap; empty if there are none."""

    def enter(self, entry_s: float, service_s: float, request: int, node: int) -> tuple[float, int]:
        """Enter at the first worker to come free, of all boxes."""
        free_s, box = self._free_at_s[0]
        start_s = free_s if free_s > entry_s else entry_s
        heapreplace(self._free_at_s, (start_s + service_s, box))
        if self._unused and free_s == 0.0 and self._unused[box]:
            heappush(self._free_at_s, (0.0, box))
            self._unused[box] -= 1
        return start_s, box

    def copy(self) -> Self:
        """Return a pool in the same state, to foresee waits."""
        other = copy(self)
        other._free_at_s, other._unused = self._free_at_s.copy(), self._unused.copy()
        return other
