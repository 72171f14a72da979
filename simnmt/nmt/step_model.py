"""Step-by-step decoding: the base class of all models, and the slots that hold the sentences under way.

A model encodes sources once and then runs one decoder step at a time. Its slots hold sentences that join and leave one by
one, as top-up batching needs them (FNI-08). `search.py` chooses the tokens of all slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError


def has_half_weights() -> bool:
    """Return whether this torch has FBGEMM, which multiplies float16 weights."""
    return torch.backends.quantized.engine in {"x86", "fbgemm"}


class HalfLinear(nn.Module):
    """A linear layer for inference with its weights in float16."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach().float()
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.detach().float().contiguous(), self.bias)

    @cached_property
    def weight(self) -> Tensor:
        """The weights as multiplied, float16 [out, in]: a second copy."""
        weight: Tensor = torch.ops.quantized.linear_unpack_fp16(self._packed)[0].half()
        return weight

    @cached_property
    def _bare(self) -> torch.ScriptObject:
        """The weights without bias: a further copy."""
        packed: torch.ScriptObject = torch.ops.quantized.linear_prepack_fp16(self.weight.float(), None)
        return packed

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed)
        return output

    def products(self, inputs: Tensor) -> Tensor:
        output: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self._packed if self.bias is None else self._bare)
        return output


