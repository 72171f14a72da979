"""The columns of a run: the requests with their true times, and the trail that one policy leaves of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from math import nan
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.results.device_accounts import BatchAccount, BoxesUntil, StreamAccount
from simnmt.results.energy import RunEnergy
from simnmt.results.fault_account import FaultAccount

Array = NDArray[Any]

BLOCK = 4_096
"""Requests made into Python numbers at a time: few enough to stay in the processor's cache, so that the cost per request does
not grow with their number (65,536 at a time cost 14 % more)."""


@dataclass(frozen=True, slots=True)
class Requests:
    """The true times of every request on every target; all columns of shape (requests,), seconds unless stated otherwise.

    Target 0 is the device that decides; the others are behind links.
    """

    src_len: Array
    """Tokens."""
    execution_s: tuple[Array, ...]
    """Execution on each target."""
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
    """Number of the first request in the run."""
    tgt_len: Array | None = None
    """Tokens, 0 or more; None if no server needs them."""
    transfer_s: tuple[Array, ...] = ()
    """From the end node to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: Array | None = None
    """That moment, on the trace of the link to the last target."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Yield the columns that the world reads, a block of `size` requests at a time."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            arrival_s = None if self.arrival_s is None else self.arrival_s[part]
            yield self._changed(itemgetter(part), arrival_s, self.first + start)

    def in_order(self, order: NDArray[np.int64], arrival_s: NDArray[np.float64]) -> Requests:
        """Return the requests in the order of other times of arrival; `order`: a permutation that sorts `arrival_s`."""
        return self._changed(itemgetter(order), arrival_s[order])

    def _changed(self, change: Callable[[Array], Array], arrival_s: Array | None, first: int = 0) -> Requests:
        """Return the columns that the world reads, each changed; the times of arrival are given."""
        return Requests(
            change(self.src_len),
            tuple(map(change, self.execution_s)),
            tuple(map(change, self.uplink_s)),
            tuple(map(change, self.downlink_s)),
            arrival_s,
            None if self.node is None else change(self.node),
            None if self.access_s is None else change(self.access_s),
            first,
            None if self.tgt_len is None else change(self.tgt_len),
        )

    @property
    def all(self) -> slice:
        """The slice of all requests."""
        return slice(0, len(self.src_len))

    def total_s(self, target: int, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return execution plus transfer on one target, without queues, of some requests."""
        total_s: NDArray[np.float64] = self.execution_s[target][rows] + self.transfer_s[target][rows]
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

    @property
    def best_offloaded_share(self) -> float:
        """Share of requests whose best target is another one than the first."""
        return np.count_nonzero(self.best_target) / len(self)


Block = Requests
"""Consecutive requests."""

_COMMON: dict[str, array[Any]] = {
    **dict.fromkeys(("arrival_s", "queue_s", "estimate_s", "measured_at_s"), array("d", [0.0])),
    "target": array("b", [0]),
    "server": array("h", [0]),
}
"""Columns that every run records, each with its initial value."""
_OPTIONAL: dict[str, array[Any]] = {
    **dict.fromkeys(("execution_s", "first_token_s", "lost_s", "transfer_s"), array("d", [nan])),
    "state": array("b", [-1]),
    "stall_s": array("d", [0.0]),
    "deadline_missed": array("b", [0]),
    "outcome": array("b", [0]),
}
"""Columns that a run records if some server fills them, or if decisions are judged."""
STREAMED_COLUMNS = ("state", "stall_s", "deadline_missed")
"""Columns of a run in which a device streams its model."""

Engine = Literal["compiled", "simpy"]
Recorder = Mapping[str, "array[Any]"]
"""A trail under way: plain columns by name; 35 bytes a request, 51 if servers batch, 61 if they stream, 8 more with
`lost_s`."""


def recorder(requests: int, optional: Collection[str] = ()) -> Recorder:
    """Return empty columns for a run of `requests` requests; `optional`: names of further columns of the `Trail`."""
    unknown = set(optional) - set(_OPTIONAL)
    if unknown:
        raise ValueError(f"a trail has no optional columns {', '.join(sorted(unknown))}")
    return {name: empty * requests for name, empty in (_COMMON | {name: _OPTIONAL[name] for name in optional}).items()}


