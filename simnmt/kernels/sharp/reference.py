"""The beam search of one sentence in plain numpy (SHARP-01): the oracle of the C search, and the fallback without a compiler.

`Arithmetic` says how numbers are multiplied and squashed, `ReferenceMember` computes one model's steps, and
`reference_decode` searches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.activations import Activation, Function, activate
from simnmt.kernels.errors import KernelError
from simnmt.kernels.packed_products import PackedInt16, Scales, choose_scales
from simnmt.kernels.sharp.model import (
    RELU_LIMIT,
    Float32,
    ForcedSteps,
    Ints,
    SearchRequest,
    SharpTokens,
    SharpTranslation,
    SharpWeights,
    StackLayer,
    banned,
    embedding_limit,
    input_limits,
    skips,
)
from simnmt.profile.decoder_settings import DecoderSettings

Floats: TypeAlias = NDArray[Any]
"""float32 or float64, as the arithmetic says."""
Squash: TypeAlias = Callable[[Floats], Floats]


class Linear(Protocol):
    """A matrix [out, in], ready to be multiplied with."""

    def __call__(self, x: Floats) -> Floats:
        """[rows, in] to [rows, out]."""

    def select(self, rows: NDArray[np.int64]) -> Linear:
        """Of some outputs alone, with the same numbers."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """One way to compute."""

    linear: Callable[[Float32, float], Linear]
    """Of a weight [out, in] and the largest absolute input."""
    tanh: Squash
    sigmoid: Squash
    dtype: type[np.floating[Any]]


class _Plain:
    def __init__(self, weight: Float32, dtype: type[np.floating[Any]]) -> None:
        self._weight, self._dtype = weight, dtype
        self._turned: Floats | None = None

    def __call__(self, x: Floats) -> Floats:
        if self._turned is None:
            self._turned = self._weight.T.astype(self._dtype)
        return np.asarray(x @ self._turned)

    def select(self, rows: NDArray[np.int64]) -> Linear:
        return _Plain(self._weight[rows], self._dtype)


class _Int16:
    def __init__(self, weight: Float32, scales: Scales) -> None:
        self._weight, self._scales = weight, scales
        self._packed: PackedInt16 | None = None

    def __call__(self, x: Floats) -> Floats:
        if self._packed is None:
            self._packed = PackedInt16.of(self._weight, self._scales.input_limit, scales=self._scales, level="none")
        return self._packed.multiply(np.ascontiguousarray(x))

    def select(self, rows: NDArray[np.int64]) -> Linear:
        return _Int16(np.ascontiguousarray(self._weight[rows]), self._scales)


def _sigmoid(x: Floats) -> Floats:
    return np.asarray(0.5 * np.tanh(0.5 * x) + 0.5)


def plain(dtype: type[np.floating[Any]]) -> Arithmetic:
    """The library's own functions in one precision; in float64 they are the oracle."""
    return Arithmetic(lambda weight, _: _Plain(weight, dtype), np.tanh, _sigmoid, dtype)


def arithmetic(settings: DecoderSettings) -> Arithmetic:
    """float32 with the settings' noise (SHARP-05, SHARP-08). What is an identity (SHARP-06, 07, 09) leaves no trace here.

    All of it in numpy, compiled kernels or not: it is what they are held against.
    """
    exact = plain(np.float32)

    def int16(weight: Float32, limit: float) -> Linear:
        return _Int16(weight, choose_scales(weight, limit))

    def squash(function: Function, method: Activation) -> Squash:
        return lambda x: activate(function, np.ascontiguousarray(x), method, level="none")

    return Arithmetic(
        int16 if settings.gemm == "int16" else exact.linear,
        exact.tanh if settings.activations == "library" else squash("tanh", settings.activations),
        exact.sigmoid if settings.activations == "library" else squash("sigmoid", settings.activations),
        np.float32,
    )


def softmax(scores: Floats) -> Floats:
    """Of each row."""
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(grown / grown.sum(axis=-1, keepdims=True))


