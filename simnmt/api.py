"""The public functions of the library: run, sweep, plan, compare and load, with run directories."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from simnmt.base import VERSION
from simnmt.base.configuration import input_files
from simnmt.base.errors import InputError
from simnmt.base.packages import library_versions, named_if_missing
from simnmt.experiment.cases import RunPlan
from simnmt.experiment.criteria import check_assertion, check_criteria, with_metrics
from simnmt.experiment.inputs import read_inputs
from simnmt.experiment.run import Progress, run_plan
from simnmt.report.notebook import Run, notebook_progress
from simnmt.results import run as results
from simnmt.results import run_directory as files
from simnmt.results.comparison import Comparison, compare_runs
from simnmt.results.metrics import Assertion
from simnmt.results.requests import Engine
from simnmt.scenario.document import Override, overrides_of_call, read_document
from simnmt.scenario.source import Source, open_source
from simnmt.scenario.varied_keys import VariedKey, check_grid, parse_varied_keys
from simnmt.scenario.yaml_text import write_document

if TYPE_CHECKING:
    import pandas as pd

    from simnmt.experiment.capacity import Capacities
    from simnmt.experiment.deployment import DeploymentPlan, Minimised
    from simnmt.experiment.sweep import SweepResult
    from simnmt.live.replay import ReplaySettings
    from simnmt.workload.arrivals.traffic import Peak


class Scenario:
    """A scenario that has been read and checked, to be looked at, changed and run.

    Example:
        >>> scenario = simnmt.Scenario("@quickstart")  # doctest: +SKIP
        >>> result = simnmt.run(scenario.changed("requests=1000"))  # doctest: +SKIP
    """

    __slots__ = ("_given", "_overrides", "allow_code", "source")

    def __init__(
        self,
        given: str | os.PathLike[str] | Mapping[str, object],
        overrides: Iterable[str | Override] = (),
        *,
        allow_code: bool = False,
    ) -> None:
        """Read and check a scenario; the arguments and errors are those of `run`."""
        self._given, self._overrides, self.allow_code = given, overrides_of_call(overrides), allow_code
        self.source = open_source(given, self._overrides, allow_code=allow_code)
        """The scenario as it was checked."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.source.scenario.name

    def document(self) -> dict[str, Any]:
        """Return all keys with their values, defaults included, as plain data."""
        return self.source.scenario.document()

    def changed(self, *overrides: str | Override) -> Scenario:
        """Return the scenario with further overrides, such as `"policies.cnmt.len_slope=0.8"`."""
        return Scenario(self._given, [*self._overrides, *overrides], allow_code=self.allow_code)

    def __repr__(self) -> str:
        """Return the scenario as YAML."""
        return self.source.resolved_text


@named_if_missing()
def load(directory: str | os.PathLike[str]) -> Run:
    """Return a finished run from its directory. Raises `InputError` for a folder that is no run directory.

    Example:
        >>> simnmt.load("results/quickstart-20260701-101500").best()["policy"]  # doctest: +SKIP
        'cnmt'
    """
    path = Path(directory)
    files.read_manifest(path)
    return Run(**vars(files.load_run(path, read_document(path / files.RESOLVED, files.REMEDY).data)))


@named_if_missing()
def compare(*runs: Run | str | os.PathLike[str]) -> Comparison:
    """Compare runs with the first one: keys of the scenarios that differ, and changes of latency with their intervals.

    Differences are paired where both runs issue the same requests. `runs`: results, loaded runs or run directories, at least
    two. Raises `InputError`.

    Example:
        >>> comparison = simnmt.compare("near", simnmt.run("@quickstart"))  # doctest: +SKIP
        >>> comparison.rows[["policy", "change_percent", "effect"]]  # doctest: +SKIP
    """
    for run in runs:
        if not isinstance(run, (results.Run, str, os.PathLike)):
            what = f"compare: a {type(run).__name__} is no run"
            raise InputError(what, remedy="give results or run directories, one argument each")
    return compare_runs([run if isinstance(run, results.Run) else load(run) for run in runs])


def check_jobs(jobs: int | None) -> None:
    """Raise `InputError` for what is no number of processes; None stands for as many as save time."""
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, Integral) or jobs < 1):
        raise InputError(f"jobs: {jobs!r} is no number of processes", remedy="give a whole number from 1")


def open_scenario(
    scenario: str | os.PathLike[str] | Mapping[str, object] | Scenario,
    overrides: Iterable[str | Override],
    *,
    allow_code: bool,
    **values: Any,
) -> Scenario:
    """Return a scenario with overrides, and with `values` of keys that are not None, checked."""
    given = overrides_of_call(overrides, **values)
    return scenario.changed(*given) if isinstance(scenario, Scenario) else Scenario(scenario, given, allow_code=allow_code)


