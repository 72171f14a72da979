"""A user-space TCP proxy that replays the RTT and bandwidth series of a link on real connections.

Each direction delays bytes as `network.link.Link` does: half of the RTT of the moment plus bytes over bandwidth. All
connections share the queue of a direction. Opening a connection through the link takes one RTT, as TCP's handshake does; the
client's own `connect` returns at once, since its handshake is with the proxy.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from simnmt.base.errors import InputError
from simnmt.base.text_tables import format_pairs
from simnmt.network.link import Link
from simnmt.service.addresses import Address, AddressError, listen_at
from simnmt.service.link_direction import Direction, LinkClock, Pipe
from simnmt.service.precise_timers import new_precise_loop, reduce_timer_slack

_SWEEP_S = 1.0
_ACCEPT_AGAIN_S = 0.2
_ACCEPTED_AT_ONCE = 32
_LEAST_WINDOW_BYTES = 1500
_ABORTIVE_CLOSE = struct.pack("ii", 1, 0)

Places = Sequence[tuple[socket.AddressFamily, tuple[str, int]]]
"""Socket addresses with their families."""


class LinkError(InputError):
    """A replayed link that cannot be set up as given."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which the link carries nothing: bytes on their way stay where they are, and new connections wait."""

    begin_s: float
    """Seconds after the start of the proxy."""
    duration_s: float
    resets: bool = False
    """True if the outage resets the open connections."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Settings of a replayed link. Raises `LinkError` for limits of nothing, and outages that overlap or last no time."""

    begin_s: float = 0.0
    """Moment of the series at which the replay starts."""
    loss: float = 0.0
    """Probability that a TCP segment is lost, which shows as the delay of a retransmission (`link_direction.Direction`)."""
    seed: int = 1
    """Seed of the losses."""
    outages: Sequence[Outage] = ()
    connections: int = 256
    """Open connections; further ones are reset."""
    window_bytes: int = 1 << 20
    """Bytes on their way of one connection in one direction from which no more are read."""
    connect_s: float = 10.0
    """Longest time until the other end accepts a connection."""
    idle_s: float = 600.0
    """Longest time in which a connection carries no byte."""
    half_closed_s: float = 60.0
    """The same, for a connection of which one end has sent its last byte."""

    def __post_init__(self) -> None:
        for limit_s in (self.connect_s, self.idle_s, self.half_closed_s):
            if not limit_s > 0.0:
                raise LinkError(f"a limit of {limit_s:g} s", remedy="give more than 0 s")
        if self.window_bytes < _LEAST_WINDOW_BYTES:
            raise LinkError(f"a window of {self.window_bytes:,} bytes", remedy=f"give at least {_LEAST_WINDOW_BYTES:,}")
        end_s = 0.0
        for outage in sorted(self.outages, key=lambda outage: outage.begin_s):
            if not outage.duration_s > 0.0:
                raise LinkError(f"an outage of {outage.duration_s:g} s", remedy="give more than 0 s")
            if outage.begin_s < end_s:
                remedy = "give outages that follow each other"
                raise LinkError(f"the outage at {outage.begin_s:g} s begins before the one before it ends", remedy=remedy)
            end_s = outage.begin_s + outage.duration_s


@dataclass(frozen=True, slots=True)
class LinkSummary:
    """Counts of a replayed link, and how exactly it kept its delays."""

    connections: int
    """Connections that were accepted."""
    refused: int
    """Connections beyond the limit."""
    unreachable: int
    """Connections that the other end did not accept."""
    resets: int
    """Connections that either end, or an outage, reset."""
    timed_out: int
    """Connections that were idle for too long."""
    outages: int
    uplink_bytes: int
    """Bytes delivered towards the server."""
    downlink_bytes: int
    """Bytes delivered from the server."""
    retransmissions: int
    chunks: int
    """Pieces of the byte streams that were delayed."""
    nominal_mean_s: float
    """Mean of the delays that the series prescribe, queueing included."""
    error_mean_s: float
    """Mean of realised less nominal delay."""
    error_p99_s: float

    def as_json(self) -> dict[str, Any]:
        """Return the summary for `--json`."""
        return asdict(self)

    def format(self) -> str:
        """Return the summary as lines of text."""
        ends = f"{self.refused:,} refused, {self.unreachable:,} unreachable, {self.resets:,} reset, {self.timed_out:,} idle"
        faults = f"{self.outages:,} outages, {self.retransmissions:,} retransmissions"
        errors = f"realised {self.error_mean_s * 1e3:+.3f} ms in the mean, {self.error_p99_s * 1e3:+.3f} ms at p99"
        rows = {
            "connections": f"{self.connections:,} ({ends})",
            "bytes": f"{self.uplink_bytes:,} up, {self.downlink_bytes:,} down",
            "faults": faults,
            "one-way delay": f"nominal mean {self.nominal_mean_s * 1e3:.3f} ms of {self.chunks:,} chunks; {errors}",
        }
        return str(format_pairs(list(rows.items()), "  "))


