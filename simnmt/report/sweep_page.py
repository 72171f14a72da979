"""The page of a sweep: response, best policy and Pareto front over the swept keys, in one HTML file without a network."""

from __future__ import annotations

import os

from simnmt.report.charts import pack
from simnmt.report.page import colours_of
from simnmt.report.page_template import render_template, write_page
from simnmt.report.sweep_figures import (
    GAIN,
    SweepView,
    best_panels,
    describe_no_best,
    format_swept,
    heat_panels,
    pareto_panel,
    response_panels,
    short_key,
)
from simnmt.report.typography import number, typeset, typeset_interval
from simnmt.results.number_text import digits
from simnmt.results.summary import Row
from simnmt.results.sweep_table import BEST, EQUAL, POINT, TIED, SweepTable

MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""


def write_sweep_page(path: str | os.PathLike[str], table: SweepTable) -> None:
    """Write the page of a sweep, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_sweep(table))


def render_sweep(table: SweepTable) -> str:
    """Return the page as text; the same table gives the same text, and every name of the input is escaped."""
    view = SweepView(table, colours_of(row["policy"] for row in table.rows))
    pareto = pareto_panel(view) if table.rows else None
    groups = [
        ("response", "Response over the keys", [*response_panels(view), *heat_panels(view)] if table.rows else []),
        ("best", "Best policy", best_panels(view) if table.rows else []),
        ("pareto", "Trade-offs", [] if pareto is None else [pareto]),
    ]
    lines = _best_lines(view)
    return render_template(
        "sweep_page.html.j2",
        ("tables.js", "charts.js"),
        name=table.name,
        facts=_facts(table),
        failed=table.failed,
        sections=[
            {"id": name, "title": title, "panels": panels, "packed": pack(panels)} for name, title, panels in groups if panels
        ],
        keys=[(key, short_key(key)) for key in table.keys],
        objective=table.objective,
        lines=lines[:MOST_ROWS],
        more=max(len(lines) - MOST_ROWS, 0),
    )


def _facts(table: SweepTable) -> list[tuple[str, str]]:
    points = len({row[POINT] for row in table.rows})
    first = table.rows[0] if table.rows else {}
    counts = [(name, first.get(name)) for name in ("replications", "requests") if name not in table.keys]
    return [
        ("points", number(points, 0)),
        ("swept keys", ", ".join(table.keys)),
        *((name, number(count, 0)) for name, count in counts if count is not None),
        ("seed", str(table.seed)),
        ("objective", table.objective),
    ]


def _best_lines(view: SweepView) -> list[Row]:
    """Return the best policy of each point, workload and network for the page's table."""
    column = view.table.objective
    by_cell: dict[tuple[int, str, str], list[Row]] = {}
    for row in view.table.rows:
        by_cell.setdefault((row[POINT], row["workload"], row["network"]), []).append(row)
    lines = []
    for (point, workload, network), rows in by_cell.items():
        best = next((row for row in rows if row["verdict"] == BEST), None)
        value, interval, gain, gain_interval = "", "", "", ""
        if best is not None and best.get(GAIN) is not None:
            gain, gain_interval = typeset_interval(best[GAIN], best[f"{GAIN}_low"], best[f"{GAIN}_high"])
        if best is not None and best.get(column) is not None:
            value, interval = typeset_interval(best[column], best[f"{column}_low"], best[f"{column}_high"], signs="minus")
            value = value or typeset(digits(best[column]))
        lines.append(
            {
                "point": point,
                "values": [format_swept(rows[0][key]) for key in view.table.keys],
                "place": f"{workload} on {network}",
                "best": describe_no_best(rows) if best is None else best["policy"],
                "colour": None if best is None else f"policy-{view.colours[best['policy']]}",
                "equal": ", ".join(row["policy"] for row in rows if row["verdict"] == EQUAL),
                "tied": ", ".join(row["policy"] for row in rows if row["verdict"] == TIED),
                "gain": gain,
                "gain_interval": gain_interval,
                "value": value,
                "interval": interval,
            }
        )
    return lines
