"""Boxes that decode in slots, as llama-server does: the batcher says what an iteration does, a cost model its seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import ClassVar

import simpy
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.batching.slots import SlotBatcher, SlotLimits
from simnmt.devices.device import (
    BATCH_ACTS,
    COMPLETES,
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
)
from simnmt.devices.failures import AvailableBoxes, BoxFailures
from simnmt.network.outages import DownTimes
from simnmt.profile.blocks import Count, Length
from simnmt.profile.slots_block import SlotsBlock, SlotsCost, TokenCount
from simnmt.results.columns import Array, Recorder
from simnmt.results.device_accounts import BatchAccount
from simnmt.results.requests import Block


class SlotsConfiguration(Configuration):
    """Limits of an engine with slots, each in place of that of its profile's block `slots`."""

    slots: Count | None = None
    """Most requests that a box decodes together; up to those that the profile was measured with."""
    chunk: Count | None = None
    """Most tokens of an iteration, those of prompts and those that it decodes."""
    context: Count | None = None
    """Most tokens of a prompt and its output together; longer requests are refused."""
    cached_prefix: Length | None = None
    """First tokens of every prompt, which are read once and kept."""

    def limits(self, block: SlotsBlock) -> SlotLimits:
        """Return the limits of a device with a profile's block. Raises `ValueError`."""
        names = ("slots", "chunk", "context", "cached_prefix")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        if (slots := given.get("slots", 1)) > block.slots:
            raise ValueError(f"{slots} slots, but the profile has steps of up to {block.slots}")
        return SlotLimits(**{name: getattr(block, name) for name in names} | given)


@dataclass(frozen=True, slots=True)
class Slots:
    """Boxes that read prompts and decode tokens in iterations, some requests together."""

    limits: SlotLimits
    cost: SlotsCost
    prompt: TokenCount = field(default_factory=TokenCount)
    """Tokens of a prompt by source length."""
    output: TokenCount = field(default_factory=TokenCount)
    """Tokens of an output by target length."""
    boxes: int = 1
    balancer: Balancer = field(default_factory=ByNode)
    failures: Sequence[DownTimes] | None = None
    """By box, when it is down; the requests in it are then lost."""
    max_waiting: int | None = None
    """Requests that may wait for a slot at each box; it refuses further ones. None: any number."""

    name: ClassVar[str] = "slots"
    needs_tgt_len: ClassVar[bool] = True
    reports_at_end: ClassVar[bool] = True
    records: ClassVar[frozenset[str]] = frozenset({"execution_s", "first_token_s"})

    def __post_init__(self) -> None:
        if len(self.cost.step_s) <= self.limits.slots:
            raise ValueError(f"{len(self.cost.step_s)} costs of steps for {self.limits.slots} slots")

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> Slots:
        """Return the boxes of a device with these settings."""
        assert isinstance(settings, Slots)
        return replace(settings, boxes=boxes, balancer=balancer)

    @property
    def refuses_long(self) -> bool:
        """True if requests that exceed the context of a slot are refused."""
        return self.limits.context is not None

    @property
    def full_step_s(self) -> float:
        """Seconds of an iteration of full slots for each of them: by these an oracle counts the tokens left at a box."""
        return self.cost.step_s[self.limits.slots] / self.limits.slots

    def without_context(self) -> Self:
        """Return the boxes without a limit of context."""
        return replace(self, limits=replace(self.limits, context=None))

    def tokens(self, src_len: Array, tgt_len: Array) -> tuple[NDArray, NDArray]:  # type: ignore[type-arg]
        """Return the tokens of prompts and of outputs."""
        return self.prompt.tokens(src_len), self.output.tokens(tgt_len)

    def solo_s(self, src_len: Array, tgt_len: Array) -> Floats:
        """Return the seconds of requests alone."""
        return self.cost.solo_s(*self.tokens(src_len, tgt_len), self.limits.chunk, self.limits.cached_prefix)

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> SlotsDevice:
        """Return the idle boxes of one run."""
        return SlotsDevice(self, clock, requests, trail, first_box)


@dataclass(slots=True, eq=False)
class SlotRequest:
    """A request at a box with slots."""

    execution: Execution
    prompt: int
    output: int
    given: int = 0
    """Tokens of its output that are decoded."""
    first_s: float = nan
    """When the first of them was."""


