"""Calibrations where one was before: a journal gone on with, a profile completed or replaced, and what neither takes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import profile_assembly
from simnmt.calibrate.journal import journal_path
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.doubts import alone_vs_plane
from simnmt.profile.profile_file import read_profile
from simnmt.profile.profile_variant import with_decoder
from tests.calibrate.engines import QUICK, FakeEngine
from tests.calibrate.test_decoder_variants import Torchlike


@pytest.mark.parametrize("stop_at", [45, 90])
def test_interrupted_it_keeps_what_it_has_and_the_same_call_goes_on(measured: Any, tmp_path: Path, stop_at: int) -> None:
    """Whatever stood at --out stays until the new profile is whole."""
    older = measured().profile
    stopped = FakeEngine(noise=0.0, stop_at=stop_at)
    with pytest.raises(KeyboardInterrupt):
        measured(replace(QUICK, seed=1), stopped)
    assert stopped.closed
    assert read_profile(tmp_path / "box.json") == older
    assert journal_path(tmp_path / "box.json").is_file()
    heard: list[str] = []

    class Ear:
        def say(self, text: str) -> None:
            heard.append(text)

        def measured(self, part: str, done_s: float, left_s: float) -> None:
            pass

    rest = FakeEngine(noise=0.0)
    done = measured(replace(QUICK, seed=1), rest, listener=Ear())
    assert done.replaced
    assert re.match(r"going on from .*box\.json\.journal\.jsonl", heard[0])
    assert done.profile.conditions.model_extra["sessions"] == 2
    assert not journal_path(tmp_path / "box.json").exists()
    at_once = measured(replace(QUICK, seed=1), FakeEngine(noise=0.0)).profile
    assert done.profile.execution == at_once.execution
    assert (done.profile.step, done.profile.encoder) == (at_once.step, at_once.encoder)


def test_other_settings_do_not_go_on_with_the_journal(measured: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(engine=FakeEngine(stop_at=60))
    kept = journal_path(tmp_path / "box.json").read_bytes()
    with pytest.raises(CalibrationError, match=re.escape("settings.seed 0, this measurement 5")):
        measured(replace(QUICK, seed=5))
    with pytest.raises(CalibrationError, match=r"engine\.versions\.abacus"):
        measured(engine=FakeEngine(versions={"abacus": "3.1"}))
    assert journal_path(tmp_path / "box.json").read_bytes() == kept


def test_single_parts_complete_a_profile_of_the_same_engine(measured: Any) -> None:
    whole = measured(replace(QUICK, parts=("execution", "step", "overheads")), FakeEngine(gap_s=0.001)).profile
    assert whole.disk is None
    done = measured(replace(QUICK, parts=("disk", "overheads"))).profile
    for kept in ("execution", "valid_range", "engine", "step"):
        assert getattr(done, kept) == getattr(whole, kept)
    assert done.disk is not None
    assert done.overheads["step_gap_s"] == whole.overheads["step_gap_s"]
    assert done.conditions.drift == whole.conditions.drift, "of the execution that is still in the profile"
    (later,) = done.conditions.later
    assert (later.parts, later.governor) == (("disk", "overheads"), "performance")
    assert done.provenance.source == f"{whole.provenance.source}; later: disk, overheads"


def test_variants_of_the_decoder_complete_a_profile_and_move_its_costs(measured: Any, tmp_path: Path) -> None:
    whole = measured(replace(QUICK, parts=("execution", "step"))).profile
    warned = measured(replace(QUICK, parts=("decoder",)), Torchlike()).warnings
    assert any("steps of the decoder's base took 0." in each for each in warned), "this engine is twice as fast as the other"
    done = read_profile(tmp_path / "box.json")
    assert (done.execution, done.step) == (whole.execution, whole.step)
    moved, choice = with_decoder(done, DecoderSettings(beam=5, fused=True))
    assert choice.how == "measured"
    assert moved.decoding_cost.steps_at(4)(3, 3) > done.decoding_cost.steps_at(4)(3, 3)


def test_steps_measured_again_bring_their_gap_and_refilling_and_touch_nothing_else(measured: Any) -> None:
    """A gap of single sentences that was wrong is replaced; the decision stays, though overheads are not measured again."""
    whole = measured(replace(QUICK, parts=("execution", "overheads")), FakeEngine(gap_s=0.1)).profile
    engine = FakeEngine(gap_s=0.001, gap_s_per_sentence=0.0001, refill_s=(0.002, 0.0003, 0.001, 0.0001), noise=0.0)
    done = measured(replace(QUICK, parts=("step",)), engine).profile
    for kept in ("valid_range", "engine", "disk", "energy"):
        assert getattr(done, kept) == getattr(whole, kept)
    assert (done.execution.fit, done.execution.samples) == (whole.execution.fit, whole.execution.samples)
    assert done.execution.plane == whole.execution.plane
    assert done.overheads["decision_s"] == whole.overheads["decision_s"]
    cost = done.decoding_cost
    pace = cost.leave_s / 0.001
    assert pace > 2.0, "whole executions were slower by their gap, and that is told"
    assert (cost.gap_s_fixed, cost.gap_s_per_sentence) == (pytest.approx(0.001 * pace), pytest.approx(0.0001 * pace))
    assert (cost.refill_s_fixed, cost.refill_s_per_sentence) == (pytest.approx(0.002 * pace), pytest.approx(0.0004 * pace))
    assert abs(alone_vs_plane(done)) < 1e-9


def test_completing_keeps_the_names_units_and_date_of_the_profile(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(QUICK, parts=("execution",), src_unit="char", tgt_unit="char")
    with monkeypatch.context() as patched:
        patched.setattr(profile_assembly, "now", lambda: "2020-02-02T02:02:02+00:00")
        whole = measured(settings, name="kitchen", device_name="the old laptop").profile
    done = measured(replace(QUICK, parts=("overheads",))).profile
    for kept in ("name", "device", "model", "length_unit", "engine"):
        assert getattr(done, kept) == getattr(whole, kept), kept
    assert done.provenance.date == "2020-02-02T02:02:02+00:00", "the execution's"
    assert (done.conditions.later[0].date or "") > "2026"
    done = measured(replace(QUICK, parts=("overheads",), tgt_unit="char"), name="cellar", device_name="a new one").profile
    assert (done.name, done.device.name, done.device.details) == ("cellar", "a new one", whole.device.details)
    assert done.length_unit.model_dump() == {"src": "char", "tgt": "char", "end_of_sentence": "both"}
    assert len(done.conditions.later) == 2, "a second completion does not drop the first"


def test_single_parts_of_another_engine_do_not(measured: Any) -> None:
    measured(replace(QUICK, parts=("execution",)))
    with pytest.raises(CalibrationError, match="the profile to complete is of compute_type 'float32', this is 'int8'"):
        measured(replace(QUICK, parts=("step",)), FakeEngine(compute_type="int8"))


def test_on_a_box_whose_speed_wanders_whole_executions_and_their_parts_agree(measured: Any) -> None:
    """By 15 % up and down over the measurement; benches one after another met speeds that differed by up to a fifth."""
    wandering = FakeEngine(
        noise=0.005, gap_s=0.0002, refill_s=(0.003, 0.0, 0.0, 0.0), disturbance=lambda call: 1.0 + 0.15 * math.sin(call / 250)
    )
    done = measured(Settings("gru", threads=1, parts=("execution", "step")), wandering).profile
    assert done.decoding_cost.gap_s_fixed == pytest.approx(0.0002, rel=0.1)
    assert abs(alone_vs_plane(done)) < 1e-9
