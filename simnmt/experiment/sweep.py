"""Run a scenario at many points of its keys, and gather the numbers in one table; a sweep that was stopped goes on.

The folder of a sweep:

    sweep.json            what is swept, by which version of simnmt, and the SHA-256 of all inputs
    scenario.input.yaml   the scenario as given
    points/NUMBER.json    the rows of one point
    failed.json           errors of the points that failed at the last attempt
    sweep.parquet         the table, once all points have ended
    sweep.html            its page

Each file is written whole, and a point that has its file does not run again. All policies and points meet random numbers of the
same keys (common random numbers), since points share the seed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from math import inf
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from simnmt.base import VERSION, files
from simnmt.base.configuration import checked_dataclass, input_files
from simnmt.base.errors import InputError, SimnmtError, describe_error
from simnmt.experiment.criteria import check_criteria
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.processes import Answers, answers_of, run_here, run_in_processes, run_on_cluster, worthwhile_processes
from simnmt.experiment.run import Progress, goal_of, in_order, places_of, roles_of, summarise, units_of
from simnmt.experiment.units import expected_s, run_unit
from simnmt.results.metrics import metric, metric_of_column, objective_metric
from simnmt.results.places import Place, by_cell, by_world
from simnmt.results.recommendation import recommend
from simnmt.results.requests import Engine
from simnmt.results.run_directory import INPUT, sha256
from simnmt.results.statistics import Estimate, change_percent, interval_columns
from simnmt.results.summary import Row, Runs
from simnmt.results.sweep_table import (
    BEST,
    BOUND,
    EQUAL,
    HEADER,
    POINT,
    TABLE,
    TIED,
    UNSTABLE,
    WORSE,
    SweepTable,
    write_table,
)
from simnmt.scenario.configuration import ScenarioConfiguration
from simnmt.scenario.document import Document, Override
from simnmt.scenario.errors import format_location
from simnmt.scenario.source import Source, describe_separate_runs
from simnmt.scenario.varied_keys import VariedKey
from simnmt.world.structures import library

POINTS, FAILED = "points", "failed.json"
FORMAT = 5
"""Version of the folder's form."""
NOT_MADE = (Override.of(("gap_analysis",), False, "sweep"), Override.of(("profile_uncertainty",), None, "sweep"))
"""Parts of a run that a sweep leaves out at all points."""


class SweepFolderError(InputError):
    """A folder that holds no sweep, or one that cannot go on."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a sweep."""

    number: int
    values: tuple[Any, ...]
    scenario: ScenarioConfiguration
    inputs: tuple[tuple[str, str], ...] = ()
    """Path and SHA-256 of each file that the sweep reads, users' code included."""
    version: str = VERSION


@dataclass(frozen=True, slots=True)
class PointResult:
    """The rows of one point, or the error that ended it."""

    point: int
    rows: tuple[Row, ...] = ()
    """A row for each place, without the swept keys; metrics in their units."""
    metrics: tuple[str, ...] = ()
    error: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """A sweep that has ended, with its table and the points that failed."""

    directory: Path
    table: SweepTable
    points: int
    failures: list[PointResult]
    ran: int
    """Points that ran now; the others had been finished before."""

    def document(self) -> dict[str, Any]:
        """Return the content of `--json`."""
        return {
            "directory": str(self.directory),
            "points": self.points,
            "points_run": self.ran,
            **{name: getattr(self.table, name) for name in ("keys", "objective", "rows")},
            "failures": [{"point": failure.point, "error": failure.error} for failure in self.failures],
        }


def make_points(keys: Sequence[VariedKey], source: Source, *, allow_code: bool = False) -> list[Point]:
    """Return all points of a sweep, each checked against the schema.

    The files that the values of a key name are read too, with the other keys at their first value. Raises `ScenarioError`, or
    the error of an input, which name the option of the value.
    """

    def with_values(values: Sequence[Any]) -> tuple[ScenarioConfiguration, Document]:
        varied = [key.override(value) for key, value in zip(keys, values, strict=True)]
        return source.with_overrides([*NOT_MADE, *varied], allow_code=allow_code)

    inputs, firsts = InputCache(), [key.values[0] for key in keys]
    for place, key in enumerate(keys):
        for value in key.values:
            scenario, document = with_values([*firsts[:place], value, *firsts[place + 1 :]])
            check_criteria(read_inputs(scenario, source.base, document, inputs), document)
    combinations = itertools.product(*(key.values for key in keys))
    return [Point(number, values, with_values(values)[0]) for number, values in enumerate(combinations)]


