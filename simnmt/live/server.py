"""The live servers of one and of several models behind LibreTranslate's API; and all that a gateway has in common."""

from __future__ import annotations

import asyncio
import collections
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, TextIO

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from simnmt.base import VERSION
from simnmt.base.errors import shorten
from simnmt.live.decider import Decision
from simnmt.live.engine import Result
from simnmt.live.engine_process import EngineProcess
from simnmt.live.model_engines import ModelEngines
from simnmt.live.service_engine import ServiceEngine
from simnmt.nmt.source_lines import SourceLine
from simnmt.results.live_log import BeginRecord, Outcome, Record, ReferenceRecord, RequestRecord, format_record
from simnmt.service import messages
from simnmt.service.http_server import BUCKETS_S, Access, HttpService, Limits, timeout
from simnmt.service.load import TOO_MANY
from simnmt.service.messages import ServiceError, Times, TranslateRequest

Engine = EngineProcess | ServiceEngine | ModelEngines


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """What clients may ask of a service, and how much at a time."""

    pairs: Sequence[tuple[str, str]] = (("de", "en"),)
    """Source and target languages that are translated; of a gateway one."""
    texts: int = 100
    waiting: int = 256
    """Most sentences under way; further requests are refused with status 429."""
    deadline_s: float = 30.0
    """Time within which a request must be answered, unless it states a shorter one; then status 504."""
    forced_lengths: bool = False
    """Whether requests may state the number of target tokens, for validation."""
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    max_waiting: int | None = None
    """Most sentences that wait until their execution on the service's own device begins, as `max_waiting` of a scenario says;
    further ones are refused with status 429. None: any number."""
    classes: Sequence[str] = ()
    """Classes of requests, the first served first; empty: all are served in the order of arrival."""
    usual_class: str = ""
    """Class of requests that name none; empty: the first."""


def served_hash(health: Mapping[str, Any], pair: tuple[str, str]) -> str:
    """Return the hash of the engine that translates two languages, as a service's `/health` states it; empty if it does not."""
    hashes = health.get("engine_hashes")
    by_pair = hashes if isinstance(hashes, Mapping) else {}
    return str(by_pair.get("-".join(pair)) or health.get("engine_hash", ""))


@dataclass(slots=True)
class Document:
    """The texts of one request."""

    number: int
    """Number of its first text."""
    target: int | None = None
    """On which a gateway decided for the first of them, if its decisions are by document."""
    under_way: set[int] = field(default_factory=set)
    """Numbers of the texts that have not ended and do not wait for the end of another one."""
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)
    """Texts that found a device full, and are woken one by one as others end."""

    async def wait_for_end(self, number: int) -> None:
        """Let a text wait until another one has ended."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((number, ended))
        await ended

    def end(self, number: int) -> None:
        """Note that a text has ended, and let one that waits go on."""
        self.under_way.discard(number)
        while self.waiting:
            next_number, ended = self.waiting.pop(0)
            if not ended.done():  # by a cancellation
                self.under_way.add(next_number)
                ended.set_result(None)
                return


@dataclass(slots=True)
class Trip:
    """One text of a request, and what happens to it in a service; moments of the monotonic clock."""

    number: int
    """Counts the texts of the service."""
    text: str
    forced_len: int | None
    ingress_s: float
    """When the whole request had been read."""
    deadline_s: float
    """When it must be answered."""
    sender: str
    model: str
    """Name of the model of its languages."""
    document: Document
    request_class: str = ""
    rank: int = 0
    """Of its class among the service's."""
    src_len: int | None = None
    target: int | None = None
    """The choice of a gateway's policy."""
    decided_s: float | None = None
    ended_s: float = 0.0
    device: str | None = None
    transfer_s: float = 0.0
    fell_back: bool = False
    sent: Decision | None = None
    """The last decision, from when a gateway's decider notes it until it learns of the execution or gives it up."""
    hit: int = 0
    """Whether a cache answered, as in `RequestRecord`."""
    hurried: bool = False
    """Whether a server had less than the usual time to answer."""


