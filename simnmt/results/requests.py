"""The columns of a run: the requests with their true times, and the trail that one policy leaves of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import nan
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn, Array, Reordered, Rows, assemble, write_columns
from simnmt.results.device_accounts import BatchAccount, BoxesUntil, StreamAccount

ColumnT = TypeVar("ColumnT", bound=AnyColumn, covariant=True)

BLOCK = 4_096
"""Requests made into Python numbers at a time: few enough to stay in the processor's cache, so that the cost per request does
not grow with their number (65,536 at a time cost 14 % more)."""

Joules = Callable[[Array, Array, Array], "NDArray[np.float64] | None"]
"""From source lengths, target lengths and execution times to the energy of each execution; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class Requests(Generic[ColumnT]):
    """The true times of every request on every target; all columns of shape (requests,), seconds unless stated otherwise.

    Target 0 is the device that decides; the others lie behind links. A run's columns may lie in files; those of a block are
    arrays.
    """

    src_len: ColumnT
    """Tokens."""
    execution_s: tuple[ColumnT, ...]
    """Execution on each target."""
    uplink_s: tuple[ColumnT, ...] = ()
    """From the decider to each target but the first; unused where a `Route` looks links up as time goes by."""
    downlink_s: tuple[ColumnT, ...] = ()
    """Back again."""
    arrival_s: NDArray[np.float64] | None = None
    """Sorted times of arrival at the decider; None where the world sets the pace."""
    node: ColumnT | None = None
    """The end node that asks; None if there is one only."""
    access_s: ColumnT | None = None
    """Back to back, the time from end node to decider and back; None where that costs nothing."""
    first: int = 0
    """The first request's number in the run."""
    tgt_len: ColumnT | None = None
    """Tokens, 0 or more; None where no server needs them."""
    transfer_s: tuple[ColumnT, ...] = ()
    """From the end node that asks to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: ColumnT | None = None
    """That moment, on the trace of the link to the last target."""
    joules: tuple[Joules | None, ...] = ()
    """What an execution on each target costs; empty or None where that was never measured."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self) -> Iterator[Block]:
        """Yield the columns that the world reads, a block of `BLOCK` requests at a time."""
        for start in range(0, len(self), BLOCK):
            part = slice(start, start + BLOCK)
            yield Requests(
                self.src_len[part],
                tuple(column[part] for column in self.execution_s),
                tuple(column[part] for column in self.uplink_s),
                tuple(column[part] for column in self.downlink_s),
                None if self.arrival_s is None else self.arrival_s[part],
                None if self.node is None else self.node[part],
                None if self.access_s is None else self.access_s[part],
                self.first + start,
                None if self.tgt_len is None else self.tgt_len[part],
            )

    def in_order(self, order: NDArray[np.int64], arrival_s: NDArray[np.float64]) -> Requests[AnyColumn]:
        """Return the requests in the order of other times of arrival; `order`: a permutation that sorts `arrival_s`."""

        def ordered(column: AnyColumn) -> Reordered:
            return Reordered(column, order)

        return Requests(
            ordered(self.src_len),
            tuple(map(ordered, self.execution_s)),
            tuple(map(ordered, self.uplink_s)),
            tuple(map(ordered, self.downlink_s)),
            arrival_s[order],
            None if self.node is None else ordered(self.node),
            tgt_len=None if self.tgt_len is None else ordered(self.tgt_len),
        )

    @property
    def all(self) -> slice:
        """All requests."""
        return slice(0, len(self.src_len))

    def total_s(self, target: int, rows: Rows) -> NDArray[np.float64]:
        """Return execution plus transfer on one target, without queues, of some requests."""
        total_s: NDArray[np.float64] = self.execution_s[target][rows] + self.transfer_s[target][rows]
        return total_s

    @property
    def best_target(self) -> NDArray[np.int8]:
        """The target with the least execution plus transfer, without queues; a tie goes to the nearer target."""
        return assemble(self._best_target, self.all)

    def _best_target(self, rows: slice) -> NDArray[np.int8]:
        totals_s = np.stack([self.total_s(target, rows) for target in range(len(self.execution_s))])
        best: NDArray[np.int8] = totals_s.argmin(0).astype(np.int8)
        return best

    def stored(self, folder: Path) -> Requests[AnyColumn]:
        """Return the same with every array in a file of a folder. Raises `OSError`."""
        return _stored(self, folder)


Block = Requests[Array]
"""Some requests in a row."""

_COMMON: dict[str, array[Any]] = {
    **dict.fromkeys(("arrival_s", "queue_s", "estimate_s", "measured_at_s"), array("d", [0.0])),
    "target": array("b", [0]),
    "server": array("h", [0]),
}
"""Columns that every run records, each with its initial value."""
_OPTIONAL: dict[str, array[Any]] = {
    **dict.fromkeys(("execution_s", "first_token_s", "lost_s"), array("d", [nan])),
    "state": array("b", [-1]),
    "stall_s": array("d", [0.0]),
    "deadline_missed": array("b", [0]),
}
"""Columns that a run records where some server fills them in, or decisions are judged."""
STREAMED_COLUMNS = ("state", "stall_s", "deadline_missed")
"""Columns of a run in which a device streams its model."""

Recorder = Mapping[str, "array[Any]"]
"""A trail under way: plain columns by name; 35 bytes a request, 51 where servers batch, 61 where they stream, 8 more with
`lost_s`."""


