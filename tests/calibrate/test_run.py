"""Whole calibrations of a box made of numbers: the profile, what is said, what spoils nothing else, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simnmt.base.errors import InputError
from simnmt.base.shipped_files import find
from simnmt.calibrate import processor_use, profile_assembly
from simnmt.calibrate.box import BoxDescription
from simnmt.calibrate.calibration import calibrate
from simnmt.calibrate.disk import DiskError, DiskReads
from simnmt.calibrate.parts import box as box_parts
from simnmt.calibrate.settings import CalibrationError, Settings
from simnmt.profile.profile_file import read_profile
from tests.calibrate.engines import PLANE, QUICK, FakeEngine

NO_STAGES = "no variants of the decoder: the backend does not time the stages of a step"
"""Of an engine made of numbers."""


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
    assert profile.engine is not None
    assert (profile.engine.weights, profile.engine.threads, profile.engine.beam) == ("random", 1, 1)
    assert profile.step is not None
    assert profile.encoder is not None
    assert profile.disk is not None
    assert profile.disk.bytes_per_s == pytest.approx(2e8)
    assert profile.energy is None
    assert profile.conditions is not None
    assert (profile.conditions.load_average, profile.conditions.governor) == (0.1, "performance")
    assert "random weights" in profile.provenance.source
    assert engine.closed
    assert [path.name for path in tmp_path.iterdir()] == ["box.json"], "the journal is gone"
    assert not done.replaced
    assert done.warnings == (NO_STAGES, "no energy: rapl: no counter")


def test_a_decision_takes_less_than_a_thousandth_of_an_inference(measured: Any) -> None:
    """CNMT-12, of the policy that the simulation runs, beside the plane of the shipped profile of a GRU on one thread."""
    shipped = read_profile(find("calibration", "@cpu1-gru")).plane
    engine = FakeEngine((shipped.s_per_src_token, shipped.s_per_tgt_token, shipped.s_fixed))
    profile = measured(replace(QUICK, parts=("execution", "overheads")), engine).profile
    mean_s = float(profile.plane.seconds(20, 20))
    assert 0.0 < profile.overheads_s["decision_s"] < 1e-3 * mean_s


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"governor": "powersave"}, "the clock governor is powersave"),
        ({"governor": "performance+schedutil"}, "the clock governor is performance+schedutil"),
    ],
)
def test_a_box_that_spoils_measurements_is_warned_of(measured: Any, box: Any, facts: dict[str, Any], message: str) -> None:
    box(**facts)
    assert any(message in warning for warning in measured().warnings)


def test_cells_that_stay_disturbed_are_in_the_profile_and_warned_of(measured: Any) -> None:
    engine = FakeEngine(noise=0.0, disturbance=lambda call: 1.0 + 0.4 * (call // 13 % 2))
    done = measured(engine=engine)
    assert done.profile.conditions is not None
    assert done.profile.conditions.disturbed_cells == len(done.profile.conditions.disturbed) > 0
    assert done.profile.conditions.model_extra["stretches_repeated"] > 0
    assert any("stayed disturbed" in warning for warning in done.warnings)


def test_insufficient_memory_leaves_cells_out_with_a_message(measured: Any) -> None:
    done = measured(engine=FakeEngine(most_batch=4))
    assert done.profile.step.batch == (1, 2, 3, 4)
    assert any("from batch 7 on were left out: out of memory" in warning for warning in done.warnings)


def test_without_memory_for_single_sentences_nothing_is_written(measured: Any, tmp_path: Path) -> None:
    class Cramped(FakeEngine):
        def run(self, work: Any) -> Any:
            self._most_batch = 0 if work.tgt_len > 10 or work.src_len > 20 else 8
            return super().run(work)

    with pytest.raises(CalibrationError, match="too few for a plane"):
        measured(engine=Cramped())
    assert not (tmp_path / "box.json").exists()


def test_a_disk_that_cannot_be_measured_spoils_nothing_else(measured: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> DiskReads:
        raise DiskError("too full", path="/mnt")

    monkeypatch.setattr(box_parts, "measure_disk", full)
    done = measured()
    assert done.profile.disk is None
    assert any(warning.startswith("no disk: /mnt: too full") for warning in done.warnings)


def test_a_cpu_goes_by_the_name_that_its_box_has_for_it(measured: Any, box: Any, tmp_path: Path) -> None:
    """Linux shows no model's name for Arm processors: an engine knows none."""
    nameless = FakeEngine(device_name="aarch64")
    box(
        cpu_model="Arm Cortex-A78AE",
        board="NVIDIA Jetson AGX Orin",
        jetson="L4T 36.4.3, power mode MAXN",
        cpu_quota=2.5,
    )
    profile = measured(replace(QUICK, parts=("execution",)), nameless).profile
    assert (profile.device.name, profile.engine.device_name) == ("NVIDIA Jetson AGX Orin, 1 thread", "NVIDIA Jetson AGX Orin")
    for detail in ("Arm Cortex-A78AE", "L4T 36.4.3, power mode MAXN", "a quota of 2.5 CPUs"):
        assert detail in profile.device.details
    (tmp_path / "box.json").unlink()
    gpu = FakeEngine(device="cuda:0", device_name="Orin", threads=None)
    assert measured(replace(QUICK, device="cuda", threads=None, parts=("execution",)), gpu).profile.device.name == "Orin"


