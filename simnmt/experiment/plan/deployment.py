"""The least deployment for a rate: the choice among candidates, how sure it is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from statistics import mean

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.basis import Basis, basis_of, check_faults, finite
from simnmt.experiment.plan.candidates import Candidate, Certainty, Objective, Open
from simnmt.experiment.plan.capacity import Binding, Capacities, SureRate, Trial, binding, mean_loads
from simnmt.experiment.plan.search import CERTAINTY, DRAWS, Search, choose, draw_profiles, is_sure, known_certainty
from simnmt.experiment.plan.trial import Level, Site
from simnmt.results.statistics import Estimate, change_percent, over_replications
from simnmt.results.summary import Numbers, Row, known
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override

RATE_STEP = 0.95
"""Factor between neighbouring rates below a capacity that are tried for certainty."""
RATE_STEPS = 13
"""Rates that are tried so: to 0.51 of the capacity."""
SPENT = {
    "mean_cost": "cost",
    "mean_energy_j": "energy_j",
    "mean_static_j": "static_j",
    "mean_dynamic_j": "dynamic_j",
    "mean_transfer_j": "transfer_j",
}
"""Columns of money and joules by their names in a plan, per request."""


@dataclass(frozen=True, slots=True)
class Described:
    """A candidate that was simulated, as a plan shows it."""

    choice: Row
    policy: str
    boxes: dict[str, int]
    """Boxes of the varied devices that the policy may use."""
    objective: float
    """Mean over the replications, in the SI unit."""
    values: dict[str, float]
    """The value of each requirement, in its unit: that of the worst site, mean over the replications; infinite if too many
    requests are lost."""
    headroom: dict[str, float]
    """By requirement, the distance of the value from the limit, relative to it; negative if it is missed."""
    excess: float
    worst: str
    """The requirement that is nearest to its limit."""
    lost_share: float
    """Share of the requests that are lost, at the worst site."""
    certainty: Certainty | None
    """How probably a run keeps the level; None if that was not judged."""
    spending: dict[str, float]
    """Money and joules that are known (`SPENT`)."""

    @property
    def servers(self) -> int:
        """Number of these boxes."""
        return sum(self.boxes.values())

    @property
    def p_slo(self) -> float | None:
        """Probability that a run keeps the level; None if that was not judged."""
        return None if self.certainty is None else self.certainty.p_slo

    def document(self) -> Row:
        """Return the candidate as JSON."""
        shown = ("choice", "policy", "servers", "boxes", "objective", "worst", "lost_share", "p_slo", "spending")
        return {name: getattr(self, name) for name in shown} | {
            "values": {name: finite(value) for name, value in self.values.items()},
            "headroom": {name: finite(value) for name, value in self.headroom.items()},
            "p_runs": 0 if self.certainty is None else self.certainty.runs,
            "p_runs_met": 0 if self.certainty is None else self.certainty.runs_met,
        }


def describe(search: Search, candidate: Candidate) -> Described:
    """Return a candidate that was simulated, as a plan shows it."""
    outcomes, sites = candidate.outcomes, range(len(candidate.sites))
    values, headroom = {}, {}
    for requirement in search.level.limits:
        by_site = [mean(search.level.value(requirement, outcome.numbers[at]) for outcome in outcomes) for at in sites]
        is_upper = requirement.comparison == "<="
        value = max(by_site) if is_upper else min(by_site)
        values[str(requirement)] = value
        headroom[str(requirement)] = (requirement.limit - value) / requirement.limit * (1.0 if is_upper else -1.0)
    worst = [outcome.distance.worst for outcome in outcomes]
    spending = {}
    for column, name in SPENT.items():
        amounts = [numbers.get(column) for outcome in outcomes for numbers in outcome.numbers]
        if None not in amounts:
            spending[name] = mean(known(amount) for amount in amounts)
    return Described(
        choice=candidate.choice,
        policy=candidate.policy,
        boxes=candidate.boxes,
        objective=mean(outcome.objective for outcome in outcomes),
        values=values,
        headroom=headroom,
        excess=candidate.excess,
        worst=max(dict.fromkeys(worst), key=worst.count),
        lost_share=max(mean(outcome.numbers[at].get("lost_share") or 0.0 for outcome in outcomes) for at in sites),
        certainty=candidate.certainty,
        spending=spending,
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """The runner-up less the choice, paired by replication."""

    objective: Estimate
    """Of the objective, in its SI unit."""
    latency_percent: Estimate
    """Change of the mean latency from the choice to the runner-up."""


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The least deployment that keeps a service level at a rate."""

    name: str
    """Of the scenario."""
    level: str
    rate_rps: float
    objective: Objective
    candidates: int
    choice: Described | None
    """None if no candidate keeps the level."""
    as_good: list[Described]
    """Deployments that differ from the choice by less than `simplicity.TIE`, and whose policies are not simpler."""
    runner_up: Described | None
    """The next best of the others."""
    difference: Difference | None
    certainty: float
    """Probability from which the plan counts as sure."""
    close: list[Described]
    """Deployments so near the certainty that another seed may choose otherwise."""
    binding: Binding | None
    nearest_miss: Described | None
    judged: list[tuple[Described, str]]
    """Every candidate that was simulated, with the reason why it is out, empty if it is not."""
    overrides: tuple[Override, ...]
    """The values of the choice."""
    scenario: ScenarioConfiguration
    """The scenario of the choice, at the rate; the first candidate's without a choice."""
    without_engine: frozenset[str]
    """Devices whose profile holds no engine that a live service could start, such as an inferred one."""
    requests: int
    replications: int
    requests_simulated: int
    basis: Basis
    """Kinds of the inputs, and warnings."""

    @property
    def is_met(self) -> bool:
        """Whether some candidate keeps the level."""
        return self.choice is not None

    @property
    def is_sure(self) -> bool:
        """Whether the choice keeps the level with the probability asked for."""
        return self.choice is not None and (self.choice.p_slo or 0.0) >= self.certainty

    def document(self) -> Row:
        """Return the plan as JSON."""
        choice, described = self.choice, {"chosen": self.choice, "runner_up": self.runner_up, "nearest_miss": self.nearest_miss}
        shown = ("name", "level", "rate_rps", "candidates", "requests", "replications", "requests_simulated")
        return {name: getattr(self, name) for name in shown} | {
            "minimise": self.objective.name,
            "choice": None if choice is None else choice.choice,
            **{name: None if one is None else one.document() for name, one in described.items()},
            "as_good": [one.choice for one in self.as_good],
            "difference": None if self.difference is None else asdict(self.difference),
            "p_slo": None if choice is None else choice.p_slo,
            "p_over": "" if choice is None or choice.certainty is None else choice.certainty.over,
            "sure": self.is_sure,
            "close": [one.choice for one in self.close],
            "binding": None if self.binding is None else str(self.binding),
            **asdict(self.basis),
        }


