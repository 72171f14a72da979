"""The sharp decoder and its source encoder: one model with the techniques of its settings (SHARP-01, SHARP-16).

The paper's words per second include the source side, so the decoder's techniques apply there too: 16-bit products (SHARP-05),
kept products of source embeddings (SHARP-06), activations by table or polynomial (SHARP-08). Input products are computed for
all positions of a layer at once in every variant. Kept attention and merged states have no counterpart there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import KernelError
from simnmt.kernels.beam_search import Ints, SharpTranslation
from simnmt.kernels.native_library import native
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.compiled import MOST_MEMBERS, CompiledMember, CompiledSource, compiled_decode, compiled_forced
from simnmt.kernels.sharp.model import Float32, ForcedSteps, SearchRequest, SharpWeights
from simnmt.kernels.sharp.reference import Arithmetic, ReferenceMember, ReferenceSource, reference_decode, reference_forced
from simnmt.profile.decoder_settings import DecoderSettings


class SourceEncoder:
    """Encodes one sentence at a time on one thread; each thread needs its own encoder.

    `settings` gives `gemm` (None: float32), `embeddings`, `frequent_words` and `activations`. Weights are packed once, here.

    Example:
        >>> encoder = SourceEncoder(weights, DecoderSettings(gemm="int16"))
        >>> encoder.encode([17, 4, 3]).shape
        (3, 1024)
    """

    def __init__(self, weights: sharp.SourceWeights, settings: DecoderSettings) -> None:
        self.weights, self.settings, kernels = weights, settings, native()
        self._side: CompiledSource | ReferenceSource = (
            ReferenceSource(weights, Arithmetic.of(settings)) if kernels is None else CompiledSource(weights, settings, kernels)
        )

    def encode(self, words: Sequence[int] | NDArray[np.int64]) -> Float32:
        """Return the states of a sentence, [src_len, width] float32 within [-1, 1].

        Raises `KernelError` for a sentence without words, or with a word outside the vocabulary.
        """
        ids = np.ascontiguousarray(words, np.int64)
        if not ids.size or ids.min() < 0 or ids.max() >= self.weights.vocab:
            raise KernelError(f"a source holds no word, or one outside the vocabulary of {self.weights.vocab}")
        return self._side.encode(ids)


class SharpDecoder:
    """Beam search of one sentence at a time on one thread (SHARP-01); each thread needs its own decoder.

    `settings` gives `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge`; the caller gives each sentence's `candidates`. Weights are packed once, here. Without compiled kernels numpy
    searches.
    """

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, *, max_len: int, stop_margin: float = 3.0) -> None:
        self.weights, self.settings, self.max_len, self.stop_margin = weights, settings, max_len, stop_margin
        kernels = native()
        self.compiled = kernels is not None
        """True if the search runs in C; in numpy it gives the same results, slower."""
        self._member: Any = (
            ReferenceMember(weights, Arithmetic.of(settings)) if kernels is None else CompiledMember(weights, settings, kernels)
        )

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence.

        `source_states`: [src_len, s] float32. `candidates`: words that may be chosen, int64, each once, with the end token
        (SHARP-02); None: all. `forced_len`: exact number of steps, without the end token, for timing. `clock`: also return
        `StageSeconds`. Raises `KernelError` for arrays that no search could use.
        """
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints, candidates: Ints | None = None) -> ForcedSteps:
        """Follow a given translation, whose words are among the candidates (SHARP-10); only padding is banned."""
        sharp.check_sentence(self.weights, source_states, None, forced=False)
        words = np.ascontiguousarray(tokens, np.int64)
        places = sharp.candidate_positions(words, candidates, self.weights.vocab)
        request = SearchRequest(self.weights.tokens, 1, len(words), False, candidates, self.stop_margin)
        forced = compiled_forced if self.compiled else reference_forced
        return forced(self._member, source_states, request, words, places)


def decode_ensemble(
    decoders: Sequence[SharpDecoder],
    source_states: Sequence[Float32],
    candidates: Ints | None = None,
    forced_len: int | None = None,
    *,
    max_len: int | None = None,
    clock: bool = False,
) -> SharpTranslation:
    """Translate one sentence by several models of one vocabulary and one `settings`, each with its own source states.

    Their distributions are averaged arithmetically over one shared beam (SHARP-14), as is their attention for `attended`; the
    `stop_margin` and `max_len` of the first decoder hold. `max_len`: most steps for this sentence alone. Raises `KernelError`
    for arrays that no search could use, and for decoders that do not fit together.
    """
    first = decoders[0]
    shared = {(decoder.weights.vocab, decoder.weights.tokens, decoder.settings, decoder.compiled) for decoder in decoders}
    if len(decoders) > MOST_MEMBERS or len(shared) != 1 or len(set(map(id, decoders))) != len(decoders):
        raise KernelError(f"an ensemble is of up to {MOST_MEMBERS} different decoders of one vocabulary and one settings")
    for decoder, states in zip(decoders, source_states, strict=True):
        sharp.check_sentence(decoder.weights, states, candidates, forced=forced_len is not None)
    if len({len(states) for states in source_states}) != 1:
        raise KernelError("source_states of an ensemble are of different lengths, though it reads one sentence")
    steps = first.max_len if forced_len is None and max_len is None else forced_len or max_len or 0
    if steps < 1:
        raise KernelError(f"{steps} steps: 1 is the least")
    settings = first.settings
    request = SearchRequest(
        first.weights.tokens,
        settings.beam,
        steps,
        forced_len is not None,
        candidates,
        first.stop_margin,
        fused=settings.fused,
        clock=clock,
    )
    decode = compiled_decode if first.compiled else reference_decode
    return decode([decoder._member for decoder in decoders], source_states, request)
