"""The parts of a scenario file that belong to no lower room: service levels, devices, policies by name, and sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

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
from simnmt.batching.configuration import BatchingConfiguration
from simnmt.batching.custom import custom_batching
from simnmt.batching.model_memory import Evict
from simnmt.devices import KINDS as EXECUTION_KINDS
from simnmt.devices.failures import FailureConfiguration
from simnmt.devices.slots import SlotsConfiguration
from simnmt.devices.streaming_configuration import StreamingConfiguration
from simnmt.devices.translation_cache import CacheConfiguration
from simnmt.network.configuration import NetworkConfiguration
from simnmt.network.link import OverheadConfiguration
from simnmt.policies import KINDS, PolicyConfiguration
from simnmt.policies.custom import custom_policy
from simnmt.policies.decision import Estimation
from simnmt.profile.custom import GIVEN, custom_device
from simnmt.profile.decoder_settings import DecoderSettings
from simnmt.profile.power import PowerConfiguration
from simnmt.results.metrics import LEAST_LIMIT, SPENDINGS, Metric, Requirement, metric, objective_metric
from simnmt.workload.configuration import WorkloadConfiguration


def requirement(name: str, limit: float) -> Requirement:
    """Return the requirement of a metric. Raises `InputError` for an unknown metric or another limit."""
    if isinstance(limit, bool) != (name == "stable"):
        raise InputError(f"takes {'true' if name == 'stable' else 'one number'}")
    return Requirement.of(metric(name), float(limit))


def requirements(level: Mapping[str, float] | None) -> tuple[Requirement, ...]:
    """Return the requirements of a service level."""
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

_OBJECTIVES = rf"^((document_|first_sentence_)?(mean|p[5-9][0-9](\.[1-9])?)|{'|'.join(SPENDINGS)})$"
Objective = Annotated[str, _checked_name(objective_metric), Field(json_schema_extra={"pattern": _OBJECTIVES})]
"""`mean` or a percentile of the latency such as `p95`, that of documents such as `document_p95`, or a spending such as
`energy_j`."""
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
"""Gigabytes of 10^9 bytes."""


TwoNames = Annotated[list[Name], Field(min_length=2, max_length=2)]


class ModelConfiguration(Configuration):
    """The model by which a device executes the requests of a workload, and what it costs to have it in memory."""

    profile: Annotated[str, PROFILE_FILE, _COSTS] | None = None
    """Device profile: `@name` of a shipped one or a path."""
    pivot: TwoNames | None = None
    """In place of a profile: two other models of the device, such as `[de-en, en-fr]`, which execute the request in turn on one
    worker, both in memory at once."""
    middle_per_src: Annotated[float, Field(gt=0.0, le=100.0)] = 1.0
    """Tokens of the sentence between the two executions of `pivot` for each source token, on average."""
    memory_gb: Gigabytes | None = None
    """Memory that the model takes; left out: `resident_bytes` of the profile's block `model_memory`."""
    load_s: Annotated[float, Field(ge=0.0, le=1e6)] | None = None
    """Time in which it is loaded; left out: `load_s` of the profile's block `model_memory`."""
    multilingual: bool = False
    """Whether the workloads whose multilingual models have this profile share one model. Else each has its own, even if both
    cost the same."""

    @model_validator(mode="after")
    def _is_one_model_or_two(self) -> ModelConfiguration:
        if self.pivot is None:
            if self.profile is None:
                raise misfit("profile", "missing key")
            if self.middle_per_src != 1.0:
                raise misfit("middle_per_src", "is for a model with pivot")
        for key in ("profile", "memory_gb", "load_s", "multilingual") if self.pivot else ():
            if getattr(self, key) != type(self).model_fields[key].default:  # a resolved scenario states defaults
                raise misfit(key, "is given beside pivot, whose models have their own")
        return self


def _whole_model(model: Any) -> Any:
    if isinstance(model, list):
        return {"pivot": model}
    return model if isinstance(model, (dict, ModelConfiguration)) else {"profile": model}