def run_point(point: Point, engine: Engine | None = None, jobs: int = 1) -> PointResult:
    """Run all replications of a point, in this process or on `jobs` others; an error is its result."""
    try:
        if point.version != VERSION:
            raise InputError(f"this worker has simnmt {VERSION}, and the sweep is of {point.version}")
        for path, digest in point.inputs:
            status = Path(path).stat()
            if _digest(path, status.st_size, status.st_mtime_ns) != digest:
                raise InputError("an input that has changed since the sweep began", path=path, remedy="restore it")
        plan = read_inputs(point.scenario, Path.cwd(), cache=_cache_of(point.inputs))
        units = units_of(plan, engine, keeps_requests=False)
        results = answers_of(run_unit, units, jobs)
        runs = in_order(plan.scenario, units, results)
        summary = summarise(plan, runs, results)
        rows: list[Row] = []
        worlds = by_world(summary)
        for cell, of_cell in by_cell(summary).items():
            _, *parts = worlds.get(cell, {cell: of_cell}).values()
            for row, standing in zip(of_cell, _standings(point.scenario, of_cell, runs, parts), strict=True):
                place = {name: row[name] for name in (*Place._fields, "replications", "requests")}
                rows.append(place | standing | _with_metrics(row))
        columns = dict.fromkeys(name for row in summary for name in row)
        names = [known.name for known in map(metric_of_column, columns) if known is not None]
        known = tuple(name for name in names if any(row.get(name) is not None for row in rows))
        return PointResult(point.number, tuple(rows), known)
    except Exception as error:
        return _failed(point, error)


def _failed(point: Point, error: BaseException) -> PointResult:
    line = str(error) if isinstance(error, SimnmtError) else f"{type(error).__name__}: {describe_error(error)}"
    return PointResult(point.number, error=line, trace="".join(traceback.format_exception(error)))


@lru_cache(maxsize=1024)
def _digest(path: str, size: int, changed_ns: int) -> str:
    return sha256(Path(path))


@lru_cache(maxsize=1)
def _cache_of(inputs: tuple[tuple[str, str], ...]) -> InputCache:
    """Return what this process has read of the files of the last sweep."""
    return InputCache()


def run_points(
    points: Sequence[Point], jobs: int | None, engine: Engine | None, cluster: str | None = None
) -> Answers[PointResult]:
    """Yield the results of points as they end: several points at once, or, if they are few, the units of one after the other.

    Args:
        points: what to run.
        jobs: processes; None: as many as save time.
        engine: of the world; None: the compiled one where it covers a unit.
        cluster: address of a Dask scheduler whose workers run the points; None: this machine runs them.
    """
    run = partial(run_point, engine=engine)
    if cluster is not None:
        return run_on_cluster(run, points, cluster, _failed)
    library()  # warns here, and not in every process, if it cannot be used
    scenarios = [point.scenario for point in points]
    units = [len(scenario.workloads) * len(scenario.networks) * scenario.replications for scenario in scenarios]
    if jobs is None:
        work_s = sum(expected_s(scenario, engine) * count for scenario, count in zip(scenarios, units, strict=True))
        jobs = worthwhile_processes(work_s)
    if len(points) < min(jobs, max(units, default=0)):
        return run_here(partial(run, jobs=jobs), points)
    return run_in_processes(run, points, jobs, _failed) if jobs > 1 else run_here(run, points)


def is_sweep_folder(path: Path) -> bool:
    """Return whether a folder holds a sweep, finished or not."""
    return os.path.isfile(path / HEADER)  # noqa: PTH113 - Path.is_file raises for a name that no file can have


