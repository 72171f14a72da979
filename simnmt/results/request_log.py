"""The request log: what is true of each request, what a policy made of it, one row per request, and which were misrouted.

A misrouted request would truly have been answered sooner by another device. Where requests queue, a decision is judged by what
an oracle foresaw at that moment, queues included (`Passage.lost_s`), for an even sample of the requests. Where nothing waits,
the truth is the time of an execution alone, plus the transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn, Array, Rows, assemble, write_columns
from simnmt.results.device_accounts import BatchAccount, StreamAccount

Log = Mapping[str, Array]
"""Columns by name, all of shape (requests,)."""

Joules = Callable[[Array, Array, Array], "NDArray[np.float64] | None"]
"""From source lengths, target lengths and execution times to the energy of each execution; None where it is unknown."""

STREAMED_COLUMNS = ("state", "stall_s", "deadline_missed")
"""Behind the others where a device streams its model."""

DONE = 0
"""`outcome` of a request that was answered; other values are for faults."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of each request; shape (requests,), seconds and tokens."""

    node: AnyColumn
    """The end node that asks."""
    src_len: AnyColumn
    tgt_len: AnyColumn
    execution_s: tuple[AnyColumn, ...]
    """On each target."""
    transfer_s: tuple[AnyColumn, ...]
    """From the end node that asks to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: AnyColumn
    """That moment, on the trace of the link to the last target."""
    joules: tuple[Joules | None, ...] = ()
    """What an execution on each target costs; empty or None where that was never measured."""

    @property
    def all(self) -> slice:
        """All requests."""
        return slice(0, len(self.src_len))

    def total_s(self, target: int, rows: Rows) -> NDArray[np.float64]:
        """Execution plus transfer on one target, queues left out, of some requests."""
        total_s: NDArray[np.float64] = self.execution_s[target][rows] + self.transfer_s[target][rows]
        return total_s

    @property
    def best_target(self) -> NDArray[np.int8]:
        """Where execution plus transfer is least, queues left out; a tie goes to the nearer target."""
        return assemble(self._best_target, self.all)

    def _best_target(self, rows: slice) -> NDArray[np.int8]:
        least_s = self.total_s(0, rows)
        best = np.zeros(len(least_s), np.int8)
        for target in range(1, len(self.execution_s)):
            total_s = self.total_s(target, rows)
            nearer = total_s < least_s
            best[nearer] = target
            least_s = np.where(nearer, total_s, least_s)
        return best

    def stored(self, folder: Path) -> Truth:
        """The same with its arrays in files of a folder; what lies in files stays there. Raises `OSError`."""
        return Truth(
            _stored(folder, "node", self.node),
            _stored(folder, "src_len", self.src_len),
            _stored(folder, "tgt_len", self.tgt_len),
            tuple(_stored(folder, f"execution_s {target}", column) for target, column in enumerate(self.execution_s)),
            tuple(_stored(folder, f"transfer_s {target}", column) for target, column in enumerate(self.transfer_s)),
            _stored(folder, "rtt_time_s", self.rtt_time_s),
            self.joules,
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """What one policy made of the requests; shape (requests,)."""

    arrival_s: AnyColumn
    """When each was issued at its end node."""
    target: AnyColumn
    server: AnyColumn
    """Which device of the target's tier."""
    queue_s: AnyColumn
    estimate_s: AnyColumn
    """The transfer time to the last target that the decider believed in."""
    estimate_age_s: AnyColumn
    """How long before the decision that had been measured."""
    tgt_len_by_src_len: NDArray[np.float64]
    """Target tokens that the policy reckons with, by source length, shape (longest source + 1,); NaN where it has no idea."""
    probes: int = 0
    """Probes sent besides."""
    truth: Truth | None = None
    """Where requests meet the network when this policy issues them: the truth in place of the common one."""
    execution_s: AnyColumn | None = None
    """Of those decoded in batches or by a streamed model: from the begin of its encoding, or of its turn, to its end; NaN where
    the truth's holds. None: of nobody."""
    first_token_s: AnyColumn | None = None
    """Of the same: from its arrival at the server to the end of its first step."""
    lost_s: AnyColumn | None = None
    """Of each: by how much its target takes longer than the best, queues and batches included, as an oracle foresaw it when it
    was decided on; None where that was not asked for."""
    batches: tuple[BatchAccount | None, ...] = ()
    """Of each target, as far as it batched."""
    state: AnyColumn | None = None
    """Of those executed by a streamed model: how they found it (`results.streamed`); -1 elsewhere. None: of nobody."""
    stall_s: AnyColumn | None = None
    """Of the same: how long the processor waited for the disk; 0 elsewhere."""
    deadline_missed: AnyColumn | None = None
    """Of the same: whether the box's answer came after its deadline; False elsewhere."""
    streams: tuple[StreamAccount | None, ...] = ()
    """Of each target, as far as its model is streamed."""

    def stored(self, folder: Path) -> Passage:
        """The same with its arrays in files of a folder; what lies in files stays there. Raises `OSError`."""
        names: tuple[str, ...] = ("arrival_s", "target", "server", "queue_s", "estimate_s", "estimate_age_s")
        optional = ("execution_s", "first_token_s", "lost_s", *STREAMED_COLUMNS)
        names += tuple(name for name in optional if getattr(self, name) is not None)
        columns: dict[str, Any] = {name: _stored(folder, name, getattr(self, name)) for name in names}
        return replace(self, **columns, truth=None if self.truth is None else self.truth.stored(folder))


