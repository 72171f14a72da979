"""Run a sweep from its points to its table in a folder that holds every finished task, so that a stopped sweep goes on.

    sweep.json            what is swept, by which version of simnmt, and the SHA-256 of all inputs
    scenario.input.yaml   the scenario as given
    tasks/KEY.json        the result of a task, named by its key, with its own SHA-256
    failed.json           errors of the tasks that failed at the last attempt
    sweep.parquet         the table, once all tasks have ended
    sweep.html            its page

Each file is written whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from simnmt.base import VERSION, files
from simnmt.base.errors import InputError
from simnmt.experiment.sweep.rows import gather_rows
from simnmt.experiment.sweep.tasks import Task, TaskResult, make_points, tasks_of_points
from simnmt.results.metrics import objective_metric
from simnmt.results.run_directory import INPUT
from simnmt.results.summary import Row
from simnmt.results.sweep_table import HEADER, POINT, TABLE, SweepTable, write_table
from simnmt.scenario.document import Override
from simnmt.scenario.errors import format_location
from simnmt.scenario.source import Source, describe_separate_runs
from simnmt.scenario.sweep_configuration import Sweep
from simnmt.scenario.varied_keys import VariedKey

TASKS, FAILED = "tasks", "failed.json"
FORMAT = 2
"""Version of the folder's form."""
Execute = Callable[[Sequence[Task]], Generator[TaskResult, None, None]]
"""Runs tasks and yields their results as they end."""
Progress = Callable[[float, int], None]
"""Called with the number of finished tasks and of all tasks."""


class SweepFolderError(InputError):
    """A folder that holds no sweep, or one that cannot go on."""


