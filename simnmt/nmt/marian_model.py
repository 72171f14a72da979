"""Transformers through `transformers`: a step model with a key/value cache, its slots, its training pass, and MarianMT.

The weights, the encoder and the training pass are those of `transformers`. The decoder's step is written out over the same
layers: the cache of `transformers` changes its names from version to version, and its step builds masks that a single new token
does not need. Nothing is fetched from the network. `multilingual_models.py` holds the other kinds.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from simnmt.nmt.architecture import PretrainedArchitecture, TransformerArchitecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear
from simnmt.nmt.step_model import SlotCompaction, SourceRows, StepModel, with_room

if TYPE_CHECKING:
    from transformers import MarianConfig, MarianMTModel


@dataclass(slots=True)
class MarianState:
    """Keys and values of all layers, each in one tensor, so that reordering rows is one operation.

    After `encode` a row is a sentence and `past` is empty; after `start` a row is a hypothesis.
    """

    past: Tensor
    """Of the tokens so far: [layers, keys and values, rows, heads, capacity, head width]."""
    cross: Tensor
    """Of the source: [layers, keys and values, rows, heads, src_len, head width]."""
    mask: Tensor | None
    """True up to the end of each source, [rows, 1, 1, src_len]; None if all are equally long."""
    position: int = 0
    """Columns of `past` written so far."""
    begun: Tensor | None = None
    """The column of each row's first token, int64 [rows]; None if it is column 0 for all."""


Body = Callable[[MarianState, Tensor], tuple[Tensor, MarianState]]
_ROWS, _COLUMNS = 2, 4


