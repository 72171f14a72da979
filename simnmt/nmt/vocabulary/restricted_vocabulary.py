"""A restricted vocabulary of a decoder: how its active columns are chosen and counted.

The columns of a step come from the clusters of its rows (FVP-05, FVP-06) or from the candidate lists of its sentences
(SHARP-02); `load_vocabulary` reads either kind from a bundle file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

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


class SubsetStep(NamedTuple):
    """One step of a decoder with a part of the vocabulary; seconds are 0 without a clock."""

    keys: tuple[int, ...]
    rows: int
    columns: int
    missed: int
    """Rows whose likeliest token was not active, in an audited run (FVP-08)."""
    choose_s: float
    """Seconds for choosing clusters and their union, or for joining lists."""
    product_s: float
    search_s: float
    """Seconds for bias, softmax and the best of each row."""


@dataclass(slots=True)
class SubsetAccount:
    """The steps of a decoder; it may collect those of several runs, one after the other."""

    clock: Callable[[], float] = lambda: 0.0
    """Times the stages of each step; on a GPU one that waits for it."""
    vocab: int = 0
    steps: list[SubsetStep] = field(default_factory=list)

    @property
    def share(self) -> NDArray[np.float64]:
        """Active share of the vocabulary in each step, shape (steps,)."""
        return np.array([step.columns for step in self.steps]) / max(self.vocab, 1)

    @property
    def miss_rate(self) -> float:
        """Share of the rows of an audited run whose likeliest token was not active (FVP-08); 0 without an audit."""
        return sum(step.missed for step in self.steps) / max(sum(step.rows for step in self.steps), 1)


@dataclass(frozen=True, slots=True)
class RestrictedVocabulary:
    """The `vocabulary` of a decoder; `clustered` and `listed` make one, and `dataclasses.replace` changes its options."""

    label: str
    kind: Literal["clustered", "candidates"]
    by_context: Callable[[Tensor], Tensor] | None = None
    """Returns the active columns of all rows together, int32, ascending, from the body's output, [rows, width] (FVP-06)."""
    by_source: Callable[[Sequence[int]], NDArray[np.int32]] | None = None
    """Returns the active columns of a sentence from its source tokens; a step has those of all its sentences."""
    audit: bool = False
    """Whether to make the dense products too, and count the rows whose likeliest token is not active (FVP-08)."""
    account: SubsetAccount | None = None


def clustered(clusters: ClusterSet, *, device: torch.device | str = "cpu") -> RestrictedVocabulary:
    """Return the vocabulary of the columns of all clusters into which the rows of a step fall; `device`: the model's."""
    # The result holds neither the clusters nor their copies on another device.
    centroids, sets = clusters.centroids, clusters.sets
    if torch.device(device) != centroids.points.device:
        centroids = Centroids.of(centroids.points.to(device))
        sets = ColumnSets(sets.starts, sets.columns.to(device), sets.vocab)

    def columns(hidden: Tensor) -> Tensor:
        try:
            return sets.union(centroids.nearest(hidden))
        except KernelError as error:
            raise NmtError(f"the model's outputs are no numbers to find a cluster for: {error}") from None

    return RestrictedVocabulary(clusters.label, "clustered", by_context=columns)


def listed(lists: CandidateLists) -> RestrictedVocabulary:
    """Return the vocabulary of the candidates of all active sentences."""
    return RestrictedVocabulary("candidates", "candidates", by_source=lists.of)


def load_vocabulary(path: str | os.PathLike[str], model: StepModel) -> RestrictedVocabulary:
    """Load the clusters or candidate lists of a bundle that was built with this model, whose weights must be as in its file.

    Raises `NmtError` for a file that is not a bundle or is damaged, and for another model.
    """
    from simnmt.nmt.vocabulary import candidate_lists, cluster_bundle
    from simnmt.nmt.vocabulary.bundle_file import read_bundle

    parsers: dict[str, Callable[[BundleFile], RestrictedVocabulary]] = {
        cluster_bundle.KIND: lambda file: clustered(cluster_bundle.clusters_in(file), device=model.device),
        candidate_lists.KIND: lambda file: listed(candidate_lists.CandidateLists.of_file(file)),
    }
    return read_bundle(path, parsers, model)
