"""A decoder's layers of m slices with random weights: self-attention with a cache, attention to the source, feed-forward.

Times depend on sizes, not on weights. Each slice is a head of both attentions and its share of the feed-forward neurons, as in
an encoder's shard with a second attention beside the first (STI-01).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from simnmt.costs.shard_geometry import ShardGeometry


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Weights of one layer, biases and norms of all its width; rows as `LayerBuffer` keeps them."""

    qkv: Tensor
    """[3 m hd, d]"""
    qkv_bias: Tensor
    o: Tensor
    """[m hd, d]"""
    source_q: Tensor
    source_q_bias: Tensor
    source_kv: Tensor
    """[2 m hd, d]"""
    source_kv_bias: Tensor
    source_o: Tensor
    ffn_in: Tensor
    """[m F/M, d]"""
    ffn_in_bias: Tensor
    ffn_out: Tensor
    """[m F/M, d]"""
    out_bias: Tensor
    """[d], of each of the three parts."""
    norm: tuple[Tensor, Tensor]


class DecoderLayers:
    """All layers of a decoder at one width, with the cache of one sentence."""

    def __init__(self, geometry: ShardGeometry, slices: int, positions: int, *, seed: int = 0) -> None:
        """For up to `positions` tokens."""
        self.geometry, self.slices = geometry, slices
        self._head = geometry.width // geometry.heads
        drawn = torch.Generator().manual_seed(seed)
        self._layers = [self._drawn(drawn) for _ in range(geometry.layers)]
        shape = (geometry.layers, 2, slices, positions, self._head)
        self._cache = torch.randn(shape, generator=drawn)
        self._source: list[tuple[Tensor, Tensor]] = []

    def _drawn(self, drawn: torch.Generator) -> _Layer:
        width, own = self.geometry.width, self.slices * self._head
        neurons = self.slices * self.geometry.ffn // self.geometry.heads

        def rows(count: int) -> Tensor:
            return torch.randn((count, width), generator=drawn).mul_(width**-0.5)

        def bias(count: int) -> Tensor:
            return torch.zeros(count)

        return _Layer(
            qkv=rows(3 * own),
            qkv_bias=bias(3 * own),
            o=rows(own),
            source_q=rows(own),
            source_q_bias=bias(own),
            source_kv=rows(2 * own),
            source_kv_bias=bias(2 * own),
            source_o=rows(own),
            ffn_in=rows(neurons),
            ffn_in_bias=bias(neurons),
            ffn_out=rows(neurons),
            out_bias=bias(width),
            norm=(torch.ones(width), bias(width)),
        )

    def read_source(self, source: Tensor) -> None:
        """Keys and values of an encoded source [1, l, d], once for a sentence."""
        self._source = []
        for layer in self._layers:
            both = functional.linear(source[0], layer.source_kv, layer.source_kv_bias)
            key, value = both.view(len(both), 2, self.slices, self._head).permute(1, 2, 0, 3)
            self._source.append((key, value))

    def step(self, hidden: Tensor, position: int) -> Tensor:
        """One token's vector [1, d] through all layers, when `position` tokens are out."""
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
        """[1, m hd]"""
        score = torch.bmm(keys, query[:, :, None])[:, :, 0] * self._head**-0.5
        return torch.bmm(score.softmax(1)[:, None, :], values).view(1, -1)

    def _norm(self, layer: _Layer, hidden: Tensor) -> Tensor:
        return functional.layer_norm(hidden, hidden.shape[1:], *layer.norm)
