"""The tables of C-NMT's reproduction, and the reproduction as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any

import typer

from simnmt.papers.cnmt import table_one
from simnmt.papers.cnmt.claims import Profiles
from simnmt.papers.cnmt.figures import figures
from simnmt.papers.cnmt.replay import MEASURED, Part, Progress, replays
from simnmt.papers.cnmt.table_one import BASELINES, LABELS, NETWORKS, PAPER, TABLE, name_cell
from simnmt.papers.kit.rendering import Report, record
from simnmt.report.table import Column, Table
from simnmt.results.run import doubtful_profiles


def change_table(parts: Sequence[Part]) -> Table:
    """Return Table I: a line for each data set, policy and origin."""
    rows: list[dict[str, Any]] = []
    for printed in TABLE.rows:
        workload, policy = printed["workload"], printed["policy"]
        name = f"{workload.upper()} {LABELS[policy]}"
        rows.append({"origin": "published", "name": name, **printed})
        for part in parts:
            kind = ", ".join(part.shown_kinds.get(workload, ["not at hand"]))
            changes = {
                f"{network} {baseline}": part.run.change_percent(workload, network, policy, baseline)
                for network, baseline in product(NETWORKS, BASELINES)
            }
            rows.append({"origin": kind, "name": name if kind == part.name else f"{name}, {part.name}", **changes})
    return PAPER.shown_table("table-one", rows)


def cell_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the 36 cells for the JSON document, with `published_percent` and `KEY_percent` of each part (None if absent)."""
    return [
        dict(zip(("workload", "network", "policy", "baseline"), cell, strict=True))
        | {"published_percent": table_one.printed_percent(*cell)}
        | {f"{part.key}_percent": part.run.change_percent(*cell) for part in parts}
        for cell in table_one.table_cells()
    ]


def ratio_table(parts: Sequence[Part]) -> Table:
    """Return the 24 ratios: published both ways, each part's, and the inferred part's error and role in the fit.

    The measured parts have no error: other devices on other networks have other ratios.
    """
    inferred, *others = parts
    ours = {part.key: part.run.ratios() for part in others}
    rows = [
        row | {key: ratios.get((row["workload"], row["network"], row["policy"])) for key, ratios in ours.items()}
        for row in table_one.ratio_rows(inferred.run)
    ]
    table = PAPER.shown_table(
        "ratios",
        rows,
        *(Column(part.name, part.key, digits=4) for part in others),
        name=lambda row: f"{_cell_name(row)} {LABELS[row['policy']]}",
        two_ways=lambda row: " | ".join(f"{ratio:.4f}" for ratio in dict.fromkeys(row["published"])),
    )
    return replace(table, note=f"Mean absolute error of the inferred fit: {table_one.describe_errors(rows)}. {table.note}")


def _cell_name(row: Mapping[str, Any]) -> str:
    return name_cell((row["workload"], row["network"]))


def network_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return, by data set and network of each part, the mean RTT with its source and the share that the oracle sends away."""
    keys = "workload network mean_rtt_ms=series.mean_s*1e3 kind=series.kind source=series.source"
    return [
        {"profiles": part.name, "oracle_offloaded_share": part.run.oracle_share.get((cell.workload, cell.network))}
        | record(cell, keys)
        for part in parts
        for cell in part.cells
    ]


def report(parts: Sequence[Part], profiles: Profiles) -> Report:
    ratios, cells = ratio_table(parts), cell_rows(parts)
    doubtful = {part.name: {doubt["profile"] for doubt in doubtful_profiles(part.cells)} for part in parts}
    doubts = doubtful_profiles(cell for part in parts for cell in part.cells)
    return Report(
        PAPER,
        [record for part in parts for record in part.claims],
        [
            change_table(parts),
            ratios,
            PAPER.shown_table("networks", network_rows(parts), name=_cell_name),
            PAPER.shown_table("times", profiles.lines()),
        ],
        figures(profiles, parts),
        [f"{part.name.capitalize()} profiles: {note}" for part in parts for note in part.notes],
        rows={TABLE.id: cells},
        more={
            "parts": [{"name": part.name, "key": part.key, "kinds": part.shown_kinds} for part in parts],
            "mean_absolute_error": table_one.mean_absolute_errors(ratios.rows),
            "doubts": [
                {"parts": [name for name, names in doubtful.items() if doubt["profile"] in names]} | doubt for doubt in doubts
            ],
        },
    )


def reproduce(
    *,
    measured: Annotated[
        str, typer.Option(metavar="SCENARIO|@NAME", help="Table I on measured profiles, such as your own.")
    ] = MEASURED,
    requests: Annotated[int | None, typer.Option(metavar="N", help="Requests per run of the table.", min=1)] = None,
    jobs: int = 1,
    progress: Progress = lambda done, whole: None,
) -> Report:
    """Replay Table I on the inferred profiles and on measured ones; for the arguments see `replays`."""
    return report(*replays(measured, requests=requests, jobs=jobs, progress=progress))
