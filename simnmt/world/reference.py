"""The reference: the world in plain SimPy, to be read. It runs everything that a scenario can say; `engine` is fast.

A request is issued at an end node and decided on by the first device on its way (the end node's own, or the gateway). Without
faults it is executed on exactly one device: there, or on a box of a target behind it (CNMT-01); a policy that decides again may
have it executed there first, and then on a target behind it. `Simulation.request` is that
story where requests can wait; an offloaded request takes `send` and `travel`. Three disciplines set the pace. Back to back,
each request is issued when the one before it has been answered, so nothing ever waits; this is the paper's (CNMT-02), see
`Simulation.back_to_back`. In the open loop requests arrive independently of answers. In the closed loop clients think between
requests and obey the interactive response-time law: clients = throughput * (response time + think time).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from math import inf, isnan, nan
from typing import Any

import numpy as np
import simpy

from simnmt.devices.device import ANSWERED, ARRIVES, ASKS, DEFERS, REACHES, REFUSAL, Arrival, Clock, Device, Execution, Process
from simnmt.devices.fifo import FifoBox
from simnmt.devices.stream import StreamDevice
from simnmt.policies.decision import DecisionView
from simnmt.results.columns import COLUMNS, DEFERRED_COLUMNS, recorder
from simnmt.results.requests import DONE, FALLBACK, REFUSED, Block, Trail
from simnmt.world.cached import CachedRequests, cached_columns
from simnmt.world.checks import BlockChecks
from simnmt.world.deciders import Beliefs, Decider, DecisionInput, Prepared, checked_target
from simnmt.world.faults import FaultyLinks
from simnmt.world.inputs import Clients, PolicySetup, World


def simulate_reference(world: World, policy: PolicySetup, judged_share: float = 0.0) -> Trail:
    """Run every request through the world in plain SimPy, and return its trail.

    `judged_share`: share of the requests for which the trail holds `decision_regret_s`. Back to back, any share above 0 means
    all requests if a target streams its model, and none otherwise. Raises `InputError` for columns with values that are NaN,
    infinite or below 0, and for parts that do not fit each other.
    """
    requests = world.requests
    (block,) = requests.blocks(max(len(requests), 1)) if len(requests) else (requests,)
    choice = policy.decide_for(block)
    knows_truth = any(beliefs.knows_truth for beliefs in policy.beliefs)
    second = None if policy.second_for is None else policy.second_for(block)
    BlockChecks(world.route is None, foresees=knows_truth or judged_share > 0.0).check(block, choice, second)
    prepared = Prepared.of(
        choice,
        () if policy.expected_for is None else policy.expected_for(block),
        () if policy.plan_beyond_for is None else policy.plan_beyond_for(block),
        second,
    )
    return Simulation(world, block, prepared, policy.beliefs, judged_share).run()


Try = Generator[simpy.Event, Any, bool]
"""One try of a client; it returns whether the client is refused."""


class Simulation:
    """The deciders and the devices of one run, with the requests between them. Columns are lists by request."""

    def __init__(
        self, world: World, requests: Block, prepared: Prepared, beliefs: Sequence[Beliefs], judged_share: float
    ) -> None:
        count, route, faults, kinds = len(requests), world.route, world.faults, [*world.local, *world.kinds]
        self._clients, self._refuses, self._passes_on = world.clients, world.refuses, world.passes_on
        self.clock = Clock()
        self.count, self.targets = count, 1 + len(world.kinds)
        self.prepared, self._route, self._requests = prepared, route, requests
        self.local, self.kinds = world.local, world.kinds
        self._judged = round(judged_share * 2**32)
        self.execution_s = [column.tolist() for column in requests.execution_s]
        self.uplink_s, self.downlink_s = ([[0.0] * count for _ in range(self.targets)] for _ in range(2))
        """By target; with a route, looked up when a request is issued."""
        if route is None:
            self.uplink_s[1:] = [column.tolist() for column in requests.uplink_s]
            self.downlink_s[1:] = [column.tolist() for column in requests.downlink_s]
        self.node = [0] * count if requests.node is None else requests.node.tolist()
        self.workload = np.zeros(count, np.int64) if requests.model is None else requests.model
        self._decider = None if world.decider is None else world.decider.tolist()
        self._document: list[int] | None = None
        if world.decides_by_document and requests.document is not None:
            self._document = requests.document.tolist()
        self._last_choice = (-1, nan, 0)
        """The document that was last decided on, when, and its target; of use if decisions are by document."""
        self.decided_s = [0.0] * count
        self.first_s: dict[int, float] = {}
        """When the decider first had each request that was refused, or that waited for a look-up in a cache."""
        self._first_records: dict[int, dict[str, Any]] = {}
        """By request that was sent on, what its decider's own device had recorded."""
        self.left_behind = set[int]()
        """Requests that a decider gave up while they were under way: their clients do not try again beside them."""
        self.devices_record = frozenset[str]().union(*(kind.records for kind in kinds))
        judged = {"decision_regret_s"} if judged_share > 0.0 else set[str]()
        faulty = {"transfer_s", "outcome"} if faults is not None else set[str]()
        limited = {"outcome", "tries", "retry_s"} if world.refuses else set[str]()
        twice = () if prepared.second is None else DEFERRED_COLUMNS
        self.trail = recorder(count, self.devices_record.union(judged, faulty, limited, cached_columns(world), twice))
        self.faulty = None if faults is None else FaultyLinks(self, faults)
        sentence = np.arange(count) if requests.sentence is None else requests.sentence
        self._cached = CachedRequests(self, world.caches, sentence) if world.has_caches else None
        self.devices: list[list[Device]] = [[] for _ in range(self.targets)]
        """By target; the deciders' own devices by group, and those of another target in a list of one."""
        first_box = 0
        for number, kind in enumerate(kinds):
            target = max(number - len(world.local) + 1, 0)
            trail = self.trail if self.faulty is None or not target else self.faulty.trail
            self.devices[target].append(kind.device(self.clock, target, requests, trail, first_box))
            first_box += kind.boxes
        self._deciders = [
            Decider(number, self.targets, of_group, device.state_view(number), group)
            for group, (device, of_group) in enumerate(zip(self.devices[0], beliefs, strict=True))
            for number in range(len(device.boxes))
        ]
        self.on_the_way: list[dict[int, float]] = [{} for _ in range(self.targets)]
        """By target, when each request that is on its way will reach it."""

    def run(self) -> Trail:
        """Let all requests be issued and answered; return the trail."""
        if self._clients is not None:
            self.begin_closed_loop(self._clients)
        elif self._requests.arrival_s is None:
            self.clock.process(self.back_to_back())
        else:
            self.clock.process(self.open_loop())
        waits = True
        while waits:
            self.clock.run()
            waits = sum(device.close() for device in chain(*self.devices)) > 0  # of all, not only up to the first that waits
        return self.trail_of_run()

    # The disciplines.

    def open_loop(self) -> Process:
        """Let requests arrive at their deciders, whatever the answers."""
        assert self._requests.arrival_s is not None
        for request, arrival_s in enumerate(self._requests.arrival_s.tolist()):
            yield self.clock.moment(arrival_s, ARRIVES, request)
            self.trail["arrival_s"][request] = self.decided_s[request] = arrival_s
            self.clock.process(self.request(request))

    def begin_closed_loop(self, clients: Clients) -> None:
        """Let clients think and ask: only as many as there are requests ever do."""
        first_s = clients.think_s[: clients.count]
        self._issued = iter(range(self.count))
        for number in np.argsort(first_s, kind="stable")[: self.count].tolist():
            self.clock.process(self._client(clients, number))

    def _client(self, clients: Clients, number: int) -> Process:
        """Think, ask, wait for the answer, and think again; request i is the i-th that is issued by any client."""
        clock, node = self.clock, number % clients.nodes
        patience_s = self._requests.patience_s
        yield clock.moment(float(clients.think_s[number]), ASKS, number)
        for request in self._issued:
            self.node[request] = node
            there_s, back_s = self._look_up(request, clock.now)
            self.trail["arrival_s"][request], self.decided_s[request] = clock.now, clock.now + there_s
            if there_s > 0.0:
                yield clock.moment(clock.now + there_s, ARRIVES, request)
            gives_up_s = inf if patience_s is None else float(self.trail["arrival_s"][request] + patience_s[request])
            ended, number = clock.process(self.request(request)), clients.count + request
            yield ended if gives_up_s == inf else ended | clock.moment(max(gives_up_s, clock.now), ASKS, number)
            free_s = min(clock.now + back_s, max(gives_up_s, clock.now))
            yield clock.moment(free_s + float(clients.think_s[number]), ASKS, number)

    def back_to_back(self) -> Process:
        """Issue each request when the one before has been answered.

        Nothing waits, so an estimate is one request old at best; but a box that streams its model depends on the time since its
        last request.
        """
        access_s = [0.0] * self.count if self._requests.access_s is None else self._requests.access_s.tolist()
        judges = self._judged > 0 and any(isinstance(device, StreamDevice) for device in chain(*self.devices))
        now_s = 0.0
        for request in range(self.count):
            on_access_s = access_s[request] if self._route is None else sum(self._look_up(request, now_s))
            decider = self.decider_of(request)
            self.trail["arrival_s"][request] = self.decided_s[request] = now_s
            hit_s = None if self._cached is None else self._cached.answer(request, decider, now_s)
            if hit_s is not None:
                now_s += hit_s + on_access_s
            else:
                if self._cached is not None:
                    self.decided_s[request] += self._cached.miss_s(decider)
                now_s = self._serve_alone(request, decider, on_access_s, judges)
                if self._cached is not None:
                    self._cached.insert(request, decider, now_s)
            yield self.clock.moment(now_s, ANSWERED, request)

    def _serve_alone(self, request: int, decider: Decider, on_access_s: float, judges: bool) -> float:
        """Execute a request while no other is under way; return when it has been answered."""
        now_s = self.decided_s[request]
        target = self.decide(decider, request, judges)
        if not target and self.prepared.second is not None:
            now_s = self._execute_alone(request, decider, 0, now_s, 0.0)
            target = self._second_target(request, decider, now_s)
            if not target:
                return now_s + on_access_s
            self._defer(request, target)
        return self._execute_alone(request, decider, target, now_s, on_access_s)

    def _execute_alone(self, request: int, decider: Decider, target: int, now_s: float, on_access_s: float) -> float:
        """Execute a request on a target from now on; return when it has been answered."""
        up_s, down_s = self.uplink_s[target][request], self.downlink_s[target][request]
        plan = decider.plans.get(target) if target else None
        if plan is not None:
            plan.sent(request, now_s + decider.estimates[target].value_s / 2)
        device, sender = self._entered(decider, target, request)
        if isinstance(device, StreamDevice):
            entry_s = now_s + up_s
            begin_s, finish_s, box, state = device.execute(entry_s, request, sender)
            self.trail["queue_s"][request], self.trail["server"][request] = begin_s - entry_s, box if target else 0
            now_s = finish_s + on_access_s + down_s
            if plan is not None:
                plan.reported(request, state, now_s - on_access_s - (up_s + down_s) / 2)
        else:
            now_s += self.execution_s[target][request] + (up_s + down_s) + on_access_s
        if target:
            decider.learn(target, up_s + down_s, now_s)
        return now_s

    def _look_up(self, request: int, now_s: float) -> tuple[float, float]:
        """Set the times of the links that a request meets, and return those from its end node to its decider and back."""
        assert self._route is not None
        uplink_s, downlink_s, there_s, back_s = self._route(request, self.node[request], now_s)
        for target, (up_s, down_s) in enumerate(zip(uplink_s, downlink_s, strict=True), start=1):
            self.uplink_s[target][request], self.downlink_s[target][request] = up_s, down_s
        return there_s, back_s

    # The way of a request.

    def request(self, request: int) -> Process:
        """Let the client of a request try until it is not refused, or has no further try."""
        while (yield from self.one_try(request)):
            again_s = self._comes_back_s(request)
            if again_s is None:
                self.trail["target"][request], self.trail["outcome"][request] = -1, REFUSED
                self.forget_times(request)
                return
            self.trail["outcome"][request] = DONE
            self.trail["tries"][request] += 1
            yield self.clock.moment(again_s, ARRIVES, request)
            self.decided_s[request] = again_s
            self.note_lost_time(request)

    def one_try(self, request: int) -> Try:
        """Return the process that answers a request from the cache of its decider, or by a translation."""
        decider = self.decider_of(request)
        if self._cached is not None and (cache := self._cached.cache_of(decider)) is not None:
            return self._cached.request(request, decider, cache)
        return self.translate(request, decider)

    def translate(self, request: int, decider: Decider) -> Try:
        """Decide on a request, send it, let it execute, and hear of its answer."""
        if self.faulty is not None:
            return (yield from self.faulty.request(request, decider, self._is_judged(request)))
        target = self.decide(decider, request, self._is_judged(request))
        if target:
            return (yield from self.send(request, decider, target, self.announce(request, decider, target)))
        return (yield from self.execute_first(request, decider))

    def execute_first(self, request: int, decider: Decider) -> Try:
        """Let the decider's own device execute a request that was meant for it, and decide again if the policy does."""
        if (yield from self.execute_here(request, decider)):
            return True
        if self.prepared.second is None:
            return False
        yield self.clock.moment(self.clock.now, DEFERS, request)
        if self.faulty is not None:
            self.faulty.update_health(request, decider)
        target = self._second_target(request, decider, self.clock.now)
        if not target:
            return False
        self._defer(request, target)
        if self.faulty is not None:
            return (yield from self.faulty.send(request, decider, target))
        return (yield from self.send(request, decider, target, self.announce(request, decider, target)))

    def _defer(self, request: int, target: int) -> None:
        """Record what a request took at its decider's own device, and that it goes on to a target."""
        trail = self.trail
        execution_s = trail["execution_s"][request] if "execution_s" in trail else nan
        trail["deferred_exe_s"][request] = self.execution_s[0][request] if isnan(execution_s) else execution_s
        trail["deferred_queue_s"][request], trail["queue_s"][request] = trail["queue_s"][request], 0.0
        trail["target"][request] = target
        self._first_records[request] = {name: trail[name][request] for name in self.devices_record}
        for name in self.devices_record:
            trail[name][request] = COLUMNS[name].unset

    def is_deferred(self, request: int) -> bool:
        """Return whether a request was sent on after its decider's own device had executed it."""
        return self.prepared.second is not None and not isnan(self.trail["deferred_exe_s"][request])

    def send(self, request: int, decider: Decider, target: int, sent_as: int) -> Try:
        """Send a request to a remote target, and let its decider measure the transfer when the answer is received."""
        clock, sent_s = self.clock, self.clock.now
        execution = yield from self.travel(request, target)
        if execution.is_refused:
            yield clock.moment(clock.now + self.downlink_s[target][request], REFUSAL, request)
            return (yield from self.refused(request, decider, target, sent_as, sent_s))
        yield execution.ended
        yield clock.moment(execution.finish_s + self.downlink_s[target][request], ANSWERED, request)
        self.record(execution, target)
        transfer_s = (clock.now - sent_s) - (execution.finish_s - execution.entry_s)
        wait_s = execution.begin_s - execution.entry_s
        decider.hear(target, request, transfer_s, clock.now, wait_s, sent_as, execution.report)
        return False

    def refused(self, request: int, decider: Decider, target: int, sent_as: int, sent_s: float) -> Try:
        """Let a decider take in that a target refuses a request now: it answers the request, or passes the refusal on."""
        decider.forget(target, request, sent_as)
        if self.is_deferred(request):
            self.trail["retry_s"][request] += self.clock.now - sent_s
        elif self._passes_on:
            return True
        else:
            self.note_lost_time(request)
        return (yield from self.fall_back(request, decider))

    def fall_back(self, request: int, decider: Decider) -> Try:
        """Let a decider answer a request in place of its target, with the execution before the request was sent on if any."""
        trail = self.trail
        trail["target"][request], trail["outcome"][request] = 0, FALLBACK
        if not self.is_deferred(request):
            return (yield from self.execute_here(request, decider))
        for name, value in self._first_records[request].items():
            trail[name][request] = value
        trail["queue_s"][request], trail["deferred_queue_s"][request] = trail["deferred_queue_s"][request], 0.0
        if "execution_s" in trail:
            trail["execution_s"][request] = trail["deferred_exe_s"][request]
        trail["deferred_exe_s"][request] = nan
        return False

    def _comes_back_s(self, request: int) -> float | None:
        """Return when a client that is refused now has its request at the decider again; None if it has no further try."""
        tries, columns, patience_s = int(self.trail["tries"][request]), self._requests.retry_after_s, self._requests.patience_s
        if tries > len(columns) or request in self.left_behind:
            return None
        again_s = self.clock.now + float(columns[tries - 1][request])
        first_s = self.first_s.setdefault(request, self.decided_s[request])
        limit_s = inf if patience_s is None else first_s + float(patience_s[request])
        return again_s if again_s < limit_s else None

    def note_lost_time(self, request: int) -> None:
        """Note that what a request has done until now was in vain."""
        first_s = self.first_s.setdefault(request, self.decided_s[request])
        self.trail["retry_s"][request] = self.clock.now - first_s

    def lost_s(self, request: int) -> float:
        """Return the time that a request has lost until now."""
        return float(self.trail["retry_s"][request]) if "retry_s" in self.trail else 0.0

    def forget_times(self, request: int) -> None:
        """Forget the times of a request that is not answered."""
        for name in self.trail.keys() & {"queue_s", "transfer_s", "decision_regret_s"}:
            self.trail[name][request] = nan

    def travel(self, request: int, target: int) -> Generator[simpy.Event, Any, Execution]:
        """Let a request travel to a target and enter a box."""
        entry_s = self.clock.now + self.uplink_s[target][request]
        self.on_the_way[target][request] = entry_s
        yield self.clock.moment(entry_s, REACHES, request)
        del self.on_the_way[target][request]
        execution = Execution(self.clock, request, self.node[request])
        self.devices[target][0].enter(execution)
        return execution

    def execute_here(self, request: int, decider: Decider) -> Try:
        """Let the decider's own device execute a request, unless it is full."""
        device = self.devices[0][decider.group]
        if self._refuses and device.refuses(decider.number, request):
            return True
        sent_as = self.announce(request, decider, 0)
        execution = Execution(self.clock, request, decider.number)
        device.enter(execution)
        if decider.views_itself:
            self.clock.process(self._see(execution, decider, sent_as))
        yield execution.ended
        self.record(execution, 0)
        return False

    def _see(self, execution: Execution, decider: Decider, sent_as: int) -> Process:
        """Let a decider see its own device take up a request; if that batches, it sees the request done."""
        yield execution.ended if self.local[decider.group].reports_at_end else execution.begun
        yield self.clock.moment(self.clock.now, ANSWERED, execution.request)
        wait_s = execution.begin_s - execution.entry_s
        decider.hear(0, execution.request, 0.0, self.clock.now, wait_s, sent_as, execution.report)

    def announce(self, request: int, decider: Decider, target: int) -> int:
        """Let a decider note that a request is sent; return its number in the view of the target."""
        return decider.announce(self.prepared, target, request, request, self.clock.now)

    def record(self, execution: Execution, target: int) -> None:
        """Record the wait and the box of an answered request."""
        self.trail["queue_s"][execution.request] = execution.begin_s - execution.entry_s
        self.trail["server"][execution.request] = execution.box if target else 0

    # The decision.

    def decider_of(self, request: int) -> Decider:
        """Return the device that decides on a request."""
        number = self.node[request] % len(self._deciders) if self._decider is None else self._decider[request]
        return self._deciders[number]

    def _entered(self, decider: Decider, target: int, request: int) -> tuple[Device, int]:
        """Return the boxes of a target for a decider, and the number by which a balancer knows the sender of a request: at the
        decider's own device that of its box."""
        return (self.devices[target][0], self.node[request]) if target else (self.devices[0][decider.group], decider.number)

    def decide(self, decider: Decider, request: int, judges: bool) -> int:
        """Return the target of a request, and record what the decision was based on."""
        now_s, trail = self.decided_s[request], self.trail
        totals_s = self._totals_s(decider, request, now_s) if judges else ()
        target = decider.answering(self._choice(decider, request, now_s))
        last = decider.estimates[-1]
        trail["target"][request], trail["estimate_s"][request] = target, last.value_s
        trail["measured_at_s"][request] = last.measured_at_s
        if totals_s:
            trail["decision_regret_s"][request] = totals_s[target] - min(totals_s)
        return target

    def _choice(self, decider: Decider, request: int, now_s: float) -> int:
        """Return the target that the policy chooses; decisions by document are those on the first sentence of each.

        A sentence that comes again, after a refusal, is decided on by itself.
        """
        document = -1 if self._document is None else self._document[request]
        if document < 0 or (document, now_s) != self._last_choice[:2]:
            chosen = checked_target(self.prepared.decide(request, self._delays(decider, request, now_s)), self.targets)
            self._last_choice = document, now_s, chosen
        return self._last_choice[2]

    def _second_target(self, request: int, decider: Decider, now_s: float) -> int:
        """Return the target to which a request goes on that its decider has executed; 0: it is answered."""
        assert self.prepared.second is not None
        shown = self._delays(decider, request, now_s)
        delay_s = shown.delay_s if isinstance(shown, DecisionView) else shown
        return decider.answering(self.prepared.second(request, [0.0, *delay_s[1:]]))

    def _is_judged(self, request: int) -> bool:
        # Multiples of the golden ratio fall evenly: any stretch of requests has its share, whatever turn they come in.
        return (request * 0x9E3779B1) & 0xFFFFFFFF < self._judged

    def _delays(self, decider: Decider, request: int, now_s: float) -> DecisionInput:
        """Return the delay of each target beside execution, as far as the policy may know it, or the view with it."""
        beliefs = decider.beliefs
        if beliefs.only_heard and not decider.unreachable:
            return decider.delay_s
        delay_s = self._transfers_s(request, now_s) if beliefs.true_transfer else list(decider.delay_s)
        if beliefs.true_backlog:
            return [sum(parts_s) for parts_s in zip(delay_s, self._waits_s(decider, request, now_s), strict=True)]
        decider.add_views(delay_s, self.prepared, request, now_s)
        if beliefs.shows_view:
            box = self.devices[0][decider.group].boxes[decider.number]
            return decider.view(delay_s, now_s, box.work_left(now_s) if isinstance(box, FifoBox) else nan)
        return delay_s

    def _totals_s(self, decider: Decider, request: int, now_s: float) -> list[float]:
        """Return, by target, the seconds from the decision to the answer, as an oracle foresees them.

        They hold unless a later request overtakes this one on the uplink (CNMT-10).
        """
        beside_s = zip(self._transfers_s(request, now_s), self._waits_s(decider, request, now_s), strict=True)
        return [self.execution_s[target][request] + sum(parts_s) for target, parts_s in enumerate(beside_s)]

    def _transfers_s(self, request: int, now_s: float) -> list[float]:
        """Return the present transfer times, by target."""
        transfers_s = [self.uplink_s[target][request] + self.downlink_s[target][request] for target in range(self.targets)]
        if self.faulty is None:
            return transfers_s
        return [own_s + self.faulty.outage_s(request, k, now_s) for k, own_s in enumerate(transfers_s)]

    def _waits_s(self, decider: Decider, request: int, now_s: float) -> list[float]:
        """Return, by target, the true seconds of a request beyond execution alone, after the requests on their way there."""
        waits_s = []
        for target in range(self.targets):
            device, sender = self._entered(decider, target, request)
            entry_s = now_s + self.uplink_s[target][request]
            if self.faulty is not None:
                entry_s += self.faulty.outage_s(request, target, now_s)
            arrivals = [*self._ahead(target, entry_s, request), (entry_s, request, sender)]
            waits_s.append(device.wait_s(arrivals))
        return waits_s

    def _ahead(self, target: int, entry_s: float, request: int) -> Iterator[Arrival]:
        """Yield the requests on their way to a target that will reach it before a moment, in their order."""
        coming = sorted((at_s, earlier) for earlier, at_s in self.on_the_way[target].items())
        return ((at_s, earlier, self.node[earlier]) for at_s, earlier in coming if (at_s, earlier) < (entry_s, request))

    def trail_of_run(self) -> Trail:
        """Return the trail of the run."""
        accounts = [[device.account() for device in devices] for devices in self.devices]
        trail = Trail.recorded(self.trail, accounts).with_columns(decided_s=np.array(self.decided_s))
        if self.faulty is not None:
            return replace(trail, faults=self.faulty.account())
        return trail if self._clients is None else trail.with_columns(node=np.array(self.node, np.int32))
