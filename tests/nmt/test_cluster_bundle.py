"""Clusters of one model: saved, loaded, refused elsewhere, and counted to the byte."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from simnmt.kernels.columns import Centroids
from simnmt.nmt.errors import NmtError
from simnmt.nmt.models import build_model
from simnmt.nmt.vocabulary.bundle_file import (
    control_tokens,
)
from simnmt.nmt.vocabulary.cluster_bundle import (
    ActiveShares,
    ClusterBundle,
    ClusterSet,
    expected_union,
    load_clusters,
)
from simnmt.nmt.vocabulary.contexts import (
    cluster,
    collect,
)
from simnmt.nmt.vocabulary.memory_account import memory_account
from tests.nmt.tiny import ARCHITECTURES, GRU, lively, sources


def a_set(label: str, seed: int, clusters: int = 5, top: int = 3) -> ClusterSet:
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 5, 7, 4, 6, 8, 5, 6], seed=seed)
    contexts = collect(model, alone, top)
    return ClusterSet.of(label, contexts, cluster(contexts, clusters, seed=1), model)


@pytest.fixture(scope="module")
def bundle() -> ClusterBundle:
    return ClusterBundle.of(lively("gru"), [a_set("fr-en", 1), a_set("de-en", 2, clusters=4)], name="tiny")


@pytest.fixture
def saved(bundle: ClusterBundle, tmp_path: Path) -> Path:
    bundle.save(tmp_path / "b.safetensors")
    return tmp_path / "b.safetensors"


def test_a_bundle_comes_back_as_it_was_saved(bundle: ClusterBundle, saved: Path) -> None:
    loaded = load_clusters(saved, lively("gru"))
    assert (loaded.labels, loaded.fingerprint, loaded.model_name) == (("fr-en", "de-en"), bundle.fingerprint, "tiny")
    for one, other in zip(bundle.sets, loaded.sets, strict=True):
        assert torch.equal(one.centroids.points, other.centroids.points)
        assert [one.sets.of(at).tolist() for at in range(len(one.sets))] == [
            other.sets.of(at).tolist() for at in range(len(one.sets))
        ]
        assert torch.equal(one.members, other.members) and torch.equal(one.emitted, other.emitted)
        made = ("label", "top", "sentences", "beam", "inertia", "iterations", "method", "seed", "contexts")
        assert [getattr(one, name) for name in made] == [getattr(other, name) for name in made]
    assert loaded.account() == bundle.account()


def test_a_direction_is_selected_by_label_and_a_single_one_needs_none(bundle: ClusterBundle) -> None:
    assert bundle.direction("de-en").label == "de-en"
    single = ClusterBundle.of(lively("gru"), bundle.sets[:1])
    assert single.direction().label == "fr-en"
    with pytest.raises(NmtError, match="several directions: fr-en, de-en"):
        bundle.direction()
    with pytest.raises(NmtError, match=r"no direction fr-em .*did you mean fr-en"):
        bundle.direction("fr-em")
    with pytest.raises(NmtError, match="each a label of its own"):
        ClusterBundle.of(lively("gru"), [bundle.sets[0], bundle.sets[0]])


def test_every_set_has_end_and_unknown_and_each_context_has_its_tokens_active(bundle: ClusterBundle) -> None:
    assert control_tokens(lively("gru")) == (GRU.unk_token, GRU.eos_token)
    assert control_tokens(lively("marian")) == (0, 1)
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 5, 7, 4, 6, 8, 5, 6], seed=1)
    contexts, clusters = collect(model, alone, 3), bundle.direction("fr-en")
    for chosen, tokens in zip(clusters.centroids.nearest(contexts.hidden).tolist(), contexts.top.tolist(), strict=True):
        assert {*tokens, GRU.unk_token, GRU.eos_token} <= set(clusters.sets.of(chosen).tolist())


def test_sets_that_share_their_clusters_count_them_once_in_memory_and_are_saved_whole(tmp_path: Path) -> None:
    """The same clusters with another K: in memory their centroids are there once, on disk each set is whole."""
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 5, 7, 4, 6, 8, 5, 6])
    contexts = collect(model, alone, 5)
    clustering = cluster(contexts, 4, seed=1)
    both = ClusterBundle.of(model, [ClusterSet.of(f"K={top}", contexts, clustering, model, top=top) for top in (1, 5)])
    assert both.account().centroids == 4 * 16 * 4
    both.save(tmp_path / "b")
    loaded = load_clusters(tmp_path / "b", model)
    assert [cluster_set.top for cluster_set in loaded.sets] == [1, 5] and loaded.account().centroids == 2 * 4 * 16 * 4
    assert loaded.account().total == sum(cluster_set.centroids.nbytes + cluster_set.sets.nbytes for cluster_set in loaded.sets)


def test_a_bundle_of_another_model_or_vocabulary_is_refused(saved: Path) -> None:
    model: Any = copy.deepcopy(lively("gru"))
    model.projection.bias.data[7] += 1e-3
    with pytest.raises(NmtError, match=r"b\.safetensors: a bundle of another model"):
        load_clusters(saved, model)
    larger = build_model(GRU.model_copy(update={"tgt_vocab": 60}))
    with pytest.raises(NmtError, match="for 50 target tokens, and a model of 60"):
        load_clusters(saved, larger)
    wider = build_model(GRU.model_copy(update={"hidden": 32}))
    with pytest.raises(NmtError, match="width 16, and a model of 32"):
        load_clusters(saved, wider)
    load_clusters(saved, copy.deepcopy(lively("gru")))


def test_a_file_with_damage_at_any_place_is_refused(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    broken = tmp_path / "broken.safetensors"
    for content in (b"", whole[:-7], whole[:40], b"not a bundle", whole[:-1] + bytes([whole[-1] ^ 1])):
        broken.write_bytes(content)
        with pytest.raises(NmtError, match=r"broken\.safetensors: .*damaged"):
            load_clusters(broken)
    with pytest.raises(NmtError, match="cannot be read"):
        load_clusters(tmp_path / "none.safetensors")
    with pytest.raises(NmtError, match=str(tmp_path)):
        load_clusters(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_centroids_of_half_precision_are_saved_as_they_are(bundle: ClusterBundle, tmp_path: Path, dtype: Any) -> None:
    clusters = bundle.direction("fr-en")
    halved = replace(clusters, centroids=Centroids.of(clusters.centroids.points.to(dtype)))
    ClusterBundle.of(lively("gru"), [halved]).save(tmp_path / "halved")
    loaded = load_clusters(tmp_path / "halved")
    assert torch.equal(loaded.direction().centroids.points, halved.centroids.points)
    assert loaded.account().centroids == 2 * 16 * 5


def test_the_memory_account_equals_the_allocated_bytes(saved: Path) -> None:
    """FVP-12: centroids, norms, indices and flags of both sets, and where each set begins."""
    loaded = load_clusters(saved)
    account = loaded.account()
    columns = sum(cluster_set.sets.columns.numel() for cluster_set in loaded.sets)
    assert (account.centroids, account.norms) == (4 * 16 * 9, 4 * 9 + 2 * 4 * 16)
    assert (account.indices, account.starts, account.flags) == (4 * columns, 8 * (6 + 5), 2 * 50)
    assert account.total == sum(cluster_set.centroids.nbytes + cluster_set.sets.nbytes for cluster_set in loaded.sets)
    weights = sum(weight.numel() for weight in lively("gru").parameters())
    assert account.model == 4 * weights and account.share == account.total / (4 * weights)


def test_memory_predictions_equal_the_worked_figures_of_fvp_12() -> None:
    """r = 2,000 and d = 1,024 in float16: 4.1 MB of centroids; 1,300 clusters at 2 % of 250,000 in int32: 26 MB."""
    assert memory_account(250_000, 1_024, 2_000, 0.02).centroids == 4_096_000
    account = memory_account(250_000, 1_024, 1_300, 0.02, model_bytes=2 * 760_000_000)
    assert (account.indices, account.norms, account.flags) == (26_000_000, 4 * (1_300 + 1_024), 250_000)
    assert account.total == 1_300 * 1_024 * 2 + 4 * (1_300 + 1_024) + 26_000_000 + 1_301 * 8 + 250_000
    assert account.share == account.total / 1_520_000_000 < 0.02


def test_active_shares_weigh_a_cluster_by_its_contexts_and_the_union_grows_with_the_rows(bundle: ClusterBundle) -> None:
    clusters = bundle.direction("fr-en")
    sizes = [len(clusters.sets.of(at)) for at in range(5)]
    shares = ActiveShares.of(clusters)
    assert shares.mean == pytest.approx(
        sum(s * m for s, m in zip(sizes, clusters.members.tolist(), strict=True)) / 50 / clusters.contexts
    )
    assert shares.mean_of_clusters == pytest.approx(sum(sizes) / 5 / 50)
    assert (shares.quantiles["min"], shares.quantiles["max"]) == (min(sizes) / 50, max(sizes) / 50)
    assert shares.of_emitted(shares.mean) == pytest.approx(shares.mean * 50 / len(clusters.emitted))
    assert expected_union(clusters, 1) == pytest.approx(shares.mean * 50)
    unions = [expected_union(clusters, rows) for rows in (1, 2, 5, 20, 10_000)]
    assert unions == sorted(unions) and unions[-1] == pytest.approx(len(clusters.sets.union(torch.arange(5))))


def test_the_expected_union_equals_the_mean_of_drawn_unions(bundle: ClusterBundle) -> None:
    clusters, draw = bundle.direction("fr-en"), torch.Generator().manual_seed(1)
    drawn = torch.multinomial(clusters.members.double(), 4 * 4_000, replacement=True, generator=draw).view(-1, 4)
    sizes = torch.tensor([float(len(clusters.sets.union(chosen))) for chosen in drawn])
    assert expected_union(clusters, 4) == pytest.approx(float(sizes.mean()), abs=4 * float(sizes.std()) / 4_000**0.5)


def test_every_architecture_has_a_different_fingerprint() -> None:
    from simnmt.nmt.vocabulary.bundle_file import Fingerprint

    fingerprints = {name: Fingerprint.of(build_model(architecture)) for name, architecture in ARCHITECTURES.items()}
    assert len({fingerprint.sha256 for fingerprint in fingerprints.values()}) == len(fingerprints)
    assert {(fingerprint.vocab, fingerprint.width) for fingerprint in fingerprints.values()} == {(50, 16)}
