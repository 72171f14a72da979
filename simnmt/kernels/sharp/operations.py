"""Multiply-adds of a sharp model, counted layer by layer (SHARP-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simnmt.costs.decoder_settings import DecoderSettings
from simnmt.kernels.sharp.weights import GATES, SharpWeights, SourceWeights

KEPT_SHARES = {"computed": 0.0, "precomputed": 1.0, "frequent": 0.95}
"""Of a text's words, those whose products are kept (SHARP-06)."""
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


def zipf_share(kept: int, words: int, exponent: float = 1.0) -> float:
    """Of a text, the share of words among the `kept` most frequent of `words`, by Zipf's law (SHARP-06).

    The paper credits its 95 % with 8,000 of 80,000 to this law: plain, it gives 80.6 %; 95 % takes an exponent of 1.227.
    """
    frequency = np.arange(1, words + 1, dtype=np.float64) ** -exponent
    return float(frequency[:kept].sum() / frequency.sum())


def _paper(*stack: tuple[LayerKind, int], bottom: Literal["attgru", "attlstm"] = "attgru") -> DecoderShape:
    return DecoderShape(bottom, 1024, 512, 1024, 1024, stack, 500)


_TOP: tuple[LayerKind, int] = ("fc_tanh", 1024)
_RELU: tuple[LayerKind, int] = ("fc_relu", 768)
_GRU: tuple[LayerKind, int] = ("gru", 1024)
_LSTM: tuple[LayerKind, int] = ("lstm", 1024)

PAPER: dict[str, DecoderShape] = {
    "S1": _paper(),
    "S2": _paper(_GRU),
    "S3": _paper(*[_RELU] * 3, _TOP),
    "S4": _paper(*[_RELU] * 7, _TOP),
    "S5": _paper(*[_RELU] * 7, _GRU),
    "S6": _paper(*[_RELU] * 15, _TOP),
    "S7": _paper(*[_LSTM] * 7, bottom="attlstm"),
}
"""The decoders of Table 2 (SHARP-15, SHARP-16). Not stated, and taken here: embeddings of 512 and attention in 1024."""
