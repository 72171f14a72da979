"""Servers that stream their model from the disk: one box with its memory, and the pool of a tier (XP-04, STI-23)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from sys import float_info
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.results.device_accounts import BoxesAccount, StreamingAccount
from simnmt.results.requests import STREAMED_COLUMNS, Block
from simnmt.streaming.plan.engagement import COLD, FIRST_TURN, Lifecycle, PlannedCompute, StreamedState
from simnmt.world.server import Alone, Arrival, Balancer, ByNode, CopiedOnUse, Row, Serve, Server, Site

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PlanChange:
    """Another deadline or preload buffer from a moment of the run on, with the plans for it (STI-18)."""

    at_s: float
    streamed: StreamingServerSpec
    """How boxes stream from then on; changes nothing further."""
    fill_s: float = 0.0
    """What the disk reads at that moment where a box holds its preload buffer: shards that the new plans preload and the old
    ones did not."""
    fill_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StreamingServerSpec:
    """How the boxes of a target stream their model. Raises `ValueError` where the states do not fit each other.

    Of such a target, `Requests.execution_s` is the time of the plan's computing with nothing to be read, scatter included.
    """

    compute: PlannedCompute
    """The same in every state: which submodel is computed depends on the deadline alone (STI-10)."""
    states: tuple[StreamedState, ...]
    """Cold, then each turn of an engagement; the last stands for all later ones."""
    lifecycle: Lifecycle
    deadline_s: float = inf
    """From reaching the box to the end of `deadline_steps`, waiting included."""
    deadline_steps: float = 1.0
    """Decoder steps, or all where an output has fewer, that the deadline is for; means nothing without a decoder."""
    working_bytes: int = 0
    """Beside the preload buffer, while a request is computed (STI-16)."""
    cold_read_bytes: int = 0
    """What a cold start reads beside shards, the time of which is in its loads."""
    changes: tuple[PlanChange, ...] = ()
    """In order of time; a request is executed by the plans that hold when it reaches its box."""

    def __post_init__(self) -> None:
        moments_s = [0.0, *(change.at_s for change in self.changes)]
        if any(later <= earlier for earlier, later in pairwise(moments_s)):
            raise ValueError("changes have to follow each other in time, all after 0 s")
        if any(change.streamed.changes or len(change.streamed.states) != len(self.states) for change in self.changes):
            raise ValueError("changes have to have as many states as before, and no changes of their own")
        if len(self.states) != self.lifecycle.last + 1:
            raise ValueError(f"{len(self.states)} states where the last is {self.lifecycle.last}")
        for state in self.states:
            state.from_read_s(self.compute, 1)

    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> StreamingPool:
        """Return so many idle boxes; `balancer`: None: as the nodes are attached."""
        return StreamingPool(self, boxes, balancer)

    @property
    def columns(self) -> int:
        """How many `row_columns` gives."""
        return 2 + len(self.states) + sum(1 + change.streamed.columns for change in self.changes)

    def phases(self) -> list[tuple[float, StreamingServerSpec, int]]:
        """Return from when on each set of plans holds, and how far its columns lie behind the first set's."""
        phases, offset = [(-inf, self, 0)], 2 + len(self.states)
        for change in self.changes:
            phases.append((change.at_s, change.streamed, offset + 1))
            offset += 1 + change.streamed.columns
        return phases

    def in_memory_s(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | None = None) -> Column:
        """Seconds of requests with nothing to be read; shape kept."""
        return self.compute.in_memory_s(src_len, tgt_len)

    def beyond_s(self, src_len: NDArray[np.int64], factor: ArrayLike = 1.0) -> list[list[float]]:
        """By state, what its reads add to each request at an idle box; 0 where they are hidden or there are none.

        All of it falls in the first pass, so it does not hang on the output. `factor`: on all computing, of each request.
        """
        compute = self.compute
        first_pass_s = compute.first_pass_s(src_len) * np.asarray(factor, np.float64)
        return [
            np.maximum(state.from_read_s(compute, src_len, factor=factor) - first_pass_s, state.slowing_s(compute)).tolist()
            for state in self.states
        ]

    def row_columns(
        self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | None, execution_s: Column
    ) -> list[list[float]]:
        """Return what a box needs to know of each request.

        Seconds of computing after the first pass, and after the steps that the deadline is for; then by state, from the begin
        of its reads until it would end if only these held it up. For each change follow the seconds of its own computing and
        the same columns.
        """
        compute = self.compute
        factor = execution_s / compute.in_memory_s(src_len, tgt_len)
        after_first_s = compute.after_step_s(tgt_len) * factor
        after_deadline_s = compute.after_step_s(tgt_len, self.deadline_steps) * factor
        from_read_s = (state.from_read_s(compute, src_len, tgt_len, factor) for state in self.states)
        columns = [column.tolist() for column in (after_first_s, after_deadline_s, *from_read_s)]
        for change in self.changes:
            changed_s = change.streamed.in_memory_s(src_len, tgt_len) * factor
            columns += [changed_s.tolist(), *change.streamed.row_columns(src_len, tgt_len, changed_s)]
        return columns


