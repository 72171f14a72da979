"""What the world needs from a device: the clock, the protocol of an execution kind and of its boxes, and balancers.

A *kind* says how the boxes of a target execute requests. It makes a new `Device` for each run of the reference; of the kinds
that the compiled engine covers, `world/compiled_world.py` makes the settings. A new kind is one file that implements `Kind`,
with an import and an entry in `simnmt.devices`; new keys in a scenario also change `scenario.configuration` and
`experiment.units`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, ClassVar, Protocol, cast

import numpy as np
import simpy
from numpy.typing import NDArray

from simnmt.policies.views import StateView
from simnmt.results.columns import Recorder
from simnmt.results.device_accounts import BatchAccount, BoxesUntil
from simnmt.results.requests import Block

COMPLETES, LOADED, REACHES, ANSWERED, REFUSAL, DEFERS, ARRIVES, ASKS, BATCH_ACTS, FAILS = range(1, 11)
"""Kinds of event, in the order in which those of one moment happen: an execution completes, a model is loaded, a request
reaches its target, an answer or a refusal is received, a decider decides again, a request reaches its decider, a client asks, a
box that batches acts, a box fails or a wait ends."""

Process = Generator[simpy.Event, Any, None]


def numbers(column: NDArray[Any]) -> Sequence[Any]:
    """Return the numbers of a column as Python's, each when it is read: a list takes 32 bytes a request, for each group."""
    return cast("Sequence[Any]", np.asarray(column).data)


def ranks_of(requests: Block, classes: int) -> Sequence[int] | None:
    """Return the rank of the class of each request; None for requests of one class, or at boxes that serve only one."""
    return None if requests.priority is None or classes < 2 else numbers(requests.priority)


class _Until(float):
    """A moment that SimPy takes as a delay: added to the present it is itself, so that no sum is rounded on the way to it."""

    def __radd__(self, now_s: float) -> float:
        return float(self)


class Clock(simpy.Environment):
    """SimPy's clock; events of one moment happen by kind, then by the number of the request or the box."""

    def moment(self, at_s: float, kind: int, number: int) -> simpy.Event:
        """Return the event of a moment that is not in the past; SimPy orders events of one time by priority."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        self.schedule(event, priority=(kind << 40) + number, delay=_Until(at_s))  # type: ignore[arg-type]
        return event


class Execution:
    """One request at a device, from its entry to its end."""

    __slots__ = ("begin_s", "begun", "box", "ended", "entry_s", "finish_s", "is_refused", "node", "report", "request")

    def __init__(self, clock: Clock, request: int, node: int) -> None:
        """`node`: the end node, or at a decider's own device the number of its box, by which `ByNode` chooses."""
        self.request, self.node, self.entry_s = request, node, clock.now
        self.begun = clock.event()
        self.ended = clock.event()
        """Its value is True if the request is done, False if its box failed and dropped it."""
        self.box = 0
        self.is_refused = False
        """True if its box was full when it entered; then it neither begins nor ends."""
        self.begin_s = self.finish_s = nan
        self.report: Any = None
        """Information in the answer, for a decider that views the target."""

    def begin(self, begin_s: float) -> None:
        """Note that the execution begins now."""
        self.begin_s = begin_s
        self.begun.succeed()

    def end(self, finish_s: float, is_done: bool = True) -> None:
        """Note that the execution ends now."""
        self.finish_s = finish_s
        self.ended.succeed(is_done)


class Box(Protocol):
    """A box as a balancer sees it.

    This is an ideal: a real balancer would have to estimate how long a translation takes.
    """

    @property
    def idle_since_s(self) -> float:
        """When it became idle; not read while it works."""
        ...

    def work_left(self, now_s: float) -> float:
        """Return the work left: for a box that batches, the steps that its sentences still take, one by one; for any other box,
        the seconds until a request could start."""
        ...


class Balancer(Protocol):
    """Chooses which box of a target a request enters."""

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the number of the box; requests come in order of time."""
        ...

    def copy(self) -> Balancer:
        """Return a balancer in the same state, for another run or to foresee choices: itself if it has none."""
        return self


@dataclass(frozen=True)
class ByNode(Balancer):
    """Each end node has its box: number node modulo boxes, however long its queue."""

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the node's box."""
        return node % len(boxes)


