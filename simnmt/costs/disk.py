"""Time of one read from the disk: a fixed part and the bytes over the bandwidth (STI-07), and its fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.bounded_least_squares import bounded_least_squares
from simnmt.costs.cells import by_cell, r_squared


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
    """Of the sizes' quantiles."""
    heldout_error: float | None
    """Mean absolute relative error on sizes left out in turn; None with fewer than four sizes."""


def fit_disk(size_bytes: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.5) -> DiskFit:
    """Fit cold reads, repeats and all, to a quantile per size by relative error; both columns of shape (reads,).

    Raises `ValueError` for fewer than two sizes, and where larger reads take no longer.
    """
    sizes = np.asarray(size_bytes, np.float64)
    cells = by_cell(sizes, np.zeros_like(sizes), time_s)
    size, time = cells.first, cells.quantile(quantile)
    if size.size < 2:
        raise ValueError("reads of two sizes at least are needed")
    cost = _fitted(size, time)
    off: list[float] = []
    for left_out in range(size.size if size.size >= 4 else 0):
        try:
            without = _fitted(np.delete(size, left_out), np.delete(time, left_out))
        except ValueError:
            return DiskFit(cost, r_squared(cost.seconds(size), time), None)
        off.append(abs(float(without.seconds(size[left_out])) / float(time[left_out]) - 1.0))
    return DiskFit(cost, r_squared(cost.seconds(size), time), float(np.mean(off)) if off else None)


def _fitted(size: NDArray[np.float64], time: NDArray[np.float64]) -> DiskCost:
    design = np.column_stack([np.ones_like(size), size]) / time[:, None]
    fixed, s_per_byte = bounded_least_squares(design, np.ones_like(time), (True, True)).tolist()
    if s_per_byte <= 0.0:
        raise ValueError("larger reads take no longer: no bandwidth can be told")
    return DiskCost(fixed, 1.0 / s_per_byte)
