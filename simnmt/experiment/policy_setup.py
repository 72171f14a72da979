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
from simnmt.policies import CNmt, Decide, Fixed, Oracle, Policy, TransferEstimate, constant_length, least_total
from simnmt.policies.cnmt import PredictLength
from simnmt.policies.configuration import (
    CloudPolicy,
    CNmtPolicy,
    EdgePolicy,
    FixedPolicy,
    LastMeasured,
    NaivePolicy,
    OraclePolicy,
    PolicyConfiguration,
    Probing,
    transfer_estimate,
)
from simnmt.policies.estimates import BatchView, PlanView
from simnmt.scenario.configuration import Scenario
from simnmt.workload.length_regression import LengthDistribution, LengthRegression
from simnmt.world.deciders import Beliefs
from simnmt.world.requests import Block
from simnmt.world.simulation import DecideFor
from simnmt.world.traffic import PredictedSeconds, StateDelays

Column = NDArray[np.float64]
Truths = frozenset[Literal["lengths", "times", "transfer", "backlog"]]
"""What a policy is told instead of believing it: target lengths, execution times, transfer times, waits (CNMT-19)."""


@dataclass(frozen=True, slots=True)
class PolicySetup:
    """A policy as the world runs it."""

    decide_for: DecideFor
    beliefs: Beliefs
    predicted_for: Callable[[Block], PredictedSeconds] | None
    predicted_tgt_len_for: Callable[[Block], Sequence[float]] | None
    """Of the requests of a block, the tokens that it expects, where it hears of batches."""
    plan_beyond_for: Callable[[Block], StateDelays] | None
    """Of the requests of a block, what states of a streamed target take beyond its model in memory, where it knows states."""
    predicted_tgt_len: PredictLength | None
    """What it assumes of target lengths; None where it assumes nothing."""


def set_up_policy(
    scenario: Scenario,
    case: Case,
    learnt: Learnt,
    drawn: Drawn,
    configuration: PolicyConfiguration,
    replication: int,
    truths: Truths = frozenset(),
) -> PolicySetup:
    """Set up the policy of a configuration for one unit. `truths`: what the gap analysis lets the policy know."""
    queues = case.arrivals.discipline != "back_to_back"
    sees_backlog = queues and bool(getattr(configuration, "sees_backlog", False))
    is_oracle = isinstance(configuration, OraclePolicy)
    estimating = getattr(configuration, "transfer_estimate", None) or LastMeasured(kind="last")
    initial_ms = getattr(configuration, "initial_transfer_ms", None)

    def estimate(decider: int, target: int) -> TransferEstimate:
        def rtt_s(at_s: float) -> float:
            return drawn.routes.rtt_s(decider, target, at_s)

        return transfer_estimate(estimating, rtt_s(0.0) if initial_ms is None else initial_ms / 1e3, rtt_s)

    # A policy that sees queues must not count a device that batches as so many workers, each as fast as if alone.
    hears = sees_backlog or (queues and getattr(configuration, "batch", "plain") == "reported")
    knows_states = case.streams and getattr(configuration, "plan_state", "ignored") == "known"
    beliefs = Beliefs(
        estimate,
        probes=isinstance(estimating, Probing),
        sees_backlog=sees_backlog,
        parallel=tuple(_parallel_requests(scenario, case.name, device) for device in scenario.devices),
        batch_views=_batch_views(scenario, case, learnt) if hears else (),
        true_transfer=is_oracle or "transfer" in truths,
        # The time that a streamed model's state takes is known as a wait is, back to back as well.
        true_backlog=(queues or case.streams) and (is_oracle or "backlog" in truths),
        **({"plan_views": _plan_views(case)} if knows_states else {}),
    )
    if is_oracle:
        return PolicySetup(lambda block: Oracle(block.execution_s).prepare(block.src_len), beliefs, None, None, None, None)
    policy = _policy(scenario, configuration, learnt)
    if not isinstance(policy, CNmt):
        return PolicySetup(lambda block: policy.prepare(block.src_len), beliefs, None, None, None, None)
    weighed_s, expected_s = _execution_estimates(scenario, case, drawn, policy, replication, truths)
    factors = _factors(scenario, case, drawn, replication) if knows_states and "times" in truths else None

    def decide_for(block: Block) -> Decide:
        return least_total(weighed_s(block))

    def predicted_for(block: Block) -> PredictedSeconds:
        return [column.tolist() for column in expected_s(block)]

    def predicted_tgt_len_for(block: Block) -> Sequence[float]:
        true = _true_tgt_len(drawn, block) if "lengths" in truths else None
        predicted: list[float] = (policy.predict(block.src_len) if true is None else true).tolist()
        return predicted

    def plan_beyond_for(block: Block) -> StateDelays:
        # What reads add is added to whatever the plane believes: how well that was fitted is not for the state to mend.
        return [
            None if streamed is None else streamed.beyond_s(block.src_len, 1.0 if factors is None else factors(target, block))
            for target, streamed in enumerate(map(case.streamed_at, range(len(case.profiles))))
        ]

    return PolicySetup(
        decide_for,
        beliefs,
        predicted_for if sees_backlog else None,
        predicted_tgt_len_for if any(beliefs.batch_views) else None,
        plan_beyond_for if knows_states else None,
        policy.predict,
    )


