"""From a trained attentional model to the plain arrays of the sharp decoder."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.kernels.sharp import Attention, BottomCell, SharpTokens, SharpWeights, StackLayer
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


def _layers(part: nn.Module) -> list[StackLayer]:
    if isinstance(part, RecurrentLayer):
        return [StackLayer(part.kind, _array(part.feed.weight), _array(part.recur.weight), _array(part.feed.bias))]
    assert isinstance(part, DenseBlock)
    return [StackLayer(part.kind, _array(weight)) for weight in part.weights]


def _array(weight: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = np.ascontiguousarray(weight.detach().numpy(), dtype=np.float32)
    return found
