"""Held-out errors of execution planes: what a plane says of cells that it was not fitted to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.cells import Cells, by_cell
from simnmt.costs.plane import ExecutionPlane, fit_plane
from simnmt.costs.relative_plane import fit_relative_plane

ONE_BY_ONE = 60
"""Up to so many cells each is left out alone; of more, a tenth at a time."""
LEAST_CELLS = 4

Column = NDArray[np.float64]
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

    def fit(kept: NDArray[np.int64], own: Mask) -> ExecutionPlane:
        plane = fit_relative_plane(cells.first[kept], cells.second[kept], of_cells[kept]).plane
        expected = plane.seconds(src[own & calm], tgt[own & calm])
        return plane.times(level(time[own & calm], expected))

    return _mean([off for off, _ in _judged(cells, time, calm, fitted, fit)])


def heldout_ordinary_errors(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, fitted: ArrayLike | None = None
) -> tuple[float | None, float | None]:
    """Of `fit_plane` over single inferences (CNMT-05): its errors on single inferences of left-out cells, and on their means.

    Per fold all inferences of the other cells are fitted. Folds, `fitted` and None as of `heldout_plane_error`.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    cells = by_cell(src, tgt, time)

    def fit(_: NDArray[np.int64], own: Mask) -> ExecutionPlane:
        return fit_plane(src[own], tgt[own], time[own]).plane

    off = _judged(cells, time, np.ones(time.size, np.bool_), fitted, fit)
    return _mean([single for _, single in off]), _mean([mean for mean, _ in off])


def how_left_out(src_len: ArrayLike, tgt_len: ArrayLike, fitted: ArrayLike | None) -> str:
    """Which cells judged, in words."""
    if fitted is not None and not np.asarray(fitted, np.bool_).all():
        return "cells that were not fitted"
    cells = len({*zip(np.asarray(src_len).tolist(), np.asarray(tgt_len).tolist(), strict=True)})
    return "cells left out in turn" if cells <= ONE_BY_ONE else "cells left out a tenth at a time"


def level(time: Column, expected: Column) -> float:
    """Mean of measured over expected times, where anything is expected; 1 of none."""
    told = expected > 0.0  # a plane below zero there says nothing of the level
    return float((time[told] / expected[told]).mean()) if told.any() else 1.0


def _judged(
    cells: Cells, time: Column, counts: Mask, fitted: ArrayLike | None, fit: Callable[[NDArray[np.int64], Mask], ExecutionPlane]
) -> list[tuple[Column, Column]]:
    """Per fold the errors on the left-out cells' means, and on their single inferences, of those that count."""
    many = np.bincount(cells.cell_of, weights=counts, minlength=len(cells))
    mean = np.bincount(cells.cell_of, weights=np.where(counts, time, 0.0), minlength=len(cells)) / np.maximum(many, 1.0)
    found = []
    for group, kept in _folds(cells, fitted):
        plane = fit(kept, np.isin(cells.cell_of, kept))
        predicted = plane.seconds(cells.first, cells.second)
        judges = group[many[group] > 0]
        own = counts & np.isin(cells.cell_of, group)
        found.append((np.abs(predicted[judges] / mean[judges] - 1.0), np.abs(predicted[cells.cell_of[own]] / time[own] - 1.0)))
    return found


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
