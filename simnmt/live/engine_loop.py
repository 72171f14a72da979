"""The process of a live engine: it decodes the sentences that its front sends, in the batches that a `Batcher` forms.

`load_model` makes a `ServedModel` of a whole model in memory. An engine of another kind (one that
answers at once to measure the front) is another function that returns one, named in `EngineSettings.loader`.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from simnmt.base.errors import SimnmtError
from simnmt.batching import Batching, Encode
from simnmt.live.engine_process import (
    EngineFacts,
    EngineSettings,
    Execution,
    Frames,
    Reference,
    ServedModel,
    codec_of,
    frame,
)
from simnmt.live.text import TextCodec, is_of_hugging_face
from simnmt.nmt.engine import Work, load_engine
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.pretrained_config import model_path, read_pretrained_architecture
from simnmt.nmt.pretrained_tokenizer import Languages
from simnmt.nmt.sentence_decoder import DecodeRequest, Hypothesis, SentenceDecoder
from simnmt.nmt.source_lines import SourceLine
from simnmt.service.event_loop import PreciseSelector

REFERENCE = Work(src_len=8, tgt_len=6)
"""The fixed work of a reference execution."""
BEFORE_REFERENCE = Work(src_len=8, tgt_len=2)
"""Work right before it, which is not measured: the reference shall tell the pace of the box, not how long the engine idled."""
REST = 40.0
"""Least time between two reference executions, as a multiple of theirs: requests meet them seldom."""


def load_model(settings: EngineSettings) -> ServedModel:
    """Load a whole model into memory and warm it up. Raises `NmtError` for a model or options that cannot be used."""
    from simnmt.calibrate.profile_assembly import engine_block

    languages = _languages(settings)
    engine = load_engine(
        settings.model,
        backend=settings.backend,
        device=settings.device,
        threads=settings.threads,
        compute_type=settings.compute_type,
        seed=settings.seed,
        fused=settings.fused,
        decoder=settings.decoder,
        languages=languages,
    )

    def new_decoder(batching: Batching) -> SentenceDecoder:
        return engine.sentence_decoder(batching, settings.beam)

    def run_reference() -> float:
        engine.run(BEFORE_REFERENCE)
        return engine.run(REFERENCE).total_s

    for _ in range(2):
        run_reference()
    return ServedModel(new_decoder, engine_block(engine.account, settings.beam), run_reference)


def _languages(settings: EngineSettings) -> Languages | None:
    """Return the languages with which torch loads the model; None for models that do not need them.

    Raises `NmtError` for a model of several languages in another backend, which translates into no chosen one.
    """
    if not is_of_hugging_face(settings.model):
        if settings.languages.given:
            what = f"languages are for models of Hugging Face, not for {settings.model}"
            raise NmtError(what, remedy="leave --src-lang and --tgt-lang out")
        return None
    if settings.backend == "torch":
        return settings.languages
    if read_pretrained_architecture(model_path(settings.model)).multilingual:
        what = f"{settings.backend} serves no model of several languages: it begins a target with none of them"
        raise NmtError(what, remedy="give --backend torch")
    return None


@dataclass(slots=True)
class _Sentence:
    """A sentence in the engine."""

    line: SourceLine
    is_begin_wanted: bool
    begin_s: float = 0.0
    largest_batch: int = 0


@dataclass(slots=True)
class _Loop:
    """The loop of the process: receive, make a move, send."""

    connection: socket.socket
    frames: Frames
    model: ServedModel
    decoder: SentenceDecoder
    codec: TextCodec
    reference_every_s: float
    sentences: dict[int, _Sentence] = field(default_factory=dict)
    """Sentences that the front waits for, by key."""
    active: set[int] = field(default_factory=set)
    """Sentences that take part in the steps, given up or not."""
    hurried: bool = False
    """Whether no sentence waits for company any more."""
    next_reference_s: float = field(init=False)
    arrivals: PreciseSelector = field(default_factory=PreciseSelector)
    """Tells when something can be received; select() alone would refuse a descriptor above 1023, as of a busy front."""
    is_open: bool = True

    def __post_init__(self) -> None:
        self.next_reference_s = time.monotonic() + self.reference_every_s
        self.arrivals.register(self.connection, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until the front closes the connection."""
        idle = True
        while True:
            wait_s = 0.0
            if idle:
                due_s = min(self.decoder.batcher.due_s, self.next_reference_s)
                wait_s = max(min(due_s - time.monotonic(), 1.0), 0.0)
            self._receive(wait_s)
            if not self.is_open:
                return
            idle = self._act() if self.decoder.busy else True
            if idle and time.monotonic() >= self.next_reference_s:
                self._run_reference()

    def _receive(self, timeout_s: float) -> None:
        while self.is_open and self.arrivals.select(timeout_s):
            try:
                data = self.connection.recv(1 << 16)
            except OSError:
                data = b""
            if not data:
                self.is_open = False
            for message in self.frames.feed(data):
                self._take(*message)
            timeout_s = 0.0

    def _take(self, kind: str, key: int = 0, *content: Any) -> None:
        decoder = self.decoder
        if kind == "decode":
            line, forced_len, arrival_s, is_begin_wanted = content
            self.sentences[key] = _Sentence(line, is_begin_wanted)
            most = None if forced_len is not None else line.most
            request = DecodeRequest(line.ids, forced_len=forced_len, max_len=most)
            decoder.arrive(key, request, arrival_s)
        elif kind == "withdraw":
            decoder.withdraw(key)
            self.sentences.pop(key, None)  # what has begun goes on, and nobody waits for it
        else:
            self.hurried = True
        if self.hurried:
            self.decoder.batcher.close()

    def _act(self) -> bool:
        """Make one move; return whether nothing can be done for now."""
        decoder, now_s = self.decoder, time.monotonic()
        before = decoder.active
        joining: Sequence[int] = ()
        try:
            move, finished = decoder.act(now_s)
        except SimnmtError as error:
            self._drop_lost(error)
            return False
        if isinstance(move, Encode):
            for key in move.requests:
                self._begin(key, now_s)
        elif move is not None:
            joining = move.requests
            self.active.update(joining)
        # A decoder of whole batches joins, decodes and finishes in one move.
        together = len(joining) if not decoder.active and joining else len(self.active)
        for key in self.active:
            if (sentence := self.sentences.get(key)) is not None and sentence.largest_batch < together:
                sentence.largest_batch = together
        for key, hypothesis in finished:
            self.active.discard(key)
            self._finish(key, hypothesis)
        return move is None and not before

    def _begin(self, key: int, now_s: float) -> None:
        if (sentence := self.sentences.get(key)) is not None:
            sentence.begin_s = now_s
            if sentence.is_begin_wanted:
                self._send("began", key, now_s)

    def _finish(self, key: int, hypothesis: Hypothesis) -> None:
        sentence = self.sentences.pop(key, None)
        if sentence is None:
            return
        decoder = self.decoder
        text, steps = self.codec.text(sentence.line, hypothesis), hypothesis.steps or len(hypothesis.tokens)
        end_s = time.monotonic()  # with the text: the next sentence waits for that too
        left = decoder.active, decoder.batcher.waiting
        execution = Execution(text, steps, sentence.begin_s, end_s, sentence.largest_batch, *left)
        self._send("done", key, execution)

    def _drop_lost(self, error: SimnmtError) -> None:
        """Answer the sentences that an error has removed from the decoder."""
        status = 503 if isinstance(error, OutOfMemory) else 400 if isinstance(error, NmtError) else 500
        holds = self.decoder.holds
        self.active = {key for key in self.active if holds(key)}
        for key in [key for key in self.sentences if not holds(key)]:
            del self.sentences[key]
            self._send("failed", key, status, str(error))

    def _run_reference(self) -> None:
        begin_s = time.monotonic()
        if self.model.run_reference is not None:
            with suppress(OutOfMemory):
                execution_s = self.model.run_reference()
                self._send("reference", Reference(begin_s, execution_s, time.monotonic() - begin_s))
        end_s = time.monotonic()
        self.next_reference_s = end_s + max(self.reference_every_s, REST * (end_s - begin_s))

    def _send(self, *message: Any) -> None:
        try:
            self.connection.sendall(frame(message))
        except OSError:
            self.is_open = False