def log_softmax(scores: Floats) -> Floats:
    """Of each row, minus infinity where a score is."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def gru(carried: Floats, given: Floats, state: Floats, tanh: Squash, sigmoid: Squash) -> Floats:
    """h' = u h + (1 - u) tanh(r (W_h h) + given_h), of `carried` = W h and `given`, all else: [rows, 3 w] each (SHARP-04).

    The printed form squashes r (W_h h) alone and by a sigmoid, and leaves the candidate unbounded (SHARP-19).
    """
    w = state.shape[1]
    update = sigmoid(carried[:, :w] + given[:, :w])
    reset = sigmoid(carried[:, w : 2 * w] + given[:, w : 2 * w])
    candidate = tanh(reset * carried[:, 2 * w :] + given[:, 2 * w :])
    return np.asarray(update * state + (1 - update) * candidate)


def lstm(gates: Floats, cell: Floats, tanh: Squash, sigmoid: Squash) -> tuple[Floats, Floats]:
    """h' and cell', of `gates` [rows, 4 w] in the order input, forget, cell, output."""
    w = cell.shape[1]
    kept = sigmoid(gates[:, w : 2 * w]) * cell
    new = np.asarray(kept + sigmoid(gates[:, :w]) * tanh(gates[:, 2 * w : 3 * w]))
    return np.asarray(sigmoid(gates[:, 3 * w :]) * tanh(new)), new


class ReferenceMember:
    """A model under way in one sentence; `begin` comes before its first step."""

    def __init__(self, weights: SharpWeights, arithmetic: Arithmetic) -> None:
        self._weights, self._arithmetic = weights, arithmetic
        bottom, attention = weights.bottom, weights.bottom.attention
        linear = arithmetic.linear
        limit = embedding_limit(weights.embedding)
        self._gates = len(bottom.bias)
        self._state = linear(np.concatenate((bottom.state, attention.state)), 1.0)
        self._word = linear(np.concatenate((bottom.word, attention.word)), limit)
        self._context, self._key = linear(bottom.context, 1.0), linear(attention.key, 1.0)
        self._bias = bottom.bias.astype(arithmetic.dtype)
        self._score = None if attention.score is None else attention.score.astype(arithmetic.dtype)
        self._stack = [
            _Layer(layer, below, arithmetic) for layer, below in zip(weights.stack, input_limits(weights), strict=False)
        ]
        self._skips = skips(weights.stack)
        self._whole_output = linear(weights.output, input_limits(weights)[-1])
        self._output: Linear = self._whole_output

    @property
    def vocab(self) -> int:
        """Words known."""
        return self._weights.vocab

    def begin(self, source: Float32, candidates: NDArray[np.int64] | None) -> None:
        """A new sentence: [src_len, s], and the words that may be chosen; None: all."""
        dtype, bottom = self._arithmetic.dtype, self._weights.bottom
        self._source = source.astype(dtype)
        self._keys = self._key(self._source)
        if self._weights.bottom.attention.form == "dot_of_tanh":
            self._keys = self._arithmetic.tanh(self._keys)
        weights = self._weights
        rows = slice(None) if candidates is None else candidates
        self._output = self._whole_output if candidates is None else self._whole_output.select(candidates)
        self._output_bias = weights.output_bias[rows].astype(dtype)
        self._h = np.zeros((1, bottom.width), dtype)
        self._cell = np.zeros((1, bottom.width), dtype)
        for layer in self._stack:
            layer.begin()

    def step(self, words: NDArray[np.int64], parents: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Logits [rows, candidates] and attention [rows, src_len] of hypotheses that end in `words` and grew from `parents`."""
        arithmetic, bottom = self._arithmetic, self._weights.bottom
        h, x = self._h[parents], self._weights.embedding[words].astype(arithmetic.dtype)
        carried, given, gates = self._state(h), self._word(x), self._gates
        attended = softmax(self._scores(carried[:, gates:] + given[:, gates:]))
        carried, given = carried[:, :gates], given[:, :gates] + self._context(attended @ self._source) + self._bias
        if bottom.kind == "attgru":
            self._h = gru(carried, given, h, arithmetic.tanh, arithmetic.sigmoid)
        else:
            self._h, self._cell = lstm(carried + given, self._cell[parents], arithmetic.tanh, arithmetic.sigmoid)
        outputs: list[Floats] = []
        below = self._h
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
    """A layer of the stack under way."""

    def __init__(self, layer: StackLayer, limit: float, arithmetic: Arithmetic) -> None:
        self._layer, self._arithmetic = layer, arithmetic
        self._input = arithmetic.linear(layer.input, limit)
        if layer.state is not None and layer.bias is not None:
            self._state, self._bias = arithmetic.linear(layer.state, 1.0), layer.bias.astype(arithmetic.dtype)

    def begin(self) -> None:
        self._h = np.zeros((1, self._layer.width), self._arithmetic.dtype)
        self._cell = np.zeros((1, self._layer.width), self._arithmetic.dtype)

    def step(self, below: Floats, parents: NDArray[np.int64], skipped: Floats | None) -> Floats:
        tanh, sigmoid = self._arithmetic.tanh, self._arithmetic.sigmoid
        given = self._input(below)
        if self._layer.kind == "fc_relu":
            return np.clip(given if skipped is None else given + skipped, 0.0, RELU_LIMIT)
        if self._layer.kind == "fc_tanh":
            return tanh(given)
        h = self._h[parents]
        if self._layer.kind == "gru":
            self._h = gru(self._state(h), given + self._bias, h, tanh, sigmoid)
        else:
            self._h, self._cell = lstm(self._state(h) + given + self._bias, self._cell[parents], tanh, sigmoid)
        return self._h


