"""The document of `simnmt vocab bench --out`: steps of the output layer, fitted costs, target speed-ups (FVP-09, FVP-15)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from simnmt.base.configuration import Configuration
from simnmt.calibrate.settings import read_measurement
from simnmt.profile.blocks import Kind, Rising
from simnmt.profile.execution_fit import nonnegative_line

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]
StageName = Literal["assign", "union", "product", "scatter", "search"]

FIT_WITHIN = 0.10
"""Target of the fitted cost's mean relative error on held-out steps (FVP-09)."""
BARS: tuple[tuple[float, float], ...] = ((0.06, 10.0), (0.12, 5.0))
"""Active share of V, and target of the speed-up over dense at this share on one CPU thread."""
BAR_SIZE = (250_000, 1_024)
"""V and width of `BARS`, at one row."""
_NEAR = 0.1
"""Relative distance up to which a drawn share counts as the share of a bar."""
OVERLAP = 2
"""Predicted ratio of all indices in the sets of several rows to those in their union: sets of one text overlap."""


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


class LayerCost(Configuration):
    """Fitted costs of all stages of an output layer of one size (FVP-09)."""

    vocab: Count
    width: Count
    assign: StageCost
    """The nearest centroid of each row; columns: clusters."""
    union: StageCost
    """The union of the rows' sets; columns: indices in these sets."""
    product: StageCost
    """The product with active columns."""
    scatter: StageCost
    """Logits to their places among V, all others -inf; columns: active columns."""
    search: StageCost
    """Bias, softmax and search in one pass; columns: those searched."""
    dense: StageCost
    """The fastest of torch's products with all columns."""

    def step_s(self, columns: int, rows: int, clusters: int, *, scatter: bool = False) -> float:
        """Return the seconds of one step with active columns.

        `rows`: sentences x beam; `scatter`: search V, as published, else the active columns alone (XP-02).
        """
        step_s = self.assign.seconds(rows, clusters) + self.product.seconds(rows, columns)
        step_s += self.union.seconds(rows, columns if rows == 1 else OVERLAP * columns)
        if scatter:
            step_s += self.scatter.seconds(rows, columns)
        return step_s + self.search.seconds(rows, self.vocab if scatter else columns)

    def dense_s(self, rows: int) -> float:
        return self.dense.seconds(rows, self.vocab) + self.search.seconds(rows, self.vocab)

    def break_even(self, rows: int, clusters: int, *, scatter: bool = False) -> float | None:
        """Return the share of V above which dense is faster: 0 if it always is, None if it is not even at all of V."""
        # Every stage is linear in the active columns, so two points determine the intersection with dense.
        none_s, all_s = (self.step_s(columns, rows, clusters, scatter=scatter) for columns in (0, self.vocab))
        dense_s = self.dense_s(rows)
        if all_s <= dense_s:
            return None
        return max(0.0, (dense_s - none_s) / (all_s - none_s)) if all_s > none_s else 0.0


class Setting(Configuration):
    """Sizes and conditions of the measurement."""

    vocabs: tuple[Count, ...] = (32_000, 128_000, 250_000)
    widths: tuple[Count, ...] = (512, 1024)
    rows: tuple[Count, ...] = (1, 8, 40)
    """Sentences x beam at which costs are fitted."""
    shares: tuple[Share, ...] = (0.02, 0.06, 0.12, 0.20)
    """Active shares of V at which costs are fitted."""
    heldout_rows: tuple[Count, ...] = (4, 20)
    """Rows that judge the fit; those not between fitted rows are left out."""
    heldout_shares: tuple[Share, ...] = (0.04, 0.15)
    """Active shares that judge the fit."""
    clusters: Count = 2_000
    rounds: Count = 5
    threads: Count = 1
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"


class StepTime(Configuration):
    """Times of steps of one size, with all columns and with active ones."""

    vocab: Count
    width: Count
    rows: Count
    """Sentences x beam."""
    columns: Annotated[float, Field(gt=0.0)]
    """Active columns, mean over the alternating steps."""
    fitted: bool
    """True if its stages were fitted; else it judges the fit."""
    stages_s: Annotated[dict[StageName, Annotated[float, Field(ge=0.0)]], Field(min_length=5)]
    """Median seconds of single stages, by the names of `LayerCost`."""
    dense_s: Seconds
    """The fastest of torch's products with all columns, and the search."""
    columns_s: Seconds
    """Median of the whole step whose active columns go straight into the search (XP-02)."""
    ratio: Seconds
    """Speed-up of this step over dense: the median of the ratios of the rounds."""
    scattered_ratio: Seconds
    """The same of the published step: columns go to their places among V, then the search covers V (FVP-07)."""
    predicted_s: float = 0.0
    """Prediction of `columns_s` from V, width, active columns and rows alone."""

    @property
    def share(self) -> float:
        return self.columns / self.vocab

    @property
    def error(self) -> float:
        return self.predicted_s / self.columns_s - 1.0

    @property
    def overhead_share(self) -> float:
        """Time of assignment, union and scatter over the dense time (FVP-15)."""
        return sum(self.stages_s[name] for name in ("assign", "union", "scatter")) / self.dense_s


class ProjectionBench(Configuration):
    """Results of one run of `simnmt vocab bench` (FVP-09, FVP-15)."""

    document: Literal["projection bench"] = "projection bench"
    schema_version: Literal[2] = 2
    kind: Kind
    setting: Setting
    box: str
    """Processor or GPU, and threads."""
    date: str
    """ISO 8601, UTC."""
    others_cpus: float | None
    """CPUs that other processes used before or after the run, the greater of both."""
    steps: tuple[StepTime, ...]
    costs: tuple[LayerCost, ...]
    """One for each V and width, fitted to the stages of its steps."""

    @property
    def errors(self) -> list[float]:
        """Absolute relative errors of the predictions of steps whose rows or shares were not fitted (FVP-09)."""
        return [abs(step.error) for step in self.steps if not step.fitted]

    @property
    def bars(self) -> Iterator[tuple[float, float, StepTime]]:
        """Share and target of each of `BARS`, and its measured step; none on a GPU, with other threads, weights or sizes."""
        usual = (self.setting.device, self.setting.dtype, self.setting.threads) == ("cpu", "float32", 1)
        steps = [step for step in self.steps if usual and (step.vocab, step.width, step.rows) == (*BAR_SIZE, 1)]
        for share, asked in BARS:
            near = min(steps, key=lambda step: abs(step.share - share), default=None)
            if near is not None and abs(near.share - share) <= _NEAR * share:
                yield share, asked, near


def read_bench(path: str | os.PathLike[str]) -> ProjectionBench:
    """Read and check the file of `simnmt vocab bench --out`; raises `CalibrationError`, which names the place and the key."""
    return read_measurement(path, ProjectionBench, "bench", "correct the file, or write it again with simnmt vocab bench --out")
