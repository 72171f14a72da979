"""A whole study of a part of the vocabulary in small: what is measured, and a file that goes on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from simnmt.calibrate import harness
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.models import build_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.subwords import learn_vocabulary
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import collect
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered
from simnmt.papers.fvp import measure
from simnmt.papers.fvp.measure import (
    PARTS,
    PLAIN,
    Direction,
    Sizes,
    cell_of,
    chosen_of,
    clustering_of,
    decode,
    encode,
    run_study,
    time_methods,
    timed_decoding,
)
from simnmt.papers.fvp.reproduction import judge
from simnmt.papers.fvp.study import Study
from simnmt.papers.kit.study import read_study
from tests.nmt import toy_language
from tests.papers.vocab_stand_ins import cell

GRU = toy_language.GRU.model_copy(update={"src_vocab": 36, "tgt_vocab": 36})
SMALL = Sizes(
    grid={2: (1, 2, 3), 3: (3,), 5: (1, 2)},
    tops=(1, 2),
    train_sentences=20,
    clustered_contexts=40,
    heldout_sentences=2,
    volumes=2,
    volume_clusters=(3,),
    language_clusters=(2,),
    searches=((1, 1), (2, 3)),
    rounds=1,
    speed_clusters=(2,),
    speed_sentences=3,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that have learnt nothing, whose words change from source to source all the same, and text."""
    place, marks = tmp_path_factory.mktemp("study"), {"pad": 0, "unk": 1, "start": 2, "eos": 3}
    subwords = learn_vocabulary([text for pair in toy_language.pairs(300) for text in pair], 36, side="whole", **marks)
    for name, seed in (("m", 4), ("other", 5)):
        save_checkpoint(place / name, build_model(GRU, seed=seed), GRU)
        for side in ("source.model", "target.model"):
            (place / name / side).write_bytes(subwords)
    for part, first, last in (("train", 0, 60), ("held", 60, 100)):
        for side, suffix in ((0, "one"), (1, "other")):
            lines = [pair[side] for pair in toy_language.pairs(100, seed=2)[first:last]]
            (place / f"{part}.{suffix}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return place


def direction(made: Path, label: str = "one-other") -> Direction:
    """Return these texts, or the other way round."""
    one, other = label.split("-")
    return Direction(label, made / f"train.{one}", made / f"held.{one}", made / f"held.{other}")


@pytest.fixture(scope="module")
def study(made: Path) -> Study:
    """All parts of two directions."""
    both = [direction(made), direction(made, "other-one")]
    return run_study(made / "m", both, SMALL, out=made / "study.json")


def test_every_part_is_measured_for_each_direction_and_can_be_read_again(made: Path, study: Study) -> None:
    assert read_study(made / "study.json", Study) == study
    assert (study.model.name, study.model.vocab, study.model.width) == ("m", 36, 48)
    grid = [(2, 1), (2, 2), (2, 3), (3, 3), (5, 1), (5, 2)]
    labels = ("one-other", "other-one")
    assert [(entry.label, entry.clusters, entry.top) for entry in study.sweep] == [
        (label, *at) for label in labels for at in grid
    ]
    assert [entry.training_sentences for entry in study.volume if entry.label == "one-other"] == [10, 10, 20, 20]
    assert {(entry.label, entry.knowledge) for entry in study.by_language} == {
        (label, knowledge) for label in labels for knowledge in ("both", "target")
    }
    for label in labels:
        (chosen,) = {(entry.clusters, entry.top) for entry in study.chosen if entry.label == label}
        assert chosen in grid
    assert [(entry.beam, entry.batch) for entry in study.chosen] == [(1, 1), (2, 3)] * 2
    assert len(study.speeds) == 2 * 2 * 2
    assert {(run.part, *run.labels) for run in study.runs} == {(part, label) for part in PARTS for label in labels}
    assert {text.role for text in study.texts} == {"train", "heldout", "references"}
    assert judge([study]).text()


def test_a_study_goes_on_with_the_parts_that_its_file_lacks(made: Path, study: Study, tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    out.write_text(study.model_copy(update={"by_language": (), "volume": study.volume[:4]}).model_dump_json())
    messages: list[str] = []
    continued = run_study(made / "m", [direction(made), direction(made, "other-one")], SMALL, out=out, say=messages.append)
    measured = [message for message in messages if message.rpartition(": ")[2] in PARTS]
    assert measured == ["other-one: volume", "one-other: by_language", "other-one: by_language"]
    assert (continued.sweep, continued.volume) == (study.sweep, study.volume)


def test_held_out_text_chooses_with_one_half_and_reports_on_the_other(made: Path, tmp_path: Path) -> None:
    test, development = direction(made).held_out(1_000)
    lines, references = ((made / f"held.{side}").read_text().splitlines() for side in ("one", "other"))
    assert [*test, *development] == list(zip(lines, references, strict=True)) and len(test) == 20
    assert [source for source, _ in direction(made).held_out(3)[1]] == lines[20:23]
    short = tmp_path / "short"
    short.write_text("un\n")
    with pytest.raises(CalibrationError, match="fewer than two sentences"):
        dataclasses.replace(direction(made), heldout=short, references=None).held_out(5)
    with pytest.raises(CalibrationError, match="not as many lines"):
        dataclasses.replace(direction(made), references=short).held_out(5)


@pytest.fixture(scope="module")
def translator(made: Path) -> Translator:
    return Translator.load(made / "m")


def sources(made: Path, most: int) -> list[tuple[str, None]]:
    """Return the development half's first sentences."""
    return [(source, None) for source, _ in direction(made).held_out(most)[1]]


def test_counts_along_dense_paths_equal_those_of_clustered_decoding_of_single_sentences(
    made: Path, translator: Translator
) -> None:
    """A sentence is decoded alike up to its first miss, so those without one are the identical ones (FVP-08)."""
    held_out = sources(made, 10)
    texts = direction(made).training_sources(6), [source for source, _ in held_out]
    training, development = (collect(translator.model, translator.encode(lines), 3) for lines in texts)
    sets = ClusterSet.of("one-other", training, clustering_of(training, 8), translator.model, top=1)
    swept = cell_of(training, development, sets, "both", 10)
    names: Any = {"clusters": 8, "top": 1, "label": "one-other", "emitted": 10}
    decoded = timed_decoding(translator, encode(translator, held_out), 1, 1, Output(vocabulary=clustered(sets)), 2, **names)
    assert 0.0 < swept.identical < 1.0 and decoded.identical == pytest.approx(swept.identical)
    assert decoded.bleu is None and decoded.token_agreement >= decoded.identical
    assert len(decoded.gains) == len(decoded.gains_over_fused) == len(decoded.layer_ratios) == 2
    assert 0.0 < decoded.layer_share < 1.0 and decoded.share_mean <= decoded.share_most


@pytest.mark.parametrize(("batch", "least"), [(1, 3), (2, 1)])
def test_decoding_in_stretches_writes_what_decoding_the_whole_text_writes(
    made: Path, translator: Translator, batch: int, least: int
) -> None:
    sentences = encode(translator, [*sources(made, 2), *sources(made, 2)])
    stretches = time_methods(translator, sentences, 1, batch, {"dense": PLAIN}, 2, least)
    whole = decode(translator, sentences, 1, batch).hypotheses
    assert stretches.hypotheses["dense"] == list(whole)
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in whole)
    assert stretches.by_round["tokens", "dense"].tolist() == [tokens] * 2
    assert (stretches.by_round["layer_share", "dense"] < 1.0).all()


@pytest.mark.parametrize(("disturbed", "counted", "conclusive"), [(1, 3, True), (2, 4, False)])
def test_a_stretch_that_was_disturbed_with_one_method_counts_with_none(
    made: Path, translator: Translator, monkeypatch: pytest.MonkeyPatch, disturbed: int, counted: int, conclusive: bool
) -> None:
    """One of four stretches is left out; with two too few remain, and all of them count."""

    def measured(*cases: Any, **options: Any) -> Any:
        frame = harness.rounds(*cases, **options)
        places = [place < disturbed and method == "fused" for place, method in frame["case"]]
        return frame.assign(disturbed=places)

    monkeypatch.setattr(measure, "rounds", measured)
    sentences = encode(translator, sources(made, 4))
    timed = time_methods(translator, sentences, 1, 1, {"dense": PLAIN, "fused": Output(fused=True)}, 1, 1)
    assert timed.conclusive == conclusive
    lengths = [len(hypothesis.tokens) + 1 for hypothesis in timed.hypotheses["dense"]]
    assert len(lengths) == 4 and timed.by_round["tokens"].to_numpy().tolist() == [[sum(lengths[4 - counted :])] * 2]


def test_of_the_cells_that_keep_most_the_one_that_multiplies_least_is_chosen() -> None:
    """r + V' columns a row (FVP-09), at most 15 % of V active."""

    def made_cell(clusters: int, share: float, identical: float) -> Any:
        return cell(clusters=clusters, share_mean=share, identical=identical)

    good, dear, poor, large = (
        made_cell(*size) for size in ((100, 0.04, 0.95), (1_000, 0.01, 0.95), (50, 0.01, 0.9), (10, 0.2, 1.0))
    )
    assert chosen_of([dear, poor, good, large], 10_000) == good and chosen_of([large], 10_000) == large
