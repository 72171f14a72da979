"""Boxes that stream their model from the disk: one box with its memory, and the boxes of a target (XP-04, STI-23)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from sys import float_info
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import Self

from simnmt.base.arrays import Floats
from simnmt.devices.device import COMPLETES, Arrival, Balancer, ByNode, Clock, Device, Execution, Kind, Process
from simnmt.devices.fifo import Foreseen
from simnmt.results.columns import STREAMED_COLUMNS, Recorder
from simnmt.results.device_accounts import BoxesAccount, BoxesUntil
from simnmt.results.requests import Block
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN, Lifecycle, PlannedCompute, StreamedState

ROUNDING = 1.0 + 1e-9
"""Factor of a deadline that absorbs rounding."""


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of the deadline or preload buffer during the run, with the new plans (STI-18)."""

    at_s: float
    streamed: Streamed
    """The plans from then on; they have no further changes."""
    fill_s: float = 0.0
    """Seconds in which the disk then fills the preload buffer of a box that holds one: shards that only the new plans
    preload."""
    fill_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Streamed:
    """Boxes that stream their model. Raises `ValueError` if the states do not fit each other.

    For such a target, `Requests.execution_s` is the computing time of the plan with nothing to be read, scatter included.
    """

    compute: PlannedCompute
    """Computing time, the same in every state: the submodel depends on the deadline alone (STI-10)."""
    states: tuple[StreamedState, ...]
    """Cold, then each turn of an engagement; the last state is that of all later turns."""
    lifecycle: Lifecycle
    deadline_s: float = inf
    """Deadline from reaching the box to the end of `deadline_steps`, waiting included."""
    deadline_steps: float = 1.0
    """Decoder steps that the deadline is for, or all steps of a shorter output; unused without a decoder."""
    working_bytes: int = 0
    """Memory in addition to the preload buffer during a request (STI-16)."""
    cold_read_bytes: int = 0
    """Bytes that a cold start reads in addition to shards; their time is in its loads."""
    changes: tuple[PlanChange, ...] = ()
    """In order of time; a request is executed by the plans that hold when it reaches its box."""
    boxes: int = 1
    balancer: Balancer = field(default_factory=ByNode)

    name: ClassVar[str] = "stream"
    records: ClassVar[frozenset[str]] = frozenset({"execution_s", "first_token_s", *STREAMED_COLUMNS})
    reports_at_end: ClassVar[bool] = False

    def __post_init__(self) -> None:
        moments_s = [0.0, *(change.at_s for change in self.changes)]
        if any(later <= earlier for earlier, later in pairwise(moments_s)):
            raise ValueError("changes must be in order of time, all after 0 s")
        if any(change.streamed.changes or len(change.streamed.states) != len(self.states) for change in self.changes):
            raise ValueError("changes must have the number of states of the first plans, and no changes themselves")
        if len(self.states) != self.lifecycle.last + 1:
            raise ValueError(f"{len(self.states)} states, but the last state of the lifecycle is {self.lifecycle.last}")
        for state in self.states:
            state.from_read_s(self.compute, 1)

    @property
    def needs_tgt_len(self) -> bool:
        """True if it has a decoder, whose steps are those of the target."""
        return self.compute.decoder_layers > 0

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> Streamed:
        """Return the boxes of a device with these settings."""
        assert isinstance(settings, Streamed)
        return settings.of(boxes, balancer)

    def of(self, boxes: int, balancer: Balancer | None = None) -> Self:
        """Return so many boxes behind a balancer."""
        return replace(self, boxes=boxes, balancer=balancer or ByNode())

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> StreamDevice:
        """Return the boxes of one run, cold at first."""
        return StreamDevice(self, clock, target, requests, trail)

    @property
    def columns(self) -> int:
        """Number of columns that `row_columns` returns."""
        return 2 + len(self.states) + sum(1 + change.streamed.columns for change in self.changes)

    def phases(self) -> list[tuple[float, Streamed, int]]:
        """Return the begin of each set of plans, its specification, and the offset of its columns from the first set's."""
        phases: list[tuple[float, Streamed, int]] = [(-inf, self, 0)]
        offset = 2 + len(self.states)
        for change in self.changes:
            phases.append((change.at_s, change.streamed, offset + 1))
            offset += 1 + change.streamed.columns
        return phases

    def beyond_s(self, src_len: NDArray[np.int64], factor: ArrayLike = 1.0) -> list[Floats]:
        """Return for each state the seconds that its reads add to each request at an idle box; 0 if they are hidden.

        Reads delay only the first pass, so the added time does not depend on the output. `factor`: on all computing, per
        request.
        """
        compute = self.compute
        first_pass_s = compute.first_pass_s(src_len) * np.asarray(factor, np.float64)
        return [
            np.maximum(state.from_read_s(compute, src_len, factor=factor) - first_pass_s, state.slowing_s(compute))
            for state in self.states
        ]

    def row_columns(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | None, execution_s: Floats) -> list[Floats]:
        """Return the columns that a box needs of each request.

        They are the seconds of computing after the first pass, and after the steps that the deadline is for; then, for each
        state, the seconds from the begin of its reads until it would end if only these delayed it. For each change follow
        the seconds of computing under the new plans, and the same columns.
        """
        compute = self.compute
        factor = execution_s / compute.in_memory_s(src_len, tgt_len)
        after_first_s = compute.after_step_s(tgt_len) * factor
        after_deadline_s = compute.after_step_s(tgt_len, self.deadline_steps) * factor
        from_read_s = (state.from_read_s(compute, src_len, tgt_len, factor) for state in self.states)
        columns = [after_first_s, after_deadline_s, *from_read_s]
        for change in self.changes:
            changed_s = change.streamed.compute.in_memory_s(src_len, tgt_len) * factor
            columns += [changed_s, *change.streamed.row_columns(src_len, tgt_len, changed_s)]
        return columns


