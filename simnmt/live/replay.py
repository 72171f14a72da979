"""Replay a scenario's workload against a live gateway, and make a result of what was measured.

Requests come by the workload's own arrivals. In an open loop, latency counts from the scheduled arrival, so that a service that
stalls also delays the requests that should have been sent meanwhile. Only the device that executed a request has known times;
those of the others are NaN, so that nothing is said of misroutes or of the best device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from hashlib import sha256
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.clients import clients_of, refused_tries_share
from simnmt.experiment.draws import learn
from simnmt.experiment.notes import fits
from simnmt.experiment.run import cell_of
from simnmt.experiment.targets import most_together
from simnmt.experiment.units import UnitResult
from simnmt.live.decider import live_unit
from simnmt.live.deployment import ReplayedRequests, expected_hash, replayed_requests
from simnmt.live.server import outcome_of, served_hash
from simnmt.network.series import RttSeries
from simnmt.results.columns import first_executions
from simnmt.results.live_log import LIVE_OUTCOMES
from simnmt.results.number_text import duration, percent
from simnmt.results.places import ALL, Place
from simnmt.results.requests import FALLBACK, GAVE_UP, REFUSED, RequestLog, Requests, Trail, Truth, were_answered
from simnmt.results.run import LiveMeasurement, Run
from simnmt.results.stability import with_stability
from simnmt.results.summary import Device, Numbers, measure, replicated, rows, with_deadlines_of_all
from simnmt.service.client import DelayedTransport, ServiceClient, TranslationClient
from simnmt.service.load import SOON_S, Load, LoadLog, run_precisely, send_load
from simnmt.service.messages import FORCED_LENGTH, ServiceError, TranslateRequest

MOST_UNANSWERED = 0.01
"""Share of unanswered requests above which latencies of the others are doubtful."""
WARM_UP = 3
"""Requests to each service before those that count."""
FOREIGN_REMEDY = "put a gateway before a service of others: simnmt live gateway SCENARIO --policy NAME --local-server URL"


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """Where and how a workload is replayed."""

    url: str
    token: str = ""
    ca_file: Path | None = None
    """Certificates of the authorities that vouch for the service; None: those of the system."""
    source: str = "de"
    target: str = "en"
    texts: Sequence[str] | None = None
    """Texts that are sent in turn; None: the sentences of a workload with scores, else texts of random words, with the
    workload's lengths on both sides."""
    workload: str | None = None
    timeout_s: float = 60.0
    connections: int = 500
    """Most requests under way; further ones wait at the load generator, and their latency counts on."""
    connect: Callable[..., ServiceClient] = TranslationClient
    """Makes a client of the service, given its address, the languages and how it is connected to."""

    def __post_init__(self) -> None:
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise InputError("--gateway holds a name or a password", remedy="give the token by --token-file")

    def client(self) -> ServiceClient:
        """Return a client of the service. Raises `InputError` for an unusable address."""
        connection: dict[str, Any] = {"connections": self.connections, "timeout_s": self.timeout_s}
        return self.connect(self.url, (self.source, self.target), token=self.token, ca_file=self.ca_file, **connection)


