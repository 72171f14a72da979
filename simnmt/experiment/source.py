"""Open a scenario from a file, a shipped `@name`, a run directory to be repeated, or a mapping, and check that its parts fit.

The check concerns what no single key can know: whether devices, links, clocks and policies fit together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from simnmt.base import shipped_files
from simnmt.base.suggestions import did_you_mean
from simnmt.experiment.comparisons import gap_analysis_policy
from simnmt.experiment.inputs import input_files
from simnmt.experiment.routes import clock_kind
from simnmt.policies.configuration import FixedPolicy, Probing
from simnmt.results.device_accounts import BATCH_SHARES
from simnmt.results.device_accounts import STREAMING_SHARES as STREAMED_SHARES
from simnmt.results.run_directory import INPUT, RESOLVED, check_unchanged, read_manifest
from simnmt.scenario.configuration import END_NODE, Scenario, resolved
from simnmt.scenario.document import Document, Override, apply_overrides, document_of, read_document
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document
from simnmt.workload.arrivals import BackToBack

_RESERVED_NAMES = ("offloaded", "misrouted")
"""Words that the summary's columns begin with."""


def check_topology(scenario: Scenario, document: Document) -> None:
    """Raises `ScenarioError` at the key that is to be changed."""
    _check_devices(scenario, document)
    _check_profiles(scenario, document)
    _check_batching(scenario, document)
    _check_streaming(scenario, document)
    _check_hops(scenario, document)
    _check_clocks(scenario, document)
    _check_policies(scenario, document)


def _check_devices(scenario: Scenario, document: Document) -> None:
    names = list(scenario.devices)
    for name in names:
        if name in _RESERVED_NAMES or name.endswith("_busiest"):
            what = f"{name} would stand for other numbers of the summary, such as {name}_share or {name}_load"
            raise document.error(("devices", name), what, remedy="call the device otherwise", key=True)
        for shares, of in ((_batch_share_names, "batches"), (_streaming_share_names, "streaming")):
            other = next((other for other in names if name in shares(scenario, other)), None)
            if other is not None:
                what = f"{name}_share would stand for a number of the {of} of {other}, too"
                raise document.error(("devices", name), what, remedy="call the device otherwise", key=True)
    if END_NODE in names[1:]:
        raise document.error(
            ("devices", END_NODE),
            "stands behind another device",
            remedy=f"name the devices nearest first: {END_NODE} comes first",
            key=True,
        )
    first = scenario.devices[names[0]]
    if names[0] == END_NODE and first.count is not None:
        raise document.error(
            ("devices", END_NODE, "count"),
            "every end node has one",
            remedy="remove it; workloads.NAME.end_nodes says how many",
            key=True,
        )
    if first.balancer not in (None, "attached"):
        raise document.error(
            ("devices", names[0], "balancer"),
            f"end nodes are attached to the first device, so {first.balancer} has nothing to choose",
            remedy="remove it",
            key=True,
        )
    _check_counts(scenario, document)


def _batch_share_names(scenario: Scenario, name: str) -> list[str]:
    """Names with which a column of another device would be one of this device's batches (`results.device_accounts`)."""
    return [f"{name}_{kind}" for kind in BATCH_SHARES] if scenario.devices[name].batching is not None else []


def _streaming_share_names(scenario: Scenario, name: str) -> list[str]:
    """The same of a device whose model is streamed (`results.streamed`)."""
    return [f"{name}_{kind}" for kind in STREAMED_SHARES] if scenario.devices[name].sti is not None else []


def _check_counts(scenario: Scenario, document: Document) -> None:
    """Boxes to which end nodes are attached need as many end nodes, else some of them would never be asked for anything."""
    for name, device in scenario.devices.items():
        if name == END_NODE or scenario.balancer_of(name) != "attached":
            continue
        for workload, part in scenario.workloads.items():
            asking = min(part.end_nodes, getattr(part.arrivals, "clients", part.end_nodes))
            if (device.count or 1) > asking:
                nodes = f"{asking} end node{'s' * (asking != 1)}"
                raise document.error(
                    ("devices", name, "count"),
                    f"{device.count} boxes, but workload {workload} has {nodes} to attach to them, so some would never be used",
                    remedy=f"set workloads.{workload}.end_nodes, and clients in a closed loop, to {device.count} or more",
                )


