"""The front's side of a live engine: its settings, the messages exchanged with its process, and that process's life.

The front (an asyncio program that speaks HTTP) must answer at once while the model computes, and Python runs one thread at a
time. So the model has its own process, pinned to its own processors, and both exchange frames over a socket pair. All moments
are of the box's monotonic clock, which both processes share. `engine_loop` is what runs in the process; nothing here imports
torch.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching
from simnmt.live.text import TextCodec
from simnmt.nmt.architecture import architecture_of
from simnmt.nmt.errors import NmtError
from simnmt.nmt.pretrained_tokenizer import Languages
from simnmt.nmt.sentence_decoder import SentenceDecoder
from simnmt.nmt.source_lines import SourceLine
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.origin import EngineBlock
from simnmt.service.messages import ServiceError

_LOG = logging.getLogger("simnmt.live")

ONE_BY_ONE = Batching(1)
"""One sentence after another, in the order of arrival."""
LOOP = "simnmt.live.engine_loop"
"""Module that runs in the process."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model as the loop drives it."""

    new_decoder: Callable[[Batching], SentenceDecoder]
    """Returns an empty decoder that batches so. Raises `NmtError` for a batching that it cannot do."""
    engine: EngineBlock
    """What executes, with the architecture."""
    run_reference: Callable[[], float] | None = None
    """Does the fixed work once, and returns its seconds; None: there are no reference executions."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a live engine is loaded, batched and placed on the box."""

    model: str
    """See `EngineRequest.model`."""
    backend: str = "torch"
    device: str = "cpu"
    compute_type: str | None = None
    threads: int | None = None
    beam: int = 1
    fused: bool = False
    decoder: DecoderSettings | None = None
    """How sharp decodes; None for other backends."""
    seed: int = 0
    batching: Batching = ONE_BY_ONE
    max_len: int | None = None
    """Most target tokens; None: twice the source's and 10."""
    src_lang: str | None = None
    """See `Languages.source`; this and the next are for folders and ids of Hugging Face."""
    tgt_lang: str | None = None
    cpus: tuple[int, ...] = ()
    """Processors to which the process is pinned; empty: any."""
    nice: int = 5
    """By how much other processes go first: above 0, the front is not kept waiting on a shared processor."""
    reference_every_s: float = inf
    """Time between two reference executions, which record the box's own speed while the engine is idle."""
    loader: Callable[[EngineSettings], ServedModel] | None = None
    """Loads the model in the process, which imports the function by its name; None: `engine_loop.load_model`."""

    @property
    def languages(self) -> Languages:
        """What a model of Hugging Face translates from and to."""
        return Languages(self.src_lang, self.tgt_lang)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine tells its front once the model is loaded."""

    engine: EngineBlock
    process: int


@dataclass(frozen=True, slots=True)
class Execution:
    """A sentence's way through the engine; moments of the box's monotonic clock, seconds."""

    text: str
    tgt_len: int
    """Decode steps of its output."""
    begin_s: float
    """Begin of its encoding."""
    end_s: float
    largest_batch: int
    """Most sentences that took a step together with it, itself included."""
    left_active: int
    """Sentences left active in its batch when it ended."""
    left_waiting: int


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference execution."""

    at_s: float
    execution_s: float
    busy_s: float
    """From `at_s` on, with the work before it that is not measured."""


def codec_of(settings: EngineSettings, engine: EngineBlock) -> TextCodec:
    """Return what converts the texts of a model: its subwords, or words without them. Raises `NmtError`."""
    return TextCodec(settings.model, architecture_of(engine.architecture), settings.max_len, settings.languages)


_HEAD = struct.Struct("!I")


def frame(message: object) -> bytes:
    """Return a message as bytes with their length before them."""
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(content)) + content


class Frames:
    """Splits received bytes into messages. Both ends are one program: nothing else may reach the socket pair."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that are complete now."""
        buffer, messages, start = self._buffer, [], 0
        buffer += data
        while len(buffer) - start >= _HEAD.size:
            begin = start + _HEAD.size
            end = begin + _HEAD.unpack_from(buffer, start)[0]
            if len(buffer) < end:
                break
            messages.append(pickle.loads(memoryview(buffer)[begin:end]))
            start = end
        del buffer[:start]
        return messages