@dataclass(frozen=True, slots=True)
class _Replay:
    unit: Unit
    requests: ReplayedRequests
    log: LoadLog
    result: UnitResult


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

    Raises `InputError` for a service that cannot be reached, refuses the requests, or answers none of a replication.
    """
    if plan.sites:
        what = "a scenario with sites is not replayed: its requests are those of all sites together"
        raise InputError(what, remedy="write the site as a scenario without sites, with its part of the rate")
    unit, scenario = live_unit(plan, settings.workload), plan.scenario
    policy, remarks = _served(run_precisely(_health(settings)), unit, settings)
    total, ended = scenario.requests * scenario.replications, 0

    def count() -> None:
        nonlocal ended
        ended += 1
        progress(ended, total)

    replays: list[_Replay] = []
    begun = datetime.now(timezone.utc)
    for replication in range(scenario.replications):
        unit_of = replace(unit, replication=replication)
        requests = replayed_requests(unit_of)
        if settings.texts is not None:
            texts = [settings.texts[number % len(settings.texts)] for number in range(len(requests.texts))]
            requests = replace(requests, texts=texts, forced=False)
        turn = f", replication {replication + 1} of {scenario.replications}" if scenario.replications > 1 else ""
        announce(f"sending {scenario.requests:,} requests to {settings.url} ({policy}){turn}")
        log = run_precisely(send(requests, [settings], ended=count))
        truth, trail = _measured_columns(unit_of, requests, log)
        replays.append(_Replay(unit_of, requests, log, _result(unit_of, policy, log, truth, trail)))
    return _run_result(plan, settings, replays, begun, remarks)


async def _health(settings: ReplaySettings) -> Mapping[str, Any]:
    async with settings.client() as client:
        return await client.greet("--token-file", f"correct --gateway; {FOREIGN_REMEDY}")


def _served(facts: Mapping[str, Any], unit: Unit, settings: ReplaySettings) -> tuple[str, list[str]]:
    """Return the policy by which a gateway decides, and remarks on it. Raises `InputError` for another scenario's gateway."""
    url, (first, *others) = settings.url, unit.case.targets
    if facts.get("service") != "gateway":
        raise InputError(f"{url} is no gateway of simnmt", remedy=FOREIGN_REMEDY)
    servers, devices = facts.get("servers"), [target.device for target in others]
    behind = [str(name) for name in servers] if isinstance(servers, dict) else []
    if sorted(behind) != sorted(devices):
        what = (
            f"{url} is before {format_list(behind) or 'no server'}, the scenario's is before {format_list(devices) or 'none'}"
        )
        raise InputError(what, remedy="name the scenario that the gateway was started with")
    if (policy := str(facts.get("policy"))) not in unit.scenario.policies:
        what = f"the scenario has no policy {policy}, by which {url} decides"
        raise InputError(what, remedy="name the scenario that the gateway was started with")
    real = f"The network is the real one, whatever the scenario's network {unit.network} says."
    slept = f"Delays of the scenario's network {unit.network} were slept by the gateway."
    remarks = [slept if facts.get("delays") else real]
    expected, running = expected_hash(first), served_hash(facts, (settings.source, settings.target)) or None
    if expected not in (None, running):
        remarks.append(f"The gateway runs engine {running}, the profile of {first.device} is of engine {expected}.")
    return policy, remarks


async def send(
    requests: ReplayedRequests,
    services: Sequence[ReplaySettings],
    *,
    ended: Callable[[], None] = lambda: None,
    transports: Sequence[DelayedTransport] = (),
) -> LoadLog:
    """Send requests to services, to each after a few that open connections and fill caches.

    `services`: by number of the gateway that a request is for; `transports`: delays whose series begin with the requests that
    count. Raises `InputError` if the first requests to a service are not answered.
    """
    steps, clients, is_list = requests.tgt_len.tolist(), requests.clients, requests.document is not None
    first = np.arange(len(steps)) if requests.document is None else np.flatnonzero(np.diff(requests.document, prepend=-1))
    gateway, asked = requests.gateway[first], list[TranslateRequest]()
    for number, begin, end in zip(gateway.tolist(), first.tolist(), [*first[1:].tolist(), len(steps)], strict=True):
        service, texts = services[number], tuple(requests.texts[begin:end])
        forced = tuple(steps[begin:end]) if requests.forced else None
        asked.append(TranslateRequest(texts, is_list, service.source, service.target, "", forced, number=str(begin)))
    load = Load(
        asked,
        None if requests.offsets_s is None else requests.offsets_s[first].tolist(),
        1 if clients is None else clients.count,
        None if clients is None else clients.think_s.tolist(),
        gateway.tolist(),
        [column[first].tolist() for column in requests.pauses_s],
        None if requests.patience_s is None else requests.patience_s[first].tolist(),
    )
    timeout_s = services[0].timeout_s
    async with AsyncExitStack() as stack:
        connected: list[ServiceClient] = [await stack.enter_async_context(service.client()) for service in services]
        for number, (service, client) in enumerate(zip(services, connected, strict=True)):
            rows = np.flatnonzero(gateway == number)[:WARM_UP].tolist()
            others = [replace(asked[row], number="") for row in rows]
            if requests.forced:
                others = [replace(other, texts=_not_sent_later(other.texts)) for other in others]
            warm = await send_load(Load(others), [client], timeout_s=timeout_s)
            if not warm.answered.any():
                remedy = "see the service's log"
                if requests.forced and FORCED_LENGTH in warm.fault:
                    remedy = "start the service with --forced-lengths, or give --text FILE"
                raise InputError(f"{service.url} answers no request: {warm.fault}", remedy=remedy)
        begin_s = time.monotonic() + SOON_S
        for transport in transports:
            transport.begin_s = begin_s
        return await send_load(load, connected, timeout_s=timeout_s, ended=ended, begin_s=begin_s)


