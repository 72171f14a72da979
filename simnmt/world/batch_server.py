"""One server that decodes sentences together, as time goes by: the batcher decides, a cost model says how long it takes."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from heapq import heappop, heappush
from math import inf, nan
from typing import Protocol

from simnmt.batching import Batcher, Batching, Encode
from simnmt.world.running_account import RunningAccount

StepsTake = Callable[[int, int], float]
"""Seconds of the decode steps at positions first..last, both included, of one batch size."""


class ServerCost(Protocol):
    """How long a server's work takes; `simnmt.costs.DecodingCost` is one."""

    def steps_at(self, batch: int) -> StepsTake:
        """The steps of so many sentences; the position of a step is that of the sentence that has been active longest."""
        ...

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """Seconds of encoding sentences of so many tokens together."""
        ...

    def refill_s(self, joining: int) -> float:
        """Seconds until so many encoded sentences have joined."""
        ...


class Held:
    """A sentence at a server, from its arrival to its end."""

    __slots__ = ("begin_s", "entry_s", "first_s", "request", "src_len", "tgt_len")

    def __init__(self, request: int, src_len: int, tgt_len: int, entry_s: float) -> None:
        self.request = request
        self.src_len = src_len
        self.tgt_len = tgt_len
        """Steps that it takes; 0: it is done when it joins."""
        self.entry_s = entry_s
        self.begin_s = nan
        """When its encoding began."""
        self.first_s = nan
        """When its first step ended; NaN without one."""

    def copy(self) -> Held:
        """The same, for a guess."""
        other = Held(self.request, self.src_len, self.tgt_len, self.entry_s)
        other.begin_s, other.first_s = self.begin_s, self.first_s
        return other


