"""From a trained attentional model to the plain arrays of the sharp decoder."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.kernels.scales import Clipping, clipping_of
from simnmt.kernels.sharp import (
    Attention,
    BottomCell,
    SharpTokens,
    SharpWeights,
    SourceDirection,
    SourceLayer,
    SourceWeights,
    StackLayer,
)
from simnmt.nmt.sharp_cells import DenseBlock, RecurrentLayer
from simnmt.nmt.sharp_model import AttentionalModel


def sharp_weights(model: AttentionalModel) -> SharpWeights:
    """The target side of a float32 model on the CPU; its memory is shared where it lies as the decoder wants it."""
    architecture, bottom = model.architecture, model.bottom
    compared = bottom.compared
    recur, feed = bottom.recur.weight, bottom.feed.weight
    return SharpWeights(
        embedding=_array(model.tgt_embedding.weight),
        bottom=BottomCell(
            kind="attgru" if architecture.cell == "gru" else "attlstm",
            state=_array(recur[compared:]),
            word=_array(feed[compared:]),
            context=_array(bottom.read.weight),
            bias=_array(bottom.read.bias),
            attention=Attention(
                form=architecture.attention,
                state=_array(recur[:compared]),
                word=_array(feed[:compared]),
                key=_array(bottom.keys.weight),
                score=None if bottom.score is None else _array(bottom.score.weight[0]),
            ),
        ),
        stack=tuple(layer for part in model.stack for layer in _layers(part)),
        output=_array(model.projection.weight),
        output_bias=_array(model.projection.bias),
        tokens=SharpTokens(
            start=architecture.start_token,
            eos=architecture.eos_token,
            unk=architecture.unk_token,
            pad=architecture.pad_token,
        ),
    )


def source_weights(model: AttentionalModel) -> SourceWeights:
    """The source side of a float32 model on the CPU, its gates in the order of the sharp kernels."""
    layers = tuple(
        SourceLayer(model.architecture.source_cell, _direction(model, layer, ""), _direction(model, layer, "_reverse"))
        for layer in range(model.architecture.source_layers)
    )
    return SourceWeights(_array(model.src_embedding.weight), layers)


def model_clipping(models: Iterable[AttentionalModel]) -> Clipping:
    """Return how many weights of both sides of the models 16-bit products clip (SHARP-05)."""
    return clipping_of(
        matrix for model in models for side in (source_weights(model), sharp_weights(model)) for matrix in side.matrices()
    )


def _direction(model: AttentionalModel, layer: int, side: str) -> SourceDirection:
    fed, carried, fed_bias, carried_bias = (
        _array(getattr(model.encoder, f"{name}_l{layer}{side}")) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    if model.architecture.source_cell == "lstm":
        return SourceDirection(fed, carried, fed_bias + carried_bias)
    width = model.architecture.source_hidden
    # torch stacks reset, update, candidate; and the reset gate multiplies the candidate's carried bias as well.
    order = np.r_[width : 2 * width, 0:width, 2 * width : 3 * width]
    bias = fed_bias[order]
    bias[: 2 * width] += carried_bias[order][: 2 * width]
    return SourceDirection(fed[order], carried[order], bias, carried_bias[2 * width :].copy())


def _layers(part: nn.Module) -> list[StackLayer]:
    if isinstance(part, RecurrentLayer):
        return [StackLayer(part.kind, _array(part.feed.weight), _array(part.recur.weight), _array(part.feed.bias))]
    assert isinstance(part, DenseBlock)
    return [StackLayer(part.kind, _array(weight)) for weight in part.weights]


def _array(weight: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)
    return found
