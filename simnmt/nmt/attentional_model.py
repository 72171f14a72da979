"""Attentional models of the paper on sharp models (SHARP-04, SHARP-12): a step model and its training pass.

The decoder is one cell with attention at the bottom and a stack of recurrent or fully connected layers on top.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from simnmt.kernels.sharp_model import RELU_LIMIT
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.recurrent_model import CELLS, Kept, RecurrentDecoder
from simnmt.nmt.step_model import Memory


class AttentionalCell(nn.Module):
    """The bottom cell of the decoder: attention to the source, whose result is fed into a GRU or LSTM (SHARP-04).

    Keys and values of attention are computed once per source, by `look_at`: U c = sum of a_j (U s_j), as in SHARP-07. The
    weights a_j sum to 1, so that the gates' bias is added to the values.
    """

    def __init__(self, architecture: AttentionalArchitecture) -> None:
        super().__init__()
        self.cell, hidden, source = CELLS[architecture.cell], architecture.hidden, 2 * architecture.source_hidden
        self.hidden, self.compared, self.gates = hidden, architecture.compared, self.cell.gates * hidden
        both = self.compared + self.gates
        self.recur = nn.Linear(hidden, both, bias=False)
        """W_a, then W of each gate."""
        self.feed = nn.Linear(architecture.embedding, both, bias=False)
        """V_a, then V of each gate."""
        self.keys = nn.Linear(source, self.compared, bias=False)
        """U_a."""
        self.read = nn.Linear(source, self.gates)
        """U, and the gates' bias."""
        self.score = nn.Linear(self.compared, 1, bias=False) if architecture.attention == "additive" else None
        """v of the additive form."""

    def look_at(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys [rows, src_len, compared] and values [rows, src_len, gates] of source states [rows, src_len, source]."""
        keys = self.keys(states)
        return (keys if self.score is not None else keys.tanh()), self.read(states)

    def step(self, fed: Tensor, kept: Kept, keys: Tensor, values: Tensor, behind: Tensor | None) -> tuple[Kept, Tensor]:
        """Take one step; return the new state, and the attention weights [rows, src_len].

        `fed`: the product with a token's vector, [rows, compared + gates]; `behind`: see `RecurrentDecoder`.
        """
        recurred = self.recur(kept[0])
        query = recurred[:, : self.compared] + fed[:, : self.compared]
        if self.score is None:
            scores = torch.bmm(keys, query.tanh()[:, :, None])[:, :, 0]
        else:
            scores = self.score((keys + query[:, None]).tanh())[:, :, 0]
        if behind is not None:
            scores = scores.masked_fill(behind, float("-inf"))
        weights = scores.softmax(dim=1)
        context = torch.bmm(weights.to(values.dtype)[:, None], values)[:, 0]
        return self.cell.step(fed[:, self.compared :] + context, recurred[:, self.compared :], *kept), weights


class RecurrentLayer(nn.Module):
    """A GRU or LSTM layer of the stack."""

    def __init__(self, kind: Literal["gru", "lstm"], inputs: int, width: int) -> None:
        super().__init__()
        self.kind, self.cell, self.width = kind, CELLS[kind], width
        self.feed = nn.Linear(inputs, self.cell.gates * width)
        self.recur = nn.Linear(width, self.cell.gates * width, bias=False)

    def step(self, below: Tensor, kept: Kept) -> Kept:
        """Take one step from the output of the layer below, [rows, inputs]; return the new state, the output first."""
        return self.cell.step(self.feed(below), self.recur(kept[0]), *kept)

    def forward(self, below: Tensor) -> Tensor:
        """Take all steps from a state of zeros: [rows, tokens, inputs] to [rows, tokens, width]."""
        kept, outputs = self.cell.zeros(len(below), self.width, below), []
        for fed in self.feed(below).unbind(1):
            kept = self.cell.step(fed, self.recur(kept[0]), *kept)
            outputs.append(kept[0])
        return torch.stack(outputs, dim=1)


class DenseBlock(nn.Module):
    """Layers fc_relu or fc_tanh of one width, without bias; relu is limited to `RELU_LIMIT` (SHARP-05, SHARP-12)."""

    def __init__(self, kind: Literal["fc_relu", "fc_tanh"], inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(nn.Linear(inputs if at == 0 else width, width, bias=False) for at in range(layers))

    @property
    def weights(self) -> list[Tensor]:
        return list(self.parameters())

    def forward(self, below: Tensor) -> Tensor:
        """Apply the layers, [..., inputs] to [..., width]; fc_relu layers 3, 5, ... add the output of the last but one."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            below = layer(outputs[-1] if outputs else below)
            if self.kind == "fc_relu":
                below = below + outputs[-2] if len(outputs) >= 2 and len(outputs) % 2 == 0 else below
                outputs.append(below.clamp(0.0, RELU_LIMIT))
            else:
                outputs.append(below.tanh())
        return outputs[-1]


class AttentionalModel(RecurrentDecoder):
    """An attentional decoder; `forward` is for training with teacher forcing."""

    architecture: AttentionalArchitecture

    def __init__(self, architecture: AttentionalArchitecture, dropout: float = 0.0) -> None:
        cells = nn.GRU if architecture.source_cell == "gru" else nn.LSTM
        super().__init__(architecture, cells, architecture.source_hidden, architecture.source_layers, True, dropout)
        self.bottom = AttentionalCell(architecture)
        self.stack, below = nn.ModuleList(), architecture.hidden
        for block in architecture.stack:
            if block.kind == "gru" or block.kind == "lstm":
                inputs = [below, *[block.width] * (block.layers - 1)]
                self.stack.extend(RecurrentLayer(block.kind, width, block.width) for width in inputs)
            else:
                self.stack.append(DenseBlock(block.kind, below, block.width, block.layers))
            below = block.width
        self.projection = nn.Linear(below, self.vocab)
        self.source_width = self.bottom.compared + self.bottom.gates
        self._draw_weights()

    @torch.no_grad()
    def _draw_weights(self) -> None:
        """Draw weights within [-1, 1] for tokens' vectors, within 1 / sqrt(inputs) for products; biases are 0."""
        for module in self.modules():
            for weight in module.parameters(recurse=False):
                if weight.dim() == 1:
                    weight.zero_()
                else:
                    scale = 1.0 if isinstance(module, nn.Embedding) else 1.0 / math.sqrt(weight.shape[1])
                    weight.uniform_(-1.0, 1.0).mul_(scale)

    def along(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        # Everything that does not depend on the previous state is computed for all positions at once.
        states, _, behind = self.read_source(src, src_lengths)
        keys, values = self.bottom.look_at(states)
        kept, outputs = self.bottom.cell.zeros(len(src), self.bottom.hidden, values), list[Tensor]()
        for fed in self.bottom.feed(self.dropout(self.tgt_embedding(tgt_in))).unbind(1):
            kept, _ = self.bottom.step(fed, kept, keys, values, behind)
            outputs.append(kept[0])
        states = torch.stack(outputs, dim=1)
        for layer in self.stack:
            states = layer(states)
        return states

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        return self.memory(self.read_source(src, src_lengths)[0])

    def memory(self, states: Tensor) -> Memory:
        """Return the memory of source states, [batch, src_len, source]."""
        source = torch.cat(self.bottom.look_at(states), dim=2)
        recurrent = [(self.bottom.cell, self.bottom.hidden)]
        recurrent += [(layer.cell, layer.width) for layer in self.stack if isinstance(layer, RecurrentLayer)]
        return Memory(source, tuple(part for cell, width in recurrent for part in cell.zeros(len(states), width, source)))

    def body(self, tokens: Tensor, kept: Kept, source: Tensor, behind: Tensor | None) -> tuple[Tensor, Kept]:
        output, after, _ = self.attended_body(tokens, kept, source, behind)
        return output, after

    def attended_body(self, tokens: Tensor, kept: Kept, source: Tensor, behind: Tensor | None) -> tuple[Tensor, Kept, Tensor]:
        """Return the results of `body`, and the attention weights, [rows, src_len]."""
        bottom, waiting = self.bottom, iter(kept)
        keys, values = source[:, :, : bottom.compared], source[:, :, bottom.compared :]
        fed = bottom.feed(self.tgt_embedding(tokens))
        after, weights = bottom.step(fed, bottom.cell.next_of(waiting), keys, values, behind)
        output = after[0]
        for layer in self.stack:
            if isinstance(layer, RecurrentLayer):
                state = layer.step(output, layer.cell.next_of(waiting))
                output, after = state[0], after + state
            else:
                output = layer(output)
        return output, after, weights

    @torch.no_grad()
    def clip_weights(self) -> None:
        """Clip every weight to [-1, 1], so that it fits 16 bits (SHARP-05); called after each step of training."""
        for weight in self.parameters():
            weight.clamp_(-1.0, 1.0)
