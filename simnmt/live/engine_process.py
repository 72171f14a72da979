"""A model in a process of its own: it decodes the sentences that its front sends, in the batches that a `Batcher` forms.

The front (an asyncio program that speaks HTTP) must answer at once while the model computes, and Python runs one thread at a
time: so the model has its own process, pinned to its own processors, and both exchange frames over a socket pair. All moments
are of the box's monotonic clock, which both processes share.

`EngineProcess` is the front's side; `serve_engine` runs in the process.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching, Encode
from simnmt.calibrate.profile_assembly import engine_block
from simnmt.live.text import TextCodec
from simnmt.nmt.architecture import Architecture, architecture_of
from simnmt.nmt.engine import Engine, SentenceDecoder, Work
from simnmt.nmt.engines import load_engine
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.slot_decoder import DecodeRequest
from simnmt.nmt.translation import SourceLine
from simnmt.profile.blocks import EngineBlock
from simnmt.service.messages import ServiceError

ONE_BY_ONE = Batching(1)
"""One sentence after another, in the order of arrival."""
REFERENCE = Work(src_len=8, tgt_len=4)
"""The fixed work of a reference execution."""


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
    seed: int = 0
    batching: Batching = ONE_BY_ONE
    max_len: int | None = None
    """Most target tokens; None: twice the source's and 10."""
    cpus: tuple[int, ...] = ()
    """Processors to which the process is pinned; empty: any."""
    nice: int = 5
    """By how much other processes go first: above 0, the front is not kept waiting on a shared processor."""
    reference_every_s: float = inf
    """Time between two reference executions, which record the box's own speed while the engine is idle."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine tells its front once the model is loaded."""

    engine: EngineBlock
    architecture: Architecture
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


_HEAD = struct.Struct("!I")


def _frame(message: object) -> bytes:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(len(content)) + content


