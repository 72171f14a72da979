"""Recommend which policy to deploy in each cell, with the certainty and the worth of that choice.

A policy is deployable if a real decider could run it. The oracle is not: it knows the truth, so it is a bound on what routing
can reach and never a recommendation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf

from simnmt.base.errors import InputError
from simnmt.base.suggestions import format_list
from simnmt.results.metrics import Assessment, Objective, Requirement, objective_metric
from simnmt.results.places import ALL, CellName, Place, by_cell
from simnmt.results.statistics import Estimate, change_percent, interval_columns, is_tie, over_replications
from simnmt.results.summary import Row, Runs, known, objective_name

TRIVIAL_SPREAD = 0.05
"""Relative spread between the worst and the best deployable policy below which the choice is nearly trivial."""
WORTHLESS_GAIN = 0.01
"""Relative gain over the best fixed policy below which routing each request is not worthwhile, even if the gain is no
chance."""
MOST_REPLICATIONS = 100
"""Number at which a run stops adding replications, even if its intervals are wide."""
FEWEST_REPLICATIONS = 5
"""Fewer replications estimate their spread too badly to conclude that they suffice."""
LEAST_TAIL = 20
"""Requests beyond a quantile from which 95 % intervals of its change hold the truth 92 times of 100 or more.

Two policies often share their few slowest requests, so that most differences are 0 and the replications do not show their
spread. Least coverage in the worlds of `tests/results/test_coverage.py`, by requests beyond the quantile: p99 60 % with 1,
84 % with 5, 90 % with 10, 93 % with 20; p95 89 % with 5, 90 % with 10, 92 % with 20.
"""


@dataclass(frozen=True, slots=True)
class Roles:
    """The policies of a scenario by role, in the scenario's order."""

    deployable: Sequence[str]
    """Policies that may be recommended, without the oracle."""
    fixed: Sequence[str] = ()
    """Deployable policies that send every request to one device."""
    oracle: str | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """The aim of a deployment."""

    objective: Objective = "mean"
    requirements: Sequence[Requirement] = ()
    """The service level."""
    by_workload: Mapping[str, Sequence[Requirement]] = field(default_factory=dict)
    """Service levels of single workloads, in place of that one."""
    at_sites: Mapping[str, Sequence[Requirement]] = field(default_factory=dict)
    """Service levels of the sites of a mix, in place of both; empty where the workloads of a site have different ones."""

    def level(self, row: Row) -> Sequence[Requirement]:
        """Return the service level of a row of the summary."""
        return self.at_sites.get(row["site"], self.by_workload.get(row["workload"], self.requirements))


