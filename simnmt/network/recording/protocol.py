"""What a recorder and a responder say to each other over TCP.

The recorder opens with `ASK`, the responder answers with `ANSWER` and the bytes that a transfer may have. Then frames follow,
each a head of a tag and two numbers, all in network order:

| tag | first number | second number | from | means |
|---|---|---|---|---|
| ECHO | sequence | bytes that follow | both | comes back as it went |
| DOWN | bytes wanted | 0 | recorder | send me so many |
| DATA | 0 | bytes that follow | responder | here they are |
| UPLD | 0 | bytes that follow | recorder | take them and say how fast they came |
| DONE | 0 | 16 | responder | bytes counted and nanoseconds, 64 bits each |
| BYE! | 0 | 0 | recorder | the recording has ended, not only this connection |

Whatever else comes ends the connection.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable

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
    """Exactly `size` bytes. Raises `PeerError` where they do not come before `deadline_s` on the monotonic clock."""
    found = bytearray()
    while len(found) < size:
        chunk = _some(connection, min(size - len(found), CHUNK), deadline_s)
        found += chunk
    return bytes(found)


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
