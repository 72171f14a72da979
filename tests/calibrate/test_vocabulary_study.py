"""Whole studies of a part of the vocabulary: what is measured, a file that goes on, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sklearn", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sentencepiece", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sacrebleu", reason="the extra packages of simnmt[models] are not installed")

from simnmt.calibrate import processor_use  # noqa: E402
from simnmt.calibrate.settings import CalibrationError  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.papers.fvp.study import PARTS, TIMED_PARTS, PartRun, Study, StudySettings  # noqa: E402
from simnmt.papers.fvp.study_clusters import choose  # noqa: E402
from simnmt.papers.fvp.study_run import run_study  # noqa: E402
from simnmt.papers.kit.study import read_study, write_study  # noqa: E402
from tests.calibrate.studied_models import QUIET, direction, models_and_text  # noqa: E402

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
    """A box whose use by others is known without waiting half a second for each part."""
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
    return run_study(made / "m", both, settings=SMALL, out=made / "study.json", kept=made / "kept", guard=QUIET)


def test_every_part_is_measured_and_read_again(made: Path, study: Study) -> None:
    assert read_study(made / "study.json", Study) == study
    assert (study.model.name, study.model.vocab, study.model.width) == ("m", 36, 48)
    assert study.model.parameter_bytes == 4 * study.model.parameters
    keys = [(each.label, each.clusters, each.top) for each in study.sweep]
    grid = [(2, 1), (2, 2), (2, 3), (3, 3), (5, 1), (5, 2)]
    assert keys == [(label, *each) for label in ("one-other", "other-one") for each in grid]
    assert [each.training_sentences for each in study.volume if each.label == "one-other"] == [10, 10, 20, 20]
    assert {(each.label, each.knowledge) for each in study.by_language} == {
        (label, knowledge) for label in ("one-other", "other-one") for knowledge in ("both", "target", "mixed, same size")
    }
    sizes = {(each.label, each.knowledge): each.training_contexts for each in study.by_language}
    for label in ("one-other", "other-one"):
        assert sizes[label, "both"] == sizes[label, "mixed, same size"] < sizes[label, "target"]
    assert [len(each.columns) for each in study.per_cluster] == [4] * 4
    assert all(sum(each.columns) * 4 == own.set_bytes for each, own in zip(study.per_cluster, shown(study), strict=True))
    assert [(each.beam, each.batch) for each in study.chosen] == [(1, 1), (2, 3)] * 2
    assert {each.selection for each in study.candidates} == {"ibm1", "attention"}
    assert len(study.speeds) == 2 * 2 * 2
    assert all(each.identical is not None and each.token_agreement is not None for each in study.speeds)
    timed = (*study.chosen, *study.speeds, *study.candidates)
    assert all(each.rounds is not None and each.rounds.conclusive and each.rounds.rejected == 0 for each in timed)
    assert all("timed stretches of rounds were disturbed" in run_of(study, part).notes[-1] for part in TIMED_PARTS)
    assert all(each.active_mass is not None and 0.0 < each.active_mass < 1.0 for each in study.chosen)
    assert all(run.settings == SMALL and run.others_cpus == 0.25 for run in study.runs)
    assert all(each.total_bytes > each.centroid_bytes == each.clusters * 48 * 4 for each in study.memory)
    assert [run.part for run in study.runs] == list(dict.fromkeys(run.part for run in study.runs))
    read, seen = study.runs[0].notes[:2]
    assert read == "one-other: the first 20 sentences that are not empty, of 60 lines of training text."
    assert seen.startswith("one-other: k-means saw 40 of ")
    assert {each.role for each in study.texts} == {"train", "targets", "heldout", "references"}


def run_of(study: Study, part: str) -> PartRun:
    return next(run for run in reversed(study.runs) if run.part == part)


def smaller(**changed: Any) -> StudySettings:
    return StudySettings(**(SMALL.model_dump() | changed))


def shown(study: Study) -> list[Any]:
    return [each for each in study.memory if each.clusters == SMALL.shown_clusters]


def test_what_is_chosen_comes_from_the_sweep_or_is_named(made: Path, study: Study) -> None:
    for label in ("one-other", "other-one"):
        best = choose([each for each in study.tried if each.label == label])
        assert {(each.clusters, each.top) for each in study.chosen if each.label == label} == {best}
        assert best in {(each.clusters, each.top) for each in study.memory if each.label == label}
    assert all(each.sentences == 2 and each.bleu is not None for each in study.tried), "of the development half"
    (rule, *_, scores) = (note for note in study.runs[PARTS.index("chosen")].notes if "chosen" in note or "Scores" in note)
    assert rule.startswith("one-other: r and K were chosen on 2 other held-out sentences") and "active columns alone" in scores
    named = smaller(chosen={"one-other": (3, 1)}, searches=((1, 1),))
    found = run_study(made / "m", [direction(made)], settings=named, parts=["chosen"], kept=made / "kept", guard=QUIET)
    assert [(each.clusters, each.top) for each in found.chosen] == [(3, 1)]
    with pytest.raises(CalibrationError, match="no measured cell to choose r and K of one-other by"):
        run_study(made / "m", [direction(made)], settings=SMALL, parts=["chosen"])


def test_a_run_that_was_stopped_goes_on_and_replaces_no_more_than_it_measures(made: Path, study: Study, tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    write_study(out, study)
    fewer = smaller(clusters=(3,))
    found = run_study(made / "m", [direction(made)], settings=fewer, parts=["sweep"], out=out, kept=made / "kept")
    assert found == read_study(out, Study)
    assert [(each.label, each.clusters) for each in found.sweep] == [
        *[("other-one", r) for r in (2, 2, 2, 3, 5, 5)],
        *[("one-other", r) for r in (2, 3, 3, 3)],
    ]
    assert (found.volume, found.chosen, found.texts) == (study.volume, study.chosen, found.texts)
    assert {(each.label, each.role) for each in found.texts} == {(each.label, each.role) for each in study.texts}
    assert run_of(found, "sweep") == found.runs[-1] != run_of(study, "sweep")
    assert {each.label for each in study.tried} == {"one-other", "other-one"}
    assert {each.label for each in found.tried} == {"other-one"}, "of the old sweep"


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


def test_training_text_is_not_held_out(made: Path) -> None:
    with pytest.raises(CalibrationError, match=r"train\.one is other-one's held-out text and one-other's training text"):
        same = dataclasses.replace(direction(made, "other-one"), heldout=made / "train.one", references=None)
        run_study(made / "m", [direction(made), same], settings=SMALL, parts=["sweep"])


def test_a_direction_without_translations_is_left_out_of_word_alignments_and_told_so(made: Path) -> None:
    other, said = dataclasses.replace(direction(made, "other-one"), train_targets=None), list[str]()
    settings = smaller(searches=((1, 1),))
    found = run_study(
        made / "m",
        [direction(made), other],
        settings=settings,
        parts=["candidates"],
        kept=made / "kept",
        progress=said.append,
        guard=QUIET,
    )
    assert {each.label for each in found.candidates} == {"one-other"} and found.runs[0].labels == ("one-other",)
    assert found.runs[0].notes[0].startswith("other-one: left out, since no translations")
    assert "candidates: not of other-one, since no translations of the training text were given" in said
    with pytest.raises(CalibrationError, match="no translations of any training text"):
        run_study(made / "m", [other], settings=SMALL, parts=["candidates"])


def test_a_part_of_less_counts_as_not_measured(study: Study) -> None:
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


def test_more_clusters_than_contexts_and_more_tokens_than_the_vocabulary_are_refused(made: Path) -> None:
    many = smaller(clusters=(1_000,), fine_clusters=())
    with pytest.raises(NmtError, match="different contexts for 1,000 clusters"):
        run_study(made / "m", [direction(made)], settings=many, parts=["sweep"], kept=made / "kept")
    with pytest.raises(NmtError, match="vocabulary of 36"):
        run_study(made / "m", [direction(made)], settings=smaller(tops=(36,)), parts=["sweep"])
    with pytest.raises(CalibrationError, match="one direction has no other"):
        run_study(made / "m", [direction(made)], settings=SMALL, parts=["by_language"])
    with pytest.raises(CalibrationError, match="labelled a, a"):
        run_study(made / "m", [dataclasses.replace(direction(made), label="a")] * 2, settings=SMALL)
    with pytest.raises(ValidationError, match="rounds"):
        StudySettings(rounds=0)


def test_what_is_no_study_is_told_in_one_line(made: Path, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with pytest.raises(CalibrationError, match="cannot read the study"):
        read_study(path, Study)
    told = json.loads(study.model_dump_json())
    told["sweep"][0]["miss_rate"] = 2.0
    path.write_text(json.dumps(told))
    with pytest.raises(CalibrationError, match=r"no study: sweep\.0\.miss_rate"):
        read_study(path, Study)
    path.write_text("{")
    with pytest.raises(CalibrationError, match="no study"):
        read_study(path, Study)


def test_reading_a_study_needs_no_torch() -> None:
    code = "import sys, simnmt.papers.fvp.study; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
