"""Time of one read from the disk: a fixed part and the bytes over the bandwidth (STI-07), and its fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class DiskCost:
    """Never faster for more bytes; no faster than the pace where one is set."""

    s_fixed: float
    bytes_per_s: float
    paced_bytes_per_s: float | None = None

    def seconds(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Seconds of one read of that many bytes; same shape."""
        size = np.asarray(size_bytes, np.float64)
        own: NDArray[np.float64] = self.s_fixed + size / self.bytes_per_s
        return own if self.paced_bytes_per_s is None else np.maximum(own, size / self.paced_bytes_per_s)


@dataclass(frozen=True, slots=True)
class DiskFit:
    """A disk's cost with what its fit says of itself."""

    cost: DiskCost
    r2: float | None
    heldout_error: float | None
    """Mean absolute relative error on sizes left out in turn; None with fewer than three sizes."""


def fit_disk(size_bytes: ArrayLike, time_s: ArrayLike) -> DiskFit:
    """Fit cold reads, repeats and all; both of shape (reads,).

    Raises `ValueError` for fewer than two sizes, and where larger reads take no longer.
    """
    raise NotImplementedError
