"""Clusters of one model: saved, loaded, refused elsewhere, and counted to the byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from simnmt.nmt.errors import NmtError
from simnmt.nmt.vocabulary.bundle_file import control_tokens
from simnmt.nmt.vocabulary.cluster_bundle import ClusterBundle, active_shares, load_clusters
from simnmt.nmt.vocabulary.contexts import collect
from simnmt.nmt.vocabulary.memory_account import memory_account
from tests.nmt.made_subsets import trained_clusters
from tests.nmt.tiny import GRU, lively, sources


@pytest.fixture(scope="module")
def bundle() -> ClusterBundle:
    sets = [trained_clusters(3, 5, label="fr-en", seed=1), trained_clusters(3, 4, label="de-en")]
    return ClusterBundle.of(lively("gru"), sets, name="tiny")


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
        made = ("label", "top", "origin")
        assert [getattr(one, name) for name in made] == [getattr(other, name) for name in made]
    assert loaded.memory() == bundle.memory()


def test_every_set_has_end_and_unknown_and_each_context_has_its_tokens_active(bundle: ClusterBundle) -> None:
    assert control_tokens(lively("gru")) == (GRU.unk_token, GRU.eos_token)
    assert control_tokens(lively("marian")) == (0, 1)
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 5, 7, 4, 6, 8, 5, 6], seed=1)
    contexts, clusters = collect(model, alone, 3), bundle.direction("fr-en")
    for chosen, tokens in zip(clusters.centroids.nearest(contexts.hidden).tolist(), contexts.top.tolist(), strict=True):
        assert {*tokens, GRU.unk_token, GRU.eos_token} <= set(clusters.sets.of(chosen).tolist())


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
    """FVP-12: centroids, norms, indices and flags of both sets, and where each set begins."""
    loaded = load_clusters(saved)
    memory = loaded.memory()
    columns = sum(cluster_set.sets.columns.numel() for cluster_set in loaded.sets)
    sizes = {
        "centroids": 4 * 16 * 9,
        "norms": 4 * 9 + 2 * 4 * 16,
        "indices": 4 * columns,
        "starts": 8 * (6 + 5),
        "flags": 2 * 50,
    }
    assert memory == sizes
    assert sum(memory.values()) == sum(cluster_set.centroids.nbytes + cluster_set.sets.nbytes for cluster_set in loaded.sets)
    assert loaded.model_bytes == 4 * sum(weight.numel() for weight in lively("gru").parameters())


def test_memory_predictions_equal_the_worked_figures_of_fvp_12() -> None:
    """r = 2,000 and d = 1,024 in float16: 4.1 MB of centroids; 1,300 clusters at 2 % of 250,000 in int32: 26 MB."""
    assert memory_account(250_000, 1_024, 2_000, 1)["centroids"] == 4_096_000
    memory = memory_account(250_000, 1_024, 1_300, 1_300 * 5_000)
    assert (memory["indices"], memory["norms"], memory["flags"]) == (26_000_000, 4 * (1_300 + 1_024), 250_000)
    assert sum(memory.values()) == 1_300 * 1_024 * 2 + 4 * (1_300 + 1_024) + 26_000_000 + 1_301 * 8 + 250_000


def test_active_shares_weigh_a_cluster_by_its_contexts(bundle: ClusterBundle) -> None:
    clusters = bundle.direction("fr-en")
    sizes = [len(clusters.sets.of(at)) for at in range(5)]
    shares = active_shares(clusters)
    members = clusters.members.tolist()
    assert shares["mean"] == pytest.approx(sum(s * m for s, m in zip(sizes, members, strict=True)) / 50 / sum(members))
    assert (shares["quantiles"]["min"], shares["quantiles"]["max"]) == (min(sizes) / 50, max(sizes) / 50)
    assert shares["mean_of_emitted"] == pytest.approx(shares["mean"] * 50 / len(clusters.emitted))
