"""Open a scenario from a file, a shipped `@name`, a run directory to repeat, or a mapping, and check that its parts fit.

The check covers what no single key can know: whether devices, links, clocks and policies fit together.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from simnmt.base import shipped_files
from simnmt.base.errors import InputError
from simnmt.base.extension import Extension
from simnmt.base.suggestions import did_you_mean
from simnmt.network import configuration as network_room
from simnmt.network.outages import TraceOutages
from simnmt.policies.baselines import FixedPolicy
from simnmt.profile.custom import CustomDevice
from simnmt.results.device_accounts import BATCH_COLUMNS, STREAMING_COLUMNS
from simnmt.results.run_directory import (
    INPUT,
    RESOLVED,
    RunDirectoryError,
    check_packages,
    check_unchanged,
    read_manifest,
    sha256,
)
from simnmt.scenario.configuration import END_NODE, Scenario, resolved
from simnmt.scenario.document import Document, Override, apply_overrides, document_of, read_document
from simnmt.scenario.errors import Location, ScenarioError, describe_value
from simnmt.scenario.extensions import (
    adopt_extensions,
    find_extensions,
    holds_object,
    remedy_of_unknown_kind,
    with_stand_ins,
)
from simnmt.scenario.validation import validate
from simnmt.scenario.yaml_text import write_document
from simnmt.workload.arrivals import BackToBack, Clients

_LOG = logging.getLogger("simnmt.scenario")

_RESERVED_NAMES = ("offloaded", "misrouted", "answered", "lost", "fallback")
"""Words with which columns of the summary begin."""
_REMOVE = "remove it"


class _Fault(NamedTuple):
    """A key that does not fit the scenario, and the remedy."""

    location: Location
    what: str
    remedy: str | None
    key: bool = True
    """True if the key is at fault, False if its value is; errors point to that."""


def check_topology(scenario: Scenario, document: Document) -> None:
    """Check that devices, links, clocks and policies fit together; raise `ScenarioError` at the key to be changed.

    Several workloads with moments of arrival are valid; the log states that they share nothing (`describe_separate_runs`).
    """
    checks = (_devices, _counts, _profiles, _execution, _hops, _message_links, _failures, _clocks, _policies)
    for fault in chain.from_iterable(check(scenario) for check in checks):
        raise document.error(fault.location, fault.what, remedy=fault.remedy, key=fault.key)
    if separate := describe_separate_runs(scenario):
        _LOG.info("%s: %s", scenario.name, separate)


def describe_separate_runs(scenario: Scenario) -> str:
    """Describe that several workloads share no device and no link; empty if at most one has requests that may meet."""
    meeting = [part for part in scenario.workloads.values() if not isinstance(part.arrivals, BackToBack)]
    if len(meeting) < 2:
        return ""
    return (
        f"the {len(scenario.workloads)} workloads are separate runs: each has all devices and links to itself, and their rates "
        "do not add up to one load"
    )


def _devices(scenario: Scenario) -> Iterator[_Fault]:
    names = list(scenario.devices)
    first, rename = scenario.devices[names[0]], "call the device otherwise"
    for name in names:
        if name in _RESERVED_NAMES or name.endswith("_busiest"):
            what = f"{name} would stand for other numbers of the summary, such as {name}_share or {name}_load"
            yield _Fault(("devices", name), what, rename)
        for other, device in scenario.devices.items():
            # Names with which a column of another device would be one of this device's (`results.device_accounts`).
            columns = {
                "batches": BATCH_COLUMNS if device.batching else (),
                "streaming": STREAMING_COLUMNS if device.sti else (),
            }
            for numbers, names_of_numbers in columns.items():
                if f"{name}_share" in [f"{other}_{column}" for column in names_of_numbers]:
                    what = f"{name}_share would stand for a number of the {numbers} of {other}, too"
                    yield _Fault(("devices", name), what, rename)
    if END_NODE in names[1:]:
        remedy = f"name the devices nearest first: {END_NODE} comes first"
        yield _Fault(("devices", END_NODE), "stands behind another device", remedy)
    if names[0] == END_NODE and first.count is not None:
        remedy = "remove it; workloads.NAME.end_nodes says how many"
        yield _Fault(("devices", END_NODE, "count"), "every end node has one", remedy)
    if first.balancer not in (None, "attached"):
        what = f"end nodes are attached to the first device, so {first.balancer} has nothing to choose"
        yield _Fault(("devices", names[0], "balancer"), what, _REMOVE)


def _counts(scenario: Scenario) -> Iterator[_Fault]:
    """Yield devices with more boxes than attached end nodes, since some boxes would get no requests."""
    for name, device in scenario.devices.items():
        if name == END_NODE or scenario.balancer_of(name) != "attached":
            continue
        for workload, part in scenario.workloads.items():
            asking = min(part.end_nodes, part.arrivals.clients if isinstance(part.arrivals, Clients) else part.end_nodes)
            if (device.count or 1) > asking:
                nodes = f"{asking} end node{'s' * (asking != 1)}"
                few = f"workload {workload} has {nodes} to attach to them, so some would never be used"
                remedy = f"set workloads.{workload}.end_nodes, and clients in a closed loop, to {device.count} or more"
                yield _Fault(("devices", name, "count"), f"{device.count} boxes, but {few}", remedy, key=False)


def _profiles(scenario: Scenario) -> Iterator[_Fault]:
    """Yield devices whose profiles by workload are not those of exactly the workloads."""
    for name, device in scenario.devices.items():
        if isinstance(device.profile, dict) and set(device.profile) != set(scenario.workloads):
            named, needed = (", ".join(sorted(names)) for names in (device.profile, scenario.workloads))
            remedy = "give one profile for each, or a single one for all"
            yield _Fault(("devices", name, "profile"), f"names {named} where the workloads are {needed}", remedy, key=False)


def _execution(scenario: Scenario) -> Iterator[_Fault]:
    """Yield settings that a device that batches, or one that streams its model, cannot have."""
    for name, device in scenario.devices.items():
        place, streams = ("devices", name), device.sti is not None
        either, count = f"remove it, or remove devices.{name}.sti", f"remove it; more boxes are devices.{name}.count"
        if device.batching is None and device.beyond_measured_batch:
            remedy = f"remove it, or give devices.{name}.batching"
            yield _Fault((*place, "beyond_measured_batch"), "there are no batches without batching", remedy)
        if streams and device.batching is not None:
            what = "a box that streams its model layer by layer decodes one sentence at a time, so it forms no batches"
            yield _Fault((*place, "batching"), what, either)
        elif device.batching is not None and device.workers > 1:
            what = f"{device.workers} workers, but a box that batches decodes all its sentences together, as one"
            yield _Fault((*place, "workers"), what, f"{count}, larger batches devices.{name}.batching.size")
        if streams and device.workers > 1:
            what = f"{device.workers} workers, but a box that streams its model has one disk and one working buffer"
            yield _Fault((*place, "workers"), what, count)
        if streams and device.decoder is not None:
            what = "the times of a streamed model are those of the profile's block sti, which knows one decoder"
            yield _Fault((*place, "decoder"), what, either)


def _hops(scenario: Scenario) -> Iterator[_Fault]:
    """Yield hops that lead nowhere, and devices without a hop: every device but the first needs one; the last one's is the
    network itself."""
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
                    yield _Fault((*place, device), what, "give one link", key=False)
            elif device == devices[-1]:
                remedy = f"its link is networks.{network} itself: rtt, uplink_mbps, ..."
                yield _Fault((*place, device), f"{device} is the last device", remedy)
            elif device == END_NODE:
                yield _Fault((*place, device), "no link leads to an end node", _REMOVE)
            else:
                remedy = did_you_mean(device, [*optional, *required])
                yield _Fault((*place, device), f"no device is called {device}", remedy)
        for before, device in zip(devices, required, strict=False):
            if device not in configuration.hops:
                what = f"{device} cannot be reached: no link leads there from {before}"
                remedy = f"give networks.{network}.hops.{device}, such as {{rtt: {{constant_ms: 5}}}}"
                yield _Fault(place if configuration.hops else place[:2], what, remedy, key=False)


def _message_links(scenario: Scenario) -> Iterator[_Fault]:
    """Yield links that cannot be shared or have faults: those that end before the decision, and series without a moment."""
    first, *others = scenario.devices
    for network, configuration in scenario.networks.items():
        timeless = [name for name in scenario.workloads if scenario.clock_of(name, network) == "spread"]
        remedy = f"set networks.{network}.clock: arrival"
        for location, link in network_room.links_of(configuration):
            place = ("networks", network, *location)
            given = {"shared": link.shared, "outages": link.outages}
            if used := [key for key, value in given.items() if value]:
                if not others or location[1:2] == (first,):
                    what = f"{used[0]} is for links behind {first}, which decides, and this one leads to it"
                    yield _Fault((*place, used[0]), what, _REMOVE)
                changes = any(not isinstance(mbps, (int, float)) for mbps in (link.uplink_mbps, link.downlink_mbps))
                if timeless and link.shared and changes:
                    what = "a shared bandwidth that changes needs a time axis, but requests meet the trace one by one"
                    yield _Fault((*place, "shared"), what, f"{remedy}, or give bandwidths that are numbers")
                if link.shared and scenario.has_faults:
                    what = "a link cannot be shared where links or boxes fail"
                    yield _Fault((*place, "shared"), what, "remove it, or outages, failures and late_answers")
                if timeless and isinstance(link.outages, TraceOutages):
                    what = "outages of the trace need a time axis, but requests meet it one by one"
                    yield _Fault((*place, "outages"), what, f"{remedy}, or another form of outages")


def _failures(scenario: Scenario) -> Iterator[_Fault]:
    """Yield faults that the world does not know."""
    first, *others = scenario.devices
    for name, device in scenario.devices.items():
        place = ("devices", name, "failures")
        if device.failures is None:
            continue
        if name == first:
            yield _Fault(place, "the first device decides, and is always up", "give failures of the devices behind it")
        elif device.sti is not None:
            yield _Fault(
                place, "failures of a device that streams its model are not simulated", f"remove it, or devices.{name}.sti"
            )
        elif device.batching is not None and device.failures.requests == "resumed":
            what = "a box that batches forgets its batch when it fails, so nothing is resumed"
            yield _Fault((*place, "requests"), what, "write requeued or lost", key=False)
    if scenario.has_faults:
        for name, workload in scenario.workloads.items():
            if isinstance(workload.arrivals, BackToBack):
                what = f"faults happen at moments of a run, but workload {name} has requests back to back, without any"
                remedy = f"give workloads.{name}.arrivals, such as {{kind: poisson, rate_rps: 2}}"
                yield _Fault(("workloads", name), what, remedy)
    if scenario.late_answers is not None and not others:
        what = f"{first} is the only device, so that no request is sent and no answer is late"
        yield _Fault(("late_answers",), what, _REMOVE)


def _clocks(scenario: Scenario) -> Iterator[_Fault]:
    """Yield paces of clocks that no workload uses: `pace` is for requests back to back, and by workload for workloads that
    exist."""
    for name, network in scenario.networks.items():
        place = ("networks", name, "pace_s")
        paced = [workload for workload in scenario.workloads if scenario.clock_of(workload, name) == "pace"]
        for workload in paced:
            arrivals = scenario.workloads[workload].arrivals
            if not isinstance(arrivals, BackToBack):
                what = f"pace is for requests back to back, but workload {workload} has arrivals of kind {arrivals.kind}"
                remedy = "remove it: left out, each workload meets the trace as suits it"
                yield _Fault(("networks", name, "clock"), what, remedy, key=False)
        if network.pace_s != "auto" and not paced:
            remedy = "remove it, or set the network's clock: pace"
            yield _Fault(place, f"no workload meets networks.{name} on the clock pace", remedy)
        for workload in network.pace_s if isinstance(network.pace_s, dict) else ():
            if workload not in paced:
                what = f"{workload} is no workload that meets networks.{name} on the clock pace"
                yield _Fault((*place, workload), what, did_you_mean(workload, paced))


def _policies(scenario: Scenario) -> Iterator[_Fault]:
    if scenario.gap_analysis and scenario.analysed_policy is None:
        what = "there is no policy of kind cnmt to be analysed"
        yield _Fault(("gap_analysis",), what, "add one, such as cnmt: {}", key=False)
    for name, policy in scenario.policies.items():
        if isinstance(policy, FixedPolicy) and policy.device not in scenario.devices:
            what, remedy = f"no device is called {policy.device}", did_you_mean(policy.device, scenario.devices)
            yield _Fault(("policies", name, "device"), what, remedy, key=False)


def input_files(scenario: Scenario, base: Path) -> dict[str, Path]:
    """Return every file that the scenario reads, by its name there; `@name` files by that name."""
    files: dict[str, Path] = {}
    for part in scenario.workloads.values():
        files |= part.lengths.named_inputs(base)
        files |= {str(path): path for path in part.arrivals.input_paths(base)}
    for network in scenario.networks.values():
        files |= network_room.input_paths(network, base)
    for device in scenario.devices:
        for name in scenario.workloads:
            profile = scenario.profile_of(device, name)
            if isinstance(profile, CustomDevice):
                continue
            path = profile_path(profile, base)
            files[profile if profile.startswith("@") else str(path)] = path
    return files


def refuse_pipes(scenario: Scenario, base: Path) -> None:
    """Raise `InputError` for an input that is a pipe: inputs are read once for their content and once for their digest, and
    again for scenarios that differ in a few keys."""
    try:
        paths = input_files(scenario, base).values()
    except InputError:  # of an unknown @name; `read_inputs` raises it again and names the key
        return
    for path in paths:
        if _is_pipe(path):
            raise InputError("a pipe can be read only once", path=path, remedy="write its content to a file first")


def _is_pipe(path: Path) -> bool:
    try:
        return stat.S_ISFIFO(path.stat().st_mode)
    except (OSError, ValueError):  # missing, or no possible name: its reader raises that
        return False


def profile_path(profile: str | CustomDevice, base: Path) -> Path:
    """Return the file of a device's profile. Raises `InputError` for a device that a user brings, which has none."""
    if isinstance(profile, CustomDevice):
        raise InputError(f"the costs of {profile.kind} are no file of a device profile", remedy="name a profile that is one")
    return shipped_files.find("calibration", profile) if profile.startswith("@") else (base / profile).absolute()


