"""Search the least deployment that keeps a service level: best first, with early stops of hopeless candidates.

Candidates climb rungs: a short run, longer ones, and all replications. The candidate with the least objective by what is known
of it climbs next; one that misses the level on a rung by more than short runs may err is out, and with it every candidate with
as few boxes that is else equal. All candidates meet the same random numbers. The first candidate at the top is the best, since
every other one has a greater objective already.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf, log, sqrt
from statistics import mean, stdev

from simnmt.experiment.fault_setup import NoAnswers
from simnmt.experiment.plan.analytic import saturation_rps
from simnmt.experiment.plan.candidates import Deployment
from simnmt.experiment.plan.objectives import Objective
from simnmt.experiment.plan.trial import MOST_EXCESS, Level, Verdict
from simnmt.results.summary import Numbers, known

IMPOSSIBLE = 1.1
"""Rate over the saturation of all devices together from which a candidate is out without a run."""
CLEARLY = log(1.5)
"""Excess from which a candidate with fewer boxes misses the level too, whatever the rung."""


@dataclass(frozen=True, slots=True)
class Rung:
    """Runs by which a candidate is judged."""

    replications: int
    requests: int
    slack: float
    """Excess up to which a candidate stays: how far shorter runs may err."""


def rungs_of(replications: int, requests: int, least: int = 1) -> tuple[Rung, ...]:
    """Return the rungs up to all replications of all requests; no run has fewer than `least` requests."""
    short = [(8, 1.3), (2, 1.15), (1, 1.1)]
    # Of rungs with the same runs, only the first is climbed.
    lower = {max(requests // parts, least): log(slack) for parts, slack in reversed(short)}
    rungs = [Rung(1, length, slack) for length, slack in sorted(lower.items())]
    if replications == 1:
        rungs = [rung for rung in rungs if rung.requests < requests]
    return (*rungs, Rung(replications, requests, 0.0))


@dataclass(frozen=True, slots=True)
class Outcome:
    """One replication of a candidate."""

    verdict: Verdict
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
    """The probability (`probability_met`)."""
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


@dataclass
class Candidate:
    """A deployment on its way up."""

    deployment: Deployment
    number: int
    rung: int = -1
    """The last rung that it has been judged on; -1 for none."""
    outcomes: list[Outcome] = field(default_factory=list)
    """Of that rung."""
    rejected: str = ""
    """Why it is out; empty if it is not."""
    certainty: Certainty | None = None
    """None until it is judged (`deployment.is_sure`)."""

    @property
    def excess(self) -> float:
        """Mean excess over the replications of the last rung."""
        return mean(outcome.verdict.excess for outcome in self.outcomes) if self.outcomes else inf

    def estimate(self, objective: Objective) -> tuple[float, float]:
        """Return the objective and the latency by what is known; a candidate without a run may have any."""
        exact = objective.value(self.deployment, ()) if objective.is_exact else None
        if not self.outcomes:
            return (-inf if exact is None else exact, -inf)
        return (
            mean(outcome.objective for outcome in self.outcomes) if exact is None else exact,
            mean(outcome.latency_s for outcome in self.outcomes),
        )


class Search:
    """The search among some candidates; `requests_simulated` counts the requests of all runs."""

    def __init__(
        self,
        deployments: Sequence[Deployment],
        level: Level,
        objective: Objective,
        *,
        replications: int,
        requests: int,
        least: int = 1,
        progress: Callable[[float, int], None] | None = None,
    ) -> None:
        self.candidates: list[Candidate] = []
        self.level, self.objective = level, objective
        self.rungs = rungs_of(replications, requests, least)
        self.requests_simulated = 0
        self._progress = progress
        self._runs: dict[tuple[int, int, int], Outcome] = {}
        self._box_rps: dict[str, float] = {}
        """What one box of a device can serve, by the device's settings."""
        for deployment in deployments:
            self.add(deployment)

    def add(self, deployment: Deployment) -> Candidate:
        """Return a further candidate."""
        candidate = Candidate(deployment, len(self.candidates))
        self.candidates.append(candidate)
        return candidate

    @property
    def top(self) -> Rung:
        """The last rung."""
        return self.rungs[-1]

    def outcome(self, candidate: Candidate, replication: int, requests: int) -> Outcome:
        """Return one replication of a candidate, simulated if it has not been."""
        key = (candidate.number, replication, requests)
        if key not in self._runs:
            self._runs[key] = self.simulate(candidate.deployment, replication, requests)
        return self._runs[key]

    def simulate(self, deployment: Deployment, replication: int, requests: int) -> Outcome:
        """Return one replication of a deployment."""
        verdicts, numbers = [], []
        for site in deployment.sites:
            of_site = site.simulate(replication, requests)
            self.requests_simulated += requests
            numbers.append(of_site)
            verdicts.append(self.level.judge(of_site, requests, site.devices))
        return Outcome(
            max(verdicts, key=lambda verdict: verdict.excess),
            self.objective.value(deployment, numbers),
            mean(known(of_site["mean_latency_s"]) for of_site in numbers),
            tuple(numbers),
        )

    def climb(self, candidate: Candidate) -> None:
        """Judge a candidate on its next rung."""
        candidate.rung += 1
        rung = self.rungs[candidate.rung]
        try:
            candidate.outcomes = [self.outcome(candidate, number, rung.requests) for number in range(rung.replications)]
        except NoAnswers:
            candidate.outcomes, candidate.rejected = [], "loses every request"
            return
        if candidate.excess > rung.slack:
            worst = max(candidate.outcomes, key=lambda outcome: outcome.verdict.excess).verdict.worst
            candidate.rejected = f"misses {worst}"
            if candidate.excess > CLEARLY or candidate.rung == len(self.rungs) - 1:
                self._reject_smaller(candidate)

    def _reject_smaller(self, candidate: Candidate) -> None:
        deployment = candidate.deployment
        for other in self.candidates:
            alike = other.deployment.others == deployment.others and not other.rejected
            if alike and all(few <= many for few, many in zip(other.deployment.counts, deployment.counts, strict=True)):
                other.rejected = f"has no more boxes than {deployment.describe()}"

    def reject_impossible(self, candidate: Candidate) -> None:
        """Reject a candidate whose devices together cannot serve the rate."""
        for site in candidate.deployment.sites:
            most_rps = 0.0
            for target, device in zip(site.case.targets, site.devices, strict=True):
                settings = site.plan.scenario.devices[device.name].model_copy(update={"count": None})
                key = f"{site.workload} {device.name} {settings.model_dump_json(warnings=False)}"
                if key not in self._box_rps:
                    self._box_rps[key] = saturation_rps(site.case, target, device) / device.servers
                most_rps += self._box_rps[key] * device.servers
            if site.rate_rps > IMPOSSIBLE * most_rps:
                candidate.rejected = f"all devices together serve {most_rps:.3g} requests/s at most"

    def at_top(self) -> Iterator[Candidate]:
        """Yield the candidates that keep the level on the top rung, the least objective first."""
        waiting = [
            (candidate.estimate(self.objective), candidate.number) for candidate in self.candidates if not candidate.rejected
        ]
        heapq.heapify(waiting)
        while waiting:
            _, number = heapq.heappop(waiting)
            candidate = self.candidates[number]
            if candidate.rejected:
                continue
            if candidate.rung == len(self.rungs) - 1:
                yield candidate
                continue
            self.climb(candidate)
            self._report()
            if not candidate.rejected:
                heapq.heappush(waiting, (candidate.estimate(self.objective), number))

    def _report(self) -> None:
        if self._progress is not None:
            judged = sum(candidate.rung >= 0 or bool(candidate.rejected) for candidate in self.candidates)
            self._progress(judged, len(self.candidates))

    def nearest_miss(self) -> Candidate | None:
        """Return the candidate that was simulated and misses the level by the least; None if none was simulated."""
        missed = [candidate for candidate in self.candidates if candidate.outcomes]
        return min(missed, key=lambda candidate: (candidate.excess, candidate.number), default=None)


