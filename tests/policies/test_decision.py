"""The argmin over targets, and ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.policies import least_total

# A grid of sixteenths adds without rounding, so that ties are ties; the others are whatever floats are.
SECONDS = st.integers(0, 64).map(lambda sixteenths: sixteenths / 16) | st.floats(0.0, 1e3)


@given(
    st.integers(1, 6).flatmap(
        lambda targets: st.lists(st.lists(SECONDS, min_size=2 * targets, max_size=2 * targets), min_size=1)
    )
)
def test_the_least_total_is_taken_and_of_equal_ones_the_first(rows: list[list[float]]) -> None:
    """For one to six targets: execution in the first half of a row, delays in the second."""
    execution_s, delay_s = np.split(np.array(rows), 2, axis=1)
    decide = least_total(list(execution_s.T))
    for request, delays in enumerate(delay_s.tolist()):
        assert decide(request, delays) == np.argmin(execution_s[request] + delays)


@pytest.mark.parametrize("targets", [2, 3, 4, 5])
def test_a_tie_goes_to_the_target_named_first(targets: int) -> None:
    decide = least_total([np.array([1.0 - k / 8]) for k in range(targets)])
    assert decide(0, [k / 8 for k in range(targets)]) == 0
    dearer_first = [k / 8 for k in range(targets)]
    dearer_first[0] += 1 / 8
    assert decide(0, dearer_first) == 1
