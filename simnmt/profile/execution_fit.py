"""Fit of the execution plane from raw repeats: relative least squares, level, residual, held-out errors (CNMT-05)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.profile.execution_plane import ExecutionPlane, fit_plane
from simnmt.profile.least_squares import Cells, bounded_least_squares, by_cell, errs_clearly_less, r_squared, relative_error

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
    coefficients = bounded_least_squares(design, np.ones_like(time_s), (True, True, False))
    return ExecutionPlane(*(float(coefficient) for coefficient in coefficients))


ONE_BY_ONE = 60
"""Up to so many cells each is left out alone; of more, a tenth at a time."""
LEAST_CELLS = 4

Mask = NDArray[np.bool_]


def heldout_plane_error(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0, fitted: ArrayLike | None = None
) -> float | None:
    """Mean absolute relative error of `fit_relative_plane` on the same quantile of cells that it was not fitted to.

    `fitted`: shape (inferences,), true for those to fit on, the others judge (six cells of a larger grid). Without it, or
    where it marks all, each cell is left out in turn; beyond 60 cells a tenth of them at a time. None with fewer than four
    cells. Raises `ValueError` as `fit_relative_plane` does, and for a cell that is fitted in part.
    """
    cells = by_cell(src_len, tgt_len, time_s)
    time = cells.quantile(quantile)
    off = []
    for group, kept in _folds(cells, fitted):
        plane = fit_relative_plane(cells.first[kept], cells.second[kept], time[kept]).plane
        off.append(np.abs(plane.seconds(cells.first[group], cells.second[group]) / time[group] - 1.0))
    return _mean(off)


def heldout_error_of_means(
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    time_s: ArrayLike,
    undisturbed: ArrayLike,
    *,
    quantile: float = 0.0,
    fitted: ArrayLike | None = None,
) -> float | None:
    """Mean absolute relative error of the plane of the mean, as a profile holds it, on the means of left-out cells.

    Per fold the shape comes from the quantile of the kept cells, the level from their undisturbed repeats; the means are of
    undisturbed repeats too, and a cell without any does not judge. `undisturbed`: shape (inferences,). Else as
    `heldout_plane_error`.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    calm = np.asarray(undisturbed, np.bool_)
    cells = by_cell(src, tgt, time)
    of_cells = cells.quantile(quantile)

    def fit(kept: NDArray[np.int64], of_kept: Mask) -> ExecutionPlane:
        plane = fit_relative_plane(cells.first[kept], cells.second[kept], of_cells[kept]).plane
        expected = plane.seconds(src[of_kept & calm], tgt[of_kept & calm])
        return plane.times(level(time[of_kept & calm], expected))

    return _mean([off for off, _ in _judged(cells, time, calm, fitted, fit)])


