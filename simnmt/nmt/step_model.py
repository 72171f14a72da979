"""Step-by-step decoding: the base class of all models, the slots of a decoder, and what implementations share.

A model encodes sources once and then runs one decoder step at a time. Its slots hold sentences that join and leave one by
one, as top-up batching needs them (FNI-08). `searches.py` chooses the tokens of all slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear, halve_linear_layers, products_of

NEVER = -inf
"""The log-probability of a token that cannot be chosen."""


class Slots(Protocol):
    """Sentences in the decoder of one model: slot i is a block of `beam` rows, i x beam to (i + 1) x beam.

    All joins and leaves of one object use the same beam. Joining and leaving copy only the rows concerned, and the outputs of a
    sentence do not depend on the other sentences. Each method runs in torch's inference mode.
    """

    def join(self, memory: Any, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """Append a slot for each of these sentences of an encoded batch, in this order.

        `memory` is the result of `StepModel.encode` and is not changed; `src_lens` holds the source tokens of each sentence, so
        that the device need not be asked for them.
        """

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """Remove these slots by moving the last slots into the holes; return `order`: new slot i is old slot `order[i]`."""

    def body(self, tokens: Tensor) -> Tensor:
        """Feed the last token of each active row, int64 [rows]; return the input of the output layer, [rows, width].

        Raises `NmtError` for a row that has been fed as many tokens as the model has positions.
        """

    def reorder(self, rows: Tensor) -> None:
        """Replace row i by row `rows[i]`, int64 [rows], of the same sentence, as a beam needs it."""


class SlotCompaction:
    """The moves that close the holes of removed slots: the last slots move into them."""

    def __init__(self, rows: int, slots: Sequence[int], beam: int, device: torch.device) -> None:
        """Plan the removal of `slots` from `rows` active rows."""
        gone, before = set(slots), rows // beam
        after = before - len(gone)
        self.order = list(range(after))
        """New slot i is old slot `order[i]`."""
        holes = sorted(slot for slot in gone if slot < after)
        movers = [slot for slot in range(after, before) if slot not in gone]
        for hole, mover in zip(holes, movers, strict=True):
            self.order[hole] = mover
        self.rows = _rows_of_slots(self.order, beam)
        """New row i is old row `rows[i]`."""
        moves = [_rows_of_slots(holes, beam), _rows_of_slots(movers, beam)]
        self._holes, self._movers = torch.tensor(moves, dtype=torch.int64, device=device)  # one wait for a GPU, not two

    def move(self, kept: Tensor, dim: int) -> None:
        """Copy the moving rows of `kept`, along dimension `dim`, into the holes."""
        if len(self._holes):
            kept.index_copy_(dim, self._holes, kept.index_select(dim, self._movers))


def _rows_of_slots(slots: Sequence[int], beam: int) -> list[int]:
    return [slot * beam + row for slot in slots for row in range(beam)]


def with_room(kept: Tensor, sizes: Mapping[int, int], used: tuple[slice, ...], most: Mapping[int, float]) -> Tensor:
    """Return `kept` if it has these sizes (by dimension), else a larger tensor that begins with a copy of `kept[used]`.

    A dimension that is too short is doubled, so that growing step by step copies little, but not beyond its `most` unless its
    size is larger. Unused places hold 0.
    """
    if all(kept.shape[dim] >= size for dim, size in sizes.items()):
        return kept
    shape = list(kept.shape)
    for dim, size in sizes.items():
        if shape[dim] < size:
            shape[dim] = max(size, int(min(2 * shape[dim], most.get(dim, inf))))
    grown = kept.new_zeros(shape)
    part = kept[used]
    grown[tuple(slice(size) for size in part.shape)] = part
    return grown


class SourceRows:
    """Keys and values of the source of each active row, with room for more rows and longer sources."""

    def __init__(self, kept: Tensor, row_dim: int, most_rows: int | None = None) -> None:
        """Start with the room of `kept`: rows along `row_dim`, source tokens along the last but one dimension.

        `most_rows`: as in `StepModel.slots`.
        """
        self._kept, self._row_dim, self._length_dim = kept, row_dim, kept.dim() - 2
        self.most: dict[int, float] = {row_dim: most_rows or inf}
        """Rows beyond which room is not doubled, as `with_room` takes it."""
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def join(self, source: Tensor, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> Tensor:
        """Append `beam` rows for each of these rows of `source`; return the rows taken, int64 [new rows].

        `src_lens`: source tokens of each sentence. Whatever lies behind the end of a source has no effect.
        """
        taken = torch.tensor(sentences, dtype=torch.int64, device=source.device).repeat_interleave(beam)
        rows, longest = len(self) + len(taken), max(src_lens)
        self._kept = with_room(self._kept, {self._row_dim: rows, self._length_dim: longest}, self._used(), self.most)
        new = self._kept.narrow(self._row_dim, len(self), len(taken))
        new[..., :longest, :] = source[..., :longest, :].index_select(self._row_dim, taken)
        # Masked places must be numbers all the same: not-a-number times a weight of 0 is not a number.
        new[..., longest:, :] = 0
        self._lengths += [src_len for src_len in src_lens for _ in range(beam)]
        return taken

    def drop(self, leaving: SlotCompaction) -> None:
        """Remove the rows that leave."""
        leaving.move(self.active(), self._row_dim)
        self._lengths = [self._lengths[row] for row in leaving.rows]

    def active(self) -> Tensor:
        """Return a view of the active rows, up to the end of their longest source."""
        return self._kept[self._used()]

    def within(self) -> Tensor | None:
        """Return a mask [rows, src_len], True up to the end of each source; None if all are equally long or none is active."""
        longest = max(self._lengths, default=0)
        if min(self._lengths, default=0) == longest:
            return None
        device = self._kept.device
        return torch.arange(longest, device=device) < torch.tensor(self._lengths, device=device)[:, None]

    def _used(self) -> tuple[slice, ...]:
        used = [slice(None)] * self._kept.dim()
        used[self._row_dim], used[self._length_dim] = slice(len(self)), slice(max(self._lengths, default=0))
        return tuple(used)


Memory: TypeAlias = Any
"""The result of the encoder; only the model that made it knows its type."""
State: TypeAlias = Any
"""The state of the decoder between two steps; only the model that made it knows its type. A step may change it in place."""


class StepModel(nn.Module, ABC):
    """A translation model that is decoded step by step, a torch module. Rows are sentences x beam, a sentence's side by side.

    A step is the decoder's body and its output layer: `step` is `project` after `body`. A fused output layer takes `products`
    and adds the bias itself (FNI-01 to 05). The output layer is called `projection` unless a subclass overrides
    `output_layer`. A subclass also has a `forward(src, src_lengths, tgt_in) -> logits [batch, tgt_len, vocab]` for training.
    """

    architecture: Architecture
    attends = True
    """Whether the model has attention to the source."""

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
        bias: Tensor | None = self.output_layer().bias
        assert bias is not None, "an output layer with a bias"
        return bias

    @property
    def weight(self) -> Tensor:
        """The weights of the output layer, [vocab, width], in the model's own type; of packed weights a copy that is kept."""
        weight: Tensor = self.output_layer().weight
        return weight

    def output_layer(self) -> nn.Linear | HalfLinear:
        """Return the layer that gives the logits."""
        layer = self.projection
        assert isinstance(layer, nn.Linear | HalfLinear)
        return layer

    @abstractmethod
    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        """Read the sources, int64 [batch, src_len] and [batch]; tokens behind a length have no effect."""

    @abstractmethod
    def start(self, memory: Memory, beam: int) -> State:
        """Return the state of batch x beam rows before the first step; `memory` is not changed."""

    @abstractmethod
    def body(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Run a step up to the output layer: as `step`, but return the input of the output layer, [rows, width]."""

    @abstractmethod
    def reorder(self, state: State, rows: Tensor) -> State:
        """Return the state whose row i is row `rows[i]` of the given one, of the same source; uses up the given state."""

    @abstractmethod
    def slots(self, rows: int, most_rows: int | None = None) -> Slots:
        """Return empty slots with room for `rows` rows; room doubles when needed, but not beyond `most_rows` if those do."""

    @abstractmethod
    def attention(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the attention weights of each step, [batch, tgt_len, src_len], which sum to 1; arguments as of `forward`.

        Raises `NmtError` for a model without attention.
        """

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Feed the last token of each row, int64 [rows]; return logits [rows, vocab] in the model's type, and the next state.

        Uses up the given state.
        """
        hidden, state = self.body(state, tokens)
        return self.project(hidden), state

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


@dataclass(frozen=True, slots=True)
class Limit:
    """The length limit of a sentence's output, and its source tokens if candidate lists need them."""

    steps: int
    """Most steps, 1 or more."""
    forced: bool = False
    """Whether the sentence takes all of them: its end token is banned."""
    source: Sequence[int] = ()
    """Source tokens, if the active vocabulary depends on them."""


class BannedTokens:
    """Tokens that are never chosen: padding, and the end token of a sentence of forced length."""

    def __init__(self, model: StepModel) -> None:
        self.pad, self.eos, self._device = model.pad_token, model.eos_token, model.device
        self.all_forced = False
        """Whether every active sentence has a forced length."""
        self.columns: Tensor | None = None
        """Tokens banned in every row; a new tensor whenever they change."""
        self.ends: Tensor | None = None
        """Mask of the rows whose end token is banned, [rows]; None if that holds for all rows or for none."""

    def update(self, limits: Sequence[Limit], beam: int) -> None:
        """Follow a change of the active sentences."""
        forced = [limit.forced for limit in limits]
        before, self.all_forced = self.all_forced, all(forced)
        if self.columns is None or before != self.all_forced:
            columns = {self.pad} - {self.eos} | ({self.eos} if self.all_forced else set())
            self.columns = torch.tensor(sorted(columns), dtype=torch.int64, device=self._device)
        mixed = any(forced) and not self.all_forced
        self.ends = torch.tensor(forced, device=self._device).repeat_interleave(beam) if mixed else None

    def ban(self, logits: Tensor) -> None:
        """Set the logits of banned tokens to minus infinity, in place."""
        if self.columns is not None:
            logits.index_fill_(1, self.columns, NEVER)
        if self.ends is not None:
            logits[:, self.eos].masked_fill_(self.ends, NEVER)


class MaskedBias:
    """The bias of a model's output layer, minus infinity for tokens that are banned in every row."""

    def __init__(self, model: StepModel, banned: BannedTokens) -> None:
        self._banned = banned
        self._bias = self._masked = model.bias.detach().float().contiguous()
        self._columns: Tensor | None = None

    def now(self) -> Tensor:
        """Return the present bias, float32 [vocab]; the same tensor until the banned tokens change."""
        columns = self._banned.columns
        if columns is not None and columns is not self._columns:
            self._columns, self._masked = columns, self._bias.index_fill(0, columns, NEVER)
        return self._masked
