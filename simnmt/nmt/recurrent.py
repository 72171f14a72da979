"""Encoder and decoder of LSTM or GRU cells with Luong's attention (CNMT-13): a step model, and trainable."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.nmt.architecture import RecurrentArchitecture


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


class RecurrentModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: RecurrentArchitecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.architecture = architecture
        self.pad_token, self.start_token = architecture.pad_token, architecture.start_token
        self.eos_token, self.vocab = architecture.eos_token, architecture.tgt_vocab
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

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.projection.weight.device

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        return self._decode(self.encode(src, src_lengths), tgt_in)[0]

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
            return memory
        rows = torch.arange(memory.hidden[0].shape[1], device=self.device).repeat_interleave(beam)
        return self.select(memory, rows)

    def step(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`."""
        logits, state.hidden = self._decode(state, tokens[:, None])
        return logits[:, 0], state

    def select(self, state: RecurrentState, rows: Tensor) -> RecurrentState:
        """See `StepModel`."""
        return RecurrentState(
            tuple(part.index_select(1, rows) for part in state.hidden),
            None if state.keys is None else state.keys.index_select(0, rows),
            None if state.values is None else state.values.index_select(0, rows),
            None if state.mask is None else state.mask.index_select(0, rows),
        )

    def _decode(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits [rows, tokens, vocab] after tokens [rows, tokens], and the cells' state then."""
        embedded = self.dropout(self.tgt_embedding(tokens))
        hidden = state.hidden if len(state.hidden) > 1 else state.hidden[0]
        states, last = self.decoder(embedded, hidden)
        if self.combine is not None and state.keys is not None and state.values is not None:
            scores = torch.bmm(states, state.keys)
            if state.mask is not None:
                scores = scores.masked_fill(state.mask, float("-inf"))
            context = torch.bmm(scores.softmax(dim=2), state.values)
            states = torch.tanh(self.combine(torch.cat((context, states), dim=2)))
        return self.projection(self.dropout(states)), last if isinstance(last, tuple) else (last,)
