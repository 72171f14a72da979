"""The request log: one row per request, as columns (DESIGN section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Column = NDArray[np.float64]
Log = Mapping[str, NDArray[Any]]
"""Columns by name, all of shape (requests,)."""

DONE = 0
"""`outcome` of a request that was answered; other values are for faults."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of each request; shape (requests,), seconds and tokens."""

    node: NDArray[np.int32]
    """The end node that asks."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    execution_s: tuple[Column, ...]
    """On each target."""
    transfer_s: tuple[Column, ...]
    """From the end node that asks to each target and back, at the moment on the traces that belongs to the request."""
    rtt_time_s: Column
    """That moment, on the trace of the link to the last target."""

    @property
    def best_target(self) -> NDArray[np.int8]:
        """Where execution plus transfer is least, queues left out; a tie goes to the nearer target."""
        best = np.zeros(len(self.src_len), np.int8)
        least_s = self.execution_s[0] + self.transfer_s[0]
        for target in range(1, len(self.execution_s)):
            total_s = self.execution_s[target] + self.transfer_s[target]
            nearer = total_s < least_s
            best[nearer] = target
            least_s = np.where(nearer, total_s, least_s)
        return best

    def part(self, rows: slice) -> Truth:
        """The same of some requests."""
        return Truth(
            self.node[rows],
            self.src_len[rows],
            self.tgt_len[rows],
            tuple(column[rows] for column in self.execution_s),
            tuple(column[rows] for column in self.transfer_s),
            self.rtt_time_s[rows],
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """What one policy made of the requests; shape (requests,)."""

    arrival_s: Column
    """When each was issued at its end node."""
    target: NDArray[np.int8]
    server: NDArray[np.int32]
    """Which device of the target's tier."""
    queue_s: Column
    estimate_s: Column
    """The transfer time to the last target that the decider believed in."""
    estimate_age_s: Column
    """How long before the decision that had been measured."""
    tgt_len_by_src_len: Column
    """Target tokens that the policy reckons with, by source length, shape (longest source + 1,); NaN where it has no idea."""
    probes: int = 0
    """Probes sent besides."""
    truth: Truth | None = None
    """Where requests meet the network when this policy issues them: the truth in place of the common one."""

    def part(self, rows: slice) -> Passage:
        """The same of some requests."""
        names = ("arrival_s", "target", "server", "queue_s", "estimate_s", "estimate_age_s")
        parts = {name: getattr(self, name)[rows] for name in names}
        return replace(self, **parts, truth=None if self.truth is None else self.truth.part(rows))


def _chosen(columns: tuple[Column, ...], target: NDArray[np.int8]) -> Column:
    """Of each request, the number of its target."""
    chosen = np.array(columns[0])
    for number, column in enumerate(columns[1:], start=1):
        np.copyto(chosen, column, where=target == number)
    return chosen


_COLUMNS: dict[str, Callable[[Truth, Passage, int], NDArray[Any]]] = {
    "request_id": lambda truth, _, first: np.arange(first, first + len(truth.src_len), dtype=np.int32),
    "node": lambda truth, *_: truth.node,
    "arrival_s": lambda _, passage, __: passage.arrival_s,
    "src_len": lambda truth, *_: truth.src_len.astype(np.int32),
    "tgt_len": lambda truth, *_: truth.tgt_len.astype(np.int32),
    "tgt_len_predicted": lambda truth, passage, _: passage.tgt_len_by_src_len[truth.src_len],
    "target": lambda _, passage, __: passage.target,
    "server": lambda _, passage, __: passage.server,
    "t_queue_s": lambda _, passage, __: passage.queue_s,
    "t_exe_s": lambda truth, passage, _: _chosen(truth.execution_s, passage.target),
    "t_tx_s": lambda truth, passage, _: _chosen(truth.transfer_s, passage.target),
    "latency_s": lambda truth, passage, _: (
        passage.queue_s + _chosen(truth.execution_s, passage.target) + _chosen(truth.transfer_s, passage.target)
    ),
    "rtt_time_s": lambda truth, *_: truth.rtt_time_s,
    "rtt_estimate_s": lambda _, passage, __: passage.estimate_s,
    "rtt_estimate_age_s": lambda _, passage, __: passage.estimate_age_s,
    "outcome": lambda truth, *_: np.full(len(truth.src_len), DONE, np.int8),
}
COLUMNS = tuple(_COLUMNS)
"""In the order in which they are written."""


class RequestLog(Log):
    """The columns of one policy's log, each made when it is asked for: whole, they are 95 bytes a request."""

    __slots__ = ("_first", "_passage", "_truth")

    def __init__(self, truth: Truth, passage: Passage, first: int = 0) -> None:
        """`first`: number of the first request."""
        self._truth, self._passage, self._first = passage.truth or truth, passage, first

    def __getitem__(self, name: str) -> NDArray[Any]:
        return _COLUMNS[name](self._truth, self._passage, self._first)

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)

    def parts(self, requests: int) -> Iterator[Log]:
        """The same log, so many requests at a time."""
        for start in range(0, len(self._truth.src_len), requests):
            rows = slice(start, start + requests)
            yield RequestLog(self._truth.part(rows), self._passage.part(rows), self._first + start)


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
