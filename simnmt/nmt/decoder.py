"""The decoder loop: sentences join and leave one batch while others go on (FNI-08 to FNI-10).

`decode` translates many sentences; its arguments are the search (greedy or beam), the output layer (dense, fused or a part of
the vocabulary) and the batching (alone, mini, maxi or top-up). `Decoder` makes single moves, as the live server needs them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.batching import Batching, Encode, Join
from simnmt.nmt.errors import NmtError, OutOfMemory, within_memory
from simnmt.nmt.output_layer import Limit, Output, Projected
from simnmt.nmt.search import BeamSearch, GreedySearch, Search, SlotSearch
from simnmt.nmt.sentence_decoder import MOST_TARGET_TOKENS, BatchDecoder, DecodeRequest, Finished, Hypothesis
from simnmt.nmt.step_model import Memory, Slots, StepModel, check_lengths, pad
from simnmt.nmt.vocabulary.restricted_vocabulary import SubsetAccount

Observer = Callable[[Sequence[int], Tensor, Projected], object]
"""Called after the model's part of each step with the keys of the active sentences, the input of the output layer [rows, width]
and its output; with a fused output layer that part includes softmax and search of each row."""

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence that the encoder has read: its row in the memory of the sentences encoded together."""

    memory: Memory
    row: int
    request: DecodeRequest


