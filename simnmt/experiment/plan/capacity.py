"""Capacity: the highest arrival rate at which a deployment keeps a service level, with its interval and what is at its limit.

Every replication has a root of its own: the rate at which its worst requirement is exactly at the limit. All rates of a
replication meet the same random numbers (Poisson gaps are scaled, for instance), so the values hardly scatter along the rate
and a bisection finds the root. The capacity is the mean of the roots, and its interval is that of a mean over replications,
widened by the tolerance of the bisection. Replications are added until the interval is as narrow as asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from math import exp, inf, log
from statistics import mean

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.basis import Basis, basis_of, check_faults, finite
from simnmt.experiment.plan.trial import STABLE, Distance, Level, Site
from simnmt.experiment.processes import run_tasks
from simnmt.results.simplicity import is_tie, simplest
from simnmt.results.stability import judged_load
from simnmt.results.statistics import Estimate, over_replications
from simnmt.results.summary import PARTS, Numbers, Row, known
from simnmt.scenario.configuration import ScenarioConfiguration

TOLERANCE = 0.004
"""Relative width of the bracket at which a bisection ends."""
CLIPPED = 0.5
"""Largest logarithm of a ratio to a limit that interpolation believes: waits of an overload depend on how long the run is."""
MOST_TRIALS = 40
"""Most runs of one bisection."""
LEAST_SHARE = 1e-3
"""Rates below this share of the saturation are not tried: requests then meet so seldom that no rate helps."""
PILOT_REQUESTS = 2_000
PILOT_LOAD = 0.3
"""Requests, and share of the saturation of all devices together, of the run that shows how a policy divides the requests."""
COARSE = 8
"""The first bisection has so many times fewer requests."""
START = 0.85
"""Share of the saturation at which the first bisection starts."""
OTHER_STARTS = (0.99, 0.96, 0.93, 0.9, 0.8, 0.6)
"""Further starts if no rate below that keeps the level, tried for requirements with a lower limit: low rates miss a goodput."""
FIRST_STEP = 1.03
"""Factor of the first step from a start to the other end of a bracket; each further step is twice as long."""
MOST_REPLICATIONS = 20
INTERVAL_OVER = "the mean over replications, with the profiles as calibrated"
"""What the interval of a capacity is over."""
NEAR_LIMIT = 0.7
"""Load from which a device's queue is named as what is at its limit."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulated run at one rate."""

    rate_rps: float
    distance: Distance
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Root:
    """The rate at which one replication is at the limit of the level."""

    rate_rps: float
    at: Trial
    """The run at the highest rate that keeps the level, or at the lowest rate if none does."""
    points: tuple[tuple[float, float], ...]
    """Rate and ratio of the worst value to its limit of every run."""


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
    """The capacity of one site; a rate of 0 if no rate meets the level."""

    workload: str
    network: str
    policy: str
    rate_rps: float
    low: float | None
    """Ends of the 95 % interval; None with one replication."""
    high: float | None
    roots: tuple[float, ...]
    """The rate of each replication."""
    requests: int
    """Requests of a run."""
    saturation_rps: float
    """The rate at which the busiest device would have a load of 1, as the policy divides the requests at low load."""
    binding: Binding
    values: dict[str, float]
    """The metric of each requirement at the capacity, in its unit, means over the replications; infinite if too many requests
    are lost."""
    loads: dict[str, float]
    """Load of each device at the capacity."""
    lost_share: float
    """Share of the requests that are lost at the capacity."""
    points: tuple[tuple[float, float], ...]
    """Rate and ratio of the worst value to its limit of every run."""
    requests_simulated: int

    @property
    def is_met(self) -> bool:
        """Whether any rate meets the level."""
        return self.rate_rps > 0.0

    def document(self) -> Row:
        """Return the capacity as JSON."""
        return asdict(self) | {
            "binding": str(self.binding),
            "resource": self.binding.resource,
            "values": {name: finite(value) for name, value in self.values.items()},
        }


@dataclass(frozen=True, slots=True)
class SureRate:
    """The rate that a run keeps with a probability, the error of the calibration included."""

    rate_rps: float | None
    """None if it lies far below the capacity."""
    certainty: float
    """The probability."""
    runs: int
    """Runs by which it was judged, each with profiles and random numbers of its own."""
    runs_met: int
    """Those of them that keep the level."""
    requests_simulated: int