@pytest.mark.parametrize(
    ("facts", "threads"),
    [({}, 4), ({"allowed_cores": 2}, 2), ({"allowed_cores": 4, "cpu_quota": 1.5}, 1)],
)
def test_by_default_each_core_gets_one_thread(box: Any, tmp_path: Path, facts: dict[str, Any], threads: int) -> None:
    box(**facts)
    loaded_with = []

    def load(*_: Any, **options: Any) -> FakeEngine:
        loaded_with.append(options["threads"])
        return FakeEngine(threads=options["threads"])

    calibrate(Settings("gru", mode="quick", parts=("execution",)), tmp_path / "box.json", load=load)
    assert loaded_with == [threads]


def nothing_is_loaded(*_: Any, **__: Any) -> FakeEngine:
    raise AssertionError("refuse before the model is loaded")


@pytest.mark.parametrize(
    ("out", "keys", "message"),
    [
        ("none/box.json", {}, "no file can be written"),
        (".", {}, "no file can be written"),
        ("box.json", {"mode": "paper", "lengths": "missing.csv"}, "missing.csv"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_model_is_loaded(
    box: Any, tmp_path: Path, out: str, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        calibrate(replace(QUICK, **keys), tmp_path / out, load=nothing_is_loaded)
    assert message in str(refused.value)


def test_paper_mode_draws_its_lengths_from_the_table(measured: Any) -> None:
    settings = replace(QUICK, mode="paper", inferences=300, parts=("execution",))
    profile = measured(settings).profile
    assert profile.execution.fit.mode == "paper"
    assert profile.execution.fit.inferences == 300
    assert profile.valid_range.src_len[1] > 30
    assert "300 inferences with the lengths of @de-en-news" in profile.provenance.source


LOADED = BoxDescription(machine="x86_64", system="Linux", logical_cores=2, load_average=(3.0, 1.0, 1.0), governor="performance")


@pytest.mark.parametrize(("others", "warned"), [(0.05, False), (1.5, True), (None, False)])
def test_a_box_is_busy_by_what_others_do_now_and_not_by_what_we_did_before(
    monkeypatch: pytest.MonkeyPatch, others: float | None, warned: bool
) -> None:
    """A load average of 3 is what our own last calibration leaves behind."""
    monkeypatch.setattr(processor_use, "others_cpus", lambda: others)
    state = profile_assembly.state(LOADED)
    block = profile_assembly.conditions_block([state], state, None, [])
    assert (block.load_average, block.others_cpus) == (3.0, others)
    assert block.busy is warned
    message = "the box was busy: other programs used 1.5 CPUs before or after the run (repeat on a quiet box)"
    assert profile_assembly.busy_warnings([state, state], "the run") == ([message] if warned else [])
