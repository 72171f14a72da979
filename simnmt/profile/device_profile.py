"""The device profile: costs of one device running one model, with their origin (XP-05).

A profile is a JSON file: a header that says where the numbers come from, and nine cost blocks. Each block states its kind:
measured on the device, inferred from published figures, or synthetic. A wrong file gives one message that names the place and
the key.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError

from simnmt.base.arrays import Floats
from simnmt.base.configuration import Configuration, end_tokens, message_of
from simnmt.base.files import read_bounded, write_text
from simnmt.profile.blocks import (
    BeamOverrun,
    EncoderBlock,
    EnergyBlock,
    Execution,
    MemoryBlock,
    Overhead,
    ProfileError,
    Shown,
    StepBlock,
)
from simnmt.profile.cost import DecodingCost, LognormalResidual, Plane, ResidualQuantiles
from simnmt.profile.decoder_block import DecoderBlock
from simnmt.profile.origin import Conditions, Device, EndpointBlock, EngineBlock, LengthUnit, Model, Provenance, ValidRange
from simnmt.profile.slots_block import SlotsBlock
from simnmt.profile.streaming_block import StiBlock, StiCost

Lengths = NDArray[np.int64] | Floats
SCHEMA_VERSION: Final = 2
"""Version of the file's schema."""
PACKING = ("gru", "bilstm", "attentional")
"""Kinds of architecture whose encoders are given packed sequences, and pay `padding_share` of the padding at most."""