def find_deployment(
    candidates: Sequence[Candidate],
    open_plan: Open,
    level: Level,
    objective: Objective,
    *,
    rate_rps: float,
    certainty: float = CERTAINTY,
    progress: Callable[[float, int], None] | None = None,
    warnings: Sequence[str] = (),
) -> DeploymentPlan:
    """Return the least candidate that keeps the level with a certainty.

    Args:
        candidates: those of `make_candidates`.
        open_plan: opens the scenario with the values of a candidate.
        level: what is to be kept.
        objective: what is to be least.
        rate_rps: the rate of the candidates.
        certainty: probability of keeping the level from which a candidate is chosen.
        progress: called with the number of judged candidates and of all.
        warnings: about the candidates.
    """
    first = candidates[0].sites[0].plan
    scenario = first.scenario
    sites = [site for candidate in candidates for site in candidate.sites]
    search = Search(
        candidates,
        level,
        objective,
        replications=scenario.replications,
        requests=scenario.requests,
        least=max(level.least_requests(scenario), check_faults(sites, level, scenario.requests)),
        progress=progress,
    )
    search.reject_impossible()
    # As many draws as can reach the certainty though one run misses the level.
    choice, as_good, runner_up = choose(search, open_plan, certainty, max(DRAWS, ceil(2.0 * certainty / (1.0 - certainty))))
    simulated = [candidate for candidate in candidates if candidate.outcomes]
    miss = min(simulated, key=lambda candidate: (candidate.excess, candidate.number), default=None) if choice is None else None
    plan, runs = first, list[tuple[Site, Numbers]]()
    if (shown := choice or miss) is not None:
        plan = shown.sites[0].plan
        runs = [pair for outcome in shown.outcomes for pair in zip(shown.sites, outcome.numbers, strict=True)]
    basis = basis_of(plan, level, search.replications, runs)
    return DeploymentPlan(
        name=scenario.name,
        level=str(level),
        rate_rps=rate_rps,
        objective=objective,
        candidates=len(candidates),
        choice=None if choice is None else describe(search, choice),
        as_good=[describe(search, candidate) for candidate in as_good],
        runner_up=None if runner_up is None else describe(search, runner_up),
        difference=None if choice is None or runner_up is None else _difference(choice, runner_up),
        certainty=certainty,
        close=[
            describe(search, candidate)
            for candidate in candidates
            if candidate.certainty is not None and candidate.certainty.is_close
        ],
        binding=None if choice is None else _binding(search, choice),
        nearest_miss=None if miss is None else describe(search, miss),
        judged=[(describe(search, candidate), candidate.rejected) for candidate in simulated],
        overrides=() if choice is None else choice.overrides,
        scenario=scenario if choice is None else _scenario_at_rate(choice, rate_rps),
        without_engine=frozenset(
            target.device
            for case in (first if choice is None else plan).cases.values()
            for target in case.targets
            if target.profile.engine is None or not target.profile.engine.architecture
        ),
        requests=scenario.requests,
        replications=scenario.replications,
        requests_simulated=search.requests_simulated,
        basis=replace(basis, warnings=[*warnings, *basis.warnings]),
    )


