"""The tables of C-NMT's reproduction, and the reproduction as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any

from simnmt.papers.cnmt.claims import Profiles
from simnmt.papers.cnmt.figures import figures, schematic
from simnmt.papers.cnmt.replay import MEASURED, Part, Progress, replays
from simnmt.papers.cnmt.table_one import (
    BASELINES,
    LABELS,
    NETWORKS,
    PAPER,
    TABLE,
    describe_errors,
    implied_rows,
    mean_absolute_errors,
    name_cell,
    printed_percent,
    ratio_rows,
    table_cells,
)
from simnmt.papers.kit.rendering import Report, record
from simnmt.report.table import Column, Table, TableCell, share
from simnmt.results.run import doubtful_profiles

IMPLIED_TITLE = "Total times over the gateway's, derived from the published table in each way it allows"


def change_table(parts: Sequence[Part]) -> Table:
    """Return Table I: a line for each data set, policy and origin."""
    rows: list[dict[str, Any]] = []
    for printed in TABLE.rows:
        rows.append({"origin": "published", **printed})
        workload, policy = printed["workload"], printed["policy"]
        for part in parts:
            row = {"origin": part.name, "workload": workload, "policy": policy}
            for network, baseline in product(NETWORKS, BASELINES):
                row[f"{network} {baseline}"] = part.run.change_percent(workload, network, policy, baseline)
            rows.append(row)
    kinds = {part.name: part.shown_kinds for part in parts}

    def origin(row: Mapping[str, Any]) -> TableCell:
        shown = ["published"] if row["origin"] == "published" else kinds[row["origin"]].get(row["workload"], ["not at hand"])
        kind = ", ".join(shown)
        return TableCell("" if row["origin"] == kind else row["origin"], kind=kind)

    return Table(
        TABLE.title,
        [
            Column("data, policy", lambda row: f"{row['workload'].upper()} {LABELS[row['policy']]}"),
            Column("profiles", "origin", cell=origin),
            *(Column(column.head, column.name, column.digits, signed=True) for column in TABLE.columns if column.head),
        ],
        rows,
        "Negative is faster. GW, Server and Oracle are the totals held against: everything on the gateway, everything on "
        "the server, each request where it is truly fastest.",
        id=TABLE.id,
        published=lambda row: row["origin"] == "published",
    )


def cell_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return the 36 cells for the JSON document, with `published_percent` and `KEY_percent` of each part (None if absent)."""
    return [
        dict(zip(("workload", "network", "policy", "baseline"), cell, strict=True))
        | {"published_percent": printed_percent(*cell)}
        | {f"{part.key}_percent": part.run.change_percent(*cell) for part in parts}
        for cell in table_cells()
    ]


def ratio_table(parts: Sequence[Part]) -> Table:
    """Return the 24 ratios: published both ways, each part's, and the inferred part's error and role in the fit.

    The measured parts have no error: other devices on other networks have other ratios.
    """
    inferred, *others = parts
    ours = {part.key: part.run.ratios() for part in others}
    rows = [
        row | {key: ratios.get((row["workload"], row["network"], row["policy"])) for key, ratios in ours.items()}
        for row in ratio_rows(inferred.run)
    ]
    return Table(
        "Total time over the gateway's",
        [
            Column(
                "data, network, policy", lambda row: f"{name_cell((row['workload'], row['network']))} {LABELS[row['policy']]}"
            ),
            Column("published, two ways", lambda row: " | ".join(f"{ratio:.4f}" for ratio in dict.fromkeys(row["published"]))),
            Column("inferred", "inferred", digits=4),
            Column("error, %", "error", digits=2, scale=100.0, signed=True),
            Column("in the fit", "role"),
            *(Column(part.name, part.key, digits=4) for part in others),
        ],
        rows,
        f"Mean absolute error of the inferred fit: {describe_errors(rows)}. "
        "The published table gives Server and Oracle twice, and the two differ; the error is against their mean. Ratios marked "
        "test are held out: they entered no objective of the fit. Measured devices have ratios of their own.",
        id="ratios",
    )


