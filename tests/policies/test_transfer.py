"""What is believed of the transfer time: the last measurement to the bit, a mean, or what probes told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simnmt.policies import ProbedEstimate, QuantileEstimate, TransferEstimate

SECONDS = st.floats(0.0, 1e4)
GAPS = st.floats(0.0, 5.0)


@given(st.lists(SECONDS, min_size=1), SECONDS)
def test_with_weight_1_the_last_measurement_wins_to_the_bit(measured: list[float], initial_s: float) -> None:
    """CNMT-11."""
    estimate = TransferEstimate(initial_s)
    assert (estimate.value_s, estimate.measured_at_s, estimate.next_s) == (initial_s, 0.0, math.inf)
    for at_s, transfer_s in enumerate(measured):
        estimate.learn(transfer_s, float(at_s))
        assert (estimate.value_s, estimate.measured_at_s) == (transfer_s, at_s)


@given(st.floats(0.01, 0.99), st.lists(SECONDS, min_size=1, max_size=30), SECONDS)
def test_a_smoothed_estimate_weighs_each_measurement_by_its_age(weight: float, measured: list[float], initial_s: float) -> None:
    estimate = TransferEstimate(initial_s, weight)
    for transfer_s in measured:
        estimate.learn(transfer_s, 1.0)
    count = len(measured)
    expected = (1 - weight) ** count * initial_s
    expected += sum(weight * (1 - weight) ** (count - 1 - k) * transfer_s for k, transfer_s in enumerate(measured))
    assert estimate.value_s == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert min(initial_s, *measured) * (1 - 1e-9) <= estimate.value_s <= max(initial_s, *measured) * (1 + 1e-9)


def test_smoothing_halves_the_error_of_independent_measurements() -> None:
    """The variance of an exponentially weighted mean is weight / (2 - weight) of a single measurement's."""
    measured = 0.1 + 0.02 * np.random.default_rng(1).standard_normal(50_000)
    estimate, found = TransferEstimate(0.1, 0.25), []
    for at_s, transfer_s in enumerate(measured.tolist()):
        estimate.learn(transfer_s, at_s)
        found.append(estimate.value_s)
    assert np.var(found[100:]) / np.var(measured) == pytest.approx(0.25 / 1.75, rel=0.06)


@given(st.lists(SECONDS, min_size=1, max_size=60), st.floats(0.0, 1.0), st.integers(1, 40), SECONDS)
def test_a_quantile_is_that_of_the_last_measurements(
    measured: list[float], quantile: float, window: int, initial_s: float
) -> None:
    """The initial value is forgotten at the first measurement."""
    estimate = QuantileEstimate(initial_s, quantile, window)
    assert (estimate.value_s, estimate.measured_at_s, estimate.next_s) == (initial_s, 0.0, math.inf)
    for count, transfer_s in enumerate(measured, start=1):
        estimate.learn(transfer_s, float(count))
        expected_s = np.quantile(measured[max(count - window, 0) : count], quantile)
        assert estimate.value_s == pytest.approx(expected_s, rel=1e-12, abs=1e-12)
        assert estimate.measured_at_s == count


@given(st.lists(SECONDS, min_size=1))
def test_the_quantile_of_one_measurement_is_the_last_one_to_the_bit(measured: list[float]) -> None:
    estimate = QuantileEstimate(1.0, 0.25, 1)
    for transfer_s in measured:
        estimate.learn(transfer_s, 1.0)
        assert estimate.value_s == transfer_s


def test_a_low_quantile_ignores_outliers_that_the_last_measurement_keeps() -> None:
    """One measurement in five is ten times too long; both of the others follow it."""
    low, smoothed = QuantileEstimate(0.01, 0.25, 32), TransferEstimate(0.01, 0.125)
    for number in range(100):
        transfer_s = 0.1 if number % 5 == 4 else 0.01
        low.learn(transfer_s, number)
        smoothed.learn(transfer_s, number)
        assert low.value_s == 0.01
    assert smoothed.value_s > 0.02


