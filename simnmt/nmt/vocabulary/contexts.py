"""Contexts of a model: decoder outputs with their likeliest tokens, recorded while it translates unlabelled text (FVP-02)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from simnmt.batching import Join, maxi
from simnmt.kernels.errors import KernelError
from simnmt.kernels.output_layer import fused_best
from simnmt.nmt.batch_decoder import BatchedDecoder, DecodeRequest
from simnmt.nmt.errors import NmtError
from simnmt.nmt.searches import make_search
from simnmt.nmt.slot_decoder import SlotDecoder
from simnmt.nmt.slot_search import SlotSearch
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.subwords import LONGEST_SOURCE, Subwords

BATCH = 128


class TextModel(Protocol):
    """A model that reads text, as `Translator` is."""

    @property
    def model(self) -> StepModel:
        """The model itself."""

    @property
    def source(self) -> Subwords:
        """Encodes its sources."""

    @property
    def max_len(self) -> int | None:
        """Most tokens of a translation; None: by the source's length."""


Progress = Callable[[str, float | None], None]
"""Told what is at work and the share of it that is done; None where nobody knows."""


@dataclass(frozen=True, slots=True, eq=False)
class Contexts:
    """What a model's output layer was given while it decoded text, on the CPU; a row is one row of one step."""

    hidden: Tensor
    """float32 [n, width]."""
    top: Tensor
    """int32 [n, K]: its likeliest tokens, the best first, of equals the lowest; padding, which no search chooses, is none."""
    sentence: Tensor
    """int32 [n]: which of the sources it belongs to."""
    emitted: Tensor
    """int32, ascending: the tokens that decoding wrote, the end among them."""
    sentences: int
    """Sources that were given, those without a token among them: where the numbers of the next text begin."""
    beam: int = 1

    def __len__(self) -> int:
        return len(self.hidden)

    def of(self, rows: Tensor) -> Contexts:
        """These rows alone; `emitted` and `sentences` stay what they were."""
        return Contexts(self.hidden[rows], self.top[rows], self.sentence[rows], self.emitted, self.sentences, self.beam)


def join_contexts(parts: Sequence[Contexts]) -> Contexts:
    """Contexts of several texts as those of one, sentences numbered on: how clusters for a target alone are made (FVP-10)."""
    most = min(part.top.shape[1] for part in parts)
    firsts = [0]
    for part in parts:
        firsts.append(firsts[-1] + part.sentences)
    return Contexts(
        torch.cat([part.hidden for part in parts]),
        torch.cat([part.top[:, :most] for part in parts]),
        torch.cat([part.sentence + first for part, first in zip(parts, firsts, strict=False)]),
        torch.unique(torch.cat([part.emitted for part in parts])),
        firsts[-1],
        parts[0].beam,
    )


def encode_sources(translator: TextModel, lines: Iterable[str]) -> list[list[int]]:
    """The tokens of each line, cut as in translation; an empty line has none."""
    limit = translator.model.max_positions or LONGEST_SOURCE
    whole = translator.source.encode(lines)
    cut = [ids if len(ids) <= limit else [*ids[: limit - 1], translator.source.eos] for ids in whole]
    return [ids if len(ids) > 1 else [] for ids in cut]


