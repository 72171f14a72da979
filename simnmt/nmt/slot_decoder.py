"""Decode sentences together, each with its own search: they join and leave while the others go on (FNI-08 to FNI-10).

`greedy` and `beam` decode one padded batch from beginning to end; `decode_batched` decodes many sentences in the batches that
a `Batcher` forms, and times every part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, repeat
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.batching import Batcher, Batching, Encode, Join, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.searches import BeamSearch, GreedySearch, make_search
from simnmt.nmt.step_model import Hypothesis, Limit, Memory, Slots, SlotSearch, StepModel, check_lengths, pad
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount

Mark = Callable[[], object]
"""Called right before and right after each step of the model: a stopwatch's button.

A fused output layer takes softmax and search of each row into that step.
"""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence that the encoder has read: its place in what was encoded together."""

    memory: Memory
    row: int
    src_len: int
    """Tokens, the end included."""
    source: Sequence[int] = ()
    """The tokens themselves, where the vocabulary in use hangs on them."""


class SlotDecoder:
    """Decodes up to `capacity` sentences together, greedily or with a beam, dropping each as soon as it is done.

    A sentence is encoded, joins, takes part in steps, and is handed out by the step that ends it.
    """

    def __init__(
        self,
        model: StepModel,
        *,
        beam: int = 1,
        max_len: int = 200,
        capacity: int,
        fused: bool = False,
        vocabulary: RestrictedVocabulary | None = None,
        search: Callable[[], SlotSearch] | None = None,
        mark: Mark | None = None,
    ) -> None:
        """`capacity`: most sentences active at a time.

        `fused`: the output layer is (FNI-03 to 06); `vocabulary`: it takes these columns alone, by its own way of searching
        them, whether `fused` or not; `search`: makes another than the usual one, of the same vocabulary, and says beam and
        output layer itself. Raises `NmtError` for the vocabulary of another model.
        """
        self._vocabulary = vocabulary
        self.capacity = capacity
        self._model, self._max_len, self._mark = model, max_len, mark
        self._new_search = search or partial(make_search, model, beam, fused=fused, vocabulary=vocabulary)
        self.drop_all()

    @property
    def active(self) -> int:
        """Sentences under way."""
        return len(self._keys)

    @property
    def longest(self) -> int:
        """Tokens of the longest source under way; 0 without any."""
        return max(self._src_lens, default=0)

    @property
    def _account(self) -> SubsetAccount | None:
        return None if self._vocabulary is None else self._vocabulary.account

    def encode(self, sources: Sequence[Sequence[int]]) -> list[EncodedSentence]:
        """Read these sources together; changes nothing of what is active.

        Raises `NmtError` for a source of no token or beyond the model's positions, and `OutOfMemory`.
        """
        if not len(sources):
            return []
        if not all(map(len, sources)):
            raise NmtError("a source of no token where its end is the least")
        src, lengths = pad(sources, self._model.pad_token)
        return self.encode_padded(src.to(self._model.device), lengths.to(self._model.device))

    @torch.inference_mode()
    def encode_padded(self, src: Tensor, src_lengths: Tensor) -> list[EncodedSentence]:
        """As `encode`, of int64 [batch, src_len] and [batch] on the model's device."""
        check_lengths(self._model.max_positions, src.shape[1], 0)
        memory = within_memory(str(self._model.device), lambda: self._model.encode(src, src_lengths))
        lengths = src_lengths.tolist()
        read = self._vocabulary is not None and self._vocabulary.reads_sources
        sources = [row[:length] for row, length in zip(src.tolist(), lengths, strict=True)] if read else [()] * len(lengths)
        rows = enumerate(zip(lengths, sources, strict=True))
        return [EncodedSentence(memory, row, length, source) for row, (length, source) in rows]

    @torch.inference_mode()
    def join(
        self,
        sentences: Sequence[EncodedSentence],
        keys: Sequence[int],
        forced_lens: Sequence[int | None] | None = None,
        max_lens: Sequence[int | None] | None = None,
    ) -> list[tuple[int, Hypothesis]]:
        """Let these take part from the next step on; returns those that are done at once, being forced to no token.

        `keys`: what the caller knows them by. `forced_lens`: each gets just so many tokens, none of them the end, or with None
        ends by itself; `max_lens`: most tokens of each, by default the decoder's. Raises `ValueError` for more than fit,
        `NmtError` for lengths beyond the model's positions, and `OutOfMemory`, after which none is active.
        """
        if self.active + len(sentences) > self.capacity:
            raise ValueError(f"{len(sentences)} sentences join {self.active} where {self.capacity} fit")
        forced = [None] * len(sentences) if forced_lens is None else forced_lens
        most = [None] * len(sentences) if max_lens is None else max_lens
        limits = [self._limit(*arguments) for arguments in zip(forced, most, sentences, strict=True)]
        joining = [at for at, limit in enumerate(limits) if limit.steps]
        if joining:
            self._or_drop_all(lambda: self._take([sentences[at] for at in joining], [limits[at] for at in joining]))
            self._keys += [keys[at] for at in joining]
            if self._account is not None:
                self._account.join([keys[at] for at in joining])
        return [(key, Hypothesis((), None)) for key, limit in zip(keys, limits, strict=True) if not limit.steps]

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Hypothesis]]:
        """One token more for each active sentence; those that are done with it are handed out and dropped.

        Raises `OutOfMemory`, after which none is active.
        """
        return self._or_drop_all(self._advance) if self._keys else []

    def drop_all(self) -> None:
        """Forget every active sentence and give back their memory."""
        self._keys: list[int] = []
        self._src_lens: list[int] = []
        self._slots: Slots | None = None
        """Made when the first joins, since there may be no room for them."""
        self._search = self._new_search()
        if self._account is not None:
            self._account.drop_all()

    def _limit(self, forced_len: int | None, max_len: int | None, sentence: EncodedSentence) -> Limit:
        positions = self._model.max_positions
        if forced_len is None:
            steps, least = self._max_len if max_len is None else max_len, 1
            steps = steps if positions is None else min(steps, positions)
        else:
            steps, least = forced_len, 0
            check_lengths(positions, 0, steps)
        if steps < least:
            raise NmtError(f"a target of {steps} tokens where {least} is the least")
        return Limit(int(steps), forced_len is not None, sentence.source)

    def _take(self, sentences: Sequence[EncodedSentence], limits: Sequence[Limit]) -> None:
        if self._slots is None:
            # Room for those alone: a capacity may be far beyond what ever comes.
            beam = self._search.beam
            self._slots = self._model.slots(len(sentences) * beam, self.capacity * beam)
        for _, together in groupby(sentences, key=lambda sentence: id(sentence.memory)):
            group = list(together)
            rows, src_lens = [sentence.row for sentence in group], [sentence.src_len for sentence in group]
            self._slots.join(group[0].memory, rows, src_lens, self._search.beam)
        self._search.join(limits)
        self._src_lens += [sentence.src_len for sentence in sentences]

    def _advance(self) -> list[tuple[int, Hypothesis]]:
        search, slots, keys = self._search, self._slots, self._keys
        assert slots is not None, "no sentence has joined"
        finished = search.choose(self._projected(slots, search))
        if finished:
            order = slots.leave([slot for slot, _ in finished], search.beam)
            search.leave(order)
            if self._account is not None:
                self._account.leave(order)
            self._keys = [keys[slot] for slot in order]
            self._src_lens = [self._src_lens[slot] for slot in order]
        if self._keys and (parents := search.parents) is not None:
            slots.reorder(parents)
        return [(keys[slot], hypothesis) for slot, hypothesis in finished]

    def _projected(self, slots: Slots, search: SlotSearch) -> Any:
        if self._mark is None:
            return search.project(slots.body(search.tokens))
        self._mark()
        projected = search.project(slots.body(search.tokens))
        self._mark()
        return projected

    def _or_drop_all(self, do: Callable[[], _Answer]) -> _Answer:
        try:
            return within_memory(str(self._model.device), do)
        except OutOfMemory:
            # What was under way is half changed.
            self.drop_all()
            raise