class MarianSlots:
    """The slots of a Transformer; see `Slots`.

    Every step writes one column of keys and values, the same for all rows, whenever they joined. The first column of a row is
    the step at which it joined, or with a prefix the column before it; earlier columns are hidden from it. Columns before the
    first column of the oldest row are reused when room runs out.
    """

    def __init__(
        self,
        body: Body,
        past: Tensor,
        cross: Tensor,
        max_positions: int | None,
        most_rows: int | None = None,
        prefix_token: int | None = None,
    ) -> None:
        """`body`: the model's, called with views of the active rows; `past`, `cross`: the first room; see `StepModel.slots`.

        `prefix_token`: a token that rows are fed as they join; see `PretrainedModel.prefix_token`.
        """
        self._body, self._max_positions, self._prefix_token = body, max_positions, prefix_token
        self._past, self._source = past, SourceRows(cross, _ROWS, most_rows)
        self._spare: Tensor | None = None
        """The output of reordering, as large as `_past`, with which it is then exchanged; made when first needed."""
        self._begun: list[int] = []
        """First column of each row."""
        self._clock = 0
        """The column that the next step writes."""
        self._state: MarianState | None = None

    @torch.inference_mode()
    def join(self, memory: MarianState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        new = len(self._source.join(memory.cross, sentences, src_lens, beam))
        self._make_room(self._rows + new, self._past.shape[_COLUMNS])
        # Masked places must be numbers all the same: not-a-number times a weight of 0 is not a number.
        self._past[:, :, self._rows : self._rows + new, :, self._oldest : self._clock] = 0
        if self._prefix_token is None:
            self._begun += [self._clock] * new
            self._update_state()
        else:
            self._clock = max(self._clock, 1)
            self._begun += [self._clock - 1] * new
            self._update_state()
            self._feed_prefix(new, self._prefix_token)

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = SlotCompaction(self._rows, slots, beam, self._past.device)
        self._source.drop(leaving)
        leaving.move(self._past[self._used()], _ROWS)
        self._begun = [self._begun[row] for row in leaving.rows]
        self._update_state()
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        assert self._state is not None, "no row is active"
        if self._state.position == self._max_positions:
            raise NmtError(f"a target of more than {self._max_positions} tokens, the model's positions", remedy="shorten it")
        if self._clock == self._past.shape[_COLUMNS]:
            self._free_columns()
        hidden, self._state = self._body(self._state, tokens)
        self._clock += 1
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        assert self._state is not None, "no row is active"
        if self._spare is None or self._spare.shape != self._past.shape:
            self._spare = torch.empty_like(self._past)
        used = self._used()
        torch.index_select(self._past[used], _ROWS, rows, out=self._spare[used])
        self._past, self._spare = self._spare, self._past
        self._state.past = self._past[:, :, : self._rows, :, self._oldest :]

    @property
    def _rows(self) -> int:
        return len(self._begun)

    @property
    def _oldest(self) -> int:
        """The first column that any row attends to."""
        return min(self._begun, default=self._clock)

    def _used(self) -> tuple[slice, ...]:
        """Return the part of `_past` that the active rows attend to."""
        every = slice(None)
        return every, every, slice(self._rows), every, slice(self._oldest, self._clock)

    def _feed_prefix(self, new: int, prefix_token: int) -> None:
        """Write the keys and values of the prefix of the last `new` rows into the column before the next step's."""
        assert self._state is not None
        last, column = slice(self._rows - new, self._rows), slice(self._clock - 1, self._clock)
        mask = None if self._state.mask is None else self._state.mask[last]
        state = MarianState(self._past[:, :, last, :, column], self._state.cross[:, :, last], mask)
        self._body(state, torch.full((new,), prefix_token, device=self._past.device))

    def _make_room(self, rows: int, columns: int) -> None:
        grown = with_room(self._past, {_ROWS: rows, _COLUMNS: columns}, self._used(), self._source.most)
        if grown is not self._past:
            self._past = grown
            self._shift()

    def _free_columns(self) -> None:
        """Reuse the columns before the oldest row if they are half of all, so that moves are rare; else add columns."""
        in_use = self._clock - self._oldest
        if 2 * in_use <= self._past.shape[_COLUMNS]:
            kept = self._past[self._used()].clone()
            self._past[:, :, : self._rows, :, :in_use] = kept
            self._shift()
        else:
            self._make_room(self._rows, self._clock + 1)
        self._update_state()

    def _shift(self) -> None:
        """Renumber the columns: the first column of the oldest row has become column 0."""
        oldest = self._oldest
        self._begun = [begun - oldest for begun in self._begun]
        self._clock -= oldest

    def _update_state(self) -> None:
        """Give the next step views of the active rows, from the oldest row's first column and up to their longest source."""
        if not self._rows:
            self._clock, self._state = 0, None
            return
        oldest, within = self._oldest, self._source.within()
        begun = None
        if max(self._begun) > oldest:
            begun = torch.tensor([begun - oldest for begun in self._begun], device=self._past.device)
        self._state = MarianState(
            self._past[:, :, : self._rows, :, oldest:],
            self._source.active(),
            None if within is None else within[:, None, None, :],
            self._clock - oldest,
            begun,
        )


_FIRST_CAPACITY = 32


class PretrainedModel(StepModel):
    """A Transformer of `transformers`; `forward` is for training with teacher forcing.

    A subclass has a `body`, and names its decoder's layers.
    """

    architecture: PretrainedArchitecture
    prefix_token: int | None = None
    """A token that each target is fed before `start_token`: the decoder's start, where a language's token starts the text."""

    def __init__(self, architecture: PretrainedArchitecture, hf: Any) -> None:
        """`hf`: the model of `transformers`."""
        super().__init__(architecture)
        self.hf = hf
        self.heads = architecture.heads

    def start_with_language(self, language: int, *, after_start: bool = True) -> None:
        """Let every target begin with the token of its language, after the decoder's start or in its place."""
        self.start_token = language
        if after_start:
            self.prefix_token = self.architecture.start_token
            if self.architecture.max_positions is not None:
                self.max_positions = self.architecture.max_positions - 1

    def output_layer(self) -> nn.Linear | HalfLinear:
        """See `StepModel`; `transformers` keeps the bias apart."""
        layer: nn.Linear | HalfLinear = self.hf.lm_head
        return layer

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return logits [batch, tgt_len, vocab] after each fed token `tgt_in`, int64 [batch, tgt_len], start token first."""
        logits: Tensor = self._whole_pass(src, src_lengths, tgt_in).logits
        return logits

    def attention(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """See `StepModel`: the mean of the heads of the last layer but one, which aligns best (Garg et al., 2019)."""
        usual = self.hf.config._attn_implementation
        self.hf.set_attn_implementation("eager")  # the fast ones do not keep the weights
        try:
            attentions = self._whole_pass(src, src_lengths, tgt_in, output_attentions=True).cross_attentions
        finally:
            self.hf.set_attn_implementation(usual)
        weights: Tensor = attentions[max(len(attentions) - 2, 0)].mean(dim=1)
        return weights

    def _whole_pass(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor, **options: bool) -> Any:
        mask = _source_mask(src, src_lengths).long()
        return self.hf(input_ids=src, attention_mask=mask, decoder_input_ids=tgt_in, use_cache=False, **options)

    def encode(self, src: Tensor, src_lengths: Tensor) -> MarianState:
        """See `StepModel`."""
        within = None if bool((src_lengths == src.shape[1]).all()) else _source_mask(src, src_lengths)
        mask = None if within is None else within.long()
        states = self.hf.get_encoder()(input_ids=src, attention_mask=mask).last_hidden_state
        cross = self._columns(*src.shape)
        for (keys, values), kept in zip(self._source_projections(), cross, strict=True):
            kept[0] = self._split(keys(states))
            kept[1] = self._split(values(states))
        return MarianState(self._columns(len(src), 0), cross, None if within is None else within[:, None, None, :])

    @abstractmethod
    def _source_projections(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        """Yield the projections of the source to keys and to values of each layer of the decoder."""

    def start(self, memory: MarianState, beam: int) -> MarianState:
        """See `StepModel`."""
        cross, mask = memory.cross, memory.mask
        if beam > 1:
            cross = cross.repeat_interleave(beam, dim=_ROWS)
            mask = None if mask is None else mask.repeat_interleave(beam, dim=0)
        rows = cross.shape[_ROWS]
        state = MarianState(self._columns(rows, _FIRST_CAPACITY), cross, mask)
        if self.prefix_token is not None:
            _, state = self.body(state, torch.full((rows,), self.prefix_token, device=cross.device))
        return state

    @abstractmethod
    def body(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""

    def reorder(self, state: MarianState, rows: Tensor) -> MarianState:
        """See `StepModel`."""
        return replace(state, past=state.past.index_select(2, rows))

    def slots(self, rows: int, most_rows: int | None = None) -> MarianSlots:
        """See `StepModel`."""
        past, positions = self._columns(rows, _FIRST_CAPACITY), self.architecture.max_positions
        return MarianSlots(self.body, past, self._columns(rows, 0), positions, most_rows, self.prefix_token)

    def _columns(self, rows: int, length: int) -> Tensor:
        """Return room for keys and values, not initialised: [layers, keys and values, rows, heads, length, head width]."""
        layers, width = self.architecture.decoder_layers, self.architecture.head_width
        return self.bias.new_empty((layers, 2, rows, self.heads, length, width))

    @staticmethod
    def _with_room(state: MarianState) -> None:
        """Double the room for the targets of `state` if it is used up."""
        if state.position == state.past.shape[_COLUMNS]:
            state.past = torch.cat((state.past, torch.empty_like(state.past)), dim=_COLUMNS)

    def _split(self, states: Tensor) -> Tensor:
        """Split heads: [rows, length, heads x head width] to [rows, heads, length, head width]."""
        rows, length, width = states.shape
        return states.view(rows, length, self.heads, width // self.heads).transpose(1, 2)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the values to which each query attends, [rows, 1, heads x head width]."""
        attended = scaled_dot_product_attention(self._split(query), keys, values, attn_mask=mask)
        return attended.transpose(1, 2).reshape(query.shape)


class MarianModel(PretrainedModel):
    """A Marian Transformer."""

    architecture: TransformerArchitecture

    def __init__(self, architecture: TransformerArchitecture, hf: MarianMTModel | None = None, dropout: float = 0.0) -> None:
        if hf is None:
            from transformers import MarianMTModel  # takes seconds, which recurrent models do without

            hf = MarianMTModel(marian_config(architecture, dropout))
        super().__init__(architecture, hf)

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        bias: Tensor = self.hf.final_logits_bias[0]
        return bias

    def _source_projections(self) -> Iterator[tuple[nn.Module, nn.Module]]:
        for layer in self.hf.model.decoder.layers:
            yield layer.encoder_attn.k_proj, layer.encoder_attn.v_proj

    def body(self, state: MarianState, tokens: Tensor) -> tuple[Tensor, MarianState]:
        """See `StepModel`."""
        decoder, position = self.hf.model.decoder, state.position
        self._with_room(state)
        hidden = decoder.embed_tokens(tokens[:, None])
        if self.architecture.scale_embedding:
            hidden = hidden * math.sqrt(self.architecture.d_model)
        past_mask = None
        if state.begun is None:
            hidden = hidden + decoder.embed_positions.weight[position]
        else:
            begun = state.begun[:, None]
            hidden = hidden + decoder.embed_positions.weight[position - begun]
            past_mask = (torch.arange(position + 1, device=tokens.device) >= begun)[:, None, None, :]
        for layer, past, (cross_keys, cross_values) in zip(decoder.layers, state.past, state.cross, strict=True):
            self_attention = layer.self_attn
            past[0, :, :, position] = self._split(self_attention.k_proj(hidden))[:, :, 0]
            past[1, :, :, position] = self._split(self_attention.v_proj(hidden))[:, :, 0]
            keys, values = past[:, :, :, : position + 1]
            attended = self_attention.out_proj(self._attend(self_attention.q_proj(hidden), keys, values, past_mask))
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


def marian_config(architecture: TransformerArchitecture, dropout: float = 0.0) -> MarianConfig:
    """Return the configuration from which `transformers` builds this architecture."""
    from transformers import MarianConfig

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


def _source_mask(src: Tensor, src_lengths: Tensor) -> Tensor:
    """Return a mask, True up to the end of each source, [batch, src_len]."""
    return torch.arange(src.shape[1], device=src.device)[None, :] < src_lengths[:, None]
