"""Decode many sentences in the batches that a `Batcher` forms, and time every part of it (FNI-08, 09, 10)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.batching import Batcher, Batching, Encode, Join, half_empty, immediate, maxi, mini, top_up
from simnmt.nmt.errors import NmtError
from simnmt.nmt.slot_decoder import EncodedSentence, SlotDecoder
from simnmt.nmt.slot_search import Hypothesis
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary, SubsetAccount

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
