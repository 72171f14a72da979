"""An attentional model as plain arrays, target side and source side (SHARP-04, SHARP-12, SHARP-16), and a search of it.

A search has a request, checks of its arguments, and a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.arrays import checked
from simnmt.kernels.errors import KernelError
from simnmt.profile.decoder_settings import DecoderSettings

Float32: TypeAlias = NDArray[np.float32]

GATES = {"attgru": 3, "attlstm": 4, "gru": 3, "lstm": 4, "fc_relu": 1, "fc_tanh": 1}
"""Matrices stacked in one; a GRU's in the order update, reset, candidate; an LSTM's input, forget, cell, output."""

RELU_LIMIT = 10.0
"""Above which `fc_relu` gives no more (SHARP-05)."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How much the decoder looks at each source word (SHARP-04).

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
    """v [a], of the additive form alone."""


@dataclass(frozen=True, slots=True)
class BottomCell:
    """The recurrent layer that sees the source: AttGRU or AttLSTM, g = 3 or 4 gates of width r stacked as in `GATES`.

    AttGRU: u = sigm(W_u h + V_u x + U_u c + b_u), likewise r; h' = u h + (1 - u) tanh(r (W_h h) + V_h x + U_h c + b_h).
    AttLSTM: i, f, o = sigm(.), m = tanh(.) of W h + V x + U c + b each; cell' = f cell + i m; h' = o tanh(cell').
    Both begin at zero.
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
    """A layer above the bottom one (SHARP-12), of width w.

    `fc_relu`: min(max(W x, 0), 10). Of consecutive ones the third, fifth, ... add the output of the one two below before the
    relu. `fc_tanh`: tanh(W x). `gru`, `lstm`: as `BottomCell` without the context term.
    """

    kind: Literal["fc_relu", "fc_tanh", "gru", "lstm"]
    input: Float32
    """[g w, in]; of a fully connected layer [w, in]."""
    state: Float32 | None = None
    """[g w, w], of a recurrent layer alone."""
    bias: Float32 | None = None
    """[g w], of a recurrent layer alone."""

    @property
    def recurrent(self) -> bool:
        """Whether it carries a state from step to step."""
        return self.kind in ("gru", "lstm")

    @property
    def width(self) -> int:
        """w."""
        return int(self.input.shape[0]) // GATES[self.kind]


@dataclass(frozen=True, slots=True)
class SharpTokens:
    """The special words."""

    start: int
    """What the decoder is fed first."""
    eos: int
    """Ends a translation."""
    unk: int
    """Stands for what the vocabulary lacks; to be replaced by the source word attended to most."""
    pad: int
    """Never chosen."""


@dataclass(frozen=True, slots=True)
class SharpWeights:
    """A whole target side: C-contiguous float32, finite, checked once. Raises `KernelError`.

    The int16 product clips the matrices to [-1, 1], where training keeps them, and source states too, where those of GRU and
    LSTM encoders lie (SHARP-05).
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
        for name, array, shape in self._wanted():
            if not np.isfinite(checked(name, array, np.float32, shape)).all():
                raise KernelError(f"{name} holds NaN or infinity")
        for name in ("start", "eos", "unk", "pad"):
            if not 0 <= (token := getattr(self.tokens, name)) < self.vocab:
                raise KernelError(f"tokens.{name} is {token}, no word of a vocabulary of {self.vocab}")
        for layer, skipped in enumerate(skips(self.stack)):
            if skipped is not None and self.stack[layer].width != self.stack[skipped].width:
                widths = f"{self.stack[skipped].width} and {self.stack[layer].width}"
                raise KernelError(f"stack[{layer}] adds a layer of another width: {widths}")

    @property
    def vocab(self) -> int:
        """Words known."""
        return int(self.embedding.shape[0])

    @property
    def source_width(self) -> int:
        """s, of a source state."""
        return int(self.bottom.context.shape[1])

    def matrices(self) -> list[Float32]:
        """Return the weights [out, in] of all products."""
        bottom, attention = self.bottom, self.bottom.attention
        cell = [bottom.state, bottom.word, bottom.context, attention.state, attention.word, attention.key]
        above = [matrix for layer in self.stack for matrix in (layer.input, layer.state) if matrix is not None]
        return [*cell, *above, self.output]

    def _wanted(self) -> list[tuple[str, Any, tuple[int, ...]]]:
        bottom, attention = self.bottom, self.bottom.attention
        r, e, s, a = bottom.width, self.embedding.shape[-1], self.source_width, attention.state.shape[0]
        gr = GATES[bottom.kind] * r
        wanted: list[tuple[str, Any, tuple[int, ...]]] = [
            ("embedding", self.embedding, (len(self.embedding), e)),
            ("bottom.state", bottom.state, (gr, r)),
            ("bottom.word", bottom.word, (gr, e)),
            ("bottom.context", bottom.context, (gr, s)),
            ("bottom.bias", bottom.bias, (gr,)),
            ("bottom.attention.state", attention.state, (a, r)),
            ("bottom.attention.word", attention.word, (a, e)),
            ("bottom.attention.key", attention.key, (a, s)),
        ]
        if attention.form == "additive":
            wanted.append(("bottom.attention.score", attention.score, (a,)))
        below = r
        for number, layer in enumerate(self.stack):
            gw = GATES[layer.kind] * layer.width
            wanted.append((f"stack[{number}].input", layer.input, (gw, below)))
            if layer.recurrent:
                wanted.append((f"stack[{number}].state", layer.state, (gw, layer.width)))
                wanted.append((f"stack[{number}].bias", layer.bias, (gw,)))
            below = layer.width
        wanted.append(("output", self.output, (len(self.embedding), below)))
        wanted.append(("output_bias", self.output_bias, (len(self.embedding),)))
        return wanted


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
    """[w], of a GRU alone: added to W_h h before the reset gate multiplies it."""


