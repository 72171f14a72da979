"""The cost blocks of a device profile, with kind and quality of their fits: execution, steps, encoder, energy, memory.

How `profile inspect` prints a field stands beside the field (`Shown`); `profile compare` lists numbers by their keys. A new
quantity of a block is a field here, and no other file of this room changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from typing_extensions import Self

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.profile.cost import CostTable, Plane, ResidualQuantiles, Seconds


class ProfileError(InputError):
    """A device profile that cannot be read, or that lacks what is needed."""


Kind = Literal["measured", "inferred", "synthetic"]
Duration = Annotated[float, Field(ge=1e-12, le=1e6)]
"""Measured seconds."""
Positive = Annotated[float, Field(ge=1e-12, le=1e18)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e18)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
RSquared = Annotated[float, Field(ge=-1e18, le=1.0)]
Count = Annotated[int, Field(ge=1, le=10**15)]
Length = Annotated[int, Field(ge=0, le=10**6)]
Bytes = Annotated[int, Field(ge=0, le=10**15)]


def _check_rising(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("values must rise")
    return values


Rising = AfterValidator(_check_rising)
"""For a tuple of numbers, each greater than the one before."""


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field is printed: the words around its value, and its unit as a factor."""

    text: str = "{}"
    """Template with a place for the value, such as `{:.4g} W idle`; of a block below, what its label adds."""
    factor: float = 1.0
    """From SI units to those of the text."""

    def format(self, value: Any) -> str:
        """Return the words for a value, or for each of several."""
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {part}" for key, part in value.items())
        if isinstance(value, tuple) and value and isinstance(value[0], float):
            value = (min(value), max(value)) if min(value) < max(value) else value[:1]
            return " to ".join(map(self.format, value))
        if isinstance(value, tuple):
            return "; ".join(map(self.format, value))
        return self.text.format(value * self.factor if isinstance(value, float) else value)


MS, PERCENT, MEGA = 1e3, 1e2, 1e-6
HELDOUT = Shown("{:.3g} % held out", PERCENT)
JUDGED = Shown("judged on {}")
NOTE = Shown()


def shown_of(kind: type[Configuration], name: str) -> Shown | None:
    """Return how a field is printed; None: it is not."""
    return next((mark for mark in kind.model_fields[name].metadata if isinstance(mark, Shown)), None)


class Block(Configuration):
    """A part of a profile, whose fields are printed as their `Shown` says."""

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        """Return (label, text) lines: the fields that are known, then those of the blocks below."""
        parts, below = list[str](), list[tuple[str, str]]()
        for name in type(self).model_fields:
            shown, value = shown_of(type(self), name), getattr(self, name)
            if shown is None or value is None or value is False or value in ((), ""):
                continue
            if isinstance(value, Block):
                below += value.lines(f"{label} {shown.text}")
            else:
                parts.append(shown.format(value))
        yield label, "; ".join(parts)
        yield from below


class CostBlock(Block):
    """A cost, with the way in which it is known."""

    kind: Annotated[Kind, Shown()]


class Quantiles(Block):
    """Quantiles of the repeats of one measurement."""

    repeats: Count = 1
    min_s: Duration
    p25_s: Duration | None = None
    median_s: Annotated[Duration, Shown("median {:.4g} ms", MS)]
    p75_s: Duration | None = None
    p95_s: Duration | None = None
    mean_s: Duration | None = None

    @classmethod
    def of(cls, repeats_s: Sequence[float] | Floats, **fields: object) -> Self:
        """Return the quantiles of these repeats; `fields`: further fields of a derived class."""
        quantiles_s = np.quantile(repeats_s, (0.0, 0.25, 0.5, 0.75, 0.95)).tolist()
        known = dict(zip(("min_s", "p25_s", "median_s", "p75_s", "p95_s"), quantiles_s, strict=True))
        return cls.model_validate({"repeats": len(repeats_s), **known, "mean_s": float(np.mean(repeats_s)), **fields})


class CellSample(Quantiles):
    """Repeats of one cell: sentences of one source and one target length, executed alone."""

    src_len: Length
    tgt_len: Length
    mean_s: Duration
    sd_s: Seconds | None = None


