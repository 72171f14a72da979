"""The columns of a run: the requests with their true times, and the trail that one policy leaves of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.results.columns import COLUMNS, Array
from simnmt.results.device_accounts import BatchAccount, BoxesUntil, FaultAccount, StreamAccount
from simnmt.results.energy import RunEnergy


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
    """Tokens, 0 or more; None if no box needs them."""
    transfer_s: tuple[Array, ...] = ()
    """From the end node to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: Array | None = None
    """That moment, on the trace of the link to the last target."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self, size: int) -> Iterator[Block]:
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
Engine = Literal["compiled", "reference"]


@dataclass(frozen=True, slots=True)
class Trail:
    """What one policy's run left: the columns of its requests, each also an attribute (None if unknown), and its accounts."""

    columns: Mapping[str, Array]
    """By the names of `columns.COLUMNS`, in the order of the requests."""
    tgt_len_by_src_len: NDArray[np.float64] | None = None
    """Target tokens that the policy assumes, by source length, shape (longest source + 1,); NaN if it assumes none."""
    truth: Requests | None = None
    """The requests as this policy met them, if they meet the network when the policy issues them; None: as all policies met
    them."""
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
    engine: Engine = "reference"
    """The engine of the world that ran it; both make the same choices."""
    engine_reason: str = ""
    """Why the compiled engine did not run it; empty if it did, or if the reference was chosen."""

    def __getattr__(self, name: str) -> Any:
        if name not in COLUMNS:
            raise AttributeError(name)
        return self.columns.get(name)

    @classmethod
    def recorded(
        cls,
        columns: Mapping[str, Array],
        accounts: tuple[BatchAccount | BoxesUntil | None, ...],
    ) -> Trail:
        """Return the trail of a run from its columns; `accounts`: of each target's boxes."""
        batches = tuple(account if isinstance(account, BatchAccount) else None for account in accounts)
        streamed = tuple(
            None if isinstance(account, BatchAccount) or not callable(account) else account for account in accounts
        )
        return cls(
            {**columns, "decided_s": columns["arrival_s"]},
            batches=batches if any(batches) else (),
            streamed=streamed if any(streamed) else (),
        )

    def with_columns(self, **columns: Array | None) -> Trail:
        """Return the trail with other columns; None leaves one out."""
        merged = {**self.columns, **columns}
        return replace(self, columns={name: column for name, column in merged.items() if column is not None})

    def in_order(self, order: NDArray[np.int64]) -> Trail:
        """Return the trail, which is in the order of the decisions, in the order of issue; `order`: numbers of the requests as
        decided."""
        position = np.argsort(order)
        return replace(self, columns={name: column[position] for name, column in self.columns.items()})
