"""The mirror of a remote queue against the queue itself, which these tests keep in the plainest way there is."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simnmt.policies import BacklogView


class Pool(NamedTuple):
    """One decider's requests to a pool, in seconds: the waits believed and met, and the execution not known to have begun."""

    believed_s: list[float]
    wait_s: list[float]
    in_flight_s: list[float]


def meet(
    parallel: int,
    entry_s: NDArray[np.float64],
    execution_s: NDArray[np.float64],
    predicted_s: NDArray[np.float64],
    ours: NDArray[np.bool_],
    uplink_s: float = 0.0,
    downlink_s: float = 0.0,
) -> Pool:
    """Requests enter a first-in first-out pool; `ours` are decided on an uplink earlier and answered a downlink later."""
    view, pool, answers, ends_s = BacklogView(parallel), Pool([], [], []), [], [0.0] * parallel
    unknown_s: dict[int, float] = {}
    last_s = 0.0
    for entry, execution, predicted, mine in zip(*(c.tolist() for c in (entry_s, execution_s, predicted_s, ours)), strict=True):
        if mine:
            while answers and answers[0][0] <= entry - uplink_s:
                _, number, waited = heapq.heappop(answers)
                view.reported(number, waited)
                last_s = unknown_s.pop(number)
            pool.in_flight_s.append(sum(unknown_s.values()) + last_s)
            pool.believed_s.append(view.added_s(entry))
            number = view.sent(entry, predicted)
            unknown_s[number] = execution
        worker = int(np.argmin(ends_s))
        start = max(ends_s[worker], entry)
        ends_s[worker] = start + execution
        if mine:
            pool.wait_s.append(start - entry)
            heapq.heappush(answers, (start + execution + downlink_s, number, start - entry))
    return pool


def traffic(parallel: int, load: float, share: float, seed: int = 1, size: int = 20_000) -> tuple[NDArray[np.float64], ...]:
    """Poisson entries with lognormal executions of 100 ms in the mean, some of them ours; times are predicted 30 % off."""
    random = np.random.default_rng(seed)
    entry_s = np.cumsum(random.exponential(0.1 / (load * parallel), size))
    predicted_s = 0.1 * random.lognormal(-0.18, 0.6, size)
    execution_s = predicted_s * random.lognormal(-0.045, 0.3, size)
    return entry_s, execution_s, predicted_s, random.random(size) < share


GAP = st.floats(0.0, 3.0)


@given(
    st.integers(1, 5),
    st.lists(st.tuples(GAP, st.floats(0.0, 5.0)), min_size=1, max_size=40),
    st.floats(0.0, 2.0),
    st.floats(0.0, 2.0),
)
def test_alone_with_exact_predictions_the_believed_wait_is_the_true_one(
    parallel: int, requests: list[tuple[float, float]], uplink_s: float, downlink_s: float
) -> None:
    """However many workers and however late the answers: there is nothing that the decider could not know."""
    gap_s, execution_s = np.array(requests).T
    entry_s = uplink_s + np.cumsum(gap_s)
    pool = meet(parallel, entry_s, execution_s, execution_s, np.ones(len(gap_s), bool), uplink_s, downlink_s)
    assert pool.believed_s == pytest.approx(pool.wait_s, rel=0.0, abs=1e-9)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.25, 2.0])
def test_predictions_wrong_by_a_factor_err_by_that_share_of_the_work_in_flight(factor: float) -> None:
    """Errors do not add up over a busy period: what has been answered is known, whatever had been predicted for it. Predictions
    too short look like others' work, and are made up for."""
    entry_s, execution_s, _, ours = traffic(1, 0.9, 1.0)
    pool = meet(1, entry_s, execution_s, factor * execution_s, ours, 0.02, 0.02)
    error_s, in_flight_s = np.abs(np.subtract(pool.believed_s, pool.wait_s)), np.array(pool.in_flight_s)
    assert np.max(pool.wait_s) > 20 * execution_s.mean()
    if factor > 1.0:
        assert (error_s <= (factor - 1.0) * in_flight_s + 1e-9).mean() > 0.999
    else:
        assert error_s.mean() < 0.5 * (1.0 - factor) * in_flight_s.mean()
        assert (error_s <= in_flight_s + 1e-9).mean() > 0.98


