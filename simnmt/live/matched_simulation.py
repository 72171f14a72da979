"""The simulation of one live run: the same requests at the same moments of the same link, by measured or by predicted costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.cases import Unit
from simnmt.experiment.draws import learn
from simnmt.experiment.policy_setup import PolicySetup, set_up_policy
from simnmt.experiment.targets import Target
from simnmt.experiment.units import server_specs, servers
from simnmt.live.cell_run import References
from simnmt.live.deployment import ReplayedRequests
from simnmt.network.link import bytes_per_token
from simnmt.network.overhead import Overhead
from simnmt.policies.decision import Decide
from simnmt.policies.estimates import TransferEstimate
from simnmt.profile.reconciliation import at_pace
from simnmt.results.requests import Block, Requests
from simnmt.world.deciders import Beliefs, plain
from simnmt.world.simulation import DecideFor, simulate

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedRun:
    """One simulated run; columns of shape (requests,), seconds."""

    target: NDArray[np.int64]
    queue_s: Column
    execution_s: Column
    transfer_s: Column
    """Link and the server's overhead; 0 for requests that stay."""
    overhead_s: Column
    """Overhead of the gateway."""

    @property
    def latency_s(self) -> Column:
        """From arrival to answer."""
        latency_s: Column = self.queue_s + self.execution_s + self.transfer_s + self.overhead_s
        return latency_s


@dataclass(frozen=True, slots=True, eq=False)
class Simulations:
    """The simulations of one live run."""

    structural: SimulatedRun
    """By the run's own executions and targets."""
    matched: list[SimulatedRun]
    """By the profiles, scaled by the run's reference executions; one for each draw."""
    raw: list[SimulatedRun]
    """By the profiles alone."""
    predicted: list[SimulatedRun]
    """By profiles drawn within the error of their calibration, scaled by a pace of the box drawn from other runs."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What each request of a run costs; columns of shape (requests,), seconds."""

    execution_s: tuple[Column, ...]
    """By target, alone."""
    overhead_s: tuple[Column, Column]
    """Of the gateway, and of the server."""
    turnaround_s: tuple[float, ...] = (0.0, 0.0)
    """By target, how long an execution keeps the next one waiting after its own end."""


def predicted_costs(unit: Unit, requests: ReplayedRequests, draw: int, factors: Sequence[float] = (1.0, 1.0)) -> Costs:
    """Draw the costs that the profiles and the overheads of a scenario predict.

    `draw`: number of the draw; `factors`: by which each device was slower than when it was measured.
    """
    count = len(requests.src_len)

    def stream(name: str) -> np.random.Generator:
        return random_streams.stream(unit.scenario.seed, draw, f"matched {name}")

    execution_s = tuple(
        factor * target.execution_s(requests.src_len, requests.tgt_len, stream(target.device).standard_normal(count))
        for target, factor in zip(unit.case.targets, factors, strict=True)
    )
    gateway_s, server_s = (
        _drawn_s(part.overhead, stream(f"{device} overhead"), count) for device, part in unit.scenario.devices.items()
    )
    return Costs(execution_s, (gateway_s, server_s))


def _drawn_s(overhead: Overhead | None, random: np.random.Generator, count: int) -> Column:
    return np.zeros(count) if overhead is None else overhead.draw_s(random, count)


def slowed(unit: Unit, factors: Sequence[float]) -> Unit:
    """Return a unit whose batching has all costs multiplied by its device's factor.

    `predicted_costs` slows the executions of sentences alone.
    """

    def one(target: Target, factor: float) -> Target:
        if target.decoding is None:
            return target
        return replace(target, decoding=replace(target.decoding, cost=at_pace(target.profile, factor).decoding_cost))

    targets = tuple(one(target, factor) for target, factor in zip(unit.case.targets, factors, strict=True))
    return replace(unit, case=replace(unit.case, targets=targets))