@named_if_missing()
def run(
    scenario: str | os.PathLike[str] | Mapping[str, object] | Scenario,
    *,
    out: str | os.PathLike[str] | None = None,
    under: str | os.PathLike[str] | None = None,
    overrides: Iterable[str | Override] = (),
    requests: int | None = None,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
    profile_uncertainty: int | None = None,
    engine: Engine | None = None,
    assertions: Iterable[str] = (),
    allow_code: bool = False,
    force: bool = False,
) -> Run:
    """Run a scenario: a file's path, a shipped `@name`, a run directory, a mapping, or a `Scenario`.

    In a mapping, objects may have the places of shipped kinds: policies, arrivals, lengths, series, profiles and
    batchers. A run directory of such a run says which keys were objects; it cannot be repeated from its files.

    Args:
        scenario: what to run.
        out: also write a run directory there; `force`: replace one that is there, once the run has succeeded.
        under: also write a run directory in this folder, under a new name.
        overrides: texts such as `"policies.cnmt.len_slope=0.8"`.
        requests, replications, seed, profile_uncertainty: in place of the scenario's; of the latter, its `profiles`.
        jobs: processes; None: as many as save time, at most one per processor. Unless it is 1, a script must call this below
            `if __name__ == "__main__":`.
        progress: called with the number of finished units and of all units; None: a bar in a notebook.
        engine: of the world; None: the compiled one for policies that it covers. Both give the same bytes.
        assertions: requirements such as `"p95_ms<=300"` that the caller will give to `Run.assess`, checked before the run.
        allow_code: whether modules and files that the scenario names may run, such as `kind: "package.module:MyPolicy"`.

    Raises `simnmt.base.errors.InputError` for any fault of the input.

    Example:
        >>> result = simnmt.run("@quickstart", requests=1000, replications=2)
        >>> result.best(network="cp1")["policy"]
        'cnmt'
    """
    check_jobs(jobs)
    if engine not in (None, *get_args(Engine)):
        raise InputError(f"engine: unknown engine {engine!r}", remedy=f"give {' or '.join(get_args(Engine))}")
    numbers = {"requests": requests, "replications": replications, "seed": seed, "profile_uncertainty": profile_uncertainty}
    source = open_scenario(scenario, overrides, allow_code=allow_code, **numbers).source
    asserted = [Assertion.parse(text, source.scenario.policies, source.scenario.row_names) for text in assertions]

    def measure(inputs: RunPlan) -> results.Run:
        plan = with_metrics(inputs, asserted)
        check_criteria(plan, source.document)
        for assertion in asserted:
            check_assertion(plan, assertion)
        shown = progress or notebook_progress()
        return run_plan(plan, jobs=jobs, progress=shown, engine=engine)

    return _measured(source, measure, out, under, force)


@named_if_missing("live")
def replay(
    scenario: Scenario,
    settings: ReplaySettings,
    *,
    out: str | os.PathLike[str] | None = None,
    under: str | os.PathLike[str] | None = None,
    announce: Callable[[str], None] = lambda line: None,
    progress: Progress = lambda done, total: None,
    force: bool = False,
) -> Run:
    """Send a scenario's requests to a live gateway or server, and return what was measured.

    `settings`: where the service is; `announce`: called with a line on what is sent, before each replication; `progress`: with
    the number of requests that have ended and of all; the others as in `run`. Raises `InputError`, also for a service that
    does not answer.
    """
    from simnmt.live.replay import replay_plan

    measure = partial(replay_plan, settings=settings, announce=announce, progress=progress)
    return _measured(scenario.source, measure, out, under, force)


def _measured(
    source: Source,
    measure: Callable[[RunPlan], results.Run],
    out: str | os.PathLike[str] | None,
    under: str | os.PathLike[str] | None,
    force: bool,
) -> Run:
    """Return what was measured, also written as a run directory if one is asked for, whole or not at all."""
    from simnmt.report import render

    started = datetime.now(timezone.utc)
    place: AbstractContextManager[Path | None] = nullcontext(None if out is None else Path(out))
    if out is not None:
        files.check_free(Path(out), replace=force)
    elif under is not None:
        place = files.reserved(Path(under), source.scenario.name)
    with place as directory:
        plan = read_inputs(source.scenario, Path.cwd(), source.document)
        # Taken before the run: a file that changes meanwhile is not recorded as the one that was read.
        read = input_files(source.scenario, Path.cwd())
        inputs = {name: files.sha256(path) for name, path in read.items()} | source.code_digests
        result = Run(**{**vars(measure(plan)), "input_digests": inputs})
        if directory is None:
            return result
        with files.whole(directory, replace=force) as folder:
            (folder / files.INPUT).write_bytes(source.text)
            (folder / files.RESOLVED).write_text(write_document(result.scenario), encoding="utf-8")
            files.write_json(folder / files.SUMMARY, result.document())
            files.write_rows(folder / files.TABLE, result.summary_rows)
            files.write_requests(folder / results.REQUESTS, result.cells)
            (folder / files.PAGE).write_text(render(result), encoding="utf-8")
            outputs = {path.name: files.sha256(path) for path in sorted(folder.iterdir())}
            files.write_json(folder / files.MANIFEST, _manifest(result, source, started, outputs))
        return replace(result, directory=directory)


