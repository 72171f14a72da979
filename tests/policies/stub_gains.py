"""Expected gains that follow from the number of a sentence, in place of those that are fitted on scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.base.arrays import Floats
from simnmt.experiment import draws
from simnmt.policies.gains import Gains, Signal

SENTENCES = 1_000


class StubGains(Gains):
    """Gains from 0 to 9.99 points, each as frequent as any other; of a live text, a point for each word."""

    def gain(self, signal: Signal, rows: Any) -> Floats:
        return np.asarray(rows) / 100.0

    def fitted(self, signal: Signal) -> Floats:
        return np.arange(SENTENCES) / 100.0

    def gain_of(self, signal: Signal, features: Mapping[str, float]) -> float:
        if signal == "logprob":
            return -features["logprob"] / max(features["output_len"], 1.0)
        return features["src_words"]


def know_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every unit know these gains, and draw the sentences of its requests evenly."""

    def draw(*parts: Any) -> draws.Drawn:
        drawn = draws.draw(*parts)
        text_row = np.random.default_rng(49).permutation(len(drawn.requests)) * SENTENCES // len(drawn.requests)
        return replace(drawn, requests=replace(drawn.requests, text_row=text_row))

    def learn_parts(unit: Any) -> list[draws.Learnt]:
        return [replace(learnt, gains=StubGains()) for learnt in draws.learn_parts(unit)]

    monkeypatch.setattr("simnmt.experiment.units.draw", draw)
    monkeypatch.setattr("simnmt.experiment.units.learn_parts", learn_parts)
    monkeypatch.setattr("simnmt.live.decider.learn", lambda unit: replace(draws.learn(unit), gains=StubGains()))
