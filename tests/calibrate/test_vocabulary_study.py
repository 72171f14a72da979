"""A study of a part of the vocabulary: what is counted without decoding is what decoding does, and its file goes on."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sklearn", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sentencepiece", reason="the extra packages of simnmt[models] are not installed")
pytest.importorskip("sacrebleu", reason="the extra packages of simnmt[models] are not installed")

from simnmt.calibrate.errors import CalibrationError  # noqa: E402
from simnmt.calibrate.vocabulary.study.decoding import Cut, Sentences, decoded  # noqa: E402
from simnmt.calibrate.vocabulary.study.document import Cell, Spread, Study, read_study, write_study  # noqa: E402
from simnmt.calibrate.vocabulary.study.held_cells import ActiveBits, HeldOutTokens, outcome, spread  # noqa: E402
from simnmt.calibrate.vocabulary.study.kept_clusters import Clusterer  # noqa: E402
from simnmt.calibrate.vocabulary.study.kept_contexts import DirectionContexts, KeptContexts, beginning, by_sentence  # noqa: E402
from simnmt.calibrate.vocabulary.study.run import run_study  # noqa: E402
from simnmt.calibrate.vocabulary.study.settings import StudySettings  # noqa: E402
from simnmt.calibrate.vocabulary.study.sweep import cells, cluster_sets, usual  # noqa: E402
from simnmt.calibrate.vocabulary.study.texts import Direction, held_out, training_pairs  # noqa: E402
from simnmt.kernels.centroids import Centroids  # noqa: E402
from simnmt.nmt.checkpoint import save_checkpoint  # noqa: E402
from simnmt.nmt.errors import NmtError  # noqa: E402
from simnmt.nmt.models import build_model  # noqa: E402
from simnmt.nmt.training.subwords import learn_vocabulary  # noqa: E402
from simnmt.nmt.translation import Translator  # noqa: E402
from simnmt.nmt.vocabulary.clustered import clustered  # noqa: E402
from simnmt.nmt.vocabulary.contexts import collect  # noqa: E402
from tests.nmt import toy_language  # noqa: E402

GRU = toy_language.GRU.model_copy(update={"src_vocab": 36, "tgt_vocab": 36})
MARKS = {"pad": 0, "unk": 1, "start": 2, "eos": 3}
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
    settings=((1, 1), (2, 3)),
    rounds=1,
    speed_clusters=(2,),
    speed_sentences=3,
    candidates=2,
)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that have learnt nothing, whose words change from source to source all the same, and text."""
    place = tmp_path_factory.mktemp("study")
    subwords = learn_vocabulary([text for pair in toy_language.pairs(300) for text in pair], 36, side="whole", **MARKS)
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
    one, other = ("one", "other") if label == "one-other" else ("other", "one")
    return Direction(label, made / f"train.{one}", made / f"held.{one}", made / f"held.{other}", made / f"train.{other}")


def sets(*members: list[int]) -> tuple[Any, Any]:
    starts = np.cumsum([0, *map(len, members)])
    return starts.astype(np.int64), np.array([each for own in members for each in own], np.int32)


def test_shares_unions_and_misses_of_a_small_example() -> None:
    """The sets of FVP-04 and FVP-06: {2, 4, 6, 8, 9} and {1, 3} of 10 columns, united they are 7."""
    bits = ActiveBits(*sets([2, 4, 6, 8, 9], [1, 3]), 10)
    heldout = HeldOutTokens(np.array([4, 3, 2, 1, 5, 9]), np.array([0, 0, 1, 1, 7, 7]))
    found = outcome(bits, np.array([0, 1, 0, 0, 1, 0]), heldout, rows=2)
    assert found.miss_rate == pytest.approx(2 / 6)  # 1 is not in the first set, 5 in none
    assert found.identical == pytest.approx(1 / 3)
    assert found.share.mean == pytest.approx((4 * 0.5 + 2 * 0.2) / 6)
    # Two lanes of three steps: clusters 0, 1, 0 beside 0, 1, 0.
    assert (found.union.least, found.union.most, found.union_rows) == (0.2, 0.5, 2)
    assert outcome(bits, np.array([0, 1, 0, 0, 1, 0]), heldout, rows=3).union.mean == pytest.approx(0.7)


@given(st.lists(st.sets(st.integers(0, 19), min_size=1), min_size=1, max_size=5), st.integers(1, 9), st.data())
def test_unions_are_those_of_sets(members: list[set[int]], rows: int, data: st.DataObject) -> None:
    bits = ActiveBits(*sets(*map(sorted, members)), 20)
    chosen = data.draw(st.lists(st.integers(0, len(members) - 1), min_size=rows, max_size=300))
    steps = len(chosen) // rows
    wanted = [len(set().union(*(members[chosen[lane * steps + step]] for lane in range(rows)))) for step in range(steps)]
    assert bits.unions(np.array(chosen), rows).tolist() == wanted


