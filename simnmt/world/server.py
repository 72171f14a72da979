"""One protocol for servers of every kind: what the world asks of the boxes of a target, and what a box needs of the world.

A kind implements `Server` and touches no other file of the world: it lets requests enter, foresees what one would wait without
side effects, reports what the decider may see with each answer, and gives its account at the end. Balancers, which choose the
box of a target that a request enters, stand here once for all kinds.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.estimates import StateView
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block, Recorder
from simnmt.world.clock import Clock, Event
from simnmt.world.deciders import Decider

Row = tuple[Any, ...]
"""One request as plain numbers: when it is decided on, its end node, seconds of execution per target, then uplink and downlink
per remote target, then source and target tokens where a server needs them, then what servers add. See `RowLayout`."""


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Where a row holds what, for a number of targets; target 0 is the decider's own device and needs no link."""

    targets: int
    has_lengths: bool = False

    def execution(self, target: int) -> int:
        """Return where the seconds of execution on a target stand."""
        return 2 + target

    def uplink(self, target: int) -> int:
        """Return where the seconds to a remote target stand."""
        return 1 + self.targets + target

    def downlink(self, target: int) -> int:
        """Return where the seconds back from a remote target stand."""
        return 2 * self.targets + target

    @property
    def lengths(self) -> int:
        """Where source tokens stand, and after them target tokens."""
        return 3 * self.targets

    @property
    def added(self) -> int:
        """Where the columns begin that servers add."""
        return self.lengths + 2 * self.has_lengths

    def routed(self, row: Row, now_s: float, uplink_s: Row, downlink_s: Row) -> Row:
        """Return the row with the links as they are now."""
        return (now_s, *row[1 : 2 + self.targets], *uplink_s, *downlink_s, *row[self.lengths :])

    def rows(self, block: Block, added: Sequence[list[float]] = ()) -> Iterator[Row]:
        """Return the requests of a block as plain numbers; the time of the decision is 0 where the world sets the pace."""
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
    """The number that the decider's view of the target knows it by."""


Serve = Callable[[Any], None]
"""Called with a `RequestEvent` when its request reaches the target."""
Arrival = tuple[float, int, Row]
"""When a request reaches a target, its number, and its row."""
Alone = Callable[[float, int, Row], tuple[float, float, Any, int]]
"""`alone(entry_s, request, row)`: execute a request while no other is under way; return when it begins and finishes, what its
answer reports, and the number of its box."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where a server stands in the world, and what it has there."""

    target: int
    """Number of the target; 0 is the deciders' own device, of which each decider has its box."""
    layout: RowLayout
    added: int
    """Where rows hold the server's own columns."""
    first_box: int
    """Number of its first box among all on the clock."""
    clock: Clock
    trail: Recorder
    answered: Callable[[int, float], None] | None
    """Called with each request and when its decider has the answer; None where nothing waits for it."""

    def answer(
        self, event: RequestEvent, begin_s: float, finish_s: float, box: int, ordered_s: float, report: Any = None
    ) -> None:
        """Let the answer of a request set out, which was executed from `begin_s` to `finish_s`.

        `ordered_s`: a moment, not after the end, in whose order the answers of a box are handed in; a decider hears at this
        moment of a request on its own device. `report`: what the answer tells a decider that views the target.
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

    A kind that subclasses it inherits the answers of one that batches nothing, remembers nothing and adds no column.
    """

    records: frozenset[str] = frozenset()
    """Optional columns of the `Trail` that it fills in."""
    needs_tgt_len: bool = False
    """Whether rows must hold lengths."""
    boxes: Sequence[Any]
    columns: int = 0
    """How many columns `row_columns` returns."""
    alone: Alone | None = None
    """Set by `open` where an execution depends on those before it even if nothing waits; None: it takes the row's seconds."""

    def row_columns(self, block: Block, execution_s: NDArray[np.float64]) -> list[list[float]]:
        """Return the columns that rows of a block hold for this server; `execution_s`: of its target."""
        return []

    def open(self, site: Site) -> Serve:
        """Take the place in the world; return what is called with each request that reaches the target."""
        ...

    def wait_s(self, arrival: Arrival, ahead: Sequence[Arrival]) -> float:
        """Return the seconds beyond execution alone of `arrival` if it entered after the requests in `ahead`.

        Has no side effects. What comes later is not foreseen.
        """
        ...

    def state_view(self, box: int) -> StateView | None:
        """Return what the device that has this box knows of its state; None where there is none to know."""
        return None

    def close(self) -> bool:
        """Let go whoever waits for company, as nothing is left to happen; return whether there was anyone."""
        return False

    def account(self) -> BatchAccount | BoxesUntil | None:
        """Return what the boxes did all together; None where the trail says it all."""
        return None


class ServerSpec(Protocol):
    """How the boxes of a target work: what makes a `Server`."""

    def servers(self, boxes: int = 1, balancer: Balancer | None = None) -> Server:
        """Return so many idle boxes; `balancer`: None: as the nodes are attached."""
        ...


class BalancedBox(Protocol):
    """A box, as far as a balancer looks at it."""

    def work_left(self, now_s: float) -> float:
        """Return what is left to do at a moment: of a box that batches the steps that its sentences still take, one by one, of
        any other the seconds until a worker comes free."""
        ...


class Balancer(Protocol):
    """Chooses which of some boxes a request enters; a balancer that compares boxes knows how much work each has left.

    This is an ideal: a real balancer would have to estimate how long a translation takes.
    """

    def chosen(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the number of the box; requests come in order of time."""
        ...

    def copy(self) -> Balancer:
        """Return a balancer in the same state, for asking what would happen."""
        ...


class ByNode:
    """Each end node has its box: number node modulo boxes, however long its queue."""

    __slots__ = ()

    def chosen(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the node's box."""
        return node % len(boxes)

    def copy(self) -> Self:
        """Return the balancer: only `InTurn` has a state."""
        return self


class InTurn(ByNode):
    """One box after another, whatever they have to do."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def chosen(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the box whose turn it is."""
        box = self._next
        self._next = (box + 1) % len(boxes)
        return box

    def copy(self) -> Self:
        """Return the same turn."""
        return copy(self)


class FewestTokens(ByNode):
    """The box that has least left to do; of equal ones the first, so that the first boxes do more at a low load.

    First-in first-out boxes have a heap instead (`fifo_server.LeastWork`), which takes of idle boxes that which has been idle
    longest, in logarithmic time.
    """

    __slots__ = ()

    def chosen(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Look at all of them."""
        left = [box.work_left(now_s) for box in boxes]
        return left.index(min(left))


class LeastLoadedOfDrawn(ByNode):
    """Of some boxes drawn at random for each request the one that has least left to do, or the one if only one is drawn.

    `choices`: shape (requests, drawn), numbers of boxes. They are given, not drawn here, so that every policy meets the same.
    """

    __slots__ = ("_first", "_others")

    def __init__(self, choices: NDArray[np.integer]) -> None:
        self._first, *self._others = (array("h", column.astype(np.int16).tobytes()) for column in choices.T)

    def chosen(self, boxes: Sequence[BalancedBox], now_s: float, request: int, node: int) -> int:
        """Return the box drawn first if it does not matter."""
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
    """Boxes in the same state as others, of which only those are copied that are looked at: a guess looks at a few."""

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
