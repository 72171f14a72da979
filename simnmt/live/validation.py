"""Validate a scenario: replay its requests live on this box, simulate the same requests, and compare (CNMT-11, CNMT-12, XP-01).

Load generator, gateway and servers run in this process, each engine in one of its own; delays of the network are slept. Every
policy on every network is replayed once a replication, in another order each time, and each live run is simulated twice:

- *structural*: with its own executions and targets, and the mean overheads of undisturbed runs: the error of queues and links;
- *predicted*: from the profiles alone, as `simnmt run` does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, astuple, dataclass, replace
from itertools import combinations, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import VERSION, random_streams
from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError, SimnmtError
from simnmt.calibrate import processor_use
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.units import kinds, run_unit
from simnmt.live.decider import deployable_policy, live_unit, refuse_sites, replayed_targets
from simnmt.live.deployment import ReplayedRequests, engine_settings, replayed_requests, routes_of, target_of
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.replay import ReplaySettings, send
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.policies.estimates import TransferEstimate
from simnmt.results.live_log import DecisionRecord, RequestRecord, read_live_log
from simnmt.results.requests import Block, Requests
from simnmt.results.summary import known
from simnmt.service.http_server import Access, Limits
from simnmt.service.load import LoadLog, run_precisely
from simnmt.world.deciders import Beliefs
from simnmt.world.engine import simulate
from simnmt.world.inputs import PolicySetup, World

Progress = Callable[[str], None]
REFERENCE_EVERY_S = 1.0
"""Time between the reference executions of an idle engine."""
UNSTEADY = 1.5
"""A run is void if the 90th percentile of its reference executions is above this multiple of their median in all runs."""
ANSWERED = 0.99
"""A run is void if fewer of its requests were answered where the policy sent them."""
IDLE_S = 0.02
"""Time without an execution after which an engine surely was idle, and longer than any turnaround."""
USUAL_S = 3e-4
"""Handover and turnaround where none was measured."""
LEGEND = (
    "Simulated over live less 1, of means over the replications. Structural: with the executions and targets of the live run. "
    "Predicted: from the profiles alone. Spread: range of the live means over their mean. *: void, the box was disturbed."
)
"""What the columns of the table of errors mean."""
BATCH_STEPS, LARGEST_STEP = 8, 1.5
"""Simulations in which the executions of sentences in batches are fitted to the live ones, and the most that one changes."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run, or their means over runs."""

    mean_s: float
    p50_s: float
    p95_s: float
    offloaded_share: float

    @classmethod
    def of(cls, latency_s: Floats, target: NDArray[np.int64]) -> Figures:
        """Return the figures of requests."""
        p50_s, p95_s = np.quantile(latency_s, (0.5, 0.95)).tolist()
        return cls(float(latency_s.mean()), p50_s, p95_s, float((target > 0).mean()))

    @classmethod
    def mean_of(cls, runs: Sequence[Figures]) -> Figures:
        """Return the mean of each figure."""
        return cls(*np.mean([astuple(run) for run in runs], axis=0).tolist())

    def errors(self, live: Figures) -> Figures:
        """Return the errors against live figures: relative, and the difference of the offloaded shares."""
        return Figures(
            self.mean_s / live.mean_s - 1.0,
            self.p50_s / live.p50_s - 1.0,
            self.p95_s / live.p95_s - 1.0,
            self.offloaded_share - live.offloaded_share,
        )


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """One live run of a policy."""

    unit: Unit
    policy: str
    requests: ReplayedRequests
    log: LoadLog
    handover_s: tuple[float, ...]
    """Of each device, the usual time from sending a sentence to an idle engine to the begin of its execution."""
    turnaround_s: tuple[float, ...]
    """Of each device, the usual time from the end of an execution to the begin of the next one that waits."""
    references_s: Mapping[str, Floats]
    decides_again: bool
    """True if the policy, given what the gateway had measured, makes the same decisions again."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Requests that were answered where the policy sent them."""
        return self.log.answered & ~self.log.fell_back

    @property
    def figures(self) -> Figures:
        """The live figures. Raises `SimnmtError` if no request is valid."""
        if not self.valid.any():
            raise SimnmtError(f"a live run of {self.policy} answered no request as decided: {self.log.fault}")
        return Figures.of(self.log.latency_s[self.valid], self.log.target[self.valid])

    def link_s(self) -> tuple[Floats, Floats]:
        """Return the seconds that the network prescribes for each request on its way to its target and back."""
        requests, target = self.requests, np.maximum(self.log.target, 0)
        assert requests.offsets_s is not None
        nothing_s = np.zeros(len(target))
        gateway = np.zeros(len(target), np.int32)
        ways = routes_of(self.unit).ways(requests.offsets_s, gateway, requests.src_len, requests.tgt_len)
        up_s, down_s = (np.choose(target, [nothing_s, *side]) for side in (ways.uplink_s, ways.downlink_s))
        return up_s, down_s

    def overhead_s(self, number: int) -> Floats:
        """Return what the latency of each request of a target holds beside waiting, execution and links."""
        log, there = self.log, self.valid & (self.log.target == number)
        waiting_s = np.maximum(log.queue_s - self.handover_s[number], 0.0)
        overhead_s: Floats = (log.latency_s - waiting_s - log.execution_s - sum(self.link_s()))[there]
        return overhead_s