def greedy(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    max_len: int = 200,
    forced_len: int | None = None,
    scored: bool = True,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    mark: Mark | None = None,
) -> list[Hypothesis]:
    """The likeliest token at each step, for every sentence of the batch, until its end or `max_len` tokens.

    With `forced_len` every sentence gets just that many tokens, none of them the end token. Not `scored`, no softmax is taken:
    the likeliest token has the largest logit (FNI-06). `fused`, `vocabulary`: see `SlotDecoder`. `mark` is called once more at
    first, when all are encoded and none has joined. Raises `NmtError` for lengths beyond the model's positions, and
    `OutOfMemory`.
    """
    search = partial(GreedySearch, model, scored=scored, fused=fused, vocabulary=vocabulary)
    return _decode_batch(model, src, src_lengths, search, max_len, forced_len, vocabulary, mark)


def beam(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    beam: int,
    max_len: int = 200,
    forced_len: int | None = None,
    length_penalty: float = 1.0,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    mark: Mark | None = None,
) -> list[Hypothesis]:
    """The best hypothesis of each sentence that a beam of that width finds: see `BeamSearch`, and for the rest `greedy`."""
    search = partial(BeamSearch, model, beam, length_penalty=length_penalty, fused=fused, vocabulary=vocabulary)
    return _decode_batch(model, src, src_lengths, search, max_len, forced_len, vocabulary, mark)


