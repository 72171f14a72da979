"""The requests of a run with their true times, the trail that one policy leaves of them, and the log with both.

A request is misrouted if another device would have answered it sooner, as foreseen at the decision. If requests queue, an
even sample of the decisions is judged by the execution, transfer and wait that an oracle foresaw at the decision. Requests that
arrive later do not count, although they may change which device is the fastest. If nothing waits, every decision is judged by
the true execution and transfer times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.results.columns import COLUMNS, Array, deferred_s
from simnmt.results.device_accounts import (
    BatchAccount,
    BoxesUntil,
    FaultAccount,
    Log,
    RunEnergy,
    StreamAccount,
    merged_until,
)
from simnmt.results.live_log import OUTCOMES

DONE, FALLBACK, GAVE_UP, REFUSED, LOST = map(OUTCOMES.index, ("done", "fallback", "timeout", "refused", "lost"))
"""`outcome` of a request that was answered by the chosen target, or by the decider in its place; of one whose client gave up
before the answer, of one whose last try was refused, and of a lost one. Requests that were not answered have target -1 and
times NaN."""


def were_answered(outcome: Array) -> NDArray[np.bool_]:
    """Return for each outcome whether the request was answered."""
    answered: NDArray[np.bool_] = outcome <= FALLBACK
    return answered


_OPTIONAL = ("node", "access_s", "tgt_len", "model", "sentence", "document", "text_row", "priority", "patience_s")
"""Columns that the world or a policy reads, and that requests may lack."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The true times of every request on every target; all columns of shape (requests,), seconds unless stated otherwise.

    Target 0 is the device that decides; the others are behind links.
    """

    src_len: Array
    execution_s: tuple[Array, ...]
    uplink_s: tuple[Array, ...] = ()
    """From the decider to each target but the first; unused if a `Route` looks links up during the run."""
    downlink_s: tuple[Array, ...] = ()
    """From each target but the first to the decider."""
    arrival_s: Array | None = None
    """Sorted times of arrival at the decider; None if the world sets the pace."""
    node: Array | None = None
    """The end node that asks; None if there is only one."""
    access_s: Array | None = None
    """Back to back, the time from end node to decider and back; None if that is free."""
    first: int = 0
    tgt_len: Array | None = None
    """Tokens, 0 or more; None if no box needs them."""
    transfer_s: tuple[Array, ...] = ()
    """From the end node to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: Array | None = None
    """That moment, on the trace of the link to the last target."""
    model: Array | None = None
    """Number of the workload that it is of, by which boxes of several models know its model; None: 0 for all."""
    sentence: Array | None = None
    """Which sentence it is of, by number: requests of one number have the same text. None: each is of its own."""
    document: Array | None = None
    """Which document it is a sentence of, by number; those of one are decided on at one moment, one after another. None: each
    is a document of its own."""
    text_row: Array | None = None
    """Row of its sentence in the text of its workload, from 0; None if quality is unknown."""
    priority: Array | None = None
    """Rank of its class, 0 for the first served; None: 0 for all."""
    retry_after_s: tuple[Array, ...] = ()
    """By try, seconds from the refusal at the decider until the client's next try is there; infinite after its last one."""
    patience_s: Array | None = None
    """Seconds after which the client gives up, from its first try; None: no client does."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield the columns that the world reads, a block of `size` requests at a time."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            arrival_s = None if self.arrival_s is None else self.arrival_s[part]
            yield self._changed(itemgetter(part), arrival_s, self.first + start)

    def in_order(self, order: NDArray[np.int64], arrival_s: Floats) -> Requests:
        """Return the requests in the order of other times of arrival; `order`: a permutation that sorts `arrival_s`."""
        return self._changed(itemgetter(order), arrival_s[order])

    def _changed(self, change: Callable[[Array], Array], arrival_s: Array | None, first: int = 0) -> Requests:
        """Return the columns that the world reads, each changed; the times of arrival are given."""
        optional: dict[str, Any] = {name: None if (one := getattr(self, name)) is None else change(one) for name in _OPTIONAL}
        by_number = ("execution_s", "uplink_s", "downlink_s", "retry_after_s")
        times_s: dict[str, Any] = {name: tuple(map(change, getattr(self, name))) for name in by_number}
        return Requests(change(self.src_len), **times_s, arrival_s=arrival_s, first=first, **optional)

    @property
    def all(self) -> slice:
        """The slice of all requests."""
        return slice(0, len(self.src_len))

    def total_s(self, target: int, rows: slice | NDArray[np.int64]) -> Floats:
        """Return execution plus transfer on one target, without queues, of some requests."""
        total_s: Floats = self.execution_s[target][rows] + self.transfer_s[target][rows]
        return total_s

    @property
    def best_target(self) -> NDArray[np.int8]:
        """The target with the least execution plus transfer, without queues; a tie goes to the nearer target."""
        least_s, best = self.total_s(0, self.all), np.zeros(len(self), np.int8)
        for target in range(1, len(self.execution_s)):
            total_s = self.total_s(target, self.all)
            best[total_s < least_s] = target
            least_s = np.minimum(least_s, total_s)
        return best


Block = Requests
Truth = Requests
Engine = Literal["compiled", "reference"]


@dataclass(frozen=True, slots=True)
class Trail:
    """What one policy's run left: the columns of its requests, each also an attribute (None if unknown), and its accounts."""

    columns: Mapping[str, Array]
    """By the names of `columns.COLUMNS`, in the order of the requests."""
    tgt_len_by_src_len: Floats | None = None
    """Target tokens that the policy assumes, shape (parts of a mix or 1, longest source + 1); NaN if it assumes none."""
    truth: Requests | None = None
    """The requests as this policy met them, if they meet the network when the policy issues them; None: as all policies met
    them."""
    faults: FaultAccount | None = None
    batches: tuple[BatchAccount | None, ...] = ()
    """By target, of all boxes that batch; the largest batch size counts as full. None for a target without such boxes."""
    streamed: tuple[BoxesUntil | None, ...] = ()
    """By target, the totals of all boxes that stream, as the world returns them; None for a target without such boxes. Empty if
    no target streams."""
    streams: tuple[StreamAccount | None, ...] = ()
    energy: RunEnergy | None = None
    engine: Engine = "reference"
    engine_reason: str = ""
    """Why the compiled engine did not run it; empty if it did, or if the reference was chosen."""

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            raise AttributeError(name)
        return self.columns.get(name)

    @classmethod
    def recorded(cls, columns: Mapping[str, Array], accounts: Sequence[Sequence[BatchAccount | BoxesUntil | None]]) -> Trail:
        """Return the trail of a run from its columns; `accounts`: by target, of each group of boxes."""
        batches, streamed = list[BatchAccount | None](), list[BoxesUntil | None]()
        for of_target in accounts:
            of_batches = [account for account in of_target if isinstance(account, BatchAccount)]
            untils = [account for account in of_target if account is not None and not isinstance(account, BatchAccount)]
            batches.append(of_batches[0].merged(of_batches[1:]) if of_batches else None)
            streamed.append(merged_until(untils) if untils else None)
        known = {**columns, "decided_s": columns["arrival_s"]}
        return cls(known, batches=tuple(batches) if any(batches) else (), streamed=tuple(streamed) if any(streamed) else ())

    def with_columns(self, **columns: Array | None) -> Trail:
        """Return the trail with other columns; None leaves one out."""
        merged = {**self.columns, **columns}
        return replace(self, columns={name: column for name, column in merged.items() if column is not None})

    def in_order(self, order: NDArray[np.int64]) -> Trail:
        """Return the trail, which is in the order of the decisions, in the order of issue; `order`: numbers of the requests as
        decided."""
        position, faults = np.empty_like(order), self.faults
        position[order] = np.arange(len(order))
        if faults is not None:
            loads = tuple((int(order[request]), target, box, load_s) for request, target, box, load_s in faults.loads)
            faults = replace(faults, loads=loads)
        return replace(self, columns={name: column[position] for name, column in self.columns.items()}, faults=faults)