class DeviceProfile(Configuration):
    """Costs of one device running one model.

    Example:
        >>> from simnmt.base.shipped_files import find
        >>> from simnmt.profile import read_profile
        >>> read_profile(find("calibration", "@tx2-gru")).plane.seconds(20, 25).round(3).item()
        0.164
    """

    schema_version: Literal[2]
    name: str
    device: Annotated[Device, Shown("device")]
    model: Annotated[Model, Shown("model")]
    length_unit: Annotated[LengthUnit, Shown("lengths")]
    valid_range: Annotated[ValidRange, Shown("holds for")]
    engine: Annotated[EngineBlock | None, Shown("engine")] = None
    endpoint: Annotated[EndpointBlock | None, Shown("endpoint")] = None
    """The running service that was measured through HTTP; null: measured on the box itself."""
    conditions: Annotated[Conditions | None, Shown("conditions")] = None
    provenance: Annotated[Provenance, Shown("provenance")]
    execution: Annotated[Execution, Shown("execution")]
    step: Annotated[StepBlock | None, Shown("decode step")] = None
    encoder: Annotated[EncoderBlock | None, Shown("encoder")] = None
    beam_overrun: Annotated[BeamOverrun | None, Shown("beam")] = None
    """Steps of a beam beyond its best output; null: greedy, or not measured and not charged."""
    decoder: Annotated[DecoderBlock | None, Shown("decoder")] = None
    overheads: Annotated[dict[str, Overhead], Shown("overheads")] = Field(default_factory=dict)
    """Costs beside those of the model by name (CNMT-12)."""
    slots: Annotated[SlotsBlock | None, Shown("slots")] = None
    """Iterations of an engine with continuous batching; null: the service is none, or was not measured as one."""
    sti: Annotated[StiBlock | None, Shown("sti")] = None
    energy: Annotated[EnergyBlock | None, Shown("energy")] = None
    """Power; null if no counter could be read."""
    model_memory: Annotated[MemoryBlock | None, Shown("model memory")] = None

    @property
    def plane(self) -> Plane:
        """The execution plane as a cost model; its slope includes a beam's steps beyond its best output."""
        return self.execution.plane.times(1.0, self._steps_per_token)

    @property
    def of_forced_lengths(self) -> DeviceProfile:
        """The profile of timed outputs of forced lengths, without a beam's steps beyond its best output."""
        return self if self.beam_overrun is None else self.model_copy(update={"beam_overrun": None})

    @property
    def _steps_per_token(self) -> float:
        return 1.0 if self.beam_overrun is None else self.beam_overrun.steps_per_token

    @property
    def residual(self) -> LognormalResidual | ResidualQuantiles:
        """The residual factor of single executions."""
        return self.execution.residual_quantiles or LognormalResidual(self.execution.residual_relative_sd)

    @property
    def decoding_cost(self) -> DecodingCost:
        """Cost of decoding on a batching server. An unmeasured overhead counts as 0 s: check `knows_refills` before refilling.

        Raises `ProfileError` if the profile has no costs of decode steps or of the encoder.
        """
        if self.step is None:
            self._lacks("step", "costs of decode steps")
        if self.encoder is None:
            self._lacks("encoder", "costs of encoding")
        known_s, steps_per_token = self.overheads_s, self._steps_per_token
        return DecodingCost(
            step=self.step.cost,
            encoder=self.encoder.cost,
            mean_over_usual=steps_per_token * (self.step.run_over_predicted or 1.0),
            gap_s_fixed=steps_per_token * known_s.get("step_gap_s", 0.0),
            gap_s_per_sentence=steps_per_token * known_s.get("step_gap_s_per_sentence", 0.0),
            refill_s_fixed=known_s.get("refill_s_fixed", 0.0),
            refill_s_per_sentence=known_s.get("refill_s_per_sentence", 0.0),
            leave_s=known_s.get("leave_s", 0.0),
            packs=self.engine is not None and self.engine.architecture.get("kind") in PACKING,
            padding_share=self.encoder.padding_share or 0.0,
            beam=self.step.beam,
            src_len=self.step.src_len,
            s_per_row_src_token=steps_per_token * (self.step.s_per_row_src_token or 0.0),
        )

    @property
    def overheads_s(self) -> dict[str, float]:
        """Measured overheads by name, without those that were not measured."""
        return {name: part.value for name, part in self.overheads.items() if part.value is not None}

    @property
    def knows_refills(self) -> bool:
        """True if the costs of sentences that join a batch were measured."""
        return {"refill_s_fixed", "refill_s_per_sentence"} <= self.overheads_s.keys()

    @property
    def sti_cost(self) -> StiCost:
        """Cost of streaming the model in shards. Raises `ProfileError` if the profile has none."""
        return self.sti.cost() if self.sti is not None else self._lacks("sti", "costs of streaming its model", "sti profile")

    def execution_s(self, src_len: Lengths, tgt_len: Lengths, standard_normal: Floats) -> Floats:
        """Return the execution times, the plane times a residual factor; all arrays of shape (requests,), seconds."""
        return self.plane.seconds(src_len, tgt_len) * self.residual.factor(standard_normal)

    def counted_in(self, unit: LengthUnit, src: float = 1.0, tgt: float = 1.0) -> DeviceProfile:
        """Return the profile for lengths in a unit, one token of which is `src` or `tgt` tokens of this unit on average.

        An end-of-sentence token stays one token; its cost moves between the slopes and the fixed part where
        lengths no longer count it. For other tokens, measured numbers become inferred, and costs of steps, encoders and
        streaming, which are of whole tokens of this unit, are left out. Raises `ProfileError` if a profile of the same tokens
        has costs of steps, which count every token.
        """
        counted = self.length_unit
        if unit == counted:
            return self
        execution, changed = self.execution, dict[str, object]()
        if (unit.src, unit.tgt) != (counted.src, counted.tgt):
            changed = dict.fromkeys(("step", "encoder", "decoder", "sti"))
            kind = "inferred" if execution.kind == "measured" else execution.kind
            execution = execution.model_copy(update={"kind": kind})
        elif self.step is not None or self.decoder is not None or self.sti is not None:
            raise ProfileError(
                f"lengths of profile {self.name} count {counted.end_of_sentence} of the end-of-sentence tokens, "
                f"other devices' {unit.end_of_sentence}",
                remedy="state length_unit.end_of_sentence alike in the profiles of a scenario",
            )
        before, after = end_tokens(counted.end_of_sentence), end_tokens(unit.end_of_sentence)
        ends = before[0] - after[0] * src, before[1] - after[1] * tgt
        if self.slots is not None:
            changed["slots"] = self.slots.counted_in(src, tgt, ends)
        fixed = ends[0], ends[1] * self._steps_per_token
        ranges = zip((self.valid_range.src_len, self.valid_range.tgt_len), (src, tgt), before, after, strict=True)
        src_range, tgt_range = (_recounted_range(*facts) for facts in ranges)
        changed |= {
            "length_unit": unit,
            "valid_range": ValidRange(src_len=src_range, tgt_len=tgt_range),
            "execution": execution.model_copy(update={"plane": execution.plane.recounted((src, tgt), fixed), "samples": ()}),
        }
        return self.model_copy(update=changed)

    def then(self, second: DeviceProfile, middle_per_src: float) -> DeviceProfile:
        """Return the profile of two executions in turn, by a language in the middle (pivoting).

        `middle_per_src`: tokens of the sentence in the middle for each source token, on average. The spread is that of the
        profile that spreads more; costs of steps, streaming, energy and memory are left out. Raises `ProfileError` if the two
        count lengths differently.
        """
        first_unit, second_unit = self.length_unit, second.length_unit
        if first_unit.tgt != second_unit.src or first_unit.end_of_sentence != second_unit.end_of_sentence:
            what = f"{self.name} counts target lengths by {first_unit.tgt}, {second.name} source lengths by {second_unit.src}"
            raise ProfileError(what, remedy="name two profiles that count the language in the middle alike")
        src_plane, tgt_plane = self.plane, second.plane
        middle_s = middle_per_src * (src_plane.s_per_tgt_token + tgt_plane.s_per_src_token)
        plane = Plane(src_plane.s_per_src_token + middle_s, tgt_plane.s_per_tgt_token, src_plane.s_fixed + tgt_plane.s_fixed)
        kinds = self.execution.kind, second.execution.kind
        return DeviceProfile(
            schema_version=SCHEMA_VERSION,
            name=f"{self.name} then {second.name}",
            device=self.device,
            model=second.model.model_copy(update={"name": f"{self.model.name}, {second.model.name}"}),
            length_unit=first_unit.model_copy(update={"tgt": second_unit.tgt}),
            valid_range=ValidRange(src_len=self.valid_range.src_len, tgt_len=second.valid_range.tgt_len),
            provenance=self.provenance,
            execution=Execution(
                kind="synthetic" if "synthetic" in kinds else "inferred",
                plane=plane,
                residual_relative_sd=max(self.execution.residual_relative_sd, second.execution.residual_relative_sd),
            ),
        )

    def outside(self, src_len: Lengths, tgt_len: Lengths) -> NDArray[np.bool_]:
        """Return a mask of the requests outside the profile's valid range."""
        (src_low, src_high), (tgt_low, tgt_high) = self.valid_range.src_len, self.valid_range.tgt_len
        return (src_len < src_low) | (src_len > src_high) | (tgt_len < tgt_low) | (tgt_len > tgt_high)

    def _lacks(self, block: str, costs: str, verb: str = "calibrate") -> NoReturn:
        raise ProfileError(
            f"profile {self.name} has no {costs} (block {block})",
            remedy=f"measure them with simnmt {verb}, or name a profile that has them"
            + ": simnmt profile list" * (verb == "calibrate"),
        )


