"""Source encoder and beam search in plain numpy (SHARP-01): the oracle of the C kernels, and what runs without them.

`Arithmetic` holds the products and activations, `ReferenceSource` encodes a sentence, `ReferenceMember` computes the steps of
one model, and `reference_decode` searches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from simnmt.kernels import activations
from simnmt.kernels.activations import Activation, Function
from simnmt.kernels.beam_search import Ints, SharpTranslation, beam_search
from simnmt.kernels.packed_products import Scales, choose_scales
from simnmt.kernels.sharp import model as sharp
from simnmt.kernels.sharp.model import Float32, ForcedSteps, SearchRequest, SharpWeights
from simnmt.profile.decoder_settings import DecoderSettings

Floats: TypeAlias = NDArray[Any]
"""float32 or float64, the type of the arithmetic."""
Squash: TypeAlias = Callable[[Floats], Floats]


class Linear:
    """A prepared matrix [out, in], in a floating type or in 16 bits with scales (SHARP-05)."""

    def __init__(self, weight: Float32, dtype: type[np.floating[Any]], scales: Scales | None) -> None:
        self._weight, self._dtype, self._scales = weight, dtype, scales
        self._turned: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        """Multiply [rows, in] to [rows, out]."""
        scales = self._scales
        if self._turned is None:
            rows = self._weight if scales is None else scales.quantise_weight(self._weight)
            # Sums below 2^31 of products below 2^30 are exact in float64, in any order.
            self._turned = rows.T.astype(self._dtype if scales is None else np.float64)
        if scales is None:
            return np.asarray(x @ self._turned)
        sums = scales.quantise_input(x.astype(np.float32)).astype(np.float64) @ self._turned
        return np.asarray(sums.astype(np.float32) * np.float32(scales.rescale))

    def select(self, rows: NDArray[np.int64]) -> Linear:
        """Return the matrix of some outputs, with the same numbers."""
        return Linear(self._weight[rows], self._dtype, self._scales)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Products and activations of one precision; float64 is the oracle."""

    dtype: type[np.floating[Any]]
    int16: bool = False
    activation: Activation = "library"

    @classmethod
    def of(cls, settings: DecoderSettings) -> Arithmetic:
        """Return float32 with the settings' noise (SHARP-05, SHARP-08); identities (SHARP-06, 07, 09) change nothing."""
        return cls(np.float32, settings.gemm == "int16", settings.activations)

    def linear(self, weight: Float32, limit: float) -> Linear:
        """Prepare a weight [out, in] for inputs up to an absolute limit."""
        return Linear(weight, self.dtype, choose_scales(weight, limit) if self.int16 else None)

    def tanh(self, x: Floats) -> Floats:
        """Return tanh of each element."""
        return np.asarray(np.tanh(x)) if self.activation == "library" else self._approximate("tanh", x)

    def sigmoid(self, x: Floats) -> Floats:
        """Return the sigmoid of each element."""
        return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5) if self.activation == "library" else self._approximate("sigmoid", x)

    def _approximate(self, function: Function, x: Floats) -> Floats:
        return activations.reference(function, x, self.activation)


def gru(carried: Floats, given: Floats, state: Floats, tanh: Squash, sigmoid: Squash) -> Floats:
    """Return h' = u h + (1 - u) tanh(r (W_h h) + given_h) (SHARP-04).

    `carried`: W h; `given`: all other terms; both [rows, 3 w]. The printed form applies a sigmoid to r (W_h h) alone and leaves
    the candidate unbounded (SHARP-19).
    """
    w = state.shape[1]
    update = sigmoid(carried[:, :w] + given[:, :w])
    reset = sigmoid(carried[:, w : 2 * w] + given[:, w : 2 * w])
    candidate = tanh(reset * carried[:, 2 * w :] + given[:, 2 * w :])
    return np.asarray(update * state + (1 - update) * candidate)


def lstm(gates: Floats, cell: Floats, tanh: Squash, sigmoid: Squash) -> tuple[Floats, Floats]:
    """Return h' and cell' from `gates` [rows, 4 w] in the order input, forget, cell, output."""
    w = cell.shape[1]
    kept = sigmoid(gates[:, w : 2 * w]) * cell
    new = np.asarray(kept + sigmoid(gates[:, :w]) * tanh(gates[:, 2 * w : 3 * w]))
    return np.asarray(sigmoid(gates[:, 3 * w :]) * tanh(new)), new