class LiveService(ABC):
    """A service with LibreTranslate's API before an engine. `start` it, then `http.serve_until_stopped`, then `close`."""

    def __init__(
        self,
        name: str,
        engine: Engine,
        front: FrontSettings,
        log: TextIO | None = None,
        on_error: Callable[[str], None] = print,
        keeps_engine: bool = False,
    ) -> None:
        """Prepare the service.

        Args:
            name: of its own device.
            engine: executes on that.
            front: what clients may do.
            log: buffered by lines; None: none is written.
            on_error: called with a line about a fault of the service.
            keeps_engine: whether the engine outlives the service.
        """
        self.name, self.engine, self._front, self._keeps_engine = name, engine, front, keeps_engine
        self._log, self._on_error, self.metrics = log, on_error, (metrics := CollectorRegistry())
        self.waiting = 0
        """Texts under way."""
        self._queued = 0
        """Those whose execution here has not begun, if their number is limited."""
        self.outcomes = collections.Counter[Outcome]()
        """Texts by how they ended."""
        self._number = 0
        routes = [
            web.post("/translate", self._translate),
            web.get("/languages", self._languages),
            web.post("/detect", self._detect),
            web.get("/health", self._health),
        ]
        self.http = HttpService(routes, front.access, front.limits, metrics, on_error)
        engine.on_reference, engine.on_error = self._note_reference, on_error
        waiting = Gauge("simnmt_sentences_waiting", "Sentences under way.", registry=metrics)
        waiting.set_function(lambda: self.waiting)
        tokens = Counter("simnmt_tokens", "Tokens, by side.", ["side"], registry=metrics)
        self._tokens = tokens.labels("source"), tokens.labels("target")
        self._queue = Histogram("simnmt_queue_seconds", "Wait before execution.", buckets=BUCKETS_S, registry=metrics)
        self._execution = Histogram("simnmt_execution_seconds", "Execution.", buckets=BUCKETS_S, registry=metrics)
        what, sizes = "Most sentences decoded together.", (1, 2, 4, 8, 16, 32, 64)
        self._batch = Histogram("simnmt_batch_sentences", what, buckets=sizes, registry=metrics)

    @abstractmethod
    async def execute(self, trip: Trip, line: SourceLine) -> Result:
        """Translate a line, and note how in the trip. Raises `ServiceError`; is cancelled at the deadline."""

    @abstractmethod
    def health(self) -> Mapping[str, Any]:
        """Return what clients may know of the service."""

    @property
    def is_ready(self) -> bool:
        """Whether requests can be translated now; `/health` has status 503 otherwise."""
        return self.engine.alive

    async def close(self) -> None:
        """End the engine, unless it outlives the service."""
        self.engine.on_reference = lambda at_s, execution_s: None
        if not self._keeps_engine:
            await self.engine.close()

    async def _translate(self, request: web.Request) -> web.Response:
        settings = self._front
        content = await self.http.read_content(request)
        ingress_s = time.monotonic()
        asked = messages.parse_request(content, request.headers, most_texts=settings.texts)
        self.http.check_token(request, asked.api_key)
        source = self._source(asked)
        count = len(asked.texts)
        deadline_s = ingress_s + min(settings.deadline_s, asked.deadline_s or inf)
        forced, model = asked.forced_lens or (None,) * count, f"{source}-{asked.target}"
        name, rank = self._class(asked)
        document = Document(self._number, under_way=set(range(self._number, self._number + count)))
        trips = [
            Trip(self._number + position, text, forced_len, ingress_s, deadline_s, asked.number, model, document, name, rank)
            for position, (text, forced_len) in enumerate(zip(asked.texts, forced, strict=True))
        ]
        self._number += count
        if self.waiting + count > settings.waiting:
            for trip in trips:
                self.note(trip, None, "refused")
            raise ServiceError(429, f"{self.waiting} sentences are under way; try again later", retry_after_s=1.0)
        self.waiting += count
        try:
            results = [await self._one(trips[0])] if count == 1 else await _all_or_error([self._one(trip) for trip in trips])
        finally:
            self.waiting -= count
        return self._response(asked, trips, results, source)

    def _source(self, asked: TranslateRequest) -> str:
        """Return the source language of a request. Raises `ServiceError` for a request that is not allowed."""
        settings = self._front
        sources = [source for source, target in settings.pairs if target == asked.target and asked.source in (source, "auto")]
        if len(sources) != 1:
            offered = ", ".join(f"{source} to {target}" for source, target in settings.pairs)
            what = "is not translated here" if not sources else "may be several languages here"
            raise ServiceError(400, f"{asked.source} to {asked.target} {what}, only {offered}")
        if asked.forced_lens is not None and not settings.forced_lengths:
            raise ServiceError(400, f"{messages.FORCED_LENGTH} is not allowed here")
        if len(asked.texts) > settings.waiting:
            what = f"q has {len(asked.texts)} texts, and {settings.waiting} at most are translated at a time"
            raise ServiceError(400, f"{what}; send fewer")
        return sources[0]

    def _class(self, asked: TranslateRequest) -> tuple[str, int]:
        """Return the class of a request and its rank. Raises `ServiceError` for a class that the service does not have."""
        classes = self._front.classes
        if not classes:
            return "", 0
        name = asked.request_class or self._front.usual_class or classes[0]
        if name not in classes:
            raise ServiceError(400, f"no class {shorten(name)} here, only {', '.join(classes)}")
        return name, classes.index(name)

    async def _one(self, trip: Trip) -> Result:
        result: Result | None = None
        outcome: Outcome = "failed"  # also of a text that is given up, since another one of the request failed
        try:
            async with timeout(max(trip.deadline_s - time.monotonic(), 1e-3)):
                result = await self._translate_in_turn(trip)
            outcome = "fallback" if trip.fell_back else "done"
        except asyncio.TimeoutError:
            outcome = "timeout"
            raise ServiceError(504, "not translated within the deadline") from None
        except ServiceError as error:
            outcome = outcome_of(error)
            raise
        finally:
            trip.document.end(trip.number)
            self.note(trip, result, outcome)
        return result

    async def _translate_in_turn(self, trip: Trip) -> Result:
        """Translate a text; if a device is full, again when another text of its document has ended.

        Otherwise a list that is longer than what a device takes at a time would be refused for ever. Raises `ServiceError`.
        """
        document = trip.document
        while True:
            try:
                return await self.translate(trip)
            except ServiceError as error:
                document.under_way.discard(trip.number)
                if error.status != TOO_MANY or not document.under_way:
                    raise
            trip.target, trip.fell_back = None, False
            await document.wait_for_end(trip.number)

    async def translate(self, trip: Trip) -> Result:
        """Return the translation. Raises `ServiceError`; is cancelled at the deadline."""
        line = self.engine.line(trip.text, trip.model)
        trip.src_len = len(line.ids)
        return await self.execute(trip, line) if line.ids else Result("", 0.0, 0.0)

    async def execute_here(self, trip: Trip, line: SourceLine, began: Callable[[float], None] | None = None) -> Result:
        """Let the engine translate a line; see `EngineProcess.execute`. Raises `ServiceError`, also if too many wait for it."""
        most, is_waiting = self._front.max_waiting, True
        if most is None:
            return await self.engine.execute(line, trip.forced_len, began, trip.model, trip.rank)
        if self._queued >= most:
            raise ServiceError(429, f"{self._queued} sentences wait here; try again later", retry_after_s=1.0)

        def leave_queue() -> None:
            nonlocal is_waiting
            self._queued -= is_waiting
            is_waiting = False

        def begin(begin_s: float) -> None:
            leave_queue()
            if began is not None:
                began(begin_s)

        self._queued += 1
        try:
            return await self.engine.execute(line, trip.forced_len, begin, trip.model, trip.rank)
        finally:
            leave_queue()

    def note(self, trip: Trip, result: Result | None, outcome: Outcome) -> None:
        """Count and log how a text ended."""
        trip.ended_s, first = time.monotonic(), None if result is None else result.deferred
        self.outcomes[outcome] += 1
        if result is not None and not trip.hit:
            src_len, tgt_len, batch = result.lengths
            self._tokens[0].inc(src_len)
            self._tokens[1].inc(tgt_len)
            self._queue.observe(result.queue_s)
            self._execution.observe(result.execution_s)
            self._batch.observe(batch)
        self.write(
            RequestRecord(
                request=trip.number,
                ingress_s=trip.ingress_s,
                decision_s=trip.decided_s,
                src_len=trip.src_len,
                tgt_len=None if result is None else result.lengths[1],
                target=trip.target,
                device=trip.device,
                queue_s=None if result is None else result.queue_s,
                execution_s=None if result is None else result.execution_s,
                transfer_s=None if result is None else trip.transfer_s,
                egress_s=trip.ended_s,
                outcome=outcome,
                batch=1 if result is None else max(result.lengths[2], 1),
                sender=trip.sender,
                model=trip.model,
                model_load=result is not None and result.model_load,
                hit=trip.hit,
                request_class=trip.request_class,
                document=trip.document.number,
                deferred_queue_s=None if first is None else first.queue_s,
                deferred_exe_s=None if first is None else first.execution_s,
            )
        )

    def write(self, record: Record) -> None:
        """Append a record to the log, if there is one that can be written."""
        if self._log is not None:
            try:
                self._log.write(format_record(record))
            except (OSError, ValueError) as error:  # a full disk; a file that the caller has closed
                self._log = None
                self._on_error(f"the log cannot be written any more: {getattr(error, 'strerror', None) or error}")

    def _note_reference(self, at_s: float, execution_s: float) -> None:
        self.write(ReferenceRecord(self.name, at_s, execution_s))

    def _response(self, asked: TranslateRequest, trips: list[Trip], results: list[Result], source: str) -> web.Response:
        ingress_s = trips[0].ingress_s
        longest = max(results, key=lambda result: result.queue_s + result.execution_s)
        headers = _headers(longest, time.monotonic() - ingress_s)
        by_text: list[dict[str, str]] | None = None
        if asked.number:
            headers[messages.REQUEST] = asked.number
            if asked.is_list:  # of a client that knows these headers
                by_text = [_headers(result, trip.ended_s - ingress_s) for trip, result in zip(trips, results, strict=True)]
        detected = source if asked.source == "auto" else None
        body = messages.answer_body([result.text for result in results], asked.is_list, detected, by_text)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _languages(self, request: web.Request) -> web.Response:
        pairs = self._front.pairs
        targets = {code: [target for source, target in pairs if source == code] for pair in pairs for code in pair}
        return web.json_response([{"code": code, "name": code, "targets": to} for code, to in targets.items()])

    async def _detect(self, request: web.Request) -> web.Response:
        # Nothing is detected: no confidence.
        return web.json_response([{"language": self._front.pairs[0][0], "confidence": 0}])

    async def _health(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:  # a client that has a token learns whether it is the right one
            self.http.check_token(request, "")
        facts = {"needs_token": self.http.needs_token, **self.health()}
        if self.is_ready:
            return web.json_response({"status": "ok", **facts})
        starting = {"status": "starting", "error": "the engine is starting", **facts}
        return web.json_response(starting, status=503, headers={"Retry-After": "1"})


def _headers(result: Result, total_s: float) -> dict[str, str]:
    """Return the headers about a text that was at the service for `total_s` seconds."""
    times = Times(result.queue_s, result.execution_s, total_s, result.first_token_s)
    headers = {messages.TIMING: times.header(), messages.LENGTHS: ",".join(map(str, result.lengths))}
    if result.report:
        headers[messages.REPORT] = ",".join(map(str, result.report))
    if result.decision:
        headers[messages.DECISION] = result.decision
    return headers


def outcome_of(error: ServiceError) -> Outcome:
    """Return how a request ended that was not translated."""
    return "timeout" if error.status == 504 else "refused" if error.status in (429, 503) else "failed"


async def _all_or_error(coroutines: list[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return all results; the first error cancels the others."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class LiveServer(LiveService):
    """A server of one model, or of several: one for each pair of languages, with its name."""

    def __init__(self, engine: Engine, front: FrontSettings, **others: Any) -> None:
        """See `LiveService`."""
        super().__init__("server", engine, front, **others)
        if isinstance(engine, ModelEngines):
            loads = Counter("simnmt_model_loads", "Loads, by model.", ["model"], registry=self.metrics)
            for model in engine.models:
                loads.labels(model)  # counted from 0
            engine.on_load = lambda model: loads.labels(model).inc()

    async def start(self) -> None:
        """Load each model once, and listen. Raises `InputError` for what cannot be used."""
        self.write(BeginRecord("server", (self.name,), None, await self.engine.ready()))
        await self.http.start()

    async def execute(self, trip: Trip, line: SourceLine) -> Result:
        """See `LiveService`."""
        trip.target, trip.device, trip.decided_s = 0, self.name, trip.ingress_s
        return await self.execute_here(trip, line)

    def health(self) -> Mapping[str, Any]:
        """See `LiveService`."""
        return {"service": "server", "simnmt": VERSION, **self.engine.describe()}
