"""Judging by the reference cell whether the box was itself."""

from __future__ import annotations

import pytest

from simnmt.calibrate.samples import Reading, judge_drift


def readings(*least_s: float, attempt: int = 0) -> list[Reading]:
    return [
        Reading("execution", attempt, position, (second * 1.5, second, second * 1.2)) for position, second in enumerate(least_s)
    ]


def test_a_steady_box_is_left_in_peace() -> None:
    drift = judge_drift(readings(1.0, 1.01, 1.0, 1.02, 0.99), {("execution", 0): [0, 1, 2, 3]})
    assert drift.disturbed == frozenset()
    assert abs(drift.largest) <= 0.03


def test_a_disturbance_spoils_the_stretches_on_either_side_of_it() -> None:
    drift = judge_drift(readings(1.0, 1.0, 1.3, 1.0, 1.0), {("execution", 0): [0, 1, 2, 3]})
    assert drift.disturbed == {("execution", 0, 1), ("execution", 0, 2)}
    assert drift.largest == pytest.approx(0.3)


def test_a_box_that_was_slow_for_the_greater_part_is_judged_by_its_calm_part() -> None:
    drift = judge_drift(readings(1.5, 1.5, 1.5, 1.5, 1.0, 1.0, 1.0), {("execution", 0): [0, 1, 2, 3, 4, 5]})
    assert drift.usual_s == 1.0
    assert drift.disturbed == {("execution", 0, stretch) for stretch in range(4)}


def test_a_single_lucky_reading_is_not_the_rule() -> None:
    drift = judge_drift(readings(1.0, 1.0, 0.8, 1.0, 1.0, 1.0, 1.0), {("execution", 0): [0, 1, 2, 3, 4, 5]})
    assert drift.usual_s == 1.0
    assert drift.disturbed == {("execution", 0, 1), ("execution", 0, 2)}


def test_readings_of_a_second_attempt_belong_to_the_stretches_it_did() -> None:
    both = readings(1.0, 1.0, 1.4, 1.0, 1.0) + readings(1.0, 1.0, 1.2, attempt=1)
    drift = judge_drift(both, {("execution", 0): [0, 1, 2, 3], ("execution", 1): [1, 2]})
    assert drift.disturbed == {("execution", 0, 1), ("execution", 0, 2), ("execution", 1, 2)}


def test_a_stretch_without_its_reading_is_not_trusted() -> None:
    assert judge_drift(readings(1.0, 1.0), {("execution", 0): [0, 1]}).disturbed == {("execution", 0, 1)}


def test_nothing_measured_is_nothing_disturbed() -> None:
    assert judge_drift([], {}).disturbed == frozenset()
