"""Run Table I in simnmt's own world on what a fit wrote: the check that the fit's fast columns did not flatter it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simnmt.reproduce.cnmt import published
from simnmt.reproduce.cnmt.data_sets import DATA_SETS, DataSet
from simnmt.results.result import RunResult
from simnmt.scenario.build import build
from simnmt.scenario.run import Progress, run_plan
from simnmt.scenario.source import open_source

POLICIES = (*published.BASELINES, *published.POLICIES)
REPLICATIONS = 5
"""Of a replay whose claims are judged: one replication does not show how far chance moves a difference."""
UNITS = REPLICATIONS * len(DATA_SETS) * len(published.NETWORKS)
"""Of such a replay of all data sets."""


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
    replications: int = REPLICATIONS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> RunResult:
    """Run it, with the analysis of what causes C-NMT's gap to the oracle (CNMT-19).

    Raises the rooms' `InputError`s where a file in `folder` is missing or wrong.
    """
    scenario = table_one_scenario(folder, data_sets=data_sets, requests=requests, seed=seed)
    source = open_source(scenario | {"replications": replications, "gap_analysis": True})
    return run_plan(build(source.scenario, Path.cwd(), source.document), jobs=jobs, progress=progress)
