"""Trials: simulated runs of a deployment at one rate, judged by a service level, and what several of them show together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf, isfinite, log
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.accounts import NoAnswers
from simnmt.experiment.cases import Case, RunPlan, Unit, groups_of, mixed_unit
from simnmt.experiment.criteria import check_criteria
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.run import level_at
from simnmt.experiment.targets import SATURATION_SAMPLE, Target, saturated_s
from simnmt.experiment.units import devices_of, run_unit
from simnmt.results.metrics import OF_QUALITY, Requirement, unanswered_share
from simnmt.results.places import ALL, class_row
from simnmt.results.stability import JudgedLoad, judged_load
from simnmt.results.summary import PARTS, Device, Numbers, Row, known
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source

BUSY = log(0.9)
"""Excess load from which stability may be the requirement that is nearest to its limit."""
MOST_EXCESS = log(1e6)
"""Bound of an excess, so that means and spreads of excesses are numbers."""
SHORT = 8
"""Factor by which short runs have fewer requests."""
LEAST_IN_ROW = 200
"""Requests that a short run has in each row of a mix, in the mean."""
NEAR_LIMIT = 0.7
"""Load from which a device's queue is named as what is at its limit."""

Open = Callable[[Iterable[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""


class Check(NamedTuple):
    """A requirement, and the row of results in which it must hold."""

    requirement: Requirement
    site: str = ALL
    workload: str = ALL
    where: str = ""
    """Site or workload in words, if the requirement must hold in several rows."""

    def __str__(self) -> str:
        return f"{self.requirement}{self.where}"


STABLE = Check(Requirement.parse("stable"))
"""The check that every level contains: no device gets more work than it can do."""


def level_of(scenario: ScenarioConfiguration, workload: str) -> tuple[Requirement, ...]:
    """Return the requirements of a workload beside stability, which every level demands."""
    return tuple(one for one in scenario.requirements_of(workload) if one != STABLE.requirement)


def describe_level(scenario: ScenarioConfiguration) -> str:
    """Return the level of a scenario on one line."""
    names = [*scenario.workloads, *map(class_row, scenario.classes)]
    if scenario.classes:  # a class is judged in place of its workloads
        names = [name for name in names if level_of(scenario, name)] or [*scenario.workloads]
    by_workload = {name: " and ".join(map(str, level_of(scenario, name))) or str(STABLE) for name in names}
    if len({*by_workload.values()}) == 1 and not scenario.classes:
        return next(iter(by_workload.values()))
    return ", ".join(f"{part} for {name}" for name, part in by_workload.items())


def opener(source: Source, slo: Iterable[str], *, allow_code: bool) -> Open:
    """Return the function that opens a scenario with further overrides, and with the requirements of some texts as its `slo`.

    It raises `InputError` for a metric of the level or an objective that a run will not know, and for arrivals without a rate.
    """
    workloads, cache = source.scenario.workloads, InputCache()
    given: dict[str, float | bool] = {}
    for requirement in map(Requirement.parse, slo):
        name, tighter = requirement.metric.name, min if requirement.comparison == "<=" else max
        is_stable = requirement == STABLE.requirement
        given[name] = True if is_stable else tighter(requirement.limit, given.get(name, requirement.limit))
    level = [Override.of("slo", given, "slo")] if given else []
    for key, parts in (("workloads", workloads), ("classes", source.scenario.classes)):
        level += [Override.of((key, name, "slo"), None, "slo") for name, part in parts.items() if given and part.slo]
    names = [*workloads, *map(class_row, source.scenario.classes)]
    if not given and not any(map(source.scenario.requirements_of, names)):
        raise InputError("no service level", remedy="give one as slo, such as 'p95_ms<=300', or in the scenario")

    def open_plan(overrides: Iterable[Override]) -> RunPlan:
        scenario, document = source.with_overrides([*level, *overrides], allow_code=allow_code)
        plan = read_inputs(scenario, Path.cwd(), document, cache)
        for workload, case in plan.cases.items():
            if case.arrivals.discipline != "open" or case.arrivals.mean_rate_rps is None:
                what = f"arrivals of kind {scenario.workloads[workload].arrivals.kind} have no rate that a plan could set"
                remedy = "give {kind: poisson, rate_rps: 10}"
                raise document.error(("workloads", workload, "arrivals"), what, remedy=remedy, key=True)
        check_criteria(plan, document)
        return plan

    return open_plan


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulated run at one rate, judged by a level."""

    rate_rps: float
    """Rate of all requests of the run."""
    rows: dict[tuple[str, str], Numbers]
    """By site and workload, that of all requests first; empty if the run lost every request of one of these."""
    values: dict[Check, float]
    loads: dict[str, float]
    """Load of each device; of devices that sites have of their own, that of the site with the most."""
    excess: float
    """Logarithm of the worst ratio of a value to its limit: 0 at the limit, negative if every requirement is met."""
    worst: Check
    """The check with that ratio."""
    lost_share: float

    @property
    def numbers(self) -> Numbers:
        """The numbers of all requests; empty if the run lost every request, or those of a site or workload."""
        return next(iter(self.rows.values()), {})


@dataclass(frozen=True, slots=True)
class Placement:
    """One workload, or a mix of all that share the devices, on a network under a policy: what a level is judged on."""

    plan: RunPlan
    workload: str
    """`all` for a mix of several."""
    network: str
    policy: str
    boxes: Mapping[str, tuple[Target, ...]] | None = None
    """By workload, the targets as they truly are, if they differ from those that the policy knows."""

    @property
    def cases(self) -> list[Case]:
        """The inputs of its workloads; of sites, those of the first one with each workload."""
        return [case for name, case in self.plan.cases.items() if self.workload in (ALL, name)]

    @property
    def checks(self) -> Iterator[Check]:
        """The requirements in the rows in which they must hold: of each workload, and of each site with one level."""
        scenario = self.plan.scenario
        if len(self.cases) == 1:
            yield from (Check(requirement, ALL, self.workload) for requirement in level_of(scenario, self.workload))
        parts = list(scenario.sites), list(scenario.workloads), list(scenario.classes)
        for site, workload in groups_of(*parts) if self.plan.is_mixed else ():
            if site != ALL:
                at_site = [requirement for requirement in level_at(scenario, site) if requirement != STABLE.requirement]
                yield from (Check(requirement, site, workload, f" at {site}") for requirement in at_site)
            elif workload != self.workload:
                at_all = level_of(scenario, workload)
                yield from (Check(requirement, site, workload, f" for {workload}") for requirement in at_all)

    @property
    def devices(self) -> list[Device]:
        """The devices in the order of the targets; own devices of sites together."""
        unit = self.unit(0, self.plan.scenario.requests)
        return devices_of(unit, unit.groups[0])

    @property
    def used(self) -> frozenset[str]:
        """Names of the devices on which the policy may execute requests."""
        scenarios = [site.scenario for site in self.plan.sites] or [self.plan.scenario]
        return frozenset[str]().union(*map(self.used_at, scenarios))

    def used_at(self, scenario: ScenarioConfiguration) -> Sequence[str]:
        """Return the names of the devices on which the policy may execute requests of a site."""
        return scenario.policies[self.policy].devices_of(list(scenario.devices))

    @property
    def rates_rps(self) -> dict[str, float]:
        """The mean rate of each of its workloads."""
        return {case.name: known(case.arrivals.mean_rate_rps) for case in self.cases}

    @property
    def rate_rps(self) -> float:
        """The mean rate of all its requests."""
        return sum(self.rates_rps.values())

    @property
    def box_saturation_rps(self) -> dict[str, float]:
        """How many requests per second, as its workloads mix them, one box of each device can serve in the long run.

        Of a device that batches or has slots, by its step costs when these are full; of own devices, those of the first site.
        """
        rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
        box_s = dict.fromkeys(self.plan.scenario.devices, 0.0)
        for case in self.cases:
            share = self.rates_rps[case.name] / self.rate_rps
            src_len, tgt_len = case.table.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)
            for target in case.targets:
                slowest = target.occupancy_factors[-1] if target.occupancy_factors else 1.0
                alone_s = (
                    slowest * target.mean_alone_s(case.table) / target.workers
                    if target.together is None
                    else saturated_s(target.together, src_len, tgt_len) / len(src_len)
                )
                box_s[target.device] += share * alone_s
        return {name: 1.0 / request_s for name, request_s in box_s.items()}

    def at_rate(self, rate_rps: float) -> Placement:
        """Return the placement with another mean rate of all its requests, in proportion, and the same random numbers."""
        rates_rps, total_rps = self.rates_rps, self.rate_rps
        scaled: dict[int, Case] = {}  # sites with one kind of device have the same inputs

        def at_rate(cases: Mapping[str, Case]) -> dict[str, Case]:
            for name in [name for name in cases if name in rates_rps]:
                case = cases[name]
                arrivals = case.arrivals.at_rate(rate_rps * (rates_rps[name] / total_rps))
                scaled.setdefault(id(case), replace(case, arrivals=arrivals))
            return {name: scaled.get(id(case), case) for name, case in cases.items()}

        sites = tuple(replace(site, cases=at_rate(site.cases)) for site in self.plan.sites)
        return replace(self, plan=replace(self.plan, cases=at_rate(self.plan.cases), sites=sites))

    @property
    def short_run(self) -> int:
        """Requests of a short run: an eighth, more if a row of a mix would have few, or all if a percentile needs many."""
        scenario, rates_rps = self.plan.scenario, self.rates_rps
        names = [*scenario.workloads, *map(class_row, scenario.classes)]
        if any(one.metric.least_requests > 1 for name in names for one in level_of(scenario, name)):
            return scenario.requests
        short = -(-scenario.requests // SHORT)
        if not self.plan.is_mixed:
            return short
        weights = {name: site.share * site.count for name, site in scenario.sites.items()}
        per_weight = {
            name: rate_rps / sum(weights[site] for site in weights if name in scenario.workloads_at(site))
            for name, rate_rps in (rates_rps.items() if weights else ())
        }
        at_sites = [weights[site] * sum(per_weight[name] for name in scenario.workloads_at(site)) for site in weights]
        least_share = min(*rates_rps.values(), *at_sites, self.rate_rps) / self.rate_rps
        return min(max(short, ceil(LEAST_IN_ROW / least_share)), scenario.requests)

    def unit(self, replication: int, requests: int) -> Unit:
        """Return the unit of one run of so many requests; a warm-up of a number of requests is the same share of them."""
        plan, used = self.plan, self.used

        def reduced(scenario: ScenarioConfiguration) -> ScenarioConfiguration:
            first = next(iter(scenario.devices))
            at_site = {first}.intersection(self.used_at(scenario)) | used.difference({first})
            changed = {
                # A deployment has no boxes that its policy does not use.
                "devices": {
                    name: device
                    if name in at_site or not device.price_per_hour
                    else device.model_copy(update={"price_per_hour": 0.0})
                    for name, device in scenario.devices.items()
                },
                "requests": requests,
                "warm_up_requests": scenario.warm_up_requests * requests // scenario.requests,
                "policies": {self.policy: scenario.policies[self.policy]},
                "gap_analysis": False,
                "foresee_misroutes": False,
            }
            return scenario.model_copy(update=changed)

        sites = tuple(replace(site, scenario=reduced(site.scenario)) for site in plan.sites)
        plan = replace(plan, scenario=reduced(plan.scenario), sites=sites)
        unit = Unit(plan.scenario, self.cases[0], self.network, plan.networks[self.network], replication)
        unit = mixed_unit(plan, unit) if plan.is_mixed else unit
        return unit if self.boxes is None else unit.with_boxes(self.boxes)

    def trial(self, replication: int, requests: int) -> Trial:
        """Return one run of so many requests."""
        unit = self.unit(replication, requests)
        try:
            rows = {(place.site, place.workload): numbers for place, numbers in run_unit(unit).numbers.items()}
        except NoAnswers as error:
            values = {check: inf if check.requirement.comparison == "<=" else 0.0 for check in self.checks}
            loads = dict.fromkeys(self.plan.scenario.devices, 0.0)
            return Trial(self.rate_rps, {}, values, loads, MOST_EXCESS, next(iter(values), STABLE), error.lost_share)
        # A load is no distance from a limit as a latency is, so it is named only where it is near 1.
        judged = self._judged_loads(unit, rows, requests)
        overload = max(load.excess for load in judged.values())
        values = {check: _value(check, rows[check.site, check.workload]) for check in self.checks}
        excesses = {STABLE: overload} if overload >= BUSY or not values else {}
        for check, value in values.items():
            ratio = check.requirement.ratio(value)
            excesses[check] = min(max(log(ratio) if ratio > 0.0 else -inf, -MOST_EXCESS), MOST_EXCESS)
        worst = max(excesses, key=excesses.__getitem__)
        loads = {name: load.shown for name, load in judged.items()}
        lost_share = unanswered_share(next(iter(rows.values())))
        return Trial(self.rate_rps, rows, values, loads, excesses[worst], worst, lost_share)

    def _judged_loads(self, unit: Unit, rows: Mapping[tuple[str, str], Numbers], requests: int) -> dict[str, JudgedLoad]:
        whole, *groups = unit.groups
        numbers = rows[whole.site, whole.workload]
        judged = {device.name: judged_load(numbers, requests, device) for device in devices_of(unit, whole)}
        site_loads = [
            judged_load(numbers, round(known(numbers["requests"])), devices_of(unit, group)[0])
            for group in groups
            for numbers in [rows[group.site, group.workload]]
            if group.site != ALL and group.boxes.start < group.boxes.stop
        ]
        return judged | ({next(iter(judged)): max(site_loads, key=lambda load: load.excess)} if site_loads else {})


def _value(check: Check, numbers: Numbers) -> float:
    """Return the value by which a run is judged, in the metric's unit. Raises `InputError` if the run lacks it.

    A lost request is infinitely late, so the value is infinite if too many are lost (`Metric.of_answered`), and if a run with
    lost requests is too short for the percentile that then counts.
    """
    requirement = check.requirement
    judged = requirement.metric.of_answered(requirement.metric.lost_share(numbers))
    value = None if judged is None else numbers.get(judged.column)
    if judged is None or (value is None and judged is not requirement.metric):
        return inf
    if value is None:
        what = f"{check}: a run of this scenario has no {judged.name}"
        raise InputError(what, remedy="give more requests, or another metric")
    return judged.per_si_unit * value


def deployable_placements(plan: RunPlan) -> Iterator[tuple[Placement, ...]]:
    """Yield the placements of each policy that a real decider could run, fixed policies first.

    Those of a policy are all workloads, or their mix if they share the devices, on all networks.
    """
    policies = {name: policy for name, policy in plan.scenario.policies.items() if policy.is_deployable}
    if not policies:
        raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
    workloads = list(plan.cases)
    if plan.is_mixed:
        workloads = workloads if len(workloads) == 1 else [ALL]
    for policy in sorted(policies, key=lambda name: not policies[name].single_device):
        yield tuple(Placement(plan, workload, network, policy) for workload, network in product(workloads, plan.networks))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runs of one placement at one rate show, means over the replications."""

    values: dict[Check, float]
    """Value of each check in the unit of its metric; infinite if too many requests are lost."""
    loads: dict[str, float]
    lost_share: float
    excess: float
    """Logarithm of the worst ratio of a value to its limit; negative if the level is kept."""
    binding: str
    resource: str
    """The device or the network that makes it so; empty if all requests, or those of a site or workload, are lost."""

    @classmethod
    def of(cls, placement: Placement, trials: Sequence[Trial]) -> Outcome:
        """Return the outcome of one run of each replication."""
        loads = {name: mean(trial.loads[name] for trial in trials) for name in trials[0].loads}
        return cls(
            {check: mean(trial.values[check] for trial in trials) for check in placement.checks},
            loads,
            mean(trial.lost_share for trial in trials),
            mean(trial.excess for trial in trials),
            *_binding(placement, trials, loads),
        )

    @property
    def headroom(self) -> dict[Check, float]:
        """Distance of each value from its limit, relative to the limit; negative if it misses it."""
        return {
            check: (1.0 - value / check.requirement.limit) * (1.0 if check.requirement.comparison == "<=" else -1.0)
            for check, value in self.values.items()
        }

    def document(self) -> Row:
        """Return the outcome as JSON, which has no infinite numbers."""
        row = {name: getattr(self, name) for name in ("loads", "lost_share", "binding", "resource")}
        for name, values in {"values": self.values, "headroom": self.headroom}.items():
            row[name] = {str(check): value if isfinite(value) else None for check, value in values.items()}
        return row


def _binding(placement: Placement, trials: Sequence[Trial], loads: Mapping[str, float]) -> tuple[str, str]:
    """Return what keeps a deployment from taking more requests, by its runs, and the device or network that makes it so.

    The requirement is the one that most runs are nearest to. If it is a latency, the resource is what makes requests slow
    beyond what they take at least: loads of models if most of the wait is for them, the queue of the busiest device if its load
    is high or waits are the greatest part of the latency, else the device or the network with the greatest part.
    """
    if lost := [trial.lost_share for trial in trials if not trial.numbers]:
        return "no request of a site or workload is answered" if min(lost) < 1.0 else "no request is answered", ""

    def greatest(columns: Mapping[str, str]) -> str:
        means = {name: mean(known(row[column]) for row in rows) for name, column in columns.items()}
        return max(means, key=means.__getitem__)

    worst = [trial.worst for trial in trials]
    check = max(dict.fromkeys(worst), key=worst.count)
    rows = [trial.rows.get((check.site, check.workload), trial.numbers) for trial in trials]
    busiest = max(loads, key=loads.__getitem__)
    if check == STABLE or loads[busiest] > 1.0:
        return f"{busiest} is saturated (load {min(loads[busiest], 1.0):.2f})", busiest
    if check.requirement.metric.name in OF_QUALITY:
        resource = greatest({device: f"{device}_share" for device in loads})
        return f"{check}, because of the translations by {resource}", resource
    part = greatest({part: f"beyond_p95_{part}_s" for part in PARTS})
    load_waits_s = {
        device: mean(known(row[f"{device}_share"]) * (row.get(f"{device}_mean_load_wait_s") or 0.0) for row in rows)
        for device in loads
    }
    loading = max(load_waits_s, key=load_waits_s.__getitem__)
    if part == "queue" and load_waits_s[loading] > mean(known(row["mean_queue_s"]) for row in rows) / 2.0:
        (boxes,) = (device.servers for device in placement.devices if device.name == loading)
        if mean(known(trial.numbers[f"{loading}_model_loads"]) for trial in trials) > 2 * boxes * len(placement.cases):
            return f"{check}, because of loads of models at {loading}", loading  # beyond each box's first ones
    if part == "transfer" and loads[busiest] < NEAR_LIMIT:
        return f"{check}, because of transfer over {placement.network}", placement.network
    is_busy = part == "queue" or loads[busiest] >= NEAR_LIMIT
    resource = busiest if is_busy else greatest({device: f"{device}_share" for device in loads})
    why = "execution on" if part == "execution" else "waits at"
    return f"{check}, because of {why} {resource} (load {loads[resource]:.2f})", resource
