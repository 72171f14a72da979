"""Run a unit of work: one workload on one network in one replication, under every policy.

Units share nothing, so any number of processes runs them and the numbers stay the same. A unit builds the servers that its
requests meet, simulates each policy, and measures the log; the load of a batching server is judged by what it would need if
it were never short of sentences.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.experiment.comparisons import truths_by_source
from simnmt.experiment.draws import Drawn, Learnt, draw, learn
from simnmt.experiment.inputs import Case, Decoding
from simnmt.experiment.policy_setup import PolicySetup, set_up_policy
from simnmt.experiment.routes import estimate_age_s
from simnmt.network.configuration import Network
from simnmt.policies.cnmt import PredictLength
from simnmt.results.device_accounts import StreamAccount, stream_account
from simnmt.results.request_log import RequestLog, Truth, lost_s
from simnmt.results.requests import Trail
from simnmt.results.summary import BatchesOfDevice, Device, RunKey, measure
from simnmt.scenario.configuration import Scenario
from simnmt.world.batch_pool import decode_all
from simnmt.world.fifo_server import FifoPool, LeastWork
from simnmt.world.server import Balancer, ByNode, FewestTokens, InTurn, LeastLoadedOfDrawn, Server, ServerSpec
from simnmt.world.simulation import simulate


def server_specs(case: Case) -> list[ServerSpec | None]:
    """Return, per target, how its boxes batch or stream their model; None where they execute one by one, or nothing meets."""
    return [target.streamed or (target.decoding if case.batches else None) for target in case.targets]


def servers(scenario: Scenario, case: Case, replication: int) -> list[Server]:
    """Return the servers of every target but the first."""
    made: list[Server] = []
    for (name, device), spec in list(zip(scenario.devices.items(), server_specs(case), strict=True))[1:]:
        count, balancer = scenario.count_of(name, case.name), _balancer(scenario, case, replication, name)
        if spec is not None:
            made.append(spec.servers(count, balancer))
        elif isinstance(balancer, FewestTokens):
            made.append(LeastWork(count, device.workers))
        else:
            made.append(FifoPool(count, device.workers, balancer))
    return made


def _balancer(scenario: Scenario, case: Case, replication: int, name: str) -> Balancer:
    count, balancer = scenario.count_of(name, case.name), scenario.balancer_of(name)
    if count == 1 or balancer == "attached":
        return ByNode()
    if balancer == "round_robin":
        return InTurn()
    if balancer == "least_work":
        return FewestTokens()
    return LeastLoadedOfDrawn(_choices(scenario, case, replication, name, count, 2 if balancer == "two_choices" else 1))


def _choices(scenario: Scenario, case: Case, replication: int, device: str, count: int, drawn: int) -> NDArray[np.int16]:
    """Different servers for each request, one or two, shape (requests, drawn): the same for every policy."""
    chosen = np.empty((scenario.requests, drawn), np.int16)
    for block, rows in random_streams.blocks(len(chosen)):
        uniform = [
            random_streams.stream(scenario.seed, replication, f"{case.name}/{device} choices {number}", block).random(
                rows.stop - rows.start
            )
            for number in range(drawn)
        ]
        chosen[rows, 0] = first = (uniform[0] * count).astype(np.int64)
        if drawn == 2:
            # One of the others: a step of 1 to count - 1 around.
            chosen[rows, 1] = (first + 1 + (uniform[1] * (count - 1)).astype(np.int64)) % count
    return chosen


SATURATION_SAMPLE = 2_000
"""Sentences decoded, where there are as many, to learn what they take."""
LEAST_BATCHES = 4
"""Where there are fewer."""


def saturated_s(decoding: Decoding, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> float:
    """Seconds of one server for these sentences in the long run, its batches as full as its batching lets them get.

    Of many an even sample is decoded, few are decoded again and again, in either case a whole number of batches or
    collections, and the time is scaled by the target tokens. They are decoded once and twice over, and what the second time
    adds is taken: that has neither a first batch nor a last one.
    """
    count = len(tgt_len)
    if count == 0:
        return 0.0
    together = decoding.batching.collected or decoding.batching.size
    most, least = max(SATURATION_SAMPLE, 16 * decoding.batching.size), max(count, LEAST_BATCHES * decoding.batching.size)
    wanted = -(-min(most, least) // together) * together
    rows = np.arange(wanted) % count if count < wanted else (np.arange(wanted) * (count / wanted)).astype(np.int64)
    source, target = np.asarray(src_len)[rows], np.asarray(tgt_len)[rows]
    once_s, twice_s = (
        decode_all(decoding.batching, decoding.cost, np.tile(source, times), np.tile(target, times)).total_s for times in (1, 2)
    )
    tokens, of_sample = int(np.sum(tgt_len + 1)), int(np.sum(target + 1))
    return max(twice_s - once_s, 0.0) * tokens / of_sample


@dataclass(frozen=True, slots=True)
class Unit:
    """What a process needs to run one."""

    scenario: Scenario
    case: Case
    network: str
    links: Network
    replication: int
    folder: Path | None = None
    """Where its columns are to lie, a folder that is not there yet; None: in the system's, for this process alone."""


