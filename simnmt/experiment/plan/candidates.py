"""Candidates of a plan: all combinations of the values of the varied keys, under each policy, at the rate of the plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod
from typing import Any

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.experiment.inputs import RunPlan
from simnmt.experiment.plan.analytic import saturation_rps
from simnmt.experiment.plan.trial import Site
from simnmt.experiment.units import devices
from simnmt.scenario.configuration import END_NODE, Scenario
from simnmt.scenario.document import Override
from simnmt.scenario.errors import ScenarioError, format_location

POLICY = "policy"
"""Key of a choice that names the policy of the scenario."""
FIXED_KEYS = ("version", "name", "description", "published", "seed", "replications", "requests", "objective", "slo")
"""Keys that describe the run or the question, not the deployment."""
MOST_CANDIDATES = 100_000
COUNTS = ("count", "workers")
"""Last parts of the keys whose greater values never make a deployment slower."""
Open = Callable[[Sequence[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""


@dataclass(frozen=True, slots=True)
class VariedKey:
    """A key of the scenario with the values that candidates give it."""

    location: tuple[str, ...]
    overrides: tuple[Override, ...]
    """One for each value."""

    @property
    def name(self) -> str:
        """The key as a user writes it."""
        return format_location(self.location)

    @property
    def is_count(self) -> bool:
        """Whether it is a number of boxes or workers."""
        return self.location[-1] in COUNTS and all(isinstance(value, int) for value in self.values)

    @property
    def values(self) -> list[Any]:
        """The values as plain data."""
        return [override.node.plain() for override in self.overrides]


_SPAN = re.compile(r"\s*(\d+):(\d+)(?::(\d+))?\s*")


def parse_varied_key(text: str) -> VariedKey:
    """Read `KEY=V1,V2,...` or, for whole numbers, `KEY=FROM:TO` or `KEY=FROM:TO:STEP`. Raises `ScenarioError`.

    >>> parse_varied_key("devices.cloud.count=1:4").values
    [1, 2, 3, 4]
    """
    label = f"--vary {text}"
    key, equals, rest = text.partition("=")
    if span := _SPAN.fullmatch(rest):
        low, high, step = int(span[1]), int(span[2]), int(span[3] or 1)
        if low > high or step < 1:
            raise ScenarioError(f"{rest.strip()} holds no number", remedy="write FROM:TO, from below to", override=label)
        pieces = [str(number) for number in range(low, high + 1, step)]
    else:
        pieces = list(_pieces(rest))
    if equals and not all(piece.strip() for piece in pieces):
        raise ScenarioError("an empty value", remedy="write KEY=V1,V2 or KEY=FROM:TO", override=label)
    overrides = tuple(Override.parse(f"{key}{equals}{piece}", "--vary") for piece in pieces)
    varied = VariedKey(overrides[0].location, overrides)
    if varied.location[0] not in Scenario.model_fields:
        known = [name for name in Scenario.model_fields if name not in FIXED_KEYS]
        raise ScenarioError(f"{varied.name}: unknown key", remedy=f"known here: {format_list(known, ',')}", override=label)
    if varied.location[0] in FIXED_KEYS:
        what = f"{varied.name} cannot be varied: it is no part of a deployment"
        raise ScenarioError(what, remedy="vary a key of devices, policies or networks, or give it with --set", override=label)
    if "arrivals" in varied.location:
        raise ScenarioError(f"{varied.name} cannot be varied: the rate is that of --rate", remedy="remove it", override=label)
    written = [json.dumps(value, sort_keys=True) for value in varied.values]
    if len(set(written)) < len(written):
        raise ScenarioError(f"{varied.name}: a value twice", remedy="give each value once", override=label)
    return varied


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts of a text between its commas, but for commas in brackets and quotes."""
    begin, depth, quote = 0, 0, ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


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

    @property
    def servers(self) -> int:
        """Boxes of all devices but end nodes; those of one device under a policy that uses one alone."""
        return max(map(_servers, self.sites))

    def describe(self) -> str:
        """Return the choice on one line."""
        return ", ".join(f"{key}={format_choice(value)}" for key, value in self.choice.items())


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


