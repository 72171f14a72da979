"""Draw the paper's figures 1 to 4 from our data (CNMT-18)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simnmt.papers.cnmt.claims import TRANSFORMER
from simnmt.papers.cnmt.device_claims import TimesRow
from simnmt.papers.cnmt.table_replay import Part
from simnmt.papers.kit.page import Drawing
from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, panel
from simnmt.report.figures import CellView, rtt
from simnmt.report.page import fit_panels
from simnmt.report.page_template import render_fragment
from simnmt.report.plane_figures import plane
from simnmt.report.typography import number, significant
from simnmt.results import Cell

_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
_PUBLISHED_LENGTHS = {"de-en": ("0.99", "0.57"), "fr-en": ("0.99", "0.15"), "en-zh": ("0.99", "0.73")}
"""Printed R2 and mean squared error of the means per N about the line (figure 3)."""


def drawings(times: Sequence[TimesRow], parts: Sequence[Part]) -> list[Drawing]:
    """Return figures 2a, 2b, 3 and 4."""
    # Measured parts come first.
    ordered = sorted((part for part in parts if part.cells), key=lambda part: part.name == "inferred")
    return [_times(times) if times else _replayed(ordered), _planes(ordered), _lengths(ordered), _traces(ordered)]


def _name(part: str, cell: Cell, network: bool = True) -> str:
    return f"{part}: {cell.workload.upper()}{f' {cell.network.upper()}' if network else ''}"


def _transformer_first(workloads: Sequence[str]) -> list[str]:
    return sorted(dict.fromkeys(workloads), key=lambda workload: workload != TRANSFORMER)


def _times(times: Sequence[TimesRow]) -> Drawing:
    workloads = _transformer_first([row.workload for row in times])

    def draw(workload: str) -> Chart:
        rows = [row for row in times if row.workload == workload]
        marks = [mark for row in rows for mark in _time_marks(row)]
        axes = Axis("target length M, tokens", from_zero=True), Axis("execution time, ms", from_zero=True)
        return Chart(marks, *axes, " ".join(map(_describe_times, rows)))

    drawn = panel(
        "times",
        "Gateway and server",
        "Mean execution time in milliseconds per target length on gateway and server, with lines",
        draw,
        [Control("of", "Of", [(workload, workload.upper()) for workload in workloads])],
        across=True,
    )
    note = (
        "Means per target length M of the profiles' own samples, the line through them, and one standard deviation of single "
        "inferences: over source lengths, and over the repeats of each. The paper shows the Transformer on a Jetson (R² 0.99, "
        "mean squared error 0.13 ms²) and on a Titan (0.85, 1.2)."
    )
    return Drawing("figure-2a", "Figure 2a: time over target length", note, [drawn])


def _time_marks(row: TimesRow) -> list[Mark]:
    line, at = row.line, row.line.tgt_len
    colour, symbol = ("policy-0", "circle") if row.device == "gateway" else ("policy-1", "diamond")
    low = [max(mean - sd, 0.0) for mean, sd in zip(line.mean_ms, line.sd_ms, strict=True)]
    high = [mean + sd for mean, sd in zip(line.mean_ms, line.sd_ms, strict=True)]
    ends = [0.0, 1.03 * at[-1]]
    heights = [line.ms_per_token * end + line.ms_fixed for end in ends]
    return [
        Mark("band", at, [], colour=colour, opacity=0.18, low=low, high=high, hover=""),
        Mark("line", ends, heights, f"line, {row.device}", colour, "dot", 1.4, hover=""),
        Mark("points", at, line.mean_ms, row.device, colour, symbol=symbol, size=7.0, hover="M %{x}: %{y:.4~g} ms"),
    ]


def _describe_times(row: TimesRow) -> str:
    published = ""
    if row.published is not None:
        published = f" (published for its devices: {row.published.r2} and {row.published.mse_ms2})"
    line = row.line
    # Only a perfect fit is shown as 1, and rounding errors are not shown as figures.
    r2 = "above 0.9999" if 0.99995 <= line.r2 < 1 else number(line.r2, 4)
    mse = "below 0.0001" if line.mse_ms2 < 1e-4 else significant(line.mse_ms2, 3)
    return (
        f"{row.device}, {row.profile.name} ({row.profile.execution.kind}): {significant(line.ms_per_token)} ms a target token, "
        f"R\u00b2 of the means {r2}, mean squared error {mse} ms\u00b2{published}."
    )


def _replayed(parts: Sequence[Part]) -> Drawing:
    """Draw the requests of the replay, whose times follow its profiles' planes, in place of measured samples."""
    part, cell = next(
        ((part, cell) for part in parts for cell in part.cells if cell.workload == TRANSFORMER),
        next((part, cell) for part in parts for cell in part.cells),
    )
    drawn = fit_panels(cell, part.fits, cell.workload.upper())[-1]
    note = (
        f"No profile at hand holds measured samples, so these are the replay's requests on profiles that are "
        f"{cell.profile_kinds[0]}: they show the form of the figure and prove nothing. The paper shows the Transformer on a "
        "Jetson (R² 0.99, mean squared error 0.13 ms²) and on a Titan (0.85, 1.2)."
    )
    heading = f"Gateway and server, {cell.workload.upper()}"
    title = "Figure 2a: time over target length"
    return Drawing("figure-2a", title, note, [replace(drawn, heading=heading, across=True)])