def recommend(
    rows: Sequence[Row],
    runs: Runs,
    roles: Roles,
    goal: Goal,
    reason: Row | None = None,
    parts: Iterable[Sequence[Row]] = (),
) -> Row:
    """Return the recommendation for one cell, as a record for `summary.json` (docs/reference/results.md).

    Policies are left out in this order, unless that would leave none: unstable ones, those that lose more requests than
    another, and those that miss the service level. Of the policies that are as good as the best of the others (`is_tie`), one
    that sends every request to one device is recommended, else the first of the scenario.

    `rows`: of the cell, judged for stability (`stability.with_stability`). `reason`: facts behind the
    decisions, for the words on the recommendation. `parts`: rows of each site and each workload of a mix. A policy keeps the
    service level there if every workload and every site keeps the level that is asked for it.
    """
    cell = _Cell(rows, runs, roles, goal, [*parts])
    by_policy = cell.by_policy
    lost = {name: by_policy[name].get("lost_share") or 0.0 for name in roles.deployable}
    stable = [name for name in roles.deployable if not by_policy[name].get("unstable")]
    fewest = min((lost[name] for name in stable), default=0.0)
    answering = [name for name in stable if is_tie(lost[name], fewest)]
    missed = [name for name in stable if cell.worst_ratio(name) > 1.0]
    eligible = [name for name in answering if name not in missed] or answering
    score: Callable[[str], float] = cell.worst_ratio if set(eligible) <= set(missed) else cell.mean
    policy, as_good = None, []
    if eligible:
        best = min(map(score, eligible))
        tied = [name for name in eligible if is_tie(score(name), best)]
        policy, *as_good = sorted(tied, key=lambda name: name not in roles.fixed)
    elif roles.deployable:
        policy = min(roles.deployable, key=lambda name: (by_policy[name]["backlog_growth"], cell.mean(name)))
    rivals = [name for name in eligible if name != policy and name not in as_good]
    runner_up = min(rivals, key=cell.mean, default=None)
    changes = {name: cell.change(policy, name) for name in answering if policy is not None and name != policy}
    unclear = [name for name in rivals if changes[name].low is not None and not changes[name].excludes_zero]
    unstable = None if policy is None else by_policy[policy].get("unstable")
    shown = dict.fromkeys([*(name for name in roles.fixed if name in changes), *([] if runner_up is None else [runner_up])])
    value = None if policy is None or unstable else over_replications(cell.values[policy], positive=True)
    return {
        **CellName.of(rows[0])._asdict(),
        "objective": goal.objective,
        "deployable": list(roles.deployable),
        "policy": policy,
        "as_good": as_good,
        "runner_up": runner_up,
        **interval_columns("margin", changes.get(runner_up or ""), 100.0),
        "against": [{"baseline": name, **interval_columns("change", changes[name], 100.0)} for name in shown],
        "indistinguishable": [name for name in eligible if name in as_good or name in unclear],
        "best_but_for_losses": cell.best_but_for_losses(policy, stable, answering),
        "lost_shares": {name: share for name, share in lost.items() if share > 0.0},
        **interval_columns("objective_value", value),
        "unstable": unstable,
        "slo": list(dict.fromkeys(str(one) for judged in cell.judged for one in goal.level(judged[0]))),
        "slo_missed_by": missed if policy is not None else [],
        "slo_met": (policy in stable and policy not in missed) if cell.has_level and policy is not None else None,
        "slo_uncertain": [name for name in stable if any(one.low is not None and not one.sure for one in cell.assess(name))],
        "slo_assessments": [] if policy is None else [one.as_json() for one in cell.assess(policy)],
        "parts": [cell.part_facts(row) for part in cell.parts for row in part],
        **cell.worth(policy if stable else None, eligible),
        "caution": describe_short_tail(goal.objective, rows[0]["requests"]) if changes else "",
        "reason": reason or {},
    }