def run_sweep(
    keys: Sequence[VariedKey],
    overrides: Sequence[Override],
    source: Source,
    folder: Path,
    execute: Callable[[Sequence[Point]], Answers[PointResult]],
    progress: Progress | None = None,
    *,
    announce: Callable[[str], None] = lambda line: None,
    allow_code: bool = False,
) -> SweepResult:
    """Run the points of a sweep that are not finished yet, and write its table (`simnmt.sweep`).

    `source`: the scenario with the overrides that hold at all points; `execute`: runs the points (`run_points`).
    Raises the errors of `make_points`, and `SweepFolderError` for a folder of something else, all before anything runs.
    """
    points = make_points(keys, source, allow_code=allow_code)
    paths = dict.fromkeys(str(path) for point in points for path in input_files(point.scenario, Path.cwd()).values())
    inputs = {path: sha256(Path(path)) for path in paths} | source.code_digests
    header = {
        "format": FORMAT,
        "simnmt": VERSION,
        "base": str(source.base),
        "overrides": [[list(override.location), override.value] for override in overrides],
        "keys": [[list(key.location), list(key.values)] for key in keys],
        "inputs": {INPUT: hashlib.sha256(source.text).hexdigest(), **inputs, **source.packages},
    }
    _open_folder(folder, header, source.text)
    announce(f"sweep folder: {folder} (if it stops: simnmt sweep {folder})")
    if separate := describe_separate_runs(source.scenario):
        announce(separate)
    scenario, objective = source.scenario, source.scenario.objective
    for workload, minimised in scenario.objectives.items():
        if len(scenario.workloads) == 1:
            objective = minimised
        elif not scenario.shares_devices:
            announce(f"the policies of {workload} are judged by its own objective, {minimised}")
    results = {point.number: _read_result(folder / POINTS / f"{point.number}.json", point) for point in points}
    waiting = [replace(point, inputs=tuple(inputs.items())) for point in points if results[point.number] is None]
    failures, done = [], len(points) - len(waiting)
    if progress is not None:
        progress(done, len(points))
    with closing(execute(waiting)) as ended:
        for number, (_, result) in enumerate(ended, start=done + 1):
            if result.error:
                failures.append(result)
            else:
                _write_json(folder / POINTS / f"{result.point}.json", asdict(result))
                results[result.point] = result
            if progress is not None:
                progress(number, len(points))
    failures.sort(key=lambda result: result.point)
    _write_json(folder / FAILED, [asdict(result) for result in failures])
    names = [key.name for key in keys]
    finished = [(point, known) for point in points if (known := results[point.number]) is not None]
    table = SweepTable(
        name=source.scenario.name,
        seed=source.scenario.seed,
        objective=objective_metric(objective).name,
        keys=tuple(names),
        metrics=tuple(map(metric, dict.fromkeys(name for _, result in finished for name in result.metrics))),
        rows=[
            {POINT: point.number, **dict(zip(names, point.values, strict=True))} | row
            for point, result in finished
            for row in result.rows
        ],
        failed=len(points) - len(finished),
    )
    write_table(folder / TABLE, table)
    return SweepResult(folder, table, len(points), failures, len(waiting))


@dataclass(frozen=True, slots=True)
class _Header:
    """Content of sweep.json; the values are those of a scenario, which checks them."""

    format: int
    simnmt: str
    base: str
    overrides: list[tuple[list[str], Any]]
    keys: Annotated[list[tuple[list[str], Annotated[list[Any], Field(min_length=1)]]], Field(min_length=1)]
    inputs: dict[str, str]


def _read_header(folder: Path) -> _Header:
    try:
        content = json.loads(files.read_bounded(folder / HEADER))
        form, version = content["format"], content["simnmt"]
        if (form, version) == (FORMAT, VERSION):
            return checked_dataclass(_Header, content)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise SweepFolderError(f"no sweep: {HEADER} is missing or damaged", path=folder, remedy="begin a new sweep") from None
    what = f"a sweep that simnmt {version} began in format {form}, and this is simnmt {VERSION} with format {FORMAT}"
    raise SweepFolderError(what, path=folder, remedy="use that version, or begin a new sweep")


def read_sweep_folder(folder: Path) -> tuple[list[VariedKey], list[Override], Path]:
    """Return the swept keys and the overrides of a folder, and where relative paths of its scenario start.

    Raises `SweepFolderError`, also for a sweep of another version.
    """
    header = _read_header(folder)
    overrides = [Override.of(place, value, f"--set {format_location(tuple(place))}") for place, value in header.overrides]
    keys = [VariedKey(tuple(place), f"--grid {format_location(tuple(place))}", tuple(values)) for place, values in header.keys]
    return keys, overrides, Path(header.base)


