"""The live runs of a validation: the gateways of a scenario's sites before shared servers, all on this box.

Load generator, gateways and servers run in this process, each engine in one of its own; delays of the network are slept. A
device may be a service that runs already: behind the gateways, or alone, and then the load generator asks it directly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import product
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base import random_streams
from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError, SimnmtError
from simnmt.experiment.cases import RunPlan, Unit, mixed_unit
from simnmt.experiment.routes import routes_of
from simnmt.experiment.targets import Target
from simnmt.live.decider import deployable_policy, live_unit
from simnmt.live.deployment import (
    ReplayedRequests,
    Texts,
    engine_settings,
    holds_models,
    model_engines,
    replayed_requests,
    target_of,
)
from simnmt.live.engine import EngineSettings
from simnmt.live.engine_process import EngineProcess
from simnmt.live.gateway import GatewaySettings, LiveGateway, with_classes
from simnmt.live.model_engines import ModelEngines
from simnmt.live.replay import ReplaySettings, send
from simnmt.live.server import FrontSettings, LiveServer
from simnmt.live.service_engine import ServiceEngine
from simnmt.results.live_log import RequestRecord, read_live_log
from simnmt.service.apis import Api
from simnmt.service.client import DelayedTransport
from simnmt.service.load import LoadLog

Progress = Callable[[str], None]
ValidatedEngine = EngineProcess | ModelEngines | ServiceEngine
FIGURES = ("mean_s", "p50_s", "p95_s", "offloaded_share", "hit_share", "first_token_mean_s", "first_token_p95_s")
"""Names of the figures of one run, or of their means over runs; shape (7,), NaN where one is not known."""
SHARES = slice(3, 5)
"""The figures that are shares."""
REFERENCE_EVERY_S = 1.0
"""Time between the reference executions of an idle engine."""
DE_EN = ("de", "en")
"""Languages of services that were not measured with others."""
IDLE_S = 0.02
"""Time without an execution after which an engine surely was idle, and longer than any turnaround."""
REFERENCES = 10
"""Reference requests to a running service before each run, and after it."""
MOST_LONGER = 0.02
"""Relative difference of mean answer lengths from those of the workload, which predictions assume, above which a message is
printed."""
USUAL_S = 3e-4
"""Handover and turnaround where none was measured."""


def errors_of(simulated: Floats, live: Floats) -> Floats:
    """Return the errors of `FIGURES`: relative, and the differences of the shares."""
    errors = simulated / np.where(live == 0.0, nan, live) - 1.0
    errors[SHARES] = (simulated - live)[SHARES]
    return errors


def gateways_of(unit: Unit) -> tuple[Unit, ...]:
    """Return what each gateway serves, in the order of the sites."""
    if len(unit.parts) == 1:
        return (replace(unit.parts[0], site=None),)  # a single site is as a scenario without
    return unit.parts


@dataclass(frozen=True, slots=True)
class Box:
    """A box that executes requests: the gateway of a site, or a device behind all gateways."""

    name: str
    """The device, with the site of a gateway."""
    number: int
    """Number of its target."""
    target: Target
    gateway: int | None
    """Number of the gateway that it is; None behind."""


def boxes_of(unit: Unit) -> list[Box]:
    """Return the boxes of a unit: the gateways, then the devices behind."""
    gateways, boxes = gateways_of(unit), list[Box]()
    for number, gateway in enumerate(gateways):
        target = gateway.case.targets[0]
        name = target.device if gateway.site is None else f"{target.device} at {gateway.site_name}"
        boxes.append(Box(name, 0, target, number))
    behind = enumerate(gateways[0].case.targets[1:], start=1)
    return boxes + [Box(target.device, number, target, None) for number, target in behind]


@dataclass(frozen=True, slots=True, eq=False)
class LiveRun:
    """One live run of a policy."""

    unit: Unit
    policy: str
    requests: ReplayedRequests
    log: LoadLog
    handover_s: tuple[float, ...]
    """Usual time at each box from sending a sentence to an idle engine to the begin of its execution."""
    turnaround_s: tuple[float, ...]
    """Usual time at each box from the end of an execution to the begin of the next one that waits."""
    references_s: tuple[Floats, ...]
    """Seconds of the reference executions of each box, of a running service those of the reference requests."""
    states_executions: bool = True
    """Whether the boxes state executions that a simulation can charge: no foreign service does, and none with slots."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Requests that were answered at the first try, where the policy sent them."""
        is_valid: NDArray[np.bool_] = self.log.answered & ~self.log.fell_back & (self.log.tries == 1)
        return is_valid

    @property
    def target(self) -> NDArray[np.int64]:
        """The target of each request; 0 if none answered."""
        return np.maximum(self.log.target, 0)

    @property
    def box(self) -> NDArray[np.int64]:
        """Number of the box of each request's target, in the order of `boxes_of`."""
        return np.where(self.target == 0, self.requests.gateway, self.target + len(gateways_of(self.unit)) - 1)

    @property
    def live_columns(self) -> tuple[Floats, NDArray[np.int64], Floats]:
        """The live latencies, answers of caches, and latencies of the first tokens."""
        return self.log.latency_s, self.log.hit, self.log.first_s - self.log.due_s

    def figures(
        self, latency_s: Floats, hit: NDArray[Any], first_s: Floats | None = None, *, gateway: int | None = None
    ) -> Floats:
        """Return the figures of the valid requests with such latencies and answers of caches, of one gateway or of all.

        `first_s`: latencies of the first tokens. Raises `SimnmtError` if no request is valid.
        """
        rows = self.valid if gateway is None else self.valid & (self.requests.gateway == gateway)
        if not rows.any():
            raise SimnmtError(f"a live run of {self.policy} answered no request as decided: {self.log.fault}")
        latency_s = latency_s[rows]
        shares = (self.log.target[rows] > 0).mean(), (hit[rows] > 0).mean()
        first_s = np.full(1, nan) if first_s is None else first_s[rows]
        firsts = first_s.mean(), np.quantile(first_s, 0.95)
        return np.array([latency_s.mean(), *np.quantile(latency_s, (0.5, 0.95)), *shares, *firsts])

    def link_s(self) -> tuple[Floats, Floats]:
        """Return the seconds that the network prescribes for each request on its way to its target and back."""
        requests, target = self.requests, self.target
        assert requests.offsets_s is not None
        up_s, down_s = np.zeros(len(target)), np.zeros(len(target))
        for number, unit in enumerate(gateways_of(self.unit)):
            rows = np.flatnonzero(requests.gateway == number)
            nothing_s, node = np.zeros(len(rows)), np.zeros(len(rows), np.int32)
            ways = routes_of(unit).ways(requests.offsets_s[rows], node, requests.src_len[rows], requests.tgt_len[rows])
            for way_s, side in ((up_s, ways.uplink_s), (down_s, ways.downlink_s)):
                way_s[rows] = np.choose(target[rows], [nothing_s, *side])
        return up_s, down_s

    @property
    def translated(self) -> NDArray[np.int64]:
        """For each request, itself, or if a cache answered it, the last one before it of its sentence that was translated."""
        rows, sentence = np.arange(len(self.target)), self.requests.sentence
        if sentence is None:
            return rows
        order = np.lexsort((sentence, self.requests.gateway))
        last, result = np.maximum.accumulate(np.where(self.log.hit[order] > 0, 0, rows)), np.empty_like(rows)
        result[order] = order[last]
        return result

    def overhead_s(self, box: int, hits: bool = False) -> Floats:
        """Return what the latency of each request of a box holds beside waiting, execution and links; `hits`: of those that the
        box answered from its cache instead."""
        log, there = self.log, self.valid & (self.box == box) & ((self.log.hit > 0) == hits)
        waiting_s = np.maximum(log.queue_s - self.handover_s[box], 0.0)
        overhead_s: Floats = (log.latency_s - log.deferred_s - waiting_s - log.execution_s - sum(self.link_s()))[there]
        return overhead_s


