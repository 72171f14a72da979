"""The sharp decoder and its source encoder: one model with the techniques that its settings name (SHARP-01, SHARP-16).

The paper's words per second include the source side, so the decoder's techniques apply there too: 16-bit products (SHARP-05),
products of source embeddings kept (SHARP-06), activations by table or polynomial (SHARP-08). Input products are computed for
all positions of a layer at once in every variant. Kept attention and merged states have no counterpart there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_library import native_at
from simnmt.kernels.sharp.model import (
    Float32,
    ForcedSteps,
    SearchRequest,
    SharpTranslation,
    SharpWeights,
    SourceDirection,
    SourceLayer,
    SourceWeights,
    candidate_positions,
    check_candidates,
    check_source,
    embedding_limit,
)
from simnmt.kernels.sharp.native_search import MOST_MEMBERS, CompiledMember, CompiledSource, compiled_decode, compiled_forced
from simnmt.kernels.sharp.reference import (
    Arithmetic,
    Floats,
    Linear,
    ReferenceMember,
    arithmetic,
    gru,
    lstm,
    reference_decode,
    reference_forced,
)
from simnmt.profile.decoder_settings import DecoderSettings


class SourceEncoder:
    """Encodes one sentence at a time, on one thread. One encoder serves one thread.

    Of `settings`, `gemm` (None: float32), `embeddings`, `frequent_words` and `activations` say how. Weights are packed here,
    once; a sentence allocates its result alone. `level`: as of `SharpDecoder`.

    Example:
        >>> encoder = SourceEncoder(weights, DecoderSettings(gemm="int16"), most_src_len=100)
        >>> encoder.encode([17, 4, 3]).shape
        (3, 1024)
    """

    def __init__(
        self, weights: SourceWeights, settings: DecoderSettings, *, most_src_len: int, level: str | None = None
    ) -> None:
        if most_src_len < 1:
            raise KernelError(f"most_src_len is {most_src_len}, not at least 1")
        self.weights, self.settings, self.most_src_len = weights, settings, most_src_len
        native = native_at(level)
        self.level = None if native is None else native.level
        """Of the native kernels; None for numpy: the same results, slower."""
        self._side: CompiledSource | ReferenceSource
        if native is None:
            self._side = ReferenceSource(weights, arithmetic(settings))
        else:
            self._side = CompiledSource(weights, settings, native, most_src_len)

    def encode(self, words: Sequence[int] | NDArray[np.int64]) -> Float32:
        """Return a sentence's states, [src_len, width] float32 within [-1, 1].

        Raises `KernelError` for a sentence of no word, of more than `most_src_len`, or of a word that is not in the vocabulary.
        """
        ids = np.ascontiguousarray(words, np.int64)
        if ids.ndim != 1 or not 1 <= len(ids) <= self.most_src_len:
            raise KernelError(f"a source has the shape {list(ids.shape)}, not [1 to most_src_len, {self.most_src_len}]")
        if ids.min() < 0 or ids.max() >= self.weights.vocab:
            raise KernelError(f"a source holds a word outside the vocabulary of {self.weights.vocab}")
        return self._side.encode(ids)


class ReferenceSource:
    """The source side in plain numpy: the C kernels are compared with it, and it runs where there is no compiler."""

    def __init__(self, weights: SourceWeights, arithmetic: Arithmetic) -> None:
        self._embedding, self._arithmetic = weights.embedding, arithmetic
        self._layers, limit = [], embedding_limit(weights.embedding)
        for layer in weights.layers:
            self._layers.append(_Layer(layer, limit, arithmetic))
            limit = 1.0

    def encode(self, words: NDArray[np.int64]) -> Floats:
        """See `SourceEncoder.encode`; in the arithmetic's precision."""
        states: Floats = self._embedding[words].astype(self._arithmetic.dtype)
        for layer in self._layers:
            states = layer.run(states)
        return states


class _Layer:
    """One bidirectional layer."""

    def __init__(self, layer: SourceLayer, limit: float, arithmetic: Arithmetic) -> None:
        self._kind, self._width, self._arithmetic = layer.kind, layer.width, arithmetic
        both = layer.forward, layer.backward
        # One matrix of both directions: its scale is that of the C kernels' stacked product.
        self._input = arithmetic.linear(np.concatenate([side.input for side in both]), limit)
        self._directions = [(side, arithmetic.linear(side.state, 1.0)) for side in both]

    def run(self, below: Floats) -> Floats:
        """[src_len, in] to [src_len, 2 width]."""
        forward, backward = np.split(self._input(below), 2, axis=1)
        ahead = self._steps(forward, *self._directions[0])
        behind = self._steps(backward[::-1], *self._directions[1])[::-1]
        return np.ascontiguousarray(np.concatenate((ahead, behind), axis=1))

    def _steps(self, given: Floats, direction: SourceDirection, state: Linear) -> Floats:
        dtype, w = self._arithmetic.dtype, self._width
        tanh, sigmoid = self._arithmetic.tanh, self._arithmetic.sigmoid
        h, cell = np.zeros((1, w), dtype), np.zeros((1, w), dtype)
        given, states = given + direction.bias.astype(dtype), np.empty((len(given), w), dtype)
        for position in range(len(given)):
            carried = state(h)
            if self._kind == "gru":
                assert direction.reset_bias is not None
                carried = np.concatenate(
                    (carried[:, : 2 * w], carried[:, 2 * w :] + direction.reset_bias.astype(dtype)), axis=1
                )
                h = gru(carried, given[position : position + 1], h, tanh, sigmoid)
            else:
                h, cell = lstm(carried + given[position : position + 1], cell, tanh, sigmoid)
            states[position] = h[0]
        return states


