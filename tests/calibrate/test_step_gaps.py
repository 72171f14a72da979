"""The gap between steps by batch size, and what refilling costs: known truths are found again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest

from simnmt.calibrate.batch_corrections import mixed_encodings, padding_share, per_row_src_token_s, source_pairs
from simnmt.calibrate.cost_blocks import gap_overheads, lone_gap_overheads
from simnmt.calibrate.fits import fit_grid
from simnmt.calibrate.measurement import Measured, Silent, measure
from simnmt.calibrate.overheads import refill_overheads
from simnmt.calibrate.plan import plan_benches
from simnmt.calibrate.settings import Settings
from simnmt.nmt.errors import OutOfMemory
from simnmt.profile.blocks import EncoderBlock, Overhead, StepBlock
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


SETTINGS = Settings("gru")


def token_s(batch: int) -> float:
    return 0.0001 + 2e-5 * batch


CELLS = [(batch, src_len, 0.001 + src_len * token_s(batch)) for batch in (1, 8, 32) for src_len in (4, 12, 100)]
STEP, ENCODER = fit_grid(StepBlock, [1, 8, 32], [0, 0, 0], [1.0, 2.0, 3.0]), fit_grid(EncoderBlock, *zip(*CELLS, strict=True))


class Encoding(FakeEngine):
    """Pays a share of the padding; what each token of the source costs is summed one by one."""

    def __init__(self, share: float, kind: str = "gru", most_batch: int = 99) -> None:
        super().__init__(architecture={"kind": kind})
        self._share, self._most = share, most_batch

    def encoding_s(self, src_lens: Sequence[int]) -> float:
        if len(src_lens) > self._most:
            raise OutOfMemory("no room")
        packed_s = sum(token_s(sum(each >= at for each in src_lens)) for at in range(1, max(src_lens) + 1))
        padded_s = max(src_lens) * token_s(len(src_lens))
        return 0.001 + packed_s + self._share * (padded_s - packed_s)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_share_of_the_padding_that_is_paid_is_found(share: float) -> None:
    mixed = mixed_encodings(Encoding(share), SETTINGS, 64)
    assert [len(src_lens) for src_lens, _ in mixed] == [8, 32]
    assert padding_share(mixed, STEP, ENCODER) == pytest.approx(share, abs=1e-9)


def test_noise_makes_no_share_below_nothing_or_above_all() -> None:
    mixed = mixed_encodings(Encoding(0.0), SETTINGS, 64)
    for factor, share in ((0.5, 0.0), (9.0, 1.0)):
        assert padding_share([(each, factor * seconds) for each, seconds in mixed], STEP, ENCODER) == share


@pytest.mark.parametrize("engine", [FakeEngine(), Encoding(0.3, kind="transformer"), Encoding(0.3, most_batch=4)])
def test_where_nothing_is_packed_or_fits_no_share_is_known(engine: Any) -> None:
    assert padding_share(mixed_encodings(engine, SETTINGS, 64), STEP, ENCODER) is None


def test_small_batches_and_short_sources_are_kept_to() -> None:
    found = mixed_encodings(Encoding(0.3), Settings("gru", max_src_len=20), 8)
    assert [(len(src_lens), max(src_lens)) for src_lens, _ in found] == [(8, 20)]


LONG_SETTINGS = Settings("gru", parts=("step",))


@pytest.mark.parametrize("attention_s", [0.0, 2e-6])
def test_what_long_sources_add_is_found_on_a_box_with_neighbours(attention_s: float) -> None:
    """A third of the time twice as slow, and every tenth step once more, where the truth is 1 % to 6 % of a step."""
    box = FakeEngine(
        noise=0.001,
        growth=0.0,
        attention_s=attention_s,
        disturbance=lambda call: (2.0 if call // 12 % 3 == 2 else 1.0) * (1.5 if call % 10 == 3 else 1.0),
    )
    found = source_pairs(box, LONG_SETTINGS, 64)
    assert [(batch, more) for batch, more, _ in found] == [(8, 60), (32, 60), (64, 60)]
    value, note = per_row_src_token_s(found)
    assert value == pytest.approx(attention_s, rel=0.05, abs=5e-8)
    assert "of 138 pairs at least; fitted within" in note


def test_a_growth_of_steps_that_is_not_by_rows_shows_in_the_error() -> None:
    pairs = [(8, 60, [(1.0, 1.0)] * 3), (32, 60, [(1.0, 1.2)] * 3)]
    value, note = per_row_src_token_s(pairs)
    assert value is not None and 0.0 < value < 0.2 / (32 * 60)
    assert "0.0 % (0.0 % to 0.0 %) at batch 8, 20.0 % (20.0 % to 20.0 %) at batch 32" in note
    assert "fitted within 2.8 % of a step" in note


def test_a_shorter_step_under_long_sources_is_noise() -> None:
    assert per_row_src_token_s([(8, 60, [(1.0, 0.9)] * 3)])[0] == 0.0


@pytest.mark.parametrize(
    ("settings", "engine"),
    [({"mode": "quick"}, {}), ({"max_src_len": 20}, {}), ({}, {"tells_steps": False}), ({}, {"most_batch": 7})],
)
def test_without_longer_sources_or_steps_it_is_not_known_what_they_add(
    settings: dict[str, Any], engine: dict[str, Any]
) -> None:
    asked = Settings("gru", parts=("step",), **settings)
    assert per_row_src_token_s(source_pairs(FakeEngine(**engine), asked, 64)) == (None, "")


def test_what_has_no_room_is_left_out_and_a_slow_model_is_soon_done() -> None:
    assert [batch for batch, _, _ in source_pairs(FakeEngine(most_batch=40), LONG_SETTINGS, 64)] == [8, 32]
    seconds = count(step=30.0)
    ((_, _, pairs),) = source_pairs(FakeEngine(), LONG_SETTINGS, 8, clock=lambda: next(seconds))
    assert len(pairs) == 23