@dataclass(frozen=True, slots=True)
class Header:
    """The content of sweep.json: enough to go on with the sweep."""

    name: str
    """Of the scenario."""
    base: str
    """Folder at which relative paths of the scenario start."""
    overrides: list[list[Any]]
    """Keys and value of each override for all points."""
    keys: list[list[Any]]
    """Keys and values of each swept key."""
    inputs: dict[str, str]
    """SHA-256 of every file that any point reads, by its name in the scenario."""
    simnmt: str = VERSION
    format: int = FORMAT

    @staticmethod
    def of(sweep: Sweep, source: Source, tasks: Sequence[Task]) -> Header:
        """Return the record of a sweep."""
        overrides = [[list(override.location), override.value] for override in sweep.overrides]
        keys = [[list(key.location), list(key.values)] for key in sweep.keys]
        inputs = {name: digest for task in tasks for name, (_, digest) in task.inputs.items()} | source.code_digests
        return Header(source.scenario.name, str(source.base), overrides, keys, dict(sorted(inputs.items())))

    def sweep(self, folder: Path) -> Sweep:
        """Return the sweep, whose scenario is the file in the folder."""
        overrides = [
            Override.of(location, value, f"--set {format_location(tuple(location))}") for location, value in self.overrides
        ]
        keys = []
        for location, values in self.keys:
            label = f"--grid {format_location(tuple(location))}"
            keys.append(VariedKey(tuple(location), label, tuple(values)))
        return Sweep(str(folder / INPUT), tuple(overrides), tuple(keys))


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep that has ended, with its table and the tasks that failed."""

    directory: Path
    table: SweepTable
    points: int
    failures: list[TaskResult]
    ran: int
    """Tasks that ran now; the others had been finished before."""


def new_folder(under: Path, stem: str) -> Path:
    """Return a path for a new sweep, named after `stem` and the time (UTC); nothing is made."""
    # File systems take names of 255 bytes; a scenario's may have 80 characters of any script.
    short = stem.encode()[:100].decode(errors="ignore")
    name = f"{short}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}"
    numbered = (under / f"{name}-{number}" for number in itertools.count(2))
    return next(path for path in itertools.chain([under / name], numbered) if not os.path.lexists(path))


def is_sweep_folder(path: Path) -> bool:
    """Return whether a folder holds a sweep, finished or not."""
    return os.path.isfile(path / HEADER)  # noqa: PTH113 - Path.is_file raises for a name that no file can have


def read_header(folder: Path) -> Header:
    """Return what a folder sweeps. Raises `SweepFolderError`, also for a sweep of another version."""
    try:
        record = json.loads(files.read_bounded(folder / HEADER))
        form, version = record["format"], record["simnmt"]
        if (form, version) == (FORMAT, VERSION):
            return Header(**record)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise SweepFolderError(f"no sweep: {HEADER} is missing or damaged", path=folder, remedy="begin a new sweep") from None
    what = f"a sweep that simnmt {version} began, and this is simnmt {VERSION}"
    raise SweepFolderError(what, path=folder, remedy="use that version, or begin a new sweep")


def run_sweep(
    sweep: Sweep,
    source: Source,
    folder: Path,
    execute: Execute,
    progress: Progress | None = None,
    *,
    announce: Callable[[str], None] = lambda line: None,
    allow_code: bool = False,
) -> SweepResult:
    """Run the tasks of a sweep that are not finished yet, and write its table.

    Args:
        sweep: what is swept.
        source: the scenario with the overrides that hold at all points.
        folder: the sweep's folder, new or of the same sweep.
        execute: runs the tasks (`execution.run_tasks`).
        progress: called after every task.
        announce: called with a line on the folder before the first task, and on results that are computed again.
        allow_code: whether modules and files that the scenario names may run.

    Raises the errors of `make_points`, and `SweepFolderError` for another folder, all before anything runs.
    """
    points = make_points(sweep, source, allow_code=allow_code)
    tasks, digests = tasks_of_points(points, source.code_digests)
    _open_folder(folder, Header.of(sweep, source, tasks), source.text)
    announce(f"sweep folder: {folder} (if it stops: simnmt sweep {folder})")
    if separate := describe_separate_runs(source.scenario):
        announce(separate)
    waiting = [task for task in tasks if read_result(folder, task.key) is None]
    if changed := sum((folder / TASKS / f"{task.key}.json").exists() for task in waiting):
        announce(f"{folder}: {changed} of the results were damaged or changed, and are computed again")
    failures = []
    done = len(tasks) - len(waiting)
    if progress is not None:
        progress(done, len(tasks))
    with closing(execute(waiting)) as results:
        for number, result in enumerate(results, start=done + 1):
            if result.error:
                failures.append(result)
            else:
                _write_result(folder, result)
            if progress is not None:
                progress(number, len(tasks))
    failures.sort(key=lambda result: (result.point, result.replication))
    _write_json(folder / FAILED, [_describe_failure(result) for result in failures])
    keys = tuple(key.name for key in sweep.keys)
    rows, metrics = gather_rows(points, keys, digests, lambda key: read_result(folder, key))
    table = SweepTable(
        name=source.scenario.name,
        seed=source.scenario.seed,
        objective=objective_metric(source.scenario.objective).name,
        keys=keys,
        metrics=metrics,
        rows=rows,
        # Points that differ in no number share their tasks, so that one failure may take several out of the table.
        failed=len(points) - len({row[POINT] for row in rows}),
    )
    write_table(folder / TABLE, table)
    return SweepResult(folder, table, len(points), failures, len(waiting))


def _open_folder(folder: Path, header: Header, scenario_text: bytes) -> None:
    """Make the folder of a sweep, or check that it holds the same sweep. Raises `SweepFolderError`."""
    if is_sweep_folder(folder):
        _check_same(read_header(folder), header, folder)
    made = files.missing_parents(folder / HEADER)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not is_sweep_folder(folder):
            if any(folder.iterdir()):
                remedy = "choose another --out, or empty it"
                raise SweepFolderError("the folder holds something else than a sweep", path=folder, remedy=remedy)
            _write_json(folder / HEADER, asdict(header))
        if not (folder / INPUT).is_file():
            with files.written_whole(folder / INPUT) as partial:
                partial.write_bytes(scenario_text)
        (folder / TASKS).mkdir(exist_ok=True)
    except OSError as error:
        files.remove_empty(made)
        if error.errno in files.NO_ROOM:
            raise
        raise SweepFolderError(f"cannot be written: {error.strerror}", path=folder, remedy="choose another --out") from None


def _check_same(recorded: Header, header: Header, folder: Path) -> None:
    """Refuse to go on with another sweep than the recorded one. Raises `SweepFolderError`."""
    for name, digest in recorded.inputs.items():
        if header.inputs.get(name, digest) != digest:
            what = f"input {name} has changed since the sweep began"
            raise SweepFolderError(what, path=folder, remedy="restore it, or begin a new sweep")
    if recorded != header:
        remedy = f"go on with it: simnmt sweep {folder}, or choose another --out"
        raise SweepFolderError("another sweep is there", path=folder, remedy=remedy)


def _write_json(path: Path, content: Any) -> None:
    with files.written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def _describe_failure(result: TaskResult) -> Row:
    return {name: getattr(result, name) for name in ("key", "point", "replication", "error", "trace")}


def _write_result(folder: Path, result: TaskResult) -> None:
    content = {"open_loops": list(result.open_loops), "runs": list(result.runs)}
    with files.written_whole(folder / TASKS / f"{result.key}.json") as partial:
        partial.write_text(_compact({"sha256": _digest(content), **content}), encoding="ascii")


def read_result(folder: Path, key: str) -> tuple[list[str], list[Row]] | None:
    """Return the workloads with an open loop and the runs of a finished task; None for none, or a damaged or changed one."""
    try:
        content = json.loads(files.read_bounded(folder / TASKS / f"{key}.json"))
        unchanged = content.pop("sha256") == _digest(content)
        return (content["open_loops"], content["runs"]) if unchanged else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _compact(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


def _digest(content: Any) -> str:
    return hashlib.sha256(_compact(content).encode()).hexdigest()
