"""A box that streams its model from the disk: disk and processor, two resources, and what its memory holds (XP-04, STI-23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.sti.lifecycle import COLD, FIRST_TURN, Lifecycle
from simnmt.sti.streamed_latency import PlannedCompute, StreamedState

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Streamed:
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

    def __post_init__(self) -> None:
        if len(self.states) != self.lifecycle.last + 1:
            raise ValueError(f"{len(self.states)} states where the last is {self.lifecycle.last}")
        for state in self.states:
            state.from_read_s(self.compute, 1)

    @property
    def needs_tgt_len(self) -> bool:
        """Whether it takes steps."""
        return self.compute.decoder_layers > 0

    @property
    def columns(self) -> int:
        """How many `row_columns` gives."""
        return 2 + len(self.states)

    def in_memory_s(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | None = None) -> Column:
        """Seconds of requests with nothing to be read; shape kept."""
        return self.compute.in_memory_s(src_len, tgt_len)

    def beyond_s(self, src_len: NDArray[np.int64], factor: ArrayLike = 1.0) -> list[list[float]]:
        """By state, what its reads add to each request at an idle box; 0 where they are hidden or there are none.

        All of it falls in the first pass, so it does not hang on the output. `factor`: on all computing, of each request.
        """
        first_pass_s = self.compute.first_pass_s(src_len) * np.asarray(factor, np.float64)
        return [
            np.maximum(state.from_read_s(self.compute, src_len, factor=factor) - first_pass_s, 0.0).tolist()
            for state in self.states
        ]

    def row_columns(
        self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | None, execution_s: Column
    ) -> list[list[float]]:
        """What a box needs to know of each request: seconds of computing after the first pass, and after the steps that the
        deadline is for; then by state, from the begin of its reads until it would end if only these held it up."""
        compute = self.compute
        factor = execution_s / compute.in_memory_s(src_len, tgt_len)
        after_first_s = compute.after_step_s(tgt_len) * factor
        after_deadline_s = compute.after_step_s(tgt_len, self.deadline_steps) * factor
        from_read_s = (state.from_read_s(compute, src_len, tgt_len, factor) for state in self.states)
        return [column.tolist() for column in (after_first_s, after_deadline_s, *from_read_s)]


Served = tuple[float, float, int, float]
"""What became of a request at a box: when its turn at the processor came, when it ended, its state, and how long the processor
waited for reads since its turn had come."""


@dataclass(frozen=True, slots=True)
class StreamedAccount:
    """What the boxes of one target did with the requests sent there, all together."""

    boxes: int
    requests: int
    by_state: tuple[int, ...]
    """Requests by state: cold, first turn and so on."""
    compute_s: float
    """In which a processor computed."""
    stall_s: float
    """In which a processor waited for reads with a request's turn come."""
    read_s: float
    """In which a disk read."""
    streamed_bytes: int
    peak_preload_bytes: int
    """Most that the buffer of one box held."""
    preload_byte_s: float
    """Bytes held times seconds, up to the run's last event, or to the box's own last end."""
    working_bytes: int
    """Beside the buffer, while a request is computed."""


class StreamedBox:
    """One device with its disk; entries come in order of time.

    The disk reads for a request as soon as it is free and the request before has its turn at the processor: it reads one
    request ahead. Which state a request meets is settled when it enters, since nobody overtakes. O(1) a request.
    """

    __slots__ = (
        "_begun_s",
        "_cached_bytes",
        "_disk_free_s",
        "_engaged_s",
        "_following",
        "_kept_bytes",
        "_lifecycle",
        "_preload_bytes",
        "_read_s",
        "by_state",
        "compute_s",
        "free_s",
        "peak_bytes",
        "preload_byte_s",
        "stall_s",
        "state",
    )

    def __init__(self, streamed: Streamed) -> None:
        self.free_s = -inf
        """When the processor comes free."""
        self.state = COLD
        """Of the last request."""
        self._disk_free_s = self._begun_s = -inf
        lifecycle = self._lifecycle = streamed.lifecycle
        self._engaged_s = min(lifecycle.engagement_gap_s, lifecycle.reclaimed_after_s)
        self._following = [lifecycle.next_state(state, 0.0) for state in range(lifecycle.last + 1)]
        """By state, the next one within an engagement."""
        self._read_s = [state.read_s for state in streamed.states]
        self._cached_bytes = [state.held_bytes for state in streamed.states]
        self._kept_bytes = [state.kept_bytes for state in streamed.states]
        self._preload_bytes = self._cached_bytes[FIRST_TURN]
        self.by_state = [0] * len(streamed.states)
        self.compute_s, self.stall_s = 0.0, 0.0
        self.peak_bytes, self.preload_byte_s = 0, 0.0

    def next_state(self, now_s: float) -> int:
        """Of a request that would enter at a moment; nobody has entered later."""
        return self._lifecycle.next_state(self.state, now_s - self.free_s)

    def work_left(self, now_s: float) -> float:
        """Seconds until the processor comes free."""
        return self.free_s - now_s if self.free_s > now_s else 0.0

    def serve(self, entry_s: float, execution_s: float, row: Sequence[float], at: int) -> Served:
        """Let a request enter; `row[at]` and on: by state, from the begin of its reads until it would end."""
        free_s = self.free_s
        idle_s = entry_s - free_s
        if idle_s <= self._engaged_s:
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
        late_s = disk_s + row[at + state]
        if late_s > finish_s:
            stall_s = late_s - finish_s
            self.stall_s += stall_s
            finish_s = late_s
        if idle_s > 0.0 and self.peak_bytes:
            self._idled(idle_s)
        held_bytes, kept_bytes = self._cached_bytes[state], self._kept_bytes[state]
        self.preload_byte_s += held_bytes * (finish_s - begin_s)
        peak_bytes = held_bytes if held_bytes > kept_bytes else kept_bytes
        if peak_bytes > self.peak_bytes:
            self.peak_bytes = peak_bytes
        self._disk_free_s = disk_s + self._read_s[state]
        self._begun_s, self.free_s, self.state = begin_s, finish_s, state
        self.by_state[state] += 1
        self.compute_s += execution_s
        return begin_s, finish_s, state, stall_s

    def _idled(self, idle_s: float) -> None:
        """The ledger of what the buffer held since the last end: all that was kept, then the preload, then nothing."""
        lifecycle = self._lifecycle
        if idle_s <= self._engaged_s:
            self.preload_byte_s += self._kept_bytes[self.state] * idle_s
            return
        self.preload_byte_s += self._kept_bytes[self.state] * self._engaged_s
        if lifecycle.keeps_preload:
            self.preload_byte_s += self._preload_bytes * (min(idle_s, lifecycle.reclaimed_after_s) - self._engaged_s)

    def closed(self, end_s: float) -> None:
        """The run is over at a moment: nothing comes any more; once."""
        if self.peak_bytes and end_s > self.free_s:
            self._idled(end_s - self.free_s)

    def copy(self) -> StreamedBox:
        """A box in the same state, for asking what would happen; it keeps an account of its own."""
        other = StreamedBox.__new__(StreamedBox)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.by_state = self.by_state.copy()
        return other
