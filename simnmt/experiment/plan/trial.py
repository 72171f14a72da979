"""One simulated run of a deployment at one rate, judged by a service level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Case, RunPlan, Unit
from simnmt.experiment.targets import Target
from simnmt.experiment.units import SATURATION_SAMPLE, devices, run_unit, saturated_s
from simnmt.results.service_level import Requirement
from simnmt.results.stability import excess_load
from simnmt.results.summary import Device, Numbers
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document
from simnmt.scenario.service_level import WarmUpRequests

STABLE = "stable"
"""Name of the requirement that every level contains: no device gets more work than it can do."""

BUSY = log(0.9)
"""Excess load from which stability may be the requirement that is nearest to its limit."""


@dataclass(frozen=True, slots=True)
class Site:
    """One workload on one network under one policy: what a service level is judged on."""

    plan: RunPlan
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

    def saturation_rps(self) -> dict[str, float]:
        """Return how many requests of the workload per second all boxes of each device can serve in the long run."""
        return {
            device.name: device.servers * box_saturation_rps(self.case, target, device)
            for target, device in zip(self.case.targets, self.devices, strict=True)
        }

    def at_rate(self, rate_rps: float) -> Site:
        """Return the site with another mean rate of the workload, and the same random numbers."""
        case = replace(self.case, arrivals=self.case.arrivals.at_rate(rate_rps))
        return replace(self, plan=replace(self.plan, cases={**self.plan.cases, self.workload: case}))

    def simulate(self, replication: int, requests: int) -> Numbers:
        """Return the numbers of one run of so many requests; a warm-up of a number of requests is the same share of them."""
        scenario = self.plan.scenario
        warm_up = scenario.warm_up
        if isinstance(warm_up, WarmUpRequests):
            warm_up = warm_up.model_copy(update={"requests": warm_up.requests * requests // scenario.requests})
        changed = {
            "requests": requests,
            "warm_up": warm_up,
            "policies": {self.policy: scenario.policies[self.policy]},
            "gap_analysis": False,
            "foresee_misroutes": False,
        }
        scenario = scenario.model_copy(update=changed)
        unit = Unit(scenario, self.case, self.network, self.plan.networks[self.network], replication)
        if self.boxes is not None:
            unit = replace(unit, case=replace(self.case, targets=self.boxes), calibrated=self.case)
        return run_unit(unit).numbers[self.workload, self.network, self.policy]


def box_saturation_rps(case: Case, target: Target, device: Device) -> float:
    """Return how many requests of the workload per second one box of a device can serve in the long run.

    Of a device that batches, by its step costs with full batches.
    """
    if target.decoding is None:
        return device.workers / target.mean_alone_s(case.replayed)
    rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
    src_len, tgt_len = case.replayed.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)
    return len(src_len) / saturated_s(target.decoding, src_len, tgt_len)


def check_rate(plan: RunPlan, workload: str, document: Document) -> None:
    """Raise `ScenarioError` if the arrivals of a workload have no rate that could be set."""
    arrivals = plan.cases[workload].arrivals
    if arrivals.discipline != "open" or arrivals.mean_rate_rps is None:
        kind = plan.scenario.workloads[workload].arrivals.kind
        what = f"arrivals of kind {kind} have no rate that a plan could set"
        raise document.error(("workloads", workload, "arrivals"), what, remedy="give {kind: poisson, rate_rps: 10}", key=True)


@dataclass(frozen=True, slots=True)
class Distance:
    """How far one run is from a service level."""

    excess: float
    """Logarithm of the worst ratio of a value to its limit: 0 at the limit, negative if every requirement is met."""
    worst: str
    """The requirement with that ratio, or `stable`."""


@dataclass(frozen=True, slots=True)
class Level:
    """Requirements that all must hold, and that no device gets more work than it can do."""

    requirements: Sequence[Requirement]

    @property
    def limits(self) -> list[Requirement]:
        """The requirements beside stability, which every level demands."""
        return [requirement for requirement in self.requirements if requirement.metric.name != STABLE]

    def judge(self, numbers: Numbers, requests: int, of_devices: Sequence[Device]) -> Distance:
        """Return how far the numbers of one run are from the level. Raises `InputError` for a metric that the run lacks."""
        overload = max((excess_load(numbers, requests, device) for device in of_devices), default=-inf)
        # A load is no distance from a limit as a latency is, so it is named only where it is near 1.
        distances = [Distance(overload, STABLE)] if overload >= BUSY or not self.limits else []
        distances += [
            Distance(_excess(requirement, self.value(requirement, numbers)), str(requirement)) for requirement in self.limits
        ]
        return max(distances, key=lambda distance: distance.excess)

    def least_requests(self, scenario: ScenarioConfiguration) -> int:
        """Return the fewest requests of a run of a scenario of which every metric is known, at most those of the scenario."""
        warm_up = scenario.warm_up.requests if isinstance(scenario.warm_up, WarmUpRequests) else 0
        counted = max((limit.metric.least_requests for limit in self.limits), default=1)
        return min(scenario.requests, ceil(counted * scenario.requests / max(scenario.requests - warm_up, 1)) + 1)

    @staticmethod
    def value(requirement: Requirement, numbers: Numbers) -> float:
        """Return the value by which a run is judged, in the metric's unit. Raises `InputError` if the run lacks it.

        A lost request is infinitely late, so the value is infinite if too many are lost (`Metric.of_answered`), and if a run
        with lost requests is too short for the percentile that then counts.
        """
        judged = requirement.metric.of_answered(numbers.get("lost_share") or 0.0)
        value = None if judged is None else numbers.get(judged.column)
        if judged is None or (value is None and judged is not requirement.metric):
            return inf
        if value is None:
            what = f"{requirement}: a run of this scenario has no {judged.name}"
            raise InputError(what, remedy="give more requests, or another metric")
        return judged.per_si_unit * value

    def __str__(self) -> str:
        return " and ".join(map(str, self.requirements)) or STABLE


MOST_EXCESS = log(1e6)
"""Bound of an excess, so that means and spreads of excesses are numbers."""


def _excess(requirement: Requirement, value: float) -> float:
    ratio = requirement.ratio(value)
    return min(max(log(ratio) if ratio > 0.0 else -inf, -MOST_EXCESS), MOST_EXCESS)