class _Job:
    """A sentence that the front waits for."""

    __slots__ = ("began", "done")

    def __init__(self, began: Callable[[float], None] | None) -> None:
        self.began = began
        self.done: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()


class EngineProcess:
    """An engine as its front sees it: starts the process, sends sentences, and starts it anew if it dies."""

    RESTART_S = 1.0
    """Pause before a process that died is started again; doubled after each failure, up to `MOST_RESTART_S`."""
    MOST_RESTART_S = 30.0
    CLOSE_S = 10.0
    """Longest time in which the process may end by itself."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.on_reference: Callable[[Reference], None] = lambda reference: None
        """Called with each reference execution."""
        self.on_error: Callable[[str], None] = lambda text: None
        """Called with a line when the process dies."""
        self.codec: TextCodec
        """Set by `start`."""
        self.facts: EngineFacts
        self.restarts = 0
        self._jobs: dict[int, _Job] = {}
        self._number = 0
        self._transport: asyncio.Transport | None = None
        """None while there is no process."""
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: asyncio.Future[EngineFacts] | None = None
        """Done when the process has loaded the model."""
        self._closing = False
        self._restarting: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Sentences sent and not answered."""
        return len(self._jobs)

    @property
    def alive(self) -> bool:
        """Whether the process can take sentences."""
        return self._transport is not None and self._has_loaded

    @property
    def _has_loaded(self) -> bool:
        ready = self._ready
        return ready is not None and ready.done() and not ready.cancelled() and ready.exception() is None

    async def start(self) -> EngineFacts:
        """Start the process and wait for its model. Raises `NmtError` for a model or options that cannot be used."""
        self.facts = await self._start()
        self.codec = codec_of(self.settings, self.facts.engine)
        return self.facts

    async def ready(self) -> str:
        """Return the hash of the engine, whose process is started unless it has been, or is being. Raises `NmtError`."""
        if self._restarting is not None:
            await asyncio.shield(self._restarting)
        return (self.facts if self.alive else await self.start()).engine.hash

    def describe(self) -> Mapping[str, Any]:
        """Return what clients may know of the engine."""
        engine = self.facts.engine
        return {
            "engine_hash": engine.hash,
            "backend": engine.backend,
            "compute_type": engine.compute_type,
            "model": engine.architecture.get("kind", ""),
            "threads": engine.threads,
            "weights": "trained" if self.codec.has_subwords else "random: translations mean nothing",
            "alive": self.alive,
            "restarts": self.restarts,
            "waiting": self.waiting,
            "task": "translation",
        }

    def line(self, text: str) -> SourceLine:
        """Return a text as a source line, without tokens if it is empty. Raises `ServiceError` if it is too long."""
        (line,) = self.codec.lines([text])
        return line

    async def execute(
        self, line: SourceLine, forced_len: int | None, began: Callable[[float], None] | None = None
    ) -> tuple[Execution, float]:
        """Decode a line; return its execution and when it was handed over. Raises `ServiceError`.

        `began`: as of `submit`. A caller that is cancelled withdraws the line.
        """
        submitted_s = time.monotonic()
        key, done = self.submit(line, forced_len, began)
        try:
            return await done, submitted_s
        except asyncio.CancelledError:
            self.withdraw(key)
            raise

    def submit(
        self, line: SourceLine, forced_len: int | None = None, began: Callable[[float], None] | None = None
    ) -> tuple[int, asyncio.Future[Execution]]:
        """Send a sentence; return its number, for `withdraw`, and its future execution.

        `began` is called with the moment at which its encoding began. Raises `ServiceError` while the process is not alive; the
        future raises it if the engine cannot decode the sentence.
        """
        if self._transport is None or not self.alive:
            raise ServiceError(503, "the engine is starting", retry_after_s=self.RESTART_S)
        key = self._number
        self._number += 1
        job = self._jobs[key] = _Job(began)
        self._transport.write(frame(("decode", key, line, forced_len, time.monotonic(), began is not None)))
        return key, job.done

    def withdraw(self, key: int) -> None:
        """Give a sentence up: it is not decoded unless it has begun, and its answer is dropped."""
        if self._jobs.pop(key, None) is not None and self._transport is not None:
            self._transport.write(frame(("withdraw", key)))

    def hurry(self) -> None:
        """Let no sentence wait for company from now on, since the service ends."""
        if self._transport is not None:
            self._transport.write(frame(("hurry",)))

    async def close(self) -> None:
        """End the process; sentences that are still waited for fail."""
        self._closing = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None and not self._has_loaded:
            self._process.kill()  # it would load its model first
        await self._reap()

    async def _start(self) -> EngineFacts:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        # A plain subprocess: it ends by itself when this end of the connection closes, however this process ends.
        command = [sys.executable, "-c", f"from {LOOP} import main; main()", str(theirs.fileno())]
        with theirs:
            # In a session of its own: a terminal's Ctrl-C is for the front, which ends the process.
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        _LOG.info("started the process %d of an engine", self._process.pid)
        ours.setblocking(False)
        ready: asyncio.Future[EngineFacts] = loop.create_future()
        self._ready = ready
        try:
            self._transport, _ = await loop.create_connection(lambda: _Connection(self._take, self._lose), sock=ours)
            self._transport.write(frame(self.settings))
            return await ready
        except BaseException:
            if self._transport is not None:
                self._transport.abort()
            if self._process is not None:
                self._process.kill()  # it would load its model first, and outlive an interrupted front
            raise

    async def _how_it_ended(self) -> str:
        """Describe the end of the process, which may come a little after that of its connection."""
        for _ in range(100):
            status = None if self._process is None else self._process.poll()
            if status is not None:
                return f"signal {-status}" if status < 0 else f"status {status}"
            await asyncio.sleep(0.01)
        return "its connection closed"

    async def _reap(self) -> None:
        """Wait for the end of the process, and kill it if it does not end."""
        process, self._process = self._process, None
        if process is None:
            return
        deadline_s = time.monotonic() + self.CLOSE_S
        while process.poll() is None:
            if time.monotonic() >= deadline_s:
                process.kill()
            await asyncio.sleep(0.01)

    def _take(self, kind: str, *content: Any) -> None:
        """Take a message of the process."""
        if kind == "done":
            key, execution = content
            if (job := self._jobs.pop(key, None)) is not None and not job.done.done():
                job.done.set_result(execution)
        elif kind == "began":
            key, begin_s = content
            if (job := self._jobs.get(key)) is not None and job.began is not None:
                job.began(begin_s)
        elif kind == "failed":
            key, status, message = content
            if (job := self._jobs.pop(key, None)) is not None and not job.done.done():
                job.done.set_exception(ServiceError(status, message))
        elif kind == "reference":
            self.on_reference(content[0])
        elif self._ready is not None and not self._ready.done():
            if kind == "ready":
                self._ready.set_result(content[0])
            else:  # refused
                self._ready.set_exception(NmtError(content[0]))

    def _lose(self) -> None:
        """Fail the sentences under way after the end of the process, and start it again unless it was closed."""
        self._transport = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SimnmtError("the engine's process ended while it loaded the model"))
            return
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if not job.done.done():
                job.done.set_exception(ServiceError(503, "the engine's process ended", retry_after_s=self.RESTART_S))
                job.done.exception()  # a sentence that nobody awaits any more is no error
        if self._has_loaded and not self._closing and self._restarting is None:
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        pause_s = self.RESTART_S
        while not self.alive:
            self.on_error(f"the engine's process ended ({await self._how_it_ended()}); starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            await self._reap()
            self.restarts += 1
            pause_s = min(2.0 * pause_s, self.MOST_RESTART_S)
            try:
                self.facts = await self._start()
            except (SimnmtError, OSError) as error:
                self.on_error(f"the engine's process could not be started: {error}")
        self._restarting = None


class _Connection(asyncio.Protocol):
    """Hands the messages of a process, and its end, to the front."""

    def __init__(self, take: Callable[..., None], lose: Callable[[], None]) -> None:
        self._take, self._lose, self._frames = take, lose, Frames()

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._take(*message)

    def connection_lost(self, error: Exception | None) -> None:
        self._lose()
