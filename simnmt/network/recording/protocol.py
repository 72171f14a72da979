"""The TCP protocol between a recorder and its responder: frames, the greeting of a connection, timed transfers.

The recorder opens with `ASK`, the responder answers with `ANSWER` and the bytes that a transfer may have. Then frames follow,
each a head of a tag and two numbers, all in network order:

| tag | first number | second number | from | means |
|---|---|---|---|---|
| ECHO | sequence | bytes that follow | both | comes back unchanged |
| DOWN | bytes wanted | 0 | recorder | send so many bytes |
| DATA | 0 | bytes that follow | responder | the bytes of a download |
| UPLD | 0 | bytes that follow | recorder | take the bytes and report how fast they came |
| DONE | 0 | 16 | responder | bytes counted and nanoseconds, 64 bits each |
| BYE! | 0 | 0 | recorder | the recording has ended, not only this connection |

Anything else ends the connection.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import cast

from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError

ASK = b"simnmt record 1\n"
ANSWER = b"simnmt respond 1\n"
MOST = struct.Struct("!I")
"""Behind the answer: bytes that a transfer may have; 0 where the responder serves as many as it may."""

HEAD = struct.Struct("!4sII")
ECHO, DOWN, DATA, UPLOAD, DONE, BYE = b"ECHO", b"DOWN", b"DATA", b"UPLD", b"DONE", b"BYE!"
RATE = struct.Struct("!QQ")

LONGEST_ECHO = 1024
CHUNK = 1 << 16
WARM_UP_SHARE = 0.5
"""Of a transfer: while its window opens, TCP sends less than the network carries, so this part is not counted."""

FILLING = os.urandom(CHUNK)
"""Random, for a link that compresses would else look faster than it is."""


class PeerError(Exception):
    """The other end broke off, was too slow, or said what nobody understands."""


def receive(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    """Return exactly `size` bytes. Raises `PeerError` if they do not arrive before `deadline_s` on the monotonic clock."""
    received = bytearray()
    while len(received) < size:
        chunk = _some(connection, min(size - len(received), CHUNK), deadline_s)
        received += chunk
    return bytes(received)


def ignore_bytes(count: int) -> None:
    """Count no bytes."""


def send(connection: socket.socket, size: int, deadline_s: float, on_bytes: Callable[[int], None] = ignore_bytes) -> None:
    """Send `size` random bytes; `on_bytes` is called with the bytes of each part that was taken.

    Raises `PeerError` where they are not taken before `deadline_s`, and what `on_bytes` raises.
    """
    left = size
    while left:
        connection.settimeout(_left_s(deadline_s))
        try:
            taken = connection.send(FILLING[: min(left, CHUNK)])
        except OSError as error:
            raise PeerError(error.strerror or "took too long") from None
        left -= taken
        on_bytes(taken)


def receive_timed(
    connection: socket.socket, size: int, deadline_s: float, on_bytes: Callable[[int], None] = ignore_bytes
) -> tuple[int, int]:
    """Return (bytes counted, nanoseconds) of a transfer: what came after its warm-up part.

    `on_bytes` is called with the bytes of each part that came. Raises `PeerError` as `receive`, and what `on_bytes` raises.
    """
    warm = int(size * WARM_UP_SHARE)
    got, counted_from, warm_ns, now_ns = 0, size, 0, 0
    while got < size:
        count = len(_some(connection, min(size - got, CHUNK), deadline_s))
        now_ns = time.monotonic_ns()
        got += count
        on_bytes(count)
        if counted_from == size and got >= warm:
            counted_from, warm_ns = got, now_ns
    return size - counted_from, now_ns - warm_ns


def _some(connection: socket.socket, most: int, deadline_s: float) -> bytes:
    connection.settimeout(_left_s(deadline_s))
    try:
        chunk = connection.recv(most)
    except OSError as error:
        raise PeerError(error.strerror or "took too long") from None
    if not chunk:
        raise PeerError("closed the connection")
    return chunk


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0.0:
        raise PeerError("took too long")
    return left_s


Address = tuple[str | int, ...]

_START = "start `simnmt trace respond` there, or correct --host and --port"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the other end is."""

    host: str
    """As it was named."""
    family: int
    address: Address
    """As sockets of that family take it, its first entry the address in numbers."""

    @property
    def numbers(self) -> str:
        """The address alone."""
        return str(self.address[0])

    def __str__(self) -> str:
        name = shorten(self.host)
        return name if name == self.numbers else f"{name} ({self.numbers})"


