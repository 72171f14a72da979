"""Blocks that a device profile may hold beside its execution plane, their value types, and the error of a wrong profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator
from typing_extensions import Self

from simnmt.base.configuration import Configuration
from simnmt.base.errors import InputError
from simnmt.profile.batch_cost import BatchCost, LinearSurface, Surface, SurfaceWithAlone, TableSurface
from simnmt.profile.decoder_settings import DecoderOptions
from simnmt.profile.device_cost import DiskCost, ReadTable


class ProfileError(InputError):
    """A device profile that cannot be read, or that does not fit what is asked of it."""


Kind = Literal["measured", "inferred", "synthetic"]
LEAST_COST_S = 1e-30
"""Of a cost that is not zero: far below every rounding error of a fit; ratios to smaller ones overflow."""
MOST_WHOLE = 10**15
"""Of a count, and of any number of an architecture, either sign."""


def _zero_or_a_cost(seconds: float) -> float:
    if 0.0 < seconds < LEAST_COST_S:
        raise ValueError(f"{seconds:g} s is no cost: give 0, or at least {LEAST_COST_S:g}")
    return seconds


Seconds = Annotated[float, Field(ge=0.0, le=10_000.0), AfterValidator(_zero_or_a_cost)]
"""Of a token or of a request; three hours would be no translation any more."""
Duration = Annotated[float, Field(ge=1e-12, le=1e6)]
"""Of something that was measured, seconds."""
Positive = Annotated[float, Field(ge=1e-12, le=1e18)]
NotNegative = Annotated[float, Field(ge=0.0, le=1e18)]
RelativeError = Annotated[float, Field(ge=0.0, le=1e6)]
RSquared = Annotated[float, Field(ge=-1e18, le=1.0)]
Count = Annotated[int, Field(ge=1, le=MOST_WHOLE)]
Length = Annotated[int, Field(ge=0, le=10**6)]


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
    """Whether bias, softmax and search were fused."""
    decoder: DecoderOptions | None = None
    """How the sharp decoder was written; null: another backend."""
    weights: Literal["random", "checkpoint"] = "random"
    """Times depend on the architecture, not on the weights; what a model says depends on both."""
    clipped_weights: Annotated[int, Field(ge=0, le=MOST_WHOLE)] | None = None
    """Weights of the sharp decoder's model that its 16-bit products clip, whether or not products are of 16 bits here; null:
    another backend."""
    product_weights: Count | None = None
    """All weights of these products."""
    architecture: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)

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
            raise ValueError("quantiles that do not rise")
        return self

    @classmethod
    def of(cls, repeats_s: Sequence[float] | NDArray[np.float64], **fields: object) -> Self:
        """Return the sample of these repeats; `fields`: those that a derived class adds."""
        quantiles_s = np.quantile(repeats_s, (0.0, 0.25, 0.5, 0.75, 0.95)).tolist()
        known = dict(zip(("min_s", "p25_s", "median_s", "p75_s", "p95_s"), quantiles_s, strict=True))
        return cls.model_validate({"repeats": len(repeats_s), **known, "mean_s": float(np.mean(repeats_s)), **fields})


class CellSample(Quantiles):
    """Repeats of one cell: sentences of one source and one target length, executed as one batch."""

    src_len: Length
    src_len_mean: Annotated[float, Field(ge=0.0, le=1e6)] | None = None
    """Mean of the source lengths where inferences of several were summed up; `src_len` is then the nearest whole number."""
    tgt_len: Length
    batch: Count = 1
    beam: Count = 1
    mean_s: Duration
    sd_s: Seconds | None = None
    """Standard deviation over the repeats."""


class ExecutionFit(Configuration):
    """Quality of the execution plane; of an inferred one other keys, such as the assumptions and the spread over seeds."""

    model_config = ConfigDict(extra="allow")

    mode: Literal["six_cells", "full_grid", "paper"] | None = None
    inferences: Count | None = None
    cells: Count | None = None
    quantile: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Of the repeats of a cell, to which the plane's shape was fitted: 0 is the least, 0.5 the median."""
    level: Positive | None = None
    """Mean of the undisturbed times over the plane of that quantile; the plane in the profile is already multiplied by it."""
    r2: RSquared | None = None
    r2_of_means_per_tgt_len: RSquared | None = None
    mse_ms2: NotNegative | None = None
    heldout_error: RelativeError | None = None
    """Of undisturbed time: mean absolute relative error of the plane of least or median times (of `quantile`), before it is
    multiplied by the level, on the same times of cells that it was not fitted to. In mode paper of the plane itself, on single
    inferences."""
    heldout_how: str | None = None
    """What `heldout_error` was judged on."""
    heldout_error_six_cells: RelativeError | None = None
    """Of mode full_grid: the error of a quick calibration, judged by all cells but its six."""
    heldout_error_of_means: RelativeError | None = None
    """Of the plane of the mean, as the profile holds it: shape and level fitted without the cells that judge, and judged on
    the mean of each one's undisturbed repeats."""
    disturbed_share: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of inferences left out of level, residual, R2 and MSE because the box was visibly disturbed."""
    residual_relative_sd_all: NotNegative | None = None
    """The residual's relative standard deviation had those been kept."""
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
    """A cost by batch size and one length, as steps and encoders have it."""

    kind: Kind
    form: Literal["linear", "table"]
    """Which of the two computes; a table's `seconds` are its cells, a linear one's are what was measured."""
    batch: Annotated[tuple[Count, ...], Field(min_length=1)]
    """Sentences; rising. One row of `seconds` each."""
    seconds: tuple[tuple[Duration, ...], ...] | None = None
    """Shape (batch, length)."""
    alone_s: tuple[Duration, ...] | None = None
    """Of a batch of one, by length, in place of what the form computes: reconciled with whole executions of single sentences
    (see `reconciliation`); null: the form holds for a batch of one too."""
    judged_batch: tuple[Count, ...] = ()
    """Batch sizes that were measured only to judge: no number of either form comes from them. Rising."""
    judged_cells: tuple[tuple[Count, Length, Duration], ...] = ()
    """What judged: (batch, length, seconds), the seconds by the same quantile of the repeats as the fitted cells'."""
    heldout_error: RelativeError | None = None
    """Of the chosen form: mean absolute relative error on batch sizes that it was not fitted to, as `heldout_how` says."""
    heldout_error_linear: RelativeError | None = None
    """Of the linear form, whichever was chosen; on the same cells as the table's."""
    heldout_error_table: RelativeError | None = None
    heldout_how: str | None = None
    fitted_error_linear: RelativeError | None = None
    """Of the linear form, on the cells that it was fitted to; a table passes through its own cells."""
    r2: RSquared | None = None
    """Of the linear form; a table passes through its own cells, and says nothing by it."""
    beam: Count = 1
    """Hypotheses of each sentence; a row of the batch is a sentence with all of its own."""
    repeats: Count | None = None
    left_out: tuple[str, ...] = ()
    """What could not be measured, and why."""
    notes: tuple[str, ...] = ()
    """How the rest was measured, where not directly."""
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
        if self.alone_s is not None:
            surface = SurfaceWithAlone(_table((1,), self.lengths, (self.alone_s,)), surface)
        return BatchCost(surface, (self.batch[0], self.batch[-1]), (self.lengths[0], self.lengths[-1]))

    @model_validator(mode="after")
    def _consistent(self) -> GridBlock[Coefficients]:
        lengths, name, coefficients = self.lengths, self.length_name, self.coefficients
        for key, values in (("batch", self.batch), (name, lengths)):
            if list(values) != sorted(set(values)):
                raise ValueError(f"{key}: values that do not rise")
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
    position: Annotated[tuple[Length, ...], Field(min_length=1)]
    src_len: Length | None = None
    """Source tokens under the steps."""
    s_per_row_src_token: Seconds | None = None
    """What one more source token, of the longest sentence of the batch, adds to a step for each row; null: not measured."""
    run_over_told: Positive | None = None
    """Mean seconds of the timed runs of steps over those that this block predicts. The block holds the usual step (median):
    above 1, some steps took much longer."""