@dataclass(frozen=True, slots=True)
class Source:
    """A scenario, checked and with absolute paths, with its original text."""

    scenario: Scenario
    document: Document
    """The scenario as given, with the overrides applied, in which errors find their line."""
    text: bytes
    """The scenario as given, for scenario.input.yaml."""
    resolved_text: str
    """The scenario with every default, override and absolute path written out."""
    extensions: Mapping[str, Extension] = field(default_factory=dict)
    """What users bring, by its place, such as `policies.mine`."""
    base: Path = field(default_factory=Path.cwd)
    """Folder at which relative paths of further overrides start."""

    def with_overrides(self, overrides: Iterable[Override], *, allow_code: bool = False) -> tuple[Scenario, Document]:
        """Return the scenario with further overrides, checked and with absolute paths, and its document.

        Raises `ScenarioError`.
        """
        document = apply_overrides(self.document, overrides)
        return _checked_scenario(document, self.base, allow_code)[0], document

    @property
    def objects(self) -> dict[str, str]:
        """The objects of Python by their places: with any of them, no file can repeat the run."""
        return {place: extension.label for place, extension in self.extensions.items() if extension.code is None}

    @property
    def code_digests(self) -> dict[str, str]:
        """SHA-256 of each file of users' code that the scenario names."""
        codes = [extension.code for extension in self.extensions.values() if extension.code is not None]
        return {str(code.file): sha256(code.file) for code in codes if code.file is not None}

    @property
    def packages(self) -> dict[str, str]:
        """The versions of the installed packages whose kinds the scenario names, by their names."""
        codes = [extension.code for extension in self.extensions.values() if extension.code is not None]
        return dict(code.distribution for code in codes if code.distribution is not None)


