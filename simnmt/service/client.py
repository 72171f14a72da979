"""A client of a translation service, which measures each request.

`DelayedTransport` sleeps the delays of a simulated network in the client: no proxy, no rights of an administrator (CNMT-03).
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
from typing_extensions import Self

from simnmt.base.configuration import EndOfSentence, end_tokens
from simnmt.base.errors import InputError, shorten
from simnmt.base.files import read_bounded
from simnmt.network.link import Hop
from simnmt.profile.slots_block import SlotsBlock
from simnmt.service.messages import Answer, ServiceError, TranslateRequest, describe_foreign_body, number_of, parse_answer
from simnmt.workload.length_units import count_words

MOST_RETRY_S = 60.0
"""Longest pause that a service may ask for."""
HEALTH_S = 5.0
"""Time within which a service must say what it is."""
MOST_BODY_BYTES = 16_000_000
"""Largest answer that a client reads."""
KEPT_S = 30.0
"""Longest time that an idle connection is kept, if the service does not say a shorter one."""
AT_ONCE_S = 1.0
"""Time after which a kept connection that breaks was surely open when the request was sent."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An answered request, by the client's monotonic clock."""

    answer: Answer
    sent_s: float
    received_s: float
    headers: Mapping[str, str]
    first_s: float = nan
    """Arrival of the first token; NaN if the service sends all of them together."""

    @property
    def transfer_s(self) -> float:
        """Seconds of the exchange beside the server's queue and execution, from durations alone (CNMT-11).

        All of it for a service that states no times.
        """
        times = self.answer.times
        away_s = self.received_s - self.sent_s
        return away_s if times is None else max(away_s - times.queue_s - times.execution_s, 0.0)

    def by_text(self) -> list[Exchange]:
        """Return the exchange of each text, as if each had been answered when it was translated.

        All are answered together if the service does not state that.
        """
        answer, (_, *others) = self.answer, self.answer.texts
        if not others:
            return [self]
        if not answer.by_text or answer.times is None:
            return [replace(self, answer=replace(answer, texts=(text,))) for text in answer.texts]
        # Answers without times, which no service of simnmt gives, count as the last one.
        early_s = [0.0 if one.times is None else max(answer.times.total_s - one.times.total_s, 0.0) for one in answer.by_text]
        return [
            replace(self, answer=one, received_s=self.received_s - text_s)
            for one, text_s in zip(answer.by_text, early_s, strict=True)
        ]


