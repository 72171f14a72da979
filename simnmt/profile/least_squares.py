"""Least squares with nonnegative coefficients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simnmt.base.arrays import Floats


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