@dataclass(frozen=True, slots=True)
class SourceLayer:
    """A bidirectional layer: each position's output is the forward direction's state beside the backward direction's."""

    kind: Literal["gru", "lstm"]
    forward: SourceDirection
    backward: SourceDirection

    @property
    def width(self) -> int:
        """Of one direction's state."""
        return int(self.forward.state.shape[1])


@dataclass(frozen=True, slots=True)
class SourceWeights:
    """A whole source side (SHARP-16): C-contiguous float32, finite, checked once. Raises `KernelError`.

    The int16 product clips matrices and states as it does on the target side.
    """

    embedding: Float32
    """[source words, e], the most frequent words first."""
    layers: tuple[SourceLayer, ...]
    """From bottom to top."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise KernelError("a source side has at least one layer")
        for name, array, shape in self._expected():
            if not np.isfinite(checked(name, array, np.float32, shape)).all():
                raise KernelError(f"{name} holds NaN or infinity")

    @property
    def vocab(self) -> int:
        """Source words known."""
        return int(self.embedding.shape[0])

    @property
    def width(self) -> int:
        """Of a source state: both directions of the last layer."""
        return 2 * self.layers[-1].width

    def matrices(self) -> list[Float32]:
        """Return the weights [out, in] of all products."""
        directions = [side for layer in self.layers for side in (layer.forward, layer.backward)]
        return [matrix for side in directions for matrix in (side.input, side.state)]

    def _expected(self) -> list[tuple[str, Any, tuple[int, ...]]]:
        below = int(self.embedding.shape[-1])
        expected: list[tuple[str, Any, tuple[int, ...]]] = [("source.embedding", self.embedding, (len(self.embedding), below))]
        for number, layer in enumerate(self.layers):
            w = layer.width
            gw = GATES[layer.kind] * w
            for side, direction in (("forward", layer.forward), ("backward", layer.backward)):
                name = f"source.layers[{number}].{side}"
                expected.append((f"{name}.input", direction.input, (gw, below)))
                expected.append((f"{name}.state", direction.state, (gw, w)))
                expected.append((f"{name}.bias", direction.bias, (gw,)))
                if layer.kind == "gru":
                    expected.append((f"{name}.reset_bias", direction.reset_bias, (w,)))
            below = 2 * w
        return expected


def embedding_limit(embedding: Float32) -> float:
    """The largest absolute input of a product with embeddings (SHARP-05)."""
    return max(float(np.abs(embedding).max()), 1e-6)


def kept_words(settings: DecoderSettings, vocab: int) -> int:
    """How many of a vocabulary's first words have the products of their embeddings kept (SHARP-06)."""
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
    """The largest absolute input of each layer of the stack, then of the output layer (SHARP-05)."""
    return [1.0, *(RELU_LIMIT if layer.kind == "fc_relu" else 1.0 for layer in weights.stack)]


Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search."""

    tokens: SharpTokens
    beam: int
    steps: int
    """At most, or where `forced` exactly."""
    forced: bool
    """Whether the end token is banned."""
    candidates: Ints | None
    """Words that may be chosen; None: all."""
    stop_margin: float


def banned(ids: Ints, tokens: SharpTokens, *, forced: bool = False) -> NDArray[np.bool_]:
    """Which words are never chosen: padding, which is no output, and in a search of forced length the end."""
    padding = ids == tokens.pad if tokens.pad != tokens.eos else np.zeros(len(ids), np.bool_)
    return np.asarray(padding | (ids == tokens.eos)) if forced else padding


def check_candidates(weights: SharpWeights, candidates: Ints | None, *, needs_end: bool, forced: bool) -> None:
    """Raise `KernelError` for a list that no search could use."""
    if candidates is None:
        return
    checked("candidates", candidates, np.int64, (None,))
    seen = np.unique(candidates)
    if len(seen) != len(candidates) or not len(seen) or seen[0] < 0 or seen[-1] >= weights.vocab:
        raise KernelError(f"candidates are not words of a vocabulary of {weights.vocab}, each once")
    if needs_end and weights.tokens.eos not in seen:
        raise KernelError("candidates lack the end token, so that no translation could end")
    if banned(candidates, weights.tokens, forced=forced).all():
        raise KernelError("candidates hold no word that may be chosen")


def check_source(weights: SharpWeights, states: Float32, most_src_len: int) -> Float32:
    """The states, contiguous. Raises `KernelError`."""
    if isinstance(states, np.ndarray):
        states = np.ascontiguousarray(states)
    checked("source_states", states, np.float32, (None, weights.source_width))
    if not 1 <= len(states) <= most_src_len:
        raise KernelError(f"source_states are of {len(states)} words, not of 1 to most_src_len, {most_src_len}")
    if not np.isfinite(states).all():
        raise KernelError("source_states hold NaN or infinity")
    return states


def candidate_positions(words: Ints, candidates: Ints | None, vocab: int) -> Ints:
    """Columns of words among the candidates. Raises `KernelError` for one that is none."""
    ids = np.arange(vocab) if candidates is None else candidates
    order = np.argsort(ids)
    places = order[np.searchsorted(ids, words, sorter=order).clip(max=len(ids) - 1)]
    if (ids[places] != words).any():
        raise KernelError("tokens hold a word that is not among the candidates")
    return np.ascontiguousarray(places)


@dataclass(frozen=True, slots=True)
class StageSeconds:
    """Where the time of all steps of one sentence went."""

    prepare_s: float
    """Once a sentence: the products of its source states, and its candidates' rows gathered."""
    body_s: float
    """Attention, bottom cell and stack."""
    product_s: float
    """The output layer's product."""
    search_s: float
    """Bias, softmax, search and the beam's bookkeeping."""


@dataclass(frozen=True, slots=True)
class SharpTranslation:
    """The best translation of one sentence."""

    tokens: tuple[int, ...]
    """Without the start token and, where it ended by itself, without the end token."""
    log_prob: float
    """Sum of log-probabilities (natural), the end token's included; not divided by the length (SHARP-03)."""
    attended: tuple[int, ...]
    """Of each token, the source position that its step looked at most: the first of those that tie."""
    steps: int
    """Taken by the search, those after the best translation ended included."""
    distinct_share: float
    """Distinct recurrent states among the hypotheses of all steps (SHARP-09)."""
    stopped_early: bool
    """Whether the margin of SHARP-03 ended the search; else the length limit did, or nothing was left open."""
    stage_s: StageSeconds | None = None
    """None unless asked for, and without a compiled library."""


@dataclass(frozen=True, slots=True)
class ForcedSteps:
    """What the decoder thinks along a given translation (teacher forcing)."""

    best: NDArray[np.int64]
    """[tokens], the likeliest word of each step."""
    log_probs: NDArray[np.float32]
    """[tokens], of the given words."""
