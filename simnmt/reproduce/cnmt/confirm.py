"""Run Table I in simnmt's own world on what a fit wrote: the check that the fit's fast columns did not flatter it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.data_sets import DATA_SETS, DataSet
from simnmt.results.result import RunResult
from simnmt.results.summary import Row
from simnmt.scenario.build import build
from simnmt.scenario.run import Progress, run_plan
from simnmt.scenario.source import open_source

POLICIES = (*published.BASELINES, *published.POLICIES)
GAP_REPLICATIONS = 5
"""Of the gap analysis: between them the noise of a gap shows, of which one replication says nothing."""


def table_one_scenario(
    folder: Path, *, data_sets: Sequence[DataSet] = DATA_SETS, requests: int = 100_000, seed: int = 1
) -> dict[str, Any]:
    """The paper's protocol (CNMT-14) on the profiles and the two RTT series that lie in `folder`, as a scenario."""

    def profile(device: int) -> dict[str, str]:
        return {each.workload: str(folder / f"{each.profiles[device]}.json") for each in data_sets}

    return {
        "version": 1,
        "name": "table1-of-a-fit",
        "seed": seed,
        "replications": 1,
        "requests": requests,
        "workloads": {each.workload: {"lengths": f"@{each.lengths}"} for each in data_sets},
        "networks": {name: {"rtt": str(folder / f"{name}.csv"), "clock": "spread"} for name in published.NETWORKS},
        "devices": {"gateway": {"profile": profile(0)}, "cloud": {"profile": profile(1)}},
        "policies": {policy: {} for policy in POLICIES},
    }


def confirm(
    folder: Path,
    *,
    data_sets: Sequence[DataSet] = DATA_SETS,
    requests: int = 100_000,
    seed: int = 1,
    jobs: int = 1,
    progress: Progress | None = None,
) -> RunResult:
    """Run it; raises the rooms' `InputError`s where a file in `folder` is missing or wrong."""
    source = open_source(table_one_scenario(folder, data_sets=data_sets, requests=requests, seed=seed))
    return run_plan(build(source.scenario, Path.cwd(), source.document), jobs=jobs, progress=progress)


def gap_analysis(
    folder: Path, *, data_sets: Sequence[DataSet] = DATA_SETS, requests: int = 100_000, seed: int = 1, jobs: int = 1
) -> list[Row]:
    """Return what causes C-NMT's gap to the oracle on what lies in `folder`, with intervals (CNMT-19).

    As many requests as the run itself has: on a clock that is spread over the trace their number decides how stale estimates
    are. Raises as `confirm` does.
    """
    scenario = table_one_scenario(folder, data_sets=data_sets, requests=requests, seed=seed)
    scenario |= {"replications": GAP_REPLICATIONS, "gap_analysis": True, "policies": {"cnmt": {}}}
    source = open_source(scenario)
    return run_plan(build(source.scenario, Path.cwd(), source.document), jobs=jobs).gaps
