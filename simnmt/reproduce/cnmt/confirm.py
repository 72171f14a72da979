"""Infer profiles from Table I and replay the table on them in simnmt's own world: what `simnmt reproduce cnmt --fit` does.

The replay is the check that the fit's fast columns did not flatter it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simnmt.reproduce.cnmt import parts, published
from simnmt.reproduce.cnmt.data_sets import DATA_SETS, DataSet
from simnmt.reproduce.cnmt.fit import FIT_REQUESTS, LEVELS, SEEDS, TableOneFit, fit_table_one
from simnmt.reproduce.cnmt.inferred_profiles import fit_as_text, profiles, write_inferred, write_levels
from simnmt.reproduce.cnmt.parts import Part, Progress
from simnmt.reproduce.cnmt.replication import Replication
from simnmt.scenario.source import open_source

POLICIES = (*published.BASELINES, *published.POLICIES)
UNITS = parts.REPLICATIONS * len(DATA_SETS) * len(published.NETWORKS)
"""Of a replay of all data sets."""


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
) -> Part:
    """Replay Table I on what lies in `folder`, as the reproduction replays it; the columns of its runs lie there meanwhile.

    Raises the rooms' `InputError`s where a file in `folder` is missing or wrong.
    """
    scenario = open_source(table_one_scenario(folder, data_sets=data_sets, requests=requests, seed=seed)).scenario
    return parts.replay("inferred", parts.separated(scenario), folder=folder, jobs=jobs, progress=progress)


def fit_and_replay(
    *,
    seeds: Sequence[int] = SEEDS,
    levels: int = LEVELS,
    fit_requests: int = FIT_REQUESTS,
    requests: int = 100_000,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[TableOneFit, Replication]:
    """Infer the six profiles and the level of CP2 from Table I, and replay the table on them.

    `seeds`, `levels`, `fit_requests`: see `fit_table_one`; `requests`: per run of the replay. `progress` is called with the
    fits and units of the replay that are done, and with those there are in all.
    """
    fits = 0

    def count_fits(done: int, total: int) -> None:
        nonlocal fits
        fits = total
        if progress is not None:
            progress(done, fits + UNITS)

    def count_units(done: int, _: int) -> None:
        if progress is not None:
            progress(fits + done, fits + UNITS)

    fit = fit_table_one(seeds=seeds, levels=levels, requests=fit_requests, jobs=jobs, progress=count_fits)
    with TemporaryDirectory(prefix="simnmt-") as folder:  # replayed as users will: from the files
        write_fit(Path(folder), fit)
        part = confirm(Path(folder), requests=requests, jobs=jobs, progress=count_units)
    return fit, part.found


def write_fit(folder: Path, fit: TableOneFit, replication: Replication | None = None) -> None:
    """Write the profiles and both RTT series into `folder`; with a replay the profiles carry its errors."""
    write_inferred(profiles(fit, ratios=replication.ratios if replication else ()), folder)
    write_levels(fit, folder)


def as_text(fit: TableOneFit, replication: Replication) -> str:
    """A fit and its replay for a terminal."""
    return f"{fit_as_text(fit)}\n\n{replication.text()}"
