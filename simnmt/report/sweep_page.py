"""The page of a sweep: metrics over the swept keys and the best policy of each point, in one HTML file without a network."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.report.charts import Axis, Chart, Control, Panel, plain, short
from simnmt.report.figures import policy_line
from simnmt.report.page import colours_of
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import cell_of
from simnmt.report.table import Column, Table, estimate
from simnmt.report.words import words
from simnmt.results.metrics import Metric
from simnmt.results.summary import Row
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TABLE, TIED, SweepTable

MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""
MOST_CASES = 48
"""Most choices of place and of values of the keys that a figure does not show; of more, an even selection."""
MOST_METRICS = 10
LOG_FROM = 10.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""
GAIN = "over_fixed_percent"
"""Column with the change of the objective against the best policy that sends every request to one device."""
INTERVALS = "with 95 % intervals over replications"
NOTHING = "no steady value anywhere"


def is_plain_number(value: Any) -> bool:
    """Return whether a value lies on an axis of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def format_swept(value: Any) -> str:
    """Return a value of a key for a reader."""
    return f"{value:.6g}" if is_plain_number(value) else str(value)


def short_key(key: str) -> str:
    """Return the last parts of a dotted key.

    >>> short_key("workloads.de-en.arrivals.rate_rps")
    'arrivals.rate_rps'
    """
    return ".".join(key.split(".")[-2:])


def axis_title(known: Metric) -> str:
    """Return the name of a metric for an axis: latencies have their unit in the name."""
    return known.name if known.unit == "ms" or not known.unit else f"{known.name}, {known.unit}"


def _metrics(table: SweepTable) -> dict[str, Metric]:
    """Return the metrics with figures, that of the objective first."""
    ordered = sorted(table.metrics, key=lambda known: known.name != table.objective)
    return {known.name: known for known in ordered[:MOST_METRICS]}


def _cases(table: SweepTable, shown: Sequence[str]) -> dict[str, list[Row]]:
    """Return the rows by workload, network and the values of the keys that a figure does not show."""
    cases: dict[str, list[Row]] = {}
    for row in table.rows:
        values = [f"{short_key(key)} {format_swept(row[key])}" for key in table.keys if key not in shown]
        cases.setdefault(", ".join([" on ".join(cell_of(row)), *values]), []).append(row)
    step = max(len(cases) / MOST_CASES, 1.0)
    names = [*cases]
    return {name: cases[name] for place in range(min(len(names), MOST_CASES)) for name in [names[int(place * step)]]}


def _controls(metrics: Iterable[Metric], cases: Iterable[str]) -> list[Control]:
    return [
        Control("metric", "Metric", [(known.name, axis_title(known)) for known in metrics]),
        Control("case", "Of", [(str(place), name) for place, name in enumerate(cases)]),
    ]


def _policies(table: SweepTable) -> list[str]:
    return list(dict.fromkeys(row["policy"] for row in table.rows))


def _scale(table: SweepTable, key: str) -> tuple[Axis, dict[str, float]]:
    """Return the axis of a key, and the place of each of its values: numbers by size, others as they come."""
    values = {json.dumps(row[key]): row[key] for row in table.rows}
    title = plain(short_key(key))
    if all(map(is_plain_number, values.values())):
        return Axis(title), {text: float(value) for text, value in sorted(values.items(), key=lambda item: float(item[1]))}
    ticks = {float(place): short(format_swept(value), 20) for place, value in enumerate(values.values())}
    return Axis(title, ticks=ticks, span=(-0.5, len(values) - 0.5)), dict(zip(values, ticks, strict=True))