class Decoder(BatchDecoder):
    """A decoder of sentences together, which removes each when it is done.

    A sentence is encoded, joins, takes part in steps, and is returned by the step that ends it. `act` does what the batcher
    says next; `encode`, `join` and `step` are its parts.
    """

    def __init__(
        self,
        model: StepModel,
        batching: Batching,
        search: Search = Search(),  # noqa: B008 - frozen
        output: Output = Output(),  # noqa: B008 - frozen
        *,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(batching)
        self._model, self._observer, self._lap = model, observer, output.lap
        self._new_search: Callable[[], SlotSearch] = lambda: (BeamSearch if search.beam > 1 else GreedySearch)(
            model, search, output
        )
        self._encoded: dict[int, EncodedSentence] = {}
        self.drop_all()

    @property
    def active(self) -> int:
        return len(self._keys)

    def holds(self, key: int) -> bool:
        return key in self.waiting or key in self._keys

    def act(self, now_s: float = 0.0) -> tuple[Encode | Join | None, Finished]:
        """Do what the batcher says next, or take a step; return the move and the finished sentences.

        After `OutOfMemory` the sentences of the move are gone, and after that of a join or a step all active ones; the others
        go on.
        """
        move = self.batcher.next(self.active, now_s, max(self._src_lens, default=0))
        if move is None:
            return None, self.step()
        if isinstance(move, Join):
            for key in move.requests:
                del self.waiting[key]
            return move, self.join([self._encoded.pop(key) for key in move.requests], move.requests)
        try:
            sentences = self.encode([self.waiting[key] for key in move.requests])
        except (NmtError, OutOfMemory):
            self.batcher.drop_encoded(move.requests)
            for key in move.requests:
                del self.waiting[key]
            raise
        self._encoded.update(zip(move.requests, sentences, strict=True))
        return move, []

    @torch.inference_mode()
    def encode(self, requests: Sequence[DecodeRequest]) -> list[EncodedSentence]:
        """Encode these sources together; the active sentences are not changed.

        Raises `NmtError` for a source without tokens or longer than the model's positions, and `OutOfMemory`.
        """
        if not all(len(request.source) for request in requests):
            raise NmtError("a source of no token where its end is the least")
        model = self._model
        src, lengths = pad([request.source for request in requests], model.pad_token)
        check_lengths(model.max_positions, src.shape[1], 0)
        memory = within_memory(str(model.device), lambda: model.encode(src.to(model.device), lengths.to(model.device)))
        return [EncodedSentence(memory, row, request) for row, request in enumerate(requests)]

    @torch.inference_mode()
    def join(self, sentences: Sequence[EncodedSentence], keys: Sequence[int]) -> Finished:
        """Add sentences from the next step on; return those that are done at once, being forced to no token.

        `keys`: the caller's names of the sentences. Raises `NmtError` for lengths beyond the model's positions, and
        `OutOfMemory`, after which no sentence is active.
        """
        joining = list(zip(keys, sentences, [self._limit(sentence.request) for sentence in sentences], strict=True))
        finished = [(key, Hypothesis((), None)) for key, _, limit in joining if not limit.steps]
        if joining := [part for part in joining if part[2].steps]:
            self._or_drop_all(lambda: self._take(joining))
        return finished

    @torch.inference_mode()
    def step(self) -> Finished:
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

    def _limit(self, request: DecodeRequest) -> Limit:
        positions, is_forced = self._model.max_positions, request.forced_len is not None
        most = next(length for length in (request.forced_len, request.max_len, MOST_TARGET_TOKENS) if length is not None)
        if most < (least := 0 if is_forced else 1):
            name = "forced_len" if is_forced else "max_len"
            raise NmtError(f"{name} must be at least {least} (got {most})", remedy=f"give {least} or more")
        if is_forced:
            check_lengths(positions, 0, most)
        return Limit(int(most if positions is None else min(most, positions)), is_forced, request.source)

    def _take(self, joining: Sequence[tuple[int, EncodedSentence, Limit]]) -> None:
        beam = self._search.beam
        if self._slots is None:
            self._slots = self._model.slots(len(joining) * beam)
        keys, sentences, limits = zip(*joining, strict=True)
        for _, together in groupby(sentences, key=lambda sentence: id(sentence.memory)):
            group = list(together)
            src_lens = [len(sentence.request.source) for sentence in group]
            self._slots.join(group[0].memory, [sentence.row for sentence in group], src_lens, beam)
            self._src_lens += src_lens
        self._search.join(keys, limits)
        self._keys += keys

    def _advance(self) -> Finished:
        search, slots, keys = self._search, self._slots, self._keys
        assert slots is not None, "no sentence has joined"
        self._lap("between steps")
        hidden = slots.body(search.tokens)
        self._lap("body")
        projected = search.project(hidden)
        if self._observer is not None:
            self._observer(keys, hidden, projected)
        finished = search.choose(projected)
        if finished:
            order = slots.leave([slot for slot, _ in finished], search.beam)
            search.leave(order)
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
    subset: SubsetAccount | None = None
    """Active columns by step and by sentence (its index among the sources); None for the whole vocabulary."""


def decode(
    model: StepModel,
    sources: Sequence[Sequence[int]],
    batching: Batching,
    *,
    search: Search = Search(),  # noqa: B008 - frozen
    output: Output = Output(),  # noqa: B008 - frozen
    max_len: int | Sequence[int] = MOST_TARGET_TOKENS,
    forced_lens: Sequence[int] | None = None,
    observer: Observer | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> BatchedRun:
    """Translate sources that are all present from the beginning, in the order given.

    Args:
        model: the model, in evaluation mode.
        sources: source tokens of each sentence, the end last.
        batching: how the sentences share batches, such as `mini(1)` for each alone.
        search: greedy or beam search.
        output: the output layer. The steps of a restricted one are recorded in its account, or in a new one if it has none.
        max_len: most tokens, of all or of each.
        forced_lens: exact token counts, none of the tokens the end.
        observer: as in `Decoder`.
        clock: times the parts of the run.

    Raises `NmtError` for lengths beyond the model's positions and `OutOfMemory`.
    """
    if output.vocabulary is not None and output.vocabulary.account is None:
        output = replace(output, vocabulary=replace(output.vocabulary, account=SubsetAccount()))
    decoder, count = Decoder(model, batching, search, output, observer=observer), len(sources)
    most = [max_len] * count if isinstance(max_len, int) else max_len
    for key, request in enumerate(zip(sources, [None] * count if forced_lens is None else forced_lens, most, strict=True)):
        decoder.arrive(key, DecodeRequest(*request))
    decoder.batcher.close()
    hypotheses: dict[int, Hypothesis] = {}
    active, steps_s, encode_s, refill_s = list[int](), list[float](), 0.0, 0.0
    begin = before = clock()
    while decoder.busy:
        sentences = decoder.active
        move, done = decoder.act()
        hypotheses.update(done)
        if move is not None and model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # a step waits for its tokens in any case
        now = clock()
        took_s, before = now - before, now
        if move is None:
            active.append(sentences)
            steps_s.append(took_s)
        elif isinstance(move, Encode):
            encode_s += took_s
        else:
            refill_s += took_s
    return BatchedRun(
        tuple(hypotheses[key] for key in range(count)),
        np.asarray(active, np.int64),
        np.asarray(steps_s, np.float64),
        encode_s,
        refill_s,
        before - begin,
        None if output.vocabulary is None else output.vocabulary.account,
    )