def engaged_s(lifecycle: Lifecycle) -> float:
    """Return the idle time within which an engagement goes on.

    It is finite, however long an engagement lasts: an infinite idle time is that of the first request, which finds nothing.
    """
    return min(lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s, float_info.max)


StreamingOutcome = tuple[float, float, int, float]
"""When a request began to compute, when it ended, its state, and by how many seconds reads delayed or slowed it."""


class StreamBox:
    """One device with its disk; requests enter in order of time.

    The disk reads for a request as soon as the disk is free and the request before it has begun to compute, so it reads one
    request ahead. The state of a request is settled when it enters, since no request overtakes another. The cost is O(1) a
    request. Reads that slow computing slow only their own request, not the one before it during which they run ahead.
    """

    idle_since_s = 0.0

    def __init__(self, streamed: Streamed) -> None:
        self.free_s = -inf
        """When the processor comes free."""
        self.state = COLD
        """State of the last request."""
        self._disk_free_s = self._begun_s = -inf
        self.compute_s = 0.0
        self.peak_bytes = self.peak_shard_bytes = self._last_shard_bytes = 0
        self.filled_s, self.filled_bytes = 0.0, 0
        """Seconds and bytes read at changes to fill the preload buffer."""
        self._held_byte_s = 0.0
        """Bytes held in the buffer, integrated up to the last end."""
        self._whole, self._phases = streamed, streamed.phases()
        self._counts = [[0] * len(streamed.states) for _ in self._phases]
        """Requests by set of plans and state."""
        self._deferred: tuple[float, bool] | None = None
        """For a change after which no request has come yet: its moment, or the box's last end if that was later, and whether
        the box then held its preload buffer."""
        self._use(0)

    def _use(self, phase: int) -> None:
        _, streamed, self._offset = self._phases[phase]
        self._phase = phase
        self._changes_at_s = self._phases[phase + 1][0] if phase + 1 < len(self._phases) else inf
        lifecycle = self._lifecycle = streamed.lifecycle
        self._engaged_s = engaged_s(lifecycle)
        self._states = streamed.states
        self._slowing = 1.0 - 1.0 / streamed.compute.slowed
        """Share of the seconds of reading beside computing by which computing is delayed."""
        self._preload_bytes = streamed.states[FIRST_TURN].held_bytes

    def set_totals(self, totals: Any, counts: list[int]) -> None:
        """Take over the totals of a box of the compiled engine, which knows one set of plans; `counts`: requests by state."""
        self.state, self._counts, self.free_s, self.compute_s = totals.state, [counts], totals.free_s, totals.compute_s
        self._held_byte_s = totals.held_byte_s
        self.peak_bytes, self.peak_shard_bytes = totals.peak_bytes, totals.peak_shard_bytes

    def _replan(self, now_s: float) -> None:
        """Apply the changes up to a moment: each ends the engagement and fills the buffer for its plans."""
        while now_s >= self._changes_at_s:
            at_s = self._changes_at_s
            first = self._deferred is None
            since_s, warm = self._deferred or (self.free_s, self.free_s > -inf)
            begins_s = max(at_s, since_s)
            if warm:
                idle_s = begins_s - since_s
                self._held_byte_s += self._idle_byte_s(idle_s) if first else self._idle_preload_byte_s(idle_s)
                warm = idle_s <= self._keeps_for_s()
            self._use(self._phase + 1)
            change = self._whole.changes[self._phase - 1]
            if warm:
                self._disk_free_s = max(self._disk_free_s, at_s) + change.fill_s
                self.filled_s += change.fill_s
                self.filled_bytes += change.fill_bytes
                self.peak_bytes = max(self.peak_bytes, self._preload_bytes)
            self._deferred = (begins_s, warm)

    def reads(self) -> tuple[float, int]:
        """Return the seconds and the bytes that the disk has read for all requests and changes so far."""
        read_s, read_bytes = self.filled_s, self.filled_bytes
        for (_, streamed, _), counts in zip(self._phases, self._counts, strict=True):
            read_bytes += counts[COLD] * streamed.cold_read_bytes
            for count, state in zip(counts, streamed.states, strict=True):
                read_s += count * state.read_s
                read_bytes += count * state.streamed_bytes
        return read_s, read_bytes

    def next_state(self, now_s: float) -> int:
        """Return the state of a request that would enter at a moment after all earlier entries."""
        if now_s >= self._changes_at_s or self._deferred is not None:
            trial = self.copy()
            trial._replan(now_s)
            return trial._after_change(now_s)
        return self._lifecycle.next_state(self.state, now_s - self.free_s)

    def work_left(self, now_s: float) -> float:
        """Return the seconds until the processor comes free."""
        return self.free_s - now_s if self.free_s > now_s else 0.0

    def serve(self, entry_s: float, execution_s: float, row: Sequence[float], at: int) -> StreamingOutcome:
        """Let a request enter and return its outcome.

        `row[at]` and the following elements: for each state, the seconds from the begin of its reads until it would end.
        """
        free_s = self.free_s
        idle_s = entry_s - free_s
        if entry_s >= self._changes_at_s:
            self._replan(entry_s)
        if self._offset:
            at += self._offset
            execution_s = row[at - 3]
        if self._deferred is not None:
            state, idle_s = self._after_change(entry_s), 0.0
        else:
            state = self._lifecycle.next_state(self.state, 0.0 if idle_s <= self._engaged_s else idle_s)
        plan, disk_s, begin_s = self._states[state], max(self._disk_free_s, self._begun_s, entry_s), max(free_s, entry_s)
        read_until_s, computed_s = disk_s + plan.read_s, begin_s + execution_s
        slowed_s = self._slowing * max(read_until_s - begin_s, 0.0)
        stall_s = max(slowed_s, disk_s + row[at + state] - computed_s)
        finish_s = computed_s + stall_s
        if idle_s > 0.0 and self.peak_bytes:
            self._held_byte_s += self._idle_byte_s(idle_s)
        self._held_byte_s += plan.held_bytes * (finish_s - begin_s)
        self.peak_bytes = max(self.peak_bytes, plan.held_bytes, plan.kept_bytes)
        shard_bytes = plan.held_bytes + plan.streamed_bytes
        self.peak_shard_bytes = max(self.peak_shard_bytes, shard_bytes)
        if disk_s < free_s:  # read while the request before is computed, whose shards are there as well
            self.peak_shard_bytes = max(self.peak_shard_bytes, self._last_shard_bytes + plan.streamed_bytes)
        self._last_shard_bytes = shard_bytes
        self._disk_free_s = read_until_s
        self._begun_s, self.free_s, self.state = begin_s, finish_s, state
        self._counts[self._phase][state] += 1
        self.compute_s += execution_s
        return begin_s, finish_s, state, stall_s

    def _after_change(self, entry_s: float) -> int:
        """Return the state of the first request after a change, and add its idle time to the held bytes."""
        assert self._deferred is not None
        since_s, warm = self._deferred
        self._deferred = None
        idle_s = max(entry_s - since_s, 0.0)
        if warm:
            self._held_byte_s += self._idle_preload_byte_s(idle_s)
        return FIRST_TURN if warm and idle_s <= self._keeps_for_s() else COLD

    def _keeps_for_s(self) -> float:
        return self._lifecycle.reclaimed_after_s if self._lifecycle.keeps_preload else self._engaged_s

    def _idle_preload_byte_s(self, idle_s: float) -> float:
        return self._preload_bytes * min(idle_s, self._keeps_for_s())

    def _idle_byte_s(self, idle_s: float) -> float:
        """Return the byte-seconds held since the last end: all that was kept, then the preload buffer, then nothing."""
        lifecycle = self._lifecycle
        kept_bytes = self._states[self.state].kept_bytes
        if idle_s <= self._engaged_s:
            return kept_bytes * idle_s
        byte_s = kept_bytes * self._engaged_s
        if lifecycle.keeps_preload:
            byte_s += self._preload_bytes * (min(idle_s, lifecycle.reclaimed_after_s) - self._engaged_s)
        return byte_s

    def preload_byte_s(self, end_s: float) -> float:
        """Return the byte-seconds held in the buffer until a moment after the last end."""
        if not self.peak_bytes:
            return 0.0
        if end_s >= self._changes_at_s or self._deferred is not None:
            trial = self.copy()
            trial._replan(end_s)
            trial._after_change(end_s)
            return trial._held_byte_s
        return self._held_byte_s + self._idle_byte_s(max(end_s - self.free_s, 0.0))

    def copy(self) -> StreamBox:
        """Return a server in the same state, to foresee finishes; both count their requests separately."""
        other = copy(self)
        other._counts = [counts.copy() for counts in self._counts]
        return other


