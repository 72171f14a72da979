"""The gap between steps by batch size, and what refilling costs: known truths are found again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from simnmt.calibrate.cost_blocks import gap_overheads, lone_gap_overheads
from simnmt.calibrate.measurement import Measured, Silent, measure
from simnmt.calibrate.overheads import refill_overheads
from simnmt.calibrate.plan import plan_benches
from simnmt.calibrate.settings import Settings
from simnmt.profile.blocks import Overhead
from tests.calibrate.engines import FakeEngine

REFILL = (0.0007, 2e-5, 0.0003, 1e-5)
"""Of joining and of leaving, fixed and for each sentence."""
STEPS = Settings("gru", parts=("step",), max_batch=32)


@pytest.fixture
def measured(open_journal: Callable[..., Any]) -> Callable[..., Measured]:
    def run(settings: Settings = STEPS, **engine: Any) -> Measured:
        plans = plan_benches(settings, None, tells_steps=engine.get("tells_steps", True))
        return measure(FakeEngine(**engine), plans, open_journal(), Silent)

    return run


def gaps(timings: Measured) -> dict[str, Overhead]:
    return gap_overheads(timings.cells["step"], timings.cells["encoder"])


def test_the_gap_grows_with_the_batch_and_holds_nothing_that_happens_once(measured: Any) -> None:
    """A call takes 3 ms once: over 64 steps a fifth of the gap, had it stayed in."""
    overheads = gaps(measured(noise=0.0, gap_s=0.0002, gap_s_per_sentence=3e-5))
    assert overheads["step_gap_s"].value == pytest.approx(0.0002, rel=1e-6)
    assert overheads["step_gap_s_per_sentence"].value == pytest.approx(3e-5, rel=1e-6)
    assert "error 0.0 % on batch sizes 7, 10, 20, never fitted" in overheads["step_gap_s"].note


def test_a_gap_that_is_not_linear_in_the_batch_shows_in_the_error(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeEngine.run

    def twice_at_ten(self: FakeEngine, work: Any) -> Any:
        self._gap_s_per_sentence = 6e-5 if work.batch == 10 else 3e-5
        return run(self, work)

    monkeypatch.setattr(FakeEngine, "run", twice_at_ten)
    assert "error 16.7 %" in gaps(measured(noise=0.0, gap_s_per_sentence=3e-5))["step_gap_s"].note


def test_shortened_runs_give_the_same_gap(measured: Any) -> None:
    wide = Settings("gru", parts=("step",), max_batch=128, beam=5)
    overheads = gaps(measured(wide, noise=0.0, gap_s=0.0002, gap_s_per_sentence=3e-5))
    assert overheads["step_gap_s_per_sentence"].value == pytest.approx(3e-5, rel=1e-6)


def test_a_batch_whose_encoder_did_not_fit_gives_no_gap(measured: Any) -> None:
    """What a translation of one token takes beside its own is not known: the whole over the steps would be too much."""
    timings = measured(noise=0.0, gap_s=0.0002, gap_s_per_sentence=3e-5)
    encoders = [cell for cell in timings.cells["encoder"] if cell.work.batch < 24]
    gap = gap_overheads(timings.cells["step"], encoders)["step_gap_s_per_sentence"]
    assert gap.value == pytest.approx(3e-5, rel=1e-6)
    assert "batch 1 to 20" in gap.note


def test_no_gap_is_known_if_steps_are_not_reported(measured: Any) -> None:
    overheads = gaps(measured(tells_steps=False))
    assert [overhead.value for overhead in overheads.values()] == [None, None]
    assert "does not report its steps" in overheads["step_gap_s"].note


def test_single_sentences_do_not_determine_the_growth(measured: Any) -> None:
    alone = Settings("gru", mode="quick", parts=("execution",))
    overheads = lone_gap_overheads(measured(alone, noise=0.0, gap_s=0.0005).cells["execution"])
    assert overheads["step_gap_s"].value == pytest.approx(0.0005, abs=1e-12)
    assert overheads["step_gap_s_per_sentence"].value is None
    assert "single sentences" in overheads["step_gap_s_per_sentence"].note


def test_refilling_is_measured_up_to_the_largest_batch() -> None:
    engine = FakeEngine(refill_s=REFILL)
    overheads = refill_overheads(engine, STEPS, 32)
    assert overheads["refill_s_fixed"].value == pytest.approx(0.0007)
    assert overheads["refill_s_per_sentence"].value == pytest.approx(3e-5), "each leaves as it joined"
    assert overheads["leave_s"].value == pytest.approx(0.0003), "in each step with which some leave"
    assert set(engine.joinings) == {(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (32, 0)}, "never more than the batch"
    assert "1 to 32 sentences" in overheads["refill_s_fixed"].note


def test_refilling_is_fitted_to_the_batches_that_fit_into_memory() -> None:
    overheads = refill_overheads(FakeEngine(refill_s=REFILL, most_batch=9), STEPS, 32)
    assert "1 to 4 sentences" in overheads["refill_s_fixed"].note
    nothing = refill_overheads(FakeEngine(refill_s=REFILL, most_batch=1), STEPS, 32)
    assert (nothing["refill_s_fixed"].value, nothing["refill_s_fixed"].note) == (None, "out of memory")


def test_a_backend_that_never_refills_gives_no_costs_and_the_reason() -> None:
    overheads = refill_overheads(FakeEngine(), STEPS, 32)
    assert {(overhead.value, overhead.note) for overhead in overheads.values()} == {(None, "never refills a batch")}


def test_a_slow_model_is_refilled_in_one_pass_and_a_fast_one_in_three() -> None:
    for each_s, passes in ((40.0, 1), (0.1, 3)):
        engine, readings = FakeEngine(refill_s=REFILL), count()
        overheads = refill_overheads(engine, STEPS, 32, clock=lambda: each_s * next(readings))  # noqa: B023
        assert engine.joinings.count((1, 1)) == passes
        assert overheads["refill_s_fixed"].value == pytest.approx(0.0007)
