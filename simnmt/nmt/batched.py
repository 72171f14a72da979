"""Many sentences through one decoder, in batches that a `Batcher` forms; every part of it timed (FNI-08, 09, 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.batching import Batcher, Batching, Encode, Join
from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.slot_decoder import Encoded, SlotDecoder
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary
from simnmt.nmt.vocabulary.subset_account import SubsetAccount


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
class Asked:
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
        self._asked: dict[int, Asked] = {}
        """Those that have not joined."""
        self._encoded: dict[int, Encoded] = {}
        """Of these, the ones that the encoder has read."""

    @property
    def busy(self) -> bool:
        """Whether a sentence waits or is under way."""
        return bool(self.decoder.active or self._asked)

    def arrive(self, request: int, asked: Asked, now_s: float = 0.0) -> None:
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
            [each.forced_len for each in joining],
            [each.max_len for each in joining],
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

    `max_len`: most tokens, of all or of each; `forced_lens`: each gets just so many, none of them the end; `fused`,
    `vocabulary`: see `SlotDecoder`; the vocabulary's account is told, or where it has none one of the run's own. Raises
    `NmtError` for lengths beyond the model's positions and `OutOfMemory`.
    """
    count = len(sources)
    most = [max_len] * count if isinstance(max_len, int) else max_len
    if vocabulary is not None and vocabulary.account is None:
        vocabulary = replace(vocabulary, account=SubsetAccount())
    decoder = SlotDecoder(model, beam=beam, capacity=batching.size, fused=fused, vocabulary=vocabulary)
    batched = BatchedDecoder(decoder, batching)
    asked = zip(sources, repeat(None, count) if forced_lens is None else forced_lens, most, strict=True)
    for request, (source, forced, own_most) in enumerate(asked):
        batched.arrive(request, Asked(source, forced, own_most))
    batched.batcher.close()
    found: dict[int, Hypothesis] = {}
    active: list[int] = []
    seconds = _Seconds()
    begin = before = clock()
    while batched.busy:
        under_way = batched.decoder.active
        move, done = batched.act()
        found.update(done)
        if move is not None and model.device.type == "cuda":
            torch.cuda.synchronize(model.device)  # a step waits for its tokens in any case
        now = clock()
        if move is None:
            active.append(under_way)
        seconds.spent(move, now - before)
        before = now
    return BatchedRun(
        tuple(found[request] for request in range(count)),
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
class _Seconds:
    steps: list[float] = field(default_factory=list)
    encodings: list[float] = field(default_factory=list)
    refills: list[float] = field(default_factory=list)

    def spent(self, move: Encode | Join | None, seconds: float) -> None:
        kind = self.steps if move is None else self.encodings if isinstance(move, Encode) else self.refills
        kind.append(seconds)
