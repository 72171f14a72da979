"""The scenario and the service level of a plan, opened and checked, and what its answer rests on.

That is the kinds of the inputs, doubts about them, and runs that are too short or too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, sqrt
from pathlib import Path

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.criteria import check_assertion, check_criteria, with_metrics
from simnmt.experiment.fault_setup import AVAILABILITY
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.notes import describe_sources, warnings
from simnmt.experiment.plan.trial import STABLE, Level, Site, Trial
from simnmt.results.metrics import Assertion, Requirement
from simnmt.results.number_text import digits, duration
from simnmt.results.summary import Row
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source, describe_separate_runs

Open = Callable[[Iterable[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""

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

FEW_REQUESTS = (
    "{requirement} is judged by runs of {counted:,} requests, which chance moves by {chance:.0f} % "
    "(give {more:,} requests or more)"
)
SHORT_RUN = (
    "a run of {requests:,} requests lasts {run}, {limits} times the limit of {requirement}, and begins with empty queues: "
    "latencies may be too low (give {more:,} requests or more)"
)
FEW_RUNS = "replications: {replications} show little of how runs differ by chance (give {needed} or more)"
FREE_REFILLS = (
    "{device}: joining a running batch is taken as free; a real server takes fewer requests "
    "(calibrate it with refills, and give refill: measured)"
)


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


def basis_of(plan: RunPlan, level: Level, trials: Sequence[tuple[Site, Trial]], replications: int) -> tuple[str, list[str]]:
    """Return the kinds of the device profiles and of the round trips, and the warnings about an answer.

    `trials`: the runs on which the answer rests, each with its site.
    """
    # Inputs of devices on which no policy of the answer executes requests do not matter.
    used = {device for site, _ in trials for device in site.used} or set(plan.scenario.devices)
    cases = {
        name: replace(case, targets=tuple(target for target in case.targets if target.device in used))
        for name, case in plan.cases.items()
    }
    plan = replace(plan, cases=cases)
    sources = "; ".join(filter(None, (describe_sources(plan), describe_separate_runs(plan.scenario))))
    place = ("workload", "network", "policy")
    rows = [{name: getattr(site, name) for name in place} | trial.numbers for site, trial in trials if trial.numbers]
    doubts = [*_few_requests(plan, level), *_short_runs(plan, level, [trial for _, trial in trials])]
    if replications < FEW_REPLICATIONS:
        doubts.append(FEW_RUNS.format(replications=replications, needed=FEW_REPLICATIONS))
    return sources, [*doubts, *_free_refills(plan), *_no_failures(plan, rows), *warnings(plan, rows)]


def _free_refills(plan: RunPlan) -> Iterator[str]:
    targets = {target.device: target for case in plan.cases.values() for target in case.targets}
    for device, target in targets.items():
        if target.decoding is not None and target.decoding.free_refills and target.decoding.batching.threshold:
            yield FREE_REFILLS.format(device=device)


def _no_failures(plan: RunPlan, rows: Sequence[Row]) -> Iterator[str]:
    for device, part in plan.scenario.devices.items():
        if part.failures is not None and rows and all(row.get(device + AVAILABILITY) == 1.0 for row in rows):
            yield f"no failure of {device} falls into these runs"


def _few_requests(plan: RunPlan, level: Level) -> Iterator[str]:
    counted = plan.scenario.requests - plan.scenario.warm_up_requests
    for requirement in level:
        metric = requirement.metric
        share = metric.quantile if metric.quantile is not None else requirement.limit if metric.most is not None else 0.0
        beyond = 1.0 - share if 0.0 < share < 1.0 else SHARE_OF_A_MEAN
        needed = ceil(REQUESTS_BEYOND / beyond - 1e-6)
        if counted < needed:
            more = 100 * ceil(needed * plan.scenario.requests / counted / 100 - 1e-9)
            chance = 100.0 / sqrt(max(counted * beyond, 1.0))
            yield FEW_REQUESTS.format(requirement=requirement, counted=counted, chance=chance, more=more)


def _short_runs(plan: RunPlan, level: Level, trials: Sequence[Trial]) -> Iterator[str]:
    limits_s = {
        requirement: requirement.limit / requirement.metric.per_si_unit
        for requirement in level
        if requirement.metric.sample is not None
    }
    if not limits_s or not trials:
        return
    requirement = max(limits_s, key=limits_s.__getitem__)
    limit_s, rate_rps = limits_s[requirement], max(trial.rate_rps for trial in trials)
    requests = plan.scenario.requests
    run_s = requests / rate_rps
    if run_s < LIMITS_IN_A_RUN * limit_s:
        more = 100 * ceil(LIMITS_IN_A_RUN * limit_s * rate_rps / 100)
        limits = digits(run_s / limit_s)
        yield SHORT_RUN.format(requests=requests, run=duration(run_s), limits=limits, requirement=requirement, more=more)