class EncoderBlock(GridBlock[EncoderCoefficients]):
    """Time to encode `batch` sentences of `src_len` tokens each."""

    length_name: ClassVar[str] = "src_len"
    src_len: Annotated[tuple[Length, ...], Field(min_length=1)]
    padding_share: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Of a recurrent encoder, which is given packed sequences, the share of the padding's cost that is paid all the same (what
    attention prepares, copies); null: not measured."""


class Overhead(Configuration):
    """One cost beside the model's own."""

    value: Seconds | None
    """Seconds; null where it could not be measured."""
    kind: Kind
    note: str = ""
    heldout_error: RelativeError | None = None
    """Of the fit that this is a part of: mean absolute relative error on batch sizes that it was not fitted to."""


class Overheads(Configuration):
    """Costs beside the model's own (CNMT-12)."""

    decision_s: Overhead | None = None
    """Of one decision of the gateway's policy."""
    tokenisation_s_per_token: Overhead | None = None
    tokenisation_s_fixed: Overhead | None = None
    step_gap_s: Overhead | None = None
    """Between two decode steps: choosing tokens, stopping, bookkeeping; the part that does not grow with the batch."""
    step_gap_s_per_sentence: Overhead | None = None
    """What each sentence of the batch adds to it."""
    refill_s_fixed: Overhead | None = None
    """Of encoded sentences joining a batch that is decoded: the part that does not grow with their number."""
    refill_s_per_sentence: Overhead | None = None
    """What each of them adds to it, and to the step with which it leaves."""
    leave_s: Overhead | None = None
    """Added to a step with which some sentence leaves, whatever their number."""

    @property
    def known_s(self) -> dict[str, float]:
        """The costs that were measured, by name; others are missing."""
        parts = ((name, getattr(self, name)) for name in type(self).model_fields)
        return {name: part.value for name, part in parts if part is not None and part.value is not None}


