"""One simulated run of a deployment at one rate, judged by a service level, and the probability that a run keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf, isfinite, log, sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.cases import Case, RunPlan, Unit
from simnmt.experiment.criteria import check_assertion, check_criteria, with_metrics
from simnmt.experiment.fault_setup import NoAnswers
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.targets import Target
from simnmt.experiment.units import SATURATION_SAMPLE, devices, run_unit, saturated_s
from simnmt.profile.blocks import ProfileError
from simnmt.results.service_level import Assertion, Requirement
from simnmt.results.stability import excess_load, judged_load
from simnmt.results.summary import Device, Numbers
from simnmt.scenario.document import Override
from simnmt.scenario.service_level import WarmUpRequests
from simnmt.scenario.source import Source

STABLE = "stable"
"""Name of the requirement that every level contains: no device gets more work than it can do."""
BUSY = log(0.9)
"""Excess load from which stability may be the requirement that is nearest to its limit."""
MOST_EXCESS = log(1e6)
"""Bound of an excess, so that means and spreads of excesses are numbers."""
RUNS = 40
"""Fewest runs by which a probability is judged, each with profiles and random numbers of its own."""
SHORT = 8
"""Short runs have so many times fewer requests."""

Level = tuple[Requirement, ...]
"""Requirements that all must hold, beside stability, which every level demands."""
Open = Callable[[Iterable[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""


def parse_level(texts: Iterable[str], source: Source) -> Level:
    """Return the requirements of some texts, or those of the scenario. Raises `InputError` if there are none."""
    requirements = [Requirement.parse(text) for text in texts] or source.scenario.requirements
    if not requirements:
        raise InputError("no service level", remedy="give one as slo, such as 'p95_ms<=300', or in the scenario")
    return tuple(requirement for requirement in requirements if requirement.metric.name != STABLE)


def describe_level(level: Level) -> str:
    """Return a level on one line."""
    return " and ".join(map(str, level)) or STABLE


def opener(source: Source, level: Level, *, allow_code: bool) -> Open:
    """Return the function that opens a scenario with further overrides, after a check of the scenario as it stands.

    Raises `InputError` for a metric of the level or an objective that a run will not know, and for arrivals without a rate.
    """
    asserted = [Assertion(requirement) for requirement in level]
    cache = InputCache()

    def open_plan(overrides: Iterable[Override]) -> RunPlan:
        scenario, document = source.with_overrides(overrides, allow_code=allow_code)
        plan = with_metrics(read_inputs(scenario, Path.cwd(), document, cache), asserted)
        for workload, case in plan.cases.items():
            if case.arrivals.discipline != "open" or case.arrivals.mean_rate_rps is None:
                what = f"arrivals of kind {scenario.workloads[workload].arrivals.kind} have no rate that a plan could set"
                remedy = "give {kind: poisson, rate_rps: 10}"
                raise document.error(("workloads", workload, "arrivals"), what, remedy=remedy, key=True)
        check_criteria(plan, document)
        for assertion in asserted:
            check_assertion(plan, assertion)
        return plan

    return open_plan


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

    def at_rate(self, rate_rps: float) -> Site:
        """Return the site with another mean rate of the workload, and the same random numbers."""
        case = replace(self.case, arrivals=self.case.arrivals.at_rate(rate_rps))
        return replace(self, plan=replace(self.plan, cases={**self.plan.cases, self.workload: case}))

    def short_run(self, least: int) -> int:
        """Return the requests of a short run: `least` or more, and as many as every metric of the level needs."""
        scenario = self.plan.scenario
        warm_up = scenario.warm_up.requests if isinstance(scenario.warm_up, WarmUpRequests) else 0
        counted = max((requirement.metric.least_requests for requirement in self.level), default=1)
        of_metrics = ceil(counted * scenario.requests / max(scenario.requests - warm_up, 1)) + 1
        return min(max(scenario.requests // SHORT, least, of_metrics), scenario.requests)

    def trial(self, replication: int, requests: int) -> Trial:
        """Return one run of so many requests; a warm-up of a number of requests is the same share of them."""
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
        try:
            numbers = run_unit(unit).numbers[self.workload, self.network, self.policy]
        except NoAnswers:
            values = {requirement: inf if requirement.comparison == "<=" else 0.0 for requirement in self.level}
            return Trial(self.rate_rps, {}, values, {}, MOST_EXCESS, describe_level(self.level))
        # A load is no distance from a limit as a latency is, so it is named only where it is near 1.
        overload = max(excess_load(numbers, requests, device) for device in self.devices)
        excesses = {STABLE: overload} if overload >= BUSY or not self.level else {}
        values = {requirement: _value(requirement, numbers) for requirement in self.level}
        excesses |= {str(requirement): _excess(requirement, value) for requirement, value in values.items()}
        worst = max(excesses, key=excesses.__getitem__)
        loads = {device.name: judged_load(numbers, requests, device) for device in self.devices}
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


def finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinite ones."""
    return value if isfinite(value) else None


