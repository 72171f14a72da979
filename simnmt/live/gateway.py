"""The live gateway: decides by the policies of the simulation, translates or offloads, and falls back without an answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from simnmt.base import VERSION
from simnmt.base.configuration import end_tokens
from simnmt.base.errors import InputError
from simnmt.experiment.cases import Unit
from simnmt.experiment.routes import routes_of
from simnmt.experiment.targets import Target
from simnmt.live.cached_translations import LiveCache, normalised
from simnmt.live.decider import Decision, LiveDecider, deployable_policy
from simnmt.live.deployment import expected_hash
from simnmt.live.engine import Result, check_engine
from simnmt.live.redis_cache import RedisCache
from simnmt.live.server import Engine, FrontSettings, LiveService, Trip, served_hash
from simnmt.nmt.source_lines import SourceLine
from simnmt.policies.custom import PolicyError
from simnmt.policies.health import TRY_S, ServerHealth
from simnmt.results.live_log import BeginRecord, DecisionRecord, HandshakeRecord, HeardRecord, LostRecord, Outcome
from simnmt.service.apis import Api
from simnmt.service.client import DelayedTransport, ServiceClient
from simnmt.service.messages import ServiceError, TranslateRequest

HURRIED = 0.9
"""Share of the usual time for an answer. A server that had less, by a client's own deadline, stays in use without one."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of a live gateway."""

    unit: Unit
    policy: str
    servers: Mapping[str, str]
    """URL of each device but the first, by its name in the scenario."""
    front: FrontSettings = field(default_factory=FrontSettings)
    token: str = ""
    ca_file: Path | None = None
    """Certificates of the authorities that vouch for the servers; None: those of the system."""
    offload_s: float = 10.0
    """Time within which a server must answer; half of what is left until the deadline if that is less."""
    any_model: bool = False
    """Whether the servers may run another model than the profile says."""
    delays: bool = False
    """Whether the gateway sleeps the delays of the scenario's network before and after each request to a server."""
    apis: Mapping[str, Api] = field(default_factory=dict)
    """APIs of servers, by device; LibreTranslate's for the others."""


def with_classes(front: FrontSettings, unit: Unit) -> FrontSettings:
    """Return what clients of a gateway may do with the scenario's classes; those that name none are of its workload's class."""
    usual = unit.scenario.workloads[unit.case.name].request_class or ""
    return replace(front, classes=unit.scenario.ranked_classes, usual_class=usual)


@dataclass(slots=True)
class _Server:
    number: int
    target: Target
    client: ServiceClient
    hash: str = ""
    why: str = ""

    async def shake_hands(self, settings: GatewaySettings) -> float:
        """Return the seconds of a round trip to a server that runs the right model for the gateway's languages.

        Raises `InputError` for another model, and as `ServiceClient.greet`.
        """
        device = self.target.device
        remedy = f"start the server of {device} first, and check the address"
        self.hash = served_hash(await self.client.greet("--server-token-file", remedy), settings.front.pairs[0])
        check_engine(f"{self.client.url} ({device})", self.hash, None if settings.any_model else expected_hash(self.target))
        return self.client.round_trip_s


class _Drift:
    """A gauge by device of measured over predicted execution of the last requests that were decoded alone."""

    LAST = 100
    """Requests over which measured and predicted seconds are averaged, with weights that fall exponentially."""

    def __init__(self, targets: Sequence[Target], metrics: CollectorRegistry) -> None:
        what = "Measured over predicted execution of recent requests that were decoded alone, by device."
        self._gauge = Gauge("simnmt_execution_over_predicted", what, ["device"], registry=metrics)
        self._profiles = {target.device: target.profile for target in targets}
        self._sums_s: dict[str, tuple[float, float]] = {}

    def observe(self, device: str, result: Result) -> None:
        """Count an execution; one in a batch, or of unknown lengths, counts for nothing."""
        src_len, tgt_len, batch = result.lengths
        if batch != 1 or src_len < 2 or tgt_len < 1:
            return
        profile = self._profiles[device]
        src_end, tgt_end = end_tokens(profile.length_unit.end_of_sentence)
        kept, (measured_s, predicted_s) = 1.0 - 1.0 / self.LAST, self._sums_s.get(device, (0.0, 0.0))
        measured_s = kept * measured_s + result.execution_s
        predicted_s = kept * predicted_s + float(profile.plane.seconds(src_len - 1 + src_end, tgt_len - 1 + tgt_end))
        self._sums_s[device] = measured_s, predicted_s
        self._gauge.labels(device).set(measured_s / predicted_s)


