"""What a decider knows of its targets: its own queue, estimates of the others, and the answers that update them (CNMT-11)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import repeat
from math import inf

from simnmt.policies.estimates import BacklogView, BatchView, PlanView, ProbedEstimate, TransferEstimate
from simnmt.world.fifo_server import create_fifo_server

Answer = tuple[float, int, int, float, int, float]
"""When it is received, request, target, the transfer time it measures, what the view of the backlog knows the request by, and
the true start of the execution; of a batched target its end, since executions there do not end in the order of their starts."""


class _Far:
    """Answers of one server that lie far ahead, in the order in which their executions start; 41 bytes each."""

    __slots__ = ("first", "received_s", "request", "sent_as", "start_s", "target", "transfer_s")

    TRIMMED_AT = 65_536

    def __init__(self) -> None:
        self.start_s, self.received_s, self.transfer_s = (array("d") for _ in range(3))
        self.request, self.sent_as, self.target = array("q"), array("q"), array("b")
        self.first = 0

    def add(self, answer: Answer) -> None:
        received_s, request, target, transfer_s, sent_as, start_s = answer
        self.start_s.append(start_s)
        self.received_s.append(received_s)
        self.transfer_s.append(transfer_s)
        self.sent_as.append(sent_as)
        self.request.append(request)
        self.target.append(target)

    @property
    def next_s(self) -> float:
        return self.start_s[self.first] if self.first < len(self.start_s) else inf

    def take(self, count: int) -> Iterator[Answer]:
        """Takes out the next so many, or as many as there are."""
        part = slice(self.first, self.first + count)
        taken = zip(
            self.received_s[part],
            self.request[part],
            self.target[part],
            self.transfer_s[part],
            self.sent_as[part],
            self.start_s[part],
            strict=True,
        )
        self.first = min(part.stop, len(self.start_s))
        if self.first > self.TRIMMED_AT:
            for column in (self.start_s, self.received_s, self.transfer_s, self.sent_as, self.request, self.target):
                del column[: self.first]
            self.first = 0
        return taken


class Answers:
    """Measurements of the transfer time, to be had once the answer that carries them has been received.

    Nobody but the decider's next decision hears of an answer, so none needs an event of its own (0.35 us each): the decider
    collects what has come in since it last decided.

    Behind a backlogged server most answers lie far ahead. No answer comes before its execution starts, and executions of a
    first-in first-out server start in order: so those far ahead wait in flat columns, one set for each server, and only the
    nearest stand in a heap. One heap as deep as the backlog made a request 1.2 times as dear at 100,000 requests as at
    10,000, at load 1.9.
    """

    __slots__ = ("_far", "_near", "next_s")

    NEAR = 64
    """Answers kept in the heap while others lie further ahead."""

    def __init__(self) -> None:
        self.next_s = inf
        """Nothing can be collected before this moment."""
        self._near: list[Answer] = []
        self._far: dict[tuple[int, int], _Far] = {}

    def add(self, answer: Answer, server: int = 0) -> None:
        """An answer on its way; the starts of one target's `server` come in order."""
        if len(self._near) < self.NEAR:
            heappush(self._near, answer)
            if answer[0] < self.next_s:
                self.next_s = answer[0]
            return
        far = self._far.get((answer[2], server))
        if far is None:
            far = self._far[answer[2], server] = _Far()
        far.add(answer)
        if answer[5] < self.next_s:
            self.next_s = answer[5]

    def collect(self, now_s: float) -> list[Answer]:
        """The answers received by now that were not collected yet, in the order in which they were received."""
        near, received = self._near, []
        if not self._far:
            while near and near[0][0] <= now_s:
                received.append(heappop(near))
            self.next_s = near[0][0] if near else inf
            return received
        for far in self._far.values():
            # More than have started: one by one the columns would cost ten times as much.
            while far.next_s <= now_s:
                for answer in far.take(self.NEAR):
                    heappush(near, answer)
        while near and near[0][0] <= now_s:
            received.append(heappop(near))
        self.next_s = min(near[0][0] if near else inf, *(far.next_s for far in self._far.values()))
        return received


