"""Encoder and decoder of LSTM or GRU cells with Luong's attention (CNMT-13): a step model, its slots, and its training pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.nmt.architecture import RecurrentArchitecture
from simnmt.nmt.linear_layers import HalfLinear, halve_linear_layers, products_of
from simnmt.nmt.slots import SlotCompaction, SourceRows


@dataclass(slots=True)
class RecurrentState:
    """Memory and state in one: before `start` a row is a sentence, after it one of its beams."""

    hidden: tuple[Tensor, ...]
    """h, and c of an LSTM: [layers, rows, hidden]."""
    keys: Tensor | None
    """What a decoder state is scored against, [rows, hidden, src_len]; None without attention."""
    values: Tensor | None
    """The encoder's states, [rows, src_len, hidden]."""
    mask: Tensor | None
    """True behind a source's end, [rows, 1, src_len]; None where all are equally long."""


Body = Callable[[RecurrentState, Tensor], tuple[Tensor, RecurrentState]]


class RecurrentSlots:
    """See `Slots`. The source lies in a tensor with room to grow; the hidden state, which every step makes anew, does not."""

    def __init__(self, body: Body, hidden: tuple[Tensor, ...], source: Tensor | None, most_rows: int | None = None) -> None:
        """`body` is the model's own; it is given views of the active rows.

        `hidden`: as in `RecurrentState`, of no row. `source`: room for keys and values, [2, rows, 0, hidden]; None
        without attention. `most_rows`: as in `StepModel.slots`.
        """
        self._body, self._state = body, RecurrentState(hidden, None, None, None)
        self._source = None if source is None else SourceRows(source, 1, most_rows)

    @torch.inference_mode()
    def join(self, memory: RecurrentState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        rows = [sentence for sentence in sentences for _ in range(beam)]
        chosen = torch.tensor(rows, device=memory.hidden[0].device)
        if self._source is not None and memory.keys is not None and memory.values is not None:
            lengths = [src_len for src_len in src_lens for _ in range(beam)]
            keys, values = memory.keys.transpose(1, 2)[:, : max(lengths)], memory.values[:, : max(lengths)]
            self._source.append(torch.stack((keys.index_select(0, chosen), values.index_select(0, chosen))), lengths)
        before = self._state.hidden
        self._see(
            tuple(torch.cat((old, new.index_select(1, chosen)), 1) for old, new in zip(before, memory.hidden, strict=True))
        )

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = SlotCompaction(self._rows, slots, beam, self._state.hidden[0].device)
        if self._source is not None:
            self._source.drop(leaving)
        for part in self._state.hidden:
            leaving.move(part, 1)
        self._see(tuple(part[:, : len(leaving.rows)] for part in self._state.hidden))
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        hidden, self._state = self._body(self._state, tokens)
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        self._state.hidden = tuple(part.index_select(1, rows) for part in self._state.hidden)

    @property
    def _rows(self) -> int:
        """Active ones."""
        return self._state.hidden[0].shape[1]

    def _see(self, hidden: tuple[Tensor, ...]) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        self._state = RecurrentState(hidden, None, None, None)
        if self._source is not None and self._rows:
            keys, values = self._source.seen()
            within = self._source.within()
            mask = None if within is None else ~within[:, None, :]
            self._state = RecurrentState(hidden, keys.transpose(1, 2), values, mask)


class RecurrentModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: RecurrentArchitecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.architecture = architecture
        self.pad_token, self.start_token = architecture.pad_token, architecture.start_token
        self.eos_token, self.unk_token = architecture.eos_token, architecture.unk_token
        self.vocab = architecture.tgt_vocab
        self.max_positions: int | None = None
        width, layers, both = architecture.hidden, architecture.layers, architecture.kind == "bilstm"
        cells = nn.LSTM if both else nn.GRU
        between = dropout if layers > 1 else 0.0  # torch warns of a dropout that no layer follows
        self.src_embedding = nn.Embedding(architecture.src_vocab, architecture.embedding, padding_idx=self.pad_token)
        self.tgt_embedding = nn.Embedding(architecture.tgt_vocab, architecture.embedding)
        self.encoder = cells(
            architecture.embedding,
            width // 2 if both else width,
            layers,
            batch_first=True,
            bidirectional=both,
            dropout=between,
        )
        self.decoder = cells(architecture.embedding, width, layers, batch_first=True, dropout=between)
        self.score = nn.Linear(width, width, bias=False) if architecture.attention == "general" else None
        self.combine = nn.Linear(2 * width, width, bias=False) if architecture.attention == "general" else None
        self.projection = nn.Linear(width, self.vocab)
        self.dropout = nn.Dropout(dropout)
        self._is_lstm = both
        self._half_cells: list[tuple[HalfLinear, HalfLinear]] = []

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.tgt_embedding.weight.device

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        return self.projection.bias

    @property
    def weight(self) -> Tensor:
        """See `StepModel`."""
        weight: Tensor = self.projection.weight
        return weight

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        state = self.encode(src, src_lengths)
        states, _ = self.decoder(self.dropout(self.tgt_embedding(tgt_in)), state.hidden if self._is_lstm else state.hidden[0])
        logits: Tensor = self.projection(self.dropout(self._attend(state, states)))
        return logits

    def encode(self, src: Tensor, src_lengths: Tensor) -> RecurrentState:
        """See `StepModel`."""
        embedded = self.dropout(self.src_embedding(src))
        lengths = src_lengths.cpu()
        if bool((lengths == src.shape[1]).all()):
            mask = None
            values, last = self.encoder(embedded)
        else:
            mask = torch.arange(src.shape[1], device=src.device)[None, None, :] >= src_lengths[:, None, None]
            packed, last = self.encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
            values, _ = pad_packed_sequence(packed, batch_first=True, total_length=src.shape[1])
        hidden = last if isinstance(last, tuple) else (last,)
        if self.encoder.bidirectional:
            # [layers x directions, batch, half] -> [layers, batch, both halves]
            hidden = tuple(torch.cat((part[0::2], part[1::2]), dim=2) for part in hidden)
        if self.score is None:
            return RecurrentState(hidden, None, None, None)
        return RecurrentState(hidden, self.score(values).transpose(1, 2), values, mask)

    def start(self, memory: RecurrentState, beam: int) -> RecurrentState:
        """See `StepModel`."""
        if beam == 1:
            return replace(memory)
        rows = torch.arange(memory.hidden[0].shape[1], device=self.device).repeat_interleave(beam)
        keys, values, mask = (
            None if part is None else part.index_select(0, rows) for part in (memory.keys, memory.values, memory.mask)
        )
        return RecurrentState(tuple(part.index_select(1, rows) for part in memory.hidden), keys, values, mask)

    def step(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`."""
        hidden, state = self.body(state, tokens)
        return self.project(hidden), state

    def body(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`.

        The cells are written out: for a single token torch's own layer spends most of its time on rearranging its weights.
        """
        inputs = self.tgt_embedding(tokens)
        after = []
        for layer, (feed, recur) in enumerate(self._cells()):
            before = [part[layer] for part in state.hidden]
            kept = (_lstm if self._is_lstm else _gru)(feed(inputs), recur(before[0]), *before)
            inputs = kept[0]
            after.append(kept)
        state.hidden = tuple(torch.stack(parts) for parts in zip(*after, strict=True))
        return self._attend(state, inputs[:, None])[:, 0], state

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits: Tensor = self.projection(hidden)
        return logits

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """See `StepModel`."""
        return products_of(self.projection, hidden, block)

    def reorder(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """See `StepModel`."""
        return replace(state, hidden=tuple(part.index_select(1, rows) for part in state.hidden))

    def slots(self, rows: int, most_rows: int | None = None) -> RecurrentSlots:
        """See `StepModel`."""
        layers, width = self.architecture.layers, self.architecture.hidden
        empty = self.tgt_embedding.weight.detach().new_zeros
        hidden = tuple(empty((layers, 0, width)) for _ in range(2 if self._is_lstm else 1))
        source = None if self.score is None else empty((2, rows, 0, width))
        return RecurrentSlots(self.body, hidden, source, most_rows)

    def halve(self) -> None:
        """Hold the decoder's weights in float16 from now on, for inference alone."""
        self._half_cells = [
            (HalfLinear(feed, feed_bias), HalfLinear(recur, recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]
        halve_linear_layers(self)

    def _cells(self) -> Sequence[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]:
        """Of each layer: the product with what it is fed, and that with its own last output."""
        return self._half_cells or [
            (partial(linear, weight=feed, bias=feed_bias), partial(linear, weight=recur, bias=recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]

    def _attend(self, state: RecurrentState, states: Tensor) -> Tensor:
        """Decoder states [rows, tokens, hidden] to what is projected, of the same shape."""
        if self.combine is None or state.keys is None or state.values is None:
            return states
        scores = torch.bmm(states, state.keys)
        if state.mask is not None:
            scores = scores.masked_fill(state.mask, float("-inf"))
        context = torch.bmm(scores.softmax(dim=2), state.values)
        return torch.tanh(self.combine(torch.cat((context, states), dim=2)))


def _lstm(fed: Tensor, recurred: Tensor, _: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Output and cell state after one step; gates in torch's order."""
    take, forget, content, give = (fed + recurred).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + take.sigmoid() * content.tanh()
    return give.sigmoid() * cell.tanh(), cell


def _gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> tuple[Tensor]:
    """Output after one step; gates in torch's order."""
    reset, update, content = fed.chunk(3, dim=1)
    own_reset, own_update, own_content = recurred.chunk(3, dim=1)
    content = torch.tanh(content + (reset + own_reset).sigmoid() * own_content)
    return (torch.lerp(content, hidden, (update + own_update).sigmoid()),)
