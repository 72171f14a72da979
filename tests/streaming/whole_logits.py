"""What an encoder answers straight from its weights, without a store: the reference of several tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from simnmt.streaming.encoder.elastic_encoder import ElasticEncoder
from simnmt.streaming.encoder.encoder_configuration import EncoderWeights, LayerWeights
from simnmt.streaming.store.shard_format import FULL, SEGMENTS, LayerBuffer, decode, dequantised, shard_of
from simnmt.streaming.store.shard_store import ShardStore


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


def stored_layer(store: ShardStore, layer: int, bits: Mapping[int, int]) -> LayerBuffer:
    """Return a layer's shards by slice, each at its bits, in the mapping's order: the reference of the pipeline."""
    buffer = LayerBuffer(store.geometry, len(bits))
    for position, (index, width) in enumerate(bits.items()):
        buffer.put(position, dequantised(decode(store.read(store.record(layer, index, width)))))
    return buffer


def stored_weights(store: ShardStore) -> EncoderWeights:
    """Return the model of a store in full precision."""

    def layer_weights(layer: int) -> LayerWeights:
        buffer = stored_layer(store, layer, dict.fromkeys(range(store.geometry.heads), FULL))
        parts = {name: torch.from_numpy(buffer.segment(name)) for name in SEGMENTS}
        return LayerWeights(**parts | {name: parts[name].T for name in ("o", "ffn_out")})

    index = store.index
    return EncoderWeights(store.configuration, store.resident(), layer_weights, origin=index.origin, random=index.random)
