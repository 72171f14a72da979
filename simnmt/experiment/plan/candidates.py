"""Candidates of a plan: all combinations of the values of the varied keys, under each policy, at the rate of the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import ceil, inf, prod
from statistics import mean
from typing import Any, Literal

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.trial import Distance, Site, box_saturation_rps
from simnmt.experiment.units import devices
from simnmt.results.metrics import metric, objective_metric
from simnmt.results.summary import Numbers, known
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.varied_keys import VariedKey, check_disjoint

POLICY = "policy"
"""Key of a choice that names the policy of the scenario."""
FIXED_KEYS = {
    **dict.fromkeys(
        (
            *("version", "name", "description", "seed", "replications", "requests", "objective", "slo", "metrics"),
            *("warm_up", "gap_analysis", "profile_uncertainty", "foresee_misroutes", "workloads.*.deadline_ms"),
        ),
        "it is no part of a deployment",
    ),
    "workloads.*.arrivals": "the rate is that of the plan",
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
Minimised = Literal["servers", "cost", "energy", "latency"]


@dataclass(frozen=True, slots=True)
class Objective:
    """A number of a deployment that is to be as small as possible."""

    name: Minimised
    what: str
    """What it is, such as `p95 latency`."""
    unit: str
    per_si_unit: float
    """Factor from the SI unit to `unit`."""
    column: str
    """Column of a run's numbers; empty for servers, whose number is known without a run."""

    @property
    def is_exact(self) -> bool:
        """Whether the number is known without a simulation."""
        return not self.column

    def value(self, candidate: Candidate, numbers: Sequence[Numbers]) -> float:
        """Return the number from those of the candidate's sites in one replication. Raises `InputError` if a run lacks it."""
        if self.is_exact:
            return float(candidate.servers)
        values = [of_site.get(self.column) for of_site in numbers]
        if None in values:
            lacking = {"cost": "prices", "energy": "power of its devices"}.get(self.name, "latency")
            raise InputError(f"minimise {self.name}: the scenario gives no {lacking}", remedy="minimise servers or latency")
        return mean(known(value) for value in values)


def objective(name: Minimised, scenario: ScenarioConfiguration) -> Objective:
    """Return what `--minimise NAME` minimises."""
    if name == "servers":
        return Objective(name, "servers", "", 1.0, "")
    if name == "cost":
        return Objective(name, "cost per million requests", "", 1e6, metric("cost_per_request").column)
    if name == "energy":
        return Objective(name, "energy per request", "J", 1.0, metric("energy_j").column)
    # A scenario may be judged by what it spends, which is another objective here.
    latency = scenario.objective if objective_metric(scenario.objective).sample == "latency" else "mean"
    return Objective(name, f"{latency} latency", "ms", 1e3, objective_metric(latency).column)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replication of a candidate."""

    distance: Distance
    """That of the site that is worst."""
    objective: float
    latency_s: float
    """Mean latency over its sites, which decides between equal objectives."""
    numbers: tuple[Numbers, ...]
    """By site."""


@dataclass(frozen=True, slots=True)
class Certainty:
    """How probably a run of a deployment keeps the level."""

    p_slo: float
    """The probability (`deployment.probability_met`)."""
    over: str
    """What the probability is over."""
    runs: int
    """Runs from which it follows."""
    runs_met: int
    """Those of them that keep the level."""
    worst_excess: float
    """The greatest excess of these runs."""
    is_close: bool
    """Whether other runs may give a probability on the other side of the certainty asked for."""


@dataclass(eq=False, slots=True)
class Candidate:
    """The scenario with one value of each varied key, under one policy, at the rate of the plan, and how its runs ended."""

    number: int
    choice: dict[str, Any]
    """Varied key to value, and `policy` if the scenario has several."""
    overrides: tuple[Override, ...]
    policy: str
    sites: tuple[Site, ...]
    """One for each workload and network."""
    counts: tuple[int, ...] = ()
    """Values of the keys that are counts."""
    others: str = ""
    """The other values and the policy, as text: candidates that differ in their counts alone have the same."""
    boxes: dict[str, int] = field(default_factory=dict)
    """Boxes of the devices that are varied and that the policy may use: those of other devices are there in any case."""
    stage: int = -1
    """The last stage of the search that it has passed or failed; -1 for none."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Of that stage."""
    rejected: str = ""
    """Why it is out; empty if it is not."""
    certainty: Certainty | None = None
    """None until it is judged (`deployment.is_sure`)."""

    @property
    def servers(self) -> int:
        """Number of these boxes."""
        return sum(self.boxes.values())

    @property
    def excess(self) -> float:
        """Mean excess over the replications of the last stage."""
        return mean(outcome.distance.excess for outcome in self.outcomes) if self.outcomes else inf

    def describe(self) -> str:
        """Return the choice on one line, such as `2 cloud servers, policy cnmt`."""
        return describe_choice(self.choice, self.boxes)

    def estimate(self, minimised: Objective) -> tuple[float, float]:
        """Return the objective and the latency by what is known; a candidate without a run may have any."""
        exact = float(self.servers) if minimised.is_exact else -inf
        if not self.outcomes:
            return exact, -inf
        objective = exact if minimised.is_exact else mean(outcome.objective for outcome in self.outcomes)
        return objective, mean(outcome.latency_s for outcome in self.outcomes)


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


