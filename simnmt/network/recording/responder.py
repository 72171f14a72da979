"""The far end of a recording: answers echoes and short transfers, within bounds that keep a stranger from doing harm."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from simnmt.network.errors import TraceError
from simnmt.network.foreign_text import named
from simnmt.network.recording.protocol import (
    ANSWER,
    ASK,
    BYE,
    DATA,
    DONE,
    DOWN,
    ECHO,
    HEAD,
    LONGEST_ECHO,
    MOST,
    RATE,
    UPLOAD,
    PeerError,
    receive,
    receive_timed,
    send,
)

_LOOK_S = 0.2
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a responder grants at most."""

    connections: int = 64
    """At once; those beyond are told so and closed."""
    connections_per_address: int = 8
    """Of those; an IPv6 network of 64 bits counts as one address."""
    hour_bytes: int = 2_000_000_000
    """Of all transfers and echoes on all connections, in each hour; then nothing more is answered until the next."""
    transfer_bytes: int = 16_000_000
    """Of one transfer."""
    connection_bytes: int = 64_000_000
    """Of all transfers on one connection."""
    echoes_per_s: int = 1000
    """On one connection."""
    greeting_s: float = 5.0
    """Until a new connection has said what it is."""
    idle_s: float = 300.0
    """Without a frame."""
    transfer_s: float = 30.0
    """A transfer, or the rest of a frame that has begun."""
    once_grace_s: float = 900.0
    """Without any connection, until one that serves once takes the recording for ended though nobody said so."""


class Responder:
    """Listens from its making on; `serve` answers until `close`. Raises `TraceError` where the address cannot be had.

    Each connection has a thread and one buffer of 64 KiB, so `Limits` bound memory, too. One transfer runs at a time, that
    they may not slow each other.
    """

    def __init__(self, bind: str = "127.0.0.1", port: int = 0, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._listener = _listening(bind, port)
        self._open: dict[socket.socket, str] = {}  # and who is at their other ends
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._transfer = threading.Lock()
        self._closed = threading.Event()
        self._served = self._ended = False
        self._quiet_since_s = self._hour_began_s = time.monotonic()
        self._hour_left = self._limits.hour_bytes
        self._turned_away: deque[socket.socket] = deque()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, the port that was given to it where 0 was asked for."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def serve(self, *, once: bool = False) -> None:
        """Answer until `close`; `once`: until a recorder has said that it has ended, and every connection is closed again.

        One that did not say so has ended once nothing has been open for `Limits.once_grace_s`: a connection may break, and
        a recording by ICMP connects for its transfers alone.
        """
        while not self._closed.is_set():
            try:
                connection, address = self._listener.accept()
            except TimeoutError:
                self._let_go()
                if once and self._over():
                    return
                continue
            except OSError:  # gone before it was accepted, or no more descriptors to be had for now
                self._closed.wait(_LOOK_S)
                continue
            self._take(connection, _who(str(address[0])))
            self._let_go(self._limits.connections)

    def close(self) -> None:
        """Let go of the address and of every connection."""
        self._closed.set()
        with suppress(OSError):  # wakes whoever waits in `serve`, where the system does so
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._let_go()
        for thread in self._threads:
            thread.join(1.0)

    def _over(self) -> bool:
        """Whether the recording has ended."""
        with self._guard:
            quiet_s = time.monotonic() - self._quiet_since_s
            return not self._open and (self._ended or (self._served and quiet_s > self._limits.once_grace_s))

    def _take(self, connection: socket.socket, who: str) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        with self._guard:
            own = sum(other == who for other in self._open.values())
            full = len(self._open) >= self._limits.connections or own >= self._limits.connections_per_address
            if not full:
                self._open[connection] = who
        if full:
            with suppress(OSError):  # a fresh send buffer has room for so little, so that this cannot wait
                connection.setblocking(False)
                connection.send(ANSWER + MOST.pack(0))
            self._turned_away.append(connection)
            return
        thread = threading.Thread(target=self._converse, args=(connection,), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had
            self._forget(connection)
        else:
            self._threads.append(thread)

    def _let_go(self, most: int = 0) -> None:
        # Not at once: closed before its greeting was read, a connection is reset, and our answer may be lost with it.
        while len(self._turned_away) > most:
            self._turned_away.popleft().close()

    def _converse(self, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive(connection, len(ASK), time.monotonic() + self._limits.greeting_s) == ASK:
                self._served = True
                connection.sendall(ANSWER + MOST.pack(self._limits.transfer_bytes))
                self._answer(connection)
        except (PeerError, OSError):
            pass  # whoever it was has gone, or went beyond the bounds
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._guard:
            self._open.pop(connection, None)
            self._quiet_since_s = time.monotonic()
        connection.close()

    def _answer(self, connection: socket.socket) -> None:
        limits = self._limits
        granted = limits.connection_bytes
        echoes, second = 0, 0
        while not self._closed.is_set():
            tag, number, length = HEAD.unpack(receive(connection, HEAD.size, time.monotonic() + limits.idle_s))
            now_s = time.monotonic()
            deadline_s = now_s + limits.transfer_s
            if tag == BYE:
                self._ended = True
                return
            if tag == ECHO and length <= LONGEST_ECHO:
                if not self._grants(HEAD.size + length):
                    return
                connection.sendall(HEAD.pack(ECHO, number, length) + receive(connection, length, deadline_s))
                echoes = echoes + 1 if int(now_s) == second else 1
                second = int(now_s)
                if echoes > limits.echoes_per_s:
                    return
                continue
            wanted = number if tag == DOWN else length
            granted -= wanted
            if tag not in (DOWN, UPLOAD) or not 0 < wanted <= limits.transfer_bytes or granted < 0:
                return
            if not self._grants(wanted):
                return
            if not self._transfer.acquire(timeout=limits.transfer_s):
                return
            try:
                self._carry(connection, tag, wanted, time.monotonic() + limits.transfer_s)
            finally:
                self._transfer.release()

    def _grants(self, size: int) -> bool:
        """Whether so many bytes are left of this hour's, which are fewer then."""
        with self._guard:
            now_s = time.monotonic()
            if now_s - self._hour_began_s >= _HOUR_S:
                self._hour_began_s, self._hour_left = now_s, self._limits.hour_bytes
            if size > self._hour_left:
                return False
            self._hour_left -= size
            return True

    def _carry(self, connection: socket.socket, tag: bytes, size: int, deadline_s: float) -> None:
        if tag == DOWN:
            connection.sendall(HEAD.pack(DATA, 0, size))
            send(connection, size, deadline_s)
        else:
            counted = receive_timed(connection, size, deadline_s)
            connection.sendall(HEAD.pack(DONE, 0, RATE.size) + RATE.pack(*counted))


def _who(address: str) -> str:
    """Whose an address is: an IPv4 address stands for itself, of an IPv6 address the network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _listening(bind: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise TraceError(f"--port {port}: is no port", remedy="give 1 to 65535, or 0 for any that is free")
    place = f"{bind} port {port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise TraceError(f"--bind {named(bind)}: is no address of this machine", remedy="give one, such as 127.0.0.1") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
        listener.settimeout(_LOOK_S)
    except OSError as error:
        listener.close()
        what = f"cannot listen at {place}: {error.strerror or error}"
        raise TraceError(what, remedy="choose another --port, or another --bind") from None
    return listener
