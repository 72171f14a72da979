"""Expected gains that follow from the number of a sentence, for scenarios without scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simnmt.experiment import draws
from simnmt.policies.gains import Gains

SENTENCES = 1_000


def numbered_gains() -> Gains:
    """Gains from 0 to 9.99 points, each as frequent as any other; of a live text of one-letter words, a point for each word."""
    rows = np.arange(SENTENCES)
    gain = rows / 100.0
    features = {"src_chars": 2.0 * gain - 1.0, "src_words": gain, "output_len": gain, "logprob": -gain * (gain + 1.0)}
    return Gains(features, gain, rows, np.random.default_rng(49).random(SENTENCES))


def know_gains(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every unit know these gains, and draw the sentences of its requests evenly; no scenario needs scores."""

    def draw(*parts: Any) -> draws.Drawn:
        drawn = draws.draw(*parts)
        text_row = np.random.default_rng(49).permutation(len(drawn.requests)) * SENTENCES // len(drawn.requests)
        return replace(drawn, requests=replace(drawn.requests, text_row=text_row))

    def learn_parts(unit: Any) -> list[draws.Learnt]:
        return [replace(learnt, gains=numbered_gains()) for learnt in draws.learn_parts(unit)]

    monkeypatch.setattr("simnmt.experiment.units.draw", draw)
    monkeypatch.setattr("simnmt.experiment.units.learn_parts", learn_parts)
    monkeypatch.setattr("simnmt.live.decider.learn", lambda unit: replace(draws.learn(unit), gains=numbered_gains()))
    monkeypatch.setattr("simnmt.scenario.topology._gains", lambda scenario: iter(()))