def _decode_batch(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    search: Callable[[], SlotSearch],
    max_len: int,
    forced_len: int | None,
    vocabulary: RestrictedVocabulary | None,
    mark: Mark | None,
) -> list[Hypothesis]:
    if forced_len is not None and forced_len < 1:
        raise NmtError(f"a target of {forced_len} tokens where 1 is the least")
    batch = src.shape[0]
    decoder = SlotDecoder(model, max_len=max_len, capacity=batch, vocabulary=vocabulary, search=search, mark=mark)
    sentences = decoder.encode_padded(src, src_lengths)
    if mark is not None:
        mark()
    decoder.join(sentences, range(batch), None if forced_len is None else [forced_len] * batch)
    hypotheses: dict[object, Hypothesis] = {}
    while decoder.active:
        hypotheses.update(decoder.step())
    return [hypotheses[sentence] for sentence in range(batch)]


COLLECTED_BATCHES = 10
"""Of maxi-batching by default, as the paper on top-up batching collects 1,280 sentences for batches of 128 (FNI-09)."""
MOST_SENTENCES = 1_000_000_000
"""Sentences of a batch: more than any memory holds; a collection of them is still a number that `islice` takes."""
_PRESETS = {"half-empty": half_empty, "immediate": immediate}


def parse_batching(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Of lines that are all at hand, or come as fast as they are read. Raises `NmtError` for what makes no batch.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number. `collect`: lines that
    are sorted by length before they are cut into batches; of maxi by default those of ten batches, of top-up none. Words may be
    spelled with an underscore, as in a scenario.
    """
    kind = kind.replace("_", "-")
    if kind not in ("mini", "maxi", "top-up"):
        raise NmtError(f"no batching {kind}", remedy="take mini, maxi or top-up")
    if threshold is not None and kind != "top-up":
        raise NmtError(f"{kind} batching has no threshold", remedy="leave it out, or take top-up")
    if collect is not None and kind == "mini":
        raise NmtError("mini batching collects nothing", remedy="leave it out, or take maxi")
    _check_range("--batch", size, 1, MOST_SENTENCES)
    if kind == "mini":
        return mini(size)
    if kind == "maxi" and collect is None:
        collect = COLLECTED_BATCHES * size
    if collect is not None:
        _check_range("--collect", collect, size, COLLECTED_BATCHES * MOST_SENTENCES, f" with batches of {size:,}")
        if kind == "maxi":
            return maxi(size, collect)
    return top_up(size, _parse_threshold("half-empty" if threshold is None else threshold, size), collect)


def _parse_threshold(threshold: str, size: int) -> int:
    if (preset := threshold.replace("_", "-")) in _PRESETS:
        return _PRESETS[preset](size)
    try:
        sentences = int(threshold)
    except ValueError:
        raise NmtError(f"no threshold {threshold}", remedy="take half-empty, immediate or a number of sentences") from None
    _check_range("--threshold", sentences, 0, size - 1, f" with batches of {size:,}")
    return sentences


def _check_range(option: str, value: int, least: int, most: int, beside: str = "") -> None:
    if not least <= value <= most:
        within = f"{least:,} to {most:,}" if least < most else f"{least:,}"
        raise NmtError(f"{option} {value:,} is out of range{beside}", remedy=f"give {within}")


@dataclass(frozen=True, slots=True)
class BatchedRun:
    """What came out, and the time it took; the parts sum to the whole."""

    hypotheses: tuple[Hypothesis, ...]
    """In the order of the sources."""
    active: NDArray[np.int64]
    """Sentences under way in each step, shape (steps,)."""
    step_s: NDArray[np.float64]
    """Seconds of each step: the model, the search, and what is dropped and asked after it, shape (steps,)."""
    encode_s: float
    """All calls of the encoder, reading the sources' tokens included."""
    refill_s: float
    """All joining."""
    total_s: float
    encodings: int
    """Calls of the encoder."""
    refills: int
    """Times that sentences joined."""
    subset: SubsetAccount | None = None
    """What was multiplied of the vocabulary, sentences by their place among the sources; None where all of it was."""


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """A sentence to translate."""

    source: Sequence[int]
    forced_len: int | None = None
    """The tokens that it is made to have, none of them the end; None: it ends by itself."""
    max_len: int | None = None
    """Most tokens; None: as many as the decoder allows."""


class BatchedDecoder:
    """A slot decoder that does what a batcher decides: sentences arrive, and `act` makes one move after the other."""

    def __init__(self, decoder: SlotDecoder, batching: Batching) -> None:
        self.decoder, self.batcher = decoder, Batcher(batching)
        self._asked: dict[int, DecodeRequest] = {}
        """Those that have not joined."""
        self._encoded: dict[int, EncodedSentence] = {}
        """Of these, the ones that the encoder has read."""

    @property
    def busy(self) -> bool:
        """Whether a sentence waits or is under way."""
        return bool(self.decoder.active or self._asked)

    def arrive(self, request: int, asked: DecodeRequest, now_s: float = 0.0) -> None:
        """A sentence begins to wait."""
        self._asked[request] = asked
        self.batcher.arrive(request, len(asked.source), now_s)

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, list[tuple[int, Hypothesis]]]:
        """Make the batcher's next move, or where it has none take a step; returns the move and what is done with it.

        Raises what `SlotDecoder` raises; make another one then.
        """
        decoder, asked = self.decoder, self._asked
        move = self.batcher.next(decoder.active, now_s, decoder.longest)
        if move is None:
            return None, decoder.step()
        if isinstance(move, Encode):
            sentences = decoder.encode([asked[request].source for request in move.requests])
            self._encoded.update(zip(move.requests, sentences, strict=True))
            return move, []
        joining = [asked.pop(request) for request in move.requests]
        done = decoder.join(
            [self._encoded.pop(request) for request in move.requests],
            move.requests,
            [decode_request.forced_len for decode_request in joining],
            [decode_request.max_len for decode_request in joining],
        )
        return move, done