def _not_sent_later(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return texts of random words with another first word, so that a gateway's cache does not keep them before they count."""
    return tuple(" ".join(["first", *text.split()[1:]]) for text in texts)


def _live_devices(unit: Unit) -> list[Device]:
    """Return the devices of a unit as a live replay sees them: a batch is as many workers, and a streamed model is not seen."""
    workers = {target.device: most_together(target) or target.workers for target in unit.case.targets}
    return [Device(name, unit.scenario.count_of(name, unit.case.name), count) for name, count in workers.items()]


def _measured_columns(unit: Unit, requests: ReplayedRequests, log: LoadLog) -> tuple[Truth, Trail]:
    """Return the measurements of a replay as the columns of a run; NaN where nothing was measured.

    Lengths that were not forced are those that the gateway counted.
    """
    devices, count = len(unit.case.targets), len(log.due_s)
    stated = np.maximum(log.target, 0)
    outcome = np.where(log.fell_back, FALLBACK, 0).astype(np.int8)
    for status in np.unique(log.status[~log.answered]).tolist():
        outcome[log.status == status] = LIVE_OUTCOMES.index(outcome_of(ServiceError(status, "")))
    # An answer without times, or of a device that the scenario does not have, is none.
    outcome[were_answered(outcome) & (np.isnan(log.total_s) | (stated >= devices))] = LIVE_OUTCOMES.index("failed")
    done = were_answered(outcome)
    taken = np.where(done, stated, -1).astype(np.int8)
    execution_s, queue_s = (np.where(done, column, nan) for column in (log.execution_s, log.queue_s))
    retry_s = np.where(log.tries > 1, log.retry_s, 0.0)
    transfer_s = np.where(done, log.latency_s - retry_s - log.deferred_s, nan) - queue_s - execution_s
    ends = end_tokens(unit.case.profiles[0].length_unit.end_of_sentence)
    lengths = (requests.src_len, requests.tgt_len) if requests.forced else (log.src_len * done, log.tgt_len * done)
    src_len, tgt_len = (np.maximum(length - (1 - end), 0) for length, end in zip(lengths, ends, strict=True))
    predicted = np.full(int(src_len.max(initial=0)) + 1, nan)
    known = done & np.isfinite(log.tgt_len_predicted)
    predicted[src_len[known]] = log.tgt_len_predicted[known]
    clients = requests.clients
    arrival_s = log.due_s - log.begin_s
    truth: Truth = Requests(
        src_len=src_len,
        tgt_len=tgt_len,
        execution_s=tuple(np.where(taken == number, execution_s, nan) for number in range(devices)),
        transfer_s=tuple(np.where(taken == number, transfer_s, nan) for number in range(devices)),
        node=requests.node if clients is None else (log.client % clients.nodes).astype(np.int32),
        rtt_time_s=arrival_s,
    )
    cached = {} if unit.scenario.devices[unit.first_device].cache is None else {"hit": log.hit.astype(np.int8)}
    columns: dict[str, NDArray[Any]] = {
        "arrival_s": arrival_s,
        "target": taken,
        "server": np.zeros(count, np.int32),
        "queue_s": queue_s,
        "estimate_s": log.estimate_s,
        "estimate_age_s": log.age_s,
        "outcome": outcome,
        **cached,
    }
    if unit.decides_again:
        deferred = {"deferred_queue_s": np.nan_to_num(log.deferred_queue_s), "deferred_exe_s": log.deferred_exe_s}
        columns |= first_executions(deferred, np.zeros(count))
    if requests.document is not None:
        columns["document"] = requests.document
    if requests.pauses_s:
        columns |= {"tries": log.tries.astype(np.int8), "retry_s": retry_s}
    return truth, Trail(columns, tgt_len_by_src_len=predicted[None])


def _result(unit: Unit, policy: str, log: LoadLog, truth: Truth, trail: Trail) -> UnitResult:
    """Return a replication's measurements as the result of a unit. Raises `InputError` if no request was answered."""
    log_of_all = RequestLog.of(truth, trail)
    answered = log_of_all.answered
    if not len(answered["request_id"]):
        raise InputError(f"no request was answered: {log.fault}", remedy="see the service's log")
    devices, criteria = _live_devices(unit), unit.scenario.criteria_of(unit.case.name)
    has_documents = unit.scenario.workloads[unit.case.name].documents is not None
    documents = log_of_all if has_documents and "document" in trail.columns else None
    measured = measure(answered, None, devices, unit.case.arrivals.discipline, criteria=criteria, documents=documents)
    numbers: Numbers = {name: None if value is None or isnan(value) else value for name, value in measured.items()}
    if np.isnan(log.tgt_len_predicted).all():
        numbers["mean_estimate_age_s"] = None
    # Which of several boxes executed a request is not stated.
    numbers |= {f"{device.name}_busiest_load": None for device in devices if device.servers > 1}
    assert trail.outcome is not None
    outcome = np.array(trail.outcome)
    answered_share = float(were_answered(outcome).mean())
    numbers = with_deadlines_of_all(numbers, answered_share) | {
        "answered_share": answered_share,
        "refused_share": float((outcome == REFUSED).mean()),
        "gave_up_share": float((outcome == GAVE_UP).mean()),
        "fallback_share": float((outcome == FALLBACK).mean()),
        "rtt_pace_s": None,
    }
    if unit.scenario.refuses:
        numbers["refused_tries_share"] = refused_tries_share(outcome, trail.tries)
    return UnitResult(
        numbers={Place(ALL, unit.case.name, unit.network, policy): numbers},
        offloading={},
        learnts={(ALL, unit.case.name): learn(unit)},
        gap_totals_s={},
        engines={},
        truth=truth,
        trails={policy: trail},
        live=True,
    )


def _run_result(
    plan: RunPlan, settings: ReplaySettings, replays: Sequence[_Replay], begun: datetime, remarks: Sequence[str]
) -> Run:
    scenario, first = plan.scenario, replays[0]
    case, devices = first.unit.case, _live_devices(first.unit)
    (place,) = first.result.numbers
    numbers = {place: [one.result.numbers[place] for one in replays]}
    table = rows(numbers, scenario.requests, metrics=scenario.measured_metrics)
    judged = [device for device in devices if device.servers == 1]
    table = with_stability(table, numbers, {(ALL, case.name): judged} if case.arrivals.discipline == "open" else {})
    cell = replace(cell_of(first.unit, first.result), devices=tuple(devices), series=_series(first), planned=())
    outcomes = np.concatenate([np.array(trail.outcome) for one in replays for trail in one.result.trails.values()])
    lateness_ms = 1e3 * np.concatenate([one.log.lateness_s for one in replays])
    p50_ms, p99_ms = np.quantile(lateness_ms, (0.5, 0.99)).tolist()
    live = LiveMeasurement(
        url=settings.url,
        begun=begun.isoformat(timespec="seconds"),
        ended=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        outcomes={name: int((outcomes == number).sum()) for number, name in enumerate(LIVE_OUTCOMES)},
        lateness_ms={"p50": p50_ms, "p99": p99_ms, "max": float(lateness_ms.max())},
        texts_digest=None if settings.texts is None else sha256("\n".join(settings.texts).encode()).hexdigest(),
    )
    warnings = [f"{case.name}: {warning}" for warning in case.warnings]
    warnings += _warnings(live, settings, replays)
    return Run(
        name=scenario.name,
        seed=scenario.seed,
        summary_rows=table,
        comparisons=[],
        fits=list(fits(case, first.result.learnt)),
        cells=[cell],
        notes=[*_notes(live, settings, replays, remarks), *(f"{warning}." for warning in warnings)],
        warnings=warnings,
        replicated=replicated(numbers, scenario.measured_metrics),
        scenario=scenario.document(),
        live=live,
    )


def _series(replay: _Replay) -> RttSeries:
    """Return the measured transfer times to the last device over the time of the replay; the scenario's series without any."""
    truth, (*_, last) = replay.result.truth, replay.unit.case.targets
    assert truth is not None
    known = truth.transfer_s[-1][:] > 0.0
    time_s, kept = np.unique((replay.log.due_s - replay.log.begin_s)[known], return_index=True)
    if len(replay.unit.case.targets) == 1 or not len(kept):
        return replay.unit.links.link.rtt
    transfer_s = truth.transfer_s[-1][known][kept]
    if time_s[0] > 0.0:
        time_s, transfer_s = np.append(0.0, time_s), np.append(transfer_s[0], transfer_s)
    source = f"latency less queue and execution of the requests that {last.device} executed"
    return RttSeries(f"live transfer to {last.device}", "measured", source, time_s, transfer_s)


def _notes(
    live: LiveMeasurement, settings: ReplaySettings, replays: Sequence[_Replay], remarks: Sequence[str]
) -> Iterator[str]:
    """Yield what a reader needs to judge the numbers of a replay."""
    unit = replays[0].unit
    if unit.scenario.description:
        yield unit.scenario.description
    sent, lateness = sum(live.outcomes.values()), live.lateness_ms
    yield f"Measured live: {sent:,} requests to the gateway at {live.url}, from {live.begun} to {live.ended}."
    yield from remarks
    late = f"{lateness['p50']:.3f} ms late (p50; p99 {lateness['p99']:.3f}, max {lateness['max']:.3f})"
    yield f"The load generator sent requests {late}, which is part of the latencies."
    if others := [f"{count:,} {name}" for name, count in live.outcomes.items() if count and name != "done"]:
        fault = next((f"; the first fault: {one.log.fault}" for one in replays if one.log.fault), "")
        yield f"Outcomes beside done: {format_list(others)}{fault}."
    texts = "texts of random words, with the workload's lengths on both sides"
    if not replays[0].requests.forced:
        texts = "sentences that are scored" if settings.texts is None else f"{len(settings.texts):,} own texts"
    yield f"{unit.case.name}: {texts}; {unit.case.arrivals.account}."
    if ignored := [name for name in unit.scenario.workloads if name != unit.case.name]:
        yield f"Only the workload {unit.case.name} was replayed, not {format_list(ignored)}."


def _warnings(live: LiveMeasurement, settings: ReplaySettings, replays: Sequence[_Replay]) -> Iterator[str]:
    """Yield what makes the numbers of a replay doubtful."""
    sent, unit = sum(live.outcomes.values()), replays[0].unit
    within = duration(min(settings.timeout_s, clients_of(unit).timeout_s))
    kinds = {"refused": "refused (429 or 503)", "timeout": f"not answered within {within}", "failed": "failed"}
    unanswered = {what: live.outcomes[name] for name, what in kinds.items() if live.outcomes[name]}
    if (count := sum(unanswered.values())) > MOST_UNANSWERED * sent:
        parts = format_list([f"{number:,} {what}" for what, number in unanswered.items()])
        yield f"{percent(count / sent)} of the requests are left out: {parts}"
    if live.late_ms is not None:
        yield f"the load generator itself was {live.late_ms:.1f} ms late at p99: run it on a processor or machine of its own"
    for side in ("src_len", "tgt_len") if replays[0].requests.forced else ():
        pairs = [(getattr(one.requests, side), getattr(one.log, side)) for one in replays]
        wanted, counted = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
        wanted, counted = wanted[counted > 0], counted[counted > 0]
        if counted.size and abs(counted.mean() - wanted.mean()) > 0.01 * wanted.mean() + 1.0:
            means = f"{counted.mean():.1f} as {side} of a request, where {wanted.mean():.1f} were sent or asked for"
            yield f"the service counted {means}"