def cell(clusters: int, top: int, share: float, identical: float) -> Cell:
    same = Spread(mean=share, least=share, p10=share, median=share, p90=share, most=share)
    return Cell(
        label="a",
        knowledge="both",
        clusters=clusters,
        top=top,
        training_sentences=1,
        training_contexts=1,
        clustered_contexts=1,
        heldout_sentences=1,
        heldout_tokens=1,
        sets=same,
        share=same,
        union=same,
        union_rows=1,
        emitted=1_000,
        share_of_emitted=share * 10,  # of 10,000 columns
        union_of_emitted=share * 10,
        miss_rate=0.0,
        identical=identical,
        set_bytes=1,
        bundle_bytes=1,
    )


def test_the_cell_is_chosen_that_multiplies_least_among_those_that_are_good_enough() -> None:
    """r + V' columns a row (FVP-09): 100 + 400 beats 1,000 + 100, and 50 of 60 % identical sentences beat nobody."""
    good, many, poor = cell(100, 3, 0.04, 0.93), cell(1_000, 3, 0.01, 0.95), cell(100, 1, 0.01, 0.60)
    large = cell(10, 5, 0.20, 0.99)
    assert usual([many, poor, good, large], 0.92, 0.15) is good
    assert usual([many, poor, good, large], 0.99, 0.15) is many  # none is good enough: the best within the share
    assert usual([large], 0.92, 0.15) is large


def contexts_of(made: Path, translator: Translator, sentences: int = 30) -> DirectionContexts:
    texts = direction(made)
    lines = texts.train.read_text().splitlines()[:sentences]
    development = by_sentence(collect(translator, list(held_out(texts, 20).development), 3))
    return DirectionContexts("one-other", by_sentence(collect(translator, lines, 3)), development)


def test_what_is_counted_along_dense_paths_is_what_clustered_decoding_of_single_sentences_does(made: Path) -> None:
    """A sentence is decoded alike up to its first miss, so those without one are the identical ones (FVP-08)."""
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator, sentences=6)
    clusterer = Clusterer(seed=1, most=10_000, method="sklearn")
    (counted,) = cells(translator.model, of, of.training, 8, [1], clusterer)
    (own,) = cluster_sets(translator.model, of.label, of.training, 8, [1], clusterer)
    sentences = Sentences.of(translator, held_out(direction(made), 20).development)
    found = decoded(
        translator,
        sentences,
        lambda audit, account: clustered(own, audit=audit, account=account),
        Cut("clustered", clusters=8, top=1),
        label=of.label,
        beam=1,
        batch=1,
        rounds=1,
        emitted=of.emitted,
    )
    assert 0.0 < counted.identical < 1.0
    assert found.identical == pytest.approx(counted.identical)
    assert found.dense.bleu is None
    assert found.token_agreement >= found.identical
    assert 0.0 < found.layer_share < 1.0
    assert found.predicted == pytest.approx(1 / (1 - found.layer_share + found.layer_share / found.layer_ratio))


def test_with_all_columns_active_nothing_is_missed_and_sentences_are_the_same(made: Path) -> None:
    """One cluster of every token that was ever among the likeliest 35: dense decoding, whatever the beam."""
    translator = Translator.load(made / "m")
    training = by_sentence(collect(translator, direction(made).train.read_text().splitlines(), 34))
    (own,) = cluster_sets(translator.model, "a", training, 1, [34], Clusterer(1, 10_000, "sklearn"))
    sentences = Sentences.of(translator, *(direction(made).heldout.read_text().splitlines()[:12],) * 2)
    found = decoded(
        translator,
        sentences,
        lambda audit, account: clustered(own, audit=audit, account=account),
        Cut("clustered", clusters=1, top=34),
        label="a",
        beam=2,
        batch=5,
        rounds=1,
        emitted=10,
    )
    assert (found.identical, found.token_agreement, found.miss_rate) == (1.0, 1.0, 0.0)
    assert found.part.bleu == found.dense.bleu == found.fused.bleu is not None
    assert found.share.least == found.share.most == len(own.sets.of(0)) / 36


def test_more_text_misses_less_and_more_likely_tokens_too(made: Path) -> None:
    """By construction: the sets of K hold those of K - 1. FVP-08, FVP-11."""
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator)
    found = list(cells(translator.model, of, of.training, 6, [1, 2, 3], Clusterer(1, 10_000, "sklearn")))
    assert [each.miss_rate for each in found] == sorted((each.miss_rate for each in found), reverse=True)
    shares = [each.share.mean for each in found]
    assert shares[0] < shares[1] < shares[2]
    assert all(each.sets.least <= each.share.least <= each.share.mean <= each.union.most for each in found)
    assert len(beginning(of.training, 3)) < len(of.training)
    assert beginning(of.training, 3).sentence.unique().tolist() == [0, 1, 2]


