"""What a study of a part of the vocabulary counts without decoding is what decoding does, and how it chooses by that."""

from __future__ import annotations

import dataclasses
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

from simnmt.calibrate.settings import CalibrationError  # noqa: E402
from simnmt.calibrate.study import Checkpoint, RoundGuard  # noqa: E402
from simnmt.kernels.column_sets import Centroids  # noqa: E402
from simnmt.nmt.translation import Translator  # noqa: E402
from simnmt.nmt.vocabulary.active_columns import clustered  # noqa: E402
from simnmt.nmt.vocabulary.contexts import collect  # noqa: E402
from simnmt.papers.fvp import study_sweep  # noqa: E402
from simnmt.papers.fvp.study import Cell, Decoded, Spread, TriedCell  # noqa: E402
from simnmt.papers.fvp.study_choice import choice, contenders, try_contenders  # noqa: E402
from simnmt.papers.fvp.study_decoding import VocabularyPart, decode_with_search, decode_with_searches, measure_stretches  # noqa: E402
from simnmt.papers.fvp.study_runners import Runner, Sentences, alike, concatenate_runs  # noqa: E402
from simnmt.papers.fvp.study_settings import held_out, training_pairs  # noqa: E402
from simnmt.papers.fvp.study_sweep import (  # noqa: E402  # noqa: E402  # noqa: E402
    ActiveBits,
    Clusterer,
    HeldOutTokens,
    KeptContexts,
    active_mass,
    beginning,
    by_sentence,
    cells,
    cluster_sets,
    outcome,
    spread,
)
from tests.calibrate.studied_models import QUIET, contexts_of, direction, models_and_text  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and text."""
    return models_and_text(tmp_path_factory.mktemp("study"))


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


def test_only_cells_are_tried_that_multiply_more_than_another_for_more_sentences() -> None:
    """r + V' columns a row (FVP-09): 100 + 400 comes before 1,000 + 100, and what keeps 60 % is not tried."""
    good, many, poor = cell(100, 3, 0.04, 0.93), cell(1_000, 3, 0.01, 0.95), cell(100, 1, 0.01, 0.60)
    large, worse = cell(10, 5, 0.20, 0.99), cell(1_500, 1, 0.01, 0.94)
    assert contenders([many, poor, good, large, worse], 0.90, 0.15) == [good, many]
    assert contenders([many, poor, good, large], 0.99, 0.15) == [many]  # none is good enough: the best within the share
    assert contenders([large], 0.92, 0.15) == [large]


def trial(own: Cell, *identical: float, least: float = 0.9) -> list[TriedCell]:
    """With a beam, and where that is good greedily too."""
    found = []
    for (beam, batch), same in zip(((2, 20), (1, 1)), identical, strict=True):
        told = TriedCell(
            label="a", clusters=own.clusters, top=own.top, columns=own.clusters, beam=beam, batch=batch, sentences=9,
            bleu_dense=None, bleu=None, identical=same, token_agreement=same, good=same >= least,
        )  # fmt: skip
        found.append(told)
        if not told.good:
            break
    return found


@given(st.lists(st.tuples(*[st.floats(0.5, 1.0)] * 2), min_size=1, max_size=20))
def test_the_smallest_cell_is_found_that_is_good_with_every_search(kept: list[tuple[float, float]]) -> None:
    """Where more columns keep no fewer sentences: the very first good one; else a good one wherever one was tried."""
    front = [cell(at + 1, 1, 0.0, 0.95) for at in range(len(kept))]
    rising = list(zip(*map(sorted, zip(*kept, strict=True)), strict=True))
    tried = try_contenders(front, lambda own: trial(own, *rising[own.clusters - 1]))
    good = [at + 1 for at, own in enumerate(rising) if min(own) >= 0.9]
    assert not good or choice(tried) == (good[0], 1)
    assert len({each.clusters for each in tried}) <= 5
    tried = try_contenders(front, lambda own: trial(own, *kept[own.clusters - 1]))
    chosen, _ = choice(tried)
    if any(all(each.good for each in tried if each.clusters == own.clusters) for own in tried):
        assert min(kept[chosen - 1]) >= 0.9


def test_where_no_cell_is_good_the_one_is_chosen_that_keeps_most_with_its_worst_search() -> None:
    few, many = cell(100, 1, 0.01, 0.95), cell(200, 1, 0.01, 0.96)
    assert choice([*trial(few, 0.92, 0.85), *trial(many, 0.80, 0.99)]) == (100, 1)


