"""Transformers of `transformers` (Marian; M2M100 and NLLB; mBART): a step model, its slots and its training pass.

The weights, the encoder and the training pass are those of `transformers`. The decoder's step is written out over the same
layers, once for all families: the library takes no positions by row, and its masks and caches cost 0.2 ms a step. Nothing is
fetched from the network.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from simnmt.nmt.architecture import CONFIG_KEYS, FAMILIES, TransformerArchitecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import HalfLinear, Memory, Moves, Slots, StepModel

_ROWS, _COLUMNS = 2, 4
_FIRST_CAPACITY = 32


class TransformerModel(StepModel):
    """A Transformer of `transformers`; `forward` is for training with teacher forcing."""

    architecture: TransformerArchitecture
    prefix_token: int | None = None
    """A token that each target is fed before `start_token`: the decoder's start, where a language's token starts the text."""
    _no_bias: Tensor

    def __init__(self, architecture: TransformerArchitecture, hf: Any = None, dropout: float = 0.0) -> None:
        """`hf`: the model of `transformers`; None: one with random weights and this dropout."""
        super().__init__(architecture)
        self.family, self.heads = FAMILIES[architecture.kind], architecture.heads
        self.hf = hf or _random_model(architecture, dropout)
        if not hasattr(self.hf, "final_logits_bias"):
            self.register_buffer("_no_bias", self.hf.lm_head.weight.new_zeros(architecture.vocab), persistent=False)

    def start_with_language(self, language: int, *, after_start: bool = True) -> None:
        """Let every target begin with the token of its language, after the decoder's start or in its place."""
        self.start_token = language
        if after_start:
            self.prefix_token = self.architecture.start_token
            self.max_positions = self.architecture.max_positions - 1

    def output_layer(self) -> nn.Linear | HalfLinear:
        layer: nn.Linear | HalfLinear = self.hf.lm_head
        return layer

    @property
    def bias(self) -> Tensor:
        """The bias of the output layer, [vocab], which `transformers` keeps apart."""
        bias: Tensor = self.hf.final_logits_bias[0] if hasattr(self.hf, "final_logits_bias") else self._no_bias
        return bias

    def project(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.hf.lm_head(hidden)
        return logits + self.hf.final_logits_bias if hasattr(self.hf, "final_logits_bias") else logits

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        mask = _source_mask(src, src_lengths)
        logits: Tensor = self.hf(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in, use_cache=False).logits
        return logits

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        """Read the sources; the memory is the keys and values of each layer, as `room` has them."""
        mask = None if bool((src_lengths == src.shape[1]).all()) else _source_mask(src, src_lengths)
        states = self.hf.get_encoder()(input_ids=src, attention_mask=mask).last_hidden_state
        cross = self.room(*src.shape)
        for layer, kept in zip(self.hf.model.decoder.layers, cross, strict=True):
            kept[0] = self._split(layer.encoder_attn.k_proj(states))
            kept[1] = self._split(layer.encoder_attn.v_proj(states))
        return Memory(cross)

    def slots(self, rows: int) -> Slots:
        return _TransformerSlots(self, rows)

    def room(self, rows: int, length: int) -> Tensor:
        """Return room for keys and values, not initialised: [layers, keys and values, rows, heads, length, head width]."""
        width = self.architecture.d_model // self.heads
        return self.bias.new_empty((self.architecture.decoder_layers, 2, rows, self.heads, length, width))

    def body(
        self, tokens: Tensor, past: Tensor, position: int, begun: Tensor | None, cross: Tensor, within: Tensor | None
    ) -> Tensor:
        """Run a step up to the output layer, and write its keys and values; return [rows, width].

        Args:
            tokens: the last token of each row, int64 [rows].
            past: keys and values of the tokens so far, as `room` has them.
            position: the column of `past` to write.
            begun: the column of each row's first token, int64 [rows]; None if it is column 0 for all.
            cross: keys and values of the source, as `room` has them.
            within: True up to the end of each source, [rows, src_len]; None if all are equally long.
        """
        decoder, family = self.hf.model.decoder, self.family
        positions, past_mask = family.positions(decoder.embed_positions), None
        if begun is None:
            place = positions[position]
        else:
            begun = begun[:, None]
            place = positions[position - begun]
            past_mask = (torch.arange(position + 1, device=tokens.device) >= begun)[:, None, None, :]
        cross_mask = None if within is None else within[:, None, None, :]
        hidden = decoder.embed_tokens(tokens[:, None])
        if family.scales_embedding and self.architecture.scale_embedding:
            hidden = hidden * decoder.embed_scale
        hidden = hidden + place
        if family.norms_embedding:
            hidden = decoder.layernorm_embedding(hidden)

        norm_first = family.norm_first
        for layer, states, (cross_keys, cross_values) in zip(decoder.layers, past, cross, strict=True):
            attention, norm = layer.self_attn, layer.self_attn_layer_norm
            inputs = norm(hidden) if norm_first else hidden
            states[0, :, :, position] = self._split(attention.k_proj(inputs))[:, :, 0]
            states[1, :, :, position] = self._split(attention.v_proj(inputs))[:, :, 0]
            keys, values = states[:, :, :, : position + 1]
            hidden = hidden + self._attend(attention, inputs, keys, values, past_mask)
            hidden = hidden if norm_first else norm(hidden)
            norm = layer.encoder_attn_layer_norm
            inputs = norm(hidden) if norm_first else hidden
            hidden = hidden + self._attend(layer.encoder_attn, inputs, cross_keys, cross_values, cross_mask)
            hidden = hidden if norm_first else norm(hidden)
            norm = layer.final_layer_norm
            inputs = norm(hidden) if norm_first else hidden
            hidden = hidden + layer.fc2(layer.activation_fn(layer.fc1(inputs)))
            hidden = hidden if norm_first else norm(hidden)
        normed: Tensor = decoder.layer_norm(hidden) if norm_first else hidden
        return normed[:, 0]

    def _split(self, states: Tensor) -> Tensor:
        """Split heads: [rows, length, heads x head width] to [rows, heads, length, head width]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)

    def _attend(self, attention: Any, inputs: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the output of an attention layer for one token a row, [rows, 1, width]."""
        attended = scaled_dot_product_attention(self._split(attention.q_proj(inputs)), keys, values, attn_mask=mask)
        output: Tensor = attention.out_proj(attended.transpose(1, 2).reshape(inputs.shape))
        return output


class _TransformerSlots(Slots):
    """The slots of a Transformer.

    Every step writes one column of keys and values, the same for all rows, whenever they joined. The first column of a row is
    the step at which it joined, or with a prefix the column before it; earlier columns are hidden from it. Columns before the
    first column of the oldest row are reused when room runs out.
    """

    def __init__(self, model: TransformerModel, rows: int) -> None:
        self._transformer, self._past = model, model.room(rows, _FIRST_CAPACITY)
        self._spare: Tensor | None = None
        """The output of reordering, as large as `_past`, with which it is then exchanged; made when first needed."""
        self._begun: list[int] = []
        """First column of each row."""
        self._oldest = 0
        """The first column that any row attends to."""
        self._clock = 0
        """The column that the next step writes."""
        super().__init__(model, model.room(rows, 0), _ROWS)

    def body(self, tokens: Tensor) -> Tensor:
        position, most = self._clock - self._oldest, self._transformer.architecture.max_positions
        if position == most:
            raise NmtError(f"a target of more than {most} tokens, the model's positions", remedy="shorten it")
        if self._clock == self._past.shape[_COLUMNS]:
            self._make_room()
        past = self._past[:, :, : self.rows, :, self._oldest :]
        hidden = self._transformer.body(tokens, past, position, *self._inputs)
        self._clock += 1
        return hidden

    def reorder(self, rows: Tensor) -> None:
        if self._spare is None or self._spare.shape != self._past.shape:
            self._spare = torch.empty_like(self._past)
        used = self._used_past()
        torch.index_select(self._past[used], _ROWS, rows, out=self._spare[used])
        self._past, self._spare = self._spare, self._past

    def _take(self, memory: Memory, taken: Tensor) -> None:
        new = slice(len(self._begun), self.rows)
        if self.rows > self._past.shape[_ROWS]:
            self._make_room()
        # Masked places must be numbers all the same: not-a-number times a weight of 0 is not a number.
        self._past[:, :, new, :, self._oldest : self._clock] = 0
        prefix = self._transformer.prefix_token
        if prefix is not None:
            self._clock = max(self._clock, 1)
        first = self._clock - (prefix is not None)
        self._begun += [first] * len(taken)
        self._prepare()
        if prefix is not None:
            # Written into the column before the next step's.
            column, tokens = self._past[:, :, new, :, first : first + 1], torch.full((len(taken),), prefix, device=taken.device)
            _, source, within = self._inputs
            self._transformer.body(tokens, column, 0, None, source[:, :, new], None if within is None else within[new])

    def _move(self, moves: Moves) -> None:
        moves.apply(self._past[self._used_past()], _ROWS)
        self._begun = [self._begun[row] for row in moves.rows]
        self._clock = self._clock if self._begun else 0
        self._prepare()

    def _used_past(self) -> tuple[slice, ...]:
        """Return the part of `_past` that the rows attend to."""
        every = slice(None)
        return every, every, slice(len(self._begun)), every, slice(self._oldest, self._clock)

    def _make_room(self) -> None:
        """Move the columns in use to the front of room for all rows; twice as many columns if less than half would be free."""
        in_use, (layers, both, rows, heads, columns, width) = self._clock - self._oldest, self._past.shape
        rows = rows if self.rows <= rows else max(self.rows, 2 * rows)
        columns = columns if 2 * in_use <= columns else 2 * columns
        moved = self._past.new_zeros((layers, both, rows, heads, columns, width))
        moved[:, :, : len(self._begun), :, :in_use] = self._past[self._used_past()]
        self._past, self._begun = moved, [begun - self._oldest for begun in self._begun]
        self._clock, self._oldest = in_use, 0

    def _prepare(self) -> None:
        super()._prepare()
        self._oldest, begun = min(self._begun, default=self._clock), None
        if max(self._begun, default=0) > self._oldest:
            begun = torch.tensor([first - self._oldest for first in self._begun], device=self._past.device)
        self._inputs = (begun, self._attended, None if self._behind is None else ~self._behind)
        """First columns of the rows counted from the oldest, source and mask, as `TransformerModel.body` takes them."""


def _random_model(architecture: TransformerArchitecture, dropout: float) -> Any:
    import transformers  # takes seconds, which recurrent models do without

    family, auto = FAMILIES[architecture.kind], cast(Any, transformers)
    sizes = {key: getattr(architecture, field) for field, key in CONFIG_KEYS.items()}
    config = auto.AutoConfig.for_model(
        family.model_type,
        **sizes,
        decoder_attention_heads=architecture.heads,
        decoder_ffn_dim=architecture.ffn,
        bos_token_id=architecture.start_token if family.norm_first else None,
        forced_eos_token_id=None,
        dropout=dropout,
        attention_dropout=0.0,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )
    return auto.AutoModelForSeq2SeqLM.from_config(config)


def _source_mask(src: Tensor, src_lengths: Tensor) -> Tensor:
    """Return a mask, 1 up to the end of each source, int64 [batch, src_len]."""
    return (torch.arange(src.shape[1], device=src.device)[None, :] < src_lengths[:, None]).long()
