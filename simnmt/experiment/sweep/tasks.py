"""The points of a sweep, all combinations of the values of its keys, and its tasks: each one replication of one point.

A task's key covers the resolved scenario of its point, the content of every file that the scenario reads, the replication and
the version of simnmt. So a task that has been finished need not run again, and one of another sweep is never mistaken for it.
All policies and points meet random numbers of the same keys (common random numbers), since points share the seed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from simnmt.base import VERSION
from simnmt.base.configuration import input_files
from simnmt.base.errors import InputError, SimnmtError, describe_error
from simnmt.experiment.cases import RunPlan, Unit
from simnmt.experiment.criteria import check_criteria
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.units import run_unit
from simnmt.results.requests import Engine
from simnmt.results.run_directory import sha256
from simnmt.results.summary import Row
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Override
from simnmt.scenario.source import Source
from simnmt.scenario.sweep_configuration import Sweep

_NOT_MADE = (
    Override.of(("gap_analysis",), False, "sweep"),
    Override.of(("profile_uncertainty",), None, "sweep"),
)
"""Parts of a run that a sweep leaves out at all points."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep."""

    number: int
    values: tuple[Any, ...]
    """Value of each swept key, as plain data."""
    scenario: ScenarioConfiguration
    """The scenario at this point, with absolute paths."""


def make_points(sweep: Sweep, source: Source, *, allow_code: bool = False) -> list[Point]:
    """Return all points of a sweep, each checked against the schema.

    The files that the values of a key name are read too, with the other keys at their first value. Raises `ScenarioError`, or
    the error of an input, which name the option of the value.
    """
    inputs, firsts = InputCache(), [key.values[0] for key in sweep.keys]
    for place, key in enumerate(sweep.keys):
        for node in key.values:
            nodes = [*firsts[:place], node, *firsts[place + 1 :]]
            overrides = [varied.override(value) for varied, value in zip(sweep.keys, nodes, strict=True)]
            scenario, document = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
            check_criteria(read_inputs(scenario, source.base, document, inputs), document)
    points = []
    for number, combination in enumerate(itertools.product(*(key.values for key in sweep.keys))):
        overrides = [key.override(node) for key, node in zip(sweep.keys, combination, strict=True)]
        scenario, _ = source.with_overrides([*_NOT_MADE, *overrides], allow_code=allow_code)
        points.append(Point(number, tuple(combination), scenario))
    return points


@dataclass(frozen=True, slots=True)
class Task:
    """One replication of one point."""

    digest: str
    """Of the point: scenario, inputs and version."""
    point: int
    replication: int
    scenario: ScenarioConfiguration
    inputs: Mapping[str, tuple[str, str]]
    """Path and SHA-256 of each file that the scenario reads, by its name there."""
    version: str = VERSION

    @property
    def key(self) -> str:
        """Name of the task's result."""
        return task_key(self.digest, self.replication)


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


def task_key(digest: str, replication: int) -> str:
    """Return the key of one replication of a point, which is the name of the file of its result."""
    return f"{digest[:40]}-{replication}"


def tasks_of_points(points: Sequence[Point], code_digests: Mapping[str, str]) -> tuple[list[Task], dict[int, str]]:
    """Return the tasks of all points, those of equal points once, and the digest of each point by its number.

    `code_digests`: of the files of a user's code.
    """
    digest_of_file = cache(sha256)
    tasks: dict[str, list[Task]] = {}
    digests = {}
    for point in points:
        files = input_files(point.scenario, Path.cwd())
        inputs = {name: (str(path), digest_of_file(path)) for name, path in files.items()}
        contents = {name: content for name, (_, content) in inputs.items()} | dict(code_digests)
        decisive = {"simnmt": VERSION, "scenario": point.scenario.document(), "inputs": dict(sorted(contents.items()))}
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
        digests[point.number] = digest
        replications = range(point.scenario.replications)
        tasks.setdefault(digest, [Task(digest, point.number, number, point.scenario, inputs) for number in replications])
    return [task for of_point in tasks.values() for task in of_point], digests


def run_task(task: Task, engine: Engine | None = None) -> TaskResult:
    """Run a task in this process; an error is its result."""
    try:
        if task.version != VERSION:
            raise InputError(f"this worker has simnmt {VERSION}, and the sweep is of {task.version}")
        plan = _plan_of(task)
        runs: list[Row] = []
        for case in plan.cases.values():
            for network, links in plan.networks.items():
                unit = Unit(plan.scenario, case, network, links, task.replication, engine=engine, keeps_requests=False)
                for (workload, network_name, policy), numbers in run_unit(unit).numbers.items():
                    # Without numpy's types, since results travel as JSON.
                    plain = {name: None if value is None else float(value) for name, value in numbers.items()}
                    runs.append({"workload": workload, "network": network_name, "policy": policy, "numbers": plain})
        open_loops = tuple(case.name for case in plan.cases.values() if case.arrivals.discipline == "open")
        return TaskResult(task.key, task.point, task.replication, open_loops, tuple(runs))
    except Exception as error:
        line = str(error) if isinstance(error, SimnmtError) else f"{type(error).__name__}: {describe_error(error)}"
        return TaskResult(task.key, task.point, task.replication, error=line, trace=traceback.format_exc())


_cache = InputCache()
_contents: dict[str, str] = {}
"""SHA-256 of each file, by its path, when this process read it into `_cache`."""
_plans: dict[str, RunPlan] = {}
"""The inputs of the last point, by its digest: its replications follow each other."""


def _plan_of(task: Task) -> RunPlan:
    """Return the inputs of a task. Raises `InputError` for a file with another content than at the begin of the sweep."""
    global _cache
    if task.digest not in _plans:
        _plans.clear()
        if any(_contents.get(path, digest) != digest for path, digest in task.inputs.values()):
            _cache = InputCache()  # another sweep read it before
            _contents.clear()
        for name, (path, digest) in task.inputs.items():
            if path not in _contents:
                content = sha256(Path(path))
                if content != digest:
                    remedy = "restore it, or begin a new sweep"
                    raise InputError(f"input {name} has changed since the sweep began", path=path, remedy=remedy)
                _contents[path] = content
        _plans[task.digest] = read_inputs(task.scenario, Path.cwd(), cache=_cache)
    return _plans[task.digest]