def heldout_ordinary_errors(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, fitted: ArrayLike | None = None
) -> tuple[float | None, float | None]:
    """Of `fit_plane` over single inferences (CNMT-05): its errors on single inferences of left-out cells, and on their means.

    Per fold all inferences of the other cells are fitted. Folds, `fitted` and None as of `heldout_plane_error`.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    cells = by_cell(src, tgt, time)

    def fit(_: NDArray[np.int64], of_kept: Mask) -> ExecutionPlane:
        return fit_plane(src[of_kept], tgt[of_kept], time[of_kept]).plane

    off = _judged(cells, time, np.ones(time.size, np.bool_), fitted, fit)
    return _mean([single for _, single in off]), _mean([mean for mean, _ in off])


def how_left_out(src_len: ArrayLike, tgt_len: ArrayLike, fitted: ArrayLike | None) -> str:
    """Which cells judged, in words."""
    if fitted is not None and not np.asarray(fitted, np.bool_).all():
        return "cells that were not fitted"
    cells = len({*zip(np.asarray(src_len).tolist(), np.asarray(tgt_len).tolist(), strict=True)})
    return "cells left out in turn" if cells <= ONE_BY_ONE else "cells left out a tenth at a time"


def level(time: Column, expected: Column) -> float:
    """Return the mean of measured over expected times, where the latter are positive; 1 if none is."""
    positive = expected > 0.0  # the level is undetermined where the plane is not above zero
    return float((time[positive] / expected[positive]).mean()) if positive.any() else 1.0


def _judged(
    cells: Cells, time: Column, counts: Mask, fitted: ArrayLike | None, fit: Callable[[NDArray[np.int64], Mask], ExecutionPlane]
) -> list[tuple[Column, Column]]:
    """Return per fold the errors on the means and on the single inferences of left-out cells, of inferences that count."""
    many = np.bincount(cells.cell_of, weights=counts, minlength=len(cells))
    mean = np.bincount(cells.cell_of, weights=np.where(counts, time, 0.0), minlength=len(cells)) / np.maximum(many, 1.0)
    errors = []
    for group, kept in _folds(cells, fitted):
        plane = fit(kept, np.isin(cells.cell_of, kept))
        predicted = plane.seconds(cells.first, cells.second)
        judges = group[many[group] > 0]
        left_out = counts & np.isin(cells.cell_of, group)
        single_error = np.abs(predicted[cells.cell_of[left_out]] / time[left_out] - 1.0)
        errors.append((np.abs(predicted[judges] / mean[judges] - 1.0), single_error))
    return errors


def _folds(cells: Cells, fitted: ArrayLike | None) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """(Left-out cells, the others); none with fewer than four cells."""
    if fitted is not None and not (marked := np.asarray(fitted, np.bool_)).all():
        on = np.zeros(len(cells), np.bool_)
        on[cells.cell_of[marked]] = True
        if on[cells.cell_of[~marked]].any():
            raise ValueError("a cell is either fitted or judged, with all of its repeats")
        if not on.any():
            raise ValueError("no cell is left to fit the plane to")
        groups = [np.flatnonzero(~on)]
    else:
        # The same shuffle each time: in their own order, a tenth of a grid could be a whole column of it.
        shuffled = np.random.default_rng(0).permutation(len(cells))
        groups = np.array_split(shuffled, len(cells) if len(cells) <= ONE_BY_ONE else 10)
    if len(cells) < LEAST_CELLS:
        return []
    return [(group, np.setdiff1d(np.arange(len(cells)), group)) for group in groups]


def _mean(off: list[Column]) -> float | None:
    every = np.concatenate(off) if off else np.empty(0)
    return float(every.mean()) if every.size else None


ROBUST_SDS = 5.0
LEAST_DISTURBANCE = 0.10
"""An inference is called disturbed when it took longer than its cell's median by both: five robust standard deviations of all
inferences about their medians, and a tenth."""
MOST_NOISE = 0.25
"""And in any case when it took longer than its cell's least by a quarter. A busy box disturbs most repeats, so that medians and
deviations grow with the disturbance and hide it, while a box left alone repeats a work within a few hundredths."""

LEAST, MEDIAN = 0.0, 0.5
"""Quantiles of a cell's repeats that a plane's shape may come from."""
GOOD_ENOUGH = 0.05
"""Error of least times up to which no medians replace them (`errs_clearly_less`)."""


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
    fitted: ArrayLike | None = None,
) -> FittedExecution:
    """All of an execution block from raw repeats: plane, level, residual, R2, held-out error.

    `mode`: "six_cells", "full_grid", or "paper", which is ordinary least squares over all inferences (CNMT-05). `fitted`: as
    for `heldout_plane_error`; the plane kept is that of the marked inferences. The plane's shape comes from one quantile of
    each cell's repeats (`shape_quantile`); multiplied by the level it gives the mean, so that
    draws of the mean-one residual are like what was measured undisturbed. `heldout_error` is of the shape, on the left-out
    cells' quantiles, `heldout_error_of_means` of the plane that is kept, on their means; in paper mode, where both are one,
    it is on single inferences. Raises `ValueError` as `fit_relative_plane` does.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    cells = by_cell(src, tgt, time)
    paper = mode == "paper"
    on = np.ones(time.size, np.bool_) if fitted is None else np.asarray(fitted, np.bool_)
    quantile = LEAST if paper else shape_quantile(src, tgt, time, fitted=fitted)
    if paper:
        ordinary = fit_plane(src[on], tgt[on], time[on])
        shape, condition, collinear = ordinary.plane, ordinary.condition_number, ordinary.collinear
    else:
        relative = fit_relative_plane(src[on], tgt[on], time[on], quantile=quantile)
        shape, condition, collinear = relative.plane, relative.condition_number, relative.collinear
    expected = shape.seconds(src, tgt)
    expected = np.where(expected > 0.0, expected, time)  # level and spread ignore cells where the plane is not positive
    # Single inferences are judged against a plane fitted by relative error: a misfit on short sentences would look disturbed.
    like = fit_relative_plane(src, tgt, time, quantile=0.5).plane.seconds(src, tgt) if paper else expected
    kept = ~_disturbed(cells, time, np.where(like > 0.0, like, time))
    if not paper and quantile == LEAST:
        kept &= ~_beyond_noise(cells, time)
    risen = 1.0 if paper else level(time[kept], expected[kept])
    plane = shape.times(risen)
    off = time / (risen * expected) - 1.0
    predicted = plane.seconds(src[kept], tgt[kept])
    if paper:
        error, of_means = heldout_ordinary_errors(src, tgt, time, fitted=fitted)
        what = "single inferences"
    else:
        error = heldout_plane_error(src, tgt, time, quantile=quantile, fitted=fitted)
        of_means = heldout_error_of_means(src, tgt, time, kept, quantile=quantile, fitted=fitted)
        what = "least times" if quantile == LEAST else "median times"
    fit: dict[str, Any] = {
        "mode": mode,
        "inferences": int(time.size),
        "cells": len(cells),
        "quantile": None if paper else quantile,
        "level": risen,
        "r2": r_squared(predicted, time[kept]),
        "r2_of_means_per_tgt_len": r2_of_means_per_tgt_len(tgt[kept], time[kept]),
        "mse_ms2": float(((predicted - time[kept]) ** 2).mean()) * 1e6,
        "heldout_error": error,
        "heldout_how": f"{what} of {how_left_out(src, tgt, fitted)}",
        "heldout_error_of_means": of_means,
        "disturbed_share": float(1.0 - kept.mean()),
        "residual_relative_sd_all": _root_mean_square(off),
        "condition_number": condition if condition < 1e15 else None,
        "collinear": collinear,
    }
    return FittedExecution(plane, _root_mean_square(off[kept]), fit)