def _check_profiles(scenario: Scenario, document: Document) -> None:
    """A device that names its profiles by workload must name one for each, and no other."""
    for name, device in scenario.devices.items():
        if isinstance(device.profile, dict) and set(device.profile) != set(scenario.workloads):
            raise document.error(
                ("devices", name, "profile"),
                f"names {', '.join(sorted(device.profile))} where the workloads are {', '.join(sorted(scenario.workloads))}",
                remedy="give one profile for each, or a single one for all",
            )


def _check_batching(scenario: Scenario, document: Document) -> None:
    """Whoever decodes a batch decodes it on the whole box."""
    for name, device in scenario.devices.items():
        if device.batching is None:
            if device.beyond_measured_batch:
                raise document.error(
                    ("devices", name, "beyond_measured_batch"),
                    "there are no batches without batching",
                    remedy=f"remove it, or give devices.{name}.batching",
                    key=True,
                )
        elif device.workers > 1:
            raise document.error(
                ("devices", name, "workers"),
                f"{device.workers} workers, but a box that batches decodes all that it decodes together, as one",
                remedy=f"remove it; more boxes are devices.{name}.count, larger batches devices.{name}.batching.size",
                key=True,
            )


def _check_streaming(scenario: Scenario, document: Document) -> None:
    """A box that streams its model has one disk and one processor, which execute one request after the other."""
    for name, device in scenario.devices.items():
        if device.sti is None:
            continue
        place = ("devices", name)
        if device.batching is not None:
            what = "a box that streams its model layer by layer decodes one sentence at a time, so it forms no batches"
            raise document.error((*place, "batching"), what, remedy=f"remove it, or remove devices.{name}.sti", key=True)
        if device.workers > 1:
            what = f"{device.workers} workers, but a box that streams its model has one disk and one working buffer"
            remedy = f"remove it; more boxes are devices.{name}.count"
            raise document.error((*place, "workers"), what, remedy=remedy, key=True)
        if device.decoder is not None:
            what = "the times of a streamed model are those of the profile's block sti, which knows one decoder"
            raise document.error((*place, "decoder"), what, remedy=f"remove it, or remove devices.{name}.sti", key=True)


def _check_hops(scenario: Scenario, document: Document) -> None:
    """Every device behind the first needs a link that leads to it; the last one's is the network itself."""
    devices = list(scenario.devices)
    from_end_nodes = devices[min(1, len(devices) - 1)] if devices[0] == END_NODE else devices[0]
    # The network itself leads to the last device, also if that is the only one.
    optional = [] if devices[0] == END_NODE or len(devices) == 1 else [devices[0]]
    required = devices[1:-1]
    for network, configuration in scenario.networks.items():
        place = ("networks", network, "hops")
        for device, links in configuration.hops.items():
            if device in (*optional, *required):
                if isinstance(links, list) and device != from_end_nodes:
                    what = "a list of links is for the way from the end nodes, but what leads here is shared by all"
                    raise document.error((*place, device), what, remedy="give one link")
                continue
            if device == devices[-1]:
                what, remedy = f"{device} is the last device", f"its link is networks.{network} itself: rtt, uplink_mbps, ..."
            elif device == END_NODE:
                what, remedy = "no link leads to an end node", "remove it"
            else:
                what, remedy = f"no device is called {device}", did_you_mean(device, [*optional, *required])
            raise document.error((*place, device), what, remedy=remedy, key=True)
        for before, device in zip(devices, required, strict=False):
            if device not in configuration.hops:
                raise document.error(
                    place if configuration.hops else ("networks", network),
                    f"{device} cannot be reached: no link leads there from {before}",
                    remedy=f"give networks.{network}.hops.{device}, such as {{rtt: {{constant_ms: 5}}}}",
                )


