"""Boxes that execute requests first in, first out, or by class, each on some workers behind one queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush, heapreplace
from math import inf
from typing import Any, ClassVar

import simpy

from simnmt.batching.class_queue import ONE_CLASS, ClassQueue
from simnmt.devices.device import (
    COMPLETES,
    FAILS,
    Arrival,
    Balancer,
    Box,
    ByNode,
    Clock,
    Device,
    Execution,
    Kind,
    Process,
    WaitingRoom,
    numbers,
    ranks_of,
)
from simnmt.devices.failures import AvailableBoxes
from simnmt.devices.models import Loads, Models
from simnmt.network.outages import ALWAYS_UP, DownTimes
from simnmt.results.columns import Recorder
from simnmt.results.requests import Block


@dataclass(frozen=True, slots=True)
class Fifo:
    """Boxes with `workers` each, behind one queue per box; a worker executes one request at a time, for its execution time."""

    boxes: int = 1
    workers: int = 1
    balancer: Balancer = field(default_factory=ByNode)
    failures: Sequence[DownTimes] | None = None
    """By box, when it is down; the requests in it are then lost."""
    models: Models | None = None
    """Given if boxes have several models; requests are executed in the order in which they and their models are there."""
    max_wait_s: tuple[float, ...] = ONE_CLASS
    """By class of requests, the first served first, how long one waits at most before it goes before the others."""
    max_waiting: int | None = None
    """Requests that may wait at each box, which refuses further ones; None: any number."""
    occupancy_factors: tuple[float, ...] = ()
    """By requests in a box from 1 on, waiting and executing, when an execution begins: the factor on its seconds. More requests
    than there are factors have the last one. Empty: always 1."""

    name: ClassVar[str] = "fifo"
    needs_tgt_len: ClassVar[bool] = False
    reports_at_end: ClassVar[bool] = False

    @classmethod
    def of_device(cls, boxes: int, workers: int, balancer: Balancer, settings: Kind | None) -> Fifo:
        """Return the boxes of a device; `settings`: with its models and classes."""
        plain = settings if isinstance(settings, cls) else cls()
        return replace(plain, boxes=boxes, workers=workers, balancer=balancer)

    @property
    def keeps_queue(self) -> bool:
        """True if begin and end of a request are known only when a worker takes it: others may overtake it or slow it down."""
        return len(self.max_wait_s) > 1 or bool(self.occupancy_factors)

    @property
    def records(self) -> frozenset[str]:
        """Optional columns that its devices fill."""
        columns = frozenset() if self.models is None else self.models.records
        return columns | {"execution_s"} if self.occupancy_factors else columns

    def device(self, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> FifoDevice:
        """Return the idle boxes of one run."""
        return FifoDevice(self, clock, target, requests, trail, first_box)


class FifoBox:
    """The workers of one box and their queue.

    SimPy's `Resource` takes requests from the front of a list, which is quadratic in a backlog: a deque is as plain.
    """

    def __init__(
        self,
        clock: Clock,
        workers: int,
        down: DownTimes = ALWAYS_UP,
        max_wait_s: Sequence[float] = ONE_CLASS,
        occupancy_factors: Sequence[float] = (),
    ) -> None:
        self._clock, self._down, self._factors = clock, down, occupancy_factors
        self._idle_since_s = [0.0] * workers
        """By idle worker, when it became idle; a heap."""
        self._ends_s: dict[int, float] = {}
        """By request that is executed now, when that ends."""
        self._waiting = ClassQueue[tuple[simpy.Event, float]](max_wait_s)
        """The turn of each waiting request, and its seconds of execution in an empty box."""

    def execute(self, execution: Execution, service_s: float, rank: int = 0) -> Process:
        """Wait for a worker, and execute a request of a class. `service_s`: its seconds in an empty box."""
        clock, request = self._clock, execution.request
        fails_s = clock.now if self._down.is_down(clock.now) else self._down.next_begin(clock.now)
        if fails_s > clock.now and not self._idle_since_s:
            waiting = clock.event(), service_s
            self._waiting.add(waiting, clock.now, rank)
            yield waiting[0] if fails_s == inf else waiting[0] | clock.moment(fails_s, FAILS, request)
            if not waiting[0].triggered:
                self._waiting.remove(waiting)
        if clock.now >= fails_s:
            execution.begin(clock.now)
            execution.end(clock.now, is_done=False)
            return
        if self._factors:
            occupancy = 1 + len(self._ends_s) + len(self._waiting)
            service_s *= self._factors[min(occupancy, len(self._factors)) - 1]
        heappop(self._idle_since_s)
        execution.begin(clock.now)
        self._ends_s[request] = end_s = clock.now + service_s
        yield clock.moment(end_s, COMPLETES, request) if end_s <= fails_s else clock.moment(fails_s, FAILS, request)
        del self._ends_s[request]
        heappush(self._idle_since_s, clock.now)
        if self._waiting:
            self._waiting.take(clock.now)[0].succeed()
        execution.end(clock.now, is_done=end_s <= fails_s)

    def free_s(self, rank: int | None = None) -> list[float]:
        """Return when each worker comes free for a request that enters now, as a heap; of an idle one, since when it is.

        Requests that wait count with their seconds in an empty box. `rank`: of its class; None: after all that wait.
        """
        free_s = [*self._idle_since_s, *self._ends_s.values()]
        heapify(free_s)
        for _, service_s in self._waiting.before(self._clock.now, rank):
            heapreplace(free_s, free_s[0] + service_s)
        return free_s

    @property
    def idle_since_s(self) -> float:
        """When the worker that has been idle longest became so."""
        return self._idle_since_s[0] if self._idle_since_s else 0.0

    def work_left(self, now_s: float, rank: int | None = None) -> float:
        """Return the seconds until a request of a class could start, if no other one came; None: after all that wait."""
        return 0.0 if self._idle_since_s else max(self.free_s(rank)[0] - now_s, 0.0)


class _ForeseenBox:
    """What a box would be after further requests; nothing happens at the box itself."""

    def __init__(self, box: FifoBox) -> None:
        self._free_s = box.free_s()

    @property
    def idle_since_s(self) -> float:
        return self._free_s[0]

    def work_left(self, now_s: float) -> float:
        return max(self._free_s[0] - now_s, 0.0)

    def start_s(self, entry_s: float, service_s: float) -> float:
        start_s = max(self._free_s[0], entry_s)
        heapreplace(self._free_s, start_s + service_s)
        return start_s


class Foreseen(Sequence[Any]):
    """Trial copies of boxes, made on first access: a look ahead accesses only a few."""

    def __init__(self, boxes: Sequence[Any], copied: Any) -> None:
        self._boxes, self._copied = boxes, copied
        self._copies: dict[int, Box] = {}

    def __len__(self) -> int:
        return len(self._boxes)

    def __getitem__(self, box: Any) -> Any:
        if box not in self._copies:
            self._copies[box] = self._copied(self._boxes[box])
        return self._copies[box]


class FifoDevice(Device):
    """The boxes of one target. A balancer that compares boxes ignores their memories."""

    def __init__(self, kind: Fifo, clock: Clock, target: int, requests: Block, trail: Recorder, first_box: int) -> None:
        self._down: Sequence[DownTimes] = [ALWAYS_UP] * kind.boxes
        self._balancer = kind.balancer.copy()
        if kind.failures is not None:
            self._down = kind.failures
            self._balancer = AvailableBoxes(self._balancer, self._down)
        self.boxes: Sequence[FifoBox] = [
            FifoBox(clock, kind.workers, down, kind.max_wait_s, kind.occupancy_factors) for down in self._down
        ]
        self._charged_s = trail["execution_s"] if kind.occupancy_factors else None
        self._rank, self._keeps_queue = ranks_of(requests, len(kind.max_wait_s)), kind.keeps_queue
        self._clock, self._execution_s = clock, numbers(requests.execution_s[target])
        self.room = None if kind.max_waiting is None else WaitingRoom(kind.boxes, kind.max_waiting)
        self._loads: Loads | None = None
        if kind.models is not None and kind.models.loads:
            self._loads = Loads(clock, kind.models, requests, trail, kind.boxes, first_box)

    def enter(self, execution: Execution) -> None:
        """Let a request enter a box, or refuse it."""
        execution.box = self._balancer.choose(self.boxes, execution.entry_s, execution.request, execution.node)
        if self.room is not None and not self.room.admits(execution):
            return
        service_s, rank = self._execution_s[execution.request], self._rank_of(execution.request)
        service = self.boxes[execution.box].execute(execution, service_s, rank)
        if self._charged_s is not None:
            execution.ended.callbacks.append(lambda ended: self._charge(execution, bool(ended.value)))
        self._clock.process(service if self._loads is None else self._load(execution, service, self._loads))

    def _charge(self, execution: Execution, is_done: bool) -> None:
        if is_done and self._charged_s is not None:
            self._charged_s[execution.request] = execution.finish_s - execution.begin_s

    def _rank_of(self, request: int) -> int:
        return 0 if self._rank is None else self._rank[request]

    def _load(self, execution: Execution, service: Process, loads: Loads) -> Process:
        yield from loads.load(execution)
        yield from service
        loads.ended(execution)

    def wait_s(self, arrivals: Sequence[Arrival]) -> float:
        """Return the wait of the last of `arrivals`, which enter in this order; later failures and refusals are not foreseen.

        With models that are loaded, classes or occupancy factors, the wait as if it entered now: its loads, or the work before
        it that is ready if that takes longer. No number is exact then: requests that wait for their models are not counted,
        loads may wait for memory, requests of other classes may come, and those that wait count as in an empty box.
        """
        balancer = self._balancer.copy()
        if self._loads is not None or self._keeps_queue:
            (_, request, node), now_s = arrivals[-1], self._clock.now
            box = balancer.choose(self.boxes, now_s, request, node)
            wait_s = self.boxes[box].work_left(now_s, self._rank_of(request) if self._keeps_queue else None)
            return wait_s if self._loads is None else max(wait_s, self._loads.left_s(request, box))
        boxes = Foreseen(self.boxes, _ForeseenBox)
        for entry_s, request, node in arrivals:
            box = balancer.choose(boxes, entry_s, request, node)
            wait_s = boxes[box].start_s(self._down[box].up_from(entry_s), self._execution_s[request]) - entry_s
        return float(wait_s)
