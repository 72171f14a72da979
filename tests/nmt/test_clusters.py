"""Clusters of contexts, the columns that each activates, and their bundles."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from simnmt.nmt.errors import NmtError
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet, active_sets, active_shares, load_clusters, save_clusters
from simnmt.nmt.vocabulary.contexts import Clustering, cluster, collect
from simnmt.profile.decoder_block import memory_account
from tests.nmt.made_subsets import trained_clusters
from tests.nmt.tiny import ARCHITECTURES, Table, lively, sources, stepwise, together


def cloud(count: int, width: int = 6, seed: int = 0) -> torch.Tensor:
    """Points around eight places."""
    draw = torch.Generator().manual_seed(seed)
    places = torch.randn(8, width, generator=draw) * 4
    return places[torch.randint(8, (count,), generator=draw)] + torch.randn(count, width, generator=draw)


def squared_distances(points: torch.Tensor, clustering: Clustering) -> torch.Tensor:
    """float64 [n, r]."""
    return (points.double()[:, None] - clustering.centroids.double()[None]).square().sum(2)


def test_every_context_belongs_to_its_nearest_centroid_and_no_cluster_is_empty() -> None:
    points = cloud(700)
    clustering = cluster(points, 20, seed=3)
    distances = squared_distances(points, clustering)
    distance_to_centroid = distances.gather(1, clustering.labels[:, None])[:, 0]
    assert torch.allclose(distance_to_centroid, distances.min(1).values, rtol=1e-5, atol=1e-6)
    assert clustering.members.min() > 0 and clustering.members.sum() == 700
    assert clustering.inertia == pytest.approx(float(distance_to_centroid.sum()), rel=1e-6)


def test_inertia_never_rises_from_iteration_to_iteration() -> None:
    """Lloyd's algorithm from the same beginning, stopped ever later."""
    points = cloud(600)
    inertias = [cluster(points, 12, seed=5, iterations=count).inertia for count in range(1, 13)]
    assert all(later <= before * (1 + 1e-6) for before, later in itertools.pairwise(inertias))
    assert inertias[-1] < inertias[0]


def test_the_same_seed_gives_the_same_clusters_and_another_does_not() -> None:
    points = cloud(500)
    one, again, other = (cluster(points, 15, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one.centroids, again.centroids) and torch.equal(one.labels, again.labels)
    assert not torch.equal(one.centroids, other.centroids)


def test_worked_example_of_fvp_04() -> None:
    labels = torch.tensor([1, 1, 0])
    top = torch.tensor([[2, 4, 6], [2, 8, 9], [1, 3, 7]], dtype=torch.int32)
    sets = active_sets(labels, top, 2, [0, 3], vocab=10)
    assert sets.of(1).tolist() == [0, 2, 3, 4, 6, 8, 9]  # 2, 4, 6, 8, 9 and the control tokens
    assert sets.of(0).tolist() == [0, 1, 3, 7]
    assert active_sets(labels, top, 2, [], vocab=10).of(1).tolist() == [2, 4, 6, 8, 9]


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_sets_equal_the_union_of_their_members_tokens_and_grow_with_k(seed: int, clusters: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.cat((torch.arange(clusters), torch.randint(clusters, (30,), generator=draw)))
    top = torch.stack([torch.randperm(25, generator=draw)[:5] for _ in labels]).to(torch.int32)
    by_k = [active_sets(labels, top[:, :k], clusters, [0, 3], vocab=25) for k in (1, 3, 5)]
    for index in range(clusters):
        members = top[labels == index]
        sets_by_k = [set(sets.of(index).tolist()) for sets in by_k]
        assert sets_by_k == [{0, 3} | set(members[:, :k].flatten().tolist()) for k in (1, 3, 5)]
        assert sets_by_k[0] <= sets_by_k[1] <= sets_by_k[2]


@pytest.mark.parametrize("clusters", [8, 16, 24])
def test_the_largest_set_of_pooled_clusters_is_no_smaller_than_that_of_a_direction(clusters: int) -> None:
    """FVP-10: contexts of two source languages lie at the same places and want different inflections of the same words."""
    draw = torch.Generator().manual_seed(9)
    hidden, top = [], []
    for language in range(2):
        at = torch.randint(8, (400,), generator=draw)
        places = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)) * 4
        hidden.append(places[at] + torch.randn(400, 6, generator=draw))
        top.append((at * 12 + 4 * language + torch.randint(8, (400,), generator=draw))[:, None].to(torch.int32))

    def largest_share(points: torch.Tensor, tokens: torch.Tensor) -> float:
        labels = cluster(points, clusters, seed=1).labels
        return int(active_sets(labels, tokens, clusters, [0], vocab=100).sizes().max()) / 100

    apart = [largest_share(points, tokens) for points, tokens in zip(hidden, top, strict=True)]
    assert max(apart) <= largest_share(torch.cat(hidden), torch.cat(top))


LENGTHS = [3, 9, 5, 4, 7, 6, 5]
each_architecture = pytest.mark.parametrize("name", ["gru", "marian", "sharp"])


