"""One server that decodes sentences in batches: the batcher decides, a cost model gives the seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from heapq import heappop, heappush
from math import ceil, inf, nan
from typing import Protocol

from simnmt.batching import Batcher, Batching, Encode
from simnmt.results.device_accounts import RunningBatchAccount


class ServerCost(Protocol):
    """How long a server's work takes; `simnmt.profile.DecodingCost` is one."""

    @property
    def leave_s(self) -> float:
        """Seconds added to a step at whose end some are done, who are done after it."""
        ...

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        """Seconds of the steps at positions first..last, both included, of so many sentences; 0 where last < first.

        The position of a step is that of the sentence that has been active longest.
        """
        ...

    def source_s(self, batch: int, longest: int) -> float:
        """Seconds added to each step of so many sentences, of which the longest active source has so many tokens."""
        ...

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """Seconds of encoding sentences of so many tokens together."""
        ...

    def refill_s(self, joining: int) -> float:
        """Seconds until so many encoded sentences have joined."""
        ...


StepsTake = Callable[[int, int], float]
"""Seconds of the steps at positions first..last, both included, of one batch size: a closed form."""


class StepTimes:
    """What steps take by batch size and longest source, each asked for once."""

    __slots__ = ("_cost", "_of", "_source_s", "weighs_sources")

    def __init__(self, cost: ServerCost) -> None:
        self.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
        """Whether sources count at all: what they add is in proportion to their tokens beyond some number."""
        self._cost = cost
        self._of: dict[int, StepsTake] = {}
        self._source_s: dict[tuple[int, int], float] = {}

    def of(self, batch: int) -> StepsTake:
        """Return the step times of a batch of `batch` sentences, without the time that its sources add."""
        steps = self._of.get(batch)
        if steps is None:
            steps = self._of[batch] = self._cost.steps_at(batch)
        return steps

    def source_s(self, batch: int, longest: int) -> float:
        """Return the seconds that a longest source of `longest` tokens adds to each step of the batch."""
        added_s = self._source_s.get((batch, longest))
        if added_s is None:
            added_s = self._source_s[batch, longest] = self._cost.source_s(batch, longest)
        return added_s


class Sentence:
    """A sentence at a server, from its arrival to its end."""

    __slots__ = ("begin_s", "entry_s", "finish_s", "first_s", "request", "src_len", "tgt_len")

    request: int
    src_len: int
    tgt_len: int
    """Steps that it takes; 0: it is done when it joins."""
    entry_s: float
    begin_s: float
    """When its encoding began."""
    first_s: float
    """When its first step ended; NaN without one."""
    finish_s: float
    """When it was done."""


