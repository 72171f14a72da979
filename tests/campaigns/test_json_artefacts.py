"""JSON files that simnmt wrote and somebody changed: each is read and can be used, or is refused in one line."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.nmt.architecture import read_architecture
from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.fvp.study import Study as VocabularyStudy
from simnmt.papers.kit.study import read_study
from simnmt.papers.sti.study import Study as StiStudy
from simnmt.profile.device_profile import DeviceProfile, checked_profile, read_profile, write_profile
from simnmt.profile.profile_summary import as_json, comparison_text, facts, numbers
from simnmt.report.charts import pack
from simnmt.report.input_pages import profile_panels
from simnmt.results.run_directory import read_manifest
from tests.campaigns.harness import Place, mutate, mutate_bytes, places, run_cases
from tests.papers import sti_stand_ins, vocab_stand_ins
from tests.papers.vocab_stand_ins import bench
from tests.profile.made_profile import whole_profile

WHOLE_PROFILE = whole_profile()


def use_profile(profile: DeviceProfile, path: Path) -> None:
    write_profile(path, profile)
    assert read_profile(path) == profile
    assert all("\n" not in text for _, text in facts(profile))  # the terminal is kept from other controls where text is printed
    json.dumps(as_json(profile), allow_nan=False)
    json.dumps(numbers(profile), allow_nan=False)
    assert comparison_text(["a", "b"], [profile, checked_profile(WHOLE_PROFILE)])
    pack(profile_panels(profile))


def use_study(study: Any, path: Path) -> None:
    path.write_text(study.model_dump_json())
    assert read_study(path, type(study)) == study


def use_bench(bench: ProjectionBench, path: Path) -> None:
    judge([], [bench]).document()


ARCHITECTURE = {"kind": "gru", "layers": 2, "hidden": 16, "embedding": 12, "src_vocab": 50, "tgt_vocab": 60, "attention": "dot"}

Use = Callable[[Any, Path], object]
ARTEFACTS: dict[str, tuple[Callable[[], str], Callable[[Path], Any], Use | None, int]] = {
    "profile": (lambda: json.dumps(WHOLE_PROFILE), read_profile, use_profile, 100),
    "sti study": (
        lambda: sti_stand_ins.study().model_dump_json(), lambda path: read_study(path, StiStudy), use_study, 40
    ),
    "vocabulary study": (
        lambda: vocab_stand_ins.study().model_dump_json(), lambda path: read_study(path, VocabularyStudy), use_study, 100
    ),
    "projection bench": (lambda: bench().model_dump_json(), read_bench, use_bench, 200),
    "architecture": (lambda: json.dumps(ARCHITECTURE), read_architecture, None, 200),
}  # fmt: skip
"""By kind: the text of a whole one, its reader, what it is used for, and the number of cases."""


def check(
    content: Any, every: list[Place], read: Callable[[Path], Any], use: Use | None, folder: Path, generator: random.Random
) -> None:
    text = json.dumps(content)
    if generator.random() < 0.3:
        damaged = mutate_bytes(text.encode(), generator)
    else:
        damaged = json.dumps(mutate(content, generator, every=every)).encode()
    (folder / "damaged.json").write_bytes(damaged)
    artefact = read(folder / "damaged.json")
    if use is not None:
        use(artefact, folder / "used.json")


@pytest.mark.parametrize("kind", ARTEFACTS)
def test_a_changed_artefact_is_used_or_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    text, read, use, cases = ARTEFACTS[kind]
    content = json.loads(text())
    every = list(places(content))
    run_cases(f"artefact {kind}", cases, lambda generator: check(content, every, read, use, tmp_path, generator))


def test_a_changed_manifest_is_refused_in_one_line(
    folder: Path, simnmt: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simnmt("run", "small.yaml", "--requests", "20", "--out", "run").status == 0
    path = folder / "run" / "manifest.json"
    manifest = json.loads(path.read_text())

    def check_manifest(generator: random.Random) -> None:
        path.write_text(json.dumps(mutate(copy.deepcopy(manifest), generator)))
        read_manifest(folder / "run")

    run_cases("manifest", 200, check_manifest)
