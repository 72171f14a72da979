"""Small attentional decoders with weights drawn at random, spread enough that beams have something to choose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

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
from simnmt.kernels.sharp.model_shapes import DecoderShape
from simnmt.nmt.architecture import SHARP_MODELS

PAPER = {
    name.removeprefix("sharp-").upper(): DecoderShape(
        "attgru" if model.cell == "gru" else "attlstm",
        model.hidden,
        model.embedding,
        2 * model.source_hidden,
        model.compared,
        tuple((block.kind, block.width) for block in model.layers),
        500,
    )
    for name, model in SHARP_MODELS.items()
    if name != "sharp"
}
"""The decoders of Table 2 (SHARP-15, SHARP-16), with 500 candidates."""
TOKENS = SharpTokens(start=2, eos=3, unk=1, pad=0)
Layer = tuple[Literal["fc_relu", "fc_tanh", "gru", "lstm"], int]


def matrix(rng: np.random.Generator, *shape: int, reach: float = 1.0) -> Float32:
    """Uniform, so scaled that a product with values about 1 is of size `reach`."""
    spread = reach * (3 / shape[-1]) ** 0.5
    return rng.uniform(-spread, spread, shape).astype(np.float32).clip(-1, 1)


def weights(
    seed: int = 0,
    *,
    kind: Literal["attgru", "attlstm"] = "attgru",
    form: Literal["dot_of_tanh", "additive"] = "dot_of_tanh",
    r: int = 37,
    e: int = 21,
    s: int = 29,
    a: int = 19,
    vocab: int = 67,
    stack: Sequence[Layer] = (),
    tokens: SharpTokens = TOKENS,
) -> SharpWeights:
    rng = np.random.default_rng(seed)
    attention = Attention(
        form,
        matrix(rng, a, r),
        matrix(rng, a, e),
        matrix(rng, a, s),
        matrix(rng, a, reach=3.0) if form == "additive" else None,
    )
    gates = GATES[kind] * r
    bottom = BottomCell(
        kind, matrix(rng, gates, r), matrix(rng, gates, e), matrix(rng, gates, s), matrix(rng, gates), attention
    )
    layers, below = [], r
    for layer_kind, width in stack:
        rows = GATES[layer_kind] * width
        recurrent = layer_kind in ("gru", "lstm")
        state = matrix(rng, rows, width) if recurrent else None
        bias = matrix(rng, rows, reach=0.3) if recurrent else None
        layers.append(StackLayer(layer_kind, matrix(rng, rows, below, reach=1.5), state, bias))
        below = width
    embedding = rng.uniform(-1, 1, (vocab, e)).astype(np.float32)
    output = matrix(rng, vocab, below, reach=4.0)
    return SharpWeights(embedding, bottom, tuple(layers), output, rng.normal(0, 0.3, vocab).astype(np.float32), tokens)


def source(seed: int = 0, src_len: int = 7, s: int = 29) -> Float32:
    return np.tanh(np.random.default_rng(1000 + seed).normal(0, 1, (src_len, s))).astype(np.float32)


def source_weights(
    seed: int = 0, *, kind: Literal["gru", "lstm"] = "gru", layers: int = 2, w: int = 19, e: int = 21, vocab: int = 50
) -> SourceWeights:
    """A source side with biases, so that each of them counts."""
    rng, below, drawn = np.random.default_rng(seed), e, list[SourceLayer]()

    def direction(inputs: int) -> SourceDirection:
        gates = GATES[kind] * w
        reset_bias = matrix(rng, w) if kind == "gru" else None
        return SourceDirection(matrix(rng, gates, inputs), matrix(rng, gates, w), matrix(rng, gates, reach=0.5), reset_bias)

    for _ in range(layers):
        drawn.append(SourceLayer(kind, direction(below), direction(below)))
        below = 2 * w
    return SourceWeights(rng.uniform(-1, 1, (vocab, e)).astype(np.float32), tuple(drawn))