def _servers(site: Site) -> int:
    boxes = {device.name: device.servers for device in site.devices if device.name != END_NODE}
    settings = site.plan.scenario.policies[site.policy]
    if not settings.single_device:
        return sum(boxes.values())
    names = [device.name for device in site.devices]
    # As `policies.baselines` places requests.
    alone = names[0] if settings.kind == "edge" else str(getattr(settings, "device", names[-1]))
    return boxes.get(alone, 0)


class Space:
    """All candidates of a plan, made one by one: checking a scenario and reading its inputs takes a moment."""

    def __init__(self, keys: Sequence[VariedKey], open_plan: Open, rate_rps: float) -> None:
        """Check every value of every key, the other keys at their first values. Raises the error of a wrong one.

        Args:
            keys: the varied keys.
            open_plan: opens the scenario with the values of a candidate.
            rate_rps: mean rate of every workload.
        """
        self.keys, self._open, self._rate_rps = keys, open_plan, rate_rps
        for number, key in enumerate(keys):
            for other in keys[:number]:
                shorter = min(len(key.location), len(other.location))
                if key.location[:shorter] == other.location[:shorter]:
                    what = f"{key.name} and {other.name} set the same part of the scenario"
                    raise InputError(f"--vary: {what}", remedy="vary one of them")
        combinations = prod(len(key.overrides) for key in keys)
        if combinations > MOST_CANDIDATES:
            raise InputError(
                f"--vary: {combinations:,} combinations, more than {MOST_CANDIDATES:,}", remedy="give fewer values"
            )
        firsts = [key.overrides[0] for key in keys]
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
        return len(self.policies) * prod(len(key.overrides) for key in self.keys)

    @property
    def axes(self) -> list[tuple[str, int]]:
        """Each key with the number of its values, and the policy with the number of policies."""
        return [*((key.name, len(key.overrides)) for key in self.keys), (POLICY, len(self.policies))]

    def deployments(self) -> list[Deployment]:
        """Return all candidates."""
        made = []
        for overrides in product(*(key.overrides for key in self.keys)):
            plan = self._open(overrides)
            made += [self._deployment(plan, overrides, policy) for policy in self.policies]
        return made

    def deployment_at(self, places: Sequence[int]) -> Deployment:
        """Return the candidate with the value of each key at these places, and the policy at the last one."""
        overrides = [key.overrides[place] for key, place in zip(self.keys, places, strict=False)]
        return self._deployment(self._open(overrides), overrides, self.policies[places[-1]])

    def _deployment(self, plan: RunPlan, overrides: Sequence[Override], policy: str) -> Deployment:
        values = {key.name: override.node.plain() for key, override in zip(self.keys, overrides, strict=True)}
        others = {key.name: values[key.name] for key in self.keys if not key.is_count}
        return Deployment(
            values | ({POLICY: policy} if len(self.policies) > 1 else {}),
            tuple(overrides),
            policy,
            tuple(
                Site(plan, workload, network, policy).at_rate(self._rate_rps)
                for workload, network in product(plan.cases, plan.networks)
            ),
            tuple(values[key.name] for key in self.keys if key.is_count),
            json.dumps([others, policy], sort_keys=True),
        )


def default_key(plan: RunPlan, rate_rps: float) -> VariedKey:
    """Return the count of the last device, from 1 to twice the boxes that the rate would saturate, and two more."""
    device = list(plan.scenario.devices)[-1]
    if device == END_NODE:
        raise InputError("there is no device whose boxes could be counted", remedy="give --vary KEY=V1,V2")
    most = 1
    for case in plan.cases.values():
        box = replace(devices(plan.scenario, case.name)[-1], servers=1)
        most = max(most, 2 * ceil(rate_rps / saturation_rps(case, case.targets[-1], box)) + 2)
    return parse_varied_key(f"devices.{device}.count=1:{most}")
