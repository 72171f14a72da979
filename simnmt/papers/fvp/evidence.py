"""Studies and measured output layers that stand beside the paper: shipped, named by file, or measured now; records on them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.suggestions import did_you_mean
from simnmt.calibrate.projection_bench import ProjectionBench, read_bench
from simnmt.papers.kit.claim import UNKNOWN, claim_record

if TYPE_CHECKING:
    from simnmt.papers.fvp.study import Part, Study
    from simnmt.papers.fvp.study_settings import Direction, StudySettings

PATTERN = "bench-*.json"
"""Of shipped ones, which lie beside the studies."""


def shipped_benches() -> list[Path]:
    """Their files, by name; none where none comes with simnmt."""
    return sorted((shipped_files.folder("calibration") / "vocabulary").glob(PATTERN))


def read_benches(paths: Iterable[Path]) -> list[ProjectionBench]:
    """Read bench files; raise `BenchError` for an invalid file, `InputError` for two of one box and type of weights."""
    by_name: dict[str, tuple[Path, ProjectionBench]] = {}
    for path in paths:
        bench = read_bench(path)
        before, _ = by_name.setdefault(name_of(bench), (path, bench))
        if before is not path:
            raise InputError(f"{before} and {path}: two measurements of {name_of(bench)}", remedy="name one of them")
    return [bench for _, bench in by_name.values()]


def name_of(bench: ProjectionBench) -> str:
    """Where and with what weights."""
    return bench.box if bench.setting.dtype == "float32" else f"{bench.box}, {bench.setting.dtype}"


Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")

NEEDS = "needs a study of a trained model: give --study, or --model and its texts"


def shipped_studies() -> list[Path]:
    """Their files, by name; none where none comes with simnmt."""
    benches = set(shipped_benches())
    return sorted(path for path in (shipped_files.folder("calibration") / "vocabulary").glob("*.json") if path not in benches)


def read_studies(paths: Iterable[Path]) -> list[Study]:
    """Read study files; raise `CalibrationError` for an invalid file, `InputError` for two of models of one name."""
    from simnmt.calibrate.study import read_study
    from simnmt.papers.fvp.study import Study

    by_name: dict[str, tuple[Path, Study]] = {}
    for path in paths:
        study = read_study(path, Study)
        before, _ = by_name.setdefault(study.model.name, (path, study))
        if before is not path:
            raise InputError(f"{before} and {path}: two studies of {study.model.name}", remedy="name one of them")
    return [study for _, study in by_name.values()]


def study_record(
    study: Study, identifier: str, claim: str, theirs: str, ours: str, verdict: bool | str, why: str = ""
) -> dict[str, Any]:
    """One claim, by one model's measurement."""
    vocabulary = f"V {study.model.vocab:,}, width {study.model.width:,}"
    return claim_record(
        identifier,
        claim,
        theirs,
        ours,
        verdict,
        f"{vocabulary}; {why}" if why else vocabulary,
        device=study.model.name,
        basis="measured",
    )


def unmeasured_record(identifier: str, claim: str, theirs: str, study: Study | None, part: str) -> dict[str, Any]:
    """The same where the part that decides it was not measured."""
    if study is None:
        return claim_record(identifier, claim, theirs, "", UNKNOWN, NEEDS, basis="needs --model")
    why = f"the study has no part `{part}`"
    return claim_record(identifier, claim, theirs, "", UNKNOWN, why, device=study.model.name, basis="needs --model")


def in_groups(rows: Iterable[Row], key: Callable[[Row], Key], order: Callable[[Row], Any]) -> dict[Key, list[Row]]:
    """Group rows by `key`, and sort each group by `order`."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {group_key: sorted(group, key=order) for group_key, group in groups.items()}


Say = Callable[[str], None]
"""Receives a line of progress before each step."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What a model is studied on, by the label of a direction; one sentence a line."""

    train: Mapping[str, Path] = field(default_factory=dict)
    """Sources that clusters are made of."""
    targets: Mapping[str, Path] = field(default_factory=dict)
    """Their translations, for candidate lists alone."""
    heldout: Mapping[str, Path] = field(default_factory=dict)
    """Other sources, of every direction in `train`."""
    references: Mapping[str, Path] = field(default_factory=dict)
    """Translations of `heldout`, for BLEU."""

    def by_option(self) -> dict[str, Mapping[str, Path]]:
        """Under the names that the command gives them."""
        return {
            "--text": self.train,
            "--targets": self.targets,
            "--heldout": self.heldout,
            "--references": self.references,
        }

    def check(self) -> None:
        """Raises `InputError` where a direction lacks one of its two sources, or a translation its source."""
        if not self.train or set(self.train) != set(self.heldout):
            raise InputError(
                f"--text of {_listed(self.train)} and --heldout of {_listed(self.heldout)}",
                remedy="give both for each direction: --text fr-en=FILE --heldout fr-en=FILE",
            )
        for option in ("--targets", "--references"):
            if unknown := set(self.by_option()[option]) - set(self.train):
                raise InputError(f"{option} of {_listed(unknown)}, which --text does not name", remedy="use the same labels")


