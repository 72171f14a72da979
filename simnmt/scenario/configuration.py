"""The schema of a scenario file: workloads, networks, devices, policies, and the settings of a run.

Each room owns the configuration of what it builds; this module composes them. It declares only what belongs to no lower room:
devices, the fit, the service level, and prediction intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import ceil
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
    model_validator,
)

from simnmt.base.configuration import Configuration, InputFile, misfit
from simnmt.base.errors import InputError
from simnmt.base.extension import Extensible, Parameters, installed_kinds
from simnmt.base.laws import DrawnNumber
from simnmt.base.random_streams import stream
from simnmt.base.suggestions import did_you_mean
from simnmt.batching.configuration import BatchingConfiguration
from simnmt.batching.custom import custom_batching
from simnmt.batching.model_memory import Evict
from simnmt.devices import KINDS as EXECUTION_KINDS
from simnmt.devices.failures import FailureConfiguration, LateAnswers
from simnmt.devices.streaming_configuration import StreamingConfiguration
from simnmt.network.configuration import Key, LinkConfiguration, NetworkConfiguration, links_of, with_drawn_means
from simnmt.network.link import OverheadConfiguration
from simnmt.policies import KINDS, PolicyConfiguration
from simnmt.policies.baselines import FixedPolicy
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.policies.custom import custom_policy
from simnmt.policies.decision import Estimation
from simnmt.profile.custom import GIVEN, CustomDevice, custom_device
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.power import PowerConfiguration
from simnmt.results.metrics import LEAST_LIMIT, SPENDINGS, Criteria, Metric, Requirement, metric, objective_metric
from simnmt.scenario.errors import Location
from simnmt.workload.arrivals import BackToBack
from simnmt.workload.configuration import WorkloadConfiguration


def requirement(name: str, limit: float) -> Requirement:
    """Return the requirement of a metric. Raises `InputError` for an unknown metric or another limit."""
    if isinstance(limit, bool) != (name == "stable"):
        raise InputError(f"takes {'true' if name == 'stable' else 'one number'}")
    return Requirement.of(metric(name), float(limit))


def _requirements(level: Mapping[str, float] | None) -> tuple[Requirement, ...]:
    return tuple(requirement(name, limit) for name, limit in (level or {}).items())


def _checked_level(level: Mapping[str, float]) -> Mapping[str, float]:
    if not level:
        raise misfit("", "limits nothing (write a limit, such as p95_ms: 300, or remove slo)")
    for name, limit in level.items():
        try:
            requirement(name, limit)
        except InputError as error:  # noqa: PERF203
            raise misfit(name, str(error)) from None
    return level


def _checked_name(lookup: Callable[[str], Metric]) -> AfterValidator:

    def check(name: str) -> str:
        try:
            lookup(name)
        except InputError as error:
            raise misfit("", str(error)) from None
        return name

    return AfterValidator(check)


Limit = Annotated[
    Annotated[float, Field(ge=LEAST_LIMIT, le=1e9), Tag("number")] | Annotated[Literal[True], Tag("truth_value")],
    Discriminator(lambda value: "truth_value" if isinstance(value, bool) else "number"),
]
"""A number in the unit of the metric's name; `true` for `stable`."""
ServiceLevel = Annotated[dict[str, Limit], AfterValidator(_checked_level), Field(json_schema_extra={"minProperties": 1})]
"""Limits of metrics; a policy that misses one is recommended only if all do."""

_OBJECTIVES = rf"^(mean|p[5-9][0-9](\.[1-9])?|{'|'.join(SPENDINGS)})$"
Objective = Annotated[str, _checked_name(objective_metric), Field(json_schema_extra={"pattern": _OBJECTIVES})]
"""`mean` or a percentile of the latency such as `p95`, or a spending such as `energy_j`."""
MetricName = Annotated[str, _checked_name(metric)]
"""Name of a metric, such as `p97.5_ms`."""


Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f/\\]+$")]
"""Name for tables and pages; no control characters, no slashes."""


def _profile_form(value: Any) -> str | None:
    """Return the tag of the intended form, which is part of the location of pydantic's errors and no key."""
    return "one" if isinstance(value, str) else "by_workload" if isinstance(value, dict) else None


