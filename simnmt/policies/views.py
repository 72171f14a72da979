"""Views that a decider keeps of its targets: the requests under way, and the state of a streamed model.

`BacklogView` mirrors the queue of a first-in first-out target, `BatchView` beside this file the batch of a batched target, and
`PlanView` the state of a target that streams its model (XP-04). All are pure: the simulated world and the live gateway hold the
same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush, heapreplace
from typing import Any, NamedTuple, Protocol


class _SentRequest(NamedTuple):
    """The mirror's estimates for a request when it was sent."""

    entry_s: float
    believed_s: float
    """Its wait by the mirror; 0 in an empty one."""
    mirrored_s: float
    """Its wait on the mirror's clock, without the shift."""
    work_s: float
    """Work sent before it, divided by the workers."""
    behind_s: float
    """Lag of the mirror's clock."""
    times_empty: int
    """How often a request had met an empty mirror, this one included."""


class BacklogView:
    """One decider's mirror of a first-in first-out pool of `parallel` workers.

    The decider knows its own requests and their expected times, so it can simulate the pool's queue: a mirror. An answer
    reports how long its request had waited; the mirror is then shifted until it agrees with the last such request. Three
    corrections follow the truth if others use the pool as well:

    - The mirror's clock is slow by the share of the pool that others take, since their requests join behind ours while we wait.
      The share is learnt from pairs of answers between which the pool was surely busy: the growth of the wait beyond its growth
      in the mirror, over the time between.
    - An empty mirror estimates the mean wait that was measured on such occasions.
    - Both fade while no answer comes, so that a burst of other requests does not keep a decider away for ever.

    Alone with exact predictions there is nothing to learn, and the estimate is the truth. A request costs 2 us with all its
    calls, however long the queue.
    """

    at_entry = True
    """`sent` and `added_s` take the moment at which the request should reach the target."""
    SHARE_MEMORY, WAIT_MEMORY, FADE = 256, 64, 64
    """Answers over which the others' share and the wait in an empty mirror are learnt, and mean gaps between answers after
    which half of both is forgotten."""
    MOST = 0.98
    """Largest share that others may take: the mirror's clock must not stop."""
    EXACT_S = 1e-9
    """Error of an estimated wait below which nothing is learnt."""

    def __init__(self, parallel: int) -> None:
        self.others_share = 0.0
        """Estimated share of the pool that others take."""
        self.parallel = parallel
        self._free_at_s = [0.0]
        # The mirror's workers that have worked, a heap, and one that has not while there is one: a tier has 10^8 at most.
        self._unused = parallel - 1
        self._last_start_s = 0.0
        self._shift_s = 0.0
        """How much earlier a start is in the mirror than in truth."""
        self._now_s, self._behind_s = 0.0, 0.0
        """The last request's entry, and what the mirror's clock was then behind."""
        self._sent, self._work_s, self._times_empty = 0, 0.0, 0
        """Requests sent, their work divided by the workers, and how many met an empty mirror."""
        self._under_way: dict[int, _SentRequest] = {}
        """Requests not reported yet, by number."""
        self._last: _SentRequest | None = None
        self._last_number, self._last_wait_s = -1, 0.0
        """The last request, of those reported, and its true wait."""
        self._reports, self._waiting_share = 0, 0.0
        """Requests reported, and the share of them that had to wait."""
        self._found_empty, self._empty_wait_s = 0, 0.0
        """Reported requests that had met an empty mirror, and their mean wait."""
        self._gap_s, self._heard_s = 0.0, 0.0
        """Mean time between the entries of reported requests; the last entry when the last answer came."""
        self._grown_s, self._busy_s = 0.0, 0.0
        """Growth of the wait beyond the mirror's while the pool was surely busy, and the length of that time."""

    def added_s(self, entry_s: float, expected: float = 0.0) -> float:
        """Return the estimated wait, at least 0, of a request that enters at `entry_s`. Has no side effects."""
        wait_s = self._mirrored_s(entry_s - self._lag_s(entry_s))
        empty_wait_s = self._empty_wait_s
        if wait_s < empty_wait_s:
            empty_wait_s *= self._trust(entry_s)
        return wait_s if wait_s > empty_wait_s else empty_wait_s

    def sent(self, entry_s: float, execution_s: float) -> int:
        """Note a request that will enter at `entry_s` with predicted execution seconds; entries are in order of time.

        Return its number, for `reported`.
        """
        if entry_s > self._now_s:
            self._behind_s = self._lag_s(entry_s)
            self._now_s = entry_s
        mirror_s = entry_s - self._behind_s
        wait_s = self._mirrored_s(mirror_s)
        if wait_s == 0.0:
            self._times_empty += 1
        # Nobody starts before those who entered earlier; with several workers and a shift that fell, their ends do not say so.
        start_s = max(self._free_at_s[0], self._last_start_s, mirror_s - self._shift_s)
        heapreplace(self._free_at_s, start_s + execution_s)
        if self._unused and self._free_at_s[0] > 0.0:
            heappush(self._free_at_s, 0.0)
            self._unused -= 1
        self._last_start_s = start_s
        number = self._sent
        self._under_way[number] = _SentRequest(
            entry_s, wait_s, start_s - mirror_s, self._work_s, self._behind_s, self._times_empty
        )
        self._sent = number + 1
        self._work_s += execution_s / self.parallel
        return number

    def reported(self, number: int, wait_s: float, report: Any = None, at_s: float = 0.0) -> None:
        """Take in an answer: the number that `sent` returned, and how long its request really waited, by the pool's clock.

        All measurements of C-NMT are durations: clocks need no synchronisation (CNMT-11), and a transfer beyond its share of
        the estimate is no queue. An answer overtaken by that of a later request moves nothing.
        """
        sent = self._under_way.pop(number)
        self._reports += 1
        waited = 1.0 if wait_s > self.EXACT_S else 0.0
        self._waiting_share += (waited - self._waiting_share) / min(self._reports + 1, self.SHARE_MEMORY)
        if sent.believed_s == 0.0:
            self._found_empty += 1
            # As if seven had waited for nothing before, so that the first one is no verdict.
            self._empty_wait_s += (wait_s - self._empty_wait_s) / min(self._found_empty + 7, self.WAIT_MEMORY)
        if number < self._last_number:
            return
        if self._last is not None:
            self._learn_share(self._last, sent, wait_s)
        self._last, self._last_number, self._last_wait_s = sent, number, wait_s
        self._heard_s = self._now_s
        self._shift_s = wait_s - sent.mirrored_s

    def lost(self, number: int) -> None:
        """Forget a request that was never answered; the mirror still counts its work, until the next report corrects it."""
        self._under_way.pop(number, None)

    def _learn_share(self, last: _SentRequest, sent: _SentRequest, wait_s: float) -> None:
        """Learn the share of others from the waits of two consecutive requests."""
        gap_s = sent.entry_s - last.entry_s
        self._gap_s += (gap_s - self._gap_s) / min(self._reports + 1, self.WAIT_MEMORY)
        # The earlier one waited beyond the later one's entry, so no worker was idle in between.
        if self._last_wait_s > gap_s > 0.0 and abs(wait_s - sent.believed_s) > self.EXACT_S:
            if sent.times_empty == last.times_empty:
                expected_s = sent.mirrored_s - last.mirrored_s - (sent.behind_s - last.behind_s)
            else:  # the mirror was met empty in between, wrongly: what was sent is all that is known
                expected_s = sent.work_s - last.work_s - gap_s
            kept = 1.0 - 1.0 / self.SHARE_MEMORY
            self._grown_s = kept * self._grown_s + wait_s - self._last_wait_s - expected_s
            self._busy_s = kept * self._busy_s + gap_s
        if self._grown_s > 0.0:
            # A load of r lets at least r**workers of the requests wait, so seldom a wait means a small load.
            most = self._waiting_share ** (1.0 / self.parallel)
            self.others_share = min(self._grown_s / self._busy_s, most, self.MOST)
        else:
            self.others_share = 0.0

    def _mirrored_s(self, mirror_s: float) -> float:
        """Return the wait by the mirror alone, at a moment of its clock."""
        wait_s = max(self._free_at_s[0], self._last_start_s) + self._shift_s - mirror_s
        return wait_s if wait_s > 0.0 else 0.0

    def _lag_s(self, at_s: float) -> float:
        """Return the lag of the mirror's clock at a moment."""
        if self.others_share == 0.0:
            return self._behind_s
        return self._behind_s + self.others_share * self._trust(at_s) * (at_s - self._now_s)

    def _trust(self, at_s: float) -> float:
        """Return the share that is not forgotten at a moment: half after `FADE` mean gaps without an answer."""
        silence_s = at_s - self._heard_s
        memory_s = self.FADE * self._gap_s
        return memory_s / (memory_s + silence_s) if silence_s > 0.0 and memory_s > 0.0 else 1.0


