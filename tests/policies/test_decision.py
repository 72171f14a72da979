"""The argmin over targets: its short form for two targets, and ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.policies import least_total

# A grid of sixteenths adds without rounding, so that ties are ties; the others are whatever floats are.
SECONDS = st.integers(0, 64).map(lambda sixteenths: sixteenths / 16) | st.floats(0.0, 1e3)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS, SECONDS), min_size=1, max_size=8))
def test_the_short_form_for_two_targets_decides_as_the_general_form(rows: list[tuple[float, float, float, float]]) -> None:
    """A third target that never wins makes `least_total` take its general form."""
    first_s, second_s, first_delay_s, second_delay_s = (np.array(column) for column in zip(*rows, strict=True))
    two = least_total((first_s, second_s))
    general = least_total((first_s, second_s, np.full(len(rows), np.inf)))
    expected = np.argmin([first_s + first_delay_s, second_s + second_delay_s], axis=0)
    for request, (_, _, first, second) in enumerate(rows):
        assert two(request, (first, second)) == general(request, (first, second, 0.0)) == expected[request]


@pytest.mark.parametrize("targets", [2, 3, 5])
def test_a_tie_goes_to_the_target_named_first(targets: int) -> None:
    decide = least_total([np.array([1.0 - k / 8]) for k in range(targets)])
    assert decide(0, [k / 8 for k in range(targets)]) == 0
    dearer_first = [k / 8 for k in range(targets)]
    dearer_first[0] += 1 / 8
    assert decide(0, dearer_first) == 1


def test_each_of_many_targets_can_win() -> None:
    decide = least_total([np.array([3.0, 1.0, 3.0]), np.array([2.0, 3.0, 2.0]), np.array([1.0, 2.0, 2.5])])
    assert [decide(request, (0.0, 0.0, 0.0)) for request in range(3)] == [2, 0, 1]
    assert decide(0, (0.0, 0.0, 9.0)) == 1


def test_a_delay_for_every_target_is_asked_for() -> None:
    decide = least_total([np.ones(1)] * 3)
    with pytest.raises(ValueError, match="zip"):
        decide(0, (0.0, 0.0))
