"""Expected gains in quality, fitted by ridge regressions on sentences that no request uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import random

import numpy as np
from numpy.typing import NDArray

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.policies.gains import Gains, Signal

READ: Mapping[Signal, tuple[str, ...]] = {
    "src_len": ("src_chars",),
    "logprob": ("logprob",),
    "ridge": ("src_chars", "src_words", "output_len", "logprob"),
}
"""Features from which each signal expects the gain; of `logprob` its value by token, the end included."""
PENALTY = 1.0
"""Weight of the squared coefficients of standardised features, beside the sum of the squared errors of all sentences."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A linear prediction of the gain."""

    mean: Floats
    scale: Floats
    coefficients: Floats
    offset: float

    @classmethod
    def fit(cls, columns: Floats, gain: Floats) -> _Line:
        """Fit it; `columns`: shape (sentences, features)."""
        mean, scale, offset = columns.mean(axis=0), columns.std(axis=0), float(gain.mean())
        scale = np.where(scale > 0.0, scale, 1.0)
        standard = (columns - mean) / scale
        squares = standard.T @ standard + PENALTY * np.eye(columns.shape[1])
        return cls(mean, scale, np.linalg.solve(squares, standard.T @ (gain - offset)), offset)

    def predict(self, columns: Floats) -> Floats:
        predicted: Floats = (columns - self.mean) / self.scale @ self.coefficients + self.offset
        return predicted


@dataclass(frozen=True, slots=True)
class FittedGains(Gains):
    """The gains of the sentences of a text, by their rows.

    Raises `InputError` when a signal is first used that reads log-probabilities, if some are unknown.

    Example:
        >>> words, rows = np.arange(100.0), np.arange(100)
        >>> gains = FittedGains({"src_chars": 5.0 * words}, 0.1 * words, rows[::2], rows / 100)
        >>> round(float(gains.gain("src_len", rows[51:52])[0]), 2)
        5.09
    """

    features: Mapping[str, Floats]
    """By name: `src_chars` and `src_words` of each sentence; `output_len` and `logprob` of its first translation."""
    true_gain: Floats
    """Points of chrF by which the last device's translation of each sentence is better."""
    fit: NDArray[np.integer]
    """Rows of the sentences that no request uses."""
    uniform: Floats
    """A random number for each sentence."""
    _lines: dict[Signal, _Line] = field(default_factory=dict, repr=False)

    def gain(self, signal: Signal, rows: NDArray[np.integer]) -> Floats:
        if signal in READ:
            return self._line(signal).predict(_columns(signal, {name: self.features[name][rows] for name in _names(signal)}))
        by_sentence = self.true_gain if signal == "oracle" else self.uniform
        return np.asarray(by_sentence[rows], np.float64)

    def fitted(self, signal: Signal) -> Floats:
        return self.gain(signal, self.fit)

    def gain_of(self, signal: Signal, features: Mapping[str, float]) -> float:
        if signal not in READ:
            return random()
        columns = _columns(signal, {name: np.array([value]) for name, value in features.items()})
        return float(self._line(signal).predict(columns)[0])

    def _line(self, signal: Signal) -> _Line:
        if signal not in self._lines:
            columns = _columns(signal, {name: self.features[name][self.fit] for name in _names(signal)})
            if not np.isfinite(columns).all():
                what = f"signal {signal} reads log-probabilities, which the scores of the first device lack"
                raise InputError(what, remedy="score the model itself, or choose signal: src_len")
            self._lines[signal] = _Line.fit(columns, self.true_gain[self.fit])
        return self._lines[signal]


def _names(signal: Signal) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*READ[signal], "output_len"))) if "logprob" in READ[signal] else READ[signal]


def _columns(signal: Signal, features: Mapping[str, Floats]) -> Floats:
    """Return the columns that a signal reads, shape (sentences, features)."""
    values = {
        name: features[name] / (features["output_len"] + 1.0) if name == "logprob" else features[name] for name in READ[signal]
    }
    return np.stack([np.asarray(values[name], np.float64) for name in READ[signal]], axis=1)