class LinkProxy:
    """A proxy that listens from its construction on, and delays bytes from `start` to `close` in a thread of its own.

    Args:
        link: RTT series and bandwidths, as in a simulation.
        to: where connections lead.
        listen: where connections are accepted.
        settings: faults and limits.

    Raises `AddressError` if it cannot listen, or if `to` cannot be resolved or is the proxy itself.

    Example:
        >>> from simnmt.network.series import constant_rtt
        >>> with LinkProxy(Link(constant_rtt(0.05), 1e8, 1e8), Address("127.0.0.1", 9)) as proxy:
        ...     summary = proxy.summary()
        >>> summary.connections
        0
    """

    def __init__(self, link: Link, to: Address, listen: Address | None = None, settings: LinkSettings | None = None) -> None:
        self._link, self._settings = link, settings or LinkSettings()
        if not to.port:
            raise AddressError(f"--to {to} has no port", remedy="give the address of the server")
        self._places = to.resolve()
        self._listener = listen_at(listen or Address())
        name = self._listener.getsockname()
        self.address = Address(str(name[0]), int(name[1]))
        """Where the proxy listens."""
        if (self.address.host, self.address.port) in (place for _, place in self._places):
            self._listener.close()
            raise AddressError(f"--to {to} is where the link itself listens", remedy="give the address of the server")
        self._loop = new_precise_loop()
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)
        self._is_ready = threading.Event()
        self._stop = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._counts = dict.fromkeys(("connections", "refused", "unreachable", "resets", "timed_out", "outages"), 0)

    def start(self) -> None:
        """Begin the replay and accept connections."""
        self._thread.start()
        self._is_ready.wait()

    def wait(self, at_most_s: float | None = None) -> None:
        """Wait until the proxy is closed, or for `at_most_s`."""
        self._thread.join(at_most_s)

    def stop(self) -> None:
        """Ask the proxy to end, without waiting; a signal handler may call it."""
        with suppress(RuntimeError):  # the loop has ended already
            self._loop.call_soon_threadsafe(self._stop.set)

    def close(self) -> None:
        """Reset the open connections and end; has no effect a second time."""
        if self._thread.is_alive():
            self.stop()
            self._thread.join()
        self._listener.close()
        self._loop.close()

    def __enter__(self) -> LinkProxy:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def cut(self, *, resets: bool = False) -> None:
        """Carry nothing until `restore`; `resets`: reset the open connections."""
        self._call(lambda: self._cut(resets))

    def restore(self) -> None:
        """Carry bytes again."""
        self._call(self._restore)

    def summary(self) -> LinkSummary:
        """Return the counts since the start."""
        up, down = self._up, self._down
        delays = (up.delays, down.delays)
        count = sum(delay.count for delay in delays)
        worse = max(delays, key=lambda delay: delay.late_quantile_s(0.99))
        return LinkSummary(
            **self._counts,
            uplink_bytes=up.byte_count,
            downlink_bytes=down.byte_count,
            retransmissions=up.retransmissions + down.retransmissions,
            chunks=count,
            nominal_mean_s=sum(delay.nominal_s for delay in delays) / max(count, 1),
            error_mean_s=sum(delay.late_s for delay in delays) / max(count, 1),
            error_p99_s=worse.late_quantile_s(0.99),
        )

    def most_in_flight_bytes(self) -> int:
        """Return the bytes on their way in the direction of a connection that has most of them."""
        pipes = [pipe for connection in list(self._connections) for pipe in connection.pipes]
        return max((pipe.in_flight_bytes for pipe in pipes), default=0)

    def _call(self, action: Callable[[], None]) -> None:
        """Run an action on the proxy's thread and wait for it."""
        done: Future[None] = Future()

        def act() -> None:
            action()
            done.set_result(None)

        self._loop.call_soon_threadsafe(act)
        done.result()

    def _run(self) -> None:
        reduce_timer_slack()
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()
            self._is_ready.set()

    async def _serve(self) -> None:
        settings = self._settings
        self._clock = LinkClock(self._loop, settings.begin_s)
        link, shared = self._link, (settings.loss, settings.seed)
        self._up = Direction(self._clock, link.rtt, link.uplink_bps, *shared, "uplink")
        self._down = Direction(self._clock, link.rtt, link.downlink_bps, *shared, "downlink")
        for outage in settings.outages:
            self._loop.call_later(outage.begin_s, self._cut, outage.resets)
            self._loop.call_later(outage.begin_s + outage.duration_s, self._restore)
        self._loop.call_later(_SWEEP_S, self._sweep)
        self._loop.add_reader(self._listener, self._accept)
        self._is_ready.set()
        await self._stop.wait()
        self._loop.remove_reader(self._listener)
        openings = [connection.opening for connection in self._connections if connection.opening is not None]
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*openings, return_exceptions=True)

    def _cut(self, resets: bool = False) -> None:
        if self._clock.is_cut:
            return
        self._counts["outages"] += 1
        self._clock.stop()
        for connection in list(self._connections):
            if resets:
                self.end("resets", connection)
            else:
                for pipe in connection.pipes:
                    pipe.freeze()

    def _restore(self) -> None:
        if not self._clock.is_cut:
            return
        self._clock.go_on()
        for connection in list(self._connections):
            connection.active_s = self._loop.time()
            for pipe in connection.pipes:
                pipe.thaw()

    def _accept(self) -> None:
        for _attempt in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # no descriptors left for now
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_ACCEPT_AGAIN_S, self._loop.add_reader, self._listener, self._accept)
                return
            self._take(client)

    def _take(self, client: socket.socket) -> None:
        if len(self._connections) >= self._settings.connections:
            self._counts["refused"] += 1
            _reset(client)
            return
        self._counts["connections"] += 1
        _prepare(client)
        connection = _Connection(self, client, self._settings, self._clock, (self._up, self._down))
        self._connections.add(connection)
        connection.begin(self._places)

    def end(self, count: str, connection: _Connection) -> None:
        """Reset both ends of a connection and count it under a name."""
        if connection in self._connections:
            self._counts[count] += 1
        connection.abort()

    def forget(self, connection: _Connection) -> None:
        """Leave out a connection that has ended."""
        self._connections.discard(connection)

    def _sweep(self) -> None:
        self._loop.call_later(_SWEEP_S, self._sweep)
        if self._clock.is_cut:
            return
        for connection in list(self._connections):
            is_half_closed = any(pipe.has_ended for pipe in connection.pipes)
            longest_s = self._settings.half_closed_s if is_half_closed else self._settings.idle_s
            if connection.pipes and self._loop.time() - connection.last_active_s() > longest_s:
                self.end("timed_out", connection)


