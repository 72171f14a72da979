"""How a Transformer layer divides into shards, and what they weigh at each bitwidth (STI-01, STI-05)."""

from __future__ import annotations

from dataclasses import dataclass

BITS = (2, 3, 4, 5, 6, 32)
"""Fidelities of a shard: indices into a dictionary of centroids, and the weights themselves."""


@dataclass(frozen=True, slots=True)
class ShardGeometry:
    """Layers of Transformer weights cut into one shard per head: the head and its share of the feed-forward neurons.

    Raises `ValueError` where heads do not divide width and neurons.
    """

    layers: int
    heads: int
    """Shards of a layer."""
    width: int
    ffn: int
    """Feed-forward neurons of a layer."""
    cross_attention: bool = False
    """A decoder's layers, which have a second attention."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "ffn"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not positive")
        for name in ("width", "ffn"):
            if getattr(self, name) % self.heads:
                raise ValueError(f"{name}: {getattr(self, name)} does not divide by {self.heads} heads")

    @property
    def weights_per_shard(self) -> int:
        """Four matrices of width x head size for each attention, and both feed-forward ones at its share of neurons."""
        attentions = 2 if self.cross_attention else 1
        return (4 * attentions * self.width + 2 * self.ffn) * self.width // self.heads

    @property
    def weights_per_layer(self) -> int:
        """Of all shards; biases and layer norms do not count, for they stay in memory."""
        return self.heads * self.weights_per_shard

    @property
    def float32_bytes_per_layer(self) -> int:
        """Also the working buffer of an executor that computes all shards of a layer (STI-16)."""
        return 4 * self.weights_per_layer

    def index_bytes(self, bits: int) -> int:
        """Of one shard: its packed indices, or its weights at 32 bits; whole bytes. Raises `ValueError`: no such bitwidth."""
        return -(-self.weights_per_shard * _known(bits) // 8)

    def dictionary_bytes(self, bits: int) -> int:
        """Of one shard: 4 bytes for each centroid; none at 32 bits."""
        return 0 if _known(bits) == 32 else 4 << bits


def _known(bits: int) -> int:
    if bits not in BITS:
        raise ValueError(f"bits: {bits} is none of {', '.join(map(str, BITS))}")
    return bits


BERT_BASE = ShardGeometry(layers=12, heads=12, width=768, ffn=3072)
