"""What the answer of a plan rests on: the kinds of its inputs, doubts about them, and runs that are too short or too few.

Runs that are too short warn; runs that are too short for the faults that they are to show are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, log10, sqrt

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.criteria import fewest_counted
from simnmt.experiment.notes import describe_sources, warnings
from simnmt.experiment.plan.trial import Level, Site, Trial, describe_level
from simnmt.network.outages import DrawnOutages
from simnmt.results.number_text import digits, duration
from simnmt.results.service_level import Requirement
from simnmt.scenario.source import describe_separate_runs

REQUESTS_BEYOND = 20
"""Requests beyond a percentile in a run, below which a plan warns: chance moves 20 by 1 / sqrt(20), 22 %; queues, in which
neighbours wait together, move it more."""
SHARE_OF_A_MEAN = 0.05
"""A mean or a rate needs as many requests as the percentile beyond which this share lies."""
LIMITS_IN_A_RUN = 20
"""Length of a run in limits of a latency below which a plan warns: a run begins with empty queues, and at a load of 0.9 the
queue of M/M/1 takes 13 times its 95th percentile to lose the memory of that (for a mean service time s, the relaxation time is
s / (1 - sqrt(0.9))^2 = 380 s, and the percentile 30 s). Source: J. W. Cohen, The Single Server Queue (1982)."""
FAULTS_IN_A_RUN = 20
"""Faults of a kind that a run must hold to be judged: the time that 20 of them take varies by sqrt(2 / 20), 32 %."""
RARE = 0.1
"""Faults need fall into no run if they are under way for less than this part of the share of requests that may be late."""
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
FREE_REFILLS = "{device}: joining a running batch is taken as free; a real server takes fewer requests ({remedy})"


def sources_of(plan: RunPlan, trials: Sequence[tuple[Site, Trial]]) -> str:
    """Return the kinds of the device profiles and of the round trips; of several workloads, that they are separate runs."""
    return "; ".join(filter(None, (describe_sources(_in_use(plan, trials)), describe_separate_runs(plan.scenario))))


def doubts_of(plan: RunPlan, level: Level, trials: Sequence[tuple[Site, Trial]], replications: int) -> list[str]:
    """Return the warnings about an answer.

    Args:
        plan: the scenario of the answer with its inputs.
        level: the service level.
        trials: the runs on which the answer rests, each with its site.
        replications: of each run by which deployments were compared.
    """
    plan = _in_use(plan, trials)
    place = ("workload", "network", "policy")
    rows = [{name: getattr(site, name) for name in place} | trial.numbers for site, trial in trials if trial.numbers]
    doubts = [*_few_requests(plan, level), *_short_runs(plan, level, [trial for _, trial in trials])]
    if replications < FEW_REPLICATIONS:
        doubts.append(FEW_RUNS.format(replications=replications, needed=FEW_REPLICATIONS))
    return [*doubts, *_free_refills(plan), *warnings(plan, rows)]


def _in_use(plan: RunPlan, trials: Sequence[tuple[Site, Trial]]) -> RunPlan:
    """Return the plan without the inputs of devices on which no policy of the answer executes requests."""
    used = {device for site, _ in trials for device in site.used} or set(plan.scenario.devices)
    cases = {
        name: replace(case, targets=tuple(target for target in case.targets if target.device in used))
        for name, case in plan.cases.items()
    }
    return replace(plan, cases=cases)


def _free_refills(plan: RunPlan) -> Iterator[str]:
    for target in {target.device: target for case in plan.cases.values() for target in case.targets}.values():
        if target.decoding is not None and target.decoding.free_refills and target.decoding.batching.threshold:
            knows_refills = target.profile.knows_refills
            remedy = "give refill: measured" if knows_refills else "calibrate it with refills, and give refill: measured"
            yield FREE_REFILLS.format(device=target.device, remedy=remedy)


def _few_requests(plan: RunPlan, level: Level) -> Iterator[str]:
    counted = fewest_counted(plan)
    for requirement in level:
        beyond = _share_beyond(requirement) or SHARE_OF_A_MEAN
        needed = ceil(REQUESTS_BEYOND / beyond - 1e-6)
        if counted < needed:
            more = _rounded_up(needed * plan.scenario.requests / counted)
            chance = 100.0 / sqrt(max(counted * beyond, 1.0))
            yield FEW_REQUESTS.format(requirement=requirement, counted=counted, chance=chance, more=more)


def _share_beyond(requirement: Requirement) -> float | None:
    """Return the share of the requests that decides a requirement at its limit; None for a mean or a rate."""
    metric = requirement.metric
    if metric.quantile is not None:
        return 1.0 - metric.quantile
    return 1.0 - requirement.limit if metric.most is not None else None


def _short_runs(plan: RunPlan, level: Level, trials: Sequence[Trial]) -> Iterator[str]:
    limits_s = {
        requirement: requirement.metric.within_s or requirement.limit / requirement.metric.per_si_unit
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
        more = _rounded_up(LIMITS_IN_A_RUN * limit_s * rate_rps)
        limits = digits(run_s / limit_s)
        yield SHORT_RUN.format(requests=requests, run=duration(run_s), limits=limits, requirement=requirement, more=more)


def _rounded_up(requests: float) -> int:
    """Return a number of requests with two digits, no less."""
    unit: int = 10 ** max(floor(log10(requests)) - 1, 0)
    return ceil(requests / unit - 1e-9) * unit


def check_faults(sites: Iterable[Site]) -> int:
    """Return how many requests a run needs to hold enough of the random faults that the policies of sites meet.

    Sites are judged at their rates. Raises `InputError` if that is more than the runs have.
    """
    most = 0
    for site in sites:
        requests = site.plan.scenario.requests
        spared = min((_share_beyond(requirement) or 0.0 for requirement in site.level), default=0.0)
        for name, parts, mean_up_s, mean_down_s in _random_faults(site):
            between_s = (mean_up_s + mean_down_s) / parts
            needed = ceil(FAULTS_IN_A_RUN * between_s * site.rate_rps)
            if mean_down_s / between_s < RARE * spared:
                continue
            if needed > requests:
                run_s = requests / site.rate_rps
                what = f"{name} begin every {duration(between_s)}, and a run lasts {duration(run_s)}: too short to judge "
                raise InputError(what + describe_level(site.level), remedy=f"give {_rounded_up(needed):,} requests or more")
            most = max(most, needed)
    return most


def _random_faults(site: Site) -> Iterator[tuple[str, int, float, float]]:
    """Yield the random faults in the path of a policy's requests: a name, the number of parts, and mean times up and down."""
    scenario, network = site.plan.scenario, site.plan.networks[site.network]
    devices = list(scenario.devices)
    used = [device for device in devices if device in site.used]
    for device in used:
        failures = scenario.devices[device].failures
        if failures is not None and failures.mttf_s is not None and failures.mttr_s is not None:
            yield f"failures of {device}", scenario.count_of(device, site.workload), failures.mttf_s, failures.mttr_s
    for device in devices[1 : devices.index(used[-1]) + 1]:
        links = (network.link,) if device == devices[-1] else network.hops[device]
        for link in dict.fromkeys(links):
            if isinstance(outages := link.outages, DrawnOutages):
                name = f"outages of the link to {device}"
                yield name, links.count(link), outages.mean_between_s, outages.mean_duration_s
