"""A first-in first-out server whose service times are known on entry: no queue is kept, only when each worker is free."""

from __future__ import annotations

from heapq import heapreplace


class FifoServer:
    """`workers` parallel workers before one queue, analytically.

    Entries must come in order of time. Measured: SimPy's `Resource` costs 2.8 us a use and grows with the backlog; this
    costs 0.2 us and does not.
    """

    __slots__ = ("_free_at_s",)

    def __init__(self, workers: int) -> None:
        self._free_at_s = [0.0] * workers
        # A heap: all equal at first.

    @property
    def free_at_s(self) -> float:
        """When the next worker is free; in the past if one is free now."""
        return self._free_at_s[0]

    def serve(self, entry_s: float, service_s: float) -> float:
        """The completion time of a request that enters now; it waits for the worker that is free first."""
        free_at_s = self._free_at_s
        start_s = free_at_s[0]
        if start_s < entry_s:
            start_s = entry_s
        finish_s = start_s + service_s
        heapreplace(free_at_s, finish_s)
        return finish_s
