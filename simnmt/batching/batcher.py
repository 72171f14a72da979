"""Mini-, maxi- and top-up batching: the settings, and one server's queues with the next move.

`Batching` holds the settings (FNI-08, FNI-09, FNI-10). `Batcher` decides which waiting sentences are encoded, and which join
the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from simnmt.batching.class_queue import ONE_CLASS, ClassQueue

MAXI = 1_280
"""Sentences that the paper collects and sorts (FNI-09)."""


@dataclass(frozen=True, slots=True)
class Batching:
    """How a server forms its batches. Raises `ValueError` for settings that make no batch.

    Two questions are independent: in which order sentences are taken (as they arrived, or sorted), and when they join (when all
    are done, or when some are).
    """

    size: int
    """Most sentences decoded together; a beam counts as one sentence."""
    threshold: int = 0
    """The batch is refilled when at most this number of sentences are active; 0: only when all are done."""
    collected: int | None = None
    """Sentences that are collected and sorted by source length before they are taken; None: they are taken in the order of
    arrival."""
    longest_wait_s: float = 0.0
    """How long the oldest sentence waits for the batch, or the collection, to fill; 0: sentences are taken at once."""
    padded_tokens: int | None = None
    """Most source tokens, padding included, that are encoded or decoded together; a longer sentence goes alone."""
    encoded_together: int | None = None
    """Most sentences encoded together; None: as many as are decoded together. More than `size` encodes ahead of the batch, and
    an encoded sentence joins the next batch without waiting for company."""
    max_wait_s: tuple[float, ...] = ONE_CLASS
    """By class of sentences, the first served first, how long one waits at most before it goes before the others."""

    def __post_init__(self) -> None:
        if not 0 <= self.threshold < self.size:
            raise ValueError(f"a batch of {self.size} sentences cannot be refilled with {self.threshold} of them left")
        if self.collected is not None and self.collected < self.size:
            raise ValueError(f"{self.collected} collected sentences are too few for one batch of {self.size}")
        limits = (self.padded_tokens, self.encoded_together)
        if not self.longest_wait_s >= 0.0 or any(limit is not None and limit < 1 for limit in limits):
            raise ValueError(f"these settings make no batch: {self}")

    def batcher(self) -> Batcher:
        """Return a new batcher with these settings."""
        return Batcher(self)


def mini(size: int, longest_wait_s: float = inf) -> Batching:
    """Return mini-batching: in arrival order; a batch begins when the one before is done (FNI-08)."""
    return Batching(size, longest_wait_s=longest_wait_s)


def maxi(size: int, collected: int = MAXI, longest_wait_s: float = inf) -> Batching:
    """Return maxi-batching: collect, sort by source length, cut into batches (FNI-09)."""
    return Batching(size, collected=collected, longest_wait_s=longest_wait_s)


def top_up(size: int, threshold: int, collected: int | None = None, longest_wait_s: float = 0.0) -> Batching:
    """Return top-up batching: refill a running batch when at most `threshold` are active (FNI-10); `collected`: with
    maxi-batching."""
    return Batching(size, threshold, collected, longest_wait_s)


def immediate(size: int) -> int:
    """Return the threshold at which a finished sentence is replaced at once (FNI-10, algorithm 6)."""
    return size - 1


def half_empty(size: int) -> int:
    """Return the threshold at which a batch is refilled when at least half of it is empty: the authors' choice (FNI-10)."""
    return size // 2


@dataclass(frozen=True, slots=True)
class Encode:
    """The move to encode these sentences together, and then to ask again: meanwhile no sentence is decoded.

    Example:
        >>> simnmt.Encode((3, 5)).requests
        (3, 5)
    """

    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """The move to let these encoded sentences join the active ones before the next step.

    Example:
        >>> simnmt.Join((3, 5)).requests
        (3, 5)
    """

    requests: tuple[int, ...]


class _WaitingSentence(NamedTuple):
    request: int
    src_len: int


