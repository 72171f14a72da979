"""Run a sweep from its points to its table: what is finished already stays, and what fails is recorded."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from simnmt.experiment.sweep.execution import close_processes
from simnmt.experiment.sweep.gather import gather_rows
from simnmt.experiment.sweep.points import make_points
from simnmt.experiment.sweep.store import Header, SweepStore, open_store
from simnmt.experiment.sweep.tasks import PointTasks, TaskResult, tasks_of_points
from simnmt.results.metrics import objective_metric
from simnmt.results.sweep_table import POINT, TABLE, SweepTable, write_table
from simnmt.scenario.source import Source, describe_separate_runs
from simnmt.scenario.sweep_configuration import Sweep

Execute = Callable[[Sequence[PointTasks]], Generator[list[TaskResult], None, None]]
"""Runs tasks and yields their results as they finish."""
Progress = Callable[[float, int], None]
"""Called with the number of finished tasks and of all tasks."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep that has ended, with its table and the tasks that failed."""

    directory: Path
    table: SweepTable
    points: int
    failures: list[TaskResult]
    ran: int
    """Tasks that ran now; the others had been finished before."""


def run_sweep(
    sweep: Sweep,
    source: Source,
    folder: Path,
    execute: Execute,
    progress: Progress | None = None,
    *,
    announce: Callable[[str], None] = lambda line: None,
    finish: Callable[[SweepTable], None] = lambda table: None,
    allow_code: bool = False,
) -> SweepResult:
    """Run the tasks of a sweep that are not finished yet, and write its table.

    Args:
        sweep: what is swept.
        source: the scenario with the overrides that hold at all points.
        folder: the sweep's folder, new or of the same sweep.
        execute: runs the tasks (`run_locally`, or a cluster).
        progress: called after every chunk of tasks.
        announce: called with a line on the folder before the first task, and on results that are computed again.
        finish: called with the table at the end, while the folder is still locked.
        allow_code: whether modules and files that the scenario names may run.

    Raises the errors of `make_points` and of `open_store`, all before anything runs.
    """
    points = make_points(sweep, source, allow_code=allow_code)
    tasks, digests = tasks_of_points(points, source.code_digests)
    inputs = {name: digest for of_point in tasks for name, (_, digest) in of_point.inputs.items()} | source.code_digests
    header = Header.of(sweep, source.scenario.name, source.base, inputs)
    with open_store(folder, header, source.text) as store:
        announce(f"sweep folder: {folder} (if it stops: simnmt sweep {folder})")
        if separate := describe_separate_runs(source.scenario):
            announce(separate)
        finished, changed = store.finished()
        if changed:
            announce(f"{folder}: {changed} of the results were damaged or changed, and are computed again")
        ran, failures = _run_tasks(tasks, finished, store, execute, progress)
        store.write_failures(failures)
        keys = [key.name for key in sweep.keys]
        rows, metrics = gather_rows(points, keys, digests, store)
        scenario = source.scenario
        # Points that differ in no number share their tasks, so that one failure may take several out of the table.
        failed = len(points) - len({row[POINT] for row in rows})
        table = SweepTable(
            name=scenario.name,
            seed=scenario.seed,
            objective=objective_metric(scenario.objective).name,
            keys=tuple(keys),
            metrics=metrics,
            rows=rows,
            failed=failed,
        )
        write_table(folder / TABLE, table)
        finish(table)
        return SweepResult(folder, table, len(points), failures, ran)


def _run_tasks(
    tasks: Sequence[PointTasks], finished: Set[str], store: SweepStore, execute: Execute, progress: Progress | None
) -> tuple[int, list[TaskResult]]:
    """Run what is not finished; return the number of tasks that ran, and those that failed."""
    waiting = []
    for of_point in tasks:
        replications = [number for key, number in zip(of_point.keys, of_point.replications, strict=True) if key not in finished]
        if replications:
            waiting.append(of_point.only(replications))
    total = sum(len(of_point.replications) for of_point in tasks)
    done = total - sum(len(of_point.replications) for of_point in waiting)
    ran, failures = 0, list[TaskResult]()
    if progress is not None:
        progress(done, total)
    try:
        with closing(execute(waiting)) as answers:
            for results in answers:
                for result in results:
                    if result.error:
                        failures.append(result)
                    else:
                        store.write(result)
                ran += len(results)
                if progress is not None:
                    progress(done + ran, total)
    finally:
        close_processes()
    failures.sort(key=lambda result: (result.point, result.replication))
    return ran, failures
