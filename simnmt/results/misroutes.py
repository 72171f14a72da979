"""Misroutes: requests that another device would truly have answered sooner, and the seconds that they lost.

Where requests queue, a decision is judged by what an oracle foresaw at that moment, queues included (`Passage.lost_s`), for an
even sample of the requests. Where nothing waits, the truth is what an execution takes alone, and the transfer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt.results.request_log import Passage, Truth

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
    """Seconds beyond the best device's, per request."""
    least_s = own_s = truth.total_s(0, rows)
    for number in range(1, len(truth.execution_s)):
        total_s = truth.total_s(number, rows)
        own_s = np.where(target == number, total_s, own_s)
        least_s = np.minimum(least_s, total_s)
    return own_s - least_s
