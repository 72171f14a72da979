"""Timed rounds that other processes or the machine disturbed are measured again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.round_guard import MOST_ATTEMPTS, Checkpoint, GuardedRound, RoundGuard, matrix_reference


class Watch:
    """A box on which other processes use the given number of CPUs."""

    def __init__(self, others: float | None) -> None:
        self.others = others

    def others_cpus(self) -> float | None:
        return self.others


def measure(others: Sequence[float | None], readings: Sequence[float] = ()) -> tuple[GuardedRound[int], list[str]]:
    """Measure a round that returns the number of its attempt.

    `others`: CPUs in use by others, of each attempt; `readings`: three of each attempt, 1 s where the list has ended.
    """
    script, watches, attempts, messages = iter(readings), iter(others), iter(range(9)), list[str]()
    guard = RoundGuard(
        lambda: next(script, 1.0),
        watch=lambda: Watch(next(watches)),  # type: ignore[arg-type, return-value]
        box=BoxDescription(machine="x86_64", system="Linux", logical_cores=2),
        say=messages.append,
    )

    def attempt(checkpoint: Checkpoint) -> int:
        checkpoint()
        return next(attempts)

    return guard.measure(attempt, "round 7"), messages


def test_a_round_beside_other_processes_is_measured_again() -> None:
    measured, messages = measure([0.9, 0.1])
    assert (measured.result, len(measured.checks), measured.conclusive) == (1, 2, True)
    assert [check.others_cpus for check in measured.checks] == [0.9, 0.1]
    assert messages == ["round 7, attempt 1 was disturbed (others used 0.9 CPUs, reference work varied by 0 %)"]


def test_a_round_in_which_the_machine_changed_its_speed_is_measured_again() -> None:
    """A machine that is slower in the whole round does not change ratios; one that slows down within it does."""
    slower_throughout, slower_within = (1.4, 1.4, 1.45), (1.0, 1.0, 1.2)
    measured, _ = measure([0.0] * 9, [*slower_within, *slower_throughout])
    assert (measured.result, [check.disturbed for check in measured.checks]) == (1, [True, False])
    assert measured.checks[0].reference_spread == pytest.approx(0.2)


def test_a_box_that_stays_busy_allows_no_conclusion_and_ends_with_the_last_attempt() -> None:
    measured, messages = measure([0.9] * 9)
    assert len(measured.checks) == len(messages) == MOST_ATTEMPTS and not measured.conclusive
    assert measured.result == MOST_ATTEMPTS - 1


def test_a_box_without_an_account_of_its_cpus_is_judged_by_the_reference_work() -> None:
    assert measure([None])[0].conclusive
    assert not measure([None] * 9, [1.0, 1.0, 1.2] * 9)[0].conclusive


def test_reference_work_takes_time() -> None:
    assert matrix_reference(64, 64, 2)() > 0.0
