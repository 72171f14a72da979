"""What runs of a deployment at one rate show: the values of a level, what is at its limit, and how probably a run keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, sqrt
from statistics import mean, stdev

from simnmt.experiment.cases import RunPlan
from simnmt.experiment.plan.basis import Open
from simnmt.experiment.plan.trial import MOST_EXCESS, STABLE, Site, Trial
from simnmt.profile.blocks import ProfileError
from simnmt.results.metrics import Requirement
from simnmt.results.summary import PARTS, Row, known
from simnmt.scenario.document import Override

NEAR_LIMIT = 0.7
"""Load from which a device's queue is named as what is at its limit."""
RUNS = 40
"""Fewest runs by which a probability is judged, each with profiles and random numbers of its own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the runs of one site at one rate show, means over the replications."""

    values: dict[Requirement, float]
    """Value of each requirement in its unit; infinite if too many requests are lost."""
    loads: dict[str, float]
    """Load of each device."""
    lost_share: float
    """Share of the requests that are lost."""
    excess: float
    """Logarithm of the worst ratio of a value to its limit; negative if the level is kept."""
    binding: str
    """What is nearest to its limit, and why."""
    resource: str
    """The device or the network that makes it so; empty if all requests are lost."""

    @classmethod
    def of(cls, site: Site, trials: Sequence[Trial]) -> Outcome:
        """Return the outcome of one run of each replication."""
        loads = {name: mean(trial.loads[name] for trial in trials) for name in trials[0].loads}
        binding, resource = _binding(site, trials, loads)
        return cls(
            values={requirement: mean(trial.values[requirement] for trial in trials) for requirement in site.level},
            loads=loads,
            lost_share=mean(trial.lost_share for trial in trials),
            excess=mean(trial.excess for trial in trials),
            binding=binding,
            resource=resource,
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

        def finite(values: Mapping[Requirement, float]) -> Row:
            return {str(requirement): value if isfinite(value) else None for requirement, value in values.items()}

        return {
            "values": finite(self.values),
            "headroom": finite(self.headroom),
            "loads": self.loads,
            "lost_share": self.lost_share,
            "binding": self.binding,
            "resource": self.resource,
        }


def _binding(site: Site, trials: Sequence[Trial], loads: Mapping[str, float]) -> tuple[str, str]:
    """Return what keeps a deployment from taking more requests, by its runs, and the device or network that makes it so.

    The requirement is the one that most runs are nearest to. If it is a latency, the resource is what makes requests slow
    beyond what they take at least: the queue of the busiest device if its load is high or waits are the greatest part of the
    latency, else the device or the network with the greatest part.
    """
    if not all(trial.numbers for trial in trials):
        return "all requests are lost", ""

    def means(columns: Mapping[str, str]) -> dict[str, float]:
        return {name: mean(known(trial.numbers[column]) for trial in trials) for name, column in columns.items()}

    worst = [trial.worst for trial in trials]
    requirement = max(dict.fromkeys(worst), key=worst.count)
    busiest = max(loads, key=loads.__getitem__)
    if requirement == STABLE or loads[busiest] > 1.0:
        return f"{busiest} is saturated (load {min(loads[busiest], 1.0):.2f})", busiest
    parts = means({part: f"beyond_p95_{part}_s" for part in PARTS})
    part = max(parts, key=parts.__getitem__)
    if part == "transfer" and loads[busiest] < NEAR_LIMIT:
        return f"{requirement}, because of transfer over {site.network}", site.network
    shares = means({device: f"{device}_share" for device in loads})
    is_busy = part == "queue" or loads[busiest] >= NEAR_LIMIT
    resource = busiest if is_busy else max(shares, key=shares.__getitem__)
    why = "execution on" if part == "execution" else "waits at"
    return f"{requirement}, because of {why} {resource} (load {loads[resource]:.2f})", resource


@dataclass(frozen=True, slots=True)
class Certainty:
    """How probably a run of a deployment keeps the level."""

    probability: float
    over: str
    """What the probability is over."""
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


def judge_certainty(sites: Sequence[Site], drawn: RunPlan | None, certainty: float, *, to_end: bool = False) -> Certainty:
    """Return how probably a run keeps the level on all sites, with boxes drawn within the error of their calibration.

    The runs end as soon as the certainty is out of reach, unless they are to go on `to_end`.
    """
    scenario, runs = sites[0].plan.scenario, runs_for(certainty)
    excesses: list[float] = []
    for number in range(runs):
        if drawn is not None:
            sites = [replace(site, boxes=drawn.drawn[site.workload].targets[number]) for site in sites]
        excesses.append(max(site.trial(scenario.replications + number, scenario.requests).excess for site in sites))
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