@dataclass(frozen=True)
class _Cell:
    """The policies of one cell, compared with each other."""

    rows: Sequence[Row]
    runs: Runs
    roles: Roles
    goal: Goal
    parts: Sequence[Sequence[Row]]

    @property
    def judged(self) -> Sequence[Sequence[Row]]:
        """The rows that must keep a service level: of each workload of a mix, else of all requests, and of each site."""
        sites = [part for part in self.parts if part[0]["site"] != ALL]
        return [*([part for part in self.parts if part[0]["site"] == ALL] or [self.rows]), *sites]

    @property
    def has_level(self) -> bool:
        return any(self.goal.level(rows[0]) for rows in self.judged)

    @cached_property
    def by_policy(self) -> Mapping[str, Row]:
        return {row["policy"]: row for row in self.rows}

    @cached_property
    def values(self) -> Mapping[str, list[float]]:
        """The objective of each replication, by policy."""
        column = objective_metric(self.goal.objective).column
        return {name: [known(numbers[column]) for numbers in self._runs_of(name)] for name in self.by_policy}

    def _runs_of(self, policy: str) -> Sequence[Mapping[str, float | None]]:
        return self.runs[Place.of(self.rows[0], policy)]

    def mean(self, policy: str) -> float:
        return over_replications(self.values[policy]).mean

    def change(self, policy: str, baseline: str) -> Estimate:
        """Return the paired change of the objective from the baseline to the policy, percent."""
        return change_percent(self.values[policy], self.values[baseline])

    def assess(self, policy: str) -> list[Assessment]:
        """Return whether a policy meets each requirement of the service level."""
        return [one for rows in self.judged for row in rows if row["policy"] == policy for one in self._assess_row(row)]

    def _assess_row(self, row: Row) -> list[Assessment]:
        runs = self.runs[Place.of(row)]
        columns = {column: [numbers.get(column) for numbers in runs] for column in runs[0]}
        return [requirement.assess_row(row, columns) for requirement in self.goal.level(row)]

    def part_facts(self, row: Row) -> Row:
        """Return whether a policy keeps the service level in a row of a site or a workload; None without a level."""
        assessments = self._assess_row(row)
        return {**Place.of(row)._asdict(), "slo_met": all(one.met for one in assessments) if assessments else None}

    def worst_ratio(self, policy: str) -> float:
        """Return the greatest ratio of a limited number to its limit, above 1 if that is missed; 0 without a service level."""
        return max((inf if one.lost else one.requirement.ratio(one.value) for one in self.assess(policy)), default=0.0)

    def best_but_for_losses(self, policy: str | None, stable: Sequence[str], answering: Sequence[str]) -> str | None:
        """Return the best policy by answered requests if it loses too many, and a fixed policy is recommended; else None."""
        if policy is None or policy not in self.roles.fixed or policy not in answering:
            return None
        best = min(stable, key=self.mean)
        return None if best in answering or is_tie(self.mean(best), self.mean(policy)) else best

    def worth(self, policy: str | None, eligible: Sequence[str]) -> Row:
        """Return the worth of the choice: the spread of the policies, the gain over a fixed policy, the gap to the oracle.

        The spread is over all deployable policies: one that misses the service level is a choice too, and a costly one.
        `policy`: None if nothing stable is deployable; `eligible`: those among which it was chosen.
        """
        roles, unstable = self.roles, {name for name, row in self.by_policy.items() if row.get("unstable")}
        worth: Row = {"worst": None, "best_fixed": None, "oracle": None, "gap_left": None, "trivial": False}
        spread = over_fixed = above_oracle = fixed_suffices = None
        if policy is not None:
            others = [] if unstable.intersection(roles.deployable) else [name for name in roles.deployable if name != policy]
            if others:
                worth["worst"] = max(others, key=self.mean)
                changes = {name: self.change(name, policy) for name in others}
                spread = changes[worth["worst"]]
                worth["trivial"] = {*roles.deployable} <= {*eligible} and all(map(_is_small, changes.values()))
            widest = 0.0
            if fixed := [name for name in roles.fixed if name in eligible]:
                best_fixed = worth["best_fixed"] = policy if policy in fixed else min(fixed, key=self.mean)
                over_fixed = self.change(policy, best_fixed)
                routing = [name for name in eligible if name not in roles.fixed] if policy in fixed else [policy]
                fixed_suffices = bool(routing) and all(_matters_little(self.change(name, best_fixed)) for name in routing)
                widest = self.mean(best_fixed)
            if roles.oracle is not None and roles.oracle not in unstable:
                worth["oracle"], above_oracle = roles.oracle, self.change(policy, roles.oracle)
                bound = self.mean(roles.oracle)
                if widest - bound > 1e-9 * bound:
                    worth["gap_left"] = (self.mean(policy) - bound) / (widest - bound)
        return {
            **worth,
            **interval_columns("spread", spread, 100.0),
            **interval_columns("over_fixed", over_fixed, 100.0),
            "fixed_suffices": fixed_suffices,
            **interval_columns("above_oracle", above_oracle, 100.0),
        }


def _is_small(change: Estimate) -> bool:
    ends = (change.mean, change.low or 0.0, change.high or 0.0)
    return max(map(abs, ends)) < 100.0 * TRIVIAL_SPREAD


def _matters_little(gain: Estimate) -> bool:
    """Return True if the whole interval of a change against a fixed policy excludes a gain that matters.

    A change that is not distinguishable does not prove that there is nothing to gain, and one replication has no interval.
    """
    if gain.low is None:
        return False
    return -gain.low < 100.0 * (WORTHLESS_GAIN if gain.excludes_zero and gain.mean < 0.0 else TRIVIAL_SPREAD)


