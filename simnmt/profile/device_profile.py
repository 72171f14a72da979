"""The device profile: what is known of one device running one model, and how it is known (XP-05).

A profile is a JSON file. Every number in it belongs to a block that says its kind: measured on the device, inferred from
published figures, or synthetic.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simnmt.base.configuration import NO_TRUTH_VALUE, Configuration, EndOfSentence, end_tokens
from simnmt.profile.batch_cost import DecodingCost
from simnmt.profile.blocks import (
    BeamOverrun,
    CellSample,
    Conditions,
    Count,
    DiskBlock,
    EncoderBlock,
    EnergyBlock,
    EngineBlock,
    ExecutionFit,
    Kind,
    Overheads,
    Positive,
    ProfileError,
    RelativeError,
    Seconds,
    StepBlock,
)
from simnmt.profile.decoder_block import DecoderBlock
from simnmt.profile.device_cost import DiskCost, EnergyCost
from simnmt.profile.execution_plane import ExecutionPlane, LognormalResidual
from simnmt.profile.streaming_block import StiBlock
from simnmt.profile.streaming_cost import StiCost

SCHEMA_VERSION = 1
"""Of the file's form."""
PACKING = ("gru", "bilstm", "attentional")
"""Kinds of architecture whose encoders are given packed sequences: of padding they pay `padding_share` at most."""


class Device(Configuration):
    """The box."""

    name: str
    """What a reader would call it, such as `NVIDIA Jetson TX2`."""
    details: str = ""
    """Clocks, threads, library versions: what a repeat of the measurement needs."""


class Model(Configuration):
    """The translation model that ran on it."""

    name: str
    vocab: Annotated[int, Field(ge=2)]
    """Words of the target vocabulary; decides the bytes of a token on the link (CNMT-03)."""


class LengthUnit(Configuration):
    """What one token is; a workload counted otherwise is refused."""

    src: str
    tgt: str
    end_of_sentence: EndOfSentence = "none"
    """Which lengths count the end-of-sentence token; what is measured counts both: every step, and every token that the encoder
    reads."""


class ValidRange(Configuration):
    """Lengths for which the cost model holds, both ends included."""

    src_len: tuple[int, int]
    tgt_len: tuple[int, int]

    @model_validator(mode="after")
    def _ordered(self) -> ValidRange:
        for name, (low, high) in (("src_len", self.src_len), ("tgt_len", self.tgt_len)):
            if not 0 <= low <= high <= 10**9:
                raise ValueError(f"{name}: [{low}, {high}] is no range")
        return self


LEAST_REQUEST_S = 1e-12
"""Of a source and a target token together; no device is faster, and ratios of smaller times overflow."""


class PlaneCoefficients(Configuration):
    """The execution plane's coefficients."""

    s_per_src_token: Seconds
    s_per_tgt_token: Seconds
    s_fixed: Annotated[float, Field(ge=-10_000.0, le=10_000.0)]

    @model_validator(mode="after")
    def _takes_time(self) -> PlaneCoefficients:
        if self.s_per_src_token + self.s_per_tgt_token + max(self.s_fixed, 0.0) < LEAST_REQUEST_S:
            raise ValueError(f"no request would take as long as {LEAST_REQUEST_S:g} s")
        return self


class Execution(Configuration):
    """Time of one request alone on the device."""

    kind: Kind
    plane: PlaneCoefficients
    residual_relative_sd: Annotated[float, Field(ge=0.0, le=10.0)]
    """Standard deviation of the mean-one lognormal factor on the plane's time."""
    fit: ExecutionFit = Field(default_factory=ExecutionFit)
    samples: tuple[CellSample, ...] = ()
    """What was measured, by cell."""


