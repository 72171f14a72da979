"""One model of a sentence alone: what it makes of parts that were measured at another pace, and of parts that agree."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from simnmt.base.shipped_files import find
from simnmt.calibrate.fits import fit_grid
from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import alone_vs_plane
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.profile_file import checked_profile, read_profile
from simnmt.profile.profile_summary import as_json, facts, percent
from simnmt.profile.reconciliation import reconcile
from tests.profile.made_profile import whole_profile

LENGTHS = (2, 5, 10, 20, 40, 80)
BATCHES = (1, 2, 4, 8, 16, 32)
OVERHEADS = {"step_gap_s": 2e-4, "step_gap_s_per_sentence": 1e-5, "refill_s_fixed": 3e-4, "leave_s": 1e-4}


@cache
def measured(slower: float = 1.0, step_1: float = 1.0, bend: float = 0.0) -> DeviceProfile:
    """Whole executions of a made-up box, and their parts measured while it was `slower` times as slow.

    `step_1` multiplies steps of one sentence alone, in whole executions too; `bend` the first positions of the parts' only.
    """
    batch, position = (each.ravel() for each in np.meshgrid(BATCHES, LENGTHS))
    alone = np.where(batch == 1, step_1, 1.0)
    step_s = slower * alone * (0.003 + 1e-4 * batch + 2e-6 * position) * np.where(position < 10, 1.0 + bend, 1.0)
    encode_s = slower * (0.002 + 1e-4 * batch + 1e-4 * position)
    src, tgt = (each.ravel() for each in np.meshgrid(LENGTHS, LENGTHS))
    steps_s = step_1 * (
        0.0031 * tgt + 2e-6 * (np.maximum(np.arange(tgt.max()), 2)[:, None] * (np.arange(tgt.max())[:, None] < tgt)).sum(0)
    )
    time_s = 0.0021 + 1e-4 * np.maximum(src, 2) + steps_s + 2.1e-4 * tgt + 4e-4
    found = fit_execution(src, tgt, time_s, mode="full_grid")
    content: dict[str, Any] = whole_profile()
    execution = found.model_copy(update={"samples": cell_samples(src, tgt, time_s)})
    content["execution"] = execution.model_dump(mode="json")
    content["step"] = fit_grid(StepBlock, batch, position, step_s).model_dump(mode="json")
    content["encoder"] = fit_grid(EncoderBlock, batch, position, encode_s).model_dump(mode="json")
    content["overheads"] = {name: {"value": slower * second, "kind": "measured"} for name, second in OVERHEADS.items()}
    return checked_profile(content)


def _coefficients(plane: Any) -> list[float]:
    return [plane.s_per_src_token, plane.s_per_tgt_token, plane.s_fixed]


def test_parts_that_agree_with_whole_executions_do_not_change() -> None:
    before = measured()
    after = reconcile(before, kind="measured")
    block = after.reconciliation
    assert block is not None and block.kind == "measured"
    assert block.pace == pytest.approx(1.0, abs=1e-3)
    assert block.largest_change < 2e-3 and block.error < 1e-3
    assert after.decoding_cost.steps_at(8)(0, 20) == pytest.approx(before.decoding_cost.steps_at(8)(0, 20), rel=1e-3)
    assert after.plane.seconds(20, 20) == pytest.approx(before.plane.seconds(20, 20), rel=2e-3)


@pytest.mark.parametrize("slower", [0.8, 1.25])
def test_a_box_that_was_slower_while_parts_were_measured_is_set_to_the_pace_of_whole_executions(slower: float) -> None:
    true, before = measured(), measured(slower)
    assert abs(alone_vs_plane(before) or 0.0) > 0.15
    after = reconcile(before, kind="inferred")
    assert after.reconciliation is not None
    assert after.reconciliation.pace == pytest.approx(1.0 / slower, rel=2e-3)
    assert abs(alone_vs_plane(after) or 1.0) < 0.005
    for batch in (1, 8, 32):
        assert after.decoding_cost.steps_at(batch)(0, 30) == pytest.approx(true.decoding_cost.steps_at(batch)(0, 30), rel=3e-3)
    assert after.decoding_cost.encode_s([20] * 8) == pytest.approx(true.decoding_cost.encode_s([20] * 8), rel=3e-3)
    assert after.decoding_cost.refill_s(1) == pytest.approx(true.decoding_cost.refill_s(1), rel=2e-3)
    assert after.reconciliation.measured_plane == before.execution.plane


def test_steps_of_one_sentence_cost_the_measured_time_even_if_the_line_over_batches_misses_it() -> None:
    """From one row to two the kernel changes: the linear form is off at batch 1, the reconciled costs are not."""
    before = measured(step_1=0.8)
    step = before.step
    assert step is not None and step.coefficients is not None
    forced = before.model_copy(update={"step": step.model_copy(update={"form": "linear"})})
    assert abs(alone_vs_plane(forced) or 0.0) > 0.02
    after = reconcile(forced, kind="measured")
    assert abs(alone_vs_plane(after) or 1.0) < 0.005
    assert after.decoding_cost.steps_at(16)(0, 9) == pytest.approx(forced.decoding_cost.steps_at(16)(0, 9), rel=5e-3)
    moved = after.decoding_cost.step
    assert moved.seconds([1, 2], 5)[0] == pytest.approx(moved.at_batch(1).sum_s()(5, 5), rel=1e-14)
    assert moved.sum_s(1, 5, 5) == pytest.approx(moved.at_batch(1).sum_s()(5, 5), rel=1e-14)


def test_single_positions_that_were_disturbed_are_mended_by_whole_executions() -> None:
    true, before = measured(), measured(bend=0.3)
    after = reconcile(before, kind="measured")
    assert after.reconciliation is not None and after.reconciliation.largest_change > 0.02
    off = [abs(each.decoding_cost.solo_s(20, 20) / true.decoding_cost.solo_s(20, 20) - 1.0) for each in (before, after)]
    assert off[1] < 0.4 * off[0]
    assert abs(alone_vs_plane(after) or 1.0) < abs(alone_vs_plane(before) or 0.0)


def test_an_incomplete_profile_is_not_changed_and_none_is_reconciled_twice() -> None:
    whole = measured(1.1)
    for lacks in ({"step": None}, {"encoder": None}, {"execution": whole.execution.model_copy(update={"samples": ()})}):
        poorer = whole.model_copy(update=lacks)
        assert reconcile(poorer, kind="inferred") is poorer
    assert alone_vs_plane(whole.model_copy(update={"step": None})) is None
    with pytest.raises(ValueError, match="reconciled already"):
        reconcile(reconcile(whole, kind="inferred"), kind="inferred")


def test_measurements_that_contradict_each_other_give_a_pace_and_positive_costs() -> None:
    before = measured()
    samples = before.execution.samples
    wild = [
        each.model_copy(
            update={"min_s": second, "median_s": second, "mean_s": second, "p25_s": None, "p75_s": None, "p95_s": None}
        )
        for each, second in zip(samples, np.geomspace(1e-4, 10.0, len(samples))[::-1].tolist(), strict=True)
    ]
    spoilt = before.model_copy(update={"execution": before.execution.model_copy(update={"samples": tuple(wild)})})
    after = reconcile(spoilt, kind="inferred")
    assert after.reconciliation is not None and after.reconciliation.pace > 0.0
    assert min(after.step.alone_s or (0.0,)) > 0.0 if after.step else False
    assert after.reconciliation.error > 0.5, "and the error says so"


def test_inspect_shows_the_difference_of_a_sentence_alone_from_the_plane() -> None:
    profile = read_profile(find("calibration", "@cpu1-bilstm"))
    stated = as_json(profile)["alone_vs_plane"]
    assert stated == alone_vs_plane(profile) and abs(stated) <= 0.02
    lines = dict(facts(profile))
    assert f"{100 * stated:+.2f} % against the plane" in lines["sentence alone"]
    assert profile.reconciliation is not None and f"{profile.reconciliation.pace:.4g}" in lines["reconciliation"]
    inferred = read_profile(find("calibration", "@tx2-gru"))
    assert as_json(inferred)["alone_vs_plane"] is None and "sentence alone" not in dict(facts(inferred))


def test_errors_are_named_with_the_plane_that_they_are_of() -> None:
    """The plane of a reconciled profile is derived and has its own error; fit and held-out errors are of another plane."""
    before = measured()
    after = reconcile(before, kind="measured")
    assert after.reconciliation is not None
    alone, derived = dict(facts(before)), dict(facts(after))
    fitted = "of the plane fitted to whole executions alone"
    assert fitted not in alone["execution error"] + alone["execution fit"]
    assert derived["execution error"] == (
        f"{percent(after.reconciliation.plane_error)} off whole executions, 36 cells; {fitted}: {alone['execution error']}"
    )
    assert derived["execution fit"] == f"{fitted}; {alone['execution fit']}"
