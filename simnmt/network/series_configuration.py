"""What a scenario file says of an RTT or of a bandwidth: a number, or a series of them in a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from simnmt import shipped
from simnmt.configuration import Configuration
from simnmt.network.bandwidth_csv import BPS_PER, RateUnit, read_bandwidth_csv
from simnmt.network.bandwidth_series import BandwidthSeries
from simnmt.network.rtt_csv import read_rtt_csv
from simnmt.network.rtt_series import RttSeries, constant


class CsvRtt(Configuration):
    """An RTT series from a CSV file whose first row names its columns."""

    csv: str = Field(min_length=1)
    """The file: `@name` for a shipped one, else a path relative to the scenario file."""
    time_column: str = "time_s"
    """Name of the column of times."""
    rtt_column: str = "rtt_ms"
    """Name of the column of round-trip times; an empty cell is a lost sample."""
    time_unit: Literal["s", "ms"] = "s"
    """Unit of the column of times."""
    rtt_unit: Literal["ms", "s"] | None = None
    """Unit of the column of round-trip times; left out, ms, unless the numbers look like seconds: then it has to be stated."""


class ConstantRtt(Configuration):
    """A network whose round-trip time never changes."""

    constant_ms: float = Field(ge=1e-6, le=10_000)
    """The round-trip time, ms."""


class CsvBandwidth(Configuration):
    """A bandwidth series from a CSV file whose first row names its columns."""

    csv: str = Field(min_length=1)
    """The file: `@name` for a shipped one, else a path relative to the scenario file."""
    time_column: str = "time_s"
    """Name of the column of times."""
    column: str = "mbps"
    """Name of the column of bandwidths; an empty cell or 0 is a lost sample."""
    time_unit: Literal["s", "ms"] = "s"
    """Unit of the column of times."""
    unit: RateUnit | None = None
    """Unit of the column of bandwidths; left out, the one that the column's name ends with, else mbps."""


# A plain union complains once per form; here the form is told by its key, and only that one complains.


def _one_rtt(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str):
        return _file_name(value)
    if isinstance(value, Mapping):
        form = ConstantRtt if "constant_ms" in value else CsvRtt
        return form.model_validate(value)
    if isinstance(value, (CsvRtt, ConstantRtt)):
        return value
    raise ValueError('give "@name", a path, {csv: path} or {constant_ms: number}')


def _one_bandwidth(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str):
        if quantity := _QUANTITY.fullmatch(value.strip()):
            mbps = float(quantity[1]) * _MBPS_PER[quantity[2].lower()]
            said = f"expected a number, got the text {value!r}; the unit stands in the key's name (write {mbps:.12g})"
            raise ValueError(said)
        return _file_name(value)
    if isinstance(value, Mapping):
        return CsvBandwidth.model_validate(value)
    if isinstance(value, CsvBandwidth):
        return value
    if isinstance(value, (int, float)):
        return _MBPS.validate_python(value)
    raise ValueError('give a number of Mbit/s, "@name", a path or {csv: path}')


def _file_name(value: str) -> str:
    if not value.strip():
        raise ValueError("name a file, or a shipped series as @name")
    return value


# For the JSON Schema alone: the validators below complain of these in words of their own.
_FILE = {"pattern": r"\S"}
_FILE_OF_RATES = {**_FILE, "not": {"pattern": r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*([kKmMgG]?(bps|bit/s))?\s*$"}}
_Mbps = Annotated[float, Field(ge=1e-6, le=1e9, strict=True, allow_inf_nan=False)]
_MBPS: TypeAdapter[float] = TypeAdapter(_Mbps)
_MBPS_PER = {"": 1.0, **{unit: bps / 1e6 for unit, bps in BPS_PER.items()}, "gbps": 1e3}
_MBPS_PER |= {"bit/s": 1e-6, "kbit/s": 1e-3, "mbit/s": 1.0, "gbit/s": 1e3}
_QUANTITY = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*((?:[kKmMgG]?(?:bps|bit/s))?)")

RttConfiguration = Annotated[Annotated[str, Field(json_schema_extra=_FILE)] | CsvRtt | ConstantRtt, WrapValidator(_one_rtt)]
"""`"@cp1"`, `"my.csv"`, `{csv: my.csv, rtt_column: ...}` or `{constant_ms: 50}`."""
BandwidthConfiguration = Annotated[
    _Mbps | Annotated[str, Field(json_schema_extra=_FILE_OF_RATES)] | CsvBandwidth,
    WrapValidator(_one_bandwidth),
]
"""A number of Mbit/s, `"@name"`, `"my.csv"` or `{csv: my.csv, column: ...}`."""

ShippedKind = Literal["traces/rtt", "traces/bandwidth"]

Form = float | str | CsvRtt | ConstantRtt | CsvBandwidth
"""Either of them once read."""


def rtt_series(rtt: str | CsvRtt | ConstantRtt, base: Path, name: str) -> RttSeries:
    """The series called `name`; a relative path starts at `base`.

    Raises `TraceError` for a file that cannot be used, `InputError` for an unknown `@name`.
    """
    if isinstance(rtt, ConstantRtt):
        return constant(rtt.constant_ms / 1e3, name)
    form = CsvRtt(csv=rtt) if isinstance(rtt, str) else rtt
    return read_rtt_csv(path_of(form.csv, base, "traces/rtt"), name=name, **form.model_dump(exclude={"csv"}))


def bandwidth_bps(mbps: float | str | CsvBandwidth, base: Path, name: str) -> float | BandwidthSeries:
    """Bits per second, or the series of them called `name`; raises as `rtt_series` does."""
    if isinstance(mbps, (int, float)):
        return mbps * 1e6
    form = CsvBandwidth(csv=mbps) if isinstance(mbps, str) else mbps
    return read_bandwidth_csv(path_of(form.csv, base, "traces/bandwidth"), name=name, **form.model_dump(exclude={"csv"}))


def file_of(form: Form) -> str | None:
    """The file as it is named; None where there is none."""
    if isinstance(form, (CsvRtt, CsvBandwidth)):
        return form.csv
    return form if isinstance(form, str) else None


def with_file(form: Form, file: str) -> Form:
    """The same with its file named otherwise; for a form that names one."""
    return form.model_copy(update={"csv": file}) if isinstance(form, (CsvRtt, CsvBandwidth)) else file


def path_of(file: str, base: Path, kind: ShippedKind) -> Path:
    """Where a file lies: among those that are shipped, or from `base`."""
    return shipped.find(kind, file) if file.startswith("@") else (base / file).absolute()
