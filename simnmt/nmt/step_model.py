"""The interfaces of step-by-step decoding: a model, its slots, and a search over the slots; and what implementations share.

A model encodes sources once and then runs one decoder step at a time. Its slots hold sentences that join and leave one by
one, as top-up batching needs them (FNI-08). A search chooses the tokens of all slots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear, halve_linear_layers, products_of


class Slots(Protocol):
    """Sentences in the decoder of one model, each as a block of `beam` rows side by side; slot i is block i.

    All joins and leaves of one object name the same beam. Joining and leaving copy what belongs to the rows concerned, and a
    sentence's outputs do not depend on who else is there. Each method is run in torch's inference mode.
    """

    def join(self, memory: Any, sentences: Sequence[int], src_lens: Sequence[int], beam: int) -> None:
        """Append a slot for each of these sentences of what `encode` left, in this order, before its first step.

        `src_lens`: tokens of each of their sources, which the device need then not be asked for. The memory stays as it is,
        for others of its sentences.
        """

    def leave(self, slots: Sequence[int], beam: int) -> list[int]:
        """Remove these slots by moving the last ones into the holes; returns `order`: slot i was slot `order[i]`."""

    def body(self, tokens: Tensor) -> Tensor:
        """Feed each active row its last token, int64 [rows]; returns what the model's output layer projects, [rows, width].

        Raises `NmtError` where a row has been fed as many tokens as the model has positions.
        """

    def reorder(self, rows: Tensor) -> None:
        """Row i becomes what row `rows[i]` was, int64 [rows]; both of the same sentence, as in a beam."""


class SlotCompaction:
    """Who is where once some slots have left and the last ones fill their holes."""

    def __init__(self, rows: int, slots: Sequence[int], beam: int, device: torch.device) -> None:
        """Of so many active rows."""
        gone, before = set(slots), rows // beam
        after = before - len(gone)
        self.order = list(range(after))
        """Slot i was slot `order[i]`."""
        holes = sorted(slot for slot in gone if slot < after)
        movers = [slot for slot in range(after, before) if slot not in gone]
        for hole, mover in zip(holes, movers, strict=True):
            self.order[hole] = mover
        self.rows = _rows_of_slots(self.order, beam)
        """Row i was row `rows[i]`."""
        self.holes = torch.tensor(_rows_of_slots(holes, beam), dtype=torch.int64, device=device)
        """Rows that others move to."""
        self.movers = torch.tensor(_rows_of_slots(movers, beam), dtype=torch.int64, device=device)
        """Rows that move, one to each hole."""

    def move(self, kept: Tensor, dim: int) -> None:
        """Copy the rows that move, along a dimension, to their new places."""
        if len(self.holes):
            kept.index_copy_(dim, self.holes, kept.index_select(dim, self.movers))


def _rows_of_slots(slots: Sequence[int], beam: int) -> list[int]:
    """The rows of these slots, in this order."""
    return [slot * beam + row for slot in slots for row in range(beam)]


def with_room(
    kept: Tensor, sizes: Mapping[int, int], used: tuple[slice, ...], most: Mapping[int, int | None] | None = None
) -> Tensor:
    """The tensor itself where it is as large along these dimensions; else its used part at the beginning of a larger one.

    A dimension that is too short is doubled, so that growing step by step copies little, but not beyond its `most` unless its
    size is; what is not used is 0.
    """
    if all(kept.shape[dim] >= size for dim, size in sizes.items()):
        return kept
    shape = list(kept.shape)
    for dim, size in sizes.items():
        if shape[dim] < size:
            doubled, bound = 2 * shape[dim], None if most is None else most.get(dim)
            shape[dim] = max(size, doubled if bound is None else min(doubled, bound))
    grown = kept.new_zeros(shape)
    part = kept[used]
    grown[tuple(slice(size) for size in part.shape)] = part
    return grown


class SourceRows:
    """Keys and values of each active row's source, with room for more rows and longer sources."""

    def __init__(self, kept: Tensor, row_dim: int, most_rows: int | None = None) -> None:
        """Begin with the room of `kept`: rows along `row_dim`, source tokens along the last but one dimension.

        `most_rows`: as in `StepModel.slots`.
        """
        self._kept, self._row_dim, self._length_dim = kept, row_dim, kept.dim() - 2
        self._most = {row_dim: most_rows}
        self._lengths: list[int] = []

    def __len__(self) -> int:
        return len(self._lengths)

    def append(self, joining: Tensor, lengths: Sequence[int]) -> None:
        """Add rows of `joining`, as wide as the longest of them is long; numbers behind a source's end change nothing."""
        rows, longest = len(self) + len(lengths), max(lengths)
        self._kept = with_room(self._kept, {self._row_dim: rows, self._length_dim: longest}, self._used(), self._most)
        new = self._kept.narrow(self._row_dim, len(self), len(lengths))
        new[..., :longest, :] = joining
        # What no row looks at must be a number all the same: not-a-number times a weight of 0 is none.
        new[..., longest:, :] = 0
        self._lengths += lengths

    def drop(self, leaving: SlotCompaction) -> None:
        """Go on with the rows that stay."""
        leaving.move(self.seen(), self._row_dim)
        self._lengths = [self._lengths[row] for row in leaving.rows]

    def seen(self) -> Tensor:
        """The active rows, as far as the longest of their sources goes: a view."""
        return self._kept[self._used()]

    def within(self) -> Tensor | None:
        """True up to each source's end, [rows, src_len]; None where all are equally long."""
        longest = max(self._lengths)
        if min(self._lengths) == longest:
            return None
        device = self._kept.device
        return torch.arange(longest, device=device) < torch.tensor(self._lengths, device=device)[:, None]

    def _used(self) -> tuple[slice, ...]:
        used = [slice(None)] * self._kept.dim()
        used[self._row_dim], used[self._length_dim] = slice(len(self)), slice(max(self._lengths, default=0))
        return tuple(used)


