"""Decoders with a part of the vocabulary: dense where all of it is active, and what they tell of themselves where not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from simnmt.batching import mini
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel, build_model
from simnmt.nmt.output_layer import Output
from simnmt.nmt.search import Search
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, ClusterSet
from simnmt.nmt.vocabulary.restricted_vocabulary import (
    ClusteredColumns,
    RestrictedVocabulary,
    SubsetAccount,
    clustered,
    listed,
    load_vocabulary,
)
from tests.nmt.made_subsets import MadeLists, all_active, trained_clusters
from tests.nmt.tiny import ARCHITECTURES, GRU, VOCAB, lively, sources, together

LENGTHS = [3, 9, 5, 7, 4, 12, 2, 6]
WIDER = GRU.model_copy(update={"hidden": 20})


@pytest.fixture(scope="module")
def narrow() -> ClusterSet:
    """So few tokens a cluster that decoding goes astray at times."""
    return trained_clusters(1, 12)


@pytest.fixture
def alone() -> list[list[int]]:
    return sources(GRU, LENGTHS, seed=6)[0]


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_clusters_active_is_identical_to_dense(name: str, width: int) -> None:
    """FVP-07: every kind of model, made to go on or not; scores to 1e-5."""
    model = lively(name)
    alone, _, _ = sources(model.architecture, LENGTHS)
    everything = clustered(all_active(VOCAB, model.weight.shape[1]))
    for forced in (None, 6):
        dense = together(model, alone, Search(width, scored=True), forced_len=forced, max_len=12)
        output = Output(vocabulary=everything)
        restricted = together(model, alone, Search(width, scored=True), output, forced_len=forced, max_len=12)
        assert [one.tokens for one in restricted] == [one.tokens for one in dense]
        assert [one.score for one in restricted] == pytest.approx([one.score for one in dense], abs=1e-5)
    if width == 1:
        unscored = together(model, alone, Search(), output=Output(vocabulary=everything), max_len=12)
        wanted = together(model, alone, max_len=12)
        assert [one.tokens for one in unscored] == [one.tokens for one in wanted]


def dense_and_audited(part: RestrictedVocabulary, alone: list[list[int]]) -> tuple[BatchedRun, BatchedRun, SubsetAccount]:
    model = lively("gru")
    dense = decode(model, alone, mini(1), max_len=30)
    audited = decode(model, alone, mini(1), output=Output(vocabulary=replace(part, audit=True)), max_len=30)
    assert audited.subset is not None
    return dense, audited, audited.subset


def test_greedy_search_differs_from_dense_exactly_in_sentences_with_a_miss(narrow: ClusterSet) -> None:
    """FVP-08: a miss is the dense argmax outside the active columns, and nothing else tells a sentence from its dense one."""
    alone = sources(GRU, LENGTHS * 4, seed=6)[0]
    dense, audited, account = dense_and_audited(clustered(narrow), alone)
    missed = [0] * len(alone)
    for (sentence,), misses in zip(account.keys, account.missed, strict=True):
        missed[sentence] += misses
    same = [one.tokens == other.tokens for one, other in zip(dense.hypotheses, audited.hypotheses, strict=True)]
    assert same == [not misses for misses in missed]
    assert 0 < sum(same) < len(alone)
    assert account.miss_rate == sum(missed) / sum(account.rows)


def test_the_account_records_the_union_of_the_active_sentences(narrow: ClusterSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """FVP-06: against a union by hand, step by step; sentences that are done are left out, and columns then shrink."""
    alone, seen = sources(GRU, [3, 6, 12], seed=6)[0], list[set[int]]()
    columns = ClusteredColumns.columns

    def watched(self: ClusteredColumns, hidden: torch.Tensor) -> torch.Tensor:
        apart = ((hidden[:, None, :] - narrow.centroids.points).double() ** 2).sum(dim=2)
        seen.append({token for cluster in apart.argmin(dim=1).tolist() for token in narrow.sets.of(cluster).tolist()})
        active = columns(self, hidden)
        assert active.tolist() == sorted(seen[-1])
        return active

    monkeypatch.setattr(ClusteredColumns, "columns", watched)
    account = decode(lively("gru"), alone, mini(3), output=Output(vocabulary=clustered(narrow)), max_len=30).subset
    assert account is not None
    assert account.columns == [len(union) for union in seen]
    assert account.share.tolist() == [len(union) / VOCAB for union in seen]
    assert account.rows == [len(keys) for keys in account.keys] and account.rows[0] == 3 and account.rows[-1] == 1


@pytest.mark.parametrize("width", [1, 2])
def test_no_sentence_leaves_its_list(alone: list[list[int]], width: int) -> None:
    """SHARP-02; and in a batch, the union of the lists of those under way."""
    model = lively("gru")
    lists = MadeLists([[1, 3, *range(4 + token % 5, 50, 5)] for token in range(16)], VOCAB)
    singly = decode(model, alone, mini(1), search=Search(width), output=Output(vocabulary=listed(lists)), max_len=12)
    for source, hypothesis in zip(alone, singly.hypotheses, strict=True):
        assert set(hypothesis.tokens) <= set(lists.of(source).tolist())
    joint = decode(model, alone, mini(8), search=Search(width), output=Output(vocabulary=listed(lists)), max_len=12)
    assert joint.subset is not None
    assert joint.subset.columns[0] == len({token for source in alone for token in lists.of(source).tolist()})
    assert joint.subset.columns[-1] < joint.subset.columns[0]


def test_stages_are_timed_by_the_clock_that_is_given(narrow: ClusterSet, alone: list[list[int]]) -> None:
    """A clock that ticks once at each look: every stage takes one."""
    ticks = iter(range(100_000))
    account = SubsetAccount(clock=lambda: float(next(ticks)))
    decode(lively("gru"), alone, mini(3), output=Output(vocabulary=replace(clustered(narrow), account=account)), max_len=30)
    assert len(account.rows) > 5
    assert account.assign_s == account.product_s == account.search_s == [1.0] * len(account.rows)


@pytest.fixture
def saved(tmp_path: Path, narrow: ClusterSet) -> Callable[[str], Path]:
    """The tiny model in a folder, and its bundles."""
    model = lively("gru")
    save_checkpoint(tmp_path / "gru", model, GRU)
    ClusterBundle.of(model, [narrow]).save(tmp_path / "one")
    ClusterBundle.of(model, [narrow, trained_clusters(2, 12, label="other")]).save(tmp_path / "two")
    starts = torch.arange(0, 2 * (VOCAB + 1), 2).numpy()
    columns = torch.arange(2 * VOCAB).remainder(VOCAB).to(torch.int32).numpy()
    always = torch.tensor([1, 3], dtype=torch.int32).numpy()
    CandidateLists(starts, columns, always, VOCAB).save(tmp_path / "lists", model)
    return lambda name: tmp_path / name


def test_bundles_are_loaded_for_their_model_and_direction(saved: Callable[[str], Path]) -> None:
    model: TranslationModel = lively("gru")
    assert load_vocabulary(saved("one"), model).label == "one"
    assert load_vocabulary(saved("two"), model, direction="other").label == "other"
    assert load_vocabulary(saved("lists"), model).label == "candidates"
    for name, other, direction in (
        ("one", build_model(GRU, seed=9), None),
        ("one", build_model(WIDER, seed=9), None),
        ("two", model, None),
        ("two", model, "othr"),
        ("lists", model, "one"),
        ("gru/model.safetensors", model, None),
        ("none", model, None),
    ):
        with pytest.raises(NmtError):
            load_vocabulary(saved(name), other, direction=direction)
