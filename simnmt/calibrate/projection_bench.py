"""The document of `simnmt vocab bench --out`: steps of the output layer, their fitted costs, and target speed-ups."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from simnmt.base.configuration import Configuration
from simnmt.calibrate.settings import read_measurement
from simnmt.kernels.projection_cost import PRODUCT_METHODS, ProductCosts, ProductMethod, StageCost
from simnmt.profile.blocks import Kind

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]

FIT_WITHIN = 0.10
"""Target of the fitted cost's mean relative error on held-out steps (FVP-09)."""
BARS: tuple[tuple[float, float], ...] = ((0.06, 10.0), (0.12, 5.0))
"""Active share of V, and target of the speed-up over dense at this share on one CPU thread."""
BAR_SIZE = (250_000, 1_024)
"""V and width of `BARS`, at one row."""
_NEAR = 0.1
"""Relative distance up to which a drawn share counts as the share of a bar."""

OVERLAP = 2
"""Default ratio of all indices in the sets of several rows to those in their union: sets of one text overlap."""


@dataclass(frozen=True, slots=True)
class ProjectionStages:
    """Seconds of each stage of one step with active columns."""

    assign_s: float
    """The nearest centroid of each row (FVP-05)."""
    union_s: float
    """The union of the rows' sets as ascending indices (FVP-06)."""
    product_s: float
    scatter_s: float
    """Logits to their places among V, all others -inf (FVP-07); 0 if the search takes the active columns alone (XP-02)."""
    search_s: float
    """Bias, softmax and search: over V after a scatter, else over the active columns."""

    @property
    def overhead_s(self) -> float:
        """Seconds of all stages but product and search."""
        return self.assign_s + self.union_s + self.scatter_s

    @property
    def total_s(self) -> float:
        """Seconds of all stages."""
        return self.overhead_s + self.product_s + self.search_s


class ProjectionCost(ProductCosts):
    """Fitted costs of the output layer's stages on one box with one number of threads (FVP-09)."""

    kind: Kind
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int = 1
    vocab: tuple[int, ...]
    """Measured vocabulary sizes V, ascending."""
    width: tuple[int, ...]
    """Measured widths d, ascending."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """Box, versions, date and method of the measurement."""
    assign: StageCost
    """Numbers: clusters x width; columns: clusters."""
    union: StageCost
    """Numbers: V; columns: indices in the rows' sets."""
    scatter: StageCost
    """Numbers: V; columns: active columns; each of one row."""
    search: StageCost
    """Bias, softmax and search in one pass. Numbers: columns searched."""

    def stages_s(
        self,
        *,
        vocab: int,
        width: int,
        clusters: int,
        columns: int,
        rows: int,
        method: ProductMethod | None = None,
        indices: int | None = None,
        scatter: bool = False,
    ) -> ProjectionStages:
        """Return the seconds of each stage of one step.

        Args:
            rows: sentences x beam.
            clusters: 0 for candidate lists, which use no centroids.
            method: None for the faster one.
            indices: size of all rows' sets together; None: one per active column at one row, `OVERLAP` at more.
            scatter: True to write the logits to their places among V and search there, as published; else the search takes
                the active columns alone (XP-02).
        """
        indices = (columns if rows == 1 else OVERLAP * columns) if indices is None else indices
        searched = vocab if scatter else columns
        return ProjectionStages(
            assign_s=self.assign.seconds(rows, clusters * width, clusters) if clusters else 0.0,
            union_s=self.union.seconds(rows, vocab, indices),
            product_s=self.product_s(columns, rows, width, method),
            scatter_s=self.scatter.seconds(rows, vocab, columns) if scatter else 0.0,
            search_s=self.search.seconds(rows, searched, searched),
        )

    def dense_s(self, *, vocab: int, width: int, rows: int) -> float:
        """Return the seconds of one step with all columns: product, bias, softmax and search."""
        return self.dense.seconds(rows, vocab * width, vocab) + self.search.seconds(rows, vocab, vocab)

    def break_even_share(
        self, vocab: int, width: int, clusters: int, rows: int, *, scatter: bool = False, fastest: bool = False
    ) -> float | None:
        """Return the share of V above which dense is faster: 0 if it always is, None if it is not even at all of V.

        `fastest`: dense may also be simnmt's product of all columns if that is faster than the library's, as with few rows.
        """
        dense_s = self.dense_s(vocab=vocab, width=width, rows=rows)
        if fastest:
            search_s = self.search.seconds(rows, vocab, vocab)
            dense_s = min(dense_s, self.product_s(vocab, rows, width) + search_s)
        shares = []
        for method in PRODUCT_METHODS:
            # Every stage is linear in the active columns, so two points determine the intersection with dense.
            none_s, all_s = (
                self.stages_s(
                    vocab=vocab, width=width, clusters=clusters, columns=columns, rows=rows, method=method, scatter=scatter
                ).total_s
                for columns in (0, vocab)
            )
            if all_s <= dense_s:
                return None
            shares.append(max(0.0, (dense_s - none_s) / (all_s - none_s)) if all_s > none_s else 0.0)
        return max(shares)


