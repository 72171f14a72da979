"""Measures a study of a streamed classifier part by part, and adds each to its file, so that a run that was stopped goes on."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from simnmt import __version__
from simnmt.calibrate import busy
from simnmt.calibrate.box import describe
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.sti_study.document import PARTS, Part, PartRun, Study
from simnmt.calibrate.sti_study.parts import StudyBench
from simnmt.calibrate.study_file import read_study, write_study

TOOL = f"simnmt {__version__}"
_LIBRARIES = ("torch", "numpy", "scipy")


def measure(
    study: Study,
    bench: StudyBench,
    *,
    parts: Sequence[Part] | None = None,
    out: Path | None = None,
    threads: int = 1,
) -> Study:
    """Measure these parts, again where they have been, or all that the study lacks or has with other settings.

    `study`: without parts, or what the file `out` held; written anew after each part.
    """
    settings = bench.settings
    wanted = [part for part in PARTS if (part in parts if parts else not settings.measured_by(study.run_of(part)))]
    for part in wanted:
        others, begin_s, before = busy.others_cpus(), time.perf_counter(), bench.judge.evaluations
        found = tuple(bench.measured(part))
        run = PartRun(
            part=part,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seconds=time.perf_counter() - begin_s,
            threads=threads,
            machine=_machine(),
            others_cpus=others,
            versions=_versions(),
            evaluations=bench.judge.evaluations - before,
            seed=settings.seed,
            quick=settings.quick,
            settings=settings.told(),
        )
        study = merged(study, part, found, run)
        if out is not None:
            write_study(out, study)
    return study


def merged(study: Study, part: Part, found: Sequence[object], run: PartRun) -> Study:
    """The study with these entries of a part, in the place of all that it held of it."""
    stay = [each for each in study.runs if each.part != part]
    return study.model_copy(update={part: tuple(found), "runs": (*stay, run), "tool": TOOL})


def gone_on_with(begun: Study, out: Path | None) -> Study:
    """What the file holds, or the study as begun where there is none.

    Raises `CalibrationError` where the file is a study of another model, store, task, device or order of importance.
    """
    if out is None or not out.exists():
        return begun
    held = read_study(out, Study)
    held, begun = _counted(held, begun), _counted(begun, held)
    for name in ("model", "task", "store", "importance", "devices", "length"):
        if getattr(held, name) != getattr(begun, name):
            what = f"a study of {held.name} with another {name}"
            raise CalibrationError(what, path=out, remedy="choose another file, or give what it was begun with")
    return held


def _counted(study: Study, other: Study) -> Study:
    """The study with the number of shared texts, where it is the other one alone that knows them."""
    if study.importance.shared is not None:
        return study
    counted = study.importance.model_copy(update={"shared": other.importance.shared})
    return study.model_copy(update={"importance": counted})


def _machine() -> str:
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {box.usable_cpus} CPUs, {box.system}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