class DelayedTransport:
    """A middleware of an `aiohttp.ClientSession` that sleeps as long as messages travel over some hops.

    A message takes half of the round trip of the moment and its body's bits over the bandwidth, as in the simulation. Messages
    do not wait for each other; headers, handshakes and losses take no time.
    """

    def __init__(self, hops: Sequence[Hop]) -> None:
        """`hops`: from the client to the service; their series begin now."""
        self._hops = hops
        self.begin_s = time.monotonic()
        """Moment of the monotonic clock at which the series begin."""

    def way_s(self, size: int, side: int) -> float:
        """Return the seconds that a message of so many bytes takes to the service (side 0) or back (1) if it is sent now."""
        now_s, sizes = max(time.monotonic() - self.begin_s, 0.0), (0, size) if side else (size, 0)
        return sum(hop.ways_one_s(now_s, 0, *sizes, 1)[side] for hop in self._hops)

    async def __call__(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        """Send a request and return its answer, each after its delay."""
        await asyncio.sleep(self.way_s(int(request.headers.get("Content-Length", 0)), 0))
        response = await handler(request)
        try:
            await asyncio.sleep(self.way_s(response.content_length or 0, 1))
        except asyncio.CancelledError:
            response.close()
            raise
        return response


class _Sending:
    """Sends a request, and once more if it was sent on a kept connection that breaks at once.

    Services close idle connections, and the client learns that only when it writes. A service that breaks the connection later
    may have executed the request, so that this is an error. The times are those of the last sending.
    """

    def __init__(self) -> None:
        self.sent_s = 0.0
        self.reused_s = -inf
        """When a connection that had been used before was taken for the request."""

    async def __call__(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        try:
            return await self._once(request, handler)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            begun = isinstance(error, aiohttp.ServerDisconnectedError) and not isinstance(error.message, str)
            # begun: `message` is what came of an answer
            if begun or time.monotonic() - self.reused_s > AT_ONCE_S:
                raise
        return await self._once(request, handler)

    async def _once(self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        self.sent_s, self.reused_s = time.monotonic(), -inf
        return await handler(request)


async def _note_reuse(session: aiohttp.ClientSession, context: Any, parameters: aiohttp.TraceConnectionReuseconnParams) -> None:
    context.trace_request_ctx.reused_s = time.monotonic()


class _Connector(aiohttp.TCPConnector):
    """Connections of which idle ones are kept no longer than the service says."""

    def note(self, headers: Mapping[str, str]) -> None:
        """Take the time from a header `Keep-Alive: timeout=5`, less a reserve for the way to the service."""
        if stated := re.search(r"\btimeout=(\d{1,9})", headers.get("Keep-Alive", "")):
            seconds = int(stated[1])
            self._keepalive_timeout = min(KEPT_S, max(seconds - 1.0, 0.5 * seconds))


class HttpClient:
    """A client of one service, over connections that stay open. Use it within `async with`."""

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        connections: int = 64,
        timeout_s: float = 60.0,
        ca_file: Path | None = None,
        transport: DelayedTransport | None = None,
    ) -> None:
        """`ca_file`: authorities that vouch for the service, None for those of the system; `transport`: delays slept here.

        Raises `InputError` for another address than `http://` or `https://`, and for an unusable `ca_file` or `token`.
        """
        if not token.isprintable():
            raise InputError("the token holds a line break or a control character", remedy="give the token alone, on one line")
        self._tls = _tls_context(url, ca_file)
        self.url = url.rstrip("/")
        self._token, self._connections, self._timeout_s, self._transport = token, connections, timeout_s, transport
        self.has_token = bool(token)
        self._session: aiohttp.ClientSession | None = None
        self._connector: _Connector | None = None

    async def __aenter__(self) -> Self:
        self._connector = _Connector(limit=self._connections, keepalive_timeout=KEPT_S, ssl=self._tls or True)
        # Uncompressed: the bytes of an answer are counted, and inflating them would add to the time.
        headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)
        self._session = aiohttp.ClientSession(
            connector=self._connector, headers=headers, auto_decompress=False, trace_configs=[trace]
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def exchange(
        self, method: str, path: str, timeout_s: float | None = None, **content: Any
    ) -> AsyncIterator[tuple[aiohttp.ClientResponse, float]]:
        """Send a request, and yield its answer with status 200 and the moment at which the request was sent.

        A request on a kept connection that breaks at once is sent once more, and that moment counts.

        Raises `ServiceError`: the service's own status, 502 if it cannot be reached, 504 if it does not answer in time.
        """
        assert self._session is not None and self._connector is not None, "use the client within async with"
        sending, ways = _Sending(), () if self._transport is None else (self._transport,)
        total_s = timeout_s or self._timeout_s
        timeout = aiohttp.ClientTimeout(total=total_s, connect=min(5.0, total_s))
        try:
            async with self._session.request(
                method,
                self.url + path,
                timeout=timeout,
                allow_redirects=False,
                middlewares=(sending, *ways),
                trace_request_ctx=sending,
                **content,
            ) as response:
                self._connector.note(response.headers)
                if response.status != 200:
                    raise _refusal(response, await bounded_body(response), self._token)
                yield response, sending.sent_s
        except asyncio.TimeoutError:
            raise ServiceError(504, f"{self.url} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            cause, remedy = _failure(error)
            raise ServiceError(502, f"{self.url} {cause}", remedy=remedy) from None

    async def get_body(self, path: str, timeout_s: float) -> tuple[bytes, float]:
        """Return the bytes at a path, and the seconds of the round trip. Raises `ServiceError`."""
        async with self.exchange("GET", path, timeout_s) as (response, sent_s):
            return await bounded_body(response), time.monotonic() - sent_s

    async def get_json(self, path: str, timeout_s: float) -> tuple[Any, float]:
        """Return the JSON at a path, and the seconds of the round trip. Raises `ServiceError`."""
        body, seconds = await self.get_body(path, timeout_s)
        try:
            return json.loads(body), seconds
        except (ValueError, RecursionError):
            raise ServiceError(502, f"{self.url}{path} {describe_foreign_body(body)}") from None


TimedText = tuple[float, str, dict[str, bool]]
"""Seconds from the request to the whole answer, the translation, and whether the model `thinks` and the text `is_cut`."""


class ServiceClient(HttpClient, ABC):
    """A client of a service that translates, by any API (`simnmt.service.apis`)."""

    echo_path: ClassVar[str]
    """Path of a request that translates nothing."""
    keeps_prompts: ClassVar[bool] = False
    """Whether services may answer a text faster that begins as an earlier one."""

    def __init__(
        self,
        url: str,
        pair: tuple[str, str] = ("de", "en"),
        model: str = "",
        *,
        slots: SlotsBlock | None = None,
        counted: EndOfSentence = "none",
        streams: bool = False,
        counts_words: bool = False,
        **connection: Any,
    ) -> None:
        """Prepare the client.

        Args:
            url: of the service.
            pair: languages.
            model: its name at the service, if the API has names.
            slots: of the service's profile.
            counted: ends of sentences in the lengths of requests.
            streams: ask for tokens one by one, if the API can.
            counts_words: where a service states no lengths of a text and its answer, they are its words and the end.
            connection: as of an `HttpClient`.
        """
        super().__init__(url, **connection)
        self.pair, self.model, self._slots, self._streams = pair, model, slots, streams
        self._uncounted, self._counts_words = 1 - end_tokens(counted)[1], counts_words
        self.round_trip_s = 0.0
        """Of the greeting."""

    @abstractmethod
    async def check(self) -> None:
        """Raise `InputError` if the service does not do what is asked, `ServiceError` if it does not list what it does."""

    @abstractmethod
    async def measure(self, text: str) -> TimedText:
        """Return the answer to one sentence. Raises `ServiceError`."""

    @abstractmethod
    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """Ask for a translation. Raises `ServiceError`."""

    async def greet(self, token_option: str, remedy: str) -> Mapping[str, Any]:
        """Return what the service says of itself, and take the seconds of a round trip over the open connection.

        `token_option`: where its token is given, empty if nowhere; `remedy`: for one that does not answer. Raises `InputError`,
        also for a service that asks for another token, or does not do what is asked.
        """
        give_token = f"give its token by {token_option}" if token_option else "use a service that asks for no token"
        try:
            facts = await asyncio.wait_for(self._facts(), 2.0 * HEALTH_S)
            if facts.get("needs_token") and not self.has_token:
                raise InputError(f"{self.url} asks for a token", remedy=give_token)
            _, self.round_trip_s = await self.get_body("/health" if facts else self.echo_path, HEALTH_S)
        except ServiceError as error:
            what = error.message if self.url in error.message else f"{self.url}: {error.message}"
            if error.status in (401, 403):
                remedy = give_token
            raise InputError(what, remedy=error.remedy or remedy) from None
        except asyncio.TimeoutError:
            raise InputError(f"{self.url} did not answer within {2.0 * HEALTH_S:g} s", remedy=remedy) from None
        return facts

    async def _facts(self) -> Mapping[str, Any]:
        """Check the service, and return what it says of itself; most say nothing."""
        await self.check()
        return {}


class TranslationClient(ServiceClient):
    """A client of a service with LibreTranslate's API, as simnmt's own server and gateway are."""

    echo_path = "/languages"

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """See `ServiceClient`."""
        content: dict[str, Any] = {"data": request.body(), "headers": request.headers()}
        async with self.exchange("POST", "/translate", timeout_s, **content) as (response, sent_s):
            body = await bounded_body(response)
            received_s, headers = time.monotonic(), response.headers
        try:
            answer = parse_answer(body, headers)
        except ServiceError:
            with suppress(ValueError, RecursionError):
                check_no_error(json.loads(body), self._token)
            raise
        if len(answer.texts) != len(request.texts):
            raise ServiceError(502, f"{self.url} answered {len(request.texts)} texts with {len(answer.texts)} translations")
        if self._counts_words and answer.times is None and len(answer.texts) == 1 and not any(answer.lengths):
            answer = replace(answer, lengths=(count_words(request.texts[0]) + 1, count_words(answer.texts[0]) + 1, 0))
        return Exchange(answer, sent_s, received_s, headers)

    async def measure(self, text: str) -> TimedText:
        """See `ServiceClient`."""
        exchange = await self.translate(TranslateRequest((text,), False, *self.pair, self._token))
        return exchange.received_s - exchange.sent_s, exchange.answer.texts[0], {"thinks": False, "is_cut": False}

    async def health(self) -> tuple[Mapping[str, Any], float]:
        """Return what the service says of itself, and the seconds of the round trip. Raises `ServiceError`."""
        content, seconds = await self.get_json("/health", HEALTH_S)
        if not isinstance(content, dict):
            raise ServiceError(502, f"{self.url}/health is no object of JSON")
        return content, seconds

    async def _facts(self) -> Mapping[str, Any]:
        """See `ServiceClient`: a foreign service lists its languages alone."""
        facts: Mapping[str, Any] = {}
        try:
            facts, _ = await self.health()
        except ServiceError as error:
            if error.status not in (404, 405, 502):  # 502: nobody answers, which the languages show too
                raise
        try:
            await self.check()
        except ServiceError:
            if not facts:  # a service that answers `/health` need not list its languages
                raise
        return facts

    async def check(self) -> None:
        """Raise `InputError` if the service lists its languages without this pair, `ServiceError` if it does not list them.

        A language that is listed without `targets` is taken as translated to all listed languages.
        """
        (source, target), (content, _) = self.pair, await self.get_json(self.echo_path, self._timeout_s)
        try:
            codes = [str(language["code"]) for language in content]
            targets = {language["code"]: [*map(str, language.get("targets", codes))] for language in content}
        except (TypeError, KeyError, AttributeError):
            raise ServiceError(502, f"{self.url}/languages is no list of languages") from None
        if source == "auto" or target in targets.get(source, ()):
            return
        pairs = [f"{one} to {other}" for one, others in targets.items() for other in others if other != one]
        offered = shorten(", ".join(pairs) or "nothing", 120)
        what = f"{self.url} does not translate {source} to {target}, but {offered}"
        raise InputError(what, remedy="choose languages that it has, or measure its profile with them")


def _tls_context(url: str, ca_file: Path | None = None) -> ssl.SSLContext | None:
    """Return the verification of an address's certificate, None for `http://`. Raises `InputError` for another address."""
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url} is no address of a service", remedy="give http://HOST:PORT or https://HOST:PORT")
    if ca_file is not None:
        try:
            # Read here, since the library would wait at a pipe.
            return ssl.create_default_context(cadata=read_bounded(ca_file).decode("ascii"))
        except (OSError, ssl.SSLError, ValueError) as error:
            what = f"no certificates of authorities: {getattr(error, 'strerror', None) or error}"
            raise InputError(what, path=ca_file, remedy="give a PEM file") from None
    return ssl.create_default_context() if url.startswith("https://") else None


async def bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raises `ServiceError` for one that is too large."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ServiceError(502, f"the service's answer has more than {MOST_BODY_BYTES:,} bytes")
    return bytes(body)


def _failure(error: Exception) -> tuple[str, str | None]:
    """Return why there is no answer, and the remedy if the cause has one."""
    remedy = None
    if isinstance(error, aiohttp.ClientPayloadError):
        return "closed the connection in the middle of an answer", None
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause, remedy = "no known authority signed its certificate", "name its authorities with --ca-file"
    elif isinstance(error, aiohttp.ClientConnectorSSLError):
        cause, remedy = "it does not encrypt as it should", "write http:// if it does not encrypt"
    elif isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error.strerror or str(error.os_error)
    elif isinstance(error, aiohttp.ServerDisconnectedError):
        cause, remedy = "it closed the connection", "write https:// if it encrypts"
    else:
        cause = " ".join(str(error).split())[:200]
    return f"cannot be reached: {cause}", remedy


def _refusal(response: aiohttp.ClientResponse, body: bytes, token: str) -> ServiceError:
    """Return the error of an answer with another status than 200, in the service's own words where it has some.

    Redirects are errors: a client that followed one would send its token to another service, and measure two requests.
    """
    if 300 <= response.status < 400:
        address = response.headers.get("Location", "")
        return ServiceError(502, _without(token, f"it redirects to {address}: give that address"))
    message = ""
    with suppress(ValueError, RecursionError):
        message = _stated_error(json.loads(body), token)
    message = message or "the service refused the request"
    return ServiceError(response.status, message, retry_after_s=_retry_after(response.headers))


_ERROR_KEYS = ("error", "message", "detail", "details", "text")
"""Where services state an error: OpenAI and LibreTranslate, vLLM, FastAPI, TGI, FastChat."""


def _stated_error(answer: object, token: str) -> str:
    """Return the error that a service states in an answer, without the token that it may repeat; empty without one."""
    while isinstance(answer, dict) and (key := next((key for key in _ERROR_KEYS if answer.get(key)), None)):
        answer = answer[key]
    return _without(token, answer if isinstance(answer, str) else json.dumps(answer) if answer else "")


def check_no_error(answer: object, token: str) -> None:
    """Raise `ServiceError` if a service states an error in an answer with status 200."""
    if isinstance(answer, dict) and (answer.get("error") or answer.get("error_code") or answer.get("object") == "error"):
        message = _stated_error(answer, token) or "the service answered with an error that it does not state"
        raise ServiceError(502, message, is_stated=True)


def _without(token: str, text: str) -> str:
    """Return at most 200 characters of a text, with its tokens replaced before it is cut."""
    return (text.replace(token, "[token]") if token else text)[:200]


def _retry_after(headers: Mapping[str, str]) -> float | None:
    seconds = number_of(headers.get("Retry-After", ""))
    return None if isnan(seconds) else min(max(seconds, 0.0), MOST_RETRY_S)