def _known(column: Array | None) -> Array:
    assert column is not None, "a run knows this column"
    return column


def _on_target(columns: tuple[Array, ...], trail: Trail) -> Floats:
    chosen = np.array(columns[0])
    for number, column in enumerate(columns[1:], start=1):
        np.copyto(chosen, column, where=trail.target == number)
    return chosen


def _execution_s(truth: Truth, trail: Trail) -> Floats:
    """Return the execution time of each request, in its batch if it was decoded in one; NaN if it was not answered."""
    alone_s = _on_target(truth.execution_s, trail)
    if trail.outcome is not None:
        alone_s[trail.target < 0] = np.nan
    return alone_s if trail.execution_s is None else np.where(np.isnan(trail.execution_s), alone_s, trail.execution_s)


def _transfer_s(truth: Truth, trail: Trail) -> Floats:
    if trail.transfer_s is not None:
        return np.asarray(trail.transfer_s)
    transfer_s = _on_target(truth.transfer_s, trail)
    if trail.outcome is not None:
        transfer_s[trail.target < 0] = np.nan
    return transfer_s


def _latency_s(truth: Truth, trail: Trail) -> Floats:
    latency_s: Floats = trail.queue_s + _execution_s(truth, trail) + _transfer_s(truth, trail) + deferred_s(trail.columns)
    return latency_s if trail.retry_s is None else latency_s + trail.retry_s


