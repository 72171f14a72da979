"""The frame of an HTTP service: who may connect, limits, error answers, metrics, and a graceful end.

A service gives its routes; the frame refuses bodies that are too large (413) or compressed (415), connections beyond the limit,
and requests without the token (403), turns errors into LibreTranslate's `{"error": ...}`, and at the end lets requests finish.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import signal
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from aiohttp import web
from aiohttp.web_protocol import RequestHandler
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from simnmt.base.errors import InputError
from simnmt.base.files import MOST_SECRET_BYTES, check_regular
from simnmt.service.addresses import Address, listen_at
from simnmt.service.messages import ServiceError

Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]
"""Answers one request; may raise `ServiceError`."""


_ORIGIN = re.compile(r"https?://[^/\s]+")


@dataclass(frozen=True, slots=True)
class Access:
    """Where a service listens, and who may use it. Raises `InputError` for an open address without protection."""

    address: Address = field(default_factory=Address)
    token: str = ""
    """Requests must carry it, as `api_key` or `Authorization: Bearer`; empty: none is needed."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    """True if a proxy before the service encrypts."""
    allow_origin: str = ""
    """Origin of web pages whose scripts may use the service, such as `https://example.org`, or `*`; empty: none."""

    def __post_init__(self) -> None:
        if self.allow_origin not in ("", "*") and not _ORIGIN.fullmatch(self.allow_origin):
            raise InputError(f"{self.allow_origin!r} is no origin", remedy="give such as https://example.org, or *")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InputError("--tls-cert and --tls-key belong together", remedy="give both")
        if self.address.is_loopback:
            return
        if not self.token:
            raise InputError(f"{self.address} is open to others, and no token is asked", remedy="give --token-file")
        if self.tls_cert is None and not self.behind_proxy:
            remedy = "give --tls-cert and --tls-key, or --behind-proxy if a proxy encrypts"
            raise InputError(f"{self.address} is open to others without encryption", remedy=remedy)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the encryption of the service; None without. Raises `InputError` for unusable files."""
        if self.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            for path in filter(None, (self.tls_cert, self.tls_key)):
                check_regular(path, MOST_SECRET_BYTES, pipes=True)  # the library would read a device without end
            context.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError) as error:
            what = f"no certificate with its key: {error.strerror or error}"
            raise InputError(what, path=self.tls_cert, remedy="give PEM files that belong together") from None
        return context


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an HTTP service."""

    body_bytes: int = 1_000_000
    connections: int = 512
    """Open connections; further ones are closed at once."""
    read_s: float = 10.0
    """Longest time in which a client sends a body."""
    idle_s: float = 60.0
    """Longest time without a complete request on a connection, from its opening or its last answer."""
    unacknowledged_s: float = 30.0
    """Longest time in which a client takes nothing of an answer."""
    drain_s: float = 30.0
    """Longest time in which the requests under way may finish at the end."""


class Metrics:
    """Prometheus metrics of a service, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("simnmt_requests", "Requests by path and status.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram(
            "simnmt_request_seconds",
            "Seconds from a request to its answer, by path.",
            ["path"],
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
            registry=self.registry,
        )
        self.connections = Gauge("simnmt_connections", "Open connections.", registry=self.registry)
        self.refused = Counter("simnmt_refused_connections", "Connections beyond the limit.", registry=self.registry)
        self._observers = dict[tuple[str, int], tuple[Counter, Histogram]]()

    def observe(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        observers = self._observers.get((path, status))
        if observers is None:  # `labels` costs more than counting
            observers = self.requests.labels(path, str(status)), self.seconds.labels(path)
            self._observers[path, status] = observers
        observers[0].inc()
        observers[1].observe(seconds)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text form."""
        return generate_latest(self.registry)


class _BoundedServer(web.Server):
    """A server with at most a number of open connections."""

    def __init__(self, handler: Handler, limits: Limits, metrics: Metrics) -> None:
        super().__init__(
            handler,
            request_factory=self._request,
            keepalive_timeout=limits.idle_s,
            lingering_time=LINGERING_S,
            access_log=None,
            logger=_quiet_logger(),
            auto_decompress=False,  # the library would inflate on the event loop, ahead of the token's check
        )
        self._limits, self._metrics = limits, metrics
        self._idle_since_s: dict[RequestHandler, float] = {}
        """Open connections: when each began to wait for a request; infinity while one is answered."""
        self._sweep_handle: asyncio.TimerHandle | None = None

    def _request(self, message: object, payload: object, protocol: object, writer: object, task: object) -> web.BaseRequest:
        loop = asyncio.get_running_loop()
        most = self._limits.body_bytes
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=most)  # type: ignore[arg-type]

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection, or close it beyond the limit."""
        super().connection_made(handler, transport)
        if len(self._idle_since_s) >= self._limits.connections:
            self._metrics.refused.inc()
            self._loop.call_soon(transport.abort)  # not now: aiohttp would start to serve a connection that is gone
            return
        self.note_idle(handler)
        self._metrics.connections.set(len(self._idle_since_s))
        if self._sweep_handle is None:
            self._sweep_handle = self._loop.call_later(self._limits.idle_s / 4, self._sweep)
        if (connection := transport.get_extra_info("socket")) is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1e3 * self._limits.unacknowledged_s))

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        """Forget a connection."""
        super().connection_lost(handler, exc)
        self._idle_since_s.pop(handler, None)
        self._metrics.connections.set(len(self._idle_since_s))

    def note_busy(self, handler: RequestHandler) -> None:
        """Note that a request of a connection is complete but for its body, and is answered now."""
        if handler in self._idle_since_s:
            self._idle_since_s[handler] = inf

    def note_idle(self, handler: RequestHandler) -> None:
        """Note that a connection waits for a request."""
        self._idle_since_s[handler] = self._loop.time()

    def _sweep(self) -> None:
        """Close connections that send no request: aiohttp waits for a first request, and for the rest of one, for ever."""
        self._sweep_handle = None
        latest_s = self._loop.time() - self._limits.idle_s
        for handler in [handler for handler, since_s in self._idle_since_s.items() if since_s <= latest_s]:
            if handler.transport is not None:
                handler.transport.abort()
        if self._idle_since_s:
            self._sweep_handle = self._loop.call_later(self._limits.idle_s / 4, self._sweep)