def _engine_gaps_s(requests: Sequence[RequestRecord], device: str) -> tuple[float, float]:
    """Return the usual handover to an idle engine and its usual turnaround, by the log of its own box.

    Between two executions of which the second waits, the engine sends an answer, and its front may use the same processor.
    """
    done = [one for one in requests if (one.device, one.outcome) == (device, "done")]
    times_s = np.array([(one.decision_s, one.queue_s, one.execution_s) for one in done], np.float64)
    decision_s, queue_s, execution_s = times_s.reshape(-1, 3).T
    begin_s = decision_s + queue_s
    order = np.argsort(begin_s)
    gap_s = begin_s[order][1:] - (begin_s + execution_s)[order][:-1]
    queue_s = queue_s[order][1:]
    handover_s = queue_s[gap_s > IDLE_S]
    usual_s = float(np.median(handover_s)) if handover_s.size else USUAL_S
    turnaround_s = gap_s[(queue_s > 2.0 * usual_s + 1e-3) & (gap_s >= 0.0) & (gap_s < IDLE_S)]
    return usual_s, float(np.median(turnaround_s)) if turnaround_s.size >= 3 else min(usual_s, USUAL_S)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One policy on one network: means over the replications that are not void, or over all if every one is."""

    network: str
    policy: str
    live: Figures
    spread: Figures
    """Range of the live figures over the replications, relative but for the offloaded share; NaN with one replication."""
    structural: Figures
    predicted: Figures
    live_means_s: tuple[float, ...]
    voids: tuple[str, ...]
    void: bool

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON, with the errors of both simulations."""
        errors = {kind: asdict(getattr(self, kind).errors(self.live)) for kind in ("structural", "predicted")}
        spread = None if np.isnan(self.spread.mean_s) else asdict(self.spread)
        return asdict(self) | {"spread": spread, "errors": errors}

    def cells(self) -> dict[str, str]:
        """Return the texts of its row by the heads of their columns (`LEGEND`)."""
        cells = {
            "network": self.network,
            "policy": self.policy + ("*" if self.void else ""),
            "live ms": f"{1e3 * self.live.mean_s:.1f}",
            "spread %": "-" if np.isnan(self.spread.mean_s) else f"{100 * self.spread.mean_s:.1f}",
        }
        for kind in ("structural", "predicted"):
            errors = getattr(self, kind).errors(self.live)
            cells |= {f"{kind} {name} %": f"{100 * getattr(errors, f'{name}_s'):+.1f}" for name in ("mean", "p50", "p95")}
        cells["offloaded % live"] = f"{100 * self.live.offloaded_share:.1f}"
        return cells | {"offloaded % predicted": f"{100 * self.predicted.offloaded_share:.1f}"}


@dataclass(frozen=True, slots=True)
class Ranking:
    """The order of the policies on one network by their mean latency, of those with two runs or more that are not void."""

    network: str
    live: tuple[str, ...]
    predicted: tuple[str, ...]
    inverted: tuple[tuple[str, str], ...]
    """Pairs, the better live first, whose live runs do not overlap and which the prediction ranks the other way."""

    @property
    def sentence(self) -> str:
        """The orders, and the inverted pairs."""
        if len(self.live) < 2:
            return f"{self.network}: nothing is ranked, as fewer than two policies have two runs that are not void"
        pairs = "; ".join(f"{better} before {worse}" for better, worse in self.inverted) or "none"
        return (
            f"{self.network}: live {' < '.join(self.live)}; predicted {' < '.join(self.predicted)}; "
            f"pairs clearly apart live and inverted in the prediction: {pairs}"
        )