def test_k_means_may_see_some_contexts_and_active_sets_are_made_of_all(made: Path) -> None:
    """Each context lies in the cluster that is nearest, and its likeliest token is active there."""
    translator = Translator.load(made / "m")
    training = contexts_of(made, translator).training
    clusterer = Clusterer(1, 25, "sklearn")
    (own,) = cluster_sets(translator.model, "a", training, 4, [1], clusterer)
    assert clusterer.seen(training) == 25 < len(training) == own.contexts
    nearest = Centroids.of(own.centroids.points).nearest(training.hidden)
    assert all(
        int(token) in own.sets.of(int(cluster)).tolist() for cluster, token in zip(nearest, training.top[:, 0], strict=True)
    )


def test_held_out_text_chooses_with_one_half_and_reports_on_the_other(made: Path, tmp_path: Path) -> None:
    text = held_out(direction(made), 1_000)
    lines = (made / "held.one").read_text().splitlines()
    assert (*text.test, *text.development) == tuple(lines)
    assert text.test_references == tuple((made / "held.other").read_text().splitlines()[:20])
    assert held_out(direction(made), 3).development == tuple(lines[20:23])
    short = tmp_path / "short"
    short.write_text("un\n")
    with pytest.raises(CalibrationError, match="fewer than two sentences"):
        held_out(dataclasses.replace(direction(made), heldout=short, references=None), 5)
    with pytest.raises(CalibrationError, match="not as many lines"):
        held_out(dataclasses.replace(direction(made), references=short), 5)
    with pytest.raises(CalibrationError, match="no translations"):
        training_pairs(dataclasses.replace(direction(made), train_targets=None), 5)


@pytest.fixture(scope="module")
def study(made: Path) -> Study:
    """All parts of two directions."""
    torch.set_num_threads(1)
    both = [direction(made), direction(made, "other-one")]
    return run_study(made / "m", both, settings=SMALL, out=made / "study.json", kept=made / "kept")


def test_every_part_is_measured_and_read_again(made: Path, study: Study) -> None:
    assert read_study(made / "study.json") == study
    assert (study.model.name, study.model.vocab, study.model.width) == ("m", 36, 48)
    assert study.model.parameter_bytes == 4 * study.model.parameters
    keys = [(each.label, each.clusters, each.top) for each in study.sweep]
    grid = [(2, 1), (2, 2), (2, 3), (3, 3), (5, 1), (5, 2)]
    assert keys == [(label, *each) for label in ("one-other", "other-one") for each in grid]
    assert [each.training_sentences for each in study.volume if each.label == "one-other"] == [10, 10, 20, 20]
    assert {(each.label, each.knowledge) for each in study.by_language} == {
        (label, knowledge) for label in ("one-other", "other-one") for knowledge in ("both", "target")
    }
    assert [len(each.columns) for each in study.per_cluster] == [4] * 4
    assert all(sum(each.columns) * 4 == own.set_bytes for each, own in zip(study.per_cluster, shown(study), strict=True))
    assert [(each.beam, each.batch) for each in study.chosen] == [(1, 1), (2, 3)] * 2
    assert {each.way for each in study.candidates} == {"ibm1", "attention"}
    assert len(study.speeds) == 2 * 2 * 2
    assert all(each.total_bytes > each.centroid_bytes == each.clusters * 48 * 4 for each in study.memory)
    assert [run.part for run in study.runs] == list(dict.fromkeys(run.part for run in study.runs))
    read, seen = study.runs[0].notes[:2]
    assert read == "one-other: the first 20 sentences that are not empty, of 60 lines of training text."
    assert seen.startswith("one-other: k-means saw 40 of ")
    assert {each.role for each in study.texts} == {"train", "targets", "heldout", "references"}


def shown(study: Study) -> list[Any]:
    return [each for each in study.memory if each.clusters == SMALL.shown_clusters]


def test_what_is_chosen_comes_from_the_sweep_or_is_named(made: Path, study: Study) -> None:
    for label in ("one-other", "other-one"):
        best = usual([each for each in study.sweep if each.label == label], SMALL.least_identical, 0.15)
        assert {(each.clusters, each.top) for each in study.chosen if each.label == label} == {(best.clusters, best.top)}
    named = dataclasses.replace(SMALL, chosen={"one-other": (3, 1)}, settings=((1, 1),))
    found = run_study(made / "m", [direction(made)], settings=named, parts=["chosen"], kept=made / "kept")
    assert [(each.clusters, each.top) for each in found.chosen] == [(3, 1)]
    with pytest.raises(CalibrationError, match="nothing is known to choose r and K of one-other by"):
        run_study(made / "m", [direction(made)], settings=SMALL, parts=["chosen"])


