"""Measures a study of a vocabulary part by part, and adds each to its file, so that a run that was stopped goes on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from simnmt import __version__
from simnmt.calibrate import busy
from simnmt.calibrate.box import describe
from simnmt.calibrate.errors import CalibrationError
from simnmt.calibrate.round_guard import RoundGuard
from simnmt.calibrate.study_file import read_study, write_study
from simnmt.calibrate.vocabulary.study.document import (
    PARTS,
    TIMED_PARTS,
    Part,
    PartRun,
    StudiedModel,
    Study,
    Tried,
)
from simnmt.calibrate.vocabulary.study.kept_contexts import KeptContexts
from simnmt.calibrate.vocabulary.study.parts import StudyBench
from simnmt.calibrate.vocabulary.study.settings import StudySettings
from simnmt.calibrate.vocabulary.study.texts import Direction, check_held_out, check_texts, sha256_of, studied_texts
from simnmt.nmt.checkpoint import WEIGHTS_FILE
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.fingerprint import model_bytes
from simnmt.nmt.vocabulary.kmeans import method_named

TOOL = f"simnmt {__version__}"
_LIBRARIES = ("torch", "numpy", "scikit-learn", "faiss-cpu", "sacrebleu", "sentencepiece")


def run_study(
    folder: Path,
    directions: Sequence[Direction],
    *,
    settings: StudySettings | None = None,
    parts: Sequence[Part] = PARTS,
    out: Path | None = None,
    kept: Path | None = None,
    threads: int = 1,
    progress: Callable[[str], None] = lambda _: None,
    guard: RoundGuard | None = None,
) -> Study:
    """Measure `parts` for these directions of the model that lies in `folder`, in the order of `PARTS`.

    `out`: the study's file; what it holds of other parts and directions stays, and it is written anew after each part.
    `kept`: a folder for contexts, which every part needs and which take minutes to decode; `guard`: of the timed rounds.
    Raises `CalibrationError` for a
    file of another model, for directions of one label, and what reading, clustering and decoding raise.
    """
    labels = [each.label for each in directions]
    if not labels or len(set(labels)) < len(labels):
        what = f"directions labelled {', '.join(labels) or 'not at all'}"
        raise CalibrationError(what, remedy="give texts of one or more directions, each with a label of its own")
    settings = settings or StudySettings()
    with _threads(threads):
        translator = Translator.load(folder)
        study = _begun(_studied(folder, translator), directions, out)
        contexts = KeptContexts(translator, study.model.sha256, kept, progress)
        bench = StudyBench(translator, directions, settings, contexts, progress, guard or RoundGuard(say=progress))
        for part in (each for each in PARTS if each in parts):
            others, begin_s = busy.others_cpus(), time.perf_counter()
            if part in TIMED_PARTS and others is not None and busy.is_busy(others, describe(libraries=False)):
                progress(f"{part}: others use {others:.1f} CPUs here; what is timed now is disturbed")
            labels = bench.labels(part)
            if left := [each.label for each in directions if each.label not in labels]:
                progress(f"{part}: not of {', '.join(left)}, since no translations of the training text were given")
            found = tuple(bench.measured(part, study))
            run = PartRun(
                part=part,
                labels=tuple(labels),
                date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                seconds=time.perf_counter() - begin_s,
                threads=threads,
                machine=_machine(),
                others_cpus=others,
                versions=_versions(),
                method=None if part == "candidates" else method_named(settings.method),
                seed=settings.seed,
                quick=settings.quick,
                settings=settings.told(),
                notes=(*bench.notes(part, study), *([bench.guard_note(found)] if part in TIMED_PARTS else [])),
            )
            study = merged(study, part, found, run, bench.tried)
            if out is not None:
                write_study(out, study)
    return study


def merged(
    study: Study, part: Part, found: Sequence[Any], run: PartRun, tried: Mapping[str, tuple[Tried, ...]] | None = None
) -> Study:
    """The study with these entries of a part, in the place of all that it held of the part for the run's directions.

    `tried`: by direction, what r and K were chosen by; after another sweep they are chosen again.
    """
    tried = tried or {}
    again = set(tried) | (set(run.labels) if part == "sweep" else set())
    choices = [each for each in study.tried if each.label not in again] + [each for own in tried.values() for each in own]
    stay = [each for each in getattr(study, part) if each.label not in run.labels]
    return study.model_copy(update={part: (*stay, *found), "runs": (*study.runs, run), "tool": TOOL, "tried": tuple(choices)})


def _begun(model: StudiedModel, directions: Sequence[Direction], out: Path | None) -> Study:
    """The study that the file holds, or a new one, with the texts of these directions."""
    texts = tuple(studied_texts(directions))
    check_held_out(texts)
    if out is None or not out.exists():
        return Study(tool=TOOL, model=model, texts=texts)
    study = read_study(out, Study)
    if study.model.sha256 != model.sha256:
        raise CalibrationError(f"a study of another model, {study.model.name}", path=out, remedy="choose another file")
    check_texts(study, texts, out)
    now = {(each.label, each.role) for each in texts}
    stay = [each for each in study.texts if (each.label, each.role) not in now]
    return study.model_copy(update={"texts": (*stay, *texts)})


def _studied(folder: Path, translator: Translator) -> StudiedModel:
    model: Any = translator.model
    vocab, width = model.weight.shape
    return StudiedModel(
        name=Path(os.path.realpath(folder)).name,
        kind=model.architecture.kind,
        sha256=sha256_of(folder / WEIGHTS_FILE),
        vocab=vocab,
        width=width,
        parameters=sum(each.numel() for each in model.parameters()),
        parameter_bytes=model_bytes(model),
    )


def _machine() -> str:
    box = describe(libraries=False)
    return f"{box.cpu_model or box.machine}, {box.usable_cpus} CPUs, {box.system}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