@dataclass(frozen=True, slots=True)
class Capacities:
    """The capacities of a scenario as it stands, by workload, network and policy."""

    name: str
    """Of the scenario."""
    level: str
    rows: tuple[Capacity, ...]
    basis: Basis
    """Kinds of the inputs, and warnings."""
    by_simplicity: tuple[str, ...]
    """The policies, the simplest one first."""
    sure: SureRate | None = None
    """What the best row's deployment keeps with the error of its calibration; None if that error is unknown."""

    @property
    def best(self) -> Capacity:
        """The capacity of the policy that takes most: that of its place, a workload on a network, where it takes least.

        Of policies that are tied, the simplest one's.
        """
        return self._tied[0]

    @property
    def as_good(self) -> list[str]:
        """The policies that take as many requests as the best one, and are not simpler."""
        return [row.policy for row in self._tied[1:]] if self.is_met else []

    @property
    def _tied(self) -> list[Capacity]:
        """The capacities that are tied for the highest, that of the simplest policy first."""
        least: dict[str, Capacity] = {}
        for row in self.rows:
            least[row.policy] = min(least.get(row.policy, row), row, key=lambda capacity: capacity.rate_rps)
        most_rps = max(row.rate_rps for row in least.values())
        tied = [row for row in least.values() if is_tie(row.rate_rps, most_rps)]
        return sorted(tied, key=lambda row: self.by_simplicity.index(row.policy))

    @property
    def is_met(self) -> bool:
        """Whether some policy keeps the level at some rate, in all places."""
        return self.best.is_met

    @property
    def requests_simulated(self) -> int:
        """Requests of all simulated runs."""
        of_sure_rate = 0 if self.sure is None else self.sure.requests_simulated
        return sum(row.requests_simulated for row in self.rows) + of_sure_rate

    def document(self) -> Row:
        """Return the capacities as JSON."""
        rows = [row.document() for row in self.rows]
        best = rows[self.rows.index(self.best)]
        shown = ("rate_rps", "low", "high", "binding", "resource", "policy", "workload", "network")
        return {
            "name": self.name,
            "level": self.level,
            "capacity": {name: best[name] for name in shown}
            | {
                "as_good": self.as_good,
                "interval_over": INTERVAL_OVER,
                "sure": None if self.sure is None else asdict(self.sure),
            },
            "capacities": rows,
            "requests_simulated": self.requests_simulated,
            **asdict(self.basis),
        }


def find_capacities(
    plan: RunPlan,
    level: Level,
    *,
    precision: float,
    jobs: int = 1,
    progress: Callable[[float, int], None] | None = None,
) -> Capacities:
    """Return the capacity of every workload, network and policy of a scenario, but of no oracle, which nobody can deploy.

    Args:
        plan: the scenario with its inputs; every workload has a rate (`trial.check_rate`).
        level: the service level.
        precision: replications are added until intervals reach no further than this share of the capacity.
        jobs: processes.
        progress: called with the number of finished policies, a part of one included, and of all.
    """
    sites = list(deployable_sites(plan))
    rows, runs = [], []
    for number, site in enumerate(sites):

        def report(done: int, total: int, number: int = number) -> None:
            if progress is not None:
                progress(number + done / total, len(sites))

        row, numbers = find_capacity(site, level, precision=precision, jobs=jobs, progress=report)
        rows.append(row)
        if row.is_met:
            runs.append((site.at_rate(row.rate_rps), numbers))
    basis = basis_of(plan, level, min(len(row.roots) for row in rows), runs)
    return Capacities(plan.scenario.name, str(level), tuple(rows), basis, tuple(by_simplicity(plan.scenario)))


def deployable_sites(plan: RunPlan) -> Iterator[Site]:
    """Yield every workload on every network under every policy that a real decider could run."""
    for workload, network in product(plan.cases, plan.networks):
        for policy, settings in plan.scenario.policies.items():
            if not settings.knows_truth:
                yield Site(plan, workload, network, policy)


def by_simplicity(scenario: ScenarioConfiguration) -> list[str]:
    """Return the policies of a scenario, the simplest one first."""
    policies = scenario.policies
    settings = {name: policy.settings_given for name, policy in policies.items()}
    return simplest(list(policies), settings, [name for name, policy in policies.items() if policy.single_device])


