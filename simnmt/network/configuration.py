"""What a scenario file says of a network, and the links that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, TypeAdapter, ValidatorFunctionWrapHandler, WrapValidator

from simnmt.configuration import Configuration
from simnmt.network.link import Link
from simnmt.network.series_configuration import (
    BandwidthConfiguration,
    Form,
    RttConfiguration,
    ShippedKind,
    bandwidth_bps,
    file_of,
    path_of,
    rtt_series,
    with_file,
)


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
    own: frozenset[str] = frozenset()
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
    own = frozenset(device for device, parts in config.hops.items() if isinstance(parts, list))
    return Network(main[0], {device: tuple(links) for device, links in hops.items()}, own)


def input_paths(config: NetworkConfiguration, base: Path) -> dict[str, Path]:
    """Files that `load_network` reads, by the name each has: its `@name`, else its absolute path."""
    found = {}
    for _, part in _links(config):
        for key, kind in _KINDS.items():
            file = file_of(getattr(part, key))
            if file is not None:
                path = path_of(file, base, kind)
                found[file if file.startswith("@") else str(path)] = path
    return found


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