def shape_quantile(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, fitted: ArrayLike | None = None) -> float:
    """Return the quantile of each cell's repeats that the shape of the plane is fitted to: `LEAST` or `MEDIAN`.

    The least of the repeats is what a busy box disturbs last. Where a step itself takes one of two times, the least is an
    accident of few repeats: output weights that just fit into a cache shared with other machines are sometimes in it and
    sometimes not. The median is taken where it predicts cells that were left out clearly better.
    """
    least, median = (heldout_plane_error(src_len, tgt_len, time_s, quantile=at, fitted=fitted) for at in (LEAST, MEDIAN))
    return MEDIAN if errs_clearly_less(median, least, GOOD_ENOUGH) else LEAST


def _disturbed(cells: Cells, time: NDArray[np.float64], expected: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which inferences took far longer than their like; a disturbance only ever slows."""
    repeated = np.array([repeats.size >= 3 for repeats in cells.repeats])[cells.cell_of]
    ratio = time / np.where(repeated, cells.quantile(0.5)[cells.cell_of], expected)
    middle = float(np.median(ratio))
    robust_sd = 1.4826 * float(np.median(np.abs(ratio - middle)))
    disturbed: NDArray[np.bool_] = ratio > middle + max(ROBUST_SDS * robust_sd, LEAST_DISTURBANCE)
    return disturbed


def _beyond_noise(cells: Cells, time: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which inferences took longer than the least of their own cell by more than any noise."""
    beyond: NDArray[np.bool_] = time > (1.0 + MOST_NOISE) * cells.quantile(0.0)[cells.cell_of]
    return beyond


def _root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt((values**2).mean()))
