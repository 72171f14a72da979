"""One GET of a file of moderate size: bounded, retried if that may help, never redirected to another site."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3
from urllib3 import exceptions
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError

from simnmt.base import VERSION
from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError

# The library prints a traceback for odd headers and then ignores the headers.
logging.getLogger("urllib3").setLevel(logging.ERROR)

MOST_BYTES = 256 << 20
TIMEOUT_S = 30.0
"""Longest silence of the site."""
LONGEST_S = 900.0
"""Longest time for the whole answer, all attempts included."""
PAUSES_S = (1.0, 4.0, 15.0)
"""Pause before each further attempt, unless the site asks for a longer one."""
LONGEST_PAUSE_S = 60.0
_MOST_REDIRECTIONS = 10
_CHUNK = 1 << 16


def get(url: str, final: Mapping[int, TraceError], headers: Mapping[str, str]) -> bytes:
    """Return the body of `url`. Raises the `TraceError` that `final` has for the HTTP status, else one with the cause.

    After an answer of 429 or of 500 and above, silence or an incomplete answer the request is sent again after a pause.
    """
    site = shorten(urlsplit(url).netloc)
    answers: queue.SimpleQueue[bytes | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(_get(url, site, final, headers))
        except BaseException as error:  # raised again below
            answers.put(error)

    # In a thread: timeouts of sockets bound a silence, but not a site that sends a byte now and then.
    threading.Thread(target=work, daemon=True).start()
    try:
        answer = answers.get(timeout=LONGEST_S)
    except queue.Empty:
        raise TraceError(f"{site} sends longer than {LONGEST_S:g} s", remedy="ask for a shorter time") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer


_LOG = logging.getLogger("simnmt.network")


def pause(length_s: float) -> None:
    """Wait before another attempt."""
    time.sleep(length_s)


class _Tries(urllib3.Retry):
    """Attempts with the pauses of this module; a longer pause that the site asks for is kept, up to `LONGEST_PAUSE_S`."""

    def sleep(self, response: urllib3.BaseHTTPResponse | None = None) -> None:
        after = "" if response is None else response.headers.get("Retry-After", "")
        wanted_s = float(after) if after.isdecimal() and len(after) < 10 else 0.0
        pause(min(max(PAUSES_S[len(self.history) - 1], wanted_s), LONGEST_PAUSE_S))


def _get(url: str, site: str, final: Mapping[int, TraceError], headers: Mapping[str, str]) -> bytes:
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    manager = urllib3.ProxyManager(proxy) if proxy else urllib3.PoolManager()
    all_headers = {"Accept": "application/json", "User-Agent": f"simnmt/{VERSION}", **headers}
    tries = _Tries(total=len(PAUSES_S))
    while True:
        response = None
        try:
            with closing(_follow(manager, url, all_headers)) as response:
                if 200 <= response.status < 300:
                    return _read(response, site)
            fault = f"answered with status {response.status}"
            if response.status != 429 and response.status < 500:
                raise final.get(response.status) or TraceError(f"{site} {fault}", remedy="check --base-url")
        except ValueError:  # of the libraries, for an address that cannot be one
            raise TraceError(f"{site} sends us to an address that is not valid", remedy="check --base-url") from None
        except HTTPError as error:
            fault = _describe(error)
        try:
            tries = tries.increment("GET", url, error=ProtocolError(fault))
        except MaxRetryError:
            raise TraceError(f"{site}: {fault}, {len(PAUSES_S) + 1} times in a row", remedy="try again later") from None
        _LOG.info("%s: %s; another attempt", site, fault)
        tries.sleep(response)


def _follow(manager: urllib3.PoolManager, url: str, headers: Mapping[str, str]) -> urllib3.BaseHTTPResponse:
    """Return the answer after redirections within the site, since another site might receive the key."""
    for _ in range(_MOST_REDIRECTIONS):
        # The redirections and retries of the library would read the whole body of the answer, whatever its size.
        response = manager.urlopen(
            "GET", url, headers=headers, timeout=TIMEOUT_S, redirect=False, retries=False, preload_content=False
        )
        location = response.get_redirect_location()
        if not location:
            break
        response.close()
        here, there = (urllib3.util.parse_url(address) for address in (url, urljoin(url, location)))
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            site, other = shorten(here.netloc), f"{shorten(there.scheme)}://{shorten(there.netloc)}"
            raise TraceError(f"{site} sends us to another site, {other}", remedy="check --base-url")
        url = there.url
    return response


def _read(response: urllib3.BaseHTTPResponse, site: str) -> bytes:
    if response.headers.get("Content-Type", "").startswith("text/html"):
        raise TraceError(f"{site} sent a page instead of results", remedy="check --base-url")
    length = response.headers.get("Content-Length", "")
    body = bytearray()
    try:
        for chunk in response.stream(_CHUNK):
            body += chunk
            if len(body) > MOST_BYTES:
                raise TraceError(f"{site} sends more than {MOST_BYTES >> 20} MiB", remedy="ask for a shorter time")
    except ProtocolError:
        if length.isdecimal() and len(length) < 20:
            raise ProtocolError(f"after {len(body):,} of {int(length):,} bytes") from None
        raise
    return bytes(body)


def _describe(error: HTTPError) -> str:
    if isinstance(error, exceptions.TimeoutError) and not isinstance(error, exceptions.NewConnectionError):
        return f"silent for {TIMEOUT_S:g} s"
    cause = error.__cause__ or error
    reason = shorten(str(getattr(cause, "strerror", None) or error)) or type(error).__name__
    return f"broke off {reason}" if isinstance(error, ProtocolError) else f"cannot be reached: {reason}"
