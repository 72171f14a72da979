"""A unit of work: one workload on one network in one replication, under every policy.

Units share nothing, so any number of processes runs them and the numbers stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simnmt import streams
from simnmt.network.configuration import NetworkConfiguration
from simnmt.network.link import Link, bytes_per_token
from simnmt.policies import CLOUD, GATEWAY, CNmt, Fixed, Oracle, Policy, constant_length
from simnmt.policies.configuration import (
    CloudPolicy,
    CNmtPolicy,
    EdgePolicy,
    NaivePolicy,
    OraclePolicy,
    PolicyConfiguration,
)
from simnmt.results.request_log import Passage, Truth, request_log
from simnmt.results.summary import RunKey, measure
from simnmt.scenario.build import DEVICES, Case
from simnmt.scenario.learning import Learnt, learn, standard_normal
from simnmt.scenario.model import Scenario
from simnmt.workload.arrivals import times
from simnmt.workload.length_regression import LengthRegression
from simnmt.world.requests import Requests
from simnmt.world.simulate import DecideFor, simulate

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unit:
    """What a process needs to run one."""

    scenario: Scenario
    case: Case
    network: str
    link: Link
    replication: int


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What comes back."""

    numbers: dict[RunKey, dict[str, float | None]]
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least in the cloud."""
    mean_transfer_s: float
    learnt: Learnt
    truth: Truth | None
    """Replication 0 alone brings its requests back."""
    passages: dict[str, Passage]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The requests of a unit: the truth for the log, the times for the world."""

    truth: Truth
    requests: Requests
    present_rtt_s: Callable[[float], float] | None
    """On an own clock alone; the requests' link columns are then without the RTT."""
    first_rtt_s: float


def run_unit(unit: Unit) -> UnitResult:
    """Draw the requests of a unit and run them under every policy of the scenario."""
    learnt = learn(unit.case, unit.scenario.fit, unit.scenario.seed, unit.replication)
    drawn = _draw(unit, learnt)
    truth = drawn.truth
    workers = None if drawn.requests.arrival_s is None else unit.scenario.devices.cloud.workers
    numbers: dict[RunKey, dict[str, float | None]] = {}
    passages: dict[str, Passage] = {}
    for name, configuration in unit.scenario.policies.items():
        passage = _run_policy(unit, learnt, drawn, configuration)
        transfer_s = truth.transfer_s if passage.own_clock is None else passage.own_clock[0]
        best = np.where(truth.gateway_s <= truth.cloud_s + transfer_s, GATEWAY, CLOUD)
        key = RunKey(unit.case.name, unit.network, name, unit.replication)
        numbers[key] = measure(request_log(truth, passage), best, workers)
        if unit.replication == 0:
            passages[name] = passage
    offloading = truth.gateway_s > truth.cloud_s + truth.transfer_s
    return UnitResult(
        numbers=numbers,
        best_offloaded_share=float(offloading.mean()),
        mean_transfer_s=float(truth.transfer_s.mean()),
        learnt=learnt,
        truth=truth if unit.replication == 0 else None,
        passages=passages,
    )


def _run_policy(unit: Unit, learnt: Learnt, drawn: _Drawn, configuration: PolicyConfiguration) -> Passage:
    policy = _policy(configuration, learnt)
    decide_for: DecideFor
    if policy is None:
        decide_for = lambda block: Oracle((block.gateway_s, block.cloud_s)).prepare(block.src_len)  # noqa: E731
    else:
        decide_for = lambda block: policy.prepare(block.src_len)  # noqa: E731
    initial_ms = getattr(configuration, "initial_transfer_ms", None)
    trail = simulate(
        drawn.requests,
        decide_for,
        initial_transfer_s=drawn.first_rtt_s if initial_ms is None else initial_ms / 1e3,
        workers=unit.scenario.devices.cloud.workers,
        clairvoyant=policy is None,
        present_rtt_s=drawn.present_rtt_s,
    )
    src_len = drawn.truth.src_len
    own_clock = None
    if drawn.present_rtt_s is not None:
        begin_s = _trace_start_s(unit)
        moments = np.mod(begin_s + trail.arrival_s, unit.link.rtt.duration_s)
        payload_s = drawn.requests.uplink_s + drawn.requests.downlink_s
        own_clock = (payload_s + unit.link.rtt.at(begin_s + trail.arrival_s), moments)
    return Passage(
        arrival_s=trail.arrival_s,
        target=trail.target,
        queue_s=trail.queue_s,
        estimate_s=trail.estimate_s,
        measured_at_s=trail.measured_at_s,
        tgt_len_predicted=np.full(len(src_len), np.nan) if policy is None else policy.predicted_tgt_len(src_len),
        own_clock=own_clock,
    )


