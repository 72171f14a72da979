"""The least deployment for a rate: the choice among candidates, how sure it is, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from statistics import mean

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.fault_setup import NoAnswers
from simnmt.experiment.plan.basis import Basis, Run, basis_of, check_faults, finite
from simnmt.experiment.plan.candidates import Deployment, Open, Space
from simnmt.experiment.plan.capacity import Binding, Trial, binding, mean_loads
from simnmt.experiment.plan.objectives import Objective, spending
from simnmt.experiment.plan.search import Candidate, Certainty, Search, is_close, is_hopeless, probability_met
from simnmt.experiment.plan.trial import MOST_EXCESS, Level
from simnmt.profile.blocks import ProfileError
from simnmt.results.simplicity import is_tie
from simnmt.results.statistics import Estimate, change_percent, over_replications
from simnmt.results.summary import Row, known
from simnmt.scenario.configuration import Scenario
from simnmt.scenario.document import Override

DRAWS = 40
"""Runs by which the certainty of a plan is judged, each with profiles and random numbers of its own."""
MOST_DRAWS = 4
"""The certainty is judged by so many times as many runs at most, if it is close to the one asked for."""
CERTAINTY = 0.95
"""Probability from which a plan counts as sure."""
MOST_UNSURE = 12
"""Candidates whose certainty is judged before the surest of them is taken."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The runner-up less the choice, paired by replication."""

    objective: Estimate
    """Of the objective, in its SI unit."""
    latency_percent: Estimate
    """Change of the mean latency from the choice to the runner-up."""


@dataclass(frozen=True, slots=True)
class Described:
    """A candidate as a plan describes it."""

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
    """Money and joules that are known (`objectives.SPENT`)."""

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
        return {
            "choice": self.choice,
            "policy": self.policy,
            "servers": self.servers,
            "boxes": self.boxes,
            "objective": self.objective,
            "values": {name: finite(value) for name, value in self.values.items()},
            "headroom": {name: finite(value) for name, value in self.headroom.items()},
            "worst": self.worst,
            "lost_share": self.lost_share,
            "p_slo": self.p_slo,
            "p_runs": 0 if self.certainty is None else self.certainty.runs,
            "p_runs_met": 0 if self.certainty is None else self.certainty.runs_met,
            "spending": self.spending,
        }


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
    scenario: Scenario
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
        return self.choice is not None and self.choice.p_slo is not None and self.choice.p_slo >= self.certainty

    def document(self) -> Row:
        """Return the plan as JSON."""
        choice, difference = self.choice, self.difference
        return {
            "name": self.name,
            "level": self.level,
            "rate_rps": self.rate_rps,
            "minimise": self.objective.name,
            "choice": None if choice is None else choice.choice,
            "chosen": None if choice is None else choice.document(),
            "as_good": [described.choice for described in self.as_good],
            "runner_up": None if self.runner_up is None else self.runner_up.document(),
            "difference": None
            if difference is None
            else {"objective": asdict(difference.objective), "latency_percent": asdict(difference.latency_percent)},
            "p_slo": None if choice is None else choice.p_slo,
            "p_over": "" if choice is None or choice.certainty is None else choice.certainty.over,
            "sure": self.is_sure,
            "close": [described.choice for described in self.close],
            "binding": None if self.binding is None else str(self.binding),
            "nearest_miss": None if self.nearest_miss is None else self.nearest_miss.document(),
            "candidates": self.candidates,
            "requests": self.requests,
            "replications": self.replications,
            "requests_simulated": self.requests_simulated,
            **self.basis.document(),
        }


