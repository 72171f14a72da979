"""What the answer of a plan rests on: the kinds of its inputs, doubts about them, and runs that are too short or too few.

Runs that are too short warn; runs that are too short for the faults that they are to show are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, isfinite, log10, sqrt

from simnmt.base.errors import InputError
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.criteria import fewest_counted
from simnmt.experiment.fault_setup import faults_outside
from simnmt.experiment.notes import describe_sources, warnings
from simnmt.experiment.plan.trial import Level, Site
from simnmt.network.outages import DrawnOutages
from simnmt.results.number_text import digits, duration
from simnmt.results.service_level import Requirement
from simnmt.results.summary import Numbers
from simnmt.scenario.source import describe_separate_runs

REQUESTS_BEYOND = 20
"""Requests beyond a percentile in a run, below which a plan warns: chance moves 20 by 1 / sqrt(20), 22 %; queues, in which
neighbours wait together, move it more."""
REQUESTS_OF_A_MEAN = 400
"""Requests of a mean or a rate below which a plan warns: as many as those of which 20 lie beyond the 95th percentile."""
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


@dataclass(frozen=True, slots=True)
class Basis:
    """What an answer rests on."""

    sources: str
    """Kinds of the device profiles and of the round trips; of several workloads with rates, that they are separate runs."""
    warnings: list[str]


def finite(value: float) -> float | None:
    """Return a number for JSON, which has no infinite ones."""
    return value if isfinite(value) else None


Runs = Sequence[tuple[Site, Numbers]]
"""Runs on which an answer rests, each with its site at the rate of the run."""


def basis_of(plan: RunPlan, level: Level, replications: int, runs: Runs = ()) -> Basis:
    """Return what an answer rests on.

    Args:
        plan: the scenario of the answer with its inputs.
        level: the service level.
        replications: of each run by which deployments were compared.
        runs: one run of each place in the answer, at its rate.
    """
    used = frozenset().union(*(site.used for site, _ in runs))
    if used:
        # Inputs of devices on which no policy of the answer executes requests do not matter.
        cases = {
            name: replace(case, targets=tuple(target for target in case.targets if target.device in used))
            for name, case in plan.cases.items()
        }
        plan = replace(plan, cases=cases)
    rows = [{"workload": site.workload, "network": site.network, "policy": site.policy, **numbers} for site, numbers in runs]
    doubts = [*_few_requests(plan, level), *_short_runs(plan, level, runs)]
    if replications < FEW_REPLICATIONS:
        doubts.append(
            f"replications: {replications} show little of how runs differ by chance (give {FEW_REPLICATIONS} or more)"
        )
    sources = "; ".join(filter(None, (describe_sources(plan), describe_separate_runs(plan.scenario))))
    return Basis(sources, [*doubts, *_free_refills(plan), *faults_outside(plan, rows), *warnings(plan, rows)])


def _free_refills(plan: RunPlan) -> Iterator[str]:
    """Yield the devices whose batches are refilled at no cost because the scenario says so."""
    free = {
        target.device: target.profile
        for case in plan.cases.values()
        for target in case.targets
        if target.decoding is not None and target.decoding.free_refills and target.decoding.batching.threshold
    }
    for device, profile in free.items():
        remedy = "give refill: measured" if profile.knows_refills else "calibrate it with refills, and give refill: measured"
        yield f"{device}: joining a running batch is taken as free; a real server takes fewer requests ({remedy})"


def _few_requests(plan: RunPlan, level: Level) -> Iterator[str]:
    counted = fewest_counted(plan)
    for requirement in level.limits:
        beyond = _share_beyond(requirement)
        if beyond is None:
            needed, what = REQUESTS_OF_A_MEAN, f"by {counted:,} requests of a run"
        else:
            needed = ceil(REQUESTS_BEYOND / beyond - 1e-6) if beyond > 0.0 else 0
            chance = 100.0 / sqrt(max(counted * beyond, 1.0))
            what = f"by about {digits(counted * beyond)} of {counted:,} requests of a run, which chance moves by {chance:.0f} %"
        if counted < needed:
            requests = _rounded_up(needed * plan.scenario.requests / counted)
            yield f"{requirement} is judged {what} (give {requests:,} requests or more)"


def _share_beyond(requirement: Requirement) -> float | None:
    """Return the share of the requests that decides a requirement at its limit; None for a mean or a rate."""
    metric = requirement.metric
    if metric.quantile is not None:
        return 1.0 - metric.quantile
    return 1.0 - requirement.limit if metric.most is not None else None


def _short_runs(plan: RunPlan, level: Level, runs: Runs) -> Iterator[str]:
    limits_s = {
        str(limit): limit.limit / limit.metric.per_si_unit if limit.metric.within_s is None else limit.metric.within_s
        for limit in level.limits
        if limit.metric.sample is not None
    }
    if not limits_s or not runs:
        return
    requirement = max(limits_s, key=limits_s.__getitem__)
    limit_s, rate_rps = limits_s[requirement], max(site.rate_rps for site, _ in runs)
    run_s = plan.scenario.requests / rate_rps
    if run_s < LIMITS_IN_A_RUN * limit_s:
        requests = _rounded_up(LIMITS_IN_A_RUN * limit_s * rate_rps)
        yield (
            f"a run of {plan.scenario.requests:,} requests lasts {duration(run_s)}, {digits(run_s / limit_s)} times the limit "
            f"of {requirement}, and begins with empty queues: latencies may be too low (give {requests:,} requests or more)"
        )


def _rounded_up(requests: float) -> int:
    """Return a number of requests with two digits, no less."""
    unit: int = 10 ** max(floor(log10(requests)) - 1, 0)
    return ceil(requests / unit - 1e-9) * unit


def check_faults(sites: Iterable[Site], level: Level, requests: int) -> int:
    """Return how many requests a run needs to hold enough of the random faults that the policies of sites meet.

    Sites are judged at their rates. Raises `InputError` if that is more than the runs have.
    """
    needed, fault = 0, ""
    spared = min((_share_beyond(requirement) or 0.0 for requirement in level.limits), default=0.0)
    for site in sites:
        for name, between_s, share in _random_faults(site):
            of_faults = ceil(FAULTS_IN_A_RUN * between_s * site.rate_rps)
            if share >= RARE * spared and of_faults > needed:
                needed = of_faults
                fault = f"{name} begin every {duration(between_s)}, and a run lasts {duration(requests / site.rate_rps)}"
    if needed > requests:
        raise InputError(f"{fault}: too short to judge {level}", remedy=f"give {_rounded_up(needed):,} requests or more")
    return needed


def _random_faults(site: Site) -> Iterator[tuple[str, float, float]]:
    """Yield the random faults of the devices on which the policy executes requests, and of the links to them.

    Each with the mean seconds from the begin of one to the begin of the next, and the share of the time that one is under way.
    """
    scenario, network = site.plan.scenario, site.plan.networks[site.network]
    devices = list(scenario.devices)
    used = [device for device in devices if device in site.used]
    faults = []
    for device in used:
        failures = scenario.devices[device].failures
        if failures is not None and failures.mttf_s is not None and failures.mttr_s is not None:
            boxes = scenario.count_of(device, site.workload)
            faults.append((f"failures of {device}", boxes, failures.mttf_s, failures.mttr_s))
    for device in devices[1 : max(map(devices.index, used), default=0) + 1]:
        links = (network.link,) if device == devices[-1] else network.hops[device]
        for link in dict.fromkeys(links):
            if isinstance(outages := link.outages, DrawnOutages):
                name = f"outages of the link to {device}"
                faults.append((name, links.count(link), outages.mean_between_s, outages.mean_duration_s))
    for name, parts, mean_up_s, mean_down_s in faults:
        between_s = (mean_up_s + mean_down_s) / parts
        yield name, between_s, mean_down_s / between_s