class _Cell:
    """State of a GRU or LSTM, advanced step by step."""

    def __init__(self, kind: str, state: Callable[[Floats], Floats], width: int, arithmetic: Arithmetic) -> None:
        """`kind` ends with `gru` or `lstm`; `state` multiplies the hidden states."""
        self._gru, self._state, self._width, self._arithmetic = kind.endswith("gru"), state, width, arithmetic

    def begin(self) -> None:
        self.h = self._cell = np.zeros((1, self._width), self._arithmetic.dtype)

    def step(self, given: Floats, parents: NDArray[np.int64] | slice = slice(None), carried: Floats | None = None) -> Floats:
        """Return the new states of hypotheses that extend `parents`; `carried`: products of the old states, if known."""
        h, tanh, sigmoid = self.h[parents], self._arithmetic.tanh, self._arithmetic.sigmoid
        carried = self._state(h) if carried is None else carried
        if self._gru:
            self.h = gru(carried, given, h, tanh, sigmoid)
        else:
            self.h, self._cell = lstm(carried + given, self._cell[parents], tanh, sigmoid)
        return self.h


class ReferenceSource:
    """The source side in plain numpy."""

    def __init__(self, weights: sharp.SourceWeights, arithmetic: Arithmetic) -> None:
        self._embedding, self._arithmetic = weights.embedding, arithmetic
        limits = [sharp.embedding_limit(weights.embedding), *[1.0] * (len(weights.layers) - 1)]
        self._layers = [_SourceLayer(layer, limit, arithmetic) for layer, limit in zip(weights.layers, limits, strict=True)]

    def encode(self, words: NDArray[np.int64]) -> Floats:
        """Return the states of a sentence in the arithmetic's precision; see `SourceEncoder.encode`."""
        states: Floats = self._embedding[words].astype(self._arithmetic.dtype)
        for layer in self._layers:
            states = layer.run(states)
        return states


class _SourceLayer:
    """One bidirectional layer."""

    def __init__(self, layer: sharp.SourceLayer, limit: float, arithmetic: Arithmetic) -> None:
        sides = layer.forward, layer.backward
        # One matrix of both directions: its scale is that of the C kernels' stacked product.
        self._input = arithmetic.linear(np.concatenate([side.input for side in sides]), limit)
        self._bias = np.concatenate([side.bias for side in sides]).astype(arithmetic.dtype)
        self._cells = [_Cell(layer.kind, _source_state(side, arithmetic), layer.width, arithmetic) for side in sides]

    def run(self, below: Floats) -> Floats:
        """Compute states [src_len, 2 width] from [src_len, in]."""
        forward, backward = np.split(self._input(below) + self._bias, 2, axis=1)
        states = []
        for cell, given in zip(self._cells, (forward, backward[::-1]), strict=True):
            cell.begin()
            states.append(np.concatenate([cell.step(given[position : position + 1]) for position in range(len(given))]))
        return np.ascontiguousarray(np.concatenate((states[0], states[1][::-1]), axis=1))


def _source_state(side: sharp.SourceDirection, arithmetic: Arithmetic) -> Callable[[Floats], Floats]:
    linear = arithmetic.linear(side.state, 1.0)
    if side.reset_bias is None:
        return linear
    reset_bias = np.pad(side.reset_bias, (len(side.state) - len(side.reset_bias), 0)).astype(arithmetic.dtype)
    return lambda h: linear(h) + reset_bias


