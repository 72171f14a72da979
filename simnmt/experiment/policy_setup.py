"""Set a policy up for the requests of one unit: its rule, what it may see, and its estimates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.experiment.draws import ACTIVE_SHARE_STREAM as SHARES
from simnmt.experiment.draws import Drawn, Learnt, more_s_per_tgt_token, standard_normal, uniform
from simnmt.experiment.inputs import Case, Decoding
from simnmt.policies import CNmt, Oracle, TransferEstimate, least_total
from simnmt.policies.cnmt import PredictLength
from simnmt.policies.decision import Estimation, PolicySettings
from simnmt.policies.estimates import BacklogView, BatchView, PlanView
from simnmt.results.requests import Block
from simnmt.scenario.configuration import Scenario
from simnmt.world.deciders import Beliefs
from simnmt.world.simulation import DecideFor

Column = NDArray[np.float64]
Truths = frozenset[Literal["lengths", "times", "transfer", "backlog"]]
"""What a policy is told instead of believing it: target lengths, execution times, transfer times, waits (CNMT-19)."""


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """A policy as the world runs it."""

    decide_for: DecideFor
    beliefs: Beliefs
    expected_for: Callable[[Block], Sequence[Sequence[float]]] | None = None
    """Of the requests of a block, per target, the seconds that it expects, or the tokens where it views batches."""
    plan_beyond_for: Callable[[Block], Sequence[Sequence[Sequence[float]] | None]] | None = None
    """Of the requests of a block, what states of a streamed target take beyond its model in memory, where it knows states."""
    predicted_tgt_len: PredictLength | None = None
    """What it assumes of target lengths; None where it assumes nothing."""


def set_up_policy(
    scenario: Scenario,
    case: Case,
    learnt: Learnt,
    drawn: Drawn,
    settings: PolicySettings,
    replication: int,
    truths: Truths = frozenset(),
) -> PolicySetup:
    """Set up a policy for one unit. `truths`: what the gap analysis lets the policy know."""
    queues, estimation = case.arrivals.discipline != "back_to_back", settings.estimation
    knows_states = case.streams and estimation.plan_state == "known"

    def estimate(decider: int, target: int) -> TransferEstimate:
        rtt_s = partial(drawn.routes.rtt_s, decider, target)
        initial_ms = estimation.initial_transfer_ms
        return estimation.transfer_estimate.estimate(rtt_s(0.0) if initial_ms is None else initial_ms / 1e3, rtt_s)

    beliefs = Beliefs(
        estimate,
        probes=estimation.transfer_estimate.probes,
        views=_views(scenario, case, learnt, estimation) if queues and estimation.hears_batches else (),
        plan_views=_plan_views(case) if knows_states else (),
        true_transfer=settings.knows_truth or "transfer" in truths,
        # The time that a streamed model's state takes is known as a wait is, back to back as well.
        true_backlog=(queues or case.streams) and (settings.knows_truth or "backlog" in truths),
    )
    if settings.knows_truth:
        return PolicySetup(lambda block: Oracle(block.execution_s).prepare(block.src_len), beliefs)
    policy = settings.policy(learnt.knowledge(list(scenario.devices)))
    predict: PredictLength | None = getattr(policy, "predicted_tgt_len", None)
    if not isinstance(policy, CNmt):
        return PolicySetup(lambda block: policy.prepare(block.src_len), beliefs, predicted_tgt_len=predict)
    weighed_s, expected_s = _execution_estimates(scenario, case, drawn, policy, replication, truths)
    factors = _factors(scenario, case, drawn, replication) if knows_states and "times" in truths else None
    counts_tokens = [target.decoding is not None for target in case.targets]

    def expected_for(block: Block) -> Sequence[Sequence[float]]:
        tgt_len = _true_tgt_len(drawn, block) if "lengths" in truths else policy.predict(block.src_len)
        columns = zip(counts_tokens, expected_s(block), strict=True)
        return [(tgt_len if tokens else seconds).tolist() for tokens, seconds in columns]

    def plan_beyond_for(block: Block) -> Sequence[Sequence[Sequence[float]] | None]:
        # What reads add is added to whatever the plane believes: how well that was fitted is not for the state to mend.
        return [
            None
            if target.streamed is None
            else target.streamed.beyond_s(block.src_len, 1.0 if factors is None else factors(number, block))
            for number, target in enumerate(case.targets)
        ]

    return PolicySetup(
        lambda block: least_total(weighed_s(block)),
        beliefs,
        expected_for if any(beliefs.views) else None,
        plan_beyond_for if knows_states else None,
        predict,
    )


def _plan_views(case: Case) -> tuple[Callable[[], PlanView] | None, ...]:
    """Per target that streams its model, how a view of its boxes' states begins."""
    return tuple(
        None if streamed is None else partial(PlanView, streamed.lifecycle.next_state, len(streamed.states))
        for streamed in (target.streamed for target in case.targets)
    )