def _engine_gaps_s(requests: Sequence[RequestRecord], device: str) -> tuple[float, float]:
    """Return the usual handover to an idle engine and its usual turnaround, by the log of its own box.

    Between two executions of which the second waits, the engine sends an answer, and its front may use the same processor.
    """
    done = [one for one in requests if (one.device, one.outcome) == (device, "done")]
    times = [(one.decision_s, one.queue_s, one.execution_s) for one in done]
    times += [(one.decision_s, one.deferred_queue_s, one.deferred_exe_s) for one in requests if one.deferred_exe_s is not None]
    times_s = np.array(times, np.float64)
    decision_s, queue_s, execution_s = times_s.reshape(-1, 3).T
    begin_s = decision_s + queue_s
    order = np.argsort(begin_s)
    gap_s = begin_s[order][1:] - (begin_s + execution_s)[order][:-1]
    queue_s = queue_s[order][1:]
    handover_s = queue_s[gap_s > IDLE_S]
    usual_s = float(np.median(handover_s)) if handover_s.size else USUAL_S
    turnaround_s = gap_s[(queue_s > 2.0 * usual_s + 1e-3) & (gap_s >= 0.0) & (gap_s < IDLE_S)]
    return usual_s, float(np.median(turnaround_s)) if turnaround_s.size >= 3 else min(usual_s, USUAL_S)