class ReferenceMember:
    """The target side of one model and its state within one sentence; `begin` comes before the first step."""

    def __init__(self, weights: SharpWeights, arithmetic: Arithmetic) -> None:
        self._weights, self._arithmetic = weights, arithmetic
        bottom, attention = weights.bottom, weights.bottom.attention
        linear, dtype, limits = arithmetic.linear, arithmetic.dtype, sharp.input_limits(weights)
        self._gates = len(bottom.bias)
        self._state = linear(np.concatenate((bottom.state, attention.state)), 1.0)
        self._word = linear(np.concatenate((bottom.word, attention.word)), sharp.embedding_limit(weights.embedding))
        self._context, self._key = linear(bottom.context, 1.0), linear(attention.key, 1.0)
        self._bias = bottom.bias.astype(dtype)
        self._score = None if attention.score is None else attention.score.astype(dtype)
        self._cell = _Cell(bottom.kind, self._state, bottom.width, arithmetic)
        self._stack = [_Layer(layer, below, arithmetic) for layer, below in zip(weights.stack, limits[:-1], strict=True)]
        self._skips = sharp.skips(weights.stack)
        self._whole_output = linear(weights.output, limits[-1])
        self._output: Linear = self._whole_output

    @property
    def vocab(self) -> int:
        """Number of words."""
        return self._weights.vocab

    def begin(self, source: Float32, candidates: NDArray[np.int64] | None) -> None:
        """Start a sentence: source states [src_len, s], and the words that may be chosen (None: all)."""
        weights, dtype = self._weights, self._arithmetic.dtype
        self._source = source.astype(dtype)
        self._keys = self._key(self._source)
        if weights.bottom.attention.form == "dot_of_tanh":
            self._keys = self._arithmetic.tanh(self._keys)
        self._output = self._whole_output if candidates is None else self._whole_output.select(candidates)
        self._output_bias = weights.output_bias[slice(None) if candidates is None else candidates].astype(dtype)
        self._cell.begin()
        for layer in self._stack:
            layer.begin()

    def step(self, words: NDArray[np.int64], parents: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return logits [rows, candidates] and attention [rows, src_len] of hypotheses that extend `parents` by `words`."""
        x, gates = self._weights.embedding[words].astype(self._arithmetic.dtype), self._gates
        carried, given = self._state(self._cell.h[parents]), self._word(x)
        attended = softmax(self._scores(carried[:, gates:] + given[:, gates:]), axis=1)
        given = given[:, :gates] + self._context(attended @ self._source) + self._bias
        below = self._cell.step(given, parents, carried[:, :gates])
        outputs: list[Floats] = []
        for layer, skipped in zip(self._stack, self._skips, strict=True):
            below = layer.step(below, parents, None if skipped is None else outputs[skipped])
            outputs.append(below)
        return self._output(below) + self._output_bias, attended

    def _scores(self, query: Floats) -> Floats:
        tanh = self._arithmetic.tanh
        if self._score is None:
            return np.asarray(tanh(query) @ self._keys.T)
        return np.asarray(tanh(query[:, None, :] + self._keys[None]) @ self._score)


class _Layer:
    """A layer of the stack, with its state within one sentence."""

    def __init__(self, layer: sharp.StackLayer, limit: float, arithmetic: Arithmetic) -> None:
        self._kind, self._tanh = layer.kind, arithmetic.tanh
        self._input, self._cell = arithmetic.linear(layer.input, limit), None
        if layer.state is not None and layer.bias is not None:
            self._bias = layer.bias.astype(arithmetic.dtype)
            self._cell = _Cell(layer.kind, arithmetic.linear(layer.state, 1.0), layer.width, arithmetic)

    def begin(self) -> None:
        if self._cell is not None:
            self._cell.begin()

    def step(self, below: Floats, parents: NDArray[np.int64], skipped: Floats | None) -> Floats:
        given = self._input(below)
        if self._cell is not None:
            return self._cell.step(given + self._bias, parents)
        if self._kind == "fc_relu":
            return np.clip(given if skipped is None else given + skipped, 0.0, sharp.RELU_LIMIT)
        return self._tanh(given)


def reference_decode(
    members: Sequence[ReferenceMember], sources: Sequence[Float32], request: SearchRequest
) -> SharpTranslation:
    """Return the best translation under the members' averaged distributions (SHARP-14), by `beam_search`."""
    for member, source in zip(members, sources, strict=True):
        member.begin(source, request.candidates)
    ids = np.arange(members[0].vocab) if request.candidates is None else request.candidates
    never, tokens = sharp.banned(ids, request.tokens, forced=request.forced), request.tokens
    return beam_search(
        lambda words, parents: averaged(members, words, parents, never),
        beam=request.beam,
        steps=request.steps,
        start=tokens.start,
        eos=tokens.eos,
        ids=ids,
        margin=request.stop_margin,
    )


def averaged(members: Sequence[ReferenceMember], words: Ints, parents: Ints, never: NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Return log-probabilities [rows, candidates] of the members' mean distribution, and each row's most attended position.

    Candidates in `never` have probability 0; the probabilities of the others sum to one.
    """
    stepped = [member.step(words, parents) for member in members]
    logits = [np.where(never, -np.inf, logits) for logits, _ in stepped]
    most_attended = np.mean([attended for _, attended in stepped], axis=0).argmax(axis=1)
    if len(members) == 1:
        return np.asarray(log_softmax(logits[0], axis=1)), most_attended
    with np.errstate(divide="ignore"):
        return np.log(np.mean([softmax(member_logits, axis=1) for member_logits in logits], axis=0)), most_attended


def reference_forced(
    member: ReferenceMember, source: Float32, request: SearchRequest, words: Ints, places: Ints
) -> ForcedSteps:
    """Return the model's results along the translation `words`, which are the columns `places` of the candidates."""
    member.begin(source, request.candidates)
    ids = np.arange(member.vocab) if request.candidates is None else request.candidates
    never = sharp.banned(ids, request.tokens)
    best, log_probs, row = np.zeros(len(words), np.int64), np.zeros(len(words), np.float32), np.zeros(1, np.int64)
    for step, place in enumerate(places):
        fed = np.array([words[step - 1] if step else request.tokens.start])
        step_log_probs, _ = averaged([member], fed, row, never)
        best[step], log_probs[step] = ids[step_log_probs[0].argmax()], step_log_probs[0, place]
    return ForcedSteps(best, log_probs)
