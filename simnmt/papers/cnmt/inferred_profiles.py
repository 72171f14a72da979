"""Write the fit of Table I as device profiles and connection levels labelled *inferred*, and replay the table on them.

The replay runs in simnmt's own world, as a check of the columns that the fit evaluates.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from simnmt.base import VERSION
from simnmt.base.text_tables import format_table
from simnmt.network.connection_profiles import write_profiles
from simnmt.papers.cnmt import published, table_replay
from simnmt.papers.cnmt.fit import (
    FIT_REQUESTS,
    GREATEST_SPEEDUP,
    LEVELS,
    SEEDS,
    DeviceCosts,
    TableOneFit,
    fit_table_one,
    shipped_lengths,
)
from simnmt.papers.cnmt.published import DATA_SETS, DataSet
from simnmt.papers.cnmt.reproduction import IMPLIED_TITLE, RATIO_TITLE, ratio_table, table_one
from simnmt.papers.cnmt.table_one import ALL_POLICIES, Ratio, describe_errors, mean_absolute_difference, mean_absolute_errors
from simnmt.papers.cnmt.table_replay import Part, Progress
from simnmt.papers.kit.claim import format_claims
from simnmt.papers.kit.table import record
from simnmt.profile.device_profile import DeviceProfile
from simnmt.profile.profile_file import write_profile
from simnmt.scenario.source import open_source

_DIGITS = 4
"""Significant digits kept of a coefficient; the spread over seeds is far wider."""

_BOXES = (
    {
        "name": "NVIDIA Jetson TX2",
        "details": "the paper's gateway: Pascal GPU with 256 CUDA cores, Linux, PyTorch; not measured by us",
    },
    {
        "name": "NVIDIA Titan XP",
        "details": "the paper's server: with two Xeon E5-2630 at 2.40 GHz and 128 GB, Linux, PyTorch; not measured by us",
    },
)

_REMARK = (
    "Inferred from ratios of total times, not measured. The time scale rests on the assumed RTT; many other planes give "
    "the same ratios (see spread_over_seeds); the fixed part and the residual also absorb whatever else the paper's "
    "runs held, such as output lengths that differ from the reference's."
)


def profiles(fit: TableOneFit, *, ratios: Sequence[Ratio] = ()) -> list[DeviceProfile]:
    """Return the profiles of gateway and cloud of every fitted data set; `ratios`: of a run with them, for the errors."""
    errors = {group: _rounded(error) for group, error in mean_absolute_errors(ratios).items()}
    return [
        _profile(fit, data_set, device, errors, [ratio for ratio in ratios if ratio.workload == data_set.workload])
        for data_set in _fitted(fit)
        for device in (0, 1)
    ]


def _profile(
    fit: TableOneFit, data_set: DataSet, device: int, errors: Mapping[str, float], ratios: Sequence[Ratio]
) -> DeviceProfile:
    table = shipped_lengths(data_set)
    costs = fit.chosen[data_set.workload].costs[device]
    stand_in = f"@{data_set.lengths} in place of {data_set.corpus}"
    cp1_s = fit.mean_rtt_s["cp1"]
    content = {
        "schema_version": 2,
        "name": data_set.profiles[device],
        "device": _BOXES[device],
        "model": {"name": data_set.model, "vocab": data_set.vocab},
        "length_unit": {"src": table.src_unit, "tgt": table.tgt_unit, "end_of_sentence": table.end_of_sentence},
        "valid_range": {
            "src_len": (int(table.src_len.min()), int(table.src_len.max())),
            "tgt_len": (int(table.tgt_len.min()), int(table.tgt_len.max())),
        },
        "execution": {
            "kind": "inferred",
            "plane": {name: _rounded(value) for name, value in dataclasses.asdict(costs.plane).items()},
            "residual_relative_sd": _rounded(costs.residual.relative_sd),
            "fit": {
                "remark": _REMARK,
                "assumed_cp1_mean_rtt_s": cp1_s,
                "fitted_cp2_mean_rtt_s": fit.mean_rtt_s["cp2"],
                "error_by_cp2_mean_rtt_s": [
                    [_rounded(level * cp1_s), _rounded(error)] for level, error in fit.level_objectives
                ],
                "assumed_greatest_speedup": GREATEST_SPEEDUP,
                "lengths": "; ".join(filter(None, [stand_in, data_set.remark])),
                "seeds": [solution.seed for solution in fit.solutions[data_set.workload]],
                "spread_over_seeds": {
                    name: [_rounded(low), _rounded(high)] for name, (low, high) in _spread(fit, data_set, device).items()
                },
                "mean_absolute_error_over_table": errors,
                "errors": [
                    record(ratio, "network policy")
                    | {"published": _rounded(ratio.target), "ours": _rounded(ratio.ours), "role": ratio.role}
                    for ratio in ratios
                ],
            },
        },
        "provenance": {
            "source": f"inferred from the ratios of {published.REFERENCE}",
            "date": datetime.date.today().isoformat(),
            "tool": f"simnmt {VERSION}, simnmt reproduce cnmt --fit",
        },
    }
    return DeviceProfile.model_validate(content)


def _fitted(fit: TableOneFit) -> list[DataSet]:
    return [data_set for data_set in DATA_SETS if data_set.workload in fit.chosen]


def _numbers(costs: DeviceCosts) -> dict[str, float]:
    return {**dataclasses.asdict(costs.plane), "residual_relative_sd": costs.residual.relative_sd}


def _spread(fit: TableOneFit, data_set: DataSet, device: int) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value of each number over the seeds' solutions."""
    solutions = [_numbers(solution.costs[device]) for solution in fit.solutions[data_set.workload]]
    columns = {name: [numbers[name] for numbers in solutions] for name in solutions[0]}
    return {name: (min(values), max(values)) for name, values in columns.items()}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def fit_as_text(fit: TableOneFit) -> str:
    """Return the fit for a terminal: levels tried, and per device the chosen numbers with their spread over the seeds."""
    tried = ", ".join(
        f"{1e3 * level * fit.mean_rtt_s['cp1']:.1f} ms {100 * error:.2f} %" for level, error in fit.level_objectives
    )
    levels = ", ".join(f"{name.upper()} {1e3 * mean_s:.1f} ms" for name, mean_s in fit.mean_rtt_s.items())
    rows = []
    for data_set, device in product(_fitted(fit), (0, 1)):
        spread = _spread(fit, data_set, device)
        for name, value in _numbers(fit.chosen[data_set.workload].costs[device]).items():
            low, high = spread[name]
            rows.append([data_set.profiles[device], name, f"{value:.4g}", f"{low:.4g} to {high:.4g}"])
    return (
        f"mean RTT: {levels} (the former assumed, for ratios fix no time scale)\n"
        f"CP2 levels tried, and the weighted error of the fit there: {tried}\n"
        + format_table(["profile", "number", "chosen", "least and greatest over seeds"], rows, texts=2)
    )


