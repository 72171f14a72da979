"""Fit of the execution plane from raw repeats: relative least squares, level, residual, held-out errors, samples (CNMT-05)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simnmt.base.arrays import Floats
from simnmt.profile.blocks import MOST_RELATIVE_SD, CellSample, Execution, ExecutionFit, Mode
from simnmt.profile.cost import Plane, ResidualQuantiles

Mask = NDArray[np.bool_]


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


def relative_least_squares(design: Floats, seconds: Floats, least_s: float, prior: Floats | None = None) -> Floats:
    """Fit one coefficient per column of `design`, none below 0, by relative errors.

    Weights are one over the fitted seconds: measured ones would let fast measurements count more, and the fit would lie below
    their mean. `least_s`: fitted seconds below it count as this; `prior`: rows whose fitted values shall be 0.
    """
    prior = np.zeros((0, design.shape[1])) if prior is None else prior
    expected = np.full_like(seconds, seconds.mean())
    for _ in range(10):  # each with the weights of the one before; after a few, the fit no longer changes
        target = np.append(seconds / expected, np.zeros(len(prior)))
        coefficients = bounded_least_squares(np.vstack([design / expected[:, None], prior]), target)
        expected = np.maximum(design @ coefficients, least_s)
    return coefficients


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

    All columns of shape (inferences,), in tokens and seconds; one inference at least.
    """
    src, tgt, time = (np.asarray(column, np.float64) for column in (src_len, tgt_len, time_s))
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


def _coefficients(src: Floats, tgt: Floats, time: Floats) -> list[float]:
    """Return the coefficients (src, tgt, constant) by elimination, from sums of a fixed order."""
    src_aside, tgt_aside = src - src.mean(), tgt - tgt.mean()
    src_square = (src_aside * src_aside).sum()
    tgt_alone = tgt_aside - (src_aside * tgt_aside).sum() / src_square * src_aside
    per_tgt = float((tgt_alone * time).sum() / (tgt_alone * tgt_alone).sum())
    per_src = float((src_aside * (time - per_tgt * tgt_aside)).sum() / src_square)
    return [per_src, per_tgt, float(time.mean() - per_src * src.mean() - per_tgt * tgt.mean())]


class Cells:
    """Measurements, columns of shape (measurements,), grouped by their pair of lengths; sorted by source, then target length.

    Raises `ValueError` for a measurement that is not positive.
    """

    def __init__(self, src_len: ArrayLike, tgt_len: ArrayLike, measured: ArrayLike) -> None:
        self.columns: list[Floats] = [np.asarray(column, np.float64) for column in (src_len, tgt_len, measured)]
        """Source length, target length and value of each measurement, in the given order."""
        self.time = self.columns[2]
        if not (np.isfinite(self.time).all() and (self.time > 0.0).all()):
            raise ValueError("measurements must be positive numbers")
        pairs = np.column_stack(self.columns[:2])
        keys, cell_of, self.counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        self.src, self.tgt = keys.T
        self.cell_of = cell_of.reshape(-1)
        """Cell of each measurement."""
        self._ordered, self._begins = self.time[np.lexsort((self.time, self.cell_of))], np.cumsum(self.counts) - self.counts

    def __len__(self) -> int:
        return len(self.counts)

    def repeats(self) -> list[Floats]:
        """Return the sorted measurements of each cell."""
        return np.split(self._ordered, self._begins[1:])

    def quantile(self, share: float) -> Floats:
        """Return one quantile of each cell's repeats, as `np.quantile` does; 0 is the least."""
        position = share * (self.counts - 1)
        below = position.astype(np.int64)
        first, last = (self._ordered[self._begins + np.minimum(at, self.counts - 1)] for at in (below, below + 1))
        return np.asarray(first + (last - first) * (position - below))

    def counted(self, mask: Mask) -> Floats:
        """Return the number of measurements of each cell that a mask holds."""
        return np.bincount(self.cell_of[mask], minlength=len(self)).astype(np.float64)

    def means(self, values: Floats, mask: Mask) -> Floats:
        """Return the mean of the values of each cell that a mask holds; NaN for cells without one."""
        with np.errstate(invalid="ignore"):
            return np.bincount(self.cell_of[mask], weights=values[mask], minlength=len(self)) / self.counted(mask)


ONE_BY_ONE = 60
"""Most cells that are left out one by one; of more cells, a tenth at a time."""
LEAST_CELLS = 4


def _folds(cells: Cells, fitted: Mask | None) -> list[Mask]:
    """Return masks of the cells that are left out together; none with fewer than four cells."""
    count = len(cells)
    if count < LEAST_CELLS:
        return []
    if fitted is not None and not fitted.all():
        return [cells.counted(fitted) == 0.0]
    # A fixed shuffle: in the order of cells, a tenth of a grid could be a whole column.
    shuffled = np.random.default_rng(0).permutation(count)
    groups = np.array_split(shuffled, count if count <= ONE_BY_ONE else 10)
    return [np.isin(np.arange(count), group) for group in groups]


