"""Costs of streaming a model in shards: how layers divide, seconds to read a shard and compute a layer (STI-01, 05, 07, 08)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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


Shard = tuple[int, int]
"""Layer and slice, both from 0; a decoder's layers are numbered on after its encoder's."""


@dataclass(frozen=True, slots=True)
class DecoderShards:
    """The decoder's half of an encoder-decoder model. Raises `ValueError` like `StiCost`."""

    geometry: ShardGeometry
    """With cross-attention."""
    io_s: Mapping[int, float]
    """Seconds to read one shard, by bits."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    step_s: tuple[float, ...]
    """Seconds of one layer for one token, with 1, 2, .. all of its shards."""
    once_s: tuple[float, ...] | None = None
    """Seconds of one layer once a request, likewise: unpacking, and the source's keys and values; None: 0."""

    def __post_init__(self) -> None:
        _check_reads(self.io_s, self.shard_bytes, "decoder: ")
        _check_computes(self.step_s, self.geometry.heads, "decoder: step_s")
        if self.once_s is not None:
            _check_computes(self.once_s, self.geometry.heads, "decoder: once_s")


@dataclass(frozen=True, slots=True)
class StiCost:
    """Times of a streamed model's shards and layers.

    Raises `ValueError` where a bitwidth or a count of slices is lacking, where a time is not positive and finite, where more
    bits take less time or memory, and where the importance does not rank every shard once.
    """

    geometry: ShardGeometry
    io_s: Mapping[int, float]
    """Seconds to read one shard from a cold disk, by bits: T_io."""
    comp_s: Mapping[int, tuple[float, ...]]
    """By padded length in tokens: seconds of one layer with 1, 2, .. all of its shards, unpacking included: T_comp."""
    shard_bytes: Mapping[int, int]
    """Mean record of a shard, by bits."""
    decoder: DecoderShards | None = None
    importance: tuple[Shard, ...] | None = None
    """Every shard once, best first, the decoder's too; None: not measured."""
    embed_s: Mapping[int, float] = field(default_factory=dict)
    """By the padded lengths of `comp_s`: seconds before the first layer, in which the disk reads; empty: 0."""
    head_s: float = 0.0
    """Seconds after the last layer: of an encoder once, to classify; of a decoder in every step, to choose a word."""
    slowed: tuple[float, ...] = ()
    """Times as long that computing with 1, 2, ... shards a layer takes while the disk reads, since both use the same memory and
    cores; empty: no longer."""

    def __post_init__(self) -> None:
        _check_reads(self.io_s, self.shard_bytes, "")
        if not self.comp_s:
            raise ValueError("comp_s: no length")
        for length, seconds in self.comp_s.items():
            if length < 1:
                raise ValueError(f"comp_s: {length} is no length")
            _check_computes(seconds, self.geometry.heads, f"comp_s[{length}]")
        if self.decoder is not None and self.decoder.geometry.heads != self.geometry.heads:
            raise ValueError(f"decoder: {self.decoder.geometry.heads} heads beside the encoder's {self.geometry.heads}")
        if self.importance is not None and sorted(self.importance) != list(self.all_shards()):
            raise ValueError("importance: does not rank every shard once")
        if self.embed_s and set(self.embed_s) != set(self.comp_s):
            raise ValueError("embed_s: other lengths than comp_s")
        if not all(0.0 <= seconds < math.inf for seconds in (*self.embed_s.values(), self.head_s)):
            raise ValueError("embed_s, head_s: have to be 0 or more and finite")
        slowed, heads = self.slowed, self.geometry.heads
        if slowed and (len(slowed) != heads or not all(1.0 <= factor < math.inf for factor in slowed)):
            raise ValueError(f"slowed: {heads} numbers are needed, 1 or more each")

    @property
    def layers(self) -> int:
        """Of encoder and decoder together."""
        return self.geometry.layers + (0 if self.decoder is None else self.decoder.geometry.layers)

    def all_shards(self) -> tuple[Shard, ...]:
        """In layer order, and in slice order within a layer."""
        return tuple((layer, piece) for layer in range(self.layers) for piece in range(self.geometry.heads))

    def t_io(self, bits: int, layer: int = 0) -> float:
        """Seconds to read one shard of that layer."""
        half = self if self.decoder is None or layer < self.geometry.layers else self.decoder
        return half.io_s[bits]

    def bytes_of(self, bits: int, layer: int = 0) -> int:
        """Bytes of one shard of that layer, on disk and in the preload buffer."""
        half = self if self.decoder is None or layer < self.geometry.layers else self.decoder
        return half.shard_bytes[bits]

    def t_comp(self, length: int, slices: int) -> float:
        """Seconds of one encoder layer of `slices` shards over `length` tokens.

        Inputs are padded to the next greater length that was measured; beyond the greatest, its time grows as the length.
        """
        padded = self._padded(length)
        return self.comp_s[padded][slices - 1] * max(1.0, length / padded)

    def t_embed(self, length: int) -> float:
        """Seconds before the first layer, padded and grown likewise."""
        padded = self._padded(length)
        return self.embed_s.get(padded, 0.0) * max(1.0, length / padded)

    def _padded(self, length: int) -> int:
        lengths = sorted(self.comp_s)
        return lengths[min(bisect_left(lengths, length), len(lengths) - 1)]

    def step_s(self, slices: int) -> float:
        """Seconds of one decoder layer of `slices` shards for one token; 0 where there is no decoder."""
        return 0.0 if self.decoder is None else self.decoder.step_s[slices - 1]

    def slowing(self, slices: int) -> float:
        """Times as long that computing with so many shards a layer takes beside reads."""
        return self.slowed[slices - 1] if self.slowed else 1.0

    def once_s(self, slices: int) -> float:
        """Seconds that one decoder layer of `slices` shards takes once a request besides; 0 where there is none."""
        return 0.0 if self.decoder is None or self.decoder.once_s is None else self.decoder.once_s[slices - 1]


def _check_reads(io_s: Mapping[int, float], shard_bytes: Mapping[int, int], where: str) -> None:
    for name, by_bits in (("io_s", io_s), ("shard_bytes", shard_bytes)):
        lacking = [bits for bits in BITS if bits not in by_bits]
        if lacking:
            raise ValueError(f"{where}{name}: nothing for {lacking[0]} bits")
        values = [float(by_bits[bits]) for bits in BITS]
        if not all(0.0 < value < math.inf for value in values):
            raise ValueError(f"{where}{name}: has to be positive and finite")
        for fewer, more in pairwise(BITS):
            if by_bits[more] < by_bits[fewer]:
                raise ValueError(f"{where}{name}: less for {more} bits than for {fewer}")


def _check_computes(seconds: Sequence[float], slices: int, where: str) -> None:
    if len(seconds) != slices:
        raise ValueError(f"{where}: {len(seconds)} times for 1 to {slices} slices")
    if not all(0.0 < value < math.inf for value in seconds):
        raise ValueError(f"{where}: has to be positive and finite")