class _Frames:
    """Splits received bytes into messages of the process's own parent or child."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        buffer = self._buffer
        buffer += data
        messages = []
        while len(buffer) >= _HEAD.size:
            end = _HEAD.size + _HEAD.unpack_from(buffer)[0]
            if len(buffer) < end:
                break
            messages.append(pickle.loads(buffer[_HEAD.size : end]))
            del buffer[:end]
        return messages


@dataclass(slots=True)
class _Sentence:
    """A sentence in the engine."""

    line: SourceLine
    begin_s: float = 0.0
    largest_batch: int = 0


@dataclass(slots=True)
class _Serving:
    """The loop of the engine's process."""

    connection: socket.socket
    engine: Engine
    decoder: SentenceDecoder
    codec: TextCodec
    beam: int
    reference_every_s: float
    sentences: dict[int, _Sentence] = field(default_factory=dict)
    frames: _Frames = field(default_factory=_Frames)
    active: set[int] = field(default_factory=set)
    last_reference_s: float = field(default_factory=time.monotonic)
    open: bool = True

    def run(self) -> None:
        """Serve until the front closes the connection and nothing is left to decode."""
        idle = True
        while self.open or self.decoder.busy:
            self._receive(self._wait_s() if idle else 0.0)
            idle = self._act() if self.decoder.busy else True
            if idle and time.monotonic() - self.last_reference_s >= self.reference_every_s:
                self._run_reference()

    def _wait_s(self) -> float:
        """Return how long the process may sleep unless the front sends something."""
        now_s, due_s = time.monotonic(), self.decoder.batcher.due_s
        return max(min(due_s - now_s, self.last_reference_s + self.reference_every_s - now_s, 1.0), 0.0)

    def _receive(self, timeout_s: float) -> None:
        while self.open and select.select([self.connection], [], [], timeout_s)[0]:
            try:
                data = self.connection.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.open = False
                self.decoder.batcher.close()
                self.sentences.clear()  # nobody hears the answers
                return
            for message in self.frames.feed(data):
                self._take(*message)
            timeout_s = 0.0

    def _take(self, kind: str, key: int = 0, *content: Any) -> None:
        if kind == "decode":
            line, forced_len, arrival_s = content
            self.sentences[key] = _Sentence(line)
            most = None if forced_len is not None else line.most
            self.decoder.arrive(key, DecodeRequest(line.ids, forced_len=forced_len, max_len=most), arrival_s)
        elif kind == "withdraw":
            if self.decoder.withdraw(key):
                del self.sentences[key]
        elif kind == "batching":
            if not self.decoder.busy:
                self.decoder = self.engine.sentence_decoder(content[0], self.beam)
        else:  # the front drains: nobody else comes
            self.decoder.batcher.close()

    def _act(self) -> bool:
        """Make one move; return whether nothing can be done for now."""
        decoder, before, now_s = self.decoder, self.decoder.active, time.monotonic()
        joining: Sequence[int] = ()
        try:
            move, finished = decoder.act(now_s)
        except (OutOfMemory, NmtError) as error:
            self._drop_lost(error)
            return False
        if isinstance(move, Encode):
            for key in move.requests:
                if key in self.sentences:
                    self.sentences[key].begin_s = now_s
                    self._send("began", key, now_s)
        elif move is not None:
            joining = move.requests
            self.active.update(joining)
        together = len(joining) if not decoder.active and joining else len(self.active)
        for key in self.active:
            if (sentence := self.sentences.get(key)) is not None:
                sentence.largest_batch = max(sentence.largest_batch, together)
        self.active.difference_update(key for key, _ in finished)
        for key, hypothesis in finished:
            self._finish(key, hypothesis.tokens, hypothesis.steps or len(hypothesis.tokens))
        return move is None and not before

    def _finish(self, key: int, tokens: Sequence[int], steps: int) -> None:
        end_s = time.monotonic()
        sentence = self.sentences.pop(key, None)
        if sentence is not None:
            text = self.codec.text(sentence.line, tokens)
            left = self.decoder.active, self.decoder.batcher.waiting
            self._send("done", key, Execution(text, steps, sentence.begin_s, end_s, sentence.largest_batch, *left))

    def _drop_lost(self, error: SimnmtError) -> None:
        """Answer the sentences that an error has removed from the decoder."""
        status = 503 if isinstance(error, OutOfMemory) else 400
        for key in [key for key in self.sentences if not self.decoder.holds(key)]:
            del self.sentences[key]
            self.active.discard(key)
            self._send("failed", key, status, str(error))

    def _run_reference(self) -> None:
        begin_s = time.monotonic()
        with suppress(OutOfMemory):
            timing = self.engine.run(REFERENCE)
            self._send("reference", Reference(begin_s, timing.total_s))
        self.last_reference_s = time.monotonic()

    def _send(self, *message: Any) -> None:
        if self.open:
            with suppress(OSError):
                self.connection.sendall(_frame(message))