def deployable_sites(plan: RunPlan, level: Level) -> Iterator[tuple[Site, ...]]:
    """Yield the sites of each policy that a real decider could run, fixed policies first: every workload and network."""
    policies = {name: policy for name, policy in plan.scenario.policies.items() if not policy.knows_truth}
    if not policies:
        raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
    for policy in sorted(policies, key=lambda name: not policies[name].single_device):
        yield tuple(Site(plan, level, workload, network, policy) for workload, network in product(plan.cases, plan.networks))


def box_saturation_rps(case: Case, target: Target, device: Device) -> float:
    """Return how many requests of the workload per second one box of a device can serve in the long run.

    Of a device that batches, by its step costs with full batches.
    """
    if target.decoding is None:
        return device.workers / target.mean_alone_s(case.replayed)
    rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
    src_len, tgt_len = case.replayed.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)
    return len(src_len) / saturated_s(target.decoding, src_len, tgt_len)


@dataclass(frozen=True, slots=True)
class Certainty:
    """How probably a run of a deployment keeps the level."""

    probability: float
    over: str
    """What the probability is over."""
    runs: int
    """Runs from which it follows, each with random numbers by which no deployment was chosen."""
    runs_met: int
    """Those of them that keep the level."""


def draw_profiles(overrides: Iterable[Override], open_plan: Open, certainty: float) -> RunPlan | None:
    """Return the scenario with profiles drawn for each run of `judge_certainty`; None if no calibration's error is known."""
    try:
        return open_plan([*overrides, Override.of("profile_uncertainty", {"profiles": runs_for(certainty)}, "simnmt plan")])
    except ProfileError:
        return None


def runs_for(certainty: float) -> int:
    """Return by how many runs a certainty is judged: as many as can reach it though one run misses the level.

    >>> runs_for(0.95), runs_for(0.99)
    (40, 198)
    """
    return max(RUNS, ceil(2.0 * certainty / (1.0 - certainty) - 1e-6))


def judge_certainty(
    sites: Sequence[Site], drawn: RunPlan | None, certainty: float, *, requests: int | None = None, to_end: bool = False
) -> Certainty:
    """Return how probably a run keeps the level on all sites, with boxes drawn within the error of their calibration.

    The runs end as soon as the certainty is out of reach, unless they are to go on `to_end`. Their requests are those of the
    scenario by default.
    """
    scenario, runs = sites[0].plan.scenario, runs_for(certainty)
    excesses: list[float] = []
    for number in range(runs):
        if drawn is not None:
            sites = [replace(site, boxes=drawn.drawn[site.workload].targets[number]) for site in sites]
        trials = [site.trial(scenario.replications + number, requests or scenario.requests) for site in sites]
        excesses.append(max(trial.excess for trial in trials))
        missed = sum(excess > 0.0 for excess in excesses)
        if (runs - missed + 1) / (runs + 2) < certainty and not to_end:
            break
    over = "replications alone" if drawn is None else "replications and the error of the calibration"
    return Certainty(probability_met(excesses), over, len(excesses), len(excesses) - missed)


def probability_met(excesses: Sequence[float]) -> float:
    """Return the probability that the next run keeps the level, by the excesses of independent runs.

    The lesser of two estimates: that of a normal distribution with unknown mean and deviation, and the share of the runs that
    keep it, one missed run and one kept run added (Laplace). The first is left out if the excesses do not spread, or if one is
    infinite.
    """
    count = len(excesses)
    by_count = (sum(excess <= 0.0 for excess in excesses) + 1) / (count + 2)
    spread = stdev(excesses) * sqrt(1.0 + 1.0 / count) if count >= 3 else 0.0
    if spread == 0.0 or max(excesses) >= MOST_EXCESS:
        return by_count
    from scipy.special import stdtr  # scipy.stats would add half a second to the start

    return min(by_count, float(stdtr(count - 1, -mean(excesses) / spread)))
