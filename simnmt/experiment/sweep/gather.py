"""Gather the finished tasks of a sweep into the rows of its table, in the order of the points however they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simnmt.experiment.run import goal_of, roles_of
from simnmt.experiment.sweep.points import Point
from simnmt.experiment.sweep.store import SweepStore
from simnmt.experiment.sweep.tasks import task_key
from simnmt.experiment.units import devices
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.stability import with_stability
from simnmt.results.statistics import change_percent
from simnmt.results.summary import OBJECTIVES, Numbers, Row, RunKey, by_cell, known, rows, with_regret
from simnmt.results.sweep_table import BEST, BOUND, POINT, TIED, UNSTABLE, WORSE
from simnmt.scenario.configuration import Scenario


def gather_rows(points: Sequence[Point], keys: Sequence[str], digests: Mapping[int, str], store: SweepStore) -> Iterator[Row]:
    """Yield the rows of all points whose tasks have finished.

    Args:
        points: of the sweep, in their order.
        keys: names of the swept keys.
        digests: digest of each point by its number.
        store: where the results are.
    """
    for point in points:
        parts = [store.read(task_key(digests[point.number], number)) for number in range(point.scenario.replications)]
        if any(part is None for part in parts):
            continue
        results = [part for part in parts if part is not None]
        numbers = {
            RunKey(run["workload"], run["network"], run["policy"], replication): run["numbers"]
            for replication, (_, runs) in enumerate(results)
            for run in runs
        }
        place = {POINT: point.number, **dict(zip(keys, point.values, strict=True))}
        yield from (place | row for row in point_rows(point.scenario, numbers, results[0][0]))


def point_rows(scenario: Scenario, numbers: Mapping[RunKey, Numbers], open_loops: Sequence[str]) -> list[Row]:
    """Return the rows of one point: those of a run's summary, with a verdict on each policy.

    `open_loops`: workloads whose requests arrive by themselves, and so may overload a device.
    """
    roles, goal = roles_of(scenario), goal_of(scenario)
    numbers = with_regret(numbers, roles.oracle)
    table = with_stability(rows(numbers, scenario.requests), numbers, {name: devices(scenario, name) for name in open_loops})
    return [
        {**row, **verdict}
        for of_cell in by_cell(table).values()
        for row, verdict in zip(of_cell, _verdicts(of_cell, numbers, roles, goal), strict=True)
    ]


def _verdicts(of_cell: Sequence[Row], numbers: Mapping[RunKey, Numbers], roles: Roles, goal: Goal) -> Iterator[Row]:
    """Yield, for each policy, its verdict and its paired change of the objective against the best policy, percent."""
    recommended = recommend(of_cell, numbers, roles, goal)
    best, tied = recommended["policy"], recommended["indistinguishable"]
    key = OBJECTIVES[goal.objective]

    def values(policy: str) -> list[float]:
        runs = (numbers[RunKey(row["workload"], row["network"], policy, number)] for number in range(row["replications"]))
        return [known(run[key]) for run in runs]

    for row in of_cell:
        policy = row["policy"]
        verdict = WORSE
        if policy not in roles.deployable:
            verdict = BOUND
        elif row["unstable"]:
            verdict = UNSTABLE
        elif policy == best:
            verdict = BEST
        elif policy in tied:
            verdict = TIED
        change = None if best is None or policy == best else change_percent(values(policy), values(best))
        ends = (None, None, None) if change is None else (change.mean, change.low, change.high)
        yield {
            "verdict": verdict,
            **dict(zip(("above_best_percent", "above_best_percent_low", "above_best_percent_high"), ends, strict=True)),
        }
