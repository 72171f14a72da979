"""The page of a sweep: metrics over the swept keys and the best policy of each point, in one HTML file without a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from simnmt.base.suggestions import format_list
from simnmt.report.charts import Axis, Chart, Control, Panel, plain, short
from simnmt.report.figures import policy_line
from simnmt.report.page import colours_of
from simnmt.report.page_template import Section, render_page
from simnmt.report.run_tables import cell_of
from simnmt.report.table import Column, Table, estimate
from simnmt.report.words import words
from simnmt.results.summary import Row
from simnmt.results.sweep_table import BEST, BOUND, EQUAL, POINT, TABLE, TIED, SweepTable

MOST_ROWS = 500
"""Most points in the page's table; the Parquet table has all."""
MOST_CASES = 48
"""Most choices of place and of values of the keys that a figure does not show."""
MOST_METRICS = 10
LOG_FROM = 10.0
"""Ratio of the greatest to the least value from which an axis is logarithmic."""
GAIN = "over_fixed_percent"
"""Column with the change of the objective against the best policy that sends every request to one device."""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _format_swept(value: Any) -> str:
    return f"{value:.6g}" if _is_number(value) else str(value)


def _short_key(key: str) -> str:
    """Return the last two parts of a dotted key."""
    return ".".join(key.split(".")[-2:])


def _colours(table: SweepTable) -> dict[str, int]:
    return colours_of(row["policy"] for row in table.rows)


def _cases(table: SweepTable, shown: str) -> dict[str, list[Row]]:
    """Return the first cases of a figure over one key: rows by workload, network and the values of the other keys."""
    cases: dict[str, list[Row]] = {}
    for row in table.rows:
        values = [f"{_short_key(key)} {_format_swept(row[key])}" for key in table.keys if key != shown]
        cases.setdefault(", ".join([" on ".join(cell_of(row)), *values]), []).append(row)
    return dict(list(cases.items())[:MOST_CASES])


def _scale(table: SweepTable, key: str) -> tuple[Axis, dict[str, float]]:
    """Return the axis of a key, and the place of each of its values: numbers by size, others as they come."""
    values = {json.dumps(row[key]): row[key] for row in table.rows}
    title = plain(_short_key(key))
    if all(map(_is_number, values.values())):
        return Axis(title), {text: float(value) for text, value in values.items()}
    ticks = {float(place): short(_format_swept(value), 20) for place, value in enumerate(values.values())}
    return Axis(title, ticks=ticks, span=(-0.5, len(values) - 0.5)), dict(zip(values, ticks, strict=True))


def response_panel(table: SweepTable, number: int, key: str) -> Panel:
    """Return the metrics of every policy over one swept key."""
    (across, places), cases = _scale(table, key), _cases(table, key)
    # That of the objective comes first; latencies have their unit in the name.
    ordered = sorted(table.metrics, key=lambda known: known.name != table.objective)[:MOST_METRICS]
    titles = {known.name: known.name if known.unit in ("ms", "") else f"{known.name}, {known.unit}" for known in ordered}
    units = {known.name: plain(known.unit) for known in ordered}

    def draw(metric: str, case: str) -> Chart:
        rows, marks = list(cases.values())[int(case)], []
        for policy, colour in _colours(table).items():
            stable = [row for row in rows if row["policy"] == policy and row[metric] is not None and not row["unstable"]]
            stable.sort(key=lambda row: places[json.dumps(row[key])])
            values, low, high = ([row[f"{metric}{end}"] for row in stable] for end in ("", "_low", "_high"))
            look: dict[str, Any] = {"symbol": "circle", "size": 5.0, "hover": f"%{{y:,.4~g}} {units[metric]} at %{{x}}"}
            at = [places[json.dumps(row[key])] for row in stable]
            marks.append(policy_line(policy, colour, at, values, low=low, high=high, **look))
        unstable = sorted({row["policy"] for row in rows if row["unstable"]})
        reading = f"Left out where unstable: {plain(format_list(unstable))}." if unstable else ""
        shown = [value for mark in marks for value in mark.y]
        log = bool(shown) and 0.0 < LOG_FROM * min(shown) < max(shown)
        # An interval that reaches far must not flatten the lines.
        span = (min(shown) / 1.3, max(shown) * 1.3) if log else None
        up = Axis(plain(titles[metric]), log=log, span=span, from_zero=True)
        return Chart(marks, across, up, reading, message="" if shown else "no steady value anywhere")

    return Panel(
        f"response-{number}",
        f"Response over {_short_key(key)}",
        f"Metric of each policy over {key}, with 95 % intervals over replications",
        draw,
        [
            Control("metric", "Metric", list(titles.items())),
            Control("case", "Of", [(str(place), name) for place, name in enumerate(cases)]),
        ],
        caption=f"Every policy over {key}, with 95 % intervals over replications.",
        across=True,
    )


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
    colours = _colours(table)
    cells: dict[tuple[int, str, str], list[Row]] = {}
    for row in table.rows:
        cells.setdefault((row[POINT], *cell_of(row)), []).append(row)
    rows = [_point_row(table.keys, of_cell) for of_cell in cells.values()]

    def swept(key: str) -> Column:
        return Column(_short_key(key), lambda row: _format_swept(row[key]))

    def colour(row: Row) -> str:
        return f"policy-{colours[row['best']]}" if row["best"] in colours else ""

    gain = (f"{GAIN}_low", f"{GAIN}_high")
    columns = [
        Column("point", POINT, digits=0),
        *map(swept, table.keys),
        Column("workload and network", "place", words=True),
        Column("best policy", "best", colour=colour, words=True),
        estimate(table.objective, table.objective),
        Column("against the best fixed policy, %", GAIN, signed=True, interval=gain, rounded=True),
        Column("as good", "equal", words=True),
        Column("not distinguishable from", "tied", words=True),
    ]
    note = "\n".join(words("points", more=len(rows) - MOST_ROWS, table=TABLE))
    return Table("", columns, rows[:MOST_ROWS], note, id="points")


def _point_row(keys: Sequence[str], rows: Sequence[Row]) -> Row:
    """Return the row of a point's best policy, with the swept values and the policies that are as good."""
    by_standing: dict[str, list[str]] = {}
    for row in rows:
        by_standing.setdefault(row["standing"], []).append(row["policy"])
    nothing = "no policy that can be deployed" if [*by_standing] == [BOUND] else "every policy is unstable"
    (best,) = by_standing.get(BEST, [nothing])
    numbers = next((row for row in rows if row["standing"] == BEST), {})
    return numbers | {
        **{key: rows[0][key] for key in (POINT, *keys)},
        "place": " on ".join(cell_of(rows[0])),
        "best": best,
        "equal": ", ".join(by_standing.get(EQUAL, ())),
        "tied": ", ".join(by_standing.get(TIED, ())),
    }