def _policy(configuration: PolicyConfiguration, learnt: Learnt) -> Policy | None:
    """The policy that a configuration describes; None for the oracle, which is made anew for each block's truth."""
    if isinstance(configuration, EdgePolicy):
        return Fixed(GATEWAY)
    if isinstance(configuration, CloudPolicy):
        return Fixed(CLOUD)
    if isinstance(configuration, OraclePolicy):
        return None
    if isinstance(configuration, NaivePolicy):
        mean = learnt.fit_pairs.mean_tgt_len if configuration.tgt_len is None else configuration.tgt_len
        return CNmt(learnt.planes, constant_length(mean))
    return CNmt(learnt.planes, length_regression(configuration, learnt).predict)


def length_regression(configuration: CNmtPolicy, learnt: Learnt) -> LengthRegression:
    """The line that C-NMT uses: the configured coefficients, the fitted ones where there are none."""
    slope, offset = configuration.len_slope, configuration.len_offset
    return LengthRegression(
        learnt.lengths.len_slope if slope is None else slope, learnt.lengths.len_offset if offset is None else offset
    )


def _trace_start_s(unit: Unit) -> float:
    """Where on the trace a replication begins: at its start in replication 0, anywhere in the others."""
    if unit.replication == 0:
        return 0.0
    name = f"{unit.network}/trace start"
    return float(streams.stream(unit.scenario.seed, unit.replication, name).random()) * unit.link.rtt.duration_s


def _draw(unit: Unit, learnt: Learnt) -> _Drawn:
    scenario, case, link, replication = unit.scenario, unit.case, unit.link, unit.replication
    seed, size = scenario.seed, scenario.requests
    workload, network = scenario.workloads[case.name], scenario.networks[unit.network]
    src_len, tgt_len = learnt.evaluated_pairs.sample(seed, replication, f"{case.name}/lengths", size)
    arrival_s = times(workload.arrivals, size, seed, replication, f"{case.name}/arrivals")
    gateway_s, cloud_s = (
        profile.execution_s(src_len, tgt_len, standard_normal(seed, replication, f"{case.name}/execution {device}", size))
        for device, profile in zip(DEVICES, case.profiles, strict=True)
    )
    node = streams.draw(seed, replication, f"{case.name}/nodes", size, lambda generator, count: generator.random(count))
    begin_s = _trace_start_s(unit)
    clock = _clock(network, back_to_back=arrival_s is None)
    own = clock == "own" and arrival_s is None
    if arrival_s is None or clock == "spread":
        # On an own clock each policy finds its moments itself; these stand for the network as such, in a verdict's reason.
        moments = begin_s + (np.arange(size) + 0.5) / size * link.rtt.duration_s
    else:
        moments = begin_s + arrival_s
    token_bytes = bytes_per_token(case.profiles[CLOUD].model.vocab)  # what crosses the link is what the server reads and writes
    uplink_s, downlink_s = link.ways_s(moments, src_len, tgt_len, token_bytes)
    truth = Truth(
        node=(node * workload.end_nodes).astype(np.int32),
        src_len=src_len,
        tgt_len=tgt_len,
        gateway_s=gateway_s,
        cloud_s=cloud_s,
        transfer_s=uplink_s + downlink_s,
        rtt_time_s=np.mod(moments, link.rtt.duration_s),
    )
    half_s = link.rtt.at(moments) / 2 if own else 0.0
    requests = Requests(
        src_len=src_len,
        gateway_s=gateway_s,
        cloud_s=cloud_s,
        uplink_s=uplink_s - half_s,
        downlink_s=downlink_s - half_s,
        arrival_s=arrival_s,
    )
    return _Drawn(
        truth=truth,
        requests=requests,
        present_rtt_s=(lambda now_s: link.rtt_one_s(begin_s + now_s)) if own else None,
        first_rtt_s=link.rtt_one_s(begin_s),
    )


def _clock(network: NetworkConfiguration, back_to_back: bool) -> str:
    """At which moments requests meet the trace; back to back, `arrival` and `own` are the same."""
    if network.clock is None:
        return "spread" if back_to_back else "arrival"
    return "own" if back_to_back and network.clock == "arrival" else network.clock
