"""Shapes of sharp models: their multiply-adds, layer by layer (SHARP-13), and random models and sentences of such shapes.

Times depend on the sizes, and where states are merged on how many of them differ (SHARP-09): random weights are drawn so that
the beam of a random model branches as often as the paper's does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.kernels.sharp.model import (
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
from simnmt.profile.decoder_settings import DecoderSettings

KEPT_SHARES = {"computed": 0.0, "precomputed": 1.0, "frequent": 0.95}
"""Of a text's words, those whose products are kept (SHARP-06).

The paper credits the 95 % with 8,000 of 80,000 words to Zipf's law: plain, it gives 80.6 %; 95 % takes an exponent of 1.227.
"""
LayerKind = Literal["fc_relu", "fc_tanh", "gru", "lstm"]


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a target side."""

    bottom: Literal["attgru", "attlstm"]
    r: int
    """Width of the bottom cell."""
    e: int
    """Of an embedding."""
    s: int
    """Of a source state."""
    a: int
    """Of the space that attention is scored in."""
    stack: tuple[tuple[LayerKind, int], ...]
    """Kind and width of each layer above."""
    words: int
    """That the output layer scores: the candidates, or the vocabulary."""

    @classmethod
    def of(cls, weights: SharpWeights, candidates: int | None = None) -> DecoderShape:
        """The sizes of given weights; `candidates` None: the whole vocabulary."""
        bottom = weights.bottom
        stack = tuple((layer.kind, layer.width) for layer in weights.stack)
        e, a = weights.embedding.shape[1], len(bottom.attention.state)
        return cls(bottom.kind, bottom.width, e, weights.source_width, a, stack, candidates or weights.vocab)


@dataclass(frozen=True, slots=True)
class Operations:
    """Multiply-adds of one hypothesis in one step, and of one sentence before its first step."""

    recurrent: float
    """Products with the bottom cell's state, W h, and attention's W_a h."""
    embedding: float
    """Of the last word: V x and V_a x."""
    context: float
    """U c."""
    attention: float
    """Scores, and the sum that they weigh."""
    stack: tuple[float, ...]
    """Of each layer above."""
    output: float
    """The output layer's."""
    once: float
    """A sentence's: keys U_a s_j, and where kept the values U s_j."""

    @property
    def step(self) -> float:
        """All of one hypothesis in one step."""
        return self.recurrent + self.embedding + self.context + self.attention + sum(self.stack) + self.output


def layer_operations(kind: LayerKind, width: int, below: int) -> int:
    """Of a layer of the stack: at equal widths a GRU takes 6 times, an LSTM 8 times a fully connected one (SHARP-13)."""
    return GATES[kind] * width * (below + (width if kind in ("gru", "lstm") else 0))


def operations(
    shape: DecoderShape,
    settings: DecoderSettings,
    src_len: int,
    *,
    distinct_share: float = 1.0,
    kept_share: float | None = None,
) -> Operations:
    """What `settings` leave of a decoder's multiply-adds.

    `distinct_share`: of the beam's states, where they are merged (SHARP-09). `kept_share`: of the words whose products are
    kept (SHARP-06); None: all where embeddings are `precomputed`, 95 % where `frequent`.
    """
    gates = GATES[shape.bottom] * shape.r
    if kept_share is None:
        kept_share = KEPT_SHARES[settings.embeddings]
    kept = settings.attention == "precomputed"
    stack, below = [], shape.r
    for kind, width in shape.stack:
        stack.append(float(layer_operations(kind, width, below)))
        below = width
    return Operations(
        recurrent=(gates + shape.a) * shape.r * (distinct_share if settings.merge else 1.0),
        embedding=(gates + shape.a) * shape.e * (1 - kept_share),
        context=0.0 if kept else float(gates * shape.s),
        attention=float(src_len * (shape.a + (gates if kept else shape.s))),
        stack=tuple(stack),
        output=float(shape.words * below),
        once=float(src_len * shape.s * (shape.a + (gates if kept else 0))),
    )


@dataclass(frozen=True, slots=True)
class SourceOperations:
    """Multiply-adds of a source side over one sentence."""

    input: float
    """Products of all positions at once, those of embeddings included."""
    recurrent: float
    """Products with the states, one row at a time: each reads its whole matrix."""


def source_operations(
    weights: SourceWeights, settings: DecoderSettings, src_len: int, *, kept_share: float | None = None
) -> SourceOperations:
    """Count a source side's multiply-adds over a sentence; `kept_share` as of `operations`."""
    if kept_share is None:
        kept_share = KEPT_SHARES[settings.embeddings]
    inputs = [2 * layer.forward.input.size for layer in weights.layers]
    recurrent = sum(2 * layer.forward.state.size for layer in weights.layers)
    return SourceOperations(src_len * (inputs[0] * (1 - kept_share) + sum(inputs[1:])), float((src_len - 1) * recurrent))


def kept_bytes(shape: DecoderShape, words: int) -> int:
    """Of float32 products of so many words' embeddings, those of attention's V_a x included (SHARP-06)."""
    return 4 * words * (GATES[shape.bottom] * shape.r + shape.a)


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
            state_weight = self._uniform(wide, width) if recurrent else None
            bias = np.zeros(wide, np.float32) if recurrent else None
            stack.append(StackLayer(kind, self._uniform(wide, below), state_weight, bias))
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
        drawn: Float32 = self._generator.random(shape, np.float32)
        return (drawn - np.float32(0.5)) * np.float32(2.0 * min(reach * (3.0 / shape[-1]) ** 0.5, 1.0))

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
