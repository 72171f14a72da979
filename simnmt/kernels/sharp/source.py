"""The source side of a sharp model: one sentence's words to the states that its decoder looks at (SHARP-16).

The paper's words a second include it, so the decoder's techniques apply here too: 16-bit products (SHARP-05), products of
source embeddings kept (SHARP-06), activations by table or polynomial (SHARP-08). Input products are made of all positions of a
layer at once in every variant. Attention kept and states merged have no counterpart here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.errors import KernelError
from simnmt.kernels.native_at import native_at
from simnmt.kernels.sharp.arithmetic import Arithmetic, Floats, Linear, arithmetic
from simnmt.kernels.sharp.compiled import CompiledSource
from simnmt.kernels.sharp.reference_member import gru, lstm
from simnmt.kernels.sharp.weights import Float32, SourceDirection, SourceLayer, SourceWeights, embedding_limit


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
