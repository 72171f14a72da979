"""One direction of a replayed link: the queue that all connections share, and the bytes of one connection on their way.

Bytes wait for those before them (one queue, 8 x bytes / bandwidth each), then take half of the round trip. The link's clock
stands still while the link is cut, so bytes on their way stay where they are.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from simnmt.base import random_streams
from simnmt.network.series import BandwidthSeries, RttSeries

_SEGMENT_BYTES = 1448
"""Payload of a TCP segment on Ethernet."""
_MOST_CHUNK_BYTES = 1 << 16
_CHUNK_S = 2e-3
"""Time on the wire of one chunk, unless it were less than a segment: the bandwidth series is met that often."""
_LEAST_RETRANSMISSION_S = 0.2
_QUEUE_S = 0.1
"""Waiting time in the queue from which no more bytes are read."""


class LinkClock:
    """The time on a link, seconds: that of the event loop, less the time for which the link was cut."""

    def __init__(self, loop: asyncio.AbstractEventLoop, begin_s: float) -> None:
        self._loop = loop
        self._series_ahead_s = begin_s - loop.time()
        self._held_s = 0.0
        self._cut_at_s: float | None = None
        self._whole = asyncio.Event()
        self._whole.set()

    @property
    def is_cut(self) -> bool:
        """True while the link is cut."""
        return self._cut_at_s is not None

    def now_s(self) -> float:
        """Return the present time on the link."""
        return (self._loop.time() if self._cut_at_s is None else self._cut_at_s) - self._held_s

    def loop_s(self, at_s: float) -> float:
        """Return the event loop's time at which the link's clock will show `at_s` if it is not cut again."""
        return at_s + self._held_s

    def series_s(self, at_s: float) -> float:
        """Return the moment of the series at time `at_s` on the link."""
        return at_s + self._held_s + self._series_ahead_s

    def stop(self) -> None:
        """Let the clock stand still."""
        if self._cut_at_s is None:
            self._cut_at_s = self._loop.time()
            self._whole.clear()

    def go_on(self) -> None:
        """Let a clock that stands still run again."""
        if self._cut_at_s is not None:
            self._held_s += self._loop.time() - self._cut_at_s
            self._cut_at_s = None
            self._whole.set()

    async def wait_until(self, at_s: float) -> None:
        """Wait until the clock shows `at_s`."""
        while (left_s := at_s - self.now_s()) > 0.0 or self.is_cut:
            await self._whole.wait()
            await asyncio.sleep(max(left_s, 0.0))


class Delays:
    """Counts of nominal delays of chunks and of how much later than that they left, in bounded memory."""

    _LEAST_S, _PER_DECADE = 1e-6, 20

    def __init__(self) -> None:
        self.count = 0
        self.nominal_s = 0.0
        """Sum of the nominal delays."""
        self.late_s = 0.0
        """Sum of the lateness."""
        self._bins = [0] * (8 * self._PER_DECADE)

    def add(self, nominal_s: float, late_s: float) -> None:
        """Count one chunk."""
        self.count += 1
        self.nominal_s += nominal_s
        self.late_s += late_s
        place = math.ceil(self._PER_DECADE * math.log10(late_s / self._LEAST_S)) if late_s > self._LEAST_S else 0
        self._bins[min(place, len(self._bins) - 1)] += 1

    def late_quantile_s(self, quantile: float) -> float:
        """Return the lateness that a share `quantile` of the chunks does not exceed, at most 12 % too high; 0 of none."""
        before, wanted = 0, quantile * self.count
        for place, count in enumerate(self._bins):
            before += count
            if before >= wanted and before:
                return float(self._LEAST_S * 10.0 ** (place / self._PER_DECADE))
        return 0.0


class Direction:
    """One direction of a link.

    Args:
        clock: the link's clock.
        rtt: round-trip times; each way takes half.
        bandwidth: bit/s, constant or a series.
        loss: probability that a TCP segment is lost. A chunk of which a segment is lost arrives one retransmission timeout
            later, max(200 ms, 2 RTT), which holds up the later bytes of its connection: an approximation, since TCP resends
            earlier if later segments arrive, and then sends more slowly.
        seed: seed of the losses.
        name: name of the random stream.
    """

    def __init__(
        self, clock: LinkClock, rtt: RttSeries, bandwidth: float | BandwidthSeries, loss: float, seed: int, name: str
    ) -> None:
        self.clock = clock
        self.byte_count = 0
        """Bytes that have left the link."""
        self.retransmissions = 0
        self.delays = Delays()
        self._rtt, self._bandwidth, self._loss = rtt, bandwidth, loss
        self._generator = random_streams.stream(seed, 0, f"link {name}")
        self._free_s = -math.inf
        self._waiting: list[Callable[[], None]] = []

    def arrival_s(self, size: int, now_s: float) -> float:
        """Enter `size` bytes at `now_s` on the link's clock and return when they leave the link on that clock."""
        start_s = max(now_s, self._free_s)
        self._free_s = start_s + 8 * size / self._bps(start_s)
        rtt_s = self._rtt.at_one(self.clock.series_s(now_s))
        resent_s = 0.0
        if self._loss and self._generator.random() >= (1.0 - self._loss) ** max(1, math.ceil(size / _SEGMENT_BYTES)):
            self.retransmissions += 1
            resent_s = max(_LEAST_RETRANSMISSION_S, 2 * rtt_s)
        return self._free_s + rtt_s / 2 + resent_s

    def chunk_bytes(self, now_s: float) -> int:
        """Return the most bytes to read at once."""
        return int(min(max(self._bps(now_s) * _CHUNK_S / 8, _SEGMENT_BYTES), _MOST_CHUNK_BYTES))

    def wait_if_full(self, now_s: float, resume: Callable[[], None], loop: asyncio.AbstractEventLoop) -> bool:
        """Return True if the queue is full, and call `resume` once half of it has left; waiting callers take turns."""
        if self._free_s - now_s <= _QUEUE_S:
            return False
        if not self._waiting:
            loop.call_at(self.clock.loop_s(self._free_s - _QUEUE_S / 2), self._resume)
        self._waiting.append(resume)
        return True

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    def _bps(self, at_s: float) -> float:
        if isinstance(self._bandwidth, BandwidthSeries):
            return self._bandwidth.at_one(self.clock.series_s(at_s))
        return self._bandwidth