@each_architecture
def test_every_step_of_every_sentence_is_recorded_with_the_tokens_that_dense_logits_rank_first(name: str) -> None:
    """Whatever the batch: contexts are those of each sentence decoded alone; the first token is the one it goes on with."""
    model = lively(name)
    alone, _, _ = sources(ARCHITECTURES[name], LENGTHS)
    wanted = together(model, alone, max_len=12)
    contexts_of_all = collect(model, alone, 4, batch=3, max_len=12)
    emitted = {model.eos_token}
    for sentence, (source, hypothesis) in enumerate(zip(alone, wanted, strict=True)):
        rows, tokens = contexts_of_all.sentence == sentence, list(hypothesis.tokens)
        written = [*tokens, model.eos_token][:12]
        assert contexts_of_all.top[rows][:, 0].tolist() == written
        fed = torch.tensor([[model.start_token, *tokens]])
        contexts = stepwise(model, torch.tensor([source]), torch.tensor([len(source)]), fed)[0, : len(written)]
        assert torch.allclose(contexts_of_all.hidden[rows], contexts, atol=1e-5)
        emitted.update(tokens)
    logits = model.project(contexts_of_all.hidden).detach()
    if model.pad_token != model.eos_token:
        logits[:, model.pad_token] = float("-inf")
    ranked = logits.topk(4, dim=1)
    assert torch.allclose(logits.gather(1, contexts_of_all.top.long()), ranked.values, atol=1e-5)
    assert contexts_of_all.emitted.tolist() == sorted(emitted)
    assert (contexts_of_all.sentences, contexts_of_all.top.dtype) == (7, torch.int32)


def test_worked_example_of_fvp_01_and_the_lowest_of_equal_tokens_comes_first() -> None:
    """z = [1, 2.1, 0, 1, 1.7]: 1 and 4 lead, then 0 before 3. Here token 0 is padding, which no search may choose."""
    table = torch.full((6, 6), -9.0)
    table[2, 1:] = torch.tensor([1.0, 2.1, 0.0, 1.0, 1.7])  # shifted by one beside the padding
    table[:2, 1] = table[3:, 1] = 0.0
    table[2, 0] = 5.0
    contexts = collect(Table(table), [[4, 1]], 4, max_len=3)
    assert contexts.top[0].tolist() == [2, 5, 1, 4]


@pytest.fixture(scope="module")
def clusters() -> ClusterSet:
    return trained_clusters(3, 5, label="fr-en", seed=1)


@pytest.fixture
def saved(clusters: ClusterSet, tmp_path: Path) -> Path:
    save_clusters(clusters, tmp_path / "b.safetensors", lively("gru"), "tiny")
    return tmp_path / "b.safetensors"


def test_clusters_come_back_as_they_were_saved(clusters: ClusterSet, saved: Path) -> None:
    loaded = load_clusters(saved, lively("gru"))
    assert torch.equal(clusters.centroids.points, loaded.centroids.points)
    assert torch.equal(clusters.sets.starts, loaded.sets.starts) and torch.equal(clusters.sets.columns, loaded.sets.columns)
    assert torch.equal(clusters.members, loaded.members) and torch.equal(clusters.emitted, loaded.emitted)
    assert (loaded.label, loaded.top, loaded.origin) == (clusters.label, clusters.top, clusters.origin)


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


def test_the_memory_account_equals_the_allocated_bytes(saved: Path) -> None:
    """FVP-12: centroids, norms, indices and flags, and where each set begins."""
    loaded = load_clusters(saved)
    columns = loaded.sets.columns.numel()
    sizes = {"centroids": 4 * 16 * 5, "norms": 4 * 5 + 4 * 16, "indices": 4 * columns, "starts": 8 * 6, "flags": 50}
    assert loaded.memory == sizes
    assert sum(sizes.values()) == loaded.centroids.nbytes + loaded.sets.nbytes
    note = read_bundle(saved, {"clusters": lambda file: file.note})
    assert note["model_bytes"] == 4 * sum(weight.numel() for weight in lively("gru").parameters())


def test_memory_predictions_equal_the_worked_figures_of_fvp_12() -> None:
    """r = 2,000 and d = 1,024 in float16: 4.1 MB of centroids; 1,300 clusters at 2 % of 250,000 in int32: 26 MB."""
    assert memory_account(250_000, 1_024, 2_000, 1)["centroids"] == 4_096_000
    memory = memory_account(250_000, 1_024, 1_300, 1_300 * 5_000)
    assert (memory["indices"], memory["norms"], memory["flags"]) == (26_000_000, 4 * (1_300 + 1_024), 250_000)
    assert sum(memory.values()) == 1_300 * 1_024 * 2 + 4 * (1_300 + 1_024) + 26_000_000 + 1_301 * 8 + 250_000


def test_active_shares_weigh_a_cluster_by_its_contexts(clusters: ClusterSet) -> None:
    sizes = [len(clusters.sets.of(at)) for at in range(5)]
    shares = active_shares(clusters)
    members = clusters.members.tolist()
    assert shares["mean"] == pytest.approx(sum(s * m for s, m in zip(sizes, members, strict=True)) / 50 / sum(members))
    assert (shares["quantiles"]["min"], shares["quantiles"]["max"]) == (min(sizes) / 50, max(sizes) / 50)
    assert shares["mean_of_emitted"] == pytest.approx(shares["mean"] * 50 / len(clusters.emitted))
