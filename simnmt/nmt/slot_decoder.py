"""Decode sentences together, each with its own search: they join and leave while the others go on (FNI-08, 10).

`greedy` and `beam` decode one padded batch from beginning to end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import torch
from torch import Tensor

from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.searches import BeamSearch, GreedySearch, make_search
from simnmt.nmt.slot_search import Hypothesis, Limit, SlotSearch
from simnmt.nmt.slots import Slots
from simnmt.nmt.step_model import Memory, StepModel, check_lengths, pad
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
