"""From measured cells to cost blocks: known truths are found again, judged on batch sizes left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simnmt.calibrate.parts import FITTED, JUDGING
from simnmt.calibrate.parts.execution import execution_block
from simnmt.calibrate.parts.step import encoder_block, fit_grid, fit_overhead, split_totals, step_block
from simnmt.calibrate.settings import Settings
from simnmt.profile.blocks import StepBlock
from tests.calibrate.engines import PLANE, FakeEngine
from tests.profile.made_profile import line_table

BATCH, POSITION = (axis.ravel() for axis in np.meshgrid([1, 2, 4, 8, 16, 32, 64], [0, 8, 32, 128]))
LINE = line_table((1, 64), (0, 128), 0.004, 1e-4, 2e-6, 1e-6)
STEP_S = LINE.seconds(BATCH, POSITION)


def test_a_device_that_is_flat_until_it_is_full_becomes_a_table() -> None:
    """FNI-18's point: small batches cost no less. No line is flat and then steep; the held-out batch sizes say so."""
    sizes = [1, 2, 4, 7, 8, 12, 16, 20, 24, 32, 40, 48, 64]
    batch, position = (axis.ravel() for axis in np.meshgrid(sizes, [0, 16, 64]))
    block = fit_grid(StepBlock, batch, position, np.maximum(0.004, 0.00025 * batch), judged_batches=(7, 20, 40))
    assert not {7, 20, 40} & {*block.batch} and block.heldout_how == "batch sizes 7, 20, 40, measured only to judge"
    assert block.heldout_error is not None and block.heldout_error < 0.02
    cost = block.cost
    assert cost.seconds([1, 8, 16, 64], 16) == pytest.approx([0.004, 0.004, 0.004, 0.016])
    assert cost.sum_s(32, 0, 99) == pytest.approx(100 * 0.008)


def test_a_batch_without_its_longest_length_stays_out_and_shorter_lengths_are_interpolated() -> None:
    known = (BATCH < 64) | (POSITION < 32)
    block = fit_grid(StepBlock, BATCH[known], POSITION[known], STEP_S[known])
    assert block.batch[-1] == 32 and len(block.seconds) == 6
    known = (BATCH != 4) | (POSITION != 32)
    block = fit_grid(StepBlock, BATCH[known], POSITION[known], STEP_S[known])
    assert block.cost.seconds(4, 32) == pytest.approx(LINE.seconds(4, 32))


LENGTHS = np.array([1, 2, 8, 32, 128])


def totals(fixed: float, first: float, per_position: float, tgt_len: np.ndarray) -> np.ndarray:
    """Step after step, as a device takes them."""
    return np.array([fixed + sum(first + per_position * at for at in range(length)) for length in tgt_len.tolist()])


@pytest.mark.parametrize("parts", [(0.002, 0.003, 1e-5), (0.0, 0.003, 1e-5), (0.002, 0.003, 0.0), (0.002, 0.0, 1e-5)])
def test_whole_translations_give_their_parts(parts: tuple[float, float, float]) -> None:
    assert split_totals(LENGTHS, totals(*parts, LENGTHS)) == pytest.approx(parts, rel=1e-9, abs=1e-12)


SIZES = np.array([1, 2, 4, 8, 16, 32, 64, 128])


def test_an_overhead_has_two_parts_neither_of_them_negative() -> None:
    """A cost that falls with the size is a fixed one, one from the origin grows alone."""
    fit = fit_overhead(SIZES, 0.0003 + 2e-5 * SIZES)
    assert (fit.s_fixed, fit.s_per_sentence) == (pytest.approx(0.0003), pytest.approx(2e-5))
    falling, steep = fit_overhead(SIZES, 0.001 / SIZES**0.1), fit_overhead(SIZES, 1e-5 * (SIZES - 0.5))
    assert falling.s_per_sentence == 0.0 < falling.s_fixed and steep.s_fixed == 0.0 < steep.s_per_sentence
    assert fit_overhead([1], [0.0004]).s_per_sentence == 0.0


