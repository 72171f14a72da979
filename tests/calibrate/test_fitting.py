"""From measured cells to cost blocks: known truths are found again."""

from __future__ import annotations

from typing import Any

import pytest

from simnmt.calibrate.cells import FITTED, JUDGING
from simnmt.calibrate.parts.execution import execution_block
from simnmt.calibrate.parts.step import encoder_block, step_block
from simnmt.calibrate.settings import Settings
from simnmt.profile.origin import ValidRange
from tests.calibrate.engines import PLANE, FakeEngine


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


def test_paper_mode_fits_all_inferences_by_ordinary_least_squares(parts: Any) -> None:
    settings = Settings("gru", mode="paper", parts=("execution",))
    drawn = [(1 + number * 7 % 50, 1 + number * 11 % 43) for number in range(600)]
    timings = parts(settings, drawn=drawn)
    block = timings.bench.blocks["execution"]
    assert block.fit.inferences == 600
    # Figure 2a of C-NMT: means and their spread over the output length.
    assert [row.tgt_len for row in block.samples] == list(range(1, 44))
    assert sum(row.repeats for row in block.samples) == 600
    assert block.plane.s_per_src_token == pytest.approx(PLANE[0], rel=0.05)
    assert timings.bench.blocks["valid_range"] == ValidRange(src_len=(1, 50), tgt_len=(1, 43))


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


def test_one_batch_size_makes_no_cost(parts: Any) -> None:
    timings = parts(Settings("gru", parts=("step",)), most_batch=1)
    assert (timings.bench.blocks["step"], timings.bench.blocks["encoder"]) == (None, None)
    assert sum("fewer than two batch sizes" in remark for remark in timings.bench.remarks) == 2


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


def test_the_ratio_of_whole_runs_to_usual_steps_is_recorded(parts: Any) -> None:
    """One step in sixteen takes nine times as long: medians do not see it, runs take one and a half times as long."""
    timings = parts(Settings("gru", parts=("step",), max_batch=8), noise=0.0, growth=0.0)
    steps = timings.rows("step")
    spoilt = [tuple(s * (9 if at % 16 == 8 else 1) for at, s in enumerate(steps_s)) for steps_s in steps["steps_s"]]
    calm, block = (step_block(rows) for rows in (steps, steps.assign(steps_s=spoilt)))
    assert calm is not None and block is not None
    assert calm.run_over_predicted == pytest.approx(1.0, rel=1e-3)
    assert block.run_over_predicted == pytest.approx(1.5, rel=0.15)
