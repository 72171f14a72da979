"""The simulation: requests in, the record of the run out; back to back, open loop or closed loop.

A request is issued at an end node, decided on by the first device on its way (the end node's own, or the gateway), and
executed on exactly one device: there, or on a server of a tier behind it (CNMT-01). Three disciplines set the pace. Back to
back, each request is issued when the one before it has been answered, so nothing ever waits; this is the paper's (CNMT-02).
In the open loop requests arrive by themselves. In the closed loop clients think between requests and obey the interactive
response-time law: clients = throughput * (response time + think time).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.columns import AnyColumn
from simnmt.policies.decision import Decide
from simnmt.world.batch_pool import BatchPool, BatchServerSpec
from simnmt.world.clock import ARRIVAL, ASKS, Clock, Event
from simnmt.world.deciders import Beliefs
from simnmt.world.fifo_server import Pool
from simnmt.world.requests import Block, Requests, Route, Row, RowLayout
from simnmt.world.streaming_server import StreamingPool, StreamingServerSpec
from simnmt.world.traffic import PredictedSeconds, StateDelays, Traffic
from simnmt.world.trail import Trail


def back_to_back(
    traffic: Traffic, requests: Requests[AnyColumn], prepare: Callable[[Block], None], beliefs: Beliefs, route: Route | None
) -> Iterator[float]:
    """An estimate is one request old at best. `route`: on an own clock, the links as time goes by.

    Nothing waits, but a box that streams its model remembers when it last had something to do.
    """
    trail, deciders, count = traffic.trail, traffic.deciders, len(traffic.deciders)
    places = RowLayout(len(requests.execution_s))
    plain, last = beliefs.only_heard, places.targets - 1
    streamed = traffic.streaming.enter
    foresees = traffic.totals_s if streamed and traffic.judged_share > 0.0 else None
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
                row = (*places.routed(row, now_s, uplink_s, downlink_s), *row[places.lengths :])
                on_access_s = there_s + back_s
            decider = deciders[row[1] % count]
            foreseen_s = None if foresees is None else foresees(decider, request, row, now_s)
            delay_s = decider.delay_s if plain else traffic.delays(decider, request, in_block, row, now_s)
            target = decide(in_block, delay_s)
            estimate = decider.estimates[last]
            trail.arrival_s[request] = now_s
            trail.target[request] = target
            trail.estimate_s[request] = estimate.value_s
            trail.measured_at_s[request] = estimate.measured_at_s
            if foreseen_s is not None:
                trail.lost_s[request] = foreseen_s[target] - min(foreseen_s)
            if target in streamed:
                entry_s = now_s + row[places.uplink(target)] if target else now_s
                decider.sends(target, request, now_s + decider.estimates[target].value_s / 2)
                _, finish_s, _ = streamed[target](entry_s, request, row)
                now_s = finish_s + on_access_s
                if target:
                    transfer_s = row[places.uplink(target)] + row[places.downlink(target)]
                    now_s += row[places.downlink(target)]
                    decider.told(target, request, trail.state[request], now_s - on_access_s - transfer_s / 2)
                    decider.learn(target, transfer_s, now_s)
            elif target == 0:
                now_s += row[2] + on_access_s
            else:
                transfer_s = row[places.uplink(target)] + row[places.downlink(target)]
                now_s += row[places.execution(target)] + transfer_s + on_access_s
                decider.learn(target, transfer_s, now_s)
            yield now_s


def open_loop(traffic: Traffic, requests: Requests[AnyColumn], prepare: Callable[[Block], None]) -> Iterator[float]:
    """One decision per arrival, in one re-armed event for all end nodes; a source for each would cost 60 % more at 1,000.

    What a decider keeps needs no event, since nothing else hears of it.
    """
    handle = traffic.handler()
    assert requests.arrival_s is not None
    np.frombuffer(traffic.trail.arrival_s)[:] = requests.arrival_s
    for block in requests.blocks():
        prepare(block)
        first = block.first
        for in_block, row in enumerate(traffic.rows(block)):
            now_s = row[0]
            yield now_s
            handle(first + in_block, in_block, row, now_s)


@dataclass(frozen=True, slots=True)
class Clients:
    """Who asks, and how long they think."""

    count: int
    nodes: int
    """End nodes; client c sits at node c modulo nodes."""
    think_s: NDArray[np.float64]
    """Shape (clients + requests,), seconds: each client's thinking before it begins, then the thinking after each request."""


class _Client(Event):
    __slots__ = ("node",)

    node: int


class _RequestInTransit(Event):
    """A request on its way from the end node to its decider."""

    __slots__ = ("in_block", "prepared", "request", "row")

    request: int
    in_block: int
    row: Row
    prepared: tuple[Any, Any, Any, Any]


