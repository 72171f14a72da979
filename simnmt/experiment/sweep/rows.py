"""The rows of a sweep's table, from its finished tasks, in the order of the points however they ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan

import numpy as np

from simnmt.experiment.run import goal_of, roles_of
from simnmt.experiment.sweep.tasks import Point, task_key
from simnmt.experiment.units import devices
from simnmt.results.metrics import Metric, metric_of_column, objective_metric
from simnmt.results.recommendation import recommend
from simnmt.results.stability import with_stability
from simnmt.results.statistics import Estimate, change_percent, interval_columns, mean_intervals
from simnmt.results.summary import Numbers, Place, Row, Runs, by_cell, rows, with_regret
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TIED, UNSTABLE, WORSE
from simnmt.scenario.configuration import ScenarioConfiguration

ReadResult = Callable[[str], tuple[list[str], list[Row]] | None]
"""Returns the result of a task by its key (`run.read_result`)."""
_PLACE = ("workload", "network", "policy", "replications", "requests")


def gather_rows(
    points: Sequence[Point], keys: Sequence[str], digests: Mapping[int, str], read: ReadResult
) -> tuple[list[Row], tuple[Metric, ...]]:
    """Return the rows of all points whose tasks have finished, and the metrics that some row knows.

    Args:
        points: of the sweep, in their order.
        keys: names of the swept keys.
        digests: digest of each point by its number.
        read: returns the result of a task.
    """
    table: list[Row] = []
    runs: list[list[Numbers]] = []
    for point in points:
        parts = [read(task_key(digests[point.number], number)) for number in range(point.scenario.replications)]
        results = [part for part in parts if part is not None]
        if len(results) < len(parts):
            continue
        numbers: dict[Place, list[Numbers]] = {}
        for _, of_replication in results:
            for run in of_replication:
                numbers.setdefault((run["workload"], run["network"], run["policy"]), []).append(run["numbers"])
        place = {POINT: point.number, **dict(zip(keys, point.values, strict=True))}
        for row in _rows_of_point(point.scenario, numbers, results[0][0]):
            table.append(place | row)
            runs.append(numbers[row["workload"], row["network"], row["policy"]])
    return _with_metrics(table, runs)


def _rows_of_point(scenario: ScenarioConfiguration, numbers: Runs, open_loops: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a run's summary, each with the standing on its policy.

    `open_loops`: workloads whose requests arrive by themselves, and so may overload a device.
    """
    numbers = with_regret(numbers, roles_of(scenario).oracle)
    table = rows(numbers, scenario.requests, metrics=scenario.measured_metrics)
    table = with_stability(table, numbers, {name: devices(scenario, name) for name in open_loops})
    for of_cell in by_cell(table).values():
        for row, standing in zip(of_cell, _standings(scenario, of_cell, numbers), strict=True):
            yield {name: row[name] for name in _PLACE} | standing | row


def _standings(scenario: ScenarioConfiguration, of_cell: Sequence[Row], numbers: Runs) -> Iterator[Row]:
    """Yield, for each policy, its standing and its paired changes of the objective, percent.

    They are against the best policy, and against the best policy that sends every request to one device.
    """
    roles, goal = roles_of(scenario), goal_of(scenario)
    recommended = recommend(of_cell, numbers, roles, goal)
    best, fixed = recommended["policy"], recommended["best_fixed"]
    column = objective_metric(goal.objective).column

    def values(row: Row, policy: str) -> list[float]:
        runs = (run.get(column) for run in numbers[row["workload"], row["network"], policy])
        return [value for value in runs if value is not None]

    def change(row: Row, baseline: str | None) -> Estimate | None:
        ours, theirs = values(row, row["policy"]), [] if baseline is None else values(row, baseline)
        return change_percent(ours, theirs) if len(ours) == len(theirs) == row["replications"] else None

    for row in of_cell:
        policy = row["policy"]
        standing = WORSE
        if policy not in roles.deployable:
            standing = BOUND
        elif row["unstable"]:
            standing = UNSTABLE
        elif policy == best:
            standing = BEST
        elif policy in recommended["as_good"]:
            standing = EQUAL
        elif policy in recommended["indistinguishable"]:
            standing = TIED
        met = None if not goal.requirements else float(not row["unstable"] and policy not in recommended["slo_missed_by"])
        yield {
            "standing": standing,
            "slo_met": met,
            **interval_columns("above_best_percent", None if best == policy else change(row, best)),
            **interval_columns("over_fixed_percent", change(row, fixed)),
        }


def _with_metrics(table: Sequence[Row], runs: Sequence[Sequence[Numbers]]) -> tuple[list[Row], tuple[Metric, ...]]:
    """Return the rows with three columns a metric in place of the summary's, and the metrics that some row knows.

    `runs`: the numbers of each replication by row. The intervals of all rows are computed together, which takes a tenth of the
    time.
    """
    columns = {column: known for of_row in runs for column in of_row[0] if (known := metric_of_column(column)) is not None}
    metrics: list[Row] = [{} for _ in table]
    for column, known in columns.items():
        by_count: dict[int, list[int]] = {}
        for number, of_row in enumerate(runs):
            metrics[number] |= dict.fromkeys(known.columns)
            if all(run.get(column) is not None for run in of_row):
                by_count.setdefault(len(of_row), []).append(number)
        for numbers in by_count.values():
            values = np.array([[run[column] for run in runs[number]] for number in numbers], np.float64)
            intervals = mean_intervals(values * known.per_si_unit, positive=True)
            for number, *ends in zip(numbers, *(part.tolist() for part in intervals), strict=True):
                shown = [None if isnan(end) else end if known.most is None else min(end, known.most) for end in ends]
                metrics[number] |= zip(known.columns, shown, strict=True)
    replaced = {f"{column}{end}" for column in columns for end in ("", "_low", "_high")}
    complete = [
        {name: value for name, value in row.items() if name not in replaced} | of_metrics
        for row, of_metrics in zip(table, metrics, strict=True)
    ]
    known_metrics = [known for known in columns.values() if any(of_row[known.name] is not None for of_row in metrics)]
    return complete, tuple(known_metrics)
