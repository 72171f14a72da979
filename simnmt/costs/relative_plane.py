"""The execution plane by least squares on relative error: a short sentence counts as much as a long one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.bounded_least_squares import bounded_least_squares
from simnmt.costs.cells import by_cell, r_squared, relative_error
from simnmt.costs.plane import ExecutionPlane, fit_plane

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RelativePlaneFit:
    """A plane with what its fit says of itself."""

    plane: ExecutionPlane
    """Of the stated quantile of each cell's repeats."""
    inferences: int
    cells: int
    quantile: float
    error: float
    """Mean absolute relative error over the cells that it was fitted to."""
    r2: float | None
    """Of the cells' quantiles."""
    mse_ms2: float
    """Of the cells' quantiles, ms squared."""
    condition_number: float
    """As in `PlaneFit`, of the cells."""
    collinear: bool
    """The three coefficients are not determined by these cells."""


def fit_relative_plane(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0) -> RelativePlaneFit:
    """Weighted least squares (weights 1/time) with slopes that are never negative; the offset is free.

    Columns of shape (inferences,), repeats of a cell in any order; fitted to each cell's `quantile` (0: its minimum).
    Raises `ValueError` for no inferences, unequal shapes, times that are not positive.
    """
    cells = by_cell(src_len, tgt_len, time_s)
    time = cells.quantile(quantile)
    plane = _relative(cells.first, cells.second, time)
    predicted = plane.seconds(cells.first, cells.second)
    shape = fit_plane(cells.first, cells.second, time)
    return RelativePlaneFit(
        plane=plane,
        inferences=int(cells.cell_of.size),
        cells=len(cells),
        quantile=quantile,
        error=relative_error(predicted, time),
        r2=r_squared(predicted, time),
        mse_ms2=float(((predicted - time) ** 2).mean()) * 1e6,
        condition_number=shape.condition_number,
        collinear=shape.collinear,
    )


def r2_of_means_per_tgt_len(tgt_len: ArrayLike, time_s: ArrayLike) -> float | None:
    """R2 of the line through the mean time per target length, weighted by inferences (CNMT-06).

    Columns of shape (inferences,); None with fewer than three target lengths, or where the means do not vary.
    """
    length, mean_s, weight = means_per_tgt_len(tgt_len, time_s)
    if length.size < 3:
        return None
    slope, offset = np.polynomial.polynomial.polyfit(length, mean_s, 1, w=np.sqrt(weight))[::-1]
    middle = np.average(mean_s, weights=weight)
    spread = float((weight * (mean_s - middle) ** 2).sum())
    return 1.0 - float((weight * (mean_s - slope * length - offset) ** 2).sum()) / spread if spread > 0.0 else None


def means_per_tgt_len(tgt_len: ArrayLike, time_s: ArrayLike) -> tuple[Column, Column, Column]:
    """Distinct target lengths, rising, their mean times and their numbers of inferences (figure 2a of C-NMT)."""
    length, which = np.unique(np.asarray(tgt_len, np.float64), return_inverse=True)
    count = np.bincount(which.reshape(-1)).astype(np.float64)
    return length, np.bincount(which.reshape(-1), weights=np.asarray(time_s, np.float64)) / count, count


def _relative(src_len: Column, tgt_len: Column, time_s: Column) -> ExecutionPlane:
    design = np.column_stack([src_len, tgt_len, np.ones_like(src_len)]) / time_s[:, None]
    found = bounded_least_squares(design, np.ones_like(time_s), (True, True, False))
    return ExecutionPlane(*(float(each) for each in found))
