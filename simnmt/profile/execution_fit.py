"""Fit of the execution plane from raw repeats: relative least squares, level, residual, held-out errors, samples (CNMT-05)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import MOST_RELATIVE_SD, CellSample, Execution, ExecutionFit
from simnmt.profile.cost import Plane, ResidualQuantiles

Mask = NDArray[np.bool_]
Indices = NDArray[np.int64]


def bounded_least_squares(design: Floats, target: Floats, nonnegative: Sequence[bool] | None = None) -> Floats:
    """Fit one coefficient per column of `design`, shape (rows, columns); a column of zeros gets 0.

    `nonnegative`: the columns whose coefficients are at least 0; None: all columns.
    """
    from scipy.optimize import lsq_linear  # takes a third of a second to import, which few simulations need

    scale = np.sqrt((design**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    lower = np.zeros_like(scale) if nonnegative is None else np.where(nonnegative, 0.0, -np.inf)
    coefficients: Floats = lsq_linear(design / scale, target, (lower, np.inf), method="bvls", tol=1e-15).x / scale
    return np.maximum(coefficients, lower)  # the library passes the bound by a rounding error at times


def nonnegative_line(x: Floats, y: Floats, weight: Floats) -> tuple[float, float]:
    """Fit y = offset + slope x with weighted residuals, both at least 0; return (offset, slope), slope 0 for equal `x`."""
    varied = x if np.ptp(x) > 0.0 else np.zeros_like(x)
    design = np.column_stack([np.ones_like(x), varied]) * weight[:, None]
    offset, slope = bounded_least_squares(design, y * weight).tolist()
    return offset, slope


def r_squared(predicted: Floats, measured: Floats) -> float | None:
    """Return the share of variance explained; None if nothing varies."""
    spread = float(((measured - measured.mean()) ** 2).sum())
    return 1.0 - float(((measured - predicted) ** 2).sum()) / spread if spread > 0.0 else None


@dataclass(frozen=True, slots=True)
class PlaneFit:
    """A fitted plane with the quality of its fit."""

    plane: Plane
    inferences: int
    r2: float | None
    """Share of variance explained; None if the times do not vary."""
    mse_ms2: float
    """Mean squared residual, ms squared (the paper prints ms: CNMT-20)."""
    condition_number: float
    """Condition number of the design matrix with columns scaled to unit length; large if the lengths are correlated."""
    collinear: bool
    """True if these lengths do not determine the three coefficients: they are the minimum-norm solution."""


def fit_plane(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike) -> PlaneFit:
    """Fit measured times over both lengths by ordinary least squares (CNMT-05), with the same bits on every processor.

    All columns of shape (inferences,), in tokens and seconds. Raises `ValueError` for no inferences or unequal shapes.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    if src.ndim != 1 or not src.shape == tgt.shape == time.shape or src.size == 0:
        raise ValueError(f"three columns of one length are needed, got shapes {src.shape}, {tgt.shape}, {time.shape}")
    design = np.column_stack([src, tgt, np.ones_like(src)])
    scale = np.sqrt((design**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    singular = np.linalg.svd(design / scale, compute_uv=False)
    collinear = src.size < 3 or bool(singular[-1] <= singular[0] * src.size * np.finfo(np.float64).eps)
    coefficients = np.linalg.lstsq(design, time, rcond=None)[0].tolist() if collinear else _coefficients(src, tgt, time)
    predicted = coefficients[0] * src + coefficients[1] * tgt + coefficients[2]
    return PlaneFit(
        plane=Plane(*coefficients),
        inferences=int(src.size),
        r2=r_squared(predicted, time),
        mse_ms2=float(((time - predicted) ** 2).mean()) * 1e6,
        # Rounded, since the last bits of singular values depend on the processor.
        condition_number=float("inf") if collinear else float(f"{singular[0] / singular[-1]:.9g}"),
        collinear=collinear,
    )


def _coefficients(src: NDArray[np.float64], tgt: NDArray[np.float64], time: NDArray[np.float64]) -> list[float]:
    """Return the least-squares coefficients (src, tgt, constant) by elimination, from sums of a fixed order."""
    src_aside, tgt_aside = src - src.mean(), tgt - tgt.mean()
    src_square = (src_aside * src_aside).sum()
    tgt_alone = tgt_aside - (src_aside * tgt_aside).sum() / src_square * src_aside
    per_tgt = float((tgt_alone * time).sum() / (tgt_alone * tgt_alone).sum())
    per_src = float((src_aside * (time - per_tgt * tgt_aside)).sum() / src_square)
    return [per_src, per_tgt, float(time.mean() - per_src * src.mean() - per_tgt * tgt.mean())]


@dataclass(frozen=True, slots=True)
class Cells:
    """Distinct pairs, sorted by the first and then by the second number, and the repeats of each pair."""

    first: Floats
    second: Floats
    repeats: tuple[Floats, ...]
    """Sorted measurements of each cell."""
    cell_of: Indices
    """Cell of each measurement, in the given order."""

    def __len__(self) -> int:
        return len(self.repeats)

    def quantile(self, share: float) -> Floats:
        """Return one quantile of each cell's repeats; 0 is the least."""
        return np.array([_quantile_of_sorted(repeats, share) for repeats in self.repeats])


def _quantile_of_sorted(values: Floats, share: float) -> float:
    """Return `np.quantile` of sorted numbers to the bit: 40 times as fast, which counts where a profile is refitted often."""
    position = share * (len(values) - 1)
    below = int(position)
    first, last = float(values[below]), float(values[min(below + 1, len(values) - 1)])
    part = position - below
    return last - (last - first) * (1.0 - part) if part >= 0.5 else first + (last - first) * part


def by_cell(first: ArrayLike, second: ArrayLike, measured: ArrayLike) -> Cells:
    """Group measurements by pair; three columns of shape (measurements,).

    Raises `ValueError` for no measurements, unequal shapes, a pair that is not finite, or a measurement that is not positive.
    """
    columns = [np.asarray(column, np.float64) for column in (first, second, measured)]
    shapes = [column.shape for column in columns]
    if columns[0].ndim != 1 or len(set(shapes)) != 1 or columns[0].size == 0:
        raise ValueError(f"three columns of one length are needed, got shapes {', '.join(map(str, shapes))}")
    if not all(np.isfinite(column).all() for column in columns) or not (columns[2] > 0.0).all():
        raise ValueError("measurements must be positive numbers")
    keys, cell_of = np.unique(np.column_stack(columns[:2]), axis=0, return_inverse=True)
    cell_of = cell_of.reshape(-1)
    order = np.lexsort((columns[2], cell_of))
    ends = np.cumsum(np.bincount(cell_of))[:-1]
    return Cells(keys[:, 0], keys[:, 1], tuple(np.split(columns[2][order], ends)), cell_of)


def relative_error(predicted: Floats, measured: Floats) -> float:
    """Return the mean of |predicted - measured| / measured."""
    return float(np.abs(predicted / measured - 1.0).mean())


def fit_relative_plane(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0) -> Plane:
    """Fit a plane to each cell's `quantile` (0: its minimum) by weighted least squares (weights 1/time).

    No slope is negative; the offset is free. Columns of shape (inferences,), repeats of a cell in any order. Raises
    `ValueError` for no inferences, unequal shapes, times that are not positive.
    """
    cells = by_cell(src_len, tgt_len, time_s)
    return _relative_plane(cells.first, cells.second, cells.quantile(quantile))


def _relative_plane(src: Floats, tgt: Floats, time: Floats) -> Plane:
    design = np.column_stack([src, tgt, np.ones_like(time)]) / time[:, None]
    return Plane(*bounded_least_squares(design, np.ones_like(time), (True, True, False)).tolist())


REWEIGHTINGS = 10
"""Fits with the weights of the one before; after a few, the plane no longer changes."""


def _mean_plane(src: Floats, tgt: Floats, time: Floats) -> Plane:
    """Fit the mean of all executions over both lengths, by relative error; no coefficient is below 0.

    Each execution is weighted by the plane's own time and not by its measured one: weights of measured times would let the
    fast repeats of a cell count more than the slow ones, and the plane would lie below the mean.
    """
    expected = np.full_like(time, time.mean())
    for _ in range(REWEIGHTINGS):
        design = np.column_stack([src, tgt, np.ones_like(time)]) / expected[:, None]
        plane = Plane(*bounded_least_squares(design, time / expected).tolist())
        # All coefficients but one may be 0, and no time is: a plane through the origin would leave empty sentences no weight.
        expected = np.maximum(plane.seconds(src, tgt), 1e-3 * time.min())
    return plane.times(float((time / plane.seconds(src, tgt)).mean()))


ONE_BY_ONE = 60
"""Most cells that are left out one by one; of more cells, a tenth at a time."""
LEAST_CELLS = 4


def heldout_plane_error(
    src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, quantile: float = 0.0, fitted: ArrayLike | None = None
) -> float | None:
    """Return the mean absolute relative error of `fit_relative_plane` on the same quantile of left-out cells.

    `fitted`: shape (inferences,), true for inferences to fit; the others judge (six cells of a larger grid). Without it, or if
    all are true, each cell is left out once; of more than 60 cells, a tenth at a time. None with fewer than four cells.
    Raises `ValueError` as `fit_relative_plane` does, and for a cell that is fitted in part.
    """
    cells = by_cell(src_len, tgt_len, time_s)
    src, tgt, time = cells.first, cells.second, cells.quantile(quantile)
    planes = [(left_out, _relative_plane(src[kept], tgt[kept], time[kept])) for left_out, kept in _folds(cells, fitted)]
    return _error_on(planes, cells, np.arange(len(cells)), time)


def _error_on(planes: Iterable[tuple[Indices, Plane]], cells: Cells, cell_of: Indices, time: Floats) -> float | None:
    """Return the mean absolute relative error of planes on times of the cells that each leaves out; None without any."""
    errors = [np.empty(0)]
    for left_out, plane in planes:
        out = np.isin(cell_of, left_out)
        errors.append(np.abs(plane.seconds(cells.first, cells.second)[cell_of[out]] / time[out] - 1.0))
    joined = np.concatenate(errors)
    return float(joined.mean()) if joined.size else None


def _folds(cells: Cells, fitted: ArrayLike | None) -> list[tuple[Indices, Indices]]:
    """Return (left-out cells, kept cells); none with fewer than four cells."""
    if fitted is not None and not (marked := np.asarray(fitted, np.bool_)).all():
        on = np.zeros(len(cells), np.bool_)
        on[cells.cell_of[marked]] = True
        if on[cells.cell_of[~marked]].any():
            raise ValueError("a cell must be fitted with all of its repeats, or with none")
        if not on.any():
            raise ValueError("no cell is left to fit the plane to")
        groups = [np.flatnonzero(~on)]
    else:
        # A fixed shuffle: in the order of cells, a tenth of a grid could be a whole column.
        shuffled = np.random.default_rng(0).permutation(len(cells))
        groups = np.array_split(shuffled, len(cells) if len(cells) <= ONE_BY_ONE else 10)
    if len(cells) < LEAST_CELLS:
        return []
    return [(group, np.setdiff1d(np.arange(len(cells)), group)) for group in groups]


ROBUST_SDS = 5.0
LEAST_DISTURBANCE = 0.10
"""An inference counts as disturbed if it took longer than its cell's median by both: five robust standard deviations of all
inferences about their medians, and a tenth."""
MOST_NOISE = 0.25
"""And in any case if it took longer than its cell's least by a quarter. A busy box disturbs most repeats, so that medians and
deviations grow with the disturbance and hide it, while a box left alone repeats a work within a few hundredths."""

LEAST, MEDIAN = 0.0, 0.5
"""Quantiles of a cell's repeats that a plane's shape may come from."""
GOOD_ENOUGH, CLEARLY = 0.05, 0.8
"""Medians replace least times whose held-out error is above the first, if theirs is below the second times it."""
Mode = Literal["six_cells", "full_grid", "every_repeat", "paper", "sentences"]


@dataclass(frozen=True, slots=True)
class PlaneOfMeans:
    """A plane of mean times: a shape fitted to one quantile of each cell's repeats, multiplied by the level."""

    plane: Plane
    level: float
    kept: Mask
    """Mask of the inferences that determine level and residual; the others were disturbed."""
    off: Floats
    """Relative deviation of each inference from the plane."""

    @property
    def residual_relative_sd(self) -> float:
        """Relative standard deviation of the kept inferences about the plane."""
        return _root_mean_square(self.off[self.kept])


def fit_plane_of_means(
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    time_s: ArrayLike,
    *,
    mode: Mode,
    quantile: float,
    fitted: ArrayLike | None = None,
    keep_disturbed: bool = False,
) -> PlaneOfMeans:
    """Fit the plane of mean times to raw repeats: the part of `fit_execution` that determines the profile's numbers.

    Args:
        src_len, tgt_len, time_s, mode, fitted: as for `fit_execution`.
        quantile: quantile of each cell's repeats for the shape; not used in modes paper and every_repeat.
        keep_disturbed: take disturbed inferences into the level and the residual as well.

    Raises:
        ValueError: as `fit_relative_plane` does.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    kept = np.ones(time.size, np.bool_)
    if mode == "every_repeat":
        plane = _mean_plane(src, tgt, time)
        return PlaneOfMeans(plane, 1.0, kept, time / plane.seconds(src, tgt) - 1.0)
    cells, paper = by_cell(src, tgt, time), mode == "paper"
    columns = [src, tgt, time] if fitted is None else [column[np.asarray(fitted, np.bool_)] for column in (src, tgt, time)]
    shape = fit_plane(*columns).plane if paper else fit_relative_plane(*columns, quantile=quantile)
    expected = shape.seconds(src, tgt)
    expected = np.where(expected > 0.0, expected, time)  # level and spread ignore cells where the plane is not positive
    if not keep_disturbed:
        # Single inferences are compared with a plane of least relative error: a misfit on short ones would look disturbed.
        like = fit_relative_plane(src, tgt, time, quantile=MEDIAN).seconds(src, tgt) if paper else expected
        kept = ~_disturbed(cells, time, np.where(like > 0.0, like, time))
        if not paper and quantile == LEAST:
            kept &= time <= (1.0 + MOST_NOISE) * cells.quantile(LEAST)[cells.cell_of]
    level = 1.0 if paper else _level(time[kept], expected[kept])
    return PlaneOfMeans(shape.times(level), level, kept, time / (level * expected) - 1.0)


def _level(time: Floats, expected: Floats) -> float:
    """Return the mean of measured over expected times where these are positive; 1 if none is."""
    positive = expected > 0.0
    return float((time[positive] / expected[positive]).mean()) if positive.any() else 1.0


def _disturbed(cells: Cells, time: Floats, expected: Floats) -> Mask:
    """Return a mask of the inferences that took far longer than equal ones; a disturbance only slows."""
    repeated = np.array([repeats.size >= 3 for repeats in cells.repeats])[cells.cell_of]
    ratio = time / np.where(repeated, cells.quantile(MEDIAN)[cells.cell_of], expected)
    middle = float(np.median(ratio))
    robust_sd = 1.4826 * float(np.median(np.abs(ratio - middle)))
    disturbed: Mask = ratio > middle + max(ROBUST_SDS * robust_sd, LEAST_DISTURBANCE)
    return disturbed


def _root_mean_square(values: Floats) -> float:
    return float(np.sqrt((values**2).mean()))


def fit_execution(
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    time_s: ArrayLike,
    *,
    mode: Mode,
    fitted: ArrayLike | None = None,
    stretch: ArrayLike | None = None,
) -> Execution:
    """Fit a profile's block `execution` to raw repeats: plane, residual and quality. Samples are left out.

    The shape of the plane comes from each cell's least repeat, which resists disturbance best, or from the median if that
    predicts left-out cells clearly better: if a step takes one of two times, the least of few repeats is accidental. Multiplied
    by the level the shape gives the mean, so that draws of the mean-one residual resemble the undisturbed measurements.
    `heldout_error` is the error of the shape on the quantiles of left-out cells, `heldout_error_of_means` that of the plane on
    their means. The block is checked later, with its profile.

    Args:
        src_len, tgt_len, time_s: shape (inferences,), tokens and seconds.
        mode: "paper" is ordinary least squares over all inferences (CNMT-05), judged on single inferences; "every_repeat" is
            the plane of the means of all inferences, disturbed ones included, with the quantiles of their residual.
        fitted: as for `heldout_plane_error`; the plane is fitted to the marked inferences.
        stretch: number of the stretch of measuring that each inference belongs to, from which `level_error` follows; None:
            not known.

    Raises:
        ValueError: as `fit_relative_plane` does.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
    cells = by_cell(src, tgt, time)
    every, quantile, shape_error = mode in ("paper", "every_repeat"), LEAST, None
    if not every:
        errors = {at: heldout_plane_error(src, tgt, time, quantile=at, fitted=fitted) for at in (LEAST, MEDIAN)}
        least, median = errors[LEAST], errors[MEDIAN]
        if least is not None and median is not None and least > GOOD_ENOUGH and median < CLEARLY * least:
            quantile = MEDIAN
        shape_error = errors[quantile]
    means = fit_plane_of_means(src, tgt, time, mode=mode, quantile=quantile, fitted=fitted)
    kept, off, shape_time = means.kept, means.off, cells.quantile(quantile)

    def fit_kept(kept_cells: Indices) -> Plane:
        of_kept = np.isin(cells.cell_of, kept_cells)
        if mode == "paper":
            return fit_plane(src[of_kept], tgt[of_kept], time[of_kept]).plane
        if mode == "every_repeat":
            return _mean_plane(src[of_kept], tgt[of_kept], time[of_kept])
        plane, calm = _relative_plane(cells.first[kept_cells], cells.second[kept_cells], shape_time[kept_cells]), of_kept & kept
        return plane.times(_level(time[calm], plane.seconds(src[calm], tgt[calm])))

    counts = np.ones(time.size, np.bool_) if every else kept
    repeats = np.bincount(cells.cell_of, weights=counts, minlength=len(cells))
    mean = np.bincount(cells.cell_of, weights=np.where(counts, time, 0.0), minlength=len(cells)) / np.maximum(repeats, 1.0)
    judging = np.flatnonzero(repeats)
    planes = [(left_out, fit_kept(kept_cells)) for left_out, kept_cells in _folds(cells, fitted)]
    predicted = means.plane.seconds(src[kept], tgt[kept])
    on = np.ones(time.size, np.bool_) if fitted is None else np.asarray(fitted, np.bool_)
    lengths = fit_plane(src[on], tgt[on], time[on])
    judged = "single inferences" if every else "least times" if quantile == LEAST else "median times"
    fit = ExecutionFit.model_construct(
        mode=mode,
        inferences=int(time.size),
        cells=len(cells),
        quantile=None if every else quantile,
        level=means.level,
        level_error=None if stretch is None else _level_error(off[kept], np.asarray(stretch)[kept]),
        r2=r_squared(predicted, time[kept]),
        r2_of_means_per_tgt_len=_r2_of_means_per_tgt_len(tgt[kept], time[kept]),
        mse_ms2=float(((predicted - time[kept]) ** 2).mean()) * 1e6,
        heldout_error=_error_on(planes, cells, cells.cell_of, time) if every else shape_error,
        heldout_how=f"{judged} of {_describe_folds(cells, on)}",
        heldout_error_of_means=_error_on(planes, cells, judging, mean[judging]),
        disturbed_share=float(1.0 - kept.mean()),
        residual_relative_sd_all=_root_mean_square(off),
        condition_number=lengths.condition_number if lengths.condition_number < 1e15 else None,
        collinear=lengths.collinear,
    )
    return Execution.model_construct(
        kind="measured",
        plane=means.plane,
        residual_relative_sd=min(means.residual_relative_sd, MOST_RELATIVE_SD),
        residual_quantiles=ResidualQuantiles.of(1.0 + off) if mode == "every_repeat" else None,
        fit=fit,
    )


def _r2_of_means_per_tgt_len(tgt_len: Floats, time: Floats) -> float | None:
    """Return R2 of the line through the mean time per target length, weighted by inferences (CNMT-06).

    None with fewer than three target lengths, or if the means do not vary.
    """
    length, which = np.unique(tgt_len, return_inverse=True)
    if length.size < 3:
        return None
    weight = np.bincount(which.reshape(-1)).astype(np.float64)
    mean_s = np.bincount(which.reshape(-1), weights=time) / weight
    slope, offset = np.polyfit(length, mean_s, 1, w=np.sqrt(weight))
    spread = float((weight * (mean_s - np.average(mean_s, weights=weight)) ** 2).sum())
    return 1.0 - float((weight * (mean_s - slope * length - offset) ** 2).sum()) / spread if spread > 0.0 else None


def _level_error(off: Floats, stretch: NDArray[np.int64]) -> float | None:
    """Return the standard error of the mean relative deviation, by stretches; None with fewer than two.

    Inferences of one stretch share the speed of the box at that time.
    """
    _, which = np.unique(stretch, return_inverse=True)
    sums = np.bincount(which.reshape(-1), weights=off - off.mean())
    if sums.size < 2:
        return None
    return float(np.sqrt((sums**2).sum() / off.size**2 * sums.size / (sums.size - 1)))


def _describe_folds(cells: Cells, fitted: Mask) -> str:
    if not fitted.all():
        return "cells that were not fitted"
    return "cells left out in turn" if len(cells) <= ONE_BY_ONE else "cells left out a tenth at a time"


def cell_samples(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, beam: int = 1) -> tuple[CellSample, ...]:
    """Return `execution.samples` of raw repeats, sorted by cell."""
    cells = by_cell(src_len, tgt_len, time_s)
    return tuple(
        CellSample.of(repeats, src_len=int(src), tgt_len=int(tgt), beam=beam, sd_s=_deviation(repeats))
        for src, tgt, repeats in zip(cells.first, cells.second, cells.repeats, strict=True)
    )


def samples_by_tgt_len(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike, *, beam: int = 1) -> tuple[CellSample, ...]:
    """Return `execution.samples` of many single inferences, one entry a target length, as in C-NMT's figure 2a.

    Their source lengths differ: `src_len_mean` is the mean, `src_len` the nearest whole number.
    """
    src = np.asarray(src_len, np.float64)
    cells = by_cell(np.zeros_like(src), tgt_len, time_s)
    mean = np.bincount(cells.cell_of, weights=src) / np.bincount(cells.cell_of)
    samples = cell_samples(np.zeros_like(src), tgt_len, time_s, beam=beam)
    return tuple(
        sample.model_copy(update={"src_len": round(middle), "src_len_mean": middle})
        for sample, middle in zip(samples, mean.tolist(), strict=True)
    )


def _deviation(repeats: Floats) -> float | None:
    return float(repeats.std(ddof=1)) if repeats.size > 1 else None
