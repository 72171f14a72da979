"""The check that both engines make of each block before it is run: no number is NaN, infinite or below 0.

That lengths and indices fit, `experiment` sees to, which makes the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.errors import InputError
from simnmt.policies.decision import Decide, Fixed, LeastTotal
from simnmt.results.requests import Block, Requests

NO_TARGET = -1


class BlockChecks:
    """The checks of the blocks of one run, one after another."""

    __slots__ = ("_foresees", "_has_links", "_last_s")

    def __init__(self, has_links: bool, foresees: bool) -> None:
        """`has_links`: the columns hold the times of links. `foresees`: the times of all targets are read.

        Without foresight the times of targets that a fixed policy never chooses are not read, and of a policy in Python it is
        not known which are.
        """
        self._has_links, self._foresees, self._last_s = has_links, foresees, 0.0

    def check(self, block: Block, choice: Decide, second: LeastTotal | None = None) -> None:
        """Raise `InputError` if columns of the next block hold what no request has; the message names the first such one.

        `choice`, `second`: the policy prepared for the block, and its decision after the first execution.
        """
        only = None
        if not self._foresees and not isinstance(choice, LeastTotal) and second is None:
            only = choice.target if isinstance(choice, Fixed) else NO_TARGET
        for name, column in _columns(block, self._has_links, only):
            if not _is_sound(column):
                faulty = ~(np.isfinite(column) & (np.asarray(column) >= 0))
                _refuse_first(block, faulty, f"{name} of request {{}} is below 0, infinite or NaN")
        if (arrival_s := block.arrival_s) is not None and len(arrival_s):
            if arrival_s[0] < self._last_s or (arrival_s[1:] < arrival_s[:-1]).any():
                falls = np.diff(arrival_s, prepend=self._last_s) < 0.0
                _refuse_first(block, falls, "arrival_s of request {} is before that of the request before")
            self._last_s = float(arrival_s[-1])
        for weighed in (choice, second):
            for column in weighed.execution_s if isinstance(weighed, LeastTotal) else ():
                if np.isnan(np.min(column, initial=0.0)):
                    _refuse_first(block, np.isnan(column), "a policy that estimates NaN for request {}")


def _refuse_first(block: Block, faulty: NDArray[np.bool_], fault: str) -> None:
    raise InputError(fault.format(block.first + int(faulty.argmax())))


def _columns(requests: Requests, has_links: bool, only: int | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the columns that a run reads, with their names; `only`: the target whose times are read, if not all are."""
    for name in ("src_len", "tgt_len", "arrival_s", "node", "access_s", "model"):
        if (column := getattr(requests, name)) is not None:
            yield name, column
    for target, column in enumerate(requests.execution_s):
        if only in (None, target):
            yield f"execution_s[{target}]", column
    for name in ("uplink_s", "downlink_s") if has_links else ():
        for number, column in enumerate(getattr(requests, name)):
            if only in (None, number + 1):
                yield f"{name}[{number}]", column


def _is_sound(column: Any) -> bool:
    """Return whether no number is below 0, infinite or NaN, by two passes that make no columns of their own."""
    return bool(np.min(column, initial=0) >= 0 and np.max(column, initial=0) < np.inf)
