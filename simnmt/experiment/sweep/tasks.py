"""The tasks of a sweep: one replication of one point, keyed by its content, and how a process runs them.

A task's digest covers the resolved scenario of its point, the content of every file that the scenario reads, the replication
and the version of simnmt. So a task that has been finished need not run again, and one of another sweep is never mistaken for
it. All policies and points meet random numbers of the same keys (common random numbers), since points share the seed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simnmt.base import VERSION
from simnmt.base.configuration import input_files
from simnmt.base.errors import InputError, SimnmtError, describe_error
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.sweep.points import Point
from simnmt.experiment.units import run_unit
from simnmt.results.requests import Engine
from simnmt.results.run_directory import sha256
from simnmt.results.summary import Row
from simnmt.scenario.configuration import Scenario

_LOG = logging.getLogger("simnmt.experiment")


@dataclass(frozen=True, slots=True)
class PointTasks:
    """The tasks of one point that one process runs after each other, since they share the inputs."""

    point: int
    digest: str
    """Of the point: scenario, inputs and version."""
    scenario: Scenario
    inputs: Mapping[str, tuple[str, str]]
    """Path and SHA-256 of each file that the scenario reads, by its name there."""
    replications: tuple[int, ...]

    @property
    def keys(self) -> list[str]:
        """The digests of the tasks."""
        return [task_key(self.digest, replication) for replication in self.replications]

    def only(self, replications: Sequence[int]) -> PointTasks:
        """Return some of the tasks."""
        return PointTasks(self.point, self.digest, self.scenario, self.inputs, tuple(replications))


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of one task: the numbers of its runs, or the error that ended it."""

    key: str
    point: int
    replication: int
    open_loops: tuple[str, ...] = ()
    """Workloads whose requests arrive by themselves."""
    runs: tuple[Row, ...] = ()
    """`workload`, `network`, `policy` and `numbers` of each run."""
    error: str = ""
    """One line; empty if the task succeeded."""
    trace: str = ""
    seconds: float = 0.0
    """That the task took in its process."""


def task_key(digest: str, replication: int) -> str:
    """Return the key of one replication of a point, which is the name of the file of its result."""
    return f"{digest[:40]}-{replication}"


class InputDigests:
    """SHA-256 of the files that the points of a sweep read, each file read once."""

    def __init__(self) -> None:
        self._digests: dict[Path, str] = {}

    def of(self, scenario: Scenario) -> dict[str, tuple[str, str]]:
        """Return path and SHA-256 of each file that a scenario reads, by its name there."""
        return {name: (str(path), self._digest(path)) for name, path in input_files(scenario, Path.cwd()).items()}

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            self._digests[path] = sha256(path)
        return self._digests[path]


def tasks_of_points(points: Sequence[Point], code_digests: Mapping[str, str]) -> tuple[list[PointTasks], dict[int, str]]:
    """Return the tasks of all points, those of equal points once, and the digest of each point by its number.

    `code_digests`: of the files of a user's code.
    """
    input_digests = InputDigests()
    tasks: dict[str, PointTasks] = {}
    digests = {}
    for point in points:
        inputs = input_digests.of(point.scenario)
        digest = point_digest(point.scenario, {name: content for name, (_, content) in inputs.items()} | dict(code_digests))
        digests[point.number] = digest
        replications = tuple(range(point.scenario.replications))
        tasks.setdefault(digest, PointTasks(point.number, digest, point.scenario, inputs, replications))
    return list(tasks.values()), digests


def point_digest(scenario: Scenario, inputs: Mapping[str, str]) -> str:
    """Return the SHA-256 of what decides the numbers of a point: scenario, content of its inputs, version of simnmt."""
    content = {"simnmt": VERSION, "scenario": scenario.document(), "inputs": dict(sorted(inputs.items()))}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_cache = InputCache()
"""Inputs that this process has read; their content is checked in `_check_inputs`."""
_checked: dict[str, str] = {}
"""SHA-256 of each file, by its path, when this process read it."""


def run_point_tasks(tasks: PointTasks, engine: Engine | None = None) -> list[TaskResult]:
    """Run the tasks of a point in this process; an error of a task is its result."""
    results = []
    plan: RunPlan | None = None
    for replication in tasks.replications:
        started_s = time.process_time()
        key = task_key(tasks.digest, replication)
        try:
            if plan is None:
                _check_inputs(tasks.inputs)
                plan = read_inputs(tasks.scenario, Path.cwd(), cache=_cache)
            result = _run_task(plan, key, tasks.point, replication, engine, started_s)
        except MemoryError:
            result = TaskResult(key, tasks.point, replication, error="out of memory", trace=traceback.format_exc())
        except Exception as error:
            line = str(error) if isinstance(error, SimnmtError) else f"{type(error).__name__}: {describe_error(error)}"
            result = TaskResult(key, tasks.point, replication, error=line, trace=traceback.format_exc())
        results.append(result)
    return results


def _run_task(plan: RunPlan, key: str, point: int, replication: int, engine: Engine | None, started_s: float) -> TaskResult:
    runs: list[Row] = []
    for case in plan.cases.values():
        for network, links in plan.networks.items():
            unit = Unit(plan.scenario, case, network, links, replication, engine=engine, keeps_requests=False)
            for run, numbers in run_unit(unit).numbers.items():
                place = {"workload": run.workload, "network": run.network, "policy": run.policy}
                runs.append({**place, "numbers": {name: plain_number(value) for name, value in numbers.items()}})
    open_loops = tuple(case.name for case in plan.cases.values() if case.arrivals.discipline == "open")
    seconds = time.process_time() - started_s
    return TaskResult(key, point, replication, open_loops, tuple(runs), seconds=seconds)


def plain_number(value: Any) -> float | None:
    """Return a number without numpy's type, since results travel as JSON."""
    return None if value is None else float(value)


def _check_inputs(inputs: Mapping[str, tuple[str, str]]) -> None:
    """Refuse a file with another content than at the begin of the sweep; each is read once by a process."""
    global _cache
    for name, (path, digest) in inputs.items():
        if path in _checked and _checked[path] != digest:  # another sweep read it before
            _cache = InputCache()
            del _checked[path]
        if path not in _checked:
            try:
                content = sha256(Path(path))
            except OSError as error:
                raise InputError(f"input {name} cannot be read: {error.strerror}", path=path) from None
            if content != digest:
                remedy = "restore it, or begin a new sweep"
                raise InputError(f"input {name} has changed since the sweep began", path=path, remedy=remedy)
            _checked[path] = content