class _Connection:
    """The two sockets of a connection and the pipes between them."""

    def __init__(
        self,
        proxy: LinkProxy,
        client: socket.socket,
        settings: LinkSettings,
        clock: LinkClock,
        directions: tuple[Direction, Direction],
    ) -> None:
        self._proxy, self._client, self._settings, self._clock = proxy, client, settings, clock
        self._up, self._down = directions
        self._server: socket.socket | None = None
        self.opening: asyncio.Task[None] | None = None
        self._ended_pipes = 0
        self.pipes: tuple[Pipe, ...] = ()
        self.active_s = asyncio.get_running_loop().time()

    def begin(self, places: Places) -> None:
        """Open the connection to the first place that accepts it, after the times that TCP's handshake takes."""
        self.opening = asyncio.get_running_loop().create_task(self._open(places))

    def last_active_s(self) -> float:
        """Return the event loop's time of the last byte."""
        return max([self.active_s, *(pipe.active_s for pipe in self.pipes)])

    def abort(self) -> None:
        """Reset both ends."""
        self._close(_reset)

    async def _open(self, places: Places) -> None:
        await self._clock.wait_until(self._up.arrival_s(0, self._clock.now_s()))
        server = await self._connected(places)
        if server is None:
            await self._clock.wait_until(self._down.arrival_s(0, self._clock.now_s()))
            self._proxy.end("unreachable", self)
            return
        _prepare(server)
        self._server = server
        up = self._pipe(self._up, self._client, server)
        down = self._pipe(self._down, server, self._client)
        self.pipes = (up, down)
        down.start()
        await self._clock.wait_until(self._down.arrival_s(0, self._clock.now_s()))
        up.start()

    async def _connected(self, places: Places) -> socket.socket | None:
        """Return a socket that is connected to the first place that accepts it; None if none does."""
        for family, place in places:
            server = socket.socket(family, socket.SOCK_STREAM)
            server.setblocking(False)
            try:
                await asyncio.wait_for(asyncio.get_running_loop().sock_connect(server, place), self._settings.connect_s)
                return server
            except (OSError, asyncio.TimeoutError):
                server.close()
            except asyncio.CancelledError:
                server.close()
                raise
        return None

    def _pipe(self, direction: Direction, source: socket.socket, sink: socket.socket) -> Pipe:
        return Pipe(
            direction,
            source,
            sink,
            self._settings.window_bytes,
            on_end=self._on_end,
            on_reset=lambda: self._proxy.end("resets", self),
            on_broken=self._on_broken,
        )

    def _on_end(self) -> None:
        self._ended_pipes += 1
        if self._ended_pipes == len(self.pipes):
            self._close(socket.socket.close)

    def _on_broken(self, broken: socket.socket) -> None:
        """Drop what goes to a socket that was reset, and send the reset to the other end."""
        up, down = self.pipes
        towards, away = (down, up) if broken is self._client else (up, down)
        towards.close()
        away.reset()

    def _close(self, close: Callable[[socket.socket], None]) -> None:
        if self.opening is not None and self.opening is not asyncio.current_task():
            self.opening.cancel()
        for pipe in self.pipes:
            pipe.close()
        for end in (self._client, self._server):
            if end is not None:
                close(end)
        self._proxy.forget(self)


def _prepare(end: socket.socket) -> None:
    end.setblocking(False)
    with suppress(OSError):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _reset(end: socket.socket) -> None:
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORTIVE_CLOSE)
    end.close()