def _stored(folder: Path, name: str, column: AnyColumn) -> AnyColumn:
    return write_columns(folder, [{name: column}])[name] if isinstance(column, np.ndarray) else column


def _chosen(columns: tuple[AnyColumn, ...], passage: Passage, rows: slice) -> NDArray[np.float64]:
    """Of each request, the number of its target."""
    chosen, target = np.array(columns[0][rows]), passage.target[rows]
    for number, column in enumerate(columns[1:], start=1):
        np.copyto(chosen, column[rows], where=target == number)
    return chosen


def _execution_s(truth: Truth, passage: Passage, rows: slice) -> NDArray[np.float64]:
    """Of each request; where it was decoded in a batch, what it took there."""
    alone_s = _chosen(truth.execution_s, passage, rows)
    if passage.execution_s is None:
        return alone_s
    batched_s: NDArray[np.float64] = passage.execution_s[rows]
    return np.where(np.isnan(batched_s), alone_s, batched_s)


def _first_token_s(truth: Truth, passage: Passage, rows: slice) -> NDArray[np.float64]:
    return np.full(rows.stop - rows.start, np.nan) if passage.first_token_s is None else passage.first_token_s[rows]


def _energy_j(truth: Truth, passage: Passage, rows: slice) -> NDArray[np.float64]:
    """Of each request; NaN, never 0, where its target's energy is unknown."""
    target, execution_s = passage.target[rows], _execution_s(truth, passage, rows)
    energy_j = np.full(len(target), np.nan)
    for number, joules in enumerate(truth.joules):
        there = target == number
        known_j = None if joules is None else joules(truth.src_len[rows][there], truth.tgt_len[rows][there], execution_s[there])
        if known_j is not None:
            energy_j[there] = known_j
    return energy_j


_COLUMNS: dict[str, Callable[[Truth, Passage, slice], Array]] = {
    "request_id": lambda _, __, rows: np.arange(rows.start, rows.stop, dtype=np.int32),
    "node": lambda truth, _, rows: truth.node[rows],
    "arrival_s": lambda _, passage, rows: passage.arrival_s[rows],
    "src_len": lambda truth, _, rows: truth.src_len[rows].astype(np.int32),
    "tgt_len": lambda truth, _, rows: truth.tgt_len[rows].astype(np.int32),
    "tgt_len_predicted": lambda truth, passage, rows: passage.tgt_len_by_src_len[truth.src_len[rows]],
    "target": lambda _, passage, rows: passage.target[rows],
    "server": lambda _, passage, rows: passage.server[rows],
    "t_queue_s": lambda _, passage, rows: passage.queue_s[rows],
    "t_exe_s": _execution_s,
    "t_tx_s": lambda truth, passage, rows: _chosen(truth.transfer_s, passage, rows),
    "latency_s": lambda truth, passage, rows: (
        passage.queue_s[rows] + _execution_s(truth, passage, rows) + _chosen(truth.transfer_s, passage, rows)
    ),
    "first_token_s": _first_token_s,
    "rtt_time_s": lambda truth, _, rows: truth.rtt_time_s[rows],
    "rtt_estimate_s": lambda _, passage, rows: passage.estimate_s[rows],
    "rtt_estimate_age_s": lambda _, passage, rows: passage.estimate_age_s[rows],
    "outcome": lambda _, __, rows: np.full(rows.stop - rows.start, DONE, np.int8),
    "energy_j": _energy_j,
}
COLUMNS = tuple(_COLUMNS)
"""In the order in which they are written."""


def _streamed(name: str) -> Callable[[Truth, Passage, slice], Array]:
    def column(truth: Truth, passage: Passage, rows: slice) -> Array:
        values: Array = getattr(passage, name)[rows]
        return values

    return column


_OF_STREAMED = {name: _streamed(name) for name in STREAMED_COLUMNS}


