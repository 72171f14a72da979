"""The front's side of a live engine: the life of its process, and the sentences that are sent there.

`engine` is what runs in the process; nothing here imports torch.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import time
from collections.abc import Callable, Mapping
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Any

from simnmt.base.errors import SimnmtError
from simnmt.live.engine import ONE_MODEL, EngineSettings, Result, TextCodec, check_engine, serve_engine
from simnmt.nmt.errors import NmtError
from simnmt.nmt.source_lines import SourceLine
from simnmt.profile.origin import EngineBlock
from simnmt.service.load import STOPPING
from simnmt.service.messages import ServiceError

_LOG = logging.getLogger("simnmt.live")


class EngineProcess:
    """An engine as its front sees it: starts the process, sends sentences, and starts it anew if it dies."""

    RESTART_S = 1.0
    """Pause before a process that died is started again; doubled after each failure, up to `MOST_RESTART_S`."""
    MOST_RESTART_S = 30.0
    CLOSE_S = 10.0
    """Longest time in which the process may end by itself."""
    MOST_UNSENT_BYTES = 1 << 20
    """Bytes that wait for a process which takes none, as one that is stopped; beyond them, sentences are refused."""

    def __init__(self, settings: EngineSettings, context: SpawnContext | ForkServerContext | None = None) -> None:
        """`context`: starts the process; by default with an interpreter of its own."""
        self.settings, self._context = settings, context or multiprocessing.get_context("spawn")
        self.on_reference: Callable[[float, float], None] = lambda at_s, execution_s: None
        """Called with the begin and the seconds of each reference execution."""
        self.on_error: Callable[[str], None] = lambda text: None
        """Called with a line when the process dies."""
        self.block: EngineBlock
        """What executes. Set by `ready`, as the next."""
        self.codec: TextCodec
        self.alive = False
        """Whether the process can take sentences."""
        self.restarts = 0
        self._jobs: dict[int, tuple[asyncio.Future[Result], Callable[[float], None] | None]] = {}
        """By sentence that is waited for, its future result, and what is called at its begin."""
        self._number = 0
        self._connection: Connection | None = None
        self._outlet: socket.socket
        """The connection as a socket, which sends what the process takes, so that the front never waits for it."""
        self._unsent = bytearray()
        self._process: BaseProcess | None = None
        self._ready: asyncio.Future[EngineBlock] | None = None
        """Done when the process has loaded its model."""
        self._closing = False
        self._restarting: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Sentences sent and not answered."""
        return len(self._jobs)

    @property
    def pid(self) -> int | None:
        """The number of the process; None without one."""
        return None if self._process is None else self._process.pid

    async def ready(self) -> Mapping[str, str]:
        """Start the process and wait for its model, unless that has been done; return the hash of the engine.

        Raises `NmtError` for a model or options that cannot be used, `InputError` for another engine than the expected one.
        """
        if self._restarting is not None:
            await asyncio.shield(self._restarting)
        if not self.alive:
            self.block = await self._start()
            check_engine("this box", self.block.hash, self.settings.expected_hash)
            self.codec = TextCodec(self.settings, self.block)
        return {ONE_MODEL: self.block.hash}

    def describe(self) -> Mapping[str, Any]:
        """Return what clients may know of the engine."""
        facts = {name: getattr(self.block, name) for name in ("backend", "compute_type", "threads")}
        facts |= {name: getattr(self, name) for name in ("alive", "restarts", "waiting")}
        weights = "trained" if self.codec.has_subwords else "random: translations mean nothing"
        kind = self.block.architecture.get("kind", "")
        return facts | {"engine_hash": self.block.hash, "model": kind, "weights": weights, "task": "translation"}

    def line(self, text: str, model: str = "") -> SourceLine:
        """Return a text as a source line, without tokens if it is empty. Raises `ServiceError` if it is too long.

        `model`: of `ModelEngines`, as in `execute`.
        """
        return self.codec.line(text)

    async def execute(
        self,
        line: SourceLine,
        forced_len: int | None = None,
        began: Callable[[float], None] | None = None,
        model: str = "",
        rank: int = 0,
    ) -> Result:
        """Decode a line. A caller that is cancelled withdraws the line.

        `began` is called with the moment at which the encoding began; `rank` is that of the line's class. Raises `ServiceError`
        while the process is not alive, and if the engine cannot decode the sentence.
        """
        if not self.alive:
            raise ServiceError(503, "the engine is starting", retry_after_s=self.RESTART_S)
        if len(self._unsent) > self.MOST_UNSENT_BYTES:
            raise ServiceError(503, "the engine stands still", retry_after_s=self.RESTART_S)
        key = self._number
        self._number += 1
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._jobs[key] = done, began
        self._send("decode", key, line, forced_len, time.monotonic(), began is not None, rank)
        try:
            return await done
        except asyncio.CancelledError:
            if self._jobs.pop(key, None) is not None:
                self._send("withdraw", key)  # it is not decoded unless it has begun, and its answer is dropped
            raise

    def start_later(self) -> None:
        """Start the process, which could not be started, again and again until it can be, as one that died."""
        self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def close(self) -> None:
        """End the process; sentences that are still waited for fail."""
        self._closing = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        self._lose()
        await self._reap()

    async def _start(self) -> EngineBlock:
        loop, context = asyncio.get_running_loop(), self._context
        connection, child_connection = context.Pipe()
        process = context.Process(target=serve_engine, args=(self.settings, child_connection))
        resource_tracker.ensure_running()  # which unblocks signals when it starts
        # A terminal's Ctrl-C is for the front, which ends the process: blocked signals stay blocked there.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            child_connection.close()
        atexit.register(process.kill)  # without `close`, a program would wait for the process at its end
        _LOG.info("started the process %d of an engine", process.pid)
        self._process, self._connection, self._ready = process, connection, loop.create_future()
        self._outlet = socket.socket(fileno=os.dup(connection.fileno()))
        loop.add_reader(connection.fileno(), self._receive, connection)
        try:
            return await self._ready
        except BaseException:
            self._lose()
            process.kill()  # it would load its model first, and outlive an interrupted front
            raise

    async def _reap(self) -> str:
        """Wait for the end of the process, kill it if it does not end, and return how it ended."""
        if (process := self._process) is None:
            return ""
        deadline_s = time.monotonic() + self.CLOSE_S
        while (status := process.exitcode) is None:
            if time.monotonic() >= deadline_s:
                process.kill()
            await asyncio.sleep(0.01)
        atexit.unregister(process.kill)
        process.close()
        self._process = None
        return f"signal {-status}" if status < 0 else f"status {status}"

    def _send(self, *message: Any) -> None:
        if self._connection is not None:
            if not self._unsent:  # together with all that follows at once, so that one batch takes it
                asyncio.get_running_loop().call_soon(self._flush)
            self._unsent += pickle.dumps(message, pickle.HIGHEST_PROTOCOL)

    def _flush(self) -> None:
        """Send what the process takes at once, and the rest when it takes more."""
        if self._connection is None:
            return
        loop = asyncio.get_running_loop()
        try:
            del self._unsent[: self._outlet.send(self._unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
            return
        if self._unsent:
            loop.add_writer(self._outlet, self._flush)
        else:
            loop.remove_writer(self._outlet)

    def _receive(self, connection: Connection) -> None:
        try:
            kind, *content = pickle.loads(connection.recv_bytes())
        except (EOFError, OSError):
            self._lose()
            return
        if kind == "began":
            key, begin_s = content
            _, began = self._jobs.get(key, (None, None))
            if began is not None:
                began(begin_s)
        elif kind in ("done", "failed"):
            key, *result = content
            done, _ = self._jobs.pop(key, (None, None))
            if done is not None and not done.done():
                if kind == "done":
                    done.set_result(*result)
                else:
                    done.set_exception(ServiceError(*result))
        elif kind == "reference":
            self.on_reference(*content)
        elif self._ready is not None and not self._ready.done():
            if kind == "ready":
                self.alive = True
                self._ready.set_result(*content)
            else:  # refused
                self._ready.set_exception(NmtError(*content))

    def _lose(self) -> None:
        """Close the connection, fail the sentences under way, and start the process again unless it was closed."""
        (connection, self._connection), (was_alive, self.alive) = (self._connection, None), (self.alive, False)
        if connection is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(connection.fileno())
        loop.remove_writer(self._outlet)
        connection.close()
        self._outlet.close()
        self._unsent.clear()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SimnmtError("the engine's process ended while it loaded the model"))
        jobs, self._jobs = self._jobs, {}
        for done, _ in jobs.values():
            if not done.done():
                done.set_exception(ServiceError(503, "the engine's process ended", retry_after_s=self.RESTART_S))
                done.exception()  # a sentence that nobody awaits any more is no error
        if was_alive and not self._closing and self._restarting is None:
            self._restarting = loop.create_task(self._restart())

    async def _restart(self) -> None:
        pause_s = self.RESTART_S
        while not self.alive:
            self.on_error(f"the engine's process ended ({await self._reap()}); starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            self.restarts += 1
            pause_s = min(2.0 * pause_s, self.MOST_RESTART_S)
            try:
                self.block = await self._start()
            except Exception as error:  # whatever fails, the next try may not
                self.on_error(f"the engine's process could not be started: {error}")
        self._restarting = None