def test_what_is_counted_along_dense_paths_is_what_clustered_decoding_of_single_sentences_does(made: Path) -> None:
    """A sentence is decoded alike up to its first miss, so those without one are the identical ones (FVP-08)."""
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator, sentences=6)
    clusterer = Clusterer(seed=1, most=10_000, method="sklearn")
    (counted,) = cells(translator.model, of, of.training, 8, [1], clusterer)
    (own,) = cluster_sets(translator.model, of.label, of.training, 8, [1], clusterer)
    sentences = Sentences.of(translator, held_out(direction(made), 20).development)
    found = decode_with_search(
        translator,
        sentences,
        lambda audit, account: clustered(own, audit=audit, account=account),
        VocabularyPart("clustered", clusters=8, top=1),
        label=of.label,
        beam=1,
        batch=1,
        rounds=1,
        emitted=of.emitted,
        guard=QUIET,
    )
    assert 0.0 < counted.identical < 1.0
    assert found.identical == pytest.approx(counted.identical)
    assert found.dense.bleu is None
    assert found.token_agreement >= found.identical
    assert 0.0 < found.layer_share < 1.0
    assert found.predicted == pytest.approx(1 / (1 - found.layer_share + found.layer_share / found.layer_ratio))


def test_rounds_are_kept_one_by_one_in_tokens_a_second_with_all_searches_in_turn(made: Path) -> None:
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator, sentences=6)
    (own,) = cluster_sets(translator.model, of.label, of.training, 8, [1], Clusterer(1, 10_000, "sklearn"))
    sentences = Sentences.of(translator, held_out(direction(made), 6).development)
    found = decode_with_searches(
        translator,
        sentences,
        lambda audit, account: clustered(own, audit=audit, account=account),
        VocabularyPart("clustered", clusters=8, top=1),
        label=of.label,
        searches=((1, 1), (2, 3)),
        rounds=3,
        emitted=of.emitted,
        guard=QUIET,
    )
    assert [(each.beam, each.batch) for each in found] == [(1, 1), (2, 3)]
    for each in found:
        # Both write other numbers of tokens, the same in every round.
        tokens = {
            way: getattr(each, way).tokens_per_s * float(np.median(getattr(each, way).rounds_s)) for way in ("dense", "part")
        }
        seconds = zip(each.dense.rounds_s, each.part.rounds_s, strict=True)
        wanted = [tokens["part"] / tokens["dense"] * before / after for before, after in seconds]
        assert each.gains == pytest.approx(wanted) and each.measured == pytest.approx(float(np.median(wanted)))
        for told in (each.dense, each.fused, each.part):
            assert len(told.layer_rounds_s) == len(told.body_rounds_s) == 3
            assert all(0.0 < layer < whole for layer, whole in zip(told.layer_rounds_s, told.rounds_s, strict=True))
        assert len(each.gains_over_fused) == len(each.layer_ratios) == len(each.layer_ratios_over_fused) == 3


def test_a_disturbed_stretch_alone_is_measured_again(made: Path) -> None:
    sentences = Sentences.of(Translator.load(made / "m"), held_out(direction(made), 10).development)
    readings = iter([1.0, 1.0, 2.0, 1.0, *[1.0] * 100])  # 2 and 1 beside the second stretch
    guard = RoundGuard(lambda: next(readings), root="no-such-box")
    calls: list[tuple[int, int]] = []

    def decode(number: int, stretch: Sentences, checkpoint: Checkpoint) -> tuple[int, int]:
        calls.append((number, len(stretch.sources)))
        return calls[-1]

    measured = measure_stretches(guard, sentences, 2, 4, decode)
    assert calls == [(0, 4), (1, 4), (1, 4), (2, 2), (1, 4), (2, 4), (3, 2)]
    assert measured.rounds == [[(0, 4), (1, 4), (2, 2)], [(1, 4), (2, 4), (3, 2)]] and measured.whole == measured.rounds[0]
    assert (measured.kept.wanted, measured.kept.measured, measured.kept.rejected) == (6, 7, 1) and measured.kept.conclusive


def test_times_of_a_stretch_that_stays_disturbed_do_not_count_but_its_translations_do(made: Path) -> None:
    sentences = Sentences.of(Translator.load(made / "m"), held_out(direction(made), 10).development)
    reference_s = [1.0]
    guard = RoundGuard(lambda: reference_s[0], root="no-such-box")

    def decode(number: int, stretch: Sentences, checkpoint: Checkpoint) -> int:
        if number == 0:
            reference_s[0] *= 2.0
        return number

    measured = measure_stretches(guard, sentences, 1, 3, decode)
    assert measured.rounds == [[1, 2, 3]] and measured.whole == [0, 1, 2, 3]
    assert measured.kept.conclusive and measured.kept.rejected == 3