Memory: TypeAlias = Any
"""What the encoder leaves for the decoder; known to the model that made it alone."""
State: TypeAlias = Any
"""What the decoder carries from step to step; known to the model that made it alone. A step may change it in place."""


class StepModel(Protocol):
    """A translation model, decoded step by step. Rows are sentences x beam, the beams of a sentence side by side.

    A step is the decoder's body and its output layer: `step` is `project` of what `body` returns. A fused output layer takes
    `products` and adds the bias itself (FNI-01 to 05).
    """

    @property
    def vocab(self) -> int:
        """Target tokens known: the width of the logits."""

    @property
    def start_token(self) -> int:
        """What the first step of each row is fed."""

    @property
    def eos_token(self) -> int:
        """Ends a target."""

    @property
    def unk_token(self) -> int:
        """Stands for an unknown word."""

    @property
    def pad_token(self) -> int:
        """Fills the sources behind their lengths; never an output."""

    @property
    def max_positions(self) -> int | None:
        """The longest source and the most steps; None where any length does."""

    @property
    def device(self) -> torch.device:
        """Where all tensors must lie, `src_lengths` too."""

    @property
    def bias(self) -> Tensor | None:
        """What the output layer adds to its products, [vocab]; None where it adds nothing."""

    @property
    def weight(self) -> Tensor:
        """What the output layer multiplies with, [vocab, width], in the model's own type; the very tensor, or of packed weights
        a copy that the model keeps."""

    def encode(self, src: Tensor, src_lengths: Tensor) -> Memory:
        """Read the sources: int64 [batch, src_len] and [batch]; what lies behind a length changes nothing."""

    def start(self, memory: Memory, beam: int) -> State:
        """The state of batch x beam rows before the first step; the memory stays as it is, for another start."""

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """Feed each row its last token, int64 [rows]; returns logits [rows, vocab] in the model's own type, and the next state.

        The given state is used up: go on with the returned one.
        """

    def body(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """As `step`, but returns what the output layer projects, [rows, width]."""

    def project(self, hidden: Tensor) -> Tensor:
        """The output layer: [rows, width] to logits [rows, vocab], the caller's to change."""

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """The output layer without its bias, a block of columns after the other (FNI-01, step 1).

        Yields the block's first column and its products [rows, columns], contiguous, in the model's own type, the caller's to
        change until it asks for the next. `block`: columns of each but the last, which has up to twice as many, where the
        weights can be had by the block; None: all in one.
        """

    def reorder(self, state: State, rows: Tensor) -> State:
        """The state whose row i is the given one's row `rows[i]`, of the same source, as in a beam.

        The given state is used up.
        """

    def slots(self, rows: int, most_rows: int | None = None) -> Slots:
        """Empty slots with room for so many rows; it grows by doubling, but to no more than `most_rows` while these suffice."""


class NeuralModel(nn.Module, ABC):
    """What the step models of torch share: the special tokens, and an output layer called `projection`.

    A subclass adds `body`, `encode`, `start`, `reorder` and `slots` of `StepModel`, and a `forward` for training.
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
        self.max_positions: int | None = architecture.max_positions

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.bias.device

    @property
    def bias(self) -> Tensor:
        """See `StepModel`."""
        bias: Tensor | None = self.output_layer().bias
        assert bias is not None, "an output layer with a bias"
        return bias

    @property
    def weight(self) -> Tensor:
        """See `StepModel`."""
        weight: Tensor = self.output_layer().weight
        return weight

    def output_layer(self) -> nn.Linear | HalfLinear:
        """The layer that gives the logits."""
        layer = self.projection
        assert isinstance(layer, nn.Linear | HalfLinear)
        return layer

    @abstractmethod
    def body(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """See `StepModel`."""

    def attention(self, src: Tensor, src_lengths: Tensor, tgt_in: Tensor) -> Tensor:
        """How much each step looks at each source position, [batch, tgt_len, src_len], summing to 1; fed as `forward` is.

        Raises `NmtError` for a model without attention.
        """
        raise NotImplementedError

    def step(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """See `StepModel`."""
        hidden, state = self.body(state, tokens)
        return self.project(hidden), state

    def project(self, hidden: Tensor) -> Tensor:
        """See `StepModel`."""
        logits: Tensor = self.output_layer()(hidden)
        return logits

    def products(self, hidden: Tensor, block: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """See `StepModel`."""
        return products_of(self.output_layer(), hidden, block)

    def halve(self) -> None:
        """Hold the weights of the decoder's products in float16 from now on, for inference alone."""
        halve_linear_layers(self)


def pad(sources: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """int64 [batch, longest] and the sources' lengths [batch], on the CPU."""
    lengths = [len(source) for source in sources]
    longest = max(lengths)
    rows = [[*source, *[pad_token] * (longest - length)] for source, length in zip(sources, lengths, strict=True)]
    return torch.tensor(rows), torch.tensor(lengths)


def check_lengths(longest: int | None, src_len: int, steps: int) -> None:
    """Raise `NmtError` where a source or a target is longer than a model of `longest` positions takes."""
    if longest is not None and max(src_len, steps) > longest:
        side, length = ("source", src_len) if src_len > longest else ("target", steps)
        raise NmtError(f"a {side} of {length} tokens where the model has {longest} positions", remedy="shorten it")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One translation."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    score: float | None
    """Sum of log-probabilities (natural), the end token's included, divided by how many they are to the power of the
    length penalty, which is 1 in greedy search; None where none was asked for."""
    steps: int = field(default=0, compare=False)
    """Decode steps taken for the sentence: its tokens and the end in greedy search; a beam runs on beyond its best."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How long a sentence's output may be, and for candidate lists of what sentence."""

    steps: int
    """Most steps, 1 or more."""
    forced: bool = False
    """Whether it takes them all: its end token is banned."""
    source: Sequence[int] = ()
    """Tokens of the sentence, where the vocabulary in use hangs on them."""


class SlotSearch(Protocol):
    """Chooses tokens for all slots, and tells which are done; slot i is rows i x beam to (i + 1) x beam."""

    @property
    def beam(self) -> int:
        """Rows of a slot."""

    @property
    def tokens(self) -> Tensor:
        """What the next step is fed, int64 [rows]."""

    @property
    def parents(self) -> Tensor | None:
        """The row that each row goes on from, int64 [rows]; None where each does from itself."""

    def join(self, limits: Sequence[Limit]) -> None:
        """Append so many slots before their first step."""

    def project(self, hidden: Tensor) -> Any:
        """The model's part of the output layer, of what its body left, [rows, width]."""

    def choose(self, projected: Any) -> list[tuple[int, Hypothesis]]:
        """Take the step's projection, used up; returns the slots that are done, ascending, with what they found."""

    def leave(self, order: Sequence[int]) -> None:
        """Slot i becomes what slot `order[i]` was; the others are gone."""


_NEVER = float("-inf")


@dataclass(slots=True)
class BannedTokens:
    """Tokens never chosen: padding, which is no output, and of a sentence of forced length the end."""

    pad: int
    eos: int
    device: torch.device
    all_forced: bool = False
    columns: Tensor | None = None
    """In every row; another tensor whenever they change."""
    ends: Tensor | None = None
    """Rows, [rows], whose end is banned; None where those of all or of none are."""

    @classmethod
    def of(cls, model: StepModel) -> BannedTokens:
        """Of an empty decoder."""
        return cls(model.pad_token, model.eos_token, model.device)

    def see(self, limits: Sequence[Limit], beam: int) -> None:
        """Be told of the sentences under way; to be called whenever they change."""
        forced = [limit.forced for limit in limits]
        before, self.all_forced = self.all_forced, all(forced)
        if self.columns is None or before != self.all_forced:
            columns = {self.pad} - {self.eos} | ({self.eos} if self.all_forced else set())
            self.columns = torch.tensor(sorted(columns), dtype=torch.int64, device=self.device)
        mixed = any(forced) and not self.all_forced
        self.ends = torch.tensor(forced, device=self.device).repeat_interleave(beam) if mixed else None

    def ban(self, logits: Tensor) -> None:
        """Make them impossible, in place."""
        if self.columns is not None:
            logits.index_fill_(1, self.columns, _NEVER)
        if self.ends is not None:
            logits[:, self.eos].masked_fill_(self.ends, _NEVER)


class MaskedBias:
    """Made anew when the banned tokens change, and no sooner."""

    def __init__(self, model: StepModel, banned: BannedTokens) -> None:
        self._vocab, self._banned = model.vocab, banned
        bias = model.bias
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._columns: Tensor | None = None
        """Those banned in every row, as of when `_masked` was made."""
        self._masked = self._bias

    def now(self) -> Tensor | None:
        """float32 [vocab]; None where nothing is added and nothing banned. The same tensor until something changes."""
        columns = self._banned.columns
        if columns is not self._columns:
            self._columns = columns
            if columns is not None and len(columns):
                bias = torch.zeros(self._vocab, device=columns.device) if self._bias is None else self._bias.clone()
                self._masked = bias.index_fill_(0, columns, _NEVER)
            else:
                self._masked = self._bias
        return self._masked
