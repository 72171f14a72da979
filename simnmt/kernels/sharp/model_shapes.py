"""Shapes of sharp models, their multiply-adds by layer (SHARP-13), and random models and sentences of given shapes.

Times depend on the sizes and, with merged states, on the number of distinct states (SHARP-09): random weights are drawn so that
the beam of a random model branches as often as the beam of the paper.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simnmt.base.random_streams import stream
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.model import GATES, Float32, SharpWeights, SourceWeights
from simnmt.profile.decoder_settings import DecoderSettings

KEPT_SHARES = {"computed": 0.0, "precomputed": 1.0, "frequent": 0.95}
"""Share of a text's words whose products are kept (SHARP-06).

The paper attributes 95 % with 8,000 of 80,000 words to Zipf's law. Its plain form gives 80.6 %; 95 % needs an exponent of
1.227.
"""
LayerKind = Literal["fc_relu", "fc_tanh", "gru", "lstm"]


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """Sizes of a target side."""

    bottom: Literal["attgru", "attlstm"]
    r: int
    """Width of the bottom cell."""
    e: int
    """Width of an embedding."""
    s: int
    """Width of a source state."""
    a: int
    """Width of the space in which attention is scored."""
    stack: tuple[tuple[LayerKind, int], ...]
    """Kind and width of each layer above."""
    words: int
    """Words that the output layer scores: the candidates, or the vocabulary."""

    @classmethod
    def of(cls, weights: SharpWeights, candidates: int | None = None) -> DecoderShape:
        """Return the sizes of given weights; without `candidates` the output layer scores the whole vocabulary."""
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
    """Products with the last word: V x and V_a x."""
    context: float
    """U c."""
    attention: float
    """Scores, and their weighted sum."""
    stack: tuple[float, ...]
    """By layer above the bottom cell."""
    output: float
    once: float
    """Of a sentence: keys U_a s_j, and if kept the values U s_j."""

    @property
    def step(self) -> float:
        """Multiply-adds of one hypothesis in one step."""
        return self.recurrent + self.embedding + self.context + self.attention + sum(self.stack) + self.output


def layer_operations(kind: LayerKind, width: int, below: int) -> int:
    """Return the multiply-adds of a layer of the stack.

    At equal widths a GRU takes 6 times and an LSTM 8 times those of a fully connected layer (SHARP-13).
    """
    return GATES[kind] * width * (below + (width if kind in ("gru", "lstm") else 0))


def operations(shape: DecoderShape, settings: DecoderSettings, src_len: int, *, distinct_share: float = 1.0) -> Operations:
    """Count the multiply-adds of a decoder with these settings; kept products of embeddings take none (SHARP-06).

    `distinct_share`: share of distinct states in the beam, if they are merged (SHARP-09).
    """
    gates = GATES[shape.bottom] * shape.r
    kept = settings.attention == "precomputed"
    widths = [shape.r, *(width for _, width in shape.stack)]
    return Operations(
        recurrent=(gates + shape.a) * shape.r * (distinct_share if settings.merge else 1.0),
        embedding=(gates + shape.a) * shape.e * (1 - KEPT_SHARES[settings.embeddings]),
        context=0.0 if kept else float(gates * shape.s),
        attention=float(src_len * (shape.a + (gates if kept else shape.s))),
        stack=tuple(
            float(layer_operations(kind, width, below)) for (kind, width), below in zip(shape.stack, widths, strict=False)
        ),
        output=float(shape.words * widths[-1]),
        once=float(src_len * shape.s * (shape.a + (gates if kept else 0))),
    )


class SourceOperations(NamedTuple):
    """Multiply-adds of a source side over one sentence."""

    input: float
    """Products of all positions at once, including those of embeddings."""
    recurrent: float
    """Products with the states, one row at a time: each reads its whole matrix."""


def source_operations(weights: SourceWeights, settings: DecoderSettings, src_len: int) -> SourceOperations:
    """Count a source side's multiply-adds over a sentence; kept products of embeddings take none (SHARP-06)."""
    inputs = [2 * layer.forward.input.size for layer in weights.layers]
    recurrent = sum(2 * layer.forward.state.size for layer in weights.layers)
    computed = inputs[0] * (1 - KEPT_SHARES[settings.embeddings]) + sum(inputs[1:])
    return SourceOperations(src_len * computed, float((src_len - 1) * recurrent))


