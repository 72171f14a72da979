"""The request log: one row per request with its true times and what a policy did, and the misrouted requests.

A request is misrouted if another device would have answered it sooner, as foreseen at the decision. If requests queue, a
decision is judged by what an oracle foresaw at that moment, queues included, for an even sample of the requests: what happens
later may change which device would have been the fastest. If nothing waits, the true execution and transfer times decide.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.results.live_log import OUTCOMES
from simnmt.results.requests import STREAMED_COLUMNS, Array, Requests, Trail

Log = Mapping[str, Array]
"""Columns by name, all of shape (requests,)."""

Truth = Requests
"""The requests of a run with all their true times."""

DONE, FALLBACK, LOST = (OUTCOMES.index(outcome) for outcome in ("done", "fallback", "lost"))
"""`outcome` of a request that was answered by the chosen target, or by the decider in its place; and of a lost one.
Requests of other outcomes were not answered: their target is -1, and their times are NaN."""


def _size_of(rows: slice) -> int:
    return len(range(rows.start, rows.stop, rows.step or 1))


def were_answered(outcome: Array) -> NDArray[np.bool_]:
    """Return for each outcome whether the request was answered."""
    answered: NDArray[np.bool_] = outcome <= FALLBACK
    return answered


def _known(column: Array | None) -> Array:
    assert column is not None, "a run knows this column"
    return column


def _chosen(columns: tuple[Array, ...], trail: Trail, rows: slice) -> NDArray[np.float64]:
    """Return the number of the target of each request."""
    chosen, target = np.array(columns[0][rows]), trail.target[rows]
    for number, column in enumerate(columns[1:], start=1):
        np.copyto(chosen, column[rows], where=target == number)
    return chosen


def _execution_s(truth: Truth, trail: Trail, rows: slice) -> NDArray[np.float64]:
    """Return the execution time of each request, in its batch if it was decoded in one; NaN if it was not answered."""
    alone_s = _chosen(truth.execution_s, trail, rows)
    if trail.outcome is not None:
        alone_s[trail.target[rows] < 0] = np.nan
    if trail.execution_s is None:
        return alone_s
    batched_s: NDArray[np.float64] = trail.execution_s[rows]
    return np.where(np.isnan(batched_s), alone_s, batched_s)


def _transfer_s(truth: Truth, trail: Trail, rows: slice) -> NDArray[np.float64]:
    """Return the transfer time of each request, as it met other messages on the way."""
    return _chosen(truth.transfer_s, trail, rows) if trail.transfer_s is None else np.asarray(trail.transfer_s[rows])


def _first_token_s(truth: Truth, trail: Trail, rows: slice) -> NDArray[np.float64]:
    return np.full(_size_of(rows), np.nan) if trail.first_token_s is None else trail.first_token_s[rows]


def _energy_j(truth: Truth, trail: Trail, rows: slice) -> NDArray[np.float64]:
    """Return the energy of each request; NaN, never 0, if it is unknown."""
    if trail.energy is None:
        return np.full(_size_of(rows), np.nan)
    return trail.energy.request_j({name: _COLUMNS[name](truth, trail, rows) for name in trail.energy.COLUMNS})


_COLUMNS: dict[str, Callable[[Truth, Trail, slice], Array]] = {
    "request_id": lambda _, __, rows: np.arange(rows.start, rows.stop, rows.step, dtype=np.int32),
    "node": lambda truth, _, rows: _known(truth.node)[rows],
    "arrival_s": lambda _, trail, rows: trail.arrival_s[rows],
    "src_len": lambda truth, _, rows: truth.src_len[rows].astype(np.int32),
    "tgt_len": lambda truth, _, rows: _known(truth.tgt_len)[rows].astype(np.int32),
    "tgt_len_predicted": lambda truth, trail, rows: _known(trail.tgt_len_by_src_len)[truth.src_len[rows]],
    "target": lambda _, trail, rows: trail.target[rows],
    "server": lambda _, trail, rows: trail.server[rows],
    "t_queue_s": lambda _, trail, rows: trail.queue_s[rows],
    "t_exe_s": _execution_s,
    "t_tx_s": _transfer_s,
    "latency_s": lambda truth, trail, rows: (
        trail.queue_s[rows] + _execution_s(truth, trail, rows) + _transfer_s(truth, trail, rows)
    ),
    "first_token_s": _first_token_s,
    "rtt_time_s": lambda truth, _, rows: _known(truth.rtt_time_s)[rows],
    "rtt_estimate_s": lambda _, trail, rows: trail.estimate_s[rows],
    "rtt_estimate_age_s": lambda _, trail, rows: _known(trail.estimate_age_s)[rows],
    "outcome": lambda _, trail, rows: np.full(_size_of(rows), DONE, np.int8) if trail.outcome is None else trail.outcome[rows],
    "energy_j": _energy_j,
}
COLUMNS = tuple(_COLUMNS)
"""In the order in which they are written."""


class DrawnLog(Log):
    """The requests of one policy as figures read them: simulated just now, or stored in a run directory."""

    __slots__ = ()

    @property
    @abstractmethod
    def requests(self) -> int:
        """Number of requests of the whole log."""

    @property
    @abstractmethod
    def whole(self) -> Log:
        """The log of which this is a sample; the log itself if it is none."""


class RequestLog(DrawnLog):
    """The columns of one policy's log, each computed on access: all of them take 111 bytes a request."""

    __slots__ = ("_kept", "_rows", "_trail", "_truth", "_whole")

    def __init__(
        self,
        truth: Truth,
        trail: Trail,
        rows: slice | None = None,
        kept: NDArray[np.bool_] | None = None,
        whole: RequestLog | None = None,
    ) -> None:
        """Create the log of some requests.

        `rows`: the requests, with start and stop; None for all. `kept`: those of them that count; None for all. `whole`: the
        log of which this is a sample.
        """
        self._truth, self._trail = trail.truth or truth, trail
        self._rows, self._kept, self._whole = rows or self._truth.all, kept, whole

    def __getitem__(self, name: str) -> Array:
        values = self._column(name)
        return values if self._kept is None else values[self._kept]

    def _column(self, name: str) -> Array:
        if name in STREAMED_COLUMNS and self._trail.state is not None:
            streamed: Array = getattr(self._trail, name)
            return streamed[self._rows]
        return _COLUMNS[name](self._truth, self._trail, self._rows)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def _names(self) -> tuple[str, ...]:
        return COLUMNS if self._trail.state is None else (*COLUMNS, *STREAMED_COLUMNS)

    def thinned(self, most: int) -> RequestLog:
        """Return an even sample of at most `most` requests: every k-th one; the log itself if it has no more."""
        requests = _size_of(self._rows)
        if requests <= most:
            return self
        step = -(-requests // most)
        kept = None if self._kept is None else self._kept[::step]
        return RequestLog(self._truth, self._trail, slice(self._rows.start, self._rows.stop, step), kept, self.whole)

    @property
    def whole(self) -> RequestLog:
        """The log of which this is a sample; the log itself if it is none."""
        if self._whole is not None:
            return self._whole
        return self if self._kept is not None else RequestLog(self._truth, self._trail)

    @property
    def requests(self) -> int:
        """Number of requests of the whole log."""
        if self._whole is not None:
            return self._whole.requests
        return len(self._truth) if self._kept is None else int(self._kept.sum())

    @property
    def answered(self) -> RequestLog:
        """The log of the requests that were answered."""
        if self._trail.outcome is None:
            return self
        return RequestLog(self._truth, self._trail, self._rows, self.is_answered)

    @property
    def is_answered(self) -> NDArray[np.bool_] | None:
        """True for each request that was answered; None if all were."""
        if self._trail.outcome is None:
            return None
        return were_answered(self._column("outcome"))

    def among(self, kept: NDArray[np.bool_] | None) -> RequestLog:
        """Return the log of those requests that are `kept`, of all requests of the run; None keeps all."""
        return RequestLog(self._truth, self._trail, None, kept)


READ_ONCE_UP_TO = 1 << 18
"""Requests of the longest log whose columns are kept: the eight that a summary reads take 64 bytes a request."""


class _ReadOnce(dict[str, Array]):
    """The columns of a log, each computed when it is read first, and then kept."""

    def __init__(self, log: RequestLog) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, name: str) -> Array:
        self[name] = self._log[name]
        return self[name]


