"""Least squares in which some coefficients may not be negative, for the few columns of a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray


def bounded_least_squares(
    design: NDArray[np.float64], target: NDArray[np.float64], nonnegative: Sequence[bool]
) -> NDArray[np.float64]:
    """Coefficients of the columns, those marked never below 0; columns that say nothing get 0.

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
            found = np.zeros(columns)
            if free:
                found[free] = np.linalg.lstsq(design[:, free] / scale[free], target, rcond=None)[0] / scale[free]
            if any(found[column] < 0.0 for column in bounded):
                continue
            error = float(((design @ found - target) ** 2).sum())
            # Of solutions that fit alike the first is kept, which holds the fewest at 0.
            if error < least * (1.0 - 1e-12):
                best, least = found, error
    return best
