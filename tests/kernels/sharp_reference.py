"""The decoder and its source side in float64 numpy: the oracle of the C kernels (SHARP-01)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from simnmt.kernels.beam_search import Ints, SharpTranslation, beam_search
from simnmt.kernels.sharp.model import RELU_LIMIT, Float32, Layer, SharpTokens, SharpWeights, SourceWeights

Floats: TypeAlias = NDArray[np.float64]


def gru(carried: Floats, given: Floats, state: Floats) -> Floats:
    """Return h' = u h + (1 - u) tanh(r (W_h h) + given_h) (SHARP-04).

    `carried`: W h; `given`: all other terms; both [rows, 3 w]. The printed form applies a sigmoid to r (W_h h) alone and leaves
    the candidate unbounded (SHARP-19).
    """
    w = state.shape[1]
    update, reset = np.split(expit(carried[:, : 2 * w] + given[:, : 2 * w]), 2, axis=1)
    candidate = np.tanh(reset * carried[:, 2 * w :] + given[:, 2 * w :])
    return np.asarray(update * state + (1 - update) * candidate)


def lstm(gates: Floats, cell: Floats) -> tuple[Floats, Floats]:
    """Return h' and cell' from `gates` [rows, 4 w] in the order input, forget, cell, output."""
    enter, forget, new, leave = np.split(gates, 4, axis=1)
    cell = expit(forget) * cell + expit(enter) * np.tanh(new)
    return expit(leave) * np.tanh(cell), cell


class _Layer:
    """A layer with its state within one sentence."""

    def __init__(self, layer: Layer) -> None:
        self._kind, self._width = layer.kind, layer.width
        arrays = (layer.input, layer.state, layer.bias, layer.reset_bias)
        self._input: Any
        self._input, self._state, self._bias, self._reset_bias = (
            None if array is None else array.astype(np.float64) for array in arrays
        )

    def begin(self) -> None:
        self.h = self._cell = np.zeros((1, self._width))

    def step(self, below: Floats, parents: Ints, skipped: Floats | None = None) -> Floats:
        """Return the output for hypotheses that extend `parents`; `skipped`: an output to be added before the relu."""
        given: Floats = below @ self._input.T
        if self._kind == "fc_relu":
            return np.clip(given if skipped is None else given + skipped, 0.0, RELU_LIMIT)
        return (
            np.tanh(given)
            if self._state is None
            else self.advance(given + self._bias, self.h[parents] @ self._state.T, parents)
        )

    def advance(self, given: Floats, carried: Floats, parents: Ints) -> Floats:
        """Return the new states of a recurrent layer from its products with the input, with bias, and with the old states."""
        if self._kind == "lstm":
            self.h, self._cell = lstm(carried + given, self._cell[parents])
            return self.h
        if self._reset_bias is not None:
            carried[:, -self._width :] += self._reset_bias
        self.h = gru(carried, given, self.h[parents])
        return self.h


class ReferenceSource:
    """The source side in plain numpy."""

    def __init__(self, weights: SourceWeights) -> None:
        self._embedding = weights.embedding
        self._layers = [[_Layer(side) for side in sides] for sides in weights.layers]

    def encode(self, words: Ints) -> Floats:
        """Return the states of a sentence; see `SourceEncoder.encode`."""
        states: Floats = self._embedding[words].astype(np.float64)
        for forward, backward in self._layers:
            turned = self._run(backward, states[::-1])[::-1]
            states = np.concatenate((self._run(forward, states), turned), axis=1)
        return states

    def _run(self, layer: _Layer, below: Floats) -> Floats:
        layer.begin()
        return np.concatenate([layer.step(row[None], np.zeros(1, np.int64)) for row in below])


class ReferenceMember:
    """The target side of one model and its state within one sentence; `begin` comes before the first step."""

    def __init__(self, weights: SharpWeights) -> None:
        self.weights = weights
        # `step` computes the bottom cell's products with those of attention.
        self._bottom = _Layer(Layer(weights.cell, weights.word[: len(weights.bias)]))
        self._stack = [_Layer(layer) for layer in weights.stack]

    def begin(self, source: Float32, candidates: Ints | None) -> None:
        """Start a sentence: source states [src_len, s], and the words that may be chosen (None: all)."""
        weights, words = self.weights, slice(None) if candidates is None else candidates
        self._source = source.astype(np.float64)
        self._keys = self._source @ weights.key.T
        self._output, self._output_bias = (array[words].astype(np.float64) for array in (weights.output, weights.output_bias))
        for layer in (self._bottom, *self._stack):
            layer.begin()

    def step(self, words: Ints, parents: Ints) -> tuple[Floats, Floats]:
        """Return logits [rows, candidates] and attention [rows, src_len] of hypotheses that extend `parents` by `words`."""
        weights, gates = self.weights, len(self.weights.bias)
        carried = self._bottom.h[parents] @ weights.state.T
        given: Floats = weights.embedding[words].astype(np.float64) @ weights.word.T
        attended = softmax(self._scores(carried[:, gates:] + given[:, gates:]), axis=1)
        given = given[:, :gates] + (attended @ self._source) @ weights.context.T + weights.bias
        outputs = [self._bottom.advance(given, carried[:, :gates], parents)]
        for layer, skipped in zip(self._stack, weights.skips(), strict=True):
            outputs.append(layer.step(outputs[-1], parents, None if skipped is None else outputs[skipped + 1]))
        return outputs[-1] @ self._output.T + self._output_bias, attended

    def _scores(self, query: Floats) -> Floats:
        if self.weights.score is None:
            return np.asarray(np.tanh(query) @ np.tanh(self._keys).T)
        return np.asarray(np.tanh(query[:, None, :] + self._keys[None]) @ self.weights.score)


def banned(ids: Ints, tokens: SharpTokens, *, forced: bool = False) -> NDArray[np.bool_]:
    """A mask of the words that are never chosen: padding, and the end token in a search of forced length."""
    return (ids == tokens.pad) | (forced & (ids == tokens.eos))


def reference_decode(
    members: Sequence[ReferenceMember],
    sources: Sequence[Float32],
    beam: int,
    steps: int,
    candidates: Ints | None = None,
    *,
    forced: bool = False,
) -> SharpTranslation:
    """The best translation under the members' averaged distributions (SHARP-14), by `beam_search`."""
    for member, source in zip(members, sources, strict=True):
        member.begin(source, candidates)
    tokens = members[0].weights.tokens
    ids = np.arange(members[0].weights.vocab) if candidates is None else candidates
    never = banned(ids, tokens, forced=forced)
    return beam_search(
        lambda words, parents: averaged(members, words, parents, never),
        beam=beam,
        steps=steps,
        start=tokens.start,
        eos=tokens.eos,
        ids=ids,
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
