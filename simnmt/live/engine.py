"""A live engine: its settings and texts, and the loop that decodes in a process of its own.

A model computes for long, and Python runs one thread at a time; so the model has its own process, on its own processors, and
the front that speaks HTTP answers at once (`engine_process`). All moments are of the box's monotonic clock, which both share.
An engine of another kind is a function that returns a `ServedModel`, named in `EngineSettings.loader`.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf, nan
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from simnmt.base.errors import InputError, SimnmtError
from simnmt.batching import Batching, Encode, Join
from simnmt.batching.slots import SlotLimits
from simnmt.nmt.architecture import ARCHITECTURES, Architecture, LlamaArchitecture, architecture_of
from simnmt.nmt.engine import Work, load_engine
from simnmt.nmt.errors import NmtError, OutOfMemory
from simnmt.nmt.pretrained_config import model_path, read_pretrained_architecture
from simnmt.nmt.pretrained_tokenizer import Languages, is_pretrained, open_tokenizer
from simnmt.nmt.sentence_decoder import Admit, DecodeRequest, Hypothesis, SentenceDecoder
from simnmt.nmt.source_lines import LONGEST_SOURCE, LineCoder, SourceLine, Translation, load_subwords
from simnmt.nmt.subwords import SOURCE_TOKENIZER, Tokeniser
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.origin import EngineBlock
from simnmt.service.messages import ServiceError

ONE_BY_ONE = Batching(1)
"""One sentence after another, in the order of arrival."""
ONE_MODEL = "server"
"""Name of the model of an engine that has one."""
REFERENCE = Work(src_len=8, tgt_len=6)
"""The fixed work of a reference execution."""
BEFORE_REFERENCE = Work(src_len=8, tgt_len=2)
"""Work right before it, which is not measured: a reference measures the pace of the box, not how long the engine idled."""
REST = 40.0
"""Least time between two reference executions, as a multiple of theirs: requests meet them seldom."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded model as the loop drives it."""

    new_decoder: Callable[[Batching | SlotLimits], SentenceDecoder]
    """Returns an empty decoder that batches so. Raises `NmtError` for a batching that it cannot do."""
    engine: EngineBlock
    run_reference: Callable[[], float]
    """Does the fixed work once, and returns its seconds."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a live engine is loaded, batched and placed on the box."""

    model: str
    backend: str = "torch"
    device: str = "cpu"
    compute_type: str | None = None
    threads: int | None = None
    beam: int = 1
    fused: bool = False
    decoder: DecoderSettings | None = None
    """How sharp decodes; None for other backends."""
    batching: Batching | SlotLimits = ONE_BY_ONE
    """`SlotLimits` are for a decoder-only model."""
    prompt: str | None = None
    """Of a decoder-only model of Hugging Face, see `open_tokenizer`; None: `PROMPT`."""
    scored: bool = False
    """Whether translations have log-probabilities, which cost a greedy search a softmax."""
    max_len: int | None = None
    """Most target tokens; None: twice the source's and 10."""
    src_lang: str | None = None
    """See `Languages.source`; this and the next are for folders and ids of Hugging Face."""
    tgt_lang: str | None = None
    cpus: tuple[int, ...] = ()
    """Processors to which the process is pinned; empty: any."""
    nice: int = 5
    """By how much other processes go first: above 0, the front is not kept waiting on a shared processor."""
    expected_hash: str | None = None
    """Hash of the engine that must run (`check_engine`); None: any."""
    reference_every_s: float = inf
    """Time between two reference executions, which record the box's own speed while the engine is idle."""
    loader: Callable[[EngineSettings], ServedModel] | None = None
    """Loads the model in the process, which imports the function by its name; None: `load_model`."""

    def with_classes(self, max_wait_s: tuple[float, ...]) -> EngineSettings:
        """Return the settings for a scenario's classes of requests, whose longest waits are given. Raises `InputError`."""
        if not isinstance(self.batching, SlotLimits):
            return replace(self, batching=replace(self.batching, max_wait_s=max_wait_s))
        if len(max_wait_s) > 1:
            raise InputError("classes of requests with slots, which serve in the order of arrival", remedy="leave one out")
        return self


