"""Round trips of small frames on one TCP connection, which is made anew whenever it breaks."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import suppress

from simnmt.network.errors import TraceError
from simnmt.network.recording.connection import Place, connect, say_bye
from simnmt.network.recording.protocol import CHUNK, ECHO, HEAD, LONGEST_ECHO

FRAME_BYTES = 64
"""Of one probe, as an ordinary ping has it."""
_FILLING = bytes(FRAME_BYTES - HEAD.size)
_LOOK_S = 0.02
_AGAIN_S = (0.25, 5.0)


class TcpEcho:
    """Sends probes and collects echoes; never waits longer than it is told to, whatever the connection does."""

    def __init__(self, place: Place, connection: socket.socket, timeout_s: float) -> None:
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
            say_bye(self._connection)

    def close(self) -> None:
        """Let go of the connection."""
        self._closed.set()
        self._selector.close()
        with self._guard:
            held = [each for each in (self._connection, self._fresh) if each is not None]
        for each in held:
            each.close()

    def _frames(self) -> list[int]:
        found = []
        while self._connection is not None and len(self._unread) >= HEAD.size:
            tag, sequence, length = HEAD.unpack_from(self._unread)
            if tag != ECHO or length > LONGEST_ECHO:
                self._break()
            elif len(self._unread) < HEAD.size + length:
                break
            else:
                found.append(sequence)
                del self._unread[: HEAD.size + length]
        return found

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
