"""The far end of a recording: it answers echoes and short transfers, within limits that protect it from strangers."""

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
from simnmt.network.recording import protocol
from simnmt.network.recording.protocol import HEAD, PeerError, receive

_LOOK_S = 0.2
_HOUR_S = 3600.0
_STALL_S = 1.0
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a responder."""

    connections: int = 64
    """Open connections; further ones are refused and closed."""
    connections_per_address: int = 8
    """Open connections of one address; an IPv6 network of 64 bits counts as one address."""
    hour_bytes: int = 2_000_000_000
    """Bytes of all transfers and echoes in an hour, then nothing is answered until the next hour.

    Bytes count when they are sent or received, also those of a transfer that breaks off.
    """
    address_hour_bytes: int = 500_000_000
    """Bytes in an hour of one address."""
    transfer_bytes: int = 16_000_000
    """Bytes of one transfer."""
    connection_bytes: int = 64_000_000
    """Bytes of all transfers on one connection."""
    echoes_per_s: int = 1000
    """Echoes in a second on one connection."""
    greeting_s: float = 5.0
    """Longest time until a new connection sends its greeting."""
    idle_s: float = 300.0
    """Longest time without a frame."""
    transfer_s: float = 30.0
    """Longest transfer, or rest of a frame that has begun."""
    stalled_bytes_per_s: float = 64_000.0
    """Others do not wait for a transfer that is slower than this for a second, since it hardly slows them."""
    once_grace_s: float = 900.0
    """Time without any connection after which `serve(once=True)` ends though no recorder reported the end."""


class Responder:
    """A server that listens from its construction on and answers in `serve` until `close`.

    Each connection has a thread and one buffer of 64 KiB, so `Limits` bound memory too. One transfer runs at a time, besides
    stalled ones, so that transfers do not slow each other. Raises `TraceError` if it cannot listen at the address.
    """

    def __init__(self, bind: str = "127.0.0.1", port: int = 0, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._listener = _listening(bind, port)
        self._open: dict[socket.socket, str] = {}
        """Open connections with the addresses of their other ends."""
        self._threads: list[threading.Thread] = []
        self._guard = threading.Lock()
        self._transfers = _Transfers(self._limits.stalled_bytes_per_s)
        self._closed = threading.Event()
        self._served = self._ended = False
        self._quiet_since_s = time.monotonic()
        self._budget = _HourBudget(self._limits.hour_bytes, self._limits.address_hour_bytes)
        self._refused: deque[socket.socket] = deque()

    @property
    def address(self) -> tuple[str, int]:
        """Address and port at which the responder listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    def serve(self, *, once: bool = False) -> None:
        """Answer until `close`; `once`: until a recorder has reported its end and every connection is closed.

        A recorder that reports no end has ended if no connection was open for `Limits.once_grace_s`: a connection may break,
        and a recording by ICMP connects only for its transfers.
        """
        try:
            while not self._closed.is_set():
                try:
                    connection, address = self._listener.accept()
                except TimeoutError:
                    self._close_refused()
                    if once and self._over():
                        return
                    continue
                except OSError:  # closed before it was accepted, or no descriptors left for now
                    self._closed.wait(_LOOK_S)
                    continue
                self._take(connection, _counted_address(str(address[0])))
                self._close_refused(self._limits.connections)
        finally:
            self._close_refused()  # also connections that were refused while `close` ran

    def close(self) -> None:
        """Close the listening socket and every connection."""
        self._closed.set()
        with suppress(OSError):  # wakes a waiting `serve`, on systems that do so
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._guard:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._close_refused()
        for thread in self._threads:
            thread.join(1.0)

    def _over(self) -> bool:
        with self._guard:
            quiet_s = time.monotonic() - self._quiet_since_s
            return not self._open and (self._ended or (self._served and quiet_s > self._limits.once_grace_s))

    def _take(self, connection: socket.socket, address: str) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        with self._guard:
            from_address = sum(other == address for other in self._open.values())
            full = len(self._open) >= self._limits.connections or from_address >= self._limits.connections_per_address
            if not full:
                self._open[connection] = address
        if full:
            with suppress(OSError):  # a new send buffer has room for so few bytes, so this cannot wait
                connection.setblocking(False)
                connection.send(protocol.ANSWER + protocol.MOST.pack(0))
            self._refused.append(connection)
            return
        thread = threading.Thread(target=self._converse, args=(connection, address), daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no threads left
            self._forget(connection)
        else:
            self._threads.append(thread)

    def _close_refused(self, most: int = 0) -> None:
        # Later than the refusal: closing a connection before its greeting was read resets it, and the answer may be lost.
        while len(self._refused) > most:
            self._refused.popleft().close()

    def _converse(self, connection: socket.socket, address: str) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if receive(connection, len(protocol.ASK), time.monotonic() + self._limits.greeting_s) == protocol.ASK:
                self._served = True
                connection.sendall(protocol.ANSWER + protocol.MOST.pack(self._limits.transfer_bytes))
                self._answer(connection, address)
        except (PeerError, OSError):
            pass  # the other end has gone or broke the limits
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._guard:
            self._open.pop(connection, None)
            self._quiet_since_s = time.monotonic()
        connection.close()

    def _answer(self, connection: socket.socket, address: str) -> None:
        limits = self._limits
        granted = limits.connection_bytes
        echoes, second = 0, 0
        while not self._closed.is_set():
            tag, number, length = HEAD.unpack(receive(connection, HEAD.size, time.monotonic() + limits.idle_s))
            now_s = time.monotonic()
            deadline_s = now_s + limits.transfer_s
            if tag == protocol.BYE:
                self._ended = True
                return
            if tag == protocol.ECHO and length <= protocol.LONGEST_ECHO:
                if not self._budget.has(address, HEAD.size + length):
                    return
                connection.sendall(HEAD.pack(protocol.ECHO, number, length) + receive(connection, length, deadline_s))
                self._budget.charge(address, HEAD.size + length)
                echoes = echoes + 1 if int(now_s) == second else 1
                second = int(now_s)
                if echoes > limits.echoes_per_s:
                    return
                continue
            wanted = number if tag == protocol.DOWN else length
            granted -= wanted
            if tag not in (protocol.DOWN, protocol.UPLOAD) or not 0 < wanted <= limits.transfer_bytes or granted < 0:
                return
            with self._transfers.turn(deadline_s) as progress:
                # Checked when its turn has come, since the transfers before it used bytes of the hour.
                if not self._budget.has(address, wanted):
                    return
                self._carry(connection, tag, wanted, time.monotonic() + limits.transfer_s, address, progress)

    def _carry(
        self, connection: socket.socket, tag: bytes, size: int, deadline_s: float, address: str, progress: _Progress
    ) -> None:
        def moved(count: int) -> None:
            progress.add(count)
            self._budget.charge(address, count)

        if tag == protocol.DOWN:
            connection.sendall(HEAD.pack(protocol.DATA, 0, size))
            protocol.send(connection, size, deadline_s, moved)
        else:
            counted = protocol.receive_timed(connection, size, deadline_s, moved)
            connection.sendall(HEAD.pack(protocol.DONE, 0, protocol.RATE.size) + protocol.RATE.pack(*counted))


class _HourBudget:
    """Bytes left in this hour, for all addresses together and for each."""

    def __init__(self, total: int, address: int) -> None:
        self._total, self._address = total, address
        self._guard = threading.Lock()
        self._began_s = time.monotonic()
        self._used = 0
        self._used_by: dict[str, int] = {}

    def has(self, address: str, size: int) -> bool:
        """Return whether `address` may move `size` bytes more in this hour."""
        with self._guard:
            now_s = time.monotonic()
            if now_s - self._began_s >= _HOUR_S:
                self._began_s, self._used = now_s, 0
                self._used_by.clear()
            by_address = self._used_by.get(self._key(address), 0)
            return size <= min(self._total - self._used, self._address - by_address)

    def charge(self, address: str, size: int) -> None:
        """Count bytes that were moved."""
        with self._guard:
            key = self._key(address)
            self._used += size
            self._used_by[key] = self._used_by.get(key, 0) + size

    def _key(self, address: str) -> str:
        # Addresses beyond this number share the budget of one address, so that memory stays bounded.
        return address if address in self._used_by or len(self._used_by) < _MOST_ADDRESSES else "others"


class _Progress:
    """Bytes of a transfer since its rate was last checked."""

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
    """Turns of the transfers; a stalled transfer keeps no other one waiting."""

    def __init__(self, stalled_bytes_per_s: float) -> None:
        self._stalled_bytes_per_s = stalled_bytes_per_s
        self._changed = threading.Condition()
        self._running: list[_Progress] = []

    @contextmanager
    def turn(self, deadline_s: float) -> Iterator[_Progress]:
        """Wait for a turn, and hold it; raise `PeerError` if none comes before `deadline_s`."""
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


def _counted_address(address: str) -> str:
    """Return the address itself for IPv4, and its /64 network for IPv6."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _listening(bind: str, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise TraceError(f"--port {port} is not a valid port (1-65535)", remedy="give 0 for any that is free")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError):
        what = f"--bind {shorten(bind)}: is no address of this machine"
        raise TraceError(what, remedy="give one, such as 127.0.0.1") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
        listener.settimeout(_LOOK_S)
    except OSError as error:
        listener.close()
        what = f"cannot listen at {bind} port {port}: {error.strerror or error}"
        raise TraceError(what, remedy="choose another --port, or another --bind") from None
    return listener
