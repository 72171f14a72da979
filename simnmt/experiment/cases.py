"""What a run is made of: the inputs of its workloads, its networks, and the units that are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from simnmt.base.errors import InputError
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.experiment.targets import Target
from simnmt.network.configuration import Network, NetworkConfiguration
from simnmt.profile.device_profile import DeviceProfile
from simnmt.results.places import ALL, class_row
from simnmt.results.requests import Engine
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.errors import Location
from simnmt.workload.arrivals import ArrivalProcess
from simnmt.workload.length_table import LengthTable
from simnmt.workload.quality import ScoredText
from simnmt.workload.repeats import Repeats


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
    repeats: Repeats | None = None
    """How often sentences come back; None: each request is a new one."""
    characters: float | None = None
    """Mean characters of the source of a request; None if unknown."""
    quality: ScoredText | None = None
    """The sentences of its text with their scores by device; None without any."""

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
        """True if a device may decode more than one request together."""
        return self.queues and any(target.together for target in self.targets)

    @property
    def refuses_long(self) -> bool:
        """True if a device with slots refuses the longest requests of the workload."""
        return any(target.slots is not None and target.slots.refuses_long for target in self.targets)

    @property
    def loads(self) -> bool:
        """True if requests may wait until their model is loaded."""
        return self.queues and any(target.loads for target in self.targets)

    @property
    def slows(self) -> bool:
        """True if executions take longer the more requests there are."""
        return self.queues and any(target.occupancy_factors for target in self.targets)

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
    """Cases of the workloads at the site."""
    networks: dict[str, tuple[Network, ...]]
    """By name, the links of each copy."""
    share: float = 1.0
    """Weight of the part of its workloads' requests that each copy issues."""
    has_device: bool = True
    """False if it has no device of its own, so that all its requests go to the first shared one."""
    is_first: bool = True
    """True for the first site of the scenario."""
    is_alone: bool = False
    """True if all requests of the scenario come over its one line."""


class UsedTarget(NamedTuple):
    """A target that a workload meets."""

    scenario: ScenarioConfiguration
    """As a site with this target sees it."""
    case: Case
    target: Target
    site: str = ""
    """The site that states its device; empty if the scenario does."""

    @property
    def label(self) -> str:
        """Name of its device, with the site if only that has it."""
        return f"{self.target.device} at {self.site}" if self.site else self.target.device


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
            return [UsedTarget(self.scenario, case, target) for case in self.cases.values() for target in case.targets]
        used: dict[tuple[str, str], UsedTarget] = {}
        for site in self.sites:
            stated = self.scenario.sites[site.name].devices
            for case in site.cases.values():
                for target in case.targets if site.has_device else case.targets[1:]:
                    use = UsedTarget(site.scenario, case, target, site.name if target.device in stated else "")
                    used.setdefault((case.name, use.label), use)
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


def misfits(plan: RunPlan) -> Iterator[tuple[Location, str, str]]:
    """Yield the keys that do not fit: what cannot share devices, and what the profiles say of slots and requests together.

    With each key, the reason and the remedy, which may be empty.
    """
    if plan.is_mixed:
        yield from _mix_misfits(plan)
    first_uses: dict[str, UsedTarget] = {}
    for used in plan.used_targets:
        first = first_uses.setdefault(used.label, used) if plan.is_mixed else used
        if used.target.under_load != first.target.under_load:
            what = f"its profiles for {first.case.name} and {used.case.name} state other workers or by_occupancy"
            remedy = "name one profile for both, or write share_devices: false"
            yield ("devices", used.target.device), f"cannot be shared: {what}", remedy
        if used.target.slots is not None and plan.scenario.classes:
            what = f"{used.label} decodes in slots, which serve requests in the order of arrival"
            yield ("classes",), what, "leave classes out"
    for site in plan.sites if plan.scenario.on_refusal != "pass_on" else ():
        if not site.has_device and any(case.refuses_long for case in site.cases.values()):
            what = "requests that exceed the context of a slot are executed by the first device, and this site has none"
            yield ("sites", site.name, "devices"), what, "give it one, or set on_refusal: pass_on"


