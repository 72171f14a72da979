"""Whole studies of a part of the vocabulary: what is measured, a file that goes on, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.calibrate import harness, processor_use
from simnmt.calibrate.settings import CalibrationError
from simnmt.papers.fvp.study import PARTS, TIMED_PARTS, PartRun, Study, StudySettings
from simnmt.papers.fvp.study_clusters import choose
from simnmt.papers.fvp.study_run import run_study
from simnmt.papers.kit.study import read_study, write_study
from tests.calibrate.conftest import Unwatched
from tests.calibrate.studied_models import QUIET, direction, models_and_text

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = StudySettings(
    clusters=(2, 5),
    tops=(1, 2),
    fine_clusters=(2, 3),
    fine_tops=(3,),
    train_sentences=20,
    clustered_contexts=40,
    heldout_sentences=2,
    volumes=2,
    volume_clusters=(3,),
    language_clusters=(2,),
    shown_clusters=4,
    searches=((1, 1), (2, 3)),
    rounds=1,
    speed_clusters=(2,),
    speed_sentences=3,
    candidates=2,
)


@pytest.fixture(scope="module", autouse=True)
def quiet_box() -> Iterator[None]:
    """A box whose use by others is known without waiting half a second for entry part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor_use, "others_cpus", lambda: 0.25)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and text."""
    return models_and_text(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def study(made: Path) -> Study:
    """All parts of two directions."""
    torch.set_num_threads(1)
    both = [direction(made), direction(made, "other-one")]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(harness, "BusyWatch", Unwatched)
        return run_study(made / "m", both, settings=SMALL, out=made / "study.json", kept=made / "kept", reference=QUIET)


def test_every_part_is_measured_and_can_be_read_again(made: Path, study: Study) -> None:
    assert read_study(made / "study.json", Study) == study
    assert (study.model.name, study.model.vocab, study.model.width) == ("m", 36, 48)
    assert study.model.parameter_bytes == 4 * study.model.parameters
    keys = [(entry.label, entry.clusters, entry.top) for entry in study.sweep]
    grid = [(2, 1), (2, 2), (2, 3), (3, 3), (5, 1), (5, 2)]
    assert keys == [(label, *cell) for label in ("one-other", "other-one") for cell in grid]
    assert [entry.training_sentences for entry in study.volume if entry.label == "one-other"] == [10, 10, 20, 20]
    assert {(entry.label, entry.knowledge) for entry in study.by_language} == {
        (label, knowledge) for label in ("one-other", "other-one") for knowledge in ("both", "target", "mixed, same size")
    }
    sizes = {(entry.label, entry.knowledge): entry.training_contexts for entry in study.by_language}
    for label in ("one-other", "other-one"):
        assert sizes[label, "both"] == sizes[label, "mixed, same size"] < sizes[label, "target"]
    assert [len(entry.columns) for entry in study.per_cluster] == [4] * 4
    assert all(
        sum(entry.columns) * 4 == bundle.set_bytes for entry, bundle in zip(study.per_cluster, shown(study), strict=True)
    )
    assert [(entry.beam, entry.batch) for entry in study.chosen] == [(1, 1), (2, 3)] * 2
    assert {entry.selection for entry in study.candidates} == {"ibm1"}
    assert len(study.speeds) == 2 * 2 * 2
    assert all(entry.identical is not None and entry.token_agreement is not None for entry in study.speeds)
    timed = (*study.chosen, *study.speeds, *study.candidates)
    assert all(entry.rounds is not None and entry.rounds.conclusive and entry.rounds.rejected == 0 for entry in timed)
    assert all("timed stretches of rounds were disturbed" in run_of(study, part).notes[-1] for part in TIMED_PARTS)
    assert all(entry.active_mass is not None and 0.0 < entry.active_mass < 1.0 for entry in study.chosen)
    assert all(run.settings == SMALL and run.others_cpus == 0.25 for run in study.runs)
    assert all(entry.total_bytes > entry.centroid_bytes == entry.clusters * 48 * 4 for entry in study.memory)
    assert [run.part for run in study.runs] == list(dict.fromkeys(run.part for run in study.runs))
    read, seen = study.runs[0].notes[:2]
    assert read == "one-other: the first 20 sentences that are not empty, of 60 lines of training text."
    assert seen.startswith("one-other: k-means saw 40 of ")
    assert {text.role for text in study.texts} == {"train", "targets", "heldout", "references"}


def run_of(study: Study, part: str) -> PartRun:
    return next(run for run in reversed(study.runs) if run.part == part)


def smaller(**changed: Any) -> StudySettings:
    return StudySettings(**(SMALL.model_dump() | changed))


def shown(study: Study) -> list[Any]:
    return [entry for entry in study.memory if entry.clusters == SMALL.shown_clusters]


def test_the_chosen_cell_comes_from_the_sweep_or_from_the_settings(made: Path, study: Study) -> None:
    for label in ("one-other", "other-one"):
        best = choose([entry for entry in study.tried if entry.label == label])
        assert {(entry.clusters, entry.top) for entry in study.chosen if entry.label == label} == {best}
        assert best in {(entry.clusters, entry.top) for entry in study.memory if entry.label == label}
    assert all(entry.sentences == 2 and entry.bleu is not None for entry in study.tried), "of the development half"
    (rule, *_, scores) = (note for note in study.runs[PARTS.index("chosen")].notes if "chosen" in note or "Scores" in note)
    assert rule.startswith("one-other: r and K were chosen on 2 other held-out sentences") and "active columns alone" in scores
    named = smaller(chosen={"one-other": (3, 1)}, searches=((1, 1),))
    continued = run_study(made / "m", [direction(made)], settings=named, parts=["chosen"], kept=made / "kept", reference=QUIET)
    assert [(entry.clusters, entry.top) for entry in continued.chosen] == [(3, 1)]
    with pytest.raises(CalibrationError, match="no measured cell to choose r and K of one-other by"):
        run_study(made / "m", [direction(made)], settings=SMALL, parts=["chosen"])


def test_a_second_run_replaces_no_more_than_it_measures(made: Path, study: Study, tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    write_study(out, study)
    fewer = smaller(clusters=(3,))
    continued = run_study(made / "m", [direction(made)], settings=fewer, parts=["sweep"], out=out, kept=made / "kept")
    assert continued == read_study(out, Study)
    assert [(entry.label, entry.clusters) for entry in continued.sweep] == [
        *[("other-one", r) for r in (2, 2, 2, 3, 5, 5)],
        *[("one-other", r) for r in (2, 3, 3, 3)],
    ]
    assert (continued.volume, continued.chosen, continued.texts) == (study.volume, study.chosen, continued.texts)
    assert {(text.label, text.role) for text in continued.texts} == {(text.label, text.role) for text in study.texts}
    assert run_of(continued, "sweep") == continued.runs[-1] != run_of(study, "sweep")
    assert {entry.label for entry in study.tried} == {"one-other", "other-one"}
    assert {entry.label for entry in continued.tried} == {"other-one"}, "of the old sweep"


def test_a_file_of_another_model_or_text_is_not_added_to(made: Path, study: Study, tmp_path: Path) -> None:
    before = (made / "study.json").read_bytes()
    with pytest.raises(CalibrationError, match="a study of another model, m"):
        run_study(made / "other", [direction(made)], settings=SMALL, parts=["sweep"], out=made / "study.json")
    changed = tmp_path / "train"
    changed.write_text("un deux\n")
    with pytest.raises(CalibrationError, match=r"a study of another text train\.one for one-other"):
        texts = dataclasses.replace(direction(made), train=changed)
        run_study(made / "m", [texts], settings=SMALL, parts=["sweep"], out=made / "study.json")
    assert (made / "study.json").read_bytes() == before


def test_a_direction_without_translations_is_left_out_of_word_alignments_with_a_note(made: Path) -> None:
    other, messages = dataclasses.replace(direction(made, "other-one"), train_targets=None), list[str]()
    settings = smaller(searches=((1, 1),))
    continued = run_study(
        made / "m",
        [direction(made), other],
        settings=settings,
        parts=["candidates"],
        kept=made / "kept",
        progress=messages.append,
        reference=QUIET,
    )
    assert {entry.label for entry in continued.candidates} == {"one-other"} and continued.runs[0].labels == ("one-other",)
    assert continued.runs[0].notes[0].startswith("other-one: left out, since no translations")
    assert "candidates: left out for other-one, since no translations of the training text were given" in messages
    with pytest.raises(CalibrationError, match="no translations of any training text"):
        run_study(made / "m", [other], settings=SMALL, parts=["candidates"])


def test_a_part_measured_on_less_text_counts_as_not_measured(study: Study) -> None:
    def had(part: str, **changed: Any) -> PartRun:
        return run_of(study, part).model_copy(update={"settings": smaller(**changed)})

    quick = smaller(quick=True)
    for part in PARTS:
        assert SMALL.measured_by(had(part)) and SMALL.measured_by(had(part, heldout_sentences=3))
        assert not SMALL.measured_by(had(part, heldout_sentences=1))
        assert not SMALL.measured_by(had(part, quick=True))
        assert quick.measured_by(had(part, heldout_sentences=1)), "a quick study replaces nothing"
    assert not SMALL.measured_by(had("sweep", clusters=(2,))) and SMALL.measured_by(had("speeds", clusters=(2,)))
    assert not SMALL.measured_by(had("chosen", searches=((1, 1),)))


def test_a_file_that_is_no_study_is_refused_in_one_line(made: Path, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with pytest.raises(CalibrationError, match="cannot read the study"):
        read_study(path, Study)
    document = json.loads(study.model_dump_json())
    document["sweep"][0]["miss_rate"] = 2.0
    path.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match=r"not a study: sweep\.0\.miss_rate"):
        read_study(path, Study)
    path.write_text("{")
    with pytest.raises(CalibrationError, match="not a study"):
        read_study(path, Study)
