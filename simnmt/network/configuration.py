"""Configuration of a network in a scenario file, its RTT and its bandwidth, and the links that are built from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_serializer,
)

from simnmt.base.configuration import Configuration, InputFile
from simnmt.base.extension import Extensible
from simnmt.network.custom import CustomBandwidth, CustomRtt
from simnmt.network.link import Link
from simnmt.network.outages import OutageConfiguration, TraceOutages
from simnmt.network.series import BPS_PER, BandwidthSeries, RttSeries, constant_rtt
from simnmt.network.series_csv import RateUnit, read_bandwidth_csv, read_rtt_csv

_RTT_FILE, _BANDWIDTH_FILE = InputFile("traces/rtt"), InputFile("traces/bandwidth")


class _SeriesFile(Configuration):
    """A CSV file whose first row names its columns; dumped as its name alone if nothing else is stated."""

    csv: str
    time_column: str = "time_s"
    """Name of the column of times."""
    time_unit: Literal["s", "ms"] = "s"
    """Unit of the column of times."""

    @model_serializer(mode="wrap")
    def _shortest(self, handler: SerializerFunctionWrapHandler) -> Any:
        return self.csv if self.model_fields_set == {"csv"} else handler(self)

    def _columns(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in type(self).model_fields if key != "csv"}


class CsvRtt(_SeriesFile):
    """An RTT series from a CSV file whose first row names its columns."""

    csv: Annotated[str, _RTT_FILE, Field(min_length=1)]
    """The file: `@name` for a shipped one, else a path relative to the scenario file."""
    rtt_column: str = "rtt_ms"
    """Name of the column of round-trip times; an empty cell is a lost sample."""
    rtt_unit: Literal["ms", "s"] | None = None
    """Unit of the column of round-trip times; left out, ms, unless the numbers look like seconds: then it has to be stated."""

    def series(self, base: Path, name: str) -> RttSeries:
        """Read the series, which gets the name `name`. Raises `TraceError` or, for an unknown `@name`, `InputError`."""
        return read_rtt_csv(_RTT_FILE.path(self.csv, base), name=name, **self._columns())


class ConstantRtt(Configuration):
    """A network whose round-trip time never changes."""

    constant_ms: float = Field(ge=1e-6, le=10_000)
    """The round-trip time, ms."""

    def series(self, base: Path, name: str) -> RttSeries:
        """Return a series of one value."""
        return constant_rtt(self.constant_ms / 1e3, name)


class CsvBandwidth(_SeriesFile):
    """A bandwidth series from a CSV file whose first row names its columns."""

    csv: Annotated[str, _BANDWIDTH_FILE, Field(min_length=1)]
    """The file: `@name` for a shipped one, else a path relative to the scenario file."""
    column: str = "mbps"
    """Name of the column of bandwidths; an empty cell or 0 is a lost sample."""
    unit: RateUnit | None = None
    """Unit of the column of bandwidths; left out, the one that the column's name ends with, else mbps."""

    def series(self, base: Path, name: str) -> BandwidthSeries:
        """Read the series, which gets the name `name`. Raises `TraceError` or, for an unknown `@name`, `InputError`."""
        return read_bandwidth_csv(_BANDWIDTH_FILE.path(self.csv, base), name=name, **self._columns())


# A plain union reports an error for each form; these validators pick the form first, so that only its errors are reported.


def _one_rtt(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str):
        return CsvRtt(csv=_file_name(value))
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
        return CsvBandwidth(csv=_file_name(value))
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


