"""First-in first-out boxes that wake up after idling: an execution after a gap begins later than one right after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from simnmt.world.fifo_server import FifoPool, FifoServer
from simnmt.world.server import Arrival, Balancer, Serve, Site

Waking = Callable[[float], float]
"""Returns the seconds that a box takes to wake up after that many seconds of idling."""


class WakingServer(FifoServer):
    """A first-in first-out box that wakes up before it executes."""

    __slots__ = ("_waking", "woke_s")

    def __init__(self, workers: int, waking: Waking) -> None:
        super().__init__(workers)
        self._waking = waking
        self.woke_s = 0.0
        """How long the box woke up for the request that entered last."""

    def serve(self, entry_s: float, service_s: float) -> float:
        """Return when a request that enters now starts: with waking up, if it was idle, and then with `service_s`."""
        idle_s = entry_s - self.free_at_s[0]
        self.woke_s = self._waking(idle_s) if idle_s > 0.0 else 0.0
        return super().serve(entry_s, service_s + self.woke_s)

    def copy(self) -> WakingServer:
        """Return a server in the same state, to foresee waits."""
        other = WakingServer(self._unused + 1, self._waking)
        other.free_at_s = self.free_at_s.copy()
        return other


class WakingPool(FifoPool):
    """First-in first-out boxes of one target that wake up, which counts as execution."""

    records = frozenset({"execution_s"})

    def __init__(self, waking: Waking, boxes: int = 1, workers: int = 1, balancer: Balancer | None = None) -> None:
        """Create idle boxes; without a `balancer` each end node has its box."""
        super().__init__(0, workers, balancer)
        self.boxes: Sequence[WakingServer] = [WakingServer(workers, waking) for _ in range(boxes)]

    def open(self, site: Site) -> Serve:
        """Register the boxes in the world; they may be the deciders' own."""
        self._execution = execution = site.layout.execution(site.target)
        execution_s = site.trail["execution_s"]

        def reaches(event: Any) -> None:
            request = event.request
            begin_s, box = self.enter(event.entry_s, event.row[execution], request, event.row[1])
            execution_s[request] = event.row[execution] + self.boxes[box].woke_s
            site.answer(event, begin_s, begin_s + execution_s[request], box, begin_s)

        return reaches

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return the wait of `arrival`, and its waking up, if it entered after the requests in `ahead`. Has no side effects."""
        trial = self.copy()
        for entry_s, request, row in (*ahead, arrival):
            begin_s, box = trial.enter(entry_s, row[self._execution], request, row[1])
        return begin_s - arrival[0] + trial.boxes[box].woke_s


@dataclass(frozen=True, slots=True)
class WakingServerSpec:
    """How the boxes of a target wake up."""

    waking: Waking
    workers: int = 1

    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> WakingPool:
        """Return idle boxes; without a `balancer` each end node has its box."""
        return WakingPool(self.waking, boxes, self.workers, balancer)