def network_table(parts: Sequence[Part]) -> Table:
    """Return, by data set and network of each part, the mean RTT with its source and the share that the oracle sends away."""
    keys = "workload network mean_rtt_ms=series.mean_s*1e3 kind=series.kind source=series.source"
    rows = [
        {"profiles": part.name}
        | record(cell, keys)
        | {"oracle_offloaded_share": part.run.oracle_share.get((cell.workload, cell.network))}
        for part in parts
        for cell in part.cells
    ]
    return Table(
        "Networks of each replay",
        [
            Column("profiles", "profiles"),
            Column("data, network", lambda row: name_cell((row["workload"], row["network"]))),
            Column("mean RTT, ms", "mean_rtt_ms", digits=1),
            share("oracle sends away, %", "oracle_offloaded_share"),
            Column("series", "kind", kind=True),
        ],
        rows,
        "The paper’s traces are not public, so the shapes are synthetic. The level of CP1 under the inferred profiles is "
        "assumed, that of CP2 fitted. Those under the shipped measured profiles are means at which the oracle sends 20 to "
        "80 % of the requests away: nearest to 40 % on CP1 and 60 % on CP2.",
        id="networks",
    )


def report(parts: Sequence[Part], profiles: Profiles) -> Report:
    """Return the reproduction for JSON, terminal and page; `profiles`: those that were measured."""
    lines = profiles.lines()
    ratios, cells = ratio_table(parts), cell_rows(parts)
    differences = [
        abs(cell["inferred_percent"] - cell["published_percent"]) for cell in cells if cell["inferred_percent"] is not None
    ]
    lacking = list(dict.fromkeys(note for part in parts for note in part.notes if note.startswith("Not at hand")))
    by_part = {part.name: {doubt["profile"] for doubt in doubtful_profiles(part.cells)} for part in parts}
    doubts = doubtful_profiles(cell for part in parts for cell in part.cells)
    keys = (
        "workload device profile=profile.name box=profile.device.name model=profile.model.name kind=profile.execution.kind "
        "tgt_len mean_ms sd_ms ms_per_token ms_fixed r2 mse_ms2 published_r2=published.r2 published_mse_ms2=published.mse_ms2"
    )
    return Report(
        PAPER,
        [record for part in parts for record in part.claims],
        [
            change_table(parts),
            Table(IMPLIED_TITLE, [], implied_rows(), id="implied"),
            ratios,
            network_table(parts),
            Table("Measured time over target length (figure 2a)", [], [record(line, keys) for line in lines], id="times"),
        ],
        figures(lines, parts),
        [f"{part.name.capitalize()} profiles: {note}" for part in parts for note in part.notes],
        rows={TABLE.id: cells},
        more={
            "parts": [{"name": part.name, "key": part.key, "kinds": part.shown_kinds} for part in parts],
            "mean_absolute_error": mean_absolute_errors(ratios.rows),
            "summary": "\n".join([*PAPER.summary, *lacking]),
            "doubts": [
                {"parts": [name for name, names in by_part.items() if doubt["profile"] in names]} | doubt for doubt in doubts
            ],
        },
        pictures=[schematic()],
        remarks=[
            f"mean absolute difference of the inferred over {len(differences)} cells: {fmean(differences):.2f} points",
            f"mean absolute error of the inferred: {describe_errors(ratios.rows)}",
            *lacking,
        ],
        explain=True,
    )


def reproduce(
    *,
    measured: str | os.PathLike[str] = MEASURED,
    allow_code: bool = False,
    requests: int | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Replay Table I on the inferred profiles and on measured ones; for the arguments see `replays`."""
    return report(*replays(measured, allow_code=allow_code, requests=requests, jobs=jobs, progress=progress))
