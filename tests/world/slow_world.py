"""A slow world to judge the fast one by: queues that are queues, workers that are busy, and an event for everything.

It shares with the fast one what is handed to both: requests, routes, clients, and the policies' own beliefs (an estimate of a
transfer time, a view of a backlog), which are told here in the moment in which an answer comes. Events of one moment: first
executions end, then requests reach servers, then answers come, then requests reach deciders, then clients ask; among those of a
kind by number.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush

from simnmt.policies.decision import Decide
from simnmt.policies.estimates import TransferEstimate
from simnmt.results.requests import Requests
from simnmt.world.deciders import Beliefs
from simnmt.world.simulation import Clients, Route

DONE, REACHES, ANSWERED, ARRIVES, ASKS = range(5)


@dataclass
class Server:
    """Some workers before one queue."""

    idle_since_s: list[float]
    """Of each idle worker."""
    ends_s: dict[int, float] = field(default_factory=dict)
    """Of each request that is executed now."""
    waiting: deque[int] = field(default_factory=deque)
    service_s: dict[int, float] = field(default_factory=dict)

    def free_at_s(self) -> float:
        """When a worker is there for who joined the queue now; in the past if one is idle."""
        free_s = sorted([*self.idle_since_s, *self.ends_s.values()])
        for request in self.waiting:
            insort(free_s, free_s.pop(0) + self.service_s[request])
        return free_s[0]

    def join(self, request: int, service_s: float, now_s: float) -> list[tuple[int, float]]:
        """Who starts now, and when that ends."""
        self.service_s[request] = service_s
        self.waiting.append(request)
        return self._start(now_s)

    def done(self, request: int, now_s: float) -> list[tuple[int, float]]:
        """Who starts now in the place of who has ended."""
        del self.ends_s[request]
        self.idle_since_s.append(now_s)
        return self._start(now_s)

    def _start(self, now_s: float) -> list[tuple[int, float]]:
        if not (self.waiting and self.idle_since_s):
            return []
        request = self.waiting.popleft()
        self.idle_since_s.remove(min(self.idle_since_s))
        self.ends_s[request] = now_s + self.service_s[request]
        return [(request, self.ends_s[request])]


@dataclass
class Tier:
    """The servers of one tier and how one is chosen."""

    balancer: str
    servers: list[Server]
    choices: Sequence[Sequence[int]] = ()
    """For `drawn`: the servers that each request may choose from."""
    turn: int = 0
    server_of: dict[int, int] = field(default_factory=dict)

    def enter(self, request: int, node: int, service_s: float, now_s: float) -> list[tuple[int, float]]:
        """Who starts now, and when that ends."""
        free_s = [server.free_at_s() for server in self.servers]
        if self.balancer == "attached":
            chosen = node % len(free_s)
        elif self.balancer == "round_robin":
            chosen, self.turn = self.turn, (self.turn + 1) % len(free_s)
        elif self.balancer == "least_work":
            chosen = free_s.index(min(free_s))
        else:
            chosen = min(self.choices[request], key=lambda server: max(free_s[server], now_s))
        self.server_of[request] = chosen
        return self.servers[chosen].join(request, service_s, now_s)

    def done(self, request: int, now_s: float) -> list[tuple[int, float]]:
        """The same when an execution has ended."""
        return self.servers[self.server_of[request]].done(request, now_s)


def tier(balancer: str, servers: int, workers: int, choices: Sequence[Sequence[int]] = ()) -> Tier:
    """An idle tier."""
    return Tier(balancer, [Server([0.0] * workers) for _ in range(servers)], choices)


class SlowWorld:
    """Runs when it is made; its columns have the names of the fast world's trail."""

    def __init__(
        self,
        requests: Requests,
        decide: Decide,
        beliefs: Beliefs,
        tiers: Sequence[Tier],
        *,
        deciders: int = 1,
        workers: int = 1,
        predicted: Sequence[Sequence[float]] = (),
        route: Route | None = None,
        clients: Clients | None = None,
    ) -> None:
        n, targets = len(requests), 1 + len(tiers)
        self.execution_s = [column.tolist() for column in requests.execution_s]
        self.uplink_s = [[0.0] * n, *(column.tolist() for column in requests.uplink_s)]
        self.downlink_s = [[0.0] * n, *(column.tolist() for column in requests.downlink_s)]
        self.node = [0] * n if requests.node is None else requests.node.tolist()
        self.arrival_s, self.decided_s, self.queue_s = [0.0] * n, [0.0] * n, [0.0] * n
        self.estimate_s, self.measured_at_s = [0.0] * n, [0.0] * n
        self.target, self.server, self.handed = [-1] * n, [0] * n, [()] * n
        self._decide, self._beliefs, self._predicted, self._route, self._clients = decide, beliefs, predicted, route, clients
        self._tiers = tiers
        self._devices = [Server([0.0] * workers) for _ in range(deciders)]
        self._estimates = [
            [TransferEstimate(0.0), *(beliefs.estimate(number, k) for k in range(1, targets))] for number in range(deciders)
        ]
        self._views = [[view() for view in beliefs.views if view is not None] for _ in range(deciders)]
        self._agenda: list[tuple[float, int, int]] = []
        self._entry_s, self._start_s = [0.0] * n, [0.0] * n
        self._sent_as, self._back_s, self._client = [0] * n, [0.0] * n, [0] * n
        self._client_asking: dict[int, int] = {}
        """Client, by the number of its thinking; the first thinking of each has its own."""
        self._issued = 0
        if clients is None:
            assert requests.arrival_s is not None
            for request, arrival_s in enumerate(requests.arrival_s.tolist()):
                self.arrival_s[request] = arrival_s
                heappush(self._agenda, (arrival_s, ARRIVES, request))
        else:
            for number in range(clients.count):
                heappush(self._agenda, (float(clients.think_s[number]), ASKS, number))
        happens: list[Callable[[int, float], None]] = [
            self._done, self._reaches, self._answered, self._arrives, self._asks
        ]  # fmt: skip
        while self._agenda:
            now_s, kind, request = heappop(self._agenda)
            happens[kind](request, now_s)

    def _decider(self, request: int) -> int:
        return self.node[request] % len(self._devices)

    def _arrives(self, request: int, now_s: float) -> None:
        own = self._decider(request)
        self.decided_s[request] = now_s
        self.handed[request] = tuple(self._delays_s(request, own, now_s))
        last = self._estimates[own][-1]
        self.estimate_s[request], self.measured_at_s[request] = last.value_s, last.measured_at_s
        target = self.target[request] = self._decide(request, self.handed[request])
        if target == 0:
            self._entry_s[request] = now_s
            if self._beliefs.views:
                self._sent_as[request] = self._views[own][0].sent(now_s, self._predicted[0][request])
            self._started(self._devices[own].join(request, self.execution_s[0][request], now_s), now_s)
            return
        if self._beliefs.views:
            entry_s = now_s + self._estimates[own][target].value_s / 2
            self._sent_as[request] = self._views[own][target].sent(entry_s, self._predicted[target][request])
        heappush(self._agenda, (now_s + self.uplink_s[target][request], REACHES, request))

    def _delays_s(self, request: int, own: int, now_s: float) -> list[float]:
        delay_s = [estimate.value_s for estimate in self._estimates[own]]
        remote = range(1, len(delay_s))
        if self._beliefs.true_transfer:
            delay_s = [self.uplink_s[k][request] + self.downlink_s[k][request] for k in range(len(delay_s))]
        if self._beliefs.true_backlog:
            delay_s[0] += max(self._devices[own].free_at_s() - now_s, 0.0)
        elif self._beliefs.views:
            delay_s[0] += self._views[own][0].added_s(now_s)
        for k in remote:
            if self._beliefs.true_backlog:
                delay_s[k] += self._would_wait_s(request, k, now_s)
            elif self._beliefs.views:
                delay_s[k] += self._views[own][k].added_s(now_s + self._estimates[own][k].value_s / 2)
        return delay_s

    def _would_wait_s(self, request: int, target: int, now_s: float) -> float:
        """Lets a copy of the tier go on with what is on its way there, and with this request."""
        tier = deepcopy(self._tiers[target - 1])
        entry_s = now_s + self.uplink_s[target][request]
        agenda = sorted(
            entry for entry in self._agenda if entry[1] in (DONE, REACHES) and self.target[entry[2]] == target
        )  # fmt: skip
        insort(agenda, (entry_s, REACHES, request))
        while True:
            at_s, kind, number = agenda.pop(0)
            if kind == DONE:
                started = tier.done(number, at_s)
            else:
                started = tier.enter(number, self.node[number], self.execution_s[target][number], at_s)
            for other, end_s in started:
                if other == request:
                    return at_s - entry_s
                insort(agenda, (end_s, DONE, other))

    def _started(self, started: list[tuple[int, float]], now_s: float) -> None:
        for request, end_s in started:
            self._start_s[request] = now_s
            self.queue_s[request] = now_s - self._entry_s[request]
            heappush(self._agenda, (end_s, DONE, request))
            if self.target[request] == 0 and self._beliefs.views:
                heappush(self._agenda, (now_s, ANSWERED, request))

    def _reaches(self, request: int, now_s: float) -> None:
        target = self.target[request]
        self._entry_s[request] = now_s
        tier = self._tiers[target - 1]
        self._started(tier.enter(request, self.node[request], self.execution_s[target][request], now_s), now_s)
        self.server[request] = tier.server_of[request]

    def _done(self, request: int, now_s: float) -> None:
        target = self.target[request]
        if target == 0:
            self._started(self._devices[self._decider(request)].done(request, now_s), now_s)
            self._client_hears(request, now_s)
            return
        self._started(self._tiers[target - 1].done(request, now_s), now_s)
        heappush(self._agenda, (now_s + self.downlink_s[target][request], ANSWERED, request))

    def _answered(self, request: int, now_s: float) -> None:
        own, target = self._decider(request), self.target[request]
        if target == 0:
            self._views[own][0].reported(self._sent_as[request], self.queue_s[request])
            return
        self._estimates[own][target].learn(self.uplink_s[target][request] + self.downlink_s[target][request], now_s)
        if self._beliefs.views:
            self._views[own][target].reported(self._sent_as[request], self.queue_s[request])
        self._client_hears(request, now_s)

    def _client_hears(self, request: int, now_s: float) -> None:
        if self._clients is not None:
            number = self._clients.count + request
            at_s = now_s + self._back_s[request] + float(self._clients.think_s[number])
            self._client_asking[number] = self._client[request]
            heappush(self._agenda, (at_s, ASKS, number))

    def _asks(self, number: int, now_s: float) -> None:
        assert self._clients is not None and self._route is not None
        if self._issued == len(self.arrival_s):
            return
        client = self._client_asking.get(number, number)
        request, self._issued = self._issued, self._issued + 1
        self._client[request] = client
        node = self.node[request] = client % self._clients.nodes
        self.arrival_s[request] = now_s
        ups_s, downs_s, there_s, self._back_s[request] = self._route(request, node, now_s)
        for k, (up_s, down_s) in enumerate(zip(ups_s, downs_s, strict=True), start=1):
            self.uplink_s[k][request], self.downlink_s[k][request] = up_s, down_s
        if there_s == 0.0:
            self._arrives(request, now_s)
        else:
            heappush(self._agenda, (now_s + there_s, ARRIVES, request))
