"""The interface of a translation model that is decoded step by step, and the padding of its sources.

A model encodes sources once and then runs one decoder step at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from simnmt.nmt.architecture import Architecture
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear, halve_linear_layers, products_of
from simnmt.nmt.slots import Slots

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


class NeuralModel(nn.Module):
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

    def body(self, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        """See `StepModel`."""
        raise NotImplementedError

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