PROFILE_FILE = InputFile("calibration")
_COSTS = Extensible(custom_device, "simnmt.devices", GIVEN)
ProfileConfiguration = Annotated[
    Annotated[str, Tag("one")] | Annotated[dict[str, Annotated[str, _COSTS]], Tag("by_workload")],
    PROFILE_FILE,
    Discriminator(_profile_form),
    _COSTS,
]
"""A device's profile: one, or one per workload."""
Gigabytes = Annotated[float, Field(gt=0.0, le=1e6)]
"""Of 10^9 bytes."""


class ModelConfiguration(Configuration):
    """The model by which a device executes the requests of a workload, and what it costs to have it in memory."""

    profile: Annotated[str, PROFILE_FILE, _COSTS]
    """Device profile: `@name` of a shipped one or a path."""
    memory_gb: Gigabytes | None = None
    """Memory that the model takes; left out: `resident_bytes` of the profile's block `model_memory`."""
    load_s: Annotated[float, Field(ge=0.0, le=1e6)] | None = None
    """Time in which it is loaded; left out: `load_s` of the profile's block `model_memory`."""
    multilingual: bool = False
    """Whether the workloads whose multilingual models have this profile share one model. Else each has its own, even if both
    cost the same."""


def _model_form(value: Any) -> str | None:
    return "of_profile" if isinstance(value, str) else "with_memory" if isinstance(value, (dict, ModelConfiguration)) else None


Model = Annotated[
    Annotated[str, PROFILE_FILE, Tag("of_profile")] | Annotated[ModelConfiguration, Tag("with_memory")],
    Discriminator(_model_form),
    _COSTS,
]
"""A model by its profile alone, or with what it costs to have it in memory."""


DeviceName = Annotated[str, StringConstraints(max_length=30, pattern=r"^[a-z][a-z0-9_]*$")]
"""Name that is part of column names, such as `cloud_load`."""
END_NODE = "end_node"
"""Name of the device of which every end node has one."""
ClockKind = Literal["pace", "spread", "time"]
"""`time`: the time of the run, which `arrival` and `own` mean."""
Balancer = Literal["attached", "round_robin", "least_work", "two_choices", "random"]


