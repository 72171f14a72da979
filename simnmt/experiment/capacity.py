"""Capacity: the highest arrival rate at which a deployment keeps a service level, with its interval and what is at its limit.

Every replication has a root of its own: the rate at which its worst requirement is exactly at the limit. All rates of a
replication meet the same random numbers (Poisson gaps are scaled, for instance), so the values hardly scatter along the rate
and a bisection finds the root. The capacity is the mean of the roots, and its interval is that of a mean over replications,
widened by the tolerance of the bisection. Replications are added until the interval is as narrow as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil, exp, log

from simnmt.base.errors import InputError
from simnmt.experiment.certainty import FEW_REPLICATIONS, Certainty, basis_of, draw_profiles, judge_certainty
from simnmt.experiment.processes import answers_of
from simnmt.experiment.trial import (
    Open,
    Outcome,
    Placement,
    Trial,
    deployable_placements,
    describe_level,
)
from simnmt.results.places import ALL
from simnmt.results.statistics import Estimate, over_replications
from simnmt.results.summary import Row

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
SURE = 0.95
"""Probability with which a run keeps the level at the sure rate."""
SURE_STEP = 0.95
"""Factor between neighbouring rates below a capacity that are tried for certainty."""
SURE_STEPS = 13
"""Rates that are tried so: to 0.51 of the capacity."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity at a place; a rate of 0 if no rate keeps the level."""

    site: str
    workload: str
    network: str
    policy: str
    rate_rps: float
    """Mean rate of all its requests."""
    factor: float | None
    """By which the rates of the workloads that share the devices are multiplied; None for a workload by itself."""
    low: float | None
    """Ends of the 95 % interval; None with one replication."""
    high: float | None
    roots: tuple[float, ...]
    outcome: Outcome
    """What the runs at the capacity show, or those at the lowest rate if no rate keeps the level."""

    def document(self) -> Row:
        """Return the capacity as JSON."""
        shown = ("policy", "site", "workload", "network", "rate_rps", "factor", "low", "high", "roots")
        return {name: getattr(self, name) for name in shown} | self.outcome.document()


@dataclass(frozen=True, slots=True)
class Capacities:
    """The capacities of a scenario as it stands, by workload, network and policy."""

    name: str
    level: str
    rows: tuple[Capacity, ...]
    sources: str
    """Kinds of the device profiles and of the round trips, and devices whose failures are in no run."""
    warnings: list[str]
    sure_rate_rps: float | None
    """The highest rate that was tried at which a run of the best row keeps the level with the probability `SURE`, the error of
    the calibration included; None if that error is unknown, or if the rate is far below the capacity."""
    certainty: Certainty | None
    """How this probability was judged at the last rate that was tried; None if the error is unknown."""

    @property
    def best(self) -> Capacity:
        """The capacity of the policy that takes most: that of its place, a workload on a network, where it takes least."""
        return _best(self.rows)

    @property
    def is_met(self) -> bool:
        """Whether some policy keeps the level at some rate, in all places."""
        return self.best.rate_rps > 0.0

    def document(self) -> Row:
        """Return the capacities as JSON."""
        return {
            "name": self.name,
            "level": self.level,
            "capacity": self.best.document(),
            "sure": self.certainty and {"rate_rps": self.sure_rate_rps, **asdict(self.certainty)},
            "capacities": [row.document() for row in self.rows],
            "sources": self.sources,
            "warnings": self.warnings,
        }


def _best(rows: Sequence[Capacity]) -> Capacity:
    least: dict[str, Capacity] = {}
    for row in rows:
        least[row.policy] = min(least.get(row.policy, row), row, key=lambda capacity: capacity.rate_rps)
    return max(least.values(), key=lambda capacity: capacity.rate_rps)


def find_capacities(
    open_plan: Open, *, precision: float, jobs: int, progress: Callable[[float, int], None] | None
) -> Capacities:
    """Return the capacity of every workload, network and policy of a scenario, but of no oracle (`simnmt.plan`)."""
    if not 0.0 < precision < 1.0:
        raise InputError(f"a precision of {precision:g}", remedy="give a number above 0 and below 1, such as 0.02")
    plan = open_plan(())
    placements = [placement for of_policy in deployable_placements(plan) for placement in of_policy]
    rows, answers = [], []
    for number, placement in enumerate(placements):

        def report(done: float, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number + done / total, len(placements))

        row, trial = find_capacity(placement, precision, jobs, report)
        rows.append(row)
        if row.rate_rps > 0.0:
            answers.append((placement, trial))
    best = _best(rows)
    sure_rate_rps, certainty = _sure_rate(placements[rows.index(best)], best.rate_rps, open_plan)
    fewest = min((len(row.roots) for row in rows if row.roots), default=FEW_REPLICATIONS)
    sources, doubts = basis_of(plan, answers, fewest)
    return Capacities(plan.scenario.name, describe_level(plan.scenario), tuple(rows), sources, doubts, sure_rate_rps, certainty)


