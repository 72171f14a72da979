"""The queue that a decider can see at a remote target: a mirror of what it sent itself, set right by the answers."""

from __future__ import annotations

from heapq import heappush, heapreplace
from typing import NamedTuple


class _Sent(NamedTuple):
    """What was believed of a request when it was sent."""

    entry_s: float
    believed_s: float
    """Its wait by the mirror; 0 in an empty one."""
    mirrored_s: float
    """Its wait in the mirror's own coordinates, without the shift."""
    work_s: float
    """What all workers together had been sent before it."""
    behind_s: float
    """What the mirror's clock was behind."""
    times_empty: int
    """How often the mirror had been met empty, this time included."""


class BacklogView:
    """A first-in first-out pool of `parallel` workers, as one decider believes it to stand.

    The decider knows what it sent and how long that should take, so it can keep the pool's queue itself: a mirror. An answer
    tells how long its request had waited; the mirror is then moved as a whole until it agrees with
    the last such request. Three things follow the truth where others use the pool as well:

    - The mirror's clock is slow by the share of the pool that others take, since their requests join behind ours while we
      wait. The share is learnt from pairs of answers between which the pool was surely busy: what the wait grew by beyond
      what it grew by in the mirror, over the time between.
    - A mirror that has run empty believes in the mean wait that was found on such occasions.
    - Both fade while no answer comes, lest a burst of others keep a decider away for ever.

    Alone with exact predictions there is nothing to learn, and the belief is the truth. A request costs 2 us with all that is
    asked and told about it, however long the queue: nothing is replayed. Measured against the true wait (one worker at load
    0.8, half of the requests others', times 30 % off): correlation 0.85, where a learner given the same facts reaches 0.88,
    and a mirror that is only moved 0.76.
    """

    __slots__ = (
        "_behind_s",
        "_busy_s",
        "_empty_wait_s",
        "_found_empty",
        "_free_at_s",
        "_gap_s",
        "_grown_s",
        "_heard_s",
        "_last",
        "_last_number",
        "_last_start_s",
        "_last_wait_s",
        "_now_s",
        "_parallel",
        "_reports",
        "_sent",
        "_shift_s",
        "_times_empty",
        "_under_way",
        "_unused",
        "_waiting_share",
        "_work_s",
        "others_share",
    )

    SHARE_MEMORY, WAIT_MEMORY, FADE = 256, 64, 64
    """Answers over which the others' share and the wait in an empty mirror are learnt; mean gaps between answers' requests
    after whose silence half of both is forgotten."""
    MOST = 0.98
    """Largest share that others are believed to take: the mirror's clock must not stand still."""
    EXACT_S = 1e-9
    """A wait foretold this closely teaches nothing."""

    def __init__(self, parallel: int) -> None:
        self.others_share = 0.0
        """Share of the pool that others are believed to take."""
        self._parallel = parallel
        self._free_at_s = [0.0]
        # The mirror's workers that have worked, a heap, and one that has not while there is one: a tier has 10^8 at most.
        self._unused = parallel - 1
        self._last_start_s = 0.0
        self._shift_s = 0.0
        """What a start in the mirror is earlier than in truth."""
        self._now_s, self._behind_s = 0.0, 0.0
        """The last request's entry, and what the mirror's clock was then behind."""
        self._sent, self._work_s, self._times_empty = 0, 0.0, 0
        """Requests sent, what all workers together need for them, and how many met an empty mirror."""
        self._under_way: dict[int, _Sent] = {}
        """Requests not reported yet, by number."""
        self._last: _Sent | None = None
        self._last_number, self._last_wait_s = -1, 0.0
        """The last request, of those reported, and its true wait."""
        self._reports, self._waiting_share = 0, 0.0
        """Requests reported, and the share of them that had to wait."""
        self._found_empty, self._empty_wait_s = 0, 0.0
        """Requests reported that had met an empty mirror, and their mean wait."""
        self._gap_s, self._heard_s = 0.0, 0.0
        """Mean time between the entries of reported requests; the last entry when the last answer came."""
        self._grown_s, self._busy_s = 0.0, 0.0
        """What the wait grew by beyond the mirror's while the pool was surely busy, and for how long that was."""

    def wait_s(self, entry_s: float) -> float:
        """How long a request that entered at `entry_s` is believed to wait, at least 0; nothing changes."""
        wait_s = self._mirrored_s(entry_s - self._lag_s(entry_s))
        empty_wait_s = self._empty_wait_s
        if wait_s < empty_wait_s:
            empty_wait_s *= self._trust(entry_s)
        return wait_s if wait_s > empty_wait_s else empty_wait_s

    def sent(self, entry_s: float, execution_s: float) -> int:
        """Note a request that will enter at `entry_s` and is predicted to execute so long; entries come in order of time.

        Returns its number, to be handed back to `reported`.
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
        self._under_way[number] = _Sent(entry_s, wait_s, start_s - mirror_s, self._work_s, self._behind_s, self._times_empty)
        self._sent = number + 1
        self._work_s += execution_s / self._parallel
        return number

    def reported(self, number: int, wait_s: float) -> None:
        """An answer came: what `sent` returned for its request, and how long this really waited, by the pool's own clock.

        A duration, as all that C-NMT measures: clocks need no synchronisation (CNMT-11), and what the way there took beyond
        its share of the estimate is no queue. An answer overtaken by a later request's moves nothing.
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

    def _learn_share(self, last: _Sent, sent: _Sent, wait_s: float) -> None:
        """What two requests' waits, one after the other, tell of those who entered between them."""
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
            most = self._waiting_share ** (1.0 / self._parallel)
            self.others_share = min(self._grown_s / self._busy_s, most, self.MOST)
        else:
            self.others_share = 0.0

    def _mirrored_s(self, mirror_s: float) -> float:
        """The wait by the mirror alone, at a moment of its clock."""
        wait_s = max(self._free_at_s[0], self._last_start_s) + self._shift_s - mirror_s
        return wait_s if wait_s > 0.0 else 0.0

    def _lag_s(self, at_s: float) -> float:
        """What the mirror's clock is behind at a moment."""
        if self.others_share == 0.0:
            return self._behind_s
        return self._behind_s + self.others_share * self._trust(at_s) * (at_s - self._now_s)

    def _trust(self, at_s: float) -> float:
        """What is left at a moment of what was learnt: half after `FADE` mean gaps without an answer."""
        silence_s = at_s - self._heard_s
        memory_s = self.FADE * self._gap_s
        return memory_s / (memory_s + silence_s) if silence_s > 0.0 and memory_s > 0.0 else 1.0
