"""A target that streams its model, as a decider believes it to stand: cold, or in which turn of an engagement (XP-04)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

NextState = Callable[[int, float], int]
"""`next_state(state, idle_s)`: the state of a request whose turn comes so long after the end of one in `state`; below 0 while
that is under way."""


class PlanView:
    """Which plan a request will meet at a remote target, by what its answers told and when they came.

    Each answer tells the state in which its request was executed. The next state follows from that and from how long ago the
    request ended, by the decider's own clock; while a request is under way the next one is a turn of its engagement. Where
    others use the boxes as well, or there are several, this errs: so of each state that was believed it is counted which one
    was then told, and what is expected is the mean over those. As many as `PRIOR` right beliefs are supposed before any, and
    a belief of `MEMORY` answers ago counts by 1/e.

    Alone before one box there is nothing to learn but how long the ways take. What is never sent to tells nothing: a box that
    others keep warm, and that is wrongly believed too dear when cold, stays so believed.
    """

    __slots__ = ("_done_s", "_errs", "_latest", "_next_state", "_state", "_told", "_under_way")

    MEMORY, PRIOR = 64, 1.0
    _KEPT = 1.0 - 1.0 / MEMORY

    def __init__(self, next_state: NextState, states: int) -> None:
        """`states`: how many there are; 0 is cold, which is what a box is believed to be at first."""
        self._next_state = next_state
        self._latest, self._state, self._done_s = -1, 0, float("-inf")
        """The last request that was sent, its state as believed or told, and when the last that was told of had ended."""
        self._told = [[self.PRIOR if told == believed else 0.0 for told in range(states)] for believed in range(states)]
        """Answers by the state that was believed and the one that was told."""
        self._errs = [False] * states
        """Whether a belief was ever wrong."""
        self._under_way: dict[int, int] = {}
        """By request, the state that was believed."""

    def believed(self, entry_s: float) -> int:
        """The state of a request that would reach the target at a moment."""
        return self._next_state(self._state, -1.0 if self._under_way else entry_s - self._done_s)

    def added_s(self, entry_s: float, beyond_s: Sequence[Sequence[float]], in_block: int) -> float:
        """Seconds beyond the plane of a request that would reach the target then; `beyond_s`: by state and request."""
        believed = self.believed(entry_s)
        if not self._errs[believed]:
            return beyond_s[believed][in_block]
        told = self._told[believed]
        return sum(count * column[in_block] for count, column in zip(told, beyond_s, strict=True)) / sum(told)

    def sent(self, request: int, entry_s: float) -> None:
        """A request sets out."""
        self._latest, self._state = request, self.believed(entry_s)
        self._under_way[request] = self._state

    def reported(self, request: int, state: int, done_s: float) -> None:
        """Its answer came: the state in which it was executed, and when that ended, by the decider's clock."""
        believed = self._under_way.pop(request)
        told = self._told[believed]
        if state != believed:
            self._errs[believed] = True
        for number, count in enumerate(told):
            told[number] = self._KEPT * count
        told[state] += 1.0
        if request == self._latest:
            self._state = state
        if done_s > self._done_s:
            self._done_s = done_s
