"""Expected gains in quality, and what `route` and `cascade` have in common: they weigh the gain of the last device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from random import random
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simnmt.base.arrays import Floats
from simnmt.base.errors import InputError
from simnmt.policies.cnmt import CNmt
from simnmt.policies.decision import EstimatingPolicySettings, Knowledge, LeastTotal

Signal = Literal["logprob", "src_len", "ridge", "random", "oracle"]
"""What the gain is expected from: the log-probability by token of the first device's translation, the length of the source, a
ridge regression on both, nothing, or the truth."""
NO_TRANSLATION: tuple[Signal, ...] = ("src_len", "random", "oracle")
"""Signals that are known before the first device has translated a request."""
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
class Gains:
    """Expected gains in chrF, in points, of translations of the last device over those of the first, of a workload's sentences.

    A corpus counts a sentence by its length, so the gain is that of the sentence alone times its length over the mean. It is
    predicted by ridge regressions, which are fitted on sentences that no request uses.

    Example:
        >>> words, rows = np.arange(100.0), np.arange(100)
        >>> gains = Gains({"src_chars": 5.0 * words}, 0.1 * words, rows[::2], rows / 100)
        >>> round(float(gains.gain("src_len", rows[51:52])[0]), 2)
        5.09
    """

    features: Mapping[str, Floats]
    """By name: `src_chars` and `src_words` of each sentence; `output_len` and `logprob` of its first translation."""
    true_gain: Floats
    """Points of chrF by which the last device's translation of each sentence is better."""
    fit: NDArray[np.integer]
    """Rows of the sentences on which predictions are fitted."""
    uniform: Floats
    """A random number for each sentence."""
    _lines: dict[Signal, _Line] = field(default_factory=dict, repr=False)

    def gain(self, signal: Signal, rows: NDArray[np.integer]) -> Floats:
        """Return the expected gain of sentences, by their rows in the text (`Requests.text_row`).

        Raises `InputError` for a signal that reads log-probabilities if some are unknown, and if no sentence is left to fit on.
        """
        if signal in READ:
            columns = _columns(signal, {name: column[rows] for name, column in self.features.items()})
            return self._line(signal).predict(columns)
        by_sentence = self.true_gain if signal == "oracle" else self.uniform
        return np.asarray(by_sentence[rows], np.float64)

    def fitted(self, signal: Signal) -> Floats:
        """Return the expected gain of each sentence of the fit. Raises `InputError` as `gain`."""
        if not len(self.fit):
            what = "no sentence is left to expect gains from: each line of the text is that of a request"
            raise InputError(what, remedy="give a text with fewer lines that are repeated, or a greater fit.share")
        return self.gain(signal, self.fit)

    def gain_of(self, signal: Signal, features: Mapping[str, float]) -> float:
        """Return the expected gain of a text.

        `features`: `src_chars` and `src_words`; of its translation on the first device `output_len` and `logprob`.
        """
        if signal not in READ:
            return random()
        columns = _columns(signal, {name: np.array([value]) for name, value in features.items()})
        return float(self._line(signal).predict(columns)[0])

    def _line(self, signal: Signal) -> _Line:
        if signal not in self._lines:
            columns = _columns(signal, self.features)
            unknown = np.count_nonzero(~np.isfinite(columns).all(axis=1))
            if unknown:
                what = f"signal {signal} reads log-probabilities, which the scores of the first device lack"
                what += f" for {unknown:,} of {len(columns):,} sentences"
                raise InputError(what, remedy="score the model itself, or choose signal: src_len")
            self._lines[signal] = _Line.fit(columns[self.fit], self.true_gain[self.fit])
        return self._lines[signal]


