"""Costs of batches that were measured at another pace than whole executions, and of parts that agree with them (XP-01)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from simnmt.base.shipped_files import find
from simnmt.calibrate.fits import fit_grid
from simnmt.calibrate.profile_assembly import with_batches_at_pace
from simnmt.profile.blocks import EncoderBlock, StepBlock
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.doubts import alone_vs_plane
from simnmt.profile.execution_fit import cell_samples, fit_execution
from simnmt.profile.profile_file import checked_profile, read_profile
from simnmt.profile.profile_summary import as_json, facts
from tests.profile.made_profile import whole_profile

LENGTHS = (2, 5, 10, 20, 40, 80)
BATCHES = (1, 2, 4, 8, 16, 32)
OVERHEADS = {"step_gap_s": 2e-4, "step_gap_s_per_sentence": 1e-5, "refill_s_fixed": 3e-4, "leave_s": 1e-4}


@cache
def measured(slower: float = 1.0, step_1: float = 1.0) -> DeviceProfile:
    """Whole executions of a made-up box, and their parts measured while it was `slower` times as slow.

    `step_1` multiplies steps of one sentence alone, in whole executions too.
    """
    batch, position = (each.ravel() for each in np.meshgrid(BATCHES, LENGTHS))
    alone = np.where(batch == 1, step_1, 1.0)
    step_s = slower * alone * (0.003 + 1e-4 * batch + 2e-6 * position)
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


@pytest.mark.parametrize("slower", [0.8, 1.0, 1.25])
def test_costs_of_batches_are_set_to_the_pace_of_whole_executions(slower: float) -> None:
    true, before = measured(), measured(slower)
    after = with_batches_at_pace(before)
    assert after.execution == before.execution
    assert abs(alone_vs_plane(after) or 0.0) < 1e-9
    for batch in (1, 8, 32):
        assert after.decoding_cost.steps_at(batch)(0, 30) == pytest.approx(true.decoding_cost.steps_at(batch)(0, 30), rel=1e-2)
    assert after.decoding_cost.encode_s([20] * 8) == pytest.approx(true.decoding_cost.encode_s([20] * 8), rel=1e-2)
    assert after.decoding_cost.refill_s(1) == pytest.approx(true.decoding_cost.refill_s(1), rel=1e-2)
    assert with_batches_at_pace(after).decoding_cost.steps_at(8)(0, 9) == pytest.approx(after.decoding_cost.steps_at(8)(0, 9))


def test_steps_of_one_sentence_cost_the_measured_time_even_if_the_line_over_batches_misses_it() -> None:
    """From one row to two the kernel changes: the linear form is off at batch 1, the measured times are not."""
    before = measured(step_1=0.8)
    step = before.step
    assert step is not None and step.coefficients is not None
    forced = before.model_copy(update={"step": step.model_copy(update={"form": "linear"})})
    assert abs(alone_vs_plane(forced) or 0.0) > 0.02
    after = with_batches_at_pace(forced)
    assert after.decoding_cost.steps_at(16)(0, 9) == pytest.approx(forced.decoding_cost.steps_at(16)(0, 9), rel=1e-2)
    moved = after.decoding_cost.step
    assert moved.seconds([1, 2], 5)[0] == pytest.approx(moved.at_batch(1).sum_s()(5, 5), rel=1e-14)
    assert moved.sum_s(1, 5, 5) == pytest.approx(moved.at_batch(1).sum_s()(5, 5), rel=1e-14)


def test_an_incomplete_profile_is_not_changed() -> None:
    whole = measured(1.1)
    for lacks in ("step", "encoder"):
        poorer = whole.model_copy(update={lacks: None})
        assert with_batches_at_pace(poorer) is poorer and alone_vs_plane(poorer) is None


def test_inspect_shows_the_difference_of_a_sentence_alone_from_the_plane() -> None:
    profile = read_profile(find("calibration", "@cpu1-bilstm"))
    stated = as_json(profile)["alone_vs_plane"]
    assert stated == alone_vs_plane(profile) and abs(stated) <= 0.02
    assert f"{100 * stated:+.2f} % against the plane" in dict(facts(profile))["sentence alone"]
    inferred = read_profile(find("calibration", "@tx2-gru"))
    assert as_json(inferred)["alone_vs_plane"] is None and "sentence alone" not in dict(facts(inferred))