@pytest.mark.parametrize(("mode", "kind", "cells"), [("quick", "six_cells", 10), ("full", "full_grid", 42)])
def test_the_plane_is_found_and_its_held_out_error_is_small(parts: Any, mode: Any, kind: str, cells: int) -> None:
    settings = Settings("gru", mode=mode)
    block = execution_block(parts(settings).rows("execution"), settings)
    assert block.plane.s_per_src_token == pytest.approx(PLANE[0], rel=0.05)
    # The step itself grows with the position: by 5 % over the grid's 100 tokens on average.
    assert block.plane.s_per_tgt_token == pytest.approx(PLANE[1], rel=0.05)
    fit = block.fit
    assert (fit.mode, fit.cells) == (kind, cells)
    assert fit.heldout_error < 0.025
    assert fit.r2_of_means_per_tgt_len > 0.99
    assert len(block.samples) == cells


@pytest.mark.parametrize("tells_steps", [True, False])
def test_step_and_encoder_costs_are_found_from_reported_or_split_times(parts: Any, tells_steps: bool) -> None:
    settings = Settings("gru", backend="torch" if tells_steps else "ctranslate2", parts=("step",))
    timings = parts(settings, tells_steps=tells_steps, noise=0.0005, growth=0.01)
    block = step_block(timings.rows("step"))
    assert block is not None
    assert block.batch == FITTED[:13]
    assert sorted({batch for batch, _, _ in block.judged_cells}) == list(JUDGING[:4])
    assert (block.run_over_predicted is not None) == tells_steps
    assert block.position[0] == 0
    truth, cost = FakeEngine(growth=0.01), block.cost
    for batch in (1, 5, 16, 64):
        for position in (10, 30, 50):
            assert float(cost.seconds(batch, position)) == pytest.approx(truth.step_s(batch, position), rel=0.02)
    assert block.heldout_error is not None
    assert block.heldout_error < 0.1
    encoder = encoder_block(timings.rows("encoder"), block)
    assert encoder is not None
    for batch, src_len in ((4, 12), (16, 50)):
        # By splitting, the encoder bears what happens once a call.
        truth_s = truth.encode_s(batch, src_len) + (0.0 if tells_steps else PLANE[2])
        assert float(encoder.cost.seconds(batch, src_len)) == pytest.approx(truth_s, rel=0.05)
    notes = " ".join((*block.notes, *encoder.notes))
    assert ("does not report" in notes) == (not tells_steps)


def test_quick_whole_translations_show_that_steps_grow_with_the_position(parts: Any) -> None:
    timings = parts(Settings("gru", backend="ctranslate2", mode="quick", parts=("step",)), tells_steps=False, growth=0.01)
    block, truth = step_block(timings.rows("step")), FakeEngine(growth=0.01)
    assert block is not None
    for batch in (1, 8, 16):
        assert float(block.cost.seconds(batch, 90)) == pytest.approx(truth.step_s(batch, 90), rel=0.05)


def test_steps_that_short_runs_did_not_reach_grow_as_those_of_a_smaller_batch(parts: Any) -> None:
    """Five hypotheses a sentence: from 26 sentences on runs end early, and the table is whole all the same."""
    settings = Settings("gru", parts=("step",), beam=5, max_batch=96)
    timings = parts(settings, noise=0.0, growth=0.01)
    block = step_block(timings.rows("step"))
    assert block is not None
    assert (block.batch[-1], block.position[-1]) == (96, 63)
    truth = FakeEngine(growth=0.01)
    for batch, row in zip(block.batch, block.seconds, strict=True):
        # A position stands for its neighbours too, the last for the six before it.
        assert row == pytest.approx([truth.step_s(batch, min(position, 60)) for position in block.position], rel=0.01)
    assert any("scaled from batch 24: of batch 32 (from 33 on)" in note for note in block.notes)
    assert {position for batch, position, _ in block.judged_cells if batch == 40} == {0, 1, 2, 4, 8, 16, 32}