def probability_met(excesses: Sequence[float]) -> float:
    """Return the probability that the next run keeps the level, by the excesses of independent runs.

    The lesser of two estimates: that of a normal distribution with unknown mean and deviation, and the share of the runs that
    keep it, one missed run and one kept run added.
    """
    return min(probability_by_count(excesses), _probability_by_distance(excesses))


def probability_by_count(excesses: Sequence[float]) -> float:
    """Return the share of the runs that keep the level, one missed run and one kept run added (Laplace)."""
    return (sum(excess <= 0.0 for excess in excesses) + 1) / (len(excesses) + 2)


def _probability_by_distance(excesses: Sequence[float]) -> float:
    """Return the probability that the next value of a normal distribution is at most 0; 1 if the values have no spread.

    Also 1 if a value is infinite: it has no distance from the limit, and the count of the runs decides.
    """
    count = len(excesses)
    if max(excesses, default=0.0) >= MOST_EXCESS:
        return 1.0
    spread = stdev(excesses) * sqrt(1.0 + 1.0 / count) if count >= 3 else 0.0
    if spread == 0.0:
        return 1.0
    from scipy.special import stdtr  # scipy.stats would add half a second to the start

    return float(stdtr(count - 1, -mean(excesses) / spread))


def is_hopeless(excesses: Sequence[float], certainty: float, most: int) -> bool:
    """Return whether too many runs have missed the level for a certainty, by three standard errors or whatever else follows.

    `most`: runs after which the judgement ends.
    """
    count, missed = len(excesses), sum(excess > 0.0 for excess in excesses)
    expected, error = count * (1.0 - certainty), sqrt(count * certainty * (1.0 - certainty))
    return missed > expected + 3.0 * error + 0.5 or (most - missed + 1) / (most + 2) < certainty


def is_close(excesses: Sequence[float], certainty: float) -> bool:
    """Return whether the probability is within a standard error of a certainty, so that other runs may decide otherwise."""
    error = sqrt(certainty * (1.0 - certainty) / len(excesses))
    # If all runs keep the level, the share of the runs cannot be greater: how far they are from the limit decides.
    all_met = max(excesses) <= 0.0 and probability_by_count(excesses) >= certainty
    probability = _probability_by_distance(excesses) if all_met else probability_met(excesses)
    return abs(probability - certainty) < error