@dataclass(frozen=True, slots=True)
class Validation:
    """The result of a validation."""

    scenario: str
    replications: int
    requests: int
    rows: list[Comparison]
    rankings: list[Ranking]
    others_cpus: float | None = None
    """CPUs' worth of time that other programs used before the live runs or after them; None: not known."""

    @property
    def warning(self) -> str | None:
        """The warning of a busy box, whose runs are all disturbed, so that none stands out as void."""
        cpus = os.cpu_count() or 1
        used = self.others_cpus or 0.0
        if used <= processor_use.QUIET_SHARE * cpus:
            return None
        why = "these errors do not judge the simulation (repeat when simnmt doctor shows no load)"
        return f"other programs used {used:.1f} of {cpus} CPUs: {why}"

    @property
    def worst_structural_error(self) -> float:
        """Greatest absolute structural error of a mean that is not void; 0 if every row is void."""
        errors = (abs(row.structural.errors(row.live).mean_s) for row in self.rows if not row.void)
        return max(errors, default=0.0)

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {"simnmt": VERSION} | asdict(self) | {"rows": [row.document() for row in self.rows]}


def validate(
    plan: RunPlan,
    *,
    policies: Sequence[str] = (),
    any_model: bool = False,
    engines: Mapping[str, EngineSettings] | None = None,
    progress: Progress = lambda text: None,
) -> Validation:
    """Replay the first workload of a scenario under its policies on this box, simulate the same requests, and compare.

    Args:
        plan: the scenario with its inputs; its replications are the repeats.
        policies: names of policies; empty: all that can be deployed.
        any_model: accept engines other than those of the profiles.
        engines: by device, in place of those that the profiles name.
        progress: called with a line before each run.

    Raises `InputError` for a scenario that cannot run live on one box, or that answers no request when it is simulated, and
    `SimnmtError` if a live run fails.
    """
    scenario = plan.scenario
    refuse_sites(plan)
    unit = replace(live_unit(plan), keeps_requests=False)
    names = list(policies) or [name for name, settings in scenario.policies.items() if not settings.knows_truth]
    _check(unit, names)
    others_cpus = [processor_use.others_cpus()]
    predicted: dict[tuple[str, str, int], Figures] = {}
    for replication, (network, links) in product(range(scenario.replications), plan.networks.items()):
        progress(f"simulating {network}, replication {replication + 1}")
        simulated = run_unit(replace(unit, network=network, links=links, replication=replication))
        for place, numbers in simulated.numbers.items():
            columns = ("mean_latency_s", "p50_latency_s", "p95_latency_s", "offloaded_share")
            predicted[network, place.policy, replication] = Figures(*(known(numbers[name]) for name in columns))
    with TemporaryDirectory(prefix="simnmt-", ignore_cleanup_errors=True) as folder:
        settings = _engines(unit, Path(folder), engines or {})
        runs = run_precisely(_replayed(plan, unit, names, settings, Path(folder), any_model, progress))
    others_cpus.append(processor_use.others_cpus())
    usual_s = {}
    for target in unit.case.targets:
        seconds = np.concatenate([run.references_s[target.device] for run in runs])
        usual_s[target.device] = float(np.median(seconds)) if seconds.size else np.nan
    why_void = {run: _reason_void(run, usual_s) for run in runs}
    rows = [_compared(cell, why_void, predicted) for cell in product(plan.networks, names)]
    rankings = [_ranked(network, [row for row in rows if row.network == network]) for network in plan.networks]
    greatest = max((cpus for cpus in others_cpus if cpus is not None), default=None)
    return Validation(scenario.name, scenario.replications, scenario.requests, rows, rankings, greatest)


def _check(unit: Unit, policies: Sequence[str]) -> None:
    for policy in policies:
        deployable_policy(unit, policy)
    if unit.case.arrivals.discipline != "open":
        what = f"workload {unit.case.name} has no arrivals of its own, which a validation replays"
        raise InputError(what, remedy="give it such as arrivals: {kind: poisson, rate_rps: 5}")
    if routes_of(unit).access is not None:
        raise InputError("requests reach the first device over a link", remedy="validate a scenario that begins at its gateway")
    for target in unit.case.targets:
        target_of(unit, target.device)
        if unit.scenario.count_of(target.device, unit.case.name) > 1:
            raise InputError(
                f"{target.device} is several boxes, and this is one", remedy=f"set devices.{target.device}.count=1"
            )


def _engines(unit: Unit, folder: Path, given: Mapping[str, EngineSettings]) -> list[EngineSettings]:
    """Return how the engine of each device is loaded, each on a processor of its own if there are enough."""
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    engines = []
    for number, target in enumerate(unit.case.targets):
        cpus = (allowed[number % len(allowed)],) if allowed else ()
        settings = given.get(target.device) or engine_settings(target, folder, cpus=cpus)
        engines.append(replace(settings, reference_every_s=REFERENCE_EVERY_S))
    return engines