class BatchServer:
    """Encoder and decoder of one device, which share it: nothing is decoded while sentences are encoded or join.

    It is told of arrivals by `arrive` and to be called, by `act`, at `next_s`, which arrivals bring forward; of one moment,
    arrivals come first. Nothing is done per step: the sentences under way lie in a heap by the step after which each is
    done, and the server jumps from completion to completion. While no more than the threshold are under way, an arrival
    lets it look at the end of the step that is then running. A step's end is the moment of the last change plus the closed
    form of the steps since, never a sum under way, so a server that takes each step has the same times to the bit.
    """

    __slots__ = (
        "_account",
        "_active",
        "_base_s",
        "_batcher",
        "_cost",
        "_finish_sum",
        "_held",
        "_joined",
        "_joining",
        "_position",
        "_step",
        "_steps_take",
        "_take_s",
        "_threshold",
        "_to_come",
        "_until",
        "_waiting_tokens",
        "next_s",
        "seen",
    )

    def __init__(self, batching: Batching, cost: ServerCost, steps_take: dict[int, StepsTake] | None = None) -> None:
        """`steps_take`: what is known of `cost.steps_at` already, shared by servers of one cost."""
        self.next_s = inf
        """When something is to be done next; infinity while nothing is."""
        self.seen = (0, 0)
        """Sentences active and waiting when sentences were last done, these not counted."""
        self._batcher = Batcher(batching)
        self._threshold = batching.threshold
        self._cost = cost
        self._steps_take = {} if steps_take is None else steps_take
        self._held: dict[int, Held] = {}
        self._active: list[tuple[int, int]] = []
        """A heap of (step after which it is done, request)."""
        self._joined: deque[tuple[int, int]] = deque()
        """(Step before which some joined, last step of any of them), oldest first; those at the front may be done."""
        self._joining: tuple[int, ...] | None = None
        """Who is joining now."""
        self._step = 0
        """Steps taken up to the last change."""
        self._base_s = 0.0
        """When that was."""
        self._position = 0
        """Of the first step after it."""
        self._take_s: StepsTake = _nothing
        """Of the present batch."""
        self._until = 0
        """Steps from the last change to `next_s`; 0: no step is under way."""
        self._to_come: list[Held] = []
        """Those that have joined and whose first step comes next."""
        self._waiting_tokens, self._finish_sum = 0, 0
        """The steps that those take who have not joined; the sum of the steps after which each of the active is done."""
        self._account: RunningAccount | None = RunningAccount(batching.size)

    @property
    def account(self) -> RunningAccount:
        """What was done so far, up to the last change."""
        assert self._account is not None
        return self._account

    @property
    def holds(self) -> bool:
        """Whether a sentence is here that is not done."""
        return bool(self._held)

    def tokens_left(self, now_s: float) -> int:
        """Steps that those here still take, one by one, at a moment not after `next_s`."""
        taken = self._step
        if self._until:
            # The steps that have ended.
            ended = bisect_left(range(1, self._until + 1), True, key=lambda steps: self._end_s(steps) > now_s)
            taken += ended
        return self._waiting_tokens + self._finish_sum - len(self._active) * taken

    def arrive(self, request: int, src_len: int, tgt_len: int, now_s: float) -> None:
        """A sentence arrives; arrivals come in order of time and none after `next_s`."""
        self._held[request] = Held(request, src_len, tgt_len, now_s)
        self._waiting_tokens += tgt_len
        self._batcher.arrive(request, src_len, now_s)
        if self._until:
            if len(self._active) <= self._threshold:
                self._look_at(now_s)
        elif self._joining is None:
            self.next_s = now_s

    def close(self, now_s: float) -> None:
        """Nothing more will arrive: nothing waits for company any longer."""
        self._batcher.close()
        if self._until:
            if len(self._active) <= self._threshold:
                self._look_at(now_s)
        elif self._joining is None and self._held:
            self.next_s = now_s

    def act(self) -> list[Held]:
        """Do what is to be done at `next_s`, which becomes later; returns the sentences that are done then."""
        now_s, active = self.next_s, self._active
        done: list[Held] = []
        if self._until:
            finish_step = self._step + self._until
            if active[0][0] == finish_step:
                self._settle(now_s)
                while active and active[0][0] == finish_step:
                    done.append(self._held.pop(heappop(active)[1]))
                self._finish_sum -= finish_step * len(done)
                self.seen = len(active), self._batcher.waiting
                if len(active) > self._threshold:
                    self._set_out(now_s)
                    return done
        elif self._joining is not None:
            self._join(done)
        self._ask(now_s, done)
        return done

    def _ask(self, now_s: float, done: list[Held]) -> None:
        """Do what the batcher says until that takes time."""
        batcher, held, capped = self._batcher, self._held, self._batcher.batching.padded_tokens is not None
        while True:
            active = self._active
            longest = max((held[request].src_len for _, request in active), default=0) if capped else 0
            move = batcher.next(len(active), now_s, longest)
            if move is None:
                if active:
                    self._go_on(now_s)
                else:
                    self.next_s = batcher.due_s
                return
            if self._until:
                self._settle(now_s)
            if isinstance(move, Encode):
                src_lens = []
                for request in move.requests:
                    sentence = held[request]
                    sentence.begin_s = now_s
                    src_lens.append(sentence.src_len)
                taken_s = self._cost.encode_s(src_lens)
                if self._account is not None:
                    self._account.encoded(src_lens, taken_s)
                self._joining = ()
            else:
                taken_s = self._cost.refill_s(len(move.requests))
                if self._account is not None:
                    self._account.refilled(len(move.requests), taken_s)
                self._joining = move.requests
            self.next_s = now_s + taken_s
            if self.next_s > now_s:
                return
            self._join(done)

    def _join(self, done: list[Held]) -> None:
        """Those who were joining have joined; whoever has no output is done."""
        joining, step, last = self._joining, self._step, 0
        self._joining = None
        if not joining:
            return
        for request in joining:
            sentence = self._held[request]
            if not sentence.tgt_len:
                done.append(self._held.pop(request))
                continue
            finish_step = step + sentence.tgt_len
            heappush(self._active, (finish_step, request))
            last = max(last, finish_step)
            self._waiting_tokens -= sentence.tgt_len
            self._finish_sum += finish_step
            self._to_come.append(sentence)
        if last:
            self._joined.append((step, last))
        if done:
            self.seen = len(self._active), self._batcher.waiting

    def _settle(self, now_s: float) -> None:
        """The steps up to now have been taken by the present batch, which changes now."""
        steps = self._until
        if self._account is not None:
            self._account.stepped(self._step, len(self._active), steps, now_s - self._base_s)
        self._step += steps
        self._until = 0

    def _go_on(self, now_s: float) -> None:
        """Step until the next completion, or until whoever waits has waited long enough; the batch may have changed."""
        if not self._until:
            self._set_out(now_s)
        else:
            self._until = self._active[0][0] - self._step
            self.next_s = self._end_s(self._until)
        due_s = self._batcher.due_s
        if now_s < due_s < self.next_s and len(self._active) <= self._threshold:
            self._look_at(due_s)

    def _set_out(self, now_s: float) -> None:
        """From now on the present batch steps."""
        active, joined, step = self._active, self._joined, self._step
        while joined[0][1] <= step:
            joined.popleft()
        batch = len(active)
        take_s = self._steps_take.get(batch)
        if take_s is None:
            take_s = self._steps_take[batch] = self._cost.steps_at(batch)
        self._take_s = take_s
        self._base_s = now_s
        position = self._position = step - joined[0][0]
        self._until = until = active[0][0] - step
        self.next_s = now_s + take_s(position, position + until - 1)
        if self._to_come:
            first_s = now_s + take_s(position, position)
            for sentence in self._to_come:
                sentence.first_s = first_s
            self._to_come = []

    def _end_s(self, steps: int) -> float:
        """When so many steps since the last change have ended."""
        return self._base_s + self._take_s(self._position, self._position + steps - 1)

    def _look_at(self, moment_s: float) -> None:
        """Act at the end of the step that runs at a moment, unless sooner."""
        steps = 1 + bisect_left(range(1, self._until), moment_s, key=self._end_s)
        if steps < self._until:
            self._until = steps
            self.next_s = self._end_s(steps)

    def copy(self) -> BatchServer:
        """A server in the same state, for asking what would happen; it keeps no account."""
        other = BatchServer.__new__(BatchServer)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._batcher = _copied(self._batcher)
        other._held = {request: sentence.copy() for request, sentence in self._held.items()}
        other._active, other._joined = self._active.copy(), self._joined.copy()
        other._to_come = [other._held[sentence.request] for sentence in self._to_come]
        other._account = None
        return other


def _copied(batcher: Batcher) -> Batcher:
    other = copy(batcher)
    other._waiting, other._sorted, other._ready = batcher._waiting.copy(), batcher._sorted.copy(), batcher._ready.copy()
    return other


def _nothing(first: int, last: int) -> float:
    raise AssertionError("no batch has set out")
