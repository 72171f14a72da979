"""Which studies of trained models stand beside the paper: those that come with simnmt, or others by file."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simnmt import shipped
from simnmt.errors import InputError
from simnmt.reproduce.verdicts import UNKNOWN, record_of
from simnmt.reproduce.vocab.benches import shipped_benches

if TYPE_CHECKING:
    from simnmt.calibrate.vocabulary.study.document import Study

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")

NEEDS = "needs a study of a trained model: give --study, or --model and its texts"


def shipped_studies() -> list[Path]:
    """Their files, by name; none where none comes with simnmt."""
    benches = set(shipped_benches())
    return sorted(path for path in (shipped.folder("calibration") / "vocabulary").glob("*.json") if path not in benches)


def read_studies(paths: Iterable[Path]) -> list[Study]:
    """Raises `CalibrationError` for a file that is no study, and `InputError` for two of models of one name."""
    from simnmt.calibrate.study_file import read_study
    from simnmt.calibrate.vocabulary.study.document import Study

    found: dict[str, tuple[Path, Study]] = {}
    for path in paths:
        study = read_study(path, Study)
        before, _ = found.setdefault(study.model.name, (path, study))
        if before is not path:
            raise InputError(f"{before} and {path}: two studies of {study.model.name}", remedy="name one of them")
    return [study for _, study in found.values()]


def told(
    study: Study, identifier: str, claim: str, theirs: str, ours: str, verdict: bool | str, why: str = ""
) -> dict[str, Any]:
    """One claim, by one model's measurement."""
    vocabulary = f"V {study.model.vocab:,}, width {study.model.width:,}"
    return record_of(
        identifier,
        claim,
        theirs,
        ours,
        verdict,
        f"{vocabulary}; {why}" if why else vocabulary,
        device=study.model.name,
        basis="measured",
    )


def unasked(identifier: str, claim: str, theirs: str, study: Study | None, part: str) -> dict[str, Any]:
    """The same where the part that decides it was not measured."""
    if study is None:
        return record_of(identifier, claim, theirs, "", UNKNOWN, NEEDS, basis="needs --model")
    why = f"the study has no part `{part}`"
    return record_of(identifier, claim, theirs, "", UNKNOWN, why, device=study.model.name, basis="needs --model")


def in_groups(rows: Iterable[Row], key: Callable[[Row], Key], order: Callable[[Row], Any]) -> dict[Key, list[Row]]:
    """Rows of the same key together, each group in `order`."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return {each: sorted(own, key=order) for each, own in found.items()}