def by_objective(rows: Sequence[Row], recommendations: Sequence[Row]) -> list[Row]:
    """Return the rows of each cell by the objective; those that lose requests last, and then unstable ones."""
    columns = {CellName.of(row): objective_metric(row["objective"]).column for row in recommendations}

    def rank(row: Row) -> tuple[bool, float, float]:
        value = row.get(columns.get(CellName.of(row), "mean_latency_s"))
        return bool(row.get("unstable")), row.get("lost_share") or 0.0, inf if value is None else value

    return [row for of_cell in by_cell(rows).values() for row in sorted(of_cell, key=rank)]


def best_row(recommendations: Sequence[Row], rows: Sequence[Row], workload: str | None, network: str | None) -> Row:
    """Return the row of the policy that is recommended on a workload and network, by default on the first ones.

    Raises `InputError` if there is no such place, or if no policy is recommended there.
    """
    for recommended in recommendations:
        if CellName.of(recommended).matches(workload, network):
            best = next((row for row in rows if Place.of(row) == Place.of(recommended)), None)
            if best is not None:
                return best
            break
    places = format_list((str(CellName.of(row)) for row in recommendations), ",")
    what = f"no policy is recommended for {workload or 'any workload'} on {network or 'any network'}"
    raise InputError(what, remedy=f"the run has {places}" if places else None)


def half_width(row: Row, key: str) -> float:
    """Return how far the interval of a row's number reaches from it, relative to it; infinite if it is unknown."""
    value, low, high = row.get(key), row.get(f"{key}_low"), row.get(f"{key}_high")
    if value is None or low is None or high is None or value <= 0.0:
        return inf
    return max(float(high / value - 1.0), float(1.0 - low / value))


def next_replications(rows: Sequence[Row], objective: Objective, wanted: float) -> int:
    """Return how many replications to run next so that all intervals of the objective become as narrow as `wanted`.

    The present number is returned if those of all stable rows are so already, or if it is the most. It is at most doubled,
    since few replications estimate their spread badly.
    """
    count: int = rows[0]["replications"]
    key = objective_metric(objective).column
    if count < FEWEST_REPLICATIONS:
        return FEWEST_REPLICATIONS
    widest = max((half_width(row, key) for row in rows if not row.get("unstable")), default=0.0)
    if widest <= wanted or count >= MOST_REPLICATIONS:
        return count
    return min(ceil(count * min((widest / wanted) ** 2, 2.0)), MOST_REPLICATIONS)


def describe_precision(rows: Sequence[Row], objective: Objective, wanted: float) -> str:
    """Describe how wide the intervals of the objective are after how many replications, beside what was wanted."""
    key, stable = objective_metric(objective).column, [row for row in rows if not row.get("unstable")]
    if not stable:
        return f"{rows[0]['replications']} replications: no policy is stable, so none has a {objective_name(objective)}"
    widest = max(stable, key=lambda row: half_width(row, key))
    half = half_width(widest, key)
    return (
        f"{rows[0]['replications']} replications {'suffice' if half <= wanted else 'do not suffice'} for intervals within "
        f"{100.0 * wanted:g} % of the {objective_name(objective)}: the widest reaches {100.0 * half:.2g} % from it "
        f"({widest['policy']} for {CellName.of(widest)})"
    )


def reliable_requests(objective: Objective) -> int:
    """Return the least requests in a replication for which the intervals of an objective's changes are reliable."""
    quantile = objective_metric(objective).quantile
    return 1 if quantile is None else round(LEAST_TAIL / (1.0 - quantile))


def describe_short_tail(objective: Objective, requests: int) -> str:
    """Describe changes of an objective and their intervals as unreliable; empty if there are enough requests."""
    least = reliable_requests(objective)
    if requests >= least:
        return ""
    return f"Changes of {objective} from {requests:,} requests are not reliable: that takes {least} requests or more."