def _servers(scenario: Scenario, workload: str, device: str) -> int:
    """Boxes that a request of one decider may enter."""
    servers = scenario.count_of(device, workload)
    if scenario.balancer_of(device) == "attached":
        # End node n, of decider n modulo deciders, enters server n modulo servers.
        servers //= gcd(servers, scenario.count_of(next(iter(scenario.devices)), workload))
    return servers


def _views(
    scenario: Scenario, case: Case, learnt: Learnt, estimation: Estimation
) -> tuple[Callable[[], BacklogView | BatchView] | None, ...]:
    """Return, per target, how a view begins of what is under way there, where the policy looks.

    A policy that sees queues must not count a device that batches as so many workers, each as fast as if alone.
    """
    fit_pairs = learnt.fit_pairs
    steps = max(round(fit_pairs.mean_tgt_len), 1)
    src_len = max(round(fit_pairs.mean_src_len), 1)

    def batch_view(decoding: Decoding, servers: int) -> Callable[[], BatchView]:
        """Return how the view of a batch begins: with the costs of sentences of the fit pairs' mean lengths."""

        def step_s(active: int) -> float:
            return decoding.cost.steps_at(active)(0, steps - 1) / steps

        def joining_s(sentences: int) -> float:
            return decoding.cost.encode_s([src_len] * sentences) + decoding.cost.refill_s(sentences)

        batching = decoding.batching
        # Its tables of costs are made here, once, and shared by all deciders.
        return BatchView(step_s, batching.size, batching.threshold, servers, joining_s).blank

    views: list[Callable[[], BacklogView | BatchView] | None] = []
    for target in case.targets:
        servers = _servers(scenario, case.name, target.device)
        if target.decoding is not None:
            views.append(batch_view(target.decoding, servers))
        else:
            workers = scenario.devices[target.device].workers
            views.append(partial(BacklogView, servers * workers) if estimation.sees_backlog else None)
    return tuple(views)


def _true_tgt_len(drawn: Drawn, block: Block) -> Column:
    assert drawn.truth.tgt_len is not None
    tgt_len: Column = drawn.truth.tgt_len[_rows(drawn, block)].astype(np.float64)
    return tgt_len


def _rows(drawn: Drawn, block: Block) -> slice | NDArray[np.int64]:
    """The numbers in the order in which they were issued of the requests of a block."""
    rows = slice(block.first, block.first + len(block))
    return rows if drawn.decided_order is None else drawn.decided_order[rows]


ExecutionEstimate = Callable[[Block], list[Column]]
"""Seconds of execution per target for the requests of a block."""


def _noise(scenario: Scenario, case: Case, device: str, replication: int) -> Column:
    """The standard normal number by which each request's execution at a device scatters."""
    return standard_normal(scenario.seed, replication, f"{case.name}/execution {device}", scenario.requests)


def _factors(scenario: Scenario, case: Case, drawn: Drawn, replication: int) -> Callable[[int, Block], Column]:
    """By target and block, the factors by which the requests' true computing times exceed a streamed profile's."""
    noise = [_noise(scenario, case, device, replication) for device in scenario.devices]

    def factors(target: int, block: Block) -> Column:
        return case.targets[target].profile.residual.factor(noise[target][_rows(drawn, block)])

    return factors


def _execution_estimates(
    scenario: Scenario, case: Case, drawn: Drawn, policy: CNmt, replication: int, truths: Truths
) -> tuple[ExecutionEstimate, ExecutionEstimate]:
    """Return what C-NMT weighs the targets by and what C-NMT expects; they differ if C-NMT minimises a percentile.

    With `times` in `truths`, the estimate is the profile's with this request's residual, or on a target that batches the
    time of the request alone; with `lengths` as well, the estimates are the true times.
    """
    if not truths & {"lengths", "times"}:
        return (lambda block: policy.weighed_s(block.src_len)), (lambda block: policy.execution_s(block.src_len))
    noise = [_noise(scenario, case, device, replication) for device in scenario.devices]
    draw = partial(uniform, scenario.seed, replication, f"{case.name}/{SHARES}")
    more_s = more_s_per_tgt_token(case, scenario.requests, draw)

    def seconds(block: Block, predict: PredictLength) -> list[Column]:
        rows = _rows(drawn, block)
        tgt_len = _true_tgt_len(drawn, block) if "lengths" in truths else predict(block.src_len)
        if "times" not in truths:
            return [plane.seconds(block.src_len, tgt_len) for plane in policy.planes]
        return [
            target.execution_s(block.src_len, tgt_len, residual[rows], None if more is None else more[rows])
            for target, residual, more in zip(case.targets, noise, more_s, strict=True)
        ]

    def expected(block: Block) -> list[Column]:
        return seconds(block, policy.predict)

    if policy.percentiles is None:
        return expected, expected
    low, high = policy.percentiles

    def weighed(block: Block) -> list[Column]:
        return [np.maximum(*columns) for columns in zip(seconds(block, low), seconds(block, high), strict=True)]

    return weighed, expected