# Only for the JSON Schema: the validators above report these faults in their own words.
_FILE = {"pattern": r"\S"}
_FILE_OF_RATES = {**_FILE, "not": {"pattern": r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*([kKmMgG]?(bps|bit/s))?\s*$"}}
_Mbps = Annotated[float, Field(ge=1e-6, le=1e9, strict=True, allow_inf_nan=False)]
_MBPS: TypeAdapter[float] = TypeAdapter(_Mbps)
_MBPS_PER = {"": 1.0, **{unit: bps / 1e6 for unit, bps in BPS_PER.items()}}
_MBPS_PER |= {"bit/s": 1e-6, "kbit/s": 1e-3, "mbit/s": 1.0, "gbit/s": 1e3}
_QUANTITY = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*((?:[kKmMgG]?(?:bps|bit/s))?)")

RttConfiguration = Annotated[
    CsvRtt | ConstantRtt,
    WrapValidator(_one_rtt, json_schema_input_type=Annotated[str, Field(json_schema_extra=_FILE)] | CsvRtt | ConstantRtt),
    Extensible(CustomRtt.of, takes_lists=True),
]
"""`"@cp1"`, `"my.csv"`, `{csv: my.csv, rtt_column: ...}` or `{constant_ms: 50}`."""
BandwidthConfiguration = Annotated[
    _Mbps | CsvBandwidth,
    WrapValidator(
        _one_bandwidth,
        json_schema_input_type=_Mbps | Annotated[str, Field(json_schema_extra=_FILE_OF_RATES)] | CsvBandwidth,
    ),
    Extensible(CustomBandwidth.of, takes_lists=True),
]
"""A number of Mbit/s, `"@name"`, `"my.csv"` or `{csv: my.csv, column: ...}`."""


def _bandwidth_bps(mbps: float | CsvBandwidth, base: Path, name: str) -> float | BandwidthSeries:
    return mbps * 1e6 if isinstance(mbps, (int, float)) else mbps.series(base, name)


class LinkConfiguration(Configuration):
    """A link between two tiers."""

    rtt: RttConfiguration
    """Round-trip time: `@name`, a CSV path, `{csv: path, ...}` or `{constant_ms: number}`."""
    rtt_mean_ms: float | None = Field(default=None, gt=0, le=10_000)
    """Multiply the series so that its mean over time is this, ms; left out, the series is unchanged."""
    uplink_mbps: BandwidthConfiguration = 100.0
    """Bandwidth towards the cloud, Mbit/s: a number, or a series as `@name`, a CSV path or `{csv: path, ...}`."""
    downlink_mbps: BandwidthConfiguration = 100.0
    """Bandwidth from the cloud, Mbit/s: a number, or a series as `@name`, a CSV path or `{csv: path, ...}`."""
    joules_per_byte: Annotated[float, Field(ge=0.0, le=1e3)] | None = None
    """Energy that each byte of a request takes on this link, in either direction, J; left out: none is counted."""
    price_per_gb: Annotated[float, Field(ge=0.0, le=1e9)] | None = None
    """Price of 10^9 bytes on this link, in either direction; left out: they cost nothing."""
    outages: OutageConfiguration | None = None
    """When nothing crosses the link: `trace` (where samples of the RTT were lost), a process or a list of intervals."""


def _one_or_many(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
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
"""One link for all end nodes, or several that are dealt to the end nodes in rotation."""


class NetworkConfiguration(LinkConfiguration):
    """The link that leads to the last device, usually the cloud, and those before it."""

    clock: Literal["pace", "spread", "arrival", "own"] | None = None
    """When request i meets the series. At times that no policy moves: at `i x pace_s` (`pace`), `spread` evenly over one lap,
    or at its `arrival`; or on each policy's `own` clock. Left out: `pace` for requests back to back, else `arrival`."""
    pace_s: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None
    """Seconds of the series from one request to the next on the clock `pace`; left out: the mean latency of the fixed policy
    that sends everything to the first device."""
    hops: dict[str, HopConfiguration] = Field(default={})
    """Links of nearer tiers by the device they lead to, from the device before it. A list is dealt to the end nodes in
    rotation; each node starts at its own moment of the series."""


@dataclass(frozen=True, slots=True)
class Network:
    """The links of one network."""

    link: Link
    """The link to the last device."""
    hops: dict[str, tuple[Link, ...]]
    """Links by the device they lead to, dealt to the end nodes in rotation."""
    per_node_devices: frozenset[str] = frozenset()
    """Devices to which every end node has its own link, since the scenario gives a list of links."""


def load_network(
    config: NetworkConfiguration,
    base: Path,
    name: str,
    named_by: Callable[..., AbstractContextManager[None]] = lambda *key: nullcontext(),
) -> Network:
    """Build the links of the network called `name`; relative paths start at `base`.

    Each series is read within the context `named_by(*key)` of its key, such as `named_by("hops", "gateway", 1, "rtt")`, which
    may add the place of the key to an error. Raises `TraceError` for a series that cannot be used, `InputError` for an unknown
    `@name`.
    """
    main: list[Link] = []
    hops: dict[str, list[Link]] = {}
    for key, part in links_of(config):
        label = f"{name} to {key[1]}" if key else name
        if len(key) > 2:
            label += f", {int(key[2]) + 1}"
        with named_by(*key, "rtt"):
            rtt = part.rtt.series(base, label)
            if part.rtt_mean_ms is not None:
                rtt = rtt.scaled_to_mean(part.rtt_mean_ms / 1e3)
        with named_by(*key, "uplink_mbps"):
            uplink_bps = _bandwidth_bps(part.uplink_mbps, base, f"{label}, uplink")
        with named_by(*key, "downlink_mbps"):
            downlink_bps = _bandwidth_bps(part.downlink_mbps, base, f"{label}, downlink")
        into = hops.setdefault(str(key[1]), []) if key else main
        costs = (part.joules_per_byte or 0.0, part.price_per_gb or 0.0)
        into.append(Link(rtt, uplink_bps, downlink_bps, part.outages, *costs))
        if isinstance(part.outages, TraceOutages) and not rtt.lost_spans_s:
            with named_by(*key, "outages"):
                part.outages.spans((0, 0, ""), rtt, 0.0)
    per_node_devices = frozenset(device for device, parts in config.hops.items() if isinstance(parts, list))
    return Network(main[0], {device: tuple(links) for device, links in hops.items()}, per_node_devices)


def links_of(config: NetworkConfiguration) -> Iterator[tuple[tuple[str | int, ...], LinkConfiguration]]:
    """Yield every link of a network with its key; the key of the main link is empty."""
    yield (), config
    for device, parts in config.hops.items():
        if isinstance(parts, list):
            for index, part in enumerate(parts):
                yield ("hops", device, index), part
        else:
            yield ("hops", device), parts