def unit_at(plan: RunPlan, network: str, replication: int) -> Unit:
    """Return what is validated: the first workload, or all sites."""
    links, first = plan.networks[network], live_unit(plan)
    unit = replace(first, network=network, links=links, replication=replication, keeps_requests=False, site=None)
    return mixed_unit(plan, unit) if plan.sites else unit


def _refuse(is_wrong: bool, what: str, remedy: str) -> None:
    if is_wrong:
        raise InputError(what, remedy=remedy)


def check(
    plan: RunPlan, policies: Sequence[str], services: Collection[str], trained: Collection[str], *, has_text: bool = False
) -> None:
    """Raise `InputError` for a scenario that cannot run live on one box, and for policies that cannot be deployed.

    `services`: devices that are running services. The network to a single one is the real one. `trained`: those whose engines
    are given, or have trained weights; `has_text`: whether lines of a text are sent.
    """
    for name, site in ((site.name, site) for site in plan.sites):
        _refuse(not site.has_device, f"site {name} has no gateway", f"give sites.{name}.devices")
        what = f"site {name} has several workloads, and a live gateway serves one"
        _refuse(len(site.cases) > 1, what, f"name one in sites.{name}.workloads")
        copies = plan.scenario.sites[name].count
        _refuse(copies > 1, f"site {name} is several sites, and this is one gateway", f"set sites.{name}.count=1")
    is_apart = bool(plan.sites) and not plan.is_mixed
    _refuse(is_apart, "the sites share no devices, and here they do", "remove share_devices")
    for gateway in gateways_of(unit_at(plan, next(iter(plan.networks)), 0)):
        case = gateway.case
        first = case.targets[0].device
        for policy in policies:
            reads_logprob = deployable_policy(gateway, policy).reads_logprob
            what = f"policy {policy} reads log-probabilities of the model that was scored, and {first} has random weights"
            _refuse(reads_logprob and first not in trained, what, f"give --model {first}=FOLDER")
        what = f"workload {case.name} has scores, which are of its own sentences"
        _refuse(has_text and case.quality is not None, what, "leave --text out")
        what = f"workload {case.name} has no arrivals of its own, which a validation replays"
        _refuse(case.arrivals.discipline != "open", what, "give it such as arrivals: {kind: poisson, rate_rps: 5}")
        targets = case.targets
        is_direct, devices = targets[0].device in services, [target.device for target in targets]
        unknown = [name for name in services if name not in devices]
        _refuse(bool(unknown), f"no device {', '.join(unknown)}", f"name a device of {', '.join(devices)}")
        what = f"device {devices[0]} is a service with other devices behind it"
        _refuse(
            is_direct and len(devices) > 1, what, "let the gateway have an engine, or write a scenario of the service alone"
        )
        has_documents = gateway.scenario.workloads[case.name].documents is not None
        _refuse(is_direct and has_documents, "documents are sent to gateways", "leave documents out")
        has_access, what = routes_of(gateway).access is not None, "requests reach the first device over a link"
        has_access = has_access and not is_direct
        _refuse(has_access, what, "validate a scenario that begins at its gateway")
        what = "which models are in memory depends on earlier runs, so a validation keeps all of them there"
        _refuse(case.loads, what, "leave memory_gb out, or give evict: never")
        for device in devices:
            if device not in services:
                target_of(gateway, device)
            boxes = gateway.scenario.count_of(device, case.name)
            _refuse(boxes > 1, f"{device} is several boxes, and this is one", f"add --set devices.{device}.count=1")


