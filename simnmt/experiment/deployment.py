"""The least deployment for a rate: the cheapest combination of the varied keys that keeps a service level with a certainty.

All candidates meet the same random numbers. Each one that keeps the level in a short run, or misses it by little, is run with
all requests and replications. Those that still keep it are ordered by what is to be least. The first of them that keeps the
level with the certainty asked for is the choice: that is judged by runs with random numbers and drawn profiles of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby, islice, product
from math import ceil, inf, isfinite, log, prod
from statistics import mean
from typing import Any, Literal, get_args

from simnmt.base.errors import InputError, shorten
from simnmt.base.suggestions import format_list
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.certainty import Certainty, basis_of, draw_profiles, judge_certainty
from simnmt.experiment.trial import (
    Open,
    Outcome,
    Placement,
    Trial,
    deployable_placements,
    describe_level,
)
from simnmt.results.metrics import objective_metric
from simnmt.results.places import BEHIND
from simnmt.results.statistics import Estimate, change_percent
from simnmt.results.summary import Row, known
from simnmt.scenario.configuration import END_NODE, ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.varied_keys import VariedKey, check_disjoint
from simnmt.workload.arrivals.process import DAY_S, MONTH_S

VARIABLE = ("devices", "networks", "policies", "late_answers", "fit")
"""Parts of a scenario and of its sites that describe a deployment: no other key is varied."""
MOST_CANDIDATES = 2_000
"""Most combinations of the varied keys."""
SLACK = log(1.3)
"""Excess of a short run with which a candidate is run with all requests."""
MOST_UNSURE = 12
"""Candidates whose certainty is judged before the surest of them is taken."""

Minimised = Literal["servers", "cost", "energy", "latency"]
"""What is to be least."""
SPENT = {"cost": "cost_per_request", "energy": "energy_j"}
"""Objective of a scenario by what is to be least."""


@dataclass(frozen=True, slots=True)
class SiteBoxes:
    """The boxes that a policy may use at the sites of one name, or behind them."""

    sites: int
    boxes: dict[str, int]
    """At each of the sites, by device."""
    price_per_hour: float | None
    """Price of the boxes at all sites of the name; None if the scenario states no price."""

    def __str__(self) -> str:
        boxes = " and ".join(f"{count} {device}" for device, count in self.boxes.items()) or "none"
        return f"{self.sites} x {boxes}" if self.sites > 1 else boxes


@dataclass(eq=False, slots=True)
class Candidate:
    """The scenario with one value of each varied key, under one policy, at the rate of the plan, and its runs."""

    choice: dict[str, Any]
    """Varied key to value, and `policy` if the scenario has several."""
    overrides: tuple[Override, ...]
    placements: tuple[Placement, ...]
    boxes: dict[str, int]
    """Boxes of the devices that are varied and that the policy may use: those of other devices are there in any case."""
    trials: list[list[Trial]] = field(default_factory=list)
    """By placement: a short run, or all replications if that was kept; empty if it was not simulated."""
    certainty: Certainty | None = None

    @property
    def policy(self) -> str:
        """The policy."""
        return self.placements[0].policy

    @property
    def servers(self) -> int:
        """Number of the boxes."""
        return sum(self.boxes.values())

    @property
    def boxes_by_site(self) -> dict[str, SiteBoxes]:
        """The boxes that the policy may use at the sites of each name, then those behind; empty without sites."""
        placement, by_site = self.placements[0], dict[str, SiteBoxes]()
        plan, used = placement.plan, placement.used
        first, *behind = plan.scenario.devices

        def boxes_of(scenario: ScenarioConfiguration, sites: int, devices: Iterable[str], workloads: list[str]) -> SiteBoxes:
            boxes = {name: sum(scenario.count_of(name, workload) for workload in workloads) for name in devices}
            price = sum(count * (scenario.devices[name].price_per_hour or 0.0) for name, count in boxes.items())
            return SiteBoxes(sites, boxes, sites * price if plan.scenario.has_prices else None)

        for site in plan.sites:
            may_use = site.has_device and first in placement.used_at(site.scenario)
            # The workloads of a site share its gateways, but each has its own end nodes.
            workloads = list(site.cases)[: None if first == END_NODE else 1]
            copies = len(site.networks[placement.network])
            by_site[site.name] = boxes_of(site.scenario, copies, [first] if may_use else [], workloads)
        if plan.sites:
            devices = [device for device in behind if device in used]
            by_site[BEHIND] = boxes_of(plan.scenario, 1, devices, list(plan.cases)[:1])
        return by_site

    @property
    def probability(self) -> float:
        """Probability that a run keeps the level; 0 if that was not judged."""
        return 0.0 if self.certainty is None else self.certainty.probability

    @property
    def outcome(self) -> Outcome:
        """The outcome of its runs at the worst placement."""
        return max(map(Outcome.of, self.placements, self.trials), key=lambda outcome: outcome.excess)

    def replicated(self, column: str) -> list[float]:
        """Return a column of each replication, mean over the placements; infinite if all requests are lost."""
        by_replication = zip(*self.trials, strict=True)
        return [mean(known(trial.numbers.get(column, inf)) for trial in trials) for trials in by_replication]

    def __str__(self) -> str:
        """Return the choice on one line, such as `2 cloud servers, policy=cnmt`."""
        boxes = {device if device.endswith("server") else f"{device} server": count for device, count in self.boxes.items()}
        servers = [f"{count} {name}{'s' * (count > 1)}" for name, count in boxes.items()]
        devices = self.placements[0].plan.scenario.devices
        counts = {f"{part}devices.{device}.count" for device in devices for part in ("", "sites.*.")}
        others = [f"{key}={format_choice(value)}" for key, value in self.choice.items() if key not in counts]
        return ", ".join([*servers, *others]) or "no varied server"


def format_choice(value: Any) -> str:
    """Return a value as YAML on one line, as a user writes it after `--set KEY=`."""
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The least deployment that keeps a service level at a rate."""

    name: str
    level: str
    rate_rps: float
    """Rate of each workload, or of all together if they share the devices."""
    minimised: Minimised
    objective: str
    """The objective of a scenario by which deployments are compared, unless that is the number of servers."""
    certainty: float
    """Probability from which the plan counts as sure."""
    candidates: list[Candidate]
    choice: Candidate | None
    runner_up: Candidate | None
    nearest_miss: Candidate | None
    """The candidate that misses the level by least, if all miss it."""
    scenario: ScenarioConfiguration
    """The scenario of the choice, at the rate; that of the nearest miss without a choice."""
    sources: str
    warnings: list[str]
    characters_per_request: float | None = None
    """Mean characters of a request; None if unknown."""

    @property
    def characters(self) -> str:
        """The rate in characters a day, in brackets; empty if unknown."""
        if self.characters_per_request is None:
            return ""
        return f" ({float(f'{self.rate_rps * DAY_S * self.characters_per_request:.4g}'):,.0f} characters/day)"

    @property
    def is_met(self) -> bool:
        """Whether some candidate keeps the level."""
        return self.choice is not None

    @property
    def is_sure(self) -> bool:
        """Whether the choice keeps the level with the probability asked for."""
        return self.choice is not None and self.choice.probability >= self.certainty

    def value(self, candidate: Candidate) -> float:
        """Return the number of a candidate that is to be least, in its SI unit."""
        if self.minimised == "servers":
            return candidate.servers
        return mean(candidate.replicated(objective_metric(self.objective).column))

    @property
    def latency_change(self) -> Estimate | None:
        """Change of the mean latency from the choice to the runner-up in percent, paired by replication."""
        if self.choice is None or self.runner_up is None:
            return None
        return change_percent(self.runner_up.replicated("mean_latency_s"), self.choice.replicated("mean_latency_s"))

    def _describe(self, candidate: Candidate | None) -> Row | None:
        if candidate is None:
            return None
        value, by_site = self.value(candidate), candidate.boxes_by_site
        row = {name: getattr(candidate, name) for name in ("choice", "policy", "servers", "boxes")}
        if by_site:
            row["boxes_by_site"] = {
                name: asdict(part) | {"count": part.sites * sum(part.boxes.values())} for name, part in by_site.items()
            }
        row["objective"] = value if isfinite(value) else None
        row["certainty"] = None if candidate.certainty is None else asdict(candidate.certainty)
        return row | candidate.outcome.document()

    def document(self) -> Row:
        """Return the plan as JSON."""
        return {name: getattr(self, name) for name in ("name", "level", "rate_rps", "sources", "warnings")} | {
            "minimise": self.minimised,
            "candidates": len(self.candidates),
            "choice": None if self.choice is None else self.choice.choice,
            "p_slo": None if self.choice is None else self.choice.probability,
            "sure": self.is_sure,
            "chosen": self._describe(self.choice),
            "runner_up": self._describe(self.runner_up),
            "nearest_miss": self._describe(self.nearest_miss),
            "latency_change_percent": None if self.latency_change is None else asdict(self.latency_change),
        }


