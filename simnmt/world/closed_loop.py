"""Closed loop: some clients, each of which thinks, asks, waits for the answer, and thinks again.

In the long run they obey the interactive response-time law: clients = throughput * (response time + think time).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.columns import AnyColumn
from simnmt.world.clock import ARRIVAL, ASKS, Clock, Event
from simnmt.world.requests import Block, Places, Requests, Route, Row
from simnmt.world.traffic import Traffic
from simnmt.world.trail import Trail


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


class _Asked(Event):
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
        self._places = Places(len(requests.execution_s))
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
        asked = _Asked()
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
