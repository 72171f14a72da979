"""When something is down: intervals are answered alike however they are asked for, and a process has its theoretical share."""

from __future__ import annotations

from itertools import islice, pairwise
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.network.down_times import ALWAYS_UP, DownTimes, describe_bad_spans, drawn_spans, spans_of_laps

SPANS = [(1.0, 2.0), (4.0, 4.5), (4.5, 6.0)]


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=20, unique=True), st.floats(0.0, 120.0))
def test_every_question_agrees_with_the_list_of_intervals(bounds: list[float], at_s: float) -> None:
    ends = sorted(bounds)[: len(bounds) // 2 * 2]
    spans = list(zip(ends[::2], ends[1::2], strict=True))
    down = DownTimes(iter(spans))
    holding = [end_s for begin_s, end_s in spans if begin_s <= at_s < end_s]
    assert down.is_down(at_s) == bool(holding)
    assert down.up_from(at_s) == (holding or [at_s])[0]
    assert down.next_begin(at_s) == min((begin_s for begin_s, _ in spans if begin_s > at_s), default=inf)
    assert down.last_begin(at_s) == max((begin_s for begin_s, _ in spans if begin_s <= at_s), default=-inf)
    assert down.down_s(at_s) == pytest.approx(sum(min(end_s, at_s) - begin_s for begin_s, end_s in spans if begin_s < at_s))


def test_what_is_always_up_never_fails() -> None:
    assert (ALWAYS_UP.is_down(5.0), ALWAYS_UP.next_begin(0.0), ALWAYS_UP.down_s(1e9)) == (False, inf, 0.0)


def test_a_drawn_process_is_down_for_its_share_of_the_time() -> None:
    shares = [DownTimes(drawn_spans(1, number, "x", 30.0, 10.0)).down_s(200_000.0) / 200_000.0 for number in range(6)]
    assert np.mean(shares) == pytest.approx(0.25, abs=0.01)


def test_a_drawn_process_is_down_at_its_begin_as_often_as_later() -> None:
    processes = [DownTimes(drawn_spans(1, number, "x", 30.0, 10.0)) for number in range(2_000)]
    for at_s in (0.0, 5.0, 100.0):
        assert np.mean([process.is_down(at_s) for process in processes]) == pytest.approx(0.25, abs=0.03)
    left_s = [process.up_from(0.0) for process in processes if process.is_down(0.0)]
    assert np.mean(left_s) == pytest.approx(10.0, rel=0.15)


def test_a_drawn_process_is_the_same_however_it_is_read_and_different_in_each_replication() -> None:
    late, early = (DownTimes(drawn_spans(1, 0, "x", 3.0, 1.0)) for _ in range(2))
    asked = [early.is_down(float(at_s)) for at_s in range(0, 5_000, 7)]
    assert late.down_s(5_000.0) == early.down_s(5_000.0)
    assert [late.is_down(float(at_s)) for at_s in range(0, 5_000, 7)] == asked
    assert next(drawn_spans(1, 1, "x", 3.0, 1.0)) != next(drawn_spans(1, 0, "x", 3.0, 1.0))


def test_intervals_of_a_trace_come_again_in_each_lap() -> None:
    spans = list(islice(spans_of_laps([(1.0, 2.0), (8.0, 10.0)], 10.0, 9.0), 4))
    assert spans == [(0.0, 1.0), (2.0, 3.0), (9.0, 11.0), (12.0, 13.0)]
    assert all(before[1] <= after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize(
    ("spans", "fault"),
    [
        ([[3.0, 1.0]], "interval 1 is [3.0, 1.0], but an interval is [from, to]"),
        ([[1.0]], "interval 1 is [1.0], but an interval is [from, to]"),
        ([[-1.0, 1.0]], "interval 1 is [-1.0, 1.0], but"),
        ([[1.0, 3.0], [2.0, 4.0]], "interval 2, [2.0, 4.0], begins before the end of [1.0, 3.0]"),
    ],
)
def test_numbers_that_are_no_intervals_in_order_are_described(spans: list[list[float]], fault: str) -> None:
    message = describe_bad_spans(spans)
    assert message is not None
    assert message.startswith(fault)
    assert describe_bad_spans(SPANS) is None
