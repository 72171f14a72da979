"""The public functions that decide: capacities and deployments under a service level, and sweeps over keys of a scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.api import Scenario, check_jobs, notebook_progress
from simnmt.base.errors import InputError
from simnmt.experiment.criteria import check_assertion, check_criteria, with_metrics
from simnmt.experiment.inputs import InputCache, read_inputs
from simnmt.experiment.run import Progress
from simnmt.experiment.sweep.execution import run_locally
from simnmt.experiment.sweep.run import Execute, SweepResult, run_sweep
from simnmt.experiment.sweep.store import is_sweep_folder, new_folder, read_header
from simnmt.results.requests import Engine
from simnmt.results.service_level import Assertion, Requirement
from simnmt.results.sweep_table import PAGE, SweepTable, read_frame
from simnmt.scenario.configuration import Scenario as Configured
from simnmt.scenario.document import Document, Override, overrides_of_call
from simnmt.scenario.source import Source, open_source
from simnmt.scenario.sweep_configuration import Sweep, read_sweep
from simnmt.scenario.varied_keys import VariedKey, parse_varied_key

if TYPE_CHECKING:
    import pandas as pd

    from simnmt.experiment.cases import RunPlan
    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.experiment.plan.deployment import DeploymentPlan
    from simnmt.experiment.plan.objectives import Minimised


def plan(
    scenario: str | os.PathLike[str] | Mapping[str, object] | Scenario,
    slo: str | Iterable[str] = (),
    *,
    rate: float | None = None,
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
        scenario, overrides, requests, replications, seed, allow_code: as of `run`.
        jobs: processes by which the highest rate is found; None: one per processor. The least deployment is found by one.
        slo: requirements that all must hold, such as `"p95_ms<=300"`; empty: those of the scenario's `slo`.
        rate: requests per second of every workload; None: the highest one is found, of the scenario as it stands.
        minimise: what is to be least at that rate: `servers` (if None), `cost`, `energy` or `latency`.
        vary: keys with the values of the candidates, such as `"devices.cloud.count=1:8"`; empty: boxes of the last device.
        precision: without a rate, replications are added, up to 20, until the interval reaches no further than this share;
            None: 0.02.
        certainty: with a rate, probability from which a deployment counts as keeping the service level, at most 0.999; None:
            0.95.
        progress: called with the number of finished policies or candidates, a part of one included, and of all.

    Raises `InputError` for any fault of the input, also for arrivals that have no rate.

    Example:
        >>> simnmt.plan("@load-sweep", "p95_ms<=300").best.rate_rps  # doctest: +SKIP
        >>> simnmt.plan("@load-sweep", "p95_ms<=300", rate=200).choice  # doctest: +SKIP
    """
    from simnmt.experiment.plan import deployment
    from simnmt.experiment.plan.candidates import Space, default_key
    from simnmt.experiment.plan.capacity import find_capacities
    from simnmt.experiment.plan.objectives import objective
    from simnmt.experiment.plan.sure_rate import find_sure_rate
    from simnmt.experiment.plan.trial import Level, check_rate

    precision, certainty = _shares_of_plan(jobs, rate, minimise, precision, certainty)
    requirements = [Requirement.parse(text) for text in ([slo] if isinstance(slo, str) else slo)]
    keys = [parse_varied_key(key) if isinstance(key, str) else key for key in vary]
    given = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)

    if isinstance(scenario, Scenario):
        source, allow_code = scenario.open(given), scenario._allow_code
    else:
        source = open_source(scenario, given, allow_code=allow_code)
    level = Level(requirements or source.scenario.requirements)
    if not level.requirements:
        raise InputError("no service level", remedy="give one as slo, such as 'p95_ms<=300', or in the scenario")
    asserted = [Assertion(requirement) for requirement in level.requirements]
    cache = InputCache()

    def opened(candidate: Configured, document: Document) -> RunPlan:
        inputs = with_metrics(read_inputs(candidate, Path.cwd(), document, cache), asserted)
        for workload in inputs.cases:
            check_rate(inputs, workload, document)
        return inputs

    def open_plan(further: Iterable[Override]) -> RunPlan:
        candidate, document = source.with_overrides(further, allow_code=allow_code)
        return opened(candidate, document)

    inputs = opened(source.scenario, source.document)
    check_criteria(inputs, source.document)
    for assertion in asserted:
        check_assertion(inputs, assertion)
    if rate is None:
        if keys:
            raise InputError("keys are varied to find the least deployment for a rate", remedy="give a rate, or vary no keys")
        capacities = find_capacities(inputs, level, precision=precision, jobs=jobs or os.cpu_count() or 1, progress=progress)
        return replace(capacities, sure=find_sure_rate(inputs, capacities, level, open_plan))
    if not 0.0 < rate < 1e9:
        raise InputError(f"a rate of {rate:g} requests/s", remedy="give a number above 0")
    warning = ""
    if not keys:
        key, warning = default_key(inputs, rate)
        keys = [key]
    return deployment.find_deployment(
        Space(keys, open_plan, rate),
        open_plan,
        level,
        objective(minimise or "servers", source.scenario),
        rate_rps=rate,
        certainty=certainty,
        progress=progress,
        warnings=[warning] if warning else [],
    )