class RequestLog(Log):
    """The columns of one policy's log, each made when it is asked for: whole, they are 111 bytes a request."""

    __slots__ = ("_passage", "_rows", "_truth")

    def __init__(self, truth: Truth, passage: Passage, rows: slice | None = None) -> None:
        """`rows`: the requests that it is about; all of them if it is left out."""
        self._truth, self._passage = passage.truth or truth, passage
        self._rows = rows or self._truth.all

    def __getitem__(self, name: str) -> Array:
        column = _COLUMNS[name] if name in _COLUMNS or self._passage.state is None else _OF_STREAMED[name]
        return assemble(lambda rows: column(self._truth, self._passage, rows), self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return COLUMNS if self._passage.state is None else (*COLUMNS, *STREAMED_COLUMNS)

    def parts(self, requests: int) -> Iterator[Log]:
        """The same log, so many requests at a time."""
        for start in range(self._rows.start, self._rows.stop, requests):
            rows = slice(start, min(start + requests, self._rows.stop))
            yield RequestLog(self._truth, self._passage, rows)


@dataclass(frozen=True, slots=True)
class Logs(Mapping[str, RequestLog]):
    """Policy -> request log."""

    truth: Truth
    passages: dict[str, Passage]

    def __getitem__(self, policy: str) -> RequestLog:
        return RequestLog(self.truth, self.passages[policy])

    def __iter__(self) -> Iterator[str]:
        return iter(self.passages)

    def __len__(self) -> int:
        return len(self.passages)


BLOCK = 1_000_000
"""Requests looked at together."""
ROUNDING_S = 1e-9
"""Sums of the same times in another order differ by less: no misroute."""

UNKNOWN_MISROUTES = (
    "Misroutes are not shown: where requests queue at a device that batches, or a device streams its model, what a request "
    "takes there depends on the requests before it, and to foresee that costs as much as an oracle for every policy. "
    "Set foresee_misroutes: true to see them."
)
"""Why a table has no column of misroutes."""


@dataclass(frozen=True, slots=True)
class Misroutes:
    """What one policy misrouted of the judged requests, and an even sample of it; columns of shape (sampled,)."""

    count: int
    lost_s: float
    """Time beyond that on the best device, of all misrouted requests together."""
    request_lost_s: NDArray[np.float64]
    """The same of each sampled request."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    target: NDArray[np.int8]
    """Where it went."""
    best_target: NDArray[np.int8]
    """Where it should have gone; the number of devices where it is only known that it is another one."""
    foreseen: bool = False
    """Whether decisions are judged by what an oracle foresaw, queues included; else nothing waits."""
    judged: int | None = None
    """Requests whose decisions were judged; None: all of them."""


def misroutes(truth: Truth, passage: Passage, most: int) -> Misroutes:
    """What a policy misrouted, and at most so many of these requests. `truth`: unless the passage has its own."""
    lost = lost_s(truth, passage)
    truth = passage.truth or truth
    judged = None if passage.lost_s is None else int(np.isfinite(lost).sum())
    lost = np.nan_to_num(lost)
    misrouted = np.flatnonzero(lost > 0.0)
    sampled = misrouted[np.unique(np.linspace(0, max(misrouted.size - 1, 0), min(most, misrouted.size)).astype(np.int64))]
    total_s = np.stack([truth.total_s(number, sampled) for number in range(len(truth.execution_s))])
    target = passage.target[sampled]
    chosen = target[None].astype(np.int64)
    request_lost_s = np.take_along_axis(total_s, chosen, 0)[0] - total_s.min(0)
    if passage.lost_s is not None:
        request_lost_s = passage.lost_s[sampled]
        np.put_along_axis(total_s, chosen, np.inf, 0)
    best_target = total_s.argmin(0).astype(np.int8)
    if passage.lost_s is not None and len(total_s) > 2:
        # Which of the others was foreseen to be best is not kept.
        best_target[:] = len(total_s)
    return Misroutes(
        count=int(misrouted.size),
        lost_s=float(lost.sum(dtype=np.float64)),
        request_lost_s=request_lost_s,
        src_len=truth.src_len[sampled],
        tgt_len=truth.tgt_len[sampled],
        target=target,
        best_target=best_target,
        foreseen=passage.lost_s is not None,
        judged=judged,
    )


def lost_s(truth: Truth, passage: Passage) -> NDArray[np.float32]:
    """Return by how many seconds each request takes longer than on the best device: 0 there, and where both take as long.

    As an oracle foresaw it, where that is known: NaN for requests that were not judged. Above 0 the request was misrouted.
    `truth`: unless the passage has its own.
    """
    if passage.lost_s is not None:
        foreseen_s: NDArray[np.float32] = passage.lost_s[:].astype(np.float32)
        foreseen_s[foreseen_s < ROUNDING_S] = 0.0
        return foreseen_s
    truth = passage.truth or truth
    lost = np.empty(len(truth.src_len), np.float32)
    for start in range(0, lost.size, BLOCK):
        rows = slice(start, start + BLOCK)
        lost[rows] = _lost_s(truth, rows, passage.target[rows])
    return lost


def _lost_s(truth: Truth, rows: slice, target: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the seconds beyond those of the best device, per request."""
    least_s = chosen_s = truth.total_s(0, rows)
    for number in range(1, len(truth.execution_s)):
        total_s = truth.total_s(number, rows)
        chosen_s = np.where(target == number, total_s, chosen_s)
        least_s = np.minimum(least_s, total_s)
    return chosen_s - least_s
