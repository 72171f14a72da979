"""The C-NMT world: end nodes' requests meet at one gateway, which keeps each or sends it over a link to one cloud server.

Two disciplines (CNMT-02): back to back, the paper's, where a request is issued when the one before is answered and nothing
ever waits; and open loop, where requests arrive by themselves and wait in first-in first-out queues. A request runs on
exactly one device (CNMT-01). The hop from end node to gateway costs nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import GATEWAY, Decide
from simnmt.world.answers import Answers
from simnmt.world.clock import ARRIVAL, REACHES_SERVER, Clock, Event
from simnmt.world.fifo import FifoServer
from simnmt.world.requests import Requests


@dataclass(frozen=True, slots=True)
class Trail:
    """What only the simulation knows; one entry per request, in request order. The rest follows from the columns."""

    arrival_s: NDArray[np.float64]
    """When the gateway had the request (back to back: when it was issued)."""
    target: NDArray[np.int8]
    queue_s: NDArray[np.float64]
    """Waited before execution, at the gateway or at the server."""
    estimate_s: NDArray[np.float64]
    """The transfer time that the gateway believed in when it decided."""
    measured_at_s: NDArray[np.float64]
    """When that estimate had been measured; 0 for the initial one."""


DecideFor = Callable[[Requests], Decide]
"""Prepares a policy for one block of requests."""


def simulate(
    requests: Requests,
    decide_for: DecideFor,
    *,
    initial_transfer_s: float,
    workers: int = 1,
    clairvoyant: bool = False,
    present_rtt_s: Callable[[float], float] | None = None,
) -> Trail:
    """Run every request through the world.

    `initial_transfer_s`: the estimate before the first measurement (CNMT-11). `workers`: parallel executions of the cloud
    server. `clairvoyant`: hand `decide` the true delays instead of the estimates, for the oracle alone; with queues they hold
    unless a later request overtakes this one on the uplink. `present_rtt_s`: back to back on an own clock, the round-trip
    time at a moment, whose halves are added to both link columns.
    """
    trail, clock = _Recorder(len(requests)), Clock()
    if requests.arrival_s is None:
        clock.follow(_back_to_back(trail, requests, decide_for, initial_transfer_s, clairvoyant, present_rtt_s), ARRIVAL)
    else:
        _open_loop(clock, trail, requests, decide_for, initial_transfer_s, clairvoyant, workers)
    clock.run()
    return trail.finished()


class _Recorder:
    """Columns under way: 8 bytes a number, appended in request order but for the wait, known only at the server."""

    __slots__ = ("arrival_s", "estimate_s", "measured_at_s", "queue_s", "target")

    def __init__(self, requests: int) -> None:
        self.arrival_s = array("d")
        self.target = array("b")
        self.queue_s = array("d", bytes(8 * requests))
        self.estimate_s = array("d")
        self.measured_at_s = array("d")

    def finished(self) -> Trail:
        return Trail(
            np.frombuffer(self.arrival_s, np.float64),
            np.frombuffer(self.target, np.int8),
            np.frombuffer(self.queue_s, np.float64),
            np.frombuffer(self.estimate_s, np.float64),
            np.frombuffer(self.measured_at_s, np.float64),
        )


class _UnderWay(Event):
    """An offloaded request between the gateway and the server."""

    __slots__ = ("downlink_s", "entry_s", "request", "sent_s", "service_s")

    request: int
    sent_s: float
    entry_s: float
    """When it reaches the server."""
    service_s: float
    downlink_s: float


def _open_loop(
    clock: Clock,
    trail: _Recorder,
    requests: Requests,
    decide_for: DecideFor,
    initial_transfer_s: float,
    clairvoyant: bool,
    workers: int,
) -> None:
    """Put the arrivals on the clock, and with them whatever they set off."""
    cloud = FifoServer(workers)
    heap = clock.heap
    queue_s = trail.queue_s
    answers = Answers()

    def reaches_server(event: Any) -> None:
        """Into the server's queue; the answer's time is known at once, and with it what the gateway will measure."""
        entry_s, service_s = event.entry_s, event.service_s
        start_s = cloud.serve(entry_s, service_s)
        finish_s = start_s + service_s
        if start_s > entry_s:
            queue_s[event.request] = start_s - entry_s
        received_s = finish_s + event.downlink_s
        answers.add(start_s, received_s, event.request, (received_s - event.sent_s) - (finish_s - entry_s))

    on_reaching = (reaches_server,)

    def arrivals() -> Iterator[float]:
        """The gateway: one decision per arrival. What it keeps needs no event, since nothing else hears of it."""
        record_target, record_estimate = trail.target.append, trail.estimate_s.append
        record_measured = trail.measured_at_s.append
        gateway_free_s = 0.0
        believed_s, measured_at_s = [0.0, initial_transfer_s], 0.0
        true_s = [0.0, 0.0]
        delay_s = true_s if clairvoyant else believed_s
        request = -1
        for block in requests.blocks():
            assert block.arrival_s is not None
            decide = decide_for(block)
            trail.arrival_s.frombytes(block.arrival_s.tobytes())
            columns = (block.arrival_s, block.gateway_s, block.cloud_s, block.uplink_s, block.downlink_s)
            rows = zip(*(column.tolist() for column in columns), strict=True)
            for in_block, (arrival_s, gateway_s, cloud_s, uplink_s, downlink_s) in enumerate(rows):
                yield arrival_s
                if answers.next_s <= arrival_s:
                    answer = answers.collect(arrival_s)
                    if answer is not None:
                        measured_at_s, believed_s[1] = answer
                if clairvoyant:
                    entry_s = arrival_s + uplink_s
                    # What is on the clock now is on the uplink, all of it; earlier requests, so a tie is theirs.
                    ahead = sorted(entry for entry in heap if entry[0] <= entry_s)
                    wait_s = cloud.wait_s(entry_s, ((at_s, event.service_s) for at_s, _, _, event in ahead))
                    true_s[0] = max(gateway_free_s - arrival_s, 0.0)
                    true_s[1] = uplink_s + downlink_s + wait_s
                target = decide(in_block, delay_s)
                record_target(target)
                record_estimate(believed_s[1])
                record_measured(measured_at_s)
                request += 1
                if target == GATEWAY:
                    if gateway_free_s > arrival_s:
                        queue_s[request] = gateway_free_s - arrival_s
                        gateway_free_s += gateway_s
                    else:
                        gateway_free_s = arrival_s + gateway_s
                else:
                    event = _UnderWay()
                    event.callbacks = on_reaching
                    event.request = request
                    event.sent_s = arrival_s
                    entry_s = event.entry_s = arrival_s + uplink_s
                    event.service_s = cloud_s
                    event.downlink_s = downlink_s
                    heappush(heap, (entry_s, REACHES_SERVER, request, event))

    clock.follow(arrivals(), ARRIVAL)


def _back_to_back(
    trail: _Recorder,
    requests: Requests,
    decide_for: DecideFor,
    initial_transfer_s: float,
    clairvoyant: bool,
    present_rtt_s: Callable[[float], float] | None,
) -> Iterator[float]:
    """Each request issued when the one before is answered; an estimate is one request old at best."""
    record_arrival, record_target = trail.arrival_s.append, trail.target.append
    record_estimate, record_measured = trail.estimate_s.append, trail.measured_at_s.append
    now_s, measured_at_s = 0.0, 0.0
    believed_s = [0.0, initial_transfer_s]
    true_s = [0.0, 0.0]
    delay_s = true_s if clairvoyant else believed_s
    for block in requests.blocks():
        decide = decide_for(block)
        columns = (block.gateway_s, block.cloud_s, block.uplink_s, block.downlink_s)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for in_block, (gateway_s, cloud_s, uplink_s, downlink_s) in enumerate(rows):
            transfer_s = uplink_s + downlink_s
            if present_rtt_s is not None:
                transfer_s += present_rtt_s(now_s)
            true_s[1] = transfer_s
            target = decide(in_block, delay_s)
            record_arrival(now_s)
            record_target(target)
            record_estimate(believed_s[1])
            record_measured(measured_at_s)
            if target == GATEWAY:
                now_s += gateway_s
            else:
                now_s += cloud_s + transfer_s
                believed_s[1] = transfer_s
                measured_at_s = now_s
            yield now_s