@dataclass(frozen=True, slots=True)
class Beliefs:
    """How a policy's deciders come by the delays of their targets."""

    estimate: Callable[[int, int], TransferEstimate]
    """A new belief about the transfer time of (decider, target)."""
    probes: bool = False
    """Whether the beliefs renew themselves by probes."""
    sees_backlog: bool = False
    """Whether the queues that a decider can see count: what it keeps and sends, and what starts and answers tell of it."""
    parallel: tuple[int, ...] = ()
    """Workers of each target, over all its servers, which the view of a backlog reckons with."""
    batch_views: tuple[Callable[[], BatchView] | None, ...] = ()
    """Per target, a new belief about its batch, where the decider reckons with what the target reports of it; such a target's
    backlog is part of that. Empty: nowhere."""
    plan_views: tuple[Callable[[], PlanView] | None, ...] = ()
    """Per target, a new belief about its state, where the target streams its model and the decider reckons with that; of its
    own device the decider knows the state itself. Empty: nowhere."""
    true_transfer: bool = False
    """Whether it is handed the present transfer times themselves, as the oracle is."""
    true_backlog: bool = False
    """Whether it is handed the true waits."""

    @property
    def only_heard(self) -> bool:
        """Return whether the delays change only when an answer arrives, as in the paper."""
        true_delays = self.true_transfer or self.true_backlog
        return not (self.probes or self.sees_backlog or any(self.batch_views) or any(self.plan_views) or true_delays)

    def views(self) -> list[BacklogView | BatchView | None]:
        """New views of what is under way at each target; empty where nothing of the kind counts."""
        if not (self.sees_backlog or any(self.batch_views)):
            return []
        backlogs = map(BacklogView, self.parallel) if self.sees_backlog else repeat(None)
        views = self.batch_views or repeat(None, len(self.parallel))
        return [backlog if view is None else view() for view, backlog in zip(views, backlogs, strict=False)]


class Decider:
    """A device that decides for the requests that reach it, and executes those that it keeps."""

    __slots__ = ("answers", "delay_s", "device", "estimates", "number", "plans", "reports", "views", "watches")

    def __init__(self, number: int, targets: int, workers: int, beliefs: Beliefs) -> None:
        self.number = number
        self.device = create_fifo_server(workers)
        self.answers = Answers()
        self.estimates = [TransferEstimate(0.0)] + [beliefs.estimate(number, target) for target in range(1, targets)]
        """Per target; the first, which needs no transfer, stays at 0."""
        self.delay_s = [estimate.value_s for estimate in self.estimates]
        """The transfer time that is believed of each target; the list that a policy is shown."""
        self.views = beliefs.views()
        self.plans = {target: view() for target, view in enumerate(beliefs.plan_views) if view is not None}
        """By target, what is believed of its state; of its own device that is the device's to say."""
        self.watches = bool(self.views or any(self.plans))
        """Whether it is to note what it sends."""
        self.reports: dict[int, tuple[int, int]] = {}
        """By request, what the answer on its way says of a batch that is viewed: how many were left active and waiting."""

    def hear(self, now_s: float, waited_s: Sequence[float], states: Sequence[int] = ()) -> None:
        """Learn from the answers received since the last decision.

        `waited_s`: by request, the reported wait; `states`: by request, the state of a target that streams its model.
        """
        estimates, views, plans, delay_s = self.estimates, self.views, self.plans, self.delay_s
        for received_s, request, target, transfer_s, sent_as, _ in self.answers.collect(now_s):
            estimate = estimates[target]
            estimate.learn(transfer_s, received_s)
            delay_s[target] = estimate.value_s
            if views:
                view = views[target]
                if isinstance(view, BatchView):
                    view.reported(sent_as, waited_s[request], *self.reports.pop(request), received_s)
                elif view is not None:
                    view.reported(sent_as, waited_s[request])
            if target in plans:
                self.told(target, request, states[request], received_s - transfer_s / 2)

    def sends(self, target: int, request: int, entry_s: float) -> None:
        """A request sets out for a target, which it is believed to reach at a moment."""
        plan = self.plans.get(target) if target else None
        if plan is not None:
            plan.sent(request, entry_s)

    def told(self, target: int, request: int, state: int, done_s: float) -> None:
        """Record the state in which an answered request was executed and when it ended; ignores the decider's device (0)."""
        plan = self.plans.get(target) if target else None
        if plan is not None:
            plan.reported(request, state, done_s)

    def learn(self, target: int, transfer_s: float, at_s: float) -> None:
        """A transfer time was measured."""
        estimate = self.estimates[target]
        estimate.learn(transfer_s, at_s)
        self.delay_s[target] = estimate.value_s

    def probe(self, now_s: float) -> None:
        """Learn from the probes that came back by now."""
        for target, estimate in enumerate(self.estimates):
            if estimate.next_s <= now_s:
                estimate.refresh(now_s)
                self.delay_s[target] = estimate.value_s

    @property
    def probes_sent(self) -> int:
        """So far, to all targets."""
        return sum(estimate.probes_sent for estimate in self.estimates if isinstance(estimate, ProbedEstimate))
