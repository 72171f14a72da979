"""One simulated run of a deployment at one rate, judged by a service level."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import inf, log

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Case, RunPlan, Unit
from simnmt.experiment.fault_setup import NoAnswers
from simnmt.experiment.targets import Target
from simnmt.experiment.units import SATURATION_SAMPLE, devices, run_unit, saturated_s
from simnmt.results.metrics import Requirement
from simnmt.results.stability import judged_load
from simnmt.results.summary import Device, Numbers

STABLE = "stable"
"""Name of the requirement that every level contains: no device gets more work than it can do."""
BUSY = log(0.9)
"""Excess load from which stability may be the requirement that is nearest to its limit."""
MOST_EXCESS = log(1e6)
"""Bound of an excess, so that means and spreads of excesses are numbers."""
SHORT = 8
"""Short runs have so many times fewer requests."""

Level = tuple[Requirement, ...]
"""Requirements that all must hold, beside stability, which every level demands."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulated run at one rate, judged by a level."""

    rate_rps: float
    numbers: Numbers
    """Empty if the run lost every request."""
    values: dict[Requirement, float]
    """Value of each requirement in its unit; infinite if too many requests are lost."""
    loads: dict[str, float]
    """Load of each device."""
    excess: float
    """Logarithm of the worst ratio of a value to its limit: 0 at the limit, negative if every requirement is met."""
    worst: str
    """The requirement with that ratio, or `stable`."""

    @property
    def lost_share(self) -> float:
        """Share of the requests that are lost."""
        return (self.numbers.get("lost_share") or 0.0) if self.numbers else 1.0


@dataclass(frozen=True, slots=True)
class Site:
    """One workload on one network under one policy: what a level is judged on."""

    plan: RunPlan
    level: Level
    workload: str
    network: str
    policy: str
    boxes: tuple[Target, ...] | None = None
    """The targets as they truly are, if they differ from those that the policy knows."""

    @property
    def case(self) -> Case:
        """The inputs of the workload."""
        return self.plan.cases[self.workload]

    @property
    def devices(self) -> list[Device]:
        """The devices in the order of the targets."""
        return devices(self.plan.scenario, self.workload)

    @property
    def rate_rps(self) -> float:
        """The mean rate of the workload's arrivals."""
        rate_rps = self.case.arrivals.mean_rate_rps
        assert rate_rps is not None
        return rate_rps

    @property
    def used(self) -> frozenset[str]:
        """Names of the devices on which the policy may execute requests."""
        return frozenset(self.plan.scenario.policies[self.policy].devices_of(list(self.plan.scenario.devices)))

    @property
    def box_saturation_rps(self) -> dict[str, float]:
        """How many requests of the workload per second one box of each device can serve in the long run.

        Of a device that batches, by its step costs with full batches.
        """
        rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
        src_len, tgt_len = self.case.table.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)
        return {
            device.name: device.workers / target.mean_alone_s(self.case.table)
            if target.decoding is None
            else len(src_len) / saturated_s(target.decoding, src_len, tgt_len)
            for target, device in zip(self.case.targets, self.devices, strict=True)
        }

    def at_rate(self, rate_rps: float) -> Site:
        """Return the site with another mean rate of the workload, and the same random numbers."""
        case = replace(self.case, arrivals=self.case.arrivals.at_rate(rate_rps))
        return replace(self, plan=replace(self.plan, cases={**self.plan.cases, self.workload: case}))

    @property
    def short_run(self) -> int:
        """Requests of a short run: an eighth, or all if a percentile needs many."""
        requests = self.plan.scenario.requests
        needs_many = any(requirement.metric.least_requests > 1 for requirement in self.level)
        return requests if needs_many else -(-requests // SHORT)

    def trial(self, replication: int, requests: int) -> Trial:
        """Return one run of so many requests; a warm-up of a number of requests is the same share of them."""
        scenario = self.plan.scenario
        changed = {
            "requests": requests,
            "warm_up_requests": scenario.warm_up_requests * requests // scenario.requests,
            "policies": {self.policy: scenario.policies[self.policy]},
            "gap_analysis": False,
            "foresee_misroutes": False,
        }
        scenario = scenario.model_copy(update=changed)
        unit = Unit(scenario, self.case, self.network, self.plan.networks[self.network], replication)
        if self.boxes is not None:
            unit = replace(unit, case=replace(self.case, targets=self.boxes), calibrated=self.case)
        try:
            numbers = run_unit(unit).numbers[self.workload, self.network, self.policy]
        except NoAnswers:
            values = {requirement: inf if requirement.comparison == "<=" else 0.0 for requirement in self.level}
            loads = {device.name: 0.0 for device in self.devices}
            return Trial(self.rate_rps, {}, values, loads, MOST_EXCESS, " and ".join(map(str, self.level)) or STABLE)
        # A load is no distance from a limit as a latency is, so it is named only where it is near 1.
        judged = {device.name: judged_load(numbers, requests, device) for device in self.devices}
        overload = max(load.excess for load in judged.values())
        excesses = {STABLE: overload} if overload >= BUSY or not self.level else {}
        values = {requirement: _value(requirement, numbers) for requirement in self.level}
        excesses |= {str(requirement): _excess(requirement, value) for requirement, value in values.items()}
        worst = max(excesses, key=excesses.__getitem__)
        loads = {name: load.shown for name, load in judged.items()}
        return Trial(self.rate_rps, numbers, values, loads, excesses[worst], worst)


def _value(requirement: Requirement, numbers: Numbers) -> float:
    """Return the value by which a run is judged, in the metric's unit. Raises `InputError` if the run lacks it.

    A lost request is infinitely late, so the value is infinite if too many are lost (`Metric.of_answered`), and if a run with
    lost requests is too short for the percentile that then counts.
    """
    judged = requirement.metric.of_answered(numbers.get("lost_share") or 0.0)
    value = None if judged is None else numbers.get(judged.column)
    if judged is None or (value is None and judged is not requirement.metric):
        return inf
    if value is None:
        what = f"{requirement}: a run of this scenario has no {judged.name}"
        raise InputError(what, remedy="give more requests, or another metric")
    return judged.per_si_unit * value


def _excess(requirement: Requirement, value: float) -> float:
    ratio = requirement.ratio(value)
    return min(max(log(ratio) if ratio > 0.0 else -inf, -MOST_EXCESS), MOST_EXCESS)


def deployable_sites(plan: RunPlan, level: Level) -> Iterator[tuple[Site, ...]]:
    """Yield the sites of each policy that a real decider could run, fixed policies first: every workload and network."""
    policies = {name: policy for name, policy in plan.scenario.policies.items() if not policy.knows_truth}
    if not policies:
        raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
    for policy in sorted(policies, key=lambda name: not policies[name].single_device):
        yield tuple(Site(plan, level, workload, network, policy) for workload, network in product(plan.cases, plan.networks))