UNITS = table_replay.REPLICATIONS * len(DATA_SETS) * len(published.NETWORKS)
"""Runs of a replay of all data sets."""


def confirm(
    folder: Path,
    *,
    data_sets: Sequence[DataSet] = DATA_SETS,
    requests: int = 100_000,
    seed: int = 1,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Part:
    """Replay Table I on the profiles and RTT series in `folder`.

    Raises `InputError` for a missing or wrong file in `folder`.
    """

    def profile(device: int) -> dict[str, str]:
        return {data_set.workload: str(folder / f"{data_set.profiles[device]}.json") for data_set in data_sets}

    # The paper's protocol (CNMT-14).
    content = {
        "version": 1,
        "name": "table1-of-a-fit",
        "seed": seed,
        "replications": 1,
        "requests": requests,
        "workloads": {data_set.workload: {"lengths": f"@{data_set.lengths}"} for data_set in data_sets},
        "networks": {name: {"rtt": str(folder / f"{name}.csv"), "clock": "spread"} for name in published.NETWORKS},
        "devices": {"gateway": {"profile": profile(0)}, "cloud": {"profile": profile(1)}},
        "policies": {policy: {} for policy in ALL_POLICIES},
    }
    scenario = open_source(content).scenario
    return table_replay.replay("inferred", table_replay.separated(scenario), jobs=jobs, progress=progress)


def fit_and_replay(
    *,
    seeds: Sequence[int] = SEEDS,
    levels: int = LEVELS,
    fit_requests: int = FIT_REQUESTS,
    requests: int = 100_000,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[TableOneFit, Part]:
    """Infer the six profiles and the level of CP2 from Table I, and replay the table on them.

    `seeds`, `levels`, `fit_requests`: see `fit_table_one`; `requests`: per run of the replay; `progress`: called after each fit
    and each run with the numbers done and in all.
    """
    fits = len(DATA_SETS) * len(seeds) * levels
    count_fits, count_runs = (table_replay.count_from(progress, before, fits + UNITS) for before in (0, fits))
    fit = fit_table_one(seeds=seeds, levels=levels, requests=fit_requests, jobs=jobs, progress=count_fits)
    with TemporaryDirectory(prefix="simnmt-") as folder:  # replayed as users will: from the files
        write_fit(Path(folder), fit)
        part = confirm(Path(folder), requests=requests, jobs=jobs, progress=count_runs)
    return fit, part


def write_fit(folder: Path, fit: TableOneFit, replay: Part | None = None) -> None:
    """Write the profiles and both RTT series into `folder`; with a replay the profiles carry its errors."""
    for profile in profiles(fit, ratios=replay.run.ratios() if replay else ()):
        write_profile(folder / f"{profile.name}.json", profile)
    write_profiles(folder, fit.mean_rtt_s)


def document(replay: Part) -> dict[str, Any]:
    """Return what `--fit --json` prints."""
    ratios = replay.run.ratios()
    keys = "workload network policy published ours role error"
    change_keys = "workload network policy baseline published_percent ours_percent difference_points"
    return {
        "claims": [claim.record() for claim in replay.claims],
        "tables": [
            {"title": "C-NMT, Table I", "cells": [record(change, change_keys) for change in replay.run.changes()]},
            {"title": IMPLIED_TITLE, "rows": list(map(dataclasses.asdict, published.all_implied_ratios()))},
            {
                "title": RATIO_TITLE,
                "rows": [record(ratio, keys) for ratio in ratios],
                "mean_absolute_error": mean_absolute_errors(ratios),
            },
        ],
        "slips": list(published.SLIPS),
    }


def as_text(fit: TableOneFit, replay: Part) -> str:
    """Return a fit and its replay for a terminal."""
    changes = replay.run.changes()
    pieces = [
        fit_as_text(fit),
        table_one([replay]).text(),
        f"mean absolute difference over {len(changes)} cells: {mean_absolute_difference(changes):.2f} points",
        ratio_table([replay]).text(),
        f"mean absolute error: {describe_errors(replay.run.ratios())}",
        format_claims(replay.claims, explain=True),
    ]
    return "\n\n".join(pieces)
