"""The measuring loop on a box made of numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from simnmt.calibrate.journal import Journal
from simnmt.calibrate.measurement import Measured, Silent, measure
from simnmt.calibrate.plan import (
    LEAST_ROUNDS,
    ROUNDS,
    batches,
    plan_benches,
    plan_execution,
    plan_rounds,
)
from simnmt.calibrate.settings import Settings
from tests.calibrate.engines import PLANE, FakeEngine


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.progress: list[tuple[str, float, float]] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def measured(self, part: str, done_s: float, left_s: float) -> None:
        self.progress.append((part, done_s, left_s))


Opener = Callable[..., Journal]
QUICK = Settings("gru", mode="quick")


def cells_s(measured: Measured, bench: str = "execution") -> dict[Any, float]:
    return {cell.work: min(cell.total_s) for cell in measured.cells[bench]}


def test_each_cell_is_timed_as_often_as_planned_and_its_least_time_is_near_the_truth(open_journal: Opener) -> None:
    plan = plan_execution(QUICK)
    measured = measure(FakeEngine(), [plan], open_journal(), Silent)
    a, b, c = PLANE
    for cell in measured.cells["execution"]:
        work = cell.work
        assert len(cell.total_s) == plan.works.count(work)
        truth_s = a * work.src_len + c + b * sum(1 + 0.001 * position for position in range(work.tgt_len))
        assert truth_s <= min(cell.total_s) <= 1.004 * truth_s
        assert not cell.disturbed
    assert measured.repeated == 0


def test_the_engine_is_warm_before_anything_counts(open_journal: Opener) -> None:
    """The first calls of every batch size are ten times too slow, and nobody notices."""
    plans = plan_benches(QUICK, None, tells_steps=True)
    met: dict[int, int] = {}

    class Cold(FakeEngine):
        def run(self, work: Any) -> Any:
            met[work.batch] = met.get(work.batch, 0) + 1
            self._disturbance = lambda _: 10.0 if met[work.batch] <= 2 else 1.0
            return super().run(work)

    measured = measure(Cold(noise=0.0), plans, open_journal(), Silent)
    assert measured.drift.largest == pytest.approx(0.0, abs=1e-12)
    for cells in measured.cells.values():
        for cell in cells:
            assert max(cell.total_s) == pytest.approx(min(cell.total_s))


def test_a_disturbed_stretch_is_measured_again_and_only_the_calm_repeats_count(open_journal: Opener) -> None:
    plan = plan_execution(QUICK)
    heard = Heard()
    engine = FakeEngine(noise=0.0, disturbance=lambda call: 1.5 if 12 <= call < 24 else 1.0)
    measured = measure(engine, [plan], open_journal(), heard)
    quiet = measure(FakeEngine(noise=0.0), [plan], open_journal("quiet"), Silent)
    assert measured.repeated >= 1
    assert cells_s(measured) == pytest.approx(cells_s(quiet))
    assert all(max(cell.total_s) == pytest.approx(min(cell.total_s)) for cell in measured.cells["execution"])
    assert any("disturbed by more than 5 %, measured again" in line for line in heard.lines)


def test_a_box_that_never_calms_down_is_not_measured_for_ever_and_a_message_says_so(open_journal: Opener) -> None:
    plan = plan_execution(QUICK)
    engine = FakeEngine(noise=0.0, disturbance=lambda call: 1.0 + 0.4 * (call // 13 % 2))
    measured = measure(engine, [plan], open_journal(), Silent)
    assert len(engine.calls) < 3 * (len(plan.works) + 3 * len(plan.stretches) + 3)
    assert any(cell.disturbed for cell in measured.cells["execution"])
    assert len(measured.cells["execution"]) == 10, "what is disturbed is kept all the same"


@pytest.mark.parametrize("most_batch", [1, 5, 16])
def test_batches_beyond_the_memory_are_left_out_and_larger_ones_not_tried(open_journal: Opener, most_batch: int) -> None:
    plan = plan_rounds(Settings("gru", parts=("step",)), tells_steps=True)
    heard = Heard()
    engine = FakeEngine(most_batch=most_batch)
    measured = measure(engine, [plan], open_journal(), heard)
    assert {cell.work.batch for cell in measured.cells["step"]} == {b for b in batches(Settings("gru")) if b <= most_batch}
    left_out = {work.batch for work in measured.too_large["step"]}
    assert left_out == {b for b in batches(Settings("gru")) if b > most_batch}
    assert sum(work.batch > most_batch for work in engine.calls) <= 2 * len(left_out), "each at most once by each bench"
    assert sum("out of memory" in line for line in heard.lines) == sum(work.batch > most_batch for work in engine.calls)


@pytest.mark.parametrize("stop_at", [0, 1, 4, 10, 37, 60])
def test_interrupted_anywhere_nothing_is_measured_twice(open_journal: Opener, stop_at: int) -> None:
    plans = plan_benches(QUICK, None, tells_steps=True)
    whole = FakeEngine(noise=0.0)
    all_at_once = measure(whole, plans, open_journal("whole"), Silent)
    first, second = FakeEngine(noise=0.0, stop_at=stop_at), FakeEngine(noise=0.0)
    kept = open_journal()
    with pytest.raises(KeyboardInterrupt):
        measure(first, plans, kept, Silent)
    kept.close()
    resumed = measure(second, plans, open_journal(), Silent)
    assert resumed.cells == all_at_once.cells
    warm_ups_and_a_cut_reading = 2 * len(batches(QUICK)) + 3
    assert len(first.calls) + len(second.calls) <= len(whole.calls) + warm_ups_and_a_cut_reading


def test_a_journal_that_holds_all_needs_no_engine(open_journal: Opener) -> None:
    plans = plan_benches(QUICK, None, tells_steps=True)
    kept = open_journal()
    once = measure(FakeEngine(disturbance=lambda call: 1.4 if call in range(20, 40) else 1.0), plans, kept, Silent)
    kept.close()
    idle = FakeEngine(stop_at=0)
    again = measure(idle, plans, open_journal(), Silent)
    assert idle.calls == []
    assert again.cells["execution"] and {name: len(cells) for name, cells in again.cells.items()} == {
        name: len(cells) for name, cells in once.cells.items()
    }
    for bench in once.cells:
        assert cells_s(again, bench) == cells_s(once, bench)
    assert again.drift == once.drift


def test_what_found_no_memory_is_tried_again_in_another_sitting(open_journal: Opener) -> None:
    plan = plan_rounds(replace(QUICK, parts=("step",)), tells_steps=True)
    kept = open_journal()
    measure(FakeEngine(most_batch=4), [plan], kept, Silent)
    kept.close()
    roomier = FakeEngine()
    measured = measure(roomier, [plan], open_journal(), Silent)
    assert measured.too_large["step"] == []
    assert {work.batch for work in roomier.calls} == {7, 8, 10, 16}


def test_time_left_falls_to_nothing_and_is_right_from_the_second_round_on(open_journal: Opener) -> None:
    heard = Heard()
    plans = plan_benches(Settings("gru"), None, tells_steps=True)
    quick = tuple(0.4 * part for part in PLANE)
    measure(FakeEngine(quick, noise=0.0), [plans[0]], open_journal(), heard)
    done = heard.progress[-1][1]
    foretold = re.fullmatch(r"about (\d+) s of measuring, by the reference cell", heard.lines[0])
    assert foretold
    assert float(foretold[1]) == pytest.approx(done, rel=0.4)
    assert heard.progress[-1][2] == 0.0
    later = heard.progress[len(heard.progress) // 4 :]
    for _, done_s, left_s in later:
        assert left_s <= 1.001 * (done - done_s), "readings of the reference come on top"
        assert left_s >= 0.85 * (done - done_s) - 1.0


def test_a_quick_calibration_of_a_slow_model_measures_nothing_again_beyond_its_minute(open_journal: Opener) -> None:
    plan = plan_execution(QUICK)
    slow = tuple(4 * part for part in PLANE)
    heard = Heard()
    engine = FakeEngine(slow, noise=0.0, disturbance=lambda call: 1.5 if 12 <= call < 24 else 1.0)
    measured = measure(engine, [plan], open_journal(), heard)
    assert measured.repeated == 0
    assert any("measuring again would take another" in line for line in heard.lines)
    assert any(cell.disturbed or len(cell.total_s) < 4 for cell in measured.cells["execution"])


def test_a_full_calibration_may_be_measured_again_for_a_part_of_its_own_time(open_journal: Opener) -> None:
    """However long the rounds before took: disturb a few stretches late in the last one."""
    slow = tuple(4 * part for part in PLANE)
    plans = plan_benches(Settings("gru"), None, tells_steps=True)
    quiet = FakeEngine(slow, noise=0.0)
    measure(quiet, plans, open_journal("quiet"), Silent)
    late = len(quiet.calls) - 40
    engine = FakeEngine(slow, noise=0.0, disturbance=lambda call: 1.5 if late <= call < late + 20 else 1.0)
    measured = measure(engine, plans, open_journal(), Silent)
    assert sum(sum(cell.total_s) for cells in measured.cells.values() for cell in cells) > 200.0
    assert measured.repeated >= 1
    assert not any(cell.disturbed for cells in measured.cells.values() for cell in cells)


def test_every_inference_of_the_paper_counts_just_once_however_disturbed(open_journal: Opener) -> None:
    """Common lengths must not lose draws, nor rare ones gain them: their shares are the lengths' distribution."""
    drawn = [(5, 5 + number % 3) if number % 50 else (9, 40) for number in range(400)]
    plan = plan_execution(Settings("gru", mode="paper", parts=("execution",)), drawn)
    engine = FakeEngine(noise=0.0, disturbance=lambda call: 1.5 if call > 450 or 60 <= call < 130 else 1.0)
    measured = measure(engine, [plan], open_journal(), Silent)
    assert measured.repeated >= 1
    counts = {(cell.work.src_len, cell.work.tgt_len): len(cell.total_s) for cell in measured.cells["execution"]}
    assert counts == Counter(drawn)