def read_once(log: Log) -> Log:
    """Return a log that computes each column once; the log itself if it is too long to keep columns."""
    return _ReadOnce(log) if isinstance(log, RequestLog) and log.requests <= READ_ONCE_UP_TO else log


ROUNDING_S = 1e-9
"""Smaller differences are rounding errors of sums in another order, not misroutes."""

UNKNOWN_MISROUTES = (
    "Misroutes are not shown: where requests queue at a device that batches, or a device streams its model, what a request "
    "takes there depends on the requests before it, and to foresee that costs as much as an oracle for every policy. "
    "Set foresee_misroutes: true to see them."
)
"""Why a table has no column of misroutes."""
LIVE_MISROUTES = (
    "Misroutes are not shown: these are live measurements, and what a request would have taken on the device that did not "
    "execute it was not measured."
)
"""The same of a live replay."""


@dataclass(frozen=True, slots=True)
class Misroutes:
    """The requests that one policy misrouted, of those judged, and an even sample of them; columns of shape (sampled,)."""

    count: int
    lost_s: float
    """Seconds beyond the best device, of all misrouted requests together."""
    request_lost_s: NDArray[np.float64]
    """Seconds beyond the best device, of each sampled request."""
    src_len: NDArray[np.int64]
    tgt_len: NDArray[np.int64]
    target: NDArray[np.int8]
    """Target to which it was sent."""
    best_target: NDArray[np.int8]
    """Best target; the number of devices if it is only known that it is another one."""
    foreseen: bool = False
    """True if decisions are judged by an oracle's foresight, queues included; False if nothing waits."""
    judged: int | None = None
    """Requests whose decisions were judged; None: all of them."""


