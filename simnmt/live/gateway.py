"""The live gateway: decides by the policies of the simulation, translates or offloads, and falls back without an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from prometheus_client import Counter, Gauge

from simnmt.base import VERSION
from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.experiment.cases import Unit
from simnmt.experiment.targets import Target
from simnmt.live.decider import Decision, LiveDecider, deployable_policy
from simnmt.live.deployment import check_engine, expected_hash, routes_of
from simnmt.live.engine_process import EngineProcess, EngineSettings, Reference
from simnmt.live.front import EventLog, Front, FrontSettings, Result, Task, outcome_of
from simnmt.live.server import EngineMetrics, local_result
from simnmt.live.service_engine import LocalService, ServiceEngine
from simnmt.nmt.source_lines import SourceLine
from simnmt.policies.custom import PolicyError
from simnmt.results.live_log import (
    BeginRecord,
    DecisionRecord,
    HandshakeRecord,
    HeardRecord,
    LostRecord,
    Outcome,
    ReferenceRecord,
    RequestRecord,
)
from simnmt.service.client import TranslationClient
from simnmt.service.delays import DelayedTransport
from simnmt.service.http_server import Access, Limits, Metrics
from simnmt.service.messages import ServiceError, TranslateRequest

HURRIED = 0.9
"""Share of the usual time for an answer. A server that had less, by a client's own deadline, stays in use without one."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between attempts to reach a server that does not answer."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a live gateway."""

    unit: Unit
    """The scenario's workload with its devices and what policies know."""
    policy: str
    servers: Mapping[str, str]
    """URL of each device but the first, by its name in the scenario."""
    engine: EngineSettings | LocalService
    """What executes on the first device: an engine of the gateway, or a service of this box."""
    front: FrontSettings = field(default_factory=FrontSettings)
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    token: str = ""
    """Token of the servers."""
    ca_file: Path | None = None
    """Certificates of the authorities that vouch for the servers; None: those of the system."""
    offload_s: float = 10.0
    """Time within which a server must answer; half of what is left until the deadline if that is less."""
    any_model: bool = False
    """Whether the gateway's own device and the servers may run another model than the profile says."""
    delays: bool = False
    """Whether the gateway sleeps the delays of the scenario's network before and after each request to a server."""