class _Mark(Enum):
    END = "the sender has ended its half"
    RESET = "the sender has reset the connection"


@dataclass(slots=True)
class _Chunk:
    """Bytes, or a mark, on their way."""

    entered_s: float
    due_s: float
    content: memoryview | _Mark
    is_counted: bool = False


class Pipe:
    """The bytes of one connection in one direction, from socket to socket, in order and at most `window_bytes` of them.

    Args:
        direction: the direction that all connections share.
        source: socket that is read.
        sink: socket that is written.
        window_bytes: bytes on their way from which no more are read.
        on_end: called when the end of the stream has left the link.
        on_reset: called when a reset has left the link.
        on_broken: called with a socket that turned out to be reset.
    """

    def __init__(
        self,
        direction: Direction,
        source: socket.socket,
        sink: socket.socket,
        window_bytes: int,
        on_end: Callable[[], None],
        on_reset: Callable[[], None],
        on_broken: Callable[[socket.socket], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._direction, self._clock = direction, direction.clock
        self._source, self._sink = source, sink
        self._window_bytes = window_bytes
        self._on_end, self._on_reset, self._on_broken = on_end, on_reset, on_broken
        self._chunks: deque[_Chunk] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._is_open, self._is_started = True, False
        self._is_reading = self._is_queueing = self._is_blocked = False
        self.in_flight_bytes = 0
        self.active_s = self._loop.time()
        """Time of the last byte read or written, on the event loop's clock."""
        self.has_ended = False
        """True if the source has sent its last byte."""

    def start(self) -> None:
        """Read from now on, or from the end of an outage."""
        self._is_started = True
        self._set_reading()

    def reset(self) -> None:
        """Send a reset behind the bytes on their way, and read no more."""
        self.has_ended = True
        self._set_reading()
        self._enter(0, _Mark.RESET)

    def close(self) -> None:
        """Drop all bytes and watch the sockets no more."""
        self._is_open = False
        self._chunks.clear()
        self.in_flight_bytes = 0
        self.freeze()

    def freeze(self) -> None:
        """Stop as the link is cut."""
        self._set_reading()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_blocked:
            self._loop.remove_writer(self._sink)
            self._is_blocked = False

    def thaw(self) -> None:
        """Go on as the link is restored."""
        self._set_timer()
        self._set_reading()

    def _set_reading(self) -> None:
        wanted = (
            self._is_open
            and self._is_started
            and not self.has_ended
            and not self._is_queueing
            and not self._clock.is_cut
            and self.in_flight_bytes < self._window_bytes
        )
        if wanted and not self._is_reading:
            self._loop.add_reader(self._source, self._read)
        elif self._is_reading and not wanted:
            self._loop.remove_reader(self._source)
        self._is_reading = wanted

    def _read(self) -> None:
        now_s = self._clock.now_s()
        if self._direction.wait_if_full(now_s, self._resume, self._loop):
            self._is_queueing = True
            self._set_reading()
            return
        try:
            data = self._source.recv(min(self._direction.chunk_bytes(now_s), self._window_bytes - self.in_flight_bytes))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._on_broken(self._source)
            return
        self.active_s = self._loop.time()
        self.has_ended = not data
        self.in_flight_bytes += len(data)
        self._enter(len(data), memoryview(data) if data else _Mark.END)
        self._set_reading()

    def _resume(self) -> None:
        self._is_queueing = False
        self._set_reading()

    def _enter(self, size: int, content: memoryview | _Mark) -> None:
        now_s = self._clock.now_s()
        due_s = self._direction.arrival_s(size, now_s)
        if self._chunks:
            due_s = max(due_s, self._chunks[-1].due_s)
        self._chunks.append(_Chunk(now_s, due_s, content))
        self._set_timer()

    def _set_timer(self) -> None:
        """Set the timer to the first chunk; while the sink takes nothing, to a reset behind it."""
        if self._timer is None and self._chunks and not self._clock.is_cut:
            chunk = self._chunks[-1 if self._is_blocked else 0]
            if not self._is_blocked or chunk.content is _Mark.RESET:
                self._timer = self._loop.call_at(self._clock.loop_s(chunk.due_s), self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now_s = self._clock.now_s()
        while self._chunks and not self._clock.is_cut:
            chunk = self._chunks[0]
            if chunk.due_s > now_s:
                break
            if not chunk.is_counted:
                chunk.is_counted = True
                self._direction.delays.add(chunk.due_s - chunk.entered_s, now_s - chunk.due_s)
            if isinstance(chunk.content, _Mark):
                self._chunks.popleft()
                self._deliver_mark(chunk.content)
            elif not self._write(chunk, chunk.content, now_s):
                break
        if self._is_open:
            self._set_timer()
            self._set_reading()

    def _write(self, chunk: _Chunk, data: memoryview, now_s: float) -> bool:
        """Write what the sink takes of a chunk; return whether that was all."""
        if self._is_blocked and self._chunks[-1].content is _Mark.RESET and self._chunks[-1].due_s <= now_s:
            self._on_reset()
            return False
        try:
            sent = self._sink.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._on_broken(self._sink)
            return False
        if sent:
            self.active_s = self._loop.time()
        self.in_flight_bytes -= sent
        self._direction.byte_count += sent
        if sent == len(data):
            self._chunks.popleft()
            return True
        chunk.content = data[sent:]
        if not self._is_blocked:
            self._is_blocked = True
            self._loop.add_writer(self._sink, self._on_writable)
        return False

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._sink)
        self._is_blocked = False
        if self._timer is not None:
            self._timer.cancel()
        self._deliver()

    def _deliver_mark(self, mark: _Mark) -> None:
        if mark is _Mark.RESET:
            self._on_reset()
            return
        with suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)
        self._on_end()
