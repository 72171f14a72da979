"""The frame of an HTTP service: who may connect, limits of bodies, error answers, metrics, and a graceful end.

A service gives its routes to aiohttp; the frame refuses bodies that are too large (413) or compressed (415) and requests
without the token (403), turns errors into LibreTranslate's `{"error": ...}`, and at the end lets requests finish.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import os
import re
import signal
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from simnmt.base.errors import InputError, shorten
from simnmt.base.files import MOST_SECRET_BYTES, check_regular, read_bounded
from simnmt.service.messages import ServiceError, form_content, parse_json

if sys.version_info >= (3, 11):
    from asyncio import timeout as timeout
else:
    from async_timeout import timeout as timeout  # which aiohttp brings there; `wait_for` would start a task

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_QUIET = logging.Logger("simnmt.service", logging.CRITICAL + 1)
"""Drops what the library says of wrong requests: clients have their answer."""
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Of histograms of seconds."""


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a port; port 0 stands for any that is free."""

    host: str = "127.0.0.1"
    port: int = 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only programs on this box reach the address."""
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"


def parse_address(text: str, option: str) -> Address:
    """Return the address of `HOST:PORT`, `[::1]:PORT`, or `PORT` on this box. Raises `InputError` that names `option`."""
    host, _, port = text.strip().rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) < 8):
        remedy = "write it as HOST:PORT, such as 127.0.0.1:5000"
        raise InputError(f"{option} {shorten(text)!r} is not an address", remedy=remedy)
    if int(port) > 65_535:
        raise InputError(f"{option}: {int(port)} is not a valid port (1-65535)")
    return Address(host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port))


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