@dataclass(frozen=True, slots=True)
class Trail:
    """The results of one policy; one entry per request, in their order, seconds unless stated otherwise."""

    arrival_s: Array
    """When the request was issued. As the world returns it in an open loop: when its decider had it."""
    target: Array
    server: Array
    """Number of the box within its target. As the world returns it: 0 on the decider's device."""
    queue_s: Array
    """Waiting time before execution."""
    estimate_s: Array
    """The decider's estimate of the transfer time to the last target when it decided."""
    estimate_age_s: Array | None = None
    """Age of that estimate at the decision, on the clock by which RTT is looked up."""
    tgt_len_by_src_len: NDArray[np.float64] | None = None
    """Target tokens that the policy assumes, by source length, shape (longest source + 1,); NaN if it assumes none."""
    measured_at_s: Array | None = None
    """When the estimate was measured; 0 for the initial one. Kept, like `decided_s`, until the age is computed."""
    decided_s: Array | None = None
    """When its decider had it."""
    node: Array | None = None
    """End node of each request, in a closed loop, where the answers decide who asks next."""
    truth: Requests | None = None
    """The requests as this policy met them, if they meet the network when the policy issues them; None: as all policies met
    them."""
    execution_s: Array | None = None
    """At a target that batches, from the begin of the encoding to the end; at one that streams its model, from its turn at the
    processor to the end; NaN elsewhere. None if no target batches or streams."""
    first_token_s: Array | None = None
    """At such a target, from the arrival there to the end of the first step, or of the model if it takes no step; NaN elsewhere
    and, at a target that batches, without output."""
    lost_s: Array | None = None
    """By how much the chosen target takes longer than the best one, queues and batches included, as an oracle foresees at the
    decision; NaN for requests that were not judged. None if none was judged."""
    transfer_s: Array | None = None
    """From the end node to the target and back, if other messages on the way make it longer. As the world returns it: from the
    decider. None if the requests' own times hold."""
    state: Array | None = None
    """At a target that streams its model: 0 cold, k in the k-th turn of an engagement; -1 elsewhere. None if no target streams,
    like the next two columns."""
    stall_s: Array | None = None
    """At such a target, seconds that the processor waited for reads; 0 elsewhere."""
    deadline_missed: Array | None = None
    """True if a streamed request missed its deadline."""
    outcome: Array | None = None
    """How each request ended: its index in `live_log.OUTCOMES`. None if all were answered as decided, as in simulations
    without faults."""
    faults: FaultAccount | None = None
    """Account of the faults; None without any."""
    batches: tuple[BatchAccount | None, ...] = ()
    """Account of each target's batches; None if it does not batch. Empty if no target does."""
    streamed: tuple[BoxesUntil | None, ...] = ()
    """Totals of each streamed target's boxes, as the world returns them; None for other targets. Empty if no target streams."""
    streams: tuple[StreamAccount | None, ...] = ()
    """Account of each target's streamed model with its requests. Empty if no target streams."""
    energy: RunEnergy | None = None
    """Joules and money of the run; None if they are not accounted for."""
    engine: Engine = "simpy"
    """The engine of the world that ran it; both give the same results."""

    @classmethod
    def recorded(
        cls,
        columns: Mapping[str, array[Any] | Array],
        accounts: tuple[BatchAccount | BoxesUntil | None, ...],
    ) -> Trail:
        """Return the trail of a run from its columns; `accounts`: of each target's servers."""
        whole: dict[str, Any] = {name: np.asarray(column) for name, column in columns.items()}
        if "deadline_missed" in whole:
            whole["deadline_missed"] = whole["deadline_missed"].view(np.bool_)
        batches = tuple(account if isinstance(account, BatchAccount) else None for account in accounts)
        streamed = tuple(
            None if isinstance(account, BatchAccount) or not callable(account) else account for account in accounts
        )
        return cls(
            **whole,
            decided_s=whole["arrival_s"],
            batches=batches if any(batches) else (),
            streamed=streamed if any(streamed) else (),
        )

    def in_order(self, order: NDArray[np.int64]) -> Trail:
        """Return the trail, which is in the order of the decisions, in the order of issue; `order`: numbers of the requests as
        decided."""
        position = np.argsort(order)
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        columns = {
            name: value[position]
            for name, value in values.items()
            if isinstance(value, np.ndarray) and name != "tgt_len_by_src_len"
        }
        return replace(self, **(values | columns))
