"""A recorder's connection to its responder, from the name to the greeting."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named
from simnmt.network.recording.protocol import ANSWER, ASK, BYE, HEAD, MOST, PeerError, receive

Address = tuple[str | int, ...]

_START = "start `simnmt trace respond` there, or correct --host and --port"


@dataclass(frozen=True, slots=True)
class Place:
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
        name = named(self.host)
        return name if name == self.numbers else f"{name} ({self.numbers})"


def places(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> list[Place]:
    """All that a name stands for, in the order of preference. Raises `TraceError` where it stands for nothing."""
    if not host.strip():
        raise TraceError("--host is empty", remedy="give the name or the address of the other end")
    try:
        found = socket.getaddrinfo(host, port, type=kind)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such name can exist"
        what = f"--host {named(host)}: cannot be resolved: {why}"
        raise TraceError(what, remedy="check the name, or give the address in numbers") from None
    known = (socket.AF_INET, socket.AF_INET6)
    return [Place(host, family, cast(Address, address)) for family, _, _, _, address in found if family in known]


def reach(host: str, port: int, timeout_s: float) -> tuple[Place, socket.socket, int]:
    """(the first place of that name that answers, the connection, bytes that a transfer may have).

    Raises `TraceError` that says why none does.
    """
    refused: TraceError | None = None
    for place in places(host, port):
        try:
            return place, *connect(place, timeout_s)
        except TraceError as error:  # noqa: PERF203
            refused = refused or error
    raise refused or TraceError(f"--host {named(host)}: has no address", remedy="check the name")


def connect(place: Place, timeout_s: float) -> tuple[socket.socket, int]:
    """(a greeted connection, bytes that a transfer may have). Raises `TraceError` where there is no responder."""
    port = place.address[1]
    connection = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        connection.connect(place.address)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except TimeoutError:
        connection.close()
        raise TraceError(f"{place} port {port}: no answer within {timeout_s:g} s", remedy=_START) from None
    except OSError as error:
        connection.close()
        why = "connection refused" if isinstance(error, ConnectionRefusedError) else error.strerror or str(error)
        raise TraceError(f"{place} port {port}: {why[:1].lower()}{why[1:]}", remedy=_START) from None
    except BaseException:
        connection.close()
        raise
    try:
        return connection, _greet(connection, timeout_s)
    except PeerError as error:
        connection.close()
        what = f"{place} port {port}: {error}"
        raise TraceError(what, remedy=_START) from None
    except BaseException:
        connection.close()
        raise


def say_bye(connection: socket.socket) -> None:
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