def collect(
    model: StepModel | TextModel,
    texts: Sequence[str] | Sequence[Sequence[int]],
    top: int,
    *,
    beam: int = 1,
    batch: int = BATCH,
    max_len: int | None = None,
    progress: Progress | None = None,
) -> Contexts:
    """Decode source text and record every context with its `top` likeliest tokens (FVP-02); no translation is needed.

    `texts`: lines if the model reads text, else token ids, the end last; empty ones give nothing. With a beam, the contexts
    of all its rows. `max_len`: most tokens of each, by default twice the source's and 10. Raises `NmtError` for more tokens
    than the vocabulary has, for contexts that are no numbers, and for text without one; `OutOfMemory`.
    """
    if isinstance(getattr(model, "source", None), Subwords):
        reader = cast("TextModel", model)
        max_len = max_len or reader.max_len
        sources = encode_sources(reader, cast("Sequence[str]", texts))
        model = reader.model
    else:
        model = cast("StepModel", model)
        sources = [list(source) for source in cast("Sequence[Sequence[int]]", texts)]
    if not 1 <= top < model.vocab:
        remedy = f"give 1 to {model.vocab - 1:,}"
        raise NmtError(f"the {top:,} likeliest tokens of a vocabulary of {model.vocab:,}", remedy=remedy)
    noted = _RecordingModel(model, top)
    batching = maxi(batch, max(batch, min(len(sources), 100 * batch)))
    search = _TrackedSearch(noted, beam)
    batched = BatchedDecoder(SlotDecoder(model, capacity=batch, search=lambda: cast("SlotSearch", search)), batching)
    asked = [request for request, source in enumerate(sources) if source]
    for request in asked:
        positions, most = model.max_positions, max_len or 2 * len(sources[request]) + 10
        batched.arrive(request, DecodeRequest(sources[request], max_len=most if positions is None else min(most, positions)))
    batched.batcher.close()
    emitted, done = {model.eos_token}, 0
    while batched.busy:
        move, finished = batched.act()
        if isinstance(move, Join):
            search.keys += move.requests
        for _, hypothesis in finished:
            emitted.update(hypothesis.tokens)
        done += len(finished)
        if progress is not None and finished:
            progress("decoding", done / len(asked))
    if not noted.kept:
        raise NmtError("text without a sentence", remedy="give text with one sentence a line")
    return noted.contexts(emitted, len(sources), beam)


class _RecordingModel:
    """A model that notes what it is asked to project; all else is the model's own."""

    def __init__(self, model: StepModel, top: int) -> None:
        self._model, self._top = model, top
        self.rows: list[int] = []
        """The sentence of each row of the next step."""
        self.kept: list[tuple[Tensor, Tensor, Tensor]] = []
        self._allowed = torch.zeros(model.vocab, device=model.device)
        if model.pad_token != model.eos_token:
            self._allowed[model.pad_token] = float("-inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits = self._model.project(hidden)
        try:
            best = fused_best(logits.contiguous(), self._allowed, self._top).columns
        except KernelError as error:
            raise NmtError(f"the model's contexts are no numbers: {error}", remedy="train it again") from None
        sentences = torch.tensor(self.rows, dtype=torch.int32)
        # Copies: the model may use its own memory again in the next step.
        self.kept.append((hidden.to("cpu", torch.float32, copy=True), best.to("cpu", torch.int32, copy=True), sentences))
        return logits

    def contexts(self, emitted: Iterable[int], sentences: int, beam: int) -> Contexts:
        """Return all recorded contexts and empty the record; each part is freed as soon as it is copied."""
        count = sum(len(part[0]) for part in self.kept)
        hidden, top, sentence = (torch.empty((count, *part.shape[1:]), dtype=part.dtype) for part in self.kept[0])
        self.kept.reverse()
        at = 0
        while self.kept:
            recorded = self.kept.pop()
            for whole, part in zip((hidden, top, sentence), recorded, strict=True):
                whole[at : at + len(part)] = part
            at += len(recorded[0])
        if not bool(hidden.isfinite().all()):
            raise NmtError("contexts that are no numbers", remedy="train the model again")
        return Contexts(hidden, top, sentence, torch.tensor(sorted(emitted), dtype=torch.int32), sentences, beam)


class _TrackedSearch:
    """See `SlotSearch`: the usual one, which also knows the sentence of each slot."""

    def __init__(self, noted: _RecordingModel, beam: int) -> None:
        self._search = make_search(cast("StepModel", noted), beam)
        self._noted = noted
        self.keys: list[int] = []
        """The sentence of each slot; the caller adds those of joining sentences."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)

    def project(self, hidden: Tensor) -> Any:
        """See `SlotSearch`."""
        self._noted.rows = [key for key in self.keys for _ in range(self._search.beam)]
        return self._search.project(hidden)

    def leave(self, order: Sequence[int]) -> None:
        """See `SlotSearch`."""
        self._search.leave(order)
        self.keys = [self.keys[slot] for slot in order]