def _plan_views(case: Case) -> tuple[Callable[[], PlanView] | None, ...]:
    """Per target that streams its model, how a view of its boxes' states begins."""
    return tuple(
        None if streamed is None else partial(PlanView, streamed.lifecycle.next_state, len(streamed.states))
        for streamed in map(case.streamed_at, range(len(case.profiles)))
    )


def _servers(scenario: Scenario, workload: str, device: str) -> int:
    """Boxes that a request of one decider may enter."""
    servers = scenario.count_of(device, workload)
    if scenario.balancer_of(device) == "attached":
        # End node n, of decider n modulo deciders, enters server n modulo servers.
        servers //= gcd(servers, scenario.count_of(next(iter(scenario.devices)), workload))
    return servers


def _parallel_requests(scenario: Scenario, workload: str, device: str) -> int:
    """Requests of one decider that may be executed side by side where none share a batch."""
    part = scenario.devices[device]
    return _servers(scenario, workload, device) * part.workers


def _batch_views(scenario: Scenario, case: Case, learnt: Learnt) -> tuple[Callable[[], BatchView] | None, ...]:
    """Per target that batches, how a view of its batch begins: with the costs of sentences of the fit pairs' mean lengths."""
    fit_pairs = learnt.fit_pairs
    steps = max(round(fit_pairs.mean_tgt_len), 1)
    src_len = max(round(fit_pairs.mean_src_len), 1)

    def views_of(device: str, decoding: Decoding) -> Callable[[], BatchView]:
        def step_s(active: int) -> float:
            return decoding.cost.steps_at(active)(0, steps - 1) / steps

        def joining_s(sentences: int) -> float:
            return decoding.cost.encode_s([src_len] * sentences) + decoding.cost.refill_s(sentences)

        batching, servers = decoding.batching, _servers(scenario, case.name, device)
        # Its tables of costs are made here, once, and shared by all deciders.
        return BatchView(step_s, batching.size, batching.threshold, servers, joining_s).blank

    return tuple(
        None if decoding is None else views_of(device, decoding)
        for device, decoding in zip(scenario.devices, case.decoding, strict=True)
    )


def _policy(scenario: Scenario, configuration: PolicyConfiguration, learnt: Learnt) -> Policy:
    devices = list(scenario.devices)
    if isinstance(configuration, EdgePolicy):
        return Fixed(0)
    if isinstance(configuration, CloudPolicy):
        return Fixed(len(devices) - 1)
    if isinstance(configuration, FixedPolicy):
        return Fixed(devices.index(configuration.device))
    if isinstance(configuration, NaivePolicy):
        mean = learnt.fit_pairs.mean_tgt_len if configuration.tgt_len is None else configuration.tgt_len
        return CNmt(learnt.planes, constant_length(mean))
    assert isinstance(configuration, CNmtPolicy)
    if configuration.lengths == "line":
        return CNmt(learnt.planes, length_regression(configuration, learnt).predict)
    distribution = LengthDistribution.of(learnt.fit_pairs)
    if configuration.minimises == "mean":
        return CNmt(learnt.planes, distribution.mean)
    low, high = (_quantile(distribution, share) for share in (0.05, 0.95))
    return CNmt(learnt.planes, distribution.mean, (low, high))


def _quantile(distribution: LengthDistribution, share: float) -> PredictLength:
    return lambda src_len: distribution.quantile(src_len, share)


def length_regression(configuration: CNmtPolicy, learnt: Learnt) -> LengthRegression:
    """The line that C-NMT uses: the configured coefficients, the fitted ones where there are none."""
    slope, offset = configuration.len_slope, configuration.len_offset
    return LengthRegression(
        learnt.lengths.len_slope if slope is None else slope, learnt.lengths.len_offset if offset is None else offset
    )


def _true_tgt_len(drawn: Drawn, block: Block) -> Column:
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
        return case.profiles[target].residual.factor(noise[target][_rows(drawn, block)])

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
            case.in_memory_s(target, block.src_len, tgt_len, residual[rows], None if more is None else more[rows])
            if decoding is None
            else decoding.cost.solo_s(block.src_len, np.rint(tgt_len))
            for target, (decoding, residual, more) in enumerate(zip(case.decoding, noise, more_s, strict=True))
        ]

    def expected(block: Block) -> list[Column]:
        return seconds(block, policy.predict)

    if policy.percentiles is None:
        return expected, expected
    low, high = policy.percentiles

    def weighed(block: Block) -> list[Column]:
        return [np.maximum(*columns) for columns in zip(seconds(block, low), seconds(block, high), strict=True)]

    return weighed, expected