class Setting(Configuration):
    """Sizes and conditions of the measurement."""

    vocabs: tuple[int, ...] = (32_000, 128_000, 250_000)
    widths: tuple[int, ...] = (512, 1024)
    rows: tuple[int, ...] = (1, 8, 40)
    """Sentences x beam at which costs are fitted."""
    shares: tuple[float, ...] = (0.02, 0.06, 0.12, 0.20)
    """Active shares of V at which costs are fitted."""
    heldout_rows: tuple[int, ...] = (4, 20)
    """Rows that judge the fit; those not between fitted rows are left out."""
    heldout_shares: tuple[float, ...] = (0.04, 0.15)
    """Active shares that judge the fit."""
    clusters: int = 2_000
    rounds: int = 5
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0


class StepTime(Configuration):
    """Times of steps of one size, with all columns and with active ones."""

    vocab: Count
    width: Count
    rows: Count
    """Sentences x beam."""
    columns: Annotated[float, Field(gt=0.0)]
    """Active columns, mean over the alternating steps."""
    indices: float
    """Number of indices in the rows' sets together."""
    fitted: bool
    """True if its stages were fitted; else it judges the fit."""
    method: ProductMethod
    """Product method of whole steps: the faster one when both were tried."""
    stages_s: dict[str, float]
    """Median seconds of single stages, by the names of `ProjectionCost`; `search_all`: over all columns."""
    dense_s: Seconds
    dense_method: str
    """The fastest of torch's methods."""
    columns_s: Seconds
    """Median of the whole step whose active columns go straight into the search (XP-02)."""
    scattered_s: Seconds
    """Median of the published step: columns go to their places among V, then the search covers V (FVP-07)."""
    ratios: dict[Literal["columns", "scattered"], float]
    """Speed-ups over dense: medians of the ratios of the rounds."""
    predicted_s: Seconds | None = None
    """Prediction of `columns_s` from V, width, active columns and rows; the cost chooses method and overlap."""
    predicted_knowing_s: Seconds | None = None
    """Prediction of `columns_s` with the method that was used and the number of indices in the rows' sets."""

    @property
    def share(self) -> float:
        """Active share of V."""
        return self.columns / self.vocab

    @property
    def error(self) -> float | None:
        """Relative error of `predicted_s`."""
        return None if self.predicted_s is None else self.predicted_s / self.columns_s - 1.0

    @property
    def error_knowing(self) -> float | None:
        """Relative error of `predicted_knowing_s`."""
        return None if self.predicted_knowing_s is None else self.predicted_knowing_s / self.columns_s - 1.0

    @property
    def overhead_share(self) -> float:
        """Time of assignment, union and scatter over the dense time (FVP-15)."""
        return sum(self.stages_s[name] for name in ("assign", "union", "scatter")) / self.dense_s

    def predicted(self, cost: ProjectionCost, clusters: int) -> StepTime:
        """Return a copy with the times that `cost` predicts for it."""
        stages_s = partial(
            cost.stages_s, vocab=self.vocab, width=self.width, clusters=clusters, columns=round(self.columns), rows=self.rows
        )
        knowing_s = stages_s(method=self.method, indices=round(self.indices)).total_s
        return self.model_copy(update={"predicted_s": stages_s().total_s, "predicted_knowing_s": knowing_s})


