"""Candidates of a plan: all combinations of the values of the varied keys, under each policy, at the rate of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import Any

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.analytic import saturation_rps
from simnmt.experiment.plan.trial import Site
from simnmt.experiment.units import devices
from simnmt.results.simplicity import simplest
from simnmt.scenario.configuration import END_NODE, Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.varied_keys import Span, VariedKey, check_disjoint
from simnmt.scenario.yaml_text import Node

POLICY = "policy"
"""Key of a choice that names the policy of the scenario."""
_NO_PART = "it is no part of a deployment"
FIXED_KEYS = {
    "version": _NO_PART,
    "name": _NO_PART,
    "description": _NO_PART,
    "seed": _NO_PART,
    "replications": _NO_PART,
    "requests": _NO_PART,
    "objective": _NO_PART,
    "slo": _NO_PART,
    "metrics": _NO_PART,
    "warm_up": _NO_PART,
    "gap_analysis": _NO_PART,
    "profile_uncertainty": _NO_PART,
    "foresee_misroutes": _NO_PART,
    "workloads.*.arrivals": "the rate is that of the plan",
    "workloads.*.deadline_ms": _NO_PART,
}
"""Keys that no plan varies, and the reason: they describe the run or the question, not the deployment."""
MOST_CANDIDATES = 2_000
"""Most combinations of the varied keys: all of them are checked and judged."""
MOST_BOXES = 10_000
MOST_DEFAULT_CANDIDATES = 200
"""Most candidates if no key is varied, all of which are judged: of more numbers of boxes, every second, third, ..."""
COUNTS = ("count", "workers")
"""Last parts of the keys whose greater values never make a deployment slower."""
Open = Callable[[Sequence[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""


def is_count(key: VariedKey) -> bool:
    """Return whether a key is a number of boxes or workers."""
    return key.location[-1] in COUNTS and all(isinstance(value.plain(), int) for value in key.values)


@dataclass(frozen=True, slots=True)
class Deployment:
    """One candidate: the scenario with one value of each varied key, under one policy, at the rate of the plan."""

    choice: dict[str, Any]
    """Varied key to value, and `policy` if the scenario has several."""
    overrides: tuple[Override, ...]
    policy: str
    sites: tuple[Site, ...]
    """One for each workload and network."""
    counts: tuple[int, ...]
    """Values of the keys that are counts."""
    others: str
    """The other values and the policy, as text: deployments that differ in their counts alone have the same."""
    boxes: dict[str, int]
    """Boxes of the devices that are varied and that the policy may use: those of other devices are there in any case."""

    @property
    def policy_rank(self) -> int:
        """Place of the policy among those of the scenario, the simplest one first."""
        return by_simplicity(self.sites[0].plan.scenario).index(self.policy)

    @property
    def servers(self) -> int:
        """Number of these boxes."""
        return sum(self.boxes.values())

    def describe(self) -> str:
        """Return the choice on one line, such as `2 cloud servers, policy cnmt`."""
        return describe_choice(self.choice, self.boxes)


def by_simplicity(scenario: Scenario) -> list[str]:
    """Return the policies of a scenario, the simplest one first."""
    policies = scenario.policies
    settings = {name: policy.settings_given for name, policy in policies.items()}
    return simplest(list(policies), settings, [name for name, policy in policies.items() if policy.single_device])


def describe_choice(choice: Mapping[str, Any], boxes: Mapping[str, int]) -> str:
    """Return the choice of a deployment on one line: boxes by device, the other varied keys, and the policy.

    >>> describe_choice({"devices.cloud.count": 2, "devices.cloud.batching.size": 8, "policy": "cnmt"}, {"cloud": 2})
    '2 cloud servers, devices.cloud.batching.size=8, policy cnmt'
    >>> describe_choice({"devices.cloud.count": 2, "policy": "edge"}, {})
    'no cloud server, policy edge'
    """
    parts = []
    for key, value in choice.items():
        device = key.removeprefix("devices.").removesuffix(".count")
        if key == POLICY:
            parts.append(f"policy {value}")
        elif key == f"devices.{device}.count":
            count = boxes.get(device, 0)
            parts.append(f"{count or 'no'} {device} server{'s' * (count > 1)}")
        else:
            parts.append(f"{key}={format_choice(value)}")
    return ", ".join(parts)


def format_choice(value: Any) -> str:
    """Return a value as a user writes it after `--set KEY=`.

    >>> format_choice({"kind": "mini", "size": 8}), format_choice("@cpu1-gru"), format_choice(True)
    ('{kind: mini, size: 8}', '@cpu1-gru', 'true')
    """
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {format_choice(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(format_choice, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


class Space:
    """All candidates of a plan, made one by one: checking a scenario and reading its inputs takes a moment."""

    def __init__(self, keys: Sequence[VariedKey], open_plan: Open, rate_rps: float) -> None:
        """Check every value of every key, the other keys at their first values. Raises the error of a wrong one.

        Args:
            keys: the varied keys.
            open_plan: opens the scenario with the values of a candidate.
            rate_rps: mean rate of every workload.
        """
        for key in keys:
            key.check(FIXED_KEYS)
        keys = [key.listed(MOST_CANDIDATES) for key in keys]
        check_disjoint(keys)
        self.keys, self._open, self._rate_rps = keys, open_plan, rate_rps
        combinations = prod(len(key.values) for key in keys)
        if combinations > MOST_CANDIDATES:
            raise InputError(
                f"{combinations:,} combinations of the varied keys, more than {MOST_CANDIDATES:,}", remedy="give fewer values"
            )
        firsts = [key.override(key.values[0]) for key in keys]
        self.first = open_plan(firsts)
        self.policies = [name for name, policy in self.first.scenario.policies.items() if not policy.knows_truth]
        if not self.policies:
            raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
        for place, key in enumerate(keys):
            for override in key.overrides[1:]:
                open_plan([override if place == at else first for at, first in enumerate(firsts)])

    @property
    def size(self) -> int:
        """Number of candidates."""
        return len(self.policies) * prod(len(key.values) for key in self.keys)

    def deployments(self) -> list[Deployment]:
        """Return all candidates."""
        made = []
        for overrides in product(*(key.overrides for key in self.keys)):
            plan = self._open(overrides)
            made += [self._deployment(plan, overrides, policy) for policy in self.policies]
        return made

    def _deployment(self, plan: RunPlan, overrides: Sequence[Override], policy: str) -> Deployment:
        values = {key.name: override.node.plain() for key, override in zip(self.keys, overrides, strict=True)}
        others = {key.name: values[key.name] for key in self.keys if not is_count(key)}
        sites = tuple(
            Site(plan, workload, network, policy).at_rate(self._rate_rps)
            for workload, network in product(plan.cases, plan.networks)
        )
        varied = {key.location[1] for key in self.keys if key.location[0] == "devices"} - {END_NODE}
        used = varied.intersection(plan.scenario.policies[policy].devices_of(list(plan.scenario.devices)))
        return Deployment(
            values | ({POLICY: policy} if len(self.policies) > 1 else {}),
            tuple(overrides),
            policy,
            sites,
            tuple(values[key.name] for key in self.keys if is_count(key)),
            json.dumps([others, policy], sort_keys=True),
            {device.name: device.servers for device in sites[0].devices if device.name in used},
        )


def default_key(plan: RunPlan, rate_rps: float) -> tuple[VariedKey, str]:
    """Return the count of the last device, from 1 to twice the boxes that the rate would saturate and a few more, and a
    warning if these are too many to try each number; empty if not."""
    device = list(plan.scenario.devices)[-1]
    if device == END_NODE:
        raise InputError("there is no device whose boxes could be counted", remedy="name keys to vary")
    most = 1
    for case in plan.cases.values():
        box = replace(devices(plan.scenario, case.name)[-1], servers=1)
        most = max(most, 2 * ceil(rate_rps / saturation_rps(case, case.targets[-1], box)) + 2)
    if most > MOST_BOXES:
        what = f"{rate_rps:g} requests/s saturate more boxes of {device} than a device can have, {MOST_BOXES:,}"
        raise InputError(what, remedy="give a lower rate, or the values of the candidates")
    location, name = ("devices", device, "count"), f"devices.{device}.count"
    policies = sum(not policy.knows_truth for policy in plan.scenario.policies.values())
    step = ceil(most * policies / MOST_DEFAULT_CANDIDATES)
    if step <= 1:
        return VariedKey(location, f"{name}=1:{most}", (), Span(1, most)), ""
    count = ceil(most / step)
    highest = min(step * count, MOST_BOXES)
    label = f"{name}={step}:{highest}:{count}"
    key = VariedKey(location, label, tuple(Node(boxes, override=label) for boxes in range(step, highest + 1, step)))
    return key, f"{name} is varied in steps of {step}, from {step} to {highest} (vary {name}=FROM:TO to try every number)"