def resolve_host(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[Endpoint]:
    """Return all addresses of a host name, in the order of preference. Raises `TraceError` if it cannot be resolved."""
    if not host.strip():
        raise TraceError("--host is empty", remedy="give the name or the address of the other end")
    try:
        addresses = socket.getaddrinfo(host, port, type=kind)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such name can exist"
        what = f"--host {shorten(host)}: cannot be resolved: {why}"
        raise TraceError(what, remedy="check the name, or give the address in numbers") from None
    known = (socket.AF_INET, socket.AF_INET6)
    return [Endpoint(host, family, cast(Address, address)) for family, _, _, _, address in addresses if family in known]


def connect_first(host: str, port: int, timeout_s: float) -> tuple[Endpoint, socket.socket, int]:
    """(the first place of that name that answers, the connection, bytes that a transfer may have).

    Raises `TraceError` that says why none does.
    """
    refused: TraceError | None = None
    for place in resolve_host(host, port):
        try:
            return place, *connect(place, timeout_s)
        except TraceError as error:  # noqa: PERF203
            refused = refused or error
    raise refused or TraceError(f"--host {shorten(host)}: has no address", remedy="check the name")


def connect(place: Endpoint, timeout_s: float) -> tuple[socket.socket, int]:
    """(a greeted connection, bytes that a transfer may have). Raises `TraceError` where there is no responder."""
    port = place.address[1]
    with ExitStack() as on_failure:
        connection = on_failure.enter_context(socket.socket(place.family, socket.SOCK_STREAM))
        try:
            connection.settimeout(timeout_s)
            connection.connect(place.address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            most = _greet(connection, timeout_s)
        except TimeoutError:
            why = f"no answer within {timeout_s:g} s"
        except OSError as error:
            why = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
            why = why[:1].lower() + why[1:]
        except PeerError as error:
            why = str(error)
        else:
            on_failure.pop_all()
            return connection, most
        raise TraceError(f"{place} port {port}: {why}", remedy=_START)


def send_bye(connection: socket.socket) -> None:
    """Tell the responder that the recording has ended, if the connection takes so little without waiting."""
    with suppress(OSError):
        connection.setblocking(False)
        connection.send(HEAD.pack(BYE, 0, 0))
        connection.shutdown(socket.SHUT_WR)


def _greet(connection: socket.socket, timeout_s: float) -> int:
    deadline_s = time.monotonic() + timeout_s
    try:
        connection.sendall(ASK)
        answer = receive(connection, len(ANSWER), deadline_s)
    except (PeerError, OSError):
        raise PeerError("whoever listens there is no simnmt responder") from None
    if answer != ANSWER:
        ours = answer.startswith(ANSWER.rpartition(b" ")[0])
        raise PeerError("a responder of another version" if ours else "whoever listens there is no simnmt responder")
    most: int = MOST.unpack(receive(connection, MOST.size, deadline_s))[0]
    if not most:
        raise PeerError("the responder already serves as many connections as it may")
    return most


LONGEST_S = 20.0
"""Of one transfer in one direction; a slower one is lost."""
LEAST_NS = 1_000_000
"""Below, the clock and the buffers on the way weigh too much: what took less is lost."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What one pair of transfers found, bit/s; None for a direction whose transfer was lost or too brief to trust."""

    downlink_bps: float | None
    uplink_bps: float | None
    brief: bool
    """Whether what was counted took less than `LEAST_NS` in a direction."""


def transfer(place: Endpoint, size: int, timeout_s: float) -> Rates:
    """Fetch and then send `size` bytes on a connection of their own; both rates are of what was received."""
    counted: dict[bytes, tuple[int, int]] = {}
    with suppress(TraceError, PeerError, OSError):
        connection, _ = connect(place, timeout_s)
        with connection:
            for tag, carry in ((DOWN, _down), (UPLOAD, _up)):
                counted[tag] = carry(connection, size, time.monotonic() + LONGEST_S)
    return Rates(_bps(counted.get(DOWN)), _bps(counted.get(UPLOAD)), any(spent < LEAST_NS for _, spent in counted.values()))


def _down(connection: socket.socket, size: int, deadline_s: float) -> tuple[int, int]:
    connection.sendall(HEAD.pack(DOWN, size, 0))
    if HEAD.unpack(receive(connection, HEAD.size, deadline_s)) != (DATA, 0, size):
        raise PeerError("answered otherwise")
    return receive_timed(connection, size, deadline_s)


def _up(connection: socket.socket, size: int, deadline_s: float) -> tuple[int, int]:
    connection.sendall(HEAD.pack(UPLOAD, 0, size))
    send(connection, size, deadline_s)
    if HEAD.unpack(receive(connection, HEAD.size, deadline_s)) != (DONE, 0, RATE.size):
        raise PeerError("answered otherwise")
    count, spent_ns = RATE.unpack(receive(connection, RATE.size, deadline_s))
    if count > size:
        raise PeerError("counted more than was sent")
    return count, spent_ns


def _bps(counted: tuple[int, int] | None) -> float | None:
    if counted is None or counted[0] <= 0 or counted[1] < LEAST_NS:
        return None
    return 8e9 * counted[0] / counted[1]