class Reconciliation(Configuration):
    """How whole executions of single sentences and the costs of encoder, steps and gaps were brought together (XP-01)."""

    kind: Kind
    """Of the correction: measured where both were measured in the same rounds, inferred where at different times."""
    pace: Positive
    """What whole executions took over what encoder, steps and gaps say; all costs of steps, encoders, gaps, joining and
    leaving in this profile are already multiplied by it."""
    cells: Count
    """Of whole executions."""
    largest_change: RelativeError
    """Beside the pace: greatest relative change of an encoder or a step at batch 1, at one of its measured lengths."""
    error: RelativeError
    """Mean absolute relative error of encoder, steps and gaps on the mean times of whole executions."""
    plane_error: RelativeError
    """The same of the plane of the profile, which is derived from encoder, steps and gaps."""
    measured_plane: PlaneCoefficients
    """The plane fitted to whole executions alone, to which `execution.fit` refers."""


class Provenance(Configuration):
    """Where the numbers come from."""

    source: str
    date: str
    """ISO 8601."""
    tool: str
    """What wrote the file, with its version."""


class DeviceProfile(Configuration):
    """One device running one model."""

    schema_version: Annotated[Literal[1], NO_TRUTH_VALUE]
    name: str
    device: Device
    model: Model
    length_unit: LengthUnit
    valid_range: ValidRange
    execution: Execution
    provenance: Provenance
    engine: EngineBlock | None = None
    """What executed the model."""
    step: StepBlock | None = None
    """Time of one decode step by batch and position."""
    encoder: EncoderBlock | None = None
    """Time of encoding by batch and source length."""
    decoder: DecoderBlock | None = None
    """Time of whole decode steps by the way in which the decoder is written."""
    overheads: Overheads | None = None
    beam_overrun: BeamOverrun | None = None
    """What a beam takes beyond its best output; null: greedy, or not measured, and then nothing is charged for it."""
    reconciliation: Reconciliation | None = None
    """What made a sentence alone cost the same by the plane and by its steps; null: nothing did."""
    disk: DiskBlock | None = None
    sti: StiBlock | None = None
    """The model streamed from the disk in shards."""
    energy: EnergyBlock | None = None
    """Null where no counter could be read."""
    conditions: Conditions | None = None
    """The state of the box while it was measured."""

    @model_validator(mode="after")
    def _of_one_beam(self) -> DeviceProfile:
        if self.decoder is not None and self.engine is not None and self.decoder.base.beam != self.engine.beam:
            conflict = f"beam {self.decoder.base.beam} where the profile's other costs are of beam {self.engine.beam}"
            raise ValueError(f"decoder.base: {conflict}")
        return self

    @property
    def plane(self) -> ExecutionPlane:
        """The execution plane, ready to compute; a beam's steps beyond its best output are in the slope."""
        plane = self.execution.plane
        return ExecutionPlane(plane.s_per_src_token, plane.s_per_tgt_token * self._steps_per_token, plane.s_fixed)

    @property
    def of_forced_lengths(self) -> DeviceProfile:
        """The profile of what was timed: outputs of given lengths, nothing beyond them."""
        return self if self.beam_overrun is None else self.model_copy(update={"beam_overrun": None})

    @property
    def _steps_per_token(self) -> float:
        return 1.0 if self.beam_overrun is None else self.beam_overrun.steps_per_token

    @property
    def residual(self) -> LognormalResidual:
        """The residual model, ready to compute."""
        return LognormalResidual(self.execution.residual_relative_sd)

    @property
    def decoding_cost(self) -> DecodingCost:
        """Cost of decoding on a batching server, ready to compute. An unmeasured overhead counts as 0 s: check `knows_refills`
        before refilling batches.

        Raises `ProfileError` where the profile knows nothing of decode steps or of the encoder.
        """
        if self.step is None:
            self._lacks("step", "costs of decode steps")
        if self.encoder is None:
            self._lacks("encoder", "costs of encoding")
        known_s = {} if self.overheads is None else self.overheads.known_s
        many = self._steps_per_token
        return DecodingCost(
            step=self.step.cost,
            encoder=self.encoder.cost,
            mean_over_usual=many * (self.step.run_over_told or 1.0),
            gap_s_fixed=many * known_s.get("step_gap_s", 0.0),
            gap_s_per_sentence=many * known_s.get("step_gap_s_per_sentence", 0.0),
            refill_s_fixed=known_s.get("refill_s_fixed", 0.0),
            refill_s_per_sentence=known_s.get("refill_s_per_sentence", 0.0),
            leave_s=known_s.get("leave_s", 0.0),
            packs=self.engine is not None and self.engine.architecture.get("kind") in PACKING,
            padding_share=self.encoder.padding_share or 0.0,
            beam=self.step.beam,
            src_len=self.step.src_len,
            s_per_row_src_token=many * (self.step.s_per_row_src_token or 0.0),
        )

    @property
    def knows_refills(self) -> bool:
        """True if the costs of encoded sentences that join a batch were measured."""
        return self.overheads is not None and {"refill_s_fixed", "refill_s_per_sentence"} <= self.overheads.known_s.keys()

    @property
    def disk_cost(self) -> DiskCost:
        """Cost of reads from the disk. Raises `ProfileError` if the profile has none."""
        return self.disk.cost if self.disk is not None else self._lacks("disk", "costs of reading from the disk")

    @property
    def sti_cost(self) -> StiCost:
        """Cost of streaming the model in shards. Raises `ProfileError` if the profile has none."""
        return self.sti.cost() if self.sti is not None else self._lacks("sti", "costs of streaming its model", "sti profile")

    @property
    def energy_cost(self) -> EnergyCost | None:
        """Energy of executions, ready to compute; None where no counter could be read.

        A beam's steps beyond its best output are in the joules of a target token, as in the plane's slope.
        """
        block = self.energy
        if block is None:
            return None
        per_tgt_token = None if block.j_per_tgt_token is None else self._steps_per_token * block.j_per_tgt_token
        return EnergyCost(block.idle_w, block.active_w, block.j_per_src_token, per_tgt_token, block.j_fixed)

    def execution_s(
        self,
        src_len: NDArray[np.int64],
        tgt_len: NDArray[np.int64] | NDArray[np.float64],
        standard_normal: NDArray[np.float64],
        more_s_per_tgt_token: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """True execution times: the plane times a residual factor; all of shape (requests,), seconds.

        `more_s_per_tgt_token`: what each request takes above the plane's slope, see `DecoderChoice`; may be below 0.
        """
        plane_s = self.plane.seconds(src_len, tgt_len)
        if more_s_per_tgt_token is not None:
            plane_s = np.maximum(plane_s + more_s_per_tgt_token * tgt_len, 0.0)
        return plane_s * self.residual.factor(standard_normal)

    def counting(self, end_of_sentence: EndOfSentence) -> DeviceProfile:
        """Return the profile for lengths that count the end-of-sentence token as asked for.

        What one end-of-sentence token takes, a beam's steps beyond its best output included, moves between the slopes and the
        fixed parts of time and energy. Raises `ProfileError` where the profile has costs beside its planes, whose steps cannot
        be counted otherwise.
        """
        counted = self.length_unit.end_of_sentence
        if end_of_sentence == counted:
            return self
        if self.step is not None or self.decoder is not None or self.sti is not None:
            raise ProfileError(
                f"lengths of profile {self.name} count {counted} of the end-of-sentence tokens, "
                f"other devices' {end_of_sentence}",
                remedy="state length_unit.end_of_sentence alike in the profiles of a scenario",
            )
        src, tgt = np.subtract(end_tokens(end_of_sentence), end_tokens(counted)).tolist()
        plane, ranges, energy = self.plane, self.valid_range, self.energy_cost
        fixed_s = plane.s_fixed - src * plane.s_per_src_token - tgt * plane.s_per_tgt_token
        moved = [(max(low + more, 0), high + more) for (low, high), more in ((ranges.src_len, src), (ranges.tgt_len, tgt))]
        changed: dict[str, Any] = {
            "length_unit": self.length_unit.model_copy(update={"end_of_sentence": end_of_sentence}),
            "execution": self.execution.model_copy(
                update={"plane": self.execution.plane.model_copy(update={"s_fixed": fixed_s}), "samples": ()}
            ),
            "valid_range": ValidRange(src_len=moved[0], tgt_len=moved[1]),
        }
        if self.energy is not None and energy is not None and energy.j_fixed is not None:
            fixed_j = energy.j_fixed - src * (energy.j_per_src_token or 0.0) - tgt * (energy.j_per_tgt_token or 0.0)
            changed["energy"] = self.energy.model_copy(update={"j_fixed": fixed_j})
        return self.model_copy(update=changed)

    def converted(self, src: float, tgt: float, unit: LengthUnit) -> DeviceProfile:
        """Return the profile for lengths in another unit, whose tokens make `src` and `tgt` tokens of this one's on average.

        An end-of-sentence token stays one token, and is counted as before.
        Plane, energy and range are converted; costs of steps, encoders and streaming, which are of whole tokens of the first
        unit, are left out; a beam's steps for a token are kept. Numbers that were measured become inferred.
        """
        plane, energy, counted = self.execution.plane, self.energy, self.length_unit.end_of_sentence
        many = self._steps_per_token
        src_end, tgt_end = end_tokens(counted)
        # What is not multiplied of an end-of-sentence token that the lengths count.
        src_kept, tgt_kept = src_end * (1.0 - src), tgt_end * (1.0 - tgt)
        execution = self.execution.model_copy(
            update={
                "kind": "inferred" if self.execution.kind == "measured" else self.execution.kind,
                "plane": plane.model_copy(
                    update={
                        "s_per_src_token": src * plane.s_per_src_token,
                        "s_per_tgt_token": tgt * plane.s_per_tgt_token,
                        "s_fixed": plane.s_fixed + src_kept * plane.s_per_src_token + tgt_kept * many * plane.s_per_tgt_token,
                    }
                ),
                "samples": (),
            }
        )
        if energy is not None and energy.j_fixed is not None:
            j_src, j_tgt = energy.j_per_src_token or 0.0, energy.j_per_tgt_token or 0.0
            fixed_j = energy.j_fixed + src_kept * j_src + tgt_kept * many * j_tgt
            joules = {"j_per_src_token": src * j_src, "j_per_tgt_token": tgt * j_tgt, "j_fixed": fixed_j}
            energy = energy.model_copy(update=joules)
        lengths = ValidRange(
            src_len=_converted_range(self.valid_range.src_len, src, src_end),
            tgt_len=_converted_range(self.valid_range.tgt_len, tgt, tgt_end),
        )
        unit = unit.model_copy(update={"end_of_sentence": counted})
        parts = {"length_unit": unit, "valid_range": lengths, "execution": execution, "energy": energy}
        return self.model_copy(update=parts | dict.fromkeys(("step", "encoder", "decoder", "sti")))

    def outside(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which requests lie outside the range for which the profile holds."""
        (src_low, src_high), (tgt_low, tgt_high) = self.valid_range.src_len, self.valid_range.tgt_len
        return (src_len < src_low) | (src_len > src_high) | (tgt_len < tgt_low) | (tgt_len > tgt_high)

    def _lacks(self, block: str, costs: str, verb: str = "calibrate") -> NoReturn:
        raise ProfileError(
            f"profile {self.name} has no {costs} (block {block})",
            remedy=f"measure them with simnmt {verb}, or name a profile that has them",
        )


def _converted_range(ends: tuple[int, int], tokens: float, end: int) -> tuple[int, int]:
    """Return the range in a unit whose tokens make so many of the range's, beside `end` tokens that end a sentence.

    A length that the range partly covers counts as inside.
    """
    low, high = (max(length - end, 0) / tokens for length in ends)
    return math.floor(low) + end if ends[0] else 0, min(math.ceil(high) + end, 10**9)