@pytest.mark.parametrize(("batch", "least"), [(1, 3), (2, 1)])
def test_decoding_in_stretches_counts_what_decoding_the_whole_text_counts(made: Path, batch: int, least: int) -> None:
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator, sentences=6)
    (clusters,) = cluster_sets(translator.model, of.label, of.training, 8, [1], Clusterer(1, 10_000, "sklearn"))
    sentences = Sentences.of(translator, [line for line in held_out(direction(made), 20).development for _ in range(3)])

    ordered = sentences.in_batch_order(batch)
    runner = Runner(translator, ordered, 1, batch)
    pieces = [runner.run("dense", sentences=stretch) for stretch in ordered.stretches(runner.stretch_size(least))]
    assert len(pieces) > 1
    written = [[hypothesis.tokens for hypothesis in run.hypotheses] for run in (concatenate_runs(pieces), runner.run("dense"))]
    assert written[0] == written[1]
    as_given = Runner(translator, sentences, 1, batch).run("dense")
    assert sorted(written[0]) == sorted(hypothesis.tokens for hypothesis in as_given.hypotheses)
    assert concatenate_runs(pieces).active.tolist() == as_given.active.tolist()

    def decode(least: int) -> Decoded:
        return decode_with_searches(
            translator,
            sentences,
            lambda audit, account: clustered(clusters, audit=audit, account=account),
            VocabularyPart("clustered", clusters=8, top=1),
            label=of.label,
            searches=((1, batch),),
            rounds=2,
            emitted=of.emitted,
            guard=QUIET,
            stretch_size=runner.stretch_size(least),
        )[0]

    parts, whole = decode(least), decode(1_000)
    assert parts.rounds is not None and whole.rounds is not None
    assert parts.rounds.wanted > whole.rounds.wanted == 2
    for method in ("dense", "fused", "part"):
        one, other = getattr(parts, method), getattr(whole, method)
        assert one.steps == other.steps and len(one.rounds_s) == len(other.rounds_s) == 2
        assert 0.0 < one.layer_s < sum(one.rounds_s)
    assert parts.identical == whole.identical and parts.share == whole.share


def test_how_much_two_decodings_say_the_same() -> None:
    class Run:
        def __init__(self, *tokens: tuple[int, ...]) -> None:
            self.hypotheses = [type("Hypothesis", (), {"tokens": each}) for each in tokens]

    assert alike(Run((1, 2), (3,)), Run((1, 2), (3, 4))) == (0.5, 3 / 4)  # type: ignore[arg-type]
    assert alike(Run(()), Run(())) == (1.0, 1.0)  # type: ignore[arg-type]


def test_the_probability_of_active_columns_is_that_of_the_models_softmax(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only every second context is looked at."""
    translator = Translator.load(made / "m")
    of = contexts_of(made, translator, sentences=6)
    (own,) = cluster_sets(translator.model, of.label, of.training, 4, [1], Clusterer(1, 10_000, "sklearn"))
    model: Any = translator.model
    logits = of.development.hidden.double() @ model.weight.detach().double().T + model.bias.detach().double()
    logits[:, model.pad_token] = -torch.inf
    probabilities, nearest = logits.softmax(dim=1), own.centroids.nearest(of.development.hidden)
    wanted = [float(row[own.sets.of(int(at)).long()].sum()) for row, at in zip(probabilities, nearest, strict=True)]
    assert active_mass(model, of, own) == pytest.approx(np.mean(wanted), rel=1e-5)
    monkeypatch.setattr(study_sweep, "MASS_CONTEXTS", -(-len(wanted) // 2))
    assert active_mass(model, of, own) == pytest.approx(np.mean(wanted[::2]), rel=1e-5)


def test_with_all_columns_active_nothing_is_missed_and_sentences_are_the_same(made: Path) -> None:
    """One cluster of every token that was ever among the likeliest 35: dense decoding, whatever the beam."""
    translator = Translator.load(made / "m")
    training = by_sentence(collect(translator, direction(made).train.read_text().splitlines(), 34))
    (own,) = cluster_sets(translator.model, "a", training, 1, [34], Clusterer(1, 10_000, "sklearn"))
    sentences = Sentences.of(translator, *(direction(made).heldout.read_text().splitlines()[:12],) * 2)
    found = decode_with_search(
        translator,
        sentences,
        lambda audit, account: clustered(own, audit=audit, account=account),
        VocabularyPart("clustered", clusters=1, top=34),
        label="a",
        beam=2,
        batch=5,
        rounds=1,
        emitted=10,
        guard=QUIET,
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
    assert text.development_references == tuple((made / "held.other").read_text().splitlines()[20:])
    short = tmp_path / "short"
    short.write_text("un\n")
    with pytest.raises(CalibrationError, match="fewer than two sentences"):
        held_out(dataclasses.replace(direction(made), heldout=short, references=None), 5)
    with pytest.raises(CalibrationError, match="not as many lines"):
        held_out(dataclasses.replace(direction(made), references=short), 5)
    with pytest.raises(CalibrationError, match="no translations"):
        training_pairs(dataclasses.replace(direction(made), train_targets=None), 5)


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
    monkeypatch.setattr("simnmt.papers.fvp.study_sweep.cluster", None)
    again = clusterer.clusters(training, 4)
    assert torch.equal(again.centroids, first.centroids) and torch.equal(again.labels, first.labels)
    assert (again.inertia, again.method, again.seed) == (first.inertia, "sklearn", 1)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(CalibrationError, match="no kept clusters, or damaged"):
        clusterer.clusters(training, 4)


def test_a_spread_tells_mean_and_quantiles() -> None:
    found = spread(np.array([10, 20, 30, 40, 100]), 1_000)
    assert (found.mean, found.least, found.median, found.most) == pytest.approx((0.04, 0.01, 0.03, 0.1))