def check_engine(place: str, running: str, expected: str | None) -> None:
    """Raise `InputError` if the hash of the engine that runs at a place is not the expected one (None: any)."""
    if expected not in (None, running):
        what = f"{place} runs engine {running or 'unknown'}, the profile is of engine {expected}"
        remedy = "start the model that the profile was measured with, name the profile of this one, or give --any-model"
        raise InputError(what, remedy=remedy)


@dataclass(slots=True)
class Result:
    """A translated text, with the facts that the answer's headers state."""

    text: str
    queue_s: float
    execution_s: float
    report: tuple[int, ...] = ()
    """Sentences left active and waiting when it ended."""
    lengths: tuple[int, int, int] = (0, 0, 0)
    """Source and target tokens, and the most sentences that took a step together with it, itself included."""
    decision: str = ""
    """Account of a gateway's decision."""
    model_load: bool = False
    """Whether it asked for the load of its model."""
    first_token_s: float | None = None
    """From arrival until its first token, where the decoder keeps that."""
    output_len: int = 0
    """Tokens of the translation, without the end."""
    logprob: float = nan
    """Sum of their natural log-probabilities, of the end too, where the decoder computes them (`EngineSettings.scored`)."""
    deferred: Result | None = None
    """The gateway's own translation, if it sent the text on then."""


def load_model(settings: EngineSettings) -> ServedModel:
    """Load a whole model into memory and warm it up. Raises `NmtError` for a model or options that cannot be used."""
    from simnmt.calibrate.profile_assembly import engine_block

    languages = _languages(settings)
    names = ("backend", "device", "threads", "compute_type", "fused", "decoder")
    engine = load_engine(settings.model, **{name: getattr(settings, name) for name in names}, languages=languages)

    def new_decoder(batching: Batching | SlotLimits) -> SentenceDecoder:
        return engine.sentence_decoder(batching, settings.beam, scored=settings.scored)

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
    languages = Languages(settings.src_lang, settings.tgt_lang)
    if not _is_of_hugging_face(settings.model):
        if languages.given:
            what = f"languages are for models of Hugging Face, not for {settings.model}"
            raise NmtError(what, remedy="leave --src-lang and --tgt-lang out")
        return None
    if settings.backend == "torch":
        return languages
    if read_pretrained_architecture(model_path(settings.model)).multilingual:
        what = f"{settings.backend} serves no model of several languages: it begins a target with none of them"
        raise NmtError(what, remedy="give --backend torch")
    return None


def _is_of_hugging_face(model: str) -> bool:
    """Return whether a served model is a folder or id of Hugging Face, not a name, an architecture file or a trained folder."""
    return model not in ARCHITECTURES and is_pretrained(Path(model))