def test_a_run_that_was_stopped_goes_on_and_replaces_no_more_than_it_measures(made: Path, study: Study, tmp_path: Path) -> None:
    out = tmp_path / "study.json"
    write_study(out, study)
    fewer = dataclasses.replace(SMALL, clusters=(3,))
    found = run_study(made / "m", [direction(made)], settings=fewer, parts=["sweep"], out=out, kept=made / "kept")
    assert found == read_study(out)
    assert [(each.label, each.clusters) for each in found.sweep] == [
        *[("other-one", r) for r in (2, 2, 2, 3, 5, 5)],
        *[("one-other", r) for r in (2, 3, 3, 3)],
    ]
    assert (found.volume, found.chosen, found.texts) == (study.volume, study.chosen, found.texts)
    assert {(each.label, each.role) for each in found.texts} == {(each.label, each.role) for each in study.texts}
    assert found.run_of("sweep") == found.runs[-1] != study.run_of("sweep")


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


def test_kept_contexts_are_those_of_their_text_and_a_damaged_file_is_named(made: Path, tmp_path: Path) -> None:
    translator, said = Translator.load(made / "m"), list[str]()
    kept = KeptContexts(translator, "sha", tmp_path / "kept", said.append)
    first = kept.of("a text", ["un deux", "trois"], 2)
    again = kept.of("a text", ["un deux", "trois"], 2)
    assert said == ["decoding 2 sentences of a text", "contexts of a text: kept from before"]
    assert all(torch.equal(getattr(first, name), getattr(again, name)) for name in ("hidden", "top", "sentence", "emitted"))
    kept.of("a text", ["un deux"], 2)
    assert said[-1] == "decoding 1 sentences of a text"
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CalibrationError, match="no kept contexts, or damaged"):
        kept.of("a text", ["un deux", "trois"], 2)


def test_kept_clusters_are_those_of_their_contexts_and_are_not_made_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = contexts_of(made, Translator.load(made / "m"), sentences=6).training
    clusterer = Clusterer(1, 30, "sklearn", tmp_path)
    first = clusterer.clusters(training, 4)
    fewer = clusterer.clusters(beginning(training, 3), 4)
    assert len(fewer.labels) < len(first.labels) == len(training)
    monkeypatch.setattr("simnmt.calibrate.vocabulary.study.kept_clusters.cluster", None)
    again = clusterer.clusters(training, 4)
    assert torch.equal(again.centroids, first.centroids) and torch.equal(again.labels, first.labels)
    assert (again.inertia, again.method, again.seed) == (first.inertia, "sklearn", 1)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(CalibrationError, match="no kept clusters, or damaged"):
        clusterer.clusters(training, 4)


def test_more_clusters_than_contexts_and_more_tokens_than_the_vocabulary_are_refused(made: Path) -> None:
    many = dataclasses.replace(SMALL, clusters=(1_000,), fine_clusters=())
    with pytest.raises(NmtError, match="different contexts for 1,000 clusters"):
        run_study(made / "m", [direction(made)], settings=many, parts=["sweep"], kept=made / "kept")
    with pytest.raises(NmtError, match="vocabulary of 36"):
        run_study(made / "m", [direction(made)], settings=dataclasses.replace(SMALL, tops=(36,)), parts=["sweep"])
    with pytest.raises(CalibrationError, match="one direction has no other"):
        run_study(made / "m", [direction(made)], settings=SMALL, parts=["by_language"])
    with pytest.raises(CalibrationError, match="labelled a, a"):
        run_study(made / "m", [dataclasses.replace(direction(made), label="a")] * 2, settings=SMALL)
    with pytest.raises(CalibrationError, match="less than one of something"):
        StudySettings(rounds=0)


def test_what_is_no_study_is_told_in_one_line(made: Path, study: Study, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    with pytest.raises(CalibrationError, match="cannot read the study"):
        read_study(path)
    told = json.loads(study.model_dump_json())
    told["sweep"][0]["miss_rate"] = 2.0
    path.write_text(json.dumps(told))
    with pytest.raises(CalibrationError, match=r"no study: sweep\.0\.miss_rate"):
        read_study(path)
    path.write_text("{")
    with pytest.raises(CalibrationError, match="no study"):
        read_study(path)


def test_reading_a_study_needs_no_torch() -> None:
    code = "import sys, simnmt.calibrate.vocabulary.study.document; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_spread_tells_mean_and_quantiles() -> None:
    found = spread(np.array([10, 20, 30, 40, 100]), 1_000)
    assert (found.mean, found.least, found.median, found.most) == pytest.approx((0.04, 0.01, 0.03, 0.1))
