"""The comparison of runs: differing keys, changes with their intervals, best policies, as tables, a figure, and a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from simnmt.base.errors import shorten
from simnmt.report.charts import SYMBOLS, Axis, Chart, Control, Mark, Panel, series_colour, short
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import PLACE, format_best
from simnmt.report.table import Column, Table, change
from simnmt.report.words import words
from simnmt.results.comparison import NOTHING, Comparison, describe_value
from simnmt.results.number_text import digits
from simnmt.results.summary import Row, by_cell, objective_name

MOST_CHARACTERS = 400
"""Most characters of the value of a key."""
_SPREAD = 0.5
"""Part of a policy's row of the figure over which the runs are spread."""


def differences_table(comparison: Comparison, most: int | None = None) -> Table:
    """Return the keys of the scenarios that differ; `most`: characters of a value, None for any number."""
    rows = [
        (row["key"], *(shorten(text, most or len(text)) for name in comparison.names if (text := describe_value(row[name]))))
        for row in comparison.scenario_differences
    ]
    return Table.of_texts("", ["key", *comparison.names], rows, words=len(comparison.names) + 1, id="keys")


def changes_table(comparison: Comparison) -> Table:
    """Return the change of the mean latency of each policy against the first run."""
    several = len(comparison.names) > 2
    first, second = comparison.names[0], "" if several else f"{comparison.names[1]} "

    def milliseconds(key: str) -> Callable[[Row], str]:
        return lambda row: digits(1e3 * row[key])

    rows = [row | {"unstable": row["unstable_in"], "because": "; ".join(row["unpaired_because"])} for row in comparison.changes]
    columns = [
        Column("policy", "policy", words=True),
        *[Column("run", "run", words=True)] * several,
        Column(f"{first} ms", milliseconds("baseline_latency_s"), key="baseline_ms"),
        Column(f"{second}ms", milliseconds("mean_latency_s"), key="ms"),
        change("change %", lambda row: row, key="change_percent", interval_on_terminal=True),
        Column("how", lambda row: "paired" if row["paired"] else "unpaired", small="because", key="how"),
        Column("effect", "effect"),
    ]
    note = "\n".join(words("changes", first=first, unstable=any(row["unstable"] for row in rows)))
    return Table(f"Change of the mean latency against {first}", columns, rows, note, id="changes", groups=PLACE)


def best_table(comparison: Comparison) -> Table:
    """Return the best policy of each run."""
    rows = [
        (*place, *(_describe_best(by_run.get(name)) for name in comparison.names))
        for place, by_run in comparison.best_by_place.items()
    ]
    return Table.of_texts("Best policy", [*PLACE, *comparison.names], rows, words=len(comparison.names) + 2, id="best")


def _describe_best(record: Row | None) -> str:
    """Return the recommended policy with its objective; empty for none."""
    if record is None or record["policy"] is None:
        return ""
    return f"{record['policy']}, {objective_name(record['objective'])} {format_best(record) or 'unstable'}"


def render_comparison(comparison: Comparison) -> str:
    """Return the page as text; the same comparison gives the same text, and every name of the input is escaped."""
    heads = ("run", "directory", "seed", "replications", "requests", "latencies")
    runs = [(*map(str, (run[key] or "" for key in heads[:-1])), "measured live" if run["live"] else "simulated")
            for run in comparison.runs]  # fmt: skip
    changed = bool(comparison.changes)
    sections = [
        Section("Runs", "runs", tables=[Table.of_texts("", heads, runs, words=2)], notes=comparison.notes),
        Section("Keys of the scenarios that differ", "keys", tables=[differences_table(comparison, MOST_CHARACTERS)])
        if comparison.scenario_differences
        else Section("Keys of the scenarios that differ", "keys", text=["The scenarios do not differ."]),
        Section(
            f"Changes against {comparison.names[0]}",
            "changes",
            text=[] if changed else [f"The runs have {NOTHING}."],
            panels=[change_panel(comparison)] if changed else [],
            tables=[changes_table(comparison)] if changed else [],
        ),
        *([Section("Best policy of each run", "best", tables=[best_table(comparison)])] if comparison.best else []),
    ]
    return render_page("simnmt compare", comparison.title, sections)


def change_panel(comparison: Comparison) -> Panel:
    """Return the figure of the changes: a row for each policy of a workload and network, a point with whiskers for each run."""
    places = by_cell(comparison.changes)
    control = Control("place", "Workload and network", [(str(at), " on ".join(place)) for at, place in enumerate(places)])
    return Panel(
        "changes",
        "Change of the mean latency",
        f"Change of the mean latency of each policy against {comparison.names[0]}, percent, with 95 % intervals",
        lambda at: change_chart([*places.values()][int(at)], comparison.names[1:]),
        [control],
        caption="Left of zero a run is faster. Whiskers are 95 % intervals over replications.",
        across=True,
    )


def change_chart(rows: Sequence[Row], runs: Sequence[str] = ()) -> Chart:
    """Draw a row for each policy, with a point and its whiskers for each run.

    Args:
        rows: the changes on one workload and network, of `Comparison`.
        runs: names of all runs after the first, whose order gives the colours; empty: those of `rows`.
    """
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    runs = runs or list(dict.fromkeys(row["run"] for row in rows))
    marks = []
    for place, name in enumerate(runs):
        of_run = [row for row in rows if row["run"] == name]
        offset = _SPREAD * ((place + 0.5) / len(runs) - 0.5)
        x, low, high = ([row[f"{key}_percent"] for row in of_run] for key in ("change", "low", "high"))
        y = [policies.index(row["policy"]) + offset for row in of_run]
        look: dict[str, Any] = {"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9.0, "level": True, "hover": "%{x:+.3~g} %"}
        marks.append(Mark("points", x, y, short(name, 40), series_colour(place), low=low, high=high, **look))
    ticks = {float(place): short(policy, 20) for place, policy in enumerate(policies)}
    baseline = short(rows[0]["baseline"], 40) if rows else "the first run"
    change_axis = Axis(f"change of the mean latency against {baseline}, %", zero_line=True)
    message = "" if rows else NOTHING
    return Chart(marks, change_axis, Axis(ticks=ticks, span=(len(policies) - 0.5, -0.5)), message=message)
