"""Echo probes of round trips: small frames on one TCP connection, or ICMP echo requests as `ping` sends them."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import threading
import time
from contextlib import suppress

from simnmt.network.errors import TraceError
from simnmt.network.recording.protocol import CHUNK, ECHO, HEAD, LONGEST_ECHO, Endpoint, connect, send_bye

FRAME_BYTES = 64
"""Of one probe, as an ordinary ping has it."""
_FILLING = bytes(FRAME_BYTES - HEAD.size)
_LOOK_S = 0.02
_AGAIN_S = (0.25, 5.0)


class TcpEcho:
    """Sends probes and collects echoes; never waits longer than it is told to, whatever the connection does."""

    def __init__(self, place: Endpoint, connection: socket.socket, timeout_s: float) -> None:
        self._place, self._timeout_s = place, timeout_s
        self.reconnections = 0
        self.method = f"TCP echo of {FRAME_BYTES} bytes on one connection"
        self._connection: socket.socket | None = None
        self._fresh: socket.socket | None = None
        self._guard = threading.Lock()
        self._closed = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._adopt(connection)

    def send(self, sequence: int) -> None:
        """Send a probe, or lose it where there is no connection that takes it."""
        if self._connection is None:
            return
        frame = HEAD.pack(ECHO, sequence, len(_FILLING)) + _FILLING
        try:
            # Half a frame taken means that nothing has got through for long: start anew rather than out of step.
            if self._connection.send(frame) < len(frame):
                self._break()
        except BlockingIOError:
            pass
        except OSError:
            self._break()

    def wait(self, at_most_s: float) -> list[tuple[int, int]]:
        """(sequence, monotonic nanoseconds of its arrival) of each echo that came, once any did or time is up."""
        if self._connection is None:
            with self._guard:
                fresh, self._fresh = self._fresh, None
            if fresh is None:
                time.sleep(min(at_most_s, _LOOK_S))
                return []
            self.reconnections += 1
            self._adopt(fresh)
        if not self._selector.select(max(at_most_s, 0.0)):
            return []
        now_ns = time.monotonic_ns()
        try:
            chunk = self._connection.recv(CHUNK) if self._connection else b""
        except BlockingIOError:
            return []
        except OSError:
            chunk = b""
        if not chunk:
            self._break()
            return []
        self._unread += chunk
        return [(sequence, now_ns) for sequence in self._frames()]

    def say_bye(self) -> None:
        """Tell the responder that the recording has ended, if there is a connection."""
        if self._connection is not None:
            send_bye(self._connection)

    def close(self) -> None:
        """Let go of the connection."""
        self._closed.set()
        self._selector.close()
        with self._guard:
            held = [connection for connection in (self._connection, self._fresh) if connection is not None]
        for connection in held:
            connection.close()

    def _frames(self) -> list[int]:
        sequences = []
        while self._connection is not None and len(self._unread) >= HEAD.size:
            tag, sequence, length = HEAD.unpack_from(self._unread)
            if tag != ECHO or length > LONGEST_ECHO:
                self._break()
            elif len(self._unread) < HEAD.size + length:
                break
            else:
                sequences.append(sequence)
                del self._unread[: HEAD.size + length]
        return sequences

    def _adopt(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._unread = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)

    def _break(self) -> None:
        if self._connection is None:
            return
        self._selector.unregister(self._connection)
        self._connection.close()
        self._connection = None
        threading.Thread(target=self._connect_anew, daemon=True).start()

    def _connect_anew(self) -> None:
        pause_s, longest_s = _AGAIN_S
        while not self._closed.is_set():
            with suppress(TraceError):
                connection, _ = connect(self._place, self._timeout_s)
                with self._guard:
                    if self._closed.is_set():
                        connection.close()
                    else:
                        self._fresh = connection
                return
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)


PAYLOAD_BYTES = 56
"""As an ordinary ping has it."""
_HEAD = struct.Struct("!BBHHH")
_COOKIE_BYTES = 12
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_REMEDY = (
    "measure by --method tcp, or as the administrator: sysctl -w net.ipv4.ping_group_range='0 2147483647', "
    "or setcap cap_net_raw+ep on the Python that runs this"
)


class IcmpEcho:
    """Sends echo requests and collects the replies to them. Raises `TraceError` where the system allows it in no way.

    An unprivileged datagram socket is tried first, a raw one then.
    """

    reconnections = 0

    def __init__(self, place: Endpoint) -> None:
        self._place = place
        self._socket = _opened(place)
        self._socket.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._identity = int.from_bytes(os.urandom(2), "big")
        self._cookie = os.urandom(_COOKIE_BYTES)
        self.method = f"ICMP echo of {PAYLOAD_BYTES} bytes"

    def send(self, sequence: int) -> None:
        """Send a request; one that the system does not take is lost."""
        payload = (self._cookie + sequence.to_bytes(4, "big")).ljust(PAYLOAD_BYTES, b"\0")
        kind = _REQUEST[socket.AddressFamily(self._place.family)]
        bare = _HEAD.pack(kind, 0, 0, self._identity, sequence & 0xFFFF) + payload
        packet = _HEAD.pack(kind, 0, checksum(bare), self._identity, sequence & 0xFFFF) + payload
        with suppress(OSError):
            self._socket.sendto(packet, self._place.address)

    def wait(self, at_most_s: float) -> list[tuple[int, int]]:
        """(sequence, monotonic nanoseconds of its arrival) of each reply that came, once any did or time is up."""
        if not self._selector.select(max(at_most_s, 0.0)):
            return []
        now_ns = time.monotonic_ns()
        try:
            packet = self._socket.recv(2048)
        except OSError:  # an error that an earlier request met on its way
            return []
        sequence = self._sequence(packet)
        return [] if sequence is None else [(sequence, now_ns)]

    def close(self) -> None:
        """Let go of the socket."""
        self._selector.close()
        self._socket.close()

    def _sequence(self, packet: bytes) -> int | None:
        """Which request it answers; None for what others sent, of which a raw socket sees all."""
        if self._place.family == socket.AF_INET and packet[:1] and packet[0] >> 4 == 4:
            packet = packet[4 * (packet[0] & 0xF) :]  # the IP header, which raw sockets show, some systems' datagram ones too
        start = _HEAD.size + _COOKIE_BYTES
        kind = _REPLY[socket.AddressFamily(self._place.family)]
        if len(packet) < start + 4 or packet[0] != kind or packet[_HEAD.size : start] != self._cookie:
            return None
        return int.from_bytes(packet[start : start + 4], "big")


def checksum(packet: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    padded = packet + b"\0" * (len(packet) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _opened(place: Endpoint) -> socket.socket:
    protocol = socket.IPPROTO_ICMP if place.family == socket.AF_INET else socket.IPPROTO_ICMPV6
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        with suppress(OSError):
            return socket.socket(place.family, kind, protocol)
    raise TraceError("--method icmp: this system does not let you send ICMP", remedy=_REMEDY)
