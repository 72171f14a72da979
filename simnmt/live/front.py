"""The LibreTranslate API in front of one or more engines: what a live server and gateway have in common, their log too."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol, TextIO

from aiohttp import web

from simnmt.results.live_log import Outcome, Record, format_record
from simnmt.service import messages
from simnmt.service.http_server import Access, HttpService, Limits, Metrics, json_response
from simnmt.service.messages import ServiceError, Times, TranslateRequest


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """What clients may ask of a service, and how much at a time."""

    source: str = "de"
    """Code of the language that is translated."""
    target: str = "en"
    texts: int = 100
    """Most texts of one request."""
    waiting: int = 256
    """Most sentences under way; further requests are refused with status 429."""
    deadline_s: float = 30.0
    """Time within which a request must be answered, unless it states a shorter one; then status 504."""
    forced_lengths: bool = False
    """Whether requests may state the number of target tokens, for validation."""


@dataclass(frozen=True, slots=True)
class Task:
    """One text of a request, on its way through a service."""

    number: int
    """Counts the texts of the service."""
    text: str
    forced_len: int | None
    ingress_s: float
    """When the whole request had been read, by the monotonic clock."""
    deadline_s: float
    """When it must be answered, by that clock."""
    sender: str = ""
    """The sender's number of the request."""


@dataclass(frozen=True, slots=True)
class Result:
    """A translated text, with the facts that the answer's headers state."""

    text: str
    queue_s: float
    execution_s: float
    report: tuple[int, ...] = ()
    lengths: tuple[int, int, int] = (0, 0, 0)
    """Source and target tokens, and the most sentences decoded together."""
    decision: str = ""


class Translator(Protocol):
    """Translates the texts of a front."""

    async def translate(self, task: Task) -> Result:
        """Return the translation. Raises `ServiceError`; is cancelled at the task's deadline."""

    def health(self) -> Mapping[str, Any]:
        """Return what clients may know of the service."""


@dataclass(slots=True)
class Front:
    """A translation service: routes, admission and answers before a `Translator`."""

    translator: Translator
    settings: FrontSettings
    access: Access
    limits: Limits
    metrics: Metrics
    on_error: Callable[[str], None]
    on_egress: Callable[[Task, Result | ServiceError, float], None] = lambda task, result, egress_s: None
    """Called with each text when its answer is handed over, and with that moment."""
    service: HttpService = field(init=False)
    waiting: int = field(default=0, init=False)
    """Texts under way."""
    outcomes: Counter[Outcome] = field(default_factory=Counter, init=False)
    """Texts by how they ended."""
    _number: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        routes = [
            web.post("/translate", self._translate),
            web.get("/languages", self._languages),
            web.post("/detect", self._detect),
            web.get("/health", self._health),
        ]
        self.service = HttpService(routes, self.access, self.limits, self.metrics, on_error=self.on_error)

    async def _translate(self, request: web.Request) -> web.Response:
        settings = self.settings
        content = await self.service.read_content(request)
        ingress_s = time.monotonic()
        asked = messages.parse_request(content, request.headers, most_texts=settings.texts)
        self.service.check_token(request, asked.api_key)
        self._check(asked)
        if len(asked.texts) > settings.waiting:
            what = f"q has {len(asked.texts)} texts, and {settings.waiting} at most are translated at a time"
            raise ServiceError(400, f"{what}; send fewer")
        if self.waiting + len(asked.texts) > settings.waiting:
            self.outcomes["refused"] += len(asked.texts)
            raise ServiceError(429, f"{self.waiting} sentences are under way; try again later", retry_after_s=1.0)
        deadline_s = ingress_s + min(settings.deadline_s, asked.deadline_s or inf)
        forced = asked.forced_lens or (None,) * len(asked.texts)
        tasks = [
            Task(self._number + position, text, forced_len, ingress_s, deadline_s, asked.number)
            for position, (text, forced_len) in enumerate(zip(asked.texts, forced, strict=True))
        ]
        self._number += len(tasks)
        self.waiting += len(tasks)
        try:
            if len(tasks) == 1:
                results = [await self._one(tasks[0])]
            else:
                results = await _all_or_error([self._one(task) for task in tasks])
        finally:
            self.waiting -= len(tasks)
        return self._response(asked, results, ingress_s)

    def _check(self, asked: TranslateRequest) -> None:
        settings = self.settings
        if asked.source not in (settings.source, "auto") or asked.target != settings.target:
            pair = f"{asked.source} to {asked.target}"
            raise ServiceError(400, f"{pair} is not translated here, only {settings.source} to {settings.target}")
        if asked.forced_lens is not None and not settings.forced_lengths:
            raise ServiceError(400, f"{messages.FORCED_LENGTH} is not allowed here")

    async def _one(self, task: Task) -> Result:
        result: Result | ServiceError = ServiceError(500, "given up, since another text of the request failed")
        try:
            result = await asyncio.wait_for(self.translator.translate(task), max(task.deadline_s - time.monotonic(), 1e-3))
        except asyncio.TimeoutError:
            result = ServiceError(504, "not translated within the deadline")
            raise result from None
        except ServiceError as error:
            result = error
            raise
        finally:
            self.outcomes["done" if isinstance(result, Result) else outcome_of(result)] += 1
            self.on_egress(task, result, time.monotonic())
        return result

    def _response(self, asked: TranslateRequest, results: list[Result], ingress_s: float) -> web.Response:
        total_s = time.monotonic() - ingress_s
        longest = max(results, key=lambda result: result.queue_s + result.execution_s)
        headers = {messages.TIMING: Times(longest.queue_s, longest.execution_s, total_s).header()}
        if asked.number:
            headers[messages.REQUEST] = asked.number
        if longest.report:
            headers[messages.REPORT] = ",".join(map(str, longest.report))
        headers[messages.LENGTHS] = ",".join(map(str, longest.lengths))
        if longest.decision:
            headers[messages.DECISION] = longest.decision
        body = messages.answer_body(
            [result.text for result in results], asked.is_list, self.settings.source if asked.source == "auto" else None
        )
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _languages(self, request: web.Request) -> web.Response:
        source, target = self.settings.source, self.settings.target
        return json_response(
            [{"code": source, "name": source, "targets": [target]}, {"code": target, "name": target, "targets": []}]
        )

    async def _detect(self, request: web.Request) -> web.Response:
        # One language is translated here, so nothing is detected: no confidence.
        return json_response([{"language": self.settings.source, "confidence": 0}])

    async def _health(self, request: web.Request) -> web.Response:
        if "Authorization" in request.headers:  # a client that has a token learns whether it is the right one
            self.service.check_token(request, "")
        return json_response({"status": "ok", "needs_token": self.service.needs_token, **self.translator.health()})


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


class EventLog:
    """A log of JSON lines; without a file nothing is written."""

    def __init__(self, file: TextIO | None, on_error: Callable[[str], None] = lambda text: None) -> None:
        """`file`: buffered by lines; the caller closes it. `on_error`: called once if the file cannot be written."""
        self._file, self._on_error = file, on_error

    def write(self, record: Record) -> None:
        """Append a record."""
        if self._file is not None:
            try:
                self._file.write(format_record(record))
            except (OSError, ValueError) as error:  # a full disk; a file that the caller has closed
                self._file = None
                self._on_error(f"the log cannot be written any more: {getattr(error, 'strerror', None) or error}")
