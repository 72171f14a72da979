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

from simnmt.kernels.beam_search import Ints, SharpTranslation
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import native
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.compiled import MOST_MEMBERS, CompiledMember, CompiledSource, compiled_decode, compiled_forced
from simnmt.kernels.sharp.model import Float32, ForcedSteps, SearchRequest, SharpWeights
from simnmt.kernels.sharp.reference import Arithmetic, ReferenceMember, ReferenceSource, reference_decode, reference_forced
from simnmt.profile.decoder_settings import DecoderSettings


class SourceEncoder:
    """Encodes one sentence at a time on one thread; each thread needs its own encoder.

    `settings` gives `gemm` (None: float32), `embeddings`, `frequent_words` and `activations`. Weights are packed once, here; a
    sentence allocates only its result.

    Example:
        >>> encoder = SourceEncoder(weights, DecoderSettings(gemm="int16"), most_src_len=100)
        >>> encoder.encode([17, 4, 3]).shape
        (3, 1024)
    """

    def __init__(self, weights: sharp.SourceWeights, settings: DecoderSettings, *, most_src_len: int) -> None:
        if most_src_len < 1:
            raise KernelError(f"most_src_len is {most_src_len}, not at least 1")
        self.weights, self.settings, self.most_src_len = weights, settings, most_src_len
        kernels = native()
        self._side: CompiledSource | ReferenceSource = (
            ReferenceSource(weights, Arithmetic.of(settings)) if kernels is None else CompiledSource(weights, settings, kernels)
        )

    def encode(self, words: Sequence[int] | NDArray[np.int64]) -> Float32:
        """Return the states of a sentence, [src_len, width] float32 within [-1, 1].

        Raises `KernelError` for a sentence without words, with more than `most_src_len`, or with a word outside the vocabulary.
        """
        ids = np.ascontiguousarray(words, np.int64)
        if ids.ndim != 1 or not 1 <= len(ids) <= self.most_src_len:
            raise KernelError(f"a source has the shape {list(ids.shape)}, not [1 to most_src_len, {self.most_src_len}]")
        if ids.min() < 0 or ids.max() >= self.weights.vocab:
            raise KernelError(f"a source holds a word outside the vocabulary of {self.weights.vocab}")
        return self._side.encode(ids)


class SharpDecoder:
    """Beam search of one sentence at a time on one thread (SHARP-01); each thread needs its own decoder.

    `settings` gives `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge`; the caller gives each sentence's `candidates`. Weights are packed once, here. Without compiled kernels numpy
    searches.

    Raises `KernelError` for a sentence longer than `most_src_len`, and for arrays of a wrong kind.
    """

    def __init__(
        self,
        weights: SharpWeights,
        settings: DecoderSettings,
        *,
        max_len: int,
        most_src_len: int,
        stop_margin: float = 3.0,
    ) -> None:
        if max_len < 1 or most_src_len < 1:
            raise KernelError(f"max_len and most_src_len are {max_len} and {most_src_len}, not at least 1")
        self.weights, self.settings = weights, settings
        self.max_len, self.most_src_len, self.stop_margin = max_len, most_src_len, stop_margin
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
        `StageSeconds`.
        """
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints, candidates: Ints | None = None) -> ForcedSteps:
        """Follow a given translation, whose words are among the candidates (SHARP-10); only padding is banned."""
        source, words = (
            sharp.check_source(self.weights, source_states, self.most_src_len),
            np.ascontiguousarray(tokens, np.int64),
        )
        sharp.check_candidates(self.weights, candidates, needs_end=False, forced=False)
        places = sharp.candidate_positions(words, candidates, self.weights.vocab)
        request = SearchRequest(self.weights.tokens, 1, len(words), False, candidates, self.stop_margin)
        return (compiled_forced if self.compiled else reference_forced)(self._member, source, request, words, places)


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
    `stop_margin` of the first decoder holds. `max_len`: most steps for this sentence, at most those of the decoders. Raises
    `KernelError` as `SharpDecoder` does, and for decoders that do not fit together.
    """
    if not 1 <= len(decoders) <= MOST_MEMBERS:
        raise KernelError(f"an ensemble is of 1 to {MOST_MEMBERS} decoders, not of {len(decoders)}")
    if len({(decoder.weights.vocab, decoder.weights.tokens, decoder.settings, decoder.compiled) for decoder in decoders}) != 1:
        raise KernelError("an ensemble's decoders do not share vocabulary, special tokens, settings and kernels")
    if len({id(decoder) for decoder in decoders}) != len(decoders):
        raise KernelError("an ensemble names one decoder twice: each carries one state, so make one for each member")
    sources = [
        sharp.check_source(decoder.weights, states, decoder.most_src_len)
        for decoder, states in zip(decoders, source_states, strict=True)
    ]
    if len({len(source) for source in sources}) != 1:
        raise KernelError("source_states of an ensemble are of different lengths, though it reads one sentence")
    first, longest = decoders[0], min(decoder.max_len for decoder in decoders)
    if forced_len is not None and not 1 <= forced_len <= longest:
        raise KernelError(f"forced_len is {forced_len}, not 1 to max_len, {longest}")
    forced = forced_len is not None
    sharp.check_candidates(first.weights, candidates, needs_end=not forced, forced=forced)
    if max_len is not None and not 1 <= max_len <= longest:
        raise KernelError(f"max_len is {max_len}, not 1 to the decoder's own, {longest}")
    steps = forced_len or max_len or longest
    settings, tokens = first.settings, first.weights.tokens
    request = SearchRequest(
        tokens, settings.beam, steps, forced, candidates, first.stop_margin, fused=settings.fused, clock=clock
    )
    return (compiled_decode if first.compiled else reference_decode)(
        [decoder._member for decoder in decoders], sources, request
    )
