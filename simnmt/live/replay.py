"""Replay a scenario's workload against a live gateway or server, and make a result of what was measured.

Requests come by the workload's own arrivals. In an open loop, latency counts from the scheduled arrival, so that a service that
stalls also delays the requests that should have been sent meanwhile. Only the device that executed a request has known times;
those of the others are NaN, so that nothing is said of misroutes or of the best device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.draws import learn
from simnmt.experiment.notes import fits
from simnmt.experiment.run import cell_of
from simnmt.experiment.units import UnitResult
from simnmt.live.decider import live_unit
from simnmt.live.deployment import ReplayedRequests, expected_hash, replayed_requests, routes_of
from simnmt.live.front import outcome_of
from simnmt.live.replay_text import live_notes, live_warnings
from simnmt.network.series import RttSeries
from simnmt.results.live_log import LIVE_OUTCOMES
from simnmt.results.requests import FALLBACK, RequestLog, Requests, Trail, Truth
from simnmt.results.run import LiveMeasurement, Run
from simnmt.results.stability import with_stability
from simnmt.results.summary import Device, Numbers, measure, replicated, rows, with_deadlines_of_all, with_regret
from simnmt.service.client import TranslationClient
from simnmt.service.delays import DelayedTransport
from simnmt.service.event_loop import run_precisely
from simnmt.service.load import Load, LoadLog, send_load
from simnmt.service.messages import FORCED_LENGTH, ServiceError

LIVE = "live"
"""Name of the policy in the result if the scenario does not have the service's."""

FOREIGN_REMEDY = "put a gateway before a service of others: simnmt live gateway SCENARIO --policy NAME --local-server URL"


class ReplayError(InputError):
    """A service that the scenario's requests cannot be sent to."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Where and how a workload is replayed."""

    url: str
    token: str = ""
    ca_file: Path | None = None
    """Certificates of the authorities that vouch for the service; None: those of the system."""
    source: str = "de"
    """Code of the language that is translated."""
    target: str = "en"
    texts: Sequence[str] | None = None
    """Texts that are sent in turn; None: texts of random words, with the workload's lengths on both sides."""
    workload: str | None = None
    """None: the scenario's first."""
    device: str | None = None
    """The device that the service is, if it is a server; None: found by the hash of its engine."""
    timeout_s: float = 60.0
    """Time within which a request must be answered."""
    connections: int = 500
    """Most requests under way; further ones wait at the load generator, and their latency counts on."""
    delays: bool = False
    """Whether the load generator sleeps the delays of the scenario's network between the end nodes and the service."""

    def __post_init__(self) -> None:
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise ReplayError("--gateway holds a name or a password", remedy="give the token by --token-file")

    def client(self, transport: DelayedTransport | None = None) -> TranslationClient:
        """Return a client of the service. Raises `InputError` for an unusable address."""
        return TranslationClient(
            self.url,
            token=self.token,
            connections=self.connections,
            timeout_s=self.timeout_s,
            ca_file=self.ca_file,
            transport=transport,
        )


@dataclass(frozen=True, slots=True)
class _Served:
    """What the service says of itself, in terms of the scenario."""

    service: str
    policy: str
    """Its name in the result."""
    target: int | None
    """The only device that executes requests; None if a gateway decides."""
    remarks: tuple[str, ...] = ()
    slept_by: tuple[str, ...] = ()
    """What sleeps the delays of the scenario's network."""


