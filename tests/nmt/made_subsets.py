"""Parts of a vocabulary: clusters of a tiny model or drawn at random, and lists that a test writes down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet
from simnmt.nmt.vocabulary.contexts import cluster, collect
from tests.nmt.tiny import GRU, lively, sources


@dataclass(frozen=True)
class MadeClusters:
    """As a bundle's set."""

    centroids: Centroids
    sets: ColumnSets
    label: str = "made"


@dataclass(frozen=True)
class MadeLists:
    """The same columns, whatever the source; or those of its first token."""

    columns: Sequence[Sequence[int]]
    vocab: int

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        return np.asarray(self.columns[next(iter(source), 0) % len(self.columns)], np.int32)


def trained_clusters(top: int, clusters: int, *, label: str = "one", seed: int = 2) -> ClusterSet:
    """Clusters of the tiny GRU's own contexts."""
    model, (alone, _, _) = lively("gru"), sources(GRU, [3, 5, 7, 4, 6, 8, 5, 6], seed=seed)
    contexts = collect(model, alone, top)
    return ClusterSet.of(label, contexts, cluster(contexts, clusters, seed=1), model)


def sets_of(columns: Sequence[Sequence[int]], vocab: int) -> ColumnSets:
    """One set for each."""
    starts = np.cumsum([0, *map(len, columns)])
    whole = torch.tensor([column for cluster_columns in columns for column in cluster_columns], dtype=torch.int32)
    return ColumnSets(torch.from_numpy(starts.astype(np.int64)), whole, vocab)


def all_active(vocab: int, width: int, clusters: int = 3) -> MadeClusters:
    """Every cluster has every column."""
    points = torch.randn((clusters, width), generator=torch.Generator().manual_seed(1))
    return MadeClusters(Centroids.of(points), sets_of([range(vocab)] * clusters, vocab))


def drawn(vocab: int, width: int, clusters: int, share: float, always: Sequence[int], seed: int) -> MadeClusters:
    """Each column in each set with this probability, and those of `always`."""
    draw = torch.Generator().manual_seed(seed)
    points = torch.randn((clusters, width), generator=draw)
    chosen = torch.rand((clusters, vocab), generator=draw) < share
    chosen[:, list(always)] = True
    return MadeClusters(Centroids.of(points), sets_of([active.nonzero()[:, 0].tolist() for active in chosen], vocab))
