"""Memory that clusters take beside their model (FVP-12, FVP-18)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from simnmt.kernels.columns import Centroids, ColumnSets

_START_BYTES, _INDEX_BYTES = 8, 4
_NORM_BYTES = 4
"""Norms are float32, whatever the type of the centroids."""


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """Bytes that clusters take, by part."""

    centroids: int
    norms: int
    """Squared norms of the centroids, computed beforehand (FVP-05), and their mean, in float32."""
    indices: int
    """Columns of all active sets."""
    starts: int
    """Begins of the sets, which the paper's sum leaves out."""
    flags: int
    """A flag per column for each set of clusters, for making a union (FVP-06)."""
    model: int | None = None
    """The model's own weights."""

    @property
    def total(self) -> int:
        """All parts that clustering adds."""
        return self.centroids + self.norms + self.indices + self.starts + self.flags

    @property
    def share(self) -> float | None:
        """Total as a share of the model's own weights; None if these are unknown."""
        return None if not self.model else self.total / self.model

    def as_json(self) -> dict[str, int | float | None]:
        """Return every part in bytes, their total, and its share of the model's."""
        return {**asdict(self), "total": self.total, "share": self.share}


def memory_account(
    vocab: int,
    width: int,
    clusters: int,
    mean_share: float,
    bytes_per_number: int = 2,
    *,
    model_bytes: int | None = None,
) -> MemoryAccount:
    """Predict the memory of clusters, each with `mean_share` of the vocabulary active (FVP-12, FVP-13)."""
    return MemoryAccount(
        clusters * width * bytes_per_number,
        (clusters + width) * _NORM_BYTES,
        round(clusters * mean_share * vocab) * _INDEX_BYTES,
        (clusters + 1) * _START_BYTES,
        vocab,
        model_bytes,
    )


def allocated_memory(clusters: Sequence[tuple[Centroids, ColumnSets]], model_bytes: int | None = None) -> MemoryAccount:
    """Return the memory allocated for these clusters: the sum of their `nbytes`, shared centroids counted once."""
    points = {centroids.points.data_ptr(): centroids.points for centroids, _ in clusters}
    indices = _storage(sets.columns for _, sets in clusters)
    starts = _storage(sets.starts for _, sets in clusters)
    return MemoryAccount(
        _storage(points.values()),
        _storage(tensor for centroids, _ in clusters for tensor in (centroids.half_norms, centroids.mean)),
        indices,
        starts,
        sum(sets.nbytes for _, sets in clusters) - indices - starts,
        model_bytes,
    )


def _storage(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)