class BeamOverrun(Configuration):
    """How long a beam search runs on beyond its best output: measured with a trained model, for times are of forced lengths."""

    kind: Kind
    steps_per_token: Annotated[float, Field(ge=1.0, le=1000.0)]
    """Decode steps over the tokens of the output, its end counted; charged in the plane and in the steps of batches."""
    sentences: Count | None = None
    """From which it was measured."""
    note: str = ""


class ReadSample(Quantiles):
    """Repeats of cold reads of one size."""

    bytes: Count


class DiskBlock(Configuration):
    """Time of one read by its size (STI-07)."""

    kind: Kind
    form: Literal["linear", "table"] = "linear"
    """Which computes: s_fixed + bytes / bytes_per_s, or the medians of `samples`, interpolated on logarithmic scales."""
    s_fixed: Seconds
    bytes_per_s: Positive
    """Of the linear form, whichever computes."""
    r2: RSquared | None = None
    """Of the linear form; a table passes through its own medians."""
    heldout_error: RelativeError | None = None
    """Of the form that computes: mean absolute relative error on sizes left out in turn, without the least and the greatest."""
    heldout_error_linear: RelativeError | None = None
    """Of the linear form, whichever computes; on the same sizes as the table's."""
    heldout_error_table: RelativeError | None = None
    samples: tuple[ReadSample, ...] = ()
    cold: bool
    """The page cache held nothing of what was read."""
    paced_bytes_per_s: Positive | None = None
    """A slower storage to be imitated: no read is faster than this."""

    @model_validator(mode="after")
    def _can_compute(self) -> DiskBlock:
        sizes = [sample.bytes for sample in self.samples]
        if self.form == "table" and (len(sizes) < 2 or sizes != sorted(set(sizes))):
            raise ValueError("samples: two at least, of rising bytes, are needed by form table")
        return self

    @property
    def cost(self) -> DiskCost:
        """The cost model that the block describes."""
        table = None
        if self.form == "table":  # the linear form may have no samples
            table = ReadTable(*np.array([(sample.bytes, sample.median_s) for sample in self.samples], np.float64).T)
        return DiskCost(self.s_fixed, self.bytes_per_s, self.paced_bytes_per_s, table)


class EnergyBlock(Configuration):
    """Electric power and energy; what could not be read is null, never 0."""

    kind: Kind
    source: str
    """What was read: `nvml`, `rapl`, `ina3221`."""
    idle_w: Positive | None = None
    active_w: Positive | None = None
    """While executing, the idle power included."""
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
            raise ValueError("no request would take any energy; what could not be read is null")
        return self


class MeasuringConditions(Configuration):
    """The state of the box during one measuring session; other keys may stand beside these."""

    model_config = ConfigDict(extra="allow")

    load_average: NotNegative | tuple[NotNegative, ...] | None = None
    governor: str | None = None
    frequency_mhz: Positive | tuple[Positive, ...] | None = None
    others_cpus: NotNegative | None = None
    """Processors' worth of time that other programs used before or after the session, the greater."""
    busy: bool | None = None
    """Whether that is enough to disturb a measurement; null where nobody watched."""
    drift: NotNegative | None = None
    """Greatest relative departure of a reading of the reference cell from the lower quartile of all its readings."""
    disturbed_cells: Annotated[int, Field(ge=0)] | None = None
    """Cells that stayed disturbed: measured again, they had still no repeat that was free of disturbance."""
    disturbed: tuple[Annotated[str, Field(min_length=1, pattern=r"\S")], ...] = ()
    """Those cells, such as `step 20+64 x8`: the cost model, source and target tokens, and the batch above 1."""


class LaterConditions(MeasuringConditions):
    """Of a session that completed a profile."""

    parts: tuple[str, ...] = ()
    """What was measured in it, as `simnmt calibrate --part` names it; `sti` for `simnmt sti profile`."""
    date: str | None = None
    """ISO 8601."""
    tool: str | None = None


class Conditions(MeasuringConditions):
    """Of the session that made the profile, and of those that completed it."""

    later: tuple[LaterConditions, ...] = ()
    """In their order."""