def serve_engine(connection: socket.socket) -> None:
    """Load the model that a front asks for, and decode what it sends until it closes the connection."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the front drains, and then closes the connection
    frames = _Frames()
    first: list[Any] = []
    while not first:
        data = connection.recv(1 << 16)
        if not data:
            return
        first = frames.feed(data)
    settings: EngineSettings = first[0]
    if settings.cpus:
        os.sched_setaffinity(0, settings.cpus)
    os.nice(settings.nice)
    try:
        engine = load_engine(
            settings.model,
            backend=settings.backend,
            device=settings.device,
            threads=settings.threads,
            compute_type=settings.compute_type,
            seed=settings.seed,
            fused=settings.fused,
        )
        architecture = architecture_of(engine.account.architecture)
        codec = TextCodec(settings.model, architecture, settings.max_len)
        decoder = engine.sentence_decoder(settings.batching, settings.beam)
        for _ in range(2):
            engine.run(REFERENCE)
    except SimnmtError as error:
        connection.sendall(_frame(("refused", str(error))))
        return
    facts = EngineFacts(engine_block(engine.account, settings.beam), architecture, os.getpid())
    connection.sendall(_frame(("ready", facts)))
    _Serving(connection, engine, decoder, codec, settings.beam, settings.reference_every_s, frames=frames).run()


class _Job:
    """A sentence that the front waits for."""

    __slots__ = ("began", "done")

    def __init__(self, began: Callable[[float], None] | None) -> None:
        self.began = began
        self.done: asyncio.Future[Execution] = asyncio.get_running_loop().create_future()


class EngineProcess:
    """The front's side of an engine: starts the process, sends sentences, and starts it anew if it dies."""

    RESTART_S = 1.0
    """Pause before a process that died is started again."""

    def __init__(self, settings: EngineSettings) -> None:
        self.settings = settings
        self.on_reference: Callable[[Reference], None] = lambda reference: None
        """Called with each reference execution."""
        self.codec: TextCodec
        """Set by `start`."""
        self.facts: EngineFacts
        self.restarts = 0
        self._jobs: dict[int, _Job] = {}
        self._number = 0
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False
        self._restarting: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[EngineFacts] | None = None

    @property
    def waiting(self) -> int:
        """Sentences sent and not answered."""
        return len(self._jobs)

    @property
    def alive(self) -> bool:
        """Whether the process can take sentences."""
        return self._transport is not None and self._ready is not None and self._ready.done()

    async def start(self) -> EngineFacts:
        """Start the process and wait for its model. Raises `NmtError` for a model or options that cannot be used."""
        self.facts = await self._start()
        self.codec = TextCodec(self.settings.model, self.facts.architecture, self.settings.max_len)
        return self.facts

    async def _start(self) -> EngineFacts:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        # A plain subprocess: it ends by itself when this end of the connection closes, however this process ends.
        command = [sys.executable, "-c", f"from {__name__} import main; main()", str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        ours.setblocking(False)
        self._ready = loop.create_future()
        self._transport, _ = await loop.create_connection(lambda: _FrontProtocol(self), sock=ours)
        self._transport.write(_frame(self.settings))
        return await self._ready

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
        self._transport.write(_frame(("decode", key, line, forced_len, time.monotonic())))
        return key, job.done

    def withdraw(self, key: int) -> None:
        """Give a sentence up: it is not decoded unless it has begun, and its answer is dropped."""
        if self._jobs.pop(key, None) is not None and self._transport is not None:
            self._transport.write(_frame(("withdraw", key)))

    def use(self, batching: Batching) -> None:
        """Batch otherwise from now on; has no effect while a sentence is under way."""
        if self._transport is not None:
            self._transport.write(_frame(("batching", 0, batching)))

    def hurry(self) -> None:
        """Let no sentence wait for company, since no more will come."""
        if self._transport is not None:
            self._transport.write(_frame(("hurry", 0)))

    async def close(self) -> None:
        """End the process; sentences that are still waited for fail."""
        self._closing = True
        if self._restarting is not None:
            self._restarting.cancel()
        if self._transport is not None:
            self._transport.close()
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, 10.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                await asyncio.to_thread(self._process.wait)

    def _received(self, kind: str, *content: Any) -> None:
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
        elif kind == "ready" and self._ready is not None:
            self._ready.set_result(content[0])
        elif kind == "refused" and self._ready is not None:
            self._ready.set_exception(NmtError(content[0]))

    def _lost(self) -> None:
        """Fail what was under way, and start the process again unless it was closed."""
        self._transport = None
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SimnmtError("the engine's process ended while it loaded the model"))
            return
        jobs, self._jobs = self._jobs, {}
        for job in jobs.values():
            if not job.done.done():
                job.done.set_exception(ServiceError(503, "the engine's process ended", retry_after_s=self.RESTART_S))
        if not self._closing and self._ready is not None and self._ready.exception() is None:
            self._restarting = asyncio.get_running_loop().create_task(self._restart())

    async def _restart(self) -> None:
        self.restarts += 1
        await asyncio.sleep(self.RESTART_S)
        with suppress(SimnmtError):
            await self._start()


class _FrontProtocol(asyncio.Protocol):
    """Hands the engine's messages to the front."""

    def __init__(self, engine: EngineProcess) -> None:
        self._engine, self._frames = engine, _Frames()

    def data_received(self, data: bytes) -> None:
        for message in self._frames.feed(data):
            self._engine._received(*message)

    def connection_lost(self, error: Exception | None) -> None:
        self._engine._lost()


def main() -> None:
    """Run in the engine's process, whose only argument is the descriptor of its connection."""
    serve_engine(socket.socket(fileno=int(sys.argv[1])))
