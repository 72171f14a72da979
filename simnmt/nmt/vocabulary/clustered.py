"""Active columns by the clusters of the rows' contexts (FVP-05, FVP-06)."""

from __future__ import annotations

from collections.abc import Sequence
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
    dtype: torch.dtype | None = None,
    scatter: bool = False,
    audit: bool = False,
    cost: ProjectionCost | None = None,
    cache: SubMatrixCache | None = None,
    account: SubsetAccount | None = None,
) -> RestrictedVocabulary:
    """The union of the columns of the clusters that the rows of a step fall into.

    `device`: the model's; `dtype`: of the centroids, by default the bundle's (FVP-18: 2 bytes a number for a model so held);
    other options as of `RestrictedVocabulary`.
    """
    # Neither the clusters nor their copies on another device are held by what is returned.
    label, centroids, sets = clusters.label, clusters.centroids, clusters.sets
    points = centroids.points.to(device=device, dtype=dtype or centroids.points.dtype)
    if points is not centroids.points:
        centroids = Centroids.of(points, level=centroids.level)
    if sets.columns.device != points.device:
        sets = ColumnSets(sets.starts, sets.columns.to(points.device), sets.vocab, sets.level)

    def begin() -> VocabularySubset:
        return ClusteredColumns(label, centroids, sets)

    return RestrictedVocabulary(
        label=label,
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
        union = self._sets.united(chosen)
        return Active(union.columns, (self._sets, union.sets))  # clusters of another direction have the same numbers

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """See `VocabularySubset`."""

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""
