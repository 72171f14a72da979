"""T5 and mT5 through `transformers`: relative positions, root mean square norm before each block, no bias."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from simnmt.nmt.architecture import T5Architecture
from simnmt.nmt.linear_layers import HalfLinear, halve_linear_layers
from simnmt.nmt.marian_model import MarianState, PretrainedModel

_FIRST_DISTANCES = 256


class T5Model(PretrainedModel):
    """A Transformer with a bias of attention by the distance between two tokens, which the first layer holds for all."""

    architecture: T5Architecture
    attends = False
    """A source begins with the words of its task, which `TextWriter` does not count: unknown words stay."""

    _no_bias: Tensor
    _buckets: Tensor

    def __init__(self, architecture: T5Architecture, hf: Any = None, dropout: float = 0.0) -> None:
        hf = T5ForConditionalGeneration(t5_config(architecture, dropout)) if hf is None else hf
        super().__init__(architecture, hf)
        self.register_buffer("_no_bias", hf.lm_head.weight.new_zeros(architecture.vocab), persistent=False)
        self.register_buffer("_buckets", self._buckets_of(_FIRST_DISTANCES), persistent=False)
        self._blocks: list[Any] = list(hf.decoder.block)

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        return self._no_bias

    def halve(self) -> None:
        """Convert the weights of the decoder's products to float16; the encoder of `transformers` reads their type."""
        halve_linear_layers(self.hf.decoder)
        self.hf.lm_head = HalfLinear(self.hf.lm_head.weight, None)

    def _source_projections(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        for block in self._blocks:
            yield block.layer[1].EncDecAttention.k, block.layer[1].EncDecAttention.v

    def _buckets_of(self, distances: int) -> Tensor:
        """Return the class of each distance from 0 back to the attended token."""
        attention = self.hf.decoder.block[0].layer[0].SelfAttention
        device = attention.relative_attention_bias.weight.device
        buckets: Tensor = attention._relative_position_bucket(
            -torch.arange(distances, device=device),
            bidirectional=False,
            num_buckets=self.architecture.position_buckets,
            max_distance=self.architecture.max_distance,
        )
        return buckets

    def _position_bias(self, position: int) -> Tensor:
        """Return the bias of the attention of a step to the tokens up to it, [1, heads, 1, position + 1]."""
        if position >= len(self._buckets):
            self._buckets = self._buckets_of(2 * position)
        weight = self._blocks[0].layer[0].SelfAttention.relative_attention_bias.weight
        by_distance: Tensor = weight[self._buckets[: position + 1].flip(0)]
        return by_distance.t()[None, :, None, :]

    def body(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""
        decoder, position = self.hf.decoder, state.position
        self._with_room(state)
        bias = self._position_bias(position)
        if state.begun is not None:
            hidden_from_row = torch.arange(position + 1, device=tokens.device) < state.begun[:, None]
            bias = bias.expand(len(tokens), -1, -1, -1).masked_fill(hidden_from_row[:, None, None, :], -torch.inf)
        hidden = decoder.embed_tokens(tokens[:, None])
        for block, past, (cross_keys, cross_values) in zip(self._blocks, state.past, state.cross, strict=True):
            past_part, source_part, feed_forward = block.layer
            normed, attention = past_part.layer_norm(hidden), past_part.SelfAttention
            past[0, :, :, position] = self._split(attention.k(normed))[:, :, 0]
            past[1, :, :, position] = self._split(attention.v(normed))[:, :, 0]
            keys, values = past[:, :, :, : position + 1]
            hidden = hidden + attention.o(self._attend(attention.q(normed), keys, values, bias, scale=1.0))
            normed, attention = source_part.layer_norm(hidden), source_part.EncDecAttention
            attended = self._attend(attention.q(normed), cross_keys, cross_values, state.mask, scale=1.0)
            hidden = hidden + attention.o(attended)
            hidden = hidden + self._feed_forward(feed_forward.DenseReluDense, feed_forward.layer_norm(hidden))
        state.position += 1
        hidden = decoder.final_layer_norm(hidden)[:, 0]
        return hidden * self.architecture.d_model**-0.5 if self.architecture.scaled_output else hidden, state

    def _feed_forward(self, layer: Any, normed: Tensor) -> Tensor:
        if self.architecture.activation.startswith("gated"):
            inner = layer.act(layer.wi_0(normed)) * layer.wi_1(normed)
        else:
            inner = layer.act(layer.wi(normed))
        outer: Tensor = layer.wo(inner)
        return outer


def t5_config(architecture: T5Architecture, dropout: float = 0.0) -> T5Config:
    """Return the configuration from which `transformers` builds this architecture."""
    keys: dict[str, Any] = {
        "vocab_size": architecture.vocab,
        "d_model": architecture.d_model,
        "d_kv": architecture.head_width,
        "d_ff": architecture.ffn,
        "num_layers": architecture.encoder_layers,
        "num_decoder_layers": architecture.decoder_layers,
        "num_heads": architecture.heads,
        "relative_attention_num_buckets": architecture.position_buckets,
        "relative_attention_max_distance": architecture.max_distance,
        "feed_forward_proj": architecture.activation,
        "tie_word_embeddings": architecture.scaled_output,
        "pad_token_id": architecture.pad_token,
        "eos_token_id": architecture.eos_token,
        "decoder_start_token_id": architecture.start_token,
        "dropout_rate": dropout,
    }
    return T5Config(**keys)
