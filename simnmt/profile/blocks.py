"""Blocks that a device profile may hold beside its execution plane, their value types, and the error of a wrong profile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import Self

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.profile.batch_cost import BatchCost, LinearSurface, Surface, TableSurface
from simnmt.profile.decoder_settings import DecoderOptions


class ProfileError(InputError):
    """A device profile that cannot be read, or that lacks what is needed."""


Kind = Literal["measured", "inferred", "synthetic"]
LEAST_COST_S = 1e-30
"""Least cost that is not zero: far below every rounding error of a fit; ratios to smaller costs overflow."""
MOST_WHOLE = 10**15
"""Bound of a count, and of the magnitude of any number of an architecture."""


def _zero_or_a_cost(seconds: float) -> float:
    if 0.0 < seconds < LEAST_COST_S:
        raise ValueError(f"{seconds:g} s is no cost: give 0, or at least {LEAST_COST_S:g}")
    return seconds


Seconds = Annotated[float, Field(ge=0.0, le=10_000.0), AfterValidator(_zero_or_a_cost)]
"""Seconds of a token or of a request: at most three hours."""
Duration = Annotated[float, Field(ge=1e-12, le=1e6)]
"""Measured seconds."""
Positive = Annotated[float, Field(ge=1e-12, le=1e18)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e18)]
RelativeError = Annotated[float, Field(ge=0.0, le=1e6)]
RSquared = Annotated[float, Field(ge=-1e18, le=1.0)]
Count = Annotated[int, Field(ge=1, le=MOST_WHOLE)]
Length = Annotated[int, Field(ge=0, le=10**6)]


def _check_rising(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("values must rise")
    return values


Rising = AfterValidator(_check_rising)
"""For a tuple of numbers, each greater than the one before."""


def _holds_too_large(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_holds_too_large, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int | float) and abs(value) > MOST_WHOLE


class EngineBlock(Configuration):
    """What executed the model."""

    backend: str
    """Such as `torch` or `ctranslate2`."""
    compute_type: str
    """Such as `float32` or `int8`."""
    device: str
    """`cpu` or `cuda:0`."""
    device_name: str = ""
    """The processor's own name."""
    threads: Count | None = None
    beam: Count = 1
    fused: bool = False
    """True if bias, softmax and search were fused."""
    decoder: DecoderOptions | None = None
    """Options of the sharp decoder; null: another backend."""
    weights: Literal["random", "checkpoint"] = "random"
    """Times depend on the architecture alone, translations on the weights too."""
    clipped_weights: Annotated[int, Field(ge=0, le=MOST_WHOLE)] | None = None
    """Weights of the sharp decoder's model that 16-bit products would clip, whatever type its products have; null: another
    backend."""
    product_weights: Count | None = None
    """All weights of these products."""
    architecture: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

    @property
    def hash(self) -> str:
        """Hash of all that decides the times of the same work on a box: architecture, backend, number type, threads, decoder.

        A gateway compares its profiles' with those of the live engines. Weights do not count: times do not depend on them.
        """
        names = {"architecture", "backend", "compute_type", "device", "threads", "beam", "fused", "decoder"}
        content = json.dumps(self.model_dump(mode="json", include=names), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def _sizes_are_possible(self) -> EngineBlock:
        for key, value in self.architecture.items():
            if _holds_too_large(value):
                raise ValueError(f"architecture.{key}: a number beyond {MOST_WHOLE}")
        return self


class Quantiles(Configuration):
    """Quantiles of the repeats of one measurement."""

    repeats: Count = 1
    min_s: Duration
    p25_s: Duration | None = None
    median_s: Duration
    p75_s: Duration | None = None
    p95_s: Duration | None = None
    mean_s: Duration | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Quantiles:
        quantiles_s = (self.min_s, self.p25_s, self.median_s, self.p75_s, self.p95_s)
        known = [quantile_s for quantile_s in quantiles_s if quantile_s is not None]
        if known != sorted(known):
            raise ValueError("quantiles must rise")
        return self

    @classmethod
    def of(cls, repeats_s: Sequence[float] | NDArray[np.float64], **fields: object) -> Self:
        """Return the quantiles of these repeats; `fields`: further fields of a derived class."""
        quantiles_s = np.quantile(repeats_s, (0.0, 0.25, 0.5, 0.75, 0.95)).tolist()
        known = dict(zip(("min_s", "p25_s", "median_s", "p75_s", "p95_s"), quantiles_s, strict=True))
        return cls.model_validate({"repeats": len(repeats_s), **known, "mean_s": float(np.mean(repeats_s)), **fields})


class CellSample(Quantiles):
    """Repeats of one cell: sentences of one source and one target length, executed as one batch."""

    src_len: Length
    src_len_mean: Annotated[float, Field(ge=0.0, le=1e6)] | None = None
    """Mean source length of inferences of several source lengths; `src_len` is then the nearest whole number."""
    tgt_len: Length
    batch: Count = 1
    beam: Count = 1
    mean_s: Duration
    sd_s: Seconds | None = None
    """Standard deviation over the repeats."""


class ExecutionFit(Configuration):
    """Quality of the execution plane; an inferred plane adds other keys, such as its assumptions and the spread over seeds."""

    model_config = ConfigDict(extra="allow")

    mode: Literal["six_cells", "full_grid", "every_repeat", "paper", "sentences"] | None = None
    """every_repeat: the means of all repeats, disturbed ones included, of a calibration with gaps."""
    inferences: Count | None = None
    cells: Count | None = None
    quantile: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Quantile of a cell's repeats that the plane's shape was fitted to: 0 is the least, 0.5 the median."""
    level: Positive | None = None
    """Mean of the undisturbed times over the plane of that quantile; the plane in the profile is already multiplied by it. In
    mode sentences (a running service) the median of all times, and 1 if the box of the load generator was busy."""
    level_error: NotNegative | None = None
    """Relative standard error of the level, from the differences between the stretches of measuring; null: not known."""
    r2: RSquared | None = None
    r2_of_means_per_tgt_len: RSquared | None = None
    mse_ms2: NotNegative | None = None
    heldout_error: RelativeError | None = None
    """Mean absolute relative error of the plane of least or median times (`quantile`), before it is multiplied by the level,
    on the same times of left-out cells. In mode paper: error of the plane itself on single inferences."""
    heldout_how: str | None = None
    """The data on which `heldout_error` was judged."""
    heldout_error_six_cells: RelativeError | None = None
    """In mode full_grid: error of a quick calibration, judged by all cells but its six."""
    heldout_error_of_means: RelativeError | None = None
    """Error of the profile's plane of mean times: shape and level fitted without the left-out cells, judged on the mean of
    each left-out cell's undisturbed repeats."""
    disturbed_share: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of inferences left out of level, residual, R2 and MSE because the box was visibly disturbed."""
    residual_relative_sd_all: NotNegative | None = None
    """Relative standard deviation of the residual if those inferences had been kept."""
    condition_number: Positive | None = None
    collinear: bool | None = None

    @model_serializer(mode="wrap")
    def _without_unset(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialise(self)
        return {key: value for key, value in content.items() if key in self.model_fields_set}


class StepCoefficients(Configuration):
    """Seconds: s_fixed + s_per_row batch + s_per_position position + s_per_row_position batch position."""

    s_fixed: Seconds
    s_per_row: Seconds
    s_per_position: Seconds
    s_per_row_position: Seconds


class EncoderCoefficients(Configuration):
    """Seconds: s_fixed + s_per_row batch + s_per_src_token src_len + s_per_row_src_token batch src_len."""

    s_fixed: Seconds
    s_per_row: Seconds
    s_per_src_token: Seconds
    s_per_row_src_token: Seconds


Coefficients = TypeVar("Coefficients", StepCoefficients, EncoderCoefficients)


class GridBlock(Configuration, Generic[Coefficients]):
    """A cost of steps or encoders by batch size and one length."""

    kind: Kind
    form: Literal["linear", "table"]
    """Form that computes. `seconds` are the cells of form table; with form linear they are the measured times."""
    batch: Annotated[tuple[Count, ...], Field(min_length=1), Rising]
    """Sentences; one row of `seconds` each."""
    seconds: tuple[tuple[Duration, ...], ...] | None = None
    """Shape (batch, length)."""
    alone_s: tuple[Duration, ...] | None = None
    """Seconds of a batch of one, by length, which replace those of the form; null: the form holds for a batch of
    one too."""
    judged_batch: tuple[Count, ...] = ()
    """Batch sizes that were measured only to judge both forms, and never fitted; rising."""
    judged_cells: tuple[tuple[Count, Length, Duration], ...] = ()
    """Cells of these batch sizes: (batch, length, seconds), the seconds by the same quantile as the fitted cells."""
    heldout_error: RelativeError | None = None
    """Mean absolute relative error of the chosen form on batch sizes that it was not fitted to; see `heldout_how`."""
    heldout_error_linear: RelativeError | None = None
    """Error of the linear form, chosen or not, on the same cells as that of the table."""
    heldout_error_table: RelativeError | None = None
    heldout_how: str | None = None
    fitted_error_linear: RelativeError | None = None
    """Error of the linear form on the cells that it was fitted to; a table has none on its own cells."""
    r2: RSquared | None = None
    """R2 of the linear form; null for a table, which passes through its own cells."""
    beam: Count = 1
    """Hypotheses of each sentence; a row of the batch is a sentence with all of its hypotheses."""
    repeats: Count | None = None
    left_out: tuple[str, ...] = ()
    """Cells that could not be measured, with the reason."""
    notes: tuple[str, ...] = ()
    """How cells were obtained that were not timed directly."""
    coefficients: Coefficients | None = None

    length_name: ClassVar[str]
    """The field that holds the lengths."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Measured lengths, rising: positions of steps, source lengths of encoders."""
        values: tuple[int, ...] = getattr(self, self.length_name)
        return values

    @property
    def cost(self) -> BatchCost:
        """The cost model that the block describes."""
        surface: Surface
        if self.form == "linear" and self.coefficients is not None:
            surface = LinearSurface(*self.coefficients.model_dump().values())
        else:
            surface = _table(self.batch, self.lengths, self.seconds)
        alone = None if self.alone_s is None else _table((1,), self.lengths, (self.alone_s,))
        return BatchCost(surface, (self.batch[0], self.batch[-1]), (self.lengths[0], self.lengths[-1]), alone)

    def times(self, factor: float) -> Self:
        """Return the block with all of its seconds multiplied by one factor."""
        update: dict[str, object] = {
            "judged_cells": tuple((batch, length, factor * second) for batch, length, second in self.judged_cells)
        }
        if self.alone_s is not None:
            update["alone_s"] = tuple(factor * second for second in self.alone_s)
        if self.seconds is not None:
            update["seconds"] = tuple(tuple(factor * second for second in row) for row in self.seconds)
        if self.coefficients is not None:
            coefficients = {name: factor * value for name, value in self.coefficients.model_dump().items()}
            update["coefficients"] = self.coefficients.model_copy(update=coefficients)
        return self.model_copy(update=update)

    @model_validator(mode="after")
    def _consistent(self) -> GridBlock[Coefficients]:
        lengths, name, coefficients = self.lengths, self.length_name, self.coefficients
        if self.seconds is not None and [len(row) for row in self.seconds] != [len(lengths)] * len(self.batch):
            raise ValueError(f"seconds: {len(self.batch)} rows (batch) of {len(lengths)} ({name}) are needed")
        if self.alone_s is not None and len(self.alone_s) != len(lengths):
            raise ValueError(f"alone_s: {len(lengths)} numbers ({name}) are needed")
        if list(self.judged_batch) != sorted({batch for batch, _, _ in self.judged_cells}):
            raise ValueError("judged_batch: other batch sizes than those of judged_cells")
        if set(self.judged_batch) & set(self.batch):
            raise ValueError("judged_batch: batch sizes that were fitted too")
        if self.form == "table" and self.seconds is None:
            raise ValueError("seconds: needed by form table")
        if self.form == "linear" and coefficients is None:
            raise ValueError("coefficients: needed by form linear")
        if coefficients is not None and not any(coefficients.model_dump().values()):
            raise ValueError("coefficients: nothing would take any time")
        return self


def _table(batch: tuple[int, ...], lengths: tuple[int, ...], seconds: tuple[tuple[float, ...], ...] | None) -> TableSurface:
    return TableSurface(*(np.asarray(column, np.float64) for column in (batch, lengths, seconds)))


class StepBlock(GridBlock[StepCoefficients]):
    """Time of one decode step of `batch` sentences when `position` tokens are out (FNI-18)."""

    length_name: ClassVar[str] = "position"
    position: Annotated[tuple[Length, ...], Field(min_length=1), Rising]
    src_len: Length | None = None
    """Source tokens of the timed steps."""
    s_per_row_src_token: Seconds | None = None
    """Seconds that one more token of the longest source of the batch adds to a step for each row; null: not measured."""
    run_over_told: Positive | None = None
    """Mean seconds of the timed runs of steps over those that this block predicts. The block holds the usual (median) step:
    above 1, some steps took much longer."""

    def times(self, factor: float) -> StepBlock:
        """Return the block with all of its seconds multiplied by one factor."""
        slope_s = self.s_per_row_src_token
        return super().times(factor).model_copy(update={"s_per_row_src_token": None if slope_s is None else factor * slope_s})


class EncoderBlock(GridBlock[EncoderCoefficients]):
    """Time to encode `batch` sentences of `src_len` tokens each."""

    length_name: ClassVar[str] = "src_len"
    src_len: Annotated[tuple[Length, ...], Field(min_length=1), Rising]
    padding_share: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of the padding's cost that a recurrent encoder pays although it is given packed sequences (keys of attention,
    copies); null: not measured."""


class Overhead(Configuration):
    """One cost beside those of the model."""

    value: Seconds | None
    """Seconds; null if it could not be measured."""
    kind: Kind
    note: str = ""
    heldout_error: RelativeError | None = None
    """Mean absolute relative error of its fit on batch sizes that it was not fitted to."""


OF_BATCHES = ("step_gap_s", "step_gap_s_per_sentence", "refill_s_fixed", "refill_s_per_sentence", "leave_s")
"""Overheads of decoding in batches, which are measured with the decode steps."""


class Overheads(Configuration):
    """Costs beside those of the model (CNMT-12); a part of a calibration may add further ones, which no simulation uses."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Overhead]

    decision_s: Overhead | None = None
    """Seconds of one decision of the gateway's policy."""
    tokenisation_s_per_token: Overhead | None = None
    tokenisation_s_fixed: Overhead | None = None
    step_gap_s: Overhead | None = None
    """Fixed seconds between two decode steps: choosing tokens, stopping, bookkeeping."""
    step_gap_s_per_sentence: Overhead | None = None
    """Seconds between two decode steps for each sentence of the batch."""
    refill_s_fixed: Overhead | None = None
    """Fixed seconds to let encoded sentences join a batch that is being decoded."""
    refill_s_per_sentence: Overhead | None = None
    """Seconds for each of these sentences to join, and to leave at the end."""
    leave_s: Overhead | None = None
    """Seconds added to a step that ends some sentence, whatever their number."""

    @property
    def known_s(self) -> dict[str, float]:
        """Measured costs by name, without those that were not measured."""
        return {name: part.value for name, part in self if part is not None and part.value is not None}

    def times(self, factor: float) -> Overheads:
        """Return the overheads with those of decoding in batches multiplied by one factor."""
        known_s = {name: second for name, second in self.known_s.items() if name in OF_BATCHES}
        return self.model_copy(
            update={name: getattr(self, name).model_copy(update={"value": factor * second}) for name, second in known_s.items()}
        )