class BatchServer:
    """Encoder and decoder of one device, which share it: nothing is decoded while sentences are encoded or join.

    It is told of arrivals by `arrive` and to be called, by `act`, at `next_s`, which arrivals bring forward; of one moment,
    arrivals come first. Nothing is done per step: the sentences under way lie in a heap by the step after which each is
    done, and the server jumps from completion to completion. While no more than the threshold are under way, an arrival
    lets it look at the end of the step that is then running. A step's end is the moment of the last change plus the closed
    form of the steps since, never a sum under way, so a server that takes each step has the same times to the bit. Whoever
    is done leaves before anything else happens, which is part of the step that ends so.
    """

    def __init__(self, batching: Batching, cost: ServerCost, times: StepTimes | None = None, foretells: bool = False) -> None:
        """`times`: of the same cost, shared by servers. `foretells`: see there."""
        self.foretells = foretells
        """Whether `act` may return sentences before they are done, as soon as it is certain when that will be: while more than
        the threshold are active nobody can join, so these completions need no moment of their own."""
        self.next_s = inf
        """When something is to be done next; infinity while nothing is."""
        self.left = (0, 0)
        """Sentences that were left active and waiting when some were last done."""
        self._batcher = Batcher(batching)
        self._threshold = batching.threshold
        self._cost = cost
        self._leave_s = cost.leave_s
        self._times = times = StepTimes(cost) if times is None else times
        self._weighs_sources = times.weighs_sources
        self._keeps_sources = times.weighs_sources or batching.padded_tokens is not None
        self._sentences: dict[int, Sentence] = {}
        self._waiting = 0
        """Of those, the ones that are neither active nor joining."""
        self._active: list[tuple[int, int]] = []
        """A heap of (step after which it is done, request)."""
        self._sources: list[tuple[int, int]] = []
        """A heap of (source tokens below 0, step after which it is done), of the active and some that are done; empty where no
        source counts."""
        self._joined: deque[tuple[int, int]] = deque()
        """(Step before which some joined, last step of any of them), oldest first; those at the front may be done."""
        self._joining: tuple[int, ...] | None = None
        """Who is joining now; empty while some are encoded, or run down."""
        self._step = 0
        """Steps taken up to the last change."""
        self._base_s = 0.0
        """When that was."""
        self._position = 0
        """Of the first step after it."""
        self._take_s: StepsTake = _no_batch
        """Of the present batch."""
        self._more_s = 0.0
        """What its longest source adds to each step."""
        self._to_completion = 0
        """Its steps from the last change to the next completion."""
        self._until = 0
        """Steps from the last change to `next_s`; 0: no step is under way."""
        self._awaiting_first: list[Sentence] = []
        """Those that have joined and whose first step comes next."""
        self._waiting_tokens, self._finish_sum = 0, 0
        """The steps that those take who have not joined; the sum of the steps after which each of the active is done."""
        self._account: RunningBatchAccount | None = RunningBatchAccount(batching.size)

    @property
    def account(self) -> RunningBatchAccount:
        """What was done so far, up to the last change."""
        assert self._account is not None
        return self._account

    @property
    def queued(self) -> int:
        """Sentences that wait for their encoding and are in no collection yet."""
        return self._batcher.queued

    @property
    def holds(self) -> bool:
        """Whether a sentence is here that is not done."""
        return bool(self._sentences)

    def work_left(self, now_s: float) -> int:
        """Steps that those here still take, one by one, at a moment not after `next_s`."""
        taken = self._step
        if self._until:
            # Of the steps under way, those that have ended.
            running = self._running_at(now_s)
            taken += running if self._end_s(running) <= now_s else running - 1
        return self._waiting_tokens + self._finish_sum - len(self._active) * taken

    def arrive(self, request: int, src_len: int, tgt_len: int, now_s: float) -> None:
        """A sentence arrives; arrivals come in order of time and none after `next_s`."""
        sentence = Sentence()
        sentence.request, sentence.src_len, sentence.tgt_len = request, src_len, tgt_len
        sentence.entry_s = now_s
        self._sentences[request] = sentence
        self._waiting += 1
        self._waiting_tokens += tgt_len
        self._batcher.arrive(request, src_len, now_s)
        if self._until:
            if self._until > 1 and len(self._active) <= self._threshold:
                self._look_at(now_s)
        elif self._joining is None:
            self.next_s = now_s

    def close(self, now_s: float) -> None:
        """Nobody will arrive for now: who waits does not wait for company any longer."""
        self._batcher.close()
        if self._until:
            if len(self._active) <= self._threshold:
                self._look_at(now_s)
        elif self._joining is None and self._sentences:
            self.next_s = now_s

    def act(self) -> list[Sentence]:
        """Do what is to be done at `next_s`, which becomes later; returns the sentences that are done then.

        One who foretells returns some before.
        """
        now_s, active = self.next_s, self._active
        done: list[Sentence] = []
        if self._until:
            finish_step = self._step + self._until
            if active[0][0] == finish_step:
                self._settle(now_s)
                sentences = self._sentences
                while active and active[0][0] == finish_step:
                    sentence = sentences.pop(heappop(active)[1])
                    sentence.finish_s = now_s
                    done.append(sentence)
                self._finish_sum -= finish_step * len(done)
                self.left = len(active), self._waiting
        elif self._joining is not None:
            self._join(now_s, done)
        while True:
            if not self._waiting or len(active) > self._threshold:
                # What the batcher would say as well, at ten times the cost.
                if not active:
                    self.next_s = inf
                elif self.foretells and len(active) > self._threshold:
                    self._run_down(now_s, done)
                else:
                    self._go_on(now_s)
                return done
            longest = self._longest(self._step) if self._keeps_sources else 0
            move = self._batcher.next(len(active), now_s, longest)
            if move is None:
                due_s = self._batcher.due_s
                if not active:
                    self.next_s = due_s
                    return done
                self._go_on(now_s)
                if now_s < due_s < self.next_s:
                    self._look_at(due_s)
                return done
            if self._until:
                self._settle(now_s)
            if isinstance(move, Encode):
                self._encode(move.requests, now_s)
            else:
                self._begin_joining(move.requests, now_s)
            if self.next_s > now_s:
                return done
            self._join(now_s, done)

    def _encode(self, requests: tuple[int, ...], now_s: float) -> None:
        src_lens, sentences = [], self._sentences
        for request in requests:
            sentence = sentences[request]
            sentence.begin_s = now_s
            src_lens.append(sentence.src_len)
        taken_s = self._cost.encode_s(src_lens)
        if self._account is not None:
            self._account.encoded(src_lens, taken_s)
        self._joining = ()
        self.next_s = now_s + taken_s

    def _begin_joining(self, requests: tuple[int, ...], now_s: float) -> None:
        taken_s = self._cost.refill_s(len(requests))
        if self._account is not None:
            self._account.refilled(len(requests), taken_s)
        self._waiting -= len(requests)
        self._joining = requests
        self.next_s = now_s + taken_s

    def _join(self, now_s: float, done: list[Sentence]) -> None:
        """Those who were joining have joined; whoever has no output is done."""
        joining, step, last, first = self._joining, self._step, 0, not done
        self._joining = None
        if not joining:
            return
        for request in joining:
            sentence = self._sentences[request]
            tgt_len = sentence.tgt_len
            if not tgt_len:
                sentence.first_s, sentence.finish_s = nan, now_s
                done.append(self._sentences.pop(request))
                continue
            finish_step = step + tgt_len
            heappush(self._active, (finish_step, request))
            if self._keeps_sources:
                heappush(self._sources, (-sentence.src_len, finish_step))
            if finish_step > last:
                last = finish_step
            self._waiting_tokens -= tgt_len
            self._finish_sum += finish_step
            self._awaiting_first.append(sentence)
        if last:
            self._joined.append((step, last))
        if done and first:
            self.left = len(self._active), self._waiting

    def _settle(self, now_s: float) -> None:
        """The steps up to now have been taken by the present batch, which changes now."""
        steps = self._until
        if self._account is not None:
            self._account.stepped(self._step, len(self._active), steps, now_s - self._base_s)
        self._step += steps
        self._until = 0

    def _go_on(self, now_s: float) -> None:
        """Step until the next completion; where the batch has changed, from now on as it is."""
        active = self._active
        if self._until:
            self._until = active[0][0] - self._step
            self.next_s = self._end_s(self._until)
            return
        joined, step = self._joined, self._step
        while joined[0][1] <= step:
            joined.popleft()
        self._position = step - joined[0][0]
        self._until = self._to_completion = active[0][0] - step
        self._take_s = self._times.of(len(active))
        if self._weighs_sources:
            self._more_s = self._times.source_s(len(active), self._longest(step))
        self._base_s = now_s
        self.next_s = self._end_s(self._until)
        if self._awaiting_first:
            first_s = self._end_s(1)
            for sentence in self._awaiting_first:
                sentence.first_s = first_s
            self._awaiting_first = []

    def _run_down(self, now_s: float, done: list[Sentence]) -> None:
        """Step until no more than the threshold are active, all at once; then the batcher is asked."""
        active, sentences, joined, step, threshold = self._active, self._sentences, self._joined, self._step, self._threshold
        times_of, account, finish_sum = self._times.of, self._account, self._finish_sum
        more_s, leave_s, weighs_sources = 0.0, self._leave_s, self._weighs_sources
        while len(active) > threshold:
            while joined[0][1] <= step:
                joined.popleft()
            batch, finish_step = len(active), active[0][0]
            position, steps = step - joined[0][0], finish_step - step
            take_s = times_of(batch)
            if weighs_sources:
                more_s = self._times.source_s(batch, self._longest(step))
            if self._awaiting_first:
                first_s = now_s + (take_s(position, position) + more_s + (leave_s if steps == 1 else 0.0))
                for sentence in self._awaiting_first:
                    sentence.first_s = first_s
                self._awaiting_first = []
            end_s = now_s + (take_s(position, position + steps - 1) + steps * more_s + leave_s)
            if account is not None:
                account.stepped(step, batch, steps, end_s - now_s)
            now_s, step = end_s, finish_step
            while active and active[0][0] == finish_step:
                sentence = sentences.pop(heappop(active)[1])
                sentence.finish_s = now_s
                done.append(sentence)
                finish_sum -= finish_step
        self._step, self._finish_sum = step, finish_sum
        self._joining = ()
        self.next_s = now_s

    def _end_s(self, steps: int) -> float:
        """When so many steps since the last change have ended."""
        taken_s = self._take_s(self._position, self._position + steps - 1) + steps * self._more_s
        return self._base_s + (taken_s + self._leave_s if steps == self._to_completion else taken_s)

    def _longest(self, step: int) -> int:
        """Tokens of the longest source that is active after so many steps; 0 where nobody is."""
        sources = self._sources
        while sources and sources[0][1] <= step:
            heappop(sources)
        return -sources[0][0] if sources else 0

    def _running_at(self, moment_s: float) -> int:
        """The step since the last change that runs at a moment: the first that ends then or later, up to `_until`."""
        most, base_s, next_s = self._until, self._base_s, self.next_s
        if most == 1 or moment_s >= next_s:
            return most
        # Steps are about equally long, so that which runs is seldom another than this.
        steps = max(ceil((moment_s - base_s) / (next_s - base_s) * most), 1)
        if self._end_s(steps) >= moment_s and (steps == 1 or self._end_s(steps - 1) < moment_s):
            return steps
        return 1 + bisect_left(range(1, most), moment_s, key=self._end_s)

    def _look_at(self, moment_s: float) -> None:
        """Act at the end of the step that runs at a moment, unless sooner."""
        steps = self._running_at(moment_s)
        if steps < self._until:
            self._until = steps
            self.next_s = self._end_s(steps)

    def copy(self) -> BatchServer:
        """A server in the same state, for asking what would happen; it keeps no account."""
        other = copy(self)
        other._batcher = self._batcher.copy()
        # Of a sentence that is held only times are set that nobody asks a guess for.
        other._sentences = self._sentences.copy()
        other._active, other._joined, other._sources = self._active.copy(), self._joined.copy(), self._sources.copy()
        other._awaiting_first = []
        other._account = None
        return other


def _no_batch(first: int, last: int) -> float:
    raise AssertionError("no batch has set out")