StreamingOutcome = tuple[float, float, int, float]
"""What became of a request at a box: when its turn at the processor came, when it ended, its state, and how much longer than
with nothing to be read that took: the processor waited for reads, or was slowed by them."""


class StreamingServer:
    """One device with its disk; entries come in order of time.

    The disk reads for a request as soon as it is free and the request before has its turn at the processor: it reads one
    request ahead. Which state a request meets is settled when it enters, since nobody overtakes. O(1) a request. Where reads
    slow computing, they slow that of their own request; that of the one before, on which they run ahead, is left as it was.
    """

    def __init__(self, streamed: StreamingServerSpec) -> None:
        self.free_s = -inf
        """When the processor comes free."""
        self.state = COLD
        """Of the last request."""
        self._disk_free_s = self._begun_s = -inf
        self.compute_s, self.stall_s = 0.0, 0.0
        self.peak_bytes = self.peak_shard_bytes = self._last_shard_bytes = 0
        self.filled_s, self.filled_bytes = 0.0, 0
        """Read at changes, to fill the preload buffer."""
        self._held_byte_s = 0.0
        """Of the ledger, up to the last end."""
        self._whole, self._phases = streamed, streamed.phases()
        self._counts = [[0] * len(streamed.states) for _ in self._phases]
        """Requests by set of plans and state."""
        self._deferred: tuple[float, bool] | None = None
        """Of a change after which no request has come yet: when it was, or when the box ended if that was later, and whether
        the box then held its preload buffer."""
        self._use(0)

    def _use(self, phase: int) -> None:
        """Execute by the plans of a phase from now on."""
        _, streamed, self._offset = self._phases[phase]
        self._phase = phase
        self._changes_at_s = self._phases[phase + 1][0] if phase + 1 < len(self._phases) else inf
        lifecycle = self._lifecycle = streamed.lifecycle
        # Finite, however long an engagement lasts: an infinite idle time is that of the first request, which finds nothing.
        self._engaged_s = min(lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s, float_info.max)
        self._following = [lifecycle.next_state(state, 0.0) for state in range(lifecycle.last + 1)]
        """By state, the next one within an engagement."""
        self._read_s = [state.read_s for state in streamed.states]
        self._slowing = 1.0 - 1.0 / streamed.compute.slowed
        """Of the seconds in which reads go on beside computing, the share that is lost."""
        self._cached_bytes = [state.held_bytes for state in streamed.states]
        self._kept_bytes = [state.kept_bytes for state in streamed.states]
        self._preload_bytes = self._cached_bytes[FIRST_TURN]
        self._streamed_bytes = [state.streamed_bytes for state in streamed.states]
        self._shard_bytes = [state.held_bytes + state.streamed_bytes for state in streamed.states]

    def _replan(self, now_s: float) -> None:
        """Go through the changes up to a moment: each ends the engagement and fills the buffer by its own plans."""
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

    @property
    def by_state(self) -> list[int]:
        """Requests by state, whatever the plans were."""
        return [sum(counts) for counts in zip(*self._counts, strict=True)]

    def reads(self) -> tuple[float, int]:
        """Return the seconds that the disk read for all requests and changes so far, and the bytes."""
        read_s, read_bytes = self.filled_s, self.filled_bytes
        for (_, streamed, _), counts in zip(self._phases, self._counts, strict=True):
            read_bytes += counts[COLD] * streamed.cold_read_bytes
            for count, state in zip(counts, streamed.states, strict=True):
                read_s += count * state.read_s
                read_bytes += count * state.streamed_bytes
        return read_s, read_bytes

    def next_state(self, now_s: float) -> int:
        """Of a request that would enter at a moment; nobody has entered later."""
        if now_s >= self._changes_at_s or self._deferred is not None:
            trial = self.copy()
            trial._replan(now_s)
            return trial._after_change(now_s)
        return self._lifecycle.next_state(self.state, now_s - self.free_s)

    def work_left(self, now_s: float) -> float:
        """Seconds until the processor comes free."""
        return self.free_s - now_s if self.free_s > now_s else 0.0

    def serve(self, entry_s: float, execution_s: float, row: Sequence[float], at: int) -> StreamingOutcome:
        """Let a request enter; `row[at]` and on: by state, from the begin of its reads until it would end."""
        free_s = self.free_s
        idle_s = entry_s - free_s
        if entry_s >= self._changes_at_s:
            self._replan(entry_s)
        if self._offset:
            at += self._offset
            execution_s = row[at - 3]
        if self._deferred is not None:
            state, idle_s = self._after_change(entry_s), 0.0
        elif idle_s <= self._engaged_s:
            state = self._following[self.state]
        else:
            state = self._lifecycle.next_state(self.state, idle_s)
        disk_s = self._disk_free_s
        if disk_s < self._begun_s:
            disk_s = self._begun_s
        if disk_s < entry_s:
            disk_s = entry_s
        begin_s = free_s if free_s > entry_s else entry_s
        finish_s, stall_s = begin_s + execution_s, 0.0
        read_until_s = disk_s + self._read_s[state]
        if self._slowing and read_until_s > begin_s:
            stall_s = self._slowing * (read_until_s - begin_s)
        late_s = disk_s + row[at + state] - finish_s
        if late_s > stall_s:
            stall_s = late_s
        if stall_s:
            self.stall_s += stall_s
            finish_s += stall_s
        if idle_s > 0.0 and self.peak_bytes:
            self._held_byte_s += self._idle_byte_s(idle_s)
        held_bytes, kept_bytes = self._cached_bytes[state], self._kept_bytes[state]
        self._held_byte_s += held_bytes * (finish_s - begin_s)
        peak_bytes = held_bytes if held_bytes > kept_bytes else kept_bytes
        if peak_bytes > self.peak_bytes:
            self.peak_bytes = peak_bytes
        shard_bytes = self._shard_bytes[state]
        if disk_s < free_s:  # read while the request before is computed, whose shards are there as well
            shard_bytes = max(shard_bytes, self._last_shard_bytes + self._streamed_bytes[state])
        if shard_bytes > self.peak_shard_bytes:
            self.peak_shard_bytes = shard_bytes
        self._last_shard_bytes = self._shard_bytes[state]
        self._disk_free_s = read_until_s
        self._begun_s, self.free_s, self.state = begin_s, finish_s, state
        self._counts[self._phase][state] += 1
        self.compute_s += execution_s
        return begin_s, finish_s, state, stall_s

    def _after_change(self, entry_s: float) -> int:
        """The state of the first request after a change, whose idle time the ledger takes in."""
        assert self._deferred is not None
        since_s, warm = self._deferred
        self._deferred = None
        idle_s = max(entry_s - since_s, 0.0)
        if warm:
            self._held_byte_s += self._idle_preload_byte_s(idle_s)
        return FIRST_TURN if warm and idle_s <= self._keeps_for_s() else COLD

    def _keeps_for_s(self) -> float:
        """How long an idle box keeps its preload buffer."""
        return self._lifecycle.reclaimed_after_s if self._lifecycle.keeps_preload else self._engaged_s

    def _idle_preload_byte_s(self, idle_s: float) -> float:
        """What the preload buffer held in so long an idle time after a change, times seconds."""
        return self._preload_bytes * min(idle_s, self._keeps_for_s())

    def _idle_byte_s(self, idle_s: float) -> float:
        """What the buffer held since the last end, times seconds: all that was kept, then the preload, then nothing."""
        lifecycle = self._lifecycle
        if idle_s <= self._engaged_s:
            return self._kept_bytes[self.state] * idle_s
        byte_s = self._kept_bytes[self.state] * self._engaged_s
        if lifecycle.keeps_preload:
            byte_s += self._preload_bytes * (min(idle_s, lifecycle.reclaimed_after_s) - self._engaged_s)
        return byte_s

    def preload_byte_s(self, end_s: float) -> float:
        """Bytes that the buffer held times seconds, until a moment after the last end."""
        if not self.peak_bytes:
            return 0.0
        if end_s >= self._changes_at_s or self._deferred is not None:
            trial = self.copy()
            trial._replan(end_s)
            trial._after_change(end_s)
            return trial._held_byte_s
        return self._held_byte_s + self._idle_byte_s(max(end_s - self.free_s, 0.0))

    def copy(self) -> StreamingServer:
        """A box in the same state, for asking what would happen; it keeps an account of its own."""
        other = copy(self)
        other._counts = [counts.copy() for counts in self._counts]
        return other


