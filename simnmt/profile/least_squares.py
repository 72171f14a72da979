"""Least squares for cost models: repeats grouped by cell, coefficients bounded below by 0, overhead lines over a batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def bounded_least_squares(
    design: NDArray[np.float64], target: NDArray[np.float64], nonnegative: Sequence[bool]
) -> NDArray[np.float64]:
    """Fit the coefficients of the columns, those marked never below 0; all-zero columns get 0.

    Exact: every set of coefficients held at 0 is tried, 16 at most here, and the best that keeps the bounds is taken. scipy
    does the same at the cost of importing it in every simulation. `design` has shape (rows, columns).
    """
    columns = design.shape[1]
    scale = np.sqrt((design**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    bounded = [column for column in range(columns) if nonnegative[column]]
    best, least = np.zeros(columns), np.inf
    for count in range(len(bounded) + 1):
        for held in combinations(bounded, count):
            free = [column for column in range(columns) if column not in held]
            trial = np.zeros(columns)
            if free:
                trial[free] = np.linalg.lstsq(design[:, free] / scale[free], target, rcond=None)[0] / scale[free]
            if any(trial[column] < 0.0 for column in bounded):
                continue
            error = float(((design @ trial - target) ** 2).sum())
            # Of solutions that fit alike the first is kept, which holds the fewest at 0.
            if error < least * (1.0 - 1e-12):
                best, least = trial, error
    return best


CLEARLY = 0.8
"""Share of the default's held-out error below which another form's is clearly less."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Distinct pairs, rising by the first and then by the second, and the repeats of each."""

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    repeats: tuple[NDArray[np.float64], ...]
    """What was measured, rising, per cell."""
    cell_of: NDArray[np.int64]
    """Per measurement, in the order given."""

    def __len__(self) -> int:
        return len(self.repeats)

    def quantile(self, share: float) -> NDArray[np.float64]:
        """One quantile of each cell's repeats; 0 is the least."""
        return np.array([np.quantile(repeats, share) for repeats in self.repeats])


def by_cell(first: ArrayLike, second: ArrayLike, measured: ArrayLike) -> Cells:
    """Group measurements; three columns of shape (measurements,).

    Raises `ValueError` for none, unequal shapes, a key that is not finite, or a measurement that is not positive.
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


def relative_error(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    """Mean of |predicted - measured| / measured."""
    return float(np.abs(predicted / measured - 1.0).mean())


def errs_clearly_less(error: float | None, default_error: float | None, good_enough: float) -> bool:
    """Return whether a form with more numbers than the default predicts left-out cells so much better that it is taken.

    Args:
        error: held-out error of that form; None where it is not known.
        default_error: held-out error of the default.
        good_enough: error up to which the default is kept whatever the other form does.
    """
    if error is None or default_error is None or default_error <= good_enough:
        return False
    return error < CLEARLY * default_error


def r_squared(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float | None:
    """Share of variance explained; None where nothing varies."""
    spread = float(((measured - measured.mean()) ** 2).sum())
    return 1.0 - float(((measured - predicted) ** 2).sum()) / spread if spread > 0.0 else None


FLOOR = 0.1
"""Share of the usual cost below which a measurement counts no more: what drowns in the clock's noise must not decide."""


@dataclass(frozen=True, slots=True)
class OverheadFit:
    """Seconds = s_fixed + s_per_sentence sentences."""

    s_fixed: float
    s_per_sentence: float
    error: float | None
    """Mean absolute relative error; None where nothing was measurable."""
    how: str
    """What `error` was judged on."""


def fit_overhead(sentences: ArrayLike, time_s: ArrayLike, *, judged: Collection[int] = ()) -> OverheadFit:
    """Fit both parts by relative error, neither below 0, to one time for each number of sentences.

    Sizes of `judged` are kept out of the fit and give the error, where there are any; else it is that on what was fitted.
    Columns of shape (sizes,). Raises `ValueError` where no size is left to fit.
    """
    size, time = np.asarray(sentences, np.float64), np.asarray(time_s, np.float64)
    judging = np.isin(size, list(judged))
    fitted = ~judging
    if not fitted.any():
        raise ValueError("nothing to fit an overhead to")
    usual = float(np.median(time[fitted]))
    if usual <= 0.0:
        return OverheadFit(0.0, 0.0, None, "nothing measurable")
    weight = 1.0 / np.maximum(time, FLOOR * usual)
    design = np.column_stack([np.ones_like(size), size if np.ptp(size[fitted]) > 0.0 else np.zeros_like(size)])
    fixed, per_sentence = bounded_least_squares(
        design[fitted] * weight[fitted, None], time[fitted] * weight[fitted], (True, True)
    ).tolist()
    judges = judging if judging.any() else fitted
    off = np.abs(fixed + per_sentence * size - time) * weight
    how = f"batch sizes {', '.join(f'{judged_size:.0f}' for judged_size in np.unique(size[judges]))}, never fitted"
    return OverheadFit(fixed, per_sentence, float(off[judges].mean()), how if judging.any() else "the sizes fitted")
