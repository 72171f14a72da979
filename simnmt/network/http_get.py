"""One GET of a file of moderate size: bounded, tried again where that may help, never led to another host."""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from simnmt.base import VERSION
from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError

MOST_BYTES = 256 << 20
TIMEOUT_S = 30.0
"""Without a byte."""
LONGEST_S = 900.0
"""For all of it."""
PAUSES_S = (1.0, 4.0, 15.0)
"""Before each further try, unless the site asks for longer."""
LONGEST_PAUSE_S = 60.0
_CHUNK = 1 << 16


class _AgainError(Exception):
    """What went wrong may go right later."""

    def __init__(self, what: str, pause_s: float = 0.0) -> None:
        super().__init__(what)
        self.pause_s = pause_s


def get(url: str, final: Mapping[int, TraceError], headers: Mapping[str, str]) -> bytes:
    """Return the body of `url`. Raises `TraceError`: the one that `final` has for the HTTP status, else one with the cause.

    Answers of 429 and of 500 and above, silence and cut-off answers are tried again after a pause.
    """
    site = shorten(urlsplit(url).netloc)
    all_headers = {"Accept": "application/json", "User-Agent": f"simnmt/{VERSION}", **headers}
    request = urllib.request.Request(url, headers=all_headers)  # its scheme was checked by who made the address
    deadline_s = time.monotonic() + LONGEST_S
    opener = urllib.request.build_opener(_SameHost, *_handlers(deadline_s))
    for pause_s in (*PAUSES_S, None):
        try:
            return _once(opener, request, final, site, deadline_s)
        except _AgainError as error:  # noqa: PERF203
            if pause_s is None:
                tries = len(PAUSES_S) + 1
                raise TraceError(f"{site}: {error}, {tries} times in a row", remedy="try again later") from None
            pause(min(max(pause_s, error.pause_s), LONGEST_PAUSE_S))
    raise AssertionError


def pause(length_s: float) -> None:
    """Wait before another try."""
    time.sleep(length_s)


def _once(
    opener: urllib.request.OpenerDirector,
    request: urllib.request.Request,
    final: Mapping[int, TraceError],
    site: str,
    deadline_s: float,
) -> bytes:
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            return _read(response, site, deadline_s)
    except urllib.error.HTTPError as error:
        status, after = error.code, error.headers.get("Retry-After", "")
        error.close()
        if status == 429 or status >= 500:
            raise _AgainError(
                f"answered with status {status}", float(after) if after.isdecimal() and len(after) < 10 else 0.0
            ) from None
        raise final.get(status) or TraceError(f"{site} answered with status {status}", remedy="check --base-url") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError) and time.monotonic() >= deadline_s:
            raise _too_slow(site) from None
        why = getattr(error.reason, "strerror", None) or error.reason
        raise _AgainError(f"cannot be reached: {shorten(str(why))}") from None
    except TimeoutError:
        if time.monotonic() >= deadline_s:
            raise _too_slow(site) from None
        raise _AgainError(f"silent for {TIMEOUT_S:g} s") from None
    except (http.client.HTTPException, OSError) as error:
        raise _AgainError(f"broke off ({shorten(str(error)) or type(error).__name__})") from None
    except ValueError:  # of the standard library, for an address that cannot be one
        raise TraceError(f"{site} sends us to an address that is not valid", remedy="check --base-url") from None


def _too_slow(site: str) -> TraceError:
    return TraceError(f"{site} sends longer than {LONGEST_S:g} s", remedy="ask for a shorter time")


def _read(response: Any, site: str, deadline_s: float) -> bytes:
    """Return the whole body. Raises `_AgainError` if it is cut off, `TraceError` if it is endless or a page."""
    kind = response.headers.get_content_type()
    if kind == "text/html":
        raise TraceError(f"{site} sent a page instead of results", remedy="check --base-url")
    whole: int | None = response.length  # None where the site does not say, or sends in pieces
    body = bytearray()
    # Not `read`, which waits for a full chunk: a site that sends a byte now and then would keep us beyond the bound. Nor beyond
    # the end, where some versions of Python would wait for a site that keeps the connection open.
    while (whole is None or len(body) < whole) and (chunk := response.read1(_CHUNK)):
        body += chunk
        if time.monotonic() > deadline_s:
            raise _too_slow(site)
        if len(body) > MOST_BYTES:
            raise TraceError(f"{site} sends more than {MOST_BYTES >> 20} MiB", remedy="ask for a shorter time")
    if whole is not None and len(body) < whole:
        raise _AgainError(f"broke off after {len(body):,} of {whole:,} bytes")
    return bytes(body)


class _BoundedReader(io.RawIOBase):
    """Reads from a socket until a deadline, whatever the pace: a byte now and then keeps no header open beyond it."""

    def __init__(self, connection: socket.socket, deadline_s: float) -> None:
        self._connection, self._deadline_s = connection, deadline_s
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there. Raises `TimeoutError` after `TIMEOUT_S` without a byte, and at the deadline."""
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0.0:
            raise TimeoutError
        self._connection.settimeout(min(TIMEOUT_S, left_s))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Close the socket's file."""
        self._raw.close()
        super().close()


def _handlers(deadline_s: float) -> list[urllib.request.BaseHandler]:
    """Return handlers of http and https whose answers are read until `deadline_s` on the monotonic clock."""

    class Response(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *arguments: Any, **named_arguments: Any) -> None:
            super().__init__(sock, *arguments, **named_arguments)
            self.fp.close()
            self.fp = io.BufferedReader(_BoundedReader(sock, deadline_s))

    class Connection(http.client.HTTPConnection):
        response_class = Response

    class SecureConnection(http.client.HTTPSConnection):
        response_class = Response

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, req)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(SecureConnection, req)

    return [Handler(), SecureHandler()]


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirection within the site alone: elsewhere lies what nobody asked for, and the key would go with us."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The request for the new address. Raises `TraceError` where it lies at another host."""
        here, there = urlsplit(req.full_url), urlsplit(urljoin(req.full_url, newurl))
        if (here.scheme, here.netloc) != (there.scheme, there.netloc):
            fp.close()
            what = f"{shorten(here.netloc)} sends us to another site, {shorten(there.scheme)}://{shorten(there.netloc)}"
            raise TraceError(what, remedy="check --base-url")
        fp.close()  # the library would read the whole body of the redirection, whatever its size
        return super().redirect_request(req, fp, code, msg, headers, newurl)
