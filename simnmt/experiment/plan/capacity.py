"""Capacity: the highest arrival rate at which a deployment keeps a service level, with its interval and what is at its limit.

Every replication has a root of its own: the rate at which its worst requirement is exactly at the limit. All rates of a
replication meet the same random numbers (Poisson gaps are scaled, for instance), so the values hardly scatter along the rate
and a bisection finds the root. The capacity is the mean of the roots, and its interval is that of a mean over replications,
widened by the tolerance of the bisection. Replications are added until the interval is as narrow as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import ceil, exp, log
from statistics import mean

from simnmt.base.errors import InputError
from simnmt.experiment.plan.basis import check_faults, doubts_of, sources_of
from simnmt.experiment.plan.trial import (
    STABLE,
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
from simnmt.experiment.processes import run_tasks
from simnmt.results.statistics import Estimate, over_replications
from simnmt.results.summary import PARTS, Row, known

TOLERANCE = 0.004
"""Relative width of the bracket at which a bisection ends."""
SCAN = 0.85
"""Factor between neighbouring rates of the short runs from which a bisection starts. Small enough to meet rates that are
neither too high for a latency nor too low for a goodput."""
LEAST_SHARE = 1e-3
"""Rates below this share of the saturation are not tried: requests then meet so seldom that no rate helps."""
FIRST_STEP = 0.03
"""Logarithm of the first step from a start to the other end of a bracket; each further step is twice as long."""
MOST_REPLICATIONS = 20
INTERVAL_OVER = "the mean over replications, with the profiles as calibrated"
"""What the interval of a capacity is over."""
NEAR_LIMIT = 0.7
"""Load from which a device's queue is named as what is at its limit."""
SURE = 0.95
"""Probability with which a run keeps the level at the sure rate."""
SURE_STEP = 0.95
"""Factor between neighbouring rates below a capacity that are tried for certainty."""
SURE_STEPS = 13
"""Rates that are tried so: to 0.51 of the capacity."""


