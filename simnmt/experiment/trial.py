"""Trials: simulated runs of a deployment at one rate, judged by a service level, and what several of them show together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf, isfinite, log, sqrt
from pathlib import Path
from statistics import mean, stdev

import numpy as np

from simnmt.base.errors import InputError
from simnmt.experiment.accounts import AVAILABILITY, NoAnswers
from simnmt.experiment.cases import Case, RunPlan, Unit
from simnmt.experiment.inputs import InputCache, check_assertion, check_criteria, read_inputs, with_metrics
from simnmt.experiment.notes import describe_sources, warnings
from simnmt.experiment.targets import Target
from simnmt.experiment.units import SATURATION_SAMPLE, devices, run_unit, saturated_s
from simnmt.profile.blocks import ProfileError
from simnmt.results.metrics import Assertion, Requirement
from simnmt.results.number_text import digits, duration
from simnmt.results.places import ALL, Place
from simnmt.results.stability import judged_load
from simnmt.results.summary import PARTS, Device, Numbers, Row, known
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source, describe_separate_runs

STABLE = "stable"
"""Name of the requirement that every level contains: no device gets more work than it can do."""
BUSY = log(0.9)
"""Excess load from which stability may be the requirement that is nearest to its limit."""
MOST_EXCESS = log(1e6)
"""Bound of an excess, so that means and spreads of excesses are numbers."""
SHORT = 8
"""Factor by which short runs have fewer requests."""
NEAR_LIMIT = 0.7
"""Load from which a device's queue is named as what is at its limit."""
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

Level = tuple[Requirement, ...]
"""Requirements that all must hold, beside stability, which every level demands."""
Open = Callable[[Iterable[Override]], RunPlan]
"""Returns the scenario with further overrides, checked, with its inputs."""


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
    """Return the function that opens a scenario with further overrides.

    It raises `InputError` for a metric of the level or an objective that a run will not know, and for arrivals without a rate.
    """
    asserted = [Assertion(requirement) for requirement in level]
    cache = InputCache()

    def open_plan(overrides: Iterable[Override]) -> RunPlan:
        scenario, document = source.with_overrides(overrides, allow_code=allow_code)
        plan = with_metrics(read_inputs(scenario, Path.cwd(), document, cache), asserted)
        if plan.sites:
            raise document.error(("sites",), "deployments are planned for scenarios without sites", key=True)
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


