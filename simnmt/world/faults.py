"""Faults between deciders and targets: links that are down at times, requests that are lost, and late answers.

A message that is sent while a link of its path is down is lost; one under way arrives. The connection of a lost message, or of
a request that a failing box drops, breaks: the decider learns of it then. It knows of no fault before. Every request is
answered once or counted as lost. Boxes that fail are in `devices/failures.py`. The reference alone simulates faults.

A decider leaves out a target that failed until it answers a try (`policies/health.py`). Tries take no capacity, so that the
result of one is computed when its decider next needs to know it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from simnmt.devices.device import ANSWERED, FAILS, REFUSAL, ByNode, Execution
from simnmt.network.outages import DownTimes
from simnmt.policies.health import TRY_S, ServerHealth
from simnmt.results.device_accounts import FaultAccount
from simnmt.results.requests import LOST
from simnmt.world.deciders import Decider

if TYPE_CHECKING:
    from simnmt.world.reference import Simulation, Try

UNACKNOWLEDGED_S = 0.2
"""Time after which the sender of a lost message gives it up: the least retransmission timeout of Linux (RFC 6298: 1 s)."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the links of a run, and what deciders do about them."""

    outages: Sequence[Sequence[DownTimes]] = ()
    """By hop and link, when the link is down; the links of a hop are dealt to the end nodes. Empty: no link is ever down."""
    timeout_s: float | None = None
    """Time without an answer after which a decider executes a request itself; None: never."""
    leave_out: bool = False
    """Whether a decider leaves out a target that failed, unless it knows the truth."""


@dataclass(slots=True)
class _Watch:
    """What one decider knows of the health of its targets."""

    decider: Decider
    health: ServerHealth
    request: int
    """The latest that was decided on: a try takes its way."""


