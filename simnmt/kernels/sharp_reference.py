"""The decoder and its source side in float64 numpy: oracle of the C kernels, and in their place without a compiler (SHARP-01).

It computes exactly: products are not rounded to 16 bits, nothing is looked up in a table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from simnmt.kernels.beam_search import Ints, SharpTranslation, beam_search
from simnmt.kernels.native_library import KernelError
from simnmt.kernels.sharp_model import RELU_LIMIT, Float32, ForcedSteps, Layer, SharpWeights, SourceWeights, check_words

Floats = NDArray[np.float64]
FIRST = np.zeros(1, np.int64)


class State:
    """The states of a GRU or LSTM within one sentence (SHARP-04, SHARP-12)."""

    def __init__(self, kind: str, width: int, reset_bias: Float32 | None = None) -> None:
        self._gru, self._width, self._reset_bias = kind == "gru", width, 0.0 if reset_bias is None else reset_bias
        self.begin()

    def begin(self) -> None:
        self.h = self._cell = np.zeros((1, self._width))

    def advance(self, given: Floats, carried: Floats, parents: Ints) -> Floats:
        """Return new states from the products with the input, with bias, and with the states of `parents`."""
        if self._gru:
            (update, reset), w = np.split(expit((carried + given)[:, : 2 * self._width]), 2, axis=1), 2 * self._width
            candidate = np.tanh(reset * (carried[:, w:] + self._reset_bias) + given[:, w:])
            self.h = update * self.h[parents] + (1 - update) * candidate
        else:
            enter, forget, new, leave = np.split(carried + given, 4, axis=1)
            self._cell = expit(forget) * self._cell[parents] + expit(enter) * np.tanh(new)
            self.h = expit(leave) * np.tanh(self._cell)
        return self.h


class RecurrentLayer(State):
    """A recurrent layer of the stack, or one direction of a source layer."""

    def __init__(self, layer: Layer) -> None:
        super().__init__(layer.kind, layer.width, layer.reset_bias)
        self._layer = layer

    def step(self, below: Floats, parents: Ints) -> Floats:
        """Return new states from the layer below and the states of `parents`."""
        layer = self._layer
        assert layer.state is not None and layer.bias is not None
        return self.advance(below @ layer.input.T + layer.bias, self.h[parents] @ layer.state.T, parents)

    def run(self, below: Floats) -> Floats:
        self.begin()
        return np.concatenate([self.step(row[None], FIRST) for row in below])


def source_states(weights: SourceWeights, words: Sequence[int] | Ints) -> Float32:
    """Return the states of a sentence, [src_len, width]. Raises `KernelError` as `SourceEncoder.encode` does."""
    check_words(np.asarray(words), weights.vocab)
    states = weights.embedding[list(words)].astype(np.float64)
    for sides in weights.layers:
        forward, backward = map(RecurrentLayer, sides)
        states = np.concatenate((forward.run(states), backward.run(states[::-1])[::-1]), axis=1)
    return states.astype(np.float32)


class ReferenceMember:
    """The target side of one model and its state within one sentence; `begin` comes before the first step."""

    def __init__(self, weights: SharpWeights) -> None:
        self.weights, self._bottom = weights, State(weights.cell, weights.width)
        self._stack = [RecurrentLayer(layer) if layer.state is not None else layer for layer in weights.stack]

    def begin(self, source: Float32, candidates: Ints | None) -> None:
        self._source, self._words = source.astype(np.float64), slice(None) if candidates is None else candidates
        for layer in (self._bottom, *self._stack):
            if isinstance(layer, State):
                layer.begin()

    def step(self, words: Ints, parents: Ints) -> tuple[Floats, Floats]:
        """Return logits [rows, candidates] and attention [rows, src_len] of hypotheses that extend `parents` by `words`."""
        weights, gates = self.weights, len(self.weights.bias)
        carried, given = self._bottom.h[parents] @ weights.state.T, weights.embedding[words].astype(np.float64) @ weights.word.T
        query, keys = carried[:, gates:] + given[:, gates:], self._source @ weights.key.T
        if weights.score is None:
            attended = softmax(np.tanh(query) @ np.tanh(keys).T, axis=1)
        else:
            attended = softmax(np.tanh(query[:, None] + keys) @ weights.score, axis=1)
        given = given[:, :gates] + (attended @ self._source) @ weights.context.T + weights.bias
        outputs = [self._bottom.advance(given, carried[:, :gates], parents)]
        for layer, skipped in zip(self._stack, weights.skips(), strict=True):
            if isinstance(layer, RecurrentLayer):
                outputs.append(layer.step(outputs[-1], parents))
                continue
            output = outputs[-1] @ layer.input.T + (0.0 if skipped is None else outputs[skipped + 1])
            outputs.append(np.tanh(output) if layer.kind == "fc_tanh" else output.clip(0.0, RELU_LIMIT))
        return outputs[-1] @ weights.output[self._words].T.astype(np.float64) + weights.output_bias[self._words], attended


def reference_decode(
    members: Sequence[ReferenceMember],
    sources: Sequence[Float32],
    beam: int,
    steps: int,
    candidates: Ints | None = None,
    *,
    forced: bool = False,
) -> SharpTranslation:
    """Return the best translation under the members' averaged distributions (SHARP-14), by `beam_search`."""
    for member, source in zip(members, sources, strict=True):
        member.begin(source, candidates)
    if steps < 1:
        raise KernelError(f"{steps} steps: 1 is the least")
    tokens = members[0].weights.tokens
    ids = np.arange(members[0].weights.vocab) if candidates is None else candidates
    never = (ids == tokens.pad) | (forced & (ids == tokens.eos))

    def step(words: Ints, parents: Ints) -> tuple[Floats, Ints]:
        return averaged(members, words, parents, never)

    return beam_search(step, beam=beam, steps=steps, start=tokens.start, eos=tokens.eos, ids=ids)


def averaged(members: Sequence[ReferenceMember], words: Ints, parents: Ints, never: NDArray[np.bool_]) -> tuple[Floats, Ints]:
    """Return log-probabilities [rows, candidates] of the mean distribution, and each row's most attended position.

    `never`: the candidates that cannot be chosen.
    """
    logits, attended = zip(*(member.step(words, parents) for member in members), strict=True)
    log_probs = [log_softmax(np.where(never, -np.inf, of_member), axis=1) for of_member in logits]
    return np.logaddexp.reduce(log_probs) - np.log(len(members)), np.mean(attended, axis=0).argmax(axis=1)


def reference_forced(member: ReferenceMember, source: Float32, tokens: Sequence[int] | Ints) -> ForcedSteps:
    """Follow a given translation (SHARP-10); only padding is banned."""
    words, special = np.asarray(tokens), member.weights.tokens
    check_words(words, member.weights.vocab)
    member.begin(source, None)
    never = np.arange(member.weights.vocab) == special.pad
    steps = [averaged([member], np.array([before]), FIRST, never)[0][0] for before in (special.start, *words[:-1])]
    best = np.array([log_probs.argmax() for log_probs in steps])
    return ForcedSteps(best, np.array([log_probs[word] for log_probs, word in zip(steps, words, strict=True)], np.float32))