class Batcher:
    """The queues of one server, which decide its next move.

    A sentence waits, is encoded, is ready, joins, and is active from then on; the caller counts the active ones. Ask for the
    next move when nothing is active and a sentence arrives or `due_s` comes, and after a step that left `batching.threshold` or
    fewer active.

    Example:
        >>> batcher = simnmt.Batcher(Batching(size=2))
        >>> batcher.arrive(request=0, src_len=12, now_s=0.0)
        >>> batcher.next(active=0, now_s=0.0)
        Encode(requests=(0,))
        >>> batcher.next(active=0, now_s=0.1)
        Join(requests=(0,))
    """

    __slots__ = ("_encodings", "_let_go", "_ready", "_sorted", "_waiting", "batching")

    def __init__(self, batching: Batching) -> None:
        self.batching = batching
        self._waiting = ClassQueue[_WaitingSentence](batching.max_wait_s)
        self._sorted: deque[_WaitingSentence] = deque()
        """Collected and sorted, not encoded yet; empty without maxi-batching."""
        self._ready: deque[_WaitingSentence] = deque()
        """Encoded sentences."""
        self._encodings = 0
        """Number of encodings since sentences last joined."""
        self._let_go = 0
        """Number of the first waiting sentences that need not wait for company."""

    @property
    def waiting(self) -> int:
        """Number of sentences that have arrived and have not joined."""
        return len(self._waiting) + len(self._sorted) + len(self._ready)

    @property
    def queued(self) -> int:
        """Number of waiting sentences that are neither encoded nor collected."""
        return len(self._waiting)

    @property
    def due_s(self) -> float:
        """When the oldest waiting sentence has waited long enough; infinity if none waits, or if it may wait for ever."""
        if self._sorted or self._ready:
            return -inf
        return self._waiting.oldest_s + self.batching.longest_wait_s

    def turn(self, now_s: float) -> tuple[float, ...]:
        """Return the turn of the sentence that is served next: the lower, the sooner. Collected and encoded ones are first."""
        if self._sorted or self._ready or not self._waiting:
            return (inf if not self.waiting else -inf,)
        return (*self._waiting.turn(now_s), self._waiting.first(now_s).request)

    def arrive(self, request: int, src_len: int, now_s: float, rank: int = 0) -> None:
        """Add a sentence of `src_len` source tokens and of a class to the queue; arrivals are in order of time."""
        self._waiting.add(_WaitingSentence(request, src_len), now_s, rank)

    def withdraw(self, request: int) -> bool:
        """Remove a sentence that is not encoded yet; return whether there was one."""
        for queue in (self._waiting, self._sorted):
            for position, sentence in enumerate(queue):
                if sentence.request == request:
                    queue.remove(sentence)
                    if queue is self._waiting and position < self._let_go:
                        self._let_go -= 1
                    return True
        return False

    def drop_encoded(self, requests: Sequence[int]) -> None:
        """Forget sentences whose encoding failed after `next` had returned it."""
        self._ready = deque(sentence for sentence in self._ready if sentence.request not in requests)
        if not self._ready:
            self._encodings = 0

    def close(self) -> None:
        """Stop waiting for company, since no sentence will arrive for now; sentences that arrive later wait again."""
        self._let_go = len(self._waiting)

    def next(self, active: int, now_s: float, longest: int = 0) -> Encode | Join | None:
        """Return the move before the next step; None: take a step, or wait if no sentence is active.

        `active`: number of active sentences; `longest`: the longest source among them, in tokens, needed with `padded_tokens`.
        A returned move counts as made. None changes nothing: asked again at the same moment, the batcher has the same answer.
        """
        batching = self.batching
        if active > batching.threshold or not self.waiting:
            return None
        free = batching.size - active
        together = batching.encoded_together or batching.size
        if len(self._ready) < free and self._encodings * together < free and self._may_begin(active, now_s):
            self._encodings += 1
            if self._sorted:
                group = self._taken(self._sorted, together, 0, 0)
            else:
                group = self._taken_by_class(together, now_s)
                self._let_go = max(self._let_go - len(group), 0)
            self._ready.extend(group)
            return Encode(tuple(sentence.request for sentence in group))
        joining = self._taken(self._ready, free, active, longest)
        if not joining:
            return None
        self._encodings = 0
        return Join(tuple(sentence.request for sentence in joining))

    def _may_begin(self, active: int, now_s: float) -> bool:
        """Return whether sentences that are not encoded yet may be taken now; collect and sort them if due."""
        if self._sorted:
            return True
        waiting, batching = self._waiting, self.batching
        if not waiting:
            return False
        # Who can join what runs, or what is ready to, does not wait for company; a collection is waited for in any case.
        joins = batching.collected is None and (active > 0 or bool(self._ready))
        if not (joins or self._full() or self._let_go or now_s >= waiting.oldest_s + batching.longest_wait_s):
            return False
        if batching.collected is not None:
            collected = [waiting.take(now_s) for _ in range(min(batching.collected, len(waiting)))]
            self._sorted.extend(sorted(collected, key=lambda sentence: sentence.src_len))
            self._let_go = max(self._let_go - len(collected), 0)
        return True

    def _full(self) -> bool:
        """Return whether the waiting sentences fill a collection, or a batch."""
        waiting, batching = self._waiting, self.batching
        if len(waiting) >= (batching.collected or batching.size):
            return True
        if batching.padded_tokens is None or batching.collected is not None:
            return False
        return max(sentence.src_len for sentence in waiting) * (len(waiting) + 1) > batching.padded_tokens

    def _taken(self, queue: deque[_WaitingSentence], most: int, active: int, longest: int) -> list[_WaitingSentence]:
        """Take the first sentences of a queue, as many as fit; at least one if none is active."""
        cap = self.batching.padded_tokens
        if cap is None:
            return [queue.popleft() for _ in range(min(most, len(queue)))]
        taken = list[_WaitingSentence]()
        while queue and len(taken) < most:
            longest = max(longest, queue[0].src_len)
            together = active + len(taken) + 1
            if longest * together > cap and together > 1:
                break
            taken.append(queue.popleft())
        return taken

    def _taken_by_class(self, most: int, now_s: float) -> list[_WaitingSentence]:
        """Take the first waiting sentences by class, as many as fit; at least one."""
        cap, waiting, longest = self.batching.padded_tokens, self._waiting, 0
        taken = list[_WaitingSentence]()
        while waiting and len(taken) < most:
            longest = max(longest, waiting.first(now_s).src_len)
            if cap is not None and taken and longest * (len(taken) + 1) > cap:
                break
            taken.append(waiting.take(now_s))
        return taken