@dataclass(frozen=True, slots=True)
class Binding:
    """What keeps a deployment from taking more requests."""

    requirement: str
    """The requirement at its limit, or `stable`."""
    resource: str
    """The device or the network that makes it so."""
    part: str
    """`queue`, `execution`, `transfer`, or `capacity` if the device's load is at 1."""
    load: float | None
    """Load of the device; None for a network."""

    def __str__(self) -> str:
        load = "" if self.load is None else f" (load {self.load:.2f})"
        if self.part == "capacity":
            return f"{self.resource} is saturated{load}"
        why = {"queue": "waits at", "execution": "execution on", "transfer": "transfer over"}[self.part]
        return f"{self.requirement}, because of {why} {self.resource}{load}"


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of one workload on one network under one policy; a rate of 0 if no rate keeps the level."""

    workload: str
    network: str
    policy: str
    rate_rps: float
    low: float | None
    """Ends of the 95 % interval; None with one replication."""
    high: float | None
    roots: tuple[float, ...]
    """The rate of each replication."""
    binding: Binding | None
    """None if no rate keeps the level."""
    values: dict[str, float]
    """The metric of each requirement at the capacity, in its unit, means over the replications; infinite if too many requests
    are lost."""
    loads: dict[str, float]
    """Load of each device at the capacity."""
    lost_share: float
    """Share of the requests that are lost at the capacity."""

    def document(self) -> Row:
        """Return the capacity as JSON."""
        binding = self.binding
        return asdict(self) | {
            "binding": None if binding is None else str(binding),
            "resource": None if binding is None else binding.resource,
            "values": {name: finite(value) for name, value in self.values.items()},
        }


@dataclass(frozen=True, slots=True)
class Capacities:
    """The capacities of a scenario as it stands, by workload, network and policy."""

    name: str
    """Of the scenario."""
    level: str
    rows: tuple[Capacity, ...]
    """Those of fixed policies first."""
    sources: str
    """Kinds of the device profiles and of the round trips."""
    warnings: list[str]
    sure_rate_rps: float | None
    """The highest rate that was tried at which a run of the best row keeps the level with the probability `SURE`, the error of
    the calibration included; None if that error is unknown, or if the rate is far below the capacity."""
    certainty: Certainty | None
    """How this probability was judged at the last rate that was tried; None if the error is unknown."""

    @property
    def best(self) -> Capacity:
        """The capacity of the policy that takes most: that of its place, a workload on a network, where it takes least."""
        least: dict[str, Capacity] = {}
        for row in self.rows:
            least[row.policy] = min(least.get(row.policy, row), row, key=lambda capacity: capacity.rate_rps)
        return max(least.values(), key=lambda capacity: capacity.rate_rps)

    @property
    def is_met(self) -> bool:
        """Whether some policy keeps the level at some rate, in all places."""
        return self.best.rate_rps > 0.0

    def document(self) -> Row:
        """Return the capacities as JSON."""
        rows = [row.document() for row in self.rows]
        best = rows[self.rows.index(self.best)]
        shown = ("rate_rps", "low", "high", "binding", "resource", "policy", "workload", "network")
        certainty = None if self.certainty is None else asdict(self.certainty)
        return {
            "name": self.name,
            "level": self.level,
            "capacity": {name: best[name] for name in shown} | {"interval_over": INTERVAL_OVER},
            "sure": certainty and {"rate_rps": self.sure_rate_rps, **certainty},
            "capacities": rows,
            "sources": self.sources,
            "warnings": self.warnings,
        }


def find_capacities(
    open_plan: Open, level: Level, *, precision: float, jobs: int, progress: Callable[[float, int], None] | None
) -> Capacities:
    """Return the capacity of every workload, network and policy of a scenario, but of no oracle, which nobody can deploy.

    Args:
        open_plan: opens the scenario.
        level: the service level.
        precision: replications are added until intervals reach no further than this share of the capacity.
        jobs: processes.
        progress: called with the number of finished policies, a part of one included, and of all.
    """
    if not 0.0 < precision < 1.0:
        raise InputError(f"a precision of {precision:g}", remedy="give a number above 0 and below 1, such as 0.02")
    plan = open_plan(())
    sites = [site for of_policy in deployable_sites(plan, level) for site in of_policy]
    rows, answers = [], []
    for number, site in enumerate(sites):

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number + done / total, len(sites))

        row, trials = find_capacity(site, precision, jobs, report)
        rows.append(row)
        if row.rate_rps > 0.0:
            answers.append((site, trials[0]))
    scenario = plan.scenario
    found = Capacities(scenario.name, describe_level(level), tuple(rows), sources_of(plan, answers), [], None, None)
    rate_rps, certainty = _sure_rate(sites[rows.index(found.best)], found.best.rate_rps, open_plan)
    doubts = doubts_of(plan, level, answers, min(len(row.roots) for row in rows))
    return Capacities(found.name, found.level, found.rows, found.sources, doubts, rate_rps, certainty)


def find_capacity(
    site: Site, precision: float, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> tuple[Capacity, list[Trial]]:
    """Return the highest rate at which the site keeps the level, and a run of each replication there.

    Args:
        site: the deployment, with the fewest replications; its present rate does not matter.
        precision: replications are added until the interval reaches no further than this share of the capacity,
            `MOST_REPLICATIONS` at most.
        jobs: processes.
        progress: called with the number of finished replications and of all.
    """
    # No higher rate can be served, so that the runs at every rate last as long, and hold as many faults, or more.
    most_rps = sum(
        device.servers * box_saturation_rps(site.case, target, device)
        for target, device in zip(site.case.targets, site.devices, strict=True)
        if device.name in site.used
    )
    requests = site.short_run(check_faults([site.at_rate(most_rps)]))
    scanned: list[Trial] = []
    while not scanned or (scanned[-1].excess > 0.0 and scanned[-1].rate_rps > LEAST_SHARE * most_rps):
        scanned.append(site.at_rate(most_rps * SCAN ** len(scanned)).trial(0, requests))
    if scanned[-1].excess > 0.0:
        return _capacity(site, [], scanned[-1:]), []
    roots: list[float] = []
    trials: list[Trial] = []
    wanted = site.plan.scenario.replications
    find = partial(find_root, site, start_rps=scanned[-1].rate_rps)
    while len(roots) < wanted:
        for root, of_replication in run_tasks(find, range(len(roots), wanted), jobs, progress):
            roots.append(root)
            kept = [trial for trial in of_replication if trial.excess <= 0.0]
            if not kept:
                return _capacity(site, [], of_replication[-1:]), []
            trials.append(max(kept, key=lambda trial: trial.rate_rps))
        wanted = _replications_for(roots, precision)
    return _capacity(site, roots, trials), trials


def _capacity(site: Site, roots: Sequence[float], trials: Sequence[Trial]) -> Capacity:
    """Return the capacity of a site. `trials`: a run of each replication at its root, or at the lowest rate without roots."""
    loads = {name: mean(trial.loads[name] for trial in trials) for name in trials[0].loads}
    # One run is overloaded beyond what chance makes of a load of 1; the mean over the replications must not be above 1.
    overload = max([*loads.values(), 1.0])
    roots = [root / overload for root in roots]
    rate = _estimate(roots) if roots else Estimate(0.0, None, None)
    return Capacity(
        workload=site.workload,
        network=site.network,
        policy=site.policy,
        rate_rps=rate.mean,
        low=rate.low,
        high=rate.high,
        roots=tuple(roots),
        binding=binding_of(site, trials) if roots else None,
        values={str(requirement): mean(trial.values[requirement] for trial in trials) for requirement in site.level},
        loads={name: load / overload for name, load in loads.items()},
        lost_share=mean(trial.lost_share for trial in trials),
    )


def _estimate(roots: Sequence[float]) -> Estimate:
    """Return the mean of the roots of the replications, with its interval widened by the tolerance of the bisection."""
    rate = over_replications(roots, positive=True)
    if rate.low is None or rate.high is None:
        return rate
    return Estimate(rate.mean, rate.low * (1.0 - TOLERANCE), rate.high * (1.0 + TOLERANCE))


def _replications_for(roots: Sequence[float], precision: float) -> int:
    """Return how many replications there should be, at most twice as many as there are; the present number if they suffice."""
    count, rate = len(roots), _estimate(roots)
    if rate.low is None or rate.high is None:
        return count
    width = max(rate.high - rate.mean, rate.mean - rate.low) / rate.mean
    if width <= precision:
        return count
    return max(count, min(ceil(count * (width / precision) ** 2), 2 * count, MOST_REPLICATIONS))


def find_root(site: Site, replication: int, start_rps: float) -> tuple[float, list[Trial]]:
    """Return the highest rate at which one replication keeps the level, and its runs; no run keeps it if no rate does.

    `start_rps`: where the search starts.
    """
    trials: list[Trial] = []

    def is_kept(log_rate: float) -> bool:
        trials.append(site.at_rate(exp(log_rate)).trial(replication, site.plan.scenario.requests))
        return trials[-1].excess <= 0.0

    low = high = log(start_rps)
    step = FIRST_STEP
    if is_kept(low):
        while is_kept(high := low + step):
            low, step = high, 2.0 * step
    else:
        while not is_kept(low := high - step) and low > log(start_rps * LEAST_SHARE):
            high, step = low, 2.0 * step
    while high - low > TOLERANCE:
        middle = (low + high) / 2.0
        low, high = (middle, high) if is_kept(middle) else (low, middle)
    return exp((low + high) / 2.0), trials


def _sure_rate(site: Site, capacity_rps: float, open_plan: Open) -> tuple[float | None, Certainty | None]:
    """Return the rate at which a run keeps the level with the probability `SURE`, tried downwards from the capacity."""
    drawn = draw_profiles((), open_plan, SURE) if capacity_rps > 0.0 else None
    if drawn is None:
        return None, None
    for step in range(1, SURE_STEPS + 1):
        rate_rps = float(f"{capacity_rps * SURE_STEP**step:.3g}")  # as a user would type it
        certainty = judge_certainty([site.at_rate(rate_rps)], drawn, SURE)
        if certainty.probability >= SURE:
            return rate_rps, certainty
    return None, certainty


def binding_of(site: Site, trials: Sequence[Trial]) -> Binding:
    """Return what keeps a deployment from taking more requests, by runs at its capacity.

    The requirement is the one that most runs are nearest to. If it is a latency, the resource is what makes requests slow
    beyond what they take at least: the queue of the busiest device if its load is high or waits are the greatest part of the
    latency, else the device or the network with the greatest part.
    """
    worst = [trial.worst for trial in trials]
    requirement = max(dict.fromkeys(worst), key=worst.count)
    loads = {name: mean(trial.loads[name] for trial in trials) for name in trials[0].loads}
    busiest = max(loads, key=loads.__getitem__)
    if requirement == STABLE or loads[busiest] > 1.0:
        return Binding(requirement, busiest, "capacity", min(loads[busiest], 1.0))
    parts = _means(trials, {part: f"beyond_p95_{part}_s" for part in PARTS})
    part = max(parts, key=parts.__getitem__)
    if part == "queue" or loads[busiest] >= NEAR_LIMIT:
        return Binding(requirement, busiest, part if part == "execution" else "queue", loads[busiest])
    if part == "transfer":
        return Binding(requirement, site.network, part, None)
    shares = _means(trials, {device: f"{device}_share" for device in loads})
    slowest = max(shares, key=shares.__getitem__)
    return Binding(requirement, slowest, part, loads[slowest])


def _means(trials: Sequence[Trial], columns: Mapping[str, str]) -> dict[str, float]:
    return {name: mean(known(trial.numbers[column]) for trial in trials) for name, column in columns.items()}