class DeviceState:
    """The state of a device that streams its own model, as the device knows it: exactly."""

    def __init__(self, box: StreamBox) -> None:
        self._box = box

    def added_s(self, entry_s: float, beyond_s: Sequence[Sequence[float]], in_block: int) -> float:
        """Return the seconds that the state adds to the plane."""
        return beyond_s[self._box.next_state(entry_s)][in_block]

    def sent(self, request: int, entry_s: float) -> None:
        """Do nothing: the box changes by itself."""

    def reported(self, request: int, state: int, done_s: float) -> None:
        """Do nothing."""

    def lost(self, request: int) -> None:
        """Do nothing: the state is known."""


class StreamDevice(Device):
    """The boxes of one target, cold at first.

    A balancer that compares boxes compares how long their processors are busy; it ignores the states of their memories.
    """

    def __init__(self, kind: Streamed, clock: Clock, target: int, requests: Block, trail: Recorder) -> None:
        self.kind, self._clock, self._target, self._trail = kind, clock, target, trail
        self.boxes: Sequence[StreamBox] = [StreamBox(kind) for _ in range(kind.boxes)]
        self._balancer = kind.balancer.copy()
        self._execution_s = requests.execution_s[target].tolist()
        columns = kind.row_columns(requests.src_len, requests.tgt_len, requests.execution_s[target])
        self._rows = np.stack(columns, axis=1).tolist()
        phases = kind.phases()
        self._changes_at_s = [at_s for at_s, _, _ in phases[1:]]
        self._deadlines = [(offset, streamed.deadline_s * ROUNDING) for _, streamed, offset in phases]

    def enter(self, execution: Execution) -> None:
        """Let a request enter a box. Its outcome is known then."""
        begin_s, finish_s, box, state = self.execute(execution.entry_s, execution.request, execution.node)
        execution.box, execution.report = box, state
        self._clock.process(self._pass(execution, begin_s, finish_s))

    def _pass(self, execution: Execution, begin_s: float, finish_s: float) -> Process:
        yield self._clock.moment(begin_s, COMPLETES, execution.request)
        execution.begin(begin_s)
        yield self._clock.moment(finish_s, COMPLETES, execution.request)
        execution.end(finish_s)

    def execute(self, entry_s: float, request: int, node: int) -> tuple[float, float, int, int]:
        """Let a request enter a box, and record its execution by the plans that hold then; return its begin, its end, its box
        and its state."""
        trail, row = self._trail, self._rows[request]
        box = self._balancer.choose(self.boxes, entry_s, request, node)
        begin_s, finish_s, state, stalled_s = self.boxes[box].serve(entry_s, self._execution_s[request], row, 2)
        after_first, within_s = self._deadlines[bisect_right(self._changes_at_s, entry_s)]
        latency_s = finish_s - entry_s
        trail["execution_s"][request], trail["first_token_s"][request] = finish_s - begin_s, latency_s - row[after_first]
        trail["state"][request], trail["stall_s"][request] = state, stalled_s
        trail["deadline_missed"][request] = latency_s - row[after_first + 1] > within_s
        return begin_s, finish_s, box, state

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the seconds of the last arrival beyond its execution alone if it entered after the others."""
        boxes, balancer = Foreseen(self.boxes, StreamBox.copy), self._balancer.copy()
        for entry_s, request, node in arrivals:
            box = boxes[balancer.choose(boxes, entry_s, request, node)]
            _, finish_s, _, _ = box.serve(entry_s, self._execution_s[request], self._rows[request], 2)
        return float(finish_s - entry_s - self._execution_s[request])

    def state_view(self, box: int) -> DeviceState:
        """Return the state of a box as its own device knows it."""
        return DeviceState(self.boxes[box])

    def account(self) -> BoxesUntil:
        """Return the function that sums up all boxes until the end of the run."""
        return boxes_until(self.kind, self.boxes)


def boxes_until(kind: Streamed, boxes: Sequence[StreamBox]) -> BoxesUntil:
    """Return the function that sums up boxes until the end of the run."""

    def until(end_s: float) -> BoxesAccount:
        reads = [box.reads() for box in boxes]
        return BoxesAccount(
            boxes=len(boxes),
            compute_s=sum(box.compute_s for box in boxes),
            read_s=sum(read_s for read_s, _ in reads),
            read_bytes=sum(read_bytes for _, read_bytes in reads),
            peak_buffer_bytes=max(box.peak_bytes for box in boxes),
            peak_shard_bytes=max(box.peak_shard_bytes for box in boxes),
            working_bytes=max(streamed.working_bytes for _, streamed, _ in kind.phases()),
            buffer_byte_s=sum(box.preload_byte_s(end_s) for box in boxes),
        )

    return until
