"""The page of the C-NMT reproduction: tables side by side, verdicts, and the paper's figures from our data (CNMT-18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from simnmt.papers.kit.page import claim_groups
from simnmt.report.charts import Axis, Chart, Control, Mark, Panel, pack, panel
from simnmt.report.figures import CellView, rtt
from simnmt.report.page import fit_panels
from simnmt.report.page_template import Record, render_template
from simnmt.report.plane_figures import plane
from simnmt.report.typography import DASH, number, signed, significant
from simnmt.results import Cell
from simnmt.results.summary import Row

_COLOURS = ("edge", "cloud", "oracle", "naive", "cnmt")
_PUBLISHED_LENGTHS = {"de-en": ("0.99", "0.57"), "fr-en": ("0.99", "0.15"), "en-zh": ("0.99", "0.73")}
"""R2 and mean squared error of the means per N about the line, as the paper's figure 3 has them."""
TRANSFORMER = "en-zh"


def drawings(times: Sequence[Mapping[str, Any]], parts: Mapping[str, Replayed]) -> list[dict[str, Any]]:
    """Figures 2a, 2b, 3 and 4: `id`, `title`, `note` and `panels` of each section."""
    shown = {name: part for name, part in parts.items() if part.cells}
    # What was measured comes first, where it is there.
    ordered = {name: shown[name] for name in sorted(shown, key=lambda name: name == "inferred")}
    return [_times(times) if times else _replayed(ordered), _planes(ordered), _lengths(ordered), _traces(ordered)]


def _name(part: str, cell: Cell, network: bool = True) -> str:
    return f"{part}: {cell.workload.upper()}{f' {cell.network.upper()}' if network else ''}"


def _transformer_first(workloads: Sequence[str]) -> list[str]:
    return sorted(dict.fromkeys(workloads), key=lambda workload: workload != TRANSFORMER)