def find_deployment(
    space: Space,
    open_plan: Open,
    level: Level,
    objective: Objective,
    *,
    rate_rps: float,
    certainty: float = CERTAINTY,
    draws: int | None = None,
    progress: Callable[[float, int], None] | None = None,
    warnings: Sequence[str] = (),
) -> DeploymentPlan:
    """Return the least deployment of a space that keeps the level with a certainty.

    Args:
        space: the candidates.
        open_plan: opens the scenario with the values of a candidate.
        level: what is to be kept.
        objective: what is to be least.
        rate_rps: the rate of the candidates.
        certainty: probability of keeping the level from which a candidate is chosen.
        draws: runs by which that probability is judged; None: as many as can reach the certainty though one misses the level.
        progress: called with the number of judged candidates and of all.
        warnings: about the space.
    """
    scenario = space.first.scenario
    deployments = space.deployments()
    sites = [site for deployment in deployments for site in deployment.sites]
    search = Search(
        deployments,
        level,
        objective,
        replications=scenario.replications,
        requests=scenario.requests,
        least=max(level.least_requests(scenario), check_faults(sites, level, scenario.requests)),
        progress=progress,
    )
    for candidate in search.candidates:
        search.reject_impossible(candidate)
    draws = max(DRAWS, ceil(2.0 * certainty / (1.0 - certainty))) if draws is None else draws
    chosen = choose(search, open_plan, certainty, draws)
    plan = _plan(search, space, rate_rps, certainty, chosen)
    return replace(plan, basis=replace(plan.basis, warnings=(*warnings, *plan.basis.warnings)))


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a search found."""

    choice: Candidate | None
    """The least candidate that keeps the level with the certainty asked for, else the surest; None if all miss the level."""
    as_good: list[Candidate]
    """Those that are tied with the choice, as sure, and not simpler."""
    runner_up: Candidate | None
    """The next one of the others."""


def choose(search: Search, open_plan: Open, certainty: float, draws: int) -> Chosen:
    """Return the choice among the candidates of a search, those that are as good, and the next one.

    Of the candidates that are tied the choice has the simplest policy.
    """
    choice: Candidate | None = None
    runner_up: Candidate | None = None
    tied: dict[str, Candidate] = {}
    """Candidates by their text: those that differ in devices that their policy does not use are the same."""
    unsure: list[Candidate] = []
    for candidate in search.at_top():
        if choice is not None:
            if _are_tied(search, candidate, choice):
                if candidate.deployment.describe() not in tied and is_sure(search, candidate, open_plan, certainty, draws):
                    tied[candidate.deployment.describe()] = candidate
                continue
            runner_up = candidate
            is_less = candidate.estimate(search.objective) < choice.estimate(search.objective)
            # A short run made it look worse. It is the plan, if it is as sure.
            if is_less and is_sure(search, candidate, open_plan, certainty, draws):
                choice, runner_up, tied = candidate, choice, {candidate.deployment.describe(): candidate}
            break
        if is_sure(search, candidate, open_plan, certainty, draws):
            choice = candidate
            tied[candidate.deployment.describe()] = candidate
        else:
            unsure.append(candidate)
            if len(unsure) >= MOST_UNSURE:
                break
    if choice is None and unsure:
        for candidate in unsure:
            if candidate.certainty is None or candidate.certainty.runs < draws:
                # A sample that ended with the run that was one too many would understate the probability.
                is_sure(search, candidate, open_plan, 0.0, draws)
        choice = max(unsure, key=lambda candidate: candidate.certainty.p_slo if candidate.certainty is not None else 0.0)
        unsure.remove(choice)
    if runner_up is None:
        runner_up = next(iter(unsure), None)
    if tied:
        choice = min(tied.values(), key=lambda candidate: (candidate.deployment.policy_rank, candidate.number))
    return Chosen(choice, [candidate for candidate in tied.values() if candidate is not choice], runner_up)


def _are_tied(search: Search, ours: Candidate, theirs: Candidate) -> bool:
    pairs = zip(ours.estimate(search.objective), theirs.estimate(search.objective), strict=True)
    return all(is_tie(our, their) for our, their in pairs)


def is_sure(
    search: Search, candidate: Candidate, open_plan: Open, certainty: float, draws: int, most_draws: int = MOST_DRAWS
) -> bool:
    """Return whether a run of a candidate keeps the level with a certainty; its `Certainty` is noted in the candidate.

    Every run has random numbers that no candidate was chosen by, and boxes drawn within the error of their calibration. The
    runs end as soon as too many have missed the level. While the probability is close to the certainty, more runs are added,
    up to `most_draws` times `draws`.
    """
    deployment, first, most = candidate.deployment, search.top.replications, most_draws * draws
    drawn: RunPlan | None = None
    excesses: list[float] = []
    hopeless = close = False
    while not excesses or (close and not hopeless and len(excesses) < most):
        drawn = draw_profiles(deployment.overrides, open_plan, len(excesses) + draws)
        for number in range(len(excesses), len(excesses) + draws):
            boxes = deployment if drawn is None else with_boxes(deployment, drawn, number)
            try:
                excesses.append(search.simulate(boxes, first + number, search.top.requests).verdict.excess)
            except NoAnswers:
                excesses.append(MOST_EXCESS)
            hopeless = is_hopeless(excesses, certainty, most)
            if hopeless:
                break
        close = not hopeless and is_close(excesses, certainty)
    candidate.certainty = Certainty(
        p_slo=probability_met(excesses),
        over="replications alone" if drawn is None else "replications and the error of the calibration",
        runs=len(excesses),
        runs_met=sum(excess <= 0.0 for excess in excesses),
        worst_excess=max(excesses),
        is_close=close,
    )
    return candidate.certainty.p_slo >= certainty


def with_boxes(deployment: Deployment, drawn: RunPlan, number: int) -> Deployment:
    """Return a deployment with the drawn profiles of one number."""
    sites = tuple(replace(site, boxes=drawn.drawn[site.workload].targets[number]) for site in deployment.sites)
    return replace(deployment, sites=sites)


def draw_profiles(overrides: Sequence[Override], open_plan: Open, draws: int) -> RunPlan | None:
    """Return the scenario with some overrides and with drawn profiles; None if the error of no calibration is known."""
    try:
        return open_plan([*overrides, Override.of("profile_uncertainty", {"profiles": draws}, "simnmt plan")])
    except ProfileError:
        return None


def _plan(
    search: Search,
    space: Space,
    rate_rps: float,
    certainty: float,
    chosen: Chosen,
) -> DeploymentPlan:
    choice, runner_up = chosen.choice, chosen.runner_up
    scenario = space.first.scenario
    described = None if choice is None else describe(search, choice)
    difference = None if choice is None or runner_up is None else _difference(search, choice, runner_up)
    miss = search.nearest_miss()
    return DeploymentPlan(
        name=scenario.name,
        level=str(search.level),
        rate_rps=rate_rps,
        objective=search.objective,
        candidates=space.size,
        choice=described,
        as_good=[describe(search, candidate) for candidate in chosen.as_good],
        runner_up=None if runner_up is None else describe(search, runner_up),
        difference=difference,
        certainty=certainty,
        close=[
            describe(search, candidate)
            for candidate in search.candidates
            if candidate.certainty is not None and candidate.certainty.is_close
        ],
        binding=None if choice is None else _binding(search, choice),
        nearest_miss=None if choice is not None or miss is None else describe(search, miss),
        judged=[(describe(search, candidate), candidate.rejected) for candidate in search.candidates if candidate.outcomes],
        overrides=() if choice is None else choice.deployment.overrides,
        scenario=scenario if choice is None else _scenario_at_rate(choice, rate_rps),
        without_engine=_without_engine(space.first if choice is None else choice.deployment.sites[0].plan),
        requests=scenario.requests,
        replications=scenario.replications,
        requests_simulated=search.requests_simulated,
        basis=_basis(search, space, choice or miss),
    )


def _without_engine(plan: RunPlan) -> frozenset[str]:
    targets = [target for case in plan.cases.values() for target in case.targets]
    return frozenset(
        target.device for target in targets if target.profile.engine is None or not target.profile.engine.architecture
    )


def _basis(search: Search, space: Space, shown: Candidate | None) -> Basis:
    """Return what a plan rests on. `shown`: the choice, or the nearest miss."""
    if shown is None or not shown.outcomes:
        return basis_of(space.first, search.level, search.top.replications)
    sites = shown.deployment.sites
    runs = [
        Run(site, site.rate_rps, numbers)
        for outcome in shown.outcomes
        for site, numbers in zip(sites, outcome.numbers, strict=True)
    ]
    return basis_of(sites[0].plan, search.level, search.top.replications, runs)


def _scenario_at_rate(choice: Candidate, rate_rps: float) -> Scenario:
    """Return the scenario of a choice with the rate in the keys of its arrivals, where such keys are known."""
    scenario = choice.deployment.sites[0].plan.scenario
    workloads = {}
    for name, workload in scenario.workloads.items():
        # All paths of a checked scenario are absolute.
        present_rps = known(workload.arrivals.process(Path()).mean_rate_rps)
        arrivals = workload.arrivals.with_rate(rate_rps, present_rps) or workload.arrivals
        workloads[name] = workload.model_copy(update={"arrivals": arrivals})
    return scenario.model_copy(update={"workloads": workloads})


def describe(search: Search, candidate: Candidate) -> Described:
    """Return a candidate that was simulated, as a plan describes it."""
    values, headroom = {}, {}
    for requirement in search.level.limits:
        by_site = [
            mean(search.level.value(requirement, outcome.numbers[site]) for outcome in candidate.outcomes)
            for site in range(len(candidate.deployment.sites))
        ]
        upper = requirement.comparison == "<="
        value = max(by_site) if upper else min(by_site)
        values[str(requirement)] = value
        headroom[str(requirement)] = (requirement.limit - value) / requirement.limit * (1.0 if upper else -1.0)
    worst = [outcome.verdict.worst for outcome in candidate.outcomes]
    return Described(
        choice=candidate.deployment.choice,
        policy=candidate.deployment.policy,
        boxes=candidate.deployment.boxes,
        objective=mean(outcome.objective for outcome in candidate.outcomes),
        values=values,
        headroom=headroom,
        excess=candidate.excess,
        worst=max(dict.fromkeys(worst), key=worst.count),
        lost_share=max(
            mean(outcome.numbers[site].get("lost_share") or 0.0 for outcome in candidate.outcomes)
            for site in range(len(candidate.deployment.sites))
        ),
        certainty=candidate.certainty,
        spending=spending([outcome.numbers for outcome in candidate.outcomes]),
    )


def _difference(search: Search, choice: Candidate, runner_up: Candidate) -> Difference:
    ours, theirs = choice.outcomes, runner_up.outcomes
    count = min(len(ours), len(theirs))
    return Difference(
        over_replications([theirs[at].objective - ours[at].objective for at in range(count)]),
        change_percent([run.latency_s for run in theirs[:count]], [run.latency_s for run in ours[:count]]),
    )


def _binding(search: Search, choice: Candidate) -> Binding:
    """Return what the choice is nearest to missing, at its worst site."""
    sites = choice.deployment.sites
    requests = search.top.requests
    verdicts = [
        [search.level.judge(outcome.numbers[at], requests, site.devices) for outcome in choice.outcomes]
        for at, site in enumerate(sites)
    ]
    at = max(range(len(sites)), key=lambda place: mean(verdict.excess for verdict in verdicts[place]))
    trials = [
        Trial(sites[at].rate_rps, verdict, outcome.numbers[at])
        for verdict, outcome in zip(verdicts[at], choice.outcomes, strict=True)
    ]
    return binding(sites[at], trials, mean_loads(sites[at], trials, requests))