class FaultyLinks:
    """The ways of requests over links that fail, to boxes that fail."""

    def __init__(self, world: Simulation, faults: Faults) -> None:
        self._world, self._faults = world, faults
        self.trail = {name: column.copy() for name, column in world.trail.items()}
        """What remote devices record; it becomes that of the run if they answer in time."""
        self._failed_executions = 0
        self._extra_work: list[Any] = []
        self._loads: list[tuple[int, int, int, float]] = []
        self._watches: dict[Decider, _Watch] = {}
        """The deciders of which a target failed."""
        self._ended_s = 0.0
        """When the last request so far was answered or lost."""

    def request(self, request: int, decider: Decider, judges: bool) -> Try:
        """Decide on a request, with what is known of its targets' health, and let it be executed, unless it is refused."""
        world = self._world
        self.update_health(request, decider)
        target = world.decide(decider, request, judges)
        if target:
            is_refused = yield from self.send(request, decider, target)
        else:
            world.trail["transfer_s"][request] = 0.0
            is_refused = yield from world.execute_first(request, decider)
        self._ended_s = world.clock.now
        return is_refused

    def update_health(self, request: int, decider: Decider) -> None:
        """Let a decider know which targets answer before it decides on a request."""
        self._try_again(decider, self._world.clock.now)
        if decider in self._watches:
            self._watches[decider].request = request

    def send(self, request: int, decider: Decider, target: int) -> Try:
        """Send a request, and let its decider execute it if no answer comes in time or its connection breaks."""
        world, clock, sent_s, timeout_s = self._world, self._world.clock, self._world.clock.now, self._faults.timeout_s
        sent_as = world.announce(request, decider, target)
        attempt = clock.process(self._attempt(request, target))
        if timeout_s is None:
            yield attempt
        else:
            yield attempt | clock.moment(sent_s + timeout_s, FAILS, request)
        self._try_again(decider, clock.now)
        execution = attempt.value if attempt.processed else None
        if execution is not None and execution.is_refused:  # the target is no less healthy for it
            world.trail["transfer_s"][request] = 0.0
            return (yield from world.refused(request, decider, target, sent_as, sent_s))
        if execution is not None:
            self._accept(execution, target, sent_s)
            transfer_s = world.trail["transfer_s"][request]
            wait_s = execution.begin_s - execution.entry_s
            decider.hear(target, request, transfer_s, clock.now, wait_s, sent_as, execution.report)
            return False
        decider.forget(target, request, sent_as)
        if self._faults.leave_out and not decider.beliefs.knows_truth:
            watch = self._watches.setdefault(decider, _Watch(decider, ServerHealth(), request))
            watch.health.failed(target, sent_s, clock.now)
            decider.unreachable = watch.health.left_out
        if not attempt.processed:
            world.left_behind.add(request)
            attempt.callbacks.append(lambda late: self._waste(late.value, target))
        if timeout_s is not None or world.is_deferred(request):
            world.trail["transfer_s"][request] = clock.now - sent_s
            return (yield from world.fall_back(request, decider))
        world.trail["target"][request], world.trail["outcome"][request] = -1, LOST
        world.forget_times(request)
        return False

    def _attempt(self, request: int, target: int) -> Generator[simpy.Event, Any, Execution | None]:
        """Return the execution when its answer or its refusal is received, or None when the connection breaks."""
        world, clock = self._world, self._world.clock
        if self._is_down(request, target, clock.now):
            yield clock.moment(clock.now + UNACKNOWLEDGED_S, FAILS, request)
            return None
        execution = yield from world.travel(request, target)
        is_done = execution.is_refused or (yield execution.ended)
        downlink_s = world.downlink_s[target][request]
        if not is_done:  # the reset of the connection meets no fault
            self._failed_executions += 1
            self._waste(execution, target)
            yield clock.moment(clock.now + downlink_s, FAILS, request)
            return None
        if self._is_down(request, target, clock.now):
            self._waste(execution, target)
            yield clock.moment(clock.now + UNACKNOWLEDGED_S, FAILS, request)
            return None
        yield clock.moment(clock.now + downlink_s, REFUSAL if execution.is_refused else ANSWERED, request)
        return execution

    def _accept(self, execution: Execution, target: int, sent_s: float) -> None:
        """Record an answer that came in time."""
        world, request = self._world, execution.request
        for name in world.devices_record:
            world.trail[name][request] = self.trail[name][request]
        world.record(execution, target)
        world.trail["transfer_s"][request] = (world.clock.now - sent_s) - (execution.finish_s - execution.entry_s)

    def _waste(self, execution: Execution | None, target: int) -> None:
        """Count an execution that answers no request."""
        if execution is not None and not execution.is_refused:
            self._work_of(target)[execution.box] += self._world.devices[target][0].work_of(execution)
            request, models = execution.request, getattr(self._world.kinds[target - 1], "models", None)
            if models is not None and models.loads:
                for number, model in enumerate(models.by_workload()[self._world.workload[request]]):
                    if self.trail["model_load"][request] >> number & 1:
                        self._loads.append((request, target, execution.box, models.load_s[model]))

    def _work_of(self, target: int) -> Any:
        if not self._extra_work:
            self._extra_work = [np.zeros(len(boxes)) for boxes in self._boxes()]
        return self._extra_work[target]

    def _boxes(self) -> list[list[Any]]:
        return [[box for device in devices for box in device.boxes] for devices in self._world.devices]

    def _links(self, request: int, target: int) -> list[DownTimes]:
        """Return the links from the decider of a request to a target."""
        node = self._world.node[request]
        return [links[node % len(links)] for links in self._faults.outages[:target]]

    def _is_down(self, request: int, target: int, at_s: float) -> bool:
        return any(link.is_down(at_s) for link in self._links(request, target))

    def _try_again(self, decider: Decider, until_s: float) -> None:
        """Let a decider take in all tries to reach its targets that have ended until a moment."""
        watch = self._watches.get(decider)
        if watch is None:
            return
        health = watch.health
        for target in health.left_out:
            while target in health.left_out:
                sent_s = health.next_try_s(target)
                ended_s, answers = self._try(watch.request, target, sent_s)
                if ended_s > until_s:
                    break
                if answers:
                    health.answered(target, ended_s)
                    decider.learn(target, ended_s - sent_s, ended_s)
                else:
                    health.try_failed(target, ended_s)
        decider.unreachable = health.left_out

    def _try(self, request: int, target: int, sent_s: float) -> tuple[float, bool]:
        """Return when a try to reach a target ends that takes the way of a request, and whether the target answers."""
        world = self._world
        entry_s, downlink_s = sent_s + world.uplink_s[target][request], world.downlink_s[target][request]
        if self._is_down(request, target, sent_s):
            return sent_s + UNACKNOWLEDGED_S, False
        kind = world.kinds[target - 1]
        if (failures := getattr(kind, "failures", None)) is not None:
            own = [failures[world.node[request] % kind.boxes]] if isinstance(kind.balancer, ByNode) else failures
            if all(down.is_down(entry_s) for down in own):  # the reset of the connection meets no fault
                return entry_s + downlink_s, False
        if entry_s + downlink_s > sent_s + TRY_S:
            return sent_s + TRY_S, False
        if self._is_down(request, target, entry_s):
            return entry_s + UNACKNOWLEDGED_S, False
        return entry_s + downlink_s, True

    def outage_s(self, request: int, target: int, now_s: float) -> float:
        """Return the seconds until a message passes the links to a target one after another; an oracle waits for that."""
        at_s = now_s
        for link in self._links(request, target):
            at_s = link.up_from(at_s)
        return at_s - now_s

    def account(self) -> FaultAccount:
        """Return the account of the faults of the run."""
        work = [self._work_of(target) for target in range(self._world.targets)]
        left_out = self._left_out() if self._faults.leave_out else ()
        return FaultAccount(self._failed_executions, tuple(work), left_out, tuple(self._loads))

    def _left_out(self) -> tuple[tuple[float, float], ...]:
        """Return by target the times and the seconds that it was left out, in the mean over the deciders."""
        for watch in self._watches.values():
            self._try_again(watch.decider, self._ended_s)
        healths = [watch.health for watch in self._watches.values()]
        deciders = len(self._boxes()[0])
        return tuple(
            (
                sum(health.times(target) for health in healths) / deciders,
                sum(health.seconds(target, self._ended_s) for health in healths) / deciders,
            )
            for target in range(self._world.targets)
        )
