"""Timed rounds that other processes or the machine disturbed do not count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.round_guard import ATTEMPTS_PER_ROUND, Checkpoint, GuardedRounds, RoundGuard, matrix_reference


class Watch:
    """A box on which other processes use what the script says, one number a round."""

    def __init__(self, others: float | None) -> None:
        self.others = others

    def others_cpus(self) -> float | None:
        return self.others


def measure(
    wanted: int, others: Sequence[float | None], readings: Sequence[float] = (), said: list[str] | None = None
) -> GuardedRounds[int]:
    """Rounds of one checkpoint within, so of three readings each; readings that the script lacks are 1 s."""
    script: Iterator[float] = iter(readings)
    watches = iter(others)
    guard = RoundGuard(
        lambda: next(script, 1.0),
        watch=lambda: Watch(next(watches)),  # type: ignore[arg-type, return-value]
        box=BoxDescription(machine="x86_64", system="Linux", logical_cores=2),
        say=(said if said is not None else []).append,
    )

    def one_round(number: int, checkpoint: Checkpoint) -> int:
        checkpoint()
        return number

    return guard.measure(wanted, one_round)


def test_a_round_beside_other_processes_is_measured_again() -> None:
    said: list[str] = []
    rounds = measure(3, [0.0, 0.9, 0.1, 0.05], said=said)
    assert (rounds.counted, rounds.rejected, rounds.conclusive) == ([0, 2, 3], 1, True)
    assert rounds.worst_others_cpus == 0.9
    assert said == ["round 2 was disturbed (others used 0.9 CPUs, reference work varied by 0 %)"]


def test_a_round_in_which_the_machine_changed_its_speed_is_measured_again() -> None:
    """Slower throughout does not matter to ratios; slower from some method on does."""
    slower_throughout, slower_within = (1.4, 1.4, 1.45), (1.0, 1.0, 1.2)
    rounds = measure(2, [0.0] * 9, [*slower_within, *slower_throughout])
    assert (rounds.counted, rounds.rejected) == ([1, 2], 1)
    assert rounds.worst_reference_spread == pytest.approx(0.2)


def test_a_box_that_stays_busy_allows_no_conclusion_and_ends() -> None:
    rounds = measure(3, [0.9] * 9)
    assert len(rounds.rounds) == 3 * ATTEMPTS_PER_ROUND and not rounds.conclusive
    assert rounds.counted == list(range(9)), "all are kept, to be shown"


def test_two_undisturbed_rounds_of_three_suffice_and_one_does_not() -> None:
    assert measure(3, [0.0, *[0.9] * 6, 0.0, 0.9]).conclusive
    assert not measure(3, [0.0, *[0.9] * 8]).conclusive
    assert measure(1, [None]).conclusive, "a box without an account is judged by the reference work"


def test_reference_work_takes_time() -> None:
    assert matrix_reference(64, 64, 2)() > 0.0
