"""`Answers` against a plain sorted list of all answers."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.world.answers import Answers

GRID = st.integers(0, 12).map(lambda quarters: quarters / 4)


class FewNear(Answers):
    """So few in the heap that a handful of answers already lies far ahead."""

    __slots__ = ()
    NEAR = 2


class Plain:
    """All answers in one list; sorts it whenever it is asked."""

    def __init__(self) -> None:
        self.pending: list[tuple[float, int, float]] = []

    def collect(self, now_s: float) -> tuple[float, float] | None:
        come = sorted(answer for answer in self.pending if answer[0] <= now_s)
        self.pending = [answer for answer in self.pending if answer[0] > now_s]
        return (come[-1][0], come[-1][2]) if come else None


@settings(derandomize=True, deadline=None, max_examples=400)
@given(
    st.sampled_from([Answers, FewNear]),
    st.lists(st.tuples(st.booleans(), GRID, GRID, st.integers(0, 9)), min_size=1, max_size=60),
)
def test_it_hands_out_what_a_sorted_list_would(kind: type[Answers], steps: list[tuple[bool, float, float, int]]) -> None:
    """Starts come in order, none before the present; downlinks are of any length, so answers overtake each other."""
    answers, plain = kind(), Plain()
    now_s = start_s = 0.0
    for number, (adds, ahead_s, downlink_s, request) in enumerate(steps):
        if adds:
            start_s = max(start_s, now_s) + ahead_s / 4
            # Requests may reach the server in another order than that of their numbers.
            identity = 100 * request + number
            answers.add(start_s, start_s + downlink_s, identity, float(number))
            plain.pending.append((start_s + downlink_s, identity, float(number)))
        else:
            now_s += ahead_s
            found = answers.collect(now_s) if answers.next_s <= now_s else None
            assert found == plain.collect(now_s)
        assert answers.next_s <= min((answer[0] for answer in plain.pending), default=inf)


@pytest.mark.parametrize("backlog", [Answers.NEAR - 1, Answers.NEAR, Answers.NEAR + 1, 8 * Answers.NEAR])
def test_a_backlog_deeper_than_the_heap_loses_nothing(backlog: int) -> None:
    random = np.random.default_rng(backlog)
    answers, plain = Answers(), Plain()
    start_s = np.cumsum(random.exponential(1.0, backlog))
    received_s = start_s + random.exponential(20.0, backlog)
    for request in range(backlog):
        answers.add(start_s[request], received_s[request], request, float(request))
        plain.pending.append((received_s[request], request, float(request)))
    heard = 0
    for now_s in np.linspace(0.0, received_s.max(), 4 * backlog):
        found = answers.collect(now_s)
        assert found == plain.collect(now_s)
        heard += found is not None
    assert heard > backlog / 2
    assert not plain.pending
    assert answers.next_s == inf


@pytest.mark.parametrize("kind", [Answers, FewNear])
def test_an_answer_far_ahead_may_start_and_come_in_the_very_moment_it_is_asked_for(kind: type[Answers]) -> None:
    answers = kind()
    for request in range(kind.NEAR):
        answers.add(1.0, 50.0, request, 0.5)
    answers.add(1.0, 1.0, kind.NEAR, 0.25)
    assert answers.next_s == 1.0
    assert answers.collect(1.0) == (1.0, 0.25)
    assert answers.next_s == 50.0


def test_nothing_is_handed_out_twice() -> None:
    answers = Answers()
    assert answers.next_s == inf
    assert answers.collect(5.0) is None
    answers.add(6.0, 8.0, 0, 0.25)
    assert answers.next_s == 8.0
    assert answers.collect(7.0) is None
    assert answers.collect(8.0) == (8.0, 0.25)
    assert answers.collect(9.0) is None
    assert answers.next_s == inf
