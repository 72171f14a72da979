"""Whole calibrations of a box made of numbers: the profile, what spoils nothing else, what is refused, and later ones."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.base.shipped_files import find
from simnmt.calibrate import profile_assembly
from simnmt.calibrate.box import BoxDescription, BusyWatch
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.journal import journal_path
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.profile.device_profile import read_profile
from simnmt.profile.doubts import alone_vs_plane
from tests.calibrate.engines import PLANE, QUICK, FakeEngine

ALONE = replace(QUICK, parts=("execution",))


def test_the_profile_records_the_measurements_and_their_origin(measured: Any, tmp_path: Path) -> None:
    engine = FakeEngine()
    done = measured(engine=engine)
    profile = read_profile(tmp_path / "box.json")
    assert profile == done.profile
    assert (profile.name, profile.device.name) == ("box", "Abacus 3000, 1 thread")
    assert (profile.model.name, profile.model.vocab) == ("gru", 32_000)
    assert profile.length_unit.model_dump() == {"src": "word", "tgt": "word", "end_of_sentence": "both"}
    assert profile.valid_range.model_dump() == {"src_len": (1, 100), "tgt_len": (1, 100)}
    assert profile.execution.kind == "measured"
    assert profile.plane.s_per_tgt_token == pytest.approx(PLANE[1], rel=0.05)
    assert (profile.engine.weights, profile.engine.threads, profile.engine.beam) == ("random", 1, 1)
    assert profile.step is not None and profile.encoder is not None and profile.energy is None
    assert (profile.conditions.load_average, profile.conditions.governor) == (0.1, "performance")
    assert "random weights" in profile.provenance.source
    assert engine.closed
    assert [path.name for path in tmp_path.iterdir()] == ["box.json"], "the journal is gone"
    assert "no energy: rapl: no counter" in done.warnings


def test_a_decision_takes_less_than_a_thousandth_of_an_inference(measured: Any) -> None:
    """CNMT-12, of the policy that the simulation runs, beside the plane of the shipped profile of a GRU on one thread."""
    shipped = read_profile(find("calibration", "@cpu1-gru")).plane
    engine = FakeEngine((shipped.s_per_src_token, shipped.s_per_tgt_token, shipped.s_fixed))
    profile = measured(replace(QUICK, parts=("execution", "overheads")), engine).profile
    assert 0.0 < profile.overheads["decision_s"].value < 1e-3 * float(profile.plane.seconds(20, 20))


def test_cells_that_stay_disturbed_are_in_the_profile_and_warned_of(measured: Any) -> None:
    done = measured(engine=FakeEngine(noise=0.0, disturbance=lambda call: 1.0 + 0.4 * (call // 13 % 2)))
    conditions = done.profile.conditions
    assert conditions.disturbed_cells == len(conditions.disturbed) > 0
    assert conditions.model_extra["stretches_repeated"] > 0
    assert any("stayed disturbed" in warning for warning in done.warnings)


def test_without_memory_for_single_sentences_nothing_is_written(measured: Any, tmp_path: Path) -> None:
    class Cramped(FakeEngine):
        def run(self, work: Any) -> Any:
            self._most_batch = 0 if work.tgt_len > 10 or work.src_len > 20 else 8
            return super().run(work)

    with pytest.raises(CalibrationError, match="too few for a plane"):
        measured(engine=Cramped())
    assert not (tmp_path / "box.json").exists()


@pytest.mark.parametrize(
    ("out", "keys", "message"),
    [
        ("none/box.json", {}, "no file can be written"),
        (".", {}, "no file can be written"),
        ("box.json", {"parts": ("step",)}, "needs the part execution"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_model_is_loaded(
    box: Any, tmp_path: Path, out: str, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(replace(QUICK, **keys), tmp_path / out, load=lambda *_, **__: pytest.fail("loaded"))


@pytest.mark.parametrize(("others", "warned"), [(0.05, False), (1.5, True), (None, None)])
def test_a_box_is_busy_by_what_others_do_now_and_not_by_what_we_did_before(
    monkeypatch: pytest.MonkeyPatch, others: float | None, warned: bool | None
) -> None:
    """A load average of 3 is what our own last calibration leaves behind."""
    monkeypatch.setattr(BusyWatch, "over_span", lambda: others)
    state = profile_assembly.state(BoxDescription("x86_64", "Linux", logical_cores=2, load_average=(3.0, 1.0, 1.0)))
    block = profile_assembly.conditions_block(state, state, None, [])
    assert (block.load_average, block.others_cpus, block.busy) == (3.0, others, warned)


# Where a journal or a profile was before.


@pytest.mark.parametrize("stop_at", [45, 90])
def test_interrupted_it_keeps_what_it_has_and_the_same_call_goes_on(measured: Any, tmp_path: Path, stop_at: int) -> None:
    """Whatever stood at --out stays until the new profile is whole."""
    older, journal = measured().profile, journal_path(tmp_path / "box.json")
    stopped, again = FakeEngine(noise=0.0, stop_at=stop_at), replace(QUICK, seed=1)
    with pytest.raises(KeyboardInterrupt):
        measured(again, stopped)
    assert stopped.closed and read_profile(tmp_path / "box.json") == older
    kept = journal.read_bytes()
    with pytest.raises(CalibrationError, match=re.escape("settings.seed 1, this measurement 5")):
        measured(replace(QUICK, seed=5))
    with pytest.raises(CalibrationError, match=r"engine\.versions\.abacus"):
        measured(again, FakeEngine(versions={"abacus": "3.1"}))
    assert journal.read_bytes() == kept
    rest = FakeEngine(noise=0.0)
    done = measured(again, rest)
    assert not journal.exists()
    whole = FakeEngine(noise=0.0)
    at_once = measured(again, whole).profile
    assert len(rest.calls) < len(whole.calls)
    for name in ("execution", "step", "encoder"):
        assert getattr(done.profile, name) == getattr(at_once, name)


def test_single_parts_complete_a_profile_of_the_same_engine(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(QUICK, parts=("execution", "step", "overheads"), src_unit="char", tgt_unit="char")
    with monkeypatch.context() as patched:
        patched.setattr(profile_assembly, "now", lambda: "2020-02-02T02:02:02+00:00")
        whole = measured(settings, FakeEngine(gap_s=0.001), device_name="the old laptop").profile
    done = measured(replace(QUICK, parts=("overheads",))).profile
    for kept in ("name", "device", "model", "length_unit", "execution", "valid_range", "engine", "step"):
        assert getattr(done, kept) == getattr(whole, kept), kept
    assert done.overheads["step_gap_s"] == whole.overheads["step_gap_s"]
    assert done.conditions.drift == whole.conditions.drift, "of the execution that is still in the profile"
    assert [(later.parts, later.governor) for later in done.conditions.later] == [(("overheads",), "performance")]
    assert done.provenance.date == whole.provenance.date and done.conditions.later[0].date > "2026"
    done = measured(replace(QUICK, parts=("overheads",), tgt_unit="char"), device_name="a new one").profile
    assert (done.device.name, done.device.details) == ("a new one", whole.device.details)
    assert len(done.conditions.later) == 2, "a second completion does not drop the first"


@pytest.mark.parametrize(
    ("keys", "account", "message"),
    [
        ({}, {"compute_type": "int8"}, "compute_type 'float32', this is 'int8'"),
        ({"src_unit": "char"}, {}, "source unit 'word'"),
    ],
)
def test_single_parts_of_another_engine_or_unit_do_not(
    measured: Any, keys: dict[str, Any], account: dict[str, Any], message: str
) -> None:
    measured(ALONE)
    with pytest.raises(CalibrationError, match=f"the profile to complete is of {message}"):
        measured(replace(QUICK, parts=("step",), **keys), FakeEngine(**account))


def test_on_a_box_whose_speed_wanders_whole_executions_and_their_parts_agree(measured: Any) -> None:
    """By 15 % up and down over the measurement; benches one after another met speeds that differed by up to a fifth."""
    wandering = FakeEngine(
        noise=0.005, gap_s=0.0002, refill_s=(0.003, 0.0, 0.0, 0.0), disturbance=lambda call: 1.0 + 0.15 * math.sin(call / 250)
    )
    done = measured(Settings("gru", threads=1, parts=("execution", "step")), wandering).profile
    assert done.decoding_cost.gap_s_fixed == pytest.approx(0.0002, rel=0.1)
    assert abs(alone_vs_plane(done)) < 1e-9