class WordNumbers:
    """The tokeniser of a model with random weights, which has no subwords: each word has a token, by its checksum.

    Times depend on the architecture and on lengths alone, so such a model serves to measure; its translations are the numbers
    of its tokens.
    """

    def __init__(self, architecture: Architecture) -> None:
        self.size, self.eos = architecture.src_vocab, architecture.eos_token
        self._reserved = {architecture.pad_token, architecture.eos_token}
        self._other = next(token for token in range(self.size) if token not in self._reserved)

    def encode(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each text, the end mark last; none for a text without words."""
        return [[*map(self._token, words), self.eos] if words else [] for words in map(str.split, texts)]

    def decode(self, sentences: Sequence[Sequence[int]]) -> list[str]:
        """Return the numbers of the tokens of each sentence."""
        return [" ".join(self.pieces(tokens)) for tokens in sentences]

    def cut(self, text: str) -> list[str]:
        """Return the words of a text."""
        return text.split()

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """Return the number of each token."""
        return [f"w{token}" for token in tokens]

    def _token(self, word: str) -> int:
        token = zlib.crc32(word.encode()) % self.size
        return self._other if token in self._reserved else token


class TextCodec:
    """Converts texts to source lines, and target tokens to texts: by the model's subwords, or by words where it has none."""

    def __init__(self, settings: EngineSettings, engine: EngineBlock) -> None:
        """Raises `NmtError` for a folder without its tokenisers, and for languages that do not fit a model of Hugging Face."""
        folder, architecture = Path(settings.model), architecture_of(engine.architecture)
        source: Tokeniser
        target: Tokeniser
        most = architecture.max_positions or LONGEST_SOURCE
        self.has_subwords = True
        """False if the model has random weights, and translations mean nothing."""
        if _is_of_hugging_face(settings.model):
            languages = Languages(settings.src_lang, settings.tgt_lang)
            source = target = tokenizer = open_tokenizer(folder, architecture, languages, settings.prompt)
            most -= tokenizer.after_start
        elif (folder / SOURCE_TOKENIZER).is_file():
            source, target = load_subwords(folder)
        else:
            if settings.prompt is not None:
                raise NmtError("random weights have no use for a prompt", remedy="leave --prompt out, or name a model's folder")
            source = target = WordNumbers(architecture)
            self.has_subwords = False
        self._continues = isinstance(architecture, LlamaArchitecture)
        if self._continues:
            most -= 1  # a token of the output
        elif settings.prompt is not None:
            raise NmtError("a prompt is for a decoder-only model", remedy="leave --prompt out")
        self._coder = LineCoder(source, target, architecture.unk_token, most, settings.max_len)

    def line(self, text: str) -> SourceLine:
        """Return a text as a source line, without tokens if it is empty.

        Raises `ServiceError` for a text with more tokens than the model takes.
        """
        (line,) = self._coder.lines([text])
        if line.cut:
            most = self._coder.positions
            raise ServiceError(400, f"a text has more than the {most} tokens that the model takes; send it in parts")
        return line

    def translation(self, line: SourceLine, output: Hypothesis) -> Translation:
        """Return the translation; of a decoder-only model, with as many lines as the source has."""
        translation = self._coder.translation(line, output)
        if not self._continues:
            return translation
        lines = [part.strip() for part in translation.text.strip().splitlines()]
        return replace(translation, text="\n".join((lines + [""] * line.lines)[: line.lines]))


def send(connection: Connection, *message: Any) -> None:
    """Send a message; the connection's own pickler takes twice as long."""
    connection.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def serve_engine(settings: EngineSettings, connection: Connection) -> None:
    """Load a model, and decode what a front sends until it closes the connection: all that the process of an engine does."""
    try:
        _serve(settings, connection)
    except ConnectionError:  # the front has gone
        sys.exit(1)
    except Exception as error:  # the front starts another process; its user needs the cause, no traceback
        print(f"simnmt: the engine failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
        sys.exit(1)


def _serve(settings: EngineSettings, connection: Connection) -> None:
    try:
        _place(settings)
        model = (settings.loader or load_model)(settings)
        decoder, codec = model.new_decoder(settings.batching), TextCodec(settings, model.engine)
    except SimnmtError as error:
        send(connection, "refused", str(error))
        return
    send(connection, "ready", model.engine)
    _Loop(connection, model, decoder, codec, settings.reference_every_s).run()


def _place(settings: EngineSettings) -> None:
    """Pin the process and lower its priority. Raises `NmtError` for processors that this box does not have."""
    if settings.cpus:
        try:
            os.sched_setaffinity(0, settings.cpus)
        except OSError:
            what, usable = f"cannot run on processors {[*settings.cpus]}", sorted(os.sched_getaffinity(0))
            raise NmtError(what, remedy=f"choose among {usable}") from None
    with suppress(OSError):
        os.nice(settings.nice)


@dataclass(slots=True)
class _Sentence:
    line: SourceLine
    arrival_s: float
    is_begin_wanted: bool
    begin_s: float = 0.0
    largest_batch: int = 0
    first_token_s: float | None = None


@dataclass(slots=True)
class _Loop:
    """The loop of the process: receive, make a move, send."""

    connection: Connection
    model: ServedModel
    decoder: SentenceDecoder
    codec: TextCodec
    reference_every_s: float
    inbox: queue.SimpleQueue[tuple[Any, ...] | None] = field(default_factory=queue.SimpleQueue)
    """What the front has sent; None: it has closed the connection."""
    sentences: dict[int, _Sentence] = field(default_factory=dict)
    """Sentences that the front waits for, by key."""
    active: set[int] = field(default_factory=set)
    """Sentences that take part in the steps, given up or not."""
    is_open: bool = True

    def run(self) -> None:
        """Serve until the front closes the connection."""
        # A thread receives while the model computes: a front whose messages nobody takes would stand still.
        threading.Thread(target=self._read, daemon=True).start()
        idle, next_reference_s = True, time.monotonic() + self.reference_every_s
        while True:
            due_s = min(self.decoder.due_s, next_reference_s)
            self._receive(max(min(due_s - time.monotonic(), 1.0), 0.0) if idle else 0.0)
            if not self.is_open:
                return
            idle = self._act() if self.decoder.busy else True
            if idle and time.monotonic() >= next_reference_s:
                begin_s = time.monotonic()
                with suppress(OutOfMemory):
                    send(self.connection, "reference", begin_s, self.model.run_reference())
                end_s = time.monotonic()
                next_reference_s = end_s + max(self.reference_every_s, REST * (end_s - begin_s))

    def _read(self) -> None:
        # Pickles without the lengths that a `Connection` sends before each: the front sends them in parts.
        with suppress(EOFError, OSError, pickle.UnpicklingError), os.fdopen(os.dup(self.connection.fileno()), "rb") as messages:
            while True:
                self.inbox.put(pickle.load(messages))
        self.inbox.put(None)

    def _receive(self, timeout_s: float) -> None:
        with suppress(queue.Empty):
            while (message := self.inbox.get(timeout=timeout_s)) is not None:
                self._take(*message)
                timeout_s = 0.0
            self.is_open = False

    def _take(self, kind: str, key: int, *content: Any) -> None:
        decoder = self.decoder
        if kind == "decode":
            line, forced_len, arrival_s, is_begin_wanted, rank = content
            self.sentences[key] = _Sentence(line, arrival_s, is_begin_wanted)
            most = None if forced_len is not None else line.most
            decoder.arrive(key, DecodeRequest(line.ids, forced_len, most, line.lines), arrival_s, rank)
        else:  # withdraw
            decoder.withdraw(key)
            self.sentences.pop(key, None)  # what has begun goes on, and nobody waits for it

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
        if isinstance(move, Encode | Admit):
            for key in move.requests:
                self._begin(key, now_s)
        if isinstance(move, Join | Admit):
            joining = move.requests
            self.active.update(joining)
        if decoder.first_tokens:
            first_token_s = time.monotonic()
            for key in decoder.first_tokens:
                if (sentence := self.sentences.get(key)) is not None:
                    sentence.first_token_s = first_token_s - sentence.arrival_s
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
                send(self.connection, "began", key, now_s)

    def _finish(self, key: int, hypothesis: Hypothesis) -> None:
        sentence = self.sentences.pop(key, None)
        if sentence is not None:
            decoder, begin_s = self.decoder, sentence.begin_s
            output, steps = self.codec.translation(sentence.line, hypothesis), hypothesis.steps or len(hypothesis.tokens)
            end_s = time.monotonic()  # with the text: the next sentence waits for that too
            queue_s, lengths = max(begin_s - sentence.arrival_s, 0.0), (len(sentence.line.ids), steps, sentence.largest_batch)
            left = decoder.active, decoder.queued
            result = Result(output.text, queue_s, end_s - begin_s, left, lengths, first_token_s=sentence.first_token_s)
            result.output_len, result.logprob = output.tgt_len, output.logprob
            send(self.connection, "done", key, result)

    def _drop_lost(self, error: SimnmtError) -> None:
        """Answer the sentences that an error has removed from the decoder."""
        status = 503 if isinstance(error, OutOfMemory) else 400 if isinstance(error, NmtError) else 500
        holds = self.decoder.holds
        self.active = {key for key in self.active if holds(key)}
        for key in [key for key in self.sentences if not holds(key)]:
            del self.sentences[key]
            send(self.connection, "failed", key, status, str(error))