def engines_of(
    plan: RunPlan,
    folder: Path,
    given: Mapping[str, EngineSettings],
    any_model: bool,
    services: Mapping[str, tuple[str, Api]],
    policies: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
) -> list[ValidatedEngine]:
    """Return the engines of all boxes, each box on a processor of its own if there are enough.

    `services`: address and API of the devices that are running services; `models`: folders with weights, by device. Engines
    that share a processor run no reference executions, which would slow the others down. Raises `InputError` for services of
    several pairs of languages.
    """
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    unit = unit_at(plan, next(iter(plan.networks)), 0)
    boxes, engines = boxes_of(unit), list[ValidatedEngine]()
    every_s = REFERENCE_EVERY_S if not allowed or len(boxes) <= len(allowed) else inf
    for number, box in enumerate(boxes):
        device = box.target.device
        cpus = (allowed[number % len(allowed)],) if allowed else ()
        if device in services:
            (url, api), endpoint = services[device], box.target.profile.endpoint
            pair = DE_EN if endpoint is None else (endpoint.source, endpoint.target)
            engines.append(ServiceEngine(url, api, box.target.profile, pair, timeout_s=60.0))
            continue
        place = folder / f"engine {number}"
        place.mkdir()
        if box.gateway is not None or not holds_models(plan, device):
            settings = given.get(device) or engine_settings(
                box.target, place, any_model, cpus=cpus, model=(models or {}).get(device)
            )
            settings = settings.with_classes(plan.scenario.max_wait_s)
            scored = box.gateway is not None and any(deployable_policy(unit.parts[0], name).reads_logprob for name in policies)
            engines.append(EngineProcess(replace(settings, reference_every_s=every_s, scored=scored)))
        elif device in given:
            settings = given[device].with_classes(plan.scenario.max_wait_s)
            engines.append(ModelEngines(dict.fromkeys(plan.cases, settings)))
        else:
            engines.append(model_engines(plan, device, place, {}, any_model, cpus=cpus))
    pairs = {engine.client.pair for engine in engines if isinstance(engine, ServiceEngine)}
    what = "the profiles of the services are of several pairs of languages"
    _refuse(len(pairs) > 1, what, "calibrate all of them with the same --source and --target")
    return engines


async def replayed_runs(
    plan: RunPlan,
    policies: Sequence[str],
    engines: Sequence[ValidatedEngine],
    folder: Path,
    progress: Progress,
    lines: Texts | None = None,
) -> list[LiveRun]:
    """Replay every policy on every network once a replication, in another order each time. `lines`: texts to send."""
    runs = list[LiveRun]()
    try:
        progress("loading the engines")
        for engine in engines:
            await engine.ready()
        for replication in range(plan.scenario.replications):
            cells = list(product(plan.networks, policies))
            order = random_streams.stream(plan.scenario.seed, replication, "order of live runs").permutation(len(cells))
            for network, policy in (cells[number] for number in order):
                progress(f"run {len(runs) + 1} of {plan.scenario.replications * len(cells)}: {policy} on {network}")
                place = folder / str(len(runs))
                place.mkdir()
                unit = unit_at(plan, network, replication)
                runs.append(await live_run(unit, policy, engines, place, progress, lines))
    finally:
        for engine in engines:
            await engine.close()
    return runs