class InTurn(Balancer):
    """Takes one box after another."""

    def __init__(self, following: int = 0) -> None:
        self._following = following

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the next box."""
        box = self._following
        self._following = (box + 1) % len(boxes)
        return box

    def copy(self) -> Balancer:
        """Return a balancer in the same state."""
        return InTurn(self._following)


@dataclass(frozen=True)
class LeastWork(Balancer):
    """Takes the box with the least work left; of idle first-in first-out boxes the one that has been idle longest, else the
    first."""

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the box with the least work left."""
        left = [(box.work_left(now_s), box.idle_since_s) for box in boxes]
        return left.index(min(left))


class LeastLoadedOfDrawn(Balancer):
    """Of some boxes drawn for each request, takes the one with the least work left; among equals, the one drawn first.

    `choices`: shape (requests, drawn), numbers of boxes. They are given, not drawn here, so that every policy meets the same.
    """

    def __init__(self, choices: NDArray[np.integer]) -> None:
        self.choices = choices

    def choose(self, boxes: Sequence[Box], now_s: float, request: int, node: int) -> int:
        """Return the box with the least work left."""
        drawn: list[int] = self.choices[request].tolist()
        return min(drawn, key=lambda box: boxes[box].work_left(now_s)) if len(drawn) > 1 else drawn[0]


Arrival = tuple[float, int, int]
"""When a request reaches a target, its number, and its end node."""


class WaitingRoom:
    """Counts the requests that wait at each box of a target, and refuses those that find a box full.

    A request waits from its entry until its execution begins: in a batch, until it is encoded. One that is executed, or that a
    failing box drops, does not wait.
    """

    def __init__(self, boxes: int, most: int) -> None:
        """`most`: requests that may wait at each box."""
        self._most, self._waiting = most, [0] * boxes

    def is_full(self, box: int) -> bool:
        """Return whether a box refuses the next request."""
        return self._waiting[box] >= self._most

    def admits(self, execution: Execution) -> bool:
        """Return whether a request may enter its box, where it then waits."""
        execution.is_refused = self.is_full(execution.box)
        if not execution.is_refused:
            self._waiting[execution.box] += 1
            execution.begun.callbacks.append(lambda begun: self._begin(execution.box))
        return not execution.is_refused

    def _begin(self, box: int) -> None:
        self._waiting[box] -= 1


class Device(Protocol):
    """All boxes of one target in one run of the reference, idle at first; requests enter in order of time.

    A device that inherits from it has no states, lets nothing wait for company, and records all that it does in the columns.
    """

    boxes: Sequence[Any]
    room: WaitingRoom | None = None
    """None if no box refuses a request."""

    def enter(self, execution: Execution) -> None:
        """Let a request enter now, or refuse it (`Execution.is_refused`)."""
        ...

    def refuses(self, box: int, request: int) -> bool:
        """Return whether a box refuses a request that enters now."""
        return self.room is not None and self.room.is_full(box)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the seconds beyond execution alone of the last arrival if it entered after the others. Has no side effects."""
        ...

    def work_of(self, execution: Execution) -> float:
        """Return the work of an execution that has ended: its seconds, or in batches its steps and its encoding."""
        return execution.finish_s - execution.begin_s

    def state_view(self, box: int) -> StateView | None:
        """Return the state of a box as its own device knows it; None for a device without states."""
        return None

    def close(self) -> bool:
        """Stop waiting for company, since no event is left; return whether a request was waiting."""
        return False

    def account(self) -> BatchAccount | BoxesUntil | None:
        """Return the account of all boxes; None if the columns of the run hold everything."""
        return None


class Kind(Protocol):
    """How the boxes of a target execute requests, and their number.

    A kind whose boxes can fail is a dataclass with a field `failures` (when each box is down, or None); one whose boxes
    have several models has a field `models` (`Models`, or None), and one whose boxes can refuse requests a field `max_waiting`
    (most requests that wait at each box, or None) or a property `refuses_long` (whether it refuses
    long requests).
    """

    name: ClassVar[str]
    reports_at_end: ClassVar[bool]
    """True if a decider hears of a request at its own device when that is done, False if when it begins."""

    @property
    def needs_tgt_len(self) -> bool:
        """True if requests must have target lengths."""
        ...

    @property
    def records(self) -> frozenset[str]:
        """Optional columns of a `Trail` that its devices fill."""
        ...

    @property
    def boxes(self) -> int:
        """Number of boxes."""
        ...

    @property
    def balancer(self) -> Balancer:
        """The choice of a box, in its first state."""
        ...

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> Kind:
        """Return the kind for a device of a scenario. `settings`: of its batches or its streamed model, or None."""
        ...

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> Device:
        """Return the boxes of one run; `first_box`: number of the first one among all boxes on the clock."""
        ...
