"""The execution plane by least squares on relative error: a short sentence counts as much as a long one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.plane import ExecutionPlane


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
    collinear: bool


def fit_relative_plane(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0) -> RelativePlaneFit:
    """Weighted least squares (weights 1/time) with slopes that are never negative; the offset is free.

    Columns of shape (inferences,), repeats of a cell in any order; fitted to each cell's `quantile` (0: its minimum).
    Raises `ValueError` for no inferences, unequal shapes, times that are not positive.
    """
    raise NotImplementedError


def heldout_plane_error(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0, fitted: ArrayLike | None = None
) -> float | None:
    """Mean absolute relative error on cells that the plane was not fitted to.

    `fitted`: shape (inferences,), true for those to fit on, the others judge (six cells of a larger grid). Without it each
    cell is left out in turn; beyond 60 cells a tenth of them at a time. None with fewer than four cells.
    """
    raise NotImplementedError


def r2_of_means_per_tgt_len(tgt_len: ArrayLike, time_s: ArrayLike) -> float | None:
    """R2 of the line through the mean time per target length (CNMT-06); None with fewer than three target lengths."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True)
class FittedExecution:
    """Plane and residual, ready for a profile's block."""

    plane: ExecutionPlane
    """Of the mean time: the quantile's plane times the level."""
    residual_relative_sd: float
    fit: dict[str, Any]
    """For `execution.fit`: keys of `ExecutionFit`."""


def fit_execution(
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    time_s: ArrayLike,
    *,
    mode: str,
    quantile: float = 0.0,
    fitted: ArrayLike | None = None,
) -> FittedExecution:
    """All of an execution block from raw repeats: plane, level, residual, R2, held-out error.

    `mode`: "six_cells", "full_grid" or "paper" (then by ordinary least squares over all inferences, CNMT-05). `fitted`: as
    for `heldout_plane_error`; the plane kept is that of the marked inferences.
    """
    raise NotImplementedError


def cell_samples(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, batch: int = 1, beam: int = 1
) -> list[dict[str, Any]]:
    """`execution.samples` of raw repeats, by cell in rising order."""
    raise NotImplementedError


_ = (Sequence, NDArray, np)
