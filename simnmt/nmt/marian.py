"""MarianMT through `transformers`: a step model with key/value cache, and trainable. Never touches the network.

The weights, the encoder and the training pass are `transformers`' own. The decoder's step is written out here over the
same layers: its names for the cache change from version to version, and it builds masks at every step that a
single new token does not need.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import MarianConfig, MarianMTModel

from simnmt.nmt.architecture import TransformerArchitecture
from simnmt.nmt.half_weights import halve_linear_layers
from simnmt.nmt.marian_slots import MarianSlots
from simnmt.nmt.marian_state import MarianMemory, MarianState
from simnmt.nmt.output_products import products_of

_FIRST_CAPACITY = 32


class MarianModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: TransformerArchitecture, hf: MarianMTModel | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        self.architecture = architecture
        self.pad_token, self.start_token = architecture.pad_token, architecture.start_token
        self.eos_token, self.unk_token = architecture.eos_token, architecture.unk_token
        self.vocab = architecture.vocab
        self.max_positions: int | None = architecture.max_positions
        self.hf = MarianMTModel(marian_config(architecture, dropout)) if hf is None else hf
        self.heads = architecture.heads

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        device: torch.device = self.hf.final_logits_bias.device
        return device

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        bias: Tensor = self.hf.final_logits_bias[0]
        return bias

    @property
    def weight(self) -> Tensor:
        """See `StepModel`."""
        weight: Tensor = self.hf.lm_head.weight
        return weight

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        logits: Tensor = self.hf(
            input_ids=src, attention_mask=_within(src, src_lengths).long(), decoder_input_ids=tgt_in, use_cache=False
        ).logits
        return logits

    def encode(self, src: Tensor, src_lengths: Tensor) -> MarianMemory:
        """See `StepModel`."""
        within = None if bool((src_lengths == src.shape[1]).all()) else _within(src, src_lengths)
        states = self.hf.model.encoder(
            input_ids=src, attention_mask=None if within is None else within.long()
        ).last_hidden_state
        cross = self._columns(*src.shape)
        for layer, kept in zip(self.hf.model.decoder.layers, cross, strict=True):
            kept[0] = self._split(layer.encoder_attn.k_proj(states))
            kept[1] = self._split(layer.encoder_attn.v_proj(states))
        return MarianMemory(cross, None if within is None else within[:, None, None, :])

    def start(self, memory: MarianMemory, beam: int) -> MarianState:
        """See `StepModel`."""
        batch, cross, mask = memory.cross.shape[2], memory.cross, memory.mask
        if beam > 1:
            rows = torch.arange(batch, device=self.device).repeat_interleave(beam)
            cross, mask = cross.index_select(2, rows), None if mask is None else mask.index_select(0, rows)
        return MarianState(self._columns(batch * beam, _FIRST_CAPACITY), cross, mask, 0)

    def step(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""
        hidden, state = self.body(state, tokens)
        return self.project(hidden), state

    def body(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""
        decoder, position = self.hf.model.decoder, state.position
        if position == state.past.shape[4]:
            state.past = torch.cat((state.past, torch.empty_like(state.past)), dim=4)
        hidden = decoder.embed_tokens(tokens[:, None])
        if self.architecture.scale_embedding:
            hidden = hidden * math.sqrt(self.architecture.d_model)
        own_mask = None
        if state.begun is None:
            hidden = hidden + decoder.embed_positions.weight[position]
        else:
            begun = state.begun[:, None]
            hidden = hidden + decoder.embed_positions.weight[position - begun]
            own_mask = (torch.arange(position + 1, device=tokens.device) >= begun)[:, None, None, :]
        for layer, past, (cross_keys, cross_values) in zip(decoder.layers, state.past, state.cross, strict=True):
            own = layer.self_attn
            past[0, :, :, position] = self._split(own.k_proj(hidden))[:, :, 0]
            past[1, :, :, position] = self._split(own.v_proj(hidden))[:, :, 0]
            keys, values = past[:, :, :, : position + 1]
            attended = own.out_proj(self._attend(own.q_proj(hidden), keys, values, own_mask))
            hidden = layer.self_attn_layer_norm(hidden + attended)
            source = layer.encoder_attn
            attended = source.out_proj(self._attend(source.q_proj(hidden), cross_keys, cross_values, state.mask))
            hidden = layer.encoder_attn_layer_norm(hidden + attended)
            hidden = layer.final_layer_norm(hidden + layer.fc2(layer.activation_fn(layer.fc1(hidden))))
        state.position += 1
        return hidden[:, 0], state

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits: Tensor = self.hf.lm_head(hidden) + self.hf.final_logits_bias
        return logits

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """See `StepModel`."""
        return products_of(self.hf.lm_head, hidden, block)

    def reorder(self, state: MarianState, rows: Tensor) -> MarianState:
        """See `StepModel`."""
        return replace(state, past=state.past.index_select(2, rows))

    def slots(self, rows: int, most_rows: int | None = None) -> MarianSlots:
        """See `StepModel`."""
        past = self._columns(rows, _FIRST_CAPACITY)
        return MarianSlots(self.body, past, self._columns(rows, 0), self.max_positions, most_rows)

    def halve(self) -> None:
        """Hold the weights of all products in float16 from now on, for inference alone."""
        halve_linear_layers(self)

    def _columns(self, rows: int, length: int) -> Tensor:
        """Room for keys and values: [layers, keys and values, rows, heads, length, head width]; not initialised."""
        layers, width = self.architecture.decoder_layers, self.architecture.d_model
        return self.hf.final_logits_bias.new_empty((layers, 2, rows, self.heads, length, width // self.heads))

    def _split(self, states: Tensor) -> Tensor:
        """[rows, length, d_model] -> [rows, heads, length, head width]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        attended = scaled_dot_product_attention(self._split(query), keys, values, attn_mask=mask)
        return attended.transpose(1, 2).reshape(query.shape)


def marian_config(architecture: TransformerArchitecture, dropout: float = 0.0) -> MarianConfig:
    """The configuration that `transformers` builds this architecture from."""
    return MarianConfig(
        vocab_size=architecture.vocab,
        d_model=architecture.d_model,
        encoder_layers=architecture.encoder_layers,
        decoder_layers=architecture.decoder_layers,
        encoder_attention_heads=architecture.heads,
        decoder_attention_heads=architecture.heads,
        encoder_ffn_dim=architecture.ffn,
        decoder_ffn_dim=architecture.ffn,
        max_position_embeddings=architecture.max_positions,
        activation_function=architecture.activation,
        scale_embedding=architecture.scale_embedding,
        pad_token_id=architecture.pad_token,
        bos_token_id=None,
        eos_token_id=architecture.eos_token,
        forced_eos_token_id=None,
        decoder_start_token_id=architecture.start_token,
        dropout=dropout,
    )


def _within(src: Tensor, src_lengths: Tensor) -> Tensor:
    """True up to each source's end, [batch, src_len]."""
    return torch.arange(src.shape[1], device=src.device)[None, :] < src_lengths[:, None]
