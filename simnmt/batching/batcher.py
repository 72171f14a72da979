"""One server's queues, and its next move."""

from __future__ import annotations

from collections import deque
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from simnmt.batching.batching import Batching


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode these together now; then ask again: no sentence is decoded meanwhile."""

    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Let these, all of them encoded, join the active ones before the next step."""

    requests: tuple[int, ...]


class _Waiting(NamedTuple):
    request: int
    src_len: int
    arrival_s: float


class Batcher:
    """What waits at one server, and what is to be done next with it.

    A sentence waits, is encoded, lies ready, joins, and is active from then on; whoever asks counts the active ones. It is
    to be asked when nothing is active and something arrives or `due_s` comes, and after a step that left
    `batching.threshold` or fewer active.
    """

    __slots__ = ("_encodings", "_let_go", "_ready", "_sorted", "_waiting", "batching")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self._waiting: deque[_Waiting] = deque()
        """In the order of arrival."""
        self._sorted: deque[_Waiting] = deque()
        """Collected and sorted, not encoded yet; empty without maxi-batching."""
        self._ready: deque[_Waiting] = deque()
        """Encoded."""
        self._encodings = 0
        """Of the present refill."""
        self._let_go = 0
        """Of those that wait, the first so many need not wait for company."""

    @property
    def waiting(self) -> int:
        """Sentences that have arrived and have not joined."""
        return len(self._waiting) + len(self._sorted) + len(self._ready)

    @property
    def queued(self) -> int:
        """Of those, the ones that are not encoded, nor collected."""
        return len(self._waiting)

    @property
    def due_s(self) -> float:
        """When the oldest sentence that waits has waited long enough; infinity where none waits, or for ever."""
        if self._sorted or self._ready:
            return -inf
        return self._waiting[0].arrival_s + self.batching.longest_wait_s if self._waiting else inf

    def arrive(self, request: int, src_len: int, now_s: float) -> None:
        """A sentence of `src_len` source tokens begins to wait; arrivals come in order of time."""
        self._waiting.append(_Waiting(request, src_len, now_s))

    def close(self) -> None:
        """Nobody will arrive for now: who waits does not wait for company any longer; who comes all the same does."""
        self._let_go = len(self._waiting)

    def next(self, active: int, now_s: float, longest: int = 0) -> Encode | Join | None:
        """What is to be done before the next step; None: take a step, or without an active sentence wait.

        `active`: sentences under way; `longest`: of their sources, in tokens, needed where `padded_tokens` is set. A move that
        is returned counts as made.
        """
        batching = self.batching
        if active > batching.threshold or not self.waiting:
            self._encodings = 0
            return None
        free = batching.size - active
        together = batching.encoded_together or batching.size
        if len(self._ready) < free and self._encodings * together < free and self._may_begin(active, now_s):
            self._encodings += 1
            queue = self._sorted or self._waiting
            group = self._taken(queue, together, 0, 0)
            if queue is self._waiting:
                self._let_go = max(self._let_go - len(group), 0)
            self._ready.extend(group)
            return Encode(tuple(each.request for each in group))
        self._encodings = 0
        joining = self._taken(self._ready, free, active, longest)
        return Join(tuple(each.request for each in joining)) if joining else None

    def copy(self) -> Batcher:
        """A batcher in the same state, for asking what would happen."""
        other = copy(self)
        other._waiting, other._sorted, other._ready = self._waiting.copy(), self._sorted.copy(), self._ready.copy()
        return other

    def _may_begin(self, active: int, now_s: float) -> bool:
        """Whether sentences that are not encoded yet may be taken now; collects and sorts where that is due."""
        if self._sorted:
            return True
        waiting, batching = self._waiting, self.batching
        if not waiting:
            return False
        # Who can join what runs, or what is ready to, does not wait for company; a collection is waited for in any case.
        joins = batching.collected is None and (active > 0 or bool(self._ready))
        if not (joins or self._full() or self._let_go or now_s >= waiting[0].arrival_s + batching.longest_wait_s):
            return False
        if batching.collected is not None:
            collected = [waiting.popleft() for _ in range(min(batching.collected, len(waiting)))]
            self._sorted.extend(sorted(collected, key=lambda each: each.src_len))
            self._let_go = max(self._let_go - len(collected), 0)
        return True

    def _full(self) -> bool:
        """Whether what waits makes a whole collection, or a batch with room for no more."""
        waiting, batching = self._waiting, self.batching
        if len(waiting) >= (batching.collected or batching.size):
            return True
        if batching.padded_tokens is None or batching.collected is not None:
            return False
        return max(each.src_len for each in waiting) * (len(waiting) + 1) > batching.padded_tokens

    def _taken(self, queue: deque[_Waiting], most: int, active: int, longest: int) -> list[_Waiting]:
        """Take the first of a queue, as many as fit; one at least where nothing is active."""
        cap = self.batching.padded_tokens
        if cap is None:
            return [queue.popleft() for _ in range(min(most, len(queue)))]
        taken = list[_Waiting]()
        while queue and len(taken) < most:
            longest = max(longest, queue[0].src_len)
            together = active + len(taken) + 1
            if longest * together > cap and together > 1:
                break
            taken.append(queue.popleft())
        return taken
