"""Small attentional decoders with weights drawn at random, spread enough that beams have something to choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from simnmt.kernels.sharp.model import Float32, SharpTokens, SharpWeights, SourceWeights
from simnmt.kernels.sharp.model_shapes import DecoderShape, RandomModels
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
) -> SharpWeights:
    """A target side with biases, so that each of them counts."""
    model = RandomModels(seed).of(DecoderShape(kind, r, e, s, a, tuple(stack), vocab), vocab, form)
    _draw_biases(seed, [model.bottom.bias, model.output_bias, *(layer.bias for layer in model.stack)])
    return replace(model, tokens=TOKENS)


def _draw_biases(seed: int, biases: Sequence[Float32 | None]) -> None:
    rng = np.random.default_rng(seed)
    for bias in biases:
        if bias is not None:
            bias[:] = rng.normal(0, 0.3, bias.shape)


def source(seed: int = 0, src_len: int = 7, s: int = 29) -> Float32:
    return np.tanh(np.random.default_rng(1000 + seed).normal(0, 1, (src_len, s))).astype(np.float32)


def source_weights(
    seed: int = 0, *, kind: Literal["gru", "lstm"] = "gru", layers: int = 2, w: int = 19, e: int = 21, vocab: int = 50
) -> SourceWeights:
    """A source side with biases."""
    model = RandomModels(seed).source_of(kind, layers, w, e, vocab)
    sides = [side for layer in model.layers for side in (layer.forward, layer.backward)]
    _draw_biases(seed, [bias for side in sides for bias in (side.bias, side.reset_bias)])
    return model
