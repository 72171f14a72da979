"""What a study of a part of the vocabulary counts without decoding is what decoding does, and how it chooses by that."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.calibrate.harness import Case
from simnmt.calibrate.settings import CalibrationError
from simnmt.nmt.decoder import BatchedRun
from simnmt.nmt.translation import Translator
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import collect
from simnmt.nmt.vocabulary.restricted_vocabulary import clustered
from simnmt.papers.fvp import study_clusters
from simnmt.papers.fvp.study import Cell, Decoded, Spread, TriedCell
from simnmt.papers.fvp.study_clusters import (
    ActiveBits,
    Clusterer,
    DirectionContexts,
    active_mass,
    by_sentence,
    cells,
    choose,
    cluster_sets,
    contenders,
    first_sentences,
    outcome,
    try_contenders,
)
from simnmt.papers.fvp.study_decoding import (
    Runner,
    Sentences,
    TimedSearch,
    VocabularyPart,
    concatenate_runs,
    decode_in_rounds,
    similarity,
    time_rounds,
)
from simnmt.papers.fvp.study_texts import Sample, held_out, training_pairs
from tests.calibrate.studied_models import QUIET, contexts_of, direction, models_and_text

pytestmark = pytest.mark.usefixtures("one_thread")


PART = VocabularyPart("clustered", clusters=8, top=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and text."""
    return models_and_text(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def translator(made: Path) -> Translator:
    return Translator.load(made / "m")


@pytest.fixture(scope="module")
def contexts(made: Path, translator: Translator) -> DirectionContexts:
    return contexts_of(made, translator, sentences=6)


@pytest.fixture(scope="module")
def clusters(translator: Translator, contexts: DirectionContexts) -> ClusterSet:
    return eight_clusters(translator, contexts)


def eight_clusters(translator: Translator, contexts: DirectionContexts) -> ClusterSet:
    (eight,) = cluster_sets(translator.model, contexts.label, contexts.training, 8, [1], Clusterer(1, 10_000))
    return eight


def development(made: Path, translator: Translator, sentences: int) -> Sentences:
    return Sentences.of(translator, Sample(held_out(direction(made), sentences)[1].sources, None))


def decode(
    translator: Translator,
    sentences: Sentences,
    clusters: ClusterSet,
    beam: int = 1,
    batch: int = 1,
    rounds: int = 1,
    stretch_size: int | None = None,
) -> Decoded:
    return decode_in_rounds(
        translator,
        sentences,
        lambda audit, account: replace(clustered(clusters), audit=audit, account=account),
        PART,
        TimedSearch("one-other", beam, batch, rounds, QUIET),
        emitted=10,
        stretch_size=stretch_size,
    )


def sets(*members: list[int]) -> tuple[Any, Any]:
    starts = np.cumsum([0, *map(len, members)])
    return starts.astype(np.int64), np.array([column for member in members for column in member], np.int32)


def test_shares_unions_and_misses_of_a_small_example() -> None:
    """The sets of FVP-04 and FVP-06: {2, 4, 6, 8, 9} and {1, 3} of 10 columns, united they are 7."""
    bits = ActiveBits(*sets([2, 4, 6, 8, 9], [1, 3]), 10)
    tokens, sentences = np.array([4, 3, 2, 1, 5, 9]), np.array([0, 0, 1, 1, 7, 7])
    counts = outcome(bits, np.array([0, 1, 0, 0, 1, 0]), tokens, sentences, rows=2)
    assert counts.miss_rate == pytest.approx(2 / 6)  # 1 is not in the first set, 5 in none
    assert counts.identical == pytest.approx(1 / 3)
    assert counts.share.mean == pytest.approx((4 * 0.5 + 2 * 0.2) / 6)
    # Two lanes of three steps: clusters 0, 1, 0 beside 0, 1, 0.
    assert (counts.union.least, counts.union.most, counts.union_rows) == (0.2, 0.5, 2)
    assert outcome(bits, np.array([0, 1, 0, 0, 1, 0]), tokens, sentences, rows=3).union.mean == pytest.approx(0.7)


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


def test_a_cell_that_multiplies_more_is_tried_only_if_it_keeps_more_sentences() -> None:
    """r + V' columns a row (FVP-09): 100 + 400 comes before 1,000 + 100, and what keeps 60 % is not tried."""
    good, many, poor = cell(100, 3, 0.04, 0.93), cell(1_000, 3, 0.01, 0.95), cell(100, 1, 0.01, 0.60)
    large, worse = cell(10, 5, 0.20, 0.99), cell(1_500, 1, 0.01, 0.94)
    assert contenders([many, poor, good, large, worse], 0.90, 0.15) == [good, many]
    assert contenders([many, poor, good, large], 0.99, 0.15) == [many]  # none is good enough: the best within the share
    assert contenders([large], 0.92, 0.15) == [large]


def trial(candidate: Cell, *identical: float, least: float = 0.9) -> list[TriedCell]:
    """With a beam, and where that is good greedily too."""
    trials = []
    for (beam, batch), same in zip(((2, 20), (1, 1)), identical, strict=True):
        tried = TriedCell(
            label="a", clusters=candidate.clusters, top=candidate.top, columns=candidate.clusters, beam=beam, batch=batch,
            sentences=9,
            bleu_dense=None, bleu=None, identical=same, token_agreement=same, good=same >= least,
        )  # fmt: skip
        trials.append(tried)
        if not tried.good:
            break
    return trials


@given(st.lists(st.tuples(*[st.floats(0.5, 1.0)] * 2), min_size=1, max_size=20))
def test_the_trials_find_the_smallest_cell_that_is_good_with_every_search(kept: list[tuple[float, float]]) -> None:
    """Where more columns keep no fewer sentences: the very first good one; else a good one wherever one was tried."""
    front = [cell(at + 1, 1, 0.0, 0.95) for at in range(len(kept))]
    rising = list(zip(*map(sorted, zip(*kept, strict=True)), strict=True))
    tried = try_contenders(front, lambda candidate: trial(candidate, *rising[candidate.clusters - 1]))
    good = [at + 1 for at, kept_by_search in enumerate(rising) if min(kept_by_search) >= 0.9]
    assert not good or choose(tried) == (good[0], 1)
    assert len({entry.clusters for entry in tried}) <= 5
    tried = try_contenders(front, lambda candidate: trial(candidate, *kept[candidate.clusters - 1]))
    chosen, _ = choose(tried)
    if any(all(entry.good for entry in tried if entry.clusters == candidate.clusters) for candidate in tried):
        assert min(kept[chosen - 1]) >= 0.9


def test_if_no_cell_is_good_the_one_that_keeps_most_with_its_worst_search_is_chosen() -> None:
    few, many = cell(100, 1, 0.01, 0.95), cell(200, 1, 0.01, 0.96)
    assert choose([*trial(few, 0.92, 0.85), *trial(many, 0.80, 0.99)]) == (100, 1)


@pytest.mark.deep
def test_counts_along_dense_paths_equal_those_of_clustered_decoding_of_single_sentences(
    made: Path, translator: Translator, contexts: DirectionContexts, clusters: ClusterSet
) -> None:
    """A sentence is decoded alike up to its first miss, so those without one are the identical ones (FVP-08)."""
    (counted,) = cells(translator.model, contexts, contexts.training, 8, [1], Clusterer(1, 10_000))
    decoded = decode(translator, development(made, translator, 10), clusters)
    assert 0.0 < counted.identical < 1.0
    assert decoded.identical == pytest.approx(counted.identical)
    assert decoded.dense.bleu is None
    assert decoded.token_agreement >= decoded.identical
    assert 0.0 < decoded.layer_share < 1.0
    assert decoded.predicted == pytest.approx(1 / (1 - decoded.layer_share + decoded.layer_share / decoded.layer_ratio))


@pytest.mark.parametrize(("beam", "batch"), [(1, 1), (2, 3)])
def test_rounds_are_kept_one_by_one_in_tokens_a_second(
    made: Path, translator: Translator, clusters: ClusterSet, beam: int, batch: int
) -> None:
    decoded = decode(translator, development(made, translator, 4), clusters, beam=beam, batch=batch, rounds=3)
    assert (decoded.beam, decoded.batch) == (beam, batch)
    # Both write other numbers of tokens, the same in every round.
    tokens = {
        method: getattr(decoded, method).tokens_per_s * float(np.median(getattr(decoded, method).rounds_s))
        for method in ("dense", "part")
    }
    seconds = zip(decoded.dense.rounds_s, decoded.part.rounds_s, strict=True)
    wanted = [tokens["part"] / tokens["dense"] * before / after for before, after in seconds]
    assert decoded.gains == pytest.approx(wanted) and decoded.measured == pytest.approx(float(np.median(wanted)))
    for result in (decoded.dense, decoded.fused, decoded.part):
        assert len(result.layer_rounds_s) == len(result.body_rounds_s) == 3
        assert all(0.0 < layer < whole for layer, whole in zip(result.layer_rounds_s, result.rounds_s, strict=True))
    assert len(decoded.gains_over_fused) == len(decoded.layer_ratios) == len(decoded.layer_ratios_over_fused) == 3


def test_a_disturbed_stretch_alone_is_measured_again(made: Path, translator: Translator) -> None:
    """Three readings before each stretch and after each of its two rounds; those before the second one are twice as slow."""
    readings = itertools.chain([1.0] * 9, [2.0] * 3, itertools.repeat(1.0))
    reference = Case(lambda: {"seconds": next(readings)}, prepare=lambda: None)
    search, calls = TimedSearch("one-other", 1, 1, 2, reference), list[int]()
    run = Runner(translator, development(made, translator, 2), 1, 1).run("dense")

    def decode_stretch(stretch: Sentences) -> tuple[BatchedRun, dict[str, float]]:
        calls.append(len(stretch.sources))
        return run, {"seconds": 1.0}

    timed = time_rounds(development(made, translator, 10), 4, search, {"dense": decode_stretch})
    assert calls == [4, 4, 4, 4, 4, 2, 2], "the round beside the slow reading"
    assert (timed.kept.wanted, timed.kept.measured, timed.kept.rejected) == (6, 7, 1) and timed.kept.conclusive
    assert timed.sums["dense"]["seconds"].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(("batch", "least"), [(1, 3), (2, 1)])
def test_decoding_in_stretches_counts_what_decoding_the_whole_text_counts(
    made: Path, translator: Translator, clusters: ClusterSet, batch: int, least: int
) -> None:
    lines = held_out(direction(made), 2)[1].sources
    sentences = Sentences.of(translator, Sample([*lines, *lines], None))

    ordered = sentences.in_batch_order(batch)
    runner = Runner(translator, ordered, 1, batch)
    pieces = [runner.run("dense", sentences=stretch) for stretch in ordered.stretches(runner.stretch_size(least))]
    assert len(pieces) > 1
    written = [[hypothesis.tokens for hypothesis in run.hypotheses] for run in (concatenate_runs(pieces), runner.run("dense"))]
    assert written[0] == written[1]
    as_given = Runner(translator, sentences, 1, batch).run("dense")
    assert sorted(written[0]) == sorted(hypothesis.tokens for hypothesis in as_given.hypotheses)
    assert concatenate_runs(pieces).active.tolist() == as_given.active.tolist()

    parts, whole = (
        decode(translator, sentences, clusters, batch=batch, rounds=2, stretch_size=runner.stretch_size(size))
        for size in (least, 1_000)
    )
    assert parts.rounds.wanted > whole.rounds.wanted == 2
    for method in ("dense", "fused", "part"):
        one, other = getattr(parts, method), getattr(whole, method)
        assert one.steps == other.steps and len(one.rounds_s) == len(other.rounds_s) == 2
        assert 0.0 < one.layer_s < sum(one.rounds_s)
    assert parts.identical == whole.identical and parts.share == whole.share


def test_similarity_is_the_share_of_equal_sentences_and_of_equal_tokens() -> None:
    class Run:
        def __init__(self, *tokens: tuple[int, ...]) -> None:
            self.hypotheses = [type("Hypothesis", (), {"tokens": hypothesis}) for hypothesis in tokens]

    assert similarity(Run((1, 2), (3,)), Run((1, 2), (3, 4))) == (0.5, 3 / 4)  # type: ignore[arg-type]
    assert similarity(Run(()), Run(())) == (1.0, 1.0)  # type: ignore[arg-type]


def test_the_probability_of_active_columns_is_that_of_the_models_softmax(
    translator: Translator, contexts: DirectionContexts, clusters: ClusterSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only every second context is looked at."""
    model: Any = translator.model
    logits = contexts.development.hidden.double() @ model.weight.detach().double().T + model.bias.detach().double()
    logits[:, model.pad_token] = -torch.inf
    probabilities, nearest = logits.softmax(dim=1), clusters.centroids.nearest(contexts.development.hidden)
    wanted = [float(row[clusters.sets.of(int(at)).long()].sum()) for row, at in zip(probabilities, nearest, strict=True)]
    assert active_mass(model, contexts, clusters) == pytest.approx(np.mean(wanted), rel=1e-5)
    monkeypatch.setattr(study_clusters, "MASS_CONTEXTS", -(-len(wanted) // 2))
    assert active_mass(model, contexts, clusters) == pytest.approx(np.mean(wanted[::2]), rel=1e-5)


def test_with_all_columns_active_nothing_is_missed_and_sentences_are_the_same(made: Path, translator: Translator) -> None:
    """One cluster of every token that was ever among the likeliest 35: dense decoding, whatever the beam."""
    training = by_sentence(
        collect(translator.model, translator.encode(direction(made).train.read_text().splitlines()[:20]), 34)
    )
    (everything,) = cluster_sets(translator.model, "a", training, 1, [34], Clusterer(1, 10_000))
    lines = direction(made).heldout.read_text().splitlines()[:12]
    decoded = decode(translator, Sentences.of(translator, Sample(lines, lines)), everything, beam=2, batch=5)
    assert (decoded.identical, decoded.token_agreement, decoded.miss_rate) == (1.0, 1.0, 0.0)
    assert decoded.part.bleu == decoded.dense.bleu == decoded.fused.bleu is not None
    assert decoded.share.least == decoded.share.most == len(everything.sets.of(0)) / 36


def test_more_text_and_more_likely_tokens_miss_less(translator: Translator, contexts: DirectionContexts) -> None:
    """By construction: the sets of K hold those of K - 1. FVP-08, FVP-11."""
    training = contexts.training
    swept = list(cells(translator.model, contexts, training, 6, [1, 2, 3], Clusterer(1, 10_000)))
    assert [cell.miss_rate for cell in swept] == sorted((cell.miss_rate for cell in swept), reverse=True)
    shares = [cell.share.mean for cell in swept]
    assert shares[0] < shares[1] < shares[2]
    assert all(cell.sets.least <= cell.share.least <= cell.share.mean <= cell.union.most for cell in swept)
    assert len(first_sentences(training, 3)) < len(training)
    assert first_sentences(training, 3).sentence.unique().tolist() == [0, 1, 2]


def test_held_out_text_chooses_with_one_half_and_reports_on_the_other(made: Path, tmp_path: Path) -> None:
    test, development = held_out(direction(made), 1_000)
    lines, references = ((made / f"held.{side}").read_text().splitlines() for side in ("one", "other"))
    assert [*test.sources, *development.sources] == lines
    assert [*(test.references or ()), *(development.references or ())] == references and len(test.sources) == 20
    assert list(held_out(direction(made), 3)[1].sources) == lines[20:23]
    short = tmp_path / "short"
    short.write_text("un\n")
    with pytest.raises(CalibrationError, match="fewer than two sentences"):
        held_out(dataclasses.replace(direction(made), heldout=short, references=None), 5)
    with pytest.raises(CalibrationError, match="not as many lines"):
        held_out(dataclasses.replace(direction(made), references=short), 5)
    with pytest.raises(CalibrationError, match="no translations"):
        training_pairs(dataclasses.replace(direction(made), train_targets=None), 5)