def stops(best_completed: float, best_partial: float, margin: float = 3.0) -> bool:
    """Whether the best partial translation is so far behind the best completed one that the search ends (SHARP-03).

    Before any is completed, `best_completed` is minus infinity, and it never ends.
    """
    return best_completed - best_partial >= margin


def distinct(parents: Sequence[int] | Ints) -> list[int]:
    """The rows of the step before whose states the hypotheses share, each once, in order of appearance (SHARP-09)."""
    return list(dict.fromkeys(int(parent) for parent in parents))


@dataclass(slots=True)
class _Path:
    """What led to the open hypotheses: of each step their words, parents, and where each parent's step looked."""

    words: list[Ints] = field(default_factory=list)
    parents: list[Ints] = field(default_factory=list)
    attended: list[Ints] = field(default_factory=list)

    def back(self, length: int, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The words of the hypothesis in `row` after `length` steps, and where each looked."""
        words, attended = [], []
        for step in range(length - 1, -1, -1):
            words.append(int(self.words[step][row]))
            row = int(self.parents[step][row])
            attended.append(int(self.attended[step][row]))
        return tuple(reversed(words)), tuple(reversed(attended))


def reference_decode(members: Sequence[ReferenceMember], sources: Sequence[Float32], asked: SearchRequest) -> SharpTranslation:
    """The best translation under the members' averaged distributions (SHARP-14).

    A hypothesis that ends among the `beam` best of its step is completed, and the best `beam` that do not end go on. After
    the last step what is open competes as it stands. Ties go to the hypothesis, then the candidate, that comes first.
    """
    for member, source in zip(members, sources, strict=True):
        member.begin(source, asked.candidates)
    ids = np.arange(members[0].vocab) if asked.candidates is None else asked.candidates
    never = banned(ids, asked.tokens, forced=asked.forced)
    words, parents, scores = np.array([asked.tokens.start]), np.array([0]), np.zeros(1)
    path = _Path()
    best, best_score = (-1, 0), -np.inf
    shared = total = steps = 0
    stopped = False
    while steps < asked.steps and len(scores) and not stopped:
        log_probs, attended = averaged(members, words, parents, never)
        shared, total = shared + len(distinct(parents)), total + len(parents)
        sums = (scores[:, None] + log_probs).ravel()
        order = np.argsort(-sums, kind="stable")[: 2 * asked.beam]
        order = order[sums[order] > -np.inf]
        rows, columns = np.divmod(order, len(ids))
        ends = ids[columns] == asked.tokens.eos
        for rank in np.flatnonzero(ends[: asked.beam]):
            if sums[order[rank]] > best_score:
                best, best_score = (steps, int(rows[rank])), float(sums[order[rank]])
        going_on = np.flatnonzero(~ends)[: asked.beam]
        words, parents, scores = ids[columns[going_on]], rows[going_on], sums[order[going_on]]
        path.words.append(words)
        path.parents.append(parents)
        path.attended.append(attended)
        steps += 1
        stopped = bool(len(scores)) and stops(best_score, float(scores[0]), asked.stop_margin)
    if len(scores) and not stopped and scores[0] > best_score:
        best, best_score = (steps, 0), float(scores[0])
    if best[0] < 0:
        raise KernelError("no word can be chosen")
    return SharpTranslation(path.back(*best)[0], best_score, path.back(*best)[1], steps, shared / total, stopped)


def averaged(members: Sequence[ReferenceMember], words: Ints, parents: Ints, never: NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Return log-probabilities [rows, candidates] of the members' mean distribution, and the source position that each row
    attends to most in the mean.

    Candidates in `never` have probability 0; the probabilities of the others sum to one.
    """
    stepped = [member.step(words, parents) for member in members]
    logits = [np.where(never, -np.inf, logits) for logits, _ in stepped]
    looked = np.mean([attended for _, attended in stepped], axis=0).argmax(axis=1)
    if len(members) == 1:
        return log_softmax(logits[0]), looked
    with np.errstate(divide="ignore"):
        return np.log(np.mean([softmax(member_logits) for member_logits in logits], axis=0)), looked


def reference_forced(
    member: ReferenceMember, source: Float32, tokens: SharpTokens, words: Ints, places: Ints, candidates: Ints | None = None
) -> ForcedSteps:
    """Return the model's steps forced along the translation `words`, which are the columns `places` of the candidates."""
    member.begin(source, candidates)
    ids = np.arange(member.vocab) if candidates is None else candidates
    never = banned(ids, tokens)
    best, log_probs, row = np.zeros(len(words), np.int64), np.zeros(len(words), np.float32), np.zeros(1, np.int64)
    for step, place in enumerate(places):
        fed = np.array([words[step - 1] if step else tokens.start])
        step_log_probs, _ = averaged([member], fed, row, never)
        best[step], log_probs[step] = ids[step_log_probs[0].argmax()], step_log_probs[0, place]
    return ForcedSteps(best, log_probs)