class DeviceState:
    """What a device that streams its own model knows of its state: the state itself."""

    def __init__(self, box: StreamingServer) -> None:
        self._box = box

    def added_s(self, entry_s: float, beyond_s: Sequence[Sequence[float]], in_block: int) -> float:
        """Return what the state adds to the plane."""
        return beyond_s[self._box.next_state(entry_s)][in_block]

    def sent(self, request: int, entry_s: float) -> None:
        """Note nothing: the box changes by itself."""

    def reported(self, request: int, state: int, done_s: float) -> None:
        """Note nothing."""


_ROUNDING = 1.0 + 1e-9
_RECORDS = ("execution_s", "first_token_s", *STREAMED_COLUMNS)


class StreamingPool(Server):
    """The boxes of one tier, cold at first; requests enter in order of time.

    A balancer that compares boxes compares how long their processors are busy: it knows queues, and nothing of memories.
    """

    records = frozenset(_RECORDS)

    def __init__(self, streamed: StreamingServerSpec, boxes: int = 1, balancer: Balancer | None = None) -> None:
        """`balancer`: None: as the nodes are attached."""
        self.streamed = streamed
        self.boxes: Sequence[StreamingServer] = [StreamingServer(streamed) for _ in range(boxes)]
        self._balancer = ByNode() if balancer is None else balancer
        self.needs_tgt_len, self.columns = streamed.compute.decoder_layers > 0, streamed.columns

    def row_columns(self, block: Block, execution_s: Column) -> list[list[float]]:
        """Return the columns of `StreamingServerSpec.row_columns`."""
        return self.streamed.row_columns(block.src_len, block.tgt_len, execution_s)

    def open(self, site: Site) -> Serve:
        """Take the place in the world. What becomes of a request is known on entry."""
        self._execution, self._added = site.layout.execution(site.target), site.added
        execute = self.alone = self._execution_at(site)

        def reaches(event: Any) -> None:
            begin_s, finish_s, state, box = execute(event.entry_s, event.request, event.row)
            site.answer(event, begin_s, finish_s, box, begin_s, state)

        return reaches

    def _execution_at(self, site: Site) -> Alone:
        """Return what lets a request enter and records its execution, by the plans that hold when it enters."""
        trail, enter = site.trail, self.enter
        execution_s, first_token_s, states, stall_s, missed = (trail[name] for name in _RECORDS)
        phases = self.streamed.phases()
        changes_at_s = [at_s for at_s, _, _ in phases[1:]]
        columns = [(self._added + offset, streamed.deadline_s * _ROUNDING) for _, streamed, offset in phases]

        def execute(entry_s: float, request: int, row: Row) -> tuple[float, float, int, int]:
            (begin_s, finish_s, state, stalled_s), box = enter(entry_s, request, row)
            trail["queue_s"][request] = begin_s - entry_s
            trail["server"][request] = box if site.target else 0
            execution_s[request] = finish_s - begin_s
            latency_s = finish_s - entry_s
            after_first, within_s = columns[bisect_right(changes_at_s, entry_s)]
            first_token_s[request] = latency_s - row[after_first]
            states[request], stall_s[request] = state, stalled_s
            missed[request] = latency_s - row[after_first + 1] > within_s
            return begin_s, finish_s, state, box

        return execute

    def enter(self, entry_s: float, request: int, row: Row) -> tuple[StreamingOutcome, int]:
        """Let a request enter; return what becomes of it, and at which box."""
        chosen = self._balancer.chosen(self.boxes, entry_s, request, row[1])
        return self.boxes[chosen].serve(entry_s, row[self._execution], row, self._added + 2), chosen

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return what `arrival` would take beyond execution alone after the requests in `ahead`. Has no side effects."""
        trial = copy(self)
        trial.boxes, trial._balancer = CopiedOnUse(self.boxes), self._balancer.copy()
        for entry_s, request, row in (*ahead, arrival):
            (_, finish_s, _, _), _ = trial.enter(entry_s, request, row)
        return finish_s - entry_s - float(row[self._execution])

    def state_view(self, box: int) -> DeviceState:
        """Return what the device that has this box knows of its state."""
        return DeviceState(self.boxes[box])

    def account(self) -> StreamingAccount:
        """Return the account of all boxes."""
        boxes = tuple(self.boxes)
        reads = [box.reads() for box in boxes]
        return StreamingAccount(
            by_state=tuple(map(sum, zip(*(box.by_state for box in boxes), strict=True))),
            stall_s=sum(box.stall_s for box in boxes),
            totals=BoxesAccount(
                boxes=len(boxes),
                compute_s=sum(box.compute_s for box in boxes),
                read_s=sum(read_s for read_s, _ in reads),
                read_bytes=sum(read_bytes for _, read_bytes in reads),
                peak_buffer_bytes=max(box.peak_bytes for box in boxes),
                peak_shard_bytes=max(box.peak_shard_bytes for box in boxes),
                working_bytes=max(streamed.working_bytes for _, streamed, _ in self.streamed.phases()),
            ),
            preload_byte_s=lambda end_s: sum(box.preload_byte_s(end_s) for box in boxes),
        )
