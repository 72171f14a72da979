"""Which studies of trained classifiers stand beside the paper: those that come with simnmt, or others by file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.reproduce.verdicts import UNKNOWN, record_of

if TYPE_CHECKING:
    from simnmt.calibrate.sti_study.document import Study

NEEDS = "needs a study of a trained classifier: give --study, or --store and --task"
Way = tuple[str, str, str]
"""Identifier, claim, and what is published."""


def shipped_studies() -> list[Path]:
    """Their files, by name; none where none comes with simnmt."""
    return sorted((shipped.folder("calibration") / "sti").glob("study-*.json"))


def read_studies(paths: Iterable[Path]) -> list[Study]:
    """Raises `CalibrationError` for a file that is no study, and `InputError` for two of one model and task."""
    from simnmt.calibrate.sti_study.document import Study
    from simnmt.calibrate.study_file import read_study

    found: dict[str, tuple[Path, Study]] = {}
    for path in paths:
        study = read_study(path, Study)
        before, _ = found.setdefault(study.name, (path, study))
        if before is not path:
            raise InputError(f"{before} and {path}: two studies of {study.name}", remedy="name one of them")
    return [study for _, study in found.values()]


def told(study: Study, way: Way, ours: str, verdict: bool | str, why: str = "", device: str = "") -> dict[str, Any]:
    """Return the record of one claim, by one model's measurement on the costs of `device`, if it depends on any.

    Its basis is measured only if the device's costs are: a claim on latencies by inferred costs is inferred, though the
    accuracy beside them was measured.
    """
    name = f"{study.name}, {device}" if device else study.name
    return record_of(*way, ours, verdict, why, device=name, basis=basis_of(study, [device] if device else []))


def basis_of(study: Study, devices: Sequence[str]) -> str:
    """Return how the least certain number of a claim is known that rests on these devices' costs; measured without any."""
    kinds = {device.kind for device in study.devices if device.name in devices}
    return next((kind for kind in ("synthetic", "inferred") if kind in kinds), "measured")


def unasked(way: Way, study: Study | None, part: str) -> dict[str, Any]:
    """The same where the part that decides it was not measured."""
    if study is None:
        return record_of(*way, "", UNKNOWN, NEEDS, basis="needs --study")
    return record_of(*way, "", UNKNOWN, f"the study has no part `{part}`", device=study.name, basis="needs --study")
