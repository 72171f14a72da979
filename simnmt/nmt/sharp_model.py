"""The attentional models of the paper on sharp models (SHARP-04, SHARP-12): a step model, and trainable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.nmt.half_weights import halve_linear_layers
from simnmt.nmt.output_products import products_of
from simnmt.nmt.sharp_architecture import AttentionalArchitecture
from simnmt.nmt.sharp_cells import AttentionalCell, DenseBlock, Kept, RecurrentLayer, draw
from simnmt.nmt.sharp_slots import AttentionalSlots
from simnmt.nmt.sharp_state import AttentionalState


class AttentionalModel(nn.Module):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    def __init__(self, architecture: AttentionalArchitecture, dropout: float = 0.0) -> None:
        super().__init__()
        self.architecture = architecture
        self.pad_token, self.start_token = architecture.pad_token, architecture.start_token
        self.eos_token, self.unk_token = architecture.eos_token, architecture.unk_token
        self.vocab = architecture.tgt_vocab
        self.max_positions: int | None = None
        source = 2 * architecture.source_hidden
        self.src_embedding = nn.Embedding(architecture.src_vocab, architecture.embedding)
        self.tgt_embedding = nn.Embedding(architecture.tgt_vocab, architecture.embedding)
        self.encoder = (nn.GRU if architecture.source_cell == "gru" else nn.LSTM)(
            architecture.embedding,
            architecture.source_hidden,
            architecture.source_layers,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if architecture.source_layers > 1 else 0.0,  # torch warns of a dropout that no layer follows
        )
        self.bottom = AttentionalCell(
            architecture.cell,
            architecture.embedding,
            architecture.hidden,
            source,
            architecture.compared,
            architecture.attention,
        )
        self.stack = nn.ModuleList(_stack(architecture))
        self.projection = nn.Linear(architecture.output, self.vocab)
        self.dropout = nn.Dropout(dropout)
        draw(self)

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
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first.

        Everything that does not wait for the state before it is computed for all positions at once.
        """
        keys, values = self.bottom.look_at(self.source_states(src, src_lengths))
        behind = _behind(src, src_lengths)
        fed = self.bottom.feed(self.dropout(self.tgt_embedding(tgt_in)))
        kept = self.bottom.cell.zeros(len(src), self.bottom.hidden, values)
        outputs = []
        for each in fed.unbind(1):
            kept = self.bottom.step(each, kept, keys, values, behind)
            outputs.append(kept[0])
        states = torch.stack(outputs, dim=1)
        for layer in self.stack:
            states = layer(states)
        logits: Tensor = self.projection(self.dropout(states))
        return logits

    def source_states(self, src: Tensor, src_lengths: Tensor) -> Tensor:
        """What attention looks at, [batch, src_len, both directions]; each within [-1, 1], and 0 behind a source's end."""
        embedded = self.dropout(self.src_embedding(src))
        lengths = src_lengths.cpu()
        if bool((lengths == src.shape[1]).all()):
            states: Tensor = self.encoder(embedded)[0]
            return states
        packed, _ = self.encoder(pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False))
        return pad_packed_sequence(packed, batch_first=True, total_length=src.shape[1])[0]

    def encode(self, src: Tensor, src_lengths: Tensor) -> AttentionalState:
        """See `StepModel`."""
        source = torch.cat(self.bottom.look_at(self.source_states(src, src_lengths)), dim=2)
        return AttentionalState(self._zeros(len(src), source), source, _behind(src, src_lengths))

    def start(self, memory: AttentionalState, beam: int) -> AttentionalState:
        """See `StepModel`."""
        if beam == 1:
            return replace(memory)
        kept = tuple(part.repeat_interleave(beam, dim=0) for part in memory.kept)
        behind = None if memory.behind is None else memory.behind.repeat_interleave(beam, dim=0)
        return AttentionalState(kept, memory.source.repeat_interleave(beam, dim=0), behind)

    def step(self, state: AttentionalState, tokens: Tensor) -> tuple[Tensor, AttentionalState]:
        """See `StepModel`."""
        hidden, state = self.body(state, tokens)
        return self.project(hidden), state

    def body(self, state: AttentionalState, tokens: Tensor) -> tuple[Tensor, AttentionalState]:
        """See `StepModel`."""
        compared = self.bottom.compared
        keys, values = state.source[:, :, :compared], state.source[:, :, compared:]
        waiting = iter(state.kept)
        after = [
            self.bottom.step(
                self.bottom.feed(self.tgt_embedding(tokens)), self.bottom.cell.next_of(waiting), keys, values, state.behind
            )
        ]
        output = after[0][0]
        for layer in self.stack:
            if isinstance(layer, RecurrentLayer):
                after.append(layer.step(output, layer.cell.next_of(waiting)))
                output = after[-1][0]
            else:
                output = layer(output)
        state.kept = tuple(part for kept in after for part in kept)
        return output, state

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits: Tensor = self.projection(hidden)
        return logits

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """See `StepModel`."""
        return products_of(self.projection, hidden, block)

    def reorder(self, state: AttentionalState, rows: Tensor) -> AttentionalState:
        """See `StepModel`."""
        return replace(state, kept=tuple(part.index_select(0, rows) for part in state.kept))

    def slots(self, rows: int, most_rows: int | None = None) -> AttentionalSlots:
        """See `StepModel`."""
        weight = self.tgt_embedding.weight.detach()
        width = self.bottom.compared + self.bottom.gates
        return AttentionalSlots(self.body, self._zeros(0, weight), weight.new_empty((rows, 0, width)), most_rows)

    def halve(self) -> None:
        """Hold the decoder's weights in float16 from now on, for inference alone."""
        halve_linear_layers(self)

    @torch.no_grad()
    def clip_weights(self) -> None:
        """Back into [-1, 1] with every weight, so that 16 bits hold it (SHARP-05); to be done after each step of learning."""
        for weight in self.parameters():
            weight.clamp_(-1.0, 1.0)

    def _zeros(self, rows: int, like: Tensor) -> Kept:
        """What is kept before the first step."""
        recurrent = [(self.bottom.cell, self.bottom.hidden)]
        recurrent += [(layer.cell, layer.width) for layer in self.stack if isinstance(layer, RecurrentLayer)]
        return tuple(part for cell, width in recurrent for part in cell.zeros(rows, width, like))


def _stack(architecture: AttentionalArchitecture) -> list[nn.Module]:
    below, layers = architecture.hidden, list[nn.Module]()
    for block in architecture.stack:
        if block.kind == "gru" or block.kind == "lstm":
            for _ in range(block.layers):
                layers.append(RecurrentLayer(block.kind, below, block.width))
                below = block.width
        else:
            layers.append(DenseBlock(block.kind, below, block.width, block.layers))
            below = block.width
    return layers


def _behind(src: Tensor, src_lengths: Tensor) -> Tensor | None:
    """True behind a source's end, [batch, src_len]; None where all are equally long."""
    if bool((src_lengths == src.shape[1]).all()):
        return None
    return torch.arange(src.shape[1], device=src.device)[None] >= src_lengths[:, None]
