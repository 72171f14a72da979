"""Random models and sentences in the sizes of the paper's models: what times and multiply-adds are taken on.

Times depend on the sizes, and where states are merged on how many of them differ (SHARP-09): weights are drawn so that the
beam of a random model branches as often as the paper's does.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.sharp.operations import DecoderShape
from simnmt.kernels.sharp.weights import (
    GATES,
    Attention,
    BottomCell,
    Float32,
    SharpTokens,
    SharpWeights,
    SourceDirection,
    SourceLayer,
    SourceWeights,
    StackLayer,
)
from simnmt.streams import stream

TOKENS = SharpTokens(start=1, eos=0, unk=2, pad=3)
WORD_REACH, OUTPUT_REACH = 2.0, 8.0
"""Of what a word says to the states, and of the logits, times as wide as products about 1 are.

With both at 1 half of a beam's states differ. With these it is 0.70 of 6, as the paper counts (SHARP-09), in sentences of
25 to 28 words by the bottom cell alone (0.68 to 0.74); with layers above it, which lead some into loops, 0.5 to 0.9.
"""


class RandomModels:
    """Draws models one after another; their large tables are shared where they have the same size."""

    def __init__(self, seed: int = 1) -> None:
        self._generator = stream(seed, 0, "sharp weights")
        self._tables: dict[tuple[int, int, float], Float32] = {}

    def of(self, shape: DecoderShape, vocab: int, form: Literal["dot_of_tanh", "additive"] = "dot_of_tanh") -> SharpWeights:
        """A target side of these sizes, its words but for the vocabulary (`shape.words` counts candidates).

        Embeddings are uniform in [-1, 1]; weights within that, of variance 1 / inputs but for `WORD_REACH` and `OUTPUT_REACH`.
        """
        rows = GATES[shape.bottom] * shape.r
        score = self._uniform(shape.a) if form == "additive" else None
        attention = Attention(
            form, self._uniform(shape.a, shape.r), self._uniform(shape.a, shape.e), self._uniform(shape.a, shape.s), score
        )
        bottom = BottomCell(
            shape.bottom,
            self._uniform(rows, shape.r),
            self._uniform(rows, shape.e, reach=WORD_REACH),
            self._uniform(rows, shape.s),
            np.zeros(rows, np.float32),
            attention,
        )
        stack, below = list[StackLayer](), shape.r
        for kind, width in shape.stack:
            wide = GATES[kind] * width
            recurrent = kind in ("gru", "lstm")
            own = self._uniform(wide, width) if recurrent else None
            bias = np.zeros(wide, np.float32) if recurrent else None
            stack.append(StackLayer(kind, self._uniform(wide, below), own, bias))
            below = width
        return SharpWeights(
            self._table(vocab, shape.e, (shape.e / 3.0) ** 0.5),
            bottom,
            tuple(stack),
            self._table(vocab, below, OUTPUT_REACH),
            np.zeros(vocab, np.float32),
            TOKENS,
        )

    def source_of(self, kind: Literal["gru", "lstm"], layers: int, width: int, e: int, vocab: int) -> SourceWeights:
        """A source side: so many bidirectional layers of this width in each direction, embeddings of size e."""
        gates, below, drawn = GATES[kind] * width, e, list[SourceLayer]()

        def direction() -> SourceDirection:
            reset_bias = np.zeros(width, np.float32) if kind == "gru" else None
            fed, carried = self._uniform(gates, below), self._uniform(gates, width)
            return SourceDirection(fed, carried, np.zeros(gates, np.float32), reset_bias)

        for _ in range(layers):
            drawn.append(SourceLayer(kind, direction(), direction()))
            below = 2 * width
        return SourceWeights(self._table(vocab, e, (e / 3.0) ** 0.5), tuple(drawn))

    def _uniform(self, *shape: int, reach: float = 1.0) -> Float32:
        found: Float32 = self._generator.random(shape, np.float32)
        return (found - np.float32(0.5)) * np.float32(2.0 * min(reach * (3.0 / shape[-1]) ** 0.5, 1.0))

    def _table(self, rows: int, width: int, reach: float) -> Float32:
        key = rows, width, reach
        if key not in self._tables:
            self._tables[key] = self._uniform(rows, width, reach=reach)
        return self._tables[key]


def random_sentence(
    weights: SharpWeights, src_len: int, candidates: int, covered: float, frequent: int, seed: int = 1
) -> tuple[Float32, NDArray[np.int64]]:
    """(source states [src_len, s] within [-1, 1], candidates ascending), the end token among these.

    `covered`: share of the candidates among the `frequent` first words, as the paper's cache of embeddings covers tokens.
    """
    generator = stream(seed, 0, "sharp sentence")
    states = generator.random((src_len, weights.source_width), np.float32) * np.float32(1.8) - np.float32(0.9)
    frequent = min(frequent, weights.vocab)
    rare = min(round((1.0 - covered) * candidates), weights.vocab - frequent)
    words = generator.choice(np.arange(4, frequent), candidates - rare - 1, replace=False)
    others = frequent + generator.choice(weights.vocab - frequent, rare, replace=False)
    return states, np.sort(np.concatenate([[weights.tokens.eos], words, others]).astype(np.int64))


def random_words(vocab: int, src_len: int, covered: float, frequent: int, seed: int = 1) -> NDArray[np.int64]:
    """A source sentence of so many words, the last one its end; `covered` and `frequent` as of `random_sentence`, by word."""
    generator, frequent = stream(seed, 0, "sharp source"), min(frequent, vocab)
    rare = min(round((1.0 - covered) * src_len), vocab - frequent)
    words = generator.integers(4, frequent, src_len)
    words[generator.permutation(src_len - 1)[:rare]] = generator.integers(frequent, max(vocab, frequent + 1), rare)
    words[-1] = TOKENS.eos
    return words.astype(np.int64)
