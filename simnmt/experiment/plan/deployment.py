"""The least deployment for a rate: the cheapest combination of the varied keys that keeps a service level with a certainty.

All candidates meet the same random numbers. Each one that keeps the level in a short run, or misses it by little, is run with
all requests and replications. Those that still keep it are ordered by what is to be least. The first of them that keeps the
level with the certainty asked for is the choice: that is judged by runs with random numbers and drawn profiles of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby, islice, product
from math import ceil, inf, log, prod
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.basis import check_faults, doubts_of, sources_of
from simnmt.experiment.plan.capacity import Binding, binding_of
from simnmt.experiment.plan.trial import (
    Certainty,
    Level,
    Open,
    Site,
    Trial,
    box_saturation_rps,
    deployable_sites,
    describe_level,
    draw_profiles,
    finite,
    judge_certainty,
)
from simnmt.experiment.units import devices
from simnmt.results.metrics import objective_metric
from simnmt.results.service_level import Requirement
from simnmt.results.statistics import Estimate, change_percent, over_replications
from simnmt.results.summary import Row, known
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.varied_keys import VariedKey, check_disjoint

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
"""Most combinations of the varied keys."""
SLACK = log(1.3)
"""Excess of a short run with which a candidate is run with all requests."""
MOST_UNSURE = 12
"""Candidates whose certainty is judged before the surest of them is taken."""

Minimised = Literal["servers", "cost", "energy", "latency"]
"""What is to be least."""


def objective_of(minimised: Minimised, scenario: ScenarioConfiguration) -> str:
    """Return the objective of a scenario by which deployments are compared: of `latency`, the scenario's own if it is one."""
    spending = {"cost": "cost_per_request", "energy": "energy_j"}
    latency = scenario.objective if objective_metric(scenario.objective).sample == "latency" else "mean"
    return spending.get(minimised, latency)


@dataclass(eq=False, slots=True)
class Candidate:
    """The scenario with one value of each varied key, under one policy, at the rate of the plan, and its runs."""

    choice: dict[str, Any]
    """Varied key to value, and `policy` if the scenario has several."""
    overrides: tuple[Override, ...]
    sites: tuple[Site, ...]
    """One for each workload and network."""
    boxes: dict[str, int]
    """Boxes of the devices that are varied and that the policy may use: those of other devices are there in any case."""
    trials: list[list[Trial]] = field(default_factory=list)
    """By replication and site: of a short run, or of all replications if that was kept; empty if it was not simulated."""
    certainty: Certainty | None = None
    """None until it is judged."""

    @property
    def policy(self) -> str:
        """The policy."""
        return self.sites[0].policy

    @property
    def servers(self) -> int:
        """Number of the boxes."""
        return sum(self.boxes.values())

    @property
    def probability(self) -> float:
        """Probability that a run keeps the level; 0 if that was not judged."""
        return 0.0 if self.certainty is None else self.certainty.probability

    @property
    def by_site(self) -> list[list[Trial]]:
        """The trials by site and replication."""
        return [list(of_site) for of_site in zip(*self.trials, strict=True)]

    @property
    def excess(self) -> float:
        """Mean over the replications of the excess at the worst site."""
        return mean(max(trial.excess for trial in of_sites) for of_sites in self.trials)

    @property
    def worst(self) -> str:
        """The requirement that most replications are nearest to missing."""
        worst = [max(of_sites, key=lambda trial: trial.excess).worst for of_sites in self.trials]
        return max(dict.fromkeys(worst), key=worst.count)

    @property
    def lost_share(self) -> float:
        """Share of the requests that are lost, at the worst site."""
        return max(mean(trial.lost_share for trial in of_site) for of_site in self.by_site)

    @property
    def values(self) -> dict[Requirement, float]:
        """The value of each requirement: that of the worst site, mean over the replications."""
        values = {}
        for requirement in self.sites[0].level:
            of_sites = [mean(trial.values[requirement] for trial in of_site) for of_site in self.by_site]
            values[requirement] = max(of_sites) if requirement.comparison == "<=" else min(of_sites)
        return values

    def replicated(self, column: str) -> list[float]:
        """Return a column of each replication, mean over the sites."""
        return [mean(known(trial.numbers[column]) if trial.numbers else inf for trial in of_sites) for of_sites in self.trials]

    def document(self) -> Row:
        """Return the candidate as JSON."""
        return {
            "choice": self.choice,
            "policy": self.policy,
            "servers": self.servers,
            "boxes": self.boxes,
            "worst": self.worst,
            "lost_share": self.lost_share,
            "values": {str(requirement): finite(value) for requirement, value in self.values.items()},
            "headroom": {str(requirement): finite(headroom(requirement, value)) for requirement, value in self.values.items()},
            "certainty": None if self.certainty is None else asdict(self.certainty),
        }


