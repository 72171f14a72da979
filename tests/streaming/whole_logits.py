"""What an encoder answers straight from its weights, without a store: the reference of several tests."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
from simnmt.streaming.encoder.encoder_configuration import EncoderWeights
from simnmt.streaming.store.shard_format import LayerBuffer, shard_of


@torch.inference_mode()
def logits_of(
    weights: EncoderWeights, token_ids: Tensor, mask: Tensor, *, layers: int | None = None, slices: Sequence[int] | None = None
) -> Tensor:
    """Logits [b, classes] of the bottom `layers` with the same `slices` of each, all by default, straight from the weights."""
    encoder, geometry = ElasticEncoder.of(weights), weights.geometry
    chosen = range(geometry.heads) if slices is None else slices
    buffer = LayerBuffer(geometry, len(chosen))
    hidden = encoder.embed(token_ids, mask)
    for index in range(geometry.layers if layers is None else layers):
        matrices = weights.layer(index)
        for position, number in enumerate(chosen):
            buffer.put(position, shard_of(geometry, matrices, number))
        hidden = encoder.layer(hidden, mask, index, list(chosen), buffer)
    return encoder.logits(hidden, mask)
