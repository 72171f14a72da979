"""Recommend which policy to deploy in each cell, with the certainty and the worth of that choice.

A policy is deployable if a real decider could run it. The oracle is not: it knows the truth, so it is a bound on what routing
can reach and never a recommendation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from simnmt.results.metrics import Assessment, Objective, Requirement, objective_metric, unanswered_share
from simnmt.results.places import ALL, CellName, Place, by_cell
from simnmt.results.statistics import Estimate, change_percent, interval_columns, is_tie, over_replications
from simnmt.results.summary import Row, Runs, known

TRIVIAL_SPREAD = 0.05
"""Relative spread between the worst and the best deployable policy below which the choice is nearly trivial."""
WORTHLESS_GAIN = 0.01
"""Relative gain over the best fixed policy below which routing each request is not worthwhile, even if the gain is no
chance."""
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
    objectives: Mapping[str, Objective] = field(default_factory=dict)
    """Objectives of single workloads, in place of the objective."""

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

    Policies are left out in this order, unless that would leave none: unstable ones, those that answer fewer requests than
    another, and those that miss the service level. Of the policies that are as good as the best of the others (`is_tie`), one
    that sends every request to one device is recommended, else the first of the scenario.

    `rows`: of the cell, judged for stability (`stability.with_stability`). `reason`: facts behind the
    decisions, for the words on the recommendation. `parts`: rows of each site and each workload of a mix. A policy keeps the
    service level there if every workload and every site keeps the level that is asked for it.
    """
    parts, by_policy = [*parts], {row["policy"]: row for row in rows}
    sites = [part for part in parts if part[0]["site"] != ALL]
    judged = [*([part for part in parts if part[0]["site"] == ALL] or [rows]), *sites]
    assessed = {
        name: [one for part in judged for row in part if row["policy"] == name for one in _assess(row, runs, goal)]
        for name in roles.deployable
    }
    ratios = {name: max((one.ratio for one in of_policy), default=0.0) for name, of_policy in assessed.items()}
    objective = goal.objectives.get(rows[0]["workload"], goal.objective)
    compared = _Compared(rows, runs, objective)
    lost = {name: unanswered_share(by_policy[name]) for name in roles.deployable}
    stable = [name for name in roles.deployable if not by_policy[name].get("unstable")]
    fewest = min((lost[name] for name in stable), default=0.0)
    answering = [name for name in stable if is_tie(lost[name], fewest)]
    missed = [name for name in stable if ratios[name] > 1.0]
    eligible = [name for name in answering if name not in missed] or answering
    score = ratios if set(eligible) <= set(missed) else compared.means
    policy, as_good = None, []
    if eligible:
        best = min(score[name] for name in eligible)
        tied = [name for name in eligible if is_tie(score[name], best)]
        policy, *as_good = sorted(tied, key=lambda name: name not in roles.fixed)
    elif roles.deployable:
        policy = min(roles.deployable, key=lambda name: (by_policy[name]["backlog_growth"], compared.means[name]))
    rivals = [name for name in eligible if name != policy and name not in as_good]
    runner_up = min(rivals, key=compared.means.__getitem__, default=None)
    changes = {name: compared.change(policy, name) for name in answering if policy is not None and name != policy}
    unclear = [name for name in rivals if changes[name].low is not None and not changes[name].excludes_zero]
    unstable = None if policy is None else by_policy[policy].get("unstable")
    shown = dict.fromkeys([*(name for name in roles.fixed if name in changes), *([] if runner_up is None else [runner_up])])
    value = None if policy is None or unstable else over_replications(compared.values[policy], positive=True)
    level = dict.fromkeys(str(one) for part in judged for one in goal.level(part[0]))
    return {
        **CellName.of(rows[0])._asdict(),
        "objective": objective,
        "deployable": list(roles.deployable),
        "policy": policy,
        "as_good": as_good,
        "runner_up": runner_up,
        **interval_columns("margin", changes.get(runner_up or ""), 100.0),
        "against": [{"baseline": name, **interval_columns("change", changes[name], 100.0)} for name in shown],
        "indistinguishable": [name for name in eligible if name in as_good or name in unclear],
        "lost_shares": {name: share for name, share in lost.items() if share > 0.0},
        **interval_columns("objective_value", value),
        "unstable": unstable,
        "slo": list(level),
        "slo_missed_by": missed if policy is not None else [],
        "slo_met": (policy in stable and policy not in missed) if level and policy is not None else None,
        "slo_uncertain": [name for name in stable if any(one.low is not None and not one.sure for one in assessed[name])],
        "slo_assessments": [] if policy is None else [one.as_json() for one in assessed[policy]],
        "workloads": [_best_of_workload(part, runs, roles, goal) for part in parts if part[0]["workload"] in goal.objectives],
        "parts": [{**Place.of(row)._asdict(), "slo_met": _keeps_level(row, runs, goal)} for part in parts for row in part],
        **_worth(compared, roles, policy if stable else None, eligible),
        "caution": describe_short_tail(objective, rows[0]["requests"]) if changes else "",
        "reason": reason or {},
    }


