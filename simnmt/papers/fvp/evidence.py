"""Studies and measured output layers that stand beside the paper: shipped, named by file, or measured now; records on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.fvp.study import PARTS, QUICK, Part, Study, StudySettings
from simnmt.papers.kit.claim import Claim, ClaimRecord, Undecided
from simnmt.papers.kit.study import read_distinct, read_study

if TYPE_CHECKING:
    from simnmt.papers.fvp.study_texts import Direction

NEEDS = "needs a study of a trained model: give --study, or --model and its texts"
Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")
Say = Callable[[str], None]
"""Receives a line of progress before each step."""


def shipped_files_of(kind: str) -> list[Path]:
    """Return the shipped files of a kind, `bench` or `study`, by name; none where none comes with simnmt."""
    return sorted((shipped_files.folder("calibration") / "vocabulary").glob(f"{kind}-*.json"))


def read_benches(paths: Iterable[Path]) -> list[ProjectionBench]:
    """Read bench files; raise `BenchError` for an invalid file, `InputError` for two of one box and type of weights."""
    return read_distinct(paths, read_bench, name_of, "measurements")


def name_of(bench: ProjectionBench) -> str:
    """Return the box, and the type of weights unless it is float32."""
    return bench.box if bench.setting.dtype == "float32" else f"{bench.box}, {bench.setting.dtype}"


def read_studies(paths: Iterable[Path]) -> list[Study]:
    """Read study files; raise `CalibrationError` for an invalid file, `InputError` for two of models of one name."""
    return read_distinct(paths, lambda path: read_study(path, Study), lambda study: study.model.name, "studies")


def study_records(claims: Iterable[Claim], study: Study | None) -> list[ClaimRecord]:
    """Return the verdicts of a study on claims, each by a part of it; without a study, or the part, say what is needed."""
    if study is None:
        return [claim.unknown(NEEDS, basis="needs --model") for claim in claims]
    return [_record(claim, study) for claim in claims]


def _record(claim: Claim, study: Study) -> ClaimRecord:
    name, entries = study.model.name, getattr(study, claim.part)
    if not entries:
        return claim.unknown(str(lacking(claim.part)), name, basis="needs --model")
    setting = f"V {study.model.vocab:,}, width {study.model.width:,}"
    if claim.timed and (disturbed := sum(not entry.rounds.conclusive for entry in entries)):
        why = f"{disturbed} of {len(entries)} cells have too few undisturbed stretches: measure the part again on a quiet box"
        return claim.unknown(f"{setting}; {why}", name, basis="measured")
    return claim.record(entries, study, device=name, setting=setting)


def lacking(part: str) -> Undecided:
    """Return the error that a study lacks a part, or what a claim needs of it."""
    return Undecided(f"the study has no part `{part}`", "needs --model")


def in_groups(rows: Iterable[Row], key: Callable[[Row], Key], order: Callable[[Row], Any]) -> dict[Key, list[Row]]:
    """Group rows by `key`, and sort each group by `order`."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {group_key: sorted(group, key=order) for group_key, group in groups.items()}


def study_model(
    model: Path, directions: Sequence[Direction], *, kept: Path | None = None, parts: Sequence[str] = (), quick: bool, say: Say
) -> Study:
    """Measure `parts`, or what the file `kept` lacks or has less of, as far as the texts allow (two directions, targets).

    Contexts are kept beside the file, so that a run that was stopped goes on. Raises `InputError` for unknown parts, and what
    studying raises, such as `CalibrationError` for a file of another model or other texts.
    """
    for name in parts:
        if name not in PARTS:
            raise InputError(f"--part {name}: no part of a study", remedy=did_you_mean(name, PARTS))
    settings = QUICK if quick else StudySettings()
    wanted = [part for part in PARTS if part in parts]
    if not wanted:
        before = read_study(kept, Study) if kept is not None and kept.exists() else None
        for part in PARTS:
            labels = _measurable(part, directions)
            if not labels:
                say(f"{part}: left out, which needs {'--targets' if part == 'candidates' else 'two directions'}")
            elif before is None or not _has(before, part, labels, settings):
                wanted.append(part)
        if before is not None and not wanted:
            from simnmt.nmt.checkpoint import WEIGHTS_FILE
            from simnmt.papers.fvp.study_texts import check_same, sha256_of, studied_texts

            check_same(before, sha256_of(model / WEIGHTS_FILE), studied_texts(directions), kept)
            return before
    # Here, since all that is read needs no torch.
    from simnmt.papers.fvp.study_run import run_study

    contexts = None if kept is None else kept.with_name(f"{kept.stem}.contexts")
    return run_study(model, directions, settings=settings, parts=wanted, out=kept, kept=contexts, progress=say)


def _measurable(part: Part, directions: Sequence[Direction]) -> set[str]:
    """Return the directions of which a part can be measured."""
    if part == "by_language" and len(directions) < 2:
        return set()
    return {direction.label for direction in directions if part != "candidates" or direction.train_targets is not None}


def _has(study: Study, part: Part, labels: Iterable[str], settings: StudySettings) -> bool:
    """Return True if the last measurement of the part covers as much in each direction."""
    runs = [run for run in reversed(study.runs) if run.part == part]
    last = (next((run for run in runs if label in run.labels), None) for label in labels)
    return all(run is not None and settings.measured_by(run) for run in last)
