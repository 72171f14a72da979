"""Fitted cost of the products of an output layer, with all columns and with some (FVP-09)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.profile.blocks import Rising
from simnmt.profile.execution_fit import nonnegative_line

Costs = tuple[Annotated[float, Field(ge=0.0)], ...]
"""Seconds by measured number of rows."""


class StagePoint(NamedTuple):
    """One measured time of a stage with a number of rows (sentences x beam) and of what it reads, such as columns."""

    rows: int
    columns: float
    seconds: float


class StageCost(Configuration):
    """Seconds of a stage of one layer: a line in its columns for each measured number of rows, linear between them.

    A product is not linear in its rows from one row on: one row waits for the memory, many rows for the arithmetic.
    """

    rows: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), Rising]
    fixed_s: Costs
    s_per_column: Costs

    @model_validator(mode="after")
    def _together(self) -> StageCost:
        if {len(self.fixed_s), len(self.s_per_column)} != {len(self.rows)}:
            raise ValueError("one cost of each kind is needed for each number of rows")
        return self

    def seconds(self, rows: int, columns: float) -> float:
        """Return the seconds at a number of rows, extrapolated from the last two beyond the measured range."""
        at = np.array(self.fixed_s) + columns * np.array(self.s_per_column)
        if rows <= self.rows[-1] or len(at) == 1:
            return float(np.interp(rows, self.rows, at))
        slope = (at[-1] - at[-2]) / (self.rows[-1] - self.rows[-2])
        # The noise of two numbers of rows may give a falling line, which extrapolation must not take below 0.
        return max(float(at[-1] + slope * (rows - self.rows[-1])), 0.0)


def fit_stage(points: Iterable[StagePoint]) -> StageCost:
    """Fit lines, nowhere negative, with the least relative errors; a constant where the columns do not differ."""
    lines: dict[int, tuple[float, float]] = {}
    for rows, group in groupby(sorted(points), key=lambda point: point.rows):
        _, columns, seconds = np.array(list(group)).T
        lines[rows] = nonnegative_line(columns, seconds, 1.0 / seconds)
    fixed_s, s_per_column = zip(*lines.values(), strict=True)
    return StageCost(rows=tuple(lines), fixed_s=fixed_s, s_per_column=s_per_column)


class ProductCosts(Configuration):
    """Fitted costs of the products of an output layer on one box with one number of threads."""

    product: StageCost
    """Of the active columns; `dense`: of all columns."""
    dense: StageCost