def _recounted_range(ends: tuple[int, int], tokens: float, before: int, after: int) -> tuple[int, int]:
    """Return the range in a unit, one token of which is `tokens` of the range's; end-of-sentence tokens count before and after.

    A length that the range partly covers counts as inside.
    """
    low, high = (max(length - before, 0) / tokens for length in ends)
    return math.floor(low) + after if ends[0] else 0, min(math.ceil(high) + after, 10**9)


_LOG = logging.getLogger("simnmt.profile")


def read_profile(path: str | os.PathLike[str]) -> DeviceProfile:
    """Read and check a profile; raises `ProfileError` naming the place and the key."""
    try:
        text = read_bounded(path).decode("utf-8")
    except OSError as error:
        remedy = "name a readable file, or a shipped one as @name"
        raise ProfileError(f"cannot read the profile: {error.strerror}", path=path, remedy=remedy) from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"no UTF-8 text at byte {error.start}", path=path, remedy="a profile is a JSON file") from None
    # A key that every scenario has, and no profile.
    if re.search(r"^(?: *[\"'])?(?:workloads|policies)[\"']?\s*:", text, re.MULTILINE):
        remedy = "name a JSON file that simnmt calibrate wrote, or a shipped profile as @name"
        raise ProfileError("this is a scenario, no device profile", path=path, remedy=remedy)
    profile = _checked(text, path)
    _LOG.info("read the device profile %s: %s, execution %s", path, profile.name, profile.execution.kind)
    return profile


def checked_profile(content: Mapping[str, Any]) -> DeviceProfile:
    """Return the checked profile of plain JSON content; raises `ProfileError` naming the key."""
    return _checked(json.dumps(content), None)


def write_profile(path: str | os.PathLike[str], profile: DeviceProfile) -> None:
    """Write a profile whole or not at all; raises `ProfileError` if the file cannot be written."""
    content = {name: block for name, block in profile.model_dump(mode="json", exclude_defaults=True).items() if block != {}}
    # Objects and lists without others in them take one line.
    text = re.sub(r"[\[{][^\[\]{}]*[\]}]", lambda leaf: re.sub(r"\n *", " ", leaf[0]), json.dumps(content, indent=1))
    write_text(path, text + "\n", ProfileError)


def _checked(text: str, path: str | os.PathLike[str] | None) -> DeviceProfile:
    try:
        return DeviceProfile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    key, what, remedy, line, column = ".".join(map(str, first["loc"])), message_of(first), "correct the file", None, None
    if first["type"] == "json_invalid":
        what, _, place = what.removeprefix("Invalid JSON: ").partition(" at line ")
        line, column = map(int, place.split(" column "))
        what = f"no JSON: {what}"
    elif key == "schema_version":
        version = None if first["type"] == "missing" else first["input"]
        what, remedy = f"{version!r:.40} where this simnmt reads {SCHEMA_VERSION}", "calibrate again with this version"
    elif first["type"] == "extra_forbidden":
        what, remedy = "unknown key here", "remove it"
    raise ProfileError(f"{key}: {what}" if key else what, path=path, line=line, column=column, remedy=remedy)
