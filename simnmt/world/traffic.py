"""The traffic of one run: each request is decided on and finds its way to a server, whatever the discipline."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import Decide
from simnmt.world.clock import REACHES_SERVER, Clock, Event
from simnmt.world.deciders import Beliefs, Decider
from simnmt.world.pools import Pool, wait_s
from simnmt.world.requests import Places, Row

Predicted = Sequence[Sequence[float]]
"""Per target, the seconds of execution that a policy expects of each request of a block."""


@dataclass(frozen=True, slots=True)
class Trail:
    """What only the simulation knows; one entry per request, in request order. The rest follows from the columns."""

    arrival_s: NDArray[np.float64]
    """When the request was issued; in an open loop, when its decider had it."""
    decided_s: NDArray[np.float64]
    """When its decider had it."""
    target: NDArray[np.int8]
    server: NDArray[np.int16]
    """Which server of the target's tier; 0 on the decider's own device."""
    queue_s: NDArray[np.float64]
    """Waited before execution."""
    estimate_s: NDArray[np.float64]
    """The transfer time to the last target that the decider believed in when it decided."""
    measured_at_s: NDArray[np.float64]
    """When that estimate had been measured; 0 for the initial one."""
    probes: int = 0
    """Probes sent, by all deciders."""
    node: NDArray[np.int32] | None = None
    """The end nodes that asked, where the loop is closed and the clients' answers say who asks next."""


class Recorder:
    """A trail under way: plain columns, 33 bytes a request."""

    __slots__ = ("arrival_s", "estimate_s", "measured_at_s", "queue_s", "server", "target")

    def __init__(self, requests: int) -> None:
        self.arrival_s, self.queue_s, self.estimate_s, self.measured_at_s = (array("d", [0.0]) * requests for _ in range(4))
        self.target, self.server = array("b", [0]) * requests, array("h", [0]) * requests

    def finished(self, deciders: Sequence[Decider]) -> Trail:
        """The trail as columns."""
        arrival_s = np.frombuffer(self.arrival_s, np.float64)
        return Trail(
            arrival_s,
            arrival_s,
            np.frombuffer(self.target, np.int8),
            np.frombuffer(self.server, np.int16),
            np.frombuffer(self.queue_s, np.float64),
            np.frombuffer(self.estimate_s, np.float64),
            np.frombuffer(self.measured_at_s, np.float64),
            sum(decider.probes_sent for decider in deciders),
        )


class UnderWay(Event):
    """An offloaded request between its decider and a server."""

    __slots__ = ("decider", "entry_s", "request", "row", "sent_as", "sent_s")

    request: int
    row: Row
    decider: Decider
    sent_s: float
    entry_s: float
    """When it reaches the server."""
    sent_as: int
    """What the decider's view of the backlog knows it by."""


Handle = Callable[[int, int, Row, float], None]
"""`handle(request, in_block, row, now_s)`: decide on a request and send it on its way."""