class DeviceConfiguration(Configuration):
    """A kind of box that executes translations, and how many of them there are."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {name: {"type": "null"} for name in ("profile", "models")}}}
    )

    profile: ProfileConfiguration | None = None
    """Device profile: `@name` of a shipped one or a path; or one per workload. Either this or `models` is given."""
    models: Annotated[dict[Name, Model], Field(min_length=1)] | None = None
    """The model of each workload in place of `profile`, by its profile or as `{profile: "@name", memory_gb: 1.2, load_s: 3}`.
    A batch holds sentences of one model."""
    memory_gb: Gigabytes | None = None
    """Memory of each box for `models`; left out: all are in memory. Requests wait until their model is loaded."""
    evict: Evict = "lru"
    """Which model makes room for another: `lru`, the least recently used one; or `never`: all are loaded before the first
    request, and must fit together."""
    outside_range_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Largest share of requests that may lie outside the lengths for which the profile holds."""
    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Boxes of this kind; 1 when left out. Of `end_node` there are as many as the workload has end nodes."""
    workers: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Requests that each box executes side by side, each as fast as the profile says."""
    execution: str | None = None
    """Execution kind of its boxes, by its name in `simnmt.devices.KINDS`; left out: they batch with `batching`, stream their
    model with `sti`, and else execute requests first in, first out."""
    batching: Annotated[BatchingConfiguration, Extensible(custom_batching, "simnmt.batchers")] | None = None
    """How each box forms batches and decodes them, step by step, at the profile's step costs; left out: it executes one request
    after another, or `workers` of them side by side."""
    decoder: DecoderSettings | None = None
    """How its decoder is written: one of the variants that the profile was measured with; options that are
    not named have their plain value, `candidates` and `vocabulary` the profile's. Left out: as the profile was calibrated."""
    sti: StreamingConfiguration | None = None
    """How its model is streamed from the disk, layer by layer; needs a profile with the block `sti`. Left out: the model stays
    in memory."""
    beyond_measured_batch: bool = False
    """Whether batches may be larger than the largest that the profile was measured with; their step costs are extrapolated."""
    balancer: Balancer | None = None
    """Which box a request enters: `attached` (that of its end node), `round_robin`, `least_work` (where it starts soonest; of
    boxes that batch, where fewest target tokens are left), `two_choices` (the better of two drawn) or `random`. Left out:
    `round_robin` for the last device, else `attached`."""
    failures: FailureConfiguration | None = None
    """When its boxes fail and are repaired, such as `{mttf_s: 3600, mttr_s: 60}`, and what becomes of the requests in them.
    Left out: never."""
    overhead: OverheadConfiguration | None = None
    """What a request costs on this device beside queue, execution and link: a number of ms, `{mean_ms: 0.8, sd_ms: 0.2}` or
    `{quantiles_ms: [0.5, 0.7, 1.9]}`. Every request pays that of the first device, half before the decision and half after the
    answer; a request for another device also pays those of the devices up to that one, as part of its transfer time. Left out:
    none."""
    power: PowerConfiguration | None = None
    """Electric power of each box, such as `{idle_w: 5, busy_w: 15}`; left out: as the profile's block `energy` has it."""
    price_per_hour: Annotated[float, Field(ge=0.0, le=1e9)] | None = None
    """Price of an hour of each box, whether it is used or not; left out: it costs nothing."""

    @field_validator("execution")
    @classmethod
    def _is_a_known_kind(cls, name: str | None) -> str | None:
        by_key = {"batch": "batching", "stream": "sti", "models": "models"}
        if name in by_key:
            raise ValueError(f"give {by_key[name]} in place of the execution kind {name}")
        if name is not None and name not in EXECUTION_KINDS:
            raise ValueError(f"unknown execution kind {name!r} (known: {', '.join(EXECUTION_KINDS.keys() - by_key)})")
        return name

    @model_validator(mode="after")
    def _has_one_kind(self) -> DeviceConfiguration:
        if self.execution is not None and (self.batching is not None or self.sti is not None):
            raise ValueError("execution stands beside batching or sti; remove one of them")
        if self.profile is None and self.models is None:
            raise misfit("profile", "missing key")
        if self.profile is not None and self.models is not None:
            raise misfit("models", "stands beside profile; remove one of them")
        if self.memory_gb is not None and self.models is None:
            raise misfit("memory_gb", "is for a device with models, one for each workload")
        return self


class _PolicyParameters(Parameters, Estimation):
    """Keys that every policy accepts: how it estimates its targets."""


Policy = Annotated[
    PolicyConfiguration, Extensible(custom_policy, "simnmt.policies", ("knowledge",), parameters=_PolicyParameters)
]


def _kinds_by_name(policies: Any) -> Any:
    """Accept `policies: {edge: {}}` and `{edge: null}` as kind `edge`."""
    if not isinstance(policies, dict):
        return policies
    known = (*KINDS, *installed_kinds("simnmt.policies"))
    given = {name: {} if policy is None else policy for name, policy in policies.items()}
    return {
        name: {"kind": name, **policy} if isinstance(policy, dict) and "kind" not in policy and name in known else policy
        for name, policy in given.items()
    }


Policies = Annotated[dict[Name, Policy], BeforeValidator(_kinds_by_name)]
"""Policies by name; one that is named after its kind needs no `kind`."""


class ServedWorkload(WorkloadConfiguration):
    """A workload with the service level that it should meet."""

    slo: ServiceLevel | None = None
    """Service level of this workload, in place of the scenario's."""


class SiteConfiguration(Configuration):
    """A place with end nodes, its line, and its first device; what it leaves out is the scenario's."""

    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Sites like this one; each draws the laws of its `rtt_mean_ms`. Their results are shown together."""
    share: Annotated[float, Field(gt=0.0, le=1e9)] = 1.0
    """Weight of its part of the requests of each of its workloads; with a `count`, the weight of each site."""
    end_nodes: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """End nodes at this site; left out: the workload's."""
    workloads: Annotated[list[Name], Field(min_length=1)] | None = None
    """Names of the workloads that are requested here; left out: all."""
    networks: dict[Name, NetworkConfiguration] = Field(default={})
    """The lines of this site by the names of the scenario's networks, each in place of the whole network of that name."""
    devices: dict[DeviceName, DeviceConfiguration | None] = Field(default={})
    """The first device at this site, such as `{gateway: {profile: "@x"}}`; `{gateway: null}`: it has none, and all of its
    requests go to the first device behind. The devices behind are those of all sites."""
    policies: Policies = Field(default={})
    """How this site chooses targets, by the names of the scenario's policies."""