Model = Annotated[ModelConfiguration, BeforeValidator(_whole_model, json_schema_input_type=str | TwoNames | ModelConfiguration)]
"""A model; its profile alone stands for one without further keys, and two names for a pivot."""


DeviceName = Annotated[str, StringConstraints(max_length=30, pattern=r"^[a-z][a-z0-9_]*$")]
"""Name that is part of column names, such as `cloud_load`."""
Balancer = Literal["attached", "round_robin", "least_work", "two_choices", "random"]


class DeviceConfiguration(Configuration):
    """A kind of box that executes translations, and how many of them there are."""

    model_config = ConfigDict(
        json_schema_extra={"not": {"properties": {name: {"type": "null"} for name in ("profile", "models")}}}
    )

    profile: ProfileConfiguration | None = None
    """Device profile: `@name` of a shipped one or a path; or one per workload. Either this or `models` is given."""
    models: Annotated[dict[Name, Model], Field(min_length=1)] | None = None
    """The model of each workload in place of `profile`: by its profile, as `{profile: "@name", memory_gb: 1.2, load_s: 3}`, or
    as a pivot of two others, such as `[de-en, en-fr]`. A batch holds sentences of one model."""
    memory_gb: Gigabytes | None = None
    """Memory of each box for `models`; left out: all are in memory. Requests wait until their model is loaded."""
    evict: Evict = "lru"
    """Which model makes room for another: `lru`, the least recently used one; or `never`: all are loaded before the first
    request, and must fit together."""
    outside_range_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Largest share of requests that may lie outside the lengths for which the profile holds."""
    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Boxes of this kind; 1 when left out. Of `end_node` there are as many as the workload has end nodes."""
    workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Requests that each box executes side by side, each as fast as the profile says; left out: as many as the profile was
    measured with, else 1."""
    execution: str | None = None
    """Execution kind of its boxes, by its name in `simnmt.devices.KINDS`; left out: they batch with `batching`, stream their
    model with `sti`, and else execute requests first in, first out."""
    batching: Annotated[BatchingConfiguration, Extensible(custom_batching, "simnmt.batchers")] | None = None
    """How each box forms batches and decodes them, step by step, at the profile's step costs; left out: it executes one request
    after another, or `workers` of them side by side."""
    slots: SlotsConfiguration | None = None
    """Limits of its engine with slots in place of those of the profile's block `slots`, such as `{slots: 8, context: 2048}`. A
    device whose profile has the block decodes in slots by itself. Left out: the profile's."""
    decoder: DecoderSettings | None = None
    """How its decoder is written: one of the variants that the profile was measured with; options that are
    not named have their plain value, `candidates` and `vocabulary` the profile's. Left out: as the profile was calibrated."""
    sti: StreamingConfiguration | None = None
    """How its model is streamed from the disk, layer by layer; needs a profile with the block `sti`. Left out: the model stays
    in memory."""
    cache: CacheConfiguration | None = None
    """The translations that each box of the first device keeps, such as `{entries: 20000, ttl_s: 86400, hit_ms: 0.3}`. It
    stands before the decision, and answers sentences that come back (`repeats` of a workload). Left out: none."""
    max_waiting: Annotated[int, Field(ge=1, le=1_000_000_000)] | None = None
    """Most requests that wait at each box; those that are executed do not count. A request waits until its execution begins, in
    a batch until it is encoded. Left out: any number."""
    on_full: Literal["refuse", "wait"] | None = None
    """What becomes of a request that finds `max_waiting` others at its box: it is refused (`refuse`, as if left out), or waits
    outside in the order of arrival until there is room (`wait`), which takes as long as in a queue without a limit."""
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

    @property
    def refuses_above(self) -> int | None:
        """Requests that wait at a box when it refuses further ones; None if it never does."""
        return None if self.on_full == "wait" else self.max_waiting

    @property
    def beside_slots(self) -> str | None:
        """The first key that does not fit a device that decodes in slots; None without one."""
        keys = ("batching", "decoder", "execution", "models", "sti", "workers")
        return next((key for key in keys if getattr(self, key) not in (None, 1)), None)

    @property
    def loads_models(self) -> bool:
        """Whether requests may wait until their model is loaded."""
        return self.memory_gb is not None and self.evict != "never"

    @field_validator("execution")
    @classmethod
    def _is_a_known_kind(cls, name: str | None) -> str | None:
        by_key = {"batch": "batching", "stream": "sti", "models": "models", "slots": "slots"}
        if name in by_key:
            raise ValueError(f"give {by_key[name]} in place of the execution kind {name}")
        if name is not None and name not in EXECUTION_KINDS:
            raise ValueError(f"unknown execution kind {name!r} (known: {', '.join(EXECUTION_KINDS.keys() - by_key)})")
        return name

    @model_validator(mode="after")
    def _has_one_kind(self) -> DeviceConfiguration:
        if self.profile is None and self.models is None:
            raise misfit("profile", "missing key")
        if self.profile is not None and self.models is not None:
            raise misfit("models", "is given beside profile; give one of them")
        if self.memory_gb is not None and self.models is None:
            raise misfit("memory_gb", "is for a device with models; give models in place of profile, or leave it out")
        if self.cache is not None and self.sti is not None:
            raise misfit("cache", "is for a device whose model stays in memory, and this one streams it (remove cache or sti)")
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


