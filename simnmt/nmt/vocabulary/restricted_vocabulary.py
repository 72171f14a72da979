"""A restricted vocabulary of a decoder: how its active columns are chosen, multiplied and counted.

The columns of a step come from the clusters of its rows (FVP-05, FVP-06) or from the candidate lists of its sentences
(SHARP-02); `load_vocabulary` reads either kind from a bundle file. The account holds active columns and misses by step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simnmt.kernels.columns import Centroids, ColumnSets
from simnmt.kernels.native_library import KernelError
from simnmt.nmt.errors import NmtError
from simnmt.nmt.step_model import StepModel

if TYPE_CHECKING:
    from simnmt.nmt.vocabulary.bundle_file import BundleFile
    from simnmt.nmt.vocabulary.candidate_lists import CandidateLists
    from simnmt.nmt.vocabulary.cluster_bundle import ClusterSet


@dataclass(slots=True)
class SubsetAccount:
    """Active columns of each step of a decoder; it may collect the steps of several runs, one after the other.

    The lists have an element per step; those of seconds if there is a clock, and `missed` in an audited run.
    """

    clock: Callable[[], float] | None = None
    """Times the stages of each step; None: they are not timed. On a GPU one that waits for it."""
    vocab: int = 0
    """Target tokens of the model."""
    rows: list[int] = field(default_factory=list)
    """Sentences x beam."""
    keys: list[tuple[int, ...]] = field(default_factory=list)
    """Keys, with which they joined, of the active sentences."""
    columns: list[int] = field(default_factory=list)
    """Active columns."""
    missed: list[int] = field(default_factory=list)
    """Rows whose likeliest token was not active (FVP-08)."""
    assign_s: list[float] = field(default_factory=list)
    """Seconds for choosing clusters and their union, or for joining lists."""
    product_s: list[float] = field(default_factory=list)
    search_s: list[float] = field(default_factory=list)
    """Seconds for bias, softmax and the best of each row."""
    _active: tuple[int, ...] = ()
    """Keys of the active sentences, by slot."""

    @property
    def share(self) -> NDArray[np.float64]:
        """Active share of the vocabulary in each step, shape (steps,)."""
        return np.asarray(self.columns, np.float64) / max(self.vocab, 1)

    @property
    def sentence_share(self) -> dict[int, float]:
        """Mean active share of the vocabulary over the steps of each sentence, by its key."""
        shares: dict[int, list[float]] = {}
        for keys, share in zip(self.keys, self.share.tolist(), strict=True):
            for key in keys:
                shares.setdefault(key, []).append(share)
        return {key: fmean(of_sentence) for key, of_sentence in shares.items()}

    @property
    def miss_rate(self) -> float:
        """Share of the rows of an audited run whose likeliest token was not active (FVP-08); 0 without an audit."""
        return sum(self.missed) / sum(self.rows) if self.missed else 0.0

    def join(self, keys: Sequence[int]) -> None:
        self._active += tuple(keys)

    def leave(self, order: Sequence[int]) -> None:
        """Keep the sentences `order`: new slot i is old slot `order[i]`."""
        self._active = tuple(self._active[slot] for slot in order)

    def step(self, rows: int, columns: int, missed: int | None, moments_s: Sequence[float]) -> None:
        """Record a step; `missed`: None without an audit; `moments_s`: begin and end of the three stages by the clock."""
        self.rows.append(rows)
        self.keys.append(self._active)
        self.columns.append(columns)
        if missed is not None:
            self.missed.append(missed)
        if self.clock is not None:
            for stage, (begin_s, end_s) in zip(
                (self.assign_s, self.product_s, self.search_s), pairwise(moments_s), strict=True
            ):
                stage.append(end_s - begin_s)


@dataclass(frozen=True, slots=True)
class RestrictedVocabulary:
    """The `vocabulary` of a decoder: how active columns are chosen, multiplied and searched.

    `clustered` and `listed` make one with default options; `dataclasses.replace` changes them.
    """

    label: str
    """Its name in messages."""
    kind: Literal["clustered", "candidates"]
    begin: Callable[[], ClusteredColumns | ListedColumns]
    """Makes the choice of columns of a new decoder, without sentences."""
    audit: bool = False
    """Whether to make the dense products too, and count the rows whose likeliest token is not active (FVP-08)."""
    account: SubsetAccount | None = None
    """Records every step."""


class ClusteredColumns:
    """Active columns by the clusters of a step's contexts, whatever the sentences."""

    def __init__(self, centroids: Centroids, sets: ColumnSets) -> None:
        self._centroids, self._sets = centroids, sets

    def columns(self, hidden: Tensor) -> Tensor:
        """Return the active columns of all rows together, int32, ascending, on the model's device (FVP-06).

        `hidden`: the body's output, [rows, width]. Raises `NmtError` for a context that is not a number.
        """
        try:
            chosen = self._centroids.nearest(hidden)
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to find a cluster for: {error}") from None
        return self._sets.union(chosen)

    def join(self, sources: Sequence[Sequence[int]]) -> None:
        pass

    def leave(self, order: Sequence[int]) -> None:
        pass


