"""The active columns of a step: by clusters of its rows (FVP-05, FVP-06) or by candidate lists of its sentences (SHARP-02).

`load_vocabulary` reads either kind from a bundle file.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.kernels.errors import KernelError
from simnmt.kernels.projection_timing import measure_projection
from simnmt.nmt.errors import NmtError
from simnmt.nmt.linear_layers import HalfLinear
from simnmt.nmt.step_model import StepModel
from simnmt.nmt.vocabulary.bundle_file import read_bundle
from simnmt.nmt.vocabulary.restricted_vocabulary import (
    ActiveColumns,
    RestrictedVocabulary,
    SubMatrixCache,
    SubsetAccount,
    VocabularySubset,
)

if TYPE_CHECKING:
    from simnmt.profile.projection_cost import ProjectionCost


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

    def columns(self, hidden: Tensor) -> ActiveColumns:
        """See `VocabularySubset`. Raises `NmtError` for a context that is no number."""
        try:
            chosen = self._centroids.nearest(hidden)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to find a cluster for: {error}") from None
        union = self._sets.united(chosen)
        return ActiveColumns(union.columns, (self._sets, union.sets))  # clusters of another direction have the same numbers

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """See `VocabularySubset`."""

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""


class Lists(Protocol):
    """Candidates of a sentence by its source tokens."""

    @property
    def vocab(self) -> int:
        """Target tokens known."""

    def of(self, source: Iterable[int]) -> NDArray[np.int32]:
        """Ascending."""


def listed(
    lists: Lists,
    *,
    label: str = "candidates",
    scatter: bool = False,
    audit: bool = False,
    cost: ProjectionCost | None = None,
    cache: SubMatrixCache | None = None,
    account: SubsetAccount | None = None,
) -> RestrictedVocabulary:
    """The union of the lists of the sentences under way; options as of `RestrictedVocabulary`."""

    identity = object()

    def begin() -> VocabularySubset:
        return ListedColumns(label, lists, identity)

    return RestrictedVocabulary(
        label=label,
        vocab=lists.vocab,
        width=None,
        begin=begin,
        reads_sources=True,
        scatter=scatter,
        audit=audit,
        cost=cost,
        cache=cache,
        account=account,
    )


class ListedColumns:
    """See `VocabularySubset`; changes as sentences come and go, and not between two steps of the same ones."""

    def __init__(self, label: str, lists: Lists, identity: Hashable) -> None:
        """`identity`: distinguishes these lists from others, which have other columns for the same sentences."""
        self.label = label
        self._lists, self._of = lists, identity
        self._sentence_lists: list[NDArray[np.int32]] = []
        """The list of each sentence."""
        self._sources: list[tuple[int, ...]] = []
        self._active: ActiveColumns | None = None
        """Of the sentences under way, once they were asked for."""

    def columns(self, hidden: Tensor) -> ActiveColumns:
        """See `VocabularySubset`."""
        if self._active is None:
            sentence_lists = self._sentence_lists
            union = (
                sentence_lists[0]
                if len(sentence_lists) == 1
                else np.unique(np.concatenate(sentence_lists))
                if sentence_lists
                else np.empty(0, np.int32)
            )
            key = self._of, frozenset(self._sources)
            self._active = ActiveColumns(torch.tensor(union, dtype=torch.int32, device=hidden.device), key)
        return self._active

    def join(self, sources: Sequence[Sequence[int]], beam: int) -> None:
        """See `VocabularySubset`. Raises `ValueError` for a sentence without its tokens."""
        if not all(map(len, sources)):
            raise ValueError("a sentence joins without its source tokens: hand the SlotDecoder the vocabulary as well")
        self._sentence_lists += [self._lists.of(source) for source in sources]
        self._sources += [tuple(sorted(set(source))) for source in sources]
        self._active = None

    def leave(self, order: Sequence[int]) -> None:
        """See `VocabularySubset`."""
        self._sentence_lists = [self._sentence_lists[slot] for slot in order]
        self._sources = [self._sources[slot] for slot in order]
        self._active = None


def load_vocabulary(
    path: str | os.PathLike[str],
    model: StepModel,
    *,
    direction: str | None = None,
    cache_mb: float = 0.0,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> RestrictedVocabulary:
    """The clusters or candidate lists of a bundle that was built with this model, whose weights are as in its file.

    `direction`: which clusters of several. `cache_mb`: megabytes that copies of repeated sub-matrices may take, on the CPU,
    where a cost says that one pays (`with_measured_cost`). `device`, `dtype`: where the model will be and of what type, by
    default as it is; centroids are of 2 bytes a number where the model is (FVP-18). Raises `NmtError` for a file that is no
    bundle or damaged, of another model or vocabulary, and for a direction that is not in it.
    """
    device, dtype = device or model.device, dtype or model.weight.dtype
    if not 0 <= cache_mb < float("inf"):
        raise NmtError(f"a cache of {cache_mb:g} MB", remedy="give 0 or more")
    if cache_mb and device.type != "cpu":
        raise NmtError(f"copies of columns on {device}, where none was found to pay", remedy="keep them on the CPU alone")
    kind = read_bundle(path).kind
    if kind == "clusters":
        from simnmt.nmt.vocabulary.cluster_bundle import load_clusters

        clusters = load_clusters(path, model).direction(direction)
        vocabulary = clustered(clusters, device=device, dtype=dtype if dtype.itemsize == 2 else None)
    elif direction is not None:
        raise NmtError("candidate lists have no directions", path=path, remedy="leave --direction out")
    else:
        from simnmt.nmt.vocabulary.candidate_lists import CandidateLists

        vocabulary = listed(CandidateLists.load(path, model))
    vocabulary.check(model)
    return replace(vocabulary, cache=SubMatrixCache(int(cache_mb * 1e6)) if cache_mb else None)


def with_measured_cost(vocabulary: RestrictedVocabulary, model: StepModel) -> RestrictedVocabulary:
    """The same, with products made as a measurement of this model's layer, here and now, says is fastest: a second's work.

    Two measurements may differ on what is nearly as fast, and then products by rounding: without one every run is the same. On
    CUDA the same as it is: all ways are torch's own there, and none was measured.
    """
    if model.device.type != "cpu":
        return vocabulary
    weight, bias = model.weight.detach(), model.bias
    # Of packed weights the model multiplies all columns by its own product; torch takes the unpacked ones far more slowly.
    packed = isinstance(model, nn.Module) and any(isinstance(layer, HalfLinear) for layer in model.modules())
    with torch.inference_mode():
        cost = measure_projection(
            weight.shape[1],
            weight=weight,
            bias=None if bias is None else bias.detach().float(),
            clusters=vocabulary.clusters or 1,
            dense=(lambda hidden: next(iter(model.products(hidden)))) if packed else None,
        )
    return replace(vocabulary, cost=cost)
