"""One server that decodes sentences in batches: the batcher decides, a cost model gives the seconds."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from heapq import heappop, heappush
from math import ceil, inf, nan
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simnmt.batching import Batching, Encode
from simnmt.results.device_accounts import RunningBatchAccount


class ServerCost(Protocol):
    """The times of a server's work; `simnmt.profile.DecodingCost` is one."""

    @property
    def leave_s(self) -> float:
        """Seconds added to a step at whose end some sentences are done, which are done after it."""
        ...

    def steps_at(self, batch: int) -> Callable[[int, int], float]:
        """Return the function that gives the seconds of steps first..last, both included, of `batch` sentences; 0 if last <
        first.

        The position of a step is that of the sentence that has been active longest.
        """
        ...

    def source_s(self, batch: int, longest: int) -> float:
        """Return the seconds added to each step of `batch` sentences whose longest active source has `longest` tokens."""
        ...

    def encode_s(self, src_lens: Sequence[int]) -> float:
        """Return the seconds of encoding sentences of these lengths together."""
        ...

    def solo_s(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the seconds of sentences alone."""
        ...

    def refill_s(self, joining: int) -> float:
        """Return the seconds until `joining` encoded sentences have joined."""
        ...


StepsTake = Callable[[int, int], float]
"""Returns the seconds of steps first..last, both included, of one batch size: a closed form."""


class StepTimes:
    """The times of steps by batch size and longest source, each computed once."""

    __slots__ = ("_cost", "_of", "_source_s", "weighs_sources")

    def __init__(self, cost: ServerCost) -> None:
        self.weighs_sources = any(cost.source_s(1, longest) for longest in (1, 2))
        """True if sources matter: they add time in proportion to their tokens beyond some number."""
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

    __slots__ = ("begin_s", "entry_s", "factor", "finish_s", "first_s", "request", "src_len", "tgt_len")

    request: int
    src_len: int
    tgt_len: int
    """Steps that it takes; 0: it is done when it joins."""
    factor: float
    """By which it takes longer than usual. What several sentences do together takes the mean of their factors."""
    entry_s: float
    begin_s: float
    """When its encoding began."""
    first_s: float
    """When its first step ended; NaN without one."""
    finish_s: float
    """When it was done."""


class BatchServer:
    """The encoder and decoder of one device, which share it: nothing is decoded while sentences are encoded or join.

    The caller announces arrivals by `arrive` and calls `act` at `next_s`, which arrivals may bring forward; of one moment,
    arrivals come first. The cost is not per step: the active sentences are in a heap by the step after which each is done, and
    the server jumps from completion to completion. While no more than the threshold are active, an arrival makes it act at the
    end of the running step. A step's end is the moment of the last change plus the closed form of the steps since, never a
    running sum, so a server that takes each step has the same times to the bit. Finished sentences leave before anything else
    happens, as part of the step that ends.
    """

    def __init__(
        self,
        batching: Batching,
        cost: ServerCost,
        times: StepTimes | None = None,
        foretells: bool = False,
    ) -> None:
        """Create an idle server.

        `times`: of the same cost, shared by servers; `foretells`: see the attribute.
        """
        self.foretells = foretells
        """True if `act` may return sentences before they are done, as soon as that moment is certain: while more than the
        threshold are active no sentence can join, so these completions need no events."""
        self.next_s = inf
        """When to act next; infinity if there is nothing to do."""
        self.left = (0, 0)
        """Active and waiting sentences at the last completion."""
        self._batcher = batching.batcher()
        self._threshold = batching.threshold
        self._cost = cost
        self._leave_s = cost.leave_s
        self._times = times = StepTimes(cost) if times is None else times
        self._weighs_sources = times.weighs_sources
        self._keeps_sources = times.weighs_sources or batching.padded_tokens is not None
        self._sentences: dict[int, Sentence] = {}
        self._waiting = 0
        """Number of sentences that are neither active nor joining."""
        self._active: list[tuple[int, int]] = []
        """A heap of (step after which it is done, request)."""
        self._sources: list[tuple[int, int]] = []
        """A heap of (negative source tokens, step after which it is done), of the active and some finished sentences; empty if
        sources do not matter."""
        self._joined: deque[tuple[int, int]] = deque()
        """(Step before which sentences joined, last step of any of them), oldest first; those at the front may be done."""
        self._joining: tuple[int, ...] | None = None
        """Sentences that are joining now; empty while some are encoded, or run down."""
        self._step = 0
        """Steps taken up to the last change."""
        self._base_s = 0.0
        """Moment of the last change."""
        self._position = 0
        """Position of the first step after it."""
        self._take_s: StepsTake = _no_batch
        """Step times of the present batch."""
        self._factor, self._factor_sum = 1.0, 0.0
        """Factor of the present batch, and sum over the active sentences."""
        self._more_s = 0.0
        """Seconds that its longest source adds to each step."""
        self._to_completion = 0
        """Steps from the last change to the next completion."""
        self._until = 0
        """Steps from the last change to `next_s`; 0: no step is under way."""
        self._awaiting_first: list[Sentence] = []
        """Sentences that have joined and have not taken their first step."""
        self._waiting_tokens, self._finish_sum = 0, 0
        """Steps of the sentences that have not joined; sum of the steps after which the active ones are done."""
        self._account: RunningBatchAccount | None = RunningBatchAccount(batching.size)

    @property
    def account(self) -> RunningBatchAccount:
        """The account up to the last change."""
        assert self._account is not None
        return self._account

    @property
    def queued(self) -> int:
        """Number of sentences that wait for their encoding and are in no collection yet."""
        return self._batcher.queued

    @property
    def holds(self) -> bool:
        """True if an unfinished sentence is here."""
        return bool(self._sentences)

    def work_left(self, now_s: float) -> int:
        """Return the steps that the sentences here still take, one by one, at a moment not after `next_s`."""
        taken = self._step
        if self._until:
            # Of the steps under way, those that have ended.
            running = self._running_at(now_s)
            taken += running if self._end_s(running) <= now_s else running - 1
        return self._waiting_tokens + self._finish_sum - len(self._active) * taken

    def arrive(self, request: int, src_len: int, tgt_len: int, now_s: float, factor: float = 1.0) -> None:
        """Add a sentence, which takes `factor` times the usual; arrivals are in order of time and none is after `next_s`."""
        sentence = Sentence()
        sentence.request, sentence.src_len, sentence.tgt_len, sentence.factor = request, src_len, tgt_len, factor
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
        """Stop waiting for company, since no sentence will arrive for now."""
        self._batcher.close()
        if self._until:
            if len(self._active) <= self._threshold:
                self._look_at(now_s)
        elif self._joining is None and self._sentences:
            self.next_s = now_s

    def act(self) -> list[Sentence]:
        """Act at `next_s`, which becomes later; return the sentences that are done then.

        A server that foretells returns some sentences earlier.
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
                    self._factor_sum -= sentence.factor
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
        src_lens, factor_sum, sentences = [], 0.0, self._sentences
        for request in requests:
            sentence = sentences[request]
            sentence.begin_s = now_s
            factor_sum += sentence.factor
            src_lens.append(sentence.src_len)
        taken_s = self._cost.encode_s(src_lens) * (factor_sum / len(src_lens))
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
        """Let the joining sentences join; those without output are done."""
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
            self._factor_sum += sentence.factor
            self._awaiting_first.append(sentence)
        if last:
            self._joined.append((step, last))
        if done and first:
            self.left = len(self._active), self._waiting

    def _settle(self, now_s: float) -> None:
        """Count the steps up to now for the present batch, which changes now."""
        steps = self._until
        if self._account is not None:
            self._account.stepped(self._step, len(self._active), steps, now_s - self._base_s)
        self._step += steps
        self._until = 0

    def _go_on(self, now_s: float) -> None:
        """Schedule the steps until the next completion; a changed batch begins now."""
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
        self._factor = self._factor_sum / len(active)
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
        more_s, leave_s, weighs_sources, factor_sum = 0.0, self._leave_s, self._weighs_sources, self._factor_sum
        while len(active) > threshold:
            while joined[0][1] <= step:
                joined.popleft()
            batch, finish_step = len(active), active[0][0]
            position, steps, factor = step - joined[0][0], finish_step - step, factor_sum / batch
            take_s = times_of(batch)
            if weighs_sources:
                more_s = self._times.source_s(batch, self._longest(step))
            if self._awaiting_first:
                first_s = now_s + factor * (take_s(position, position) + more_s + (leave_s if steps == 1 else 0.0))
                for sentence in self._awaiting_first:
                    sentence.first_s = first_s
                self._awaiting_first = []
            end_s = now_s + factor * (take_s(position, position + steps - 1) + steps * more_s + leave_s)
            if account is not None:
                account.stepped(step, batch, steps, end_s - now_s)
            now_s, step = end_s, finish_step
            while active and active[0][0] == finish_step:
                sentence = sentences.pop(heappop(active)[1])
                sentence.finish_s = now_s
                done.append(sentence)
                finish_sum -= finish_step
                factor_sum -= sentence.factor
        self._step, self._finish_sum, self._factor_sum = step, finish_sum, factor_sum
        self._joining = ()
        self.next_s = now_s

    def _end_s(self, steps: int) -> float:
        """Return when `steps` steps since the last change have ended."""
        taken_s = self._take_s(self._position, self._position + steps - 1) + steps * self._more_s
        return self._base_s + self._factor * (taken_s + self._leave_s if steps == self._to_completion else taken_s)

    def _longest(self, step: int) -> int:
        """Return the tokens of the longest active source after a step; 0 if no sentence is active."""
        sources = self._sources
        while sources and sources[0][1] <= step:
            heappop(sources)
        return -sources[0][0] if sources else 0

    def _running_at(self, moment_s: float) -> int:
        """Return the step since the last change that runs at a moment: the first that ends then or later, up to `_until`."""
        most, base_s, next_s = self._until, self._base_s, self.next_s
        if most == 1 or moment_s >= next_s:
            return most
        if moment_s <= base_s:  # the only case in which steps may take no time at all
            return 1
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

    def unfinished(self, now_s: float) -> list[tuple[int, float]]:
        """Return each unfinished sentence in the order of arrival, with the begin of its encoding, or now if that has not
        begun."""
        return [(request, getattr(sentence, "begin_s", now_s)) for request, sentence in self._sentences.items()]

    def replaced(self, batching: Batching) -> BatchServer:
        """Return an idle server in its place, which goes on with its account; the steps under way count in none."""
        other = BatchServer(batching, self._cost, self._times, self.foretells)
        other._account = self._account
        return other

    def copy(self) -> BatchServer:
        """Return a server in the same state, to foresee finishes; it keeps no account."""
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
