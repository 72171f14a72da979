"""From raw repeats to a profile's execution block: plane, level, residual, and what they say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.costs.cells import Cells, by_cell, errs_clearly_less, r_squared
from simnmt.costs.heldout import heldout_error_of_means, heldout_ordinary_errors, heldout_plane_error, how_left_out, level
from simnmt.costs.plane import ExecutionPlane, fit_plane
from simnmt.costs.relative_plane import fit_relative_plane, r2_of_means_per_tgt_len

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
        own = fit_plane(src[on], tgt[on], time[on])
        shape, condition, collinear = own.plane, own.condition_number, own.collinear
    else:
        relative = fit_relative_plane(src[on], tgt[on], time[on], quantile=quantile)
        shape, condition, collinear = relative.plane, relative.condition_number, relative.collinear
    expected = shape.seconds(src, tgt)
    expected = np.where(expected > 0.0, expected, time)  # a plane below zero there says nothing of level and spread
    # Single inferences are judged against a plane that short sentences have a say in, else its own misfit would look disturbed.
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
