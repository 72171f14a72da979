"""Expected gains in quality, and what `route` and `cascade` have in common: they weigh the gain of the last device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Protocol

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


class Gains(Protocol):
    """Expected gains in chrF, in points, of translations of the last device over those of the first, of a workload's sentences.

    A corpus counts a sentence by its length, so the gain is that of the sentence alone times its length over the mean. They are
    fitted on sentences that no request uses.
    """

    def gain(self, signal: Signal, rows: NDArray[np.integer]) -> Floats:
        """Return the expected gain of sentences, by their rows in the text (`Requests.text_row`)."""
        ...

    def fitted(self, signal: Signal) -> Floats:
        """Return the expected gain of each sentence of the fit."""
        ...

    def gain_of(self, signal: Signal, features: Mapping[str, float]) -> float:
        """Return the expected gain of a text.

        `features`: `src_chars` and `src_words`; of its translation on the first device `output_len` and `logprob`.
        """
        ...


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

    def keeping_s(self, gain: Floats, fitted: Floats) -> Floats:
        """Return what it costs to keep requests at the first device, in seconds: infinite if they must go, or must stay.

        Args:
            gain: expected of these requests.
            fitted: expected of the sentences of the fit.

        Raises `InputError` for a threshold that no sentence of the fit comes to, or all exceed.
        """
        if self.seconds_per_point is not None:
            return self.seconds_per_point * gain
        return np.where(gain > self._limit(fitted), np.inf, -np.inf)

    def _limit(self, fitted: Floats) -> float:
        if self.budget is not None:
            ends = {0.0: np.inf, 1.0: -np.inf}
            return ends[self.budget] if self.budget in ends else float(np.quantile(fitted, 1.0 - self.budget))
        assert self.threshold is not None
        low, high = float(fitted.min()), float(fitted.max())
        if not low <= self.threshold <= high:
            what = f"threshold {self.threshold:g} is outside the gains that {self.signal} predicts, {low:.3g} to {high:.3g}"
            raise InputError(what, remedy="give one within, or a budget")
        return self.threshold

    def weighed(self, times: LeastTotal, keeping_s: Floats) -> LeastTotal:
        """Return the decision between the first device and the last one; `times`: of executions, by device."""
        between = [np.full_like(keeping_s, np.inf)] * (len(times.execution_s) - 2)
        return LeastTotal([keeping_s, *between, *times.execution_s[1:][-1:]])
