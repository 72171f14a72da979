"""The public functions of studies of many runs: plans of a deployment, sweeps, and tables of sweeps."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

from simnmt.api import Scenario, check_jobs, notebook_progress, open_scenario
from simnmt.base.errors import InputError
from simnmt.experiment.processes import check_address
from simnmt.experiment.run import Progress
from simnmt.experiment.sweep import SweepResult, is_sweep_folder, read_sweep_folder, run_sweep, run_tasks
from simnmt.results.requests import Engine
from simnmt.results.run_directory import reserved
from simnmt.results.sweep_table import PAGE, read_frame
from simnmt.scenario.document import Override, overrides_of_call
from simnmt.scenario.source import open_source
from simnmt.scenario.varied_keys import VariedKey, parse_varied_keys, read_sweep

if TYPE_CHECKING:
    import pandas as pd

    from simnmt.experiment.plan.capacity import Capacities
    from simnmt.experiment.plan.deployment import DeploymentPlan, Minimised


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
        slo: requirements that all must hold, such as `"p95_ms<=300"`; empty: those of the scenario's `slo`.
        rate: requests per second of every workload; None: the highest one is found, of the scenario as it stands.
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
    from simnmt.experiment.plan.basis import opener, parse_level
    from simnmt.experiment.plan.capacity import find_capacities
    from simnmt.experiment.plan.deployment import find_deployment

    check_jobs(jobs)
    for name, number in {"rate": rate, "precision": precision, "certainty": certainty}.items():
        if not isinstance(number, Real | None):
            raise InputError(f"{name}: {number!r} is no number")
    keys = parse_varied_keys(vary)
    of_rate = {"minimise": minimise, "vary": keys or None, "certainty": certainty}
    for name, value in (of_rate if rate is None else {"precision": precision}).items():
        if value is not None:
            what = f"{name} has no effect {'without' if rate is None else 'with'} a rate"
            raise InputError(what, remedy=f"give no {name}")
    numbers = {"requests": requests, "replications": replications, "seed": seed}
    opened = open_scenario(scenario, overrides, allow_code=allow_code, **numbers)
    level = parse_level([slo] if isinstance(slo, str) else slo, opened.source)
    open_plan = opener(opened.source, level, allow_code=opened.allow_code)
    if rate is None:
        precision = 0.02 if precision is None else precision
        return find_capacities(open_plan, level, precision=precision, jobs=jobs or os.cpu_count() or 1, progress=progress)
    certainty, minimised = 0.95 if certainty is None else certainty, minimise or "servers"
    return find_deployment(keys, open_plan, level, rate_rps=rate, minimised=minimised, certainty=certainty, progress=progress)


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
        given: a sweep file, a scenario as of `run`, or the folder of a sweep, which goes on where it stopped.
        grid: swept keys, such as `"devices.cloud.count=1,2,4"` or `"workloads.de-en.arrivals.rate_rps=5:20:4"`.
        out: the folder to write; None: a new one in `under`.
        under: where a new folder is made.
        overrides, requests, replications, seed, engine, allow_code: as of `run`, the same at all points.
        jobs: processes; None: as many as save time. Unless it is 1, a script must call this below
            `if __name__ == "__main__":`.
        cluster: the address of a Dask scheduler, on this machine or with TLS (docs/reference/sweep.md#run-it-on-a-cluster).
        progress: called with the number of finished tasks and of all tasks.
        announce: called with a line on the folder before the first task.

    Raises `InputError` for any fault of the input, before anything runs; `SimnmtError` for a cluster that is lost.

    Example:
        >>> result = simnmt.sweep("@open-loop", grid=["devices.cloud.workers=1,2"], jobs=1)  # doctest: +SKIP
        >>> result.table.keys  # doctest: +SKIP
        ('devices.cloud.workers',)
    """
    from simnmt.report.page_template import write_page
    from simnmt.report.sweep_page import render_sweep

    check_jobs(jobs)
    if cluster is not None:
        check_address(cluster)
    options = overrides_of_call(overrides, requests=requests, replications=replications, seed=seed)
    goes_on = is_sweep_folder(Path(given))
    if goes_on:
        if grid or options or out is not None:
            what = "a sweep goes on as it was begun, without further keys, values, numbers or another folder"
            raise InputError(what, remedy="begin a new sweep with them")
        plan, base = read_sweep_folder(Path(given))
    else:
        plan, base = read_sweep(os.fspath(given), grid, options), None
    source = open_source(plan.scenario, plan.overrides, allow_code=allow_code, base=base)
    if goes_on or out is not None:
        place: AbstractContextManager[Path] = nullcontext(Path(given if out is None else out))
    else:
        place = reserved(Path(under), f"{source.scenario.name}-sweep")
    with place as folder:
        execute = partial(run_tasks, jobs=jobs, engine=engine, cluster=cluster)
        progress = progress or notebook_progress()
        result = run_sweep(plan, source, folder, execute, progress, announce=announce, allow_code=allow_code)
        write_page(folder / PAGE, render_sweep(result.table))
    return result


def load_sweep(directory: str | os.PathLike[str]) -> pd.DataFrame:
    """Return the table of a finished sweep: a row for each point, workload, network and policy.

    The columns are `point`, the swept keys, and those of a run's summary; `attrs["keys"]` names the swept keys. Raises
    `InputError` for a folder without such a table.

    Example:
        >>> table = simnmt.load_sweep("reports/open-loop-sweep-20260701-101500")  # doctest: +SKIP
        >>> table.groupby("policy")["mean_latency_s"].min()  # doctest: +SKIP
    """
    return read_frame(Path(directory))