def _unless_recorded(column: Array | None, truth: Truth, otherwise: float, dtype: str = "f8") -> Array:
    return np.full(len(truth), otherwise, dtype) if column is None else column


_DERIVED: dict[str, Callable[[Truth, Trail], Array]] = {
    "request_id": lambda truth, _: np.arange(len(truth), dtype=np.int32),
    "node": lambda truth, _: _known(truth.node),
    "src_len": lambda truth, _: truth.src_len.astype(np.int32),
    "tgt_len": lambda truth, _: _known(truth.tgt_len).astype(np.int32),
    "tgt_len_predicted": lambda truth, trail: _known(trail.tgt_len_by_src_len)[trail.columns.get("part", 0), truth.src_len],
    "t_exe_s": _execution_s,
    "t_tx_s": _transfer_s,
    "latency_s": _latency_s,
    "first_token_s": lambda truth, trail: _unless_recorded(trail.first_token_s, truth, np.nan),
    "rtt_time_s": lambda truth, _: _known(truth.rtt_time_s),
    "outcome": lambda truth, trail: _unless_recorded(trail.outcome, truth, DONE, "i1"),
    "energy_j": lambda truth, trail: _unless_recorded(
        None if trail.energy is None else trail.energy.request_j(run_columns(truth, trail)), truth, np.nan
    ),
}
"""Columns of the log that are more than a column of the trail; unknown energy is NaN, never 0."""


class Columns(Log):
    """Columns by name, each computed or read on access: all of them take 111 bytes a request."""

    def __init__(self, names: Callable[[], Iterable[str]], read: Callable[[str], Array]) -> None:
        self._names, self._read = names, read

    def __getitem__(self, name: str) -> Array:
        return self._read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def run_columns(truth: Truth, trail: Trail) -> Columns:
    """Return the columns of one policy's run."""
    truth = trail.truth or truth
    recorded = {column.log: column.name for column in COLUMNS.values() if column.log}
    names = [log for log, name in recorded.items() if log in _DERIVED or name in trail.columns]

    def read(name: str) -> Array:
        return _DERIVED[name](truth, trail) if name in _DERIVED else trail.columns[recorded.get(name, name)]

    return Columns(lambda: names, read)


