"""Draw the paper's figures 1 to 4 from our data (CNMT-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from simnmt.papers.cnmt.claims import TimeOverLength
from simnmt.papers.cnmt.replay import Part
from simnmt.papers.cnmt.table_one import PAPER, TRANSFORMER, name_cell
from simnmt.papers.kit.figures import Figure, figure_of
from simnmt.report.charts import Axis, Chart, Mark, Panel, numbers
from simnmt.report.figures import CellView, plane, rtt
from simnmt.report.page_template import Section, render_fragment
from simnmt.report.run_tables import share_explained
from simnmt.report.typography import MINUS, number, significant
from simnmt.results import Cell
from simnmt.results.summary import Row
from simnmt.workload.length_diagnostics import means_by_source_length
from simnmt.workload.length_regression import LengthRegression

POLICIES = ("edge", "cloud", "oracle", "naive", "cnmt")
"""In the order of their colours."""


def figures(times: Sequence[TimeOverLength], parts: Sequence[Part]) -> list[Figure]:
    """Return figures 2a (if a profile holds measured samples), 2b, 3 and 4; measured parts come first."""
    ordered = sorted(parts, key=lambda part: part.name == "inferred")
    return [*([_times(times)] if times else []), _planes(ordered), _lengths(ordered), _traces(ordered)]


def _times(times: Sequence[TimeOverLength]) -> Figure:
    charts = {}
    for workload in sorted(dict.fromkeys(row.workload for row in times), key=lambda workload: workload != TRANSFORMER):
        rows = [row for row in times if row.workload == workload]
        marks = [mark for row in rows for mark in _time_marks(row)]
        axes = Axis("target length M, tokens", from_zero=True), Axis("execution time, ms", from_zero=True)
        charts[workload.upper()] = Chart(marks, *axes, " ".join(map(_describe_times, rows)))
    note = (
        "Means per target length M of the profiles' own samples, the line through them, and one standard deviation of single "
        "inferences: over source lengths, and over the repeats of each. The paper shows the Transformer on a Jetson (R² 0.99, "
        "mean squared error 0.13 ms²) and on a Titan (0.85, 1.2)."
    )
    return figure_of("figure-2a", "Figure 2a: time over target length", "Gateway and server", charts, note=note)


def _time_marks(row: TimeOverLength) -> list[Mark]:
    at = row.tgt_len
    colour, symbol = ("policy-0", "circle") if row.device == "gateway" else ("policy-1", "diamond")
    low = [max(mean - sd, 0.0) for mean, sd in zip(row.mean_ms, row.sd_ms, strict=True)]
    high = [mean + sd for mean, sd in zip(row.mean_ms, row.sd_ms, strict=True)]
    ends = [0.0, 1.03 * at[-1]]
    heights = [row.ms_per_token * end + row.ms_fixed for end in ends]
    return [
        Mark("band", at, [], colour=colour, opacity=0.18, low=low, high=high, hover=""),
        Mark("line", ends, heights, f"line, {row.device}", colour, "dot", 1.4, hover=""),
        Mark("points", at, row.mean_ms, row.device, colour, symbol=symbol, size=7.0, hover="M %{x}: %{y:.4~g} ms"),
    ]


def _describe_times(row: TimeOverLength) -> str:
    published = ""
    if row.published is not None:
        published = f" (published for its devices: {row.published['r2']} and {row.published['mse_ms2']})"
    # Only a perfect fit is shown as 1, and rounding errors are not shown as figures.
    r2 = "above 0.9999" if 0.99995 <= row.r2 < 1 else number(row.r2, 4)
    mse = "below 0.0001" if row.mse_ms2 < 1e-4 else significant(row.mse_ms2, 3)
    return (
        f"{row.device}, {row.profile.name} ({row.profile.execution.kind}): {significant(row.ms_per_token)} ms a target token, "
        f"R\u00b2 of the means {r2}, mean squared error {mse} ms\u00b2{published}."
    )


def _planes(parts: Sequence[Part]) -> Figure:
    # The paper's own example, the Transformer, is shown first.
    cells = sorted(((part, cell) for part in parts for cell in part.cells), key=lambda item: item[1].workload != TRANSFORMER)
    charts = {}
    for part, cell in cells:
        colours = {policy: POLICIES.index(policy) if policy in POLICIES else len(POLICIES) for policy in cell.logs}
        drawn = plane(CellView(cell, [], colours)).draw(str([*cell.logs].index("cnmt")))
        charts[f"{part.name}: {name_cell((cell.workload, cell.network))}"] = replace(drawn, reading=_coefficients(cell))
    note = (
        "Requests by source length N and target length M, coloured by the device that C-NMT chose, and the border on which "
        "both devices are believed equally fast."
    )
    title = "Figure 2b: two planes and the border between their regions"
    return figure_of("figure-2b", title, "Where each device is the faster one", charts, note=note)


def _coefficients(cell: Cell) -> str:
    sentences = []
    for device, kind, plane_s in zip(cell.devices, cell.profile_kinds, cell.planes, strict=True):
        src, tgt, fixed = (significant(1e3 * value, 3) for value in plane_s)
        sentences.append(f"{device.name} ({kind}): {src} N + {tgt} M + {fixed} ms.")
    return " ".join(sentences)


def _lengths(parts: Sequence[Part]) -> Figure:
    panels: dict[tuple[str, str, str], Panel] = {}
    for part in parts:
        for cell in part.cells:
            table = cell.lengths
            key = (cell.workload, table.src_unit, table.tgt_unit)
            if key in panels:
                continue
            workload = cell.workload.upper()
            printed = PAPER.table("figure-3").row(cell.workload)
            units = table.src_unit if table.src_unit == table.tgt_unit else f"{table.src_unit} and {table.tgt_unit}"
            pairs = number(table.src_len.size, 0)
            heading = (
                f"{workload}, {pairs} pairs of @{table.name} by {units}; published R² {printed['r2']}, MSE {printed['mse']}"
            )
            fit = next((fit for fit in part.fits if fit["workload"] == cell.workload and "pairs_r2" in fit), None)
            alt = f"Mean target length per source length in tokens, with the fitted line, {workload} by {units}"
            panels[key] = Panel(f"lengths-{len(panels)}", heading, alt, partial(_length_chart, cell, fit))
    note = (
        "Counted on real text; the target length is the reference translation's. Bands: one standard deviation of single pairs."
    )
    title = "Figure 3: mean target length per source length"
    return Figure("figure-3", title, list(panels.values()), note)


def _length_chart(cell: Cell, fit: Row | None) -> Chart:
    """Draw the mean target length per source length, its standard deviation, and the line that policies believe in."""
    slope, offset = cell.regression_slope, cell.regression_offset
    means = means_by_source_length(cell.lengths, LengthRegression(slope, offset))
    src, pairs, mean = (np.array([getattr(row, key) for row in means]) for key in ("src_len_from", "pairs", "mean_tgt_len"))
    sd = np.array([np.nan if row.sd_tgt_len is None else row.sd_tgt_len for row in means])
    low, high = numbers(np.maximum(mean - sd, 0.0)), numbers(mean + sd)
    # The axes show 99 % of the pairs.
    longest = src[np.searchsorted(np.cumsum(pairs), 0.99 * pairs.sum())]
    end = float(min(1.2 * longest, 1.03 * src[-1] + 1))
    highest = 1.06 * float((mean + np.nan_to_num(sd))[src <= end].max())
    # No policy expects less than one token: the line has a bend where it would.
    bend = (1.0 - offset) / slope if slope else 0.0
    along = [0.0, *([bend] if 0.0 < bend < end else []), end]
    at = numbers(src, 4)
    marks = [
        Mark("band", at, [], colour="policy-4", opacity=0.18, low=low, high=high, hover=""),
        Mark("points", at, numbers(mean, 4), "mean M", "policy-4", symbol="circle", size=5.0, hover="N %{x}: M %{y}"),
        Mark("line", along, [max(slope * place + offset, 1.0) for place in along], "fitted line", width=1.6, hover=""),
    ]
    reading = f"Line: M = {significant(slope)} N {MINUS if offset < 0 else '+'} {significant(abs(offset))}"
    if fit is not None:
        reading += (
            f"; R² {share_explained(fit['means_r2'])} and mean squared error {significant(fit['means_mse'], 3)} about means, "
            f"{share_explained(fit['pairs_r2'])} and {significant(fit['pairs_mse'], 3)} about single pairs"
        )
    axes = Axis("source length N, tokens", span=(0.0, end)), Axis("target length M, tokens", span=(0.0, highest))
    return Chart(marks, *axes, f"{reading}.")


def _traces(parts: Sequence[Part]) -> Figure:
    groups: dict[str, list[Cell]] = {}
    for part in parts:
        # A pair of networks shared by all data sets is shown once.
        alike = len({(cell.network, round(cell.series.mean_s, 9)) for cell in part.cells}) == 2
        for cell in part.cells:
            if not alike or cell.workload == part.cells[0].workload:
                groups.setdefault(part.name if alike else f"{part.name}: {cell.workload.upper()}", []).append(cell)
    charts = {name: _trace_chart(cells) for name, cells in groups.items()}
    note = "The series that the replays met. The paper's own samples are not public."
    return figure_of("figure-4", "Figure 4: round-trip times", "CP1 and CP2", charts, note=note)


def _trace_chart(cells: Sequence[Cell]) -> Chart:
    marks, sentences = [], []
    unit = ""
    for place, cell in enumerate(cells):
        drawn = rtt(CellView(cell, [], dict.fromkeys(cell.logs, 0))).chart
        unit = unit or drawn.x.title.rpartition(", ")[2]
        name = cell.network.upper()
        colour, dash = ("policy-4", "solid") if place else ("policy-5", "dot")
        marks.append(replace(drawn.marks[0], name=name, colour=colour, dash=dash, width=1.4))
        mean_ms = number(1e3 * float(cell.series.mean_s), 1)
        sentences.append(f"{name}: mean {mean_ms} ms, {cell.series.kind}; {cell.series.source}.")
    return Chart(marks, Axis(f"time on the trace, {unit}"), Axis("round trip, ms", from_zero=True), " ".join(sentences))


def schematic() -> Section:
    """Return figure 1 as a picture of the page."""
    picture = Section(
        "Encoder and decoder, an LSTM cell, self-attention", picture=render_fragment("reproduction_schematic.svg.j2")
    )
    note = "Drawn by simnmt after the paper’s subject, not after its picture."
    return Section("Figure 1: what translates", "figure-1", [note], parts=[picture], folded=True)