class ClassConfiguration(Configuration):
    """A class of requests: when devices serve them, and the service level that they should meet."""

    priority: Annotated[int, Field(ge=0, le=1_000)]
    """Devices serve the lowest number first, and requests of a class in the order of arrival; what has begun goes on."""
    max_wait_s: Annotated[float, Field(gt=0.0, le=1e9)] | None = None
    """A request that has waited that long at a device goes before those of all classes that have not; left out: never. If many
    wait that long, they go before those of classes that should be served first."""
    slo: ServiceLevel | None = None
    """Service level of all requests of the class, in place of the scenario's."""


class ScoresConfiguration(Configuration):
    """How well a device translates each sentence of a text, with a profile and a decoder."""

    scores: Annotated[str, InputFile(), Field(min_length=1)]
    """File that `simnmt nmt score` wrote."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The model of the file that runs on this device; left out: the only one of the file."""
    profile: Annotated[str, PROFILE_FILE] | None = None
    """The device's profile with which it runs that model; left out: any."""
    decoder: DecoderSettings | None = None
    """The device's `decoder` with which it translates so; left out: any."""

    def fits(self, profile: object, decoder: DecoderSettings | None) -> bool:
        """Return whether a device with this profile and decoder translates so."""
        is_profile = self.profile is None or (isinstance(profile, str) and Path(profile) == Path(self.profile))
        return is_profile and self.decoder in (None, decoder)


_Scores = Annotated[
    ScoresConfiguration,
    BeforeValidator(
        lambda value: {"scores": value} if isinstance(value, str) else value,
        json_schema_input_type=Annotated[str, Field(min_length=1)] | ScoresConfiguration,
    ),
]
"""The scores of a model; the file alone stands for its only one."""
Quality = dict[
    DeviceName,
    Annotated[
        Annotated[_Scores, Tag("one")] | Annotated[list[_Scores], Field(min_length=1), Tag("several")],
        Discriminator(lambda value: "several" if isinstance(value, list) else "one"),
    ],
]
"""The scores of each device; of several, the first that fit its profile and decoder."""


class ServedWorkload(WorkloadConfiguration):
    """A workload with what its policy should minimise, and the service level that it should meet."""

    request_class: Name | None = Field(default=None, alias="class")
    """Class of its requests, one of the scenario's `classes`."""

    objective: Objective | None = None
    """What the best policy of this workload minimises, in place of the scenario's `objective`."""
    slo: ServiceLevel | None = None
    """Service level of this workload, in place of the scenario's."""
    quality: Quality | None = None
    """Scores of this workload's sentences by device, in place of the scenario's."""


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
    requests go to the one device behind. The devices behind are those of all sites."""
    policies: Policies = Field(default={})
    """How this site chooses targets, by the names of the scenario's policies."""


Site = Annotated[
    SiteConfiguration,
    BeforeValidator(lambda site: {} if site is None else site, json_schema_input_type=SiteConfiguration | None),
]
