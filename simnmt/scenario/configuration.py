"""The schema of a scenario file: workloads, networks, devices, policies, and the settings of a run.

Each room owns the configuration of what it builds; `parts` has what belongs to no lower room, and this module composes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil, inf
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from simnmt.base.configuration import Configuration, misfit
from simnmt.base.laws import DrawnNumber
from simnmt.base.random_streams import stream
from simnmt.base.suggestions import did_you_mean
from simnmt.devices.failures import LateAnswers
from simnmt.network.configuration import Key, LinkConfiguration, NetworkConfiguration, links_of, with_drawn_means
from simnmt.policies.baselines import FixedPolicy
from simnmt.policies.cnmt import CNmtPolicy
from simnmt.profile.custom import CustomDevice
from simnmt.results.metrics import Criteria, Metric, Requirement, metric, objective_metric
from simnmt.results.places import class_of, class_row
from simnmt.scenario.errors import Location
from simnmt.scenario.parts import (
    Balancer,
    ClassConfiguration,
    DeviceConfiguration,
    DeviceName,
    MetricName,
    ModelConfiguration,
    Name,
    Objective,
    Policies,
    Quality,
    ScoresConfiguration,
    ServedWorkload,
    ServiceLevel,
    Site,
    requirements,
)
from simnmt.workload.arrivals import BackToBack

END_NODE = "end_node"
"""Name of the device of which every end node has one."""
ClockKind = Literal["pace", "spread", "time"]
"""`time`: the time of the run, which `arrival` and `own` mean."""


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
    """Requests per network, policy and replication: of each workload, or of all together where they share the devices."""
    objective: Objective = "mean"
    """By what the best policy is chosen: the latency as `mean` or a percentile such as `p95` or `p99.9`; that of documents,
    such as `document_p95`; or a spending such as `energy_j` or `cost_per_request`."""
    slo: ServiceLevel | None = None
    """Service level that the recommended policy should meet, such as `{p95_ms: 300}`."""
    metrics: list[MetricName] = Field(default_factory=list, max_length=100)
    """Metrics that are measured beside those of every summary, such as `p97.5_ms`."""
    warm_up_requests: Annotated[int, Field(ge=0)] = 0
    """Requests at the beginning of each replication that count in no number of the summary."""
    workloads: Annotated[dict[Name, ServedWorkload], Field(min_length=1)]
    """What is translated: lengths, arrivals and end nodes, by name."""
    networks: Annotated[dict[Name, NetworkConfiguration], Field(min_length=1)]
    """Links between the devices, by name."""
    devices: Annotated[dict[DeviceName, DeviceConfiguration], Field(min_length=1, max_length=100)]
    """Where requests are translated, nearest first. The first device decides: the end nodes' own if it is named `end_node`,
    else the gateway to which end nodes are attached. Each site has one."""
    sites: dict[Name, Site] = Field(default={})
    """Places from which requests come, each with its own line and its own first device; they share the devices behind. Left
    out: one place."""
    share_devices: bool | None = None
    """Whether requests of all workloads meet at the same devices, in one run; otherwise each workload has all devices to
    itself. Left out: they do if there are sites, or several workloads that all have arrivals at a rate."""
    decide_by: Literal["sentence", "document"] = "sentence"
    """Whether policies decide on each sentence of a document by itself, or the decision on its first one holds for all."""
    quality: Quality = Field(default={})
    """How well each device translates the sentences of a workload's text, such as `{gateway: small.parquet, cloud: {scores:
    both.parquet, model: big}}`, or by profile and decoder `{gateway: [{decoder: {beam: 4}, scores: beam4.parquet},
    small.parquet], ...}`: the summary then has chrF and BLEU of each policy. Left out: only latency is compared."""
    classes: dict[Name, ClassConfiguration] = Field(default={}, max_length=16)
    """Classes of requests that devices serve before others, such as `{interactive: {priority: 0}, files: {priority: 1}}`; each
    workload names its `class`. Left out: all requests are served in the order of arrival."""
    late_answers: LateAnswers | None = None
    """What the first device does about requests whose answers do not come, such as `{timeout_ms: 500}`. Left out: it waits."""
    on_refusal: Literal["fall_back", "pass_on"] | None = None
    """What the first device does about a request that a full device refuses (`max_waiting`): it executes it (`fall_back`), or
    refuses it in turn (`pass_on`). Left out: `fall_back`."""
    fit: FitConfiguration = FitConfiguration()
    """What the policies learn from."""
    policies: Annotated[Policies, Field(min_length=1, json_schema_extra={"minProperties": 1})]
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

    @model_validator(mode="after")
    def _has_parts_of_sites(self) -> ScenarioConfiguration:
        first, *behind = self.devices
        if not behind and sum(site.count for site in self.sites.values() if not site.devices) > 1:
            what = f"does each site have its own {first}, or do all share it?"
            remedy = "write it at each site, or a first device before it that is null at each site"
            raise misfit(("devices", first), f"{what} ({remedy})")
        for site, part in self.sites.items():
            for name in part.networks:
                if name not in self.networks:
                    remedy = did_you_mean(name, self.networks)
                    raise misfit(("sites", site, "networks", name), f"the scenario has no network of this name ({remedy})")
            for device, own in part.devices.items():
                if device != first:
                    what = f"the sites share the devices behind {first}; each may only have another {first}"
                    raise misfit(("sites", site, "devices", device), what)
                if own is None and not behind:
                    what = "no device is left to which requests of this site could go"
                    raise misfit(("sites", site, "devices", device), what)
        return self

    @model_validator(mode="after")
    def _has_caches_before_decisions(self) -> ScenarioConfiguration:
        first, *behind = self.devices
        for device in behind:
            if self.devices[device].cache is not None:
                raise misfit(("devices", device, "cache"), f"a cache stands before the decision (move it to devices.{first})")
        return self

    @model_validator(mode="after")
    def _has_documents_to_decide_by(self) -> ScenarioConfiguration:
        if self.decide_by == "document" and not self.has_documents:
            raise misfit("decide_by", "no workload has documents (give workloads.NAME.documents, or write sentence)")
        return self

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
        return self.model_dump(mode="json", by_alias=True, warnings=False)

    def at(self, site: str, copy: int = 1) -> ScenarioConfiguration:
        """Return the scenario as a site sees it: its workloads with its end nodes, its networks, first device and policies.

        Policies of a site without a first device send everything to the device behind. In place of the first device there is
        then a stand-in with the profile of that one (`own_device` is None).

        `copy`: its number of `count`, from 1, by which it draws the laws of `rtt_mean_ms`.
        """
        part, draw = self.sites[site], partial(self._drawn_mean_ms, site, copy)
        end_nodes = {} if part.end_nodes is None else {"end_nodes": part.end_nodes}
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

    def _drawn_mean_ms(self, site: str, copy: int, link: Key, law: DrawnNumber) -> float:
        # By the link, and not by the network: a far site is far on every network that the scenario compares.
        return law.draw(stream(self.seed, copy, "/".join(map(str, ("rtt_mean_ms", site, *link)))))

    @property
    def drawn_means_ms(self) -> dict[tuple[str, str, Key], list[float]]:
        """What the sites of one name draw by the laws of `rtt_mean_ms`, by site, network and link."""
        return {
            (name, network, link): [self._drawn_mean_ms(name, copy, link, law) for copy in range(1, site.count + 1)]
            for name, site in self.sites.items()
            for network, line in {**self.networks, **site.networks}.items()
            for link, part in links_of(line)
            if isinstance(law := part.rtt_mean_ms, DrawnNumber)
        }

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

    @property
    def has_documents(self) -> bool:
        """Whether the arrivals of a workload are documents."""
        return any(workload.documents is not None for workload in self.workloads.values())

    def is_open(self, workload: str) -> bool:
        """Return whether the requests of a workload do not wait for answers."""
        return getattr(self.workloads[workload].arrivals, "discipline", "open") == "open"

    @property
    def ranked_classes(self) -> list[str]:
        """The names of the classes, the first served first."""
        return sorted(self.classes, key=lambda name: self.classes[name].priority)

    @property
    def row_names(self) -> list[str]:
        """What stands in the column `workload` of the rows of its workloads and classes."""
        return [*self.workloads, *(map(class_row, self.classes) if len(self.workloads) > 1 else ())]

    @property
    def max_wait_s(self) -> tuple[float, ...]:
        """How long requests wait at most before they go first, by class in that order; one infinite wait without classes."""
        waits_s = [self.classes[name].max_wait_s for name in self.ranked_classes]
        return tuple(inf if wait_s is None else wait_s for wait_s in waits_s) or (inf,)

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
            return model.profile  # type: ignore[return-value]
        return profile[workload_name] if isinstance(profile, dict) else profile  # type: ignore[return-value]

    def models_of(self, device: str, workload_name: str) -> list[str]:
        """Return the names of the models that execute the requests of a workload: two in turn if these pivot, else its own."""
        model = self.model_of(device, workload_name)
        return [workload_name] if model is None or model.pivot is None else model.pivot

    def model_of(self, device: str, workload_name: str) -> ModelConfiguration | None:
        """Return the model by which a device executes the requests of a workload; None for a device with a profile."""
        models = self.devices[device].models
        return None if models is None else models[workload_name]

    def quality_of(self, workload: str) -> Quality:
        """Return the scores of a workload by device; empty without any."""
        of_workload = self.workloads[workload].quality
        return self.quality if of_workload is None else of_workload

    def quality_place(self, workload: str) -> Location:
        """Return the key that states the scores of a workload."""
        return ("quality",) if self.workloads[workload].quality is None else ("workloads", workload, "quality")

    def stated_scores(self, device: str, workload: str) -> list[ScoresConfiguration]:
        """Return all scores that are stated of a device for a workload that has some."""
        stated = self.quality_of(workload)[device]
        return stated if isinstance(stated, list) else [stated]

    def scores_of(self, device: str, workload: str) -> ScoresConfiguration | None:
        """Return those that fit the profile and the decoder of the device; None if none do."""
        profile, decoder = self.profile_of(device, workload), self.devices[device].decoder
        return next((one for one in self.stated_scores(device, workload) if one.fits(profile, decoder)), None)

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements of the service level."""
        return requirements(self.slo)

    def requirements_of(self, workload: str) -> tuple[Requirement, ...]:
        """Return the requirements of the service level of a workload, of `all` or of a row of a class; the scenario's if it has
        none. A workload of a class with a service level has none but its own, since the class is judged."""
        if (name := class_of(workload)) is not None:
            return requirements(self.classes[name].slo)
        part = self.workloads.get(workload)
        if part is not None and part.slo is None and self._class_level(workload):
            return () if len(self.workloads) > 1 else self._class_level(workload)
        return self.requirements if part is None or part.slo is None else requirements(part.slo)

    def _class_level(self, workload: str) -> tuple[Requirement, ...]:
        name = self.workloads[workload].request_class
        return requirements(self.classes[name].slo) if name in self.classes else ()

    @property
    def objectives(self) -> dict[str, Objective]:
        """The objectives of workloads that have one of their own."""
        return {name: part.objective for name, part in self.workloads.items() if part.objective is not None}

    @property
    def measured_metrics(self) -> tuple[Metric, ...]:
        """The metrics by which the run is judged: of the objective, the service level, and further ones."""
        levels = [self.slo, *(part.slo for part in self.workloads.values()), *(part.slo for part in self.classes.values())]
        required = [one.metric for level in levels for one in requirements(level)]
        minimised = map(objective_metric, (self.objective, *self.objectives.values()))
        return tuple(dict.fromkeys((*minimised, *required, *map(metric, self.metrics))))

    def criteria_of(self, workload_name: str) -> Criteria:
        """Return what the runs of a workload are judged by.

        An answer counts for the goodput within the workload's deadline; without one, within the tightest limit of a percentile
        of the latency; without any of them, always.
        """
        deadline_ms = self.workloads[workload_name].deadline_ms
        level = self.requirements_of(workload_name) or self._class_level(workload_name)
        if deadline_ms is not None:
            return Criteria(self.measured_metrics, deadline_ms / 1e3, deadline_ms / 1e3)
        limits_s = [one.limit / 1e3 for one in level if one.metric.sample == "latency" and one.metric.quantile is not None]
        return Criteria(self.measured_metrics, None, min(limits_s, default=None))

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
    def has_caches(self) -> bool:
        """True if a device keeps translations."""
        return any(device.cache is not None for device in self._all_devices)

    @property
    def refuses(self) -> bool:
        """True if devices refuse requests when they are full."""
        return any(device.refuses_above is not None for device in self._all_devices)

    @property
    def analysed_policy(self) -> str | None:
        """The policy of the gap analysis: the first of kind cnmt; None without one."""
        return next((name for name, policy in self.policies.items() if isinstance(policy, CNmtPolicy)), None)

    def balancer_of(self, device: str) -> Balancer:
        """Return the balancer of a device, which is its default if none is set."""
        default: Balancer = "round_robin" if device == list(self.devices)[-1] else "attached"
        return self.devices[device].balancer or default