def test_the_clock_is_read_with_each_reading_of_the_reference_and_kept_over_an_interruption(open_journal: Opener) -> None:
    plan = plan_execution(QUICK)
    kept = open_journal()
    speeds = iter(range(1000, 2000))
    first = measure(FakeEngine(), [plan], kept, Silent, frequency_mhz=lambda: float(next(speeds)))
    kept.close()
    assert first.frequencies_mhz == tuple(float(1000 + number) for number in range(1 + len(plan.stretches)))
    again = measure(FakeEngine(stop_at=0), [plan], open_journal(), Silent, frequency_mhz=lambda: None)
    assert again.frequencies_mhz == first.frequencies_mhz


def test_a_slow_model_has_as_many_rounds_as_there_is_time_for_and_the_least_number_at_least(open_journal: Opener) -> None:
    """Each round holds all benches, so that what is there of whole and parts is of the same minutes."""
    plans = plan_benches(Settings("gru"), None, tells_steps=True)
    repeats = {}
    for slower in (0.4, 4, 40):
        heard = Heard()
        engine = FakeEngine(tuple(slower * part for part in PLANE), noise=0.0)
        kept = open_journal(f"slower-{slower}")
        measured = measure(engine, plans, kept, heard)
        kept.close()
        (repeats[slower],) = {len(cell.timings) for cell in measured.cells["execution"]}
        assert {len(cell.timings) for cell in measured.cells["step"] if cell.work.batch <= 32} == {repeats[slower]}
        assert any("it is left out" in line for line in heard.lines) == (repeats[slower] < ROUNDS)
        again = measure(FakeEngine(stop_at=0), plans, open_journal(f"slower-{slower}"), Silent)
        assert again.cells == measured.cells, "gone on with from its journal, it stops where it stopped"
    assert repeats[0.4] == ROUNDS > repeats[4] >= LEAST_ROUNDS == repeats[40]