class ClosedLoop:
    """Puts the clients on the clock; request i is the i-th that is issued, whoever asks, so that every policy meets the same.

    It is to be told of every answer by `answered`.
    """

    def __init__(self, clock: Clock, clients: Clients, requests: Requests[AnyColumn], prepare: Callable[[Block], None]) -> None:
        self._heap = clock.heap
        self._clients = clients
        self._requests = requests
        self._places = RowLayout(len(requests.execution_s))
        self._prepare = prepare
        self._client_of: dict[int, tuple[_Client, float]] = {}
        """Client, and how long the answer travels from decider to end node, by request under way."""
        self._issued = 0
        self._node, self._decided_s = array("i", [0]) * len(requests), array("d", [0.0]) * len(requests)

    def begin(self, traffic: Traffic, route: Route) -> None:
        """Let every client think once, and then ask."""
        self._traffic, self._route = traffic, route
        self._carries_more = self._requests.tgt_len is not None or bool(traffic.streaming.pools)
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
        routed = self._places.routed((0.0, client.node, *row[2:]), decided_s, uplink_s, downlink_s)
        row = (*routed, *row[self._places.lengths :]) if self._carries_more else routed
        self._traffic.trail.arrival_s[request] = now_s
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
        present, traffic.prepared = traffic.prepared, asked.prepared
        self._handle(asked.request, asked.in_block, asked.row, asked.row[0])
        traffic.prepared = present

    def _next_row(self) -> tuple[int, Row]:
        for in_block, row in self._rows:
            return in_block, row
        block = next(self._blocks)
        self._prepare(block)
        self._rows = enumerate(self._traffic.rows(block))
        return next(self._rows)

    def completed(self, trail: Trail) -> Trail:
        """The trail with what the loop alone knows."""
        node, decided_s = np.frombuffer(self._node, np.int32), np.frombuffer(self._decided_s, np.float64)
        return replace(trail, node=node, decided_s=decided_s)

    def answered(self, request: int, received_s: float) -> None:
        """The decider has the answer; the client that asked has it a little later, thinks, and asks again."""
        client, back_s = self._client_of.pop(request)
        number = self._clients.count + request
        self._will_ask(client, number, received_s + back_s + float(self._clients.think_s[number]))


DecideFor = Callable[[Block], Decide]
"""Prepares a policy for one block of requests."""


def simulate(
    requests: Requests[AnyColumn],
    decide_for: DecideFor,
    beliefs: Beliefs,
    pools: Sequence[Pool | BatchPool | StreamingPool],
    *,
    deciders: int = 1,
    workers: int = 1,
    predicted_for: Callable[[Block], PredictedSeconds] | None = None,
    route: Route | None = None,
    clients: Clients | None = None,
    own: BatchServerSpec | StreamingServerSpec | None = None,
    predicted_tgt_len_for: Callable[[Block], Sequence[float]] | None = None,
    plan_beyond_for: Callable[[Block], StateDelays] | None = None,
    judged_share: float = 0.0,
) -> Trail:
    """Run every request through the world.

    `pools`: the servers of every target but the first, new for each run. `deciders`: devices that decide; end node n's is n
    modulo their number; each executes `workers` requests side by side. `predicted_for`: the seconds of execution per target
    that the policy expects of a block, where it sees backlogs. `route`: the links as time goes by, where the requests' own
    columns do not hold them. `clients`: closed loop; it needs a `route`. With queues the true delays handed to an oracle hold
    unless a later request overtakes this one on the uplink or joins its batch.

    A target batches where its pool does, and the first where `own` says how each decider's device does, which then has no
    `workers`. The requests need a `tgt_len`, their `execution_s` is that of a sentence alone; back to back nothing meets, so
    nothing batches. `predicted_tgt_len_for`: the tokens that the policy expects of a block, where it sees batches.
    `judged_share`: of the requests, for which the trail holds `lost_s`, each as dear as an oracle's decision; back to back all
    or none, and only where a target streams.

    A target streams its model where its pool does, and the first where `own` says how, which then has one worker. Of such a
    target `execution_s` is the time of its plan with nothing to be read; an oracle's beliefs must hold the true backlog, back
    to back as well, as what a state costs beyond that is told with it. `plan_beyond_for`: by state, the seconds that the policy
    expects beyond its plane, where it views states.
    """
    clock = Clock()

    def prepare(block: Block) -> None:
        traffic.decide = decide_for(block)
        if predicted_for is not None:
            traffic.predicted = predicted_for(block)
        if predicted_tgt_len_for is not None:
            traffic.predicted_tgt_len = predicted_tgt_len_for(block)
        if plan_beyond_for is not None:
            traffic.beyond = plan_beyond_for(block)

    loop = None if clients is None else ClosedLoop(clock, clients, requests, prepare)
    answered = None if loop is None else loop.answered
    own_pool = (
        None
        if own is None
        else StreamingPool(own, deciders)
        if isinstance(own, StreamingServerSpec)
        else BatchPool(own, deciders)
    )
    has_lengths = requests.tgt_len is not None
    traffic = Traffic(clock, len(requests), pools, deciders, workers, beliefs, answered, own_pool, judged_share, has_lengths)
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