def find_deployment(
    keys: Sequence[VariedKey],
    open_plan: Open,
    *,
    rate_rps: float,
    minimised: Minimised,
    certainty: float,
    progress: Callable[[float, int], None] | None,
) -> DeploymentPlan:
    """Return the least deployment that keeps the level at a rate with a certainty (`simnmt.plan`).

    The choice is the surest candidate if none is sure, and None if all miss the level. `keys`: the varied ones; empty: the
    number of boxes of the last device.
    """
    if minimised not in get_args(Minimised):
        raise InputError(f"minimise: unknown {minimised!r}", remedy=f"give {format_list(get_args(Minimised), 'or')}")
    if not 0.0 < rate_rps < 1e9:
        raise InputError(f"a rate of {rate_rps:g} requests/s", remedy="give a number above 0 and below 1e9")
    if not 0.0 < certainty <= 0.999:
        raise InputError(f"a certainty of {certainty:g}", remedy="give a number above 0 and at most 0.999, such as 0.95")
    plan = open_plan(())
    given = plan.scenario.objective
    objective = SPENT.get(minimised, "mean" if objective_metric(given).label else given)

    def open_candidate(overrides: Iterable[Override]) -> RunPlan:
        extra = [Override.of("objective", objective, f"minimise {minimised}")] if minimised in SPENT else []
        return open_plan([*overrides, *extra])

    def judge(candidate: Candidate, *, to_end: bool) -> Certainty:
        drawn = draw_profiles(candidate.placements[0], candidate.overrides, open_candidate, certainty)
        return judge_certainty(candidate.placements, drawn, certainty, to_end=to_end)

    candidates = make_candidates(keys or [default_key(plan, rate_rps)], open_candidate, rate_rps)
    columns = ["mean_latency_s"] if minimised == "servers" else [objective_metric(objective).column, "mean_latency_s"]
    kept = _kept(candidates, columns, minimised == "servers", progress)
    judged: list[Candidate] = []
    for candidate in islice(kept, MOST_UNSURE):
        candidate.certainty = judge(candidate, to_end=False)
        judged.append(candidate)
        if candidate.probability >= certainty:
            break
    choice = max(judged, key=lambda candidate: candidate.probability, default=None)
    if choice is not None and choice.probability < certainty:
        # The runs that ended when the certainty was out of reach would understate the probability.
        choice.certainty = judge(choice, to_end=True)
    shown = choice or min(candidates, key=lambda candidate: candidate.outcome.excess)
    plan = shown.placements[0].plan
    by_placement = zip(shown.placements, shown.trials, strict=True)
    trials = [(placement, trial) for placement, of_placement in by_placement for trial in of_placement]
    sources, doubts = basis_of(plan, trials, plan.scenario.replications)
    return DeploymentPlan(
        name=plan.scenario.name,
        level=describe_level(plan.scenario),
        rate_rps=rate_rps,
        minimised=minimised,
        objective=objective,
        certainty=certainty,
        candidates=candidates,
        choice=choice,
        runner_up=next((candidate for candidate in chain(kept, judged) if candidate is not choice), None),
        nearest_miss=shown if choice is None else None,
        scenario=_at_rates(shown.placements, plan.scenario),
        sources=sources,
        warnings=doubts,
        characters_per_request=characters_per_request(plan),
    )


