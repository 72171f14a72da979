"""The TCP protocol between a recorder and its responder: frames, the greeting of a connection, timed transfers.

The recorder opens with `ASK`, the responder answers with `ANSWER` and the most bytes of a transfer. Then frames follow, each a
head of a tag and two numbers, all in network order:

| tag | first number | second number | from | means |
|---|---|---|---|---|
| ECHO | sequence | bytes that follow | both | comes back unchanged |
| DOWN | bytes wanted | 0 | recorder | send this many bytes |
| DATA | 0 | bytes that follow | responder | bytes of a download |
| UPLD | 0 | bytes that follow | recorder | receive the bytes and report their rate |
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
"""Behind the answer: most bytes of a transfer; 0 if the responder serves its greatest number of connections."""

HEAD = struct.Struct("!4sII")
ECHO, DOWN, DATA, UPLOAD, DONE, BYE = b"ECHO", b"DOWN", b"DATA", b"UPLD", b"DONE", b"BYE!"
RATE = struct.Struct("!QQ")

LONGEST_ECHO = 1024
CHUNK = 1 << 16
WARM_UP_SHARE = 0.5
"""Share of a transfer that is not counted: until its window is open, TCP sends less than the network carries."""

FILLING = os.urandom(CHUNK)
"""Random bytes, since a link that compresses would look faster than it is."""


class PeerError(Exception):
    """The other end broke off, was too slow, or broke the protocol."""


def receive(connection: socket.socket, size: int, deadline_s: float) -> bytes:
    """Return exactly `size` bytes. Raises `PeerError` if they do not arrive before `deadline_s` on the monotonic clock."""
    received = bytearray()
    while len(received) < size:
        received += _some(connection, min(size - len(received), CHUNK), deadline_s)
    return bytes(received)


OnBytes = Callable[[int], None]
"""Function that is called with the number of bytes of each part that was moved."""


def send(connection: socket.socket, size: int, deadline_s: float, on_bytes: OnBytes = lambda count: None) -> None:
    """Send `size` random bytes. Raises `PeerError` if the connection does not take them before `deadline_s`."""
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
    connection: socket.socket, size: int, deadline_s: float, on_bytes: OnBytes = lambda count: None
) -> tuple[int, int]:
    """Receive `size` bytes and return (bytes, nanoseconds) of the part after the warm-up. Raises `PeerError` as `receive`."""
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
    """Address of the other end."""

    host: str
    """Name that the user gave."""
    family: int
    address: Address
    """Address as sockets of the family take it; the first entry is the numeric address."""

    @property
    def numbers(self) -> str:
        """Numeric address."""
        return str(self.address[0])

    def __str__(self) -> str:
        name = shorten(self.host)
        return name if name == self.numbers else f"{name} ({self.numbers})"


def resolve_host(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[Endpoint]:
    """Return the addresses of a host name, at least one, in the order of preference. Raises `TraceError` if there are none."""
    if not host.strip():
        raise TraceError("--host is empty", remedy="give the name or the address of the other end")
    try:
        addresses = socket.getaddrinfo(host, port, type=kind)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such name can exist"
        what = f"--host {shorten(host)}: cannot be resolved: {why}"
        raise TraceError(what, remedy="check the name, or give the address in numbers") from None
    known = (socket.AF_INET, socket.AF_INET6)
    places = [Endpoint(host, family, cast(Address, address)) for family, _, _, _, address in addresses if family in known]
    if not places:
        raise TraceError(f"--host {shorten(host)}: has no address", remedy="check the name")
    return places


def connect_first(host: str, port: int, timeout_s: float) -> tuple[Endpoint, socket.socket, int]:
    """Return (the first address of the host that answers, the connection, most bytes of a transfer).

    Raises `TraceError` with the fault of the first address if none answers.
    """
    faults: list[TraceError] = []
    for place in resolve_host(host, port):
        try:
            return place, *connect(place, timeout_s)
        except TraceError as error:  # noqa: PERF203
            faults.append(error)
    raise faults[0]


def connect(place: Endpoint, timeout_s: float) -> tuple[socket.socket, int]:
    """Return (a greeted connection, most bytes of a transfer). Raises `TraceError` if no responder answers."""
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
    """Report the end of the recording to the responder, unless the connection would block."""
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
        raise PeerError("the program that listens there is no simnmt responder") from None
    if answer != ANSWER:
        ours = answer.startswith(ANSWER.rpartition(b" ")[0])
        raise PeerError("a responder of another version" if ours else "the program that listens there is no simnmt responder")
    most: int = MOST.unpack(receive(connection, MOST.size, deadline_s))[0]
    if not most:
        raise PeerError("the responder already serves as many connections as it may")
    return most


LONGEST_S = 20.0
"""Longest transfer in one direction; a slower one is lost."""
LEAST_NS = 1_000_000
"""Shortest counted part of a transfer: below it, the clock and buffers distort the rate, and the transfer is lost."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Bandwidths of one pair of transfers, bit/s; None for a transfer that was lost or too brief to trust."""

    downlink_bps: float | None
    uplink_bps: float | None
    brief: bool
    """Whether the counted part took less than `LEAST_NS` in a direction."""


def transfer(place: Endpoint, size: int, timeout_s: float) -> Rates:
    """Fetch and then send `size` bytes on a new connection; both rates are those at the receiver."""
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
