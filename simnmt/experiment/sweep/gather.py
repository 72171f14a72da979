"""Gather the finished tasks of a sweep into the rows of its table, in the order of the points however they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from simnmt.experiment.run import goal_of, roles_of
from simnmt.experiment.sweep.points import Point
from simnmt.experiment.sweep.store import SweepStore
from simnmt.experiment.sweep.tasks import task_key
from simnmt.experiment.units import devices
from simnmt.results.metrics import objective_metric
from simnmt.results.recommendation import Goal, Roles, recommend
from simnmt.results.stability import with_stability
from simnmt.results.statistics import Estimate, change_percent, interval_columns, mean_intervals
from simnmt.results.summary import Numbers, Row, RunKey, by_cell, rows, with_regret
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TIED, UNSTABLE, WORSE, SweptMetric, metric_of_column
from simnmt.scenario.configuration import Scenario

_PLACE = ("workload", "network", "policy", "replications", "requests")


@dataclass(frozen=True, slots=True)
class _Judged:
    """A row with what its metrics need: their values in each replication."""

    place: Row
    """Point, swept keys, workload, network, policy and verdict."""
    others: Row
    """Columns of the summary that are no metrics."""
    metrics: dict[SweptMetric, list[float | None]] = field(default_factory=dict)


def gather_rows(
    points: Sequence[Point], keys: Sequence[str], digests: Mapping[int, str], store: SweepStore
) -> tuple[list[Row], tuple[SweptMetric, ...]]:
    """Return the rows of all points whose tasks have finished, and the metrics that some row knows.

    Args:
        points: of the sweep, in their order.
        keys: names of the swept keys.
        digests: digest of each point by its number.
        store: where the results are.
    """
    judged: list[_Judged] = []
    for point in points:
        parts = [store.read(task_key(digests[point.number], number)) for number in range(point.scenario.replications)]
        results = [part for part in parts if part is not None]
        if len(results) < len(parts):
            continue
        numbers = {
            RunKey(run["workload"], run["network"], run["policy"], replication): run["numbers"]
            for replication, (_, runs) in enumerate(results)
            for run in runs
        }
        place = {POINT: point.number, **dict(zip(keys, point.values, strict=True))}
        judged += _judge(place, point.scenario, numbers, results[0][0])
    table = list(_with_metrics(judged))
    metrics = dict.fromkeys(known_metric for row in judged for known_metric in row.metrics)
    return table, tuple(of for of in metrics if any(row[of.name] is not None for row in table))


def _judge(place: Row, scenario: Scenario, numbers: Mapping[RunKey, Numbers], open_loops: Sequence[str]) -> Iterator[_Judged]:
    """Yield the rows of one point: those of a run's summary, with a verdict on each policy.

    `open_loops`: workloads whose requests arrive by themselves, and so may overload a device.
    """
    roles, goal = roles_of(scenario), goal_of(scenario)
    numbers = with_regret(numbers, roles.oracle)
    table = rows(numbers, scenario.requests, metrics=scenario.measured_metrics, objective=scenario.objective)
    table = with_stability(table, numbers, {name: devices(scenario, name) for name in open_loops})
    for of_cell in by_cell(table).values():
        for row, verdict in zip(of_cell, _verdicts(of_cell, numbers, roles, goal), strict=True):
            runs = [
                numbers[RunKey(row["workload"], row["network"], row["policy"], number)] for number in range(row["replications"])
            ]
            metrics = {column: held for column in runs[0] if (held := metric_of_column(column)) is not None}
            shown = {f"{column}{end}" for column in metrics for end in ("", "_low", "_high")}
            yield _Judged(
                place={**place, **{name: row[name] for name in _PLACE}, **verdict},
                others={name: value for name, value in row.items() if name not in shown and name not in _PLACE},
                metrics={known_metric: [run[column] for run in runs] for column, known_metric in metrics.items()},
            )


def _verdicts(of_cell: Sequence[Row], numbers: Mapping[RunKey, Numbers], roles: Roles, goal: Goal) -> Iterator[Row]:
    """Yield, for each policy, its verdict and its paired changes of the objective, percent.

    They are against the best policy, and against the best policy that sends every request to one device.
    """
    recommended = recommend(of_cell, numbers, roles, goal)
    best, fixed = recommended["policy"], recommended["best_fixed"]
    column = objective_metric(goal.objective).column

    def values(row: Row, policy: str) -> list[float]:
        runs = (numbers[RunKey(row["workload"], row["network"], policy, number)] for number in range(row["replications"]))
        return [value for run in runs if (value := run.get(column)) is not None]

    def change(row: Row, baseline: str | None) -> Estimate | None:
        ours, theirs = values(row, row["policy"]), [] if baseline is None else values(row, baseline)
        return change_percent(ours, theirs) if len(ours) == len(theirs) == row["replications"] else None

    for row in of_cell:
        policy = row["policy"]
        verdict = WORSE
        if policy not in roles.deployable:
            verdict = BOUND
        elif row["unstable"]:
            verdict = UNSTABLE
        elif policy == best:
            verdict = BEST
        elif policy in recommended["as_good"]:
            verdict = EQUAL
        elif policy in recommended["indistinguishable"]:
            verdict = TIED
        changes = {
            "above_best_percent": None if best == policy else change(row, best),
            "over_fixed_percent": change(row, fixed),
        }
        columns = {name: value for key, of in changes.items() for name, value in interval_columns(key, of).items()}
        met = None if not goal.requirements else float(not row["unstable"] and policy not in recommended["slo_missed_by"])
        yield {"verdict": verdict, "slo_met": met, **columns}


def _with_metrics(judged: Sequence[_Judged]) -> Iterator[Row]:
    """Yield the complete rows; the intervals of all rows are computed together, which takes a tenth of the time."""
    estimates: list[Row] = [{} for _ in judged]
    for known_metric in dict.fromkeys(known_metric for row in judged for known_metric in row.metrics):
        most = known_metric.most
        by_count: dict[int, list[int]] = {}
        for number, row in enumerate(judged):
            estimates[number] |= dict.fromkeys(known_metric.columns)
            of_row = row.metrics.get(known_metric, [None])
            if None not in of_row:
                by_count.setdefault(len(of_row), []).append(number)
        for numbers in by_count.values():
            values = np.array([judged[number].metrics[known_metric] for number in numbers], np.float64)
            intervals = mean_intervals(values * known_metric.per_si_unit, positive=True)
            for number, *ends in zip(numbers, *(column.tolist() for column in intervals), strict=True):
                shown = [None if isnan(end) else end if most is None else min(end, most) for end in ends]
                estimates[number] |= zip(known_metric.columns, shown, strict=True)
    for row, of_metrics in zip(judged, estimates, strict=True):
        yield row.place | of_metrics | row.others