Mode = Literal["six_cells", "full_grid", "every_repeat", "sentences"]
"""How an execution plane is fitted."""


class ExecutionFit(Block):
    """Quality of the execution plane; an inferred plane adds other keys, such as its assumptions and the spread over seeds."""

    model_config = ConfigDict(extra="allow")

    mode: Annotated[Mode | None, Shown("mode {}")] = None
    inferences: Annotated[Count | None, Shown("{:,} inferences")] = None
    cells: Count | None = None
    quantile: Annotated[Share | None, Shown("shape of quantile {:g}")] = None
    """Quantile of a cell's repeats that the plane's shape was fitted to: 0 is the least, 0.5 the median."""
    level: Annotated[Positive | None, Shown("level {:.4g}")] = None
    """Mean of the undisturbed times over the plane of that quantile; the plane in the profile is already multiplied by it. In
    mode sentences (a running service) the median of all times."""
    level_error: NotNegative | None = None
    """Relative standard error of the level, from the differences between the stretches of measuring; null: not known."""
    r2: Annotated[RSquared | None, Shown("R2 {:.5f}")] = None
    r2_of_means_per_tgt_len: Annotated[RSquared | None, Shown("of the means per target length {:.5f}")] = None
    mse_ms2: Annotated[NotNegative | None, Shown("MSE {:.4g} ms^2")] = None
    heldout_error: Annotated[NotNegative | None, HELDOUT] = None
    """Error of the shape on the least or median times of left-out cells. In mode every_repeat: of the plane itself
    on single inferences."""
    heldout_how: Annotated[str | None, JUDGED] = None
    heldout_error_of_means: Annotated[NotNegative | None, Shown("{:.3g} % on the mean times of the same cells", PERCENT)] = None
    """Error of the profile's plane of mean times on the mean of each left-out cell's undisturbed repeats."""
    disturbed_share: Annotated[Share | None, Shown("{:.3g} % disturbed", PERCENT)] = None
    """Share of inferences left out of level, residual, R2 and MSE."""
    condition_number: Positive | None = None
    collinear: Annotated[bool | None, Shown("lengths are collinear")] = None


MOST_RELATIVE_SD = 10.0


def _takes_time(plane: Plane) -> Plane:
    if plane.s_per_src_token + plane.s_per_tgt_token + max(plane.s_fixed, 0.0) < 1e-12:
        raise ValueError("no request would take as much as 1e-12")
    return plane


class OccupancyPoint(Block):
    """How much longer executions take that begin beside other requests."""

    occupancy: Annotated[float, Field(ge=1.0, le=10_000.0)]
    """Requests in the box, waiting and executing, when an execution begins, itself included; the mean of a group of such."""
    factor: Annotated[float, Field(ge=1e-3, le=1e3)]
    """On the plane's time."""
    executions: Count | None = None
    """Executions from which it follows."""


def _check_rising_points(points: tuple[OccupancyPoint, ...]) -> tuple[OccupancyPoint, ...]:
    _check_rising(tuple(point.occupancy for point in points))
    return points


def factors_by_occupancy(points: Sequence[OccupancyPoint]) -> tuple[float, ...]:
    """Return the factors by whole occupancy from 1 on, the last one for all above; empty without points."""
    if not points:
        return ()
    known = [(point.occupancy, point.factor) for point in points]
    occupancy, factor = zip(*(known if known[0][0] == 1.0 else [(1.0, 1.0), *known]), strict=True)
    factors: list[float] = np.interp(np.arange(1, math.ceil(occupancy[-1]) + 1), occupancy, factor).tolist()
    return tuple(factors)


