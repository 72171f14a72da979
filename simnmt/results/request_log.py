"""The request log: one row per request with its true times and what a policy did, and the misrouted requests.

A request is misrouted if another device would have answered it sooner, as foreseen at the decision. If requests queue, an
even sample of the decisions is judged by the execution, transfer and wait that an oracle foresaw at the decision. Requests that
arrive later do not count, although they may change which device is the fastest. If nothing waits, every decision is judged by
the true execution and transfer times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.results.columns import COLUMNS, Array
from simnmt.results.live_log import OUTCOMES
from simnmt.results.requests import Requests, Trail

Log = Mapping[str, Array]
"""Columns by name, all of shape (requests,)."""

Truth = Requests
"""The requests of a run with all their true times."""

DONE, FALLBACK, LOST = (OUTCOMES.index(outcome) for outcome in ("done", "fallback", "lost"))
"""`outcome` of a request that was answered by the chosen target, or by the decider in its place; and of a lost one.
Requests of other outcomes were not answered: their target is -1, and their times are NaN."""


def were_answered(outcome: Array) -> NDArray[np.bool_]:
    """Return for each outcome whether the request was answered."""
    answered: NDArray[np.bool_] = outcome <= FALLBACK
    return answered


def _known(column: Array | None) -> Array:
    assert column is not None, "a run knows this column"
    return column


def _chosen(columns: tuple[Array, ...], trail: Trail) -> NDArray[np.float64]:
    """Return the number of the target of each request."""
    chosen = np.array(columns[0])
    for number, column in enumerate(columns[1:], start=1):
        np.copyto(chosen, column, where=trail.target == number)
    return chosen


def _execution_s(truth: Truth, trail: Trail) -> NDArray[np.float64]:
    """Return the execution time of each request, in its batch if it was decoded in one; NaN if it was not answered."""
    alone_s = _chosen(truth.execution_s, trail)
    if trail.outcome is not None:
        alone_s[trail.target < 0] = np.nan
    return alone_s if trail.execution_s is None else np.where(np.isnan(trail.execution_s), alone_s, trail.execution_s)


def _transfer_s(truth: Truth, trail: Trail) -> NDArray[np.float64]:
    """Return the transfer time of each request, as it met other messages on the way."""
    return _chosen(truth.transfer_s, trail) if trail.transfer_s is None else np.asarray(trail.transfer_s)


def _energy_j(truth: Truth, trail: Trail) -> NDArray[np.float64]:
    """Return the energy of each request; NaN, never 0, if it is unknown."""
    if trail.energy is None:
        return np.full(len(truth), np.nan)
    return trail.energy.request_j(RunColumns(truth, trail))


_DERIVED: dict[str, Callable[[Truth, Trail], Array]] = {
    "request_id": lambda truth, _: np.arange(len(truth), dtype=np.int32),
    "node": lambda truth, _: _known(truth.node),
    "src_len": lambda truth, _: truth.src_len.astype(np.int32),
    "tgt_len": lambda truth, _: _known(truth.tgt_len).astype(np.int32),
    "tgt_len_predicted": lambda truth, trail: _known(trail.tgt_len_by_src_len)[truth.src_len],
    "t_exe_s": _execution_s,
    "t_tx_s": _transfer_s,
    "latency_s": lambda truth, trail: trail.queue_s + _execution_s(truth, trail) + _transfer_s(truth, trail),
    "first_token_s": lambda truth, trail: np.full(len(truth), np.nan) if trail.first_token_s is None else trail.first_token_s,
    "rtt_time_s": lambda truth, _: _known(truth.rtt_time_s),
    "outcome": lambda truth, trail: np.full(len(truth), DONE, np.int8) if trail.outcome is None else trail.outcome,
    "energy_j": _energy_j,
}
"""Columns of the log that are more than a column of the trail."""


class RunColumns(Log):
    """The columns of one policy's run, each computed on access: all of them take 111 bytes a request."""

    def __init__(self, truth: Truth, trail: Trail) -> None:
        self.truth, self.trail = trail.truth or truth, trail

    def __getitem__(self, name: str) -> Array:
        if name in _DERIVED:
            return _DERIVED[name](self.truth, self.trail)
        recorded = next((column.name for column in COLUMNS.values() if column.log == name), name)
        return self.trail.columns[recorded]

    def __iter__(self) -> Iterator[str]:
        known = self.trail.columns
        return (column.log for column in COLUMNS.values() if column.log in _DERIVED or (column.log and column.name in known))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RequestLog(Log):
    """Some requests of the columns of one policy, simulated or stored, each column read on access."""

    def __init__(self, columns: Log, rows: slice | Array = slice(None), whole: RequestLog | None = None) -> None:
        """Create the log of some rows of the columns. `whole`: the log of which this is a sample."""
        self.columns, self._rows = columns, rows
        self.whole = whole or self
        """The log of which this is a sample; the log itself if it is none."""

    @classmethod
    def of(cls, truth: Truth, trail: Trail, rows: slice = slice(None)) -> RequestLog:
        """Return the log of some requests of a run."""
        return cls(RunColumns(truth, trail), rows)

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
        numbers = np.arange(len(outcome))[self._rows]
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


class _ReadOnce(dict[str, Array]):
    """The columns of a log, each computed when it is read first, and then kept."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, name: str) -> Array:
        self[name] = self._log[name]
        return self[name]


def read_once(log: Log) -> Log:
    """Return a log that computes each column once; the log itself if it is too long to keep columns."""
    return _ReadOnce(log) if len(log["target"]) <= READ_ONCE_UP_TO else log


ROUNDING_S = 1e-9
"""Smaller differences are rounding errors of sums in another order, not misroutes."""


@dataclass(frozen=True, slots=True)
class Misroutes:
    """How the decisions of one policy were judged."""

    foreseen: bool = False
    """True if by an oracle's foresight, queues included; False if nothing waits."""
    sampled: bool = False
    """True if those of an even sample of the requests alone."""

    @classmethod
    def of(cls, trail: Trail) -> Misroutes:
        """Return how the decisions of a run were judged."""
        regret_s = trail.decision_regret_s
        return cls() if regret_s is None else cls(foreseen=True, sampled=not np.isfinite(regret_s).all())


def decision_regret_s(truth: Truth, trail: Trail) -> NDArray[np.float32]:
    """Return by how many seconds each request takes longer than on the best device, as foreseen at its decision.

    NaN for requests that no oracle judged; where nothing waits, the true times are what would be foreseen. A request with a
    regret above 0 was misrouted. `truth` is used unless the trail has its own.
    """
    truth = trail.truth or truth
    if trail.decision_regret_s is not None:
        foreseen_s: NDArray[np.float32] = trail.decision_regret_s.astype(np.float32)
        foreseen_s[foreseen_s < ROUNDING_S] = 0.0
        return foreseen_s
    target = trail.target
    least_s = chosen_s = truth.total_s(0, truth.all)
    for number in range(1, len(truth.execution_s)):
        total_s = truth.total_s(number, truth.all)
        chosen_s = np.where(target == number, total_s, chosen_s)
        least_s = np.minimum(least_s, total_s)
    lost: NDArray[np.float32] = (chosen_s - least_s).astype(np.float32)
    return lost
