"""Check what no single key can know: that devices, links, clocks and policies of a scenario fit together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from simnmt.base.suggestions import did_you_mean
from simnmt.network.configuration import links_of
from simnmt.policies.baselines import FixedPolicy
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.document import Document
from simnmt.scenario.errors import Location
from simnmt.workload.arrivals import BackToBack, Clients

_RESERVED_NAMES = ("offloaded", "misrouted", "answered", "lost", "fallback")
"""Words with which columns of the summary begin."""

Misfit = tuple[Location, str]
"""A key that does not fit the scenario, and the reason."""


def check_topology(scenario: ScenarioConfiguration, document: Document) -> None:
    """Raise `ScenarioError` at the first key that does not fit the others."""
    for location, what in chain(_devices(scenario), _hops(scenario), _links(scenario), _clocks(scenario), _policies(scenario)):
        raise document.error(location, what, key=True)


def _devices(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    first, *others = scenario.devices
    if END_NODE in others:
        yield ("devices", END_NODE), f"devices are listed nearest first, so {END_NODE} comes first"
    for name, device in scenario.devices.items():
        place = ("devices", name)
        if name in _RESERVED_NAMES or name.endswith("_busiest"):
            yield place, f"{name}_share or {name}_load is another number of the summary; choose another name"
        if isinstance(device.profile, dict) and device.profile.keys() != scenario.workloads.keys():
            workloads = ", ".join(scenario.workloads)
            yield (*place, "profile"), f"needs one profile for all workloads, or one for each of {workloads}"
        yield from _models(scenario, name)
        if name == first and device.balancer not in (None, "attached"):
            yield (*place, "balancer"), f"end nodes are attached to the boxes of {first}, the first device"
        if name == END_NODE and device.count is not None:
            yield (*place, "count"), "every end node has one; workloads.NAME.end_nodes says how many there are"
        if name != END_NODE and scenario.balancer_of(name) == "attached":
            for workload, part in scenario.workloads.items():
                clients = part.arrivals.clients if isinstance(part.arrivals, Clients) else part.end_nodes
                if (device.count or 1) > min(part.end_nodes, clients):
                    yield (*place, "count"), f"more boxes than workload {workload} has end nodes or clients to attach to them"
        if device.batching is None and device.beyond_measured_batch:
            yield (*place, "beyond_measured_batch"), "there are no batches without batching"
        if device.batching is not None and device.workers > 1:
            yield (*place, "workers"), f"a box that batches has one worker; more boxes are devices.{name}.count"
        if device.failures is not None and name == first:
            yield (*place, "failures"), "the first device decides, and is always up"
        if device.batching is not None and device.failures is not None and device.failures.requests == "resumed":
            yield (*place, "failures", "requests"), "a box that batches forgets its batch when it fails; write requeued or lost"
        if device.sti is not None:
            given = {"batching": device.batching, "decoder": device.decoder, "failures": device.failures}
            for key in [key for key, value in given.items() if value is not None] + ["workers"] * (device.workers > 1):
                yield (*place, key), "a box that streams its model decodes one sentence at a time as its profile says"


def _models(scenario: ScenarioConfiguration, name: str) -> Iterator[Misfit]:
    """Yield workloads without a model of a device, models of other workloads, and what no box with models does."""
    device, place = scenario.devices[name], ("devices", name)
    for workload in scenario.workloads if device.models is not None else ():
        if workload not in device.models:
            yield (*place, "models"), f"no model for workload {workload} (give devices.{name}.models.{workload})"
    for workload in device.models or ():
        if workload not in scenario.workloads:
            yield (*place, "models", workload), f"unknown workload ({did_you_mean(workload, scenario.workloads)})"
    if device.memory_gb is not None:
        given = {"execution": device.execution, "failures": device.failures}
        for key in [key for key, value in given.items() if value is not None]:
            yield (*place, key), "not for a device with memory_gb, whose boxes load their models"
    if device.models is not None and device.sti is not None:
        yield (*place, "sti"), "a box that streams its model has one; give a profile in place of models"


def _hops(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield hops that lead nowhere, and devices that no link leads to: the network itself leads to the last device."""
    devices = list(scenario.devices)
    optional = devices[:1] if devices[0] != END_NODE and len(devices) > 1 else []
    required = devices[1:-1]
    for network, configuration in scenario.networks.items():
        place = ("networks", network, "hops")
        for device, links in configuration.hops.items():
            if device == devices[-1]:
                yield (*place, device), f"networks.{network} itself is the link to {device}, the last device"
            elif device not in (*optional, *required):
                yield (*place, device), f"no link leads to a device {device} ({did_you_mean(device, [*optional, *required])})"
            elif isinstance(links, list) and device != (devices[1] if devices[0] == END_NODE else devices[0]):
                yield (*place, device), "a list of links is for the way from the end nodes; all share the link to this device"
        for device in required:
            if device not in configuration.hops:
                remedy = f"give networks.{network}.hops.{device}, such as {{rtt: {{constant_ms: 5}}}}"
                yield place if configuration.hops else place[:2], f"no link leads to {device} ({remedy})"


def _links(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield links that cannot fail: those before the decision, and series without a time axis."""
    first, *others = scenario.devices
    for network, configuration in scenario.networks.items():
        is_timeless = any(scenario.clock_of(name, network) == "spread" for name in scenario.workloads)
        for location, link in links_of(configuration):
            place = ("networks", network, *location, "outages")
            if link.outages and (not others or location[1:2] == (first,)):
                yield place, f"outages are for links behind {first}, which decides, and this one leads to it"
            if is_timeless and link.outages == "trace":
                yield place, f"outages of a trace need a time axis (set networks.{network}.clock: arrival)"


def _clocks(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    """Yield clocks that do not fit the arrivals: `pace` is for requests back to back, faults need moments of arrival."""
    for name, part in scenario.workloads.items():
        if scenario.has_faults and isinstance(part.arrivals, BackToBack):
            yield ("workloads", name), f"requests back to back meet no faults (give workloads.{name}.arrivals)"
    if scenario.late_answers is not None and len(scenario.devices) == 1:
        yield ("late_answers",), "the only device sends no request"
    for name, network in scenario.networks.items():
        paced = [workload for workload in scenario.workloads if scenario.clock_of(workload, name) == "pace"]
        for workload in paced:
            if not isinstance(scenario.workloads[workload].arrivals, BackToBack):
                yield ("networks", name, "clock"), f"pace is for requests back to back, but workload {workload} has arrivals"
        if network.pace_s is not None and not paced:
            yield ("networks", name, "pace_s"), f"no workload meets networks.{name} on the clock pace"


def _policies(scenario: ScenarioConfiguration) -> Iterator[Misfit]:
    if scenario.gap_analysis and scenario.analysed_policy is None:
        yield ("gap_analysis",), "there is no policy of kind cnmt to be analysed"
    for name, policy in scenario.policies.items():
        if isinstance(policy, FixedPolicy) and policy.device not in scenario.devices:
            yield ("policies", name, "device"), f"unknown device ({did_you_mean(policy.device, scenario.devices)})"