def headroom(requirement: Requirement, value: float) -> float:
    """Return the distance of a value from the limit, relative to it; negative if it misses the limit."""
    return (requirement.limit - value) / requirement.limit * (1.0 if requirement.comparison == "<=" else -1.0)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The least deployment that keeps a service level at a rate."""

    name: str
    """Of the scenario."""
    level: str
    rate_rps: float
    minimised: Minimised
    objective: str
    """The objective of a scenario by which deployments are compared, unless that is the number of servers."""
    certainty: float
    """Probability from which the plan counts as sure."""
    candidates: list[Candidate]
    choice: Candidate | None
    """None if no candidate keeps the level."""
    runner_up: Candidate | None
    """The next one that keeps the level."""
    binding: Binding | None
    """What the choice is nearest to missing."""
    scenario: ScenarioConfiguration
    """The scenario of the choice, at the rate; that of the nearest miss without a choice."""
    without_engine: frozenset[str]
    """Devices whose profile holds no engine that a live service could start, such as an inferred one."""
    sources: str
    """Kinds of the device profiles and of the round trips."""
    warnings: list[str]

    @property
    def is_met(self) -> bool:
        """Whether some candidate keeps the level."""
        return self.choice is not None

    @property
    def is_sure(self) -> bool:
        """Whether the choice keeps the level with the probability asked for."""
        return self.choice is not None and self.choice.probability >= self.certainty

    @property
    def simulated(self) -> list[Candidate]:
        """The candidates that were simulated."""
        return [candidate for candidate in self.candidates if candidate.trials]

    @property
    def nearest_miss(self) -> Candidate | None:
        """The candidate that misses the level by least, if all miss it."""
        return None if self.is_met else min(self.simulated, key=lambda candidate: candidate.excess)

    def objective_values(self, candidate: Candidate) -> list[float]:
        """Return what is to be least, in its SI unit, of each replication of a candidate."""
        if self.minimised == "servers":
            return [float(candidate.servers)] * len(candidate.trials)
        return candidate.replicated(objective_metric(self.objective).column)

    @property
    def difference(self) -> dict[str, Estimate]:
        """The runner-up less the choice, paired by replication: what is to be least, and the mean latency in percent.

        Empty without a runner-up.
        """
        if self.choice is None or self.runner_up is None:
            return {}
        ours, theirs = self.choice, self.runner_up
        pairs = zip(self.objective_values(theirs), self.objective_values(ours), strict=True)
        return {
            "objective": over_replications([their_value - our_value for their_value, our_value in pairs]),
            "latency_percent": change_percent(theirs.replicated("mean_latency_s"), ours.replicated("mean_latency_s")),
        }

    def document(self) -> Row:
        """Return the plan as JSON."""
        described = {"chosen": self.choice, "runner_up": self.runner_up, "nearest_miss": self.nearest_miss}
        shown = ("name", "level", "rate_rps", "sources", "warnings")
        return {name: getattr(self, name) for name in shown} | {
            "minimise": self.minimised,
            "candidates": len(self.candidates),
            "choice": None if self.choice is None else self.choice.choice,
            "p_slo": None if self.choice is None else self.choice.probability,
            "sure": self.is_sure,
            **{name: None if candidate is None else self._described(candidate) for name, candidate in described.items()},
            "difference": {name: asdict(estimate) for name, estimate in self.difference.items()},
            "binding": None if self.binding is None else str(self.binding),
        }

    def _described(self, candidate: Candidate) -> Row:
        return candidate.document() | {"objective": finite(mean(self.objective_values(candidate)))}


def make_candidates(keys: Sequence[VariedKey], open_plan: Open, level: Level, rate_rps: float) -> list[Candidate]:
    """Return all combinations of the values of some keys under each policy, each checked.

    Raises the error of a wrong key or value.
    """
    for key in keys:
        key.check(FIXED_KEYS)
    check_disjoint(keys)
    combinations = prod(len(key.values) for key in keys)
    if combinations > MOST_CANDIDATES:
        what = f"{combinations:,} combinations of the varied keys, more than {MOST_CANDIDATES:,}"
        raise InputError(what, remedy="name fewer values to vary")
    varied = {key.location[1] for key in keys if key.location[0] == "devices"} - {END_NODE}
    candidates: list[Candidate] = []
    for overrides in product(*(key.overrides for key in keys)):
        plan = open_plan(overrides)
        choice = {key.name: override.value for key, override in zip(keys, overrides, strict=True)}
        policies = list(deployable_sites(plan, level))
        for sites in policies:
            of_policy = {"policy": sites[0].policy} if len(policies) > 1 else {}
            boxes = {part.name: part.servers for part in sites[0].devices if part.name in varied & sites[0].used}
            at_rate = tuple(site.at_rate(rate_rps) for site in sites)
            candidates.append(Candidate(choice | of_policy, tuple(overrides), at_rate, boxes))
    return candidates


def default_key(plan: RunPlan, rate_rps: float) -> VariedKey:
    """Return the count of the last device, from 1 to twice the boxes that the rate would saturate and a few more."""
    device = list(plan.scenario.devices)[-1]
    if device == END_NODE:
        raise InputError("there is no device whose boxes could be counted", remedy="name keys to vary")
    boxes_rps = [
        box_saturation_rps(case, case.targets[-1], devices(plan.scenario, name)[-1]) for name, case in plan.cases.items()
    ]
    most = 2 * ceil(rate_rps / min(boxes_rps)) + 2
    if most > MOST_CANDIDATES:
        what = f"{rate_rps:g} requests/s may need {most:,} boxes of {device}, too many to try each number"
        raise InputError(what, remedy="name the numbers to vary")
    return VariedKey(("devices", device, "count"), f"devices.{device}.count=1:{most}", tuple(range(1, most + 1)))


def find_deployment(
    keys: Sequence[VariedKey],
    open_plan: Open,
    level: Level,
    *,
    rate_rps: float,
    minimised: Minimised,
    certainty: float,
    progress: Callable[[float, int], None] | None,
) -> DeploymentPlan:
    """Return the least deployment that keeps the level at a rate with a certainty.

    The choice is the surest candidate if none is sure, and None if all miss the level.

    Args:
        keys: the varied keys; empty: the number of boxes of the last device.
        open_plan: opens the scenario.
        level: what is to be kept.
        rate_rps: mean rate of every workload.
        minimised: what is to be least.
        certainty: probability of keeping the level from which a candidate is chosen.
        progress: called with the number of simulated candidates and of all.
    """
    if not 0.0 < rate_rps < 1e9:
        raise InputError(f"a rate of {rate_rps:g} requests/s", remedy="give a number above 0")
    if not 0.0 < certainty <= 0.999:
        raise InputError(f"a certainty of {certainty:g}", remedy="give a number above 0 and at most 0.999, such as 0.95")
    plan = open_plan(())
    objective = objective_of(minimised, plan.scenario)

    def open_candidate(overrides: Iterable[Override]) -> RunPlan:
        return open_plan([*overrides, Override.of("objective", objective, f"minimise {minimised}")])

    candidates = make_candidates(keys or [default_key(plan, rate_rps)], open_candidate, level, rate_rps)
    least = check_faults(site for candidate in candidates for site in candidate.sites)

    def judge(candidate: Candidate, *, to_end: bool) -> Certainty:
        drawn = draw_profiles(candidate.overrides, open_candidate, certainty)
        return judge_certainty(candidate.sites, drawn, certainty, to_end=to_end)

    kept = _kept(candidates, minimised, objective_metric(objective).column, least, progress)
    judged: list[Candidate] = []
    for candidate in islice(kept, MOST_UNSURE):
        candidate.certainty = judge(candidate, to_end=False)
        judged.append(candidate)
        if candidate.probability >= certainty:
            break
    choice = max(judged, key=lambda candidate: candidate.probability, default=None)
    if choice is not None and choice.probability < certainty:
        # The runs that ended when the certainty was out of reach would understate the probability.
        choice.certainty = judge(choice, to_end=True)
    runner_up = next((candidate for candidate in chain(kept, judged) if candidate is not choice), None)
    shown = choice or min((one for one in candidates if one.trials), key=lambda candidate: candidate.excess)
    scenario, plan = plan.scenario, shown.sites[0].plan
    trials = [pair for of_sites in shown.trials for pair in zip(shown.sites, of_sites, strict=True)]
    return DeploymentPlan(
        name=plan.scenario.name,
        level=describe_level(level),
        rate_rps=rate_rps,
        minimised=minimised,
        objective=objective,
        certainty=certainty,
        candidates=candidates,
        choice=choice,
        runner_up=runner_up,
        binding=None if choice is None else _binding(choice),
        scenario=_at_rate(plan.scenario, rate_rps).model_copy(update={"objective": scenario.objective}),
        without_engine=frozenset(
            target.device
            for case in plan.cases.values()
            for target in case.targets
            if target.profile.engine is None or not target.profile.engine.architecture
        ),
        sources=sources_of(plan, trials),
        warnings=doubts_of(plan, level, trials, plan.scenario.replications),
    )


def _kept(
    candidates: Sequence[Candidate],
    minimised: Minimised,
    column: str,
    least: int,
    progress: Callable[[float, int], None] | None,
) -> Iterator[Candidate]:
    """Yield the candidates that keep the level, the least first; of equal ones, those of a fixed policy.

    More boxes than those of the answer are not simulated if the fewest servers are asked for. `least`: requests of a short run.
    """

    def servers(candidate: Candidate) -> int:
        return candidate.servers if minimised == "servers" else 0

    def rank(candidate: Candidate) -> list[float]:
        # Four digits: what differs by less is equal, and stays in the order of the candidates.
        columns = ("mean_latency_s",) if minimised == "servers" else (column, "mean_latency_s")
        return [float(f"{mean(candidate.replicated(name)):.4g}") for name in columns]

    done = 0
    for _, group in groupby(sorted(candidates, key=servers), servers):
        kept = []
        for candidate in group:
            done += 1
            if _keeps_level(candidate, least):
                kept.append(candidate)
            if progress is not None:
                progress(done, len(candidates))
        yield from sorted(kept, key=rank)


def _keeps_level(candidate: Candidate, least: int) -> bool:
    """Simulate a candidate, and return whether it keeps the level in all replications together."""
    scenario = candidate.sites[0].plan.scenario
    candidate.trials = [[site.trial(0, site.short_run(least)) for site in candidate.sites]]
    if candidate.excess <= SLACK:
        numbers = range(scenario.replications)
        candidate.trials = [[site.trial(number, scenario.requests) for site in candidate.sites] for number in numbers]
        return candidate.excess <= 0.0
    return False


def _binding(choice: Candidate) -> Binding:
    """Return what the choice is nearest to missing, at its worst site."""
    excesses = [mean(trial.excess for trial in of_site) for of_site in choice.by_site]
    worst = excesses.index(max(excesses))
    return binding_of(choice.sites[worst], choice.by_site[worst])


def _at_rate(scenario: ScenarioConfiguration, rate_rps: float) -> ScenarioConfiguration:
    """Return a scenario with the rate in the keys of its arrivals, where such keys are known."""
    workloads = {}
    for name, workload in scenario.workloads.items():
        # All paths of a checked scenario are absolute.
        present_rps = known(workload.arrivals.process(Path()).mean_rate_rps)
        arrivals = workload.arrivals.with_rate(rate_rps, present_rps) or workload.arrivals
        workloads[name] = workload.model_copy(update={"arrivals": arrivals})
    return scenario.model_copy(update={"workloads": workloads})


def describe_choice(candidate: Candidate) -> str:
    """Return the choice of a deployment on one line, such as `2 cloud servers, policy cnmt`."""
    parts = []
    for key, value in candidate.choice.items():
        device = key.removeprefix("devices.").removesuffix(".count")
        if key == "policy":
            parts.append(f"policy {value}")
        elif key == f"devices.{device}.count":
            count = candidate.boxes.get(device, 0)
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