async def _replayed(
    plan: RunPlan,
    unit: Unit,
    policies: Sequence[str],
    settings: Sequence[EngineSettings],
    folder: Path,
    any_model: bool,
    progress: Progress,
) -> list[LiveRun]:
    """Replay every policy on every network once a replication, in another order each time."""
    engines, runs = [EngineProcess(one) for one in settings], list[LiveRun]()
    try:
        progress("loading the engines")
        for engine in engines:
            await engine.ready()
        for replication in range(plan.scenario.replications):
            cells = [(network, links, policy) for network, links in plan.networks.items() for policy in policies]
            order = random_streams.stream(plan.scenario.seed, replication, "order of live runs").permutation(len(cells))
            for network, links, policy in (cells[number] for number in order):
                progress(f"run {len(runs) + 1} of {plan.scenario.replications * len(cells)}: {policy} on {network}")
                of_run = replace(unit, network=network, links=links, replication=replication)
                place = folder / str(len(runs))
                place.mkdir()
                runs.append(await _live_run(of_run, policy, engines, place, any_model, progress))
    finally:
        for engine in engines:
            await engine.close()
    return runs


async def _live_run(
    unit: Unit, policy: str, engines: Sequence[EngineProcess], folder: Path, any_model: bool, progress: Progress
) -> LiveRun:
    front = FrontSettings(forced_lengths=True, deadline_s=120.0, waiting=100_000)
    devices, requests = [target.device for target in unit.case.targets], replayed_requests(unit)
    paths = [folder / f"{number}.jsonl" for number in range(len(devices))]
    async with AsyncExitStack() as stack:
        options: list[dict[str, Any]] = [
            {"log": stack.enter_context(path.open("w", encoding="utf-8")), "on_error": progress, "keeps_engine": True}
            for path in paths
        ]

        async def url_of(service: LiveServer | LiveGateway) -> str:
            stack.push_async_callback(service.close)
            stack.push_async_callback(service.http.stop)
            await service.start()
            return service.http.url

        urls = {
            devices[number]: await url_of(LiveServer(engines[number], front, Access(), Limits(), **options[number]))
            for number in range(1, len(devices))
        }
        settings = GatewaySettings(unit, policy, urls, front, any_model=any_model, offload_s=60.0, delays=True)
        gateway = LiveGateway(settings, engines[0], **options[0])
        replay = ReplaySettings(await url_of(gateway), timeout_s=180.0, connections=1_000)
        load = await send(requests, replay, lambda: None, None, *gateway.transports)
    read = [read_live_log(path) for path in paths]
    assert read[0].begin is not None
    events, initial_s = read[0].decider_events, dict(enumerate(read[0].begin.initial_s, start=1))
    decided = [event.target for event in events if isinstance(event, DecisionRecord)]
    decides_again = replayed_targets(unit, policy, initial_s, events) == decided
    seconds = [np.array([one.execution_s for one in log.references]) for log in read]
    references_s = dict(zip(devices, seconds, strict=True))
    gaps_s = [_engine_gaps_s(log.requests, "server" if number else devices[0]) for number, log in enumerate(read)]
    handover_s, turnaround_s = zip(*gaps_s, strict=True)
    return LiveRun(unit, policy, requests, load, handover_s, turnaround_s, references_s, decides_again)


def _compared(
    cell: tuple[str, str], why_void: Mapping[LiveRun, str], predicted: Mapping[tuple[str, str, int], Figures]
) -> Comparison:
    """Compare the runs of a network and policy. `why_void`: of every run, empty if it counts."""
    runs = [run for run in why_void if (run.unit.network, run.policy) == cell]
    voids = [why_void[run] for run in runs]
    kept = [run for run in runs if not why_void[run]] or runs
    steady = [run for run, why in why_void.items() if not why]
    live = [run.figures for run in kept]
    structural = [structural_figures(run, [other for other in steady if other is not run]) for run in kept]
    table = np.array([astuple(figures) for figures in live])
    ranges = np.ptp(table, axis=0) / np.array([*table.mean(axis=0)[:3], 1.0]) if len(live) > 1 else np.full(4, np.nan)
    return Comparison(
        *cell,
        live=Figures.mean_of(live),
        spread=Figures(*ranges.tolist()),
        structural=Figures.mean_of(structural),
        predicted=Figures.mean_of([predicted[(*cell, run.unit.replication)] for run in kept]),
        live_means_s=tuple(figures.mean_s for figures in live),
        voids=tuple(filter(None, voids)),
        void=all(voids),
    )


