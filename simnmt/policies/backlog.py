"""The queue that a decider can see at a remote target: a mirror of what it sent itself, set right by the answers."""

from __future__ import annotations

from heapq import heapreplace


class BacklogView:
    """A first-in first-out pool of `parallel` workers, as one decider believes it to stand.

    The mirror's times run in coordinates of their own: true time less the shift, by which the most recently reported
    request started later than the mirror had said. So the work of others and errors of prediction show up with each answer,
    in O(1), and nothing is replayed; where the pool has run empty the shift cancels out.
    """

    __slots__ = ("_free_at_s", "_last_start_s", "_reported_start_s", "_shift_s")

    def __init__(self, parallel: int) -> None:
        self._free_at_s = [0.0] * parallel
        # A heap: all equal at first.
        self._last_start_s = 0.0
        self._reported_start_s = 0.0
        self._shift_s = 0.0

    def wait_s(self, entry_s: float) -> float:
        """How long a request that entered at `entry_s` is believed to wait, at least 0; nothing changes."""
        wait_s = max(self._free_at_s[0], self._last_start_s) + self._shift_s - entry_s
        return wait_s if wait_s > 0.0 else 0.0

    def sent(self, entry_s: float, execution_s: float) -> float:
        """Note a request that will enter at `entry_s` and is predicted to execute so long; entries come in order of time.

        Returns its predicted start in the mirror's coordinates, to be handed back to `reported`.
        """
        # Nobody starts before those who entered earlier; with several workers and a shift that fell, their ends do not say so.
        start_s = max(self._free_at_s[0], self._last_start_s, entry_s - self._shift_s)
        heapreplace(self._free_at_s, start_s + execution_s)
        self._last_start_s = start_s
        return start_s

    def reported(self, predicted_start_s: float, true_start_s: float) -> None:
        """An answer came: what `sent` returned for its request, and when its execution really started."""
        if predicted_start_s >= self._reported_start_s:  # an answer overtaken by a later request's tells nothing new
            self._reported_start_s = predicted_start_s
            self._shift_s = true_start_s - predicted_start_s
