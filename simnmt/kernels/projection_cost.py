"""Fitted cost of the products of an output layer, by which a decoder chooses among them (FVP-09)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Rising
from simnmt.profile.execution_fit import bounded_least_squares

Cost = Annotated[float, Field(ge=0.0)]
"""Seconds, or seconds per number or column."""


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
    fixed_s: tuple[Cost, ...]
    s_per_number: tuple[Cost, ...]
    s_per_column: tuple[Cost, ...]
    heldout_error: Cost | None = None
    """Mean absolute relative error on points that were not fitted."""
    heldout_points: int = 0

    @model_validator(mode="after")
    def _together(self) -> StageCost:
        if {len(self.fixed_s), len(self.s_per_number), len(self.s_per_column)} != {len(self.rows)}:
            raise ValueError("one cost of each kind is needed for each number of rows")
        return self

    def seconds(self, rows: int, numbers: float, columns: float) -> float:
        """Return the seconds at a number of rows, extrapolated from the last two beyond the measured range."""
        costs = zip(self.fixed_s, self.s_per_number, self.s_per_column, strict=True)
        at = [fixed + numbers * per_number + columns * per_column for fixed, per_number, per_column in costs]
        if len(at) == 1 or rows <= self.rows[0]:
            return at[0]
        after = min(bisect_right(self.rows, rows), len(at) - 1)
        low, high = self.rows[after - 1], self.rows[after]
        # The noise of two numbers of rows may give a falling line, which extrapolation must not take below 0.
        return max(at[after - 1] + (at[after] - at[after - 1]) * (rows - low) / (high - low), 0.0)


def fit_stage(points: Iterable[StagePoint], heldout: Iterable[StagePoint] = ()) -> StageCost:
    """Fit nonnegative costs with the least relative errors, and judge them on `heldout`.

    If columns and numbers are proportional, as in weights of one width, the whole cost is per number. Raises `ValueError`
    without a point, and for times that are not positive.
    """
    ordered = sorted(points, key=lambda point: point.rows)
    if not ordered or any(point.seconds <= 0.0 for point in ordered):
        raise ValueError("at least one time is needed, all above 0")
    groups = {rows: list(group) for rows, group in groupby(ordered, key=lambda point: point.rows)}
    fixed_s, s_per_number, s_per_column = zip(*map(_fit, groups.values()), strict=True)
    stage = StageCost(rows=tuple(groups), fixed_s=fixed_s, s_per_number=s_per_number, s_per_column=s_per_column)
    off = [abs(stage.seconds(point.rows, point.numbers, point.columns) / point.seconds - 1.0) for point in heldout]
    error = float(np.mean(off)) if off else None
    return stage.model_copy(update={"heldout_error": error, "heldout_points": len(off)})


def _fit(points: Sequence[StagePoint]) -> tuple[float, ...]:
    """Return the seconds fixed, per number and per column of one number of rows."""
    seconds = np.array([point.seconds for point in points])
    features = np.array([(1.0, point.numbers, point.columns) for point in points])
    used: list[int] = []
    for feature in (1, 0, 2):  # the numbers first: collinear features are charged to them
        tried = features[:, [*used, feature]]
        scale = np.sqrt((tried**2).sum(axis=0))
        if (scale > 0.0).all() and np.linalg.matrix_rank(tried / scale, tol=1e-9) == len(used) + 1:
            used.append(feature)
    coefficients = np.zeros(3)
    coefficients[used] = bounded_least_squares(features[:, used] / seconds[:, None], np.ones(len(points)))
    return tuple(coefficients.tolist())


ProductMethod = Literal["row_wise", "gather"]
"""Method to multiply the active columns: directly from the rows of the weight, or gathered in blocks first."""
PRODUCT_METHODS: tuple[ProductMethod, ...] = ("row_wise", "gather")


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
        numbers = columns * width
        row_wise_s, gather_s = (stage.seconds(rows, numbers, columns) for stage in (self.row_wise, self.gather))
        return "row_wise" if row_wise_s <= gather_s else "gather"
