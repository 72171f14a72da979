"""The page of a comparison of runs: differing keys, changes with their intervals, best policies, in one HTML file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from simnmt.base.errors import shorten
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, pack, panel, plain, series_colour, short
from simnmt.report.page_template import render_template, write_page
from simnmt.report.typography import number, typeset, typeset_interval
from simnmt.results.comparison import NOTHING, Comparison, describe_value
from simnmt.results.number_text import digits
from simnmt.results.recommendation_text import describe_best
from simnmt.results.summary import Row

_MOST_CHARACTERS = 400
"""Most characters of the value of a key."""
_SPREAD = 0.5
"""Part of a policy's row of the chart over which the runs are spread."""


def write_comparison_page(path: str | os.PathLike[str], comparison: Comparison) -> None:
    """Write the page of a comparison, whole or not at all. Raises `InputError` if the file cannot be written."""
    write_page(path, render_comparison(comparison))


def render_comparison(comparison: Comparison) -> str:
    """Return the page as text; the same comparison gives the same text, and every name of the input is escaped."""
    panels = [change_panel(comparison)] if comparison.rows else []
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
            for (workload, network), rows in _by_place(comparison.rows).items()
        ],
        unstable=any(row["unstable_in"] for row in comparison.rows),
        nothing=f"The runs have {NOTHING}.",
        best=[
            (*place, [typeset(describe_best(by_run.get(name))) for name in comparison.names])
            for place, by_run in comparison.best_by_place.items()
        ],
        notes=comparison.notes,
    )


def change_panel(comparison: Comparison) -> Panel:
    """Return the figure of the changes: a row for each policy of a workload and network, a point with whiskers for each run."""
    by_place = {f"{workload} on {network}": rows for (workload, network), rows in _by_place(comparison.rows).items()}
    places = list(by_place)
    control = Control("place", "Workload and network", [(str(at), place) for at, place in enumerate(places)])

    def draw(at: str) -> Chart:
        return _chart(comparison, by_place[places[int(at)]])

    return panel(
        "changes",
        "Change of the mean latency",
        f"Change of the mean latency of each policy against {comparison.names[0]}, percent, with 95 % intervals",
        draw,
        [control],
        caption="Left of zero a run is faster. Whiskers are 95 % intervals over replications.",
        across=True,
    )


def _chart(comparison: Comparison, rows: Sequence[Row]) -> Chart:
    baseline, others = comparison.names[0], comparison.names[1:]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    marks = []
    for place, name in enumerate(others):
        of_run = [row for row in rows if row["run"] == name]
        offset = _SPREAD * ((place + 0.5) / len(others) - 0.5)
        marks.append(
            Mark(
                "points",
                [row["change_percent"] for row in of_run],
                [policies.index(row["policy"]) + offset for row in of_run],
                short(name, 40),
                series_colour(place),
                symbol=SYMBOLS[place % len(SYMBOLS)],
                size=9.0,
                low=[row["low_percent"] for row in of_run],
                high=[row["high_percent"] for row in of_run],
                text=[plain(f"{row['policy']}: {' '.join(_change(row)).rstrip()} %") for row in of_run],
                hover="%{text}",
                level=True,
            )
        )
    ticks = {float(at): short(policy, 20) for at, policy in enumerate(policies)}
    unpaired = [name for name in others if any(row["run"] == name and not row["paired"] for row in rows)]
    reading = f"Unpaired, with the noise of both runs: {', '.join(unpaired)}." if unpaired else ""
    title = f"change against {short(baseline)}, %"
    return Chart(marks, Axis(title, zero_line=True), Axis(ticks=ticks, span=(len(policies) - 0.5, -0.5)), reading)


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