@dataclass(frozen=True, slots=True)
class Trial:
    """One simulated run at one rate, judged by a level."""

    rate_rps: float
    numbers: Numbers
    """Empty if the run lost every request."""
    values: dict[Requirement, float]
    loads: dict[str, float]
    excess: float
    """Logarithm of the worst ratio of a value to its limit: 0 at the limit, negative if every requirement is met."""
    worst: str
    """The requirement with that ratio, or `stable`."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One workload on one network under one policy: what a level is judged on."""

    plan: RunPlan
    level: Level
    workload: str
    network: str
    policy: str
    boxes: tuple[Target, ...] | None = None
    """The targets as they truly are, if they differ from those that the policy knows."""

    @property
    def place(self) -> Place:
        """The place of its results."""
        return Place(ALL, self.workload, self.network, self.policy)

    @property
    def case(self) -> Case:
        """The inputs of the workload."""
        return self.plan.cases[self.workload]

    @property
    def devices(self) -> list[Device]:
        """The devices in the order of the targets."""
        return devices(self.plan.scenario, self.workload)

    @property
    def used(self) -> frozenset[str]:
        """Names of the devices on which the policy may execute requests."""
        return frozenset(self.plan.scenario.policies[self.policy].devices_of(list(self.plan.scenario.devices)))

    @property
    def box_saturation_rps(self) -> dict[str, float]:
        """How many requests of the workload per second one box of each device can serve in the long run.

        Of a device that batches, by its step costs with full batches.
        """
        rows = np.random.default_rng(0).permutation(SATURATION_SAMPLE)  # not sorted: batches hold sentences of all lengths
        src_len, tgt_len = self.case.table.at_quantiles((rows + 0.5) / SATURATION_SAMPLE)
        return {
            device.name: device.workers / target.mean_alone_s(self.case.table)
            if target.decoding is None
            else len(src_len) / saturated_s(target.decoding, src_len, tgt_len)
            for target, device in zip(self.case.targets, self.devices, strict=True)
        }

    def at_rate(self, rate_rps: float) -> Placement:
        """Return the placement with another mean rate of the workload, and the same random numbers."""
        case = replace(self.case, arrivals=self.case.arrivals.at_rate(rate_rps))
        return replace(self, plan=replace(self.plan, cases={**self.plan.cases, self.workload: case}))

    @property
    def short_run(self) -> int:
        """Requests of a short run: an eighth, or all if a percentile needs many."""
        requests = self.plan.scenario.requests
        needs_many = any(requirement.metric.least_requests > 1 for requirement in self.level)
        return requests if needs_many else -(-requests // SHORT)

    def trial(self, replication: int, requests: int) -> Trial:
        """Return one run of so many requests; a warm-up of a number of requests is the same share of them."""
        scenario, rate_rps = self.plan.scenario, known(self.case.arrivals.mean_rate_rps)
        changed = {
            "requests": requests,
            "warm_up_requests": scenario.warm_up_requests * requests // scenario.requests,
            "policies": {self.policy: scenario.policies[self.policy]},
            "gap_analysis": False,
            "foresee_misroutes": False,
        }
        unit = Unit(scenario.model_copy(update=changed), self.case, self.network, self.plan.networks[self.network], replication)
        if self.boxes is not None:
            unit = replace(unit, case=replace(self.case, targets=self.boxes), calibrated=self.case)
        try:
            numbers = run_unit(unit).numbers[self.place]
        except NoAnswers:
            values = {requirement: inf if requirement.comparison == "<=" else 0.0 for requirement in self.level}
            loads = {device.name: 0.0 for device in self.devices}
            return Trial(rate_rps, {}, values, loads, MOST_EXCESS, describe_level(self.level))
        # A load is no distance from a limit as a latency is, so it is named only where it is near 1.
        judged = {device.name: judged_load(numbers, requests, device) for device in self.devices}
        overload = max(load.excess for load in judged.values())
        excesses = {STABLE: overload} if overload >= BUSY or not self.level else {}
        values = {requirement: _value(requirement, numbers) for requirement in self.level}
        for requirement, value in values.items():
            ratio = requirement.ratio(value)
            excesses[str(requirement)] = min(max(log(ratio) if ratio > 0.0 else -inf, -MOST_EXCESS), MOST_EXCESS)
        worst = max(excesses, key=excesses.__getitem__)
        return Trial(rate_rps, numbers, values, {name: load.shown for name, load in judged.items()}, excesses[worst], worst)


def _value(requirement: Requirement, numbers: Numbers) -> float:
    """Return the value by which a run is judged, in the metric's unit. Raises `InputError` if the run lacks it.

    A lost request is infinitely late, so the value is infinite if too many are lost (`Metric.of_answered`), and if a run with
    lost requests is too short for the percentile that then counts.
    """
    judged = requirement.metric.of_answered(numbers.get("lost_share") or 0.0)
    value = None if judged is None else numbers.get(judged.column)
    if judged is None or (value is None and judged is not requirement.metric):
        return inf
    if value is None:
        what = f"{requirement}: a run of this scenario has no {judged.name}"
        raise InputError(what, remedy="give more requests, or another metric")
    return judged.per_si_unit * value


def deployable_placements(plan: RunPlan, level: Level) -> Iterator[tuple[Placement, ...]]:
    """Yield the placements of each policy that a real decider could run, fixed policies first: every workload and network."""
    policies = {name: policy for name, policy in plan.scenario.policies.items() if not policy.knows_truth}
    if not policies:
        raise InputError("no policy of the scenario can be deployed", remedy="add one that is no oracle")
    for policy in sorted(policies, key=lambda name: not policies[name].single_device):
        yield tuple(
            Placement(plan, level, workload, network, policy) for workload, network in product(plan.cases, plan.networks)
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runs of one placement at one rate show, means over the replications."""

    values: dict[Requirement, float]
    """Value of each requirement in its unit; infinite if too many requests are lost."""
    loads: dict[str, float]
    lost_share: float
    excess: float
    """Logarithm of the worst ratio of a value to its limit; negative if the level is kept."""
    binding: str
    resource: str
    """The device or the network that makes it so; empty if all requests are lost."""

    @classmethod
    def of(cls, placement: Placement, trials: Sequence[Trial]) -> Outcome:
        """Return the outcome of one run of each replication."""
        loads = {name: mean(trial.loads[name] for trial in trials) for name in trials[0].loads}
        return cls(
            {requirement: mean(trial.values[requirement] for trial in trials) for requirement in placement.level},
            loads,
            mean(trial.numbers.get("lost_share") or 0.0 if trial.numbers else 1.0 for trial in trials),
            mean(trial.excess for trial in trials),
            *_binding(placement, trials, loads),
        )

    @property
    def headroom(self) -> dict[Requirement, float]:
        """Distance of each value from its limit, relative to the limit; negative if it misses it."""
        return {
            requirement: (1.0 - value / requirement.limit) * (1.0 if requirement.comparison == "<=" else -1.0)
            for requirement, value in self.values.items()
        }

    def document(self) -> Row:
        """Return the outcome as JSON, which has no infinite numbers."""
        row = {name: getattr(self, name) for name in ("loads", "lost_share", "binding", "resource")}
        for name, values in {"values": self.values, "headroom": self.headroom}.items():
            row[name] = {str(requirement): value if isfinite(value) else None for requirement, value in values.items()}
        return row


def _binding(placement: Placement, trials: Sequence[Trial], loads: Mapping[str, float]) -> tuple[str, str]:
    """Return what keeps a deployment from taking more requests, by its runs, and the device or network that makes it so.

    The requirement is the one that most runs are nearest to. If it is a latency, the resource is what makes requests slow
    beyond what they take at least: the queue of the busiest device if its load is high or waits are the greatest part of the
    latency, else the device or the network with the greatest part.
    """
    if not all(trial.numbers for trial in trials):
        return "all requests are lost", ""

    def greatest(columns: Mapping[str, str]) -> str:
        means = {name: mean(known(trial.numbers[column]) for trial in trials) for name, column in columns.items()}
        return max(means, key=means.__getitem__)

    worst = [trial.worst for trial in trials]
    requirement = max(dict.fromkeys(worst), key=worst.count)
    busiest = max(loads, key=loads.__getitem__)
    if requirement == STABLE or loads[busiest] > 1.0:
        return f"{busiest} is saturated (load {min(loads[busiest], 1.0):.2f})", busiest
    part = greatest({part: f"beyond_p95_{part}_s" for part in PARTS})
    if part == "transfer" and loads[busiest] < NEAR_LIMIT:
        return f"{requirement}, because of transfer over {placement.network}", placement.network
    is_busy = part == "queue" or loads[busiest] >= NEAR_LIMIT
    resource = busiest if is_busy else greatest({device: f"{device}_share" for device in loads})
    why = "execution on" if part == "execution" else "waits at"
    return f"{requirement}, because of {why} {resource} (load {loads[resource]:.2f})", resource


@dataclass(frozen=True, slots=True)
class Certainty:
    """How probably a run of a deployment keeps the level."""

    probability: float
    over: str
    runs: int
    """Runs from which it follows, each with random numbers by which no deployment was chosen."""
    runs_met: int
    """Those of them that keep the level."""


def draw_profiles(overrides: Iterable[Override], open_plan: Open, certainty: float) -> RunPlan | None:
    """Return the scenario with profiles drawn for each run of `judge_certainty`; None if no calibration's error is known."""
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
            placements = [replace(placement, boxes=drawn.drawn[placement.workload].targets[number]) for placement in placements]
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


def basis_of(
    plan: RunPlan, level: Level, trials: Sequence[tuple[Placement, Trial]], replications: int
) -> tuple[str, list[str]]:
    """Return what an answer rests on, in one line, and the warnings about it.

    The line has the kinds of the device profiles and of the round trips, and the devices of which no run has a failure.
    `trials`: the runs on which the answer rests, each with its placement.
    """
    # Inputs of devices on which no policy of the answer executes requests do not matter.
    used = {device for placement, _ in trials for device in placement.used} or set(plan.scenario.devices)
    cases = {
        name: replace(case, targets=tuple(target for target in case.targets if target.device in used))
        for name, case in plan.cases.items()
    }
    plan = replace(plan, cases=cases)
    # Every trial is of one workload, also where a run would let several share the devices.
    separate = describe_separate_runs(plan.scenario.model_copy(update={"share_devices": False}))
    sources = "; ".join(filter(None, (describe_sources(plan), separate)))
    rows = [placement.place._asdict() | trial.numbers for placement, trial in trials if trial.numbers]
    greatest_rps = max((trial.rate_rps for _, trial in trials), default=0.0)
    doubts = [*_doubts_of_length(plan, level, greatest_rps)]
    if replications < FEW_REPLICATIONS:
        doubts.append(f"{replications} replications show little of how runs differ by chance (give {FEW_REPLICATIONS} or more)")
    decodings = {target.device: target.decoding for case in cases.values() for target in case.targets}
    free = [device for device, part in decodings.items() if part is not None and part.free_refills and part.batching.threshold]
    doubts += [
        f"{device}: joining a running batch is taken as free (calibrate it with refills, and give refill: measured)"
        for device in free
    ]
    failing = [device for device, part in plan.scenario.devices.items() if part.failures is not None and rows]
    never = [device for device in failing if all(row.get(device + AVAILABILITY) == 1.0 for row in rows)]
    remedy = "so this is the answer without failures: add one server, or test with one server fewer"
    unfailed = [f"no failure of {device} falls into these runs, {remedy}" for device in never]
    return "; ".join([sources, *unfailed]), [*doubts, *unfailed, *warnings(plan, rows)]


def _doubts_of_length(plan: RunPlan, level: Level, rate_rps: float) -> Iterator[str]:
    """Yield warnings of runs that are too short: few requests beyond a percentile, or little time beside the limits."""
    requests = plan.scenario.requests
    counted = requests - plan.scenario.warm_up_requests
    limit_s, slowest = 0.0, ""
    for requirement in level:
        metric = requirement.metric
        share = metric.quantile if metric.quantile is not None else requirement.limit if metric.most is not None else 0.0
        beyond = 1.0 - share if 0.0 < share < 1.0 else SHARE_OF_A_MEAN
        needed = ceil(REQUESTS_BEYOND / beyond - 1e-6)
        if counted < needed:
            yield (
                f"{requirement} is judged by runs of {counted:,} requests, which chance moves by "
                f"{100.0 / sqrt(max(counted * beyond, 1.0)):.0f} % "
                f"(give {100 * ceil(needed * requests / counted / 100 - 1e-9):,} requests or more)"
            )
        if metric.sample is not None and requirement.limit / metric.per_si_unit > limit_s:
            limit_s, slowest = requirement.limit / metric.per_si_unit, str(requirement)
    if requests < LIMITS_IN_A_RUN * limit_s * rate_rps:
        run_s = requests / rate_rps
        yield (
            f"a run of {requests:,} requests lasts {duration(run_s)}, {digits(run_s / limit_s)} times the limit of {slowest}, "
            "and begins with empty queues: latencies may be too low "
            f"(give {100 * ceil(LIMITS_IN_A_RUN * limit_s * rate_rps / 100):,} requests or more)"
        )