Site = Annotated[
    SiteConfiguration,
    BeforeValidator(lambda site: {} if site is None else site, json_schema_input_type=SiteConfiguration | None),
]


class SingleSite(NamedTuple):
    """One of the sites of a scenario, with each of `count` sites for itself."""

    name: str
    """`berlin`, or `branches-3`."""
    site: str
    """Name under which it is declared."""
    copy: int
    """Its number of `count`, from 1."""
    share: float


class DrawnLine(NamedTuple):
    """The mean RTTs of one link at the sites of one name."""

    site: str
    network: str
    link: Key
    mean_ms: list[float]
    """Of each of `count` sites."""


class FitConfiguration(Configuration):
    """What policies learn from before the run; no request of the run is used for it."""

    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the corpus's pairs that is set apart for fitting the length regression and the planes."""
    inferences: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000
    """Simulated calibration inferences per device, from which policies fit their planes (CNMT-05); 0: the profile's planes."""


class ProfileUncertainty(Configuration):
    """Profiles drawn within the error of their calibration, from which prediction intervals follow."""

    profiles: Annotated[int, Field(ge=20, le=2_000)]
    """Drawn sets of profiles; each adds one run of every workload, network and policy, in the replications in turn."""
    confidence: Annotated[float, Field(ge=0.5, le=0.99)] = 0.9
    """Share of prediction intervals that are to contain the true value."""

    @model_validator(mode="after")
    def _has_enough_profiles(self) -> ProfileUncertainty:
        least = ceil(2.0 / (1.0 - self.confidence) - 1e-9)
        if self.profiles < least:
            raise misfit("profiles", f"too few for a confidence of {self.confidence:g} (give {least} or more)")
        return self