TOKENS = sharp.SharpTokens(start=1, eos=0, unk=2, pad=3)
WORD_REACH, OUTPUT_REACH = 2.0, 8.0
"""Factors of the spread of a word's input to the states, and of the logits; products have a spread of 1.

With both factors at 1, half of a beam's states are distinct. With these it is 0.70 of 6, as in the paper (SHARP-09), in
sentences of 25 to 28 words with the bottom cell alone (0.68 to 0.74); layers above it lead some searches into loops and give
0.5 to 0.9.
"""


class RandomModels:
    """Draws models one after another; large tables of the same size are shared."""

    def __init__(self, seed: int = 1) -> None:
        self._generator = stream(seed, 0, "sharp weights")
        self._tables: dict[tuple[int, int, float], Float32] = {}

    def of(self, shape: DecoderShape, vocab: int, form: Literal["dot_of_tanh", "additive"] = "dot_of_tanh") -> SharpWeights:
        """Draw a target side of these sizes; `shape.words` counts candidates, `vocab` words.

        Embeddings are uniform in [-1, 1]; weights in this range have variance 1 / inputs, scaled by `WORD_REACH` and
        `OUTPUT_REACH`.
        """
        rows, r, e, s, a = GATES[shape.bottom] * shape.r, shape.r, shape.e, shape.s, shape.a
        score = self._uniform(a) if form == "additive" else None
        attention = sharp.Attention(form, self._uniform(a, r), self._uniform(a, e), self._uniform(a, s), score)
        state, word, context = self._uniform(rows, r), self._uniform(rows, e, reach=WORD_REACH), self._uniform(rows, s)
        bottom = sharp.BottomCell(shape.bottom, state, word, context, np.zeros(rows, np.float32), attention)
        stack, below = list[sharp.StackLayer](), r
        for kind, width in shape.stack:
            rows, recurrent = GATES[kind] * width, kind in ("gru", "lstm")
            state_weight, bias = (self._uniform(rows, width), np.zeros(rows, np.float32)) if recurrent else (None, None)
            stack.append(sharp.StackLayer(kind, self._uniform(rows, below), state_weight, bias))
            below = width
        embedding, output = self._table(vocab, e, (e / 3.0) ** 0.5), self._table(vocab, below, OUTPUT_REACH)
        return SharpWeights(embedding, bottom, tuple(stack), output, np.zeros(vocab, np.float32), TOKENS)

    def source_of(self, kind: Literal["gru", "lstm"], layers: int, width: int, e: int, vocab: int) -> SourceWeights:
        """Draw a source side of `layers` bidirectional layers of this width per direction, with embeddings of width e."""
        gates, below, drawn = GATES[kind] * width, e, list[sharp.SourceLayer]()

        def direction() -> sharp.SourceDirection:
            reset_bias = np.zeros(width, np.float32) if kind == "gru" else None
            fed, carried = self._uniform(gates, below), self._uniform(gates, width)
            return sharp.SourceDirection(fed, carried, np.zeros(gates, np.float32), reset_bias)

        for _ in range(layers):
            drawn.append(sharp.SourceLayer(kind, direction(), direction()))
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
    """Draw source states [src_len, s] within [-1, 1], and candidates in ascending order, with the end token.

    `covered`: share of the candidates among the first `frequent` words, as the paper's cache of embeddings covers tokens.
    """
    generator = stream(seed, 0, "sharp sentence")
    states = generator.random((src_len, weights.source_width), np.float32) * np.float32(1.8) - np.float32(0.9)
    frequent = min(frequent, weights.vocab)
    rare = min(round((1.0 - covered) * candidates), weights.vocab - frequent)
    words = generator.choice(np.arange(4, frequent), candidates - rare - 1, replace=False)
    others = frequent + generator.choice(weights.vocab - frequent, rare, replace=False)
    return states, np.sort(np.concatenate([[weights.tokens.eos], words, others]).astype(np.int64))


def random_words(vocab: int, src_len: int, covered: float, frequent: int, seed: int = 1) -> NDArray[np.int64]:
    """Draw a source sentence of `src_len` words with the end token; `covered` and `frequent` as in `random_sentence`."""
    generator, frequent = stream(seed, 0, "sharp source"), min(frequent, vocab)
    rare = min(round((1.0 - covered) * src_len), vocab - frequent)
    words = generator.integers(4, frequent, src_len)
    words[generator.permutation(src_len - 1)[:rare]] = generator.integers(frequent, max(vocab, frequent + 1), rare)
    words[-1] = TOKENS.eos
    return words.astype(np.int64)
