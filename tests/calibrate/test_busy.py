"""Who else computes here, and how fast the clock runs, from recorded files."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from simnmt.calibrate import doctor, processor_use, profile_assembly
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.round_guard import MOST_ATTEMPTS, Checkpoint, GuardedRound, RoundGuard, matrix_reference
from simnmt.calibrate.samples import Reading, judge_drift


def box_of(cpus: int, allowed: int | None = None, quota: float | None = None) -> BoxDescription:
    numbers = () if allowed is None else tuple(range(allowed))
    return BoxDescription("x86_64", "Linux", logical_cores=cpus, allowed_cpus=numbers, cpu_quota=quota)


@pytest.mark.parametrize(("others", "busy"), [(0.3, False), (2.0, True)])
def test_a_box_is_busy_everywhere_by_the_same_cpus(monkeypatch: pytest.MonkeyPatch, others: float, busy: bool) -> None:
    """All of 16 CPUs, over which the work of others is counted, though this process may use two of them."""
    box = box_of(16, allowed=2, quota=2.0)
    monkeypatch.setattr("simnmt.calibrate.processor_use.others_cpus", lambda: others)
    assert box.usable_cpus == 2 and profile_assembly.state(box).busy is busy
    assert (doctor.load_finding(box, others).status == "warning") is busy

    class Watch:
        def others_cpus(self) -> float:
            return others

    guard = RoundGuard(lambda: 1.0, watch=Watch, box=box)  # type: ignore[arg-type]
    assert guard.measure(lambda checkpoint: 0).checks[0].busy is busy


BOX = BoxDescription(machine="x86_64", system="Linux", logical_cores=2, load_average=(3.0, 1.0, 1.0), governor="performance")


@pytest.mark.parametrize(("others", "warned"), [(0.05, False), (1.5, True), (None, False)])
def test_a_box_is_busy_by_what_others_do_now_and_not_by_what_we_did_before(
    monkeypatch: pytest.MonkeyPatch, others: float | None, warned: bool
) -> None:
    """A load average of 3 is what our own last calibration leaves behind."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: others)
    state = profile_assembly.state(BOX)
    block = profile_assembly.conditions_block([state], state, None, [])
    assert (block.load_average, block.others_cpus) == (3.0, others)
    assert block.busy is warned
    message = "the box was busy: other programs used 1.5 CPUs before or after the run (repeat on a quiet box)"
    assert profile_assembly.busy_warnings([state, state], "the run") == ([message] if warned else [])


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