def test_a_probe_is_sent_after_each_interval_of_silence() -> None:
    """Interval 10, round trip 2: sent at 10, 22 and 34, heard at 12, 24 and 36."""
    asked = []
    estimate = ProbedEstimate(7.0, 10.0, lambda at_s: asked.append(at_s) or 2.0)  # type: ignore[func-returns-value]
    known = []
    for now_s in (9.9, 10.0, 11.9, 12.0, 33.9, 34.0, 35.9, 36.0):
        estimate.refresh(now_s)
        known.append((estimate.value_s, estimate.measured_at_s, estimate.probes_sent))
    assert known == [(7.0, 0.0, 0), (7.0, 0.0, 1), (7.0, 0.0, 1), (2.0, 12.0, 1), (2.0, 24.0, 2)] + [(2.0, 24.0, 3)] * 2 + [
        (2.0, 36.0, 3)
    ]
    assert asked == [10.0, 22.0, 34.0]


def test_an_answer_of_a_request_starts_the_timer_anew() -> None:
    estimate = ProbedEstimate(7.0, 10.0, lambda at_s: 2.0)
    for at_s in (9.0, 18.0, 27.0):
        estimate.learn(3.0, at_s)
    estimate.refresh(36.9)
    assert (estimate.value_s, estimate.probes_sent) == (3.0, 0)
    estimate.refresh(39.0)
    assert (estimate.value_s, estimate.measured_at_s, estimate.probes_sent) == (2.0, 39.0, 1)


def test_a_probe_under_way_is_neither_lost_nor_sent_twice_when_a_request_is_answered() -> None:
    """Sent at 10, answered at 14, a request's answer at 12: the next silence begins at 14."""
    estimate = ProbedEstimate(7.0, 10.0, lambda at_s: 4.0)
    estimate.learn(3.0, 12.0)
    assert (estimate.value_s, estimate.measured_at_s, estimate.probes_sent) == (3.0, 12.0, 1)
    estimate.refresh(23.9)
    assert (estimate.value_s, estimate.measured_at_s, estimate.probes_sent) == (4.0, 14.0, 1)
    estimate.refresh(24.0)
    assert estimate.probes_sent == 2


def by_a_timer(events: list[tuple[float, float]], interval_s: float, until_s: float) -> tuple[float, float, int]:
    """(value, when heard, probes sent) of an ordinary event loop: one timer, one probe under way at most."""
    heard = [(at_s, 1, transfer_s) for at_s, transfer_s in events]
    value_s, heard_s, sent, timer_s, probe = 7.0, 0.0, 0, interval_s, None
    while True:
        candidates = [(timer_s, 2, 0.0)] if probe is None else [(probe[0], 0, probe[1])]
        if heard:
            candidates.append(heard[0])
        # Of one moment: a probe's answer, then the timer, then a request's answer.
        at_s, kind, told_s = min(candidates, key=lambda c: (c[0], {0: 0, 2: 1, 1: 2}[c[1]]))
        if at_s > until_s:
            return value_s, heard_s, sent
        if kind == 2:
            sent += 1
            probe = (at_s + rtt_s(at_s), rtt_s(at_s))
            continue
        value_s, heard_s = told_s, at_s
        if kind == 0:
            probe = None
        else:
            heard.pop(0)
        timer_s = at_s + interval_s


def rtt_s(at_s: float) -> float:
    return 0.5 + 3.0 * math.sin(at_s) ** 2


@given(st.lists(st.tuples(GAPS, SECONDS), max_size=20), st.floats(0.3, 4.0), st.lists(GAPS, max_size=6))
def test_worked_out_afterwards_the_timer_does_what_it_would_have_done(
    answers: list[tuple[float, float]], interval_s: float, looks: list[float]
) -> None:
    """However seldom it is looked at: an event loop with a real timer is the oracle."""
    events, at_s = [], 0.0
    for gap_s, transfer_s in answers:
        at_s += gap_s
        events.append((at_s, transfer_s))
    estimate = ProbedEstimate(7.0, interval_s, rtt_s)
    pending, now_s = list(events), 0.0
    for gap_s in [*looks, 20.0]:
        now_s += gap_s
        while pending and pending[0][0] <= now_s:
            heard_s, transfer_s = pending.pop(0)
            estimate.learn(transfer_s, heard_s)
        estimate.refresh(now_s)
        assert (estimate.value_s, estimate.measured_at_s, estimate.probes_sent) == by_a_timer(events, interval_s, now_s)
        assert estimate.next_s > now_s


def test_probes_are_smoothed_like_any_measurement() -> None:
    estimate = ProbedEstimate(8.0, 1.0, lambda at_s: 0.0, weight=0.5)
    estimate.refresh(3.0)
    assert (estimate.value_s, estimate.probes_sent) == (1.0, 3)