class Execution(CostBlock):
    """Time of one request alone on the device, and of requests that meet there."""

    plane: Annotated[Plane, AfterValidator(_takes_time), Shown()]
    residual_relative_sd: Annotated[
        NotNegative, Field(le=MOST_RELATIVE_SD), Shown("single executions spread by {:.3g} %", PERCENT)
    ]
    """Standard deviation of the mean-one lognormal factor on the plane's time."""
    residual_quantiles: ResidualQuantiles | None = None
    """Measured distribution of the factor, of a calibration with gaps; null: lognormal."""
    workers: Annotated[Annotated[int, Field(ge=1, le=10_000)] | None, Shown("{} at once")] = None
    """Requests that the service executes at once; null: one, or as a scenario states. A device that batches or streams its
    model executes by other blocks, and ignores this and the following."""
    by_occupancy: Annotated[
        tuple[OccupancyPoint, ...],
        AfterValidator(_check_rising_points),
        Shown("{0.factor:.3g} times as long with {0.occupancy:.3g} requests there"),
    ] = ()
    """Time under load: linear between the points, constant outside, and 1 for a request alone unless a point says otherwise."""
    fit: Annotated[ExecutionFit, Shown("fit")] = Field(default_factory=ExecutionFit)
    samples: tuple[CellSample, ...] = ()

    @property
    def occupancy_factors(self) -> tuple[float, ...]:
        """Factors on the plane's time by whole occupancy from 1 on, the last one for all above; empty if none was measured."""
        return factors_by_occupancy(self.by_occupancy)


class GridBlock(CostBlock):
    """A cost of steps or encoders: seconds by batch size and one length, bilinear between the cells."""

    batch: Annotated[tuple[Count, ...], Field(min_length=1), Rising]
    """Sentences; one row of `seconds` each."""
    seconds: tuple[tuple[Duration, ...], ...]
    judged_cells: tuple[tuple[Count, Length, Duration], ...] = ()
    """Cells (batch, length, seconds) of batch sizes that were measured only to judge, and never fitted."""
    heldout_error: Annotated[NotNegative | None, HELDOUT] = None
    heldout_how: Annotated[str | None, JUDGED] = None
    beam: Annotated[Count, Shown("beam {}")] = 1
    """Hypotheses of each sentence."""
    left_out: Annotated[tuple[str, ...], Shown("left out: {}")] = ()
    notes: Annotated[tuple[str, ...], NOTE] = ()
    """How cells were obtained that were not timed directly."""

    length_name: ClassVar[str]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Measured lengths, rising: positions of steps, source lengths of encoders."""
        return tuple(getattr(self, self.length_name))

    @property
    def cost(self) -> CostTable:
        """The cost model that the block describes."""
        return CostTable.of(self.batch, self.lengths, self.seconds)

    def times(self, factor: float, of_one: float | None = None) -> Self:
        """Return the block with its seconds multiplied by `factor`, those of a batch of one by `of_one` if it is given."""
        factors = [of_one if batch == 1 and of_one is not None else factor for batch in self.batch]
        rows = zip(factors, self.seconds, strict=True)
        return self.model_copy(
            update={
                "seconds": tuple(tuple(by * second for second in row) for by, row in rows),
                "judged_cells": tuple((batch, length, factor * second) for batch, length, second in self.judged_cells),
            }
        )

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        """Return the fields, and how much longer the largest batch takes."""
        (_, text), *below = super().lines(label)
        sizes = f"batch {self.batch[0]} to {self.batch[-1]}, {self.length_name} {self.lengths[0]} to {self.lengths[-1]}"
        if len(self.batch) > 1:
            middle = len(self.lengths) // 2
            growth = self.seconds[-1][middle] / self.seconds[0][middle]
            sizes += f", {growth:.3g} times as long with the largest batch as with the least"
        yield label, f"{text}; {sizes}"
        yield from below

    @model_validator(mode="after")
    def _consistent(self) -> GridBlock:
        if [len(row) for row in self.seconds] != [len(self.lengths)] * len(self.batch):
            raise ValueError(f"seconds: {len(self.batch)} rows (batch) of {len(self.lengths)} ({self.length_name}) are needed")
        if {batch for batch, _, _ in self.judged_cells} & set(self.batch):
            raise ValueError("judged_cells: batch sizes that were fitted too")
        return self


class StepBlock(GridBlock):
    """Time of one decode step of `batch` sentences when `position` tokens are out (FNI-18)."""

    length_name: ClassVar[str] = "position"
    position: Annotated[tuple[Length, ...], Field(min_length=1), Rising]
    src_len: Annotated[Length | None, Shown("under sources of {} tokens")] = None
    s_per_row_src_token: Annotated[Seconds | None, Shown("{:.4g} ms each more of the longest, by sentence", MS)] = None
    """Seconds that one more token of the longest source of the batch adds to a step for each row."""
    run_over_predicted: Annotated[Positive | None, Shown("runs took {:.4g} times the predicted time")] = None
    """Mean seconds of the timed runs over those of the block's usual (median) steps: above 1, some took much longer."""

    def times(self, factor: float, of_one: float | None = None) -> StepBlock:
        """Return the block with its seconds, and those of a longer source, multiplied by the factors."""
        slope_s = self.s_per_row_src_token
        slower = super().times(factor, of_one)
        return slower.model_copy(update={"s_per_row_src_token": None if slope_s is None else factor * slope_s})


