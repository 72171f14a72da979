"""The parts of an attentional decoder: gates, the cell that attends, and the layers on top (SHARP-04, SHARP-12)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn

from simnmt.kernels.sharp.weights import RELU_LIMIT

Kept = tuple[Tensor, ...]
"""What a recurrent layer keeps from step to step, each [rows, width]: h, and c of an LSTM."""


def gru(fed: Tensor, recurred: Tensor, hidden: Tensor) -> Kept:
    """One step of a GRU (SHARP-04): gates [rows, 3 x width] in the order u, q, candidate.

    `fed`: all but the products with the state, biases included; `recurred`: those products.
    """
    width = hidden.shape[1]
    update, reset = (fed[:, : 2 * width] + recurred[:, : 2 * width]).sigmoid().chunk(2, dim=1)
    candidate = torch.tanh(fed[:, 2 * width :] + reset * recurred[:, 2 * width :])
    return (torch.lerp(candidate, hidden, update),)


def lstm(fed: Tensor, recurred: Tensor, _: Tensor, cell: Tensor) -> Kept:
    """One step of an LSTM: gates [rows, 4 x width] in the order input, forget, candidate, output; otherwise as `gru`."""
    take, forget, candidate, give = (fed + recurred).chunk(4, dim=1)
    cell = forget.sigmoid() * cell + take.sigmoid() * candidate.tanh()
    return give.sigmoid() * cell.tanh(), cell


@dataclass(frozen=True, slots=True)
class Gated:
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


CELLS = {"gru": Gated(gru, 3, 1), "lstm": Gated(lstm, 4, 2)}


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

    def step(self, fed: Tensor, kept: Kept, keys: Tensor, values: Tensor, behind: Tensor | None) -> Kept:
        """One step. `fed`: the product of a token's vector, [rows, compared + gates]; `behind`: see `AttentionalState`."""
        recurred = self.recur(kept[0])
        query = recurred[:, : self.compared] + fed[:, : self.compared]
        if self.score is None:
            scores = torch.bmm(keys, query.tanh()[:, :, None])[:, :, 0]
        else:
            scores = self.score((keys + query[:, None]).tanh())[:, :, 0]
        if behind is not None:
            scores = scores.masked_fill(behind, float("-inf"))
        found = torch.bmm(scores.softmax(dim=1).to(values.dtype)[:, None], values)[:, 0]
        return self.cell.step(fed[:, self.compared :] + found, recurred[:, self.compared :], *kept)


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
def draw(model: nn.Module) -> None:
    """Random weights within [-1, 1]: those of products by their inner size, tokens' vectors over all of it, biases 0."""
    for module in model.modules():
        bound = 1.0 if isinstance(module, nn.Embedding) else 0.0
        for weight in module.parameters(recurse=False):
            if weight.dim() == 1:
                weight.zero_()
            else:
                weight.uniform_(-1.0, 1.0).mul_(bound or 1.0 / math.sqrt(weight.shape[1]))