def misroutes(truth: Truth, trail: Trail, most: int) -> Misroutes:
    """Return the requests that a policy misrouted, at most `most` of them in the sample. `truth` is used unless the trail has
    its own."""
    truth = trail.truth or truth
    lost = lost_s(truth, trail)
    misrouted = np.flatnonzero(lost > 0.0)
    sampled = misrouted[np.unique(np.linspace(0, max(len(misrouted) - 1, 0), min(most, len(misrouted))).astype(np.int64))]
    total_s = np.stack([truth.total_s(number, sampled) for number in range(len(truth.execution_s))])
    target = trail.target[sampled]
    chosen = target[None].astype(np.int64)
    request_lost_s = np.take_along_axis(total_s, chosen, 0)[0] - total_s.min(0)
    if trail.lost_s is not None:
        request_lost_s = trail.lost_s[sampled]
        np.put_along_axis(total_s, chosen, np.inf, 0)
    best_target = total_s.argmin(0).astype(np.int8)
    if trail.lost_s is not None and len(total_s) > 2:
        # Which of the others was foreseen to be best is not kept.
        best_target[:] = len(total_s)
    return Misroutes(
        count=len(misrouted),
        lost_s=float(np.nansum(lost, dtype=np.float64)),
        request_lost_s=request_lost_s,
        src_len=truth.src_len[sampled],
        tgt_len=_known(truth.tgt_len)[sampled],
        target=target,
        best_target=best_target,
        foreseen=trail.lost_s is not None,
        judged=None if trail.lost_s is None else int(np.isfinite(lost).sum()),
    )


def lost_s(truth: Truth, trail: Trail) -> NDArray[np.float32]:
    """Return by how many seconds each request takes longer than on the best device; 0 on the best device.

    If an oracle judged decisions, the loss is the one it foresaw, and NaN for requests that were not judged. A request with a
    loss above 0 was misrouted. `truth` is used unless the trail has its own.
    """
    truth = trail.truth or truth
    if trail.lost_s is not None:
        foreseen_s: NDArray[np.float32] = trail.lost_s.astype(np.float32)
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
