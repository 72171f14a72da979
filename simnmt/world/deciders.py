"""A decider's knowledge of its targets: its own queue, estimates of the others, and the answers that update them (CNMT-11)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.decision import Choice
from simnmt.policies.estimates import TransferEstimate
from simnmt.policies.views import DecisionView, StateView, View

Answer = tuple[float, int, int, float, int, float]
"""When it is received, request, target, its measured transfer time, the request's number in the view of the backlog, and the
true start of the execution; for a batched target its end, since executions there do not end in the order of their starts."""


class _Far:
    """Answers of one server in the far future, in the order of the starts of their executions; 41 bytes each."""

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
        """Remove and return the next `count` answers, or all if there are fewer."""
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
    """Measurements of the transfer time, available once their answers have been received.

    Only the decider's next decision needs an answer, so no answer needs an event (0.35 us each): the decider collects those
    received since its last decision.

    Behind a backlogged server most answers are in the far future. No answer comes before its execution starts, and executions
    of a first-in first-out server start in order: so far answers wait in flat columns, one set for each server, and only the
    nearest are in a heap. One heap as deep as the backlog made a request 1.2 times as slow at 100,000 requests as at 10,000, at
    load 1.9.
    """

    __slots__ = ("_far", "_near", "next_s")

    NEAR = 64
    """Answers kept in the heap while others are further ahead."""

    def __init__(self) -> None:
        self.next_s = inf
        """No answer can be collected before this moment."""
        self._near: list[Answer] = []
        self._far: dict[tuple[int, int], _Far] = {}

    def add(self, answer: Answer, server: int = 0) -> None:
        """Add an answer on its way; the starts of one target's `server` are in order."""
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
        """Return the answers received by now that were not collected yet, in order of reception."""
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
    """How a policy's deciders estimate the delays of their targets."""

    estimate: Callable[[int, int], TransferEstimate]
    """Returns a new estimate of the transfer time of (decider, target)."""
    views: tuple[Callable[[], View] | None, ...] = ()
    """Per target, a factory of views of the requests under way, if the decider counts its requests and uses reports. Empty:
    nowhere."""
    plan_views: tuple[Callable[[], StateView] | None, ...] = ()
    """Per target, a factory of views of its state, if the target streams its model and the decider estimates that; it knows the
    state of its own device. Empty: nowhere."""
    true_transfer: bool = False
    """True if it knows the present transfer times, as the oracle does."""
    true_backlog: bool = False
    """True if it knows the true waits."""
    shows_view: bool = False
    """True if the policy decides by a `DecisionView`."""

    @property
    def only_heard(self) -> bool:
        """True if the delays change only when an answer arrives, as in the paper."""
        views = any(self.views) or any(self.plan_views) or self.shows_view
        return not (views or self.true_transfer or self.true_backlog)


DecisionInput = Sequence[float] | DecisionView
"""What a policy decides on: the delay of each target, or a view with it for a policy that takes one (`Beliefs.shows_view`)."""
DecideOnInput = Callable[[int, DecisionInput], int]
"""A `Decide`, or the `decide_with_view` of a policy; each is called with what it takes."""


class Prepared(NamedTuple):
    """A policy prepared for one block of requests, with its expectations of each."""

    decide: DecideOnInput
    expected: Sequence[Sequence[float]] = ()
    """Per target, the quantity that the view of the target counts: seconds of execution, or tokens if it batches; needed with
    views."""
    beyond: Sequence[Sequence[Sequence[float]] | None] = ()
    """Per target that streams its model, and by its state, the seconds beyond the plane at an idle box; needed if the policy
    views states."""

    @classmethod
    def of(
        cls,
        choice: Choice,
        expected: Sequence[NDArray[np.float64]] = (),
        beyond: Sequence[Sequence[NDArray[np.float64]] | None] = (),
    ) -> Prepared:
        """Return a policy prepared for a block on plain floats."""
        by_state = [None if columns is None else [np.asarray(column).tolist() for column in columns] for columns in beyond]
        return cls(plain(choice), [np.asarray(column).tolist() for column in expected], by_state)


def plain(choice: Choice) -> DecideOnInput:
    """Return a choice as a function on plain floats."""
    return cast(DecideOnInput, choice if callable(choice) else choice.decide())


class Device(Protocol):
    """A device that executes requests in their order."""

    def serve(self, entry_s: float, service_s: float) -> float:
        """Return when a request that enters now starts to execute."""
        ...

    def work_left(self, now_s: float) -> float:
        """Return the seconds until a request could start."""
        ...


