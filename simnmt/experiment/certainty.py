"""How surely the answer of a plan holds: how probably a run keeps the level, and what the answer rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from statistics import mean, stdev

from simnmt.experiment.accounts import AVAILABILITY
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.notes import describe_sources, warnings
from simnmt.experiment.trial import MOST_EXCESS, Check, Open, Placement, Trial
from simnmt.profile.blocks import ProfileError
from simnmt.results.metrics import Requirement
from simnmt.results.number_text import digits, duration
from simnmt.results.places import Place
from simnmt.results.summary import known
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import describe_separate_runs

RUNS = 40
"""Fewest runs from which a probability is judged, each with profiles and random numbers of its own."""
REQUESTS_BEYOND = 20
"""Requests beyond a percentile in a run, below which a plan warns: chance moves 20 by 1 / sqrt(20), 22 %; queues, in which
neighbours wait together, move it more."""
SHARE_OF_A_MEAN = 0.05
"""A mean or a rate needs as many requests as the percentile beyond which this share lies."""
LIMITS_IN_A_RUN = 20
"""Length of a run in limits of a latency below which a plan warns: a run begins with empty queues, and at a load of 0.9 the
queue of M/M/1 takes 13 times its 95th percentile to lose the memory of that (for a mean service time s, the relaxation time is
s / (1 - sqrt(0.9))^2 = 380 s, and the percentile 30 s). Source: J. W. Cohen, The Single Server Queue (1982)."""
FEW_REPLICATIONS = 3
"""Replications below which a plan warns: with two, a t-interval is 13 standard errors wide to either side."""


@dataclass(frozen=True, slots=True)
class Certainty:
    """How probably a run of a deployment keeps the level."""

    probability: float
    over: str
    runs: int
    """Runs from which it follows, each with random numbers by which no deployment was chosen."""
    runs_met: int
    """Those of them that keep the level."""


def draw_profiles(placement: Placement, overrides: Iterable[Override], open_plan: Open, certainty: float) -> RunPlan | None:
    """Return the scenario with profiles drawn for each run of `judge_certainty`.

    None if no calibration's error is known, and for a scenario with sites.
    """
    if placement.plan.sites:
        return None
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
    placements: Sequence[Placement], drawn: RunPlan | None, certainty: float, *, to_end: bool = False
) -> Certainty:
    """Return how probably a run keeps the level on all placements, with boxes drawn within the error of their calibration.

    The runs end as soon as the certainty is out of reach, unless they are to go on `to_end`.
    """
    scenario, runs = placements[0].plan.scenario, runs_for(certainty)
    excesses: list[float] = []
    for number in range(runs):
        if drawn is not None:
            boxes = {name: of_workload.targets[number] for name, of_workload in drawn.drawn.items()}
            placements = [replace(placement, boxes=boxes) for placement in placements]
        excesses.append(
            max(placement.trial(scenario.replications + number, scenario.requests).excess for placement in placements)
        )
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


def basis_of(plan: RunPlan, trials: Sequence[tuple[Placement, Trial]], replications: int) -> tuple[str, list[str]]:
    """Return what an answer rests on, in one line, and the warnings about it.

    The line has the kinds of the device profiles and of the round trips, and the devices of which no run has a failure.
    `trials`: the runs on which the answer rests, each with its placement.
    """
    # Inputs of devices on which no policy of the answer executes requests do not matter.
    used = {device for placement, _ in trials for device in placement.used} or set(plan.scenario.devices)
    at_rates = {case.name: case for placement, trial in trials for case in placement.at_rate(trial.rate_rps).cases}
    cases = {
        name: replace(case, targets=tuple(target for target in case.targets if target.device in used))
        for name, case in (dict(plan.cases) | at_rates).items()
    }
    plan = replace(plan, cases=cases)
    rows = [
        Place(*group, placement.network, placement.policy)._asdict() | numbers
        for placement, trial in trials
        for group, numbers in trial.rows.items()
    ]
    doubts = list(_doubts_of_length(plan.scenario, [trial for _, trial in trials]))
    if replications < FEW_REPLICATIONS:
        doubts.append(f"{replications} replications show little of how runs differ by chance (give {FEW_REPLICATIONS} or more)")
    decodings = {target.device: target.decoding for case in cases.values() for target in case.targets}
    doubts += [
        f"{device}: joining a running batch is taken as free (calibrate it with refills, and give refill: measured)"
        for device, decoding in decodings.items()
        if decoding is not None and decoding.free_refills and decoding.batching.threshold
    ]
    unfailed = [
        f"no failure of {device} falls into these runs, "
        "so this is the answer without failures: add one server, or test with one server fewer"
        for device, part in plan.scenario.devices.items()
        if part.failures is not None and rows and all(row.get(device + AVAILABILITY) == 1.0 for row in rows)
    ]
    sources = [describe_sources(plan), describe_separate_runs(plan.scenario), *unfailed]
    return "; ".join(filter(None, sources)), [*doubts, *unfailed, *warnings(plan, rows)]


def _doubts_of_length(scenario: ScenarioConfiguration, trials: Sequence[Trial]) -> Iterator[str]:
    """Yield warnings of runs that are too short: few requests beyond a percentile, or little time beside the limits."""
    counted: dict[Requirement, tuple[int, Check]] = {}
    for trial, check in [(run, check) for run in trials if run.rows for check in run.values]:
        row = trial.rows.get((check.site, check.workload), trial.numbers)
        share = 1.0 if row is trial.numbers else known(row["requests"]) / known(trial.numbers["requests"])
        candidate = max(round((scenario.requests - scenario.warm_up_requests) * share), 1), check
        counted[check.requirement] = min(counted.get(check.requirement, candidate), candidate, key=lambda pair: pair[0])
    for number, check in counted.values():  # in the row with the fewest requests
        metric = check.requirement.metric
        share = metric.quantile or (check.requirement.limit if metric.most is not None else 0.0)
        beyond = 1.0 - share if 0.0 < share < 1.0 else SHARE_OF_A_MEAN
        needed = ceil(REQUESTS_BEYOND / beyond - 1e-6)
        if number < needed:
            yield (
                f"{check} is judged by runs of {number:,} requests, which chance moves by "
                f"{100.0 / sqrt(max(number * beyond, 1.0)):.0f} % "
                f"(give {100 * ceil(needed * scenario.requests / number / 100 - 1e-9):,} requests or more)"
            )
    limits_s = {
        str(check): check.requirement.limit / check.requirement.metric.per_si_unit
        for _, check in counted.values()
        if check.requirement.metric.sample is not None
    }
    slowest = max(limits_s, key=limits_s.__getitem__, default="")
    rate_rps = max((trial.rate_rps for trial in trials), default=0.0)
    needed = ceil(LIMITS_IN_A_RUN * limits_s.get(slowest, 0.0) * rate_rps)
    if scenario.requests < needed:
        run_s = scenario.requests / rate_rps
        yield (
            f"a run of {scenario.requests:,} requests lasts {duration(run_s)}, {digits(run_s / limits_s[slowest])} times the "
            f"limit of {slowest}, and begins with empty queues: latencies may be too low "
            f"(give {100 * ceil(needed / 100):,} requests or more)"
        )