def find_capacity(
    site: Site, level: Level, *, precision: float, jobs: int = 1, progress: Callable[[int, int], None] | None = None
) -> tuple[Capacity, Numbers]:
    """Return the highest rate at which the site keeps the level, and the numbers of a run there.

    Args:
        site: the deployment, with the fewest replications; its present rate does not matter.
        level: what is to be kept.
        precision: replications are added until the interval reaches no further than this share of the capacity,
            `MOST_REPLICATIONS` at most.
        jobs: processes.
        progress: called with the number of finished replications and of all.
    """
    requests, replications = site.plan.scenario.requests, site.plan.scenario.replications
    boxes_rps = site.saturation_rps()
    # No higher rate can be served, so that the runs at every rate last as long, and hold as many faults, or more.
    for_faults = check_faults([site.at_rate(sum(boxes_rps[name] for name in site.used))], level, requests)
    few = min(max(PILOT_REQUESTS, level.least_requests(site.plan.scenario), for_faults), requests)
    pilot = site.at_rate(PILOT_LOAD * sum(boxes_rps.values())).simulate(0, few)
    shares = {name: known(pilot[f"{name}_share"]) for name in boxes_rps}
    most_rps = min(boxes_rps[name] / share for name, share in shares.items() if share > 0.0)
    less = max(requests // COARSE, few)
    simulated = few
    has_lower_limit = any(limit.comparison == ">=" for limit in level.limits)
    for start in (START, *OTHER_STARTS) if has_lower_limit else (START,):
        coarse = find_root(site, level, 0, less, start * most_rps, most_rps)
        simulated += less * len(coarse.points)
        if coarse.rate_rps > 0.0:
            break
    roots: list[Root] = []
    wanted = replications if coarse.rate_rps > 0.0 else 0
    find = partial(find_root, site, level, requests=requests, start_rps=coarse.rate_rps, most_rps=most_rps)
    while len(roots) < wanted:
        roots += run_tasks(find, range(len(roots), wanted), jobs, progress)
        rates = [root.rate_rps for root in roots]
        if replications > 1 and min(rates) > 0.0:
            wanted = _replications_for(rates, precision)
    simulated += sum(requests * len(root.points) for root in roots)
    unmet = next((root for root in (*roots, coarse) if root.rate_rps <= 0.0), None)
    trials = [root.at for root in roots] if unmet is None else [unmet.at]
    loads = mean_loads(site, trials, requests)
    # One run is overloaded beyond what chance makes of a load of 1; the mean over the replications must not be above 1.
    overload = max(*loads.values(), 1.0)
    rates = [root.rate_rps / overload for root in roots] if unmet is None else [0.0]
    estimate = _estimate(rates) if unmet is None else Estimate(0.0, None, None)
    capacity = Capacity(
        workload=site.workload,
        network=site.network,
        policy=site.policy,
        rate_rps=estimate.mean,
        low=estimate.low,
        high=estimate.high,
        roots=tuple(rates),
        requests=requests,
        saturation_rps=most_rps,
        binding=binding(site, trials, loads),
        values={
            str(requirement): mean(level.value(requirement, trial.numbers) for trial in trials) for requirement in level.limits
        },
        loads={name: load / overload for name, load in loads.items()},
        lost_share=mean(trial.numbers.get("lost_share") or 0.0 for trial in trials),
        points=tuple(point for root in roots or [coarse] for point in root.points),
        requests_simulated=simulated,
    )
    return capacity, trials[0].numbers


def _estimate(rates: Sequence[float]) -> Estimate:
    """Return the mean of the rates of the replications, with its interval widened by the tolerance of the bisection."""
    estimate = over_replications(rates, positive=True)
    if estimate.low is None or estimate.high is None:
        return estimate
    return Estimate(estimate.mean, estimate.low * (1.0 - TOLERANCE), estimate.high * (1.0 + TOLERANCE))


def _replications_for(rates: Sequence[float], precision: float) -> int:
    """Return how many replications there should be, at most twice as many as there are; the present number if they suffice."""
    count = len(rates)
    estimate = _estimate(rates)
    width = inf
    if estimate.low is not None and estimate.high is not None:
        width = max(estimate.high - estimate.mean, estimate.mean - estimate.low) / estimate.mean
    if width <= precision or count >= MOST_REPLICATIONS:
        return count
    needed = count * (width / precision) ** 2 if width < inf else inf
    return int(min(max(needed, count + 1), 2 * count, MOST_REPLICATIONS))


def find_root(site: Site, level: Level, replication: int, requests: int, start_rps: float, most_rps: float) -> Root:
    """Return the highest rate at which one replication keeps the level; 0 if none does.

    Args:
        site: the deployment.
        level: what is to be kept.
        replication: its random numbers.
        requests: of every run.
        start_rps: where the search starts.
        most_rps: the rate at which a device is saturated, from which the lowest rate follows that is tried.
    """
    trials: list[Trial] = []

    def trial(rate_rps: float) -> Trial:
        numbers = site.at_rate(rate_rps).simulate(replication, requests)
        trials.append(Trial(rate_rps, level.judge(numbers, requests, site.devices), numbers))
        return trials[-1]

    def root(rate_rps: float) -> Root:
        return Root(rate_rps, low, tuple((run.rate_rps, exp(run.distance.excess)) for run in trials))

    low = high = trial(start_rps)
    step = log(FIRST_STEP)
    while high.distance.excess <= 0.0:
        low, high = high, trial(high.rate_rps * exp(step))
        step *= 2.0
    while low.distance.excess > 0.0:
        if low.rate_rps <= most_rps * LEAST_SHARE:
            return root(0.0)
        high, low = low, trial(max(low.rate_rps * exp(-step), most_rps * LEAST_SHARE))
        step *= 2.0
    # Regula falsi on the logarithm of the rate; the middle after two steps that moved the same end.
    moved = [0, 0]
    while high.rate_rps / low.rate_rps - 1.0 > TOLERANCE and len(trials) < MOST_TRIALS:
        share = 0.5 if max(moved) >= 2 else _root_share(low, high)
        middle = trial(low.rate_rps * (high.rate_rps / low.rate_rps) ** share)
        is_low = middle.distance.excess <= 0.0
        moved = [moved[0] + 1, 0] if is_low else [0, moved[1] + 1]
        low, high = (middle, high) if is_low else (low, middle)
    return root(low.rate_rps * (high.rate_rps / low.rate_rps) ** _root_share(low, high))


def _root_share(low: Trial, high: Trial) -> float:
    """Return where between two rates, on a logarithmic scale, the level is reached by linear interpolation."""
    below = min(-low.distance.excess, CLIPPED)
    above = min(high.distance.excess, CLIPPED)
    return min(max(below / (below + above), 0.02), 0.98) if below + above > 0.0 else 0.5


def binding(site: Site, trials: Sequence[Trial], loads: Mapping[str, float]) -> Binding:
    """Return what keeps a deployment from taking more requests, by runs at its capacity. `loads`: `mean_loads` of the runs.

    The requirement is the one that most runs are nearest to. If it is a latency, the resource is what makes requests slow
    beyond what they take at least: the queue of the busiest device if its load is high or waits are the greatest part of the
    latency, else the device or the network with the greatest part.
    """
    worst = [trial.distance.worst for trial in trials]
    requirement = max(dict.fromkeys(worst), key=worst.count)
    busiest = max(loads, key=loads.__getitem__)
    if requirement == STABLE or loads[busiest] > 1.0:
        return Binding(requirement, busiest, "capacity", min(loads[busiest], 1.0))
    parts = {part: mean(known(trial.numbers[f"beyond_p95_{part}_s"]) for trial in trials) for part in PARTS}
    part = max(parts, key=parts.__getitem__)
    if part == "queue" or loads[busiest] >= NEAR_LIMIT:
        return Binding(requirement, busiest, part if part == "execution" else "queue", loads[busiest])
    if part == "transfer":
        return Binding(requirement, site.network, part, None)
    shares = {name: mean(known(trial.numbers[f"{name}_share"]) for trial in trials) for name in loads}
    slowest = max(shares, key=shares.__getitem__)
    return Binding(requirement, slowest, part, loads[slowest])


def mean_loads(site: Site, trials: Sequence[Trial], requests: int) -> dict[str, float]:
    """Return the load of each device, mean over the runs."""
    return {device.name: mean(judged_load(trial.numbers, requests, device) for trial in trials) for device in site.devices}
