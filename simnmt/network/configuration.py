"""What a scenario file may say of a network, its RTT and its bandwidth, and how links are built from that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from simnmt.base import shipped_files
from simnmt.base.configuration import Configuration
from simnmt.network.link import Link
from simnmt.network.series import BandwidthSeries, RttSeries, constant_rtt
from simnmt.network.series_csv import BPS_PER, RateUnit, read_bandwidth_csv, read_rtt_csv


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
            message = f"expected a number, got the text {value!r}; the unit stands in the key's name (write {mbps:.12g})"
            raise ValueError(message)
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
        return constant_rtt(rtt.constant_ms / 1e3, name)
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
    return shipped_files.find(kind, file) if file.startswith("@") else (base / file).absolute()


class LinkConfiguration(Configuration):
    """A link between two tiers."""

    rtt: RttConfiguration
    """Round-trip time: `@name`, a CSV path, `{csv: path, ...}` or `{constant_ms: number}`."""
    rtt_mean_ms: float | None = Field(default=None, gt=0, le=10_000)
    """Multiply the series so that its mean over time is this, ms; as it is when left out."""
    uplink_mbps: BandwidthConfiguration = 100.0
    """Bandwidth towards the cloud, Mbit/s: a number, or a series as `@name`, a CSV path or `{csv: path, ...}`."""
    downlink_mbps: BandwidthConfiguration = 100.0
    """Bandwidth from the cloud, Mbit/s: a number, or a series as `@name`, a CSV path or `{csv: path, ...}`."""


def _one_or_many(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    # As for the forms of a series: only the one that was meant complains.
    if isinstance(value, list) and value:
        return _MANY.validate_python(value)
    if isinstance(value, LinkConfiguration):
        return value
    if isinstance(value, Mapping):
        return LinkConfiguration.model_validate(value)
    raise ValueError("give a link {rtt: ...}, or a list of them")


_MANY = TypeAdapter(list[LinkConfiguration])
HopConfiguration = Annotated[
    LinkConfiguration | Annotated[list[LinkConfiguration], Field(min_length=1)], WrapValidator(_one_or_many)
]
"""One link for all end nodes, or several that are dealt to them in turn."""


def _pace_form(value: Any) -> str:
    """The tag of the form that a pace means to have; it is no key of the scenario."""
    return "computed" if isinstance(value, str) else "by_workload" if isinstance(value, dict) else "one"


Pace = Annotated[float, Field(ge=1e-6, le=1e6)]
PaceConfiguration = Annotated[
    Annotated[Literal["auto"], Tag("computed")] | Annotated[dict[str, Pace], Tag("by_workload")] | Annotated[Pace, Tag("one")],
    Discriminator(_pace_form),
]
"""Seconds of a trace from one request to the next: computed before the run, one for all workloads, or one per workload."""


class NetworkConfiguration(LinkConfiguration):
    """The link that leads to the last device, usually the cloud, and those before it."""

    clock: Literal["pace", "spread", "arrival", "own"] | None = None
    """When request i meets the series. Whatever the policy: at `i x pace_s` (`pace`), or `spread` evenly over one lap; else at
    its `arrival`, or on each policy's `own` clock. Left out: `pace` back to back, else `arrival`."""
    pace_s: PaceConfiguration = "auto"
    """Seconds of the series from one request to the next on the clock `pace`, or one number per workload. `auto`: the mean
    latency of the fixed policy that sends everything to the first device."""
    hops: dict[str, HopConfiguration] = Field(default={})
    """Links of nearer tiers by the device they lead to, from the device before it. A list is dealt to the end nodes in turn;
    each node starts at a moment of its own on the series."""


@dataclass(frozen=True, slots=True)
class Network:
    """The links of one network."""

    link: Link
    """Leads to the last device."""
    hops: dict[str, tuple[Link, ...]]
    """By the device they lead to; dealt to the end nodes in turn."""
    per_node_devices: frozenset[str] = frozenset()
    """Devices to which every end node has a link of its own, as the scenario gives a list of them."""


def _unnamed(*key: str | int) -> AbstractContextManager[None]:
    return nullcontext()


def load_network(
    config: NetworkConfiguration,
    base: Path,
    name: str,
    named_by: Callable[..., AbstractContextManager[None]] = _unnamed,
) -> Network:
    """Build the links of the network called `name`; relative paths start at `base`.

    What a key names is read within `named_by(*key)`, as in `named_by("hops", "gateway", 1, "rtt")`, which may add to a
    complaint where that key stands. Raises `TraceError` for a series that cannot be used, `InputError` for an unknown `@name`.
    """
    main: list[Link] = []
    hops: dict[str, list[Link]] = {}
    for key, part in _links(config):
        label = f"{name} to {key[1]}" if key else name
        if len(key) > 2:
            label += f", {int(key[2]) + 1}"
        with named_by(*key, "rtt"):
            rtt = rtt_series(part.rtt, base, label)
            if part.rtt_mean_ms is not None:
                rtt = rtt.scaled_to_mean(part.rtt_mean_ms / 1e3)
        with named_by(*key, "uplink_mbps"):
            uplink_bps = bandwidth_bps(part.uplink_mbps, base, f"{label}, uplink")
        with named_by(*key, "downlink_mbps"):
            downlink_bps = bandwidth_bps(part.downlink_mbps, base, f"{label}, downlink")
        into = hops.setdefault(str(key[1]), []) if key else main
        into.append(Link(rtt, uplink_bps, downlink_bps))
    per_node_devices = frozenset(device for device, parts in config.hops.items() if isinstance(parts, list))
    return Network(main[0], {device: tuple(links) for device, links in hops.items()}, per_node_devices)


def input_paths(config: NetworkConfiguration, base: Path) -> dict[str, Path]:
    """Return the files that `load_network` reads, by `@name` or else by absolute path."""
    paths = {}
    for _, part in _links(config):
        for key, kind in _KINDS.items():
            file = file_of(getattr(part, key))
            if file is not None:
                path = path_of(file, base, kind)
                paths[file if file.startswith("@") else str(path)] = path
    return paths


def resolved(config: NetworkConfiguration, base: Path) -> NetworkConfiguration:
    """The same network with its paths made absolute; `@name` stays, as it means the same everywhere."""
    hops = {
        device: [_resolved(part, base) for part in parts] if isinstance(parts, list) else _resolved(parts, base)
        for device, parts in config.hops.items()
    }
    return _resolved(config, base).model_copy(update={"hops": hops})


def _links(config: NetworkConfiguration) -> Iterator[tuple[tuple[str | int, ...], LinkConfiguration]]:
    """Every link of a network by its key; the main one's is empty."""
    yield (), config
    for device, parts in config.hops.items():
        if isinstance(parts, list):
            for index, part in enumerate(parts):
                yield ("hops", device, index), part
        else:
            yield ("hops", device), parts


_KINDS: dict[str, ShippedKind] = {
    "rtt": "traces/rtt",
    "uplink_mbps": "traces/bandwidth",
    "downlink_mbps": "traces/bandwidth",
}
"""The keys of a link that may name a file, and where the shipped ones of that kind lie."""

_Part = TypeVar("_Part", bound=LinkConfiguration)


def _resolved(part: _Part, base: Path) -> _Part:
    changed: dict[str, Form] = {}
    for key, kind in _KINDS.items():
        form = getattr(part, key)
        file = file_of(form)
        if file is not None and not file.startswith("@"):
            changed[key] = with_file(form, str(path_of(file, base, kind)))
    return part.model_copy(update=changed)