def _columns(signal: Signal, features: Mapping[str, Floats]) -> Floats:
    """Return the columns that a signal reads, shape (sentences, features)."""
    columns = {name: np.asarray(features[name], np.float64) for name in READ[signal]}
    if "logprob" in columns:  # by token; an empty translation may have none
        tokens = np.asarray(features["output_len"], np.float64)
        columns["logprob"] = np.where(tokens > 0.0, columns["logprob"], 0.0) / (tokens + 1.0)
    return np.stack([columns[name] for name in READ[signal]], axis=1)


class GainPolicySettings(EstimatingPolicySettings):
    """Settings of a policy that weighs the expected gain in quality of the last device against its time."""

    weighs_gain: ClassVar[bool] = True
    signal: Signal
    """What the gain is expected from; `oracle` is the true gain, and only simulated."""
    threshold: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Points of chrF: what is expected to gain more goes to the last device."""
    budget: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of the sentences that go to the last device, those of the highest gains; the threshold follows from the fit."""
    seconds_per_point: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None = None
    """Price of a point of chrF: a request goes to the last device if it is expected to gain more than it takes longer."""

    @model_validator(mode="after")
    def _one_limit(self) -> GainPolicySettings:
        given = [name for name in ("threshold", "budget", "seconds_per_point") if getattr(self, name) is not None]
        if len(given) != 1:
            what = f"give one of threshold, budget and seconds_per_point (got {' and '.join(given) or 'none'})"
            raise PydanticCustomError("one_limit", "{what}", {"what": what})
        if self.signal == "random" and self.budget is None:
            what = "signal: random expects no gain of a sentence, so it needs a budget"
            raise PydanticCustomError("needs_budget", "{what}", {"what": what})
        if self.sees_backlog and self.seconds_per_point is None:
            what = f"a {given[0]} weighs no wait (remove sees_backlog, or give seconds_per_point)"
            raise PydanticCustomError("backlog_not_used", "{what}", {"what": what})
        return self

    @property
    def is_deployable(self) -> bool:
        return self.signal != "oracle"

    @property
    def reads_logprob(self) -> bool:
        return self.signal not in NO_TRANSLATION

    def devices_of(self, devices: Sequence[str]) -> Sequence[str]:
        return list(dict.fromkeys((devices[0], devices[-1])))

    def policy(self, knowledge: Knowledge) -> CNmt:
        """Return the estimates of execution and transfer times, which are those of C-NMT."""
        return CNmt(knowledge.planes, knowledge.lengths.predict)

    def limit(self, fitted: Floats) -> float:
        """Return the gain above which requests go to the last device; NaN if a price decides.

        `fitted`: expected of the sentences of the fit. Raises `InputError` for a threshold that none of them comes to, or all
        exceed.
        """
        if self.signal == "random" and self.budget is not None:
            return 1.0 - self.budget  # of numbers that are evenly distributed
        if self.budget is not None:
            ends = {0.0: np.inf, 1.0: -np.inf}
            return ends[self.budget] if self.budget in ends else float(np.quantile(fitted, 1.0 - self.budget))
        if self.threshold is None:
            return nan
        low, high = float(fitted.min()), float(fitted.max())
        if not low <= self.threshold <= high:
            what = f"threshold {self.threshold:g} is outside the gains that {self.signal} predicts, {low:.3g} to {high:.3g}"
            raise InputError(what, remedy="give one within, or a budget")
        return self.threshold

    def keeping_s(self, gain: Floats, limit: float) -> Floats:
        """Return what it costs to keep requests at the first device, in seconds: infinite if they must go, or must stay.

        `gain`: expected of these requests; `limit`: as the method returns it.
        """
        if self.seconds_per_point is not None:
            return self.seconds_per_point * gain
        return np.where(gain > limit, np.inf, -np.inf)

    def weighed(self, times: LeastTotal, keeping_s: Floats) -> LeastTotal:
        """Return the decision between the first device and the last one; `times`: of executions, by device."""
        unused = np.full_like(keeping_s, np.inf)
        return LeastTotal([keeping_s, *[unused] * (len(times.execution_s) - 2), times.execution_s[-1]])
