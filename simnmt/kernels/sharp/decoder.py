"""The sharp decoder and its source encoder: one model with the techniques of its settings (SHARP-01, SHARP-16).

The paper's words per second include the source side, so the decoder's techniques apply there too: 16-bit products (SHARP-05),
kept products of source embeddings (SHARP-06), activations by table or polynomial (SHARP-08). Input products are computed for
all positions of a layer at once in every variant. Kept attention and merged states have no counterpart there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simnmt.kernels.beam_search import Ints, SharpTranslation
from simnmt.kernels.native_library import native
from simnmt.kernels.sharp.compiled import CompiledMember, CompiledSource, compiled_decode, compiled_forced
from simnmt.kernels.sharp.model import (
    Float32,
    ForcedSteps,
    SearchRequest,
    SharpWeights,
    SourceWeights,
    check_sentence,
    check_words,
)
from simnmt.kernels.sharp.reference import ReferenceMember, ReferenceSource, reference_decode, reference_forced
from simnmt.profile.decoder_settings import DecoderSettings


class SourceEncoder:
    """Encodes one sentence at a time on one thread; each thread needs its own encoder.

    `settings` gives `gemm` (None: float32), `embeddings`, `frequent_words` and `activations`. Weights are packed once, here.

    Example:
        >>> encoder = SourceEncoder(weights, DecoderSettings(gemm="int16"))
        >>> encoder.encode([17, 4, 3]).shape
        (3, 1024)
    """

    def __init__(self, weights: SourceWeights, settings: DecoderSettings) -> None:
        self.weights, kernels = weights, native()
        self._side: CompiledSource | ReferenceSource = (
            ReferenceSource(weights) if kernels is None else CompiledSource(weights, settings, kernels)
        )

    def encode(self, words: Sequence[int] | Ints) -> Float32:
        """Return the states of a sentence, [src_len, width] float32 within [-1, 1].

        Raises `KernelError` for a sentence without words, or with a word outside the vocabulary.
        """
        ids = np.ascontiguousarray(words, np.int64)
        check_words(ids, self.weights.vocab)
        return self._side.encode(ids)


class SharpDecoder:
    """Beam search of one sentence at a time on one thread (SHARP-01); each thread needs its own decoder.

    `settings` gives `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge`; the caller gives each sentence's `candidates`. Weights are packed once, here. Without compiled kernels numpy
    searches, with the same results.
    """

    def __init__(self, weights: SharpWeights, settings: DecoderSettings, *, max_len: int, stop_margin: float = 3.0) -> None:
        self.weights, self.settings, self.max_len, self.stop_margin = weights, settings, max_len, stop_margin
        kernels = native()
        self.compiled = kernels is not None
        self.member: Any = ReferenceMember(weights) if kernels is None else CompiledMember(weights, settings, kernels)

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence; arguments as of `decode_ensemble`."""
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints) -> ForcedSteps:
        """Follow a given translation (SHARP-10); only padding is banned."""
        words = np.ascontiguousarray(tokens, np.int64)
        request = SearchRequest(self.weights.tokens, 1, len(words))
        check_words(words, self.weights.vocab)
        check_sentence([self.weights], [source_states], request)
        return (compiled_forced if self.compiled else reference_forced)(self.member, source_states, request, words)


def decode_ensemble(
    decoders: Sequence[SharpDecoder],
    source_states: Sequence[Float32],
    candidates: Ints | None = None,
    forced_len: int | None = None,
    *,
    max_len: int | None = None,
    clock: bool = False,
) -> SharpTranslation:
    """Translate one sentence by different decoders of one vocabulary and one `settings`, each with its own source states.

    Their distributions are averaged arithmetically over one shared beam (SHARP-14), as is their attention for `attended`.

    Args:
        decoders: at most `MOST_MEMBERS`; the `stop_margin` and `max_len` of the first hold.
        source_states: [src_len, s] float32, of each decoder.
        candidates: words that may be chosen, int64, each once, with the end token (SHARP-02); None: all.
        forced_len: exact number of steps, without the end token, for timing.
        max_len: most steps for this sentence alone.
        clock: also return `StageSeconds`.

    Raises `KernelError` for arrays that no search could use.
    """
    first, forced = decoders[0], forced_len is not None
    steps = forced_len if forced_len is not None else first.max_len if max_len is None else max_len
    beam, fused = first.settings.beam, first.settings.fused
    request = SearchRequest(first.weights.tokens, beam, steps, forced, candidates, first.stop_margin, fused, clock)
    check_sentence([decoder.weights for decoder in decoders], source_states, request)
    decode = compiled_decode if first.compiled else reference_decode
    return decode([decoder.member for decoder in decoders], source_states, request)