class BeamOverrun(Configuration):
    """Steps of a beam search beyond its best output, counted with a trained model; timings have forced lengths."""

    kind: Kind
    steps_per_token: Annotated[float, Field(ge=1.0, le=1000.0)]
    """Decode steps over the tokens of the output, its end counted; charged in the plane and in the steps of batches."""
    sentences: Count | None = None
    """Number of sentences from which it was measured."""
    note: str = ""


class EnergyBlock(Configuration):
    """Electric power and energy of executions; a quantity that could not be read is null, never 0."""

    kind: Kind
    source: str
    """Counter that was read: `nvml`, `rapl`, `ina3221`."""
    idle_w: Positive | None = None
    active_w: Positive | None = None
    """Power during execution, the idle power included."""
    j_per_src_token: NotNegative | None = None
    j_per_tgt_token: NotNegative | None = None
    j_fixed: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    heldout_error: RelativeError | None = None

    @model_validator(mode="after")
    def _whole(self) -> EnergyBlock:
        plane = (self.j_per_src_token, self.j_per_tgt_token, self.j_fixed)
        if any(part is None for part in plane) and any(part is not None for part in plane):
            raise ValueError("j_per_src_token, j_per_tgt_token and j_fixed go together")
        if plane[0] is not None and plane[0] + (plane[1] or 0.0) + max(plane[2] or 0.0, 0.0) <= 0.0:
            raise ValueError("no request would take any energy; give null for what could not be read")
        return self

    def joules(self, src_len: ArrayLike, tgt_len: ArrayLike, execution_s: ArrayLike) -> NDArray[np.float64] | None:
        """Return the joules of each execution; broadcasts over its arguments; None if nothing is known.

        The plane in joules if energy was measured per cell, else the active power times the execution time.
        """
        if self.j_per_src_token is not None and self.j_per_tgt_token is not None and self.j_fixed is not None:
            src, tgt = np.asarray(src_len, np.float64), np.asarray(tgt_len, np.float64)
            return np.maximum(self.j_per_src_token * src + self.j_per_tgt_token * tgt + self.j_fixed, 0.0)
        return None if self.active_w is None else self.active_w * np.asarray(execution_s, np.float64)


