"""What a stage of the output layer takes, as a fitted line of what it walks over, for each number of rows (FVP-09)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from simnmt.configuration import Configuration
from simnmt.costs.bounded_least_squares import bounded_least_squares

Cost = Annotated[float, Field(ge=0.0)]
"""Seconds, or seconds of each number or column."""


class StagePoint(NamedTuple):
    """One measured time of a stage."""

    rows: int
    numbers: float
    """That it walks over: of the weights, of the centroids, or of the list of length V."""
    columns: float
    """Weight rows, centroids or indices among them; each may cost something of its own."""
    seconds: float


class StageCost(Configuration):
    """Seconds of a stage: fixed + per number walked over + per column, for each measured number of rows; between them a line.

    A product is no straight line of its rows from one row on: alone it waits for the memory, with many for the arithmetic.
    """

    rows: tuple[int, ...]
    """Sentences x beam at which it was measured, ascending."""
    fixed_s: tuple[Cost, ...]
    s_per_number: tuple[Cost, ...]
    s_per_column: tuple[Cost, ...]
    heldout_error: Cost | None = None
    """Mean absolute relative error on points that were not fitted."""
    heldout_points: int = 0

    @model_validator(mode="after")
    def _together(self) -> StageCost:
        if not self.rows or list(self.rows) != sorted(set(self.rows)) or self.rows[0] < 1:
            raise ValueError("rows: numbers of rows from 1 on, ascending")
        if {len(self.fixed_s), len(self.s_per_number), len(self.s_per_column)} != {len(self.rows)}:
            raise ValueError("one cost of each kind is needed for each number of rows")
        return self

    def seconds(self, rows: int, numbers: float, columns: float) -> float:
        """At these rows; beyond those measured as the last two go on."""
        return self._along(rows, [f + n * numbers + c * columns for f, n, c in self._coefficients()])

    def times(self, factor: float) -> StageCost:
        """The same stage, as many times as slow."""
        names = ("fixed_s", "s_per_number", "s_per_column")
        return self.model_copy(update={name: tuple(factor * each for each in getattr(self, name)) for name in names})

    def _coefficients(self) -> Iterable[tuple[float, float, float]]:
        return zip(self.fixed_s, self.s_per_number, self.s_per_column, strict=True)

    def _along(self, rows: int, at: Sequence[float]) -> float:
        if len(at) == 1 or rows <= self.rows[0]:
            return at[0]
        after = min(bisect_right(self.rows, rows), len(at) - 1)
        low, high = self.rows[after - 1], self.rows[after]
        found = at[after - 1] + (at[after] - at[after - 1]) * (rows - low) / (high - low)
        # Noise may let two numbers of rows fall; what is beyond both never costs less than nothing.
        return max(found, 0.0)


def fit_stage(points: Iterable[StagePoint], heldout: Iterable[StagePoint] = ()) -> StageCost:
    """The nonnegative costs with the least relative errors, and their error on `heldout`.

    Where columns and numbers always go together, as in weights of one width, all is counted to the numbers. Raises
    `ValueError` without a point and for times that are not positive.
    """
    ordered = sorted(points, key=lambda point: point.rows)
    if not ordered or any(point.seconds <= 0.0 for point in ordered):
        raise ValueError("times above 0 are needed, one at least")
    groups = {rows: list(group) for rows, group in groupby(ordered, key=lambda point: point.rows)}
    costs = [_fit(group) for group in groups.values()]
    fixed_s, s_per_number, s_per_column = (tuple(column) for column in zip(*costs, strict=True))
    found = StageCost(rows=tuple(groups), fixed_s=fixed_s, s_per_number=s_per_number, s_per_column=s_per_column)
    return judged(found, heldout)


def judged(cost: StageCost, heldout: Iterable[StagePoint]) -> StageCost:
    """The same cost with its mean absolute relative error on these points."""
    off = [abs(cost.seconds(point.rows, point.numbers, point.columns) / point.seconds - 1.0) for point in heldout]
    error = float(np.mean(off)) if off else None
    return cost.model_copy(update={"heldout_error": error, "heldout_points": len(off)})


def _fit(points: Sequence[StagePoint]) -> tuple[float, float, float]:
    seconds = np.array([point.seconds for point in points])
    features = np.array([(1.0, point.numbers, point.columns) for point in points])
    used: list[int] = []
    for feature in (1, 0, 2):  # the numbers first: what cannot be told apart is theirs
        tried = features[:, [*used, feature]]
        scale = np.sqrt((tried**2).sum(axis=0))
        if (scale > 0.0).all() and np.linalg.matrix_rank(tried / scale, tol=1e-9) == len(used) + 1:
            used.append(feature)
    found = np.zeros(3)
    weighed = features[:, used] / seconds[:, None]
    found[used] = bounded_least_squares(weighed, np.ones(len(points)), [True] * len(used))
    fixed_s, s_per_number, s_per_column = (float(each) for each in found)
    return fixed_s, s_per_number, s_per_column
