"""Set a policy up for the requests of one unit: its rule, its knowledge, and its estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.arrays import Floats
from simnmt.experiment.cases import Unit
from simnmt.experiment.draws import ACTIVE_SHARE_STREAM, Drawn, Learnt, more_s_per_tgt_token
from simnmt.experiment.targets import Decoding
from simnmt.policies import BacklogView, BatchView, CNmt, Decide, Fixed, LeastTotal, PlanView, Policy, TransferEstimate
from simnmt.policies.cnmt import PredictLength
from simnmt.policies.custom import CheckedPolicy, is_shown_view
from simnmt.policies.decision import Estimation, PolicySettings
from simnmt.results.requests import Block
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.world.deciders import Beliefs
from simnmt.world.inputs import PolicySetup

Truths = frozenset[Literal["lengths", "times", "transfer", "backlog"]]
"""True quantities that a policy knows instead of estimating them: target lengths, execution times, transfer times, waits
(CNMT-19)."""


UNSEEN_QUEUES = "unseen queues"
LOSS_SOURCES: dict[str, Truths] = {
    "length regression": frozenset({"lengths"}),
    "scatter of execution times": frozenset({"times"}),
    "stale transfer time": frozenset({"transfer"}),
    UNSEEN_QUEUES: frozenset({"backlog"}),
}
"""Sources of loss, and the truth that removes each. Queues, which do not exist back to back, are added to the paper's three.