Ints = NDArray[np.int64]


class SharpDecoder:
    """Beam search of one sentence at a time, on one thread (SHARP-01). One decoder serves one thread.

    Of `settings`, `beam`, `fused`, `gemm` (None: float32), `embeddings`, `frequent_words`, `attention`, `activations` and
    `merge` say how; `candidates` is the caller's, who hands each sentence its list. Weights are packed here, once.

    `level`: the widest of the native kernels to be used, or "none" for the search in numpy, as the variable SIMNMT_KERNELS
    says it.

    Raises `KernelError` where a sentence may be longer than memory was set aside for, and for arrays of a wrong kind.
    """

    def __init__(
        self,
        weights: SharpWeights,
        settings: DecoderSettings,
        *,
        max_len: int,
        most_src_len: int,
        stop_margin: float = 3.0,
        level: str | None = None,
    ) -> None:
        if max_len < 1 or most_src_len < 1:
            raise KernelError(f"max_len and most_src_len are {max_len} and {most_src_len}, not at least 1")
        self.weights, self.settings = weights, settings
        self.max_len, self.most_src_len, self.stop_margin = max_len, most_src_len, stop_margin
        native = native_at(level)
        self.level = None if native is None else native.level
        """Of the native kernels that search; None for the search in numpy: the same results, and no such speed."""
        self._member: CompiledMember | ReferenceMember
        if native is None:
            self._member = ReferenceMember(weights, arithmetic(settings))
        else:
            self._member = CompiledMember(weights, settings, native, most_src_len)

    @property
    def compiled(self) -> bool:
        """Whether the search runs in C."""
        return self.level is not None

    def decode(
        self, source_states: Float32, candidates: Ints | None = None, forced_len: int | None = None, *, clock: bool = False
    ) -> SharpTranslation:
        """Translate one sentence.

        `source_states` [src_len, s] float32; `candidates` words that may be chosen, int64, each once, the end token among them
        (SHARP-02); None: all. `forced_len`: so many steps, the end token banned, for timing. `clock`: see `StageSeconds`.
        """
        return decode_ensemble([self], [source_states], candidates, forced_len, clock=clock)

    def forced(self, source_states: Float32, tokens: Sequence[int] | Ints, candidates: Ints | None = None) -> ForcedSteps:
        """Follow a given translation, whose words are among the candidates (SHARP-10); nothing is banned but padding."""
        source, words = check_source(self.weights, source_states, self.most_src_len), np.ascontiguousarray(tokens, np.int64)
        check_candidates(self.weights, candidates, needs_end=False, forced=False)
        places, special = candidate_positions(words, candidates, self.weights.vocab), self.weights.tokens
        if isinstance(self._member, CompiledMember):
            return compiled_forced(self._member, source, special, words, places, candidates)
        return reference_forced(self._member, source, special, words, places, candidates)


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
    first one's `stop_margin` holds. `max_len`: most steps for this sentence, at most the decoders' own. Raises `KernelError` as
    `SharpDecoder` does, and for decoders that do not fit together.
    """
    if not 1 <= len(decoders) <= MOST_MEMBERS:
        raise KernelError(f"an ensemble is of 1 to {MOST_MEMBERS} decoders, not of {len(decoders)}")
    if len({(decoder.weights.vocab, decoder.weights.tokens, decoder.settings, decoder.level) for decoder in decoders}) != 1:
        raise KernelError("an ensemble's decoders do not share vocabulary, special tokens, settings and level")
    if len({id(decoder) for decoder in decoders}) != len(decoders):
        raise KernelError("an ensemble names one decoder twice: each carries one state, so make one for each member")
    sources = [
        check_source(decoder.weights, states, decoder.most_src_len)
        for decoder, states in zip(decoders, source_states, strict=True)
    ]
    if len({len(source) for source in sources}) != 1:
        raise KernelError("source_states of an ensemble are of different lengths, though it reads one sentence")
    first, longest = decoders[0], min(decoder.max_len for decoder in decoders)
    if forced_len is not None and not 1 <= forced_len <= longest:
        raise KernelError(f"forced_len is {forced_len}, not 1 to max_len, {longest}")
    forced = forced_len is not None
    check_candidates(first.weights, candidates, needs_end=not forced, forced=forced)
    if max_len is not None and not 1 <= max_len <= longest:
        raise KernelError(f"max_len is {max_len}, not 1 to the decoder's own, {longest}")
    steps = forced_len or max_len or longest
    asked = SearchRequest(first.weights.tokens, first.settings.beam, steps, forced, candidates, first.stop_margin)
    compiled = [decoder._member for decoder in decoders if isinstance(decoder._member, CompiledMember)]
    if compiled:
        return compiled_decode(compiled, sources, asked, fused=first.settings.fused, clock=clock)
    references = [decoder._member for decoder in decoders if isinstance(decoder._member, ReferenceMember)]
    return reference_decode(references, sources, asked)
