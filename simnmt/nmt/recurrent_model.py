"""Encoder and decoder of LSTM or GRU cells with Luong's attention (CNMT-13): a step model and its training pass.

`RecurrentDecoder`, with its state, slots and cells, is also the base of the attentional models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.nmt.architecture import RecurrentArchitecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear
from simnmt.nmt.step_model import NeuralModel, SlotCompaction, SourceRows

Kept = tuple[Tensor, ...]
"""What a recurrent layer keeps from step to step, each [rows, width]: h, and c of an LSTM."""


@dataclass(slots=True)
class RecurrentState:
    """Memory and state in one: before `start` a row is a sentence, after it one of its beams."""

    kept: Kept
    """What each recurrent layer keeps, from bottom to top."""
    source: Tensor
    """Keys that attention compares and values that it gives, side by side: [rows, src_len, keys + values]."""
    behind: Tensor | None
    """True behind a source's end, [rows, src_len]; None where all are equally long."""


class RecurrentSlots:
    """See `Slots`. The source lies in a tensor with room to grow; what is kept, which every step makes anew, does not."""

    def __init__(
        self,
        body: Callable[[RecurrentState, Tensor], tuple[Tensor, RecurrentState]],
        kept: Kept,
        source: Tensor,
        most_rows: int | None = None,
    ) -> None:
        """`body` is the model's own; it is given views of the active rows.

        `kept`: as in `RecurrentState`, of no row; `source`: room for it, [rows, 0, width]; `most_rows`: as in
        `StepModel.slots`.
        """
        self._body, self._source = body, SourceRows(source, 0, most_rows)
        self._state = RecurrentState(kept, source[:0], None)

    @torch.inference_mode()
    def join(self, memory: RecurrentState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """See `Slots`."""
        if not sentences:
            return
        rows = [sentence for sentence in sentences for _ in range(beam)]
        lengths = [src_len for src_len in src_lens for _ in range(beam)]
        chosen = torch.tensor(rows, device=memory.source.device)
        self._source.append(memory.source[:, : max(lengths)].index_select(0, chosen), lengths)
        both = zip(self._state.kept, memory.kept, strict=True)
        self._see(tuple(torch.cat((old, new.index_select(0, chosen))) for old, new in both))

    @torch.inference_mode()
    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """See `Slots`."""
        leaving = SlotCompaction(len(self._source), slots, beam, self._state.source.device)
        self._source.drop(leaving)
        for part in self._state.kept:
            leaving.move(part, 0)
        self._see(tuple(part[: len(leaving.rows)] for part in self._state.kept))
        return leaving.order

    @torch.inference_mode()
    def body(self, tokens: Tensor) -> Tensor:
        """See `Slots`."""
        hidden, self._state = self._body(self._state, tokens)
        return hidden

    @torch.inference_mode()
    def reorder(self, rows: Tensor) -> None:
        """See `Slots`."""
        self._state.kept = tuple(part.index_select(0, rows) for part in self._state.kept)

    def _see(self, kept: Kept) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        within = self._source.within() if len(self._source) else None
        self._state = RecurrentState(kept, self._source.seen(), None if within is None else ~within)


def gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> Kept:
    """One step of a GRU (SHARP-04): gates [rows, 3 x width] in the order u, q, candidate.

    `fed`: all but the products with the state, biases included; `recurred`: those products.
    """
    width = hidden.shape[1]
    update, reset = (fed[:, : 2 * width] + recurred[:, : 2 * width]).sigmoid().chunk(2, dim=1)
    candidate = torch.tanh(fed[:, 2 * width :] + reset * recurred[:, 2 * width :])
    return (torch.lerp(candidate, hidden, update),)


def _torch_gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> Kept:
    """As `gru`, with the gates in torch's order: reset, update, candidate."""
    reset, update, content = fed.chunk(3, dim=1)
    recurred_reset, recurred_update, recurred_content = recurred.chunk(3, dim=1)
    content = torch.tanh(content + (reset + recurred_reset).sigmoid() * recurred_content)
    return (torch.lerp(content, hidden, (update + recurred_update).sigmoid()),)


def lstm(fed: Tensor, recurred: Tensor, _: Tensor, cell: Tensor) -> Kept:
    """One step of an LSTM: gates [rows, 4 x width] in torch's order, input, forget, candidate, output; otherwise as `gru`."""
    take, forget, candidate, give = (fed + recurred).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + take.sigmoid() * candidate.tanh()
    return give.sigmoid() * cell.tanh(), cell


@dataclass(frozen=True, slots=True)
class CellKind:
    """A kind of recurrent cell."""

    step: Callable[..., Kept]
    gates: int
    kept: int
    """Tensors kept from step to step."""

    def zeros(self, rows: int, width: int, like: Tensor) -> Kept:
        """What is kept before the first step."""
        return tuple(like.new_zeros((rows, width)) for _ in range(self.kept))

    def next_of(self, waiting: Iterator[Tensor]) -> Kept:
        """The next of these, as many as this cell keeps."""
        return tuple(islice(waiting, self.kept))


LSTM = CellKind(lstm, 4, 2)
CELLS = {"gru": CellKind(gru, 3, 1), "lstm": LSTM}
_TORCH_GRU = CellKind(_torch_gru, 3, 1)


class RecurrentDecoder(NeuralModel):
    """A step model whose decoder carries a `RecurrentState`.

    A subclass has `src_embedding`, `tgt_embedding`, `dropout`, `projection` and an `encoder` of torch, and says what its
    decoder keeps.
    """

    src_embedding: nn.Embedding
    tgt_embedding: nn.Embedding
    dropout: nn.Dropout
    encoder: nn.LSTM | nn.GRU
    source_width: int
    """Width of `RecurrentState.source`."""

    @abstractmethod
    def body(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`."""

    @abstractmethod
    def zeros(self, rows: int, like: Tensor) -> Kept:
        """What all recurrent layers of the decoder keep before the first step, where it is zeros."""

    def read_source(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Kept, Tensor | None]:
        """The encoder's states, [batch, src_len, width], 0 behind a source's end; its last state; and the padding mask.

        The mask is `RecurrentState.behind`.
        """
        embedded, src_len = self.dropout(self.src_embedding(src)), src.shape[1]
        if bool((src_lengths == src_len).all()):
            states, last = self.encoder(embedded)
            behind = None
        else:
            lengths = src_lengths.cpu()
            packed, last = self.encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
            states = pad_packed_sequence(packed, batch_first=True, total_length=src_len)[0]
            behind = torch.arange(src_len, device=src.device)[None] >= src_lengths[:, None]
        return states, last if isinstance(last, tuple) else (last,), behind

    def start(self, memory: RecurrentState, beam: int) -> RecurrentState:
        """See `StepModel`."""
        if beam == 1:
            return replace(memory)
        kept = tuple(part.repeat_interleave(beam, dim=0) for part in memory.kept)
        behind = None if memory.behind is None else memory.behind.repeat_interleave(beam, dim=0)
        return RecurrentState(kept, memory.source.repeat_interleave(beam, dim=0), behind)

    def reorder(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """See `StepModel`."""
        return replace(state, kept=tuple(part.index_select(0, rows) for part in state.kept))

    def slots(self, rows: int, most_rows: int | None = None) -> RecurrentSlots:
        """See `StepModel`."""
        weight = self.tgt_embedding.weight.detach()
        return RecurrentSlots(self.body, self.zeros(0, weight), weight.new_empty((rows, 0, self.source_width)), most_rows)


class RecurrentModel(RecurrentDecoder):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    architecture: RecurrentArchitecture

    def __init__(self, architecture: RecurrentArchitecture, dropout: float = 0.0) -> None:
        super().__init__(architecture)
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
        self.attends = architecture.attention == "general"
        self.score = nn.Linear(width, width, bias=False) if self.attends else None
        self.combine = nn.Linear(2 * width, width, bias=False) if self.attends else None
        self.projection = nn.Linear(width, self.vocab)
        self.dropout = nn.Dropout(dropout)
        self.source_width = 2 * width if self.attends else 0
        self._cell = LSTM if both else _TORCH_GRU
        self._half_cells: list[tuple[HalfLinear, HalfLinear]] = []

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        values, last, behind = self._read(src, src_lengths)
        states = self._decoded(last, tgt_in)
        keys = values if self.score is None else self.score(values)
        logits: Tensor = self.projection(self.dropout(self._combined(states, keys, values, behind)))
        return logits

    def attention(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """See `NeuralModel`."""
        if self.score is None:
            raise NmtError("a model without attention aligns nothing", remedy="align by ibm1")
        values, last, behind = self._read(src, src_lengths)
        return _weights(self._decoded(last, tgt_in), self.score(values), behind)

    def encode(self, src: Tensor, src_lengths: Tensor) -> RecurrentState:
        """See `StepModel`."""
        values, last, behind = self._read(src, src_lengths)
        kept = tuple(part[layer] for layer in range(self.architecture.layers) for part in last)
        source = values[:, :, :0] if self.score is None else torch.cat((self.score(values), values), dim=2)
        return RecurrentState(kept, source, behind)

    def body(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`.

        The cells are written out: for a single token torch's own layer spends most of its time on rearranging its weights.
        """
        output, after, waiting = self.tgt_embedding(tokens), list[Tensor](), iter(state.kept)
        for feed, recur in self._products():
            before = self._cell.next_of(waiting)
            kept = self._cell.step(feed(output), recur(before[0]), *before)
            output = kept[0]
            after += kept
        state.kept = tuple(after)
        keys, values = state.source.chunk(2, dim=2)
        return self._combined(output[:, None], keys, values, state.behind)[:, 0], state

    def zeros(self, rows: int, like: Tensor) -> Kept:
        """See `RecurrentDecoder`."""
        return self._cell.zeros(rows, self.architecture.hidden, like) * self.architecture.layers

    def halve(self) -> None:
        """Hold the decoder's weights in float16 from now on, for inference alone."""
        self._half_cells = [
            (HalfLinear(feed, feed_bias), HalfLinear(recur, recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]
        super().halve()

    def _read(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Kept, Tensor | None]:
        """As `read_source`, with the last state as the decoder begins: each part [layers, batch, hidden]."""
        values, last, behind = self.read_source(src, src_lengths)
        if self.encoder.bidirectional:
            # [layers x directions, batch, half] -> [layers, batch, both halves]
            last = tuple(torch.cat((part[0::2], part[1::2]), dim=2) for part in last)
        return values, last, behind

    def _decoded(self, last: Kept, tgt_in: Tensor) -> Tensor:
        """The decoder's states [batch, tgt_len, hidden] along the reference."""
        states: Tensor = self.decoder(self.dropout(self.tgt_embedding(tgt_in)), last if len(last) > 1 else last[0])[0]
        return states

    def _products(self) -> Sequence[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]:
        """Of each layer: the product with what it is fed, and that with its own last output."""
        return self._half_cells or [
            (partial(linear, weight=feed, bias=feed_bias), partial(linear, weight=recur, bias=recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]

    def _combined(self, states: Tensor, keys: Tensor, values: Tensor, behind: Tensor | None) -> Tensor:
        """Decoder states [rows, tokens, hidden] to what is projected, of the same shape."""
        if self.combine is None:
            return states
        context = torch.bmm(_weights(states, keys, behind), values)
        return torch.tanh(self.combine(torch.cat((context, states), dim=2)))


def _weights(states: Tensor, keys: Tensor, behind: Tensor | None) -> Tensor:
    """How much states [rows, tokens, hidden] look at each source position: [rows, tokens, src_len]."""
    scores = torch.bmm(states, keys.transpose(1, 2))
    return (scores if behind is None else scores.masked_fill(behind[:, None], float("-inf"))).softmax(dim=2)