def decode_batched(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    batching: Batching,
    *,
    beam: int = 1,
    max_len: int | Sequence[int] = 200,
    forced_lens: Sequence[int] | None = None,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchedRun:
    """Translate sources that are all at hand from the beginning, in the order given.

    `max_len`: most tokens, of all or of each; `forced_lens`: exact token counts, none of the tokens the end; `fused`,
    `vocabulary`: see `SlotDecoder`; the steps are recorded in the vocabulary's account, or in a new one if it has none.
    Raises `NmtError` for lengths beyond the model's positions and `OutOfMemory`.
    """
    count = len(sources)
    most = [max_len] * count if isinstance(max_len, int) else max_len
    if vocabulary is not None and vocabulary.account is None:
        vocabulary = replace(vocabulary, account=SubsetAccount())
    decoder = SlotDecoder(model, beam=beam, capacity=batching.size, fused=fused, vocabulary=vocabulary)
    batched = BatchedDecoder(decoder, batching)
    asked = zip(sources, repeat(None, count) if forced_lens is None else forced_lens, most, strict=True)
    for request, (source, forced, own_most) in enumerate(asked):
        batched.arrive(request, DecodeRequest(source, forced, own_most))
    batched.batcher.close()
    hypotheses: dict[int, Hypothesis] = {}
    active: list[int] = []
    seconds = _Durations()
    begin = before = clock()
    while batched.busy:
        under_way = batched.decoder.active
        move, done = batched.act()
        hypotheses.update(done)
        if move is not None and model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # a step waits for its tokens in any case
        now = clock()
        if move is None:
            active.append(under_way)
        seconds.spent(move, now - before)
        before = now
    return BatchedRun(
        tuple(hypotheses[request] for request in range(count)),
        np.asarray(active, np.int64),
        np.asarray(seconds.steps, np.float64),
        sum(seconds.encodings),
        sum(seconds.refills),
        before - begin,
        len(seconds.encodings),
        len(seconds.refills),
        None if vocabulary is None else vocabulary.account,
    )


@dataclass(slots=True)
class _Durations:
    steps: list[float] = field(default_factory=list)
    encodings: list[float] = field(default_factory=list)
    refills: list[float] = field(default_factory=list)

    def spent(self, move: Encode | Join | None, seconds: float) -> None:
        kind = self.steps if move is None else self.encodings if isinstance(move, Encode) else self.refills
        kind.append(seconds)