def recorder(requests: int, optional: Collection[str] = ()) -> Recorder:
    """Return the columns that a run of so many requests fills in; `optional`: names of further columns of the `Trail`."""
    unknown = set(optional) - set(_OPTIONAL)
    if unknown:
        raise ValueError(f"a trail has no optional columns {', '.join(sorted(unknown))}")
    return {name: empty * requests for name, empty in (_COMMON | {name: _OPTIONAL[name] for name in optional}).items()}


@dataclass(frozen=True, slots=True)
class Trail:
    """What one policy made of the requests; one entry per request, in their order, seconds unless stated otherwise."""

    arrival_s: AnyColumn
    """When the request was issued; as the world returns it, in an open loop, when its decider had it."""
    target: AnyColumn
    server: AnyColumn
    """Which server of the target's tier; as the world returns it, 0 on the decider's device."""
    queue_s: AnyColumn
    """Waited before execution."""
    estimate_s: AnyColumn
    """The transfer time to the last target that the decider believed in when it decided."""
    estimate_age_s: AnyColumn | None = None
    """How long before the decision that estimate had been measured, on the clock by which RTT is looked up."""
    tgt_len_by_src_len: NDArray[np.float64] | None = None
    """Target tokens that the policy assumes, by source length, shape (longest source + 1,); NaN where it assumes nothing."""
    measured_at_s: AnyColumn | None = None
    """When the estimate had been measured; 0 for the initial one. Kept until its age is known, as is the next one."""
    decided_s: AnyColumn | None = None
    """When its decider had it."""
    probes: int = 0
    """Probes sent, by all deciders."""
    node: AnyColumn | None = None
    """The end nodes that asked, where the loop is closed and the clients' answers decide who asks next."""
    truth: Requests[AnyColumn] | None = None
    """The requests as this policy met them, where they meet the network when the policy issues them; None: as all met them."""
    execution_s: AnyColumn | None = None
    """At a target that batches, from the begin of the encoding to the end, and at one that streams its model, from the turn at
    the processor to the end; NaN elsewhere. None where no target does either."""
    first_token_s: AnyColumn | None = None
    """At such a target, from the arrival there to the end of the first step, or of the model where it takes none; NaN elsewhere
    and, at a target that batches, without output."""
    lost_s: AnyColumn | None = None
    """By how much the chosen target takes longer than the best one, queues and batches included, as an oracle foresees both
    when the decision is made; NaN for requests that were not judged. None if none was."""
    state: AnyColumn | None = None
    """At a target that streams its model: 0 cold, k in the k-th turn of an engagement; -1 elsewhere. None where no target
    streams, and so the next two."""
    stall_s: AnyColumn | None = None
    """There, how long the processor waited for reads; 0 elsewhere."""
    deadline_missed: AnyColumn | None = None
    """True if a streamed request missed its deadline."""
    batches: tuple[BatchAccount | None, ...] = ()
    """By target, the account of its batches; None where it does not batch. Empty where no target does."""
    streamed: tuple[BoxesUntil | None, ...] = ()
    """By target, the account of its boxes as the world returns it; None where they do not stream their model."""
    streams: tuple[StreamAccount | None, ...] = ()
    """By target, the account of its streamed model with the requests that it executed. Empty where no target streams."""

    @classmethod
    def recorded(cls, columns: Recorder, probes: int, accounts: tuple[BatchAccount | BoxesUntil | None, ...]) -> Trail:
        """Return the trail that a run has recorded; `accounts`: of each target's servers."""
        whole: dict[str, Any] = {name: np.frombuffer(column, column.typecode) for name, column in columns.items()}
        if "deadline_missed" in whole:
            whole["deadline_missed"] = whole["deadline_missed"].view(np.bool_)
        batches = tuple(account if isinstance(account, BatchAccount) else None for account in accounts)
        streamed = tuple(None if isinstance(account, BatchAccount) else account for account in accounts)
        return cls(
            **whole,
            decided_s=whole["arrival_s"],
            probes=probes,
            batches=batches if any(batches) else (),
            streamed=streamed if any(streamed) else (),
        )

    def in_order(self, order: NDArray[np.int64]) -> Trail:
        """Return the trail, which is in the order of the decisions, in that of the requests; `order`: the latter's numbers."""
        position = np.argsort(order)
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray) and name not in _UNSORTED}
        return replace(self, **(values | {name: column[position] for name, column in arrays.items()}))

    def stored(self, folder: Path) -> Trail:
        """Return the same with every array in a file of a folder. Raises `OSError`."""
        return _stored(self, folder)


FormT = TypeVar("FormT", Requests[Any], Trail)


_UNSORTED = {"tgt_len_by_src_len"}
"""Columns that are not by request."""


def _stored(form: FormT, folder: Path) -> FormT:
    """Return the form with its arrays in files of a folder, those of tuples and of an inner form too."""

    def store(name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and name not in _UNSORTED:
            return write_columns(folder, [{name: value}])[name]
        if isinstance(value, tuple):
            return tuple(store(f"{name} {number}", part) for number, part in enumerate(value))
        return value.stored(folder) if isinstance(value, Requests) else value

    return replace(form, **{field.name: store(field.name, getattr(form, field.name)) for field in fields(form)})