RATE_UNITS = {"": 1.0, "requests/s": 1.0, "requests/month": 1.0 / MONTH_S, "characters/day": 1.0 / DAY_S}


def rate_in_requests(text: str, plan: RunPlan) -> float:
    """Return requests per second of a rate such as `20`, `2e6requests/month` or `5e6characters/day`.

    Raises `InputError` for another text, and for a rate in characters if those of a request are unknown.
    """
    match = re.fullmatch(r" *(\d{1,15}(?:\.\d{1,9})?(?:[eE][+-]?\d{1,2})?) *(\S*) *", text, re.ASCII)
    if match is None or match[2] not in RATE_UNITS:
        remedy = "give requests/s, 2e6requests/month, 5e6characters/day, or peak:LOG:TIME such as peak:gateway.jsonl:1m"
        raise InputError(f"--rate {shorten(text)} is no rate", remedy=remedy)
    rate = float(match[1]) * RATE_UNITS[match[2]]
    if match[2] != "characters/day" or not rate:
        return rate  # 0 is refused as such
    if (characters := characters_per_request(plan)) is None:
        what = "a rate in characters needs the characters of a request, which are unknown"
        raise InputError(what, remedy=f"give workloads.{next(iter(plan.cases))}.characters_per_request")
    return rate / characters


