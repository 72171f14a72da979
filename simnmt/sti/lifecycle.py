"""What a box's memory holds when a request's turn comes: cold, or the k-th turn of an engagement (STI-17, STI-18)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

COLD, FIRST_TURN = 0, 1
"""States of a box: nothing in memory; the preload buffer alone. State k is that of an engagement's k-th turn."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How an app's memory comes and goes.

    Turns that follow each other within `engagement_gap_s` belong to one engagement, in which the enlarged buffer keeps what
    was read. After it the buffer holds the preloaded shards alone, or nothing where `keeps_preload` is false; and once the app
    has been idle for longer than `reclaimed_after_s` the system takes that too. A cold start executes the plan of the first
    turn and reads all of it, which fills the buffer. Raises `ValueError` for times below 0.
    """

    last: int
    """The last state: from that turn on nothing changes."""
    engagement_gap_s: float
    reclaimed_after_s: float = inf
    keeps_preload: bool = True

    def __post_init__(self) -> None:
        if self.last < FIRST_TURN:
            raise ValueError("there is at least a first turn")
        if not (self.engagement_gap_s >= 0.0 and self.reclaimed_after_s >= 0.0):
            raise ValueError("idle times of 0 or more")

    def next_state(self, state: int, idle_s: float) -> int:
        """The state of a request whose turn comes so long after the end of one in `state`; below 0 while that is under way.

        Infinity: the first one ever, which finds nothing.
        """
        if idle_s > self.reclaimed_after_s or idle_s == inf:
            return COLD
        if idle_s > self.engagement_gap_s:
            return FIRST_TURN if self.keeps_preload else COLD
        turn = state if state > FIRST_TURN else FIRST_TURN
        return turn + 1 if turn < self.last else turn
