"""What a scenario file says of a network, and the link that comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from simnmt import shipped
from simnmt.configuration import Configuration
from simnmt.network.link import Link
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
    rtt_unit: Literal["ms", "s"] = "ms"
    """Unit of the column of round-trip times."""


class ConstantRtt(Configuration):
    """A network whose round-trip time never changes."""

    constant_ms: float = Field(gt=0, le=10_000)
    """The round-trip time, ms."""


def _one_form(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    # A plain union complains once per form; here the form is told by its key, and only that one complains.
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("name a file, or a shipped series as @name")
        return value
    if isinstance(value, Mapping):
        form = ConstantRtt if "constant_ms" in value else CsvRtt
        return form.model_validate(value)
    if isinstance(value, (CsvRtt, ConstantRtt)):
        return value
    raise ValueError('give "@name", a path, {csv: path} or {constant_ms: number}')


RttConfiguration = Annotated[str | CsvRtt | ConstantRtt, WrapValidator(_one_form)]
"""`"@cp1"`, `"my.csv"`, `{csv: my.csv, rtt_column: ...}` or `{constant_ms: 50}`."""


class NetworkConfiguration(Configuration):
    """The link between gateway and cloud."""

    rtt: RttConfiguration
    """Round-trip time: `@name`, a CSV path, `{csv: path, ...}` or `{constant_ms: number}`."""
    rtt_mean_ms: float | None = Field(default=None, gt=0, le=10_000)
    """Multiply the series so that its mean over time is this, ms; as it is when left out."""
    uplink_mbps: float = Field(default=100.0, ge=1e-6, le=1e9)
    """Bandwidth towards the cloud, Mbit/s."""
    downlink_mbps: float = Field(default=100.0, ge=1e-6, le=1e9)
    """Bandwidth from the cloud, Mbit/s."""
    clock: Literal["spread", "arrival", "own"] | None = None
    """When request i meets the series: `spread` evenly over one lap, whatever the policy; at its `arrival`;
    or on each policy's `own` clock. Left out: `spread` back to back, else `arrival`."""


def load_link(config: NetworkConfiguration, base: Path, name: str) -> Link:
    """Build the link called `name`; relative paths start at `base`.

    Raises `TraceError` for a series that cannot be used, `InputError` for an unknown `@name`.
    """
    series = _series(config.rtt, base, name)
    if config.rtt_mean_ms is not None:
        series = series.scaled_to_mean(config.rtt_mean_ms / 1e3)
    return Link(series, config.uplink_mbps * 1e6, config.downlink_mbps * 1e6)


def input_paths(config: NetworkConfiguration, base: Path) -> list[Path]:
    """Files that `load_link` reads."""
    return [] if isinstance(config.rtt, ConstantRtt) else [_path(_csv(config.rtt).csv, base)]


def resolved(config: NetworkConfiguration, base: Path) -> NetworkConfiguration:
    """The same network with its path made absolute; `@name` stays, as it means the same everywhere."""
    if isinstance(config.rtt, ConstantRtt):
        return config
    text = _csv(config.rtt).csv
    absolute = text if text.startswith("@") else str(_path(text, base))
    rtt = absolute if isinstance(config.rtt, str) else config.rtt.model_copy(update={"csv": absolute})
    return config.model_copy(update={"rtt": rtt})


def _series(rtt: str | CsvRtt | ConstantRtt, base: Path, name: str) -> RttSeries:
    if isinstance(rtt, ConstantRtt):
        return constant(rtt.constant_ms / 1e3, name)
    form = _csv(rtt)
    columns = form.model_dump(exclude={"csv"})
    return read_rtt_csv(_path(form.csv, base), name=name, **columns)


def _csv(rtt: str | CsvRtt) -> CsvRtt:
    return CsvRtt(csv=rtt) if isinstance(rtt, str) else rtt


def _path(text: str, base: Path) -> Path:
    return shipped.find("traces/rtt", text) if text.startswith("@") else (base / text).absolute()