def _scenario_at_rate(choice: Candidate, rate_rps: float) -> ScenarioConfiguration:
    """Return the scenario of a choice with the rate in the keys of its arrivals, where such keys are known."""
    scenario = choice.sites[0].plan.scenario
    workloads = {}
    for name, workload in scenario.workloads.items():
        # All paths of a checked scenario are absolute.
        present_rps = known(workload.arrivals.process(Path()).mean_rate_rps)
        arrivals = workload.arrivals.with_rate(rate_rps, present_rps) or workload.arrivals
        workloads[name] = workload.model_copy(update={"arrivals": arrivals})
    return scenario.model_copy(update={"workloads": workloads})


def _difference(choice: Candidate, runner_up: Candidate) -> Difference:
    pairs = list(zip(runner_up.outcomes, choice.outcomes, strict=False))
    return Difference(
        over_replications([theirs.objective - ours.objective for theirs, ours in pairs]),
        change_percent([theirs.latency_s for theirs, _ in pairs], [ours.latency_s for _, ours in pairs]),
    )


def _binding(search: Search, choice: Candidate) -> Binding:
    """Return what the choice is nearest to missing, at its worst site."""
    by_site = [
        [
            Trial(site.rate_rps, search.level.judge(numbers, search.requests, site.devices), numbers)
            for numbers in (outcome.numbers[at] for outcome in choice.outcomes)
        ]
        for at, site in enumerate(choice.sites)
    ]
    at = max(range(len(by_site)), key=lambda place: mean(trial.distance.excess for trial in by_site[place]))
    return binding(choice.sites[at], by_site[at], mean_loads(choice.sites[at], by_site[at], search.requests))


def find_sure_rate(
    plan: RunPlan, capacities: Capacities, level: Level, objective: Objective, open_plan: Open
) -> SureRate | None:
    """Return the rate at which a run keeps the level with the probability `CERTAINTY`, the calibration's error included.

    It is that of the best policy in the place where it takes least: the test of a plan is made at rates downwards from the
    capacity, which takes profiles as exact. None if no rate keeps the level, or if the error of no calibration is known; a
    rate of None if it lies below all that are tried.
    """
    best = capacities.best
    drawn = draw_profiles((), open_plan, DRAWS) if best.is_met else None
    if drawn is None:
        return None
    site = Site(plan, best.workload, best.network, best.policy)
    simulated = 0
    for step in range(1, RATE_STEPS + 1):
        rate_rps = float(f"{best.rate_rps * RATE_STEP**step:.3g}")  # as a user would type it
        candidate = Candidate(0, {}, (), best.policy, (site.at_rate(rate_rps),))
        search = Search([candidate], level, objective, replications=plan.scenario.replications, requests=best.requests)
        sure = is_sure(search, candidate, lambda _: drawn, CERTAINTY, DRAWS, most_draws=1)
        simulated += search.requests_simulated
        if sure:
            certainty = known_certainty(candidate)
            return SureRate(rate_rps, CERTAINTY, certainty.runs, certainty.runs_met, simulated)
    return SureRate(None, CERTAINTY, 0, 0, simulated)
