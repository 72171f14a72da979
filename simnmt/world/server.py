"""The protocol for servers of every kind: what the world needs from the boxes of a target, and what a box gets from the world.

A kind implements `Server` and touches no other file of the world: it lets requests enter, foresees a request's wait without
side effects, reports what the decider may see with each answer, and returns its account at the end. Balancers, which choose the
box of a target that a request enters, are here once for all kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from simnmt.policies.views import StateView
from simnmt.results.columns import Recorder
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block
from simnmt.world.clock import Clock, Event
from simnmt.world.deciders import Decider

Row = tuple[Any, ...]
"""One request as plain numbers: when it is decided on, its end node, seconds of execution per target, uplink and downlink per
remote target, source and target tokens if a server needs them, and the columns that servers add. See `RowLayout`."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The position of each number in a row, for a number of targets; target 0 is the decider's own device and needs no link."""

    targets: int
    has_lengths: bool = False

    def execution(self, target: int) -> int:
        """Return the position of the seconds of execution on a target."""
        return 2 + target

    def uplink(self, target: int) -> int:
        """Return the position of the seconds to a remote target."""
        return 1 + self.targets + target

    def downlink(self, target: int) -> int:
        """Return the position of the seconds back from a remote target."""
        return 2 * self.targets + target

    @property
    def lengths(self) -> int:
        """Position of the source tokens, which the target tokens follow."""
        return 3 * self.targets

    @property
    def added(self) -> int:
        """Position of the first column that servers add."""
        return self.lengths + 2 * self.has_lengths

    def routed(self, row: Row, now_s: float, uplink_s: Row, downlink_s: Row) -> Row:
        """Return the row with the present times of the links."""
        return (now_s, *row[1 : 2 + self.targets], *uplink_s, *downlink_s, *row[self.lengths :])

    def rows(self, block: Block, added: Sequence[list[float]] = ()) -> Iterator[Row]:
        """Return the requests of a block as rows; the time of the decision is 0 if the world sets the pace."""
        lengths = (block.src_len, block.tgt_len) if self.has_lengths and block.tgt_len is not None else ()
        columns = (*block.execution_s, *block.uplink_s, *block.downlink_s, *lengths)
        times = repeat(0.0) if block.arrival_s is None else block.arrival_s.tolist()
        nodes = repeat(0) if block.node is None else block.node.tolist()
        return zip(times, nodes, *(column.tolist() for column in columns), *added, strict=False)


class RequestEvent(Event):
    """A request between its decision and its answer, as its server sees it."""

    __slots__ = ("decider", "entry_s", "request", "row", "sent_as", "sent_s")

    request: int
    row: Row
    decider: Decider
    sent_s: float
    entry_s: float
    """When it reaches the server."""
    sent_as: int
    """Its number in the decider's view of the target."""


Serve = Callable[[Any], None]
"""Called with a `RequestEvent` when its request reaches the target."""
Arrival = tuple[float, int, Row]
"""When a request reaches a target, its number, and its row."""
Alone = Callable[[float, int, Row], tuple[float, float, Any, int]]
"""`alone(entry_s, request, row)`: execute a request while no other is under way; return when it begins and finishes, the report
in its answer, and the number of its box."""


@dataclass(frozen=True, slots=True)
class Site:
    """The place of a server in the world."""

    target: int
    """Number of the target; 0 is the deciders' own device, of which each decider has one box."""
    layout: RowLayout
    added: int
    """Position of the server's own columns in rows."""
    first_box: int
    """Number of its first box among all boxes on the clock."""
    clock: Clock
    trail: Recorder
    answered: Callable[[int, float], None] | None
    """Called with each request and when its decider has the answer; None if nothing waits for it."""

    @property
    def knows_downlinks(self) -> bool:
        """True if the row of a request holds the seconds of its answer, so that a server may hand it to the decider itself."""
        return True

    def answer(
        self, event: RequestEvent, begin_s: float, finish_s: float, box: int, ordered_s: float, report: Any = None
    ) -> None:
        """Send the answer of a request that was executed from `begin_s` to `finish_s`.

        Args:
            event: the request.
            begin_s, finish_s: its execution.
            box: number of the box.
            ordered_s: a moment, not after the end, in whose order the answers of a box are handed in; a decider learns at this
                moment of a request on its own device.
            report: information for a decider that views the target.
        """
        request, decider, row, target = event.request, event.decider, event.row, self.target
        self.trail["queue_s"][request] = begin_s - event.entry_s
        if target:
            self.trail["server"][request] = box
        received_s, heard_s, transfer_s = finish_s, ordered_s, 0.0
        if target:
            heard_s = received_s = finish_s + row[self.layout.downlink(target)]
            transfer_s = (received_s - event.sent_s) - (finish_s - event.entry_s)
        if target or (decider.views and decider.views[0] is not None):
            if report is not None and decider.watches:
                decider.reports[request] = report
            decider.answers.add((heard_s, request, target, transfer_s, event.sent_as, ordered_s), box if target else 0)
        if self.answered is not None:
            self.answered(request, received_s)


