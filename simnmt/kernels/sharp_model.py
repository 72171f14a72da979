"""An attentional model as plain arrays (SHARP-04, SHARP-12, SHARP-16), and what a search is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.beam_search import Ints
from simnmt.kernels.native_library import KernelError, checked

Float32: TypeAlias = NDArray[np.float32]
Cell = Literal["gru", "lstm"]
Kind = Literal["gru", "lstm", "fc_relu", "fc_tanh"]

GATES: dict[Kind, int] = {"gru": 3, "lstm": 4, "fc_relu": 1, "fc_tanh": 1}
"""Number of matrices stacked in one, in the order update, reset, candidate (GRU) or input, forget, cell, output (LSTM)."""
RELU_LIMIT = 10.0
"""Largest output of `fc_relu` (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of width w above the bottom cell (SHARP-12), or one direction of a source layer; x is its input.

    `gru`: u = sigm(W_u h + V_u x + b_u), likewise r; h' = u h + (1 - u) tanh(r (W_h h + reset bias) + V_h x + b_h).
    `lstm`: i, f, o = sigm(.), m = tanh(.) of W h + V x + b each; cell' = f cell + i m; h' = o tanh(cell').
    `fc_relu`: min(max(V x, 0), 10); in a run of these layers, the third, fifth, ... add the output of the layer two below
    before the relu. `fc_tanh`: tanh(V x).
    """

    kind: Kind
    input: Float32
    """V [g w, in], with the g matrices of `GATES`."""
    state: Float32 | None = None
    """W [g w, w], only in a recurrent layer."""
    bias: Float32 | None = None
    """b [g w], only in a recurrent layer."""
    reset_bias: Float32 | None = None
    """[w], only in a GRU of the source side."""

    @property
    def width(self) -> int:
        return len(self.input) // GATES[self.kind]

    def matrices(self) -> list[Float32]:
        return [self.input] if self.state is None else [self.input, self.state]


class SharpTokens(NamedTuple):
    """The special words; `pad` is never chosen."""

    start: int
    eos: int
    pad: int


@dataclass(frozen=True, slots=True)
class SharpWeights:
    """A whole target side: C-contiguous float32, finite, checked once. Raises `KernelError`.

    The bottom cell is a layer of width r with g gates to which U c of the attended context c is added, too (SHARP-04). With
    q = W_a h + V_a x and k_j = U_a s_j the score of source state s_j is tanh(q) . tanh(k_j), or in the additive form
    v . tanh(q + k_j). All states start at zero. The int16 product clips matrices and source states to [-1, 1] (SHARP-05).
    """

    cell: Cell
    embedding: Float32
    """[words, e], the most frequent words first."""
    state: Float32
    """W, and below it W_a [g r + a, r]."""
    word: Float32
    """V, and below it V_a [g r + a, e]."""
    context: Float32
    """U [g r, s]."""
    key: Float32
    """U_a [a, s]."""
    bias: Float32
    """b [g r]."""
    score: Float32 | None
    """v [a] of the additive form; None: the other form."""
    stack: tuple[Layer, ...]
    output: Float32
    output_bias: Float32
    tokens: SharpTokens

    def __post_init__(self) -> None:
        _check_arrays([self.embedding, self.bias, self.output_bias, *self.matrices()])

    @property
    def vocab(self) -> int:
        return len(self.embedding)

    @property
    def width(self) -> int:
        return int(self.state.shape[1])

    def matrices(self) -> list[Float32]:
        above = [matrix for layer in self.stack for matrix in layer.matrices()]
        return [self.state, self.word, self.context, self.key, *above, self.output]

    def input_limits(self) -> list[float]:
        """Return the largest absolute input of each layer of the stack, and of the output layer (SHARP-05)."""
        return [1.0, *(RELU_LIMIT if layer.kind == "fc_relu" else 1.0 for layer in self.stack)]

    def skips(self) -> list[int | None]:
        """Return for each layer of the stack the layer whose output it adds (SHARP-12), or None if it adds none."""
        added: list[int | None] = []
        run = 0
        for number, layer in enumerate(self.stack):
            run = run + 1 if layer.kind == "fc_relu" else 0
            added.append(number - 2 if run >= 3 and run % 2 else None)
        return added


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """A whole source side (SHARP-16): C-contiguous float32, finite, checked once. Raises `KernelError`.

    The output of a position is its forward state followed by its backward state.
    """

    embedding: Float32
    """[source words, e], the most frequent words first."""
    layers: tuple[tuple[Layer, Layer], ...]
    """From bottom to top, the forward and the backward direction."""

    def __post_init__(self) -> None:
        _check_arrays([self.embedding, *self.matrices()])

    @property
    def vocab(self) -> int:
        return len(self.embedding)

    @property
    def width(self) -> int:
        """Width of a source state: both directions of the last layer."""
        return sum(side.width for side in self.layers[-1])

    def matrices(self) -> list[Float32]:
        return [matrix for sides in self.layers for side in sides for matrix in side.matrices()]


def _check_arrays(arrays: Iterable[Float32]) -> None:
    for array in arrays:
        if not np.isfinite(checked("array of a model", array, np.float32, (None,) * np.ndim(array))).all():
            raise KernelError("an array of a model holds NaN or infinity")


def embedding_limit(embedding: Float32) -> float:
    """Return the largest absolute input of a product with embeddings (SHARP-05)."""
    return max(float(np.abs(embedding).max()), 1e-6)


def check_words(words: Ints, vocab: int) -> None:
    """Raise `KernelError` for a list without words, or with one outside the vocabulary."""
    if not words.size or words.min() < 0 or words.max() >= vocab:
        raise KernelError(f"no words, or words outside the vocabulary of {vocab}")


class ForcedSteps(NamedTuple):
    """Results of the decoder along a given translation (teacher forcing)."""

    best: Ints
    """[tokens], the likeliest word of each step."""
    log_probs: Float32
    """[tokens], log-probabilities of the given words."""
