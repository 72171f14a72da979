"""What a batching server needs for some sentences, were it never short of them."""

from __future__ import annotations

import numpy as np
import pytest

from simnmt.batching import Batching, maxi, mini, top_up
from simnmt.experiment.targets import Decoding
from simnmt.experiment.units import saturated_s
from simnmt.profile.batch_cost import BatchCost, DecodingCost, LinearSurface

STEP = BatchCost(LinearSurface(0.01, 0.0, 0.0, 0.0), (1, 64), (0, 200))
FREE = BatchCost(LinearSurface(0.0, 0.0, 0.0, 0.0), (1, 64), (1, 200))


def seconds(batching: Batching, sentences: int, length: int = 10) -> float:
    """Of sentences that are all alike; a step takes 10 ms whoever is in it."""
    lengths = np.full(sentences, length)
    return saturated_s(Decoding(batching, DecodingCost(STEP, FREE)), lengths, lengths)


@pytest.mark.parametrize("batching", [mini(8), maxi(8, 16), top_up(8, 4), top_up(8, 7)])
@pytest.mark.parametrize("sentences", [1, 3, 8, 13, 1_900, 2_500])
def test_however_few_there_are_the_batch_is_full(batching: Batching, sentences: int) -> None:
    """Eight together take ten steps of 10 ms: an eighth of that each, even of three that never fill a batch by themselves."""
    assert seconds(batching, sentences) == pytest.approx(sentences * 0.1 / 8)


def test_nothing_takes_no_time() -> None:
    assert seconds(mini(8), 0) == 0.0
