"""A batched target as a decider believes it to stand: who is in the batch, who waits, and what both will cost (XP-01)."""

from __future__ import annotations

from collections.abc import Callable


class BatchView:
    """What a request will take at a batched target beyond the plane, by what the target last reported."""

    __slots__ = ("_servers", "_size", "_step_s", "_threshold")

    def __init__(self, step_s: Callable[[int], float], size: int, threshold: int = 0, servers: int = 1) -> None:
        """`step_s`: seconds of a decode step, gap included, by the sentences in it, 1 to `size`; `threshold`: of its batcher;
        `servers`: how many share what is sent to the target."""
        self._step_s = [0.0, *(step_s(active) for active in range(1, size + 1))]
        self._size, self._threshold, self._servers = size, threshold, servers

    def added_s(self, at_s: float, tgt_len_predicted: float) -> float:
        """Seconds beyond the plane at batch 1 that a request now sent is believed to take: waiting, and slower steps."""
        return 0.0

    def sent(self, now_s: float, tgt_len_predicted: float) -> int:
        """Note a request that is sent; returns its number, to be handed back to `reported`."""
        return 0

    def reported(self, number: int, wait_s: float, active: int, waiting: int, at_s: float) -> None:
        """An answer came at `at_s`: how long its request had waited at the server, and how many were then left in its batch and
        waited there when the request was done."""
