"""Memory that clusters take beside their model (FVP-12, FVP-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simnmt.kernels.columns import Centroids, ColumnSets

_START_BYTES = 8
_NORM_BYTES = 4
"""Norms are held in float32 whatever the centroids are held in."""


@dataclass(frozen=True, slots=True)
class MemoryAccount:
    """Bytes."""

    centroids: int
    norms: int
    """Squared norms of the centroids, known beforehand (FVP-05), and the centroids' mean; in float32, as they are held."""
    indices: int
    """Columns of all active sets."""
    starts: int
    """Where each set begins; the paper's sum leaves them out."""
    flags: int
    """One a column for each set of clusters: what a union is made with (FVP-06)."""
    model: int | None = None
    """The model's own weights."""

    @property
    def total(self) -> int:
        """All that clustering adds."""
        return self.centroids + self.norms + self.indices + self.starts + self.flags

    @property
    def share(self) -> float | None:
        """Of the model's own."""
        return None if not self.model else self.total / self.model

    def as_json(self) -> dict[str, int | float | None]:
        """Every part in bytes, their total, and its share of the model's."""
        parts = {name: getattr(self, name) for name in ("centroids", "norms", "indices", "starts", "flags", "model")}
        return parts | {"total": self.total, "share": self.share}


def memory_account(
    vocab: int,
    width: int,
    clusters: int,
    mean_share: float,
    bytes_per_number: int = 2,
    *,
    index_bytes: int = 4,
    flag_bytes: int = 1,
    model_bytes: int | None = None,
) -> MemoryAccount:
    """Of clusters that nobody has built: `mean_share` of the vocabulary active in each (FVP-12, FVP-13)."""
    return MemoryAccount(
        clusters * width * bytes_per_number,
        (clusters + width) * _NORM_BYTES,
        round(clusters * mean_share * vocab) * index_bytes,
        (clusters + 1) * _START_BYTES,
        vocab * flag_bytes,
        model_bytes,
    )


def allocated_memory(clusters: Sequence[tuple[Centroids, ColumnSets]], model_bytes: int | None = None) -> MemoryAccount:
    """Return the memory allocated for these clusters: the sum of their `nbytes`, shared centroids counted once."""
    sizes = {centroids.points.data_ptr(): centroids.points.untyped_storage().nbytes() for centroids, _ in clusters}
    norms = sum(
        tensor.untyped_storage().nbytes() for centroids, _ in clusters for tensor in (centroids.half_norms, centroids.mean)
    )
    indices = sum(sets.columns.untyped_storage().nbytes() for _, sets in clusters)
    starts = sum(sets.starts.untyped_storage().nbytes() for _, sets in clusters)
    return MemoryAccount(
        sum(sizes.values()),
        norms,
        indices,
        starts,
        sum(sets.nbytes for _, sets in clusters) - indices - starts,
        model_bytes,
    )
