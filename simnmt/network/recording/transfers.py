"""Bandwidth by short transfers: what arrives once TCP is under way, a second."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from dataclasses import dataclass

from simnmt.network.errors import TraceError
from simnmt.network.recording.connection import Place, connect
from simnmt.network.recording.protocol import DATA, DONE, DOWN, HEAD, RATE, UPLOAD, PeerError, receive, receive_timed, send

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


def transfer(place: Place, size: int, timeout_s: float) -> Rates:
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
