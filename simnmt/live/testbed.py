"""A testbed on this box: a server, a link and a gateway in processes of their own, pinned to processors.

Each process is a `Node`, which a controller tells what to serve. An engine stays loaded from one cell of a validation to the
next, under another policy, batching or link.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching
from simnmt.live.engine_process import EngineSettings, Frames, frame
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import LiveServer, LocalEngine, ServerSettings
from simnmt.network.link import Link
from simnmt.service.addresses import Address
from simnmt.service.link import LinkProxy, LinkSettings
from simnmt.service.precise_timers import new_precise_loop


@dataclass(frozen=True, slots=True)
class ServeModel:
    """Order to serve a model; answered with the URL."""

    settings: ServerSettings
    log: Path


@dataclass(frozen=True, slots=True)
class ServeGateway:
    """Order to serve a gateway; answered with the URL."""

    settings: GatewaySettings
    log: Path


@dataclass(frozen=True, slots=True)
class ServeLink:
    """Order to replay a link; answered with the address at which it listens."""

    link: Link
    to: Address
    settings: LinkSettings


@dataclass(frozen=True, slots=True)
class EndService:
    """Order to end what is served; answered with None."""


Order = ServeModel | ServeGateway | ServeLink | EndService


class Node:
    """A process of the testbed. Use it within `with`; orders are answered one after another."""

    def __init__(self, cpus: tuple[int, ...], errors: TextIO | None = None) -> None:
        """`cpus`: to which the process is pinned, with all that it starts unless that is pinned otherwise; empty: any."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", f"from {__name__} import main; main()", str(theirs.fileno())]
        with theirs:
            # In a session of its own: a terminal's Ctrl-C is for the controller, which ends the process.
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=errors, start_new_session=True
            )
        self._channel = _Channel(ours)
        self._channel.send(cpus)

    def ask(self, order: Order, timeout_s: float = 300.0) -> Any:
        """Give an order and return its answer. Raises `SimnmtError` if it fails."""
        self._channel.connection.settimeout(timeout_s)
        self._channel.send(order)
        answer = self._channel.receive()
        if isinstance(answer, SimnmtError):
            raise answer
        return answer

    def kill(self) -> None:
        """Kill the process at once, as a power cut would."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and what it serves."""
        self._channel.connection.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Channel:
    """Messages between a controller and its node; what is received together is returned one by one."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._frames = Frames()
        self._received: deque[Any] = deque()

    def send(self, message: object) -> None:
        """Send a message. Raises `SimnmtError` if the other end is gone."""
        try:
            self.connection.sendall(frame(message))
        except OSError:
            raise SimnmtError("a process of the testbed has ended") from None

    def receive(self) -> Any:
        """Return the next message. Raises `SimnmtError` if the other end is gone or does not answer in time."""
        while not self._received:
            try:
                data = self.connection.recv(1 << 16)
            except TimeoutError:
                raise SimnmtError("a process of the testbed did not answer in time") from None
            except OSError:
                data = b""
            if not data:
                raise SimnmtError("a process of the testbed has ended")
            self._received += self._frames.feed(data)
        return self._received.popleft()


class _Served:
    """What a node serves."""

    def __init__(self) -> None:
        self._engine: LocalEngine | None = None
        self._batching: Batching | None = None
        self._service: LiveServer | LiveGateway | None = None
        self._link: LinkProxy | None = None
        self._log: TextIO | None = None

    async def obey(self, order: Order) -> Any:
        """Do what is ordered and return the answer."""
        if isinstance(order, EndService):
            return await self.end()
        if isinstance(order, ServeLink):
            self._link = LinkProxy(order.link, order.to, settings=order.settings)
            self._link.start()
            return self._link.address
        engine = order.settings.engine
        assert isinstance(engine, EngineSettings), "a testbed starts its engines itself"
        self._engine = self._engine or LocalEngine(engine)
        await self._engine.ready()
        if engine.batching != self._batching:
            self._engine.process.use(engine.batching)
            self._batching = engine.batching
        self._log = order.log.open("a", encoding="utf-8")
        if isinstance(order, ServeModel):
            self._service = LiveServer(order.settings, self._log, _complain, self._engine)
        else:
            self._service = LiveGateway(order.settings, self._log, _complain, self._engine)
        await self._service.start()
        return self._service.front.service.url

    async def end(self) -> None:
        """End what is served; the engine stays."""
        if self._service is not None:
            await self._service.front.service.stop()
            await self._service.close()
            self._service = None
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._log is not None:
            self._log.close()
            self._log = None

    async def close(self) -> None:
        """End everything."""
        await self.end()
        if self._engine is not None:
            await self._engine.process.close()


def _complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _serve(channel: _Channel) -> None:
    served = _Served()
    try:
        while True:
            order = await asyncio.to_thread(channel.receive)
            try:
                answer = await served.obey(order)
            except SimnmtError as error:
                answer = SimnmtError(str(error))
            channel.send(answer)
    except SimnmtError:  # the controller has gone
        await served.close()


def main() -> None:
    """Run in a node's process, whose only argument is the descriptor of its connection."""
    channel = _Channel(socket.socket(fileno=int(sys.argv[1])))
    with suppress(SimnmtError):
        if cpus := channel.receive():
            os.sched_setaffinity(0, cpus)
        loop = new_precise_loop()
        try:
            loop.run_until_complete(_serve(channel))
        finally:
            loop.close()
