"""A testbed on this box: a server, a link and a gateway in processes of their own, pinned to processors.

Each process is a `Node`, which a controller tells what to serve. An engine stays loaded from one cell of a validation to the
next, under another policy, batching or link.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching
from simnmt.live.gateway import GatewaySettings, LiveGateway
from simnmt.live.server import LiveServer, LocalEngine, ServerSettings
from simnmt.network.link import Link
from simnmt.service.addresses import Address
from simnmt.service.link import LinkProxy, LinkSettings
from simnmt.service.precise_timers import new_precise_loop

_HEAD = struct.Struct("!I")


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
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stderr=errors, env=os.environ
            )
        self._connection = ours
        _send(ours, cpus)

    def ask(self, order: Order, timeout_s: float = 300.0) -> Any:
        """Give an order and return its answer. Raises `SimnmtError` if it fails."""
        self._connection.settimeout(timeout_s)
        _send(self._connection, order)
        answer = _receive(self._connection)
        if isinstance(answer, SimnmtError):
            raise answer
        return answer

    def kill(self) -> None:
        """Kill the process at once, as a power cut would."""
        self._process.kill()

    def close(self) -> None:
        """End the process, and what it serves."""
        self._connection.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _send(connection: socket.socket, message: object) -> None:
    content = pickle.dumps(message)
    connection.sendall(_HEAD.pack(len(content)) + content)


def _receive(connection: socket.socket) -> Any:
    """Return the next message of the process's own parent or child. Raises `SimnmtError` if it is gone."""
    return pickle.loads(_exactly(connection, _HEAD.unpack(_exactly(connection, _HEAD.size))[0]))


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        try:
            part = connection.recv(size - len(content))
        except TimeoutError:
            raise SimnmtError("a process of the testbed did not answer in time") from None
        if not part:
            raise SimnmtError("a process of the testbed has ended")
        content += part
    return bytes(content)


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
        batching = order.settings.engine.batching
        self._engine = self._engine or LocalEngine(order.settings.engine)
        await self._engine.started()
        if batching != self._batching:
            self._engine.process.use(batching)
            self._batching = batching
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


async def _serve(connection: socket.socket) -> None:
    served = _Served()
    try:
        while True:
            order = await asyncio.to_thread(_receive, connection)
            try:
                answer = await served.obey(order)
            except SimnmtError as error:
                answer = SimnmtError(str(error))
            _send(connection, answer)
    except SimnmtError:  # the controller has gone
        await served.close()


def main() -> None:
    """Run in a node's process, whose only argument is the descriptor of its connection."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    with suppress(SimnmtError):
        if cpus := _receive(connection):
            os.sched_setaffinity(0, cpus)
        loop = new_precise_loop()
        try:
            loop.run_until_complete(_serve(connection))
        finally:
            loop.close()


def pinned(settings: ServerSettings, cpus: tuple[int, ...]) -> ServerSettings:
    """Return the settings with the engine on these processors."""
    return replace(settings, engine=replace(settings.engine, cpus=cpus))
