"""One model's steps in plain numpy: what the C kernels are held against, and what runs where no compiler was."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simnmt.kernels.sharp.arithmetic import Arithmetic, Floats, Linear, Squash
from simnmt.kernels.sharp.weights import RELU_LIMIT, Float32, SharpWeights, StackLayer, embedding_limit, input_limits, skips


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
