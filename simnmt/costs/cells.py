"""Repeated measurements, brought together by cell: the same two lengths, or the same batch and position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