def make_candidates(keys: Sequence[VariedKey], open_plan: Open, rate_rps: float) -> list[Candidate]:
    """Return all candidates, each checked. Raises the error of a wrong key or value.

    Args:
        keys: the varied keys.
        open_plan: opens the scenario with the values of a candidate.
        rate_rps: mean rate of every workload.
    """
    for key in keys:
        key.check(FIXED_KEYS)
    check_disjoint(keys)
    combinations = prod(len(key.values) for key in keys)
    if combinations > MOST_CANDIDATES:
        what = f"{combinations:,} combinations of the varied keys, more than {MOST_CANDIDATES:,}"
        raise InputError(what, remedy="give fewer values")
    counts = [key.name for key in keys if _is_count(key)]
    varied = {key.location[1] for key in keys if key.location[0] == "devices"} - {END_NODE}
    candidates: list[Candidate] = []
    for overrides in product(*(key.overrides for key in keys)):
        plan = open_plan(overrides)
        values = {key.name: override.value for key, override in zip(keys, overrides, strict=True)}
        policies = [name for name, policy in plan.scenario.policies.items() if not policy.knows_truth]
        if not policies:
            raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
        for policy in policies:
            places = product(plan.cases, plan.networks)
            sites = tuple(Site(plan, workload, network, policy).at_rate(rate_rps) for workload, network in places)
            used = varied & sites[0].used
            candidates.append(
                Candidate(
                    len(candidates),
                    values | ({POLICY: policy} if len(policies) > 1 else {}),
                    tuple(overrides),
                    policy,
                    sites,
                    tuple(values[name] for name in counts),
                    json.dumps([{name: value for name, value in values.items() if name not in counts}, policy], sort_keys=True),
                    {device.name: device.servers for device in sites[0].devices if device.name in used},
                )
            )
    return candidates


def _is_count(key: VariedKey) -> bool:
    return key.location[-1] in COUNTS and all(isinstance(value, int) for value in key.values)


def default_key(plan: RunPlan, rate_rps: float) -> tuple[VariedKey, str]:
    """Return the count of the last device, from 1 to twice the boxes that the rate would saturate and a few more, and a
    warning if these are too many to try each number; empty if not."""
    device = list(plan.scenario.devices)[-1]
    if device == END_NODE:
        raise InputError("there is no device whose boxes could be counted", remedy="name keys to vary")
    most = 1
    for case in plan.cases.values():
        box_rps = box_saturation_rps(case, case.targets[-1], devices(plan.scenario, case.name)[-1])
        most = max(most, 2 * ceil(rate_rps / box_rps) + 2)
    if most > MOST_BOXES:
        what = f"{rate_rps:g} requests/s saturate more boxes of {device} than a device can have, {MOST_BOXES:,}"
        raise InputError(what, remedy="give a lower rate, or the values of the candidates")
    location, name = ("devices", device, "count"), f"devices.{device}.count"
    policies = sum(not policy.knows_truth for policy in plan.scenario.policies.values())
    step = ceil(most * policies / MOST_DEFAULT_CANDIDATES)
    if step <= 1:
        return VariedKey(location, f"{name}=1:{most}", tuple(range(1, most + 1))), ""
    count = ceil(most / step)
    highest = min(step * count, MOST_BOXES)
    key = VariedKey(location, f"{name}={step}:{highest}:{count}", tuple(range(step, highest + 1, step)))
    return key, f"{name} is varied in steps of {step}, from {step} to {highest} (vary {name}=FROM:TO to try every number)"