class ModelBatcher:
    """The queues of one server of several models, each of whose batches holds sentences of one model.

    A batch begins with the model of the sentence that is served next by its class, of one class the sentence that has waited
    longest, of those that need not wait for company. It is refilled only while that sentence is of its model, so that no model
    waits for ever. Collected and encoded sentences count as those that are served next.
    """

    __slots__ = ("_batchers", "model")

    def __init__(self, batching: Batching, models: int) -> None:
        self._batchers = [batching.batcher() for _ in range(models)]
        self.model = 0
        """Of the last move."""

    @property
    def waiting(self) -> int:
        """As of `Batcher`."""
        return sum(batcher.waiting for batcher in self._batchers)

    @property
    def due_s(self) -> float:
        """As of `Batcher`."""
        return min(batcher.due_s for batcher in self._batchers)

    def arrive(self, request: int, src_len: int, now_s: float, model: int, rank: int = 0) -> None:
        """Add a sentence of a model and of a class."""
        self._batchers[model].arrive(request, src_len, now_s, rank)

    def withdraw(self, request: int) -> None:
        """Remove a sentence that has not joined, if it waits here."""
        for batcher in self._batchers:
            if not batcher.withdraw(request):
                batcher.drop_encoded((request,))

    def close(self) -> None:
        """As of `Batcher`."""
        for batcher in self._batchers:
            batcher.close()

    def next(self, active: int, now_s: float, longest: int = 0) -> Encode | Join | None:
        """Return the move before the next step, of sentences of one model; as in `Batcher`."""
        by_turn = sorted(range(len(self._batchers)), key=lambda model: self._batchers[model].turn(now_s))
        if active:
            return self._batchers[self.model].next(active, now_s, longest) if by_turn[0] == self.model else None
        for model in by_turn:
            move = self._batchers[model].next(active, now_s, longest)
            if move is not None:
                self.model = model
                return move
        return None