def _mix_misfits(plan: RunPlan) -> Iterator[tuple[Location, str, str]]:
    """Yield workloads and sites that cannot share devices."""
    scenario = plan.scenario
    if plan.sites and scenario.profile_uncertainty is not None:
        yield ("profile_uncertainty",), "profiles are not drawn for scenarios with sites", ""
    at_places: list[tuple[Location, dict[str, NetworkConfiguration]]] = [((), scenario.networks)]
    at_places += [(("sites", name), site.networks) for name, site in scenario.sites.items()]
    for place, networks in at_places:
        for name, network in networks.items():
            if network.clock in ("pace", "spread"):
                what = f"requests that share devices meet the series when they are issued, not on the clock {network.clock}"
                yield (*place, "networks", name, "clock"), what, ""
    for name, case in plan.cases.items():
        if len(plan.cases) > 1 and case.arrivals.mean_rate_rps is None:
            what = "the arrivals state no mean rate, by which the requests are divided among the workloads"
            yield ("workloads", name, "arrivals"), what, "write share_devices: false"
    try:
        requests_by_workload(plan)
    except InputError as error:
        yield ("requests",), error.what, error.remedy or ""
    first_uses: dict[str, UsedTarget] = {}
    for use in plan.used_targets:
        device = use.target.device
        first = first_uses.setdefault(device, use)
        if use.target.shared != first.target.shared:
            place = ("sites", use.site, "devices", device) if use.site else ("devices", device)
            what = f"cannot be shared: it batches or streams otherwise for {use.case.name} than {first.label} for"
            yield place, f"{what} {first.case.name}", "give both the same batching or sti"


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
    mixed: tuple[Unit, ...] = ()
    """The workloads at sites whose requests meet at the same devices, the first with the inputs above; empty: no mix."""

    @property
    def parts(self) -> tuple[Unit, ...]:
        """The parts of a mix; else the unit itself."""
        return self.mixed or (self,)

    @property
    def is_kept(self) -> bool:
        """True if the requests of this unit are returned."""
        return self.keeps_requests and self.replication == 0 and self.calibrated is None

    @property
    def known(self) -> Unit:
        """The unit with the profiles that policies know, and from which the pace of the clock follows."""
        if self.calibrated is None:
            return self
        return replace(self, case=self.calibrated, calibrated=None, mixed=tuple(part.known for part in self.mixed))

    def with_boxes(self, targets: Mapping[str, tuple[Target, ...]]) -> Unit:
        """Return the unit whose boxes differ from the calibrated ones that policies know; `targets`: by workload."""
        mixed = tuple(part.with_boxes(targets) for part in self.mixed)
        return replace(self, case=replace(self.case, targets=targets[self.case.name]), calibrated=self.case, mixed=mixed)

    def stream(self, name: str) -> tuple[int, int, str]:
        """Return the key of a random stream of this workload: seed, replication and name."""
        return self.scenario.seed, self.replication, f"{self.case.name}/{name}"

    @property
    def rank(self) -> int:
        """Rank of the class of its requests, 0 for the first served."""
        name = self.scenario.workloads[self.case.name].request_class
        return 0 if name is None else self.scenario.ranked_classes.index(name)

    @property
    def labels(self) -> tuple[str, ...]:
        """What stands in place of a workload in the rows of results that its requests belong to."""
        name = self.scenario.workloads[self.case.name].request_class
        return (ALL, self.case.name) if name is None else (ALL, self.case.name, class_row(name))

    @property
    def nodes(self) -> int:
        """End nodes of the workload, at each copy of its site."""
        return self.scenario.workloads[self.case.name].end_nodes

    @property
    def refuses(self) -> bool:
        """True if devices refuse requests."""
        return self.scenario.refuses or any(part.case.refuses_long for part in self.parts)

    @property
    def decides_again(self) -> bool:
        """True if a policy sends requests on that the first device has executed."""
        return any(policy.decides_again for part in self.parts for policy in part.scenario.policies.values())

    @property
    def site_name(self) -> str:
        """Name of its site in results."""
        return ALL if self.site is None else self.site.name

    def line_name(self, copy: int = 0) -> str:
        """Return the name that keys what is drawn of the links of a copy of its site."""
        return self.network if self.site is None or self.site.is_alone else f"{self.network}/{self.site.name} {copy}"

    @property
    def has_own_device(self) -> bool:
        """True if the device that decides can execute requests."""
        return self.site is None or self.site.has_device

    @property
    def first_device(self) -> str:
        """Name of the device that decides."""
        return next(iter(self.scenario.devices))

    @property
    def lines(self) -> tuple[Network, ...]:
        """The links of each copy of its site."""
        return (self.links,) if self.site is None else self.site.networks[self.network]

    @property
    def deciders(self) -> list[Deciders]:
        """The devices that decide, site by site: the gateways of all workloads of a site, or the end nodes of each."""
        together: dict[tuple[str, str], list[int]] = {}
        for number, part in enumerate(self.parts):
            owner = part.case.name if part.first_device == END_NODE else ""
            together.setdefault((part.site_name, owner), []).append(number)
        deciders, first = list[Deciders](), 0
        # Those without a device of their own come last, so that the own devices are numbered without a gap.
        for numbers in sorted(together.values(), key=lambda numbers: not self.parts[numbers[0]].has_own_device):
            part = self.parts[numbers[0]]
            deciders.append(Deciders(part, tuple(numbers), first, part.scenario.count_of(part.first_device, part.case.name)))
            first += deciders[-1].boxes
        return deciders

    @property
    def groups(self) -> list[Group]:
        """The groups of its requests that have a row of results; the first is of all."""
        parts, groups = self.parts, list[Group]()
        sites, workloads = (
            list(dict.fromkeys(one.site_name for one in parts)),
            list(dict.fromkeys(one.case.name for one in parts)),
        )
        owners = [deciders for deciders in self.deciders if deciders.unit.has_own_device]
        for site, workload in groups_of(sites, workloads, list(self.scenario.classes)):
            numbers = tuple(
                number for number, part in enumerate(parts) if site in (ALL, part.site_name) and workload in part.labels
            )
            groups.append(Group(site, workload, numbers, [one for one in owners if {*numbers} & {*one.parts}]))
        return groups