CORRELATION = {(1, 0.8, 0.5): 0.78, (1, 0.9, 0.5): 0.87, (1, 0.9, 0.1): 0.65, (4, 0.8, 0.5): 0.72, (4, 0.9, 0.1): 0.60}


@pytest.mark.parametrize(("case", "least"), CORRELATION.items(), ids=str)
def test_with_others_in_the_pool_the_belief_follows_the_true_wait(case: tuple[int, float, float], least: float) -> None:
    """A mirror that is only moved by each answer reaches 0.69, 0.81, 0.31, 0.61 and 0.29, and 4 to 38 % of the mean."""
    pool = meet(*(case[0], *traffic(*case)), 0.02, 0.02)
    assert np.corrcoef(pool.believed_s, pool.wait_s)[0, 1] > least
    assert 0.75 < np.mean(pool.believed_s) / np.mean(pool.wait_s) < 1.1


def test_a_burst_of_others_keeps_no_decider_away_for_ever() -> None:
    """One worker; a hundred requests a second apart, each of which had to wait for 20 s of others' work."""
    view = BacklogView(1)
    for second in range(100):
        view.reported(view.sent(second, 0.1), 20.0)
    assert view.added_s(100.0) == pytest.approx(20.0, abs=4.0)
    waits_s = [view.added_s(100.0 + silence_s) for silence_s in (0, 10, 100, 1e3, 1e4, 1e5)]
    assert waits_s == sorted(waits_s, reverse=True)
    assert waits_s[-1] < 0.1


def test_an_idle_pool_is_not_believed_to_wait_by_an_old_discrepancy() -> None:
    """Ours waited 5 s for a request of others; when that is done, and nothing else is known, the next starts at once."""
    view = BacklogView(1)
    view.reported(view.sent(10.0, 1.0), 5.0)
    assert view.added_s(14.0) == pytest.approx(2.0, abs=0.1)
    assert view.added_s(16.5) < 1.0  # one answer in a while is little to go by
    number = view.sent(30.0, 1.0)
    assert view.added_s(30.5) == pytest.approx(0.5, abs=0.15)
    view.reported(number, 0.0)
    assert view.added_s(30.5) == pytest.approx(0.5, abs=0.15)


def test_an_answer_that_was_overtaken_moves_nothing() -> None:
    in_order, overtaken = BacklogView(2), BacklogView(2)
    for view, order in ((in_order, (0, 1)), (overtaken, (1, 0))):
        numbers = [view.sent(0.0, 4.0), view.sent(1.0, 4.0), view.sent(2.0, 4.0)]
        for place in order:
            view.reported(numbers[place], (0.5, 2.0)[place])
    assert in_order.added_s(3.0) == pytest.approx(overtaken.added_s(3.0), abs=0.05)


@given(st.lists(st.tuples(GAP, st.floats(0.0, 5.0), st.floats(0.0, 9.0), st.booleans()), max_size=30), st.integers(1, 3))
def test_asking_changes_nothing_and_no_wait_is_negative(steps: list[tuple[float, float, float, bool]], parallel: int) -> None:
    """Whatever the answers say, even nonsense."""

    def waits_s(asking: Callable[[BacklogView, float], object]) -> list[float]:
        view, now_s, open_numbers = BacklogView(parallel), 0.0, []
        for gap_s, execution_s, late_s, answered in steps:
            now_s += gap_s
            asking(view, now_s)
            open_numbers.append((view.sent(now_s, execution_s), late_s))
            if answered:
                view.reported(*open_numbers.pop(len(open_numbers) // 2))
        return [view.added_s(now_s + later_s) for later_s in (0.0, 0.5, 1.0, 5.0, 100.0)]

    silent = waits_s(lambda view, now_s: None)
    assert silent == waits_s(lambda view, now_s: [view.added_s(now_s + later_s) for later_s in (0.0, 1.0, 50.0)])
    assert min(silent) >= 0.0