def _with_parts_of_sites(key: str, known: dict[str, Any], sites: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts of a scenario under a key, with those that all sites have and it has not, as the first site has them."""
    added: dict[str, Any] = {}
    for site, parts in sites.items():
        for name in [name for name in parts if name not in known]:
            lacking = next((other for other, others in sites.items() if name not in others), None)
            if lacking is not None:
                null = ", null for none" if key == "devices" else ""
                remedy = did_you_mean(name, known, f"give sites.{lacking}.{key}.{name}{null}")
                raise misfit(("sites", site, key, name), f"neither the scenario nor site {lacking} has this name ({remedy})")
            if added.get(name) is None:
                added[name] = parts[name]
    if not known and all(part is None for part in added.values()):
        raise misfit(key, "missing key (it stands here, or at every site)" if sites else "must have at least one")
    return {**{name: _stand_in(known) if part is None else part for name, part in added.items()}, **known}


def _stand_in(behind: Mapping[str, DeviceConfiguration]) -> DeviceConfiguration:
    """Return what stands for the first device where there is none: a box with the profiles of the device behind."""
    device = next(iter(behind.values()))
    return DeviceConfiguration.model_construct(profile=device.profile, models=device.models, outside_range_share=1.0)


class ScenarioConfiguration(Configuration):
    """A scenario: workloads x networks x policies, replicated."""

    version: Literal[1]
    """Version of the scenario file's form."""
    name: Name
    """Name of the run directory."""
    description: str = ""
    """Purpose of the scenario."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Seed of all random numbers: the same seed gives the same bytes."""
    replications: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Independent repeats, over which intervals are formed; the trace starts elsewhere in each."""
    requests: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Requests per workload, network, policy and replication."""
    objective: Objective = "mean"
    """By what the best policy is chosen: the latency as `mean` or a percentile such as `p95` or `p99.9`; or a spending such as
    `energy_j` or `cost_per_request`."""
    slo: ServiceLevel | None = None
    """Service level that the recommended policy should meet, such as `{p95_ms: 300}`."""
    metrics: list[MetricName] = Field(default_factory=list, max_length=100)
    """Metrics that are measured beside those of every summary, such as `p97.5_ms`."""
    warm_up_requests: Annotated[int, Field(ge=0)] = 0
    """Requests at the beginning of each replication that count in no number of the summary."""
    workloads: Annotated[dict[Name, ServedWorkload], Field(min_length=1)]
    """What is translated: lengths, arrivals and end nodes, by name."""
    networks: dict[Name, NetworkConfiguration]
    """Links between the devices, by name. They may stand at the sites alone."""
    devices: Annotated[dict[DeviceName, DeviceConfiguration], Field(max_length=100)]
    """Where requests are translated, nearest first. The first device decides: the end nodes' own if it is named `end_node`,
    else the gateway to which end nodes are attached. It may stand at the sites alone."""
    sites: dict[Name, Site] = Field(default={})
    """Places from which requests come, each with its own line and its own first device; they share the devices behind. Left
    out: one place."""
    share_devices: bool | None = None
    """Whether requests of all workloads meet at the same devices, in one run; otherwise each workload has all devices to
    itself. Left out: they do if there are sites, or several workloads that all have arrivals at a rate."""
    late_answers: LateAnswers | None = None
    """What the first device does about requests whose answers do not come, such as `{timeout_ms: 500}`. Left out: it waits."""
    fit: FitConfiguration = FitConfiguration()
    """What the policies learn from."""
    policies: Annotated[Policies, Field(min_length=1)]
    """How targets are chosen, by name; a policy named after its kind needs no `kind`."""
    gap_analysis: bool = False
    """Also run the first C-NMT policy with one source of loss after another replaced by the truth (CNMT-19)."""
    profile_uncertainty: ProfileUncertainty | None = None
    """Prediction intervals that contain the error of the device profiles' calibration, such as `{profiles: 100}`; left out:
    intervals over replications alone."""
    foresee_misroutes: bool = False
    """If a device streams its model, judge each decision by what an oracle foresees of queues and states at that moment, which
    costs as much as an oracle for each policy. Otherwise misroutes are unknown with such a device, as they always are where
    requests queue at one that batches. Plain queues are always foreseen, for a sample of the requests."""

    @model_validator(mode="before")
    @classmethod
    def _needs_no_part_that_sites_have(cls, content: Any) -> Any:
        return {"networks": {}, "devices": {}, **content} if isinstance(content, dict) and content.get("sites") else content

    @model_validator(mode="after")
    def _has_parts_of_sites(self) -> ScenarioConfiguration:
        """Return the scenario with the networks and the first device that stand at the sites alone."""
        networks = _with_parts_of_sites("networks", self.networks, {name: site.networks for name, site in self.sites.items()})
        devices = _with_parts_of_sites("devices", self.devices, {name: site.devices for name, site in self.sites.items()})
        first, *behind = devices
        if not behind and self.devices and sum(site.count for site in self.sites.values() if not site.devices) > 1:
            what = f"does each site have its own {first}, or do all share it? (write it at each site, or gateway: null there)"
            raise misfit(("devices", first), what)
        for name, site in self.sites.items():
            for device, settings in site.devices.items():
                if device != first:
                    what = f"the sites share this device; each may only have another {first}, the first device"
                    raise misfit(("sites", name, "devices", device), what)
                if settings is None and not behind:
                    what = "no device is left to which requests of this site could go"
                    raise misfit(("sites", name, "devices", device), what)
        return self.model_copy(update={"networks": networks, "devices": devices}) if self.sites else self

    @model_validator(mode="after")
    def _leaves_requests(self) -> ScenarioConfiguration:
        if self.warm_up_requests >= self.requests:
            raise misfit("warm_up_requests", f"{self.warm_up_requests:,} of {self.requests:,} requests leave nothing to count")
        return self

    @field_validator("version", mode="before")
    @classmethod
    def _is_a_number(cls, version: object) -> object:
        if isinstance(version, bool):  # true equals 1
            raise ValueError("give 1")
        return version

    def document(self) -> dict[str, Any]:
        """Return the scenario as plain data; an extension as its keys, or as the name of its class."""
        # Without pydantic's warning that an extension is no member of a union of shipped kinds.
        return self.model_dump(mode="json", warnings=False)

    def at(self, site: str, copy: int = 1) -> ScenarioConfiguration:
        """Return the scenario as a site sees it: its workloads with its end nodes, its networks, first device and policies.

        Policies of a site without a first device send everything to the device behind. In place of the first device there is
        then a stand-in with the profile of that one (`own_device` is None).

        Args:
            site: name under which it is declared.
            copy: its number of `count`, from 1, by which it draws the laws of `rtt_mean_ms`.

        Example:
            >>> scenario.at("berlin").networks["today"].rtt_mean_ms  # doctest: +SKIP
            20.0
        """
        part = self.sites[site]
        end_nodes = {} if part.end_nodes is None else {"end_nodes": part.end_nodes}
        draw = partial(self._drawn_mean_ms, site, copy)
        policies, device = {**self.policies, **part.policies}, self.own_device(site)
        if device is None:
            _, *behind = self.devices
            device = _stand_in({name: self.devices[name] for name in behind})
            policies = dict.fromkeys(self.policies, FixedPolicy(kind="fixed", device=behind[0]))
        return self.model_copy(
            update={
                "workloads": {name: self.workloads[name].model_copy(update=end_nodes) for name in self.workloads_at(site)},
                "networks": {
                    name: with_drawn_means(network, draw) for name, network in {**self.networks, **part.networks}.items()
                },
                "devices": {**self.devices, next(iter(self.devices)): device},
                "policies": policies,
                "sites": {},
            }
        )

    def own_device(self, site: str) -> DeviceConfiguration | None:
        """Return the first device at a site; None if it has none."""
        first = next(iter(self.devices))
        return self.sites[site].devices.get(first, self.devices[first])

    def key_at(self, site: str, location: Location) -> Location:
        """Return the path to a part of the scenario as a site sees it: below the site, if it states this part."""
        key, *names = location
        is_own = key in ("networks", "devices", "policies") and names and names[0] in getattr(self.sites[site], str(key))
        return ("sites", site, *location) if is_own else location

    def workloads_at(self, site: str) -> list[str]:
        """Return the names of the workloads that are requested at a site, in the scenario's order."""
        names = self.sites[site].workloads
        return [name for name in self.workloads if names is None or name in names]

    @property
    def single_sites(self) -> Iterator[SingleSite]:
        """The sites with each of `count` for itself, in the order of the scenario; none without `sites`."""
        for name, site in self.sites.items():
            for copy in range(1, site.count + 1):
                yield SingleSite(name if site.count == 1 else f"{name}-{copy}", name, copy, site.share)

    def _drawn_mean_ms(self, site: str, copy: int, link: Key, law: DrawnNumber) -> float:
        # By the link, and not by the network: a far site is far on every network that the scenario compares.
        return law.draw(stream(self.seed, copy, "/".join(map(str, ("rtt_mean_ms", site, *link)))))

    @property
    def drawn_lines(self) -> Iterator[DrawnLine]:
        """What each site draws by the laws of `rtt_mean_ms`, in the order of the scenario."""
        for name, site in self.sites.items():
            for network, line in {**self.networks, **site.networks}.items():
                for link, part in links_of(line):
                    if isinstance(law := part.rtt_mean_ms, DrawnNumber):
                        copies = range(1, site.count + 1)
                        yield DrawnLine(name, network, link, [self._drawn_mean_ms(name, copy, link, law) for copy in copies])

    def nodes_of(self, workload: str) -> int:
        """Return the end nodes of a workload, at all sites."""
        nodes = self.workloads[workload].end_nodes
        at = [site for name, site in self.sites.items() if workload in self.workloads_at(name)]
        return sum(site.count * (site.end_nodes or nodes) for site in at) if self.sites else nodes

    @property
    def shares_devices(self) -> bool:
        """Whether requests of all workloads meet at the same devices, in one run."""
        if self.share_devices is not None:
            return self.share_devices
        return bool(self.sites) or (len(self.workloads) > 1 and all(map(self.is_open, self.workloads)))

    def is_open(self, workload: str) -> bool:
        """Return whether the requests of a workload arrive whatever the answers."""
        return getattr(self.workloads[workload].arrivals, "discipline", "open") == "open"

    @property
    def _links(self) -> list[LinkConfiguration]:
        networks = [*self.networks.values(), *(network for site in self.sites.values() for network in site.networks.values())]
        return [link for network in networks for _, link in links_of(network)]

    @property
    def _all_devices(self) -> list[DeviceConfiguration]:
        at_sites = (device for site in self.sites.values() for device in site.devices.values())
        return [*self.devices.values(), *(device for device in at_sites if device is not None)]

    @property
    def has_prices(self) -> bool:
        """Whether it gives a price of a device or of a link."""
        prices = [link.price_per_gb for link in self._links] + [device.price_per_hour for device in self._all_devices]
        return any(price is not None for price in prices)

    @property
    def has_costs(self) -> bool:
        """Whether it gives the power of a device, the energy of a byte, or a price."""
        links = any(link.joules_per_byte is not None for link in self._links)
        return self.has_prices or links or any(device.power is not None for device in self._all_devices)

    def profile_of(self, device: str, workload_name: str) -> str | CustomDevice:
        """Return the profile that a device uses for a workload, as named in the file, or as a user brings it."""
        model, profile = self.model_of(device, workload_name), self.devices[device].profile
        if model is not None:
            return model.profile
        return profile[workload_name] if isinstance(profile, dict) else profile  # type: ignore[return-value]

    def model_of(self, device: str, workload_name: str) -> ModelConfiguration | None:
        """Return the model by which a device executes the requests of a workload; None for a device with a profile."""
        models = self.devices[device].models
        if models is None:
            return None
        model = models[workload_name]
        # A profile that a user brings is an object in the place of a text.
        return model if isinstance(model, ModelConfiguration) else ModelConfiguration.model_construct(profile=model)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements of the service level."""
        return _requirements(self.slo)

    def requirements_of(self, workload: str) -> tuple[Requirement, ...]:
        """Return the requirements of a workload's service level, or of `all`; the scenario's if it has none."""
        slo = self.workloads[workload].slo if workload in self.workloads else None
        return self.requirements if slo is None else _requirements(slo)

    @property
    def measured_metrics(self) -> tuple[Metric, ...]:
        """The metrics by which the run is judged: of the objective, the service level, and further ones."""
        levels = [self.requirements, *(_requirements(workload.slo) for workload in self.workloads.values())]
        required = [one.metric for level in levels for one in level]
        return tuple(dict.fromkeys((objective_metric(self.objective), *required, *map(metric, self.metrics))))

    def criteria_of(self, workload_name: str) -> Criteria:
        """Return what the runs of a workload are judged by.

        An answer counts for the goodput within the workload's deadline; without one, within the tightest limit of a percentile
        of the latency; without any of them, always.
        """
        deadline_ms = self.workloads[workload_name].deadline_ms
        limits_s = [
            one.limit / 1e3
            for one in self.requirements_of(workload_name)
            if one.metric.sample == "latency" and one.metric.quantile is not None
        ]
        deadline_s = None if deadline_ms is None else deadline_ms / 1e3
        good_within_s = min(limits_s if deadline_s is None else [deadline_s], default=None)
        return Criteria(self.measured_metrics, deadline_s, good_within_s)

    def count_of(self, device: str, workload_name: str) -> int:
        """Return the number of boxes of a device that a workload meets."""
        return self.workloads[workload_name].end_nodes if device == END_NODE else self.devices[device].count or 1

    def clock_of(self, workload: str, network: str) -> ClockKind:
        """Return the clock by which the requests of a workload meet the traces of a network."""
        clock = self.networks[network].clock
        if clock == "pace" or clock == "spread":
            return clock
        back_to_back = isinstance(self.workloads[workload].arrivals, BackToBack)
        return "pace" if clock is None and back_to_back else "time"

    @property
    def has_faults(self) -> bool:
        """True if links or devices fail, or late answers are not waited for."""
        fails = any(device.failures is not None for device in self._all_devices)
        return self.late_answers is not None or fails or any(link.outages is not None for link in self._links)

    @property
    def analysed_policy(self) -> str | None:
        """The policy of the gap analysis: the first of kind cnmt; None without one."""
        return next((name for name, policy in self.policies.items() if isinstance(policy, CNmtPolicy)), None)

    def balancer_of(self, device: str) -> Balancer:
        """Return the balancer of a device, which is its default if none is set."""
        default: Balancer = "round_robin" if device == list(self.devices)[-1] else "attached"
        return self.devices[device].balancer or default