class MeasuringConditions(Configuration):
    """State of the box during one measuring session; further keys are allowed."""

    model_config = ConfigDict(extra="allow")

    load_average: NotNegative | tuple[NotNegative, ...] | None = None
    governor: str | None = None
    frequency_mhz: Positive | tuple[Positive, ...] | None = None
    others_cpus: NotNegative | None = None
    """CPUs' worth of time that other programs used before or after the session, whichever is greater."""
    busy: bool | None = None
    """True if that is enough to disturb a measurement; null if it was not watched."""
    drift: NotNegative | None = None
    """Greatest relative difference of a reading of the reference cell from the lower quartile of all its readings."""
    disturbed_cells: Annotated[int, Field(ge=0)] | None = None
    """Number of cells that still had no undisturbed repeat after they were measured again."""
    disturbed: tuple[Annotated[str, Field(min_length=1, pattern=r"\S")], ...] = ()
    """Names of these cells, such as `step 20+64 x8`: the cost model, source and target tokens, and the batch above 1."""


class LaterConditions(MeasuringConditions):
    """State of the box during a session that completed a profile."""

    parts: tuple[str, ...] = ()
    """Measured parts, named as in `simnmt calibrate --part`; `sti` for `simnmt sti profile`."""
    date: str | None = None
    """ISO 8601."""
    tool: str | None = None


class Conditions(MeasuringConditions):
    """State of the box during the session that made the profile, and during those that completed it."""

    gap_s: Duration | None = None
    """Seconds that the box idled before each single execution; null: back to back."""
    later: tuple[LaterConditions, ...] = ()
    """The completing sessions, first to last."""