class BreakEven(Configuration):
    """Active share of V above which dense is faster; None if it never is."""

    vocab: Count
    width: Count
    rows: Count
    columns: float | None
    """Columns go straight into the search, against torch's dense product."""
    scattered: float | None
    """The published step, against torch's dense product."""
    fastest: float | None
    """As `columns`, against all columns by the faster of torch and the product for some columns."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One target speed-up, and the measured one."""

    share: float
    """Active share of V of the target."""
    asked: float
    """Least speed-up over dense."""
    step: StepTime
    """The measured step with the nearest share."""

    @property
    def measured(self) -> float:
        """Speed-up over dense with active columns straight into the search, including all overheads."""
        return self.step.ratios["columns"]

    @property
    def reached(self) -> bool:
        """True if the measured speed-up reaches the target."""
        return self.measured >= self.asked


class ProjectionBench(Configuration):
    """Results of one run of `simnmt vocab bench` (FVP-09, FVP-15)."""

    document: Literal["projection bench"] = "projection bench"
    schema_version: Literal[1] = 1
    kind: Kind
    setting: Setting
    box: str
    """Processor or GPU, and threads."""
    date: str
    """ISO 8601, UTC."""
    seconds: float
    """Duration of the run."""
    others_cpus: float | None
    """CPUs that other processes used before or after the run, the greater of both."""
    steps: tuple[StepTime, ...]
    break_even: tuple[BreakEven, ...]
    costs: tuple[ProjectionCost, ...]
    """One for each V and width, fitted to its steps."""

    @property
    def heldout(self) -> tuple[StepTime, ...]:
        """Steps that judge the fit, of rows or shares that were not fitted."""
        return tuple(step for step in self.steps if not step.fitted)

    @property
    def heldout_error(self) -> float | None:
        """Mean absolute relative error of a held-out step's prediction from its sizes alone (FVP-09); None without one."""
        return _mean([step.error for step in self.heldout])

    @property
    def heldout_error_knowing(self) -> float | None:
        """Mean absolute relative error with the method that was used and the indices of the rows' sets; None without a step."""
        return _mean([step.error_knowing for step in self.heldout])

    @property
    def most_heldout_error(self) -> float | None:
        """The largest of the errors whose mean is `heldout_error`."""
        return max((abs(step.error) for step in self.heldout if step.error is not None), default=None)

    @property
    def bars(self) -> tuple[Bar, ...]:
        """The measured bars of `BARS`; none on a GPU, with more threads, other weights or other sizes."""
        if (self.setting.device, self.setting.dtype, self.setting.threads) != ("cpu", "float32", 1):
            return ()
        steps = [step for step in self.steps if (step.vocab, step.width) == BAR_SIZE and step.rows == 1]
        bars = []
        for share, asked in BARS:
            near = min(steps, key=lambda step: abs(step.share - share), default=None)
            if near is not None and abs(near.share - share) <= _NEAR * share:
                bars.append(Bar(share, asked, near))
        return tuple(bars)


def read_bench(path: str | os.PathLike[str]) -> ProjectionBench:
    """Read and check the file of `simnmt vocab bench --out`; raises `CalibrationError`, which names the place and the key."""
    return read_measurement(path, ProjectionBench, "bench", "correct the file, or write it again with simnmt vocab bench --out")


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [abs(error) for error in errors if error is not None]
    return sum(known) / len(known) if known else None
