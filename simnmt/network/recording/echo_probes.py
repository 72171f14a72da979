"""Echo probes of round trips: small frames on one TCP connection, or ICMP echo requests as `ping` sends them."""

from __future__ import annotations

import os
import queue
import socket
import struct
import threading
import time
from contextlib import suppress

from simnmt.network.errors import TraceError
from simnmt.network.recording.protocol import CHUNK, ECHO, HEAD, LONGEST_ECHO, Endpoint, connect, send_bye

FRAME_BYTES = 64
"""Size of a probe, as of an ordinary ping."""
_FILLING = bytes(FRAME_BYTES - HEAD.size)
_LOOK_S = 0.02
_BYE_S = 1.0
_AGAIN_S = (0.25, 5.0)


class TcpEcho:
    """A prober on one TCP connection, which it replaces if it breaks; no method waits longer than its argument."""

    def __init__(self, place: Endpoint, connection: socket.socket, timeout_s: float) -> None:
        self._place, self._timeout_s = place, timeout_s
        self.reconnections = 0
        self.method = f"TCP echo of {FRAME_BYTES} bytes on one connection"
        self._connection: socket.socket | None = connection
        self._unread = bytearray()
        self._fresh: queue.SimpleQueue[socket.socket] = queue.SimpleQueue()
        """Replacement connections that are not in use yet."""
        self._closed = threading.Event()

    def send(self, sequence: int) -> None:
        """Send a probe, or lose it if no connection takes it."""
        if self._connection is None:
            return
        frame = HEAD.pack(ECHO, sequence, len(_FILLING)) + _FILLING
        try:
            self._connection.setblocking(False)
            # Half a frame taken means a long stall: a new connection keeps the frames in step.
            if self._connection.send(frame) < len(frame):
                self._break()
        except BlockingIOError:
            pass
        except OSError:
            self._break()

    def wait(self, at_most_s: float) -> list[tuple[int, int]]:
        """Return (sequence, monotonic nanoseconds of its arrival) of each echo that came, after `at_most_s` if none did."""
        if self._connection is None:
            try:
                self._connection = self._fresh.get(timeout=min(max(at_most_s, 0.0), _LOOK_S))
            except queue.Empty:
                return []
            self.reconnections += 1
            self._unread.clear()
        try:
            self._connection.settimeout(max(at_most_s, 0.0))
            chunk = self._connection.recv(CHUNK)
        except (TimeoutError, BlockingIOError):
            return []
        except OSError:
            chunk = b""
        now_ns = time.monotonic_ns()
        if not chunk:
            self._break()
        self._unread += chunk
        return [(sequence, now_ns) for sequence in self._frames()]

    def say_bye(self) -> None:
        """Report the end of the recording to the responder, if there is a connection."""
        if self._connection is not None:
            send_bye(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._closed.set()
        if self._connection is not None:
            self._connection.close()
        self._close_fresh()

    def _close_fresh(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._fresh.get_nowait().close()

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

    def _break(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            threading.Thread(target=self._connect_anew, daemon=True).start()

    def _connect_anew(self) -> None:
        pause_s, longest_s = _AGAIN_S
        while not self._closed.is_set():
            with suppress(TraceError):
                self._fresh.put(connect(self._place, self._timeout_s)[0])
                break
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        if self._closed.is_set():
            self._close_fresh()


PAYLOAD_BYTES = 56
"""Payload of an ordinary ping."""
_HEAD = struct.Struct("!BBHHH")
_COOKIE_BYTES = 12
_REQUEST = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY = {socket.AF_INET: 0, socket.AF_INET6: 129}
_REMEDY = (
    "measure by --method tcp, or as the administrator: sysctl -w net.ipv4.ping_group_range='0 2147483647', "
    "or setcap cap_net_raw+ep on the Python that runs this"
)


class IcmpEcho:
    """A prober by ICMP echo requests, on an unprivileged datagram socket or else a raw one.

    `responder`: the responder for the transfers of the recording, if any. Raises `TraceError` if the system allows neither.
    """

    reconnections = 0

    def __init__(self, place: Endpoint, responder: Endpoint | None = None) -> None:
        self._place, self._responder = place, responder
        self._socket = _opened(place)
        self._identity = int.from_bytes(os.urandom(2), "big")
        self._cookie = os.urandom(_COOKIE_BYTES)
        self.method = f"ICMP echo of {PAYLOAD_BYTES} bytes"

    def send(self, sequence: int) -> None:
        """Send a request, or lose it if the system does not take it."""
        payload = (self._cookie + sequence.to_bytes(4, "big")).ljust(PAYLOAD_BYTES, b"\0")
        kind = _REQUEST[socket.AddressFamily(self._place.family)]
        bare = _HEAD.pack(kind, 0, 0, self._identity, sequence & 0xFFFF) + payload
        packet = _HEAD.pack(kind, 0, checksum(bare), self._identity, sequence & 0xFFFF) + payload
        with suppress(OSError):
            self._socket.setblocking(False)
            self._socket.sendto(packet, self._place.address)

    def wait(self, at_most_s: float) -> list[tuple[int, int]]:
        """Return (sequence, monotonic nanoseconds of its arrival) of a reply that came, or nothing after `at_most_s`."""
        try:
            self._socket.settimeout(max(at_most_s, 0.0))
            packet = self._socket.recv(2048)
        except OSError:  # the time is up, or an earlier request met an error on its way
            return []
        now_ns = time.monotonic_ns()
        sequence = self._sequence(packet)
        return [] if sequence is None else [(sequence, now_ns)]

    def say_bye(self) -> None:
        """Report the end of the recording to the responder, if there is one."""
        if self._responder is not None:
            with suppress(TraceError), connect(self._responder, _BYE_S)[0] as connection:
                send_bye(connection)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _sequence(self, packet: bytes) -> int | None:
        """Return the number of the answered request; None for packets of others, which a raw socket receives too."""
        if self._place.family == socket.AF_INET and packet[:1] and packet[0] >> 4 == 4:
            packet = packet[
                4 * (packet[0] & 0xF) :
            ]  # without the IP header, which raw sockets deliver, and on some systems datagram sockets too
        start = _HEAD.size + _COOKIE_BYTES
        kind = _REPLY[socket.AddressFamily(self._place.family)]
        if len(packet) < start + 4 or packet[0] != kind or packet[_HEAD.size : start] != self._cookie:
            return None
        return int.from_bytes(packet[start : start + 4], "big")


def checksum(packet: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
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