def open_source(
    given: str | os.PathLike[str] | Mapping[str, object],
    overrides: Iterable[str | Override] = (),
    *,
    allow_code: bool = False,
    base: Path | None = None,
) -> Source:
    """Read and check a scenario; raise `ScenarioError`, or `RunDirectoryError` for a run directory that is not whole.

    Args:
        given: a file's path, a shipped `@name`, a run directory or a mapping.
        overrides: values in place of the scenario's.
        allow_code: whether modules and files that the scenario names may run, such as `kind: "package.module:MyPolicy"`.
        base: folder at which relative paths of a file start, if that is not the file's folder.

    Relative paths start at the scenario's folder. They start at the current folder for a mapping, a shipped scenario and a run
    directory; the paths of the latter two need no start, so only overrides have relative ones. A run directory gives its
    resolved scenario, provided that no file it read has changed since.
    """
    here = Path.cwd()
    if isinstance(given, Mapping):
        return _check_source(document_of(given, holds_object), overrides, here, None, allow_code)
    if not isinstance(given, (str, os.PathLike)):
        remedy = "give a file's path, a shipped @name, a run directory, a mapping or a simnmt.Scenario"
        raise ScenarioError(f"expected a scenario, got {describe_value(given)}", remedy=remedy)
    name = os.fspath(given)
    if name.startswith("@"):
        path = shipped_files.find("scenarios", name)
        return _check_source(read_document(path), overrides, here, path, allow_code)
    path = Path(name)
    if not os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where the name is too long
        document, regular = read_document(path), path.is_file()
        base = base or (path.absolute().parent if regular else here)
        return _check_source(document, overrides, base, path if regular else None, allow_code)
    manifest = read_manifest(path)
    if "live" in manifest:
        what = "a live replay, which cannot be repeated from its files"
        raise RunDirectoryError(what, path=path, remedy=f"simulate its scenario: simnmt run {path / RESOLVED}")
    remedy = f"restore it, or run {path / RESOLVED}"
    check_unchanged(manifest["outputs"], "a file", lambda file: path / file, remedy)
    source = _check_source(read_document(path / RESOLVED), overrides, here, path / INPUT, allow_code)
    files = input_files(source.scenario, here) | {file: Path(file) for file in source.code_digests}
    read = {name: digest for name, digest in manifest["inputs"].items() if name in files}
    check_unchanged(read, "an input", files.__getitem__, remedy)
    check_packages(manifest, source.packages, path)
    return source