def response_panel(table: SweepTable, number: int, key: str) -> Panel:
    """Return the metrics of every policy over one swept key."""
    across, places = _scale(table, key)
    metrics, cases, colours = _metrics(table), _cases(table, [key]), colours_of(_policies(table))

    def draw(metric: str, case: str) -> Chart:
        known, rows = metrics[metric], [*cases.values()][int(case)]
        marks = []
        for policy, colour in colours.items():
            stable = [row for row in rows if row["policy"] == policy and row[metric] is not None and not row["unstable"]]
            stable.sort(key=lambda row: places[json.dumps(row[key])])
            values, low, high = ([row[f"{metric}{end}"] for row in stable] for end in ("", "_low", "_high"))
            look: dict[str, Any] = {"symbol": "circle", "size": 5.0, "hover": f"%{{y:,.4~g}} {plain(known.unit)} at %{{x}}"}
            at = [places[json.dumps(row[key])] for row in stable]
            marks.append(policy_line(policy, colour, at, values, low=low, high=high, **look))
        unstable = sorted({row["policy"] for row in rows if row["unstable"]})
        reading = f"Left out where unstable: {plain(format_list(unstable))}." if unstable else ""
        shown = [value for mark in marks for value in mark.y]
        log = bool(shown) and 0.0 < LOG_FROM * min(shown) < max(shown)
        # An interval that reaches far must not flatten the lines.
        span = (min(shown) / 1.3, max(shown) * 1.3) if log else None
        up = Axis(plain(axis_title(known)), log=log, span=span, from_zero=True)
        return Chart(marks, across, up, reading, message="" if shown else NOTHING)

    return Panel(
        f"response-{number}",
        f"Response over {short_key(key)}",
        f"Metric of each policy over {key}, {INTERVALS}",
        draw,
        _controls(metrics.values(), cases),
        caption=f"Every policy over {key}, {INTERVALS}.",
        across=True,
    )


def describe_no_best(rows: Sequence[Row]) -> str:
    """Return why no policy of a point is the best."""
    is_bound = all(row["standing"] == BOUND for row in rows)
    return "no policy that can be deployed" if is_bound else "every policy is unstable"


def render_sweep(table: SweepTable) -> str:
    """Return the page as text; the same table gives the same text, and every name of the input is escaped."""
    panels = [response_panel(table, number, key) for number, key in enumerate(table.keys) if table.rows]
    first = table.rows[0] if table.rows else {}
    counts = [(name, first.get(name)) for name in ("replications", "requests") if name not in table.keys]
    facts = [
        ("points", f"{len({row[POINT] for row in table.rows}):,}"),
        ("swept keys", ", ".join(table.keys)),
        *((name, f"{count:,}") for name, count in counts if count is not None),
        ("seed", str(table.seed)),
        ("objective", table.objective),
    ]
    failed = f"{table.failed} points failed and are missing here; `failed.json` has their errors."
    sections = [
        Section("Sweep", "sweep", text=[failed] * bool(table.failed), facts=facts),
        *[Section("Response over the keys", "response", panels=panels)] * bool(panels),
        Section("Best policy of each point", "points", tables=[points_table(table)]),
    ]
    return render_page("simnmt sweep", table.name, sections)


def points_table(table: SweepTable) -> Table:
    """Return the best policy of each point, workload and network."""
    column, colours = table.objective, colours_of(_policies(table))
    cells: dict[tuple[int, str, str], list[Row]] = {}
    for row in table.rows:
        cells.setdefault((row[POINT], *cell_of(row)), []).append(row)
    rows = []
    for rows_of_cell in cells.values():
        best = next((row for row in rows_of_cell if row["standing"] == BEST), None)
        rows.append((best or {}) | {
            **{key: rows_of_cell[0][key] for key in (POINT, *table.keys)},
            "place": " on ".join(cell_of(rows_of_cell[0])),
            "best": describe_no_best(rows_of_cell) if best is None else best["policy"],
            "equal": ", ".join(row["policy"] for row in rows_of_cell if row["standing"] == EQUAL),
            "tied": ", ".join(row["policy"] for row in rows_of_cell if row["standing"] == TIED),
        })  # fmt: skip

    def swept(key: str) -> Column:
        return Column(short_key(key), lambda row: format_swept(row[key]))

    def colour(row: Row) -> str:
        return f"policy-{colours[row['best']]}" if row["best"] in colours else ""

    gain = (f"{GAIN}_low", f"{GAIN}_high")
    columns = [
        Column("point", POINT, digits=0),
        *map(swept, table.keys),
        Column("workload and network", "place", words=True),
        Column("best policy", "best", colour=colour, words=True),
        estimate(column, column),
        Column("against the best fixed policy, %", GAIN, signed=True, interval=gain, rounded=True),
        Column("as good", "equal", words=True),
        Column("not distinguishable from", "tied", words=True),
    ]
    more = len(rows) - MOST_ROWS
    note = "\n".join(words("points", more=more, table=TABLE))
    return Table("", columns, rows[:MOST_ROWS], note, id="points")