The paper's "linear time model" is a scatter here: true times are a plane plus noise, so the plane's error is the noise.
"""


def truths_by_source(queues: bool, streams: bool) -> dict[str, Truths]:
    """Return the truths that the analysed policy knows, by the source of loss that they remove, with `nothing` and
    `everything`."""
    sources = {name: truths for name, truths in LOSS_SOURCES.items() if queues or name != UNSEEN_QUEUES}
    if streams:
        # The time that a streamed model's state adds is known as a wait is, back to back too.
        sources.pop(UNSEEN_QUEUES, None)
        sources["unseen queues and states" if queues else "unseen states"] = LOSS_SOURCES[UNSEEN_QUEUES]
    return {"nothing": frozenset(), **sources, "everything": frozenset().union(*sources.values())}


Estimate = Callable[[int, int], TransferEstimate]
"""Returns a new estimate of the transfer time of (decider, target)."""


def simulated_estimate(unit: Unit, drawn: Drawn, estimation: Estimation) -> Estimate:
    """Return the estimates of a policy whose network is simulated."""

    def estimate(decider: int, target: int) -> TransferEstimate:
        initial_s = drawn.routes.rtt_s(decider, target, 0.0) + _mean_overheads_s(unit, target)
        if estimation.initial_transfer_ms is not None:
            initial_s = estimation.initial_transfer_ms / 1e3
        return estimation.transfer_estimate.estimate(initial_s)

    return estimate


def set_up_policy(
    unit: Unit,
    learnt: Learnt,
    drawn: Drawn | None,
    settings: PolicySettings,
    truths: Truths = frozenset(),
    estimate: Estimate | None = None,
) -> PolicySetup:
    """Set up a policy for one unit.

    `drawn`: the requests; None in a live gateway, which does not know them and has its own `estimate`. `truths`: what the
    policy knows in the gap analysis.
    """
    case, estimation = unit.case, settings.estimation
    knows_states = case.streams and estimation.plan_state == "known"
    if estimate is None:
        assert drawn is not None, "a simulated network has drawn requests"
        estimate = simulated_estimate(unit, drawn, estimation)
    policy = None if settings.knows_truth else settings.policy(learnt.knowledge(list(unit.scenario.devices)))
    beliefs = Beliefs(
        estimate,
        views=_views(unit, learnt, estimation) if case.queues and estimation.hears_batches else (),
        plan_views=tuple(
            None if streamed is None else partial(PlanView, streamed.lifecycle.next_state, len(streamed.states))
            for streamed in (target.streamed if knows_states else None for target in case.targets)
        ),
        true_transfer=settings.knows_truth or "transfer" in truths,
        # The time that a streamed model's state takes is known as a wait is, back to back as well.
        true_backlog=(case.queues or case.streams) and (settings.knows_truth or "backlog" in truths),
        shows_view=policy is not None and is_shown_view(policy),
    )
    if policy is None:
        return PolicySetup(lambda block: LeastTotal(block.execution_s), beliefs)
    if isinstance(policy, Fixed):
        return PolicySetup(lambda block: policy, beliefs)
    if not isinstance(policy, CNmt):
        return _set_up_custom(unit, learnt, drawn, settings, policy, beliefs)
    predict: PredictLength | None = policy.predicted_tgt_len
    estimates = _ExecutionEstimates(unit, drawn, policy, truths)

    def expected_for(block: Block) -> list[Floats]:
        columns = zip(case.targets, estimates.expected(block), strict=True)
        tgt_len = estimates.tgt_len(block, policy.predict)
        return [seconds if target.decoding is None else tgt_len for target, seconds in columns]

    def plan_beyond_for(block: Block) -> Sequence[Sequence[Floats] | None]:
        # Reads are added to the plane's estimate as it is: the state does not correct errors of the plane's fit.
        factors = estimates.factors(block)
        return [
            None if target.streamed is None else target.streamed.beyond_s(block.src_len, factor)
            for target, factor in zip(case.targets, factors, strict=True)
        ]

    return PolicySetup(
        lambda block: LeastTotal(estimates.weighed(block)),
        beliefs,
        expected_for if any(beliefs.views) else None,
        plan_beyond_for if knows_states else None,
        predict,
    )


def _name_of(unit: Unit, settings: PolicySettings) -> str:
    """Return the name of a policy in the scenario."""
    return next((name for name, other in unit.scenario.policies.items() if other is settings), type(settings).__name__)


def _set_up_custom(
    unit: Unit, learnt: Learnt, drawn: Drawn | None, settings: PolicySettings, policy: Policy, beliefs: Beliefs
) -> PolicySetup:
    """Set up a policy that a user wrote, with its decisions checked."""
    name = _name_of(unit, settings)
    where = f"workload {unit.case.name}, network {unit.network}, replication {unit.replication}"
    checked = CheckedPolicy(policy, f"policy {name} ({where})", len(unit.case.targets))
    predict = checked.predicted_tgt_len()
    # A policy without a prediction of lengths counts its requests under way by that of the regression.
    tgt_len_of = predict or learnt.knowledge([]).lengths.predict
    order = None if drawn is None else drawn.decided_order

    def decide_for(block: Block) -> Decide:
        def number_of(row: int) -> int:
            return block.first + row if order is None else int(order[block.first + row])

        return checked.prepare(block.src_len, number_of)

    def expected_for(block: Block) -> list[Floats]:
        tgt_len = tgt_len_of(block.src_len)
        planes = zip(unit.case.targets, learnt.planes, strict=True)
        return [plane.seconds(block.src_len, tgt_len) if target.decoding is None else tgt_len for target, plane in planes]

    return PolicySetup(decide_for, beliefs, expected_for if any(beliefs.views) else None, predicted_tgt_len=predict)


def _mean_overheads_s(unit: Unit, target: int) -> float:
    """Return the mean seconds of the overheads that a request for a target pays beyond its decider."""
    devices = list(unit.scenario.devices.values())[1 : target + 1]
    return sum(device.overhead.mean_s for device in devices if device.overhead is not None)


def _servers(scenario: ScenarioConfiguration, workload: str, device: str) -> int:
    """Return the number of boxes that a request of one decider may enter."""
    servers = scenario.count_of(device, workload)
    if scenario.balancer_of(device) == "attached":
        # End node n, of decider n modulo deciders, enters server n modulo servers.
        servers //= gcd(servers, scenario.count_of(next(iter(scenario.devices)), workload))
    return servers


def _views(unit: Unit, learnt: Learnt, estimation: Estimation) -> tuple[Callable[[], BacklogView | BatchView] | None, ...]:
    """Return, per target, the factory of the policy's view of its queue or batch; None if the policy has no view there.

    A policy that sees queues must not treat a device that batches as workers that are each as fast as one alone.
    """
    steps, src_len = (max(round(mean), 1) for mean in (learnt.fit_pairs.mean_tgt_len, learnt.fit_pairs.mean_src_len))

    def batch_view(decoding: Decoding, servers: int) -> Callable[[], BatchView]:
        """Return the factory of a batch's view, with the costs of sentences of the fit pairs' mean lengths."""

        def step_s(active: int) -> float:
            return decoding.cost.steps_at(active)(0, steps - 1) / steps

        def joining_s(sentences: int) -> float:
            return decoding.cost.encode_s([src_len] * sentences) + decoding.cost.refill_s(sentences)

        batching = decoding.batching
        # The tables of costs are made once, here, and shared by all deciders.
        return BatchView(step_s, batching.size, batching.threshold, servers, joining_s).blank

    views: list[Callable[[], BacklogView | BatchView] | None] = []
    for target in unit.case.targets:
        servers = _servers(unit.scenario, unit.case.name, target.device)
        if target.decoding is not None:
            views.append(batch_view(target.decoding, servers))
        else:
            workers = unit.scenario.devices[target.device].workers
            views.append(partial(BacklogView, servers * workers) if estimation.sees_backlog else None)
    return tuple(views)


class _ExecutionEstimates:
    """Seconds of execution per target that C-NMT estimates for the requests of a block.

    With `times` in `truths`, the estimate is the profile's with the residual of the request, or on a target that batches the
    time of the request alone; with `lengths` as well, the estimates are the true times.
    """

    def __init__(self, unit: Unit, drawn: Drawn | None, policy: CNmt, truths: Truths) -> None:
        self._case, self._drawn, self._policy, self._truths = unit.case, drawn, policy, truths
        size = unit.scenario.requests
        if "times" in truths:
            self._noise = [
                random_streams.standard_normal(*unit.stream(f"execution {device}"), size) for device in unit.scenario.devices
            ]
            shares = partial(random_streams.uniform, *unit.stream(ACTIVE_SHARE_STREAM))
            self._more_s = more_s_per_tgt_token(unit.case, size, shares)

    def _rows(self, block: Block) -> slice | NDArray[np.int64]:
        """Return the numbers of a block's requests in the order of issue."""
        assert self._drawn is not None, "only drawn requests have truths"
        rows, order = slice(block.first, block.first + len(block)), self._drawn.decided_order
        return rows if order is None else order[rows]

    def tgt_len(self, block: Block, predict: PredictLength) -> Floats:
        """Return the target lengths: true or predicted ones."""
        if "lengths" not in self._truths:
            return predict(block.src_len)
        assert self._drawn is not None and self._drawn.truth.tgt_len is not None
        return self._drawn.truth.tgt_len[self._rows(block)].astype(np.float64)

    def _seconds(self, block: Block, predict: PredictLength) -> list[Floats]:
        tgt_len = self.tgt_len(block, predict)
        if "times" not in self._truths:
            return [plane.seconds(block.src_len, tgt_len) for plane in self._policy.planes]
        rows = self._rows(block)
        return [
            target.execution_s(block.src_len, tgt_len, noise[rows], None if more_s is None else more_s[rows])
            for target, noise, more_s in zip(self._case.targets, self._noise, self._more_s, strict=True)
        ]

    def expected(self, block: Block) -> list[Floats]:
        """Return the expected seconds, which the policy adds to queues."""
        return self._seconds(block, self._policy.predict)

    def weighed(self, block: Block) -> list[Floats]:
        """Return the seconds by which the policy compares targets: expected ones, or a percentile's if it minimises that."""
        if self._policy.percentiles is None:
            return self.expected(block)
        low_s, high_s = (self._seconds(block, predict) for predict in self._policy.percentiles)
        return [np.maximum(*columns) for columns in zip(low_s, high_s, strict=True)]

    def factors(self, block: Block) -> list[Floats | float]:
        """Return, per target, the factors of the requests' true computing times over the profile's; 1 if they are unknown."""
        if "times" not in self._truths:
            return [1.0] * len(self._case.targets)
        rows = self._rows(block)
        return [
            target.profile.residual.factor(noise[rows]) for target, noise in zip(self._case.targets, self._noise, strict=True)
        ]