def _check_source(
    document: Document, overrides: Iterable[str | Override], base: Path, file: Path | None, allow_code: bool
) -> Source:
    """Check a document; `file`: the original of scenario.input.yaml, which is written from the document without one (a mapping,
    a pipe)."""
    text = write_document(document.data).encode() if file is None else file.read_bytes()
    document = apply_overrides(document, overrides)
    scenario, extensions = _checked_scenario(document, base, allow_code)
    size = (len(scenario.workloads), len(scenario.networks), len(scenario.devices), len(scenario.policies))
    _LOG.info("%s: %d workloads, %d networks, %d devices, %d policies", scenario.name, *size)
    return Source(scenario, document, text, write_document(scenario.document()), extensions, base)


def _checked_scenario(document: Document, base: Path, allow_code: bool) -> tuple[Scenario, dict[str, Extension]]:
    """Return the scenario of a document, with absolute paths, and what users bring to it."""
    mentions = find_extensions(document)
    scenario = validate(Scenario, with_stand_ins(document, mentions), unknown_kind=remedy_of_unknown_kind)
    check_topology(scenario, document)
    extensions: dict[str, Extension] = {}
    if mentions:
        scenario, extensions = adopt_extensions(scenario, document, mentions, base, allow_code=allow_code)
        check_topology(scenario, document)
    return resolved(scenario, base), extensions
