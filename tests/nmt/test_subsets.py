"""A part of the vocabulary: the output layer over some columns, and decoders with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from simnmt.batching import mini
from simnmt.kernels.columns import gathered_products, scatter
from simnmt.kernels.output_reference import Best
from simnmt.nmt.checkpoint import save_checkpoint
from simnmt.nmt.decoder import BatchedRun, decode
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import TranslationModel, build_model
from simnmt.nmt.output_layer import BannedTokens, Limit, Output, SubsetOutput
from simnmt.nmt.search import BeamSearch, GreedySearch, Search
from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet, save_clusters
from simnmt.nmt.vocabulary.restricted_vocabulary import (
    RestrictedVocabulary,
    SubsetAccount,
    clustered,
    listed,
    load_vocabulary,
)
from tests.nmt.made_subsets import MadeLists, all_active, drawn, trained_clusters
from tests.nmt.tiny import ARCHITECTURES, GRU, VOCAB, Table, lively, sources, steps_of, together


class Wide(Table):
    """A table whose log-probabilities are the hidden states: the output layer is the identity."""

    def __init__(self, table: Tensor) -> None:
        super().__init__(table)
        self.weight = torch.eye(self.vocab)


class Scattered(SubsetOutput):
    """As the paper has it: products among all columns, minus infinity elsewhere, then softmax and search."""

    def project(self, hidden: Tensor, best: int) -> Best:
        columns = self.columns(hidden)
        products = gathered_products(self._weight, hidden, columns)
        logits = scatter(products, columns, self._model.vocab, self._model.bias)
        self._banned.ban(logits)
        values, tokens = logits.topk(min(best, self._model.vocab), dim=1)
        return Best(tokens, values, logits.logsumexp(dim=1) - values[:, 0])


def output(
    model: Any, vocabulary: RestrictedVocabulary, banned: BannedTokens | None = None, sources: Any = ((0,),)
) -> SubsetOutput:
    layer = SubsetOutput(model, banned or BannedTokens(model), vocabulary)
    layer.join(range(len(sources)), sources)
    return layer


@st.composite
def decodings(draw: st.DrawFn) -> tuple[Tensor, int, list[Limit], float, int]:
    """Logits of each step after each token, on a grid that no two sums share by chance, and how much of it is active."""
    vocab = draw(st.integers(8, 40))  # a beam of 5 and the special tokens
    tables = torch.randn((6, vocab, vocab), generator=torch.Generator().manual_seed(draw(st.integers(0, 10_000))))
    tables *= draw(st.sampled_from([0.3, 2.0, 9.0]))
    tables[:, :, 1] += draw(st.sampled_from([0.0, 5.0]))
    limits = draw(st.lists(st.builds(Limit, st.integers(1, 6), st.booleans()), min_size=1, max_size=5))
    return tables, draw(st.integers(1, 5)), limits, draw(st.sampled_from([0.0, 0.1, 0.4, 1.0])), draw(st.integers(0, 99))


@given(decodings())
def test_columns_straight_to_the_fused_kernel_give_the_tokens_of_scatter_and_softmax(
    drawing: tuple[Tensor, int, list[Limit], float, int],
) -> None:
    """XP-02, also where fewer are active than the beam wants, and where some sentences may not end."""
    tables, width, limits, share, seed = drawing
    model = Wide(tables[0])
    clusters = drawn(model.vocab, model.vocab, 4, share, [1, 3], seed)

    def steps(layer: type[SubsetOutput]) -> list[Any]:
        made: Any = SimpleNamespace(layer=lambda model, banned: layer(model, banned, clustered(clusters)))
        search = (BeamSearch if width > 1 else GreedySearch)(model, Search(width, scored=True), made)
        return steps_of(search, tables, list(limits))

    straight, scattered = steps(SubsetOutput), steps(Scattered)
    assert [step[0] for step in straight] == [step[0] for step in scattered]
    for one, other in zip(straight, scattered, strict=True):
        assert one[1] == pytest.approx(other[1], abs=1e-4)


def test_neither_padding_nor_the_end_of_a_forced_sentence_is_chosen() -> None:
    """Of both rows the end is likeliest, then padding; the second may not end."""
    table = torch.zeros((6, 6))
    table[:, 1], table[:, 0], table[:, 4] = 9.0, 8.0, 7.0
    model = Wide(table)
    banned = BannedTokens(model)
    banned.update([Limit(3), Limit(3, True)], 1)
    layer = output(model, listed(MadeLists([[0, 1, 4, 5]], 6)), banned, [[0], [0]])
    assert layer.likeliest(layer.project(table[:2], 0), False)[0].tolist() == [1, 4]
    tokens, log_probs = layer.likeliest(layer.project(table[:2], 1), True)
    assert log_probs is not None
    assert tokens.tolist() == [1, 4]
    # The end, 4 and 5 are left to the first; 4 and 5 to the second.
    expected = [-log(1 + exp(-2) + exp(-9)), -log(1 + exp(-7))]
    assert log_probs.tolist() == pytest.approx(expected, abs=1e-5)


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
    for step in account.steps:
        missed[step.keys[0]] += step.missed
    same = [one.tokens == other.tokens for one, other in zip(dense.hypotheses, audited.hypotheses, strict=True)]
    assert same == [not misses for misses in missed]
    assert 0 < sum(same) < len(alone)
    assert account.miss_rate == sum(missed) / len(account.steps)


def test_the_account_records_the_union_of_the_active_sentences(narrow: ClusterSet) -> None:
    """FVP-06: against a union by hand, step by step; sentences that are done are left out, and columns then shrink."""
    alone, seen, part = sources(GRU, [3, 6, 12], seed=6)[0], list[set[int]](), clustered(narrow)
    assert part.by_context is not None

    def watched(hidden: torch.Tensor) -> torch.Tensor:
        apart = ((hidden[:, None, :] - narrow.centroids.points).double() ** 2).sum(dim=2)
        seen.append({token for cluster in apart.argmin(dim=1).tolist() for token in narrow.sets.of(cluster).tolist()})
        active = part.by_context(hidden)
        assert active.tolist() == sorted(seen[-1])
        return active

    output = Output(vocabulary=replace(part, by_context=watched))
    account = decode(lively("gru"), alone, mini(3), output=output, max_len=30).subset
    assert account is not None
    assert [step.columns for step in account.steps] == [len(union) for union in seen]
    assert account.share.tolist() == [len(union) / VOCAB for union in seen]
    rows = [step.rows for step in account.steps]
    assert rows == [len(step.keys) for step in account.steps] and (rows[0], rows[-1]) == (3, 1)


@pytest.fixture
def saved(tmp_path: Path, narrow: ClusterSet) -> Callable[[str], Path]:
    """The tiny model in a folder, and its bundles."""
    model = lively("gru")
    save_checkpoint(tmp_path / "gru", model, GRU)
    save_clusters(narrow, tmp_path / "one", model)
    starts = torch.arange(0, 2 * (VOCAB + 1), 2).numpy()
    columns = torch.arange(2 * VOCAB).remainder(VOCAB).to(torch.int32).numpy()
    always = torch.tensor([1, 3], dtype=torch.int32).numpy()
    CandidateLists(starts, columns, always, VOCAB).save(tmp_path / "lists", model)
    return lambda name: tmp_path / name


def test_bundles_are_loaded_for_their_model(saved: Callable[[str], Path]) -> None:
    model: TranslationModel = lively("gru")
    assert load_vocabulary(saved("one"), model).label == "one"
    assert load_vocabulary(saved("lists"), model).label == "candidates"
    for name, other in (
        ("one", build_model(GRU, seed=9)),
        ("one", build_model(WIDER, seed=9)),
        ("gru/model.safetensors", model),
        ("none", model),
    ):
        with pytest.raises(NmtError) as refusal:
            load_vocabulary(saved(name), other)
        assert refusal.value.path == str(saved(name))
