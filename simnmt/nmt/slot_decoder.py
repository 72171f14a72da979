"""Decode sentences together, each with its own search: they join and leave while the others go on (FNI-08 to FNI-10).

`decode_batch` decodes one padded batch from beginning to end. `BatchedDecoder` makes one move of a `Batcher` after another, as
the live server needs it; `decode_batched` drives it with many sentences, and times every part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, repeat
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.batching import Batcher, Batching, Encode, Join, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.engine import DecodeRequest, Hypothesis
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.output_layer import Limit
from simnmt.nmt.searches import SlotSearch, make_search
from simnmt.nmt.step_model import Memory, Slots, StepModel, check_lengths, pad
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount

Mark = Callable[[], object]
"""Called right before and right after the model's part of each step, as a stopwatch's button.

A fused output layer includes softmax and search of each row in that part.
"""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence that the encoder has read: its row in the memory of the sentences encoded together."""

    memory: Memory
    row: int
    src_len: int
    """Source tokens, the end included."""
    source: Sequence[int] = ()
    """The source tokens, if the active vocabulary depends on them."""


class SlotDecoder:
    """A decoder of up to `capacity` sentences together, by greedy or beam search, which removes each when it is done.

    A sentence is encoded, joins, takes part in steps, and is returned by the step that ends it.
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
        """Set up an empty decoder. Raises `NmtError` for the vocabulary of another model.

        `capacity`: most active sentences; `max_len`: most tokens of a translation; `fused`: the output layer is fused (FNI-03
        to 06); `vocabulary`: only its columns are multiplied, with its own search, whether `fused` or not; `search`: makes a
        search other than the default for `beam`, `fused` and `vocabulary`; it must use the same vocabulary.
        """
        self._account = None if vocabulary is None else vocabulary.account
        self._reads_sources = vocabulary is not None and vocabulary.reads_sources
        self.capacity = capacity
        self._model, self._max_len, self._mark = model, max_len, mark or (lambda: None)
        self._new_search = search or partial(make_search, model, beam, fused=fused, vocabulary=vocabulary)
        self.drop_all()

    @property
    def active(self) -> int:
        """Number of active sentences."""
        return len(self._keys)

    @property
    def longest(self) -> int:
        """Tokens of the longest active source; 0 without any."""
        return max(self._src_lens, default=0)

    def holds(self, key: int) -> bool:
        """Return whether a sentence is active."""
        return key in self._keys

    def encode(self, sources: Sequence[Sequence[int]]) -> list[EncodedSentence]:
        """Encode these sources together; the active sentences are not changed.

        Raises `NmtError` for a source without tokens or longer than the model's positions, and `OutOfMemory`.
        """
        if not len(sources):
            return []
        if not all(map(len, sources)):
            raise NmtError("a source of no token where its end is the least")
        src, lengths = pad(sources, self._model.pad_token)
        return self.encode_padded(src.to(self._model.device), lengths.to(self._model.device))

    @torch.inference_mode()
    def encode_padded(self, src: Tensor, src_lengths: Tensor) -> list[EncodedSentence]:
        """Encode sources that are already padded: int64 [batch, src_len] and [batch] on the model's device; see `encode`."""
        check_lengths(self._model.max_positions, src.shape[1], 0)
        memory = within_memory(str(self._model.device), lambda: self._model.encode(src, src_lengths))
        sources = src.tolist() if self._reads_sources else [()] * len(src)
        rows = enumerate(zip(src_lengths.tolist(), sources, strict=True))
        return [EncodedSentence(memory, row, length, source[:length]) for row, (length, source) in rows]

    @torch.inference_mode()
    def join(
        self,
        sentences: Sequence[EncodedSentence],
        keys: Sequence[int],
        forced_lens: Sequence[int | None] | None = None,
        max_lens: Sequence[int | None] | None = None,
    ) -> list[tuple[int, Hypothesis]]:
        """Add sentences from the next step on; return those that are done at once, being forced to no token.

        `keys`: the caller's names of the sentences. `forced_lens`: the exact number of tokens of each, none of them the end;
        None: the sentence ends by itself. `max_lens`: most tokens of each, by default the decoder's. Raises `ValueError` for
        more sentences than fit, `NmtError` for lengths beyond the model's positions, and `OutOfMemory`, after which no sentence
        is active.
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
        """Decode one more token of each active sentence; return and remove those that are done.

        Raises `OutOfMemory`, after which no sentence is active.
        """
        return self._or_drop_all(self._advance) if self._keys else []

    def drop_all(self) -> None:
        """Remove every active sentence and free its memory."""
        self._keys: list[int] = []
        self._src_lens: list[int] = []
        self._slots: Slots | None = None
        """Made when the first sentence joins, since they may not fit in memory."""
        self._search = self._new_search()
        if self._account is not None:
            self._account.leave([])

    def _limit(self, forced_len: int | None, max_len: int | None, sentence: EncodedSentence) -> Limit:
        positions = self._model.max_positions
        if forced_len is None:
            steps, least = self._max_len if max_len is None else max_len, 1
            steps = steps if positions is None else min(steps, positions)
        else:
            steps, least = forced_len, 0
            check_lengths(positions, 0, steps)
        _check_least("max_len" if forced_len is None else "forced_len", steps, least)
        return Limit(int(steps), forced_len is not None, sentence.source)

    def _take(self, sentences: Sequence[EncodedSentence], limits: Sequence[Limit]) -> None:
        beam = self._search.beam
        if self._slots is None:
            # Room for these sentences only: the capacity may be far more than ever join.
            self._slots = self._model.slots(len(sentences) * beam, self.capacity * beam)
        for _, together in groupby(sentences, key=lambda sentence: id(sentence.memory)):
            group = list(together)
            rows, src_lens = [sentence.row for sentence in group], [sentence.src_len for sentence in group]
            self._slots.join(group[0].memory, rows, src_lens, beam)
        self._search.join(limits)
        self._src_lens += [sentence.src_len for sentence in sentences]

    def _advance(self) -> list[tuple[int, Hypothesis]]:
        search, slots, keys = self._search, self._slots, self._keys
        assert slots is not None, "no sentence has joined"
        self._mark()
        projected = search.project(slots.body(search.tokens))
        self._mark()
        finished = search.choose(projected)
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

    def _or_drop_all(self, do: Callable[[], _Answer]) -> _Answer:
        try:
            return within_memory(str(self._model.device), do)
        except OutOfMemory:
            # The state of the active sentences is half changed.
            self.drop_all()
            raise


def _check_least(name: str, tokens: int, least: int) -> None:
    if tokens < least:
        raise NmtError(f"{name} must be at least {least} (got {tokens})", remedy=f"give {least} or more")


def decode_batch(
    model: StepModel,
    src: Tensor,
    src_lengths: Tensor,
    *,
    beam: int = 1,
    scored: bool = True,
    length_penalty: float = 1.0,
    max_len: int = 200,
    forced_len: int | None = None,
    fused: bool = False,
    vocabulary: RestrictedVocabulary | None = None,
    mark: Mark | None = None,
) -> list[Hypothesis]:
    """Translate a padded batch, until each sentence ends or has `max_len` tokens.

    Args:
        src: sources, int64 [batch, src_len], on the model's device.
        src_lengths: tokens of each source, int64 [batch], on the model's device.
        beam: hypotheses per sentence: 1 is `GreedySearch`, more is `BeamSearch`.
        scored: whether a greedy search computes scores, which take a softmax (FNI-06).
        length_penalty: see `Hypothesis.score`.
        forced_len: the exact number of tokens of every sentence, none of them the end token.
        fused, vocabulary, mark: see `SlotDecoder`; `mark` is also called once between encoding and joining.

    Raises `NmtError` for lengths beyond the model's positions, and `OutOfMemory`.
    """
    if forced_len is not None:
        _check_least("forced_len", forced_len, 1)
    batch = len(src)
    search = partial(make_search, model, beam, scored=scored, length_penalty=length_penalty, fused=fused, vocabulary=vocabulary)
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
"""Batches that maxi-batching collects by default: the paper on top-up batching collects 1,280 sentences for batches of 128
(FNI-09)."""
MOST_SENTENCES = 1_000_000_000
"""Most sentences of a batch, more than any memory holds; `islice` still takes the number of sentences of ten such batches."""
_PRESETS = {"half-empty": half_empty, "immediate": immediate}


def parse_batching(kind: str = "maxi", size: int = 64, *, threshold: str | None = None, collect: int | None = None) -> Batching:
    """Return the batching of lines that are all present, or are read as fast as needed.

    `kind`: mini, maxi or top-up. `threshold`, of top-up: half-empty (the default), immediate or a number of sentences.
    `collect`: lines that are sorted by length before they are cut into batches; by default ten batches for maxi, none for
    top-up. Words may be spelled with an underscore, as in a scenario. Raises `NmtError` for settings out of range or that
    contradict each other.
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
    """Translations of many sentences and the time they took; the parts sum to the total."""

    hypotheses: tuple[Hypothesis, ...]
    """In the order of the sources."""
    active: NDArray[np.int64]
    """Active sentences in each step, shape (steps,)."""
    step_s: NDArray[np.float64]
    """Seconds of each step: the model, the search, and the removal of finished sentences, shape (steps,)."""
    encode_s: float
    """Seconds of all encoder calls, including padding the sources."""
    refill_s: float
    """Seconds of all joins."""
    total_s: float
    encodings: int
    """Encoder calls."""
    refills: int
    """Joins."""
    subset: SubsetAccount | None = None
    """Active columns by step and by sentence (its index among the sources); None for the whole vocabulary."""


