"""Costs of streaming a model in shards: how layers divide, seconds to read a shard and compute a layer (STI-01, 05, 07, 08)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from pydantic import ConfigDict

BITS = (2, 3, 4, 5, 6, 32)
"""Fidelities of a shard: indices into a dictionary of centroids, and the weights themselves."""


@dataclass(frozen=True, slots=True)
class ShardGeometry:
    """Layers of Transformer weights cut into one shard per head: the head and its share of the feed-forward neurons (STI-01).

    Raises `ValueError` if the heads do not divide the width and the neurons.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    layers: int
    heads: int
    """Shards of a layer."""
    width: int
    ffn: int
    """Feed-forward neurons of a layer."""
    cross_attention: bool = False
    """True for the layers of a decoder, which have a second attention."""

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "width", "ffn"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not positive")
        if self.width % self.heads or self.ffn % self.heads:
            raise ValueError(f"width, ffn: {self.width} or {self.ffn} does not divide by {self.heads} heads")

    def __str__(self) -> str:
        return f"{self.layers} layers of {self.heads} shards, {self.width} x {self.ffn}"

    @property
    def weights_per_shard(self) -> int:
        """Four matrices of width x head size per attention, and the share of both feed-forward ones."""
        attentions = 2 if self.cross_attention else 1
        return (4 * attentions * self.width + 2 * self.ffn) * self.width // self.heads

    @property
    def weights_per_layer(self) -> int:
        """Weights of all shards of a layer, without biases and layer norms, which stay in memory."""
        return self.heads * self.weights_per_shard

    @property
    def float32_bytes_per_layer(self) -> int:
        """The working buffer of an executor that computes all shards (STI-16)."""
        return 4 * self.weights_per_layer

    def index_bytes(self, bits: int) -> int:
        """Return the bytes of a shard's packed indices, or of its weights at 32 bits."""
        return -(-self.weights_per_shard * bits // 8)

    def dictionary_bytes(self, bits: int) -> int:
        """Return the bytes of a shard's dictionary, 4 for each centroid; 0 at 32 bits."""
        return 0 if bits == 32 else 4 << bits


BERT_BASE = ShardGeometry(layers=12, heads=12, width=768, ffn=3072)
Shard = tuple[int, int]
"""(layer, slice), both from 0; the numbers of a decoder's layers follow its encoder's."""


@dataclass(slots=True)
class TokenBucket:
    """Reads that queue at one rate: between any two moments, they take at most the rate times the time between them."""

    rate_bytes_per_s: float
    _empty_s: float = field(default=-inf, init=False, repr=False)
    """Time at which the last read may end."""

    def end_s(self, begin_s: float, size_bytes: float) -> float:
        """Return when a read of `size_bytes` that begins at `begin_s` may end; reads queue in the order of the calls."""
        self._empty_s = max(self._empty_s, begin_s) + size_bytes / self.rate_bytes_per_s
        return self._empty_s


@dataclass(frozen=True, slots=True)
class DecoderShards:
    """Times of the decoder's half of an encoder-decoder model, in seconds; tuples are by 1, 2, ... shards a layer."""

    geometry: ShardGeometry
    io_s: Mapping[int, float]
    """To read one shard, by bits."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    step_s: tuple[float, ...]
    """Seconds of one layer for one token."""
    once_s: tuple[float, ...] = ()
    """Seconds of one layer once per request: unpacking, keys and values of the source; empty: 0."""


@dataclass(frozen=True, slots=True)
class StiCost:
    """Times of a streamed model for a planner, in seconds; tuples are by 1, 2, ... shards a layer.

    Times are positive, more bits take no less time and memory, and each bitwidth of `BITS` has its entry (`StiBlock.cost`).
    """

    geometry: ShardGeometry
    io_s: Mapping[int, float]
    """Seconds to read one shard from a cold disk, by bits: T_io."""
    comp_s: Mapping[int, tuple[float, ...]]
    """By padded length in tokens: one layer, unpacking included: T_comp."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    decoder: DecoderShards | None = None
    importance: tuple[Shard, ...] | None = None
    """Every shard once, best first, the decoder's too; None: not measured."""
    embed_s: Mapping[int, float] = field(default_factory=dict)
    """Before the first layer, while the disk reads, by the padded lengths of `comp_s`; empty: 0."""
    head_s: float = 0.0
    """After the last layer: of an encoder once, to classify; of a decoder in every step, to choose a word."""
    slowed: tuple[float, ...] = ()
    """Factors, 1 or more, on computing while the disk reads, which uses the same memory and cores; empty: 1."""

    @property
    def layers(self) -> int:
        """Layers of encoder and decoder together."""
        return self.geometry.layers + (0 if self.decoder is None else self.decoder.geometry.layers)

    def all_shards(self) -> tuple[Shard, ...]:
        """Return all shards in the order of layers and, within a layer, of slices."""
        return tuple((layer, piece) for layer in range(self.layers) for piece in range(self.geometry.heads))

    def t_io(self, bits: int, layer: int = 0) -> float:
        """Return the seconds to read one shard of that layer."""
        return self._half(layer).io_s[bits]

    def bytes_of(self, bits: int, layer: int = 0) -> int:
        """Return the bytes of one shard of that layer, on disk and in the preload buffer."""
        return self._half(layer).shard_bytes[bits]

    def _half(self, layer: int) -> StiCost | DecoderShards:
        return self if self.decoder is None or layer < self.geometry.layers else self.decoder

    def t_comp(self, length: int, slices: int) -> float:
        """Return the seconds of one encoder layer of `slices` shards over `length` tokens.

        Inputs are padded to the next measured length; beyond the greatest, the time grows in proportion to the length.
        """
        padded, factor = self._padded(length)
        return self.comp_s[padded][slices - 1] * factor

    def t_embed(self, length: int) -> float:
        """Return the seconds before the first layer, with `length` padded as in `t_comp`."""
        padded, factor = self._padded(length)
        return self.embed_s.get(padded, 0.0) * factor

    def _padded(self, length: int) -> tuple[int, float]:
        lengths = sorted(self.comp_s)
        padded = lengths[min(bisect_left(lengths, length), len(lengths) - 1)]
        return padded, max(1.0, length / padded)

    def step_s(self, slices: int) -> float:
        """Return the seconds of one decoder layer for one token; 0 without a decoder."""
        return 0.0 if self.decoder is None else self.decoder.step_s[slices - 1]

    def once_s(self, slices: int) -> float:
        """Return the seconds of one decoder layer once per request; 0 without a decoder."""
        return self.decoder.once_s[slices - 1] if self.decoder is not None and self.decoder.once_s else 0.0

    def slowing(self, slices: int) -> float:
        """Return the factor by which reads slow layers of `slices` shards."""
        return self.slowed[slices - 1] if self.slowed else 1.0