class LiveGateway(LiveService):
    """A gateway before servers."""

    def __init__(self, settings: GatewaySettings, engine: Engine, **others: Any) -> None:
        """`engine`: what executes on the first device. For the others see `LiveService`.

        Raises `InputError` for a policy that cannot be deployed, and for servers that are not the scenario's other devices.
        """
        targets = settings.unit.case.targets
        self.devices = [target.device for target in targets]
        policy = deployable_policy(settings.unit, settings.policy)
        if policy.reads_logprob and not getattr(getattr(engine, "settings", None), "scored", False):
            what = f"policy {settings.policy} reads log-probabilities, which the engine of {self.devices[0]} does not compute"
            raise InputError(what, remedy="choose signal: src_len, or an engine of torch or CTranslate2")
        if set(settings.servers) != set(self.devices[1:]):
            remedy = " ".join(f"--server {device}=URL" for device in self.devices[1:]) or "give no --server"
            raise InputError(f"the scenario's other devices are {', '.join(self.devices[1:]) or 'none'}", remedy=remedy)
        super().__init__(self.devices[0], engine, settings.front, **others)
        self._settings, self._batches = settings, targets[0].decoding is not None
        self._by_document = settings.unit.scenario.decide_by == "document"
        self._drift = _Drift(targets, self.metrics)
        cache = settings.unit.scenario.devices[self.devices[0]].cache
        self._cache: LiveCache | None = None
        if cache is not None:
            in_redis = cache.redis is not None
            self._cache = RedisCache(cache, self.metrics, self._on_error) if in_redis else LiveCache(cache, self.metrics)
        what, labels = "Requests by device and outcome.", ["device", "outcome"]
        self._decided = Counter("simnmt_decisions", what, labels, registry=self.metrics)
        self._servers: list[_Server] = []
        self._server_health = ServerHealth()
        self.transports: list[DelayedTransport] = []
        """Transports to the servers, if delays are slept here."""
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self.decider: LiveDecider
        self.begin_s = 0.0

    async def start(self) -> None:
        """Load the model, greet the servers, and listen.

        Raises `InputError` for what cannot be used, and for a server that does not answer.
        """
        settings = self._settings
        unit, targets = settings.unit, settings.unit.case.targets
        [running] = (await self.engine.ready()).values()
        initial_s: dict[int, float] = {}
        for number, target in enumerate(targets[1:], start=1):
            counted = targets[0].profile.length_unit.end_of_sentence
            options: dict[str, Any] = {"token": settings.token, "timeout_s": settings.offload_s, "ca_file": settings.ca_file}
            options["connections"] = 0  # any number: how many requests a server executes is its own matter
            options |= {"slots": target.profile.slots, "counted": counted}
            if settings.delays:
                options["transport"] = DelayedTransport(routes_of(unit).hops[:number])
                self.transports.append(options["transport"])
            api = settings.apis.get(target.device, Api())
            client = api.connect(settings.servers[target.device], settings.front.pairs[0], **options)
            await self._stack.enter_async_context(client)
            server = _Server(number, target, client)
            initial_s[number] = await server.shake_hands(settings)
            self._servers.append(server)
        self.begin_s = time.monotonic()
        self.decider = LiveDecider(unit, settings.policy, initial_s)
        hashes = dict(zip(self.devices, [running, *(server.hash for server in self._servers)], strict=True))
        name, first = unit.scenario.name, tuple(initial_s.values())
        self.write(BeginRecord(settings.policy, tuple(self.devices), name, hashes, begin_s=self.begin_s, initial_s=first))
        await self.http.start()

    async def close(self) -> None:
        """End the connections, and the engine unless it outlives the gateway."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        if self._cache is not None:
            await self._cache.close()
        await super().close()

    @property
    def is_ready(self) -> bool:
        """See `LiveService`."""
        return len(self._unreachable()) < len(self.devices)

    def health(self) -> Mapping[str, Any]:
        """See `LiveService`."""
        left_out = self._server_health.left_out
        servers = {one.target.device: one.why or "slow" if one.number in left_out else "ok" for one in self._servers}
        facts = {"service": "gateway", "simnmt": VERSION, "policy": self._settings.policy, "servers": servers}
        if self.transports:
            facts["delays"] = self._settings.unit.network
        return {**facts, **self.engine.describe(), "waiting": self.waiting}

    async def execute(self, trip: Trip, line: SourceLine) -> Result:
        """Answer from the cache, if there is one, or by a translation."""
        if self._cache is None:
            return await self._decide_and_translate(trip, line)
        key = normalised(line.text), *self._settings.front.pairs[0], trip.forced_len
        return await self._cache.answer(trip, key, lambda: self._decide_and_translate(trip, line))

    async def _decide_and_translate(self, trip: Trip, line: SourceLine) -> Result:
        """Decide, translate at the chosen target, and elsewhere if that fails: here, or at a server without an own engine."""
        decision = self._decide(trip, self._unreachable())
        target = decision.target
        try:
            result = await self._translate_at(trip, line, target)
            if not target and self.decider.decides_again:
                target, result = await self._send_on(trip, line, result)
        except ServiceError as error:
            self._give_up(trip)
            is_full = self._is_full(target, error)
            if is_full and self._settings.unit.scenario.on_refusal == "pass_on":
                raise
            if target:
                if not is_full:
                    self._note_failure(trip, self._servers[target - 1], error, trip.decided_s)
                unreachable = [server.number for server in self._servers]
            elif self.engine.alive or len(unreachable := self._unreachable()) == len(self.devices):
                raise
            trip.fell_back = True
            # Decided again without the targets that failed, so that the views count the work where it is done.
            target = self._decide(trip, unreachable).target
            result = await self._translate_at(trip, line, target)
        predicted = "" if decision.tgt_len_predicted is None else f"{decision.tgt_len_predicted:.6g}"
        age_s = (trip.decided_s or 0.0) - self.begin_s - decision.measured_at_s
        account = f"target={target};estimate_s={decision.estimate_s:.9f};age_s={age_s:.6f}"
        if (first := result.deferred) is not None:
            account += f";deferred_queue_s={first.queue_s:.9f};deferred_exe_s={first.execution_s:.9f}"
        result.decision = f"{account};tgt_len={predicted};fallback={int(trip.fell_back)}"
        return result

    async def _send_on(self, trip: Trip, line: SourceLine, first: Result) -> tuple[int, Result]:
        """Decide on a text that was translated here: return the target, and that translation or the one of a server.

        If the server fails, the translation is the answer. It may also be kept if the gateway's engine has ended since.
        """
        sent_s, target = time.monotonic(), self._decide(trip, self._server_health.left_out, first).target
        if not target:
            return 0, first
        server = self._servers[target - 1]
        try:
            result = await self._offloaded(trip, line, server)
        except ServiceError as error:
            self._give_up(trip)
            if not self._is_full(target, error):
                self._note_failure(trip, server, error, sent_s)
            trip.device, trip.fell_back = self.name, True
            return 0, first
        result.deferred = first
        return target, result

    def _is_full(self, target: int, error: ServiceError) -> bool:
        """Return whether a server was full: as in the simulation, one that has the scenario's limit is no less healthy then."""
        device = self._settings.unit.scenario.devices[self.devices[target]]
        return bool(target and error.status == 429 and device.refuses_above)

    def _unreachable(self) -> list[int]:
        servers = self._server_health.left_out
        return servers if self.engine.alive else [0, *servers]

    async def _translate_at(self, trip: Trip, line: SourceLine, target: int) -> Result:
        return await (self._offloaded(trip, line, self._servers[target - 1]) if target else self._local(trip, line))

    def note(self, trip: Trip, result: Result | None, outcome: Outcome) -> None:
        """Count and log how a text ended."""
        if result is None:
            self._give_up(trip)
        super().note(trip, result, outcome)
        self._decided.labels("cache" if trip.hit else trip.device or "none", outcome).inc()
        if result is not None and trip.device is not None:
            self._drift.observe(trip.device, result)

    def _decide(self, trip: Trip, unreachable: Sequence[int], first: Result | None = None) -> Decision:
        """Return the decision on a request, and note it; `first`: its translation here, if it is the second decision.

        Raises `ServiceError` if the policy, which users may write, fails.
        """
        number, src_len, at_s, document = trip.number, trip.src_len or 0, time.monotonic(), trip.document
        now_s = at_s - self.begin_s
        held = document.target if self._by_document and trip.target is None else None  # not after a failure
        again, translated = first is not None, () if first is None else (first.output_len, first.logprob)
        gain = self.decider.gain_of(trip.text, *translated) if again or not self.decider.decides_again else None
        try:
            decision = self.decider.decide(number, src_len, now_s, unreachable, held, gain=gain, again=again)
            trip.sent = decision if decision.target or not again else None
        except PolicyError as error:
            self._on_error(str(error))
            raise ServiceError(500, "the gateway's policy failed") from error
        if trip.target is None:
            trip.decided_s = at_s
        if trip.target is None or again:
            trip.target = decision.target
        if document.target is None:
            document.target = decision.target
        facts: dict[str, Any] = {"held": held is not None, "again": again, "gain": gain}
        self.write(DecisionRecord(number, now_s, src_len, tuple(unreachable), decision.delay_s, decision.target, **facts))
        return decision

    def _hear(self, trip: Trip, transfer_s: float, wait_s: float, report: tuple[int, ...]) -> None:
        decision, trip.sent = trip.sent, None
        if decision is not None:
            trip.transfer_s, now_s = transfer_s, time.monotonic() - self.begin_s
            self.decider.heard(decision, now_s, transfer_s=transfer_s, wait_s=wait_s, report=report)
            self.write(HeardRecord(trip.number, now_s, transfer_s, wait_s, report))

    def _give_up(self, trip: Trip) -> None:
        decision, trip.sent = trip.sent, None
        if decision is not None:
            self.decider.lost(decision)
            self.write(LostRecord(trip.number, time.monotonic() - self.begin_s))

    async def _local(self, trip: Trip, line: SourceLine) -> Result:
        trip.device, submitted_s = self.name, time.monotonic()

        def begin(begin_s: float) -> None:
            self._hear(trip, 0.0, max(begin_s - submitted_s, 0.0), ())

        # What a batch is like shows when a sentence ends.
        began = begin if self.decider.views_itself and not self._batches else None
        result = await self.execute_here(trip, line, began)
        if began is None:
            self._hear(trip, 0.0, result.queue_s, result.report)
        return result

    async def _offloaded(self, trip: Trip, line: SourceLine, server: _Server) -> Result:
        front, offload_s = self._settings.front, self._settings.offload_s
        timeout_s = min(offload_s, max((trip.deadline_s - time.monotonic()) / 2, 1e-3))
        trip.hurried = timeout_s < HURRIED * min(offload_s, front.deadline_s / 2)
        forced = None if trip.forced_len is None else (trip.forced_len,)
        number, name = str(trip.number), trip.request_class
        request = TranslateRequest((line.text,), False, *front.pairs[0], "", forced, timeout_s, number, name)
        exchange = await server.client.translate(request, timeout_s)
        answer, trip.device = exchange.answer, server.target.device
        queue_s, execution_s = (0.0, 0.0) if answer.times is None else (answer.times.queue_s, answer.times.execution_s)
        self._hear(trip, exchange.transfer_s, queue_s, answer.report)
        return Result(answer.texts[0], queue_s, execution_s, answer.report, answer.lengths)

    def _note_failure(self, trip: Trip, server: _Server, error: ServiceError, sent_s: float | None) -> None:
        """Take a server out of use until it answers again, if `ServerHealth` says so; `sent_s`: when the request was sent."""
        assert sent_s is not None
        sent_s, now_s = sent_s - self.begin_s, time.monotonic() - self.begin_s
        hurried, retry_after_s = trip.hurried, error.retry_after_s
        if self._server_health.failed(server.number, sent_s, now_s, error.status, hurried=hurried, retry_after_s=retry_after_s):
            server.why = error.message
            self._on_error(f"{server.target.device}: {error.message}; translating here until it answers")
            task = asyncio.get_running_loop().create_task(self._wait_for(server))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _wait_for(self, server: _Server) -> None:
        """Ask a server for its health, ever less often, until it answers."""
        health, number = self._server_health, server.number
        while number in health.left_out:
            await asyncio.sleep(health.next_try_s(number) - (time.monotonic() - self.begin_s))
            try:
                rtt_s = await asyncio.wait_for(server.shake_hands(self._settings), TRY_S)
            except (InputError, asyncio.TimeoutError) as error:
                server.why = str(error)
                health.try_failed(number, time.monotonic() - self.begin_s)
                continue
            now_s = time.monotonic() - self.begin_s
            self.decider.shook_hands(number, rtt_s, now_s)
            self.write(HandshakeRecord(number, now_s, rtt_s))
            health.answered(number, now_s)
            self._on_error(f"{server.target.device}: answers again")