@dataclass(slots=True)
class _Server:
    """A remote target."""

    target: int
    device: str
    client: TranslationClient
    expected_hash: str | None
    """Hash of the engine by the device's profile; None if the profile states none."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    reachable: bool = True
    why: str = ""

    async def shake_hands(self, settings: GatewaySettings) -> float:
        """Return the seconds of a round trip to a server that runs the right model for the gateway's languages.

        Raises `InputError` for another model or other languages, `ServiceError` if the server does not answer.
        """
        self.facts, _ = await self.client.health()
        _, rtt_s = await self.client.health()  # over the open connection
        if self.facts.get("needs_token") and not self.client.has_token:
            raise InputError(f"{self.client.url} asks for a token", remedy="give --server-token-file")
        place, expected = f"{self.client.url} ({self.device})", None if settings.any_model else self.expected_hash
        check_engine(place, self.facts.get("engine_hash"), expected)
        with suppress(ServiceError):  # a server that answers `/health` need not list its languages
            await self.client.check_languages(settings.front.source, settings.front.target)
        return rtt_s


class _Drift:
    """A gauge by device of measured over predicted execution of the last requests that were decoded alone."""

    LAST = 100
    """Requests over which measured and predicted seconds are averaged, with weights that fall exponentially."""

    def __init__(self, targets: Sequence[Target], metrics: Metrics) -> None:
        what = "Measured over predicted execution of recent requests that were decoded alone, by device."
        self._gauge = Gauge("simnmt_execution_over_predicted", what, ["device"], registry=metrics.registry)
        self._profiles = {target.device: target.profile for target in targets}
        self._sums_s: dict[str, tuple[float, float]] = {}

    def observe(self, device: str, result: Result) -> None:
        """Count an execution; one in a batch, or of unknown lengths, counts for nothing."""
        src_len, tgt_len, batch = result.lengths
        profile = self._profiles[device]
        src_end, tgt_end = end_tokens(profile.length_unit.end_of_sentence)
        if batch != 1 or src_len < 2 or tgt_len < 1:
            return
        kept, (measured_s, predicted_s) = 1.0 - 1.0 / self.LAST, self._sums_s.get(device, (0.0, 0.0))
        measured_s = kept * measured_s + result.execution_s
        predicted_s = kept * predicted_s + float(profile.plane.seconds(src_len - 1 + src_end, tgt_len - 1 + tgt_end))
        self._sums_s[device] = measured_s, predicted_s
        self._gauge.labels(device).set(measured_s / predicted_s)


class LiveGateway:
    """A gateway: `start` it, then `front.service.serve_until_stopped`, then `close`."""

    def __init__(
        self,
        settings: GatewaySettings,
        log: TextIO | None = None,
        on_error: Callable[[str], None] = print,
        engine: EngineProcess | None = None,
    ) -> None:
        """`engine`: one that outlives the gateway.

        Raises `InputError` for a policy that cannot be deployed, and for servers that are not the scenario's other devices.
        """
        unit, self._settings, self._on_error = settings.unit, settings, on_error
        self.devices = [target.device for target in unit.case.targets]
        deployable_policy(unit, settings.policy)
        if set(settings.servers) != set(self.devices[1:]):
            remedy = " ".join(f"--server {device}=URL" for device in self.devices[1:]) or "give no --server"
            raise InputError(f"the scenario's other devices are {', '.join(self.devices[1:]) or 'none'}", remedy=remedy)
        metrics = Metrics()
        registry = metrics.registry
        self._log = EventLog(log, on_error)
        self._owns_engine = engine is None
        self.engine: EngineProcess | ServiceEngine
        if isinstance(settings.engine, LocalService):
            self.engine = ServiceEngine(settings.engine, settings.front)
        else:
            self.engine = engine or EngineProcess(settings.engine)
        self.engine.on_reference, self.engine.on_error = self._note_reference, on_error
        self._observed = EngineMetrics(metrics, lambda: self.waiting)
        self._drift = _Drift(unit.case.targets, metrics)
        self._decided = Counter("simnmt_decisions", "Requests by device and outcome.", ["device", "outcome"], registry=registry)
        self.front = Front(self, settings.front, settings.access, settings.limits, metrics, on_error)
        self._servers: list[_Server] = []
        self.transports: list[DelayedTransport] = []
        """Of the servers, if delays are slept here."""
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self.fallbacks = 0
        """Requests translated here after their server did not answer."""
        self.decider: LiveDecider
        self.begin_s = 0.0
        """The moment that the decider's clock counts from."""

    async def start(self) -> None:
        """Load the model, greet the servers, and listen.

        Raises `InputError` for what cannot be used, and for a server that does not answer.
        """
        settings, hashes = self._settings, dict[str, str]()
        running = await self.engine.ready()
        place = str(self.engine.describe().get("local_server", "this gateway"))
        check_engine(place, running, None if settings.any_model else expected_hash(settings.unit.case.targets[0]))
        hashes[self.devices[0]] = running
        initial_s: dict[int, float] = {}
        if settings.delays:
            hops = routes_of(settings.unit).hops
            self.transports = [DelayedTransport(hops[: number + 1]) for number in range(len(hops))]
        for number, target in enumerate(settings.unit.case.targets[1:], start=1):
            client = TranslationClient(
                settings.servers[target.device],
                token=settings.token,
                timeout_s=settings.offload_s,
                ca_file=settings.ca_file,
                transport=self.transports[number - 1] if self.transports else None,
            )
            await self._stack.enter_async_context(client)
            server = _Server(number, target.device, client, expected_hash(target))
            try:
                initial_s[number] = await server.shake_hands(settings)
            except ServiceError as error:
                remedy = f"start the server of {target.device} first, and check the address"
                raise InputError(error.message, remedy=remedy) from None
            hashes[target.device] = str(server.facts.get("engine_hash", ""))
            self._servers.append(server)
        self.begin_s = time.monotonic()
        self.decider = LiveDecider(settings.unit, settings.policy, initial_s)
        first = tuple(initial_s[number] for number in sorted(initial_s))
        self._log.write(
            BeginRecord(
                settings.policy, tuple(self.devices), settings.unit.scenario.name, hashes, begin_s=self.begin_s, initial_s=first
            )
        )
        await self.front.service.start()

    async def close(self) -> None:
        """End the connections, and the engine unless it outlives the gateway."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        self.engine.on_reference = lambda reference: None
        if self._owns_engine:
            await self.engine.close()

    def hurry(self) -> None:
        """Let no sentence wait for company, since the service ends."""
        self.engine.hurry()

    @property
    def waiting(self) -> int:
        """Texts under way, here and at servers."""
        return self.front.waiting

    def health(self) -> Mapping[str, Any]:
        """See `Translator`."""
        servers = {server.device: "ok" if server.reachable else server.why for server in self._servers}
        facts = {"service": "gateway", "simnmt": VERSION, "policy": self._settings.policy, "servers": servers}
        if self.transports:
            facts["delays"] = self._settings.unit.network
        return {**facts, **self.engine.describe(), "waiting": self.waiting}

    async def translate(self, task: Task) -> Result:
        """See `Translator`: decide, translate at the chosen target, and here if that fails."""
        line = self.engine.line(task.text)
        if not line.ids:
            return Result("", 0.0, 0.0)
        trip = _Trip(task, len(line.ids))
        try:
            result = await self._translated(task, line, trip)
        except (ServiceError, asyncio.CancelledError) as error:
            self._lose(trip)
            if isinstance(error, ServiceError):
                outcome = outcome_of(error)
            else:  # by the deadline, or because another text of the request failed
                outcome = "timeout" if time.monotonic() >= task.deadline_s else "failed"
            self._note_request(trip, None, outcome)
            raise
        self._note_request(trip, result, "fallback" if trip.fell_back else "done")
        return result

    async def _translated(self, task: Task, line: SourceLine, trip: _Trip) -> Result:
        unreachable = [server.target for server in self._servers if not server.reachable]
        trip.decision = self._decide(task, trip, unreachable)
        trip.decided_s = trip.sent_s
        if trip.decision.target:
            server = self._servers[trip.decision.target - 1]
            try:
                return self._described(await self._offloaded(task, line, trip, server), trip)
            except ServiceError as error:
                self._lose(trip)
                if error.status != 504 or not trip.hurried:
                    self._note_failure(server, error)
            trip.fell_back = True
            self.fallbacks += 1
            # Decided again, with no server in reach, so that the views count the work that the gateway takes over.
            self._decide(task, trip, [server.target for server in self._servers])
        return self._described(await self._local(task, line, trip), trip)

    def _decide(self, task: Task, trip: _Trip, unreachable: Sequence[int]) -> Decision:
        """Return the decision on a request, and note it. Raises `ServiceError` if the policy, which users may write, fails."""
        now_s = self._now_s()
        try:
            decision = self.decider.decide(task.number, trip.src_len, now_s, unreachable)
        except PolicyError as error:
            self._on_error(str(error))
            raise ServiceError(500, "the gateway's policy failed") from error
        trip.sent, trip.sent_s = decision, now_s
        self._log.write(DecisionRecord(task.number, now_s, trip.src_len, tuple(unreachable), decision.delay_s, decision.target))
        return decision

    def _hear(self, trip: _Trip, transfer_s: float, wait_s: float, report: tuple[int, ...]) -> None:
        if trip.sent is not None:
            now_s, request, decision = self._now_s(), trip.task.number, trip.sent
            trip.sent, trip.transfer_s = None, transfer_s
            self.decider.heard(decision, request, now_s, transfer_s=transfer_s, wait_s=wait_s, report=report)
            self._log.write(HeardRecord(request, now_s, transfer_s, wait_s, report))

    def _lose(self, trip: _Trip) -> None:
        if trip.sent is not None:
            decision, trip.sent = trip.sent, None
            self.decider.lost(decision, trip.task.number)
            self._log.write(LostRecord(trip.task.number, self._now_s()))

    async def _local(self, task: Task, line: SourceLine, trip: _Trip) -> Result:
        trip.device = self.devices[0]
        if self._settings.unit.case.targets[0].decoding is not None:  # what a batch is like shows when a sentence ends
            result = local_result(line, *await self.engine.execute(line, task.forced_len))
            self._hear(trip, 0.0, result.queue_s, result.report)
            return result
        submitted_s = time.monotonic()

        def begin(begin_s: float) -> None:
            self._hear(trip, 0.0, max(begin_s - submitted_s, 0.0), ())

        return local_result(line, *await self.engine.execute(line, task.forced_len, begin))

    async def _offloaded(self, task: Task, line: SourceLine, trip: _Trip, server: _Server) -> Result:
        front = self._settings.front
        left_s = task.deadline_s - time.monotonic()
        timeout_s = min(self._settings.offload_s, max(left_s / 2, 1e-3))
        trip.hurried = timeout_s < HURRIED * min(self._settings.offload_s, front.deadline_s / 2)
        forced = None if task.forced_len is None else (task.forced_len,)
        request = TranslateRequest((line.text,), False, front.source, front.target, "", forced, timeout_s, str(task.number))
        exchange = await server.client.translate(request, timeout_s)
        answer = exchange.answer
        trip.device, times = server.device, answer.times
        queue_s, execution_s = (0.0, 0.0) if times is None else (times.queue_s, times.execution_s)
        self._hear(trip, exchange.transfer_s, queue_s, answer.report)
        return Result(answer.texts[0], queue_s, execution_s, answer.report, answer.lengths)

    def _described(self, result: Result, trip: _Trip) -> Result:
        """Add the account of the decision, for the client's log."""
        decision = trip.decision
        assert decision is not None
        predicted = "" if decision.tgt_len_predicted is None else f"{decision.tgt_len_predicted:.6g}"
        age_s = trip.decided_s - decision.measured_at_s
        account = (
            f"target={self.devices.index(trip.device)};estimate_s={decision.estimate_s:.9f};age_s={age_s:.6f};"
            f"tgt_len={predicted};fallback={int(trip.fell_back)}"
        )
        return Result(result.text, result.queue_s, result.execution_s, result.report, result.lengths, account)

    def _note_failure(self, server: _Server, error: ServiceError) -> None:
        """Take a server out of use until it answers again, unless it only refused this request."""
        if error.status in (400, 413):
            return
        server.why = error.message
        if server.reachable:
            server.reachable = False
            self._on_error(f"{server.device}: {error.message}; translating here until it answers")
            self._keep(self._wait_for(server, error.retry_after_s))

    async def _wait_for(self, server: _Server, first_s: float | None) -> None:
        """Ask a server for its health, ever less often, until it answers."""
        for attempt in count():
            pause_s = PAUSES_S[min(attempt, len(PAUSES_S) - 1)]
            await asyncio.sleep(pause_s if first_s is None or attempt else first_s)
            try:
                rtt_s = await server.shake_hands(self._settings)
            except (ServiceError, InputError) as error:
                server.why = str(error)
                continue
            now_s = self._now_s()
            self.decider.shook_hands(server.target, rtt_s, now_s)
            self._log.write(HandshakeRecord(server.target, now_s, rtt_s))
            server.reachable, server.why = True, ""
            self._on_error(f"{server.device}: answers again")
            return

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now_s(self) -> float:
        return time.monotonic() - self.begin_s

    def _note_reference(self, reference: Reference) -> None:
        self._log.write(ReferenceRecord(self.devices[0], reference.at_s, reference.execution_s, reference.busy_s))

    def _note_request(self, trip: _Trip, result: Result | None, outcome: Outcome) -> None:
        task, decision, begin_s = trip.task, trip.decision, self.begin_s
        self._decided.labels(trip.device or "none", outcome).inc()
        if result is not None:
            self._observed.observe(result)
            self._drift.observe(trip.device, result)
        self._log.write(
            RequestRecord(
                request=task.number,
                ingress_s=task.ingress_s,
                decision_s=None if decision is None else begin_s + trip.decided_s,
                src_len=trip.src_len,
                tgt_len=None if result is None else result.lengths[1],
                target=None if decision is None else decision.target,
                device=trip.device or None,
                queue_s=None if result is None else result.queue_s,
                execution_s=None if result is None else result.execution_s,
                transfer_s=None if result is None else trip.transfer_s,
                egress_s=time.monotonic(),
                outcome=outcome,
                batch=1 if result is None else max(result.lengths[2], 1),
                sender=task.sender,
            )
        )


@dataclass(slots=True)
class _Trip:
    """What happens to a request at the gateway; moments by the decider's clock."""

    task: Task
    src_len: int
    decision: Decision | None = None
    """The policy's decision."""
    decided_s: float = 0.0
    sent: Decision | None = None
    """The last decision, from when the decider notes it until it learns of the execution or gives it up."""
    sent_s: float = 0.0
    device: str = ""
    """Where the answer was computed."""
    transfer_s: float = 0.0
    hurried: bool = False
    """Whether a server had less than the usual time to answer."""
    fell_back: bool = False
