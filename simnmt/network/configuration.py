"""Configuration of a network in a scenario file, its RTT and its bandwidth, and the links that are built from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, SerializerFunctionWrapHandler, Tag, model_serializer

from simnmt.base.configuration import Configuration, InputFile, form_by_key
from simnmt.base.extension import Extended, Extensible, Extension, ExtensionError
from simnmt.base.laws import DrawnNumber
from simnmt.network.link import Link
from simnmt.network.outages import OutageConfiguration, outage_spans
from simnmt.network.series import BPS_PER, SECONDS_PER, BandwidthSeries, RttSeries, constant_rtt
from simnmt.network.series_csv import RateUnit, SeriesKind, read_series

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

    def _read(self, kind: type[SeriesKind], path: Path, name: str, column: str, unit: str | None) -> SeriesKind:
        times = {"time_column": self.time_column, "time_unit": self.time_unit}
        return read_series(kind, path, name=name, column=column, unit=unit, **times)


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
        return self._read(RttSeries, _RTT_FILE.path(self.csv, base), name, self.rtt_column, self.rtt_unit)


class ConstantRtt(Configuration):
    """A network whose round-trip time never changes."""

    constant_ms: float = Field(ge=1e-6, le=10_000)
    """The round-trip time, ms."""

    def series(self, base: Path, name: str) -> RttSeries:
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
        return self._read(BandwidthSeries, _BANDWIDTH_FILE.path(self.csv, base), name, self.column, self.unit)


class CustomRtt(Extended):
    """An RTT series that a user brings: an `RttSeries`, an array or a table."""

    def series(self, base: Path, name: str) -> RttSeries:
        """Return the series. Raises `ExtensionError`, or `TraceError` for values that make no series."""
        return _custom_series(RttSeries, self.extension, name, {"rtt_s": "s", "rtt_ms": "ms"})


class CustomBandwidth(Extended):
    """A bandwidth series that a user brings: a `BandwidthSeries`, an array or a table."""

    def series(self, base: Path, name: str) -> BandwidthSeries:
        return _custom_series(BandwidthSeries, self.extension, name, {unit: unit for unit in ("mbps", "gbps", "kbps", "bps")})


def _custom_series(kind: type[SeriesKind], extension: Extension, name: str, units: dict[str, str]) -> SeriesKind:
    """Return the series of an object; `units`: of a column of values by its name, an array is in the first."""
    value, label = extension.value, extension.label
    if isinstance(value, kind):
        return value
    try:
        if not hasattr(value, "columns"):
            value = dict(zip(("time_s", next(iter(units))), np.asarray(value, np.float64).T, strict=True))
        column = next(name for name in units if name in value)
        time_s = np.asarray(value["time_s"], np.float64)
        numbers = np.asarray(value[column], np.float64) * {**SECONDS_PER, **BPS_PER}[units[column]]
        if numbers.ndim != 1:
            raise ValueError
    except (KeyError, StopIteration, TypeError, ValueError):
        remedy = f"give an array of pairs, time_s and {next(iter(units))}, or a table with time_s and {' or '.join(units)}"
        raise ExtensionError(f"{label} is no series of {kind.quantity}s", remedy=remedy) from None
    if kind is BandwidthSeries:
        numbers[numbers == 0.0] = np.nan
    if np.isnan(numbers).all():
        raise ExtensionError(f"{label} holds no sample that arrived", remedy="give at least one")
    if doubt := kind.doubt_unit(numbers, units[column], is_stated=True):
        raise ExtensionError(f"{label}: {doubt[0]}", remedy=f"give values in {units[column]}")
    return kind.of_samples(name, "unstated", f"given in Python as {label}", time_s, numbers)


def _as_file(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("name a file, or a shipped series as @name")
    return {"csv": value}


def _as_file_of_rates(value: Any) -> Any:
    if isinstance(value, str) and re.match(_QUANTITY, value):
        remedy = "the unit stands in the key's name (write the number alone)"
        raise ValueError(f"expected a number, got the text {value!r}; {remedy}")
    return _as_file(value)


_QUANTITY = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*([kKmMgG]?(bps|bit/s))?\s*$"
# Only for the JSON Schema: the validators above report these faults in their own words.
_File = Annotated[str, Field(json_schema_extra={"pattern": r"\S"})]
_FileOfRates = Annotated[str, Field(json_schema_extra={"pattern": r"\S", "not": {"pattern": _QUANTITY}})]
_Mbps = Annotated[float, Field(ge=1e-6, le=1e9, strict=True, allow_inf_nan=False)]

RttConfiguration = Annotated[
    Annotated[CsvRtt, Tag("CsvRtt")] | Annotated[ConstantRtt, Tag("ConstantRtt")],
    Discriminator(
        form_by_key(CsvRtt, constant_ms=ConstantRtt),
        custom_error_type="no_rtt",
        custom_error_message='give "@name", a path, {csv: path} or {constant_ms: number}',
    ),
    BeforeValidator(_as_file, json_schema_input_type=_File | CsvRtt | ConstantRtt),
    Extensible(CustomRtt.of, takes_lists=True),
]
"""`"@cp1"`, `"my.csv"`, `{csv: my.csv, rtt_column: ...}` or `{constant_ms: 50}`."""
_form_of_mapping = form_by_key(CsvBandwidth)
BandwidthConfiguration = Annotated[
    Annotated[_Mbps, Tag("number")] | Annotated[CsvBandwidth, Tag("CsvBandwidth")],
    Discriminator(
        lambda value: "number" if isinstance(value, (int, float)) else _form_of_mapping(value),
        custom_error_type="no_bandwidth",
        custom_error_message='give a number of Mbit/s, "@name", a path or {csv: path}',
    ),
    BeforeValidator(_as_file_of_rates, json_schema_input_type=_Mbps | _FileOfRates | CsvBandwidth),
    Extensible(CustomBandwidth.of, takes_lists=True),
]
"""A number of Mbit/s, `"@name"`, `"my.csv"` or `{csv: my.csv, column: ...}`."""

MOST_MEAN_RTT_MS = 10_000
MeanRtt = Annotated[
    Annotated[float, Field(gt=0, le=MOST_MEAN_RTT_MS), Tag("number")] | Annotated[DrawnNumber, Tag("DrawnNumber")],
    Discriminator(lambda value: "DrawnNumber" if isinstance(value, (dict, DrawnNumber)) else "number"),
]
"""A number of ms, or the law from which each site draws one."""


class LinkConfiguration(Configuration):
    """A link between two tiers."""

    rtt: RttConfiguration
    """Round-trip time: `@name`, a CSV path, `{csv: path, ...}` or `{constant_ms: number}`."""
    rtt_mean_ms: MeanRtt | None = None
    """Multiply the series so that its mean over time is this, ms; left out, the series is unchanged. At sites also a law from
    which each site draws its mean, such as `{dist: lognorm, s: 0.5, scale: 40}`."""
    rtt_add_ms: Annotated[float, Field(ge=-10_000, le=10_000)] = 0.0
    """Add this to every RTT, ms, after `rtt_mean_ms`; below 0 it must leave every RTT above 0."""
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


_form_of_link = form_by_key(LinkConfiguration)
HopConfiguration = Annotated[
    Annotated[LinkConfiguration, Tag("LinkConfiguration")]
    | Annotated[list[LinkConfiguration], Field(min_length=1), Tag("list")],
    Discriminator(
        lambda value: "list" if isinstance(value, list) and value else _form_of_link(value),
        custom_error_type="no_link",
        custom_error_message="give a link {rtt: ...}, or a list of them",
    ),
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


Cached = Callable[[Hashable, Callable[[], Any]], Any]
AnyLink = TypeVar("AnyLink", bound=LinkConfiguration)
Key = tuple[str | int, ...]
"""Path to a link in a network: empty for the main one, else such as `("hops", "gateway", 1)`."""


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
    cached: Cached = lambda key, read: read(),
) -> Network:
    """Build the links of the network called `name`; relative paths start at `base`.

    Each series is read within the context `named_by(*key)` of its key, such as `named_by("hops", "gateway", 1, "rtt")`, which
    may add the place of the key to an error. `cached(key, read)` returns what it has read under a key, or reads it; scaling is
    done anew. Raises `TraceError` for a series that cannot be used, `InputError` for an unknown `@name`.
    """
    main: list[Link] = []
    hops: dict[str, list[Link]] = {}
    for key, part in links_of(config):
        label = f"{name} to {key[1]}" if key else name
        if len(key) > 2:
            label += f", {int(key[2]) + 1}"
        with named_by(*key, "rtt"):
            rtt = _read(part.rtt, base, label, cached)
            if isinstance(part.rtt_mean_ms, (int, float)):
                rtt = rtt.scaled_to_mean(part.rtt_mean_ms / 1e3)
        if part.rtt_add_ms:
            with named_by(*key, "rtt_add_ms"):
                rtt = rtt.shifted(part.rtt_add_ms / 1e3)
        rates: list[float | BandwidthSeries] = []
        for direction, mbps in {"uplink": part.uplink_mbps, "downlink": part.downlink_mbps}.items():
            with named_by(*key, f"{direction}_mbps"):
                rates.append(
                    mbps * 1e6 if isinstance(mbps, (int, float)) else _read(mbps, base, f"{label}, {direction}", cached)
                )
        costs = part.joules_per_byte or 0.0, part.price_per_gb or 0.0
        into = hops.setdefault(str(key[1]), []) if key else main
        into.append(Link(rtt, rates[0], rates[1], part.outages, *costs))
        if part.outages == "trace":
            with named_by(*key, "outages"):
                outage_spans("trace", (0, 0, ""), rtt, 0.0)  # raises if no sample is lost
    per_node_devices = frozenset(device for device, parts in config.hops.items() if isinstance(parts, list))
    return Network(main[0], {device: tuple(links) for device, links in hops.items()}, per_node_devices)


def _read(config: Any, base: Path, name: str, cached: Cached) -> Any:
    """Return the series of a configuration. An object of Python is never cached: its class is all that its text has."""
    read = partial(config.series, base, name)
    if isinstance(config, Extended):
        return read()
    return cached((type(config), config.model_dump_json(), base), read).named(name)


def with_drawn_means(config: NetworkConfiguration, draw: Callable[[Key, DrawnNumber], float]) -> NetworkConfiguration:
    """Return the network with each law of an `rtt_mean_ms` replaced by the number that `draw(key, law)` returns."""

    def drawn(part: AnyLink, *key: str | int) -> AnyLink:
        law = part.rtt_mean_ms
        return part.model_copy(update={"rtt_mean_ms": draw(key, law)}) if isinstance(law, DrawnNumber) else part

    def of_hop(device: str, parts: HopConfiguration) -> HopConfiguration:
        if isinstance(parts, list):
            return [drawn(part, "hops", device, index) for index, part in enumerate(parts)]
        return drawn(parts, "hops", device)

    hops = {device: of_hop(device, parts) for device, parts in config.hops.items()}
    return drawn(config).model_copy(update={"hops": hops} if hops else {})


def links_of(config: NetworkConfiguration) -> Iterator[tuple[Key, LinkConfiguration]]:
    """Yield every link of a network with its key; the key of the main link is empty."""
    yield (), config
    for device, parts in config.hops.items():
        if isinstance(parts, list):
            yield from ((("hops", device, index), part) for index, part in enumerate(parts))
        else:
            yield ("hops", device), parts
