"""From what a scenario says of a policy to what the world runs: the rule, what it is told, and what it believes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
from simnmt.scenario.build import Case
from simnmt.scenario.drawing import Drawn
from simnmt.scenario.learning import Learnt, standard_normal
from simnmt.scenario.model import Scenario
from simnmt.workload.length_distribution import LengthDistribution
from simnmt.workload.length_regression import LengthRegression
from simnmt.world.deciders import Beliefs
from simnmt.world.requests import Block
from simnmt.world.simulate import DecideFor
from simnmt.world.traffic import Predicted

Column = NDArray[np.float64]
Truths = frozenset[Literal["lengths", "times", "transfer", "backlog"]]
"""What a policy is told instead of believing it: target lengths, execution times, transfer times, waits (CNMT-19)."""


@dataclass(frozen=True, slots=True)
class Deciding:
    """A policy as the world runs it."""

    decide_for: DecideFor
    beliefs: Beliefs
    predicted_for: Callable[[Block], Predicted] | None
    predicted_tgt_len: PredictLength | None
    """What it assumes of target lengths; None where it assumes nothing."""


def deciding(
    scenario: Scenario,
    case: Case,
    learnt: Learnt,
    drawn: Drawn,
    configuration: PolicyConfiguration,
    replication: int,
    told: Truths = frozenset(),
) -> Deciding:
    """The policy that a configuration describes, for the requests of one unit. `told`: for the gap analysis alone."""
    queues = case.arrivals.discipline != "back_to_back"
    sees_backlog = queues and bool(getattr(configuration, "sees_backlog", False))
    is_oracle = isinstance(configuration, OraclePolicy)
    estimating = getattr(configuration, "transfer_estimate", None) or LastMeasured(kind="last")
    initial_ms = getattr(configuration, "initial_transfer_ms", None)

    def estimate(decider: int, target: int) -> TransferEstimate:
        def rtt_s(at_s: float) -> float:
            return drawn.routes.rtt_s(decider, target, at_s)

        return transfer_estimate(estimating, rtt_s(0.0) if initial_ms is None else initial_ms / 1e3, rtt_s)

    beliefs = Beliefs(
        estimate,
        probes=isinstance(estimating, Probing),
        sees_backlog=sees_backlog,
        parallel=tuple(_parallel(scenario, case.name, device) for device in scenario.devices),
        true_transfer=is_oracle or "transfer" in told,
        true_backlog=queues and (is_oracle or "backlog" in told),
    )
    if is_oracle:
        return Deciding(lambda block: Oracle(block.execution_s).prepare(block.src_len), beliefs, None, None)
    policy = _policy(scenario, configuration, learnt)
    if not isinstance(policy, CNmt):
        return Deciding(lambda block: policy.prepare(block.src_len), beliefs, None, None)
    weighed_s, expected_s = _reckoned(scenario, case, drawn, policy, replication, told)

    def decide_for(block: Block) -> Decide:
        return least_total(weighed_s(block))

    def predicted_for(block: Block) -> Predicted:
        return [column.tolist() for column in expected_s(block)]

    return Deciding(decide_for, beliefs, predicted_for if sees_backlog else None, policy.predict)


def _parallel(scenario: Scenario, workload: str, device: str) -> int:
    """Workers that a request of one decider may come to execute on."""
    servers = scenario.count_of(device, workload)
    if scenario.balancer_of(device) == "attached":
        # End node n, of decider n modulo deciders, enters server n modulo servers.
        servers //= gcd(servers, scenario.count_of(next(iter(scenario.devices)), workload))
    return servers * scenario.devices[device].workers


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


Reckon = Callable[[Block], list[Column]]
"""Seconds of execution per target for the requests of a block."""


def _reckoned(
    scenario: Scenario, case: Case, drawn: Drawn, policy: CNmt, replication: int, told: Truths
) -> tuple[Reckon, Reckon]:
    """What C-NMT weighs the targets by, and what it expects: the same, but where it minimises a percentile.

    Where the gap analysis tells it the time model, that is the profile's with this very request's residual, or of a target that
    batches what the request takes alone there; told of lengths as well, it reckons with the true times.
    """
    if not told & {"lengths", "times"}:
        return (lambda block: policy.weighed_s(block.src_len)), (lambda block: policy.execution_s(block.src_len))
    truth, order = drawn.truth, drawn.decided_order
    noise = [
        standard_normal(scenario.seed, replication, f"{case.name}/execution {device}", scenario.requests)
        for device in scenario.devices
    ]

    def seconds(block: Block, predict: PredictLength) -> list[Column]:
        rows: slice | NDArray[np.int64] = slice(block.first, block.first + len(block))
        rows = rows if order is None else order[rows]
        tgt_len = truth.tgt_len[rows].astype(np.float64) if "lengths" in told else predict(block.src_len)
        if "times" not in told:
            return [plane.seconds(block.src_len, tgt_len) for plane in policy.planes]
        return [
            profile.execution_s(block.src_len, tgt_len, residual[rows])
            if decoding is None
            else decoding.cost.solo_s(block.src_len, np.rint(tgt_len))
            for profile, decoding, residual in zip(case.profiles, case.decoding, noise, strict=True)
        ]

    def expected(block: Block) -> list[Column]:
        return seconds(block, policy.predict)

    if policy.percentiles is None:
        return expected, expected
    low, high = policy.percentiles

    def weighed(block: Block) -> list[Column]:
        return [np.maximum(*columns) for columns in zip(seconds(block, low), seconds(block, high), strict=True)]

    return weighed, expected