def study_model(
    model: Path, texts: Texts, *, kept: Path | None = None, parts: Sequence[str] = (), quick: bool = False, say: Say
) -> Study:
    """Measure `parts`, or what the file `kept` lacks or has less of, as far as the texts allow (two directions, targets).

    Contexts are kept beside the file, so that a run that was stopped goes on. Raises `InputError` for texts that do not go
    together and parts that there are not, and what studying raises, such as `CalibrationError` for a file of another model or
    other texts.
    """
    from simnmt.calibrate.study import read_study
    from simnmt.papers.fvp.study import PARTS, Study
    from simnmt.papers.fvp.study_settings import Direction, StudySettings

    texts.check()
    for name in parts:
        if name not in PARTS:
            raise InputError(f"--part {name}: no part of a study", remedy=did_you_mean(name, PARTS))
    directions = [
        Direction(label, train, texts.heldout[label], texts.references.get(label), texts.targets.get(label))
        for label, train in texts.train.items()
    ]
    settings = quick_settings() if quick else StudySettings()
    wanted = [part for part in PARTS if part in parts]
    if not wanted:
        before = read_study(kept, Study) if kept is not None and kept.exists() else None
        for part in PARTS:
            labels = _measurable(part, texts)
            if not labels:
                say(f"{part}: left out, which needs {'--targets' if part == 'candidates' else 'two directions'}")
            elif before is None or not _has(before, part, labels, settings):
                wanted.append(part)
        if before is not None and not wanted:
            _check(before, model, directions, kept)
            return before
    # Here, since all that is read needs no torch.
    from simnmt.papers.fvp.study_run import run_study

    contexts = None if kept is None else kept.with_name(f"{kept.stem}.contexts")
    return run_study(model, directions, settings=settings, parts=wanted, out=kept, kept=contexts, progress=say)


def quick_settings() -> StudySettings:
    """Minutes: few sentences, clusters and rounds."""
    from simnmt.papers.fvp.study_settings import StudySettings

    return StudySettings(
        quick=True,
        clusters=(50, 100, 200),
        fine_clusters=(),
        train_sentences=2_000,
        clustered_contexts=20_000,
        heldout_sentences=100,
        volumes=3,
        volume_clusters=(100,),
        language_clusters=(50, 100),
        shown_clusters=100,
        speed_clusters=(50, 200),
        speed_sentences=50,
        rounds=2,
    )


def _measurable(part: Part, texts: Texts) -> set[str]:
    """The directions that a part can be measured of."""
    if part == "by_language":
        return set(texts.train) if len(texts.train) > 1 else set()
    return set(texts.targets if part == "candidates" else texts.train)


def _has(study: Study, part: Part, labels: Iterable[str], settings: StudySettings) -> bool:
    """Return True if the last measurement of the part covers as much in each direction."""
    runs = [run for run in reversed(study.runs) if run.part == part]
    last = (next((run for run in runs if label in run.labels), None) for label in labels)
    return all(run is not None and settings.measured_by(run) for run in last)


def _check(study: Study, model: Path, directions: Sequence[Direction], path: Path | None) -> None:
    """Raises `CalibrationError` where the study is of another model or of other texts."""
    from simnmt.calibrate.settings import CalibrationError
    from simnmt.nmt.checkpoint import WEIGHTS_FILE
    from simnmt.papers.fvp.study_settings import check_texts, sha256_of, studied_texts

    check_texts(study, tuple(studied_texts(directions)), path)
    if sha256_of(model / WEIGHTS_FILE) != study.model.sha256:
        raise CalibrationError(f"a study of another model, {study.model.name}", path=path, remedy="choose another file")


def _listed(labels: Iterable[str]) -> str:
    return ", ".join(sorted(labels)) or "nothing"