def read_token(path: Path | None, variable: str) -> str:
    """Return the token of a file, else of the environment; empty without both. Raises `InputError`."""
    if path is None:
        return os.environ.get(variable, "").strip()
    try:
        token = read_bounded(path, MOST_SECRET_BYTES, pipes=True).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "no UTF-8 text"
        raise InputError(f"cannot read the token: {why}", path=path, remedy="name a text file") from None
    if not token or not token.isprintable() or len(token) > 1000:
        raise InputError("holds no token", path=path, remedy="write one line of at most 1000 characters")
    return token


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of an HTTP service."""

    body_bytes: int = 1_000_000
    read_s: float = 10.0
    idle_s: float = 60.0
    """Longest time without a request on a connection, from its last answer."""
    drain_s: float = 30.0
    """Longest time in which the requests under way may finish at the end."""


class HttpService:
    """A running HTTP service."""

    def __init__(
        self,
        routes: Sequence[web.RouteDef],
        access: Access,
        limits: Limits,
        metrics: CollectorRegistry,
        on_error: Callable[[str], None],
    ) -> None:
        """`routes`: handlers, which may raise `ServiceError`; `on_error`: called with a line about a fault of the service."""
        self._access, self._limits, self._metrics, self._on_error = access, limits, metrics, on_error
        self._requests = Counter("simnmt_requests", "Requests by path and status.", ["path", "status"], registry=metrics)
        what = "Seconds from a request to its answer, by path."
        self._seconds = Histogram("simnmt_request_seconds", what, ["path"], buckets=BUCKETS_S, registry=metrics)
        app = web.Application(middlewares=[self._answer], client_max_size=limits.body_bytes)
        app.add_routes([*routes, web.get("/metrics", self._metrics_text)])
        self._paths = {resource.canonical for resource in app.router.resources()}
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=_QUIET,
            keepalive_timeout=limits.idle_s,
            shutdown_timeout=limits.drain_s,
            lingering_time=min(limits.read_s, 10.0),  # for the rest of a refused body
            auto_decompress=False,  # the library would inflate on the event loop, ahead of the token's check
        )
        self._is_stopping = False
        self.url = ""
        """Where the service listens; empty before `start`."""

    async def start(self) -> None:
        """Listen. Raises `InputError` if the address or the certificate cannot be used."""
        await self._runner.setup()
        address = self._access.address
        try:
            await web.TCPSite(self._runner, address.host, address.port, ssl_context=self._access.ssl_context()).start()
        except (OSError, UnicodeError) as error:
            what = f"--listen {address}: cannot listen there: {getattr(error, 'strerror', None) or error}"
            raise InputError(what, remedy="choose another port, or an address of this machine") from None
        scheme = "http" if self._access.tls_cert is None else "https"
        self.url = f"{scheme}://{Address(*self._runner.addresses[0][:2])}"

    async def serve_until_stopped(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await stop.wait()
        await self.stop()

    async def stop(self) -> None:
        """Take no more connections, let the requests under way finish, and close; may be called again."""
        self._is_stopping = True
        await self._runner.cleanup()

    async def read_content(self, request: web.Request) -> dict[str, Any]:
        """Return the content of a request: JSON, or the fields of a form and of the address's query.

        Raises `ServiceError` for a body that is neither, too large or too slow.
        """
        is_form = request.content_type in ("application/x-www-form-urlencoded", "multipart/form-data")
        try:
            async with timeout(self._limits.read_s):
                unquote_to_bytes(request.rel_url.raw_query_string).decode()  # aiohttp replaces what is not UTF-8
                if is_form or (request.query_string and not request.can_read_body):
                    return form_content([*request.query.items(), *(await request.post()).items()])
                return parse_json(await request.read())
        except web.HTTPRequestEntityTooLarge:
            raise ServiceError(413, f"the body is larger than {self._limits.body_bytes:,} bytes") from None
        except asyncio.TimeoutError:
            raise ServiceError(408, f"the body did not come within {self._limits.read_s:g} s") from None
        except (ValueError, LookupError, AssertionError, HttpProcessingError):
            raise ServiceError(400, "the body is no form in UTF-8") from None

    def check_token(self, request: web.Request, api_key: str) -> None:
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

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request: errors as JSON, headers for scripts of other origins, and counted."""
        begin_s, origin = time.perf_counter(), self._access.allow_origin
        response: web.StreamResponse
        try:
            if request.method == "OPTIONS" and origin:
                response = web.Response()
            else:
                if (request.content_length or 0) > self._limits.body_bytes:
                    raise ServiceError(413, f"the body is larger than {self._limits.body_bytes:,} bytes")
                if request.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
                    raise ServiceError(415, "compressed bodies are not read; send the body as it is")
                response = await handler(request)
        except web.HTTPException as error:
            response = _error_response(ServiceError(error.status, f"no {request.method} {request.path[:80]} here"))
        except ServiceError as error:
            response = _error_response(error)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            self._on_error(f"{request.method} {request.path}: {type(error).__name__}: {error}")
            response = _error_response(ServiceError(500, "the service failed; its log says why"))
        path = request.path if request.path in self._paths else "other"
        self._requests.labels(path, str(response.status)).inc()
        self._seconds.labels(path).observe(time.perf_counter() - begin_s)
        if self._is_stopping:
            response.force_close()
        if origin:
            response.headers.update(_CORS | {"Access-Control-Allow-Origin": origin})
        return response

    async def _metrics_text(self, request: web.Request) -> web.Response:
        self.check_token(request, "")
        return web.Response(body=generate_latest(self._metrics), content_type="text/plain", charset="utf-8")


_CORS = {"Access-Control-Allow-Methods": "GET, POST", "Access-Control-Allow-Headers": "Authorization, Content-Type"}
"""What a browser asks for before a script of another origin sends a request, as LibreTranslate answers it."""


def _error_response(error: ServiceError) -> web.Response:
    headers = {} if error.retry_after_s is None else {"Retry-After": str(max(round(error.retry_after_s), 1))}
    return web.json_response({"error": error.message}, status=error.status, headers=headers)