def find_capacity(
    placement: Placement, precision: float, jobs: int = 1, progress: Callable[[float, int], None] | None = None
) -> tuple[Capacity, Trial]:
    """Return the highest rate at which the placement keeps the level, and a run there; the present rate does not matter.

    Replications are added, up to `MOST_REPLICATIONS`, until the interval reaches no further than `precision` of the capacity.
    """
    box_rps = placement.box_saturation_rps
    most_rps = sum(device.servers * box_rps[device.name] for device in placement.devices if device.name in placement.used)
    rate_rps = most_rps
    while (scanned := placement.at_rate(rate_rps).trial(0, placement.short_run)).excess > 0.0:
        if rate_rps <= LEAST_SHARE * most_rps:
            return _capacity(placement, [], [scanned]), scanned
        rate_rps *= SCAN
    roots: list[float] = []
    trials: list[Trial] = []
    wanted = placement.plan.scenario.replications
    find = partial(find_root, placement, start_rps=rate_rps)
    while len(roots) < wanted:
        for root, of_replication in answers_of(find, range(len(roots), wanted), jobs, progress):
            roots.append(root)
            kept = [trial for trial in of_replication if trial.excess <= 0.0]
            if not kept:
                return _capacity(placement, [], of_replication[-1:]), of_replication[-1]
            trials.append(max(kept, key=lambda trial: trial.rate_rps))
        capacity = _capacity(placement, roots, trials)
        if capacity.low is not None and capacity.high is not None:
            width = max(capacity.high / capacity.rate_rps - 1.0, 1.0 - capacity.low / capacity.rate_rps)
            more = ceil(wanted * (width / precision) ** 2) if width > precision else 0
            wanted = max(wanted, min(more, 2 * wanted, MOST_REPLICATIONS))
    return capacity, trials[0]


def _capacity(placement: Placement, roots: Sequence[float], trials: Sequence[Trial]) -> Capacity:
    """Return the capacity of a placement. `trials`: a run of each replication at its root, without roots at the lowest rate."""
    outcome = Outcome.of(placement, trials)
    # One run is overloaded beyond what chance makes of a load of 1; the mean over the replications must not be above 1.
    overload = max(*outcome.loads.values(), 1.0)
    outcome = replace(outcome, loads={name: load / overload for name, load in outcome.loads.items()})
    roots = tuple(root / overload for root in roots)
    rate = over_replications(roots, positive=True) if roots else Estimate(0.0, None, None)
    low = None if rate.low is None else rate.low * (1.0 - TOLERANCE)
    high = None if rate.high is None else rate.high * (1.0 + TOLERANCE)
    factor = rate.mean / placement.rate_rps if placement.plan.is_mixed else None
    place = ALL, placement.workload, placement.network, placement.policy
    return Capacity(*place, rate.mean, factor, low, high, roots, outcome)


def find_root(placement: Placement, replication: int, start_rps: float) -> tuple[float, list[Trial]]:
    """Return the highest rate at which one replication keeps the level, and its runs; no run keeps it if no rate does.

    `start_rps`: where the search starts.
    """
    trials: list[Trial] = []

    def is_kept(log_rate: float) -> bool:
        trials.append(placement.at_rate(exp(log_rate)).trial(replication, placement.plan.scenario.requests))
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


def _sure_rate(placement: Placement, capacity_rps: float, open_plan: Open) -> tuple[float | None, Certainty | None]:
    drawn = draw_profiles(placement, (), open_plan, SURE) if capacity_rps > 0.0 else None
    if drawn is None:
        return None, None
    for step in range(1, SURE_STEPS + 1):
        rate_rps = float(f"{capacity_rps * SURE_STEP**step:.3g}")  # as a user would type it
        certainty = judge_certainty([placement.at_rate(rate_rps)], drawn, SURE)
        if certainty.probability >= SURE:
            return rate_rps, certainty
    return None, certainty
