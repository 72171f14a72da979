"""What a run is made of: the inputs of its workloads, its networks, and the units that are simulated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.targets import Target
from simnmt.network.configuration import Network
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.places import ALL
from simnmt.results.requests import Engine
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.workload.arrivals import ArrivalProcess
from simnmt.workload.length_table import LengthTable


@dataclass(frozen=True, slots=True)
class Case:
    """The inputs of one workload, independent of the network and the replication."""

    name: str
    table: LengthTable
    """Pairs that the filter keeps; each replication splits them into pairs to fit on and pairs to evaluate."""
    targets: tuple[Target, ...]
    arrivals: ArrivalProcess
    warnings: tuple[str, ...]
    """Suspicious properties of the lengths, such as languages in the wrong order."""

    @property
    def profiles(self) -> tuple[DeviceProfile, ...]:
        """The profile of each target."""
        return tuple(target.profile for target in self.targets)

    @property
    def queues(self) -> bool:
        """True if requests may meet."""
        return self.arrivals.discipline != "back_to_back"

    @property
    def batches(self) -> bool:
        """True if a batch may hold more than one request."""
        return self.queues and any(target.decoding for target in self.targets)

    @property
    def loads(self) -> bool:
        """True if requests may wait until their model is loaded."""
        return self.queues and any(target.model is not None and not target.model.stays for target in self.targets)

    @property
    def streams(self) -> bool:
        """True if a device streams its model, so that the time of a request depends on those before it."""
        return any(target.streaming for target in self.targets)


@dataclass(frozen=True, slots=True)
class DrawnProfiles:
    """Targets of one workload with profiles drawn within the error of their calibration."""

    targets: tuple[tuple[Target, ...], ...]
    exact: dict[str, str]
    """Devices whose profiles are taken as exact, with the reason."""


@dataclass(frozen=True, slots=True)
class SitePlan:
    """A site with its inputs: its copies differ in their lines alone."""

    name: str
    scenario: ScenarioConfiguration
    """The scenario as the site sees it."""
    cases: dict[str, Case]
    """Of the workloads at the site."""
    networks: dict[str, tuple[Network, ...]]
    """By name, the links of each copy."""
    share: float = 1.0
    """Weight of the part of its workloads' requests that each copy issues."""
    has_device: bool = True
    """False if it has no device of its own, so that all its requests go to the first shared one."""


class UsedTarget(NamedTuple):
    """A target that a workload meets."""

    scenario: ScenarioConfiguration
    """As a site with this target sees it."""
    case: Case
    target: Target
    label: str
    """Name of its device, with the site if only that has it."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A scenario with all its inputs."""

    scenario: ScenarioConfiguration
    cases: dict[str, Case]
    networks: dict[str, Network]
    drawn: dict[str, DrawnProfiles] = field(default_factory=dict)
    """Profiles within the error of their calibration by workload; empty if the scenario asks for none."""
    sites: tuple[SitePlan, ...] = ()
    """The sites of a scenario that has some; `cases` and `networks` are then those of the first site that has them."""

    @property
    def is_mixed(self) -> bool:
        """True if requests of several workloads or sites meet at the same devices."""
        return self.scenario.shares_devices and (bool(self.sites) or len(self.cases) > 1)

    @property
    def lines(self) -> list[Network]:
        """The links of all networks; of each site, those of its first copy."""
        return [copies[0] for site in self.sites for copies in site.networks.values()] or [*self.networks.values()]

    @property
    def used_targets(self) -> list[UsedTarget]:
        """What each workload meets, in the order of the scenario; a device that a site states is named with the site."""
        if not self.sites:
            cases = self.cases.values()
            return [UsedTarget(self.scenario, case, target, target.device) for case in cases for target in case.targets]
        used: dict[tuple[str, str], UsedTarget] = {}
        for site in self.sites:
            stated = self.scenario.sites[site.name].devices
            for case in site.cases.values():
                for target in case.targets if site.has_device else case.targets[1:]:
                    label = f"{target.device} at {site.name}" if target.device in stated else target.device
                    used.setdefault((case.name, label), UsedTarget(site.scenario, case, target, label))
        return list(used.values())


