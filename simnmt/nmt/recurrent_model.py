"""Encoder and decoder of LSTM or GRU cells with Luong's attention (CNMT-13): a step model and its training pass.

`RecurrentDecoder`, with its cells, is also the base of the attentional models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.nmt.architecture import AttentionalArchitecture, RecurrentArchitecture
from simnmt.nmt.step_model import HalfLinear, Memory, Slots, StepModel

Kept = tuple[Tensor, ...]
"""The state of a recurrent layer between steps, each [rows, width]: h, and c of an LSTM."""


def gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> Kept:
    """Take one step of a GRU (SHARP-04): gates [rows, 3 x width] in the order u, q, candidate.

    `fed`: products with the input, biases included; `recurred`: products with the state.
    """
    width = hidden.shape[1]
    update, reset = (fed[:, : 2 * width] + recurred[:, : 2 * width]).sigmoid().chunk(2, dim=1)
    candidate = torch.tanh(fed[:, 2 * width :] + reset * recurred[:, 2 * width :])
    return (torch.lerp(candidate, hidden, update),)


def _torch_gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> Kept:
    """Take one step of a GRU with the gates in torch's order: reset, update, candidate; arguments as in `gru`."""
    reset, update, content = fed.chunk(3, dim=1)
    recurred_reset, recurred_update, recurred_content = recurred.chunk(3, dim=1)
    content = torch.tanh(content + (reset + recurred_reset).sigmoid() * recurred_content)
    return (torch.lerp(content, hidden, (update + recurred_update).sigmoid()),)


def lstm(fed: Tensor, recurred: Tensor, _: Tensor, cell: Tensor) -> Kept:
    """Take one step of an LSTM: gates [rows, 4 x width] in torch's order, input, forget, candidate, output; see `gru`."""
    take, forget, candidate, give = (fed + recurred).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + take.sigmoid() * candidate.tanh()
    return give.sigmoid() * cell.tanh(), cell


@dataclass(frozen=True, slots=True)
class CellKind:
    """A kind of recurrent cell."""

    step: Callable[..., Kept]
    gates: int
    kept: int
    """Tensors of the state."""

    def zeros(self, rows: int, width: int, like: Tensor) -> Kept:
        return tuple(like.new_zeros((rows, width)) for _ in range(self.kept))

    def next_of(self, waiting: Iterator[Tensor]) -> Kept:
        """Take the next tensors, as many as the state of this cell has."""
        return tuple(islice(waiting, self.kept))


CELLS = {"gru": CellKind(gru, 3, 1), "lstm": CellKind(lstm, 4, 2)}
_TORCH_GRU = CellKind(_torch_gru, 3, 1)


def run_layer(layer: nn.LSTM | nn.GRU, fed: Any, start: Any = None) -> Any:
    """Return outputs and last state of torch's own layer, which on CUDA computes in the type of its weights, without autocast.

    Torch's autocast gives cuDNN's recurrent layers float16, whatever type was asked for: small gradients vanish, and torch
    refuses to join the outputs to tensors of bfloat16.
    """
    if not torch.is_autocast_enabled():  # CUDA's; on the CPU a layer takes the type that was asked for
        return layer(fed, start)
    with torch.autocast("cuda", enabled=False):
        return layer(fed, start)


