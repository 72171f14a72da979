"""What a scenario file may say: the parts' own models, composed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, StringConstraints, Tag, model_validator

from simnmt import network, workload
from simnmt.configuration import Configuration
from simnmt.network.configuration import NetworkConfiguration
from simnmt.policies.configuration import KINDS, PolicyConfiguration
from simnmt.workload.configuration import WorkloadConfiguration

Name = Annotated[str, StringConstraints(min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f/\\]+$")]
"""Shown in tables and pages; no control characters, no slashes."""


def _profile_form(value: Any) -> str | None:
    """The tag of the form that a value means to have: it stands in the location of pydantic's errors and is no key."""
    return "one" if isinstance(value, str) else "by_workload" if isinstance(value, dict) else None


ProfileConfiguration = Annotated[
    Annotated[str, Tag("one")] | Annotated[dict[str, str], Tag("by_workload")], Discriminator(_profile_form)
]
"""A device's profile: one, or one per workload."""


class GatewayConfiguration(Configuration):
    """The edge device at which all end nodes' requests meet."""

    profile: ProfileConfiguration
    """Device profile: `@name` of a shipped one or a path; or one per workload."""
    outside_range_share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.01
    """Largest share of requests that may lie outside the lengths for which the profile holds."""


class CloudConfiguration(GatewayConfiguration):
    """The cloud server."""

    workers: Annotated[int, Field(ge=1)] = 1
    """Requests that the server executes side by side, each as fast as the profile says."""


class DevicesConfiguration(Configuration):
    """The boxes."""

    gateway: GatewayConfiguration
    cloud: CloudConfiguration


class FitConfiguration(Configuration):
    """What the policies learn from before the run; no request of the run is used for it."""

    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.1
    """Share of the corpus's pairs that is set apart for fitting the length regression and the planes."""
    inferences: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000
    """Simulated calibration inferences per device, from which policies fit their planes (CNMT-05); 0: the profile's planes."""


class Scenario(Configuration):
    """A scenario: workloads x networks x policies, replicated."""

    version: Literal[1]
    """Of the scenario file's form."""
    name: Name
    """Names the run directory."""
    description: str = ""
    """What the scenario is about."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Same seed, same bytes."""
    replications: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Independent repeats over which intervals are formed; the trace starts elsewhere in each."""
    requests: Annotated[int, Field(ge=1, le=20_000_000)] = 100_000
    """Requests per workload, network, policy and replication."""
    workloads: Annotated[dict[Name, WorkloadConfiguration], Field(min_length=1)]
    """What is translated."""
    networks: Annotated[dict[Name, NetworkConfiguration], Field(min_length=1)]
    """Links between gateway and cloud."""
    devices: DevicesConfiguration
    """Where it is translated."""
    fit: FitConfiguration = FitConfiguration()
    """What the policies learn from."""
    policies: Annotated[dict[Name, PolicyConfiguration], Field(min_length=1)]
    """What decides; a policy named after its kind need not say `kind`."""
    published: Literal["cnmt-table-1"] | None = None
    """Show the paper's table beside ours; cells are matched by the names of workload, network and policy."""

    @model_validator(mode="before")
    @classmethod
    def _kinds_by_name(cls, content: Any) -> Any:
        """`policies: {edge: {}}` and `{edge: null}` mean kind `edge`."""
        if not isinstance(content, dict) or not isinstance(content.get("policies"), dict):
            return content
        policies = {}
        for name, policy in content["policies"].items():
            policy = {} if policy is None else policy
            if isinstance(policy, dict) and "kind" not in policy and name in KINDS:
                policy = {"kind": name, **policy}
            policies[name] = policy
        return {**content, "policies": policies}

    def profile_of(self, device: Literal["gateway", "cloud"], workload_name: str) -> str:
        """The profile that a device uses for a workload, as the file names it."""
        profile: str | dict[str, str] = getattr(self.devices, device).profile
        return profile if isinstance(profile, str) else profile[workload_name]


def resolved(scenario: Scenario, base: Path) -> Scenario:
    """The same scenario with every path absolute, so that it means the same from any folder; `@names` stay."""

    def absolute(profile: str) -> str:
        return profile if profile.startswith("@") else str((base / profile).absolute())

    def device(configuration: Any) -> Any:
        profile = configuration.profile
        changed = absolute(profile) if isinstance(profile, str) else {key: absolute(path) for key, path in profile.items()}
        return configuration.model_copy(update={"profile": changed})

    return scenario.model_copy(
        update={
            "workloads": {
                name: part.model_copy(update={"lengths": workload.configuration.resolved(part.lengths, base)})
                for name, part in scenario.workloads.items()
            },
            "networks": {name: network.configuration.resolved(part, base) for name, part in scenario.networks.items()},
            "devices": DevicesConfiguration(gateway=device(scenario.devices.gateway), cloud=device(scenario.devices.cloud)),
        }
    )
