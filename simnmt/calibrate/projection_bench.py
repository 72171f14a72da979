"""The document that `simnmt vocab bench --out` writes: output layer steps, their costs, and the speed-ups asked of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simnmt.base.configuration import NO_TRUTH_VALUE, Configuration
from simnmt.calibrate.settings import read_measurement
from simnmt.profile.blocks import Kind
from simnmt.profile.projection_cost import ProductMethod, ProjectionCost

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0)]

FIT_WITHIN = 0.10
"""Mean relative error on held-out steps that the fitted cost is asked to stay below (FVP-09)."""
BARS: tuple[tuple[float, float], ...] = ((0.06, 10.0), (0.12, 5.0))
"""Active share of V, and times as fast as dense that is asked there on one CPU thread."""
BAR_SIZE = (250_000, 1_024)
"""V and width that `BARS` hold for, at one row."""
_NEAR = 0.1
"""Relative distance up to which a drawn share stands for one that is asked."""


class Setting(Configuration):
    """What is measured."""

    vocabs: tuple[int, ...] = (32_000, 128_000, 250_000)
    widths: tuple[int, ...] = (512, 1024)
    rows: tuple[int, ...] = (1, 8, 40)
    """Sentences x beam that costs are fitted at."""
    shares: tuple[float, ...] = (0.02, 0.06, 0.12, 0.20)
    """Of V that are active in a step, which costs are fitted at."""
    heldout_rows: tuple[int, ...] = (4, 20)
    """Between those fitted; others are left out."""
    heldout_shares: tuple[float, ...] = (0.04, 0.15)
    """Steps of these rows or of these shares judge the fit."""
    clusters: int = 2_000
    rounds: int = 5
    threads: int = 1
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0


class StepTime(Configuration):
    """One setting of a step, all columns and active ones in turn."""

    vocab: Count
    width: Count
    rows: Count
    """Sentences x beam."""
    columns: Annotated[float, Field(gt=0.0)]
    """Active, on average over the steps that took turns."""
    indices: float
    """In the rows' sets together."""
    fitted: bool
    """Whether the fit was made of its stages; else it judges the fit."""
    method: ProductMethod
    """How whole steps were multiplied: the faster one when it was tried."""
    stages_s: dict[str, float]
    """Each stage by itself, of the names in `ProjectionCost`; `search_all`: over all columns. Medians, as what follows."""
    dense_s: Seconds
    dense_method: str
    """The fastest of torch's."""
    columns_s: Seconds
    """The whole step, active columns straight into the search (XP-02)."""
    kept_s: Seconds
    """The same from a copy that was kept of them."""
    scattered_s: Seconds
    """As published: to their places among V, then the search over V (FVP-07)."""
    ratios: dict[Literal["columns", "kept", "scattered"], float]
    """Times as fast as dense: medians of the rounds' ratios."""
    predicted_s: Seconds | None = None
    """Of `columns_s`, from the fitted stages for V, width, active columns and rows: the cost chooses method and overlap."""
    predicted_knowing_s: Seconds | None = None
    """The same, given the method that was taken and the number of indices in the rows' sets."""

    @property
    def share(self) -> float:
        """Of V that are active."""
        return self.columns / self.vocab

    @property
    def error(self) -> float | None:
        """Of what was predicted, relative."""
        return None if self.predicted_s is None else self.predicted_s / self.columns_s - 1.0

    @property
    def error_knowing(self) -> float | None:
        """The same of `predicted_knowing_s`."""
        return None if self.predicted_knowing_s is None else self.predicted_knowing_s / self.columns_s - 1.0

    @property
    def overhead_share(self) -> float:
        """Of assignment, union and scatter in the dense time (FVP-15)."""
        return sum(self.stages_s[name] for name in ("assign", "union", "scatter")) / self.dense_s

    def predicted(self, cost: ProjectionCost, clusters: int) -> StepTime:
        """Return a copy with the times that `cost` predicts for it."""
        columns, rows = round(self.columns), self.rows
        knowing_s, estimated_s = (
            cost.stages_s(
                vocab=self.vocab,
                width=self.width,
                clusters=clusters,
                columns=columns,
                rows=rows,
                method=method,
                indices=indices,
            ).total_s
            for method, indices in ((self.method, round(self.indices)), (None, None))
        )
        return self.model_copy(update={"predicted_s": estimated_s, "predicted_knowing_s": knowing_s})


