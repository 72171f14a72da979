"""Studies of trained classifiers beside the paper: shipped, named by file, or measured now; claim records from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.papers.kit.claim import UNKNOWN, claim_record

if TYPE_CHECKING:
    from simnmt.papers.sti.study import Study

NEEDS = "needs a study of a trained classifier: give --study, or --store and --task"
ClaimText = tuple[str, str, str]
"""Identifier, claim, and what is published."""


def shipped_studies() -> list[Path]:
    """Return the files of the shipped studies, sorted by name."""
    return sorted((shipped_files.folder("calibration") / "sti").glob("study-*.json"))


def read_studies(paths: Iterable[Path]) -> list[Study]:
    """Read studies; raise `CalibrationError` for other files, and `InputError` for two studies of one model and task."""
    from simnmt.calibrate.study import read_study
    from simnmt.papers.sti.study import Study

    study_by_name: dict[str, tuple[Path, Study]] = {}
    for path in paths:
        study = read_study(path, Study)
        before, _ = study_by_name.setdefault(study.name, (path, study))
        if before is not path:
            raise InputError(f"{before} and {path}: two studies of {study.name}", remedy="name one of them")
    return [study for _, study in study_by_name.values()]


def study_record(
    study: Study, claim_text: ClaimText, ours: str, verdict: bool | str, why: str = "", device: str = ""
) -> dict[str, Any]:
    """Return the record of one claim, by one model's measurement on the costs of `device`, if it depends on any.

    Its basis is measured only if the device's costs are: a claim on latencies by inferred costs is inferred, though the
    accuracy beside them was measured.
    """
    name = f"{study.name}, {device}" if device else study.name
    return claim_record(*claim_text, ours, verdict, why, device=name, basis=basis_of(study, [device] if device else []))


def basis_of(study: Study, devices: Sequence[str]) -> str:
    """Return how the least certain number of a claim is known that rests on these devices' costs; measured without any."""
    kinds = {device.kind for device in study.devices if device.name in devices}
    return next((kind for kind in ("synthetic", "inferred") if kind in kinds), "measured")


def unmeasured_record(claim_text: ClaimText, study: Study | None, part: str) -> dict[str, Any]:
    """Return the record of a claim whose deciding part was not measured."""
    if study is None:
        return claim_record(*claim_text, "", UNKNOWN, NEEDS, basis="needs --study")
    return claim_record(*claim_text, "", UNKNOWN, f"the study has no part `{part}`", device=study.name, basis="needs --study")


Say = Callable[[str], None]
"""Receives a message on the next step."""


@dataclass(frozen=True, slots=True)
class StudySource:
    """What is studied, as the command names it."""

    store: Path | None = None
    task: Path | None = None
    importance_task: Path | None = None
    """Other examples, by which shards are ranked."""
    importance_on_task: bool = False
    """They are ranked on `task` itself, which flatters the order."""
    profiles: Sequence[Path] = ()
    """With the store's block `sti`: devices beside the paper's boards; an importance that fits is taken."""
    parts: Sequence[str] = ()
    """Measured again where they have been; none named: all that are missing."""
    quick: bool = False

    @property
    def asked(self) -> bool:
        """True if a study is requested; raises `InputError` if the options are incomplete."""
        needed = {"--store": self.store, "--task": self.task}
        given = [option for option, path in needed.items() if path is not None]
        if given and len(given) < len(needed):
            lacking = next(option for option, path in needed.items() if path is None)
            raise InputError(f"{given[0]} without {lacking}", remedy="give --store DIR --task FILE.tsv together")
        beside = {
            "--importance-task": self.importance_task,
            "--importance-on-task": self.importance_on_task,
            "--profile": self.profiles,
            "--part": self.parts,
            "--quick": self.quick,
        }
        if not given and (useless := [option for option, value in beside.items() if value]):
            raise InputError(f"{useless[0]} without a store to study", remedy="give --store and --task as well")
        return bool(given)

    def check(self) -> None:
        """Raises `InputError` for a part that there is not."""
        from simnmt.papers.sti.study import PARTS

        for name in self.parts:
            if name not in PARTS:
                raise InputError(f"--part {name}: no part of a study", remedy=did_you_mean(name, PARTS))


def study_model(studied: StudySource, kept: Path | None, say: Say) -> Study:
    """Measure the parts that are asked for, or what the file `kept` lacks. Raises `InputError` and what studying raises."""
    studied.check()
    # Here, since all that is read needs no torch.
    from simnmt.papers.sti.study_run import study_classifier

    assert studied.store is not None and studied.task is not None
    return study_classifier(
        studied.store,
        studied.task,
        importance_task=studied.importance_task,
        importance_on_task=studied.importance_on_task,
        profiles=studied.profiles,
        parts=studied.parts,
        quick=studied.quick,
        out=kept,
        say=say,
    )