LINGERING_S = 2.0
"""Time for which the rest of a refused body is read, so that its sender sees the answer."""
CUT_OFF_S = 1.0
"""Time that connections have at the end, after the requests under way had theirs."""


def _quiet_logger() -> logging.Logger:
    """Return a logger that drops what clients do wrong: they have their answer."""
    logger = logging.Logger("simnmt.service")
    logger.addHandler(logging.NullHandler())
    return logger


class HttpService:
    """A running HTTP service; its routes are known by method and path."""

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Handler],
        access: Access,
        limits: Limits,
        metrics: Metrics,
        *,
        on_error: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`on_error`: called with a line about a fault of the service itself."""
        self._routes, self._access, self._limits, self.metrics = dict(routes), access, limits, metrics
        self._routes["GET", "/metrics"] = self._metrics_text
        self._paths = {path for _, path in self._routes}
        self._on_error = on_error
        self._under_way = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False
        self.url = ""
        """Where the service listens; empty before `start`."""
        self._server: _BoundedServer | None = None
        self._runner: web.ServerRunner | None = None
        self._site: web.SockSite | None = None

    async def start(self) -> None:
        """Listen. Raises `InputError` if the address or the certificate cannot be used."""
        self._server = _BoundedServer(self._handle, self._limits, self.metrics)
        self._runner = web.ServerRunner(self._server, handle_signals=False, shutdown_timeout=CUT_OFF_S)
        await self._runner.setup()
        listener = listen_at(self._access.address)
        self._site = web.SockSite(self._runner, listener, ssl_context=self._access.ssl_context(), backlog=1024)
        await self._site.start()
        host, port = self._runner.addresses[0][:2]
        scheme = "http" if self._access.tls_cert is None else "https"
        self.url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def serve_until_stopped(self, drain: Callable[[], None] = lambda: None) -> None:
        """Serve until SIGTERM or SIGINT, then drain; `drain` is called when that begins."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, stop.set)
        try:
            await stop.wait()
            drain()
            await self.stop()
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def stop(self) -> None:
        """Take no more connections, let the requests under way finish, and close; may be called again."""
        self.draining = True
        runner, self._runner = self._runner, None
        if runner is None:
            return
        if self._site is not None:
            await self._site.stop()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), self._limits.drain_s)
        await runner.cleanup()

    async def read_body(self, request: web.BaseRequest) -> bytes:
        """Return the body of a request. Raises `ServiceError` if it is too large or too slow."""
        if (request.content_length or 0) > self._limits.body_bytes:
            raise ServiceError(413, f"the body is larger than {self._limits.body_bytes:,} bytes")
        if request.headers.get("Expect", "").lower() == "100-continue":  # curl waits a second for this
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        try:
            if request.content.is_eof():  # most bodies come with their head
                return await request.read()
            return await asyncio.wait_for(request.read(), self._limits.read_s)
        except web.HTTPRequestEntityTooLarge:
            raise ServiceError(413, f"the body is larger than {self._limits.body_bytes:,} bytes") from None
        except asyncio.TimeoutError:
            raise ServiceError(408, f"the body did not come within {self._limits.read_s:g} s") from None

    def check_token(self, request: web.BaseRequest, api_key: str) -> None:
        """Raise `ServiceError` with status 403 for a request without the token."""
        expected = self._access.token.encode()
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        given = (api_key or bearer).encode(errors="surrogatepass")
        if expected and not hmac.compare_digest(expected, given):
            raise ServiceError(403, "the token is missing or wrong")

    @property
    def needs_token(self) -> bool:
        """Whether requests must carry a token."""
        return bool(self._access.token)

    async def _handle(self, request: web.BaseRequest) -> web.Response:
        begin_s = time.perf_counter()
        path = request.path if request.path in self._paths else "other"
        assert self._server is not None
        self._server.note_busy(request.protocol)
        self._under_way += 1
        self._idle.clear()
        try:
            response = await self._answer(request)
        finally:
            self._under_way -= 1
            if request.transport is not None:
                self._server.note_idle(request.protocol)
            if not self._under_way:
                self._idle.set()
        self.metrics.observe(path, response.status, time.perf_counter() - begin_s)
        if self._access.allow_origin:
            response.headers.update(_CORS | {"Access-Control-Allow-Origin": self._access.allow_origin})
        if self.draining:
            response.force_close()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        handler = self._routes.get((request.method, request.path))
        try:
            if handler is None and request.method == "OPTIONS" and self._access.allow_origin:
                return web.Response()
            if handler is None:
                methods = [method for method, path in self._routes if path == request.path]
                raise ServiceError(405 if methods else 404, f"no {request.method} {request.path[:80]} here")
            if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                raise ServiceError(415, "compressed bodies are not read; send the body as it is")
            return await handler(request)
        except ServiceError as error:
            return error_response(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            self._on_error(f"{request.method} {request.path}: {type(error).__name__}: {error}")
            return error_response(ServiceError(500, "the service failed; its log says why"))

    async def _metrics_text(self, request: web.BaseRequest) -> web.Response:
        self.check_token(request, "")
        return web.Response(body=self.metrics.text(), content_type="text/plain", charset="utf-8")


_CORS = {"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": "Authorization, Content-Type"}
"""What a browser asks for before a script of another origin sends a request, as LibreTranslate answers it."""


def error_response(error: ServiceError) -> web.Response:
    """Return the answer to a request that is refused or failed."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(max(round(error.retry_after_s), 1))}
    body = json.dumps({"error": error.message}).encode()
    return web.Response(body=body, status=error.status, content_type="application/json", headers=headers)


def json_response(content: object) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(body=json.dumps(content).encode(), content_type="application/json")
