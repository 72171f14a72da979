"""Boxes that decode sentences in batches: the batcher decides what happens next, a cost model gives the seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import inf, nan
from typing import ClassVar

import numpy as np
import simpy
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.base.arrays import Floats
from simnmt.batching import Batching, Encode
from simnmt.batching.batcher import ModelBatcher
from simnmt.devices.device import (
    BATCH_ACTS,
    Arrival,
    Balancer,
    ByNode,
    Clock,
    Device,
    Execution,
    Kind,
    Process,
    WaitingRoom,
    numbers,
    ranks_of,
)
from simnmt.devices.failures import AvailableBoxes, BoxFailures
from simnmt.devices.models import Loads, Models
from simnmt.network.outages import DownTimes
from simnmt.profile.cost import DecodingCost
from simnmt.results.columns import Array, Recorder
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Block


@dataclass(frozen=True, slots=True)
class Batched:
    """Boxes that decode sentences together, as their batcher says."""

    batching: Batching
    cost: DecodingCost
    varies: bool = False
    """True if sentences of the same lengths take different times: in batches too, a request takes its seconds of execution
    over the usual ones, `cost.solo_s`."""
    boxes: int = 1
    balancer: Balancer = field(default_factory=ByNode)
    failures: Sequence[DownTimes] | None = None
    """By box, when it is down; the requests in it are then lost."""
    models: Models | None = None
    """Given if boxes have several models; a batch holds sentences of one."""
    costs: tuple[DecodingCost, ...] = ()
    """By model, in place of `cost`."""
    max_waiting: int | None = None
    """Sentences that may wait at each box to be encoded; it refuses further ones. None: any number."""
    ends_together: bool = False
    """True if the answers of a batch are sent when its last sentence is done, as by an engine that decodes it in one call."""

    name: ClassVar[str] = "batch"
    needs_tgt_len: ClassVar[bool] = True
    reports_at_end: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if len(self.costs) != (models := 0 if self.models is None else len(self.models.size_bytes)):
            raise ValueError(f"{len(self.costs)} costs of {models} models")

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> Batched:
        """Return the boxes of a device with these settings."""
        assert isinstance(settings, Batched)
        return settings.of(boxes, balancer)

    def of(self, boxes: int, balancer: Balancer | None = None) -> Self:
        """Return so many boxes behind a balancer."""
        return replace(self, boxes=boxes, balancer=balancer or ByNode())

    @property
    def records(self) -> frozenset[str]:
        """Optional columns that its devices fill."""
        of_models = frozenset[str]() if self.models is None else self.models.records
        return frozenset({"execution_s", "first_token_s"}) | of_models

    @property
    def full_step_s(self) -> float:
        """Seconds of a step of a full batch for each sentence in it, the mean over models: by these an oracle counts the steps
        left at a box."""
        costs, size = self.costs or (self.cost,), self.batching.size
        return sum(cost.steps_at(size)(0, 0) for cost in costs) / len(costs) / size

    def factors(
        self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64], execution_s: Floats, workload: Array | None = None
    ) -> Floats | None:
        """Return by how much each request takes longer than usual; None if requests do not vary. `workload`: for models."""
        if not self.varies:
            return None
        usual_s: Floats
        if self.models is None:
            usual_s = self.cost.solo_s(src_len, tgt_len)
        else:
            of_requests = self.models.of_requests(workload, len(execution_s))
            usual_s = np.empty(len(execution_s))
            for model, cost in enumerate(self.costs):
                rows = np.flatnonzero(of_requests == model)
                usual_s[rows] = cost.solo_s(src_len[rows], tgt_len[rows])
        return np.divide(execution_s, usual_s, out=np.ones(len(usual_s)), where=usual_s > 0.0)

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> BatchDevice:
        """Return the idle boxes of one run."""
        return BatchDevice(self, clock, target, requests, trail, first_box)


@dataclass(slots=True, eq=False)
class Sentence:
    """A request at a box that batches."""

    execution: Execution
    src_len: int
    tgt_len: int
    """Steps that it takes; 0: it is done when it joins."""
    factor: float
    """By which it takes longer than usual. What several sentences do together takes the mean of their factors."""
    joined_step: int = -1
    """Steps of the box before it joined; below 0 until then."""
    first_s: float = nan
    """When its first step ended."""
    model: int = 0
    rank: int = 0
    """Of its class."""

    @property
    def finish_step(self) -> int:
        """The step of the box after which it is done."""
        return self.joined_step + self.tgt_len


class BatchBox:
    """One box, whose encoder and decoder share it: nothing is decoded while sentences are encoded or join.

    The batcher is asked when a sentence arrives or is done, and when one has waited for long enough. A step ends at the moment
    of the last change of the batch plus the closed form of the steps since, never a running sum. Of one moment, the box acts
    after all requests have arrived.
    """

    idle_since_s = 0.0

    def __init__(self, clock: Clock, kind: Batched, number: int, leaves: Callable[[Sentence], None]) -> None:
        """`number`: among all boxes on the clock; `leaves`: called with each sentence that is done."""
        self.account = BatchAccount.empty(kind.batching.size)
        self._clock, self._number, self._leaves, self._batching = clock, number, leaves, kind.batching
        self._ends_together = kind.ends_together
        self._costs = [
            (cost, cache(cost.steps_at), any(cost.source_s(1, longest) for longest in (1, 2)))
            for cost in kind.costs or (kind.cost,)
        ]
        self._cost, self._steps_at, self._weighs_sources = self._costs[0]
        self._begin_empty()
        self._process = clock.process(self._run())

    def _begin_empty(self) -> None:
        self._batcher = ModelBatcher(self._batching, len(self._costs))
        self._sentences: dict[int, Sentence] = {}
        self._active: list[Sentence] = []
        self._step, self._since = 0, 0
        """Steps taken, and those since the last change of the batch."""
        self._changed = True
        self._asks_from_s = -inf
        """When the batcher is asked again: what it said last holds until then."""
        self._step_ends_s = inf
        self._ended: list[Sentence] = []
        """Sentences of the batch that are done, if all are answered at its end."""
        self._left: tuple[int, int] | None = None
        """Active and waiting sentences at the first completion of the present moment."""
        self._arrived = self._clock.event()

    @property
    def holds(self) -> bool:
        """True if an unfinished sentence is here."""
        return bool(self._sentences)

    def arrive(self, sentence: Sentence) -> None:
        """Add a sentence."""
        request, now_s = sentence.execution.request, self._clock.now
        self._sentences[request] = sentence
        self._batcher.arrive(request, sentence.src_len, now_s, sentence.model, sentence.rank)
        self._wake()

    def close(self) -> None:
        """Stop waiting for company, since no sentence will arrive for now."""
        self._batcher.close()
        self._wake()

    def fail(self) -> list[Sentence]:
        """Become empty and idle; return the sentences that were here, in the order of arrival. Steps under way do not count."""
        sentences = list(self._sentences.values())
        self._process.interrupt()
        return sentences

    def _wake(self) -> None:
        self._asks_from_s = -inf
        if not self._arrived.triggered:
            self._arrived.succeed()

    def work_left(self, now_s: float) -> int:
        """Return the steps that the sentences here still take, one by one."""
        taken = self._step + (self._step_ends_s <= now_s)
        waiting = sum(sentence.tgt_len for sentence in self._sentences.values() if sentence.joined_step < 0)
        return waiting + sum(sentence.finish_step - taken for sentence in self._active)

    def _run(self) -> Process:
        while True:
            try:
                while True:
                    yield from self._next()
            except simpy.Interrupt:  # noqa: PERF203  # the box has failed
                self._begin_empty()

    def _next(self) -> Process:
        """Do what the batcher says, or take a step, or wait."""
        active, batcher = self._active, self._batcher
        move, now_s = None, self._clock.now
        if batcher.waiting and len(active) <= self._batching.threshold and now_s >= self._asks_from_s:
            longest = max((sentence.src_len for sentence in active), default=0)
            move = batcher.next(len(active), now_s, longest)
            self._asks_from_s = -inf if move is not None or not active else batcher.due_s if batcher.due_s > now_s else inf
            if move is not None and not active:
                self._cost, self._steps_at, self._weighs_sources = self._costs[batcher.model]
        if isinstance(move, Encode):
            yield from self._encode([self._sentences[request] for request in move.requests])
        elif move is not None:
            yield from self._join([self._sentences[request] for request in move.requests])
        elif active:
            yield from self._take_step()
        else:
            yield from self._wait(batcher.due_s if batcher.waiting else inf)

    def _until(self, moment_s: float) -> Process:
        if moment_s > self._clock.now:
            self._left = None
            yield self._clock.moment(moment_s, BATCH_ACTS, self._number)

    def _wait(self, due_s: float) -> Process:
        """Wait for a sentence, or until the oldest one has waited for long enough."""
        clock = self._clock
        self._arrived, self._left = clock.event(), None
        if due_s < inf:
            yield self._arrived | clock.moment(due_s, BATCH_ACTS, self._number)
        else:
            yield self._arrived
        yield clock.moment(clock.now, BATCH_ACTS, self._number)

    def _encode(self, sentences: list[Sentence]) -> Process:
        now_s, src_lens = self._clock.now, [sentence.src_len for sentence in sentences]
        for sentence in sentences:
            sentence.execution.begin(now_s)
        taken_s = self._cost.encode_s(src_lens) * _mean_factor(sentences)
        self.account.encoded(src_lens, taken_s)
        self._changed = True
        yield from self._until(now_s + taken_s)

    def _join(self, sentences: list[Sentence]) -> Process:
        taken_s = self._cost.refill_s(len(sentences))
        self.account.refilled(len(sentences), taken_s)
        self._changed = True
        yield from self._until(self._clock.now + taken_s)
        for sentence in sentences:
            sentence.joined_step = self._step
        self._active += [sentence for sentence in sentences if sentence.tgt_len]
        self._leave([sentence for sentence in sentences if not sentence.tgt_len])

    def _take_step(self) -> Process:
        active, clock = self._active, self._clock
        if self._changed:
            self._changed, self._since, self._base_s = False, 0, clock.now
            self._position = self._step - min(sentence.joined_step for sentence in active)
            self._take_s, self._factor = self._steps_at(len(active)), _mean_factor(active)
            longest = max(sentence.src_len for sentence in active)
            self._more_s = self._cost.source_s(len(active), longest) if self._weighs_sources else 0.0
        self._since += 1
        done = [sentence for sentence in active if sentence.finish_step == self._step + 1]
        taken_s = self._take_s(self._position, self._position + self._since - 1) + self._since * self._more_s
        begin_s, self._step_ends_s = clock.now, self._base_s + self._factor * (taken_s + self._cost.leave_s * bool(done))
        self._left = None
        yield clock.moment(self._step_ends_s, BATCH_ACTS, self._number)
        self.account.stepped(len(active), clock.now - begin_s)
        for sentence in active:
            if sentence.joined_step == self._step:
                sentence.first_s = clock.now
        self._step, self._step_ends_s = self._step + 1, inf
        self._active = [sentence for sentence in active if sentence.finish_step > self._step]
        self._changed = bool(done)
        self._leave(sorted(done, key=lambda sentence: sentence.execution.request))

    def _leave(self, done: list[Sentence]) -> None:
        """Send the answers of sentences; they report how many were left in the batch, and wait."""
        if done:
            self._asks_from_s = -inf
        if self._ends_together:
            self._ended += done
            done = [] if self._active else self._ended
            self._ended = self._ended if self._active else []
        if done and self._left is None:
            self._left = len(self._active), self._batcher.waiting
        for sentence in done:
            del self._sentences[sentence.execution.request]
            sentence.execution.report = self._left
            self._leaves(sentence)


def _mean_factor(sentences: Sequence[Sentence]) -> float:
    return sum(sentence.factor for sentence in sentences) / len(sentences)


class BatchDevice(Device):
    """The boxes of one target."""

    def __init__(self, kind: Batched, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> None:
        assert requests.tgt_len is not None
        self._clock, self._trail, self._balancer, self._full_step_s = clock, trail, kind.balancer.copy(), kind.full_step_s
        self._src_len, self._tgt_len = numbers(requests.src_len), numbers(requests.tgt_len)
        factors = kind.factors(requests.src_len, requests.tgt_len, requests.execution_s[target], requests.model)
        self._factor = None if factors is None else numbers(factors)
        self.boxes: Sequence[BatchBox] = [
            BatchBox(clock, kind, first_box + number, self._leaves) for number in range(kind.boxes)
        ]
        models, self._loads = kind.models, None
        self._model = [] if models is None else numbers(models.of_requests(requests.model, len(requests)))
        self._rank = ranks_of(requests, len(kind.batching.max_wait_s))
        if models is not None and models.loads:
            self._loads = Loads(clock, models, requests, trail, kind.boxes, first_box)
        self.room = None if kind.max_waiting is None else WaitingRoom(kind.boxes, kind.max_waiting)
        self._failures = BoxFailures(clock, kind.failures, lambda box: [one.execution for one in self.boxes[box].fail()])
        if kind.failures is not None:
            self._balancer = AvailableBoxes(self._balancer, kind.failures)

    def enter(self, execution: Execution) -> None:
        """Let a request wait at a box, or refuse it."""
        request = execution.request
        execution.box = self._balancer.choose(self.boxes, execution.entry_s, request, execution.node)
        if self.room is not None and not self.room.admits(execution):
            return
        if self._loads is None:
            self._arrive(execution)
        else:
            self._clock.process(self._load(execution, self._loads))

    def _load(self, execution: Execution, loads: Loads) -> Process:
        yield from loads.load(execution)
        self._arrive(execution)

    def _arrive(self, execution: Execution) -> None:
        request = execution.request
        if not self._failures.admits(execution):
            return
        factor = 1.0 if self._factor is None else self._factor[request]
        model = self._model[request] if self._model else 0
        rank = 0 if self._rank is None else self._rank[request]
        sentence = Sentence(execution, self._src_len[request], self._tgt_len[request], factor, model=model, rank=rank)
        self.boxes[execution.box].arrive(sentence)

    def _leaves(self, sentence: Sentence) -> None:
        execution, now_s = sentence.execution, self._clock.now
        self._trail["execution_s"][execution.request] = now_s - execution.begin_s
        self._trail["first_token_s"][execution.request] = sentence.first_s - execution.entry_s
        execution.end(now_s)
        if self._loads is not None:
            self._loads.ended(execution)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the seconds in which a full batch would take the steps that are left now at the box of the last arrival.

        No number is exact: later arrivals join its batch.
        """
        (_, request, node), now_s = arrivals[-1], self._clock.now
        box = self._balancer.copy().choose(self.boxes, now_s, request, node)
        wait_s = self.boxes[box].work_left(now_s) * self._full_step_s
        return wait_s if self._loads is None else max(wait_s, self._loads.left_s(request, box))

    def work_of(self, execution: Execution) -> float:
        """Return the steps of a request and one for its encoding; 0 if it was not done."""
        return self._tgt_len[execution.request] + 1.0 if execution.ended.value else 0.0

    def close(self) -> bool:
        """Stop waiting for company, since no event is left; return whether a sentence was waiting."""
        holding = [box for box in self.boxes if box.holds]
        for box in holding:
            box.close()
        return bool(holding)

    def account(self) -> BatchAccount:
        """Return the account of all boxes."""
        first, *others = (box.account for box in self.boxes)
        return first.merged(others)
