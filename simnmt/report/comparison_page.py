"""The page of a comparison of runs: differing keys, changes with their intervals, best policies, in one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from simnmt.base.errors import shorten
from simnmt.report.charts import Chart, Control, Panel, pack, panel, series_colour
from simnmt.report.comparison_chart import change_chart
from simnmt.report.page_template import render_template, write_page
from simnmt.report.typography import number, typeset, typeset_interval
from simnmt.results.comparison import NOTHING, Comparison, describe_value
from simnmt.results.number_text import digits
from simnmt.results.recommendation_text import describe_best
from simnmt.results.summary import Row

_MOST_CHARACTERS = 400
"""Most characters of the value of a key."""


def write_comparison_page(path: str | os.PathLike[str], comparison: Comparison) -> None:
    """Write the page of a comparison, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_comparison(comparison))


def render_comparison(comparison: Comparison) -> str:
    """Return the page as text; the same comparison gives the same text, and every name of the input is escaped."""
    panels = [change_panel(comparison)] if comparison.changes else []
    return render_template(
        "comparison_page.html.j2",
        ("tables.js", "charts.js") if panels else ("tables.js",),
        title=comparison.title,
        names=comparison.names,
        runs=[_run_line(run) for run in comparison.runs],
        differences=[
            (row["key"], [shorten(describe_value(row[name]), _MOST_CHARACTERS) for name in comparison.names])
            for row in comparison.scenario_differences
        ],
        panels=panels,
        packed=pack(panels),
        places=[
            {"workload": workload, "network": network, "lines": [_change_line(comparison, row) for row in rows]}
            for (workload, network), rows in _by_place(comparison.changes).items()
        ],
        unstable=any(row["unstable_in"] for row in comparison.changes),
        nothing=f"The runs have {NOTHING}.",
        best=[
            (*place, [typeset(describe_best(by_run.get(name))) for name in comparison.names])
            for place, by_run in comparison.best_by_place.items()
        ],
        notes=comparison.notes,
    )


def change_panel(comparison: Comparison) -> Panel:
    """Return the figure of the changes: a row for each policy of a workload and network, a point with whiskers for each run."""
    by_place = {f"{workload} on {network}": rows for (workload, network), rows in _by_place(comparison.changes).items()}
    places = list(by_place)
    control = Control("place", "Workload and network", [(str(at), place) for at, place in enumerate(places)])

    def draw(at: str) -> Chart:
        return change_chart(by_place[places[int(at)]], comparison.names[1:])

    return panel(
        "changes",
        "Change of the mean latency",
        f"Change of the mean latency of each policy against {comparison.names[0]}, percent, with 95 % intervals",
        draw,
        [control],
        caption="Left of zero a run is faster. Whiskers are 95 % intervals over replications.",
        across=True,
    )


def _by_place(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    by_place: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by_place.setdefault((row["workload"], row["network"]), []).append(row)
    return by_place


def _change(row: Row) -> tuple[str, str]:
    return typeset_interval(row["change_percent"], row["low_percent"], row["high_percent"])


def _change_line(comparison: Comparison, row: Row) -> Row:
    change, interval = _change(row)
    return {
        "policy": row["policy"],
        "run": row["run"],
        "colour": series_colour(comparison.names.index(row["run"]) - 1),
        "baseline_ms": typeset(digits(1e3 * row["baseline_latency_s"])),
        "ms": typeset(digits(1e3 * row["mean_latency_s"])),
        "value": row["change_percent"],
        "change": change,
        "interval": interval,
        "verdict": row["verdict"],
        "how": "paired" if row["paired"] else "unpaired",
        "because": "; ".join(row["unpaired_because"]),
        "unstable": f"unstable in {', '.join(row['unstable_in'])}" if row["unstable_in"] else "",
    }


def _run_line(run: Row) -> dict[str, str]:
    counts = {key: number(run[key], 0) for key in ("replications", "requests")}
    how = "measured live" if run["live"] else "simulated"
    return {"run": run["run"], "directory": run["directory"] or "", "seed": str(run["seed"]), **counts, "how": how}