def _shares_of_plan(
    jobs: int | None, rate: float | None, minimise: Minimised | None, precision: float | None, certainty: float | None
) -> tuple[float, float]:
    """Return the precision and the certainty of a plan. Raises `InputError` for arguments that have no effect together."""
    check_jobs(jobs)
    for name, value in (("minimise", minimise), ("certainty", certainty)):
        if rate is None and value is not None:
            raise InputError(f"{name} is of the least deployment for a rate", remedy=f"give a rate, or no {name}")
    if rate is not None and precision is not None:
        raise InputError("precision is of the highest rate, and a rate is given", remedy="leave one of them out")
    precision, certainty = 0.02 if precision is None else precision, 0.95 if certainty is None else certainty
    if not 0.0 < precision < 1.0 or not 0.0 < certainty < 1.0:
        raise InputError("precision and certainty are shares above 0 and below 1", remedy="give 0.02 and 0.95")
    if certainty > 0.999:
        raise InputError(f"a certainty of {certainty:.12g} takes thousands of runs", remedy="give 0.999 or less")
    return precision, certainty


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
    local_if_cluster_fails: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
    allow_code: bool = False,
    announce: Callable[[str], None] = lambda line: None,
) -> SweepResult:
    """Run a scenario at many points of its keys, and write their table; or go on with a sweep that stopped.

    Args:
        given: a sweep file, a scenario as of `run`, or the folder of a sweep, which goes on where it stopped.
        grid: swept keys, such as `"devices.cloud.count=1,2,4"` or `"workloads.de-en.arrivals.rate_rps=5:20:4"`.
        out: the folder to write; None: a new one in `under`.
        under: where a new folder is made.
        overrides, requests, replications, seed, engine, allow_code: as of `run`, the same at all points.
        jobs: processes; None: as many as save time. Unless it is 1, a script must call this below
            `if __name__ == "__main__":`.
        cluster: the address of a Dask scheduler, on this machine or with TLS (docs/how-to/run-on-a-cluster.md).
        local_if_cluster_fails: whether this machine runs what a cluster that fails leaves.
        progress: called with the number of finished tasks and of all tasks.
        announce: called with a line on the folder before the first task, and on a cluster that failed.

    Raises `InputError` for any fault of the input, before anything runs; `SimnmtError` for a cluster that is lost.

    Example:
        >>> result = simnmt.sweep("@open-loop", grid=["devices.cloud.workers=1,2"], jobs=1)  # doctest: +SKIP
        >>> result.table.keys  # doctest: +SKIP
        ('devices.cloud.workers',)
    """
    execute = _execution(jobs, cluster, local_if_cluster_fails, engine, announce)
    progress = progress or notebook_progress()
    folder = Path(given)
    if is_sweep_folder(folder):
        _refuse_more(grid, out, overrides, requests, replications, seed)
        header = read_header(folder)
        plan = header.sweep(folder)
        source = open_source(plan.scenario, plan.overrides, allow_code=allow_code, base=Path(header.base))
        return _swept(plan, source, folder, execute, progress, announce, allow_code)
    options = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)
    plan = read_sweep(os.fspath(given), grid, options)
    source = open_source(plan.scenario, plan.overrides, allow_code=allow_code)
    folder = new_folder(Path(under), f"{source.scenario.name}-sweep") if out is None else Path(out)
    return _swept(plan, source, folder, execute, progress, announce, allow_code)


def _swept(
    plan: Sweep,
    source: Source,
    folder: Path,
    execute: Execute,
    progress: Progress | None,
    announce: Callable[[str], None],
    allow_code: bool,
) -> SweepResult:
    """Run a sweep and write its page beside the table."""
    from simnmt.report.sweep_page import write_sweep_page

    def finish(table: SweepTable) -> None:
        write_sweep_page(folder / PAGE, table)

    return run_sweep(plan, source, folder, execute, progress, announce=announce, finish=finish, allow_code=allow_code)


def _execution(
    jobs: int | None,
    cluster: str | None,
    local_if_cluster_fails: bool,
    engine: Engine | None,
    announce: Callable[[str], None],
) -> Execute:
    """Return what runs the tasks of a sweep."""
    check_jobs(jobs)
    if cluster is None:
        if local_if_cluster_fails:
            raise InputError("local_if_cluster_fails: there is no cluster", remedy="give a cluster, or leave it out")
        return lambda tasks: run_locally(tasks, jobs, engine)
    from simnmt.experiment.sweep.cluster import check_address, run_on_cluster, run_on_cluster_or_here

    address = check_address(cluster)
    if local_if_cluster_fails:
        return lambda tasks: run_on_cluster_or_here(tasks, address, jobs, engine, announce)
    return lambda tasks: run_on_cluster(tasks, address, engine)


def load_sweep(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table of a finished sweep: a row for each point, workload, network and policy.

    The columns are `point`, the swept keys, and those of a run's summary; `attrs["keys"]` names the swept keys. Raises
    `InputError` for a folder without such a table, and for one of another version.

    Example:
        >>> table = simnmt.load_sweep("reports/open-loop-sweep-20260701-101500")  # doctest: +SKIP
        >>> table.groupby("policy")["mean_latency_s"].min()  # doctest: +SKIP
    """
    return read_frame(Path(directory))


def _refuse_more(*options: object) -> None:
    """Refuse options that change a sweep which goes on."""
    if any(option not in (None, (), []) for option in options):
        what = "a sweep goes on as it was begun, without further keys, values, numbers or another folder"
        raise InputError(what, remedy="begin a new sweep with them")