def _reason_void(run: LiveRun, usual_s: Mapping[str, float]) -> str:
    """Return why a run does not count; empty if it does. `usual_s`: by device, the median of its reference executions."""
    if not run.decides_again:
        return "the policy decides otherwise on what the gateway had measured"
    answered = float(run.valid.mean())
    if answered < ANSWERED:
        return f"{100 * (1 - answered):.1f} % of the requests were not answered where they were sent"
    for number, target in enumerate(run.unit.case.targets):
        seconds = run.references_s[target.device]
        if seconds.size and (run.log.target == number).any():
            slowdown = float(np.quantile(seconds, 0.9)) / usual_s[target.device]
            if slowdown > UNSTEADY:
                return f"reference executions of {target.device} took {slowdown:.1f} times as long as usual"
    return ""


def structural_figures(run: LiveRun, others: Sequence[LiveRun]) -> Figures:
    """Simulate a run with its own executions and targets, and the mean overheads of others, or its own for lack of such.

    In a batch an execution depends on its company. There each sentence is slower or faster than the costs of batches say by the
    factor with which it takes as long as it did live; `BATCH_STEPS` simulations find the factors.
    """
    requests, log, valid, count = run.requests, run.log, run.valid, len(run.log.target)
    unit, target = _with_varying_batches(run.unit), np.maximum(log.target, 0)
    numbers = range(len(unit.case.targets))
    batching = {number: one.decoding for number, one in enumerate(unit.case.targets) if one.decoding is not None}
    overhead_s = np.zeros(count)
    for number in numbers:
        measured = [seconds for other in others if (seconds := other.overhead_s(number)).size]
        seconds = np.concatenate(measured or [run.overhead_s(number)])
        overhead_s[target == number] = seconds.mean() if seconds.size else 0.0
    up_s, down_s = run.link_s()
    live_s = np.nan_to_num(log.execution_s)
    execution_s = [np.where(target == number, live_s + run.turnaround_s[number], 0.0) for number in numbers]
    for number, decoding in batching.items():
        execution_s[number] = decoding.cost.solo_s(requests.src_len, requests.tgt_len)

    def decide_for(block: Block) -> Callable[[int, Sequence[float]], int]:
        return lambda in_block, delay_s: int(target[block.first + in_block])

    for step in range(BATCH_STEPS + 1 if batching else 1):
        columns = Requests(
            src_len=requests.src_len,
            tgt_len=requests.tgt_len,
            execution_s=tuple(execution_s),
            uplink_s=(up_s,) * (len(numbers) - 1),
            downlink_s=(down_s,) * (len(numbers) - 1),
            arrival_s=requests.offsets_s,
            node=np.zeros(count, np.int32),
        )
        beliefs = Beliefs(lambda decider, target: TransferEstimate(0.0))
        local, *remote = kinds(unit)
        trail = simulate(World(columns, remote, [local]), PolicySetup(decide_for, [beliefs]))
        alone_s = np.choose(target, execution_s)
        done_s = (
            alone_s if trail.execution_s is None else np.where(np.isnan(trail.execution_s[:]), alone_s, trail.execution_s[:])
        )
        for number in batching if step < BATCH_STEPS else ():
            there = valid & (target == number)
            execution_s[number][there] *= np.clip(live_s[there] / done_s[there], 1.0 / LARGEST_STEP, LARGEST_STEP)
    latency_s = np.array(trail.queue_s[:]) + done_s + up_s + down_s + overhead_s
    return Figures.of(latency_s[valid], target[valid])


def _with_varying_batches(unit: Unit) -> Unit:
    varying = [
        one if one.decoding is None else replace(one, decoding=replace(one.decoding, varies=True)) for one in unit.case.targets
    ]
    return replace(unit, case=replace(unit.case, targets=tuple(varying)))


def _ranked(network: str, rows: Sequence[Comparison]) -> Ranking:
    rows = [row for row in rows if not row.void and len(row.live_means_s) > 1]
    live = sorted(rows, key=lambda row: row.live.mean_s)
    inverted = tuple(
        (better.policy, worse.policy)
        for better, worse in combinations(live, 2)
        if max(better.live_means_s) < min(worse.live_means_s) and better.predicted.mean_s > worse.predicted.mean_s
    )
    predicted = sorted(rows, key=lambda row: row.predicted.mean_s)
    return Ranking(network, tuple(row.policy for row in live), tuple(row.policy for row in predicted), inverted)
