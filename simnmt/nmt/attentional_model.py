"""Attentional models of the paper on sharp models (SHARP-04, SHARP-12): a step model, its slots, and its training pass.

The decoder is one cell with attention at the bottom and a stack of recurrent or fully connected layers on top.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from simnmt.kernels.sharp.model import RELU_LIMIT
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.recurrent_model import CELLS, Kept, RecurrentDecoder, RecurrentState


class AttentionalCell(nn.Module):
    """The bottom of the decoder: attends, and feeds what it finds into a GRU or LSTM (SHARP-04).

    Of a source, what attention compares and what it gives are made once, by `look_at`: U c = sum of a_j (U s_j), as in
    SHARP-07. The weights a_j sum to 1, so that the gates' bias is added there too.
    """

    def __init__(
        self,
        kind: Literal["gru", "lstm"],
        embedding: int,
        hidden: int,
        source: int,
        compared: int,
        attention: Literal["dot_of_tanh", "additive"],
    ) -> None:
        super().__init__()
        self.cell = CELLS[kind]
        self.hidden, self.compared, self.gates = hidden, compared, self.cell.gates * hidden
        both = compared + self.gates
        self.recur = nn.Linear(hidden, both, bias=False)
        """Rows W_a, then those of each gate."""
        self.feed = nn.Linear(embedding, both, bias=False)
        """V_a and V, likewise."""
        self.keys = nn.Linear(source, compared, bias=False)
        """U_a."""
        self.read = nn.Linear(source, self.gates)
        """U, and the gates' bias."""
        self.score = nn.Linear(compared, 1, bias=False) if attention == "additive" else None
        """v of the additive form."""

    def look_at(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Source states [rows, src_len, source] to keys [rows, src_len, compared] and values [rows, src_len, gates]."""
        keys = self.keys(states)
        return (keys if self.score is not None else keys.tanh()), self.read(states)

    def step(self, fed: Tensor, kept: Kept, keys: Tensor, values: Tensor, behind: Tensor | None) -> tuple[Kept, Tensor]:
        """One step: what is kept, and how much each row looks at each source position, [rows, src_len].

        `fed`: the product of a token's vector, [rows, compared + gates]; `behind`: see `RecurrentState`.
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
    """A GRU or LSTM in the stack: gates of the layer below, of its own state, and a bias."""

    def __init__(self, kind: Literal["gru", "lstm"], inputs: int, width: int) -> None:
        super().__init__()
        self.kind, self.cell, self.width = kind, CELLS[kind], width
        self.feed = nn.Linear(inputs, self.cell.gates * width)
        self.recur = nn.Linear(width, self.cell.gates * width, bias=False)

    def step(self, below: Tensor, kept: Kept) -> Kept:
        """[rows, inputs] and what was kept to what is kept, the output first."""
        return self.cell.step(self.feed(below), self.recur(kept[0]), *kept)

    def forward(self, below: Tensor) -> Tensor:
        """All steps from a state of zeros, [rows, tokens, inputs] to [rows, tokens, width]: products with `below` at once."""
        kept = self.cell.zeros(len(below), self.width, below)
        outputs = []
        for fed in self.feed(below).unbind(1):
            kept = self.cell.step(fed, self.recur(kept[0]), *kept)
            outputs.append(kept[0])
        return torch.stack(outputs, dim=1)


class DenseBlock(nn.Module):
    """fc_relu or fc_tanh layers of one width, without bias; relu ends at `RELU_LIMIT` (SHARP-05, SHARP-12)."""

    def __init__(self, kind: Literal["fc_relu", "fc_tanh"], inputs: int, width: int, layers: int) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(nn.Linear(inputs if at == 0 else width, width, bias=False) for at in range(layers))

    @property
    def weights(self) -> list[Tensor]:
        """Of each layer, [width, inputs]."""
        return list(self.parameters())

    def forward(self, below: Tensor) -> Tensor:
        """[..., inputs] to [..., width]; of fc_relu, layers 3, 5, ... add the output of the last but one."""
        outputs: list[Tensor] = []
        for layer in self.layers:
            below = layer(outputs[-1] if outputs else below)
            if self.kind == "fc_relu":
                below = below + outputs[-2] if len(outputs) >= 2 and len(outputs) % 2 == 0 else below
                outputs.append(below.clamp(0.0, RELU_LIMIT))
            else:
                outputs.append(below.tanh())
        return outputs[-1]


@torch.no_grad()
def draw_weights(model: nn.Module) -> None:
    """Random weights within [-1, 1]: those of products by their inner size, tokens' vectors over all of it, biases 0."""
    for module in model.modules():
        bound = 1.0 if isinstance(module, nn.Embedding) else 0.0
        for weight in module.parameters(recurse=False):
            if weight.dim() == 1:
                weight.zero_()
            else:
                weight.uniform_(-1.0, 1.0).mul_(bound or 1.0 / math.sqrt(weight.shape[1]))


class AttentionalModel(RecurrentDecoder):
    """A step model; `forward` is for training with the reference fed (teacher forcing)."""

    architecture: AttentionalArchitecture

    def __init__(self, architecture: AttentionalArchitecture, dropout: float = 0.0) -> None:
        super().__init__(architecture)
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
        self.stack = nn.ModuleList(_stack_layers(architecture))
        self.projection = nn.Linear(architecture.output, self.vocab)
        self.dropout = nn.Dropout(dropout)
        self.source_width = self.bottom.compared + self.bottom.gates
        draw_weights(self)

    def forward(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Logits [batch, tgt_len, vocab] after each of the fed tokens `tgt_in`, int64 [batch, tgt_len], start token first."""
        states, _ = self._bottom_steps(src, src_lengths, tgt_in)
        for layer in self.stack:
            states = layer(states)
        logits: Tensor = self.projection(self.dropout(states))
        return logits

    def attention(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """See `StepModel`."""
        return self._bottom_steps(src, src_lengths, tgt_in)[1]

    def _bottom_steps(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> tuple[Tensor, Tensor]:
        """The bottom cell's outputs [batch, tgt_len, hidden] and attention [batch, tgt_len, src_len] along the reference.

        Everything that does not wait for the state before it is computed for all positions at once.
        """
        states, _, behind = self.read_source(src, src_lengths)
        keys, values = self.bottom.look_at(states)
        kept = self.bottom.cell.zeros(len(src), self.bottom.hidden, values)
        outputs, weights = list[Tensor](), list[Tensor]()
        for fed in self.bottom.feed(self.dropout(self.tgt_embedding(tgt_in))).unbind(1):
            kept, step_weights = self.bottom.step(fed, kept, keys, values, behind)
            outputs.append(kept[0])
            weights.append(step_weights)
        return torch.stack(outputs, dim=1), torch.stack(weights, dim=1)

    def encode(self, src: Tensor, src_lengths: Tensor) -> RecurrentState:
        """See `StepModel`."""
        states, _, behind = self.read_source(src, src_lengths)
        source = torch.cat(self.bottom.look_at(states), dim=2)
        return RecurrentState(self.zeros(len(src), source), source, behind)

    def body(self, state: RecurrentState, tokens: Tensor) -> tuple[Tensor, RecurrentState]:
        """See `StepModel`."""
        bottom, waiting = self.bottom, iter(state.kept)
        keys, values = state.source[:, :, : bottom.compared], state.source[:, :, bottom.compared :]
        fed = bottom.feed(self.tgt_embedding(tokens))
        after, _ = bottom.step(fed, bottom.cell.next_of(waiting), keys, values, state.behind)
        output = after[0]
        for layer in self.stack:
            if isinstance(layer, RecurrentLayer):
                kept = layer.step(output, layer.cell.next_of(waiting))
                output, after = kept[0], after + kept
            else:
                output = layer(output)
        state.kept = after
        return output, state

    @torch.no_grad()
    def clip_weights(self) -> None:
        """Back into [-1, 1] with every weight, so that 16 bits hold it (SHARP-05); to be done after each step of learning."""
        for weight in self.parameters():
            weight.clamp_(-1.0, 1.0)

    def zeros(self, rows: int, like: Tensor) -> Kept:
        """See `RecurrentDecoder`."""
        recurrent = [(self.bottom.cell, self.bottom.hidden)]
        recurrent += [(layer.cell, layer.width) for layer in self.stack if isinstance(layer, RecurrentLayer)]
        return tuple(part for cell, width in recurrent for part in cell.zeros(rows, width, like))


def _stack_layers(architecture: AttentionalArchitecture) -> list[nn.Module]:
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
