"""The far end of a recording: answers echoes and short transfers, within bounds that keep a stranger from doing harm."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from simnmt.base.errors import shorten
from simnmt.network.errors import TraceError
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
_STALL_S = 1.0
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What a responder grants at most."""

    connections: int = 64
    """At once; those beyond are told so and closed."""
    connections_per_address: int = 8
    """Of those; an IPv6 network of 64 bits counts as one address."""
    hour_bytes: int = 2_000_000_000
    """Of all transfers and echoes on all connections, in each hour; then nothing more is answered until the next.

    Bytes count once they are sent or received, so a transfer that is broken off costs what it moved.
    """
    address_hour_bytes: int = 500_000_000
    """Of those, for one address; an IPv6 network of 64 bits counts as one."""
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
    stalled_bytes_per_s: float = 64_000.0
    """A transfer slower than this for a second does not keep others waiting: it hardly slows them."""
    once_grace_s: float = 900.0
    """Without any connection, until one that serves once takes the recording for ended though nobody said so."""


class Responder:
    """Listens from its making on; `serve` answers until `close`. Raises `TraceError` where the address cannot be had.

    Each connection has a thread and one buffer of 64 KiB, so `Limits` bound memory, too. One transfer runs at a time, so that
    they do not slow each other; one that has stalled does not count.
    """

    def __init__(self, bind: str = "127.0.0.1", port: int = 0, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._listener = _listening(bind, port)
        self._open: dict[socket.socket, str] = {}  # and who is at their other ends
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._transfers = _Transfers(self._limits.stalled_bytes_per_s)
        self._closed = threading.Event()
        self._served = self._ended = False
        self._quiet_since_s = time.monotonic()
        self._budget = _HourBudget(self._limits.hour_bytes, self._limits.address_hour_bytes)
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
        try:
            self._accept_until_over(once)
        finally:
            self._let_go()  # also of those who were turned away while `close` ran

    def _accept_until_over(self, once: bool) -> None:
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
            from_address = sum(other == who for other in self._open.values())
            full = len(self._open) >= self._limits.connections or from_address >= self._limits.connections_per_address
            if not full:
                self._open[connection] = who
        if full:
            with suppress(OSError):  # a fresh send buffer has room for so little, so that this cannot wait
                connection.setblocking(False)
                connection.send(ANSWER + MOST.pack(0))
            self._turned_away.append(connection)
            return
        thread = threading.Thread(target=self._converse, args=(connection, who), daemon=True)
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

    def _converse(self, connection: socket.socket, who: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive(connection, len(ASK), time.monotonic() + self._limits.greeting_s) == ASK:
                self._served = True
                connection.sendall(ANSWER + MOST.pack(self._limits.transfer_bytes))
                self._answer(connection, who)
        except (PeerError, OSError):
            pass  # whoever it was has gone, or went beyond the bounds
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._guard:
            self._open.pop(connection, None)
            self._quiet_since_s = time.monotonic()
        connection.close()

    def _answer(self, connection: socket.socket, who: str) -> None:
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
                if not self._budget.has(who, HEAD.size + length):
                    return
                connection.sendall(HEAD.pack(ECHO, number, length) + receive(connection, length, deadline_s))
                self._budget.charge(who, HEAD.size + length)
                echoes = echoes + 1 if int(now_s) == second else 1
                second = int(now_s)
                if echoes > limits.echoes_per_s:
                    return
                continue
            wanted = number if tag == DOWN else length
            granted -= wanted
            if tag not in (DOWN, UPLOAD) or not 0 < wanted <= limits.transfer_bytes or granted < 0:
                return
            with self._transfers.turn(deadline_s) as progress:
                # Asked when its turn has come: those before it may have used up the hour.
                if not self._budget.has(who, wanted):
                    return
                self._carry(connection, tag, wanted, time.monotonic() + limits.transfer_s, who, progress)

    def _carry(
        self, connection: socket.socket, tag: bytes, size: int, deadline_s: float, who: str, progress: _Progress
    ) -> None:
        def moved(count: int) -> None:
            progress.add(count)
            self._budget.charge(who, count)

        if tag == DOWN:
            connection.sendall(HEAD.pack(DATA, 0, size))
            send(connection, size, deadline_s, moved)
        else:
            counted = receive_timed(connection, size, deadline_s, moved)
            connection.sendall(HEAD.pack(DONE, 0, RATE.size) + RATE.pack(*counted))


class _HourBudget:
    """Bytes left of this hour, for all and for each address."""

    def __init__(self, total: int, address: int) -> None:
        self._total, self._address = total, address
        self._guard = threading.Lock()
        self._began_s = time.monotonic()
        self._used = 0
        self._used_by: dict[str, int] = {}

    def has(self, who: str, size: int) -> bool:
        """Return whether `who` may move `size` bytes more in this hour."""
        with self._guard:
            now_s = time.monotonic()
            if now_s - self._began_s >= _HOUR_S:
                self._began_s, self._used = now_s, 0
                self._used_by.clear()
            by_address = self._used_by.get(self._key(who), 0)
            return size <= min(self._total - self._used, self._address - by_address)

    def charge(self, who: str, size: int) -> None:
        """Count bytes that were moved."""
        with self._guard:
            key = self._key(who)
            self._used += size
            self._used_by[key] = self._used_by.get(key, 0) + size

    def _key(self, who: str) -> str:
        # Whoever comes after so many addresses shares the budget of one, so that memory stays bounded.
        return who if who in self._used_by or len(self._used_by) < _MOST_ADDRESSES else "others"


class _Progress:
    """Bytes of a transfer since its rate was last looked at."""

    def __init__(self) -> None:
        self._since_s, self._bytes = time.monotonic(), 0

    def add(self, count: int) -> None:
        """Count bytes that were moved."""
        self._bytes += count

    def stalled(self, least_bytes_per_s: float) -> bool:
        """Return whether the transfer has been slower than this for at least a second."""
        now_s = time.monotonic()
        if now_s - self._since_s < _STALL_S:
            return False
        if self._bytes < least_bytes_per_s * (now_s - self._since_s):
            return True
        self._since_s, self._bytes = now_s, 0
        return False


class _Transfers:
    """Transfers take turns, except that nobody waits for one that has stalled."""

    def __init__(self, stalled_bytes_per_s: float) -> None:
        self._stalled_bytes_per_s = stalled_bytes_per_s
        self._changed = threading.Condition()
        self._running: list[_Progress] = []

    @contextmanager
    def turn(self, deadline_s: float) -> Iterator[_Progress]:
        """Wait for one's turn, and hold it; raise `PeerError` if it does not come before `deadline_s`."""
        with self._changed:
            while not all(progress.stalled(self._stalled_bytes_per_s) for progress in self._running):
                if time.monotonic() > deadline_s:
                    raise PeerError("no turn")
                self._changed.wait(_LOOK_S)
            progress = _Progress()
            self._running.append(progress)
        try:
            yield progress
        finally:
            with self._changed:
                self._running.remove(progress)
                self._changed.notify_all()


def _who(address: str) -> str:
    """Return the address itself for IPv4, and its /64 network for IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def _listening(bind: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise TraceError(f"--port {port} is not a valid port (1-65535)", remedy="give 0 for any that is free")
    place = f"{bind} port {port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        raise TraceError(
            f"--bind {shorten(bind)}: is no address of this machine", remedy="give one, such as 127.0.0.1"
        ) from None
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
