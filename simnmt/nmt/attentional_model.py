"""Attentional models of the paper on sharp models (SHARP-04, SHARP-12): a step model, its slots, and its training pass.

The decoder is one cell with attention at the bottom and a stack of recurrent or fully connected layers on top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from simnmt.kernels.sharp.weights import RELU_LIMIT
from simnmt.nmt.architecture import AttentionalArchitecture
from simnmt.nmt.linear_layers import halve_linear_layers, products_of
from simnmt.nmt.slots import SlotCompaction, SourceRows


@dataclass(slots=True)
class AttentionalState:
    """Memory and state in one: before `start` a row is a sentence, after it one of its beams."""

    kept: tuple[Tensor, ...]
    """What each recurrent layer keeps, from bottom to top, each [rows, width]: h, and then c of an LSTM."""
    source: Tensor
    """What attention compares and what it gives, side by side: [rows, src_len, compared + gates]."""
    behind: Tensor | None
    """True behind a source's end, [rows, src_len]; None where all are equally long."""


Body = Callable[[AttentionalState, Tensor], tuple[Tensor, AttentionalState]]


class AttentionalSlots:
    """See `Slots`. The source lies in a tensor with room to grow; what is kept, which every step makes anew, does not."""

    def __init__(self, body: Body, kept: tuple[Tensor, ...], source: Tensor, most_rows: int | None = None) -> None:
        """`body` is the model's own; it is given views of the active rows.

        `kept`: as in `AttentionalState`, of no row; `source`: room for it, [rows, 0, width]; `most_rows`: as in
        `StepModel.slots`.
        """
        self._body, self._source = body, SourceRows(source, 0, most_rows)
        self._state = AttentionalState(kept, source[:0], None)

    @torch.inference_mode()
    def join(self, memory: AttentionalState, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
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
        leaving = SlotCompaction(len(self._source), slots, beam, self._state.kept[0].device)
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

    def _see(self, kept: tuple[Tensor, ...]) -> None:
        """Show the step the active rows, no further than to the end of their longest source."""
        within = self._source.within() if len(self._source) else None
        self._state = AttentionalState(kept, self._source.seen(), None if within is None else ~within)


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


CELLS = {"gru": CellKind(gru, 3, 1), "lstm": CellKind(lstm, 4, 2)}


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
        context = torch.bmm(scores.softmax(dim=1).to(values.dtype)[:, None], values)[:, 0]
        return self.cell.step(fed[:, self.compared :] + context, recurred[:, self.compared :], *kept)


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
        self.stack = nn.ModuleList(_stack_layers(architecture))
        self.projection = nn.Linear(architecture.output, self.vocab)
        self.dropout = nn.Dropout(dropout)
        draw_weights(self)

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
        behind = _padding_mask(src, src_lengths)
        fed = self.bottom.feed(self.dropout(self.tgt_embedding(tgt_in)))
        kept = self.bottom.cell.zeros(len(src), self.bottom.hidden, values)
        outputs = []
        for fed_step in fed.unbind(1):
            kept = self.bottom.step(fed_step, kept, keys, values, behind)
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
        return AttentionalState(self._zeros(len(src), source), source, _padding_mask(src, src_lengths))

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


def _padding_mask(src: Tensor, src_lengths: Tensor) -> Tensor | None:
    """True behind a source's end, [batch, src_len]; None where all are equally long."""
    if bool((src_lengths == src.shape[1]).all()):
        return None
    return torch.arange(src.shape[1], device=src.device)[None] >= src_lengths[:, None]
