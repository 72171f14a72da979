"""What would change the answer of a plan: rate, round-trip times and service times 10 % lower and higher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from simnmt.experiment.plan.search import Candidate, Outcome, Search
from simnmt.experiment.plan.trial import Site
from simnmt.profile.power import SECONDS_PER_HOUR
from simnmt.results.statistics import over_replications
from simnmt.results.summary import Numbers, known

CHANGE = 0.1
"""Share by which each quantity is changed."""
MOST_REPLICATIONS = 3
Changed = Callable[[Site, float], Site]
QUANTITIES: dict[str, Changed] = {
    "rate": lambda site, factor: site.at_rate(factor * site.rate_rps),
    "RTT": Site.with_rtt,
    "service time": Site.with_service,
}
"""Changed quantities by name; all devices' service times change alike, and policies know the profiles as they are."""


@dataclass(frozen=True, slots=True)
class Change:
    """One changed quantity, and what it does to the answer."""

    quantity: str
    percent: float
    excess: float
    """Excess of the choice."""
    worst: str
    """The requirement with that excess."""
    best: Candidate | None
    """The best of the compared deployments that keep the level then, by the mean of the runs; None if all of them miss it."""
    flips: bool
    """Whether the choice misses the level, or another one is distinguishably better."""


def replications_of_change(search: Search) -> int:
    """Return the runs by which a changed quantity is judged."""
    return min(search.top.replications, MOST_REPLICATIONS)


def changes(search: Search, choice: Candidate, rivals: Sequence[Candidate]) -> list[Change]:
    """Return what each change does to the choice and to the deployments that it is compared with."""
    replications = replications_of_change(search)
    result = []
    for quantity, changed in QUANTITIES.items():
        for factor in (1.0 - CHANGE, 1.0 + CHANGE):
            runs = [_outcomes(search, candidate, changed, factor, replications) for candidate in (choice, *rivals)]
            excess = [mean(outcome.verdict.excess for outcome in of_candidate) for of_candidate in runs]
            best = choice if excess[0] <= 0.0 else None
            best_runs = runs[0]
            for number, rival in enumerate(rivals, start=1):
                if excess[number] <= 0.0 and (best is None or _is_better(runs[number], best_runs)):
                    best, best_runs = rival, runs[number]
            worst = max(runs[0], key=lambda outcome: outcome.verdict.excess).verdict.worst
            percent = 100.0 * (factor - 1.0)
            result.append(Change(quantity, round(percent, 6), excess[0], worst, best, flips=best is not choice))
    return result + (_price_changes(choice, rivals) if search.objective.name == "cost" else [])


def _price_changes(choice: Candidate, rivals: Sequence[Candidate]) -> list[Change]:
    """Return what prices of devices do to the answer; no run is needed, since boxes are paid for the whole run."""
    result = []
    worst = max(choice.outcomes, key=lambda outcome: outcome.verdict.excess).verdict.worst
    prices = {name: part.price_per_hour for name, part in choice.deployment.sites[0].plan.scenario.devices.items()}
    for device in [name for name, price in prices.items() if price]:
        for factor in (1.0 - CHANGE, 1.0 + CHANGE):
            best = choice
            for rival in (rival for rival in rivals if not rival.rejected):
                if _is_better(_at_price(rival, device, factor), _at_price(best, device, factor)):
                    best = rival
            percent = round(100.0 * (factor - 1.0), 6)
            result.append(Change(f"price of {device}", percent, choice.excess, worst, best, flips=best is not choice))
    return result


def _at_price(candidate: Candidate, device: str, factor: float) -> list[Outcome]:
    """Return the outcomes of a candidate with another price of one device."""
    sites = candidate.deployment.sites
    changed = []
    for outcome in candidate.outcomes:
        more = [
            (factor - 1.0) * _device_cost(site, device, numbers) for site, numbers in zip(sites, outcome.numbers, strict=True)
        ]
        changed.append(replace(outcome, objective=outcome.objective + mean(more)))
    return changed


def _device_cost(site: Site, device: str, numbers: Numbers) -> float:
    """Return what the boxes of a device cost per request of a run."""
    scenario = site.plan.scenario
    hours = known(numbers["makespan_s"]) / SECONDS_PER_HOUR
    requests = known(numbers["throughput_rps"]) * known(numbers["makespan_s"])
    return (scenario.devices[device].price_per_hour or 0.0) * scenario.count_of(device, site.workload) * hours / requests


def _outcomes(search: Search, candidate: Candidate, changed: Changed, factor: float, replications: int) -> list[Outcome]:
    deployment = candidate.deployment
    deployment = replace(deployment, sites=tuple(changed(site, factor) for site in deployment.sites))
    return [search.simulate(deployment, replication, search.top.requests) for replication in range(replications)]


def _is_better(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> bool:
    """Return whether the objective of some runs is less than that of the same replications of others, beyond their noise."""
    differences = [our.objective - their.objective for our, their in zip(ours, theirs, strict=True)]
    estimate = over_replications(differences)
    return estimate.mean < 0.0 and (estimate.high is None or estimate.high < 0.0)
