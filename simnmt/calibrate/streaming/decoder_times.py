"""Measure decoder steps by width, and the time once per request before them, with random weights.

Times depend on sizes, not on weights. A slice is a head of self-attention and of attention to the source, with its share of
the feed-forward neurons, as an encoder's shard with a second attention (STI-01).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from simnmt.calibrate.settings import StiSettings
from simnmt.calibrate.streaming.layer_times import Progress
from simnmt.kernels.unpack import OUTLIER_SHARE, PackedWeights, unpack
from simnmt.nmt.devices import torch_threads
from simnmt.profile.streaming_block import ShardReads, StiDecoder
from simnmt.profile.streaming_cost import ShardGeometry
from simnmt.streaming.shards import Packed, aligned_bytes, record_size


def random_shards(geometry: ShardGeometry, bits: int, seed: int = 0) -> dict[tuple[int, int], Packed]:
    """Draw all shards of a model, by layer and slice."""
    return {
        (layer, index): Packed.random(
            bits, geometry.weights_per_shard, seed=seed + layer * geometry.heads + index, layer=layer, slice=index
        )
        for layer in range(geometry.layers)
        for index in range(geometry.heads)
    }


def record_bytes(geometry: ShardGeometry, bits: int) -> int:
    """Return the bytes of the record of a random shard."""
    weights = geometry.weights_per_shard
    return record_size(weights, bits, 0 if bits == 32 else round(OUTLIER_SHARE * weights))


class _Layer:
    """Weights of one layer, and biases and norms of its whole width; rows in the order of `LayerBuffer`."""

    def __init__(self, width: int, attention: int, neurons: int, drawn: torch.Generator) -> None:
        """Draw the weights. `attention`: width of all computed heads; `neurons`: theirs; every matrix is [rows, width]."""

        def rows(count: int) -> Tensor:
            return torch.randn((count, width), generator=drawn).mul_(width**-0.5)

        self.qkv, self.qkv_bias = rows(3 * attention), torch.zeros(3 * attention)
        self.o = rows(attention)
        self.source_q, self.source_q_bias = rows(attention), torch.zeros(attention)
        self.source_kv, self.source_kv_bias = rows(2 * attention), torch.zeros(2 * attention)
        self.source_o = rows(attention)
        self.ffn_in, self.ffn_in_bias = rows(neurons), torch.zeros(neurons)
        self.ffn_out = rows(neurons)
        self.out_bias = torch.zeros(width)  # for each of the three parts
        self.norm = torch.ones(width), torch.zeros(width)


class DecoderLayers:
    """All layers of a decoder at one width, with the cache of one sentence."""

    def __init__(self, geometry: ShardGeometry, slices: int, positions: int, *, seed: int = 0) -> None:
        """Draw the layers, with a cache for up to `positions` tokens."""
        self.geometry, self.slices = geometry, slices
        self._head = geometry.width // geometry.heads
        drawn = torch.Generator().manual_seed(seed)
        sizes = geometry.width, slices * self._head, slices * geometry.ffn // geometry.heads
        self._layers = [_Layer(*sizes, drawn) for _ in range(geometry.layers)]
        shape = (geometry.layers, 2, slices, positions, self._head)
        self._cache = torch.randn(shape, generator=drawn)
        self._source: list[tuple[Tensor, Tensor]] = []

    def read_source(self, source: Tensor) -> None:
        """Compute keys and values of an encoded source [1, l, d], once per sentence."""
        self._source = []
        for layer in self._layers:
            both = functional.linear(source[0], layer.source_kv, layer.source_kv_bias)
            key, value = both.view(len(both), 2, self.slices, self._head).permute(1, 2, 0, 3)
            self._source.append((key, value))

    def step(self, hidden: Tensor, position: int) -> Tensor:
        """Compute all layers for one token's vector [1, d] after `position` tokens; return the vector."""
        for number, layer in enumerate(self._layers):
            hidden = self._norm(layer, hidden + self._self_attention(layer, number, hidden, position))
            hidden = self._norm(layer, hidden + self._source_attention(layer, number, hidden))
            inner = functional.relu(functional.linear(hidden, layer.ffn_in, layer.ffn_in_bias))
            hidden = self._norm(layer, hidden + torch.addmm(layer.out_bias, inner, layer.ffn_out))
        return hidden

    def _self_attention(self, layer: _Layer, number: int, hidden: Tensor, position: int) -> Tensor:
        query, key, value = functional.linear(hidden, layer.qkv, layer.qkv_bias).view(3, self.slices, self._head)
        cache = self._cache[number]
        cache[0, :, position], cache[1, :, position] = key, value
        keys, values = cache[:, :, : position + 1]
        return torch.addmm(layer.out_bias, self._mixed(query, keys, values), layer.o)

    def _source_attention(self, layer: _Layer, number: int, hidden: Tensor) -> Tensor:
        query = functional.linear(hidden, layer.source_q, layer.source_q_bias).view(self.slices, self._head)
        return torch.addmm(layer.out_bias, self._mixed(query, *self._source[number]), layer.source_o)

    def _mixed(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Return the attention's result, [1, slices x head size]."""
        score = torch.bmm(keys, query[:, :, None])[:, :, 0] * self._head**-0.5
        return torch.bmm(score.softmax(1)[:, None, :], values).view(1, -1)

    def _norm(self, layer: _Layer, hidden: Tensor) -> Tensor:
        return functional.layer_norm(hidden, hidden.shape[1:], *layer.norm)


SRC_LEN, TGT_LEN = 20, 20
"""Source tokens of the timed steps, and target tokens before them."""
BITS = 6


def measure_decoder(
    geometry: ShardGeometry, reads: Sequence[ShardReads], output_s: float | None, settings: StiSettings, progress: Progress
) -> StiDecoder:
    """Time a decoder step at each width; the time of all layers, with weights from memory, is divided by their number.

    Each round visits the widths in a new random order. `progress` counts rounds.
    """
    seed, repeats = settings.seed, settings.repeats
    drawn = random.Random(seed)
    widths = list(range(1, geometry.heads + 1))
    step_s: dict[int, list[float]] = {width: [] for width in widths}
    once_s: dict[int, list[float]] = {width: [] for width in widths}
    shard = PackedWeights.random(BITS, geometry.weights_per_shard, seed=seed)
    room = aligned_bytes(geometry.float32_bytes_per_layer).view(np.float32)
    with torch_threads(settings.threads), torch.inference_mode():
        layers = {width: DecoderLayers(geometry, width, TGT_LEN + 1, seed=seed) for width in widths}
        hidden, source = torch.randn((1, geometry.width)), torch.randn((1, SRC_LEN, geometry.width))
        for width in widths:
            layers[width].read_source(source)
            layers[width].step(hidden, TGT_LEN)
        for done in range(repeats):
            drawn.shuffle(widths)
            for width in widths:
                begin_s = perf_counter()
                layers[width].step(hidden, TGT_LEN)
                stepped_s = perf_counter()
                layers[width].read_source(source)
                read_s = perf_counter()
                for position in range(width):
                    place = (0, position * geometry.weights_per_shard, geometry.weights_per_shard)
                    unpack(shard, room, [place])
                unpack_s = perf_counter() - read_s
                step_s[width].append((stepped_s - begin_s) / geometry.layers)
                once_s[width].append((read_s - stepped_s) / geometry.layers + unpack_s)
            progress(done + 1, repeats, "stepping")

    def quantile(share: float, by_width: dict[int, list[float]]) -> tuple[float, ...]:
        return tuple(float(np.quantile(by_width[width], share)) for width in sorted(by_width))

    return StiDecoder(
        layers=geometry.layers,
        reads=tuple(reads),
        step_s=quantile(0.5, step_s),
        p25_s=quantile(0.25, step_s),
        p75_s=quantile(0.75, step_s),
        once_s=quantile(0.5, once_s),
        output_s=output_s,
        src_len=SRC_LEN,
        tgt_len=TGT_LEN,
    )