def replay_plan(
    plan: RunPlan,
    settings: ReplaySettings,
    *,
    announce: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Run:
    """Send the requests of a workload to a service, replication after replication, and return what was measured.

    Args:
        plan: the scenario with its inputs.
        settings: where and how.
        announce: called with a line about what is sent before each replication.
        progress: called with the numbers of requests that have ended and of all.

    Raises `ReplayError` for a service that cannot be reached, refuses the requests, or answers none of a replication.
    """
    unit, scenario = live_unit(plan, settings.workload), plan.scenario
    served = _served(run_precisely(_health(settings)), unit, settings)
    total, ended = scenario.requests * scenario.replications, 0

    def count() -> None:
        nonlocal ended
        ended += 1
        progress(ended, total)

    replays: list[_Replay] = []
    for replication in range(scenario.replications):
        unit_of = replace(unit, replication=replication)
        requests = replayed_requests(unit_of)
        if settings.texts is not None:
            texts = [settings.texts[number % len(settings.texts)] for number in range(len(requests.texts))]
            requests = replace(requests, texts=texts)
        turn = f", replication {replication + 1} of {scenario.replications}" if scenario.replications > 1 else ""
        announce(f"sending {scenario.requests:,} requests to {settings.url} ({served.policy}){turn}")
        begun = datetime.now(timezone.utc)
        transport = _transport(unit_of, served) if settings.delays else None
        log = run_precisely(send(requests, settings, count, transport))
        truth, trail = measured_columns(unit_of, requests, log, target=served.target, texts=settings.texts is not None)
        replays.append(_Replay(unit_of, requests, log, begun, trail, _result(unit_of, served, log, truth, trail)))
    return _run_result(plan, settings, served, replays)


async def _health(settings: ReplaySettings) -> dict[str, Any]:
    async with settings.client() as client:
        try:
            facts, _ = await client.health()
        except ServiceError as error:
            remedy = f"correct --gateway; {FOREIGN_REMEDY}"
            if error.status in (401, 403):
                remedy = "give its token by --token-file"
            raise ReplayError(error.message, remedy=remedy) from None
    return dict(facts)


def _served(facts: Mapping[str, Any], unit: Unit, settings: ReplaySettings) -> _Served:
    """Return what serves. Raises `ReplayError` for a service that is not of this scenario."""
    url, targets = settings.url, unit.case.targets
    devices = [target.device for target in targets]
    if facts.get("needs_token") and not settings.token:
        raise ReplayError(f"{url} asks for a token", remedy="give --token-file")
    service, running = facts.get("service"), facts.get("engine_hash")
    slept_by = ("load generator",) if settings.delays else ()
    if service == "gateway":
        servers = facts.get("servers")
        behind = [str(name) for name in servers] if isinstance(servers, dict) else []
        if sorted(behind) != sorted(devices[1:]):
            what = f"{url} is before {format_list(behind) or 'no server'}, the scenario's devices are {format_list(devices)}"
            raise ReplayError(what, remedy="name the scenario that the gateway was started with")
        if settings.device is not None:
            raise ReplayError(f"{url} is a gateway, which states the device of each request", remedy="omit --device")
        policy, remarks = str(facts.get("policy")), tuple[str, ...]()
        if policy not in unit.scenario.policies:
            remarks = (f"The scenario has no policy {policy}, by which the gateway decides: its results stand under {LIVE}.",)
            policy = LIVE
        slept_by = (*slept_by, "gateway") if facts.get("delays") else slept_by
        return _Served("gateway", policy, None, (*remarks, *_other_engine(unit, 0, running)), slept_by)
    if service != "server":
        raise ReplayError(f"{url} is no gateway or server of simnmt", remedy=FOREIGN_REMEDY)
    if settings.device is not None and settings.device not in devices:
        raise ReplayError(f"no device {settings.device}", remedy=f"one of {', '.join(devices)}")
    alike = [number for number, target in enumerate(targets) if running is not None and expected_hash(target) == running]
    known = [devices.index(settings.device)] if settings.device else [0] if len(devices) == 1 else alike
    if len(known) != 1:
        raise ReplayError(
            f"{url} is a server, of which device is not clear", remedy=f"give --device, one of {', '.join(devices)}"
        )
    remark = f"No policy decided: every request went to the server of {devices[known[0]]}."
    return _Served("server", LIVE, known[0], (remark, *_other_engine(unit, known[0], running)), slept_by)


def _other_engine(unit: Unit, number: int, running: object) -> tuple[str, ...]:
    target = unit.case.targets[number]
    expected = expected_hash(target)
    if expected is None:
        return (f"The profile of {target.device} names no engine: that the service runs this scenario's is not known.",)
    if expected == running:
        return ()
    return (f"The service runs engine {running}, the profile of {target.device} is of engine {expected}.",)


def _transport(unit: Unit, served: _Served) -> DelayedTransport:
    """Return the delays from an end node to the service. Raises `ReplayError` for a scenario without a link between them."""
    links = routes_of(unit)
    hops = [*filter(None, [links.access]), *links.hops[: served.target or 0]]
    if not hops:
        what = f"network {unit.network} has no link between the end nodes and the service"
        raise ReplayError(what, remedy="give --delays to the gateway, which has the links to its servers")
    return DelayedTransport(hops)


async def send(
    requests: ReplayedRequests,
    settings: ReplaySettings,
    ended: Callable[[], None] = lambda: None,
    *transports: DelayedTransport | None,
) -> LoadLog:
    """Send requests to a service, after a few that open connections; series of delays begin with the requests that count.

    Raises `ReplayError` if the first requests are not answered. `transports`: the client's own, and further ones.
    """
    forced = None if settings.texts is not None else requests.tgt_len.tolist()
    clients = requests.clients
    load = Load(
        requests.texts,
        settings.source,
        settings.target,
        forced,
        None if requests.offsets_s is None else requests.offsets_s.tolist(),
        1 if clients is None else clients.count,
        None if clients is None else clients.think_s.tolist(),
    )
    async with settings.client(transports[0] if transports else None) as client:
        first = await send_load(load.warm_up(), client, timeout_s=settings.timeout_s)
        if not first.answered.any():
            remedy = "see the service's log"
            if forced is not None and FORCED_LENGTH in first.fault:
                remedy = "start the service with --forced-lengths, or give --text FILE"
            raise ReplayError(f"{settings.url} answers no request: {first.fault}", remedy=remedy)
        for transport in filter(None, transports):
            transport.begin_s = time.monotonic()
        return await send_load(load, client, timeout_s=settings.timeout_s, ended=ended)


@dataclass(frozen=True, slots=True)
class _Replay:
    """One replication."""

    unit: Unit
    requests: ReplayedRequests
    log: LoadLog
    begun: datetime
    trail: Trail
    result: UnitResult


def live_devices(unit: Unit) -> list[Device]:
    """Return the devices of a unit as a live replay sees them: a batch is as many workers, and a streamed model is not seen."""
    parts = unit.scenario.devices
    return [
        Device(
            name,
            unit.scenario.count_of(name, unit.case.name),
            part.workers if part.batching is None else part.batching.size,
        )
        for name, part in parts.items()
    ]


def _result(unit: Unit, served: _Served, log: LoadLog, truth: Truth, trail: Trail) -> UnitResult:
    """Return a replication's measurements as the result of a unit. Raises `ReplayError` if no request was answered."""
    learnt = learn(unit)
    answered = RequestLog.of(truth, trail).answered
    if not len(answered["request_id"]):
        raise ReplayError(f"no request was answered: {log.fault}", remedy="see the service's log")
    criteria = unit.scenario.criteria_of(unit.case.name)
    measured = measure(answered, None, live_devices(unit), unit.case.arrivals.discipline, criteria=criteria)
    numbers: Numbers = {name: None if value is None or isnan(value) else value for name, value in measured.items()}
    if np.isnan(log.tgt_len_predicted).all():
        numbers["mean_estimate_age_s"] = None
    for device in live_devices(unit):
        if device.servers > 1:  # which box it was is not stated
            numbers[f"{device.name}_busiest_load"] = None
    outcome = trail.outcome
    assert outcome is not None
    answered_share = float((outcome[:] <= FALLBACK).mean())
    numbers = with_deadlines_of_all(numbers, answered_share) | {
        "answered_share": answered_share,
        "fallback_share": float((outcome[:] == FALLBACK).mean()),
        "rtt_pace_s": None,
    }
    first = unit.replication == 0
    place = unit.case.name, unit.network, served.policy
    return UnitResult(
        numbers={place: numbers},
        best_offloaded_share=np.nan,
        mean_transfer_s=np.nan,
        learnt=learnt,
        gap_totals_s={},
        engines={},
        truth=truth if first else None,
        trails={served.policy: trail} if first else {},
        live=True,
    )


def measured_columns(
    unit: Unit, requests: ReplayedRequests, log: LoadLog, *, target: int | None = None, texts: bool = False
) -> tuple[Truth, Trail]:
    """Return the measurements of a replay as the columns of a run; NaN where nothing was measured.

    Args:
        unit: the workload with its devices.
        requests: what was sent.
        log: what became of it.
        target: the device that executed all requests; None if the gateway stated it.
        texts: True if own texts were sent, so that lengths are those that the service counted.
    """
    devices, count = len(unit.case.targets), len(log.due_s)
    stated = np.maximum(log.target, 0) if target is None else np.full(count, target)
    outcome = _outcomes(log)
    # An answer without times, or of a device that the scenario does not have, is none.
    outcome[(outcome <= FALLBACK) & (np.isnan(log.total_s) | (stated >= devices))] = LIVE_OUTCOMES.index("failed")
    done = outcome <= FALLBACK
    taken = np.where(done, stated, -1).astype(np.int8)
    execution_s, queue_s = (np.where(done, column, np.nan) for column in (log.execution_s, log.queue_s))
    transfer_s = np.where(done, log.latency_s, np.nan) - queue_s - execution_s
    src_end, tgt_end = end_tokens(unit.case.profiles[0].length_unit.end_of_sentence)
    lengths = (log.src_len * done, log.tgt_len * done) if texts else (requests.src_len, requests.tgt_len)
    src_len, tgt_len = (np.maximum(length - (1 - end), 0) for length, end in zip(lengths, (src_end, tgt_end), strict=True))
    predicted = np.full(int(src_len.max(initial=0)) + 1, np.nan)
    known = done & np.isfinite(log.tgt_len_predicted)
    predicted[src_len[known]] = log.tgt_len_predicted[known]
    clients = requests.clients
    arrival_s = log.due_s - log.begin_s
    truth: Truth = Requests(
        src_len=src_len,
        tgt_len=tgt_len,
        execution_s=tuple(np.where(taken == number, execution_s, np.nan) for number in range(devices)),
        transfer_s=tuple(np.where(taken == number, transfer_s, np.nan) for number in range(devices)),
        node=requests.node if clients is None else (log.client % clients.nodes).astype(np.int32),
        rtt_time_s=arrival_s,
    )
    columns: dict[str, NDArray[Any]] = {
        "arrival_s": arrival_s,
        "target": taken,
        "server": np.zeros(count, np.int32),
        "queue_s": queue_s,
        "estimate_s": log.estimate_s,
        "estimate_age_s": log.age_s,
        "outcome": outcome,
    }
    return truth, Trail(columns, tgt_len_by_src_len=predicted)


def _outcomes(log: LoadLog) -> NDArray[np.int8]:
    """Return how each request ended, as indices of `LIVE_OUTCOMES`."""
    outcome = np.where(log.fell_back, FALLBACK, 0).astype(np.int8)
    for status in np.unique(log.status[~log.answered]).tolist():
        outcome[log.status == status] = LIVE_OUTCOMES.index(outcome_of(ServiceError(status, "")))
    return outcome


def _run_result(plan: RunPlan, settings: ReplaySettings, served: _Served, replays: Sequence[_Replay]) -> Run:
    scenario, first = plan.scenario, replays[0]
    case, learnt = first.unit.case, first.result.learnt
    place = case.name, first.unit.network, served.policy
    numbers = with_regret({place: [one.result.numbers[place] for one in replays]}, None)
    table = rows(numbers, scenario.requests, metrics=scenario.measured_metrics)
    judged = [device for device in live_devices(first.unit) if device.servers == 1]
    table = with_stability(table, numbers, {case.name: judged} if case.arrivals.discipline == "open" else {})
    cell = cell_of(first.unit, first.result)
    cell = replace(cell, devices=tuple(live_devices(first.unit)), series=_series(first), planned=())
    live = _measurement(settings, served, replays)
    means = {} if settings.texts is not None else _token_means(replays)
    warnings = [f"{case.name}: {warning}" for warning in case.warnings]
    warnings += live_warnings(live, settings.timeout_s, means, settings.connections)
    texts = None if settings.texts is None else len(settings.texts)
    fault = next((one.log.fault for one in replays if one.log.fault), "")
    notes = live_notes(first.unit, live, texts=texts, remarks=served.remarks, slept_by=served.slept_by, fault=fault)
    return Run(
        name=scenario.name,
        seed=scenario.seed,
        summary_rows=table,
        comparisons=[],
        fits=list(fits(case, learnt)),
        cells=[cell],
        notes=[*notes, *(f"{warning}." for warning in warnings)],
        warnings=warnings,
        replicated=replicated(numbers, scenario.measured_metrics),
        scenario=scenario.model_dump(mode="json"),
        live=live,
    )


def _measurement(settings: ReplaySettings, served: _Served, replays: Sequence[_Replay]) -> LiveMeasurement:
    outcomes = np.concatenate([one.trail.outcome[:] for one in replays if one.trail.outcome is not None])
    lateness_s = np.concatenate([one.log.lateness_s for one in replays])
    p50_s, p99_s = np.quantile(lateness_s, (0.5, 0.99)).tolist()
    return LiveMeasurement(
        url=settings.url,
        service=served.service,
        begun=replays[0].begun.isoformat(timespec="seconds"),
        ended=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        outcomes={name: int((outcomes == number).sum()) for number, name in enumerate(LIVE_OUTCOMES)},
        lateness_ms={"p50": 1e3 * p50_s, "p99": 1e3 * p99_s, "max": 1e3 * float(lateness_s.max())},
        under_way=max(_most_under_way(one.log) for one in replays),
        texts_digest=None if settings.texts is None else sha256("\n".join(settings.texts).encode()).hexdigest(),
    )


def _most_under_way(log: LoadLog) -> int:
    """Return the most requests that were sent and not yet answered."""
    answered = log.answered
    moments_s = np.concatenate([log.received_s[answered], log.sent_s[answered]])
    steps = np.repeat([-1, 1], int(answered.sum()))
    return int(np.cumsum(steps[np.argsort(moments_s, kind="stable")]).max(initial=0))


def _series(replay: _Replay) -> RttSeries:
    """Return the measured transfer times to the last device over the time of the replay; the scenario's series without any."""
    truth, (*_, last) = replay.result.truth, replay.unit.case.targets
    assert truth is not None
    transfer_s, time_s = truth.transfer_s[-1][:], replay.log.due_s - replay.log.begin_s
    known = np.flatnonzero(transfer_s > 0.0)
    time_s, kept = np.unique(time_s[known], return_index=True)
    if len(replay.unit.case.targets) == 1 or not len(kept):
        return replay.unit.links.link.rtt
    transfer_s = transfer_s[known][kept]
    if time_s[0] > 0.0:
        time_s, transfer_s = np.append(0.0, time_s), np.append(transfer_s[0], transfer_s)
    source = f"latency less queue and execution of the requests that {last.device} executed"
    return RttSeries(f"live transfer to {last.device}", "measured", source, time_s, transfer_s)


def _token_means(replays: Sequence[_Replay]) -> dict[str, tuple[float, float]]:
    """Return by side the mean tokens of requests as sent or asked for, and as the service counted them."""
    wanted = [np.concatenate([getattr(one.requests, name) for one in replays]) for name in ("src_len", "tgt_len")]
    counted = [np.concatenate([getattr(one.log, name) for one in replays]) for name in ("src_len", "tgt_len")]
    known = counted[0] > 0
    if not known.any():
        return {}
    means = [(float(want[known].mean()), float(count[known].mean())) for want, count in zip(wanted, counted, strict=True)]
    return dict(zip(("source", "target"), means, strict=True))