class ListedColumns:
    """Active columns by candidate lists, which change only when sentences join or leave; see `ClusteredColumns`."""

    def __init__(self, lists: CandidateLists) -> None:
        self._lists = lists
        self._candidates: list[NDArray[np.int32]] = []
        """The candidates of each sentence."""
        self._active: Tensor | None = None
        """The active columns of the present sentences, once they were asked for."""

    def columns(self, hidden: Tensor) -> Tensor:
        if self._active is None:
            candidates = self._candidates
            union = candidates[0] if len(candidates) == 1 else np.unique(np.concatenate(candidates))
            self._active = torch.tensor(union, dtype=torch.int32, device=hidden.device)
        return self._active

    def join(self, sources: Sequence[Sequence[int]]) -> None:
        """Append sentences with these source tokens."""
        self._candidates += [self._lists.of(source) for source in sources]
        self._active = None

    def leave(self, order: Sequence[int]) -> None:
        """Keep the sentences `order`: new slot i is old slot `order[i]`."""
        self._candidates = [self._candidates[slot] for slot in order]
        self._active = None


def clustered(clusters: ClusterSet, *, device: torch.device | str = "cpu") -> RestrictedVocabulary:
    """Return the vocabulary of the columns of all clusters into which the rows of a step fall; `device`: the model's."""
    # The result holds neither the clusters nor their copies on another device.
    centroids, sets = clusters.centroids, clusters.sets
    points = centroids.points.to(device)
    if points is not centroids.points:
        centroids = Centroids.of(points)
    if sets.columns.device != points.device:
        sets = ColumnSets(sets.starts, sets.columns.to(points.device), sets.vocab)
    return RestrictedVocabulary(clusters.label, "clustered", lambda: ClusteredColumns(centroids, sets))


def listed(lists: CandidateLists) -> RestrictedVocabulary:
    """Return the vocabulary of the candidates of all active sentences."""
    return RestrictedVocabulary("candidates", "candidates", lambda: ListedColumns(lists))


def load_vocabulary(path: str | os.PathLike[str], model: StepModel) -> RestrictedVocabulary:
    """Load the clusters or candidate lists of a bundle that was built with this model, whose weights must be as in its file.

    Raises `NmtError` for a file that is not a bundle or is damaged, and for another model.
    """
    from simnmt.nmt.vocabulary import candidate_lists, cluster_bundle
    from simnmt.nmt.vocabulary.bundle_file import read_bundle

    def clusters_of(file: BundleFile) -> RestrictedVocabulary:
        return clustered(cluster_bundle.clusters_in(file), device=model.device)

    def lists_of(file: BundleFile) -> RestrictedVocabulary:
        return listed(candidate_lists.CandidateLists.of_file(file))

    return read_bundle(path, {cluster_bundle.KIND: clusters_of, candidate_lists.KIND: lists_of}, model)
