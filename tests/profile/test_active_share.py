"""The share of the vocabulary that is active: a distribution whose draws keep its mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from simnmt.profile.decoder_block import LEVELS, ActiveShare

COUNTS = st.lists(st.integers(0, 1000), min_size=1, max_size=50)


@given(COUNTS, COUNTS)
def test_draws_of_sentences_deviate_from_the_mean_by_nothing_on_the_average(columns: list[int], others: list[int]) -> None:
    """Restricting the vocabulary must cost on the average what was measured, however sentences differ."""
    share = ActiveShare.of(columns, 1000, by_sentence=[count / 1000 for count in others])
    every = (np.arange(20_000) + 0.5) / 20_000
    deviation = share.deviation(every)
    assert deviation.mean() == pytest.approx(0.0, abs=1e-4)
    assert np.ptp(deviation) <= (max(others) - min(others)) / 1000 + 1e-9


def test_quantiles_are_those_of_steps_and_sentences() -> None:
    share = ActiveShare.of(range(101), 1000, by_sentence=[0.02, 0.04])
    assert (share.steps, share.mean) == (101, pytest.approx(0.05))
    assert share.by_step == pytest.approx([level * 0.1 for level in LEVELS])
    assert share.deviation(np.array([0.0, 0.5, 1.0])) == pytest.approx([-0.01, 0.0, 0.01])
    assert share.describe() == "5 % of 1,000 tokens active"


def test_where_sentences_share_steps_none_deviates() -> None:
    assert not ActiveShare.of([1, 9], 10).deviation(np.array([0.1, 0.9])).any()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"mean": 0.9}, "outside the quantiles"),
        ({"by_step": (0.3, 0.2)}, "one quantile per level"),
        ({"by_sentence": (0.1, 0.2, 0.3)}, "one quantile per level"),
        ({"levels": (0.0, 0.5)}, "must rise from 0 to 1"),
    ],
)
def test_an_invalid_distribution_is_refused(change: dict[str, object], told: str) -> None:
    sound = {"vocab": 10, "steps": 3, "mean": 0.15, "levels": (0.0, 1.0), "by_step": (0.1, 0.2)}
    ActiveShare.model_validate(sound)
    with pytest.raises(ValidationError, match=told):
        ActiveShare.model_validate(sound | change)