NextState = Callable[[int, float], int]
"""`next_state(state, idle_s)`: the state of a request whose turn comes `idle_s` seconds after the end of one in `state`;
negative while that one is under way."""


class PlanView:
    """One decider's estimate of the state that a request will meet at a remote target, from answers and their times.

    Each answer reports the state in which its request was executed. The next state follows from that and from the time since
    the request ended, by the decider's own clock; while a request is under way the next one is a turn of its engagement. This
    errs if others use the boxes as well, or if there are several: so the view counts, for each expected state, the reported
    ones, and expects the mean over those. `PRIOR` correct estimates are assumed before any, and an estimate of `MEMORY` answers
    ago counts by 1/e.
    """

    __slots__ = ("_answer_counts", "_done_s", "_errs", "_latest", "_state", "_under_way", "next_state")

    MEMORY, PRIOR = 64, 1.0
    _KEPT = 1.0 - 1.0 / MEMORY

    def __init__(self, next_state: NextState, states: int) -> None:
        """`states`: their number; state 0 is cold, the initial estimate."""
        self.next_state = next_state
        self._latest, self._state, self._done_s = -1, 0, float("-inf")
        """The last request sent, its state as estimated or reported, and when the last reported one had ended."""
        self._answer_counts = [
            [self.PRIOR if actual == believed else 0.0 for actual in range(states)] for believed in range(states)
        ]
        """Answers by the estimated state and the reported one."""
        self._errs = [False] * states
        """Whether an estimate was ever wrong, by state."""
        self._under_way: dict[int, int] = {}
        """By request, the estimated state."""

    def believed(self, entry_s: float) -> int:
        """Return the estimated state of a request that would reach the target at a moment."""
        return self.next_state(self._state, -1.0 if self._under_way else entry_s - self._done_s)

    def added_s(self, entry_s: float, beyond_s: Sequence[Sequence[float]], in_block: int) -> float:
        """Return the seconds that a request entering at `entry_s` takes beyond the plane; `beyond_s`: by state and request."""
        believed = self.believed(entry_s)
        if not self._errs[believed]:
            return beyond_s[believed][in_block]
        total_s, answers = 0.0, 0.0
        for count, column in zip(self._answer_counts[believed], beyond_s, strict=True):
            total_s += count * column[in_block]
            answers += count
        return total_s / answers

    def sent(self, request: int, entry_s: float) -> None:
        """Note a request that is sent."""
        self._latest, self._state = request, self.believed(entry_s)
        self._under_way[request] = self._state

    def reported(self, request: int, state: int, done_s: float) -> None:
        """Record an answer: the state in which the request was executed, and when that ended by the decider's clock."""
        believed = self._under_way.pop(request)
        counts = self._answer_counts[believed]
        if state != believed:
            self._errs[believed] = True
        for number, count in enumerate(counts):
            counts[number] = self._KEPT * count
        counts[state] += 1.0
        if request == self._latest:
            self._state = state
        if done_s > self._done_s:
            self._done_s = done_s

    def lost(self, request: int) -> None:
        """Forget a request that was never answered."""
        self._under_way.pop(request, None)


class StateView(Protocol):
    """The methods of `PlanView`, which a device that streams its model has too: its decider knows the state itself."""

    def added_s(self, entry_s: float, beyond_s: Sequence[Sequence[float]], in_block: int) -> float: ...

    def sent(self, request: int, entry_s: float) -> None: ...

    def reported(self, request: int, state: int, done_s: float) -> None: ...

    def lost(self, request: int) -> None: ...
