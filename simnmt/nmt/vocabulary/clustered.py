"""Active columns by the clusters of the rows' contexts (FVP-05, FVP-06)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from simnmt.kernels.centroids import Centroids
from simnmt.kernels.column_sets import ColumnSets
from simnmt.kernels.errors import KernelError
from simnmt.nmt.errors import NmtError
from simnmt.nmt.vocabulary.subset import Active, RestrictedVocabulary, VocabularySubset
from simnmt.nmt.vocabulary.subset_account import SubsetAccount

if TYPE_CHECKING:
    from simnmt.costs.projection_cost import ProjectionCost
    from simnmt.nmt.vocabulary.sub_matrix_cache import SubMatrixCache


class Clusters(Protocol):
    """What a bundle holds for a language direction."""

    @property
    def label(self) -> str:
        """What it is, for people."""

    @property
    def centroids(self) -> Centroids:
        """[r, width] of them."""

    @property
    def sets(self) -> ColumnSets:
        """The active columns of each cluster."""


def clustered(
    clusters: Clusters,
    *,
    device: torch.device | str = "cpu",
    scatter: bool = False,
    audit: bool = False,
    cost: ProjectionCost | None = None,
    cache: SubMatrixCache | None = None,
    account: SubsetAccount | None = None,
) -> RestrictedVocabulary:
    """The union of the columns of the clusters that the rows of a step fall into; `device`: the model's; other options as of
    `RestrictedVocabulary`."""
    centroids, sets = clusters.centroids, clusters.sets
    if centroids.points.device != torch.device(device):
        centroids = Centroids.of(centroids.points.to(device), level=centroids.level)
        sets = ColumnSets(sets.starts, sets.columns.to(device), sets.vocab, sets.level)

    def begin() -> VocabularySubset:
        return ClusteredColumns(clusters.label, centroids, sets)

    return RestrictedVocabulary(
        label=clusters.label,
        vocab=sets.vocab,
        width=centroids.points.shape[1],
        begin=begin,
        reads_sources=False,
        scatter=scatter,
        audit=audit,
        cost=cost,
        cache=cache,
        account=account,
        clusters=len(sets),
    )


class ClusteredColumns:
    """See `VocabularySubset`; the clusters of a step hang on its contexts alone, whoever is under way."""

    def __init__(self, label: str, centroids: Centroids, sets: ColumnSets) -> None:
        self.label = label
        self._centroids, self._sets = centroids, sets

    def columns(self, hidden: Tensor) -> Active:
        """See `VocabularySubset`. Raises `NmtError` for a context that is no number."""
        try:
            chosen = self._centroids.nearest(hidden)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to find a cluster for: {error}") from None
        return Active(self._sets.union(chosen), _key(chosen))

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """See `VocabularySubset`."""

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""


def _key(chosen: Tensor) -> Hashable:
    """The clusters, each once."""
    return tuple(sorted(set(chosen.tolist())))