class RequestLog(Log):
    """Some requests of the columns of one policy, simulated or stored, each column read on access."""

    def __init__(self, columns: Log, rows: slice | Array = slice(None), whole: RequestLog | None = None) -> None:
        """Create the log of some rows of the columns. `whole`: the log of which this is a sample."""
        self.columns, self._rows = columns, rows
        self.whole = whole or self
        """The log of which this is a sample; the log itself if it is none."""

    @classmethod
    def of(cls, truth: Truth, trail: Trail, rows: slice | Array = slice(None)) -> RequestLog:
        """Return the log of some requests of a run."""
        return cls(run_columns(truth, trail), rows)

    def __getitem__(self, name: str) -> Array:
        values: Array = self.columns[name][self._rows]
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def requests(self) -> int:
        """Number of requests of the whole log."""
        return len(self.whole["target"])

    @property
    def answered(self) -> RequestLog:
        """The log of the requests that were answered."""
        outcome = self.columns["outcome"]
        numbers = np.arange(len(outcome))[self._rows] if isinstance(self._rows, slice) else self._rows
        kept = were_answered(outcome[numbers])
        return self if kept.all() else RequestLog(self.columns, numbers[kept])

    def sampled(self, most: int) -> RequestLog:
        """Return an even sample of at most `most` requests: every k-th one; the log itself if it has no more."""
        numbers = np.arange(len(self.columns["target"]))[self._rows]
        return self if len(numbers) <= most else RequestLog(self.columns, numbers[:: -(-len(numbers) // most)], self)


def drawn_logs(logs: Mapping[str, RequestLog], most: int) -> dict[str, RequestLog]:
    """Return logs for figures: with the requests alone that every policy answered, and of many an even sample."""
    answered = np.logical_and.reduce([were_answered(log["outcome"]) for log in logs.values()])
    kept = slice(None) if answered.all() else np.flatnonzero(answered)
    return {policy: RequestLog(log.columns, kept).sampled(most) for policy, log in logs.items()}


READ_ONCE_UP_TO = 1 << 18
"""Requests of the longest log whose columns are kept: the eight that a summary reads take 64 bytes a request."""


def read_once(log: Log) -> Log:
    """Return a log that computes each column once; the log itself if it is too long to keep columns."""
    return Columns(log.keys, cache(log.__getitem__)) if len(log["target"]) <= READ_ONCE_UP_TO else log


ROUNDING_S = 1e-9
"""Smaller differences are rounding errors of sums in another order, not misroutes."""


def decision_regret_s(truth: Truth, trail: Trail) -> NDArray[np.float32]:
    """Return by how many seconds each request takes longer than on the best device, as foreseen at its decision.

    NaN for requests that no oracle judged, and for those that were executed twice; where nothing waits, the true times are what
    would be foreseen. A request with a regret above 0 was misrouted. `truth` is used unless the trail has its own.
    """
    truth = trail.truth or truth
    if trail.decision_regret_s is not None:
        foreseen_s: NDArray[np.float32] = trail.decision_regret_s.astype(np.float32)
        foreseen_s[foreseen_s < ROUNDING_S] = 0.0
        return _unless_deferred(foreseen_s, trail)
    totals_s = [truth.total_s(number, truth.all) for number in range(len(truth.execution_s))]
    lost: NDArray[np.float32] = (_on_target(tuple(totals_s), trail) - np.minimum.reduce(totals_s)).astype(np.float32)
    if trail.hit is not None:
        lost[trail.hit > 0] = np.nan  # nothing was decided
    return _unless_deferred(lost, trail)


def _unless_deferred(lost_s: NDArray[np.float32], trail: Trail) -> NDArray[np.float32]:
    if trail.deferred_exe_s is not None:
        lost_s[~np.isnan(trail.deferred_exe_s)] = np.nan
    return lost_s