class BatchedDecoder:
    """A slot decoder driven by a batcher: sentences arrive, and `act` makes one move after the other."""

    def __init__(self, decoder: SlotDecoder, batching: Batching) -> None:
        self.decoder, self.batcher = decoder, Batcher(batching)
        self._waiting: dict[int, DecodeRequest] = {}
        """Sentences that have not joined."""
        self._encoded: dict[int, EncodedSentence] = {}
        """Those of them that have been encoded."""

    @property
    def busy(self) -> bool:
        """Whether a sentence waits or is active."""
        return bool(self.decoder.active or self._waiting)

    @property
    def active(self) -> int:
        """Number of active sentences."""
        return self.decoder.active

    def arrive(self, key: int, request: DecodeRequest, now_s: float = 0.0) -> None:
        """Add a sentence to those that wait."""
        self._waiting[key] = request
        self.batcher.arrive(key, len(request.source), now_s)

    def withdraw(self, key: int) -> bool:
        """Remove a sentence that is not encoded yet; return whether there was one."""
        if key in self._encoded or not self.batcher.withdraw(key):
            return False
        del self._waiting[key]
        return True

    def holds(self, key: int) -> bool:
        """Return whether a sentence waits or is active."""
        return key in self._waiting or self.decoder.holds(key)

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, list[tuple[int, Hypothesis]]]:
        """Make the batcher's next move, or take a step if it has none; return the move and the finished sentences.

        Raises the errors of `SlotDecoder`. After `OutOfMemory` the sentences of the move are gone, and after that of a join or
        a step all active ones; the others go on.
        """
        decoder = self.decoder
        move = self.batcher.next(decoder.active, now_s, decoder.longest)
        if move is None:
            return None, decoder.step()
        requests = [self._waiting[key] for key in move.requests]
        if isinstance(move, Encode):
            try:
                sentences = decoder.encode([request.source for request in requests])
            except (NmtError, OutOfMemory):
                self.batcher.drop_encoded(move.requests)
                for key in move.requests:
                    del self._waiting[key]
                raise
            self._encoded.update(zip(move.requests, sentences, strict=True))
            return move, []
        for key in move.requests:
            del self._waiting[key]
        done = decoder.join(
            [self._encoded.pop(key) for key in move.requests],
            move.requests,
            [request.forced_len for request in requests],
            [request.max_len for request in requests],
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
    """Translate sources that are all present from the beginning, in the order given.

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
    for key, request in enumerate(zip(sources, repeat(None, count) if forced_lens is None else forced_lens, most, strict=True)):
        batched.arrive(key, DecodeRequest(*request))
    batched.batcher.close()
    hypotheses: dict[int, Hypothesis] = {}
    active, steps_s, encodings_s, refills_s = list[int](), list[float](), list[float](), list[float]()
    begin = before = clock()
    while batched.busy:
        sentences = decoder.active
        move, done = batched.act()
        hypotheses.update(done)
        if move is not None and model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # a step waits for its tokens in any case
        now = clock()
        if move is None:
            active.append(sentences)
        (steps_s if move is None else encodings_s if isinstance(move, Encode) else refills_s).append(now - before)
        before = now
    return BatchedRun(
        tuple(hypotheses[key] for key in range(count)),
        np.asarray(active, np.int64),
        np.asarray(steps_s, np.float64),
        sum(encodings_s),
        sum(refills_s),
        before - begin,
        len(encodings_s),
        len(refills_s),
        None if vocabulary is None else vocabulary.account,
    )
