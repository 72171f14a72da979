"""Small attentional decoders with weights drawn at random, spread enough that beams have something to choose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from simnmt.calibrate.sharp_models import Draw
from simnmt.kernels.sharp.model import Cell, Float32, Kind, SharpTokens, SharpWeights, SourceWeights

TOKENS = SharpTokens(start=2, eos=3, unk=1, pad=0)


def weights(
    seed: int = 0,
    *,
    kind: Cell = "gru",
    additive: bool = False,
    r: int = 37,
    e: int = 21,
    s: int = 29,
    a: int = 19,
    vocab: int = 67,
    stack: Sequence[tuple[Kind, int]] = (),
) -> SharpWeights:
    """A target side with biases, so that each of them counts."""
    model = Draw(seed).target(kind, r, e, s, a, stack, vocab, additive=additive)
    _draw_biases(seed, [model.bias, model.output_bias, *(layer.bias for layer in model.stack)])
    return replace(model, tokens=TOKENS)


def _draw_biases(seed: int, biases: Iterable[Float32 | None]) -> None:
    rng = np.random.default_rng(seed)
    for bias in biases:
        if bias is not None:
            bias[:] = rng.normal(0, 0.3, bias.shape)


def source(seed: int = 0, src_len: int = 7, s: int = 29) -> Float32:
    return np.tanh(np.random.default_rng(1000 + seed).normal(0, 1, (src_len, s))).astype(np.float32)


def source_weights(
    seed: int = 0, *, kind: Cell = "gru", layers: int = 2, w: int = 19, e: int = 21, vocab: int = 50
) -> SourceWeights:
    """A source side with biases."""
    model = Draw(seed).source(kind, layers, w, e, vocab)
    _draw_biases(seed, [bias for sides in model.layers for side in sides for bias in (side.bias, side.reset_bias)])
    return model
