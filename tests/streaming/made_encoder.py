"""Small encoders of known behaviour, in memory and sharded; for the tests of evaluation, importance and profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.unpack import PackedWeights
from simnmt.streaming.encoder import ElasticEncoder, EncoderConfiguration, EncoderWeights, random_resident
from simnmt.streaming.shards import FULL, SEGMENTS, LayerBuffer, LayerWeights, layer_shards
from simnmt.streaming.store import ShardStore, write_store

PLANTED = (1, 2)
"""The only shard of `planted_weights` that does anything."""


def made_weights(
    layers: int = 3, heads: int = 4, width: int = 16, ffn: int = 32, seed: int = 3, **changed: Any
) -> EncoderWeights:
    """A pre-norm classifier of two classes with random weights, the mean over its tokens classified."""
    options = {"vocabulary": 50, "positions": 40, "classes": 2, "norm": "pre", "activation": "relu", "pooling": "mean"}
    configuration = EncoderConfiguration(
        kind="elastic", layers=layers, heads=heads, width=width, ffn=ffn, head=False, **(options | changed)
    )
    drawn = torch.Generator().manual_seed(seed)
    resident = random_resident(configuration, drawn)
    resident["embeddings.position"] *= 0.1
    matrices = [random_layer(width, ffn, drawn, width**-0.5) for _ in range(layers)]
    return EncoderWeights(configuration, resident, matrices.__getitem__, origin="made up", random=True)


def planted_weights() -> EncoderWeights:
    """A classifier in which the feed-forward neurons of one shard alone do anything (STI-09).

    All others are silenced by what stays in full precision: norms that pass nothing, and neurons that never fire.
    """
    made = made_weights()
    layers, width, ffn, heads = made.geometry.layers, made.geometry.width, made.geometry.ffn, made.geometry.heads
    resident = dict(made.resident)
    for layer in range(layers):
        resident[f"layers.{layer}.norm_attention.weight"] = torch.zeros(width)
        if layer != PLANTED[0]:
            resident[f"layers.{layer}.norm_ffn.weight"] = torch.zeros(width)
    bias = torch.full((heads, ffn // heads), -100.0)
    bias[PLANTED[1]] = 0.0
    resident[f"layers.{PLANTED[0]}.ffn_in.bias"] = bias.reshape(-1)
    # What is embedded and what is classified share no dimension: only the shard carries anything across.
    resident["embeddings.word"] = resident["embeddings.word"] * (torch.arange(width) < width // 2)
    resident["embeddings.position"] = torch.zeros_like(resident["embeddings.position"])
    resident["classifier.weight"] = resident["classifier.weight"] * (torch.arange(width) >= width // 2)
    return EncoderWeights(made.configuration, resident, made.layer, origin="planted", random=True)


def made_texts(count: int = 120, seed: int = 5) -> list[list[int]]:
    """Token ids of texts of 1 to 12 tokens."""
    drawn = np.random.default_rng(seed)
    return [drawn.integers(1, 50, drawn.integers(1, 13)).tolist() for _ in range(count)]


def stored(weights: EncoderWeights, path: Path) -> ShardStore:
    """Sharded at all bitwidths, and opened."""
    write_store(weights, path)
    return ShardStore(path)


def random_layer(width: int, ffn: int, generator: torch.Generator, scale: float = 0.04) -> LayerWeights:
    shapes = [(width, width)] * 4 + [(ffn, width), (width, ffn)]
    return LayerWeights(*(scale * torch.randn(shape, generator=generator) for shape in shapes))


def random_weights(layers: int = 3, heads: int = 4, width: int = 16, ffn: int = 32, seed: int = 0) -> EncoderWeights:
    configuration = EncoderConfiguration(
        kind="elastic", layers=layers, heads=heads, width=width, ffn=ffn, vocabulary=8, positions=8, classes=2
    )
    resident = {"classifier.weight": torch.full((2, width), 0.5), "classifier.bias": torch.zeros(2)}
    made = [random_layer(width, ffn, torch.Generator().manual_seed(100 * seed + layer)) for layer in range(layers)]
    return EncoderWeights(configuration, resident, made.__getitem__, origin="made", random=True)


@torch.inference_mode()
def logits_of(
    weights: EncoderWeights, token_ids: Tensor, mask: Tensor, *, layers: int | None = None, slices: Sequence[int] | None = None
) -> Tensor:
    """Logits [b, classes] of the bottom `layers` with the same `slices` of each, all by default, straight from the weights."""
    encoder, geometry = ElasticEncoder(weights.configuration, weights.resident), weights.geometry
    chosen = range(geometry.heads) if slices is None else slices
    buffer = LayerBuffer(geometry, len(chosen))
    hidden = encoder.embed(token_ids, mask)
    for index in range(geometry.layers if layers is None else layers):
        matrices = weights.layer(index)
        for position, number in enumerate(chosen):
            put(buffer, position, layer_shards(geometry, matrices)[number])
        hidden = encoder.layer(hidden, mask, index, list(chosen), buffer)
    return encoder.logits(hidden, mask)


def unpacked_bits(stream: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.uint8]:
    """Return the first `count` codes of a stream, one byte each."""
    code_bits = np.unpackbits(stream, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(code_bits, axis=1, bitorder="little")[:, 0]


def dequantised(packed: PackedWeights) -> NDArray[np.float32]:
    """Return the weights of a shard, float32 [weights]: centroids by code, and outliers (STI-06); reference of the kernel."""
    if packed.bits == FULL:
        return packed.codes.view("<f4").astype(np.float32)
    values = packed.centroids[unpacked_bits(packed.codes, packed.bits, packed.weights)]
    values[packed.outlier_at] = packed.outlier_values
    return values.astype(np.float32, copy=False)


def put(buffer: LayerBuffer, position: int, shard: NDArray[np.float32]) -> None:
    """Copy a flat shard to its places."""
    for first, to, count in buffer.places[position].tolist():
        buffer.array[to : to + count] = shard[first : first + count]


def stored_layer(store: ShardStore, layer: int, bits: Mapping[int, int]) -> LayerBuffer:
    """Return a layer's shards by slice, each at its bits, in the mapping's order: the reference of the pipeline."""
    buffer = LayerBuffer(store.geometry, len(bits))
    for position, (index, width) in enumerate(bits.items()):
        put(buffer, position, dequantised(store.read(store.record(layer, index, width))))
    return buffer


def stored_weights(store: ShardStore) -> EncoderWeights:
    """Return the model of a store in full precision."""

    def layer_weights(layer: int) -> LayerWeights:
        buffer = stored_layer(store, layer, dict.fromkeys(range(store.geometry.heads), FULL))
        parts = {name: torch.from_numpy(buffer.segments[name]) for name in SEGMENTS}
        return LayerWeights(**parts | {name: parts[name].T for name in ("o", "ffn_out")})

    index = store.index
    return EncoderWeights(store.configuration, store.resident(), layer_weights, origin=index.origin, random=index.random)