def halve_linear_layers(model: nn.Module) -> None:
    """Replace every linear layer by a `HalfLinear`; afterwards the model cannot be trained or saved."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, HalfLinear(child.weight, child.bias))


_PIECE = 1_024
"""Columns of one product within a block: torch's float32 product of 2 to 640 rows with 85,000 columns was up to a fifth faster
in pieces than whole, on one thread. Blocks are longer, since the search has a fixed cost per block."""


def products_of(layer: nn.Linear | HalfLinear, hidden: Tensor, block: int | None) -> Iterator[tuple[int, Tensor]]:
    """Yield the products of an output layer; see `StepModel.products`.

    Weights in float16 give one block: packed in blocks of 2,048 of 85,000 columns, they took twice as long at 1 to 8 rows.
    """
    if isinstance(layer, HalfLinear):
        yield 0, layer.products(hidden)
    elif block is None:
        yield 0, linear(hidden, layer.weight)
    else:
        weight, hidden = layer.weight.detach(), hidden.detach()
        vocab, rows = len(weight), len(hidden)
        room = hidden.new_empty(rows * min(vocab, block + vocab % block))
        for first in range(0, max(1, vocab - block + 1), block):
            last = first + block if first + 2 * block <= vocab else vocab
            products = room[: rows * (last - first)].view(rows, last - first)
            for begin in range(first, last, _PIECE):
                end = min(begin + _PIECE, last)
                torch.mm(hidden, weight[begin:end].t(), out=products[:, begin - first : end - first])
            yield first, products


@dataclass(frozen=True, slots=True)
class Memory:
    """What the encoder made of a batch of sources, for the slots of the same model."""

    source: Tensor
    """What attention reads: source tokens along the last but one dimension."""
    state: tuple[Tensor, ...] = ()
    """The first state of each recurrent layer of the decoder, [batch, width]."""


class Moves:
    """The moves that close the holes of removed slots: the last slots move into them."""

    def __init__(self, rows: int, slots: Sequence[int], beam: int, device: torch.device) -> None:
        """Plan the removal of `slots` from `rows` active rows."""
        gone, after = set(slots), rows // beam - len(slots)
        holes = sorted(slot for slot in slots if slot < after)
        movers = [slot for slot in range(after, rows // beam) if slot not in gone]
        moved = dict(zip(holes, movers, strict=True))
        self.order = [moved.get(slot, slot) for slot in range(after)]
        """New slot i is old slot `order[i]`."""
        self.rows = _rows_of(self.order, beam)
        """New row i is old row `rows[i]`."""
        moves = [_rows_of(holes, beam), _rows_of(movers, beam)]
        self._holes, self._movers = torch.tensor(moves, dtype=torch.int64, device=device)  # one wait for a GPU, not two

    def apply(self, kept: Tensor, dim: int) -> None:
        """Copy the moving rows of `kept`, along dimension `dim`, into the holes."""
        if len(self._holes):
            kept.index_copy_(dim, self._holes, kept.index_select(dim, self._movers))


def _rows_of(slots: Sequence[int], beam: int) -> list[int]:
    return [slot * beam + row for slot in slots for row in range(beam)]


class Slots:
    """Sentences in the decoder of one model: slot i is a block of `beam` rows, i x beam to (i + 1) x beam.

    All joins and leaves of one object use the same beam. Joining and leaving copy only the rows concerned, and the outputs of a
    sentence do not depend on the other sentences. Call the methods in torch's inference mode. This class is for recurrent
    decoders: only the source has spare room, since every step makes the states anew.
    """

    def __init__(self, model: StepModel, source: Tensor, row_dim: int = 0) -> None:
        """Start without rows, with the room of `source`: rows along `row_dim`."""
        self._model, self._source, self._row_dim = model, source, row_dim
        self._lengths: list[int] = []
        self._state: tuple[Tensor, ...] = ()
        """As in `Memory`, of the active rows."""
        self._prepare()

    @property
    def rows(self) -> int:
        return len(self._lengths)

    def join(self, memory: Memory, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """Append a slot for each of these sentences of an encoded batch, in this order; `memory` is not changed.

        `src_lens` holds the source tokens of each sentence, so that the device need not be asked for them. Whatever lies behind
        the end of a source has no effect.
        """
        if not sentences:
            return
        source, before, longest = memory.source, self.rows, max(src_lens)
        taken = torch.tensor(sentences, dtype=torch.int64, device=source.device).repeat_interleave(beam)
        self._grow({self._row_dim: before + len(taken), source.dim() - 2: longest})
        new = self._source.narrow(self._row_dim, before, len(taken))
        new[..., :longest, :] = source[..., :longest, :].index_select(self._row_dim, taken)
        # Masked places must be numbers all the same: not-a-number times a weight of 0 is not a number.
        new[..., longest:, :] = 0
        self._lengths += [src_len for src_len in src_lens for _ in range(beam)]
        self._take(memory, taken)

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """Remove these slots by moving the last slots into the holes; return `order`: new slot i is old slot `order[i]`."""
        moves = Moves(self.rows, slots, beam, self._source.device)
        moves.apply(self._source[self._used()], self._row_dim)
        self._lengths = [self._lengths[row] for row in moves.rows]
        self._move(moves)
        return moves.order

    def body(self, tokens: Tensor) -> Tensor:
        """Feed the last token of each active row, int64 [rows]; return the input of the output layer, [rows, width].

        Raises `NmtError` for a row that has been fed as many tokens as the model has positions.
        """
        hidden: Tensor
        hidden, self._state = self._model.body(tokens, self._state, self._attended, self._behind)
        return hidden

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`, int64 [rows], of the same sentence, as a beam needs it."""
        self._state = tuple(part.index_select(0, rows) for part in self._state)

    def _take(self, memory: Memory, taken: Tensor) -> None:
        """Append the state of the rows `taken` of `memory`, int64 [new rows]; `rows` counts them already."""
        new = tuple(part.index_select(0, taken) for part in memory.state)
        self._state = tuple(map(torch.cat, zip(self._state, new, strict=True))) if self._state else new
        self._prepare()

    def _move(self, moves: Moves) -> None:
        """Remove the state of the rows that leave; `rows` counts the rest."""
        for part in self._state:
            moves.apply(part, 0)
        self._state = tuple(part[: self.rows] for part in self._state)
        self._prepare()

    def _prepare(self) -> None:
        """Set what the next steps attend to, after rows have joined or left: the source up to the end of the longest.

        `_behind` is True behind the end of each source, [rows, src_len]; None if all are equally long or no row is active.
        """
        longest, device = max(self._lengths, default=0), self._source.device
        self._attended, self._behind = self._source[self._used()], None
        if min(self._lengths, default=0) < longest:
            self._behind = torch.arange(longest, device=device) >= torch.tensor(self._lengths, device=device)[:, None]

    def _grow(self, sizes: Mapping[int, int]) -> None:
        """Replace the source by a larger copy unless it has these sizes, by dimension; a short one is at least doubled."""
        shape, used = list(self._source.shape), self._used()
        for dim, size in sizes.items():
            if shape[dim] < size:
                shape[dim] = max(size, 2 * shape[dim])
        if shape != list(self._source.shape):
            grown, part = self._source.new_zeros(shape), self._source[used]
            grown[tuple(slice(size) for size in part.shape)] = part
            self._source = grown

    def _used(self) -> tuple[slice, ...]:
        used = [slice(None)] * self._source.dim()
        used[self._row_dim], used[-2] = slice(self.rows), slice(max(self._lengths, default=0))
        return tuple(used)