def _manifest(result: Run, source: Source, started: datetime, outputs: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of the run: the only file of a run directory that differs between repeats."""
    return {
        "simnmt": VERSION,
        "argv": sys.argv[1:],
        "seed": result.seed,
        "engines": result.engines,
        "engine_reasons": result.engine_reasons,
        "started": started.isoformat(timespec="seconds"),
        "duration_s": round((datetime.now(timezone.utc) - started).total_seconds(), 3),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "libraries": dict(library_versions()),
        **({} if result.live is None else {"live": asdict(result.live)}),
        files.PACKAGES: source.packages,
        files.DEVICES: {cell.workload: [asdict(device) for device in cell.devices] for cell in result.cells},
        files.REPLICATIONS: files.replications_document(result.replicated),
        "inputs": result.input_digests,
        "outputs": outputs,
    }


@named_if_missing()
def plan(
    scenario: str | os.PathLike[str] | Mapping[str, object] | Scenario,
    slo: str | Iterable[str] = (),
    *,
    rate: float | str | Peak | None = None,
    minimise: Minimised | None = None,
    vary: Iterable[str | VariedKey] = (),
    overrides: Iterable[str | Override] = (),
    requests: int | None = None,
    replications: int | None = None,
    seed: int | None = None,
    precision: float | None = None,
    certainty: float | None = None,
    jobs: int | None = 1,
    progress: Progress | None = None,
    allow_code: bool = False,
) -> Capacities | DeploymentPlan:
    """Return how many requests per second a deployment takes under a service level or, for a rate, the least deployment.

    Args:
        scenario, overrides, requests, replications, seed, allow_code: as in `run`.
        slo: requirements that all must hold, such as `"p95_ms<=300"`; empty: those of the scenario's `slo`.
        rate: requests per second of every workload, or of all together if they share devices; a text in another unit, such as
            `"5e6characters/day"` or `"2e6requests/month"`; or the `Peak` of a log, of which the answer says what it rests on.
            None: the highest one is found, of the scenario as it stands.
        minimise: what is to be least at that rate: `servers` (if None), `cost`, `energy` or `latency`.
        vary: keys with the values of the candidates, such as `"devices.cloud.count=1:8"`; empty: boxes of the last device.
        precision: without a rate, replications are added until the interval reaches no further than this share; None: 0.02.
        certainty: with a rate, probability from which a deployment counts as keeping the service level; None: 0.95.
        jobs: processes by which the highest rate is found; None: one per processor.
        progress: called with the number of finished policies or candidates, a part of one included, and of all.

    Raises `InputError` for any fault of the input, also for arrivals that have no rate.

    Example:
        >>> simnmt.plan("@load-sweep", "p95_ms<=300").best.rate_rps  # doctest: +SKIP
        >>> simnmt.plan("@load-sweep", "p95_ms<=300", rate=200).choice  # doctest: +SKIP
    """
    from simnmt.experiment.capacity import find_capacities
    from simnmt.experiment.deployment import find_deployment, rate_in_requests
    from simnmt.experiment.trial import opener
    from simnmt.workload.arrivals.traffic import Peak

    check_jobs(jobs)
    peak = None
    if isinstance(rate, Peak):
        peak, rate = rate, rate.rate_rps
    for name, number in {"rate": rate, "precision": precision, "certainty": certainty}.items():
        if not isinstance(number, Real | None) and not (name == "rate" and isinstance(number, str)):
            raise InputError(f"{name}: {number!r} is no number")
    keys = parse_varied_keys(vary)
    of_rate: dict[str, object] = {"minimise": minimise, "vary": keys or None, "certainty": certainty}
    for name, value in (of_rate if rate is None else {"precision": precision}).items():
        if value is not None:
            what = f"{name} has no effect {'without' if rate is None else 'with'} a rate"
            raise InputError(what, remedy=f"give no {name}")
    numbers = {"requests": requests, "replications": replications, "seed": seed}
    opened = open_scenario(scenario, overrides, allow_code=allow_code, **numbers)
    open_plan = opener(opened.source, [slo] if isinstance(slo, str) else slo, allow_code=opened.allow_code)
    if rate is None:
        precision = 0.02 if precision is None else precision
        return find_capacities(open_plan, precision=precision, jobs=jobs or os.cpu_count() or 1, progress=progress)
    if isinstance(rate, str):
        rate = rate_in_requests(rate, open_plan(()))
    certainty, minimised = 0.95 if certainty is None else certainty, minimise or "servers"
    answer = find_deployment(keys, open_plan, rate_rps=rate, minimised=minimised, certainty=certainty, progress=progress)
    if peak is None:
        return answer
    is_poisson = any(workload.arrivals.kind == "poisson" for workload in opened.source.scenario.workloads.values())
    doubts = [peak.doubt] if peak.doubt and is_poisson else []
    return replace(answer, sources=f"{answer.sources}; {peak.account}", warnings=[*answer.warnings, *doubts])


@named_if_missing()
def sweep(
    given: str | os.PathLike[str],
    *,
    grid: Sequence[str | VariedKey] = (),
    out: str | os.PathLike[str] | None = None,
    under: str | os.PathLike[str] = "reports",
    overrides: Iterable[str | Override] = (),
    requests: int | None = None,
    replications: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    allow_code: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> SweepResult:
    """Run a scenario at many points of its keys, and write their table; or go on with a sweep that stopped.

    Args:
        given: a scenario as in `run`, or the folder of a sweep, which goes on where it stopped.
        grid: swept keys, such as `"devices.cloud.count=1,2,4"` or `"workloads.de-en.arrivals.rate_rps=5:20:4"`.
        out, under: the folder to write; without `out` a new one in `under`.
        overrides, requests, replications, seed, jobs, engine, allow_code: as in `run`, the same at all points.
        cluster: address of a Dask scheduler, such as `"tcp://127.0.0.1:8786"`, whose workers run the points.
        progress: called with the number of finished points and of all points.
        announce: called with a line on the folder before the first point.

    Raises `InputError` for any fault of the input, before anything runs; `SimnmtError` for a cluster that is lost.

    Example:
        >>> result = simnmt.sweep("@open-loop", grid=["devices.cloud.workers=1,2"], jobs=1)  # doctest: +SKIP
        >>> result.table.keys  # doctest: +SKIP
        ('devices.cloud.workers',)
    """
    from simnmt.base.files import write_text
    from simnmt.experiment.sweep import is_sweep_folder, read_sweep_folder, run_points, run_sweep
    from simnmt.report.study_pages import render_sweep
    from simnmt.results.sweep_table import PAGE

    check_jobs(jobs)
    if cluster is not None:
        if re.fullmatch(r"(tcp|tls)://.+:\d+", cluster) is None:
            raise InputError(f"cluster {cluster}: no address of a scheduler", remedy="write tcp://HOST:PORT")
        with named_if_missing("cluster"):
            import_module("distributed")
    options = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)
    goes_on = is_sweep_folder(Path(given))
    if goes_on:
        if grid or options or out is not None:
            what = "a sweep goes on as it was begun, without further keys, values, numbers or another folder"
            raise InputError(what, remedy="begin a new sweep with them")
        keys, options, base = read_sweep_folder(Path(given))
        source = open_source(Path(given) / files.INPUT, options, allow_code=allow_code, base=base)
    else:
        keys = parse_varied_keys(grid)
        check_grid(keys, options)
        source = open_source(os.fspath(given), options, allow_code=allow_code)
    if goes_on or out is not None:
        place: AbstractContextManager[Path] = nullcontext(Path(given if out is None else out))
    else:
        place = files.reserved(Path(under), f"{source.scenario.name}-sweep")
    with place as folder:
        execute = partial(run_points, jobs=jobs, engine=engine, cluster=cluster)
        progress = progress or notebook_progress()
        result = run_sweep(keys, options, source, folder, execute, progress, announce=announce, allow_code=allow_code)
        write_text(folder / PAGE, render_sweep(result.table))
    return result


def load_sweep(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table of a finished sweep, a row for each point, cell and policy; `attrs["keys"]` are swept.

    Raises `InputError` for a folder without such a table.

    Example:
        >>> table = simnmt.load_sweep("reports/open-loop-sweep-20260701-101500")  # doctest: +SKIP
        >>> table.groupby("policy")["mean_latency_s"].min()  # doctest: +SKIP
    """
    from simnmt.results.sweep_table import read_frame

    return read_frame(Path(directory))