class EncoderBlock(GridBlock):
    """Time to encode `batch` sentences of `src_len` tokens each."""

    length_name: ClassVar[str] = "src_len"
    src_len: Annotated[tuple[Length, ...], Field(min_length=1), Rising]
    padding_share: Annotated[Share | None, Shown("{:.3g} % of the cost of padding is paid", PERCENT)] = None
    """Share of the padding's cost that a recurrent encoder pays although it is given packed sequences."""


class Overhead(CostBlock):
    """One cost beside those of the model."""

    value: Annotated[Seconds | None, Shown("{:.4g} ms", MS)] = None
    """Seconds; null if it could not be measured, and a batching server counts it as 0 s."""
    note: Annotated[str, NOTE] = ""
    heldout_error: Annotated[NotNegative | None, HELDOUT] = None

    def lines(self, label: str) -> Iterator[tuple[str, str]]:
        """Return one line, which says so if the cost was not measured."""
        unknown = f"not measured, counts as 0 s; {self.note}".removesuffix("; ")
        yield from [(label, unknown)] if self.value is None else super().lines(label)


GAP_NAMES = ("step_gap_s", "step_gap_s_per_sentence")
"""The overheads that are the gap between two steps: its fixed part, and for each sentence."""
OF_BATCHES = (*GAP_NAMES, "refill_s_fixed", "refill_s_per_sentence", "leave_s")
"""Overheads of decoding in batches, which are measured with the decode steps."""
Overheads = Mapping[str, Overhead]
"""Costs beside those of the model by name (CNMT-12): `decision_s`, those of batches, and others, which no simulation uses."""


def overheads_times(overheads: Overheads, factor: float, names: Sequence[str] = OF_BATCHES) -> dict[str, Overhead]:
    """Return the overheads, those of these names multiplied by one factor."""
    known_s = {name: part.value for name, part in overheads.items() if name in names and part.value is not None}
    slower = {name: overheads[name].model_copy(update={"value": factor * second}) for name, second in known_s.items()}
    return {**overheads, **slower}


class BeamOverrun(CostBlock):
    """Steps of a beam search beyond its best output, counted with a trained model; timings have forced lengths."""

    steps_per_token: Annotated[float, Field(ge=1.0, le=1000.0), Shown("{:.4g} steps a token, charged in addition")]
    """Decode steps over the tokens of the output, its end counted."""
    sentences: Annotated[Count | None, Shown("{:,} sentences")] = None
    note: Annotated[str, NOTE] = ""


class EnergyBlock(CostBlock):
    """Electric power of the box."""

    source: Annotated[str, Shown("from {}")]
    """Counter that was read: `nvml`, `rapl`."""
    idle_w: Annotated[Positive, Shown("{:.4g} W idle")]
    active_w: Annotated[Positive, Shown("{:.4g} W active")]
    """While the model executes, the power at rest included; mean over executions of several lengths."""


class MemoryBlock(CostBlock):
    """Memory of the model, and the time of loading it from files in the page cache; random weights are drawn without files."""

    resident_bytes: Annotated[Bytes, Shown("{:,} bytes resident")]
    """Memory that a process keeps for the model after a first translation, without that of the engine: median of the loads."""
    load_s: Annotated[Duration, Shown("loaded in {:.3g} s")]
    """Seconds until the first translation, in a process that has loaded the engine's libraries: median of the loads."""