class BreakEven(Configuration):
    """Share of V above which dense wins; None: it never does."""

    vocab: Count
    width: Count
    rows: Count
    columns: float | None
    """Straight into the search, against torch's dense product."""
    scattered: float | None
    """As published, against the same."""
    fastest: float | None
    """As `columns`, against all columns by the faster one of torch and of the product for some columns."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One ratio that is asked, and what was measured."""

    share: float
    """Of V active, as asked."""
    asked: float
    """Times as fast as dense at least."""
    step: StepTime
    """The step that stands for it, whose own share is near."""

    @property
    def measured(self) -> float:
        """Times as fast as dense, active columns straight into the search and all overheads included."""
        return self.step.ratios["columns"]

    @property
    def reached(self) -> bool:
        """Whether it is as asked."""
        return self.measured >= self.asked


class ProjectionBench(Configuration):
    """All that one run of `simnmt vocab bench` measured (FVP-09, FVP-15)."""

    document: Literal["projection bench"] = "projection bench"
    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE] = 1
    kind: Kind
    setting: Setting
    box: str
    """Processor or GPU, and threads."""
    date: str
    """ISO 8601, UTC."""
    seconds: float
    """That all of it took."""
    others_cpus: float | None
    """That others used before or after, the most of both."""
    steps: tuple[StepTime, ...]
    break_even: tuple[BreakEven, ...]
    costs: tuple[ProjectionCost, ...]
    """One for each V and width, fitted to its own steps."""

    @model_validator(mode="after")
    def _each_cost_once(self) -> ProjectionBench:
        sizes = [(*cost.vocab, *cost.width) for cost in self.costs]
        if any(len(size) != 2 for size in sizes) or len(set(sizes)) < len(sizes):
            raise ValueError("costs: one for each V and width is needed")
        return self

    def cost(self, vocab: int, width: int) -> ProjectionCost:
        """Fitted to the steps of this size; raises `KeyError` for one that was not measured."""
        return {(*cost.vocab, *cost.width): cost for cost in self.costs}[vocab, width]

    @property
    def heldout(self) -> tuple[StepTime, ...]:
        """Steps that judge the fit: of rows or shares that were not fitted."""
        return tuple(step for step in self.steps if not step.fitted)

    @property
    def heldout_error(self) -> float | None:
        """Mean absolute relative error of a held-out step's prediction from its sizes alone (FVP-09); None without one."""
        return _mean([step.error for step in self.heldout])

    @property
    def heldout_error_knowing(self) -> float | None:
        """The same, given the method that was taken and the indices of the rows' sets."""
        return _mean([step.error_knowing for step in self.heldout])

    @property
    def most_heldout_error(self) -> float | None:
        """The largest of the errors whose mean is `heldout_error`."""
        return max((abs(step.error) for step in self.heldout if step.error is not None), default=None)

    @property
    def bars(self) -> tuple[Bar, ...]:
        """Return those of `BARS` that this run measured: none on a GPU, with more threads, other weights or other sizes."""
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
    """Read and check the file of `simnmt vocab bench --out`; raises `CalibrationError` naming the place and the key."""
    return read_measurement(path, ProjectionBench, "bench", "mend the file, or write it again with simnmt vocab bench --out")


def _mean(errors: Sequence[float | None]) -> float | None:
    known = [abs(error) for error in errors if error is not None]
    return sum(known) / len(known) if known else None