class RecurrentDecoder(StepModel):
    """A step model whose decoder carries the states of recurrent layers.

    A subclass sets `projection` and `source_width`, and adds `encode`, `along` and `body(tokens, kept, source, behind)`, which
    runs a step up to the output layer: from the last token of each row, int64 [rows], the states of all recurrent layers from
    bottom to top, and keys and values of attention, side by side, [rows, src_len, keys + values], to the input of the output
    layer, [rows, width], and the new states. `behind` is True behind the end of each source, [rows, src_len], or None if all
    are equally long.
    """

    projection: nn.Linear
    source_width: int
    """Width of the keys and values of attention."""

    def __init__(
        self,
        architecture: RecurrentArchitecture | AttentionalArchitecture,
        cells: type[nn.LSTM] | type[nn.GRU],
        width: int,
        layers: int,
        both: bool,
        dropout: float,
        padding: int | None = None,
    ) -> None:
        """Build embeddings, of which that of `padding` is 0, and encoder, `width` wide in one direction or in `both`."""
        super().__init__(architecture)
        embedding = architecture.embedding
        self.src_embedding = nn.Embedding(architecture.src_vocab, embedding, padding_idx=padding)
        self.tgt_embedding = nn.Embedding(architecture.tgt_vocab, embedding)
        self.between = dropout if layers > 1 else 0.0  # torch warns of a dropout that no layer follows
        self.encoder = cells(embedding, width, layers, batch_first=True, bidirectional=both, dropout=self.between)
        self.dropout = nn.Dropout(dropout)

    @abstractmethod
    def along(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the inputs of the output layer along the reference, [batch, tgt_len, width]."""

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        logits: Tensor = self.projection(self.dropout(self.along(src, src_lengths, tgt_in)))
        return logits

    def read_source(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Kept, Tensor | None]:
        """Return the encoder's states, [batch, src_len, width], 0 behind a source's end; its last state; and `behind`."""
        embedded, src_len = self.dropout(self.src_embedding(src)), src.shape[1]
        lengths = src_lengths.cpu()  # once: each look at what is on a GPU waits for it
        behind = None
        if bool((lengths == src_len).all()):
            states, last = run_layer(self.encoder, embedded)
        else:
            packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
            packed, last = run_layer(self.encoder, packed)
            states = pad_packed_sequence(packed, batch_first=True, total_length=src_len)[0]
            behind = torch.arange(src_len, device=src.device)[None] >= src_lengths[:, None]
        return states, last if isinstance(last, tuple) else (last,), behind

    def slots(self, rows: int) -> Slots:
        return Slots(self, self.tgt_embedding.weight.detach().new_empty((rows, 0, self.source_width)))


class RecurrentModel(RecurrentDecoder):
    """LSTM or GRU layers with Luong's attention; `forward` is for training with teacher forcing."""

    architecture: RecurrentArchitecture

    def __init__(self, architecture: RecurrentArchitecture, dropout: float = 0.0) -> None:
        width, layers, both = architecture.hidden, architecture.layers, architecture.kind == "bilstm"
        cells = nn.LSTM if both else nn.GRU
        super().__init__(architecture, cells, width // 2 if both else width, layers, both, dropout, architecture.pad_token)
        self.decoder = cells(architecture.embedding, width, layers, batch_first=True, dropout=self.between)
        self.score = nn.Linear(width, width, bias=False)
        self.combine = nn.Linear(2 * width, width, bias=False)
        self.projection = nn.Linear(width, self.vocab)
        self.source_width = 2 * width
        self._cell = CELLS["lstm"] if both else _TORCH_GRU
        self._half_cells: list[tuple[HalfLinear, HalfLinear]] = []

    def along(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        values, last, behind = self._read(src, src_lengths)
        start = last if len(last) > 1 else last[0]
        states, _ = run_layer(self.decoder, self.dropout(self.tgt_embedding(tgt_in)), start)
        return self._combined(states, self.score(values), values, behind)

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        values, last, _ = self._read(src, src_lengths)
        kept = tuple(part[layer] for layer in range(self.architecture.layers) for part in last)
        return Memory(torch.cat((self.score(values), values), dim=2), kept)

    def body(self, tokens: Tensor, kept: Kept, source: Tensor, behind: Tensor | None) -> tuple[Tensor, Kept]:
        # The cells are written out: for a single token torch's own layer spends most of its time rearranging its weights.
        output, after, waiting = self.tgt_embedding(tokens), list[Tensor](), iter(kept)
        for feed, recur in self._products():
            before = self._cell.next_of(waiting)
            state = self._cell.step(feed(output), recur(before[0]), *before)
            output = state[0]
            after += state
        keys, values = source.chunk(2, dim=2)
        return self._combined(output[:, None], keys, values, behind)[:, 0], tuple(after)

    def halve(self) -> None:
        self._half_cells = [
            (HalfLinear(feed, feed_bias), HalfLinear(recur, recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]
        super().halve()

    def _read(self, src: Tensor, src_lengths: Tensor) -> tuple[Tensor, Kept, Tensor | None]:
        """Return `read_source` with the first state of the decoder as last state, each part [layers, batch, hidden]."""
        values, last, behind = self.read_source(src, src_lengths)
        if self.encoder.bidirectional:
            # [layers x directions, batch, half] -> [layers, batch, both halves]
            last = tuple(torch.cat((part[0::2], part[1::2]), dim=2) for part in last)
        return values, last, behind

    def _products(self) -> Sequence[tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]]:
        """Return the products of each layer: with its input, and with its last output."""
        return self._half_cells or [
            (partial(linear, weight=feed, bias=feed_bias), partial(linear, weight=recur, bias=recur_bias))
            for feed, recur, feed_bias, recur_bias in self.decoder.all_weights
        ]

    def _combined(self, states: Tensor, keys: Tensor, values: Tensor, behind: Tensor | None) -> Tensor:
        """Return the input of the output layer for decoder states [rows, tokens, hidden], of the same shape."""
        scores = torch.bmm(states, keys.transpose(1, 2))
        weights = (scores if behind is None else scores.masked_fill(behind[:, None], float("-inf"))).softmax(dim=2)
        return torch.tanh(self.combine(torch.cat((torch.bmm(weights, values), states), dim=2)))
