"""Decoder-only models of the Llama kind: prompts of any lengths are read, and continued, in one pass over all their tokens.

The layers are those of `transformers`. The pass over them is written out: the library's caches keep all rows at one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from simnmt.nmt.architecture import LlamaArchitecture
from simnmt.nmt.step_model import halve_linear_layers


@dataclass(frozen=True, slots=True)
class TextPart:
    """The next tokens of a text, which is a prompt and its continuation."""

    room: Tensor
    """Keys and values of the text, see `LlamaModel.room`; those of these tokens are written."""
    begin: int
    """Tokens of the text before these."""
    tokens: Sequence[int]
    is_continued: bool
    """Whether the logits after the last of these tokens are needed."""


class LlamaModel(nn.Module):
    """A Llama of `transformers`. What it computes of a text does not depend on the other texts of a pass, but for rounding."""

    def __init__(self, architecture: LlamaArchitecture, hf: Any = None, newlines: frozenset[int] = frozenset()) -> None:
        """`hf`: the model of `transformers`, None: one with random weights; `newlines`: the tokens with a line break."""
        super().__init__()
        self.newlines = newlines
        self.architecture, self.hf = architecture, hf or _random_model(architecture)
        ends = getattr(self.hf.generation_config, "eos_token_id", None)
        self.ends = frozenset([architecture.eos_token, *([] if ends is None else ends if isinstance(ends, list) else [ends])])
        """Tokens that end a text."""
        rotary = self.hf.model.rotary_emb
        # No buffer: a conversion of the weights to 16 bits would round it.
        self._frequencies, self._scale = rotary.inv_freq.detach().clone(), rotary.attention_scaling

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.hf.lm_head.weight.device
        return device

    def room(self, tokens: int) -> Tensor:
        """Return room for a text, not initialised: [layers, keys and values, kv_heads, tokens, head width]."""
        sizes = self.architecture
        like = self.hf.model.embed_tokens.weight
        return torch.empty((sizes.layers, 2, sizes.kv_heads, tokens, sizes.head_width), dtype=like.dtype, device=like.device)

    def halve(self) -> None:
        """Convert the weights of all products to float16, for inference only."""
        halve_linear_layers(self)

    def forward(self, parts: Sequence[TextPart]) -> Tensor:
        """Read the next tokens of some texts in one pass.

        Returns the logits after each part that is continued, [continued parts, vocab], in their order; the caller may change
        them.
        """
        model, sizes, device = self.hf.model, self.architecture, self.device
        tokens = torch.tensor([token for part in parts for token in part.tokens], device=device)
        places = torch.cat([torch.arange(part.begin, part.begin + len(part.tokens), device=device) for part in parts])
        ends = torch.tensor([len(part.tokens) for part in parts]).cumsum(0).tolist()
        rows = [slice(end - len(part.tokens), end) for end, part in zip(ends, parts, strict=True)]
        hidden = model.embed_tokens(tokens)
        angles = (places[:, None] * self._frequencies.to(device)).repeat(1, 2)[:, None, :]
        cosines, sines = ((self._scale * part).to(hidden.dtype) for part in (angles.cos(), angles.sin()))
        masks = [_mask(part, sizes.heads // sizes.kv_heads, device) for part in parts]
        for number, layer in enumerate(model.layers):
            attention, inputs = layer.self_attn, layer.input_layernorm(hidden)
            queries, keys, values = (
                product(inputs).view(len(tokens), -1, sizes.head_width)
                for product in (attention.q_proj, attention.k_proj, attention.v_proj)
            )
            queries, keys = (heads * cosines + _rotated(heads) * sines for heads in (queries, keys))
            attended = [
                _attend(part, number, queries[rows_], keys[rows_], values[rows_], mask)
                for part, rows_, mask in zip(parts, rows, masks, strict=True)
            ]
            hidden = hidden + attention.o_proj(torch.cat(attended))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        continued = [end - 1 for end, part in zip(ends, parts, strict=True) if part.is_continued]
        logits: Tensor = self.hf.lm_head(model.norm(hidden[continued]))
        return logits


def _attend(part: TextPart, layer: int, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Write a part's keys and values, and return what its tokens attend to, [tokens, heads x head width].

    Heads that share keys are side by side; their queries are further rows of one product.
    """
    tokens, end = len(queries), part.begin + len(queries)
    room = part.room[layer, :, :, :end]
    room[0, :, part.begin :], room[1, :, part.begin :] = keys.transpose(0, 1), values.transpose(0, 1)
    kv_heads, width = room.shape[1], room.shape[3]
    grouped = queries.view(tokens, kv_heads, -1, width).permute(1, 2, 0, 3).reshape(kv_heads, -1, width)
    attended = scaled_dot_product_attention(grouped, room[0], room[1], attn_mask=mask)
    return attended.view(kv_heads, -1, tokens, width).permute(2, 0, 1, 3).reshape(tokens, -1)


def _mask(part: TextPart, group: int, device: torch.device) -> Tensor | None:
    """Return True where a token attends, [group x tokens, tokens up to the part's end]; None for a single token."""
    tokens = len(part.tokens)
    if tokens == 1:
        return None
    return torch.ones(tokens, part.begin + tokens, dtype=torch.bool, device=device).tril(part.begin).repeat(group, 1)


def _rotated(heads: Tensor) -> Tensor:
    first, second = heads.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _random_model(architecture: LlamaArchitecture) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        num_hidden_layers=architecture.layers,
        hidden_size=architecture.d_model,
        num_attention_heads=architecture.heads,
        num_key_value_heads=architecture.kv_heads,
        head_dim=architecture.head_width,
        intermediate_size=architecture.ffn,
        vocab_size=architecture.vocab,
        max_position_embeddings=architecture.max_positions,
        tie_word_embeddings=architecture.tied,
        bos_token_id=architecture.start_token,
        eos_token_id=architecture.eos_token,
        pad_token_id=architecture.pad_token,
    )
    return LlamaForCausalLM(config)
