"""Greedy and beam search of one batch, over any step model."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from simnmt.nmt.beam_search import BeamSearch
from simnmt.nmt.errors import NmtError
from simnmt.nmt.greedy_search import GreedySearch
from simnmt.nmt.hypothesis import Hypothesis
from simnmt.nmt.slot_decoder import Mark, SlotDecoder
from simnmt.nmt.slot_search import SlotSearch
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.subset import RestrictedVocabulary


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

    def search() -> SlotSearch:
        return GreedySearch(model, scored=scored, fused=fused, vocabulary=vocabulary)

    return _decoded(model, src, src_lengths, search, max_len, forced_len, vocabulary, mark)


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

    def search() -> SlotSearch:
        return BeamSearch(model, beam, length_penalty=length_penalty, fused=fused, vocabulary=vocabulary)

    return _decoded(model, src, src_lengths, search, max_len, forced_len, vocabulary, mark)


def _decoded(
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
    found: dict[object, Hypothesis] = {}
    while decoder.active:
        found.update(decoder.step())
    return [found[sentence] for sentence in range(batch)]
