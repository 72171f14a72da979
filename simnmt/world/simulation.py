"""The simulation: requests in, the trail of the run out; back to back, open loop or closed loop.

A request is issued at an end node, decided on by the first device on its way (the end node's own, or the gateway), and executed
on exactly one device: there, or on a server of a tier behind it (CNMT-01). Three disciplines set the pace. Back to back, each
request is issued when the one before it has been answered, so nothing ever waits; this is the paper's (CNMT-02). In the open
loop requests arrive independently of answers. In the closed loop clients think between requests and obey the interactive
response-time law: clients = throughput * (response time + think time).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.network.message_paths import MessagePaths
from simnmt.policies.decision import Choice
from simnmt.results.requests import Block, Requests, Trail
from simnmt.world.checks import BlockChecks, check_run
from simnmt.world.clock import ARRIVAL, ASKS, Clock, Event
from simnmt.world.deciders import Beliefs, Prepared
from simnmt.world.faults import Faults, FaultyTraffic
from simnmt.world.message_traffic import MessageTraffic
from simnmt.world.server import Row, Server, ServerSpec
from simnmt.world.traffic import Traffic

Route = Callable[[int, int, float], tuple[tuple[float, ...], tuple[float, ...], float, float]]
"""`route(request, node, moment_s)`: seconds up and down per remote target at that moment, and from the end node to its decider
and back."""


def back_to_back(
    traffic: Traffic, requests: Requests, prepare: Callable[[Block], None], beliefs: Beliefs, route: Route | None
) -> Iterator[float]:
    """Yield the moments at which requests end; `route`: looks links up, if their times depend on the answers.

    Nothing waits, so an estimate is one request old at best; but a box that streams its model depends on the time since its
    last request.
    """
    trail, deciders, count, layout = traffic.trail, traffic.deciders, len(traffic.deciders), traffic.layout
    arrivals_s, targets, estimates_s, measured_at_s = (
        trail[name] for name in ("arrival_s", "target", "estimate_s", "measured_at_s")
    )
    plain, last = beliefs.only_heard, layout.targets - 1
    execution, uplink, downlink = layout.execution(0), layout.uplink(0), layout.downlink(0)
    alone = traffic.alone
    judges = bool(alone) and "lost_s" in trail
    now_s = 0.0
    for block in requests.blocks():
        prepare(block)
        decide = traffic.decide
        access_s = None if block.access_s is None else block.access_s.tolist()
        for in_block, row in enumerate(traffic.rows(block)):
            request = block.first + in_block
            on_access_s = 0.0 if access_s is None else access_s[in_block]
            if route is not None:
                uplink_s, downlink_s, there_s, back_s = route(request, row[1], now_s)
                row = layout.routed(row, now_s, uplink_s, downlink_s)
                on_access_s = there_s + back_s
            decider = deciders[row[1] % count]
            foreseen_s = traffic.totals_s(decider, request, row, now_s) if judges else ()
            target = decide(in_block, decider.delay_s if plain else traffic.delays(decider, request, in_block, row, now_s))
            estimate = decider.estimates[last]
            arrivals_s[request] = now_s
            targets[request] = target
            estimates_s[request] = estimate.value_s
            measured_at_s[request] = estimate.measured_at_s
            if foreseen_s:
                trail["lost_s"][request] = foreseen_s[target] - min(foreseen_s)
            transfer_s = row[uplink + target] + row[downlink + target] if target else 0.0
            plan = decider.plans.get(target) if target else None
            if plan is not None:
                plan.sent(request, now_s + decider.estimates[target].value_s / 2)
            if target in alone:
                entry_s = now_s + row[uplink + target] if target else now_s
                _, finish_s, report, _ = alone[target](entry_s, request, row)
                now_s = finish_s + on_access_s + (row[downlink + target] if target else 0.0)
                if plan is not None:
                    plan.reported(request, report, now_s - on_access_s - transfer_s / 2)
            else:
                now_s += row[execution + target] + transfer_s + on_access_s
            if target:
                decider.learn(target, transfer_s, now_s)
            yield now_s


def open_loop(traffic: Traffic, requests: Requests, prepare: Callable[[Block], None]) -> Iterator[float]:
    """Yield the moments of arrival and decide at each, in one re-armed event for all end nodes; a source for each would cost 60
    % more at 1,000.

    A request that a decider keeps needs no event, since nothing else depends on it.
    """
    handle = traffic.handler()
    assert requests.arrival_s is not None
    np.frombuffer(traffic.trail["arrival_s"])[:] = requests.arrival_s[:]
    for block in requests.blocks():
        prepare(block)
        first = block.first
        for in_block, row in enumerate(traffic.rows(block)):
            now_s = row[0]
            yield now_s
            handle(first + in_block, in_block, row, now_s)


@dataclass(frozen=True, slots=True)
class Clients:
    """The clients of a closed loop, with their think times."""

    count: int
    nodes: int
    """End nodes; client c is at node c modulo nodes."""
    think_s: NDArray[np.float64]
    """Shape (clients + requests,), seconds: each client's thinking before its first request, then the thinking after each
    request."""


class _Client(Event):
    __slots__ = ("node",)

    node: int


class _RequestInTransit(Event):
    """A request on its way from the end node to its decider."""

    __slots__ = ("in_block", "prepared", "request", "row")

    request: int
    in_block: int
    row: Row
    prepared: Prepared


class ClosedLoop:
    """The clients on the clock; request i is the i-th that is issued by any client, so that every policy meets the same
    requests.

    The traffic reports every answer by `answered`.
    """

    def __init__(self, clock: Clock, clients: Clients, requests: Requests, prepare: Callable[[Block], None]) -> None:
        self._heap = clock.heap
        self._clients = clients
        self._requests = requests
        self._prepare = prepare
        self._client_of: dict[int, tuple[_Client, float]] = {}
        """Client, and travel time of the answer from decider to end node, by request under way."""
        self._issued = 0
        self._node, self._decided_s = array("i", [0]) * len(requests), array("d", [0.0]) * len(requests)

    def begin(self, traffic: Traffic, route: Route) -> None:
        """Let every client think once, and then ask."""
        self._traffic, self._route = traffic, route
        self._handle = traffic.handler()
        self._blocks = iter(self._requests.blocks())
        self._rows: Iterator[tuple[int, Row]] = iter(())
        # A client behind as many others as there are requests never asks: a million clients cost no more than the requests.
        first_s = self._clients.think_s[: self._clients.count]
        for number in np.argsort(first_s, kind="stable")[: len(self._requests)].tolist():
            client = _Client()
            client.node = number % self._clients.nodes
            self._will_ask(client, number, float(first_s[number]))

    def _will_ask(self, client: _Client, number: int, at_s: float) -> None:
        client.callbacks = (lambda _: self._ask(client, at_s),)
        heappush(self._heap, (at_s, ASKS, number, client))

    def _ask(self, client: _Client, now_s: float) -> None:
        if self._issued == len(self._requests):
            return
        in_block, row = self._next_row()
        request, self._issued = self._issued, self._issued + 1
        uplink_s, downlink_s, there_s, back_s = self._route(request, client.node, now_s)
        decided_s = now_s + there_s
        row = self._traffic.layout.routed((0.0, client.node, *row[2:]), decided_s, uplink_s, downlink_s)
        self._traffic.trail["arrival_s"][request] = now_s
        self._decided_s[request] = decided_s
        self._node[request] = client.node
        self._client_of[request] = client, back_s
        if there_s == 0.0:
            self._handle(request, in_block, row, now_s)
            return
        asked = _RequestInTransit()
        asked.request, asked.in_block, asked.row = request, in_block, row
        asked.prepared = self._traffic.prepared
        asked.callbacks = (self._reaches_decider,)
        heappush(self._heap, (decided_s, ARRIVAL, request, asked))

    def _reaches_decider(self, asked: Any) -> None:
        # A block may have ended since it was issued: the policy prepared for its own block decides.
        traffic = self._traffic
        present = traffic.prepared
        traffic.prepare(asked.prepared)
        self._handle(asked.request, asked.in_block, asked.row, asked.row[0])
        traffic.prepare(present)

    def _next_row(self) -> tuple[int, Row]:
        for in_block, row in self._rows:
            return in_block, row
        block = next(self._blocks)
        self._prepare(block)
        self._rows = enumerate(self._traffic.rows(block))
        return next(self._rows)

    def completed(self, trail: Trail) -> Trail:
        """Return the trail with the columns that only the loop knows."""
        node, decided_s = np.frombuffer(self._node, np.int32), np.frombuffer(self._decided_s, np.float64)
        return trail.with_columns(node=node, decided_s=decided_s)

    def answered(self, request: int, received_s: float) -> None:
        """Let the client receive the answer a little after the decider, think, and ask again."""
        client, back_s = self._client_of.pop(request)
        number = self._clients.count + request
        self._will_ask(client, number, received_s + back_s + float(self._clients.think_s[number]))


DecideFor = Callable[[Block], Choice]
"""Prepares a policy for one block of requests."""
ExpectedFor = Callable[[Block], Sequence[NDArray[np.float64]]]
"""Returns, per target, the policy's expectation of each request of a block in the unit of the target's view: seconds of
execution, or tokens if it batches."""


PlanBeyondFor = Callable[[Block], Sequence[Sequence[NDArray[np.float64]] | None]]
"""Returns, by target and state, the seconds that the policy expects beyond its plane."""


def simulate(
    requests: Requests,
    decide_for: DecideFor,
    beliefs: Beliefs,
    servers: Sequence[Server],
    *,
    deciders: int = 1,
    workers: int = 1,
    expected_for: ExpectedFor | None = None,
    route: Route | None = None,
    clients: Clients | None = None,
    local: ServerSpec | None = None,
    plan_beyond_for: PlanBeyondFor | None = None,
    judged_share: float = 0.0,
    paths: MessagePaths | None = None,
    faults: Faults | None = None,
) -> Trail:
    """Run every request through the world, and return its trail.

    Args:
        requests: with a `tgt_len` if a server takes a step for each token; `execution_s` is the time of a request alone, for a
            streamed model with nothing to be read.
        decide_for: prepares the policy for a block.
        beliefs: how its deciders estimate delays. For true delays of a streamed model, an oracle needs the true backlog back to
            back as well. With queues true delays hold unless a later request overtakes this one or joins its batch.
        servers: of every target but the first, new for each run. Back to back requests never meet, so nothing batches.
        deciders: devices that decide; end node n's is n modulo their number.
        workers: requests that each decider executes side by side, without `local`.
        expected_for: needed if `beliefs` has views.
        route: looks links up during the run, if the requests' columns do not hold their times.
        clients: closed loop; it needs a `route`.
        local: specification of each decider's own device, if it is no first-in first-out server.
        plan_beyond_for: needed if `beliefs` views states.
        judged_share: share of the requests for which the trail holds `lost_s`, each as expensive as an oracle's decision; back
            to back all or none, and only if a target streams.

    Raises `InputError` for columns with values that are NaN, infinite or below 0, and for parts that do not fit each other.
    """
    check_run(requests, servers, deciders, workers, route, clients)
    clock = Clock()
    checks = BlockChecks(route is None, beliefs.true_transfer or beliefs.true_backlog or judged_share > 0.0)

    def prepare(block: Block) -> None:
        expected = () if expected_for is None else expected_for(block)
        beyond = () if plan_beyond_for is None else plan_beyond_for(block)
        choice = decide_for(block)
        checks.check(block, choice)
        traffic.prepare(Prepared.of(choice, expected, beyond))

    loop = None if clients is None else ClosedLoop(clock, clients, requests, prepare)
    answered = None if loop is None else loop.answered
    local_server = None if local is None else local.servers(deciders)
    parts = clock, requests, servers, deciders, workers, beliefs, answered, local_server, judged_share
    traffic: Traffic
    if faults is not None:
        traffic = FaultyTraffic(faults, *parts)
    elif paths is not None:
        traffic = MessageTraffic(paths, *parts)
    else:
        traffic = Traffic(*parts)
    if loop is not None:
        assert route is not None
        loop.begin(traffic, route)
    elif requests.arrival_s is None:
        clock.follow(back_to_back(traffic, requests, prepare, beliefs, route), ARRIVAL)
    else:
        clock.follow(open_loop(traffic, requests, prepare), ARRIVAL)
    clock.run()
    while traffic.close():
        clock.run()
    trail = traffic.finished()
    return trail if loop is None else loop.completed(trail)