class Deciders(NamedTuple):
    """The devices of a site that decide."""

    unit: Unit
    """The first part whose requests they decide on."""
    parts: tuple[int, ...]
    """Numbers of all these parts."""
    first: int
    """Number of the first of them among the deciders of all sites."""
    boxes_per_copy: int
    """Devices of each copy of the site."""

    @property
    def boxes(self) -> int:
        """Devices of all copies."""
        return self.boxes_per_copy * len(self.unit.lines)

    @property
    def cache(self) -> CacheConfiguration | None:
        """The cache that each device has; None without one."""
        return self.unit.scenario.devices[self.unit.first_device].cache

    @property
    def workers(self) -> int:
        """Workers of each device."""
        return self.unit.case.targets[0].workers


class Group(NamedTuple):
    """Requests of a unit with a row of results of their own."""

    site: str
    workload: str
    parts: tuple[int, ...]
    owners: list[Deciders]
    """The deciders whose own devices execute them."""

    @property
    def boxes(self) -> slice:
        """The numbers of these devices, from the first one to the last one."""
        return slice(self.owners[0].first, self.owners[-1].first + self.owners[-1].boxes) if self.owners else slice(0, 0)

    @property
    def workers(self) -> float | None:
        """Workers of each of these devices; the mean if sites differ. None without one."""
        workers = [deciders.workers for deciders in self.owners]
        if len({*workers}) <= 1:
            return workers[0] if workers else None
        return float(np.average(workers, weights=[deciders.boxes for deciders in self.owners]))


def groups_of(sites: Sequence[str], workloads: Sequence[str], classes: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Return site and workload of each row of results of a mix: of all requests, of each site, workload and class."""
    every = workloads[0] if len(workloads) == 1 else ALL
    groups = [(ALL, every), *((site, every) for site in sites if len(sites) > 1)]
    parts = [*workloads, *map(class_row, classes)] if len(workloads) > 1 else []
    return groups + [(ALL, part) for part in parts]


def mixed_unit(plan: RunPlan, template: Unit) -> Unit:
    """Return the mix of a plan on the network and in the replication of a unit."""
    counts = requests_by_workload(plan)
    by_site: list[tuple[SitePlan | None, Case]] = [(site, case) for site in plan.sites for case in site.cases.values()]
    parts = [
        replace(
            template,
            scenario=(plan.scenario if site is None else site.scenario).model_copy(update={"requests": counts[case.name]}),
            case=case,
            links=plan.networks[template.network] if site is None else site.networks[template.network][0],
            site=site,
        )
        for site, case in by_site or [(None, case) for case in plan.cases.values()]
    ]
    first = next((part for part in parts if part.has_own_device), parts[0])
    # The device of the first site that has one stands for those of all, which batch or stream alike.
    whole = plan.scenario.model_copy(update={"devices": first.scenario.devices})
    return replace(template, scenario=whole, case=first.case, links=first.links, mixed=tuple(parts))