@dataclass(frozen=True, slots=True)
class UnitResult:
    """What comes back."""

    numbers: dict[RunKey, dict[str, float | None]]
    best_offloaded_share: float
    """Share of requests whose execution plus transfer is truly least on another device than the first."""
    mean_transfer_s: float
    """To the last device and back."""
    learnt: Learnt
    gap_totals_s: dict[str, float]
    """Total latency by variant of the gap analysis; empty without one."""
    truth: Truth | None
    """Replication 0 alone brings its requests back."""
    trails: dict[str, Trail]


def run_unit(unit: Unit) -> UnitResult:
    """Draw the requests of a unit and run them under every policy of the scenario. Raises `OSError` where no room is left."""
    if unit.folder is None:
        with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as folder:
            return run_unit(replace(unit, folder=Path(folder) / "unit"))
    unit.folder.mkdir()
    scenario, case, replication = unit.scenario, unit.case, unit.replication
    learnt = learn(case, scenario.fit, scenario.seed, replication)
    drawn = draw(scenario, case, unit.network, unit.links, learnt, replication, unit.folder)
    numbers: dict[RunKey, dict[str, float | None]] = {}
    trails: dict[str, Trail] = {}
    for number, (name, configuration) in enumerate(scenario.policies.items()):
        how = set_up_policy(scenario, case, learnt, drawn, configuration, replication)
        # Numbered, not named: a policy may be called what no file can.
        measured, trail = _run_policy(unit, drawn, how, unit.folder / str(number))
        numbers[RunKey(case.name, unit.network, name, replication)] = measured
        if trail is not None:
            trails[name] = trail
    return UnitResult(
        numbers=numbers,
        best_offloaded_share=float((drawn.truth.best_target != 0).mean()),
        mean_transfer_s=float(drawn.truth.transfer_s[-1][:].mean()),
        learnt=learnt,
        gap_totals_s=_gap_totals_s(unit, learnt, drawn),
        truth=drawn.truth if replication == 0 else None,
        trails=trails,
    )


def devices(scenario: Scenario, workload: str) -> list[Device]:
    """The devices that a workload meets, in the targets' order."""
    return [
        Device(
            name,
            scenario.count_of(name, workload),
            part.workers,
            None if part.batching is None else part.batching.size,
            part.sti is not None,
        )
        for name, part in scenario.devices.items()
    ]


def _run_policy(unit: Unit, drawn: Drawn, how: PolicySetup, folder: Path) -> tuple[dict[str, float | None], Trail | None]:
    """Return the numbers of one policy; and its trail, in files of a folder, as far as it is wanted: in replication 0."""
    trail = _trail(unit, drawn, how, judged=True)
    of_unit = devices(unit.scenario, unit.case.name)
    lost = lost_s(drawn.truth, trail) if known_misroutes(unit.scenario, unit.case) else None
    log, discipline = RequestLog(drawn.truth, trail), unit.case.arrivals.discipline
    numbers = measure(log, lost, of_unit, discipline, _batched(unit.case, log, trail), trail.streams)
    if how.predicted_tgt_len is None:
        # What predicts nothing uses no estimate of the transfer time, so there is none to be old.
        numbers["mean_estimate_age_s"] = None
    numbers["probes_sent"] = float(trail.probes)
    numbers["rtt_pace_s"] = drawn.pace_s
    if unit.replication != 0:
        return numbers, None
    folder.mkdir()
    return numbers, trail.stored(folder)


def _batched(case: Case, log: RequestLog, trail: Trail) -> list[BatchesOfDevice | None]:
    """Return each target's batches and how long they would have taken if always full; empty if no target batched."""
    batches: list[BatchesOfDevice | None] = []
    for number, (account, target) in enumerate(zip(trail.batches, case.targets, strict=False)):
        if account is None or target.decoding is None:
            batches.append(None)
            continue
        there = np.flatnonzero(trail.target[:] == number)
        batches.append(BatchesOfDevice(account, saturated_s(target.decoding, log["src_len"][there], log["tgt_len"][there])))
    return batches


