"""An attentional model as plain arrays, target side and source side (SHARP-04, SHARP-12, SHARP-16); requests and results of a
search, and checks of its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import KernelError, checked
from simnmt.kernels.beam_search import Ints
from simnmt.profile.decoder_settings import DecoderSettings

Float32: TypeAlias = NDArray[np.float32]

GATES = {"attgru": 3, "attlstm": 4, "gru": 3, "lstm": 4, "fc_relu": 1, "fc_tanh": 1}
"""Number of matrices stacked in one, in the order update, reset, candidate (GRU) or input, forget, cell, output (LSTM)."""

RELU_LIMIT = 10.0
"""Largest output of `fc_relu` (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Weights of the attention to source words (SHARP-04).

    With q = W_a h + V_a x and k_j = U_a s_j the score d_j is tanh(q) . tanh(k_j), or in the additive form v . tanh(q + k_j).
    """

    form: Literal["dot_of_tanh", "additive"]
    state: Float32
    """W_a [a, r]."""
    word: Float32
    """V_a [a, e]."""
    key: Float32
    """U_a [a, s]."""
    score: Float32 | None = None
    """v [a], only in the additive form."""


@dataclass(frozen=True, slots=True)
class BottomCell:
    """The recurrent layer with attention: AttGRU or AttLSTM, g = 3 or 4 gates of width r stacked as in `GATES`.

    AttGRU: u = sigm(W_u h + V_u x + U_u c + b_u), likewise r; h' = u h + (1 - u) tanh(r (W_h h) + V_h x + U_h c + b_h).
    AttLSTM: i, f, o = sigm(.), m = tanh(.) of W h + V x + U c + b each; cell' = f cell + i m; h' = o tanh(cell').
    Both states start at zero.
    """

    kind: Literal["attgru", "attlstm"]
    state: Float32
    """W [g r, r]."""
    word: Float32
    """V [g r, e]."""
    context: Float32
    """U [g r, s]."""
    bias: Float32
    """b [g r]."""
    attention: Attention

    @property
    def width(self) -> int:
        """r."""
        return int(self.state.shape[1])


@dataclass(frozen=True, slots=True)
class StackLayer:
    """A layer of width w above the bottom cell (SHARP-12).

    `fc_relu`: min(max(W x, 0), 10); in a run of these layers, the third, fifth, ... add the output of the layer two below
    before the relu. `fc_tanh`: tanh(W x). `gru`, `lstm`: as `BottomCell` without the context term.
    """

    kind: Literal["fc_relu", "fc_tanh", "gru", "lstm"]
    input: Float32
    """[g w, in]; [w, in] in a fully connected layer."""
    state: Float32 | None = None
    """[g w, w], only in a recurrent layer."""
    bias: Float32 | None = None
    """[g w], only in a recurrent layer."""

    @property
    def recurrent(self) -> bool:
        """True if the layer keeps a state from step to step."""
        return self.kind in ("gru", "lstm")

    @property
    def width(self) -> int:
        """w."""
        return int(self.input.shape[0]) // GATES[self.kind]


@dataclass(frozen=True, slots=True)
class SharpTokens:
    """The special words."""

    start: int
    """First input of the decoder."""
    eos: int
    """Ends a translation."""
    unk: int
    """Represents words outside the vocabulary; to be replaced by the source word attended to most."""
    pad: int
    """Never chosen."""


@dataclass(frozen=True, slots=True)
class SharpWeights:
    """A whole target side: C-contiguous float32, finite, checked once. Raises `KernelError`.

    The int16 product clips the matrices to [-1, 1], the range in which training keeps them, and also source states, which GRU
    and LSTM encoders keep in this range (SHARP-05).
    """

    embedding: Float32
    """[words, e], the most frequent words first."""
    bottom: BottomCell
    stack: tuple[StackLayer, ...]
    output: Float32
    """[words, width of the last layer]."""
    output_bias: Float32
    """[words]."""
    tokens: SharpTokens

    def __post_init__(self) -> None:
        arrays = {"embedding": self.embedding, "output": self.output, "output_bias": self.output_bias}
        _check_arrays(arrays | dict(enumerate(self.matrices())))
        for number, skipped in enumerate(skips(self.stack)):
            if skipped is not None and self.stack[number].width != self.stack[skipped].width:
                raise KernelError(f"stack[{number}] adds a layer of another width")

    @property
    def vocab(self) -> int:
        """Number of words."""
        return int(self.embedding.shape[0])

    @property
    def source_width(self) -> int:
        """s, the width of a source state."""
        return int(self.bottom.context.shape[1])

    def matrices(self) -> list[Float32]:
        """Return the weights [out, in] of all products."""
        bottom, attention = self.bottom, self.bottom.attention
        cell = [bottom.state, bottom.word, bottom.context, attention.state, attention.word, attention.key]
        above = [matrix for layer in self.stack for matrix in (layer.input, layer.state) if matrix is not None]
        return [*cell, *above, self.output]


def _check_arrays(arrays: Mapping[Any, Float32]) -> None:
    """Raise `KernelError` unless these are finite, contiguous float32 arrays."""
    for name, array in arrays.items():
        if not np.isfinite(checked(f"array {name}", array, np.float32, (None,) * np.ndim(array))).all():
            raise KernelError(f"array {name} holds NaN or infinity")


@dataclass(frozen=True, slots=True)
class SourceDirection:
    """One direction of a source layer, g = 3 (GRU) or 4 (LSTM) gates of width w stacked as in `GATES`."""

    input: Float32
    """[g w, in]."""
    state: Float32
    """[g w, w]."""
    bias: Float32
    """[g w]."""
    reset_bias: Float32 | None = None
    """[w], only in a GRU: added to W_h h before the reset gate multiplies it."""


@dataclass(frozen=True, slots=True)
class SourceLayer:
    """A bidirectional layer: the output of a position is its forward state followed by its backward state."""

    kind: Literal["gru", "lstm"]
    forward: SourceDirection
    backward: SourceDirection

    @property
    def width(self) -> int:
        """Width of one direction's state."""
        return int(self.forward.state.shape[1])


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """A whole source side (SHARP-16): C-contiguous float32, finite, checked once. Raises `KernelError`.

    The int16 product clips matrices and states as on the target side.
    """

    embedding: Float32
    """[source words, e], the most frequent words first."""
    layers: tuple[SourceLayer, ...]
    """From bottom to top."""

    def __post_init__(self) -> None:
        _check_arrays({"embedding": self.embedding} | dict(enumerate(self.matrices())))

    @property
    def vocab(self) -> int:
        """Number of source words."""
        return int(self.embedding.shape[0])

    @property
    def width(self) -> int:
        """Width of a source state: both directions of the last layer."""
        return 2 * self.layers[-1].width

    def matrices(self) -> list[Float32]:
        """Return the weights [out, in] of all products."""
        directions = [side for layer in self.layers for side in (layer.forward, layer.backward)]
        return [matrix for side in directions for matrix in (side.input, side.state)]


def embedding_limit(embedding: Float32) -> float:
    """Return the largest absolute input of a product with embeddings (SHARP-05)."""
    return max(float(np.abs(embedding).max()), 1e-6)


def kept_words(settings: DecoderSettings, vocab: int) -> int:
    """Return the number of words, from the first on, whose embedding products are kept (SHARP-06)."""
    kept = {"computed": 0, "precomputed": vocab, "frequent": min(settings.frequent_words, vocab)}
    return kept[settings.embeddings]


def skips(stack: Sequence[StackLayer]) -> list[int | None]:
    """Return for each layer the layer whose output it adds before its relu (SHARP-12), or None if it adds none."""
    added: list[int | None] = []
    run = 0
    for number, layer in enumerate(stack):
        run = run + 1 if layer.kind == "fc_relu" else 0
        added.append(number - 2 if run >= 3 and run % 2 else None)
    return added


def input_limits(weights: SharpWeights) -> list[float]:
    """Return the largest absolute input of each layer of the stack, and of the output layer (SHARP-05)."""
    return [1.0, *(RELU_LIMIT if layer.kind == "fc_relu" else 1.0 for layer in weights.stack)]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Arguments of one search."""

    tokens: SharpTokens
    beam: int
    steps: int
    """Most steps, or the exact number if `forced`."""
    forced: bool
    """True if the end token is banned."""
    candidates: Ints | None
    """Words that may be chosen; None: all."""
    stop_margin: float
    fused: bool = False
    """True if the output layer is fused; has no effect in numpy."""
    clock: bool = False
    """True if compiled kernels time the stages."""


def banned(ids: Ints, tokens: SharpTokens, *, forced: bool = False) -> NDArray[np.bool_]:
    """Return a mask of the words that are never chosen: padding, and the end token in a search of forced length."""
    padding = ids == tokens.pad if tokens.pad != tokens.eos else np.zeros(len(ids), np.bool_)
    return np.asarray(padding | (ids == tokens.eos)) if forced else padding


def check_sentence(weights: SharpWeights, states: Float32, candidates: Ints | None, *, forced: bool) -> None:
    """Raise `KernelError` for source states or a list of candidates that no search could use."""
    checked("source_states", states, np.float32, (None, weights.source_width))
    if not len(states) or not np.isfinite(states).all():
        raise KernelError("source_states hold no word, or NaN or infinity")
    if candidates is None:
        return
    checked("candidates", candidates, np.int64, (None,))
    seen = np.unique(candidates)
    if len(seen) != len(candidates) or not len(seen) or seen[0] < 0 or seen[-1] >= weights.vocab:
        raise KernelError(f"candidates are not words of a vocabulary of {weights.vocab}, each once")
    if banned(candidates, weights.tokens, forced=forced).all() or not (forced or weights.tokens.eos in seen):
        raise KernelError("candidates lack the end token, or any word that may be chosen")


def candidate_positions(words: Ints, candidates: Ints | None, vocab: int) -> Ints:
    """Return the columns of words among the candidates. Raises `KernelError` for a word that is no candidate."""
    ids = np.arange(vocab) if candidates is None else candidates
    order = np.argsort(ids)
    places = order[np.searchsorted(ids, words, sorter=order).clip(max=len(ids) - 1)]
    if (ids[places] != words).any():
        raise KernelError("tokens hold a word that is not among the candidates")
    return np.ascontiguousarray(places)


@dataclass(frozen=True, slots=True)
class ForcedSteps:
    """Results of the decoder along a given translation (teacher forcing)."""

    best: NDArray[np.int64]
    """[tokens], the likeliest word of each step."""
    log_probs: NDArray[np.float32]
    """[tokens], log-probabilities of the given words."""
