"""What leaves a target out of use, when it is tried again, and for how long it was out of use."""

from __future__ import annotations

import pytest

from simnmt.policies.health import PAUSES_S, ServerHealth


@pytest.mark.parametrize(
    ("status", "hurried", "left_out"),
    [(502, False, [2]), (502, True, [2]), (504, False, [2]), (504, True, []), (400, False, []), (413, False, [])],
)
def test_a_target_that_fails_is_left_out_unless_it_refused_one_request_or_had_little_time(
    status: int, hurried: bool, left_out: list[int]
) -> None:
    health = ServerHealth()
    assert health.failed(2, 4.0, 5.0, status, hurried=hurried) is bool(left_out)
    assert health.left_out == left_out


@pytest.mark.parametrize(("retry_after_s", "first_s"), [(None, 1.0), (7.0, 7.0)])
def test_a_target_is_tried_again_after_ever_longer_pauses_from_the_end_of_each_try(
    retry_after_s: float | None, first_s: float
) -> None:
    health, now_s, pauses_s = ServerHealth(), 100.0, []
    health.failed(1, now_s, now_s, retry_after_s=retry_after_s)
    for _ in range(8):
        pauses_s.append(health.next_try_s(1) - now_s)
        now_s = health.next_try_s(1) + 0.5
        assert not health.failed(1, now_s, now_s), "it is left out already"
        health.try_failed(1, now_s)
    assert pauses_s == [first_s, *PAUSES_S[1:], 30.0, 30.0]


def test_times_and_seconds_out_of_use_are_counted_by_target() -> None:
    health = ServerHealth()
    health.failed(3, 0.5, 1.0)
    health.failed(1, 0.5, 2.0)
    assert health.left_out == [1, 3]
    health.answered(3, 4.0)
    health.failed(3, 9.0, 10.0)
    assert [health.times(target) for target in (1, 2, 3)] == [1, 0, 2]
    assert [health.seconds(target, 12.0) for target in (1, 2, 3)] == [10.0, 0.0, 5.0]
    health.answered(3, 13.0)
    health.failed(3, 19.0, 20.0)
    assert health.next_try_s(3) == 21.0, "pauses begin anew"


def test_what_was_sent_before_a_target_was_put_back_in_use_does_not_leave_it_out_again() -> None:
    health = ServerHealth()
    health.failed(1, 1.0, 2.0)
    health.answered(1, 4.0)
    assert not health.failed(1, 1.5, 6.0) and not health.left_out
    assert health.failed(1, 4.0, 6.0), "what was sent afterwards counts"