def _gap_totals_s(unit: Unit, learnt: Learnt, drawn: Drawn) -> dict[str, float]:
    scenario = unit.scenario
    name = scenario.analysed_policy if scenario.gap_analysis else None
    if name is None:
        return {}
    totals_s = {}
    for removed, truths in truths_by_source(unit.case.queues, unit.case.streams).items():
        how = set_up_policy(scenario, unit.case, learnt, drawn, scenario.policies[name], unit.replication, truths)
        totals_s[removed] = float(RequestLog(drawn.truth, _trail(unit, drawn, how))["latency_s"].sum())
    return totals_s


def known_misroutes(scenario: Scenario, case: Case) -> bool:
    """Whether misroutes are known: where requests queue, or a streamed model's state matters, only an oracle foresees them."""
    return not (case.queues or case.streams) or _judged_share(scenario, case) > 0.0


JUDGED = 2_000
"""Decisions of a run that are judged by an oracle's foresight where requests queue: 5 to 15 us each, thrice a decision."""


def _judged_share(scenario: Scenario, case: Case) -> float:
    """Share of the requests whose decisions are judged by an oracle's foresight; 0 if that is too dear or not needed.

    Where nothing waits and no device's state matters, what each device takes alone says it all.
    """
    if case.batches or case.streams:
        return float(scenario.foresee_misroutes)
    return min(JUDGED / scenario.requests, 1.0) if case.queues else 0.0


def _trail(unit: Unit, drawn: Drawn, how: PolicySetup, *, judged: bool = False) -> Trail:
    """Return what a policy makes of the requests, in the order in which they are issued."""
    scenario, case = unit.scenario, unit.case
    first, device = next(iter(scenario.devices.items()))
    deciders = scenario.count_of(first, case.name)
    trail = simulate(
        drawn.requests,
        how.decide_for,
        how.beliefs,
        servers(scenario, case, unit.replication),
        deciders=deciders,
        workers=device.workers,
        expected_for=how.expected_for,
        route=drawn.route,
        clients=drawn.clients,
        judged_share=_judged_share(scenario, case) if judged else 0.0,
        local=server_specs(case)[0],
        plan_beyond_for=how.plan_beyond_for,
    )
    arrival_s, node = trail.arrival_s[:], drawn.requests.node if trail.node is None else trail.node
    assert node is not None and trail.decided_s is not None and trail.measured_at_s is not None
    moments_s = drawn.moments_s
    if moments_s is not None and drawn.decided_order is not None:
        moments_s = moments_s[drawn.decided_order]
    trail = replace(
        trail,
        server=np.where(trail.target[:] == 0, node[:] % deciders, trail.server[:]).astype(np.int32),
        estimate_age_s=estimate_age_s(arrival_s, trail.decided_s[:], trail.measured_at_s[:], moments_s),
        tgt_len_by_src_len=_by_src_len(how.predicted_tgt_len, int(drawn.truth.src_len[:].max())),
        truth=drawn.own_truth(arrival_s, node),
        decided_s=None,
        measured_at_s=None,
        node=None,
    )
    if drawn.decided_order is not None:
        trail = trail.in_order(drawn.decided_order)
    if drawn.issued_s is not None:
        trail = replace(trail, arrival_s=drawn.issued_s)
    return replace(trail, streams=_stream_accounts(case, RequestLog(drawn.truth, trail), trail), streamed=())


def _stream_accounts(case: Case, log: RequestLog, trail: Trail) -> tuple[StreamAccount | None, ...]:
    """Return the account of each target's streamed model; None for a target without one, and empty where none streams."""
    if not trail.streamed:
        return ()
    end_s = float((log["arrival_s"] + log["latency_s"]).max())
    lost_s = None if trail.lost_s is None else trail.lost_s[:]
    return tuple(
        stream_account(log, number, len(target.streamed.states), boxes_until(end_s), lost_s)
        if target.streamed is not None and boxes_until is not None
        else None
        for number, (target, boxes_until) in enumerate(zip(case.targets, trail.streamed, strict=True))
    )


def _by_src_len(predict: PredictLength | None, longest: int) -> NDArray[np.float64]:
    lengths = np.full(longest + 1, np.nan)
    if predict is not None:
        lengths[1:] = predict(np.arange(1, longest + 1))
    return lengths
