"""A decider's knowledge of its targets: its own queue, estimates of the others, and the answers that update them (CNMT-11)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from simnmt.policies.batch_view import BatchView
from simnmt.policies.decision import Decide, DecisionView, LeastTotal
from simnmt.policies.estimates import TransferEstimate
from simnmt.policies.health import UNREACHABLE_S
from simnmt.policies.views import BacklogView, StateView


@dataclass(frozen=True, slots=True)
class Beliefs:
    """How a policy's deciders estimate the delays of their targets."""

    estimate: Callable[[int, int], TransferEstimate]
    """Returns a new estimate of the transfer time of (decider, target)."""
    views: tuple[Callable[[], BacklogView | BatchView] | None, ...] = ()
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
    def knows_truth(self) -> bool:
        """True if it knows present transfer times or true waits."""
        return self.true_transfer or self.true_backlog

    @property
    def only_heard(self) -> bool:
        """True if the delays change only when an answer arrives, as in the paper."""
        views = any(self.views) or any(self.plan_views) or self.shows_view
        return not (views or self.knows_truth)


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
    second: LeastTotal | None = None
    """The decision after the first execution (`PolicySetup.second_for`); None if there is none."""

    @classmethod
    def of(
        cls,
        decide: Decide,
        expected: Sequence[NDArray[np.float64]] = (),
        beyond: Sequence[Sequence[NDArray[np.float64]] | None] = (),
        second: LeastTotal | None = None,
    ) -> Prepared:
        """Return a policy prepared for a block on plain floats."""
        by_state = [None if columns is None else [np.asarray(column).tolist() for column in columns] for columns in beyond]
        return cls(cast(DecideOnInput, decide), [np.asarray(column).tolist() for column in expected], by_state, second)


def checked_target(target: Any, targets: int) -> int:
    """Return the decision of a policy as a number. Raises `TypeError` and `IndexError` for one that names no target."""
    number = operator.index(target)
    if not 0 <= number < targets:
        raise IndexError(f"target {number} of {targets}")
    return number


class Decider:
    """What a device that decides knows of its targets."""

    def __init__(
        self, number: int, targets: int, beliefs: Beliefs, device_state: StateView | None = None, group: int = 0
    ) -> None:
        """`number`, `group`: of its own device, in its group; `device_state`: the state of that device, if it has states."""
        self.number, self.group, self.beliefs = number, group, beliefs
        self.estimates = [TransferEstimate(0.0)] + [beliefs.estimate(number, target) for target in range(1, targets)]
        """Per target; the first, which needs no transfer, stays at 0."""
        self.delay_s = [estimate.value_s for estimate in self.estimates]
        """Estimated transfer time of each target; the list that a policy is shown."""
        self.views = [None if view is None else view() for view in beliefs.views]
        self.plans = {target: view() for target, view in enumerate(beliefs.plan_views) if view is not None}
        """By target, the estimate of its state; for its own device, the known state."""
        if 0 in self.plans and device_state is not None:
            self.plans[0] = device_state
        self.reported_wait_s: list[float | None] = [None] * targets
        """Per target, the wait that its last answer reported; None before the first one."""
        self.unreachable: Sequence[int] = ()
        """Targets that do not answer for now."""

    @property
    def views_itself(self) -> bool:
        """True if it counts the requests at its own device."""
        return bool(self.views) and self.views[0] is not None

    def hear(
        self, target: int, request: int, transfer_s: float, received_s: float, wait_s: float, sent_as: int, report: Any
    ) -> None:
        """Take in an answer that is received now.

        Args:
            target, request: numbers of the target and of the request.
            transfer_s: measured transfer time.
            received_s: the moment.
            wait_s, report: the wait and the information that the answer reports.
            sent_as: the request's number in the view of the target, which `announce` returned.
        """
        self.learn(target, transfer_s, received_s, wait_s)
        if self.views and (view := self.views[target]) is not None:
            view.reported(sent_as, wait_s, report, received_s)
        if target in self.plans:
            self.plans[target].reported(request, report, received_s - transfer_s / 2)

    def view(self, delay_s: Sequence[float], now_s: float, backlog_s: float) -> DecisionView:
        """Return the view at a moment, which a decision takes in place of the delays.

        `backlog_s`: the wait at the decider's own device.
        """
        rtt_s = [estimate.value_s for estimate in self.estimates]
        ages_s = [now_s - estimate.measured_at_s for estimate in self.estimates]
        return DecisionView(delay_s, now_s, backlog_s, rtt_s, ages_s, list(self.reported_wait_s))

    def learn(self, target: int, transfer_s: float, at_s: float, wait_s: float = 0.0) -> None:
        """Take in a measured transfer time; `wait_s`: that the answer reports."""
        estimate = self.estimates[target]
        estimate.learn(transfer_s, at_s)
        self.delay_s[target] = estimate.value_s
        self.reported_wait_s[target] = wait_s

    def add_views(self, delay_s: list[float], prepared: Prepared, in_block: int, now_s: float) -> None:
        """Add to the delay of each target what the decider's views expect of its queue, its batch and its state.

        A target that does not answer is shown as `UNREACHABLE_S` away.
        """
        for target, view in enumerate(self.views):
            if view is not None:
                at_s = now_s + self.estimates[target].value_s / 2 if view.at_entry else now_s
                delay_s[target] += view.added_s(at_s, prepared.expected[target][in_block])
        for target, plan in self.plans.items():
            delay_s[target] += _beyond_s(plan, prepared, target, in_block, now_s + self.estimates[target].value_s / 2)
        for target in self.unreachable:
            delay_s[target] = UNREACHABLE_S

    def answering(self, target: int) -> int:
        """Return the target, or the first one that answers if this one does not."""
        if target not in self.unreachable:
            return target
        return next((number for number in range(len(self.delay_s)) if number not in self.unreachable), 0)

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
        """Forget a request whose answer will not be heard; arguments as in `announce`, whose result `sent_as` is."""
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