def _open_folder(folder: Path, header: dict[str, Any], scenario: bytes) -> None:
    """Make the folder of a sweep, or check that it holds the same sweep: sweep.json has what it takes to go on with it."""
    if is_sweep_folder(folder):
        recorded = asdict(_read_header(folder))
        for name, digest in recorded["inputs"].items():
            if name != INPUT and header["inputs"].get(name, digest) != digest:
                what = f"input {name} has changed since the sweep began"
                raise SweepFolderError(what, path=folder, remedy="restore it, or begin a new sweep")
        if recorded != json.loads(json.dumps(header)):
            remedy = f"go on with it: simnmt sweep {folder}, or choose another --out"
            raise SweepFolderError("another sweep is there", path=folder, remedy=remedy)
    else:
        try:
            with files.made_folder(folder):
                if any(folder.glob("[!.]*")):  # a killed start leaves a partial file, whose name begins with a dot
                    what = "the folder holds something else than a sweep"
                    raise SweepFolderError(what, path=folder, remedy="choose another --out")
                _write_json(folder / HEADER, header)
        except OSError as error:
            if error.errno in files.NO_ROOM:
                raise
            raise SweepFolderError(f"cannot be written: {error.strerror}", path=folder, remedy="choose another --out") from None
    with files.written_whole(folder / INPUT) as partial:
        partial.write_bytes(scenario)
    (folder / POINTS).mkdir(exist_ok=True)


def _write_json(path: Path, content: Any) -> None:
    with files.written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _read_result(path: Path, point: Point) -> PointResult | None:
    """Return the stored result of a point; None if there is none, or if it is damaged."""
    try:
        result = checked_dataclass(PointResult, json.loads(files.read_bounded(path)))
        places = [Place.of(row) for row in result.rows]
        known = [metric(name).name for name in result.metrics]
        is_whole = result.point == point.number and not result.error and places == places_of(point.scenario) and known
    except (OSError, ValueError, TypeError, KeyError, RecursionError, InputError):
        return None
    return result if is_whole else None


def _standings(
    scenario: ScenarioConfiguration, of_cell: Sequence[Row], runs: Runs, parts: Iterable[Sequence[Row]]
) -> Iterator[Row]:
    """Yield, for each policy, its standing and its paired changes of the objective, percent.

    They are against the best policy, and against the best policy that sends every request to one device.
    """
    roles, goal = roles_of(scenario), goal_of(scenario)
    recommended = recommend(of_cell, runs, roles, goal, parts=parts)
    column, best = objective_metric(recommended["objective"]).column, recommended["policy"]
    standings = {
        **dict.fromkeys(recommended["indistinguishable"], TIED),
        **dict.fromkeys(recommended["as_good"], EQUAL),
        best: BEST,
        **{row["policy"]: UNSTABLE for row in of_cell if row["unstable"]},
        **{row["policy"]: BOUND for row in of_cell if row["policy"] not in roles.deployable},
    }

    def change(row: Row, baseline: str | None) -> Estimate | None:
        ours, theirs = (
            [run.get(column) for run in runs.get(Place.of(row, name or ""), ())] for name in (row["policy"], baseline)
        )
        return change_percent(ours, theirs) if theirs and None not in (*ours, *theirs) else None  # type: ignore[arg-type]

    for row in of_cell:
        policy = row["policy"]
        yield {
            "standing": standings.get(policy, WORSE),
            "slo_met": float(not row["unstable"] and policy not in recommended["slo_missed_by"])
            if recommended["slo"]
            else None,
            **interval_columns("above_best_percent", None if policy == best else change(row, best)),
            **interval_columns("over_fixed_percent", change(row, recommended["best_fixed"])),
        }


def _with_metrics(row: Row) -> Row:
    """Return a row with its metrics in their units in place of the summary's columns."""
    changed: Row = {}
    for name, value in row.items():
        column = name.removesuffix("_low").removesuffix("_high")
        if known := metric_of_column(column):
            name = f"{known.name}{name.removeprefix(column)}"
            value = None if value is None else min(value * known.per_si_unit, known.most or inf)
        changed[name] = value
    return changed