def serve_engine(connection: socket.socket) -> None:
    """Load the model that a front asks for, and decode what it sends until it closes the connection."""
    frames = Frames()
    first: list[Any] = []
    while not first:
        data = connection.recv(1 << 16)
        if not data:
            return
        first = frames.feed(data)
    settings: EngineSettings = first[0]
    try:
        _place(settings)
        model = (settings.loader or load_model)(settings)
        decoder = model.new_decoder(settings.batching)
        codec = codec_of(settings, model.engine)
    except SimnmtError as error:
        connection.sendall(frame(("refused", str(error))))
        return
    connection.sendall(frame(("ready", EngineFacts(model.engine, os.getpid()))))
    loop = _Loop(connection, frames, model, decoder, codec, settings.reference_every_s)
    with closing(loop.arrivals):
        loop.run()


def _place(settings: EngineSettings) -> None:
    """Pin the process and lower its priority. Raises `NmtError` for processors that this box does not have."""
    if settings.cpus:
        try:
            os.sched_setaffinity(0, settings.cpus)
        except OSError:
            usable = ",".join(map(str, sorted(os.sched_getaffinity(0))))
            cpus = ",".join(map(str, settings.cpus))
            raise NmtError(f"cannot run on processors {cpus}", remedy=f"choose among {usable}") from None
    with suppress(OSError):
        os.nice(settings.nice)


def main() -> None:
    """Run in the engine's process, whose only argument is the descriptor of its connection."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the front drains, and then closes the connection
    try:
        serve_engine(socket.socket(fileno=int(sys.argv[1])))
    except ConnectionError:  # the front has gone
        sys.exit(1)
    except Exception as error:  # the front starts another process; its user needs the cause, no traceback
        print(f"simnmt: the engine failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        sys.exit(1)