def _error_on(planes: Iterable[tuple[Mask, Plane]], cells: Cells, cell_of: NDArray[np.int64], time: Floats) -> float | None:
    """Return the mean absolute relative error of planes on times of the cells that each leaves out; None without any."""
    errors = [np.empty(0)]
    for left_out, plane in planes:
        judges = left_out[cell_of]
        errors.append(np.abs(plane.seconds(cells.src, cells.tgt)[cell_of[judges]] / time[judges] - 1.0))
    joined = np.concatenate(errors)
    return float(joined.mean()) if joined.size else None


def heldout_error_of_shape(cells: Cells, quantile: float = 0.0, fitted: Mask | None = None) -> float | None:
    """Return the mean absolute relative error of planes on a `quantile` (0: the minimum) of cells that are not fitted.

    `fitted`: mask of the inferences of cells to fit; the others judge (six cells of a larger grid). Without it, each cell is
    left out once; of more than 60 cells, a tenth at a time. None with fewer than four cells.
    """
    time = cells.quantile(quantile)
    planes = [(left_out, _relative_plane(cells, time, ~left_out)) for left_out in _folds(cells, fitted)]
    return _error_on(planes, cells, np.arange(len(cells)), time)


def _relative_plane(cells: Cells, time: Floats, on: Mask) -> Plane:
    """Fit a plane by weighted least squares (weights 1/time) to the cells that a mask holds; no slope is negative."""
    design = np.column_stack([cells.src, cells.tgt, np.ones_like(time)])[on] / time[on, None]
    return Plane(*bounded_least_squares(design, np.ones(len(design)), (True, True, False)).tolist())


def _mean_plane(src: Floats, tgt: Floats, time: Floats) -> Plane:
    """Fit the mean of all executions over both lengths, by relative error; no coefficient is below 0."""
    # All coefficients but one may be 0, and no time is: a plane through the origin would leave empty sentences no weight.
    design, least_s = np.column_stack([src, tgt, np.ones_like(time)]), 1e-3 * float(time.min())
    plane = Plane(*relative_least_squares(design, time, least_s).tolist())
    return plane.times(float((time / plane.seconds(src, tgt)).mean()))


ROBUST_SDS, LEAST_DISTURBANCE = 5.0, 0.10
"""An inference counts as disturbed if it took longer than its cell's median by both: five robust standard deviations of all
inferences about their medians, and a tenth."""
MOST_NOISE = 0.25
"""And in any case if it took longer than its cell's least by a quarter. A busy box disturbs most repeats, so that medians and
deviations grow with the disturbance and hide it, while a box left alone repeats a work within a few hundredths."""

LEAST, MEDIAN = 0.0, 0.5
"""Quantiles of a cell's repeats that a plane's shape may come from."""
GOOD_ENOUGH, CLEARLY = 0.05, 0.8
"""Medians replace least times whose held-out error is above the first, if theirs is below the second times it."""


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
        return float(np.sqrt((self.off[self.kept] ** 2).mean()))


def fit_plane_of_means(
    cells: Cells, mode: Mode, quantile: float, fitted: Mask | None, *, keep_disturbed: bool = False
) -> PlaneOfMeans:
    """Fit the plane of mean times to raw repeats: the part of `fit_execution` that determines the profile's numbers.

    `quantile`: of each cell's repeats for the shape; `keep_disturbed`: take disturbed inferences into level and residual too.
    """
    (src, tgt, time), kept = cells.columns, np.ones(cells.time.size, np.bool_)
    if mode == "every_repeat":
        plane = _mean_plane(src, tgt, time)
        return PlaneOfMeans(plane, 1.0, kept, time / plane.seconds(src, tgt) - 1.0)
    on = np.ones(len(cells), np.bool_) if fitted is None else cells.counted(fitted) > 0.0
    shape = _relative_plane(cells, cells.quantile(quantile), on)
    expected = shape.seconds(src, tgt)
    expected = np.where(expected > 0.0, expected, time)  # level and spread ignore cells where the plane is not positive
    if not keep_disturbed:
        # Equal inferences show a disturbance, which only slows; the plane, where there are none.
        ratio = time / np.where((cells.counts >= 3)[cells.cell_of], cells.quantile(MEDIAN)[cells.cell_of], expected)
        robust_sd = 1.4826 * float(np.median(np.abs(ratio - np.median(ratio))))
        kept = ratio <= np.median(ratio) + max(ROBUST_SDS * robust_sd, LEAST_DISTURBANCE)
        if quantile == LEAST:
            kept &= time <= (1.0 + MOST_NOISE) * cells.quantile(LEAST)[cells.cell_of]
    level = float((time[kept] / expected[kept]).mean())
    return PlaneOfMeans(shape.times(level), level, kept, time / (level * expected) - 1.0)