def _check_policies(scenario: Scenario, document: Document) -> None:
    if scenario.gap_analysis and gap_analysis_policy(scenario) is None:
        what = "there is no policy of kind cnmt to be analysed"
        raise document.error(("gap_analysis",), what, remedy="add one, such as cnmt: {}")
    timeless = [
        name for name in scenario.networks if any(clock_kind(scenario, work, name) != "time" for work in scenario.workloads)
    ]
    for name, policy in scenario.policies.items():
        if isinstance(policy, FixedPolicy) and policy.device not in scenario.devices:
            raise document.error(
                ("policies", name, "device"),
                f"no device is called {policy.device}",
                remedy=did_you_mean(policy.device, scenario.devices),
            )
        if isinstance(getattr(policy, "transfer_estimate", None), Probing) and timeless:
            raise document.error(
                ("policies", name, "transfer_estimate"),
                f"a probe needs a moment, but on networks.{timeless[0]} requests meet the trace whatever the time",
                remedy=f"set networks.{timeless[0]}.clock: own (back to back) or arrival",
            )


def _check_clocks(scenario: Scenario, document: Document) -> None:
    """The clock `pace` is for requests back to back; a pace is for that clock, and by workload for workloads that exist."""
    for name, network in scenario.networks.items():
        place = ("networks", name, "pace_s")
        paced = [workload for workload in scenario.workloads if clock_kind(scenario, workload, name) == "pace"]
        for workload in paced:
            arrivals = scenario.workloads[workload].arrivals
            if not isinstance(arrivals, BackToBack):
                raise document.error(
                    ("networks", name, "clock"),
                    f"pace is for requests back to back, but workload {workload} has arrivals of kind {arrivals.kind}",
                    remedy="remove it: left out, each workload meets the trace as suits it",
                )
        if network.pace_s != "auto" and not paced:
            what = f"no workload meets networks.{name} on the clock pace"
            raise document.error(place, what, remedy="remove it, or set the network's clock: pace", key=True)
        for workload in network.pace_s if isinstance(network.pace_s, dict) else ():
            if workload not in paced:
                what = f"{workload} is no workload that meets networks.{name} on the clock pace"
                raise document.error((*place, workload), what, remedy=did_you_mean(workload, paced), key=True)


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario, checked and with absolute paths, beside the words it was given in."""

    scenario: Scenario
    document: Document
    """What was given, with the overrides in place: complaints find their line here."""
    text: bytes
    """As it was given: what scenario.input.yaml holds."""
    resolved_text: str
    """The scenario with every default, override and absolute path written out."""


def open_source(given: str | os.PathLike[str] | Mapping[str, object], overrides: Iterable[str | Override] = ()) -> Source:
    """Read and check a scenario; raises `ScenarioError`, or `RunDirectoryError` for a run directory that is not whole.

    Relative paths start at the scenario's folder; at the current one for a mapping, and for a shipped scenario or a run
    directory, whose own paths need no start, so that only overrides bring some. A run directory gives its resolved scenario,
    provided that no file it read has changed since.
    """
    here = Path.cwd()
    if isinstance(given, Mapping):
        return _check_source(document_of(given), overrides, here, None)
    name = os.fspath(given)
    if name.startswith("@"):
        path = shipped_files.find("scenarios", name)
        return _check_source(read_document(path), overrides, here, path)
    path = Path(name)
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where the name is too long
        document, regular = read_document(path), path.is_file()
        return _check_source(document, overrides, path.absolute().parent if regular else here, path if regular else None)
    manifest = read_manifest(path)
    remedy = f"restore it, or run {path / RESOLVED}"
    check_unchanged(manifest["outputs"], "a file", lambda file: path / file, remedy)
    source = _check_source(read_document(path / RESOLVED), overrides, here, path / INPUT)
    files = input_files(source.scenario, here)
    read = {name: digest for name, digest in manifest["inputs"].items() if name in files}
    check_unchanged(read, "an input", files.__getitem__, remedy)
    return source


def _check_source(document: Document, overrides: Iterable[str | Override], base: Path, file: Path | None) -> Source:
    """`file`: what scenario.input.yaml becomes a copy of; without one (a mapping, a pipe) it says the same in its own words."""
    text = write_document(document.data).encode() if file is None else file.read_bytes()
    document = apply_overrides(document, overrides)
    scenario = validate(Scenario, document)
    check_topology(scenario, document)
    scenario = resolved(scenario, base)
    return Source(scenario, document, text, write_document(scenario.model_dump(mode="json")))