class SlotBox:
    """One box. While any slot is taken, an iteration follows the other.

    An iteration that reads no prompt ends at the moment of the last change of the slots plus the closed form of the iterations
    since, never a running sum. Of one moment, the box acts after all requests have arrived.
    """

    idle_since_s = 0.0

    def __init__(self, clock: Clock, kind: Slots, number: int, leaves: Callable[[SlotRequest], None]) -> None:
        """`number`: among all boxes on the clock; `leaves`: called with each request whose last iteration has ended."""
        self.account = BatchAccount.empty(kind.limits.slots)
        self._clock, self._number, self._leaves = clock, number, leaves
        self._limits, self._cost = kind.limits, kind.cost
        self._begin_empty()
        self._process = clock.process(self._run())

    def _begin_empty(self) -> None:
        self._batcher = SlotBatcher(self._limits)
        self._requests: dict[int, SlotRequest] = {}
        self._changed, self._base_s, self._since, self._context = True, 0.0, 0, 0
        """Whether other slots decode now; since when the present ones do, their iterations, and their tokens at the first."""
        self._arrived = self._clock.event()

    def arrive(self, request: SlotRequest) -> None:
        """Add a request."""
        self._requests[request.execution.request] = request
        self._batcher.arrive(request.execution.request, request.prompt)
        if not self._arrived.triggered:
            self._arrived.succeed()

    def fail(self) -> list[Execution]:
        """Become empty and idle; return what was here, in the order of arrival. Iterations under way do not count."""
        requests = list(self._requests.values())
        self._process.interrupt()
        return [request.execution for request in requests]

    def work_left(self, now_s: float) -> int:
        """Return the tokens that the requests here still take, one by one, before the present iteration."""
        return sum(request.output - request.given for request in self._requests.values())

    def _run(self) -> Process:
        while True:
            try:
                while True:
                    yield from self._iterate()
            except simpy.Interrupt:  # noqa: PERF203  # the box has failed
                self._begin_empty()

    def _iterate(self) -> Process:
        """Take an iteration, after a wait if no request is here."""
        clock, batcher, requests = self._clock, self._batcher, self._requests
        if not requests:
            self._arrived = clock.event()
            yield self._arrived
            yield clock.moment(clock.now, BATCH_ACTS, self._number)
        begin_s = clock.now
        if admitted := batcher.admit():
            self.account.refilled(len(admitted), 0.0)
            for number in admitted:
                requests[number].execution.begin(begin_s)
        iteration = batcher.next()
        decoding = [requests[number] for number in iteration.decodes]
        if iteration.reads or self._changed:
            self._base_s, self._since = begin_s, 0
            self._context = sum(request.prompt + request.given for request in decoding)
        self._since += 1
        taken_s = self._cost.iterations_s(len(decoding), self._context, self._since, iteration.prompt_tokens)
        yield clock.moment(self._base_s + taken_s, BATCH_ACTS, self._number)
        self.account.stepped(len(decoding), clock.now - begin_s)
        if iteration.reads:
            self.account.encoded([iteration.prompt_tokens], 0.0)
        for number in iteration.ends_prompt:
            requests[number].first_s = clock.now
            decoding.append(requests[number])
        for request in decoding:
            request.given += 1
        done = [request for request in decoding if request.given == request.output]
        self._changed = bool(iteration.reads or done)
        for request in done:
            batcher.leave(request.execution.request)
            del requests[request.execution.request]
        for request in done:
            request.execution.report = len(batcher.active), batcher.waiting
            self._leaves(request)


class SlotsDevice(Device):
    """The boxes of one target."""

    def __init__(self, kind: Slots, clock: Clock, requests: Block, trail: Recorder, first_box: int) -> None:
        assert requests.tgt_len is not None
        self._clock, self._trail, self._balancer, self._full_step_s = clock, trail, kind.balancer.copy(), kind.full_step_s
        self._limits, self._request_s, self._tgt_len = kind.limits, kind.cost.request_s, numbers(requests.tgt_len)
        self._prompt, self._output = map(numbers, kind.tokens(requests.src_len, requests.tgt_len))
        self.boxes: Sequence[SlotBox] = [SlotBox(clock, kind, first_box + box, self._leaves) for box in range(kind.boxes)]
        self.room = None if kind.max_waiting is None else WaitingRoom(kind.boxes, kind.max_waiting)
        self._failures = BoxFailures(clock, kind.failures, lambda box: self.boxes[box].fail())
        if kind.failures is not None:
            self._balancer = AvailableBoxes(self._balancer, kind.failures)

    def _is_long(self, request: int) -> bool:
        return not self._limits.admits(self._prompt[request], self._output[request])

    def refuses(self, box: int, request: int) -> bool:
        """Return whether a box refuses a request that enters now, since it is full or the request too long."""
        return self._is_long(request) or (self.room is not None and self.room.is_full(box))

    def enter(self, execution: Execution) -> None:
        """Let a request wait at a box, or refuse it."""
        request = execution.request
        execution.box = self._balancer.choose(self.boxes, execution.entry_s, request, execution.node)
        execution.is_refused = self._is_long(request) or (self.room is not None and not self.room.admits(execution))
        if not execution.is_refused and self._failures.admits(execution):
            self.boxes[execution.box].arrive(SlotRequest(execution, self._prompt[request], self._output[request]))

    def _leaves(self, request: SlotRequest) -> None:
        """Let a request end when its time outside iterations has passed."""
        execution, trail = request.execution, self._trail

        def end(event: simpy.Event) -> None:
            trail["execution_s"][execution.request] = self._clock.now - execution.begin_s
            trail["first_token_s"][execution.request] = request.first_s + self._request_s - execution.entry_s
            execution.end(self._clock.now)

        self._clock.moment(self._clock.now + self._request_s, COMPLETES, execution.request).callbacks.append(end)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the seconds in which full slots would decode the tokens that are left now at the box of the last arrival.

        No number is exact: later arrivals join them.
        """
        (_, request, node), now_s = arrivals[-1], self._clock.now
        box = self._balancer.copy().choose(self.boxes, now_s, request, node)
        return self.boxes[box].work_left(now_s) * self._full_step_s

    def work_of(self, execution: Execution) -> float:
        """Return the target tokens of a request and one more; 0 if it was not done."""
        return self._tgt_len[execution.request] + 1.0 if execution.ended.value else 0.0

    def account(self) -> BatchAccount:
        """Return the account of all boxes."""
        first, *others = (box.account for box in self.boxes)
        return first.merged(others)