class Traffic:
    """The deciders and the servers of one run, and what passes between them."""

    __slots__ = (
        "_answered",
        "_beliefs",
        "_clock",
        "_on_reaching",
        "_places",
        "_pools",
        "decide",
        "deciders",
        "predicted",
        "trail",
    )

    def __init__(
        self,
        clock: Clock,
        requests: int,
        pools: Sequence[Pool],
        deciders: int,
        workers: int,
        beliefs: Beliefs,
        answered: Callable[[int, float], None] | None = None,
    ) -> None:
        """`pools`: of every target but the first. `answered`: told of each request and when its decider has the answer."""
        targets = 1 + len(pools)
        self.deciders = [Decider(number, targets, workers, beliefs) for number in range(deciders)]
        self.trail = Recorder(requests)
        self.decide: Decide = _undecided
        """The policy, prepared for the present block."""
        self.predicted: Predicted = ()
        """What the policy expects of the present block; needed where it sees backlogs."""
        self._beliefs = beliefs
        self._clock = clock
        self._pools = pools
        self._places = Places(targets)
        self._answered = answered
        self._on_reaching = [(self._reaching(target, pool),) for target, pool in enumerate(pools, start=1)]

    def _reaching(self, target: int, pool: Pool) -> Callable[[Any], None]:
        """What happens when a request reaches its tier: the answer's time is known at once, and what it will tell."""
        execution, downlink = self._places.execution(target), self._places.downlink(target)
        queue_s, servers, answered, enter = self.trail.queue_s, self.trail.server, self._answered, pool.enter

        def reaches(event: Any) -> None:
            row, request = event.row, event.request
            entry_s, service_s = event.entry_s, row[execution]
            start_s, server = enter(entry_s, service_s, request, row[1])
            finish_s = start_s + service_s
            if start_s > entry_s:
                queue_s[request] = start_s - entry_s
            if server:
                servers[request] = server
            received_s = finish_s + row[downlink]
            transfer_s = (received_s - event.sent_s) - (finish_s - entry_s)
            event.decider.answers.add((received_s, request, target, transfer_s, event.sent_as, start_s), server)
            if answered is not None:
                answered(request, received_s)

        return reaches

    def handler(self) -> Handle:
        """The function that every request is handed to, in the order of the decisions."""
        heap, deciders, answered = self._clock.heap, self.deciders, self._answered
        targets, queue_s = self.trail.target, self.trail.queue_s
        estimates_s, measured_at_s = self.trail.estimate_s, self.trail.measured_at_s
        on_reaching = self._on_reaching
        uplink_before = self._places.uplink(0)
        last = len(self._pools)
        plain = self._beliefs.only_heard
        only = deciders[0] if len(deciders) == 1 else None
        count = len(deciders)

        def handle(request: int, in_block: int, row: Row, now_s: float) -> None:
            decider = only or deciders[row[1] % count]
            if decider.answers.next_s <= now_s:
                decider.hear(now_s, queue_s)
            target = self.decide(in_block, decider.delay_s if plain else self.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            estimates_s[request] = estimate.value_s
            measured_at_s[request] = estimate.measured_at_s
            if target == 0:
                start_s = decider.device.serve(now_s, row[2])
                if start_s > now_s:
                    queue_s[request] = start_s - now_s
                if decider.views:
                    # It sees its own device start a request, no sooner; how long one takes it knows when that is done.
                    sent_as = decider.views[0].sent(now_s, self.predicted[0][in_block])
                    decider.answers.add((start_s, request, 0, 0.0, sent_as, start_s))
                if answered is not None:
                    answered(request, start_s + row[2])
                return
            targets[request] = target
            event = UnderWay()
            event.callbacks = on_reaching[target - 1]
            event.request = request
            event.row = row
            event.decider = decider
            event.sent_s = now_s
            entry_s = event.entry_s = now_s + row[uplink_before + target]
            event.sent_as = self._announced(decider, target, in_block, now_s) if decider.views else 0
            heappush(heap, (entry_s, REACHES_SERVER, request, event))

        return handle

    def _announced(self, decider: Decider, target: int, in_block: int, now_s: float) -> int:
        """Note in the decider's view what it sends, as it expects it: half the transfer before the execution."""
        entry_s = now_s + decider.estimates[target].value_s / 2
        return decider.views[target].sent(entry_s, self.predicted[target][in_block])

    def delays(self, decider: Decider, request: int, in_block: int, row: Row, now_s: float) -> Sequence[float]:
        """What each target costs beside execution, as the policy is allowed to know it."""
        beliefs, places = self._beliefs, self._places
        if beliefs.probes:
            decider.probe(now_s)
        if beliefs.true_transfer:
            delay_s = [0.0] + [row[places.uplink(k)] + row[places.downlink(k)] for k in range(1, places.targets)]
        else:
            delay_s = list(decider.delay_s)
        if beliefs.true_backlog:
            delay_s[0] = max(decider.device.next_free_s - now_s, 0.0)
            for target, pool in enumerate(self._pools, start=1):
                delay_s[target] += self._true_wait_s(pool, target, request, row, now_s)
        elif beliefs.sees_backlog:
            for target, view in enumerate(decider.views):
                delay_s[target] += view.wait_s(now_s + decider.estimates[target].value_s / 2)
        return delay_s

    def _true_wait_s(self, pool: Pool, target: int, request: int, row: Row, now_s: float) -> float:
        """How long the request will wait, unless a later one overtakes it on the uplink.

        What is on the clock and bound for that tier is on its uplink, all of it; of those that reach it in one moment the
        request of the lower number goes first.
        """
        execution = self._places.execution(target)
        entry_s = now_s + row[self._places.uplink(target)]
        on_reaching = self._on_reaching[target - 1]
        ahead = sorted(
            [
                (at_s, earlier, event.row)
                for at_s, _, earlier, event in self._clock.heap
                if event.callbacks is on_reaching and (at_s, earlier) < (entry_s, request)
            ]
        )
        entries = [(at_s, its_row[execution], earlier, its_row[1]) for at_s, earlier, its_row in ahead]
        return wait_s(pool, (entry_s, row[execution], request, row[1]), entries)


def _undecided(request: int, delay_s: Sequence[float]) -> int:
    raise AssertionError("no block was prepared")