def characters_per_request(plan: RunPlan) -> float | None:
    """Return the mean characters of a request over the workloads; None if those of one are unknown.

    They are unknown, too, if several workloads that differ do not share devices, for each of them then has the whole rate.
    """
    rates = [case.arrivals.mean_rate_rps or 1.0 for case in plan.cases.values()]
    characters = [case.characters for case in plan.cases.values()]
    if None in characters or (len({*characters}) > 1 and not plan.is_mixed):
        return None
    return sum(rate * (mean or 0.0) for rate, mean in zip(rates, characters, strict=True)) / sum(rates)


def default_key(plan: RunPlan, rate_rps: float) -> VariedKey:
    """Return the count of the last device, from 1 to twice the boxes that the rate would saturate and a few more."""
    device = list(plan.scenario.devices)[-1]
    if device == END_NODE:
        raise InputError("there is no device whose boxes could be counted", remedy="name keys to vary")
    box_rps = min(placement.box_saturation_rps[device] for placement in next(deployable_placements(plan)))
    most = min(2 * ceil(rate_rps / box_rps) + 2, MOST_CANDIDATES + 1)
    return VariedKey(("devices", device, "count"), f"devices.{device}.count=1:{most}", tuple(range(1, most + 1)))


def make_candidates(keys: Sequence[VariedKey], open_plan: Open, rate_rps: float) -> list[Candidate]:
    """Return all combinations of the values of some keys under each policy, each checked.

    Combinations that differ in boxes that the policy does not use are one candidate, with the fewest of them. Raises the error
    of a wrong key or value.
    """
    for key in keys:
        key.check(VARIABLE.__contains__, f"it is no part of a deployment (those are {format_list(VARIABLE)})")
    check_disjoint(keys)
    if prod(len(key.values) for key in keys) > MOST_CANDIDATES:
        what = f"more than {MOST_CANDIDATES:,} combinations of {', '.join(key.name for key in keys)}"
        raise InputError(what, remedy="name fewer values to vary")
    varied = {key.device for key in keys} - {END_NODE}
    candidates: dict[str, tuple[int, Candidate]] = {}
    for overrides in product(*(map(key.override, key.values) for key in keys)):
        policies = list(deployable_placements(open_plan(overrides)))
        for placements in policies:
            choice = {key.name: override.value for key, override in zip(keys, overrides, strict=True)}
            if len(policies) > 1:
                choice["policy"] = placements[0].policy
            devices = placements[0].devices
            boxes = {part.name: part.servers for part in devices if part.name in varied & placements[0].used}
            at_rate = tuple(placement.at_rate(rate_rps) for placement in placements)
            candidate = Candidate(choice, tuple(overrides), at_rate, boxes)
            paid = sum(device.servers for device in devices), candidate
            candidates[str(candidate)] = min(candidates.get(str(candidate), paid), paid, key=lambda pair: pair[0])
    return [candidate for _, candidate in candidates.values()]


def _kept(
    candidates: Sequence[Candidate], columns: Sequence[str], by_servers: bool, progress: Callable[[float, int], None] | None
) -> Iterator[Candidate]:
    """Yield the candidates that keep the level, the least by the columns first; of equal ones, those of a fixed policy.

    `by_servers`: the fewest servers come first, so that more boxes than those of the answer are not simulated.
    """

    def servers(candidate: Candidate) -> int:
        return candidate.servers if by_servers else 0

    def rank(candidate: Candidate) -> list[float]:
        # Four digits: what differs by less is equal, and stays in the order of the candidates.
        return [float(f"{mean(candidate.replicated(column)):.4g}") for column in columns]

    done = 0
    for _, group in groupby(sorted(candidates, key=servers), servers):
        kept = []
        for candidate in group:
            scenario = candidate.placements[0].plan.scenario
            candidate.trials = [[placement.trial(0, placement.short_run)] for placement in candidate.placements]
            if candidate.outcome.excess <= SLACK:
                numbers = range(scenario.replications)
                candidate.trials = [
                    [placement.trial(number, scenario.requests) for number in numbers] for placement in candidate.placements
                ]
                kept += [candidate] if candidate.outcome.excess <= 0.0 else []
            done += 1
            if progress is not None:
                progress(done, len(candidates))
        yield from sorted(kept, key=rank)


def _at_rates(placements: Sequence[Placement], scenario: ScenarioConfiguration) -> ScenarioConfiguration:
    """Return a scenario with the rates of the placements in the keys of its arrivals, where such keys are known."""
    workloads = {}
    for placement in placements:
        for case in placement.cases:
            workload, rate_rps = scenario.workloads[case.name], known(case.arrivals.mean_rate_rps)
            arrivals = workload.arrivals.at_rate(rate_rps / case.arrivals.requests_per_arrival)
            workloads[case.name] = workload.model_copy(update={"arrivals": arrivals})
    return scenario.model_copy(update={"workloads": workloads})
