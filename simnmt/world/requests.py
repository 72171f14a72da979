"""The requests of a run as columns: true times on every target and link, and the rows of plain numbers made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn, Array, Reordered

ColumnT = TypeVar("ColumnT", bound=AnyColumn, covariant=True)

BLOCK = 4_096
"""Requests made into Python numbers at a time: few enough to stay in the processor's cache, so that the cost per request does
not grow with their number (65,536 at a time cost 14 % more)."""

Route = Callable[[int, int, float], tuple[tuple[float, ...], tuple[float, ...], float, float]]
"""`route(request, node, moment_s)`: seconds up and down per remote target at that moment, and from the end node to its decider
and back: the links as time goes by."""

Row = tuple[Any, ...]
"""One request as plain numbers: when it is decided on, its end node, seconds of execution per target, then uplink and downlink
per remote target, then source and target tokens where they are told, then what boxes that stream their model need to know. See
`RowLayout`."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where a row holds what, for a number of targets; target 0 is the decider's own device and needs no link."""

    targets: int

    def execution(self, target: int) -> int:
        """Seconds of execution on a target."""
        return 2 + target

    def uplink(self, target: int) -> int:
        """Seconds to a remote target."""
        return 1 + self.targets + target

    def downlink(self, target: int) -> int:
        """Seconds back from a remote target."""
        return 2 * self.targets + target

    @property
    def lengths(self) -> int:
        """Source tokens, and after them target tokens."""
        return 3 * self.targets

    def routed(self, row: Row, now_s: float, uplink_s: Row, downlink_s: Row) -> Row:
        """The row with the links as they are now, and without what follows them."""
        return (now_s, *row[1 : 2 + self.targets], *uplink_s, *downlink_s)


@dataclass(frozen=True, slots=True)
class Requests(Generic[ColumnT]):
    """The true times of every request on every target; all columns of shape (requests,), seconds unless said otherwise.

    Target 0 is the device of whoever decides; the others lie behind links. A run's columns may lie in files; those of a block
    are arrays.
    """

    src_len: ColumnT
    """Tokens."""
    execution_s: tuple[ColumnT, ...]
    """Execution on each target."""
    uplink_s: tuple[ColumnT, ...]
    """From the decider to each target but the first; unused where a `Route` looks links up as time goes by."""
    downlink_s: tuple[ColumnT, ...]
    """Back again."""
    arrival_s: NDArray[np.float64] | None = None
    """Sorted times of arrival at the decider; None where the world sets the pace."""
    node: ColumnT | None = None
    """The end node that asks; None if there is one only."""
    access_s: ColumnT | None = None
    """Back to back, the way from end node to decider and back; None where that costs nothing."""
    first: int = 0
    """The first request's number in the run."""
    tgt_len: ColumnT | None = None
    """Tokens, 0 or more; needed where servers batch, or stream a decoder, which take a step for each."""

    def __len__(self) -> int:
        return len(self.src_len)

    def blocks(self) -> Iterator[Block]:
        """The same requests, a block of `BLOCK` at a time."""
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
        """The requests that now arrive at other times, in the order of those; `order`: a permutation that sorts `arrival_s`."""

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

    def rows(self: Block, more: Sequence[list[float]] = ()) -> Iterator[Row]:
        """Plain numbers, request by request; the time of the decision is 0 where the world sets the pace.

        `more`: columns that follow the others.
        """
        lengths = () if self.tgt_len is None else (self.src_len, self.tgt_len)
        columns = (*self.execution_s, *self.uplink_s, *self.downlink_s, *lengths)
        times = repeat(0.0) if self.arrival_s is None else self.arrival_s.tolist()
        nodes = repeat(0) if self.node is None else self.node.tolist()
        return zip(times, nodes, *(column.tolist() for column in columns), *more, strict=False)


Block = Requests[Array]
"""Some requests in a row."""