def _planes(parts: Sequence[Part]) -> Drawing:
    cells = [(part.name, cell) for part in parts for cell in part.cells]
    # The paper's own example, the Transformer, is shown first; a stable sort keeps the rest in order.
    cells.sort(key=lambda named_cell: (named_cell[1].workload != TRANSFORMER, named_cell[0] == "inferred"))
    charts: dict[tuple[str, ...], Chart] = {}
    for place, (_, cell) in enumerate(cells):
        drawn = plane(CellView(cell, [], [], dict(zip(cell.logs, map(_colour, cell.logs), strict=True))))
        policy = str(list(cell.logs).index("cnmt"))
        chart = drawn.charts[policy,]
        charts[str(place),] = replace(chart, reading=f"{_coefficients(cell)} {chart.reading}")
    controls = [Control("of", "Of", [(str(place), _name(name, cell)) for place, (name, cell) in enumerate(cells)])]
    alt = "Requests in the plane of source and target length with the border where both devices are equally fast"
    shown = Panel("planes", "Where each device is the faster one", alt, charts, controls, across=True)
    note = (
        "Requests by source length N and target length M, coloured by the device that C-NMT chose, and the border on which "
        "both devices are believed equally fast."
    )
    title = "Figure 2b: two planes and the border between their regions"
    return Drawing("figure-2b", title, note, [shown])


def _colour(policy: str) -> int:
    return _COLOURS.index(policy) if policy in _COLOURS else len(_COLOURS)


def _coefficients(cell: Cell) -> str:
    sentences = []
    for device, kind, plane_s in zip(cell.devices, cell.profile_kinds, cell.planes, strict=True):
        src, tgt, fixed = (significant(1e3 * value, 3) for value in plane_s)
        sentences.append(f"{device.name} ({kind}): {src} N + {tgt} M + {fixed} ms.")
    return " ".join(sentences)


def _lengths(parts: Sequence[Part]) -> Drawing:
    panels: dict[tuple[str, str, str], Panel] = {}
    for part in parts:
        for cell in part.cells:
            table = cell.lengths
            key = (cell.workload, table.src_unit, table.tgt_unit)
            if key in panels:
                continue
            workload = cell.workload.upper()
            r2, mse = _PUBLISHED_LENGTHS.get(cell.workload, ("\u2013", "\u2013"))
            units = table.src_unit if table.src_unit == table.tgt_unit else f"{table.src_unit} and {table.tgt_unit}"
            pairs = number(table.src_len.size, 0)
            heading = f"{workload}, {pairs} pairs of @{table.name} by {units}; published R² {r2}, MSE {mse}"
            drawn = fit_panels(cell, part.fits, f"{workload} by {units}")[0]
            panels[key] = replace(drawn, name=f"lengths-{len(panels)}", heading=heading, caption="")
    note = (
        "Counted on real text; the target length is the reference translation's. Bands: one standard deviation of single pairs."
    )
    title = "Figure 3: mean target length per source length"
    return Drawing("figure-3", title, note, list(panels.values()))


def _traces(parts: Sequence[Part]) -> Drawing:
    groups: dict[str, list[Cell]] = {}
    for part in parts:
        # A pair of networks shared by all data sets is shown once.
        alike = len({(cell.network, round(cell.series.mean_s, 9)) for cell in part.cells}) == 2
        for cell in part.cells:
            if not alike or cell.workload == part.cells[0].workload:
                groups.setdefault(part.name if alike else _name(part.name, cell, network=False), []).append(cell)
    drawn = panel(
        "traces",
        "CP1 and CP2",
        "Round-trip time in milliseconds over the time of the trace, CP1 and CP2",
        lambda name: _trace_chart(groups[name]),
        [Control("of", "Of", [(name, name) for name in groups])],
        across=True,
    )
    note = "The series that the replays met. The paper's own samples are not public."
    return Drawing("figure-4", "Figure 4: round-trip times", note, [drawn])


def _trace_chart(cells: Sequence[Cell]) -> Chart:
    marks, sentences = [], []
    unit = ""
    for place, cell in enumerate(cells):
        drawn = rtt(CellView(cell, [], [], dict.fromkeys(cell.logs, 0))).chart
        unit = unit or drawn.x.title.rpartition(", ")[2]
        name = cell.network.upper()
        colour, dash = ("policy-4", "solid") if place else ("policy-5", "dot")
        marks.append(replace(drawn.marks[0], name=name, colour=colour, dash=dash, width=1.4))
        mean_ms = number(1e3 * float(cell.series.mean_s), 1)
        sentences.append(f"{name}: mean {mean_ms} ms, {cell.series.kind}; {cell.series.source}.")
    return Chart(marks, Axis(f"time on the trace, {unit}"), Axis("round trip, ms", from_zero=True), " ".join(sentences))


def schematic() -> dict[str, Any]:
    """Return figure 1 as a picture of the page."""
    return {
        "id": "figure-1",
        "title": "Figure 1: what translates",
        "note": "Drawn by simnmt after the paper’s subject, not after its picture.",
        "drawn": [
            {
                "heading": "Encoder and decoder, an LSTM cell, self-attention",
                "svg": render_fragment("reproduction_schematic.svg.j2"),
            }
        ],
    }