def simulate_matched(
    unit: Unit,
    policy: str,
    requests: ReplayedRequests,
    costs: Costs,
    *,
    link_begin_s: float,
    targets: NDArray[np.int64] | None = None,
    references: Sequence[References] = (),
) -> SimulatedRun:
    """Simulate the requests of a live run.

    Args:
        unit: the scenario's unit.
        policy: name of the policy.
        requests: with the moments at which they were sent.
        costs: of each request.
        link_begin_s: moment of the link's series at the begin.
        targets: targets to which the requests were sent, instead of the policy's choices.
        references: executions beside those of the requests, by target, for which requests waited. A target that batches
            executes them as sentences of no output, if its sentences vary; else it is simulated without them.
    """
    assert requests.offsets_s is not None, "a matched simulation is of an open loop"
    link = unit.links.link
    token_bytes = bytes_per_token(unit.case.profiles[-1].model.vocab)
    gateway_s, server_s = costs.overhead_s
    at_s = requests.offsets_s + link_begin_s
    up_s, down_s = link.ways_s(at_s, requests.src_len, requests.tgt_len, token_bytes)
    uplink_s, downlink_s = up_s + server_s / 2, down_s + server_s / 2
    arrival_s = requests.offsets_s + gateway_s / 2
    count = len(arrival_s)
    beside = _beside(unit, references)
    order = np.argsort(np.concatenate([arrival_s, beside.begin_s]), kind="stable")

    def column(of_requests: NDArray[Any], of_beside: NDArray[Any] | float) -> NDArray[Any]:
        filled = np.broadcast_to(np.asarray(of_beside, of_requests.dtype), beside.begin_s.shape)
        return np.concatenate([of_requests, filled])[order]

    columns = Requests(
        src_len=column(requests.src_len, 1),
        tgt_len=column(requests.tgt_len, beside.tgt_len),
        execution_s=tuple(
            column(execution_s + (0.0 if target.decoding else turnaround_s), beside.busy_s)
            for execution_s, turnaround_s, target in zip(costs.execution_s, costs.turnaround_s, unit.case.targets, strict=True)
        ),
        uplink_s=(column(uplink_s, 0.0),),
        downlink_s=(column(downlink_s, 0.0),),
        arrival_s=column(arrival_s, beside.begin_s),
        # What a server executes beside comes from a decider of its own: the gateway neither sends nor hears it.
        node=column(np.zeros(count, np.int32), beside.target),
    )
    setup = _setup(unit, policy, link.rtt_one_s(link_begin_s) + float(server_s.mean()))
    sent = column(np.full(count, -1) if targets is None else targets, beside.target).tolist()
    trail = simulate(
        columns,
        _sending(sent, setup.decide_for if targets is None else None),
        setup.beliefs if targets is None else Beliefs(_no_estimate),
        servers(unit),
        deciders=2 if beside.target.any() else 1,
        expected_for=setup.expected_for if targets is None else None,
        local=server_specs(unit)[0],
        plan_beyond_for=setup.plan_beyond_for if targets is None else None,
    )
    target = np.array(trail.target[:], np.int64)
    alone_s = np.where(target == 0, columns.execution_s[0], columns.execution_s[1])
    in_batch_s = np.full(alone_s.shape, np.nan) if trail.execution_s is None else trail.execution_s[:]
    execution_s = np.where(np.isnan(in_batch_s), alone_s - np.take(costs.turnaround_s, target), in_batch_s)
    transfer_s = np.where(target == 0, 0.0, columns.uplink_s[0] + columns.downlink_s[0])
    back = np.argsort(order)[:count]
    return SimulatedRun(target[back], np.array(trail.queue_s[:])[back], execution_s[back], transfer_s[back], gateway_s)


@dataclass(frozen=True, slots=True, eq=False)
class _Beside:
    """Executions that are no requests; columns of shape (executions,)."""

    target: NDArray[np.int32]
    tgt_len: NDArray[np.int64]
    """0 where the target batches: such a sentence is encoded for as long as the execution took, and has no company."""
    begin_s: Column
    busy_s: Column


def _beside(unit: Unit, references: Sequence[References]) -> _Beside:
    taken = [
        (number, int(target.decoding is None), of_target)
        for number, (of_target, target) in enumerate(zip(references, unit.case.targets, strict=False))
        if target.decoding is None or target.decoding.varies
    ]
    target, tgt_len = (
        np.concatenate([np.empty(0, np.int64), *(np.full(one[2].begin_s.size, one[column]) for one in taken)])
        for column in (0, 1)
    )
    begin_s, busy_s = (
        np.concatenate([np.empty(0), *(getattr(one, name) for _, _, one in taken)]) for name in ("begin_s", "busy_s")
    )
    during = begin_s >= 0.0
    return _Beside(target[during].astype(np.int32), tgt_len[during], begin_s[during], busy_s[during])


def _sending(sent: Sequence[int], decide_for: DecideFor | None) -> DecideFor:
    """Return a policy that sends requests to given targets, and leaves those with target -1 to another policy."""

    def decide_for_block(block: Block) -> Decide:
        first = block.first
        decide = None if decide_for is None else plain(decide_for(block))

        def decide_on(in_block: int, delay_s: Sequence[float]) -> int:
            target = sent[first + in_block]
            if target >= 0 or decide is None:
                return target
            return decide(in_block, delay_s)

        return decide_on

    return decide_for_block


def _setup(unit: Unit, policy: str, initial_s: float) -> PolicySetup:
    settings = unit.scenario.policies[policy]
    estimation = settings.estimation

    def estimate(decider: int, target: int) -> TransferEstimate:
        first_s = initial_s if estimation.initial_transfer_ms is None else estimation.initial_transfer_ms / 1e3
        return estimation.transfer_estimate.estimate(first_s)

    return set_up_policy(unit, learn(unit), None, settings, estimate=estimate)


def _no_estimate(decider: int, target: int) -> TransferEstimate:
    return TransferEstimate(0.0)