def fit_execution(
    src_len: ArrayLike,
    tgt_len: ArrayLike,
    time_s: ArrayLike,
    *,
    mode: Mode,
    fitted: Mask | None = None,
    stretch: NDArray[np.integer[Any]] | None = None,
) -> Execution:
    """Fit a profile's block `execution` to raw repeats: plane, residual and quality. Samples are left out.

    The shape of the plane comes from each cell's least repeat, which resists disturbance best, or from the median if that
    predicts left-out cells clearly better: if a step takes one of two times, the least of few repeats is accidental. Multiplied
    by the level the shape gives the mean, so that draws of the mean-one residual resemble the undisturbed measurements.

    Columns of shape (inferences,), tokens and seconds. `mode`: "every_repeat" is the plane of the means of all inferences,
    disturbed ones included, with the quantiles of their residual. `fitted`: as for `heldout_error_of_shape`. `stretch`:
    number of the stretch of measuring of each inference, from which `level_error` follows. Raises `ValueError` for times that
    are not positive.
    """
    cells, every, quantile, shape_error = Cells(src_len, tgt_len, time_s), mode == "every_repeat", LEAST, None
    (src, tgt, time), all_on = cells.columns, np.ones(cells.time.size, np.bool_)
    if not every:
        least, median = (heldout_error_of_shape(cells, at, fitted) for at in (LEAST, MEDIAN))
        medians_fit = least is not None and median is not None and least > GOOD_ENOUGH and median < CLEARLY * least
        quantile, shape_error = (MEDIAN, median) if medians_fit else (LEAST, least)
    means = fit_plane_of_means(cells, mode, quantile, fitted)
    kept, off, shape_time = means.kept, means.off, cells.quantile(quantile)

    def fit_without(left_out: Mask) -> Plane:
        on = ~left_out[cells.cell_of]
        if every:
            return _mean_plane(src[on], tgt[on], time[on])
        shape, calm = _relative_plane(cells, shape_time, ~left_out), on & kept
        ratio = time[calm] / np.maximum(shape.seconds(src[calm], tgt[calm]), 1e-12)
        return shape.times(float(ratio.mean()) if calm.any() else 1.0)

    mean = cells.means(time, kept)
    judging = np.flatnonzero(np.isfinite(mean))
    planes = [(left_out, fit_without(left_out)) for left_out in _folds(cells, fitted)]
    predicted, on = means.plane.seconds(src[kept], tgt[kept]), all_on if fitted is None else fitted
    lengths = fit_plane(src[on], tgt[on], time[on])
    judged = "single inferences" if every else "least times" if quantile == LEAST else "median times"
    left_out = "left out in turn" if len(cells) <= ONE_BY_ONE else "left out a tenth at a time"
    fit = ExecutionFit.model_construct(
        mode=mode,
        inferences=int(time.size),
        cells=len(cells),
        quantile=None if every else quantile,
        level=means.level,
        level_error=None if stretch is None else _level_error(off[kept], stretch[kept]),
        r2=r_squared(predicted, time[kept]),
        r2_of_means_per_tgt_len=_r2_of_means_per_tgt_len(tgt[kept], time[kept]),
        mse_ms2=float(((predicted - time[kept]) ** 2).mean()) * 1e6,
        heldout_error=_error_on(planes, cells, cells.cell_of, time) if every else shape_error,
        heldout_how=f"{judged} of cells {left_out if on.all() else 'that were not fitted'}",
        heldout_error_of_means=_error_on(planes, cells, judging, mean[judging]),
        disturbed_share=float(1.0 - kept.mean()),
        condition_number=None if lengths.collinear else lengths.condition_number,
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
    """Return R2 of the line through the mean time per target length, weighted by inferences; None with fewer than three."""
    length, which = np.unique(tgt_len, return_inverse=True)
    if length.size < 3:
        return None
    mean_s = (np.bincount(which, weights=time) / np.bincount(which))[which]
    return r_squared(np.polynomial.Polynomial.fit(tgt_len, mean_s, 1)(tgt_len), mean_s)


def _level_error(off: Floats, stretch: NDArray[np.integer[Any]]) -> float | None:
    """Return the standard error of the mean relative deviation, by stretches, which share the speed of the box at that time."""
    _, which = np.unique(stretch, return_inverse=True)
    sums = np.bincount(which, weights=off - off.mean())
    return float(np.sqrt((sums**2).sum() / off.size**2 * sums.size / (sums.size - 1))) if sums.size > 1 else None


def cell_samples(src_len: ArrayLike, tgt_len: ArrayLike, time_s: ArrayLike) -> tuple[CellSample, ...]:
    """Return `execution.samples` of raw repeats, sorted by cell."""
    cells = Cells(src_len, tgt_len, time_s)
    return tuple(
        CellSample.of(
            repeats, src_len=int(src), tgt_len=int(tgt), sd_s=float(repeats.std(ddof=1)) if repeats.size > 1 else None
        )
        for src, tgt, repeats in zip(cells.src, cells.tgt, cells.repeats(), strict=True)
    )
