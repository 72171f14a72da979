"""Faults between deciders and targets: links that are down at times, requests that are lost, and late answers.

A message that is sent while a link of its path is down is lost; one under way arrives. The connection of a lost message, or of
a request that a failing box drops, breaks: the decider learns of it then. It knows of no fault before. Every request is
answered once or counted as lost. Boxes that fail are in `devices/failures.py`. The reference alone simulates faults.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from simnmt.devices.device import ANSWERED, FAILS, Execution
from simnmt.network.outages import DownTimes
from simnmt.results.device_accounts import FaultAccount
from simnmt.results.requests import FALLBACK, LOST
from simnmt.world.deciders import Decider

if TYPE_CHECKING:
    from simnmt.world.reference import Process, Simulation

UNACKNOWLEDGED_S = 0.2
"""Time after which the sender of a lost message gives it up: the least retransmission timeout of Linux (RFC 6298: 1 s)."""


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of the links of a run, and what deciders do about them."""

    outages: Sequence[Sequence[DownTimes]] = ()
    """By hop and link, when the link is down; the links of a hop are dealt to the end nodes. Empty: no link is ever down."""
    timeout_s: float | None = None
    """Time without an answer after which a decider executes a request itself; None: never."""


class FaultyLinks:
    """The ways of requests over links that fail, to boxes that fail."""

    def __init__(self, world: Simulation, faults: Faults) -> None:
        self._world, self._faults = world, faults
        self.trail = {name: column.copy() for name, column in world.trail.items()}
        """What remote devices record; it becomes that of the run if they answer in time."""
        self._failed_executions = 0
        self._extra_work: list[Any] = []

    def send(self, request: int, decider: Decider, target: int) -> Process:
        """Send a request, and let its decider execute it if no answer comes in time or its connection breaks."""
        world, clock, sent_s, timeout_s = self._world, self._world.clock, self._world.clock.now, self._faults.timeout_s
        sent_as = world.announce(request, decider, target)
        attempt = clock.process(self._attempt(request, target))
        if timeout_s is None:
            yield attempt
        else:
            yield attempt | clock.moment(sent_s + timeout_s, FAILS, request)
        execution = attempt.value if attempt.processed else None
        if execution is not None:
            self._accept(execution, target, sent_s)
            transfer_s = world.trail["transfer_s"][request]
            wait_s = execution.begin_s - execution.entry_s
            decider.hear(target, request, transfer_s, clock.now, wait_s, sent_as, execution.report)
            return
        decider.forget(target, request, sent_as)
        if not attempt.processed:
            attempt.callbacks.append(lambda late: self._waste(late.value, target))
        if timeout_s is not None:
            world.trail["target"][request], world.trail["outcome"][request] = 0, FALLBACK
            world.trail["transfer_s"][request] = clock.now - sent_s
            yield from world.execute_here(request, decider)
            return
        world.trail["target"][request], world.trail["outcome"][request] = -1, LOST
        for name in world.trail.keys() & {"queue_s", "transfer_s", "decision_regret_s"}:
            world.trail[name][request] = nan

    def _attempt(self, request: int, target: int) -> Generator[simpy.Event, Any, Execution | None]:
        """Return the execution when its answer is received, or None when the connection breaks."""
        world, clock = self._world, self._world.clock
        if self._is_down(request, target):
            yield clock.moment(clock.now + UNACKNOWLEDGED_S, FAILS, request)
            return None
        execution = yield from world.travel(request, target)
        is_done = yield execution.ended
        downlink_s = world.downlink_s[target][request]
        if not is_done:  # the reset of the connection meets no fault
            self._failed_executions += 1
            self._waste(execution, target)
            yield clock.moment(clock.now + downlink_s, FAILS, request)
            return None
        if self._is_down(request, target):
            self._waste(execution, target)
            yield clock.moment(clock.now + UNACKNOWLEDGED_S, FAILS, request)
            return None
        yield clock.moment(clock.now + downlink_s, ANSWERED, request)
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
        if execution is not None:
            self._work_of(target)[execution.box] += self._world.devices[target][0].work_of(execution)

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

    def _is_down(self, request: int, target: int) -> bool:
        return any(link.is_down(self._world.clock.now) for link in self._links(request, target))

    def outage_s(self, request: int, target: int, now_s: float) -> float:
        """Return the seconds until a message passes the links to a target one after another; an oracle waits for that."""
        at_s = now_s
        for link in self._links(request, target):
            at_s = link.up_from(at_s)
        return at_s - now_s

    def account(self) -> FaultAccount:
        """Return the account of the faults of the run."""
        work = [self._work_of(target) + [box.wasted_s for box in boxes] for target, boxes in enumerate(self._boxes())]
        return FaultAccount(self._failed_executions, tuple(work))