class Decider:
    """A device that decides for the requests that reach it, and executes those that it keeps."""

    __slots__ = (
        "answers", "delay_s", "device", "estimates", "number", "plans", "reported_wait_s", "reports", "views", "watches",
    )  # fmt: skip

    def __init__(
        self, number: int, targets: int, device: Device, beliefs: Beliefs, device_state: StateView | None = None
    ) -> None:
        """`device`: executes the requests that the decider keeps, unless a server does; `device_state`: the state of that
        device."""
        self.number, self.device = number, device
        self.answers = Answers()
        self.estimates = [TransferEstimate(0.0)] + [beliefs.estimate(number, target) for target in range(1, targets)]
        """Per target; the first, which needs no transfer, stays at 0."""
        self.delay_s = [estimate.value_s for estimate in self.estimates]
        """Estimated transfer time of each target; the list that a policy is shown."""
        self.views = [None if view is None else view() for view in beliefs.views]
        self.plans = {target: view() for target, view in enumerate(beliefs.plan_views) if view is not None}
        """By target, the estimate of its state; for its own device, the known state."""
        if 0 in self.plans and device_state is not None:
            self.plans[0] = device_state
        self.watches = bool(self.views or any(self.plans))
        """True if it notes the requests that it sends."""
        self.reports: dict[int, Any] = {}
        """By request, the server's report in its answer, if a view uses it."""
        self.reported_wait_s: list[float | None] | None = [None] * targets if beliefs.shows_view else None
        """Per target, the wait that its last answer reported; None before the first one, or if the policy sees no view."""

    def hear(self, now_s: float, waited_s: Sequence[float]) -> None:
        """Learn from the answers received since the last decision; `waited_s`: by request, the reported wait."""
        estimates, views, plans, delay_s, watches = self.estimates, self.views, self.plans, self.delay_s, self.watches
        for received_s, request, target, transfer_s, sent_as, _ in self.answers.collect(now_s):
            estimate = estimates[target]
            estimate.learn(transfer_s, received_s)
            delay_s[target] = estimate.value_s
            if self.reported_wait_s is not None:
                self.reported_wait_s[target] = waited_s[request]
            if watches:
                report = self.reports.pop(request, None)
                if views and (view := views[target]) is not None:
                    view.reported(sent_as, waited_s[request], report, received_s)
                if target in plans:
                    plans[target].reported(request, report, received_s - transfer_s / 2)

    def view(self, delay_s: Sequence[float], now_s: float, backlog_s: float) -> DecisionView:
        """Return the view at a moment, which a decision takes in place of the delays.

        `backlog_s`: the wait at the decider's own device.
        """
        rtt_s = [estimate.value_s for estimate in self.estimates]
        ages_s = [now_s - estimate.measured_at_s for estimate in self.estimates]
        return DecisionView(delay_s, now_s, backlog_s, rtt_s, ages_s, list(self.reported_wait_s or ()))

    def learn(self, target: int, transfer_s: float, at_s: float, wait_s: float = 0.0) -> None:
        """Take in a measured transfer time; `wait_s`: that the answer reports."""
        estimate = self.estimates[target]
        estimate.learn(transfer_s, at_s)
        self.delay_s[target] = estimate.value_s
        if self.reported_wait_s is not None:
            self.reported_wait_s[target] = wait_s

    def add_views(self, delay_s: list[float], prepared: Prepared, in_block: int, now_s: float) -> None:
        """Add to the delay of each target what the decider's views expect of its queue, its batch and its state."""
        for target, view in enumerate(self.views):
            if view is not None:
                at_s = now_s + self.estimates[target].value_s / 2 if view.at_entry else now_s
                delay_s[target] += view.added_s(at_s, prepared.expected[target][in_block])
        for target, plan in self.plans.items():
            delay_s[target] += _beyond_s(plan, prepared, target, in_block, now_s + self.estimates[target].value_s / 2)

    def announce(self, prepared: Prepared, target: int, request: int, in_block: int, now_s: float) -> int:
        """Note a request that is sent, with half of the estimated transfer time before its execution; return its number in the
        view of the target."""
        view, plan = self.views[target] if self.views else None, self.plans.get(target)
        entry_s, sent_as = now_s + self.estimates[target].value_s / 2, 0
        if view is not None:
            expected = prepared.expected[target][in_block]
            if plan is not None:
                expected += _beyond_s(plan, prepared, target, in_block, entry_s)
            sent_as = view.sent(entry_s if view.at_entry else now_s, expected)
        if plan is not None:
            plan.sent(request, entry_s)
        return sent_as

    def forget(self, target: int, request: int, sent_as: int) -> None:
        """Forget a request whose answer will not be heard; arguments as of `announce`, whose result `sent_as` is."""
        view, plan = self.views[target] if self.views else None, self.plans.get(target)
        if view is not None:
            view.lost(sent_as)
        if plan is not None:
            plan.lost(request)


def _beyond_s(plan: StateView, prepared: Prepared, target: int, in_block: int, entry_s: float) -> float:
    """Return the estimated seconds that a target's state adds to the plane, for a request that reaches it at a moment."""
    by_state_s = prepared.beyond[target]
    assert by_state_s is not None
    return plan.added_s(entry_s, by_state_s, in_block)
