"""The device profile: what is known of one device running one model, and how it is known (DESIGN section 4, XP-05).

A profile is a JSON file. Every number in it belongs to a block that says its kind: measured on the device, inferred from
published figures, or synthetic.
"""

from __future__ import annotations

import json
import os
import reprlib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from simnmt.configuration import Configuration
from simnmt.costs.plane import ExecutionPlane
from simnmt.costs.residual import LognormalResidual
from simnmt.errors import InputError
from simnmt.files import written_whole
from simnmt.names import nearest

SCHEMA_VERSION = 1
"""Of the file's form; a reader refuses any other."""

Kind = Literal["measured", "inferred", "synthetic"]
Seconds = Annotated[float, Field(ge=0.0, le=10_000.0)]
"""Of a token or of a request; three hours would be no translation any more."""


class ProfileError(InputError):
    """A device profile that cannot be read, or that does not fit what is asked of it."""


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


class ValidRange(Configuration):
    """Lengths for which the cost model holds, both ends included."""

    src_len: tuple[int, int]
    tgt_len: tuple[int, int]

    @model_validator(mode="after")
    def _ordered(self) -> ValidRange:
        for name, (low, high) in (("src_len", self.src_len), ("tgt_len", self.tgt_len)):
            if not 0 <= low <= high:
                raise ValueError(f"{name}: [{low}, {high}] is no range")
        return self


class Plane(Configuration):
    """The execution plane's coefficients."""

    s_per_src_token: Seconds
    s_per_tgt_token: Seconds
    s_fixed: Annotated[float, Field(ge=-10_000.0, le=10_000.0)]

    @model_validator(mode="after")
    def _takes_time(self) -> Plane:
        if self.s_per_src_token + self.s_per_tgt_token + max(self.s_fixed, 0.0) <= 0.0:
            raise ValueError("no request would take any time")
        return self


class Execution(Configuration):
    """Time of one request alone on the device."""

    kind: Kind
    plane: Plane
    residual_relative_sd: Annotated[float, Field(ge=0.0, le=10.0)]
    """Standard deviation of the mean-one lognormal factor on the plane's time."""
    fit: dict[str, Any] = Field(default_factory=dict)
    """How good the plane is: R2, errors, samples; and for an inferred one the assumptions and the spread over seeds."""


class Provenance(Configuration):
    """Where the numbers come from."""

    source: str
    date: str
    """ISO 8601."""
    tool: str
    """What wrote the file, with its version."""


class DeviceProfile(Configuration):
    """One device running one model."""

    schema_version: Literal[1]
    name: str
    device: Device
    model: Model
    length_unit: LengthUnit
    valid_range: ValidRange
    execution: Execution
    provenance: Provenance

    @property
    def plane(self) -> ExecutionPlane:
        """The execution plane, ready to compute."""
        return ExecutionPlane(**self.execution.plane.model_dump())

    @property
    def residual(self) -> LognormalResidual:
        """The residual model, ready to compute."""
        return LognormalResidual(self.execution.residual_relative_sd)

    def execution_s(
        self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64] | NDArray[np.float64], standard_normal: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """True execution times: the plane times a residual factor; all of shape (requests,), seconds."""
        return self.plane.seconds(src_len, tgt_len) * self.residual.factor(standard_normal)

    def outside(self, src_len: NDArray[np.int64], tgt_len: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which requests lie outside the range for which the profile holds."""
        (src_low, src_high), (tgt_low, tgt_high) = self.valid_range.src_len, self.valid_range.tgt_len
        return (src_len < src_low) | (src_len > src_high) | (tgt_len < tgt_low) | (tgt_len > tgt_high)


_PARTS = (DeviceProfile, Device, Model, LengthUnit, ValidRange, Execution, Plane, Provenance)
_KEYS = sorted({key for part in _PARTS for key in part.model_fields})
"""Every key that a profile may hold anywhere."""
_MEND = "mend the file, or make the profile again"


def read_profile(path: str | os.PathLike[str]) -> DeviceProfile:
    """Read and check a profile; raises `ProfileError` naming the place and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(
            f"cannot read the profile: {error.strerror}", path=path, remedy="name a readable file, or a shipped one as @name"
        ) from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"no UTF-8 text at byte {error.start}", path=path, remedy="a profile is a JSON file") from None
    try:
        content = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeated_keys)
    except json.JSONDecodeError as error:
        raise ProfileError(f"no JSON: {error.msg}", path=path, line=error.lineno, column=error.colno, remedy=_MEND) from None
    except ValueError as error:
        raise ProfileError(str(error), path=path, remedy=_MEND) from None
    except RecursionError:
        raise ProfileError("nested too deeply to be a profile", path=path, remedy=_MEND) from None
    if not isinstance(content, dict):
        raise ProfileError("a profile is a JSON object", path=path, remedy=_MEND)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise ProfileError(
            f"schema_version: {reprlib.repr(content.get('schema_version'))} where this simnmt reads {SCHEMA_VERSION}",
            path=path,
            remedy="make the profile again with this version",
        )
    try:
        return DeviceProfile.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        said, remedy = first["msg"].removeprefix("Value error, "), _MEND
        if first["type"] == "extra_forbidden":
            name = str(first["loc"][-1])
            near = None if name in _KEYS else nearest(name, _KEYS)
            said, remedy = "unknown key here", f"did you mean {near}?" if near else "remove it"
        raise ProfileError(f"{key}: {said}" if key else said, path=path, remedy=remedy) from None


def write_profile(path: str | os.PathLike[str], profile: DeviceProfile) -> None:
    """Write a profile whole or not at all; raises `ProfileError` where the file cannot be written."""
    try:
        with written_whole(path) as partial:
            partial.write_text(profile.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"cannot be written: {error.strerror}", path=path, remedy="choose another folder") from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number that a profile may hold")


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)} stands twice in one object")
    return content