def _best_of_workload(part: Sequence[Row], runs: Runs, roles: Roles, goal: Goal) -> Row:
    """Return the stable deployable policy that has the least of what a workload's own objective minimises."""
    workload = part[0]["workload"]
    compared = _Compared(part, runs, goal.objectives[workload])
    stable = [name for name in roles.deployable if name not in compared.unstable]
    best = min(stable, key=compared.means.__getitem__, default=None)
    return {"workload": workload, "objective": goal.objectives[workload], "policy": best}


def _assess(row: Row, runs: Runs, goal: Goal) -> list[Assessment]:
    numbers = runs[Place.of(row)]
    columns = {column: [of_run.get(column) for of_run in numbers] for column in numbers[0]}
    return [requirement.assess(row, columns) for requirement in goal.level(row)]


def _keeps_level(row: Row, runs: Runs, goal: Goal) -> bool | None:
    """Return whether a policy keeps the service level in a row of a site or a workload; None without a level."""
    assessments = _assess(row, runs, goal)
    return all(one.met for one in assessments) if assessments else None


class _Compared:
    """The objective of the policies of one cell."""

    def __init__(self, rows: Sequence[Row], runs: Runs, objective: Objective) -> None:
        column = objective_metric(objective).column
        self.unstable = {row["policy"] for row in rows if row.get("unstable")}
        self.values = {row["policy"]: [known(numbers[column]) for numbers in runs[Place.of(row)]] for row in rows}
        """By policy, the value of each replication."""
        self.means = {policy: over_replications(values).mean for policy, values in self.values.items()}

    def change(self, policy: str, baseline: str) -> Estimate:
        """Return the paired change of the objective from the baseline to the policy, percent."""
        return change_percent(self.values[policy], self.values[baseline])


def _worth(compared: _Compared, roles: Roles, policy: str | None, eligible: Sequence[str]) -> Row:
    """Return the worth of the choice: the spread of the policies, the gain over a fixed policy, the gap to the oracle.

    The spread is over all deployable policies: one that misses the service level is a choice too, and a costly one.
    `policy`: None if nothing stable is deployable; `eligible`: those among which it was chosen.
    """
    means, worst, best_fixed, bound, gap_left, trivial = compared.means, None, None, None, None, False
    spread = over_fixed = above_oracle = fixed_suffices = None
    if policy is not None:
        others = [name for name in roles.deployable if name != policy]
        if others and compared.unstable.isdisjoint(roles.deployable):
            worst = max(others, key=means.__getitem__)
            spread, changes = compared.change(worst, policy), [compared.change(name, policy) for name in others]
            trivial = {*roles.deployable} <= {*eligible} and all(map(_is_small, changes))
        if fixed := [name for name in roles.fixed if name in eligible]:
            best_fixed = policy if policy in fixed else min(fixed, key=means.__getitem__)
            over_fixed = compared.change(policy, best_fixed)
            routing = [name for name in eligible if name not in roles.fixed] if policy in fixed else [policy]
            fixed_suffices = bool(routing) and all(_matters_little(compared.change(name, best_fixed)) for name in routing)
        if roles.oracle is not None and roles.oracle not in compared.unstable:
            bound, above_oracle = roles.oracle, compared.change(policy, roles.oracle)
            widest = 0.0 if best_fixed is None else means[best_fixed] - means[bound]
            if widest > 1e-9 * means[bound]:
                gap_left = (means[policy] - means[bound]) / widest
    return {
        "worst": worst,
        "best_fixed": best_fixed,
        "oracle": bound,
        "gap_left": gap_left,
        "trivial": trivial,
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
        return bool(row.get("unstable")), unanswered_share(row), inf if value is None else value

    return [row for of_cell in by_cell(rows).values() for row in sorted(of_cell, key=rank)]


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