class Server(Protocol):
    """All boxes of one target, idle at first; requests enter in order of time.

    A subclass inherits the methods of a server that batches nothing, has no state and adds no column.
    """

    records: frozenset[str] = frozenset()
    """Optional columns of the `Trail` that it fills."""
    needs_tgt_len: bool = False
    """True if rows must hold lengths."""
    boxes: Sequence[Any]
    columns: int = 0
    """Number of columns that `row_columns` returns."""
    alone: Alone | None = None
    """Set by `open` if an execution depends on earlier ones even if nothing waits; None: it takes the row's seconds."""

    def row_columns(self, block: Block, execution_s: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Return the columns of a block's rows for this server; `execution_s`: of its target."""
        return []

    def open(self, site: Site) -> Serve:
        """Register the server in the world; return the function to call with each request that reaches the target."""
        ...

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return the seconds beyond execution alone of `arrival` if it entered after the requests in `ahead`.

        Has no side effects. Later arrivals are not foreseen.
        """
        ...

    def state_view(self, box: int) -> StateView | None:
        """Return the state of a box as its own device knows it; None for a server without states."""
        return None

    def close(self) -> bool:
        """Stop waiting for company, since no event is left; return whether a request was waiting."""
        return False

    def account(self) -> BatchAccount | BoxesUntil | None:
        """Return the account of all boxes; None if the trail holds everything."""
        return None


class ServerSpec(Protocol):
    """A specification of a target's boxes, which creates a `Server`."""

    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> Server:
        """Return idle boxes; without a `balancer` each end node has its box."""
        ...


class BalancedBox(Protocol):
    """A box as a balancer sees it."""

    def work_left(self, now_s: float) -> float:
        """Return the work left at a moment: for a box that batches, the steps that its sentences still take, one by one; for
        any other box, the seconds until a worker comes free."""
        ...


class Balancer(Protocol):
    """Chooses which box a request enters; a balancer that compares boxes knows how much work each has left.

    This is an ideal: a real balancer would have to estimate how long a translation takes.
    """

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the number of the box; requests come in order of time."""
        ...

    def copy(self) -> Balancer:
        """Return a balancer in the same state, to foresee choices."""
        ...


class ByNode:
    """A balancer by which each end node has its box: number node modulo boxes, however long its queue."""

    __slots__ = ()

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the node's box."""
        return node % len(boxes)

    def copy(self) -> Self:
        """Return this balancer: only `InTurn` has a state."""
        return self


class InTurn(ByNode):
    """A balancer that takes one box after another."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the next box."""
        box = self._next
        self._next = (box + 1) % len(boxes)
        return box

    def copy(self) -> Self:
        """Return a balancer in the same state."""
        return copy(self)


class FewestTokens(ByNode):
    """A balancer that takes the box with the least work left; among equals the first, so that the first boxes do more at a low
    load.

    First-in first-out boxes have a heap instead (`fifo_server.LeastWork`), which takes among idle boxes the one that has been
    idle longest, in logarithmic time.
    """

    __slots__ = ()

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the box with the least work left."""
        left = [box.work_left(now_s) for box in boxes]
        return left.index(min(left))


class LeastLoadedOfDrawn(ByNode):
    """Of some boxes drawn at random for each request the one that has least left to do, or the one if only one is drawn.

    `choices`: shape (requests, drawn), numbers of boxes. They are given, not drawn here, so that every policy meets the same.
    """

    __slots__ = ("_first", "_others", "choices")

    def __init__(self, choices: NDArray[np.integer]) -> None:
        self.choices = choices.T
        """By drawn box and request."""
        self._first, *self._others = (array("h", column.astype(np.int16).tobytes()) for column in choices.T)

    def choose(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the box with the least work left; the box drawn first among equals."""
        best: int = self._first[request]
        if self._others and (least := boxes[best].work_left(now_s)):
            for column in self._others:
                left = boxes[column[request]].work_left(now_s)
                if left < least:
                    best, least = column[request], left
        return best


class _Copyable(Protocol):
    def copy(self: BoxT) -> BoxT: ...


BoxT = TypeVar("BoxT", bound=_Copyable)


class CopiedOnUse(Sequence[BoxT]):
    """Copies of boxes, made on first access: a look ahead accesses only a few."""

    __slots__ = ("_copies", "_originals")

    def __init__(self, originals: Sequence[BoxT]) -> None:
        self._originals, self._copies = originals, dict[int, BoxT]()

    def __len__(self) -> int:
        return len(self._originals)

    def __getitem__(self, box: int) -> BoxT:  # type: ignore[override]
        copied = self._copies.get(box)
        if copied is None:
            copied = self._copies[box] = self._originals[box].copy()
        return copied
