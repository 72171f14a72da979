"""M2M100, NLLB and mBART through `transformers`: Transformers with layer norm before each block.

A target begins with the token of its language; see `PretrainedModel.start_with_language`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import M2M100Config, M2M100ForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

from simnmt.nmt.architecture import MultilingualArchitecture
from simnmt.nmt.marian_model import MarianState, PretrainedModel

MODELS: dict[str, tuple[Any, Any]] = {
    "m2m100": (M2M100Config, M2M100ForConditionalGeneration),
    "mbart": (MBartConfig, MBartForConditionalGeneration),
}
"""Classes of configuration and model of `transformers` by kind."""


class MultilingualModel(PretrainedModel):
    """A Transformer of many languages."""

    architecture: MultilingualArchitecture
    attends = False
    """A source begins with the token of its language, which `TextWriter` does not count: unknown words stay."""
    _no_bias: Tensor

    def __init__(self, architecture: MultilingualArchitecture, hf: Any = None, dropout: float = 0.0) -> None:
        if hf is None:
            config, model = MODELS[architecture.kind]
            hf = model(config(**_config_keys(architecture, dropout)))
        super().__init__(architecture, hf)
        # M2M100 has no bias of the output layer.
        self.register_buffer("_no_bias", hf.lm_head.weight.new_zeros(architecture.vocab), persistent=False)

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        bias: Tensor = self.hf.final_logits_bias[0] if self.architecture.kind == "mbart" else self._no_bias
        return bias

    def _source_projections(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        for layer in self.hf.model.decoder.layers:
            yield layer.encoder_attn.k_proj, layer.encoder_attn.v_proj

    def _positions(self) -> Tensor:
        """Return the vectors of the positions from 0."""
        positions = self.hf.model.decoder.embed_positions
        if self.architecture.kind == "mbart":
            learnt: Tensor = positions.weight[positions.offset :]
            return learnt
        computed: Tensor = positions.weights[positions.padding_idx + 1 :]
        return computed

    def body(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""
        decoder, position = self.hf.model.decoder, state.position
        self._with_room(state)
        past_mask = None
        if state.begun is None:
            positions = self._positions()[position]
        else:
            begun = state.begun[:, None]
            positions = self._positions()[position - begun]
            past_mask = (torch.arange(position + 1, device=tokens.device) >= begun)[:, None, None, :]
        hidden = decoder.embed_tokens(tokens[:, None]) + positions
        if self.architecture.kind == "mbart":
            hidden = decoder.layernorm_embedding(hidden)
        for layer, past, (cross_keys, cross_values) in zip(decoder.layers, state.past, state.cross, strict=True):
            attention, source = layer.self_attn, layer.encoder_attn
            normed = layer.self_attn_layer_norm(hidden)
            past[0, :, :, position] = self._split(attention.k_proj(normed))[:, :, 0]
            past[1, :, :, position] = self._split(attention.v_proj(normed))[:, :, 0]
            keys, values = past[:, :, :, : position + 1]
            hidden = hidden + attention.out_proj(self._attend(attention.q_proj(normed), keys, values, past_mask))
            normed = layer.encoder_attn_layer_norm(hidden)
            hidden = hidden + source.out_proj(self._attend(source.q_proj(normed), cross_keys, cross_values, state.mask))
            hidden = hidden + layer.fc2(layer.activation_fn(layer.fc1(layer.final_layer_norm(hidden))))
        state.position += 1
        return decoder.layer_norm(hidden)[:, 0], state

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits: Tensor = self.hf.lm_head(hidden)
        return logits + self.bias if self.architecture.kind == "mbart" else logits


def _config_keys(architecture: MultilingualArchitecture, dropout: float) -> dict[str, Any]:
    """Return the keys of the configuration from which `transformers` builds this architecture."""
    return {
        "vocab_size": architecture.vocab,
        "d_model": architecture.d_model,
        "encoder_layers": architecture.encoder_layers,
        "decoder_layers": architecture.decoder_layers,
        "encoder_attention_heads": architecture.heads,
        "decoder_attention_heads": architecture.heads,
        "encoder_ffn_dim": architecture.ffn,
        "decoder_ffn_dim": architecture.ffn,
        "max_position_embeddings": architecture.max_positions,
        "activation_function": architecture.activation,
        "scale_embedding": architecture.scale_embedding,
        "pad_token_id": architecture.pad_token,
        "bos_token_id": architecture.start_token,
        "eos_token_id": architecture.eos_token,
        "decoder_start_token_id": architecture.start_token,
        "forced_eos_token_id": None,
        "dropout": dropout,
        "attention_dropout": 0.0,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
    }