def _times(times: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    workloads = _transformer_first([row["workload"] for row in times])

    def draw(workload: str) -> Chart:
        rows = [row for row in times if row["workload"] == workload]
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
    return {"id": "figure-2a", "title": "Figure 2a: time over target length", "note": note, "panels": [drawn]}


def _time_marks(row: Mapping[str, Any]) -> list[Mark]:
    """Return the means of one device with their band and their line."""
    colour = "policy-0" if row["device"] == "gateway" else "policy-1"
    low, high = (
        [None if sd is None else max(mean + sign * sd, 0.0) for mean, sd in zip(row["mean_ms"], row["sd_ms"], strict=True)]
        for sign in (-1, 1)
    )
    ends = [0.0, 1.03 * row["tgt_len"][-1]]
    heights = [row["ms_per_token"] * end + row["ms_fixed"] for end in ends]
    symbol = "circle" if row["device"] == "gateway" else "diamond"
    return [
        Mark("band", row["tgt_len"], [], colour=colour, opacity=0.18, low=low, high=high, hover=""),
        Mark("line", ends, heights, f"line, {row['device']}", colour, "dot", 1.4, hover=""),
        Mark(
            "points",
            row["tgt_len"],
            row["mean_ms"],
            row["device"],
            colour,
            symbol=symbol,
            size=7.0,
            hover="M %{x}: %{y:.4~g} ms",
        ),
    ]


def _describe_times(row: Mapping[str, Any]) -> str:
    published = ""
    if row["published_r2"] is not None:
        published = f" (published for its devices: {row['published_r2']} and {row['published_mse_ms2']})"
    # A fit that is not perfect is never called so, and no rounding error is shown as a figure.
    r2 = "above 0.9999" if 0.99995 <= row["r2"] < 1 else number(row["r2"], 4)
    mse = "below 0.0001" if row["mse_ms2"] < 1e-4 else significant(row["mse_ms2"], 3)
    return (
        f"{row['device']}, {row['profile']} ({row['kind']}): {significant(row['ms_per_token'])} ms a target token, R\u00b2 of "
        f"the means {r2}, mean squared error {mse} ms\u00b2{published}."
    )


def _replayed(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    """In place of measured samples: the requests of the replay, whose times follow its profiles' planes."""
    part, cell = next(
        ((part, cell) for part in parts.values() for cell in part.cells if cell.workload == TRANSFORMER),
        next((part, cell) for part in parts.values() for cell in part.cells),
    )
    drawn = fit_panels(cell, part.fits, cell.workload.upper())[-1]
    note = (
        f"No profile at hand holds measured samples, so these are the replay's requests on profiles that are "
        f"{cell.profile_kinds[0]}: they show the form of the figure and prove nothing. The paper shows the Transformer on a "
        "Jetson (R² 0.99, mean squared error 0.13 ms²) and on a Titan (0.85, 1.2)."
    )
    heading = f"Gateway and server, {cell.workload.upper()}"
    title = "Figure 2a: time over target length"
    return {"id": "figure-2a", "title": title, "note": note, "panels": [replace(drawn, heading=heading, across=True)]}


def _planes(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    cells = [(name, cell) for name, part in parts.items() for cell in part.cells]
    # The paper's own example, the Transformer, is shown first; a stable sort keeps the rest in order.
    cells.sort(key=lambda named_cell: (named_cell[1].workload != TRANSFORMER, named_cell[0] == "inferred"))
    charts: dict[tuple[str, ...], Chart] = {}
    for place, (_, cell) in enumerate(cells):
        drawn = plane(CellView(cell, [], [], dict(zip(cell.logs, map(_colour, cell.logs), strict=True))))
        policy = str(list(cell.logs).index("cnmt"))
        for axes in ("near", "all"):
            chart = drawn.charts[policy, axes]
            charts[str(place), axes] = replace(chart, reading=f"{_coefficients(cell)} {chart.reading}")
    controls = [
        Control("of", "Of", [(str(place), _name(name, cell)) for place, (name, cell) in enumerate(cells)]),
        Control("range", "Axes", [("near", "most"), ("all", "all")]),
    ]
    alt = "Requests in the plane of source and target length with the border where both devices are equally fast"
    shown = Panel("planes", "Where each device is the faster one", alt, charts, controls, across=True)
    note = (
        "Requests by source length N and target length M, coloured by the device that C-NMT chose, and the border on which "
        "both devices are believed equally fast."
    )
    title = "Figure 2b: two planes and the border between their regions"
    return {"id": "figure-2b", "title": title, "note": note, "panels": [shown]}


def _colour(policy: str) -> int:
    return _COLOURS.index(policy) if policy in _COLOURS else len(_COLOURS)


def _coefficients(cell: Cell) -> str:
    sentences = []
    for device, kind, plane_s in zip(cell.devices, cell.profile_kinds, cell.planes, strict=True):
        src, tgt, fixed = (significant(1e3 * value, 3) for value in plane_s)
        sentences.append(f"{device.name} ({kind}): {src} N + {tgt} M + {fixed} ms.")
    return " ".join(sentences)


def _lengths(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    panels: dict[tuple[str, str, str], Panel] = {}
    for part in parts.values():
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
    return {"id": "figure-3", "title": title, "note": note, "panels": list(panels.values())}


def _traces(parts: Mapping[str, Replayed]) -> dict[str, Any]:
    groups: dict[str, list[Cell]] = {}
    for name, part in parts.items():
        # One pair for all data sets is shown once.
        alike = len({(cell.network, round(cell.series.mean_s, 9)) for cell in part.cells}) == 2
        for cell in part.cells:
            if not alike or cell.workload == part.cells[0].workload:
                groups.setdefault(name if alike else _name(name, cell, network=False), []).append(cell)
    drawn = panel(
        "traces",
        "CP1 and CP2",
        "Round-trip time in milliseconds over the time of the trace, CP1 and CP2",
        lambda name: _trace_chart(groups[name]),
        [Control("of", "Of", [(name, name) for name in groups])],
        across=True,
    )
    note = "The series that the replays met. The paper's own samples are not public."
    return {"id": "figure-4", "title": "Figure 4: round-trip times", "note": note, "panels": [drawn]}


def _trace_chart(cells: Sequence[Cell]) -> Chart:
    """Draw the round-trip times of the networks of one replay."""
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


_LABELS = {"edge": "GW", "cloud": "Server", "oracle": "Oracle", "naive": "Naive", "cnmt": "C-NMT"}


class Replayed(Protocol):
    """A replay of the paper's table on one kind of profiles."""

    @property
    def rows(self) -> Sequence[Row]:
        """The summary's rows."""
        ...

    @property
    def fits(self) -> Sequence[Row]:
        """What the policies believe."""
        ...

    @property
    def cells(self) -> Sequence[Cell]:
        """Empty where its profiles are missing."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What limits its numbers."""
        ...


def render_reproduction(document: Mapping[str, Any], parts: Mapping[str, Replayed]) -> str:
    """The page as text, to be written as UTF-8; it opens from disk without a network.

    `document`: what `--json` prints; `parts`: the replays by name, the inferred one first.
    """
    tables = {table["id"]: table for table in document["tables"]}
    cells, ratios = tables["table-one"]["cells"], tables["ratios"]
    described = document["parts"]
    rows = [row for part in parts.values() for row in part.rows]
    sections = drawings(tables["times"]["rows"], parts)
    return render_template(
        "reproduction_page.html.j2",
        ("tables.js", "charts.js"),
        drawings=[{**section, "packed": pack(section["panels"])} for section in sections],
        document=document,
        parts=[
            {
                "name": part["name"],
                "heading": f"{part['name']} profiles",
                "kinds": list(dict.fromkeys(kind for kinds in part["kinds"].values() for kind in kinds)),
                "notes": parts[part["name"]].notes,
            }
            for part in described
        ],
        lacking=sorted({note for part in parts.values() for note in part.notes if note.startswith("Not at hand")}),
        requests=rows[0]["requests"] if rows else None,
        one_network=len(parts) > 2,
        claims=claim_groups(document["claims"], document["doubts"]),
        doubtful_profiles=document["doubts"],
        heads=list(dict.fromkeys(f"{cell['network'].upper()} {_LABELS[cell['baseline']]}" for cell in cells)),
        table_one=_table_one(cells, described),
        ratios=[_ratio(row, described) for row in ratios["rows"]],
        errors=", ".join(f"{_group(name)} {100 * error:.2f} %" for name, error in ratios["mean_absolute_error"].items()),
        networks=[_network(row) for row in tables["networks"]["rows"]],
        grouped=lambda count: number(count, 0),
    )


def _table_one(cells: Sequence[Record], parts: Sequence[Record]) -> list[dict[str, Any]]:
    """Per data set and policy the published line, and one of each part."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for cell in cells:
        groups.setdefault((cell["workload"], cell["policy"]), []).append(cell)
    origins = [{"name": "published", "key": "published"}, *parts]
    return [
        {
            "name": f"{workload.upper()} {_LABELS[policy]}",
            "rows": [
                {
                    "name": origin["name"],
                    "kinds": origin["kinds"].get(workload, ["not at hand"]) if "kinds" in origin else ["published"],
                    "values": [_signed(cell[f"{origin['key']}_percent"]) for cell in group],
                }
                for origin in origins
            ],
        }
        for (workload, policy), group in groups.items()
    ]


def _ratio(row: Record, parts: Sequence[Record]) -> dict[str, Any]:
    one, other = row["published"]
    return {
        "name": f"{row['workload'].upper()} {row['network'].upper()} {_LABELS[row['policy']]}",
        "published": number(one, 4) if one == other else f"{number(one, 4)} | {number(other, 4)}",
        "inferred": number(row["inferred"], 4),
        "error": signed(100 * row["error"], 2),
        "role": row["role"],
        "others": [DASH if row[part["key"]] is None else number(row[part["key"]], 4) for part in parts[1:]],
    }


def _network(row: Record) -> dict[str, Any]:
    share = row["oracle_offloaded_share"]
    return {
        "profiles": row["profiles"],
        "data": row["workload"].upper(),
        "network": row["network"].upper(),
        "mean": number(row["mean_rtt_ms"], 1),
        "share": DASH if share is None else number(100 * share, 1),
        "kind": row["kind"],
    }


def _group(name: str) -> str:
    return {"all": "all 24", "fitted": "the fifteen fitted", "test": "the nine held out as a test"}.get(name, name.upper())


def _signed(value: float | None) -> str:
    return DASH if value is None else signed(value, 2)
