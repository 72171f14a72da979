"""Fitted cost of the products of an output layer, by which a decoder chooses among them (FVP-09)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Rising
from simnmt.profile.execution_fit import bounded_least_squares

Costs = tuple[Annotated[float, Field(ge=0.0)], ...]
"""Seconds, or seconds per number or column, by measured number of rows."""
ProductMethod = Literal["row_wise", "gather"]
"""Method to multiply the active columns: directly from the rows of the weight, or gathered in blocks first."""
PRODUCT_METHODS: tuple[ProductMethod, ...] = ("row_wise", "gather")


class StagePoint(NamedTuple):
    """One measured time of a stage."""

    rows: int
    numbers: float
    """Numbers that the stage reads: of the weights, of the centroids, or of the list of length V."""
    columns: float
    """Weight rows, centroids or indices among them, each of which may add a cost."""
    seconds: float


class StageCost(Configuration):
    """Seconds of a stage: fixed + per number + per column for each measured number of rows, linear between them.

    A product is not linear in its rows from one row on: one row waits for the memory, many rows for the arithmetic.
    """

    rows: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), Rising]
    """Measured numbers of rows, sentences x beam."""
    fixed_s: Costs
    s_per_number: Costs
    s_per_column: Costs

    def seconds(self, rows: int, numbers: float, columns: float) -> float:
        """Return the seconds at a number of rows, extrapolated from the last two beyond the measured range."""
        per_number, per_column = np.array(self.s_per_number), np.array(self.s_per_column)
        at = np.array(self.fixed_s) + numbers * per_number + columns * per_column
        if rows <= self.rows[-1] or len(at) == 1:
            return float(np.interp(rows, self.rows, at))
        slope = (at[-1] - at[-2]) / (self.rows[-1] - self.rows[-2])
        # The noise of two numbers of rows may give a falling line, which extrapolation must not take below 0.
        return max(float(at[-1] + slope * (rows - self.rows[-1])), 0.0)


def fit_stage(points: Iterable[StagePoint]) -> StageCost:
    """Fit nonnegative costs with the least relative errors.

    If columns and numbers are proportional, as in weights of one width, the whole cost is per number.
    """
    groups = groupby(sorted(points, key=lambda point: point.rows), key=lambda point: point.rows)
    rows, fits = zip(*((rows, _fit(np.array([*group]))) for rows, group in groups), strict=True)
    fixed_s, s_per_number, s_per_column = zip(*fits, strict=True)
    return StageCost(rows=rows, fixed_s=fixed_s, s_per_number=s_per_number, s_per_column=s_per_column)


def _fit(points: np.ndarray) -> list[float]:
    """Return the seconds fixed, per number and per column of one number of rows; `points`: a row each, as in `StagePoint`."""
    features, seconds = np.column_stack([np.ones(len(points)), points[:, 1:3]]), points[:, 3]
    used: list[int] = []
    for feature in (1, 0, 2):  # the numbers first: collinear features are charged to them
        tried = features[:, [*used, feature]]
        scale = np.sqrt((tried**2).sum(axis=0))
        if (scale > 0.0).all() and np.linalg.matrix_rank(tried / scale, tol=1e-9) == len(used) + 1:
            used.append(feature)
    coefficients = np.zeros(3)
    coefficients[used] = bounded_least_squares(features[:, used] / seconds[:, None], np.ones(len(points)))
    return list(coefficients.tolist())


class ProductCosts(Configuration):
    """Fitted costs of the products of an output layer on one box with one number of threads."""

    row_wise: StageCost
    """Numbers: active columns x width; columns: active columns. Also for the next stage."""
    gather: StageCost
    dense: StageCost
    """The product with all columns. Numbers: V x width; columns: V."""

    def product_s(self, columns: int, rows: int, width: int, method: ProductMethod | None = None) -> float:
        """Return the seconds of one product with the active columns, by the faster method if none is named."""
        stage: StageCost = getattr(self, method or self.method(columns, rows, width))
        return stage.seconds(rows, columns * width, columns)

    def method(self, columns: int, rows: int, width: int) -> ProductMethod:
        """Return the faster method to multiply columns; `row_wise` if both take the same time."""
        return min(PRODUCT_METHODS, key=lambda method: self.product_s(columns, rows, width, method))
