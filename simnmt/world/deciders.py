"""What a decider knows of its targets: its own device's queue, the links' transfer times, the queues elsewhere (CNMT-11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

from simnmt.policies.backlog import BacklogView
from simnmt.policies.batch_view import BatchView
from simnmt.policies.plan_view import PlanView
from simnmt.policies.transfer import ProbedEstimate, TransferEstimate
from simnmt.world.answers import Answers
from simnmt.world.fifo import fifo_server


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
        """Whether the delays change with an answer and at no other time, as in the paper."""
        told = self.true_transfer or self.true_backlog
        return not (self.probes or self.sees_backlog or any(self.batch_views) or any(self.plan_views) or told)

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
        self.device = fifo_server(workers)
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

        `waited_s`: by request, what each says that it waited; `states`: of a target that streams its model, in which state.
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
        """An answer told in which state its request was executed, and when that ended; nobody need tell of its own device."""
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
