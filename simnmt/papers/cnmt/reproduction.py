"""Figures 1 to 4 (CNMT-18) and the tables of C-NMT's reproduction, and the reproduction as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import typer

from simnmt.papers.cnmt import table_one
from simnmt.papers.cnmt.claims import Profiles
from simnmt.papers.cnmt.replay import MEASURED, Part, Progress, replays
from simnmt.papers.cnmt.table_one import ALL_POLICIES, BASELINES, LABELS, NETWORKS, PAPER, TABLE, TRANSFORMER, name_cell
from simnmt.papers.kit.rendering import Report, grouped, record
from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, numbers
from simnmt.report.figures import CellView, plane, rtt
from simnmt.report.input_pages import profile_panels
from simnmt.report.page_template import Section, number, render_fragment, significant
from simnmt.report.run_tables import share_explained
from simnmt.report.table import Column, Table
from simnmt.results import Cell
from simnmt.results.run import doubtful_profiles
from simnmt.results.summary import Row
from simnmt.workload.length_regression import LengthRegression, means_by_source_length

COLOURS = {policy: place for place, policy in enumerate(ALL_POLICIES)}


def figures(profiles: Profiles, parts: Sequence[Part]) -> list[Section]:
    """Return figures 2a (if a profile holds measured samples), 2b, 3, 4 and 1; measured parts come first."""
    ordered = sorted(parts, key=lambda part: part.name == "inferred")
    return [*_times(profiles), _planes(ordered), _lengths(ordered), _traces(ordered), _schematic()]


def _figure(name: str, title: str, heading: str, charts: Mapping[str, Chart], note: str) -> Section:
    """Return a figure with one chart, which a reader chooses by its name, such as a device, if there are several."""
    names = list(charts)
    options = [(str(place), name) for place, name in enumerate(names)]
    controls = [Control("of", "Of", options, "0")] if len(names) > 1 else []

    def draw(place: str = "0") -> Chart:
        return charts[names[int(place)]]

    panel = Panel(name, heading, f"{title}: {heading}", draw, controls, across=True)
    return Section(title, name, [note], panels=[panel])


def _times(profiles: Profiles) -> list[Section]:
    charts = {}
    for row in sorted(profiles.lines(), key=lambda row: row["workload"] != TRANSFORMER):
        gateway, server = profiles.pairs[row["workload"]]
        panel, *_ = profile_panels(gateway if row["device"] == "gateway" else server)
        charts[f"{row['workload'].upper()}, {row['device']}"] = replace(panel.draw(), reading=_describe_times(row))
    title = "Figure 2a: time over target length"
    note = (
        "Means per target length M of the profile's own samples, one standard deviation of single inferences, and the "
        "profile's plane at the same lengths. The paper shows the Transformer on a Jetson (R² 0.99, mean squared error "
        "0.13 ms²) and on a Titan (0.85, 1.2)."
    )
    return [_figure("figure-2a", title, "Mean time by target length", charts, note)] if charts else []


def _describe_times(row: Row) -> str:
    return (
        f"{row['device']}, {row['profile']} ({row['kind']}): {significant(row['ms_per_token'])} ms a target token, R² of the "
        f"means {share_explained(row['r2'])}, mean squared error {significant(row['mse_ms2'], 3)} ms²."
    )


def _planes(parts: Sequence[Part]) -> Section:
    # The paper's own example, the Transformer, is shown first.
    cells = sorted(((part, cell) for part in parts for cell in part.cells), key=lambda item: item[1].workload != TRANSFORMER)
    charts = {}
    for part, cell in cells:
        colours = {policy: COLOURS.get(policy, len(COLOURS)) for policy in cell.logs}
        drawn = plane(CellView(cell, [], colours)).draw(str([*cell.logs].index("cnmt")))
        charts[f"{part.name}: {name_cell((cell.workload, cell.network))}"] = replace(drawn, reading=_coefficients(cell))
    note = (
        "Requests by source length N and target length M, coloured by the device that C-NMT chose, and the border on which "
        "both devices are believed equally fast."
    )
    title = "Figure 2b: two planes and the border between their regions"
    return _figure("figure-2b", title, "Where each device is the faster one", charts, note)


def _coefficients(cell: Cell) -> str:
    sentences = []
    for device, kind, plane_s in zip(cell.devices, cell.profile_kinds, cell.planes, strict=True):
        src, tgt, fixed = (significant(1e3 * value, 3) for value in plane_s)
        sentences.append(f"{device.name} ({kind}): {src} N + {tgt} M + {fixed} ms.")
    return " ".join(sentences)


def _lengths(parts: Sequence[Part]) -> Section:
    panels: dict[tuple[str, str, str], Panel] = {}
    for cell, fits in [(cell, part.fits) for part in parts for cell in part.cells]:
        table, workload, printed = cell.lengths, cell.workload.upper(), PAPER.table("figure-3").row(cell.workload)
        key = (cell.workload, table.src_unit, table.tgt_unit)
        units = " and ".join(dict.fromkeys((table.src_unit, table.tgt_unit)))
        heading = f"{workload}, {number(table.src_len.size, 0)} pairs of @{table.name} by {units}; published R² {printed['r2']}"
        fit = next((fit for fit in fits if fit["workload"] == cell.workload and "pairs_r2" in fit), {})
        alt = f"Mean target length per source length in tokens, with the fitted line, {workload} by {units}"
        panels.setdefault(key, Panel(f"lengths-{len(panels)}", heading, alt, partial(_length_chart, cell, fit)))
    note = "Counted on real text; the target is the reference translation. Bands: one standard deviation of single pairs."
    return Section("Figure 3: mean target length per source length", "figure-3", [note], panels=list(panels.values()))


def _length_chart(cell: Cell, fit: Mapping[str, Any]) -> Chart:
    """Draw the mean target length per source length, its standard deviation, and the line that policies believe in."""
    slope, offset = cell.regression_slope, cell.regression_offset
    means = means_by_source_length(cell.lengths, LengthRegression(slope, offset))
    src, pairs, mean = (np.array([row[key] for row in means]) for key in ("src_len", "pairs", "mean_tgt_len"))
    sd = np.array([row["sd_tgt_len"] or 0.0 for row in means])
    # The axes show 99 % of the pairs.
    end = float(1.2 * src[np.searchsorted(np.cumsum(pairs), 0.99 * pairs.sum())])
    highest = 1.06 * float((mean + sd)[src <= end].max())
    at, low, high = numbers(src, 4), numbers(np.maximum(mean - sd, 0.0)), numbers(mean + sd)
    along = np.linspace(0.0, end, 100)
    # No policy expects less than one token.
    believed = numbers(np.maximum(slope * along + offset, 1.0))
    marks = [
        Mark("band", at, [], colour="policy-4", opacity=0.18, low=low, high=high, hover=""),
        Mark("points", at, numbers(mean, 4), "mean M", "policy-4", symbol="circle", size=5.0, hover="N %{x}: M %{y}"),
        Mark("line", numbers(along), believed, "fitted line", width=1.6, hover=""),
    ]
    reading = f"Line: M = {significant(slope)} N + {significant(offset)}"
    if fit:
        reading += f"; R² {share_explained(fit['means_r2'])} of means and {share_explained(fit['pairs_r2'])} of single pairs"
    axes = Axis("source length N, tokens", span=(0.0, end)), Axis("target length M, tokens", span=(0.0, highest))
    return Chart(marks, *axes, f"{reading}.")


def _traces(parts: Sequence[Part]) -> Section:
    charts: dict[str, Chart] = {}
    for part in parts:
        # A pair of networks shared by all data sets is shown once.
        alike = len({(cell.network, round(cell.series.mean_s, 9)) for cell in part.cells}) == 2
        for (workload,), cells in grouped(part.cells, "workload").items():
            charts.setdefault(part.name if alike else f"{part.name}: {workload.upper()}", _trace_chart(cells))
    note = "The series that the replays met. The paper's own samples are not public."
    return _figure("figure-4", "Figure 4: round-trip times", "CP1 and CP2", charts, note)


def _trace_chart(cells: Sequence[Cell]) -> Chart:
    marks, sentences = [], []
    drawn = [rtt(CellView(cell, [], dict.fromkeys(cell.logs, 0))).chart for cell in cells]
    for cell, chart, (colour, dash) in zip(cells, drawn, (("policy-5", "dot"), ("policy-4", "solid")), strict=True):
        name = cell.network.upper()
        marks.append(replace(chart.marks[0], name=name, colour=colour, dash=dash, width=1.4))
        mean_ms = number(1e3 * float(cell.series.mean_s), 1)
        sentences.append(f"{name}: mean {mean_ms} ms, {cell.series.kind}; {cell.series.source}.")
    return Chart(marks, drawn[0].x, Axis("round trip, ms", from_zero=True), " ".join(sentences))


def _schematic() -> Section:
    picture = Section(
        "Encoder and decoder, an LSTM cell, self-attention", picture=render_fragment("reproduction_schematic.svg.j2")
    )
    note = "Drawn by simnmt after the paper’s subject, not after its picture."
    return Section("Figure 1: what translates", "figure-1", [note], parts=[picture])


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