class StepModel(nn.Module, ABC):
    """A translation model that is decoded step by step, a torch module. Rows are sentences x beam, a sentence's side by side.

    A step is the decoder's body (`Slots.body`) and its output layer: `project`, or for a fused output layer `products`, to
    which it adds the bias itself (FNI-01 to 05). A subclass also has a `forward(src, src_lengths, tgt_in) -> logits [batch,
    tgt_len, vocab]` for training, with `tgt_in` int64 [batch, tgt_len], start token first.
    """

    architecture: Architecture
    body: Callable[..., Any]
    """The step up to the output layer, as the model's slots call it."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        self.architecture = architecture
        self.pad_token, self.start_token = architecture.pad_token, architecture.start_token
        self.eos_token, self.unk_token = architecture.eos_token, architecture.unk_token
        self.vocab = architecture.tgt_vocab
        """Target tokens: the width of the logits."""
        self.max_positions: int | None = architecture.max_positions
        """The longest source and the most steps; None for a model without such a bound."""

    @property
    def device(self) -> torch.device:
        """The device of the weights; all tensors that the model is given must be on it."""
        return self.bias.device

    @property
    def bias(self) -> Tensor:
        """The bias of the output layer, [vocab]."""
        bias = self.output_layer().bias
        assert isinstance(bias, Tensor)
        return bias

    @property
    def weight(self) -> Tensor:
        """The weights of the output layer, [vocab, width], in the model's own type; of packed weights a copy that is kept."""
        weight: Tensor = self.output_layer().weight
        return weight

    def output_layer(self) -> nn.Linear | HalfLinear:
        """Return the layer that gives the logits, by default `projection`."""
        layer = self.projection
        assert isinstance(layer, nn.Linear | HalfLinear)
        return layer

    @abstractmethod
    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        """Read the sources, int64 [batch, src_len] and [batch]; tokens behind a length have no effect."""

    @abstractmethod
    def slots(self, rows: int) -> Slots:
        """Return empty slots with room for `rows` rows, which grows when needed."""

    def project(self, hidden: Tensor) -> Tensor:
        """Apply the output layer: [rows, width] to logits [rows, vocab], which the caller may change."""
        logits: Tensor = self.output_layer()(hidden)
        return logits

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Apply the output layer without its bias, one block of columns after the other (FNI-01, step 1).

        Yields the first column of the block and its products [rows, columns], contiguous, in the model's own type; the caller
        may change them until it asks for the next. `block`: columns of each block but the last, which has up to twice as many,
        if the weights can be read by the block; None: all columns at once.
        """
        return products_of(self.output_layer(), hidden, block)

    def halve(self) -> None:
        """Convert the weights of the decoder's products to float16, for inference only."""
        halve_linear_layers(self)


def pad(sources: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """Return the sources as int64 [batch, longest] and their lengths [batch], on the CPU."""
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    rows = [[*source, *[pad_token] * (longest - length)] for source, length in zip(sources, lengths, strict=True)]
    return torch.tensor(rows), torch.tensor(lengths)


def check_lengths(longest: int | None, src_len: int, steps: int) -> None:
    """Raise `NmtError` if a source or a target is longer than the `longest` positions of a model."""
    if longest is not None and max(src_len, steps) > longest:
        side, length = ("source", src_len) if src_len > longest else ("target", steps)
        raise NmtError(f"a {side} of {length} tokens where the model has {longest} positions", remedy="shorten it")
