"""A client of a translation service, which measures each request."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import aiohttp

from simnmt.base.errors import InputError
from simnmt.service.messages import Answer, ServiceError, TranslateRequest, parse_answer

MOST_RETRY_S = 60.0
"""Longest pause that a service may ask for."""
MOST_BODY_BYTES = 16_000_000
"""Largest answer that a client reads."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """An answered request, by the client's monotonic clock."""

    answer: Answer
    sent_s: float
    received_s: float
    headers: Mapping[str, str]

    @property
    def transfer_s(self) -> float:
        """Seconds of the exchange beside the server's queue and execution, from durations alone (CNMT-11).

        All of it for a service that states no times.
        """
        times = self.answer.times
        away_s = self.received_s - self.sent_s
        return away_s if times is None else max(away_s - times.queue_s - times.execution_s, 0.0)


class TranslationClient:
    """A client of one service, over connections that stay open. Use it within `async with`."""

    def __init__(
        self, url: str, *, token: str = "", connections: int = 64, timeout_s: float = 60.0, ca_file: Path | None = None
    ) -> None:
        """Raises `InputError` for another address than `http://` or `https://`, and for an unusable `ca_file`.

        A service's certificate is verified: by the authorities in `ca_file`, or by those of the system without one.
        """
        if not url.startswith(("http://", "https://")):
            raise InputError(f"{url} is no address of a service", remedy="give http://HOST:PORT or https://HOST:PORT")
        self.url = url.rstrip("/")
        self._token = token
        self._connections, self._timeout_s = connections, timeout_s
        self._session: aiohttp.ClientSession | None = None
        self._tls = ssl.create_default_context() if url.startswith("https://") else None
        if ca_file is not None:
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except (OSError, ssl.SSLError) as error:
                what = f"no certificates of authorities: {error.strerror or error}"
                raise InputError(what, path=ca_file, remedy="give a PEM file") from None

    @property
    def has_token(self) -> bool:
        """Whether the client sends a token."""
        return bool(self._token)

    async def __aenter__(self) -> TranslationClient:
        connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=30.0, ssl=self._tls or True)
        timeout = aiohttp.ClientTimeout(total=self._timeout_s, connect=min(5.0, self._timeout_s))
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def translate(self, request: TranslateRequest, timeout_s: float | None = None) -> Exchange:
        """Ask for a translation. Raises `ServiceError`: the service's own status, 502 if it cannot be reached, 504 in time."""
        assert self._session is not None, "use the client within async with"
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        sent_s = time.monotonic()
        try:
            async with self._session.post(
                f"{self.url}/translate", data=request.body(), headers=request.headers() | self._authorization(), timeout=timeout
            ) as response:
                body = await _bounded_body(response)
                received_s = time.monotonic()
                if response.status != 200:
                    raise ServiceError(response.status, _error_text(body), retry_after_s=_retry_after(response.headers))
                return Exchange(parse_answer(body, response.headers), sent_s, received_s, response.headers)
        except asyncio.TimeoutError:
            raise ServiceError(504, f"{self.url} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise ServiceError(502, f"{self.url} cannot be reached: {_cause(error)}") from None

    async def health(self, timeout_s: float = 5.0) -> tuple[Mapping[str, Any], float]:
        """Return what the service says of itself, and the seconds of the round trip. Raises `ServiceError`."""
        assert self._session is not None, "use the client within async with"
        sent_s = time.monotonic()
        try:
            async with self._session.get(
                f"{self.url}/health", headers=self._authorization(), timeout=aiohttp.ClientTimeout(total=timeout_s)
            ) as response:
                body = await _bounded_body(response)
                content = json.loads(body)
        except asyncio.TimeoutError:
            raise ServiceError(504, f"{self.url} did not answer in time") from None
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            raise ServiceError(502, f"{self.url} cannot be reached: {_cause(error)}") from None
        if response.status != 200 or not isinstance(content, dict):
            raise ServiceError(response.status, _error_text(body))
        return content, time.monotonic() - sent_s

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raises `ServiceError` for one that no translation needs."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BODY_BYTES:
            raise ServiceError(502, f"the service's answer has more than {MOST_BODY_BYTES:,} bytes")
    return bytes(body)


def _cause(error: Exception) -> str:
    """Describe why a connection failed."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "nobody known here vouches for its certificate (name its authorities with --ca-file)"
    if isinstance(error, aiohttp.ClientConnectorSSLError):
        return "it does not encrypt as it should (write http:// if it does not at all)"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection (write https:// if it encrypts)"
    return str(error)


def _error_text(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:200]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "the service refused the request"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    try:
        seconds = float(headers["Retry-After"])
    except (KeyError, ValueError):
        return None
    return None if isnan(seconds) else min(max(seconds, 0.0), MOST_RETRY_S)
