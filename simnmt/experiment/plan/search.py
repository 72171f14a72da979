"""Search the cheapest candidate that keeps a service level with the certainty asked for, best first.

 Candidates pass stages: a short run, longer ones, and all replications. The candidate with the least
objective so far takes its next stage first. It is out if it misses the level by more than the error of a run of that length,
and with it every candidate that has no more boxes and is equal otherwise. All candidates meet the same random numbers. The
first candidate to pass the last stage is the best: every other one has a greater objective already. Then runs with random
numbers and drawn profiles of their own give the probability that it keeps the level.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import log, sqrt
from statistics import mean, stdev

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.fault_setup import NoAnswers
from simnmt.experiment.plan.candidates import Candidate, Certainty, Objective, Open, Outcome
from simnmt.experiment.plan.capacity import by_simplicity
from simnmt.experiment.plan.trial import MOST_EXCESS, Level, Site, box_saturation_rps
from simnmt.profile.blocks import ProfileError
from simnmt.results.simplicity import is_tie
from simnmt.results.summary import known
from simnmt.scenario.document import Override

IMPOSSIBLE = 1.1
"""Rate over the saturation of all devices together from which a candidate is out without a run."""
SHORT_STAGES = ((8, 1.3), (2, 1.15), (1, 1.1))
"""Stages of one run: how many times fewer requests it has, and the greatest ratio to a limit with which a candidate stays."""
CLEARLY = log(1.5)
"""Excess from which a candidate with fewer boxes misses the level too, whatever the stage."""
DRAWS = 40
"""Runs by which the certainty of a plan is judged, each with profiles and random numbers of its own."""
MOST_DRAWS = 4
"""The certainty is judged by so many times as many runs at most, if it is close to the one asked for."""
CERTAINTY = 0.95
"""Probability from which a plan counts as sure."""
MOST_UNSURE = 12
"""Candidates whose certainty is judged before the surest of them is taken."""


class Search:
    """The search among some candidates; `requests_simulated` counts the requests of all runs."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        level: Level,
        objective: Objective,
        *,
        replications: int,
        requests: int,
        least: int = 1,
        progress: Callable[[float, int], None] | None = None,
    ) -> None:
        """Prepare a search by runs of `replications` and `requests`; shorter runs have no fewer than `least` requests."""
        self.candidates, self.level, self.objective = candidates, level, objective
        self.replications, self.requests = replications, requests
        self.requests_simulated = 0
        self._progress = progress
        self._runs: dict[tuple[int, int, int], Outcome] = {}
        # Of stages with the same runs, only the first counts.
        slacks = {max(requests // parts, least): log(ratio) for parts, ratio in reversed(SHORT_STAGES)}
        short = [(1, length, slack) for length, slack in sorted(slacks.items()) if replications > 1 or length < requests]
        self.stages = [*short, (replications, requests, 0.0)]
        """Replications, requests, and the excess with which a candidate stays."""

    def outcome(self, candidate: Candidate, replication: int, requests: int) -> Outcome:
        """Return one replication of a candidate, simulated if it has not been."""
        key = (candidate.number, replication, requests)
        if key not in self._runs:
            self._runs[key] = self.simulate(candidate, candidate.sites, replication, requests)
        return self._runs[key]

    def simulate(self, candidate: Candidate, sites: Sequence[Site], replication: int, requests: int) -> Outcome:
        """Return one replication of a candidate on its sites, or on these with drawn profiles."""
        numbers = []
        for site in sites:
            numbers.append(site.simulate(replication, requests))
            self.requests_simulated += requests
        distances = [self.level.judge(of_site, requests, site.devices) for of_site, site in zip(numbers, sites, strict=True)]
        return Outcome(
            max(distances, key=lambda distance: distance.excess),
            self.objective.value(candidate, numbers),
            mean(known(of_site["mean_latency_s"]) for of_site in numbers),
            tuple(numbers),
        )

    def reject_impossible(self) -> None:
        """Reject the candidates whose devices together cannot serve the rate."""
        box_rps: dict[str, float] = {}
        for candidate in self.candidates:
            for site in candidate.sites:
                most_rps = 0.0
                for target, device in zip(site.case.targets, site.devices, strict=True):
                    settings = site.plan.scenario.devices[device.name].model_copy(update={"count": None})
                    key = f"{site.workload} {device.name} {settings.model_dump_json(warnings=False)}"
                    if key not in box_rps:
                        box_rps[key] = box_saturation_rps(site.case, target, device)
                    most_rps += box_rps[key] * device.servers
                if site.rate_rps > IMPOSSIBLE * most_rps:
                    candidate.rejected = f"all devices together serve {most_rps:.3g} requests/s at most"

    def at_top(self) -> Iterator[Candidate]:
        """Yield the candidates that pass the last stage, the least objective first."""
        waiting = [(one.estimate(self.objective), one.number) for one in self.candidates if not one.rejected]
        heapq.heapify(waiting)
        while waiting:
            _, number = heapq.heappop(waiting)
            candidate = self.candidates[number]
            if not candidate.rejected and candidate.stage == len(self.stages) - 1:
                yield candidate
            elif not candidate.rejected:
                self.judge(candidate)
                if self._progress is not None:
                    judged = sum(one.stage >= 0 or bool(one.rejected) for one in self.candidates)
                    self._progress(judged, len(self.candidates))
                heapq.heappush(waiting, (candidate.estimate(self.objective), number))

    def judge(self, candidate: Candidate) -> None:
        """Judge a candidate by its next stage."""
        candidate.stage += 1
        replications, requests, slack = self.stages[candidate.stage]
        try:
            candidate.outcomes = [self.outcome(candidate, number, requests) for number in range(replications)]
        except NoAnswers:
            candidate.outcomes, candidate.rejected = [], "loses every request"
            return
        if candidate.excess > slack:
            worst = max(candidate.outcomes, key=lambda outcome: outcome.distance.excess).distance.worst
            candidate.rejected = f"misses {worst}"
            if candidate.excess > CLEARLY or candidate.stage == len(self.stages) - 1:
                for other in self.candidates:
                    is_alike = other.others == candidate.others and not other.rejected
                    if is_alike and all(few <= many for few, many in zip(other.counts, candidate.counts, strict=True)):
                        other.rejected = f"has no more boxes than {candidate.describe()}"


def is_sure(
    search: Search, candidate: Candidate, open_plan: Open, certainty: float, draws: int, most_draws: int = MOST_DRAWS
) -> bool:
    """Return whether a run of a candidate keeps the level with a certainty; its `Certainty` is noted in the candidate.

    Every run has random numbers that no candidate was chosen by, and boxes drawn within the error of their calibration. The
    runs end as soon as too many have missed the level. While the probability is close to the certainty, more runs are added,
    up to `most_draws` times `draws`.
    """
    most = most_draws * draws
    drawn: RunPlan | None = None
    excesses: list[float] = []
    hopeless = close = False
    while not excesses or (close and not hopeless and len(excesses) < most):
        drawn = draw_profiles(candidate.overrides, open_plan, len(excesses) + draws)
        for number in range(len(excesses), len(excesses) + draws):
            sites = candidate.sites if drawn is None else with_boxes(candidate.sites, drawn, number)
            try:
                outcome = search.simulate(candidate, sites, search.replications + number, search.requests)
                excesses.append(outcome.distance.excess)
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


def with_boxes(sites: Sequence[Site], drawn: RunPlan, number: int) -> tuple[Site, ...]:
    """Return sites with the drawn profiles of one number."""
    return tuple(replace(site, boxes=drawn.drawn[site.workload].targets[number]) for site in sites)


def draw_profiles(overrides: Sequence[Override], open_plan: Open, draws: int) -> RunPlan | None:
    """Return the scenario with some overrides and with drawn profiles; None if the error of no calibration is known."""
    try:
        return open_plan([*overrides, Override.of("profile_uncertainty", {"profiles": draws}, "simnmt plan")])
    except ProfileError:
        return None


def probability_met(excesses: Sequence[float]) -> float:
    """Return the probability that the next run keeps the level, by the excesses of independent runs.

    The lesser of two estimates: that of a normal distribution with unknown mean and deviation, and the share of the runs that
    keep it, one missed run and one kept run added.
    """
    return min(_probability_by_count(excesses), _probability_by_distance(excesses))


def _probability_by_count(excesses: Sequence[float]) -> float:
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
    all_met = max(excesses) <= 0.0 and _probability_by_count(excesses) >= certainty
    probability = _probability_by_distance(excesses) if all_met else probability_met(excesses)
    return abs(probability - certainty) < error


def choose(
    search: Search, open_plan: Open, certainty: float, draws: int
) -> tuple[Candidate | None, list[Candidate], Candidate | None]:
    """Return the least candidate that keeps the level with a certainty, those that are as good, and the next of the others.

    The choice is the surest candidate if none is sure, and None if all miss the level. Of candidates that are tied it has the
    simplest policy.
    """
    choice: Candidate | None = None
    runner_up: Candidate | None = None
    tied: dict[str, Candidate] = {}
    """Candidates by their text: those that differ in devices that their policy does not use are the same."""
    unsure: list[Candidate] = []
    for candidate in search.at_top():
        estimate = candidate.estimate(search.objective)
        if choice is None:
            if is_sure(search, candidate, open_plan, certainty, draws):
                choice = candidate
                tied = {candidate.describe(): candidate}
            else:
                unsure.append(candidate)
                if len(unsure) >= MOST_UNSURE:
                    break
        elif all(map(is_tie, estimate, choice.estimate(search.objective))):
            if candidate.describe() not in tied and is_sure(search, candidate, open_plan, certainty, draws):
                tied[candidate.describe()] = candidate
        else:
            runner_up = candidate
            # A short run made it look worse. It is the plan, if it is as sure.
            is_less = estimate < choice.estimate(search.objective)
            if is_less and is_sure(search, candidate, open_plan, certainty, draws):
                choice, runner_up, tied = candidate, choice, {candidate.describe(): candidate}
            break
    if choice is None and unsure:
        for candidate in unsure:
            if known_certainty(candidate).runs < draws:
                # A sample that ended with the run that was one too many would understate the probability.
                is_sure(search, candidate, open_plan, 0.0, draws)
        choice = max(unsure, key=lambda candidate: known_certainty(candidate).p_slo)
        unsure.remove(choice)
    if runner_up is None:
        runner_up = next(iter(unsure), None)
    if tied:
        simplest = by_simplicity(search.candidates[0].sites[0].plan.scenario)
        choice = min(tied.values(), key=lambda candidate: (simplest.index(candidate.policy), candidate.number))
    return choice, [candidate for candidate in tied.values() if candidate is not choice], runner_up


def known_certainty(candidate: Candidate) -> Certainty:
    """Return the certainty of a candidate that was judged."""
    assert candidate.certainty is not None
    return candidate.certainty