async def live_run(
    unit: Unit,
    policy: str,
    engines: Sequence[ValidatedEngine],
    folder: Path,
    progress: Progress,
    lines: Texts | None = None,
) -> LiveRun:
    """Replay a unit under a policy, with reference requests to running services before and after."""
    requests, gateways, boxes = replayed_requests(unit, lines), gateways_of(unit), boxes_of(unit)
    has_models = any(isinstance(engine, ModelEngines) for engine in engines)
    services = [engine if isinstance(engine, ServiceEngine) else None for engine in engines]
    for running in filter(None, services):
        if requests.sentence is None:  # else a gateway's cache must know texts again
            requests = replace(requests, texts=[*map(running.unseen, requests.texts)])
    asked_s: list[list[Floats]] = [[await reference_requests(service, unit, lines)] if service else [] for service in services]
    pairs = [next((service.client.pair for service in services if service), DE_EN)] * len(gateways)
    if has_models:  # of the engines started here, only these differ by languages
        pairs = [(source, target) for source, target in (gateway.case.name.split("-") for gateway in gateways)]
    front = FrontSettings(forced_lengths=True, texts=100_000, deadline_s=120.0, waiting=100_000)
    behind = replace(front, pairs=list(dict.fromkeys(pairs)), classes=unit.scenario.ranked_classes)
    paths = [folder / f"{number}.jsonl" for number in range(len(boxes))]
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

        urls, apis = dict[str, str](), dict[str, Api]()
        for box, engine, of_box in zip(boxes, engines, options, strict=True):
            if isinstance(engine, ServiceEngine):
                urls[box.target.device], apis[box.target.device] = engine.client.url, engine.api
            elif box.gateway is None:
                most = unit.scenario.devices[box.target.device].refuses_above
                urls[box.target.device] = await url_of(LiveServer(engine, replace(behind, max_waiting=most), **of_box))
        replays, transports = list[ReplaySettings](), list[DelayedTransport]()
        for of_site, pair, engine, of_box in zip(gateways, pairs, engines, options, strict=False):
            if isinstance(engine, ServiceEngine):
                direct = ReplaySettings(engine.client.url, "", None, *engine.client.pair, timeout_s=180.0, connections=1_000)
                replays.append(replace(direct, connect=engine.connect))
                continue
            assert isinstance(engine, EngineProcess)
            most = of_site.scenario.devices[of_site.first_device].refuses_above
            at_site = with_classes(replace(front, pairs=[pair], max_waiting=most), of_site)
            settings = GatewaySettings(of_site, policy, urls, at_site, any_model=True, offload_s=60.0, delays=True, apis=apis)
            gateway = LiveGateway(settings, engine, **of_box)
            replays.append(ReplaySettings(await url_of(gateway), "", None, *pair, timeout_s=180.0, connections=1_000))
            transports += gateway.transports
        load = await send(requests, replays, transports=transports)
    if not requests.forced:
        lengths = {name: np.maximum(getattr(load, name), 1) for name in ("src_len", "tgt_len")}
        requests = replace(requests, **lengths)
    if isinstance(engines[0], ServiceEngine) and np.isnan(load.execution_s).all():  # forces no lengths: words are counted
        answered, asked = load.tgt_len[load.answered].mean(), requests.tgt_len[load.answered].mean()
        if boxes[0].target.profile.length_unit.tgt == "word" and abs(answered / asked - 1.0) > MOST_LONGER:
            progress(f"the answers have {answered - 1:.3g} words on average, but the workload's {asked - 1:.3g}")
    for seconds, service in zip(asked_s, services, strict=True):
        if service is not None:
            seconds.append(await reference_requests(service, unit, lines))
    logs = [read_live_log(path) for path in paths]
    references_s = tuple(
        np.concatenate(seconds) if seconds else np.array([one.execution_s for one in log.references])
        for seconds, log in zip(asked_s, logs, strict=True)
    )
    devices = ["server" if box.gateway is None else box.target.device for box in boxes]
    gaps_s = [_engine_gaps_s(log.requests, device) for log, device in zip(logs, devices, strict=True)]
    handover_s, turnaround_s = zip(*gaps_s, strict=True)
    has_slots = any(box.target.profile.slots is not None for box in boxes)
    # A gateway states 0 s for a service that states nothing.
    is_stated = bool((load.execution_s[load.answered & (load.hit == 0)] > 0.0).all()) and not has_slots
    return LiveRun(unit, policy, requests, load, handover_s, turnaround_s, references_s, is_stated)


async def reference_requests(service: ServiceEngine, unit: Unit, lines: Texts | None) -> Floats:
    """Return the seconds of requests of usual length to a service, one after another, the same for all runs of a scenario."""
    requests = replayed_requests(replace(unit, replication=0), lines)
    # Of the first requests, which are the same however many there are.
    src_len, steps = requests.src_len[: 4 * REFERENCES], int(np.median(requests.tgt_len[: 4 * REFERENCES]))
    usual = np.argsort(np.abs(src_len - np.median(src_len)), kind="stable")[:REFERENCES]
    return await service.references_s([requests.texts[row] for row in usual], steps)
