"""Round trips by ICMP echo, as `ping` makes them, where the system lets us."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from contextlib import suppress

from simnmt.network.errors import TraceError
from simnmt.network.recording.connection import Place

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

    def __init__(self, place: Place) -> None:
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


def _opened(place: Place) -> socket.socket:
    protocol = socket.IPPROTO_ICMP if place.family == socket.AF_INET else socket.IPPROTO_ICMPV6
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
        with suppress(OSError):
            return socket.socket(place.family, kind, protocol)
    raise TraceError("--method icmp: this system does not let you send ICMP", remedy=_REMEDY)