def requests_by_workload(plan: RunPlan) -> dict[str, int]:
    """Divide the requests of a scenario by the mean rates of its workloads, so that all end at about the same time.

    Raises `InputError` if they leave none for a workload.
    """
    rates_rps = [case.arrivals.mean_rate_rps or 1.0 for case in plan.cases.values()]
    ends = np.rint(np.cumsum(rates_rps) / sum(rates_rps) * plan.scenario.requests).astype(int)
    counts = dict(zip(plan.cases, np.diff(ends, prepend=0).tolist(), strict=True))
    for name, count in counts.items():
        if not count:
            what = f"{plan.scenario.requests:,} requests leave none for workload {name}, by its rate"
            raise InputError(what, remedy="give more requests")
    return counts


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of work: one workload on one network in one replication, or a mix of the workloads of some sites."""

    scenario: ScenarioConfiguration
    """As the site sees it; in a part of a mix its `requests` are those of the workload at all sites."""
    case: Case
    network: str
    links: Network
    replication: int
    calibrated: Case | None = None
    """The inputs with the profiles as calibrated, which policies know, if those of `case` are drawn; None if they are not."""
    engine: Engine | None = None
    keeps_requests: bool = True
    """Whether the requests of replication 0 are returned, for request logs and figures."""
    site: SitePlan | None = None
    parts: tuple[Unit, ...] = ()
    """The workloads at sites whose requests meet at the same devices, the first with the inputs above; empty: no mix."""

    @property
    def is_kept(self) -> bool:
        """True if the requests of this unit are returned."""
        return self.keeps_requests and self.replication == 0 and self.calibrated is None

    @property
    def known(self) -> Unit:
        """The unit with the profiles that policies know, and from which the pace of the clock follows."""
        if self.calibrated is None:
            return self
        return replace(self, case=self.calibrated, calibrated=None, parts=tuple(part.known for part in self.parts))

    def with_boxes(self, targets: Mapping[str, tuple[Target, ...]]) -> Unit:
        """Return the unit whose boxes differ from the calibrated ones that policies know; `targets`: by workload."""
        parts = tuple(part.with_boxes(targets) for part in self.parts)
        return replace(self, case=replace(self.case, targets=targets[self.case.name]), calibrated=self.case, parts=parts)

    def stream(self, name: str) -> tuple[int, int, str]:
        """Return the key of a random stream of this workload: seed, replication and name."""
        return self.scenario.seed, self.replication, f"{self.case.name}/{name}"

    @property
    def nodes(self) -> int:
        """End nodes of the workload, at each copy of its site."""
        return self.scenario.workloads[self.case.name].end_nodes

    @property
    def site_name(self) -> str:
        """Name of its site in results."""
        return ALL if self.site is None else self.site.name

    def line_name(self, copy: int = 0) -> str:
        """Return the name that keys what is drawn of the links of a copy of its site."""
        return self.network if self.site is None else f"{self.network}/{self.site.name} {copy}"

    @property
    def has_own_device(self) -> bool:
        """True if the device that decides can execute requests."""
        return self.site is None or self.site.has_device

    def boxes_of(self, device: str) -> int:
        """Return the number of boxes of a device, in a mix at all sites together."""
        first = next(iter(self.scenario.devices))
        if not self.parts or device != first:
            return self.scenario.count_of(device, self.case.name)
        return sum(part.boxes_of(first) * len(part.lines) for part in self.owners)

    @property
    def owners(self) -> list[Unit]:
        """The parts of a mix whose own devices are different boxes: one part of each site's gateways, or of its end nodes."""
        parts = [part for part in self.parts if part.has_own_device]
        at_end_nodes = next(iter(self.scenario.devices)) == END_NODE
        return list({(part.site_name, part.case.name if at_end_nodes else ""): part for part in parts}.values())

    @property
    def lines(self) -> tuple[Network, ...]:
        """The links of each copy of its site."""
        return (self.links,) if self.site is None else self.site.networks[self.network]
