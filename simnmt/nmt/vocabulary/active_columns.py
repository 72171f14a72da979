"""The active columns of a step: by clusters of its rows (FVP-05, FVP-06) or by candidate lists of its sentences (SHARP-02).

`load_vocabulary` reads either kind from a bundle file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.kernels.errors import KernelError
from simnmt.kernels.projection_timing import measure_projection
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.restricted_vocabulary import RestrictedVocabulary

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet


def clustered(
    clusters: ClusterSet, *, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
) -> RestrictedVocabulary:
    """Return the vocabulary of the columns of all clusters into which the rows of a step fall.

    `device`: the model's; `dtype`: of the centroids, by default the bundle's (FVP-18: 2 bytes a number for such a model).
    """
    # The result holds neither the clusters nor their copies on another device.
    centroids, sets = clusters.centroids, clusters.sets
    points = centroids.points.to(device=device, dtype=dtype or centroids.points.dtype)
    if points is not centroids.points:
        centroids = Centroids.of(points)
    if sets.columns.device != points.device:
        sets = ColumnSets(sets.starts, sets.columns.to(points.device), sets.vocab)
    return RestrictedVocabulary(
        label=clusters.label,
        vocab=sets.vocab,
        width=centroids.points.shape[1],
        begin=lambda: ClusteredColumns(centroids, sets),
        clusters=len(sets),
    )


class ClusteredColumns:
    """Active columns by the clusters of a step's contexts, whatever the sentences; see `VocabularySubset`."""

    def __init__(self, centroids: Centroids, sets: ColumnSets) -> None:
        self._centroids, self._sets = centroids, sets

    def columns(self, hidden: Tensor) -> Tensor:
        """See `VocabularySubset`. Raises `NmtError` for a context that is not a number."""
        try:
            chosen = self._centroids.nearest(hidden)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to find a cluster for: {error}") from None
        return self._sets.union(chosen)

    def join(self, sources: Sequence[Sequence[int]]) -> None:
        """See `VocabularySubset`."""

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""


def listed(lists: CandidateLists) -> RestrictedVocabulary:
    """Return the vocabulary of the candidates of all active sentences."""
    return RestrictedVocabulary(label="candidates", vocab=lists.vocab, width=None, begin=lambda: ListedColumns(lists))


class ListedColumns:
    """Active columns by candidate lists, which change only when sentences join or leave; see `VocabularySubset`."""

    def __init__(self, lists: CandidateLists) -> None:
        self._lists = lists
        self._candidates: list[NDArray[np.int32]] = []
        """The candidates of each sentence."""
        self._active: Tensor | None = None
        """The active columns of the present sentences, once they were asked for."""

    def columns(self, hidden: Tensor) -> Tensor:
        """See `VocabularySubset`."""
        if self._active is None:
            candidates = self._candidates
            union = candidates[0] if len(candidates) == 1 else np.unique(np.concatenate(candidates))
            self._active = torch.tensor(union, dtype=torch.int32, device=hidden.device)
        return self._active

    def join(self, sources: Sequence[Sequence[int]]) -> None:
        """See `VocabularySubset`."""
        self._candidates += [self._lists.of(source) for source in sources]
        self._active = None

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""
        self._candidates = [self._candidates[slot] for slot in order]
        self._active = None


def load_vocabulary(
    path: str | os.PathLike[str],
    model: StepModel,
    *,
    direction: str | None = None,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> RestrictedVocabulary:
    """Load the clusters or candidate lists of a bundle that was built with this model, whose weights must be as in its file.

    Args:
        path: a file that `simnmt vocab build` wrote.
        model: the model, which is checked against the bundle.
        direction: the label of a set of clusters; may be left out if the bundle has one set.
        device, dtype: the later device and type of the model, by default the present ones; centroids have 2 bytes a number if
            the model has (FVP-18).

    Raises `NmtError` for a file that is not a bundle or is damaged, for another model or vocabulary, and for a missing
    direction.
    """
    device, dtype = device or model.device, dtype or model.weight.dtype
    if read_bundle(path).kind == "clusters":
        from simnmt.nmt.vocabulary.cluster_bundle import load_clusters

        clusters = load_clusters(path, model).direction(direction)
        vocabulary = clustered(clusters, device=device, dtype=dtype if dtype.itemsize == 2 else None)
    elif direction is not None:
        raise NmtError("candidate lists have no directions", path=path, remedy="leave --direction out")
    else:
        from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

        vocabulary = listed(CandidateLists.load(path, model))
    vocabulary.check(model)
    return vocabulary


def with_measured_cost(vocabulary: RestrictedVocabulary, model: StepModel) -> RestrictedVocabulary:
    """Return the vocabulary with the cost of the model's products as measured now, which takes about a second.

    Two measurements may choose differently among products of nearly equal speed, which changes rounding; without a measured
    cost every run is the same. On CUDA the vocabulary is returned unchanged: all methods are torch's own there.
    """
    if model.device.type != "cpu":
        return vocabulary
    # The model multiplies packed weights by a product of its own; torch is far slower on the unpacked ones.
    packed = any(isinstance(layer, HalfLinear) for layer in model.modules())
    weight = model.weight.detach()
    with torch.inference_mode():
        cost = measure_projection(
            weight,
            model.bias.detach().float(),
            clusters=vocabulary.clusters or 1,
            dense=(lambda hidden: next(iter(model.products(hidden)))) if packed else None,
        )
    return replace(vocabulary, cost=cost)
