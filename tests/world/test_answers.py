"""`Answers` against a plain sorted list of all answers."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simnmt.world.deciders import Answer, Answers

GRID = st.integers(0, 12).map(lambda quarters: quarters / 4)
SERVERS = st.sampled_from([(1, 0), (1, 1), (2, 0), (2, 3)])
"""Targets and servers; each has starts of its own."""


class FewNear(Answers):
    """So few in the heap that a handful of answers already lies far ahead."""

    __slots__ = ()
    NEAR = 2


class Plain:
    """All answers in one list; sorts it whenever it is asked."""

    def __init__(self) -> None:
        self.pending: list[Answer] = []

    def collect(self, now_s: float) -> list[Answer]:
        come = sorted(answer for answer in self.pending if answer[0] <= now_s)
        self.pending = [answer for answer in self.pending if answer[0] > now_s]
        return come


def answer_of(start_s: float, received_s: float, request: int, target: int = 1) -> Answer:
    """The transfer time and the view's number stand for the request, so that no mix-up goes unseen."""
    return received_s, request, target, request / 8, request + 1000, start_s


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.sampled_from([Answers, FewNear]),
    st.lists(st.tuples(st.booleans(), SERVERS, GRID, GRID, st.integers(0, 9)), min_size=1, max_size=60),
)
def test_it_hands_out_what_a_sorted_list_would(
    kind: type[Answers], steps: list[tuple[bool, tuple[int, int], float, float, int]]
) -> None:
    """Starts of a server come in order, none before the present; downlinks of any length let answers overtake each other."""
    answers, plain = kind(), Plain()
    now_s, last_start_s = 0.0, dict.fromkeys([(1, 0), (1, 1), (2, 0), (2, 3)], 0.0)
    for number, (adds, (target, server), ahead_s, downlink_s, request) in enumerate(steps):
        if adds:
            start_s = last_start_s[target, server] = max(last_start_s[target, server], now_s) + ahead_s / 4
            # Requests may reach the server in another order than that of their numbers.
            answer = answer_of(start_s, start_s + downlink_s, 100 * request + number, target)
            answers.add(answer, server)
            plain.pending.append(answer)
        else:
            now_s += ahead_s
            found = answers.collect(now_s) if answers.next_s <= now_s else []
            assert found == plain.collect(now_s)
        assert answers.next_s <= min((answer[0] for answer in plain.pending), default=inf)


@pytest.mark.parametrize("servers", [1, 5])
@pytest.mark.parametrize("backlog", [Answers.NEAR - 1, Answers.NEAR, Answers.NEAR + 1, 8 * Answers.NEAR])
def test_a_backlog_deeper_than_the_heap_loses_nothing(backlog: int, servers: int) -> None:
    random = np.random.default_rng(backlog)
    answers, plain = Answers(), Plain()
    start_s = np.cumsum(random.exponential(1.0, backlog))
    received_s = start_s + random.exponential(20.0, backlog)
    for request in range(backlog):
        answer = answer_of(float(start_s[request]), float(received_s[request]), request)
        answers.add(answer, request % servers)
        plain.pending.append(answer)
    heard = 0
    for now_s in np.linspace(0.0, received_s.max(), 4 * backlog):
        found = answers.collect(now_s)
        assert found == plain.collect(now_s)
        heard += bool(found)
    assert heard > backlog / 2
    assert not plain.pending
    assert answers.next_s == inf


def test_what_has_started_is_forgotten_however_long_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of a server that is never idle would else hold the whole run."""
    from simnmt.world import deciders as module

    monkeypatch.setattr(module._Far, "TRIMMED_AT", 8)
    answers, plain = FewNear(), Plain()
    for request in range(500):
        answer = answer_of(request + 30.0, request + 31.5, request)
        answers.add(answer)
        plain.pending.append(answer)
        assert answers.collect(float(request)) == plain.collect(float(request))
    (far,) = answers._far.values()
    assert len(far.start_s) == len(far.target) < 60


@pytest.mark.parametrize("kind", [Answers, FewNear])
def test_an_answer_far_ahead_may_start_and_come_in_the_very_moment_it_is_asked_for(kind: type[Answers]) -> None:
    answers = kind()
    for request in range(kind.NEAR):
        answers.add(answer_of(1.0, 50.0, request))
    last = answer_of(1.0, 1.0, kind.NEAR)
    answers.add(last)
    assert answers.next_s == 1.0
    assert answers.collect(1.0) == [last]
    assert answers.next_s == 50.0


def test_nothing_is_handed_out_twice() -> None:
    answers = Answers()
    assert answers.next_s == inf
    assert answers.collect(5.0) == []
    answer = answer_of(6.0, 8.0, 0)
    answers.add(answer)
    assert answers.next_s == 8.0
    assert answers.collect(7.0) == []
    assert answers.collect(8.0) == [answer]
    assert answers.collect(9.0) == []
    assert answers.next_s == inf
