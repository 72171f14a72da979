"""Memory that clusters take beside their model (FVP-12, FVP-18)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

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

    def __add__(self, other: MemoryAccount) -> MemoryAccount:
        """Return the memory of both."""
        return MemoryAccount(*map(sum, zip(asdict(self).values(), asdict(other).values(), strict=True)))

    @property
    def total(self) -> int:
        """All parts that clustering adds."""
        return sum(asdict(self).values())


def memory_account(vocab: int, width: int, clusters: int, mean_share: float, bytes_per_number: int = 2) -> MemoryAccount:
    """Predict the memory of clusters, each with `mean_share` of the vocabulary active (FVP-12, FVP-13)."""
    return MemoryAccount(
        clusters * width * bytes_per_number,
        (clusters + width) * _NORM_BYTES,
        round(clusters * mean_share * vocab) * _INDEX_BYTES,
        (clusters + 1) * _START_BYTES,
        vocab,
    )
